"""The prompt clips in use: private copies named by their content, and what was made of them.

A clip is read from outside exactly once; what was checked is what is used, whatever becomes of the upload. Two uploads
with the same name are two clips, the same recording under two names is one. Blocking: call it from a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cosyui.engine.request import PromptClip
from cosyui.errors import CosyuiError, SetupError
from cosyui.settings import Settings
from cosyui.speech.clip.intake import CUT_SECONDS, Limits, prepare, read_source, wav_bytes
from cosyui.speech.clip.report import ClipReport

MAX_FILES = 200
MAX_FILE_BYTES = 512 << 20
MAX_PREPARED_BYTES = 64 << 20
MAX_CUTS = 2_000
"""How many cut clips are remembered together with the transcript that was left behind; some bytes each."""


class Clip(NamedTuple):
    """A checked clip. ``id`` is the SHA-256 of the file it came from."""

    id: str
    prompt: PromptClip
    report: ClipReport


class ClipStore:
    """Copies in a private folder below ``root`` (default: the system's folder for temporary files).

    The folder is made at the first clip and deleted by `close`. Least recently used copies are deleted when there are
    more than ``MAX_FILES`` or ``MAX_FILE_BYTES``; prepared clips are kept up to ``prepared_bytes``.
    """

    def __init__(self, limits: Limits, root: Path | None = None, prepared_bytes: int = MAX_PREPARED_BYTES) -> None:
        self.limits = limits
        self._root = root
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._prepared: OrderedDict[tuple[str, float | None], Clip] = OrderedDict()
        self._prepared_bytes = prepared_bytes
        self._left_behind: OrderedDict[str, str] = OrderedDict()

    @classmethod
    def from_settings(cls, settings: Settings, default_root: Path | None = None) -> ClipStore:
        limits = Limits(settings.clip_min_seconds, settings.clip_max_seconds, settings.clip_max_bytes)
        return cls(limits, settings.clips_dir or default_root)

    def __len__(self) -> int:
        """How many copies there are."""
        return len(self._sizes)

    @property
    def prepared_bytes(self) -> int:
        """Memory of the prepared clips."""
        return sum(clip.prompt.samples.nbytes for clip in self._prepared.values())

    def check(self) -> None:
        """Prove that copies can be made. Raises SetupError ``clips_not_writable``."""
        try:
            with self._lock:
                self._own_folder()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else "unknown reason"
            folder = self._root or tempfile.gettempdir()
            message = f"The folder for clips {folder} cannot be written ({reason}). Change COSYUI_CLIPS_DIR."
            raise SetupError("clips_not_writable", message) from error

    def keep(self, source: Path | bytes | None) -> str:
        """Copy a clip from outside; its id. Raises what `read_source` does, and CosyuiError ``clip_not_stored``."""
        data = read_source(source, self.limits.max_bytes)
        clip_id = hashlib.sha256(data).hexdigest()
        with self._lock:
            if not self._path(clip_id).is_file():
                self._write(clip_id, data)
            self._sizes[clip_id] = len(data)
            self._sizes.move_to_end(clip_id)
            self._drop_old_files()
        return clip_id

    def load(self, clip_id: str, cut_over: float | None = None) -> Clip:
        """The prepared clip of a copy; costs nothing the second time.

        Raises InputError as `prepare` does, and ``clip_missing`` when the copy was deleted since.
        """
        key = (clip_id, cut_over)
        with self._lock:
            if key in self._prepared:
                self._prepared.move_to_end(key)
                return self._prepared[key]
            path = self._path(clip_id)
        prompt, report = prepare(read_source(path, self.limits.max_bytes), self.limits, cut_over=cut_over)
        clip = Clip(clip_id, prompt, report)
        with self._lock:
            self._prepared[key] = clip
            while self.prepared_bytes > self._prepared_bytes and len(self._prepared) > 1:
                self._prepared.popitem(last=False)
        return clip

    def best_part(self, clip_id: str, transcript: str) -> bytes:
        """WAV file of the best part of a clip, to be used in its place; with a shorter clip, all of its speech.

        ``transcript`` belongs to the whole clip: the part will not be taken together with it (see `outdated`).
        """
        clip = self.load(clip_id, CUT_SECONDS)
        data = wav_bytes(clip.prompt)
        if clip.report.cut and transcript.strip():
            with self._lock:
                self._left_behind[hashlib.sha256(data).hexdigest()] = _fingerprint(transcript)
                if len(self._left_behind) > MAX_CUTS:
                    self._left_behind.popitem(last=False)
        return data

    def outdated(self, clip_id: str, transcript: str) -> bool:
        """Whether this is the transcript of the recording that the clip was cut out of."""
        return self._left_behind.get(clip_id) == _fingerprint(transcript)

    def forget(self, clip_id: str) -> None:
        """Delete a copy and what was made of it; requests that were taken in have their own."""
        with self._lock:
            self._sizes.pop(clip_id, None)
            for key in [key for key in self._prepared if key[0] == clip_id]:
                del self._prepared[key]
            with suppress(OSError):
                self._path(clip_id).unlink()

    def close(self) -> None:
        """Delete all copies. A later `keep` starts anew."""
        with self._lock:
            folder, self._folder = self._folder, None
            self._sizes.clear()
            self._prepared.clear()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _own_folder(self) -> Path:
        if self._folder is None or not self._folder.is_dir():
            if self._root is not None:
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="cosyui-clips-", dir=self._root))  # 0700
            self._sizes.clear()
        return self._folder

    def _path(self, clip_id: str) -> Path:
        return (self._folder or Path(os.devnull)) / clip_id

    def _write(self, clip_id: str, data: bytes) -> None:
        try:
            (self._own_folder() / clip_id).write_bytes(data)
        except OSError:
            with suppress(OSError):
                self._path(clip_id).unlink()
            message = "The clip could not be stored: no space is left, or its folder cannot be written."
            raise CosyuiError("clip_not_stored", message, "clip") from None

    def _drop_old_files(self) -> None:
        while len(self._sizes) > MAX_FILES or (sum(self._sizes.values()) > MAX_FILE_BYTES and len(self._sizes) > 1):
            oldest, _ = self._sizes.popitem(last=False)
            with suppress(OSError):
                self._path(oldest).unlink()


def _fingerprint(transcript: str) -> str:
    """Equal for transcripts with the same letters; nothing of the text can be read from it."""
    letters = "".join(char for char in transcript.casefold() if char.isalnum())
    return hashlib.sha256(letters.encode()).hexdigest()
