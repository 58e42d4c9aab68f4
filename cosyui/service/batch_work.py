"""Makes the lines of one batch, through the queue like everybody, and writes down how far it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator

from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import CosyuiError, InputError, MissingError
from cosyui.ops.logs import log
from cosyui.service.batch_check import find, form_of
from cosyui.service.batch_files import BatchFiles
from cosyui.service.batch_record import Batch, LineState
from cosyui.service.checks import SEED_LIMIT
from cosyui.service.ticket import Ticket
from cosyui.service.types import Done, Problem, QueueFullError, Result, Running, Stopped, TakeForm
from cosyui.service.voices import SavedVoices

logger = logging.getLogger(__name__)

MOST_QUEUED = 2
"""Lines of a batch that wait in the queue at once: it shall not fill it for others."""
MOST_AT_ONCE = 16
LONGEST_WAIT = 60.0
MOST_TRIES = 2
HALTING = ("disk_full", "outputs_not_writable")
"""What every other line would meet, too."""
CLOSING = "service_stopping"
"""The server goes down: the next one goes on."""
UNLUCKY = ("output_bad", "output_endless")
"""What another seed may mend."""
Submit = Callable[[TakeForm], Awaitable[Ticket]]


class Room:
    """Where those wait who were told that the queue is full, until somebody has left it."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def freed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Returns after ``seconds`` at the latest."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._waiters.discard(waiter)


