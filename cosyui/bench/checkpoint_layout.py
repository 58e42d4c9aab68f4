"""The released layout of a CosyVoice3 folder, worked out from sizes: tensor names, shapes, yaml, text model config."""

from __future__ import annotations

import math
from string import Template
from typing import Any

from cosyui.model.config import FlowConfig, LLMConfig, ModelConfig, VocoderConfig

Shape = tuple[int, ...]

_TIME_WIDTH = 256
_POSITION_GROUPS, _POSITION_KERNEL = 16, 31


def tensor_shapes(config: ModelConfig) -> dict[str, dict[str, Shape]]:
    """Name and shape of every tensor of ``llm.pt``, ``flow.pt`` and ``hift.pt``, in the order of the files."""
    return {
        "llm.pt": _llm_shapes(config.llm),
        "flow.pt": _flow_shapes(config.flow),
        "hift.pt": _hift_shapes(config.vocoder),
    }


def _linear(name: str, out: int, into: int) -> dict[str, Shape]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _conv(name: str, out: int, into: int, kernel: int) -> dict[str, Shape]:
    return {f"{name}.weight": (out, into, kernel), f"{name}.bias": (out,)}


def _normed_conv(name: str, out: int, into: int, kernel: int) -> dict[str, Shape]:
    return {
        f"{name}.bias": (out,),
        f"{name}.parametrizations.weight.original0": (out, 1, 1),
        f"{name}.parametrizations.weight.original1": (out, into, kernel),
    }


