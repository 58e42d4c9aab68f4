"""Golden checks of whole paths: prompt features, token to waveform, streaming, text to speech."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyui.bench.parity.deviation import Deviation
from cosyui.bench.parity.folder import EXACT, MEL, SPECTRA, WAVE, Folder
from cosyui.bench.parity.renderer import ChunkStream, Renderer
from cosyui.engine.decode import LengthRule, SilenceFilter, decode, greedy, input_rows
from cosyui.engine.prompts import ENCODER_RATE, prompt_features
from cosyui.engine.render import PromptFeatures
from cosyui.speech.features import resample
from cosyui.speech.upstream_text import text_normalize

TEST_CLIP = "test_prompt_24k.wav"


def read_pcm16(path: Path) -> tuple[Tensor, int]:
    """Samples (S,) float32 and rate of a mono 16-bit WAV."""
    import wave

    with wave.open(str(path)) as file:
        data = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return torch.from_numpy(data.astype(np.float32) / 32768), file.getframerate()


def clip_features(folder: Folder, samples: int | None = None) -> PromptFeatures:
    """Features of the golden folder's test clip (or its head), resampled as the reference does."""
    wave, rate = read_pcm16(folder.golden / TEST_CLIP)
    wave = wave[:samples]
    at_16k = resample(wave[None], rate, ENCODER_RATE, method="sinc")[0]
    at_24k = resample(wave[None], rate, folder.model.config.sample_rate, method="sinc")[0]
    return prompt_features(folder.model, at_16k, at_24k)


def compare_features(folder: Folder, found: PromptFeatures, golden: dict[str, Tensor]) -> Iterator[Deviation]:
    yield folder.same("speech tokens", found.speech_tokens.tolist(), golden["speech_token"][0].tolist())
    yield folder.near("mel", found.mel.to(folder.device), golden["speech_feat"][0], MEL)
    yield folder.near("speaker", found.speaker.to(folder.device), golden["embedding"][0], MEL)


def check_frontend_prompt(folder: Folder) -> Iterator[Deviation]:
    yield from compare_features(folder, clip_features(folder), folder.arrays("frontend_prompt.npz"))


def check_frontend_prompt_cut(folder: Folder) -> Iterator[Deviation]:
    golden = folder.arrays("frontend_prompt_cut.npz")
    yield from compare_features(folder, clip_features(folder, int(golden["n_samples"])), golden)


def renderer_of(folder: Folder, golden: dict[str, Tensor]) -> Renderer:
    prompt = PromptFeatures(golden["prompt_token"][0], golden["prompt_feat"][0], golden["embedding"][0])
    return Renderer(folder.model.flow, folder.model.vocoder, prompt)


def near_wave(folder: Folder, what: str, found: Tensor, expected: Tensor) -> Deviation:
    """Mean absolute deviation of a wave made by the whole chain.

    Not the largest one: phase is a running sum of pitch, so a change of the mel far below its own tolerance (1e-5)
    moves a wave of 10 s by 5e-4 to 3.5e-3 even in the mean.
    """
    if found.shape != expected.shape:
        return folder.near(what, found, expected, WAVE)
    error = (found.double() - expected.double()).abs().mean().item()
    return Deviation(f"{what}, mean", error, WAVE)


def near_stream(folder: Folder, waves: list[Tensor], expected: Tensor) -> Iterator[Deviation]:
    """Chunks of a stream: the first sample by sample in the mean, all of them either so or in their spectra.

    There is no golden mel to feed. Rounding of the mel by 1e-5 moves the later chunks by up to 1.3e-3 in the mean and
    the magnitudes of their spectra by 0.6 %; a last chunk solved with the block mask moves those by 26 %.
    """
    first, found = len(waves[0]), torch.cat(waves)
    yield near_wave(folder, "stream, first chunk", waves[0], expected[:first])
    chain = near_wave(folder, "stream", found, expected)
    spectra = [
        torch.stft(wave.double().cpu(), 1024, 256, window=torch.hann_window(1024).double(), return_complex=True).abs()
        for wave in (found, expected)
    ]
    error = ((spectra[0] - spectra[1]).abs().sum() / spectra[1].sum()).item()
    yield min(chain, Deviation("stream, spectra", error, SPECTRA), key=lambda d: d.error / d.tolerance)


