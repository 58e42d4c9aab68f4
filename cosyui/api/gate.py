"""Who may use the API, and how much of it: keys, requests a minute, unfinished requests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator

from cosyui.api.problems import ApiError
from cosyui.ops.logs import log
from cosyui.service.rights import Bucket, Buckets, Clock
from cosyui.settings import Settings

logger = logging.getLogger(__name__)

WRONG_KEYS = 30
"""Of one address a minute; then its right ones are refused, too."""
FULL_SECONDS = 5
"""When to try again where too many requests are unfinished: nobody knows when one will be done."""


class Gate:
    """Of one server, on one event loop. Of keys only hashes are kept.

    A client is named by the beginning of its key's hash, or, where no keys are set, of its address's, which is mixed
    with a number that goes with the server.
    """

    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._digests = settings.api_key_digests
        self._closed = bool(settings.logins) and not self._digests
        self._salt = secrets.token_bytes(16)
        self._wrong = Buckets(WRONG_KEYS, clock)
        self._lines = Bucket(WRONG_KEYS, clock)
        self._rate = Buckets(settings.api_rate, clock) if settings.api_rate else None
        self._most = settings.api_concurrency
        self._unfinished: Counter[str] = Counter()
        self._emptied = asyncio.Event()

    def client(self, authorization: str | None, address: str) -> str:
        """Who asks, by the header ``Authorization``. Raises ApiError ``api_key_missing`` or ``invalid_api_key``, and

        ``too_many_keys`` for an address that tries many.
        """
        if self._closed:
            message = "The page has a login, and the API no keys: its operator can set COSYUI_API_KEYS."
            raise ApiError("api_key_missing", message, status=401)
        if not self._digests:
            return "addr-" + hashlib.sha256(self._salt + address.encode("utf-8", "replace")).hexdigest()[:10]
        scheme, _, key = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            message = "Send an API key in the header 'Authorization: Bearer KEY'."
            raise ApiError("api_key_missing", message, status=401)
        return self._client_of(key.strip(), address)

    def check_rate(self, client: str) -> None:
        """Counts a request that makes work. Raises ApiError ``rate_limit_exceeded``."""
        if self._rate is None:
            return
        bucket = self._rate.of(client)
        wait = math.ceil(bucket.wait())
        if wait > 0:
            message = f"Too many requests in a minute. Try again in {wait} seconds."
            raise ApiError("rate_limit_exceeded", message, status=429, retry_after=wait)
        bucket.take()

    def enter(self, client: str) -> None:
        """One more unfinished request; `leave` after it. Raises ApiError ``too_many_unfinished``."""
        if self._most and self._unfinished[client] >= self._most:
            message = f"{self._unfinished[client]} of your requests are unfinished, which is the limit. Wait for one."
            raise ApiError("too_many_unfinished", message, status=429, retry_after=FULL_SECONDS)
        self._unfinished[client] += 1

    def leave(self, client: str) -> None:
        self._unfinished[client] -= 1
        if not self._unfinished[client]:
            del self._unfinished[client]
        if not self._unfinished:
            self._emptied.set()

    async def empty(self) -> None:
        """Returns once no request is unfinished."""
        while self._unfinished:
            self._emptied.clear()
            await self._emptied.wait()

    @contextlib.contextmanager
    def inside(self, client: str) -> Iterator[None]:
        """`enter` and, whatever happens, `leave`."""
        self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    @property
    def unfinished(self) -> int:
        """Requests of all clients."""
        return self._unfinished.total()

    def _client_of(self, key: str, address: str) -> str:
        wrong = self._wrong.of(address)
        wait = math.ceil(wrong.wait())
        if wait > 0:
            message = f"Too many wrong keys. Try again in {wait} seconds; until then even the right one is refused."
            raise ApiError("too_many_keys", message, status=429, retry_after=wait)
        given = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        if sum(hmac.compare_digest(given, digest) for digest in self._digests):  # all, whichever it is
            return "key-" + given.hex()[:10]
        wrong.take()
        if self._lines.wait() == 0:  # whoever floods the service shall not flood the disk, too
            self._lines.take()
            log(logger, logging.WARNING, "api_key_wrong", address=address)
        raise ApiError("invalid_api_key", "This API key is not one of this server's.", status=401)