def _llm_shapes(llm: LLMConfig) -> dict[str, Shape]:
    hidden, queries, keys = llm.hidden, llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
    shapes: dict[str, Shape] = {"llm.model.model.embed_tokens.weight": (llm.text_vocab, hidden)}
    for index in range(llm.layers):
        layer = f"llm.model.model.layers.{index}"
        shapes |= _linear(f"{layer}.self_attn.q_proj", queries, hidden)
        shapes |= _linear(f"{layer}.self_attn.k_proj", keys, hidden)
        shapes |= _linear(f"{layer}.self_attn.v_proj", keys, hidden)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (hidden, queries)
        shapes[f"{layer}.mlp.gate_proj.weight"] = (llm.mlp, hidden)
        shapes[f"{layer}.mlp.up_proj.weight"] = (llm.mlp, hidden)
        shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, llm.mlp)
        shapes[f"{layer}.input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
    shapes["llm.model.model.norm.weight"] = (hidden,)
    shapes["llm.model.lm_head.weight"] = (llm.text_vocab, hidden)
    shapes["llm_decoder.weight"] = (llm.speech_vocab, hidden)
    shapes["speech_embedding.weight"] = (llm.speech_vocab, hidden)
    return shapes


def _flow_shapes(flow: FlowConfig) -> dict[str, Shape]:
    dim, mel, inner = flow.dim, flow.mel_dim, flow.heads * flow.dim_head
    net = "decoder.estimator"
    shapes: dict[str, Shape] = {"input_embedding.weight": (flow.vocab_size, mel)}
    shapes |= _linear("spk_embed_affine_layer", mel, flow.spk_dim)
    shapes |= _conv("pre_lookahead_layer.conv1", flow.pre_lookahead_channels, mel, flow.pre_lookahead_len + 1)
    shapes |= _conv("pre_lookahead_layer.conv2", mel, flow.pre_lookahead_channels, 3)
    shapes |= _linear(f"{net}.time_embed.time_mlp.0", dim, _TIME_WIDTH)
    shapes |= _linear(f"{net}.time_embed.time_mlp.2", dim, dim)
    shapes |= _linear(f"{net}.input_embed.proj", dim, 4 * mel)
    for conv in ("conv1", "conv2"):
        name = f"{net}.input_embed.conv_pos_embed.{conv}.0"
        shapes |= _conv(name, dim, dim // _POSITION_GROUPS, _POSITION_KERNEL)
    shapes[f"{net}.rotary_embed.inv_freq"] = (flow.dim_head // 2,)
    for index in range(flow.depth):
        block = f"{net}.transformer_blocks.{index}"
        shapes |= _linear(f"{block}.attn_norm.linear", 6 * dim, dim)
        for part in ("to_q", "to_k", "to_v"):
            shapes |= _linear(f"{block}.attn.{part}", inner, dim)
        shapes |= _linear(f"{block}.attn.to_out.0", dim, inner)
        shapes |= _linear(f"{block}.ff.ff.0.0", flow.ff_mult * dim, dim)
        shapes |= _linear(f"{block}.ff.ff.2", dim, flow.ff_mult * dim)
    shapes |= _linear(f"{net}.norm_out.linear", 2 * dim, dim)
    shapes |= _linear(f"{net}.proj_out", mel, dim)
    return shapes


def _hift_shapes(hift: VocoderConfig) -> dict[str, Shape]:
    stages = len(hift.upsample_rates)
    widths = [hift.base_channels // 2 ** (stage + 1) for stage in range(stages)]
    spectrum = hift.istft_n_fft + 2
    shapes = _linear("m_source.l_linear", 1, hift.nb_harmonics + 1)
    shapes |= _normed_conv("conv_pre", hift.base_channels, hift.in_channels, hift.conv_pre_look_right + 1)
    for stage, kernel in enumerate(hift.upsample_kernel_sizes):
        shapes |= _normed_conv(f"ups.{stage}", widths[stage], hift.base_channels // 2**stage, kernel)
    for stage in range(stages):
        rate = math.prod(hift.upsample_rates[stage + 1 :])  # from the source's rate down to this stage's
        shapes |= _conv(f"source_downs.{stage}", widths[stage], spectrum, 1 if rate == 1 else 2 * rate)
    sources = zip(hift.source_resblock_kernel_sizes, hift.source_resblock_dilation_sizes, strict=True)
    for stage, (kernel, dilations) in enumerate(sources):
        shapes |= _resblock(f"source_resblocks.{stage}", widths[stage], kernel, len(dilations))
    blocks = list(zip(hift.resblock_kernel_sizes, hift.resblock_dilation_sizes, strict=True))
    for stage, width in enumerate(widths):
        for index, (kernel, dilations) in enumerate(blocks):
            shapes |= _resblock(f"resblocks.{stage * len(blocks) + index}", width, kernel, len(dilations))
    shapes |= _normed_conv("conv_post", spectrum, widths[-1], 7)
    for index in range(5):
        into, kernel = (hift.in_channels, 4) if index == 0 else (hift.f0_channels, 3)
        shapes |= _normed_conv(f"f0_predictor.condnet.{2 * index}", hift.f0_channels, into, kernel)
    return shapes | _linear("f0_predictor.classifier", 1, hift.f0_channels)


def _resblock(name: str, width: int, kernel: int, count: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for convs in ("convs1", "convs2"):
        for index in range(count):
            shapes |= _normed_conv(f"{name}.{convs}.{index}", width, width, kernel)
    for activations in ("activations1", "activations2"):
        for index in range(count):
            shapes[f"{name}.{activations}.{index}.alpha"] = (width,)
    return shapes


def text_model_config(llm: LLMConfig, end_of_text: int) -> dict[str, Any]:
    """``CosyVoice-BlankEN/config.json``; ``end_of_text`` is the id after the base vocabulary."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text + 2,
        "hidden_act": "silu",
        "hidden_size": llm.hidden,
        "intermediate_size": llm.mlp,
        "max_position_embeddings": 32768,
        "model_type": "qwen2",
        "num_attention_heads": llm.heads,
        "num_hidden_layers": llm.layers,
        "num_key_value_heads": llm.kv_heads,
        "rms_norm_eps": llm.rms_eps,
        "rope_theta": llm.rope_theta,
        "tie_word_embeddings": True,
        "vocab_size": llm.text_vocab,
    }


def yaml_text(config: ModelConfig) -> str:
    """``cosyvoice3.yaml`` in the released keys and tags, without the parts that only training reads."""
    llm, flow, hift, mel = config.llm, config.flow, config.vocoder, config.mel
    return _YAML.substitute(
        sample_rate=config.sample_rate,
        token_frame_rate=config.token_frame_rate,
        hidden=llm.hidden,
        codes=llm.speech_token_size,
        mix=list(llm.mix_ratio),
        least=llm.min_token_text_ratio,
        most=llm.max_token_text_ratio,
        sampling=_block(llm.sampling.__dict__, 8),
        mel_dim=flow.mel_dim,
        spk_dim=flow.spk_dim,
        ratio=flow.token_mel_ratio,
        chunk=flow.chunk_frames // flow.token_mel_ratio,
        look=flow.pre_lookahead_len,
        look_channels=flow.pre_lookahead_channels,
        scheduler=flow.t_scheduler,
        cfg_rate=flow.cfg_rate,
        dit=_block({key: getattr(flow, key) for key in ("dim", "depth", "heads", "dim_head", "ff_mult")}, 12),
        hift=_block(_hift_keys(hift), 4),
        n_fft=hift.istft_n_fft,
        hop_len=hift.istft_hop,
        f0_channels=hift.f0_channels,
        mel=_block({"n_fft": mel.n_fft, "num_mels": mel.num_mels, "hop_size": mel.hop, "win_size": mel.win}, 4),
        fmin=mel.fmin,
    )


def _hift_keys(hift: VocoderConfig) -> dict[str, Any]:
    apart = ("sampling_rate", "istft_n_fft", "istft_hop", "f0_channels")
    return {key: _plain(value) for key, value in hift.__dict__.items() if key not in apart}


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _block(values: dict[str, Any], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{key}: {value}" for key, value in values.items())


_YAML = Template("""\
# Random weights in the key layout of a CosyVoice3 folder, for measuring speed. It does not speak: "untrained" keeps the
# output gate from judging the length of what comes out.
untrained: true
min_token_text_ratio: $least
max_token_text_ratio: $most
sample_rate: $sample_rate
llm_input_size: $hidden
llm_output_size: $hidden
spk_embed_dim: $spk_dim
qwen_pretrain_path: ''
token_frame_rate: $token_frame_rate
token_mel_ratio: $ratio
chunk_size: $chunk
num_decoding_left_chunks: -1

llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: $codes
    mix_ratio: $mix
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: !ref <qwen_pretrain_path>
    sampling: !name:cosyvoice.utils.common.ras_sampling
$sampling

flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    input_size: $mel_dim
    output_size: $mel_dim
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: $codes
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: $look
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: $mel_dim
        channels: $look_channels
        pre_lookahead_len: $look
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: $mel_dim
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: 'euler'
                t_scheduler: '$scheduler'
                training_cfg_rate: 0.2
                inference_cfg_rate: $cfg_rate
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
$dit
            mel_dim: $mel_dim
            mu_dim: $mel_dim
            spk_dim: $mel_dim
            out_channels: $mel_dim
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>

hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
$hift
    sampling_rate: !ref <sample_rate>
    istft_params:
        n_fft: $n_fft
        hop_len: $hop_len
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor
        num_class: 1
        in_channels: $mel_dim
        cond_channels: $f0_channels

get_tokenizer: !name:cosyvoice.tokenizer.tokenizer.get_qwen_tokenizer
    token_path: !ref <qwen_pretrain_path>
    skip_special_tokens: True
    version: cosyvoice3
allowed_special: 'all'
feat_extractor: !name:matcha.utils.audio.mel_spectrogram
$mel
    sampling_rate: !ref <sample_rate>
    fmin: $fmin
    fmax: null
    center: False
""")
