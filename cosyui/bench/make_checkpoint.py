"""Write a checkpoint of random weights in the released layout, for measuring speed and memory without a download.

The weights are scaled so that activations stay sane in half precision, the LLM hardly ever stops before its length
limit, and the vocoder gives a bounded, voiced noise.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from cosyui.bench.checkpoint_layout import Shape, tensor_shapes, text_model_config, yaml_text
from cosyui.bench.toy_parts import write_speaker_encoder, write_speech_tokenizer, write_tokenizer
from cosyui.errors import SetupError
from cosyui.model.config import FlowConfig, LLMConfig, MelConfig, ModelConfig, SamplingConfig, VocoderConfig

Size = Literal["full", "tiny"]

_ADDED_TOKENS = 281
"""<|endoftext|> and CosyVoice3's 280 tokens follow the base vocabulary."""

_DILATIONS = ((1, 3, 5),) * 3

FULL = ModelConfig(
    sample_rate=24000,
    token_frame_rate=25,
    llm=LLMConfig(
        hidden=896,
        layers=24,
        heads=14,
        kv_heads=2,
        head_dim=64,
        mlp=4864,
        text_vocab=151936,
        speech_vocab=6761,
        speech_token_size=6561,
        rope_theta=1e6,
        rms_eps=1e-6,
        mix_ratio=(5, 15),
        sampling=SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.1),
    ),
    flow=FlowConfig(
        vocab_size=6561,
        mel_dim=80,
        spk_dim=192,
        pre_lookahead_channels=1024,
        pre_lookahead_len=3,
        token_mel_ratio=2,
        dim=1024,
        depth=22,
        heads=16,
        dim_head=64,
        ff_mult=2,
        chunk_frames=50,
        cfg_rate=0.7,
        t_scheduler="cosine",
    ),
    vocoder=VocoderConfig(
        in_channels=80,
        base_channels=512,
        nb_harmonics=8,
        sampling_rate=24000,
        nsf_alpha=0.1,
        nsf_sigma=0.003,
        nsf_voiced_threshold=10.0,
        upsample_rates=(8, 5, 3),
        upsample_kernel_sizes=(16, 11, 7),
        istft_n_fft=16,
        istft_hop=4,
        resblock_kernel_sizes=(3, 7, 11),
        resblock_dilation_sizes=_DILATIONS,
        source_resblock_kernel_sizes=(7, 7, 11),
        source_resblock_dilation_sizes=_DILATIONS,
        lrelu_slope=0.1,
        audio_limit=0.99,
        conv_pre_look_right=4,
        f0_channels=512,
    ),
    mel=MelConfig(n_fft=1920, num_mels=80, hop=480, win=1920, fmin=0.0, fmax=12000.0),
)
"""The sizes of the released 0.5B model."""

TINY = replace(
    FULL,
    llm=replace(FULL.llm, hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=128, text_vocab=0),
    flow=replace(FULL.flow, pre_lookahead_channels=32, dim=64, depth=2, heads=4, dim_head=16),
    vocoder=replace(FULL.vocoder, base_channels=32, f0_channels=32),
)
"""Sizes for tests: every part is there, a second of speech takes a fraction of a second on one core."""

SIZES: dict[Size, ModelConfig] = {"full": FULL, "tiny": TINY}

STEADY_PITCH = 150.0
"""Hz."""

# First match wins: name pattern, mean, standard deviation, and whether the deviation is divided by sqrt(fan-in).
# ``{depth}`` keeps residual streams level; weight-normed convolutions are scaled by their gain alone.
_INITIAL: tuple[tuple[str, float, float, bool], ...] = (
    (r"(embed_tokens|speech_embedding)\.weight", 0.0, 0.7, False),
    (r"(layernorm|model\.norm)\.weight", 1.0, 0.15, False),
    (r"self_attn\.[qk]_proj\.weight", 0.0, 1.4, True),
    (r"self_attn\.[qkv]_proj\.bias", 0.0, 0.3, False),
    (r"llm_decoder\.weight", 0.0, 3.0, True),
    (r"input_embedding\.weight", 0.0, 1.0, False),
    (r"spk_embed_affine_layer\.weight", 0.0, 0.4, False),
    (r"attn\.to_[qk]\.weight", 0.0, 1.4, True),
    (r"attn_norm\.linear\.weight|norm_out\.linear\.weight", 0.0, 0.5, True),
    (r"attn_norm\.linear\.bias", 0.1, 0.3, False),
    (r"proj_out\.weight", 0.0, 1.5, True),
    (r"proj_out\.bias", -2.5, 0.8, False),
    (r"\.alpha", 1.0, 0.2, False),
    (r"conv_pre\..*original0", 0.37, 0.05, False),
    (r"ups\.\d+\..*original0", 1.25, 0.15, False),
    (r"convs1\..*original0", 0.9, 0.15, False),
    (r"convs2\..*original0", 0.35, 0.05, False),
    (r"conv_post\..*original0", 0.45, 0.05, False),
    (r"conv_post\.bias", -0.8, 0.5, False),
    (r"condnet\.0\..*original0", 0.6, 0.1, False),
    (r"condnet\..*original0", 1.4, 0.2, False),
    (r"condnet\..*bias", 0.0, 0.25, False),
    (r"original1", 0.0, 1.0, True),
    (r"source_downs\..*weight", 0.0, 1.5, True),
    (r"m_source\.l_linear\.weight", 0.5, 1.0, False),
    (r"f0_predictor\.classifier\.weight", 0.0, 100.0, True),
    (r"f0_predictor\.classifier\.bias", -120.0, 0.0, False),
    (r"weight", 0.0, 1.0, True),
    (r"bias", 0.0, 0.05, False),
)
_RULES = tuple((re.compile(pattern), mean, deviation, fan) for pattern, mean, deviation, fan in _INITIAL)