def stream_waves(renderer: Renderer, tokens: list[int], hop: int | None = None) -> list[Tensor]:
    stream = ChunkStream(renderer, hop=hop, upstream_tail=True)
    return [*stream.push(tokens), stream.finish()]


def check_token2wav(folder: Folder) -> Iterator[Deviation]:
    golden = folder.arrays("token2wav.npz")
    renderer, tokens = renderer_of(folder, golden), golden["token"][0].tolist()
    mel = renderer.mel(tokens)
    head = golden["mel_nonstream"]
    yield folder.near("mel", mel[:, :, : head.shape[2]], head, MEL)
    wave, expected = renderer.wave(mel), golden["nonstream_wav"][0]
    yield folder.same("samples", len(wave), len(expected))
    # Either of the two: the wave of the whole chain in the mean, or that of the golden mel sample by sample.
    chain = near_wave(folder, "whole", wave, expected)
    fed = renderer.wave(head, finalize=False)
    exact = folder.near("wave of the golden mel", fed, expected[: len(fed)], WAVE)
    yield min(chain, exact, key=lambda deviation: deviation.error)
    waves = stream_waves(renderer, tokens)
    yield folder.same("samples of chunks", [len(w) for w in waves], golden["stream_chunk_samples"].tolist())
    yield from near_stream(folder, waves, golden["stream_wav"][0])
    per_token = renderer.flow.config.token_mel_ratio * renderer.vocoder.frame_samples
    short = tokens[: golden["speed_100"].shape[1] // per_token]
    for name, speed in (("speed_100", 1.0), ("speed_080", 0.8), ("speed_125", 1.25)):
        yield near_wave(folder, name, renderer.whole(short, speed), golden[name][0])
    yield near_wave(folder, "short stream", torch.cat(stream_waves(renderer, short)), golden["short40_stream"][0])
    ours = ChunkStream(renderer)
    chunks = torch.cat([*ours.push(tokens), ours.finish()])
    at_once = renderer.wave(renderer.mel(tokens, streaming=True))
    yield near_wave(folder, "our stream against one streaming solve", chunks, at_once)


class _Schedule(Renderer):
    """Counts frames instead of computing them."""

    def mel(self, tokens: Any, *, streaming: bool = False, finalize: bool = True) -> Tensor:
        config = self.flow.config
        self.calls = [*getattr(self, "calls", []), (len(tokens), streaming, finalize)]
        count = len(tokens) if finalize else len(tokens) - config.pre_lookahead_len
        return torch.zeros(1, config.mel_dim, count * config.token_mel_ratio)

    def wave(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        frames = mel.shape[2] if finalize else max(0, mel.shape[2] - self.vocoder.lookahead)
        return torch.zeros(frames * self.vocoder.frame_samples)


def check_token2wav_stream(folder: Folder) -> Iterator[Deviation]:
    mel_dim = folder.model.config.flow.mel_dim
    for run in folder.json("token2wav_stream.json")["runs"]:
        count = run["prompt_tokens"]
        prompt = PromptFeatures(torch.zeros(count), torch.zeros(2 * count, mel_dim), torch.zeros(0))
        schedule = _Schedule(folder.model.flow, folder.model.vocoder, prompt)
        waves = stream_waves(schedule, [0] * run["n_tokens"], run["hop_before"])
        expected = [(c["n_tokens"], c["stream"], c["finalize"]) for c in run["calls"]]
        yield folder.same(f"{run['name']}: calls", schedule.calls, expected)
        yield folder.same(f"{run['name']}: samples", [len(w) for w in waves], run["chunk_samples"])


def upstream_input(folder: Folder, mode: str, given: dict[str, str]) -> tuple[list[int], list[int], bool]:
    """Prompt text ids, text ids and whether prompt speech goes to the LLM, as the reference's caller makes them."""
    tokenizer = folder.model.tokenizer
    wetext = find_spec("wetext") is not None
    segments = text_normalize(given["text"], lambda t: len(tokenizer.encode(t, control=True)), wetext=wetext)
    text = "".join(segments)
    prompt = given.get("prompt_text") or given.get("instruct_text") or ""
    return tokenizer.encode(prompt, control=True), tokenizer.encode(text, control=True), mode == "zero_shot"


def check_llm_layout(folder: Folder) -> Iterator[Deviation]:
    golden, model = folder.json("llm_layout.json"), folder.model
    features = clip_features(folder)
    for mode, given in golden["inputs"].items():
        if not isinstance(given, dict):
            continue
        case = golden[mode]
        prompt_text, text, with_speech = upstream_input(folder, mode, given)
        yield folder.same(f"{mode}: text", text, case["text"])
        yield folder.same(f"{mode}: prompt text", prompt_text, case["prompt_text"] or [])
        speech = features.speech_tokens.tolist() if with_speech else []
        rows = input_rows(model.llm, [*prompt_text, *text], speech)
        kinds = torch.tensor([kind == "speech" for kind, _ in case["lm_input"]], device=folder.device)
        ids = torch.tensor([number for _, number in case["lm_input"]], device=folder.device)
        expected = torch.where(kinds[:, None], model.llm.embed_speech(ids * kinds), model.llm.embed_text(ids * ~kinds))
        yield folder.near(f"{mode}: rows", rows, expected, EXACT)
        rule = LengthRule.of(model.config.llm, len(text))
        yield folder.same(f"{mode}: limits", (rule.minimum, rule.maximum), (case["min_len"], case["max_len"]))


def check_e2e_greedy(folder: Folder) -> Iterator[Deviation]:
    golden, model = folder.arrays("e2e_greedy.npz"), folder.model
    inputs = folder.json("llm_layout.json")["inputs"]
    features = clip_features(folder)
    renderer = Renderer(model.flow, model.vocoder, features)
    for mode in sorted({name.split(".")[0] for name in golden}):
        prompt_text, text, with_speech = upstream_input(folder, mode, inputs[mode])
        if mode == "cross_lingual":  # spoken with the text of the greedy run that has no prompt speech
            text = folder.arrays("llm_greedy_maxlen.npz")["text_ids"].tolist()
        speech = features.speech_tokens.tolist() if with_speech else []
        rows = input_rows(model.llm, [*prompt_text, *text], speech)
        rule = LengthRule.of(model.config.llm, len(text))
        ids = list(decode(model.llm, rows, rule, greedy, upstream_minimum=True))
        yield folder.same(f"{mode}: ids", ids, golden[f"{mode}.llm_ids"].tolist())
        kept = SilenceFilter()
        tokens = [token for token in ids if kept(token)]
        yield folder.same(f"{mode}: after the silence filter", tokens, golden[f"{mode}.tokens"].tolist())
        wave = renderer.whole(tokens)
        yield folder.same(f"{mode}: samples", len(wave), int(golden[f"{mode}.n_samples"]))
        head = golden[f"{mode}.wav_head"][0]
        yield near_wave(folder, f"{mode}: wave", wave[: len(head)], head)


def check_test_prompt(folder: Folder) -> Iterator[Deviation]:
    wave, rate = read_pcm16(folder.golden / TEST_CLIP)
    yield folder.same("readable", bool(len(wave) and rate and wave.isfinite().all()), True)


CHECKS = {
    "frontend_prompt.npz": check_frontend_prompt,
    "frontend_prompt_cut.npz": check_frontend_prompt_cut,
    "token2wav.npz": check_token2wav,
    "token2wav_stream.json": check_token2wav_stream,
    "llm_layout.json": check_llm_layout,
    "e2e_greedy.npz": check_e2e_greedy,
    TEST_CLIP: check_test_prompt,
}
