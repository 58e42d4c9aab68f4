"""One take from the press of a button to its end, as a stream of views; and the way to stop it from another click."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Literal

from cosyui.errors import CosyuiError
from cosyui.service.service import SynthesisService
from cosyui.service.ticket import Ticket
from cosyui.service.types import Chunk, Done, Problem, Result, Running, Stopped, TakeForm, Update, Waiting
from cosyui.ui import render
from cosyui.ui.i18n import Words
from cosyui.ui.listening import Live, LiveTakes

FIELDS = ("text", "voice", "clip", "transcript", "instruction", "speed", "seed")
"""Fields that have a place for their problem; any other problem is shown in the status line."""

ONE_PRESS = 0.5
"""Seconds between two presses that were meant as one."""
MOST_SHOWN = 300
"""Pages whose take is kept from the purge, as long as they are open."""


@dataclass(frozen=True)
class View:
    """What the page shows of a take now: ``status`` HTML, problems by field, and the result once there is one.

    ``listen``: the key by which it is heard while it is made.
    """

    state: Literal["busy", "idle"]
    status: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    result: Result | None = None
    listen: str = ""


class _Take:
    """What Stop needs to know: the ticket, once there is one, and that it was asked for before."""

    def __init__(self, form: TakeForm) -> None:
        self.form = form
        self.began = time.monotonic()

    ticket: Ticket | None = None
    stop_asked = False


class Takes:
    """The takes in work, one a browser session at most, and those that stand on the pages: they are not purged."""

    def __init__(self, service: SynthesisService) -> None:
        self._service = service
        self._by_session: dict[str, _Take] = {}
        self._shown: OrderedDict[str, None] = OrderedDict()
        self.live = LiveTakes()

    async def stop(self, session: str) -> bool:
        """Stop the session's take at once, also when the page is gone; False if there is none."""
        take = self._by_session.get(session)
        if take is None:
            return False
        take.stop_asked = True
        if take.ticket is not None:
            await take.ticket.cancel()
        return True

    async def leave(self, session: str) -> None:
        """The page is gone: nobody will hear its take, nor see what stands on it."""
        await self.stop(session)
        self._forget(session)
        self.live.forget(session)

    def _show(self, session: str, result: Result) -> None:
        self._service.operations.in_use.hold(f"page-{session}", result.path)
        self._shown[session] = None
        self._shown.move_to_end(session)
        if len(self._shown) > MOST_SHOWN:  # not every browser says when it leaves
            self._forget(next(iter(self._shown)))

    def _forget(self, session: str) -> None:
        self._shown.pop(session, None)
        self._service.operations.in_use.release(f"page-{session}")

    async def close(self) -> None:
        """Stop every take; each page still gets its last view."""
        for session in list(self._by_session):
            await self.stop(session)

    async def views(
        self,
        session: str,
        form: TakeForm,
        words: Words,
        owner: str = "",
        voice: str = "",
        *,
        listen: bool = False,
    ) -> AsyncIterator[View]:
        """Run a take; the last view is idle. Closing this iterator cancels the take.

        It is in the history of its ``owner``, if there is one. ``voice``: the saved one that the clip is of.
        ``listen``: its page hears it while it is made. A second press of the button at once is none: it has no views.
        """
        before = self._by_session.get(session)
        if before is not None and before.form == form and time.monotonic() - before.began < ONE_PRESS:
            return
        await self.stop(session)
        self.live.forget(session)
        take = self._by_session[session] = _Take(form)
        live: Live | None = None
        try:
            yield View("busy", render.status("checking", words("checking"), share=-1))
            take.ticket = await self._service.submit(form)
            if take.stop_asked:
                await take.ticket.cancel()
            if listen:
                live = self.live.open(session, take.ticket.sound)
            async with contextlib.aclosing(take.ticket.updates()) as updates:
                async for update in updates:
                    if isinstance(update, Done):
                        self._show(session, update.result)
                        if owner and self._service.history is not None:
                            self._service.history.add(owner, form, update.result, voice)
                    if live is not None and isinstance(update, Done | Problem):
                        live.end("done" if isinstance(update, Done) else "failed")
                    view = _view(update, words)
                    if view is not None:
                        yield replace(view, listen=live.key if live is not None else "")
        except CosyuiError as error:
            yield problems(error, words)
        finally:
            if live is not None:
                live.end("stopped")
            if self._by_session.get(session) is take:
                del self._by_session[session]


def _view(update: Update, words: Words) -> View | None:
    match update:
        case Waiting():
            return View("busy", render.waiting(update, words))
        case Running():
            return View("busy", render.running(update, words))
        case Chunk():
            return None
        case Done(result):
            return View("idle", render.status("done", words("done")), result=result)
        case Problem(error):
            return problems(error, words)
        case Stopped():
            return View("idle", render.status("stopped", words("stopped")))


def problems(error: CosyuiError, words: Words) -> View:
    """Each problem to its field; the status line tells those that have none."""
    beside, general = render.problems_by_field(error, FIELDS, words)
    title = words("failed" if general else "failed_fields")
    return View("idle", render.status("failed", title, " ".join(general)), beside)
