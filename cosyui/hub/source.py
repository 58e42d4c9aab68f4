"""What the ``--model`` setting means, and the folder it leads to."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cosyui.errors import CheckpointError, SetupError
from cosyui.hub.download import obtain
from cosyui.hub.files import verify_folder

EMBEDDED_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "voice"
"""The small demo checkpoint that comes with the repository."""

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True)
class Source:
    """``place`` is a folder for the kinds ``embedded`` and ``local``, ``owner/name`` for the hubs."""

    kind: Literal["embedded", "local", "hf", "modelscope"]
    place: str

    def __str__(self) -> str:
        titles = {"embedded": "embedded voice", "local": "folder", "hf": "Hugging Face", "modelscope": "ModelScope"}
        return titles[self.kind] if self.kind == "embedded" else f"{titles[self.kind]} {self.place}"


def parse_source(spec: str) -> Source:
    """Read ``embedded``, a folder, ``hf:owner/name`` (or a bare ``owner/name``) or ``modelscope:owner/name``.

    A folder that exists wins over a repository of the same name. Raises SetupError ``setting_invalid`` or
    CheckpointError ``model_unknown`` (a folder that does not exist).
    """
    spec = spec.strip()
    if spec in ("", "embedded"):
        return Source("embedded", str(EMBEDDED_FOLDER))
    prefix, colon, rest = spec.partition(":")
    if colon and prefix in ("hf", "modelscope"):
        if not _REPO.fullmatch(rest):
            raise SetupError("setting_invalid", f"--model {spec}: write the model as {prefix}:OWNER/NAME.")
        return Source("hf" if prefix == "hf" else "modelscope", rest)
    if Path(spec).expanduser().is_dir():
        return Source("local", str(Path(spec).expanduser()))
    if _REPO.fullmatch(spec):
        return Source("hf", spec)
    message = (
        f"There is no model folder {spec}. --model takes a folder, hf:OWNER/NAME, modelscope:OWNER/NAME, or 'embedded' "
        "for the demo voice."
    )
    raise CheckpointError("model_unknown", message)


def resolve(
    spec: str,
    *,
    llm_file: str = "llm.pt",
    cache_dir: Path | None = None,
    offline: bool = False,
    progress: bool = True,
    refresh: bool = False,
) -> Path:
    """The local folder of the model ``spec`` (see `parse_source`), downloaded if need be, with every needed file in it.

    ``cache_dir`` None leaves the place to each hub's convention. A complete download is used without network; with
    ``refresh`` the hub is asked for newer files. HF_HUB_OFFLINE works like ``offline``. ``progress`` shows bars.
    Raises CheckpointError or SetupError with a sentence that says what to do.
    """
    source = parse_source(spec)
    if source.kind in ("embedded", "local"):
        folder = Path(source.place)
        verify_folder(folder, llm_file)
        return folder
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    if source.kind == "hf":
        from cosyui.hub.huggingface import HuggingFaceHub

        hf_hub = HuggingFaceHub(source.place, cache_dir and cache_dir / "huggingface", progress=progress)
        return obtain(hf_hub, llm_file, offline=offline, refresh=refresh)
    from cosyui.hub.modelscope import ModelScopeHub

    with closing(ModelScopeHub(source.place, cache_dir and cache_dir / "modelscope", progress=progress)) as ms_hub:
        return obtain(ms_hub, llm_file, offline=offline, refresh=refresh)
