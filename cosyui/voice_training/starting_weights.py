"""First weights of the networks, where PyTorch's defaults are not what a small network learns well from."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cosyui.model.dit import AdaLayerNorm
from cosyui.model.flow import Flow
from cosyui.model.llm import SpeechLM
from cosyui.model.vocoder import CausalHiFT, ResBlock, source_noise
from cosyui.voice_training.encoders import DIGITS
from cosyui.voice_training.layout import SPEECH_CODES


@torch.no_grad()
def spread_digits(weight: Tensor, deviation: float) -> None:
    """Rows of a table of speech codes become a random linear map of their digits, plus some noise of their own.

    So a rare code begins near those it differs from by one digit.
    """
    powers = 3 ** torch.arange(DIGITS)
    digits = torch.arange(SPEECH_CODES)[:, None] // powers % 3 - 1.0
    shared = digits @ torch.randn(DIGITS, weight.shape[1]) * (deviation / math.sqrt(DIGITS * 2 / 3))
    weight[:SPEECH_CODES] = shared + torch.randn(SPEECH_CODES, weight.shape[1]) * deviation * 0.3


def init_llm(model: SpeechLM) -> None:
    """Normal 0.02, smaller where a layer adds to the residual stream; tables of codes by their digits."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * model.config.layers) if adds else 0.02)
    if model.config.speech_token_size == SPEECH_CODES:
        spread_digits(model.speech_embedding.weight, 0.02)
        spread_digits(model.llm_decoder.weight, 0.02)


def init_flow(model: Flow) -> None:
    """Gates, shifts and the output begin at zero: every block is the identity (adaLN-Zero, arXiv:2212.09748)."""
    spread_digits(model.input_embedding.weight, 1.0)
    estimator = model.estimator
    modulations = [module.linear for module in estimator.modules() if isinstance(module, AdaLayerNorm)]
    for layer in (*modulations, estimator.proj_out):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


def init_vocoder(model: CausalHiFT) -> None:
    """Residual convolutions begin small; noise and window are those of inference. The pitch net becomes float32.

    Inference runs it in float64 for the sake of long phases; a training cut is 1.3 s.
    """
    for module in model.modules():
        if isinstance(module, ResBlock):
            for conv in (*module.convs1, *module.convs2):
                nn.init.normal_(conv.weight, 0, 0.01)
    model.noise = source_noise(model.harmonics)
    model.f0_predictor.float()
