"""Whether what was loaded speaks: a take on the engine's own way, and figures that need no listener.

A wrong library or a damaged weight raises nothing, it speaks nonsense. Two figures tell, both of a clip whose words are
known. ``agreement``: the clip's speech tokens are made into sound, and the speech tokenizer listens whether it hears
them again. ``gain``: the language model finds the clip's tokens likelier behind its own words than behind others. The
take is also the last warm-up: what is made when it is first needed is there then.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cosyui.engine.needs import Render
from cosyui.engine.render import PromptFeatures
from cosyui.engine.request import Failed, Mode, PromptClip, SelfTest, SynthesisRequest
from cosyui.engine.slots import SlotDecoder
from cosyui.engine.vocoder_runner import VocoderPiece
from cosyui.engine.voice import Voice
from cosyui.model.llm_decode import DecodeLLM
from cosyui.notice import Notice
from cosyui.speech.features import SPEECH_RATE, mel_24k, resample, whisper_log_mel

if TYPE_CHECKING:
    from cosyui.engine.engine import Engine

log = logging.getLogger(__name__)

CLIP = Path(__file__).parents[1] / "assets" / "examples" / "en.wav"
TRANSCRIPT = "Teaching was, of course, the first thing that suggested itself."
OTHER_WORDS = "Nobody in the village had ever seen a harbour before that day."
HEAD, HEAD_SECONDS = "Teaching was, of course,", 1.6
"""Of the clip; enough of a prompt for a short take, which costs less behind a short prompt."""
SENTENCE, CHINESE = "Good morning.", "早上好。"
PROMPT_TOKENS, SPOKEN_TOKENS = 10, 30
"""Of the clip, for the agreement."""
DIGITS = 8
"""A speech token is a number of eight ternary digits: near sounds share most of them."""
UNRELATED = 5
"""Tokens so far apart have nothing to do with each other."""
LEAST_AGREEMENT = 0.45
LEAST_GAIN = 0.5
LEAST_LIKENESS = 0.75
"""Limits between what was measured of good models and of scrambled ones: see docs/operations.md."""
SHORT_WAIT = 0.0002
NAME = "self-test"


@dataclass(frozen=True)
class Findings:
    """``likelihood`` of a token behind its own words and ``gain`` over others, in nats; ``chance``: likelihood of a
    guess. ``likeness`` of a mel and what the vocoder makes of it, None where nobody had to look. ``failure`` of the
    take, empty if it went well.
    """

    agreement: float
    likelihood: float
    gain: float
    chance: float
    likeness: float | None = None
    failure: str = ""


def self_test(engine: Engine) -> SelfTest | None:
    """Of an engine that is loaded and idle; afterwards it is as before. None where it cannot be made.

    Raises torch.AcceleratorError alone.
    """
    packages = ("soxr", "kaldi_native_fbank")  # no clip is understood without
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing or "en" not in engine.model.config.languages:
        log.info("self_test_skipped", extra={"fields": {"missing": missing}})
        return None
    began = time.perf_counter()
    try:
        findings = _examine(engine)
        reason = verdict(findings, engine.facts.device, untrained=engine.model.config.untrained)
        found = SelfTest(time.perf_counter() - began, reason, findings.agreement, findings.gain)
    except torch.AcceleratorError:
        raise  # the CUDA context is lost: only a new process helps
    except torch.OutOfMemoryError:  # a small budget is no fault of the model
        log.warning("self_test_skipped", extra={"fields": {"missing": ["memory"]}})
        return None
    except Exception as error:
        log.exception("self_test_failed", exc_info=error)
        reason = _remark("take", engine.facts.device, "a short take failed. {reason}", reason=str(error))
        found = SelfTest(time.perf_counter() - began, reason)
    finally:
        _forget(engine)
    fields = {"agreement": found.agreement, "gain": found.gain, "seconds": found.seconds}
    if found.reason is None:
        log.info("self_test", extra={"fields": fields})
    else:
        log.warning("degraded", extra={"fields": {"reason": found.reason.message, **fields}})
    return found


def verdict(findings: Findings, device: str, *, untrained: bool = False) -> Notice | None:
    """What is wrong, as a remark that names the part; None if nothing is."""
    # Written so that NaN is never right.
    silent = not findings.agreement >= LEAST_AGREEMENT
    deaf = not (findings.gain >= LEAST_GAIN and findings.likelihood >= findings.chance)
    if untrained and (silent or deaf):
        return _remark("untrained", device, "the model's weights are random, so it does not speak.")
    if silent and findings.likeness is not None and findings.likeness < LEAST_LIKENESS:
        seen = "the vocoder's sound is not that of the spectrum it is given, its weights may be damaged (likeness"
        return _remark("vocoder", device, seen, findings.likeness, LEAST_LIKENESS)
    if silent and deaf:
        seen = "the speech tokenizer fits neither language model nor flow, its file may be another's (agreement"
        return _remark("tokenizer", device, seen, findings.agreement, LEAST_AGREEMENT)
    if silent:
        seen = "the flow makes other sounds than it is told to, its weights may be damaged (agreement"
        return _remark("flow", device, seen, findings.agreement, LEAST_AGREEMENT)
    if deaf:
        seen = "the language model does not know how words sound, its weights or its tokenizer may be damaged ("
        if findings.likelihood < findings.chance:
            return _remark("llm", device, seen + "likelihood", findings.likelihood, findings.chance)
        return _remark("llm", device, seen + "gain", findings.gain, LEAST_GAIN)
    if findings.failure:
        return _remark("take", device, "a short take failed. {reason}", reason=findings.failure)
    return None


def _remark(
    code: str, device: str, seen: str, figure: float | None = None, least: float = 0.0, reason: str = ""
) -> Notice:
    if figure is None:
        sentence = "Self-test on {device}: " + seen
        return Notice.of(f"self_test_{code}", sentence, device=device, **({"reason": reason} if reason else {}))
    sentence = "Self-test on {device}: " + seen + " {figure:.2f}, good ones have {least:.2f} or more)."
    return Notice.of(f"self_test_{code}", sentence, device=device, figure=figure, least=least)


@torch.inference_mode()
def _examine(engine: Engine) -> Findings:
    clip = example_clip()
    head = PromptClip(clip.samples[: int(HEAD_SECONDS * clip.sample_rate)], clip.sample_rate, HEAD)
    # A stream with a deadline and what has none go two ways on a GPU: the take goes the one, the clip below the other.
    failure = _take(engine, SynthesisRequest(NAME, SENTENCE, Mode.ZERO_SHOT, head, seed=7, stream=True))
    engine.frontend.segments(SynthesisRequest(NAME, CHINESE, Mode.CROSS_LINGUAL, head, seed=7))
    features = engine.prompts(clip)
    right, wrong = (likelihood(engine, features, replace(clip, transcript=text)) for text in (TRANSCRIPT, OTHER_WORDS))
    agreement = _agreement(engine, features)
    return Findings(
        agreement,
        likelihood=right,
        gain=right - wrong,
        chance=-math.log(engine.model.config.llm.speech_token_size),
        likeness=None if agreement >= LEAST_AGREEMENT else _likeness(engine, features),
        failure=failure,
    )


def example_clip() -> PromptClip:
    with wave.open(str(CLIP)) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return PromptClip((pcm / 32768).astype(np.float32), file.getframerate(), TRANSCRIPT)


def _take(engine: Engine, request: SynthesisRequest) -> str:
    """Why it failed, empty if it did not."""
    engine.submit(request)
    failures = []
    while engine.has_work:
        failures += [event.message for event in engine.step() if isinstance(event, Failed)]
    return "".join(failures)


def likelihood(engine: Engine, features: PromptFeatures, clip: PromptClip) -> float:
    """Of a speech token of the clip behind the words of its transcript, in nats (mean)."""
    request = SynthesisRequest(NAME, SENTENCE, Mode.ZERO_SHOT, clip, seed=7)
    segments, _ = engine.frontend.segments(request)
    tokens = features.speech_tokens.tolist()
    decoder = engine.stages.decoding.decoder
    assert isinstance(decoder, SlotDecoder)
    return _teacher_forced(decoder.model, segments[0].prompt_text_ids, tokens)


def _teacher_forced(model: DecodeLLM, text_ids: Sequence[int], tokens: Sequence[int]) -> float:
    rows = model.input_rows(text_ids, tokens).to(model.device).float()

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)

    hidden = model.forward(rows, model.cos[: len(rows), None], model.sin[: len(rows), None], attend)
    told = model.logits(hidden[-len(tokens) - 1 : -1]).log_softmax(-1)
    return float(told.gather(1, torch.tensor(tokens, device=model.device)[:, None]).mean())


def _agreement(engine: Engine, features: PromptFeatures) -> float:
    """Of speech tokens with those that the speech tokenizer hears in what is made of them."""
    ratio = engine.model.config.flow.token_mel_ratio
    tokens = features.speech_tokens
    prompt = PromptFeatures(tokens[:PROMPT_TOKENS], features.mel[: ratio * PROMPT_TOKENS], features.speaker)
    told = tokens[PROMPT_TOKENS : PROMPT_TOKENS + SPOKEN_TOKENS].numpy()
    sound = torch.from_numpy(_render(engine, prompt, told.tolist()))
    sound_16k = resample(sound[None], engine.model.config.sample_rate, SPEECH_RATE, method="sinc")
    return token_agreement(engine.model.speech_tokenizer(whisper_log_mel(sound_16k)[0].numpy()), told)


def token_agreement(heard: NDArray[np.int64], told: NDArray[np.int64]) -> float:
    """Share of equal digits, scaled so that 1 is all of them and 0 as many as between unrelated tokens."""
    count = min(len(heard), len(told))
    if count <= 2 * UNRELATED:
        return 0.0
    one, other = _digits(heard[:count]), _digits(told[:count])
    equal = float((one == other).mean())
    chance = float(np.mean([(one == np.roll(other, by, 0)).mean() for by in range(UNRELATED, count - UNRELATED + 1)]))
    return (equal - chance) / (1 - chance) if chance < 1 else 0.0


def _digits(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    return tokens[:, None] // 3 ** np.arange(DIGITS) % 3


def _render(engine: Engine, prompt: PromptFeatures, tokens: list[int]) -> NDArray[np.float32]:
    """The sound of ``tokens``, made as that of a request."""
    voice = Voice(engine.stages.flow, engine.stages.vocoder, prompt, stream=False)
    voice.tokens = tokens
    engine.rendering.add(Render(voice, len(tokens), final=True))
    try:
        while True:
            for _, outcome in engine.rendering.advance():
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome.samples
            time.sleep(SHORT_WAIT)
    finally:
        voice.close()


def _likeness(engine: Engine, features: PromptFeatures) -> float:
    """Correlation of the clip's mel and that of what the vocoder makes of it."""
    vocoder = engine.stages.vocoder
    given = features.mel[: engine.model.config.flow.token_mel_ratio * SPOKEN_TOKENS].T.contiguous()
    sound = vocoder.run([VocoderPiece(vocoder.open(), given.to(engine.model.device), True)])[0]
    made = mel_24k(sound[None].cpu())[0]
    frames = min(made.shape[1], given.shape[1])
    pair = torch.stack([made[:, :frames].flatten(), given[:, :frames].flatten()])
    return float(torch.corrcoef(pair)[0, 1].nan_to_num())


def _forget(engine: Engine) -> None:
    """Leave nothing of it behind but what is warm."""
    engine.prompts.clear()
    engine.stages.flow.pool.forget()
    engine.stages.rest()
    engine.finished = engine.failed = engine.rendering.redone = 0
    engine.gauge.forget_peaks()