class BatchWork:
    """One run over what is left of a batch. `run` until its end; `stop` ends it sooner, and keeps what is made.

    ``places`` tells how many takes the engine works on at once; half of them are left to others.
    """

    def __init__(
        self,
        batch: Batch,
        files: BatchFiles,
        voices: SavedVoices,
        submit: Submit,
        room: Room,
        places: Callable[[], int],
    ) -> None:
        self.batch = batch
        self._files = files
        self._voices = voices
        self._submit = submit
        self._room = room
        self._places = places
        self._queued = asyncio.Semaphore(MOST_QUEUED)
        self._entering = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._tries: dict[int, int] = {}
        self._began = time.monotonic()
        self._made = 0.0
        self._ends = False

    @property
    def busy(self) -> frozenset[int]:
        """Places in the batch of the lines that are in the queue or at work."""
        return frozenset(self._tickets)

    @property
    def seconds_left(self) -> float | None:
        """Estimated; None before the first line is made."""
        if not self._made:
            return None
        return self.batch.expected_left() * (time.monotonic() - self._began) / self._made

    async def run(self) -> None:
        """Never raises: what stops all of it is the state of the batch afterwards."""
        todo = iter(self.batch.left())
        ended = await asyncio.gather(*(self._work(todo) for _ in range(MOST_AT_ONCE)), return_exceptions=True)
        for crash in (one for one in ended if isinstance(one, BaseException)):
            logger.error("batch_crashed", exc_info=crash, extra={"fields": {"batch": self.batch.id}})
            self._pause("internal", "Something went wrong inside the service. Resume the batch; the log has the rest.")
        if self.batch.state != "paused" and not self.batch.counts()["waiting"]:
            self.batch.progress.state = "done"
        self.batch.touch()
        try:
            await self._save()
        except CosyuiError as error:
            log(logger, logging.ERROR, "batch_not_saved", batch=self.batch.id, reason=error.message)

    async def stop(self) -> None:
        """No further line begins, and those at work end; await `run` then."""
        self._ends = True
        self._room.freed()
        for ticket in list(self._tickets.values()):
            await ticket.cancel()

    async def _work(self, todo: Iterator[int]) -> None:
        for index in todo:
            if self._ends:
                return
            try:
                await self._make(index)
            except CosyuiError as error:
                if not self._ends:
                    self._pause(error.code, error.message)
                return

    def _pause(self, code: str, message: str) -> None:
        """Ends the run: the others at work still end in their own way."""
        self._ends = True
        self._room.freed()
        if code == CLOSING:
            return
        progress = self.batch.progress
        progress.state, progress.code, progress.message = "paused", code, message
        self.batch.touch()

    async def _make(self, index: int) -> None:
        """Until the line is done or has failed. Raises CosyuiError for what no line can be made with."""
        state = self.batch.progress.lines[index]
        while state.status == "waiting" and not self._ends:
            try:
                end = await self._spoken(index, state)
            except (InputError, MissingError) as problem:
                end = Problem(problem)
            match end:
                case Done(result):
                    await self._done(index, state, result)
                case Problem(error) if error.code in HALTING:
                    raise error
                case Problem(error):
                    await self._try_again_or_fail(index, state, error)
                case Stopped() if not self._ends:
                    await self._failed(state, CosyuiError("stopped", "An operator stopped this line."))

    async def _spoken(self, index: int, state: LineState) -> Done | Problem | Stopped:
        """One take. Raises what `SynthesisService.submit` does, and MissingError where the voice is gone."""
        await self._queued.acquire()
        with contextlib.ExitStack() as place:
            place.callback(self._queued.release)
            async with self._entering:  # one behind the other, so that they come in their order
                ticket = await self._admitted(index, state)
            if ticket is None:
                return Stopped()
            self._tickets[index] = ticket
            self.batch.touch()
            try:
                if self._ends:
                    await ticket.cancel()
                return await self._end_of(ticket, place)
            finally:
                del self._tickets[index]
                self._room.freed()

    async def _admitted(self, index: int, state: LineState) -> Ticket | None:
        """Waits for room in the queue; None if the run ended meanwhile."""
        line = self.batch.order.lines[index]
        while not self._ends:
            if len(self._tickets) >= max(MOST_QUEUED, self._places() // 2):
                await self._room.wait(LONGEST_WAIT)
                continue
            voice = await asyncio.to_thread(find, self._voices, line.voice_key)
            try:
                return await self._submit(form_of(line, voice, state.seed, self.batch.order.client))
            except QueueFullError as error:
                if not self._ends:
                    await self._room.wait(max(1, error.retry_after))
        return None

    async def _end_of(self, ticket: Ticket, place: contextlib.ExitStack) -> Done | Problem | Stopped:
        """Frees what it holds of the queue once it is at work."""
        end: Done | Problem | Stopped = Stopped()
        async with contextlib.aclosing(ticket.updates()) as updates:
            async for update in updates:
                if isinstance(update, Running):
                    place.close()
                elif isinstance(update, Done | Problem | Stopped):
                    end = update
        return end

    async def _done(self, index: int, state: LineState, result: Result) -> None:
        try:
            await asyncio.to_thread(self._files.keep, self.batch.id, index, result.path)
        except OSError as error:
            raise not_stored(error) from error
        state.status, state.code, state.message = "done", None, None
        state.samples, state.parts = round(result.seconds * SAMPLE_RATE), result.stats.parts
        self._made += result.seconds
        self.batch.touch()
        await self._save()

    async def _try_again_or_fail(self, index: int, state: LineState, error: CosyuiError) -> None:
        """It fails with the second try. A seed that was drawn is drawn anew where that may help."""
        self._tries[index] = self._tries.get(index, 0) + 1
        if self._tries[index] >= MOST_TRIES or isinstance(error, InputError | MissingError):
            await self._failed(state, error)
        elif error.code in UNLUCKY and self.batch.order.lines[index].seed is None:
            state.seed = secrets.randbelow(SEED_LIMIT)
            await self._save()

    async def _failed(self, state: LineState, error: CosyuiError) -> None:
        state.status, state.code, state.message = "failed", error.code, error.message
        self.batch.touch()
        await self._save()

    async def _save(self) -> None:
        """Raises CosyuiError ``batch_not_stored``."""
        async with self._saving:
            data = self.batch.progress.model_dump_json().encode()
            try:
                await asyncio.to_thread(self._files.save, self.batch.id, data)
            except OSError as error:
                raise not_stored(error) from error


def not_stored(error: OSError) -> CosyuiError:
    message = f"The batch could not be written ({error.strerror}). Free some space in COSYUI_OUTPUTS_DIR and resume it."
    return CosyuiError("batch_not_stored", message)
