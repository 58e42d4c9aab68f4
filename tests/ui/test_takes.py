"""Stop at every moment of a take, and what becomes of it; on a service that does what it is told."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyui.engine.request import RequestStats
from cosyui.errors import CosyuiError, InputError
from cosyui.service.in_use import InUse
from cosyui.service.types import Done, FormError, Problem, Result, Running, Stopped, TakeForm, Waiting
from cosyui.settings import Settings
from cosyui.ui import takes as takes_module
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
        self.operations = SimpleNamespace(in_use=InUse())

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


async def test_what_stands_on_a_page_is_in_use_until_it_leaves(monkeypatch):
    monkeypatch.setattr(takes_module, "MOST_SHOWN", 2)
    stats = RequestStats(1.0, 1.0, 1.0, 25, 1)

    async def show(takes, session, name):
        takes._service.ticket = Ticket([Done(Result(name, Path(name), 1.0, 1, stats, 0.0, 0.0, 0.0))])
        async with contextlib.aclosing(takes.views(session, FORM, WORDS)) as views:
            return [await anext(views) for _ in range(2)][-1]

    takes = Takes(Service())
    in_use = takes._service.operations.in_use
    await show(takes, "tab", "one.wav")
    await show(takes, "tab", "two.wav")
    assert in_use() == {Path("two.wav")}
    await show(takes, "other", "three.wav")
    await show(takes, "third", "four.wav")
    assert in_use() == {Path("three.wav"), Path("four.wav")}, "the oldest page has to give way"
    for session in ("other", "third", "third", "nobody"):
        await takes.leave(session)
    assert in_use() == frozenset()
