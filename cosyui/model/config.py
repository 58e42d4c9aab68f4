"""The sizes and constants of a checkpoint, read from ``cosyvoice3.yaml`` and ``CosyVoice-BlankEN/config.json``.

Both files are data: the yaml's tags are never executed (`cosyui.model.yaml_data`). Keys that inference does not need
are ignored; a needed key that is missing or wrong is a CheckpointError ``checkpoint_config`` naming file and key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cosyui.model.config_file import ConfigNode, config_error, open_json, open_yaml

CONFIG_FILE = "cosyvoice3.yaml"
TEXT_MODEL_CONFIG = "CosyVoice-BlankEN/config.json"

_SPECIAL_SPEECH_ROWS = 200
"""Rows of the speech embedding after the codes: sos, eos, task, fill and spare ones (fixed in this model family)."""

SILENT_TOKENS = (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323)
"""Codes of the released speech tokenizer that sound like silence or breath."""


@dataclass(frozen=True)
class SamplingConfig:
    """Repetition-aware nucleus sampling; ``win_size`` in ids, ``tau_r`` the share of repeats allowed in the window."""

    top_p: float
    top_k: int
    win_size: int
    tau_r: float


@dataclass(frozen=True)
class LLMConfig:
    """Speech LLM of Qwen2 shape; ``mix_ratio``: rows of text and speech in text streaming; ratios: ids per text id."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    text_vocab: int
    speech_vocab: int
    speech_token_size: int
    rope_theta: float
    rms_eps: float
    mix_ratio: tuple[int, int]
    sampling: SamplingConfig
    min_token_text_ratio: float = 2.0
    max_token_text_ratio: float = 20.0


@dataclass(frozen=True)
class FlowConfig:
    """Flow matching of mel frames. ``spk_dim`` is the speaker vector before its projection to ``mel_dim``;
    ``chunk_frames`` the block of the streaming mask and ``token_mel_ratio`` in mel frames; ``cfg_rate`` the guidance.
    """

    vocab_size: int
    mel_dim: int
    spk_dim: int
    pre_lookahead_channels: int
    pre_lookahead_len: int
    token_mel_ratio: int
    dim: int
    depth: int
    heads: int
    dim_head: int
    ff_mult: int
    chunk_frames: int
    cfg_rate: float
    t_scheduler: str
    steps: int = 10


@dataclass(frozen=True)
class VocoderConfig:
    """Causal HiFT with a harmonic source; ``f0_channels``: width of the F0 net, ``nsf_voiced_threshold`` in Hz."""

    in_channels: int
    base_channels: int
    nb_harmonics: int
    sampling_rate: int
    nsf_alpha: float
    nsf_sigma: float
    nsf_voiced_threshold: float
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    istft_n_fft: int
    istft_hop: int
    resblock_kernel_sizes: tuple[int, ...]
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    source_resblock_kernel_sizes: tuple[int, ...]
    source_resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    lrelu_slope: float
    audio_limit: float
    conv_pre_look_right: int
    f0_channels: int


@dataclass(frozen=True)
class MelConfig:
    """Mel spectrogram of the prompt: window sizes in samples, ``fmin`` and ``fmax`` in Hz."""

    n_fft: int
    num_mels: int
    hop: int
    win: int
    fmin: float
    fmax: float


@dataclass(frozen=True)
class ModelConfig:
    """All of a checkpoint. ``sample_rate`` in Hz, ``token_frame_rate`` in speech tokens per second.

    The last six are keys of ours that other loaders ignore: ``text_frontend`` names how text becomes ids (None: the
    text itself), ``demo_voice`` marks a small demo model, ``languages`` and ``instruct_supported`` what it can do;
    ``silent_tokens`` are the speech tokens of silence (default: those of the released speech tokenizer); ``untrained``
    marks random weights, whose speech says nothing.
    """

    sample_rate: int
    token_frame_rate: int
    llm: LLMConfig
    flow: FlowConfig
    vocoder: VocoderConfig
    mel: MelConfig
    text_frontend: str | None = None
    demo_voice: bool = False
    instruct_supported: bool = True
    languages: tuple[str, ...] = ("zh", "en")
    silent_tokens: tuple[int, ...] = SILENT_TOKENS
    untrained: bool = False


def load_config(folder: Path) -> ModelConfig:
    """Read both files of ``folder``. Raises CheckpointError ``checkpoint_missing_file`` or ``checkpoint_config``."""
    yaml_file, json_file = folder / CONFIG_FILE, folder / TEXT_MODEL_CONFIG
    top = open_yaml(yaml_file)
    qwen = open_json(json_file)
    config = ModelConfig(
        sample_rate=top.integer("sample_rate"),
        token_frame_rate=top.integer("token_frame_rate"),
        llm=_llm(top, qwen),
        flow=_flow(top.child("flow")),
        vocoder=_vocoder(top.child("hift")),
        mel=_mel(top.child("feat_extractor"), top.integer("sample_rate")),
        text_frontend=top.string("text_frontend") if top.has("text_frontend") else None,
        demo_voice=top.flag("demo_voice", default=False),
        instruct_supported=top.flag("instruct_supported", default=True),
        languages=top.strings("languages") if top.has("languages") else ("zh", "en"),
        silent_tokens=top.ids("silent_tokens") if top.has("silent_tokens") else SILENT_TOKENS,
        untrained=top.flag("untrained", default=False),
    )
    _check_consistency(config, yaml_file)
    return config


