"""Times a local checkout of the reference implementation on the folder and the request that the engine was timed on.

Nothing of it is part of this project: the folder is given on the command line, in the layout of FunAudioLLM/CosyVoice.
What it imports has to be installed or on PYTHONPATH, transformers in the version that it asks for.
"""

from __future__ import annotations

import importlib
import logging
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

MARKER, MARKER_ID = "<|endofprompt|>", 151646
"""The reference refuses a text without this very id."""

ROWS, KEPT = 24, 20
ROUNDING = 0.02
"""Of the largest value: far above what TF32 or half precision rounds off."""


def measure(
    checkout: Path, folder: Path, texts: Sequence[str], prompt: NDArray[np.float32], ratio: float | None
) -> dict[str, Any]:
    """Median seconds of a request and of a stream's first chunk; or ``missing``: a sentence why it cannot be run.

    ``texts``: one a request, the first warms up; ``prompt`` (S,) at 24 kHz; ``ratio``: speech tokens of every text id
    where that is fixed, since the reference does not read it from the folder.
    """
    if not (checkout / "cosyvoice" / "cli" / "cosyvoice.py").is_file():
        return {"missing": f"{checkout} is no checkout of the reference: it has no cosyvoice/cli/cosyvoice.py."}
    path = list(sys.path)
    sys.path[:0] = [str(checkout / part) for part in PARTS]
    _as_pytorch_starts()
    doing = f"load {folder}"
    try:
        model = _load(importlib.import_module("cosyvoice.cli.cosyvoice"), folder)
        doing = "speak"
        return {**_facts(model), **_times(model, texts, prompt, ratio)}
    except ModuleNotFoundError as error:
        what = f"the package {error.name}, which is not installed here" if error.name else f"more: {error}"
        return {"missing": f"The reference needs {what}."}
    except Exception as error:  # noqa: BLE001  (somebody else's code, of any version)
        return {"missing": f"The reference does not {doing}: {type(error).__name__}: {error}."}
    finally:
        sys.path[:] = path


def compared(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The reference's figures and how many times ours is faster."""
    if "missing" in reference:
        return dict(reference)
    return {**reference, "times_faster": reference["rtf"] / ours["rtf"]}


def _as_pytorch_starts() -> None:
    """Undo what the engine set for the whole process and the reference leaves alone."""
    torch.backends.cudnn.allow_tf32 = True
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0)


def _load(module: Any, folder: Path) -> Any:
    """Its model, of a random checkpoint too, which has other text ids and no weights of the text model's own."""
    whole = any((folder / "CosyVoice-BlankEN").glob("*.safetensors"))
    if not whole:
        library = importlib.import_module("transformers")
        text_model, config = library.Qwen2ForCausalLM, library.AutoConfig
        # They are loaded first and then overwritten.
        text_model.from_pretrained = lambda path, **_: text_model(config.from_pretrained(path))
    model = module.CosyVoice3(model_dir=str(folder))
    logging.getLogger().setLevel(logging.ERROR)  # it logs every chunk
    if not whole:
        tokenizer = model.frontend.tokenizer
        encode = tokenizer.encode
        (marker,) = encode(MARKER)
        tokenizer.encode = lambda text, **_: [MARKER_ID if id_ == marker else id_ for id_ in encode(text)]
    return model


def _facts(model: Any) -> dict[str, Any]:
    """In what precision the language model decodes; and ``noise``, a sentence, if it does so wrongly."""
    llm = model.model.llm
    version = getattr(sys.modules.get("transformers"), "__version__", "")
    weight = llm.llm_decoder.weight
    facts = {"precision": str(weight.dtype).removeprefix("torch."), "transformers": version}
    error = _step_error(llm, weight)
    if error > ROUNDING:
        sentence = (
            f"Step by step its language model computes something else than in one go (error {error:.2g}): "
            f"transformers {version} is not what the reference was made for. It speaks noise, in as many steps."
        )
        facts["noise"] = sentence
    return facts


@torch.inference_mode()
def _step_error(llm: Any, weight: torch.Tensor) -> float:
    """Largest difference between rows read one by one with kept keys and in one go, of the largest value.

    The reference gives every step a mask of one row; since 4.53 transformers takes what that does not cover as padding.
    """
    rows = torch.randn(1, ROWS, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)

    def read(part: torch.Tensor, kept: Any) -> tuple[torch.Tensor, Any]:
        width = part.shape[1]
        mask = torch.ones(1, width, width, device=part.device).tril().bool()
        read_rows, kept = llm.llm.forward_one_step(part, masks=mask, cache=kept)
        return read_rows[:, -1], kept

    whole, _ = read(rows, None)
    last, kept = read(rows[:, :KEPT], None)
    for number in range(KEPT, ROWS):
        last, kept = read(rows[:, number : number + 1], kept)
    return float((last - whole).abs().max() / whole.abs().max())


def _times(model: Any, texts: Sequence[str], prompt: NDArray[np.float32], ratio: float | None) -> dict[str, Any]:
    if ratio is not None:
        inference = model.model.llm.inference
        model.model.llm.inference = partial(inference, max_token_text_ratio=ratio, min_token_text_ratio=ratio)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        with wave.open(file.name, "wb") as clip:
            clip.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            clip.writeframes(to_pcm16(prompt))
        warm_up, *others = texts
        hop = model.model.token_hop_len
        _take(model, warm_up, file.name, False)
        takes = [_take(model, text, file.name, False) for text in others]
        _take(model, warm_up, file.name, True)
        # Its chunks grow, and stay grown for the next request.
        later = _take(model, warm_up, file.name, True)[1]
        firsts = []
        for text in others:
            model.model.token_hop_len = hop
            firsts.append(_take(model, text, file.name, True)[1])
    return {
        "speech_s": statistics.median(speech for _, _, speech in takes),
        "wall_s": statistics.median(seconds for seconds, _, _ in takes),
        "rtf": statistics.median(seconds / speech for seconds, _, speech in takes),
        "first_chunk_ms": 1000 * statistics.median(firsts),
        "first_chunk_later_ms": 1000 * later,
    }


def _take(model: Any, text: str, clip: str, stream: bool) -> tuple[float, float, float]:
    """Seconds of one request, seconds until its first chunk, and seconds of speech."""
    transcript = f"{SYSTEM_PROMPT}{MARKER}{TRANSCRIPT}"
    sentence = f"{text}."  # as our reading ends it: one id more
    began, first, samples = time.perf_counter(), 0.0, 0
    for output in model.inference_zero_shot(sentence, transcript, clip, stream=stream, text_frontend=False):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        first = first or time.perf_counter() - began
        samples += output["tts_speech"].shape[1]
    if samples == 0:
        raise ValueError("no speech came out")
    return time.perf_counter() - began, first, samples / model.sample_rate
