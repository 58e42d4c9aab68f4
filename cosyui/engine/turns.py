"""Who has the device, where a decode step takes all of it: decoding and rendering take turns.

While a batch is rendered no steps are enqueued, unless a listener needs tokens soon, or for so long that speech would
be decoded slower than it is spoken. Batches without a deadline wait until they are worth the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cosyui.engine.needs import Render
from cosyui.engine.token_stream import Decoding

SOON = 0.1
"""Seconds before a listener runs dry from which decoding does not wait."""
LONGEST_HOLD = 0.05
"""Seconds; a group of steps is at least three times as much speech."""
CROWD = 8
"""From so many segments in decoding on, more will soon be there to be rendered together."""
WORTH_FRAMES, LONGEST_GATHERING = 6000, 0.15
"""Packed mel frames of a batch worth a pause, and seconds that are waited for them."""


class Turns:
    """``frames``: packed mel frames of a render."""

    def __init__(self, decoding: Decoding, frames: Callable[[Render], int]) -> None:
        self._decoding = decoding
        self._frames = frames

    def held(self, rendering: bool, soonest: float | None) -> bool:
        """Whether decoding waits; ``rendering``: a batch is on the device; ``soonest`` deadline for new tokens."""
        if not (rendering and self._decoding.decoder.alone):
            return False
        now = time.perf_counter()
        return (soonest is None or soonest > now + SOON) and now < self._decoding.launched + LONGEST_HOLD

    def gathered(self, patient: Sequence[Render]) -> bool:
        """Whether a batch of what has no deadline is to start."""
        if not patient or not self._decoding.decoder.alone or self._decoding.rows < CROWD:
            return True
        if time.perf_counter() > min(render.since for render in patient) + LONGEST_GATHERING:
            return True
        return sum(map(self._frames, patient)) >= WORTH_FRAMES
