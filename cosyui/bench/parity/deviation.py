"""One comparison of a parity check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """``error`` is the largest deviation found (for exact things: the number of mismatches)."""

    what: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """False also for NaN."""
        return self.error <= self.tolerance
