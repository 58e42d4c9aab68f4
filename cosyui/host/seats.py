"""The replicas that are known, each with a number, and what they tell of themselves as if they were one engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cosyui.engine.request import EngineFacts, EngineStats
from cosyui.errors import CosyuiError
from cosyui.host.config import EngineState
from cosyui.host.joined import joined_facts, joined_stats
from cosyui.host.pool import ORDER, EngineView
from cosyui.host.replica import Report


@dataclass
class Seat:
    """A number for a replica, given to another when that one is gone and its requests are, too."""

    number: int
    report: Report
    gone: bool = False
    requests: set[str] = field(default_factory=set)

    @property
    def state(self) -> EngineState:
        return "stopped" if self.gone else self.report.state

    @property
    def latest_stats(self) -> EngineStats | None:
        return None if self.gone else self.report.stats


class Seats:
    """See `Engines`; of replicas that come and go."""

    def __init__(self) -> None:
        self._seats: list[Seat] = []
        self._closed = False

    @property
    def engines(self) -> Sequence[Seat]:
        return self._seats

    @property
    def _living(self) -> list[Seat]:
        return [seat for seat in self._seats if not seat.gone]

    @property
    def _ready(self) -> list[Seat]:
        return [seat for seat in self._living if seat.state == "ready"]

    @property
    def state(self) -> EngineState:
        """``starting`` before the first replica is there, ``restarting`` while none is left."""
        if self._closed:
            return "stopped"
        nobody: EngineState = "restarting" if self._seats else "starting"
        return min((seat.state for seat in self._living), key=ORDER.index, default=nobody)

    @property
    def places(self) -> int:
        return sum(seat.report.facts.places for seat in self._ready if seat.report.facts is not None)

    @property
    def facts(self) -> EngineFacts | None:
        seats = self._ready or self._seats
        return joined_facts([seat.report.facts for seat in seats if seat.report.facts is not None])

    @property
    def progress(self) -> None:
        """A replica is there when it has loaded."""

    @property
    def latest_stats(self) -> EngineStats | None:
        return joined_stats([seat.report.stats for seat in self._living if seat.report.stats is not None])

    @property
    def problem(self) -> CosyuiError | None:
        return next((seat.report.problem for seat in self._living if seat.report.problem is not None), None)

    @property
    def restarts(self) -> int:
        return sum(seat.report.restarts for seat in self._living)

    @property
    def pids(self) -> tuple[int, ...]:
        """None of this machine's processes."""
        return ()

    @property
    def pid(self) -> None:
        """As ``pids``."""

    def views(self) -> tuple[EngineView, ...]:
        return tuple(
            EngineView(
                seat.number,
                f"{report.replica} {report.device}",
                seat.state,
                None,
                report.facts,
                report.stats,
                report.problem,
                report.restarts,
                len(seat.requests),
            )
            for seat in self._living
            for report in (seat.report,)
        )

    @property
    def _shape(self) -> list[tuple[str, EngineState]]:
        """Changes when one comes, goes, or gets another state."""
        return [(seat.report.replica, seat.state) for seat in self._seats]

    def _seat(self, report: Report) -> Seat:
        """Of the replica that reports."""
        for seat in self._seats:
            if seat.report.replica == report.replica:
                seat.report = report
                return seat
        free = next((seat for seat in self._seats if seat.gone and not seat.requests), None)
        if free is None:
            free = Seat(len(self._seats), report)
            self._seats.append(free)
        free.report, free.gone = report, False
        return free

    def _seat_all(self, reports: Iterable[Report]) -> None:
        """These are there, and no others."""
        seated = [self._seat(report) for report in reports]
        for seat in self._seats:
            seat.gone = seat not in seated


def alike(one: EngineFacts | None, other: EngineFacts | None) -> bool:
    """Whether the same request with the same seed gives the same sound on both."""
    if one is None or other is None:
        return False
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("model", "source", "device", "precision", "versions", "places")
    )
