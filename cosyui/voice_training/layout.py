"""What all commands share: the template folder of the checkpoint, special speech rows, sizes, how a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from cosyui.errors import CosyuiError
from cosyui.model.config import TEXT_MODEL_CONFIG, ModelConfig, load_config
from cosyui.model.tokenizer import TextTokenizer

TEMPLATE = Path(__file__).parent / "template"
"""The small files of the exported folder: ``cosyvoice3.yaml`` with all sizes, and ``CosyVoice-BlankEN``."""

SPEECH_CODES = 6561
"""3^8: the speech token is 8 ternary digits (finite scalar quantisation)."""
SOS, EOS, TASK = SPEECH_CODES, SPEECH_CODES + 1, SPEECH_CODES + 2
"""Rows of the speech embedding behind the codes, as the model family has them."""

SAMPLE_RATE = 24_000
TOKEN_SAMPLES = 960
"""24 kHz samples of a speech token (25 tokens/s); every utterance's length is a multiple of it."""
FRAME_SAMPLES = 480
"""24 kHz samples of a mel frame (50 frames/s)."""
TOKENS_PER_HOUR = 90_000

VALIDATION = "val"
"""Name (without suffix) of the data file and id file that is never trained on."""


def model_config() -> ModelConfig:
    """Sizes of the checkpoint to be trained, from the template's yaml."""
    return load_config(TEMPLATE)


def guarded(main: Callable[[], object]) -> int:
    """Run a command; an error that a person can act on becomes one sentence on stderr and exit code 2."""
    try:
        main()
    except CosyuiError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def text_tokenizer() -> TextTokenizer:
    """The checkpoint's tokenizer: bytes, the merges that spell the system prompt, and the added tokens."""
    return TextTokenizer((TEMPLATE / TEXT_MODEL_CONFIG).parent)
