"""Times a local checkout of the reference implementation on the folder and the request that the engine was timed on.

Nothing of it is part of this project: the folder is given on the command line, in the layout of FunAudioLLM/CosyVoice.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
import wave
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cosyui.bench.workload import TRANSCRIPT
from cosyui.engine.request import SAMPLE_RATE
from cosyui.speech.sound.audio_out import to_pcm16
from cosyui.speech.text.prefix import SYSTEM_PROMPT

PARTS = ("", "third_party/Matcha-TTS")
"""Folders of the checkout that its modules are imported from."""


def measure(
    checkout: Path, folder: Path, texts: Sequence[str], prompt: NDArray[np.float32], ratio: float | None
) -> dict[str, Any]:
    """Median seconds of a request and of a stream's first chunk; or ``missing``: a sentence why it cannot be run.

    ``texts``: one a request, the first warms up; ``prompt`` (S,) at 24 kHz; ``ratio``: speech tokens of every text id
    where that is fixed, since the reference does not read it from the folder.
    """
    if not (checkout / "cosyvoice" / "cli" / "cosyvoice.py").is_file():
        return {"missing": f"{checkout} is no checkout of the reference: it has no cosyvoice/cli/cosyvoice.py."}
    sys.path[:0] = [str(checkout / part) for part in PARTS]
    try:
        module = importlib.import_module("cosyvoice.cli.cosyvoice")
        model = _load(module, folder)
    except ImportError as error:
        return {"missing": f"The reference needs the package {error.name}, which is not installed here."}
    except Exception as error:  # noqa: BLE001  (somebody else's code, of any version)
        return {"missing": f"The reference does not load {folder}: {type(error).__name__}: {error}."}
    finally:
        del sys.path[: len(PARTS)]
    if ratio is not None:
        inference = model.model.llm.inference
        model.model.llm.inference = partial(inference, max_token_text_ratio=ratio, min_token_text_ratio=ratio)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        with wave.open(file.name, "wb") as clip:
            clip.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            clip.writeframes(to_pcm16(prompt))
        takes = [_take(model, text, file.name, False) for text in texts][1:]
        firsts = [_take(model, text, file.name, True)[1] for text in texts[1:]]
    return {
        "speech_s": statistics.median(speech for _, _, speech in takes),
        "wall_s": statistics.median(seconds for seconds, _, _ in takes),
        "rtf": statistics.median(seconds / speech for seconds, _, speech in takes),
        "first_chunk_ms": 1000 * statistics.median(firsts),
    }


def compared(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The reference's figures and how many times ours is faster."""
    if "missing" in reference:
        return dict(reference)
    return {**reference, "times_faster": reference["rtf"] / ours["rtf"]}


def _load(module: Any, folder: Path) -> Any:
    """Its model. A random checkpoint has no text model's weights, which the reference loads and then overwrites."""
    if not any((folder / "CosyVoice-BlankEN").glob("*.safetensors")):
        library = importlib.import_module("transformers")
        text_model, config = library.Qwen2ForCausalLM, library.AutoConfig
        text_model.from_pretrained = lambda path, **_: text_model(config.from_pretrained(path))
    return module.CosyVoice3(model_dir=str(folder))


def _take(model: Any, text: str, clip: str, stream: bool) -> tuple[float, float, float]:
    """Seconds of one request, seconds until its first chunk, and seconds of speech."""
    transcript = f"{SYSTEM_PROMPT}<|endofprompt|>{TRANSCRIPT}"
    began, first, samples = time.perf_counter(), 0.0, 0
    for output in model.inference_zero_shot(text, transcript, clip, stream=stream, text_frontend=False):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        first = first or time.perf_counter() - began
        samples += output["tts_speech"].shape[1]
    return time.perf_counter() - began, first, samples / model.sample_rate
