"""``python -m cosyui.bench synth DIR``: one take of a fixed length, with load time, memory and stage times.

The number of speech tokens is fixed, so that random weights do for measuring speed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from cosyui.engine.decode import LengthRule, Sampler, decode, input_rows
from cosyui.engine.precision import choose_device, choose_precision, describe
from cosyui.engine.prompts import ENCODER_RATE, prompt_features
from cosyui.engine.render import PromptFeatures, Renderer
from cosyui.model.cosyvoice3 import CosyVoice3, load
from cosyui.speech.features import resample

TEXT_IDS = 40
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="model folder")
    parser.add_argument("--seconds", type=float, default=10.0, help="of speech to make (default 10)")
    parser.add_argument("--prompt-seconds", type=float, default=5.0, help="of prompt clip (default 5)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--llm-file", default="llm.pt")
    parser.add_argument("--takes", type=int, default=2, help="the first warms up (default 2)")
    parser.add_argument("--seed", type=int, default=0)


def made_up_clip(seconds: float, rate: int, seed: int) -> Tensor:
    """A buzz with a moving pitch and some noise (S,): stands in for a voice where only cost matters."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(int(seconds * rate)) / rate
    phase = 2 * torch.pi * (130 * t - 6 * torch.cos(2.1 * t))
    buzz = torch.stack([torch.sin(k * phase) / k for k in range(1, 20)]).sum(0)
    return 0.2 * buzz * (0.6 + 0.4 * torch.sin(9 * t)) + 0.01 * torch.randn(len(t), generator=generator)


def take(model: CosyVoice3, prompt: PromptFeatures, tokens: int, seed: int) -> tuple[Tensor, dict[str, float]]:
    """Speak ``tokens`` speech tokens of made-up text; the wave (S,) and seconds per stage."""
    llm, renderer = model.llm, Renderer(model.flow, model.vocoder, prompt)
    text = [token % llm.config.text_vocab for token in range(1, TEXT_IDS + 1)]
    rows = input_rows(llm, text, prompt.speech_tokens.tolist())
    began = time.perf_counter()
    with renderer.clock.stage("llm"):
        speech = list(decode(llm, rows, LengthRule(tokens, tokens), Sampler(llm.config.sampling, seed)))
    wave = renderer.whole(speech).cpu()
    total = time.perf_counter() - began
    clock = renderer.clock
    return wave, {"llm": clock.llm, "flow": clock.flow, "vocoder": clock.vocoder, "total": total}


@torch.inference_mode()
def run(args: argparse.Namespace) -> int:
    """Print the measurements; 1 when the sound is not finite or is silent."""
    device = choose_device(args.device)
    precision = choose_precision(args.precision, device)
    began = time.perf_counter()
    model = load(args.folder, llm_file=args.llm_file, device=device, precision=precision)
    print(f"device      {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'cpu'}")
    print(f"precision   {describe(precision)}")
    print(f"load        {time.perf_counter() - began:.2f} s")
    if device.type == "cuda":
        print(f"weights     {torch.cuda.memory_allocated(device) / MIB:.0f} MiB allocated")
        torch.cuda.reset_peak_memory_stats(device)
    config = model.config
    wave_24k = made_up_clip(args.prompt_seconds, config.sample_rate, args.seed)
    began = time.perf_counter()
    wave_16k = resample(wave_24k[None], config.sample_rate, ENCODER_RATE, method="sinc")[0]
    prompt = prompt_features(model, wave_16k, wave_24k)
    print(f"prompt      {time.perf_counter() - began:.3f} s for {args.prompt_seconds:g} s of clip")
    good = True
    for index in range(args.takes):
        wave, seconds = take(model, prompt, round(args.seconds * config.token_frame_rate), args.seed)
        length = len(wave) / config.sample_rate
        stages = "  ".join(f"{name} {value:.3f} s" for name, value in seconds.items())
        finite, peak = bool(wave.isfinite().all()), float(wave.abs().max())
        print(f"take {index + 1}      {length:.2f} s of speech: {stages}  RTF {seconds['total'] / length:.3f}")
        print(f"            finite {finite}, peak {peak:.3f}")
        good = good and finite and peak > 0
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        print(f"peak        {allocated / MIB:.0f} MiB allocated, {reserved / MIB:.0f} MiB reserved")
    return 0 if good else 1
