"""From what a request brought to the form of a take: names of models and voices are looked up here."""

from __future__ import annotations

import asyncio

from cosyui.api.bodies import SpeechBody, Wish
from cosyui.api.problems import ApiError
from cosyui.engine.request import Mode
from cosyui.service.service import SynthesisService
from cosyui.service.types import TakeForm
from cosyui.service.voice_names import VoiceData, Voices
from cosyui.speech.sound.encode import check_format

OWN_NAME = "cosyui"
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that programs written for OpenAI send; all of them are the loaded model."""


def model_names(service: SynthesisService) -> tuple[str, ...]:
    """Of the one model there is, each once."""
    facts = service.client.facts
    loaded = [facts.model] if facts is not None else []
    configured = service.settings.model.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    return tuple(dict.fromkeys([*loaded, configured, OWN_NAME, *OPENAI_MODELS]))


class Wishes:
    def __init__(self, service: SynthesisService, voices: Voices) -> None:
        self._service = service
        self._voices = voices

    async def form(self, wish: Wish, client: str, *, stream: bool) -> TakeForm:
        """Raises ApiError ``model_not_found``, ``voice_not_found``, ``instruct_unsupported`` or ``parameter_*``, and

        InputError as `check_format`. What else may be wrong, `SynthesisService.submit` tells.
        """
        body = wish.body
        if body.model not in model_names(self._service):
            message = f"There is no model {body.model[:80]!r} here; GET /v1/models lists the names."
            raise ApiError("model_not_found", message, "model", status=404)
        check_format(body.response_format, body.sample_rate)
        if body.stream_format == "sse" and not stream:
            raise ApiError("parameter_invalid", "A job has a file, and no events.", "stream_format")
        voice = await self._voice(wish)
        instruction = (body.instructions or "").strip()
        return TakeForm(
            text=body.input,
            mode=self._mode(voice, instruction),
            clip=voice.clip,
            transcript=voice.transcript,
            instruction=instruction,
            speed=body.speed,
            seed=body.seed,
            stream=stream,
            language=body.language,
            client=client,
            deadline=body.deadline,
        )

    async def _voice(self, wish: Wish) -> VoiceData:
        if wish.clip is not None:
            if wish.body.voice is not None:
                raise ApiError("parameter_invalid", "Send a clip or the name of a voice, not both.", "voice")
            return VoiceData(wish.clip, wish.transcript)
        name = wish.body.voice
        if name is None:
            raise ApiError("parameter_missing", "Name a voice, or send a clip of one in a form.", "voice")
        found = await asyncio.to_thread(self._voices.find, name)
        if found is None:
            names = ", ".join((await asyncio.to_thread(self._voices.list))[:20])
            raise ApiError(
                "voice_not_found", f"There is no voice {name[:80]!r}; there are {names}.", "voice", status=404
            )
        return found

    def _mode(self, voice: VoiceData, instruction: str) -> Mode:
        """Where an instruction is followed, the transcript of the clip is not read."""
        if not instruction:
            return Mode.ZERO_SHOT if voice.transcript.strip() else Mode.CROSS_LINGUAL
        facts = self._service.client.facts
        if facts is not None and not facts.instruct_supported:
            message = "The loaded model follows no instructions. Leave them away, or load the released model."
            raise ApiError("instruct_unsupported", message, "instruction")
        return Mode.INSTRUCT


def audio_headers(body: SpeechBody) -> dict[str, str]:
    """What raw samples cannot tell of themselves."""
    headers = {"x-audio-sample-rate": str(body.sample_rate), "x-audio-channels": "1", "cache-control": "no-store"}
    return headers | ({"x-audio-sample-format": "s16le"} if body.response_format in ("pcm", "wav") else {})
