"""Speech tokens of many segments, decoded together and handed out one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from cosyui.engine.decode import LengthRule
from cosyui.engine.slots import Decoded


class Decoder(Protocol):
    """What `SlotDecoder` does; tests put a scripted one in its place."""

    @property
    def alone(self) -> bool: ...
    @property
    def free(self) -> int: ...

    def join(self, text_ids: Sequence[int], prompt_speech: Sequence[int], rule: LengthRule, seed: int) -> int: ...
    def leave(self, slot: int) -> None: ...
    def launch(self) -> bool: ...
    def poll(self, wait: bool) -> dict[int, Decoded]: ...


class TokenStream:
    """The tokens of one segment as they come. `close` frees its slot, also in mid-decode."""

    def __init__(self, decoding: Decoding, slot: int) -> None:
        self._decoding = decoding
        self.slot = slot
        self.tokens: list[int] = []
        self.ended = False
        self.bad = False
        self.closed = False

    @property
    def ready(self) -> bool:
        """`take` has something to tell."""
        return bool(self.tokens) or self.ended

    def take(self) -> Decoded:
        """Everything that came since the last call."""
        tokens, self.tokens = self.tokens, []
        return Decoded(tokens, self.ended, self.bad)

    def add(self, decoded: Decoded) -> None:
        self.tokens += decoded.tokens
        self.ended, self.bad = decoded.ended, decoded.bad
        if self.ended:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._decoding.close(self.slot)


class Decoding:
    """Hands the decoder's slots out and its tokens on."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._streams: dict[int, TokenStream] = {}
        self.launched = 0.0
        """When steps were enqueued last, on `time.perf_counter`'s clock."""

    @property
    def free(self) -> int:
        return self.decoder.free

    @property
    def busy(self) -> bool:
        return bool(self._streams)

    @property
    def rows(self) -> int:
        """Segments that are being decoded."""
        return len(self._streams)

    def open(self, text_ids: Sequence[int], prompt_speech: Sequence[int], rule: LengthRule, seed: int) -> TokenStream:
        """Start decoding. Raises ValueError when prompt and rule do not fit into a slot."""
        slot = self.decoder.join(text_ids, prompt_speech, rule, seed)
        stream = self._streams[slot] = TokenStream(self, slot)
        return stream

    def close(self, slot: int) -> None:
        del self._streams[slot]
        self.decoder.leave(slot)

    def advance(self, hold: bool = False) -> bool:
        """Enqueue the next steps, unless on ``hold``, and hand out what has come; True if anything came."""
        if not self.busy:
            return False
        if not hold and self.decoder.launch():
            self.launched = time.perf_counter()
        arrived = self.decoder.poll(wait=False)
        for slot, decoded in arrived.items():
            if slot in self._streams:
                self._streams[slot].add(decoded)
        return bool(arrived)