def make_checkpoint(
    folder: Path,
    size: Size = "full",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    tokens_per_text_id: float | None = None,
    steady_pitch: bool = False,
) -> None:
    """Write the folder (new or empty). The same ``seed`` gives the same files.

    ``dtype`` is that of the three ``.pt`` files; the released ones are float32. ``tokens_per_text_id``: every text is
    spoken in exactly so many speech tokens for each of its ids, instead of in 2 to 20. ``steady_pitch``: all speech has
    nearly the same pitch; otherwise, with random weights, a rounding error of the mel gives another phase and with it
    another sound. Raises SetupError (``folder_not_empty``, ``outputs_not_writable``, ``package_missing``).
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SetupError("folder_not_empty", f"{folder} is not empty: give a new or an empty folder.")
        text_folder = folder / "CosyVoice-BlankEN"
        base = write_tokenizer(text_folder)
        config = _with_vocabulary(SIZES[size], base)
        if tokens_per_text_id is not None:
            config = _with_length(config, tokens_per_text_id)
        rng = np.random.default_rng(seed)
        write_speaker_encoder(folder / "campplus.onnx", rng)
        write_speech_tokenizer(folder / "speech_tokenizer_v3.onnx", rng)
        _write_json(text_folder / "config.json", text_model_config(config.llm, end_of_text=base))
        _write_json(text_folder / "generation_config.json", {"eos_token_id": [base + 2, base], "pad_token_id": base})
        (folder / "cosyvoice3.yaml").write_text(yaml_text(config), encoding="utf-8")
        for index, (file, shapes) in enumerate(tensor_shapes(config).items()):
            generator = torch.Generator().manual_seed(1000 * seed + index)
            state = _random_state(shapes, config, generator, dtype)
            if steady_pitch and file == "hift.pt":
                _steady_pitch(state)
            torch.save(state, folder / file)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}."
        raise SetupError("outputs_not_writable", message) from error


def _with_vocabulary(config: ModelConfig, base: int) -> ModelConfig:
    rows = max(config.llm.text_vocab, -(-(base + _ADDED_TOKENS) // 64) * 64)
    return replace(config, llm=replace(config.llm, text_vocab=rows))


def _with_length(config: ModelConfig, ratio: float) -> ModelConfig:
    return replace(config, llm=replace(config.llm, min_token_text_ratio=ratio, max_token_text_ratio=ratio))


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _steady_pitch(state: dict[str, Tensor]) -> None:
    state["f0_predictor.classifier.weight"] *= 1e-4
    state["f0_predictor.classifier.bias"].fill_(STEADY_PITCH)


def _random_state(
    shapes: dict[str, Shape], config: ModelConfig, generator: torch.Generator, dtype: torch.dtype
) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if name.endswith("lm_head.weight"):  # tied: stored once
            state[name] = state["llm.model.model.embed_tokens.weight"]
        elif name.endswith("inv_freq"):
            state[name] = 10000.0 ** -(torch.arange(shape[0]) / shape[0])
        else:
            tensor = _random_tensor(name, shape, generator)
            if name == "llm_decoder.weight":
                # Sampling must not end a take at once: of the special rows only the stop row competes with the codes.
                codes = config.llm.speech_token_size
                tensor[codes] *= 0.05
                tensor[codes + 2 :] *= 0.05
            state[name] = tensor.to(dtype)
    return state


def _random_tensor(name: str, shape: Shape, generator: torch.Generator) -> Tensor:
    mean, deviation, by_fan_in = next(rule[1:] for rule in _RULES if rule[0].search(name))
    if by_fan_in:
        deviation /= float(np.sqrt(np.prod(shape[1:])))
    return torch.empty(shape).normal_(mean, deviation, generator=generator)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``python -m cosyui.bench make-checkpoint``."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="new or empty folder to write")
    parser.add_argument("--size", choices=get_args(Size), default="full", help="full: the released sizes (default)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same weights (default 0)")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="of the weights on disk")
    help_ = "speak every text in N speech tokens for each of its ids, for timing (default: in 2 to 20)"
    parser.add_argument("--tokens-per-text-id", type=float, metavar="N", help=help_)
    help_ = "one pitch for all speech, so that takes can be compared although half precision rounds"
    parser.add_argument("--steady-pitch", action="store_true", help=help_)


def run(args: argparse.Namespace) -> int:
    """Write the checkpoint and say what was written. Raises SetupError as `make_checkpoint`."""
    start = time.perf_counter()
    dtype = getattr(torch, args.dtype)
    make_checkpoint(args.folder, args.size, args.seed, dtype, args.tokens_per_text_id, args.steady_pitch)
    size = sum(file.stat().st_size for file in args.folder.rglob("*") if file.is_file())
    seconds = time.perf_counter() - start
    print(f"{args.folder}: {args.size} random checkpoint, {args.dtype}, {size / 1e9:.2f} GB in {seconds:.1f} s")
    return 0
