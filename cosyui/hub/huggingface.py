"""A model repository on Hugging Face, through the huggingface_hub library and its ordinary cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyui.errors import CheckpointError
from cosyui.hub.digest import is_digest
from cosyui.hub.download import HubUnreachableError, RemoteFile

_ATTEMPTS = 4
_PAUSE = 1.0
"""Seconds before the second attempt; doubled for each further one."""


class HuggingFaceHub:
    """`cosyui.hub.download.Hub` for Hugging Face; ``cache_dir`` None: the library's own. HF_ENDPOINT is honoured."""

    title = "Hugging Face"

    def __init__(self, repo: str, cache_dir: Path | None, *, progress: bool) -> None:
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        self.repo = repo
        self._cache = Path(cache_dir or constants.HF_HUB_CACHE)
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        self._progress = progress
        self.log_file = self._cache / repo_folder_name(repo_id=repo, repo_type="model") / ".cosyui-verified.json"

    def cached(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo, name, cache_dir=self._cache)
        return Path(found) if isinstance(found, str) else None

    def cached_digest(self, path: Path) -> str | None:
        # The cache stores content under the name of its digest and links to it, except where links are not possible.
        name = path.resolve().name
        return name if is_digest(name) else None

    def list_files(self) -> dict[str, RemoteFile]:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

        try:
            info = HfApi(endpoint=self._endpoint).model_info(self.repo, files_metadata=True, timeout=20)
        except GatedRepoError as error:
            message = f"{self.repo} on Hugging Face needs its terms accepted: log in with `hf auth login` first."
            raise CheckpointError("model_unknown", message) from error
        except RepositoryNotFoundError as error:
            message = (
                f"There is no public model {self.repo} on Hugging Face. Check the spelling; a local folder is given "
                "by its path, a ModelScope model as modelscope:OWNER/NAME."
            )
            raise CheckpointError("model_unknown", message) from error
        except (OSError, _http_error(HfHubHTTPError)) as error:
            raise HubUnreachableError(_first_line(error)) from error
        return {
            file.rfilename: RemoteFile(size=file.size, digest=file.lfs.sha256 if file.lfs else file.blob_id)
            for file in info.siblings or []
        }

    def download(self, name: str, remote: RemoteFile, *, again: bool) -> Path:
        old = self.cached(name) if again else None
        if old is not None:
            old.resolve().unlink(missing_ok=True)  # the library would link to the bad content again
        for attempt in range(_ATTEMPTS):
            try:
                return self._transfer(name, again=again and attempt == 0)
            except _TransferBrokenError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise HubUnreachableError(str(error)) from error
                time.sleep(_PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _transfer(self, name: str, *, again: bool) -> Path:
        """One call of the library, which goes on where an earlier call stopped; some of its versions try only once."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError

        try:
            with _progress_bars(shown=self._progress):
                path = hf_hub_download(
                    self.repo, name, cache_dir=self._cache, endpoint=self._endpoint, force_download=again
                )
        except HfHubHTTPError as error:
            raise HubUnreachableError(_first_line(error)) from error
        except OSError as error:
            if error.errno is not None:  # a fault of the disk, not of the connection
                raise
            raise _TransferBrokenError(_first_line(error)) from error
        except _http_error(HfHubHTTPError) as error:
            raise _TransferBrokenError(_first_line(error)) from error
        return Path(path)


class _TransferBrokenError(Exception):
    """The connection ended early; trying again may help."""


def _http_error(hub_error: type[Exception]) -> type[Exception]:
    """The HTTP library's base error: huggingface_hub has changed that library more than once."""
    base = hub_error.__bases__[0]
    return base if issubclass(base, Exception) else hub_error


@contextmanager
def _progress_bars(*, shown: bool) -> Iterator[None]:
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]
