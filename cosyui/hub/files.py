"""Which files of a model folder inference reads, and whether they are there."""

from __future__ import annotations

import re
from pathlib import Path

from cosyui.errors import SetupError
from cosyui.model.files import check_file

OPTIONAL = frozenset({"CosyVoice-BlankEN/generation_config.json"})
"""Downloaded where a repository has it; nothing reads it yet, so nothing fails without it."""

_LLM_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.pt")


def needed_files(llm_file: str = "llm.pt") -> tuple[str, ...]:
    """The files of the released layout that inference reads, small ones first; some may be `OPTIONAL`.

    The text model's own weights (``model.safetensors``), TensorRT plans and batch exports are not among them.
    Raises SetupError ``setting_invalid`` if ``llm_file`` is not the plain name of a ``.pt`` file.
    """
    if not _LLM_FILE.fullmatch(llm_file):
        message = f"llm_file must be a file name such as llm.pt or llm.rl.pt, not {llm_file!r}."
        raise SetupError("setting_invalid", message)
    return (
        "cosyvoice3.yaml",
        "CosyVoice-BlankEN/config.json",
        "CosyVoice-BlankEN/generation_config.json",
        "CosyVoice-BlankEN/tokenizer_config.json",
        "CosyVoice-BlankEN/vocab.json",
        "CosyVoice-BlankEN/merges.txt",
        "campplus.onnx",
        "hift.pt",
        "speech_tokenizer_v3.onnx",
        "flow.pt",
        llm_file,
    )


def verify_folder(folder: Path, llm_file: str = "llm.pt") -> dict[str, int]:
    """Bytes of each file. Raises CheckpointError for the first that is missing, empty or only a Git LFS pointer."""
    sizes = {}
    for name in needed_files(llm_file):
        path = folder / name
        if name in OPTIONAL and not path.exists():
            continue
        check_file(path)
        sizes[name] = path.stat().st_size
    return sizes
