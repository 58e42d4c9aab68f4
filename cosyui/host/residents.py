"""The requests that one engine has: in its process, or waiting for the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cosyui.engine.request import Event
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.messages import Cancel, Submit
from cosyui.host.process import EngineProcess
from cosyui.host.stream import Stream

DEATHS, MOST_DEATHS = 2, 4
"""So many deaths of its process end a request: when it was alone in it, and in any case."""


class Residents:
    """``number`` is the engine's. ``on_leave`` is asked for each that is left without a process; True means that

    somebody else takes care of it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._streams: dict[str, Stream] = {}
        self.on_leave: Callable[[Stream], bool] = lambda stream: False

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._streams

    @property
    def unfinished(self) -> list[Stream]:
        """Those that have not ended."""
        return [stream for stream in self._streams.values() if not stream.ended]

    def add(self, stream: Stream) -> None:
        self._streams[stream.request.id] = stream

    def remove(self, stream: Stream, process: EngineProcess | None) -> None:
        """Forget it; one that has not ended is cancelled in the process."""
        del self._streams[stream.request.id]
        if not stream.ended and stream.in_engine and process is not None:
            process.send(Cancel(stream.request.id))

    def cancel(self, request_id: str, process: EngineProcess | None) -> None:
        """It ends for its reader at once; unknown ids are ignored."""
        stream = self._streams.get(request_id)
        if stream is None or stream.ended:
            return
        if stream.in_engine and process is not None:
            process.send(Cancel(request_id))
        stream.cancelled()

    def enter(self, process: EngineProcess) -> None:
        """The process is ready: all go into it that are not in yet."""
        for stream in self.unfinished:
            if not stream.in_engine:
                stream.begin(self._number)
                process.send(Submit(stream.request, again=stream.deaths > 0))

    def take(self, events: Sequence[Event]) -> None:
        """From the process."""
        for event in events:
            if event.request_id in self._streams:  # else: cancelled a moment ago
                self._streams[event.request_id].take(event)

    def survive(self, end: str, *, counts: bool = True) -> None:
        """End a request that was alone in the process, both times; all others wait for an engine, here or elsewhere.

        An end that was asked for does not count.
        """
        inside = [stream for stream in self.unfinished if stream.in_engine]
        for stream in inside:
            if not counts:
                stream.in_engine = False
                continue
            stream.survive()
            if stream.deaths >= (DEATHS if len(inside) == 1 else MOST_DEATHS):
                message = f"The engine's process {end} twice while it worked on this text. Try another text or clip."
                stream.fail(EngineError("engine_died", message))
        for stream in self.unfinished:
            if self.on_leave(stream):
                del self._streams[stream.request.id]

    def fail(self, problem: CosyuiError) -> None:
        """All end with it."""
        for stream in self.unfinished:
            stream.fail(problem)
