"""Stop at every moment of a take, and what becomes of it; on a service that does what it is told."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from cosyui.errors import CosyuiError, InputError
from cosyui.service.types import FormError, Problem, Running, Stopped, TakeForm, Waiting
from cosyui.settings import Settings
from cosyui.ui.i18n import Dictionary
from cosyui.ui.takes import Takes

pytestmark = pytest.mark.anyio
WORDS = Dictionary(Settings.load(environ={})).of(SimpleNamespace(cookies={}, headers={}))
FORM = TakeForm("Hello")


class Ticket:
    """Hands out ``updates``, then waits for `cancel`."""

    def __init__(self, updates):
        self._updates = updates
        self.cancelled = asyncio.Event()

    async def updates(self):
        for update in self._updates:
            yield update
        await self.cancelled.wait()
        yield Stopped()

    async def cancel(self):
        self.cancelled.set()


class Service:
    def __init__(self, *updates, error=None):
        self.ticket = Ticket(updates)
        self.gate = asyncio.Event()
        self.gate.set()
        self._error = error

    async def submit(self, form):
        await self.gate.wait()
        if self._error is not None:
            raise self._error
        return self.ticket


async def test_views_are_busy_until_the_last_one():
    takes = Takes(Service(Waiting(1, None), Running(0.5, 1, 2.0), Problem(CosyuiError("output_bad", "Bad."))))
    async with contextlib.aclosing(takes.views("tab", FORM, WORDS)) as views:
        states = [(await anext(views)).state for _ in range(4)]
    assert states == ["busy", "busy", "busy", "idle"]


async def test_stop_while_running():
    service = Service(Running(0.5, 1, 2.0))
    takes = Takes(service)
    async with contextlib.aclosing(takes.views("tab", FORM, WORDS)) as views:
        await anext(views)
        await anext(views)
        assert await takes.stop("tab")
        assert service.ticket.cancelled.is_set()
        assert "stopped" in (await anext(views)).status
    assert not await takes.stop("tab")


async def test_stop_before_the_service_has_taken_it_in():
    service = Service()
    service.gate.clear()
    takes = Takes(service)
    views = takes.views("tab", FORM, WORDS)
    await anext(views)
    rest = asyncio.create_task(anext(views))
    assert await takes.stop("tab")
    service.gate.set()
    assert "stopped" in (await rest).status
    assert service.ticket.cancelled.is_set()
    await views.aclose()


async def test_stop_of_another_tab_changes_nothing():
    service = Service(Running(0.5, 1, 2.0))
    takes = Takes(service)
    async with contextlib.aclosing(takes.views("tab", FORM, WORDS)) as views:
        await anext(views)
        await anext(views)
        assert not await takes.stop("other")
        assert not service.ticket.cancelled.is_set()


async def test_problems_go_to_their_fields_and_the_rest_to_the_status_line():
    problems = [
        InputError("text_empty", "No text.", "text"),
        InputError("something_else", "Not this mode.", "mode"),
    ]
    takes = Takes(Service(error=FormError(problems)))
    async with contextlib.aclosing(takes.views("tab", FORM, WORDS)) as views:
        last = [view async for view in views][-1]
    assert last.state == "idle"
    assert last.problems.keys() == {"text"}
    assert "No text." in last.problems["text"]
    assert "Not this mode." in last.status
    assert "No text." not in last.status
