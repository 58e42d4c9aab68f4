"""From a request to what the speech-token LLM reads: segments of text as ids, each with the model's own prompt prefix.

LLM input = ``[sos] prompt_text_ids text_ids [task]`` and then the clip's speech tokens if ``uses_prompt_speech``. The
prefix is ours alone: whatever a user types is encoded without control tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cosyui.engine.request import Mode, SynthesisRequest
from cosyui.errors import InputError
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer
from cosyui.notice import Notice
from cosyui.speech.marks import MarkFrontend
from cosyui.speech.text.language import detect_language
from cosyui.speech.text.lexicon import Lexicon
from cosyui.speech.text.prefix import SYSTEM_PROMPT, strip_prefix
from cosyui.speech.text.prepare import PreparedText, prepare, spoken_line
from cosyui.speech.text.sanitise import sanitise
from cosyui.speech.text.screen import MAX_INSTRUCTION_CHARS, MAX_TRANSCRIPT_CHARS, TextRules, screen
from cosyui.speech.text.split import SplitLimits

RAW_LIMITS = SplitLimits(max_tokens=80)
"""For a text of Qwen tokens: about 20-25 s of speech."""
MARK_LIMITS = SplitLimits(max_tokens=100)
"""For a text of pronunciation marks: about 8 s of English or 12 s of Mandarin, the longest it has learned."""
_RARE_HAN = re.compile("[\U00020000-\U0003ffff]")
MAX_LISTED = 40
"""Letters that a remark lists at most."""


@dataclass(frozen=True)
class SegmentInput:
    """One segment as the LLM reads it.

    ``text`` is its normalised text (for people and logs). ``spoken_ids`` is how many of ``text_ids`` are to be spoken:
    the base of the length rule, without the prefix that cross-lingual mode puts into ``text_ids``. ``pause`` is the
    silence wanted after it, in seconds; 0 after the last.
    """

    text: str
    prompt_text_ids: tuple[int, ...]
    text_ids: tuple[int, ...]
    uses_prompt_speech: bool
    spoken_ids: int = 0
    pause: float = 0.0


class TextFrontend:
    """Text handling for one checkpoint. ``text_frontend`` is the yaml key of that name: None or ``cosyui-marks-v1``."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        text_frontend: str | None = None,
        limits: SplitLimits | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """Raises CheckpointError for an unknown ``text_frontend``. ``limits`` overrides the default for its kind."""
        self._tokenizer = tokenizer
        self._lexicon = lexicon
        self._marks = MarkFrontend.of_name(text_frontend, tokenizer.marks)
        self.limits = limits or (MARK_LIMITS if self._marks else RAW_LIMITS)
        spoken = self._marks.marks if self._marks else tokenizer.marks
        self._rules = TextRules(marks=spoken, languages=self._marks.languages if self._marks else None)
        self._prefix = (*tokenizer.encode(SYSTEM_PROMPT), tokenizer.id_of(END_OF_PROMPT))

    def segments(self, request: SynthesisRequest) -> tuple[list[SegmentInput], tuple[Notice, ...]]:
        """The request's segments in order, and warnings in plain words. Raises InputError with the field at fault."""
        # A text of digits alone is read in the language of the voice, which its transcript tells.
        transcript, _ = strip_prefix(sanitise(request.prompt.transcript), marked=True)
        voice_language = detect_language(transcript) or self._rules.digits_language
        rules = replace(self._rules, digits_language=voice_language)
        prepared = prepare(
            request.text,
            self.count,
            request.language,
            self.limits,
            rules=rules,
            lexicon=self._lexicon,
        )
        prompt_text, warnings = self._prompt_text(request, prepared.language)
        head = self._prefix if request.mode is Mode.CROSS_LINGUAL else ()
        segments = []
        for segment in prepared.segments:
            ids = self._ids(segment.text)
            if not self._sounds(ids):
                continue
            segments.append(
                SegmentInput(
                    text=segment.text,
                    prompt_text_ids=prompt_text,
                    text_ids=(*head, *ids),
                    uses_prompt_speech=request.mode is Mode.ZERO_SHOT,
                    spoken_ids=len(ids),
                    pause=segment.pause,
                )
            )
        if not segments:
            raise InputError("text_nothing_to_speak", "This voice has no sounds for what the text contains.", "text")
        segments[-1] = replace(segments[-1], pause=0.0)
        return segments, (*prepared.warnings, *self._silent(prepared), *warnings)

    def _sounds(self, ids: tuple[int, ...]) -> bool:
        """Whether the ids make any sound: with the marks front end, a text of unknown characters leaves only signs."""
        return self._marks is None or any(number >= self._tokenizer.base_size for number in ids)

    def _silent(self, prepared: PreparedText) -> tuple[Notice, ...]:
        """A remark about letters that the marks front end has no pronunciation for, or that no model has met often."""
        if self._marks:
            letters = self._marks.unknown(prepared.text)
            code, sentence = "letters_left_out", "Left out, because this voice cannot pronounce them: {letters}"
        else:
            letters = "".join(dict.fromkeys(_RARE_HAN.findall(prepared.text)))
            code, sentence = "letters_rare", "Rare letters that may be skipped or misread: {letters}"
        return (Notice.of(code, sentence, letters=letters[:MAX_LISTED]),) if letters else ()

    def count(self, text: str) -> int:
        """Tokens of a normalised text."""
        return len(self._ids(text))

    def _ids(self, text: str) -> tuple[int, ...]:
        """Ids of a normalised text, by way of pronunciation marks if the checkpoint wants them."""
        return tuple(self._tokenizer.encode(self._marks.convert(text) if self._marks else text))

    def _prompt_text(self, request: SynthesisRequest, language: str) -> tuple[tuple[int, ...], tuple[Notice, ...]]:
        if request.mode is Mode.ZERO_SHOT:
            transcript = self._transcript(request.prompt.transcript, language)
            return (*self._prefix, *self._ids(transcript.text)), transcript.warnings
        if request.mode is Mode.INSTRUCT:
            instruction = self._instruction(request.instruction)
            ids = self._tokenizer.encode(f"{SYSTEM_PROMPT} {instruction}")
            return (*ids, self._tokenizer.id_of(END_OF_PROMPT)), ()
        return (), ()

    def _transcript(self, text: str, language: str) -> PreparedText:
        """The clip's transcript, normalised like the text but in one piece."""
        rules = replace(self._rules, field="transcript", digits_language=language, max_chars=MAX_TRANSCRIPT_CHARS)
        return spoken_line(text, rules, self._lexicon)

    def _instruction(self, text: str) -> str:
        rules = TextRules(field="instruction", max_chars=MAX_INSTRUCTION_CHARS, marks=self._rules.marks)
        return " ".join(passage.text.replace("\n", " ") for passage in screen(text, rules).passages)
