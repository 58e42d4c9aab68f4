"""What both hubs have in common: use a complete cache, otherwise list, download, verify, and retry a bad file once."""

from __future__ import annotations

import errno
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cosyui.errors import CheckpointError, CosyuiError, SetupError
from cosyui.hub.digest import VerifiedLog
from cosyui.hub.files import OPTIONAL, needed_files, verify_folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub lists it: ``size`` in bytes, ``digest`` SHA-256 or Git's blob SHA-1; None: not listed."""

    size: int | None
    digest: str | None


class HubUnreachableError(Exception):
    """The hub did not answer (network, proxy, server fault); its message says how."""


class Hub(Protocol):
    """One repository on one hub."""

    title: str
    repo: str
    log_file: Path

    def cached(self, name: str) -> Path | None:
        """Where the file lies in the cache, or None."""

    def cached_digest(self, path: Path) -> str | None:
        """The digest a cached file should have, if the cache itself tells."""

    def list_files(self) -> dict[str, RemoteFile]:
        """Raises CheckpointError ``model_unknown``, or HubUnreachableError."""

    def download(self, name: str, remote: RemoteFile, *, again: bool) -> Path:
        """Bring a file into the cache, going on where an earlier call stopped; ``again`` starts it anew.

        Raises HubUnreachableError or OSError.
        """


def obtain(hub: Hub, llm_file: str, *, offline: bool, refresh: bool) -> Path:
    """The folder with all needed files of ``hub.repo``.

    A complete, intact cache is used without asking the hub, unless ``refresh``. Raises CheckpointError
    (``model_unknown``, ``model_unreachable``, ``download_failed``, ``checkpoint_corrupt``, ``checkpoint_missing_file``)
    or SetupError (``disk_full``, ``setting_invalid``).
    """
    log = VerifiedLog(hub.log_file)
    names = needed_files(llm_file)
    missing, damaged = _look_into_cache(hub, names, log)
    usable = not missing and not damaged
    if usable and (offline or not refresh):
        return _folder(hub, llm_file)
    if offline:
        raise _offline_error(hub, missing, damaged)
    try:
        listing = hub.list_files()
    except HubUnreachableError as error:
        if usable:
            logger.warning("%s cannot be reached, using the downloaded copy of %s: %s", hub.title, hub.repo, error)
            return _folder(hub, llm_file)
        raise _unreachable_error(hub, error) from error
    _check_listing(hub, names, listing)
    _check_space(hub, sum(listing[name].size or 0 for name in [*missing, *damaged] if name in listing))
    hub.log_file.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in listing:
            _download(hub, name, listing[name], log, again=name in damaged)
    return _folder(hub, llm_file)


def _look_into_cache(hub: Hub, names: tuple[str, ...], log: VerifiedLog) -> tuple[list[str], list[str]]:
    missing, damaged = [], []
    for name in names:
        path = hub.cached(name)
        if path is None:
            if name not in OPTIONAL:
                missing.append(name)
        elif not log.is_intact(name, path, hub.cached_digest(path)):
            damaged.append(name)
    return missing, damaged


def _folder(hub: Hub, llm_file: str) -> Path:
    path = hub.cached("cosyvoice3.yaml")
    if path is None:
        raise _offline_error(hub, ["cosyvoice3.yaml"], [])
    verify_folder(path.parent, llm_file)
    return path.parent


def _check_listing(hub: Hub, names: tuple[str, ...], listing: dict[str, RemoteFile]) -> None:
    absent = [name for name in names if name not in listing and name not in OPTIONAL]
    if absent:
        what = f"{hub.repo} on {hub.title} has no {', '.join(absent)}"
        message = f"{what}: it is not a CosyVoice3 model in the released layout. Check the name."
        raise CheckpointError("checkpoint_missing_file", message)


def _check_space(hub: Hub, needed: int) -> None:
    place = hub.log_file.parent
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise _full_disk_error(hub, f"{needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free under {place}")


def _download(hub: Hub, name: str, remote: RemoteFile, log: VerifiedLog, *, again: bool) -> None:
    problem = "it was damaged in the cache" if again else None
    for attempt in range(2):
        if problem is not None:
            logger.warning("%s from %s: %s, downloading it again", name, hub.title, problem)
        try:
            path = hub.download(name, remote, again=problem is not None)
        except HubUnreachableError as error:
            raise _failed_error(hub, name, str(error)) from error
        except OSError as error:
            raise _os_error(hub, name, error) from error
        problem = _difference(path, remote, log, name)
        if problem is None:
            return
        if attempt == 1 or again:
            break
    for bad in (path.resolve(), path):  # a cache may link to its content
        bad.unlink(missing_ok=True)
    raise _failed_error(hub, name, f"{problem} after two downloads, so the copy on the hub or the way to it is bad")


def _difference(path: Path, remote: RemoteFile, log: VerifiedLog, name: str) -> str | None:
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"it has {size} bytes where the hub lists {remote.size}"
    if remote.digest is None:
        return None if size else "it is empty"
    if not log.is_intact(name, path, remote.digest):
        return "its checksum is not the one that the hub lists"
    return None


def _offline_error(hub: Hub, missing: list[str], damaged: list[str]) -> CosyuiError:
    if damaged:
        what = f"the downloaded copy of {hub.repo} is damaged ({', '.join(damaged)})"
        return CheckpointError("checkpoint_corrupt", f"Offline, and {what}. Go online once to download it again.")
    what = f"{hub.repo} from {hub.title} is not fully downloaded (missing: {', '.join(missing)})"
    return CheckpointError("model_unreachable", f"Offline, and {what}. Run preload_model.py once with a network.")


def _unreachable_error(hub: Hub, error: Exception) -> CosyuiError:
    message = (
        f"{hub.title} cannot be reached to download {hub.repo}: {error}. Check the network or proxy, use another hub "
        "(hf:OWNER/NAME, modelscope:OWNER/NAME; HF_ENDPOINT sets a mirror), or give a local folder with --model."
    )
    return CheckpointError("model_unreachable", message)


def _failed_error(hub: Hub, name: str, what: str) -> CosyuiError:
    message = f"Downloading {name} of {hub.repo} from {hub.title} failed: {what}. Run the command again to go on."
    return CheckpointError("download_failed", message)


def _os_error(hub: Hub, name: str, error: OSError) -> CosyuiError:
    if error.errno == errno.ENOSPC:
        return _full_disk_error(hub, f"{hub.log_file.parent} has no space left")
    return _failed_error(hub, name, error.strerror or str(error).split("\n")[0])


def _full_disk_error(hub: Hub, what: str) -> CosyuiError:
    return SetupError(
        "disk_full", f"The disk is too full to download {hub.repo}: {what}. Free some space and try again."
    )
