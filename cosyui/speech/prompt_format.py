"""From a request to what the speech-token LLM reads: segments of text as ids, each with the model's own prompt prefix.

LLM input = ``[sos] prompt_text_ids text_ids [task]`` and then the clip's speech tokens if ``uses_prompt_speech``. The
prefix is ours alone: whatever a user types is encoded without control tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cosyui.engine.request import Mode, SynthesisRequest
from cosyui.errors import InputError
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer
from cosyui.notice import Notice
from cosyui.speech.marks import MarkFrontend
from cosyui.speech.markup import strip_prefix
from cosyui.speech.split import SplitLimits
from cosyui.speech.text import PreparedText, TextRules, detect_language, has_speech, prepare, sanitise

SYSTEM_PROMPT = "You are a helpful assistant."
MAX_TRANSCRIPT_CHARS = 400
MAX_INSTRUCTION_CHARS = 200

RAW_LIMITS = SplitLimits(max_tokens=80)
"""For a text of Qwen tokens: about 20-25 s of speech."""
MARK_LIMITS = SplitLimits(max_tokens=100)
"""For a text of pronunciation marks: about 8 s of English or 12 s of Mandarin, the longest it has learned."""


@dataclass(frozen=True)
class SegmentInput:
    """One segment as the LLM reads it.

    ``text`` is its normalised text (for people and logs). ``spoken_ids`` is how many of ``text_ids`` are to be spoken:
    the base of the length rule, without the prefix that cross-lingual mode puts into ``text_ids``.
    """

    text: str
    prompt_text_ids: tuple[int, ...]
    text_ids: tuple[int, ...]
    uses_prompt_speech: bool
    spoken_ids: int = 0


class TextFrontend:
    """Text handling for one checkpoint. ``text_frontend`` is the yaml key of that name: None or ``cosyui-marks-v1``."""

    def __init__(
        self, tokenizer: TextTokenizer, text_frontend: str | None = None, limits: SplitLimits | None = None
    ) -> None:
        """Raises CheckpointError for an unknown ``text_frontend``. ``limits`` overrides the default for its kind."""
        self._tokenizer = tokenizer
        self._marks = MarkFrontend.of_name(text_frontend, tokenizer.marks)
        self.limits = limits or (MARK_LIMITS if self._marks else RAW_LIMITS)
        spoken = self._marks.marks if self._marks else tokenizer.marks
        self._rules = TextRules(marks=spoken, languages=self._marks.languages if self._marks else None)
        self._prefix = (*tokenizer.encode(SYSTEM_PROMPT), tokenizer.id_of(END_OF_PROMPT))

    def segments(self, request: SynthesisRequest) -> tuple[list[SegmentInput], tuple[Notice, ...]]:
        """The request's segments in order, and warnings in plain words. Raises InputError with the field at fault."""
        # A text of digits alone is read in the language of the voice, which its transcript tells.
        voice_language = detect_language(request.prompt.transcript) or self._rules.digits_language
        rules = replace(self._rules, digits_language=voice_language)
        text = strip_prefix(request.text, SYSTEM_PROMPT, only_if_marked=True)
        prepared = prepare(text, lambda piece: len(self._ids(piece)), request.language, self.limits, rules=rules)
        prompt_text, warnings = self._prompt_text(request, prepared.language)
        head = self._prefix if request.mode is Mode.CROSS_LINGUAL else ()
        segments = []
        for text in prepared.segments:
            ids = self._ids(text)
            if not self._sounds(ids):
                continue
            segments.append(
                SegmentInput(
                    text=text,
                    prompt_text_ids=prompt_text,
                    text_ids=(*head, *ids),
                    uses_prompt_speech=request.mode is Mode.ZERO_SHOT,
                    spoken_ids=len(ids),
                )
            )
        if not segments:
            raise InputError("text_nothing_to_speak", "This voice has no sounds for what the text contains.", "text")
        return segments, (*prepared.warnings, *self._silent(prepared), *warnings)

    def _sounds(self, ids: tuple[int, ...]) -> bool:
        """Whether the ids make any sound: with the marks front end, a text of unknown characters leaves only signs."""
        return self._marks is None or any(number >= self._tokenizer.base_size for number in ids)

    def _silent(self, prepared: PreparedText) -> tuple[Notice, ...]:
        """A warning about the characters that the marks front end has no pronunciation for."""
        dropped = self._marks.unknown("".join(prepared.segments)) if self._marks else ""
        sentence = "Left out, because this voice cannot pronounce them: {letters}"
        return (Notice.of("letters_left_out", sentence, letters=dropped),) if dropped else ()

    def _ids(self, text: str) -> tuple[int, ...]:
        """Ids of a normalised text, by way of pronunciation marks if the checkpoint wants them."""
        return tuple(self._tokenizer.encode(self._marks.convert(text) if self._marks else text))

    def _prompt_text(self, request: SynthesisRequest, language: str) -> tuple[tuple[int, ...], tuple[Notice, ...]]:
        if request.mode is Mode.ZERO_SHOT:
            transcript = self._transcript(request.prompt.transcript, language)
            return (*self._prefix, *self._ids(transcript.segments[0])), transcript.warnings
        if request.mode is Mode.INSTRUCT:
            instruction = self._instruction(request.instruction)
            ids = self._tokenizer.encode(f"{SYSTEM_PROMPT} {instruction}")
            return (*ids, self._tokenizer.id_of(END_OF_PROMPT)), ()
        return (), ()

    def _transcript(self, text: str, language: str) -> PreparedText:
        """The clip's transcript, normalised like the text but in one piece."""
        text = strip_prefix(text, SYSTEM_PROMPT)
        if not has_speech(sanitise(text)):
            raise InputError(
                "transcript_missing",
                "Type what is said in the prompt clip, or choose cross-lingual mode.",
                "transcript",
            )
        if len(text) > MAX_TRANSCRIPT_CHARS:
            raise InputError(
                "transcript_too_long",
                f"The transcript has {len(text)} characters; {MAX_TRANSCRIPT_CHARS} are allowed. "
                "It must hold only what is said in the clip.",
                "transcript",
            )
        rules = replace(self._rules, field="transcript", digits_language=language)
        return prepare(text, lambda _: 1, None, SplitLimits(max_tokens=1 << 30), rules=rules)

    def _instruction(self, text: str) -> str:
        instruction = " ".join(sanitise(strip_prefix(text, SYSTEM_PROMPT)).split())
        if not instruction:
            raise InputError(
                "instruction_missing", "Say how it should sound, for example: speak slowly.", "instruction"
            )
        if len(instruction) > MAX_INSTRUCTION_CHARS:
            raise InputError(
                "instruction_too_long",
                f"The instruction has {len(instruction)} characters; {MAX_INSTRUCTION_CHARS} are allowed.",
                "instruction",
            )
        return instruction
