"""A model repository on ModelScope, through its public HTTP interface.

Two requests are all it takes: the file list (with sizes and SHA-256) and ranged downloads. ModelScope's own packages
bring far more than that (cryptography, requests and a command line at the least), so they are not needed here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from filelock import FileLock
from tqdm import tqdm

from cosyui.errors import CheckpointError
from cosyui.hub.digest import is_digest
from cosyui.hub.download import HubUnreachableError, RemoteFile

DEFAULT_ENDPOINT = "https://www.modelscope.cn"
_REVISION = "master"
_ATTEMPTS = 5
_PAUSE = 1.0
"""Seconds before the second attempt; doubled for each further one, at most 30."""
_TIMEOUT = httpx.Timeout(60.0, connect=15.0)


class ModelScopeHub:
    """`cosyui.hub.download.Hub` for ModelScope. Files lie in ``cache_dir/OWNER/NAME`` as in the repository.

    MODELSCOPE_ENDPOINT names another server. ``pause`` waits between attempts (seconds). Close it after use.
    """

    title = "ModelScope"

    def __init__(
        self, repo: str, cache_dir: Path | None, *, progress: bool, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.repo = repo
        self._folder = (cache_dir or _default_cache()).joinpath(*repo.split("/"))
        endpoint = os.environ.get("MODELSCOPE_ENDPOINT") or DEFAULT_ENDPOINT
        self._url = f"{endpoint.rstrip('/')}/api/v1/models/{quote(repo)}/repo"
        self._progress = progress
        self._pause = pause
        self.log_file = self._folder / ".cosyui-verified.json"

    def close(self) -> None:
        """End the connections, if any were opened."""
        if "_client" in self.__dict__:
            self._client.close()

    def cached(self, name: str) -> Path | None:
        path = self._folder / name
        return path if path.is_file() else None

    def cached_digest(self, path: Path) -> str | None:
        return None

    def list_files(self) -> dict[str, RemoteFile]:
        try:
            answer = self._client.get(f"{self._url}/files", params={"Revision": _REVISION, "Recursive": "true"})
        except httpx.HTTPError as error:
            raise HubUnreachableError(_describe(error)) from error
        if answer.status_code in (401, 403, 404):
            raise self._unknown()
        if answer.is_error:
            raise HubUnreachableError(f"it answered with HTTP status {answer.status_code}")
        try:
            body = answer.json()
        except ValueError as error:
            raise HubUnreachableError("it answered with something that is no file list") from error
        if not isinstance(body, dict) or body.get("Success") is False:
            raise self._unknown()
        data = body.get("Data")
        entries = data.get("Files") if isinstance(data, dict) else None
        return dict(_remote_file(entry) for entry in entries or [] if _is_file(entry))

    def download(self, name: str, remote: RemoteFile, *, again: bool) -> Path:
        target = self._folder / name
        part = target.with_name(target.name + ".part")
        if again:
            target.unlink(missing_ok=True)
            part.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._folder / ".cosyui-download.lock"):
            if not (target.is_file() and target.stat().st_size == remote.size):  # another process may have brought it
                self._fill(name, part, remote.size)
                part.replace(target)
        return target

    @cached_property
    def _client(self) -> httpx.Client:
        # Files must come as they are: a compressed answer could not be continued in the middle.
        return httpx.Client(timeout=_TIMEOUT, follow_redirects=True, headers={"Accept-Encoding": "identity"})

    def _fill(self, name: str, part: Path, size: int | None) -> None:
        """Download into ``part`` from where it ends; attempts that bring nothing new are counted and limited."""
        failures = 0
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                self._transfer(name, part, size)
            except httpx.HTTPError as error:
                after = part.stat().st_size if part.exists() else 0
                failures = 0 if after > before else failures + 1
                if failures >= _ATTEMPTS:
                    raise HubUnreachableError(_describe(error)) from error
                self._pause(min(30.0, _PAUSE * 2.0**failures))
            else:
                return

    def _transfer(self, name: str, part: Path, size: int | None) -> None:
        start = part.stat().st_size if part.exists() else 0
        if size is not None and start == size:
            return
        if size is not None and start > size:
            part.unlink()
            start = 0
        headers = {"Range": f"bytes={start}-"} if start else {}
        query = {"Revision": _REVISION, "FilePath": name}
        with self._client.stream("GET", self._url, params=query, headers=headers) as answer:
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)  # what we have is no beginning of this file
            answer.raise_for_status()
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                start = 0  # the server sends the whole file
            with (
                part.open("r+b" if start else "wb") as stream,
                tqdm(
                    desc=name, total=size, initial=start, unit="B", unit_scale=True, disable=not self._progress
                ) as progress,
            ):
                stream.seek(start)
                for block in answer.iter_raw():  # no block size: what has arrived is kept when the rest breaks off
                    stream.write(block)
                    progress.update(len(block))
        if size is not None and part.stat().st_size < size:
            raise httpx.RemoteProtocolError(f"the transfer of {name} ended early")

    def _unknown(self) -> CheckpointError:
        message = f"There is no public model {self.repo} on ModelScope. Check the spelling of modelscope:OWNER/NAME."
        return CheckpointError("model_unknown", message)


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cosyui" / "modelscope"


def _is_file(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("Path"), str) and entry.get("Type") != "tree"


def _remote_file(entry: dict[str, Any]) -> tuple[str, RemoteFile]:
    size, digest = entry.get("Size"), str(entry.get("Sha256") or "").lower()
    return entry["Path"], RemoteFile(
        size=size if isinstance(size, int) else None, digest=digest if is_digest(digest) else None
    )


def _describe(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered with HTTP status {error.response.status_code}"
    return str(error) or type(error).__name__