def _llm(top: ConfigNode, qwen: ConfigNode) -> LLMConfig:
    llm = top.child("llm")
    sampling = llm.child("sampling")
    hidden, heads = qwen.integer("hidden_size"), qwen.integer("num_attention_heads")
    kv_heads = qwen.integer("num_key_value_heads") if qwen.has("num_key_value_heads") else heads
    head_dim = qwen.integer("head_dim") if qwen.has("head_dim") else hidden // heads
    if heads % kv_heads:
        qwen.fail("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    if llm.integer("llm_input_size") != hidden:
        llm.fail("llm_input_size", f"{hidden}, the hidden_size in {TEXT_MODEL_CONFIG}")
    mix = llm.integers("mix_ratio", length=2)
    codes = llm.integer("speech_token_size")
    return LLMConfig(
        hidden=hidden,
        layers=qwen.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=qwen.integer("intermediate_size"),
        text_vocab=qwen.integer("vocab_size"),
        speech_vocab=codes + _SPECIAL_SPEECH_ROWS,
        speech_token_size=codes,
        rope_theta=qwen.number("rope_theta", above=0.0),
        rms_eps=qwen.number("rms_norm_eps", above=0.0),
        mix_ratio=(mix[0], mix[1]),
        sampling=SamplingConfig(
            top_p=sampling.number("top_p", above=0.0),
            top_k=sampling.integer("top_k"),
            win_size=sampling.integer("win_size"),
            tau_r=sampling.number("tau_r"),
        ),
        min_token_text_ratio=top.number("min_token_text_ratio") if top.has("min_token_text_ratio") else 2.0,
        max_token_text_ratio=top.number("max_token_text_ratio", above=0.0) if top.has("max_token_text_ratio") else 20.0,
    )


def _flow(flow: ConfigNode) -> FlowConfig:
    estimator = flow.child("decoder").child("estimator")
    params = flow.child("decoder").child("cfm_params").child("content")
    scheduler = params.string("t_scheduler")
    if scheduler not in ("cosine", "linear"):
        params.fail("t_scheduler", "'cosine' or 'linear'")
    return FlowConfig(
        vocab_size=flow.integer("vocab_size"),
        mel_dim=flow.integer("output_size"),
        spk_dim=flow.integer("spk_embed_dim"),
        pre_lookahead_channels=flow.child("pre_lookahead_layer").integer("channels"),
        pre_lookahead_len=flow.integer("pre_lookahead_len"),
        token_mel_ratio=flow.integer("token_mel_ratio"),
        dim=estimator.integer("dim"),
        depth=estimator.integer("depth"),
        heads=estimator.integer("heads"),
        dim_head=estimator.integer("dim_head"),
        ff_mult=estimator.integer("ff_mult"),
        chunk_frames=estimator.integer("static_chunk_size"),
        cfg_rate=params.number("inference_cfg_rate"),
        t_scheduler=scheduler,
    )


def _vocoder(hift: ConfigNode) -> VocoderConfig:
    stages = len(hift.integers("upsample_rates"))
    kernels = len(hift.integers("resblock_kernel_sizes"))
    istft = hift.child("istft_params")
    return VocoderConfig(
        in_channels=hift.integer("in_channels"),
        base_channels=hift.integer("base_channels"),
        nb_harmonics=hift.integer("nb_harmonics"),
        sampling_rate=hift.integer("sampling_rate"),
        nsf_alpha=hift.number("nsf_alpha"),
        nsf_sigma=hift.number("nsf_sigma"),
        nsf_voiced_threshold=hift.number("nsf_voiced_threshold"),
        upsample_rates=hift.integers("upsample_rates"),
        upsample_kernel_sizes=hift.integers("upsample_kernel_sizes", length=stages),
        istft_n_fft=istft.integer("n_fft"),
        istft_hop=istft.integer("hop_len"),
        resblock_kernel_sizes=hift.integers("resblock_kernel_sizes"),
        resblock_dilation_sizes=hift.integer_lists("resblock_dilation_sizes", length=kernels),
        source_resblock_kernel_sizes=hift.integers("source_resblock_kernel_sizes", length=stages),
        source_resblock_dilation_sizes=hift.integer_lists("source_resblock_dilation_sizes", length=stages),
        lrelu_slope=hift.number("lrelu_slope"),
        audio_limit=hift.number("audio_limit", above=0.0),
        conv_pre_look_right=hift.integer("conv_pre_look_right"),
        f0_channels=hift.child("f0_predictor").integer("cond_channels"),
    )


def _mel(mel: ConfigNode, sample_rate: int) -> MelConfig:
    return MelConfig(
        n_fft=mel.integer("n_fft"),
        num_mels=mel.integer("num_mels"),
        hop=mel.integer("hop_size"),
        win=mel.integer("win_size"),
        fmin=mel.number("fmin"),
        fmax=mel.number("fmax", above=0.0) if mel.has("fmax") else sample_rate / 2,
    )


def _check_consistency(config: ModelConfig, file: Path) -> None:
    """Sizes that must agree across parts: a wrong one would otherwise show as noise, not as an error."""
    mel, flow, hift = config.mel, config.flow, config.vocoder
    frame_rate = config.token_frame_rate * flow.token_mel_ratio
    for key, found, expected, why in (
        ("feat_extractor.num_mels", mel.num_mels, flow.mel_dim, "flow.output_size"),
        ("hift.in_channels", hift.in_channels, flow.mel_dim, "flow.output_size"),
        ("hift.sampling_rate", hift.sampling_rate, config.sample_rate, "sample_rate"),
        ("flow.vocab_size", flow.vocab_size, config.llm.speech_token_size, "llm.speech_token_size"),
        ("feat_extractor.hop_size", mel.hop * frame_rate, config.sample_rate, "sample_rate at the mel frame rate"),
        ("hift.upsample_rates", math.prod(hift.upsample_rates) * hift.istft_hop, mel.hop, "hop_size in samples"),
    ):
        if found != expected:
            raise config_error(file, key, f"a value that fits {why}", f"{found} is not {expected}")
