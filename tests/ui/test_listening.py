"""The websocket on which a page hears its take: all samples, to nobody else, and never at the cost of the take."""

import asyncio
import contextlib
import wave

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from cosyui.host.config import FakeScript
from cosyui.service import recorder
from cosyui.ui import listening
from cosyui.ui.listening import AHEAD_BYTES, MOST_KEPT, ROUTE, LiveTakes
from cosyui.ui.takes import Takes
from tests.api.wire import PATIENCE, Wire
from tests.ui.test_origin import EVIL, OWN, Site
from tests.ui.test_takes import WORDS

pytestmark = pytest.mark.anyio


class Listener(Wire):
    def __init__(self, takes, key):
        super().__init__(self._app(takes, key))

    @staticmethod
    def _app(takes, key):
        app = Starlette(routes=[WebSocketRoute(ROUTE, takes.live.route)])
        return lambda scope, receive, send: app(scope | {"path": f"/listen/{key}"}, receive, send)

    async def accepted(self):
        async with asyncio.timeout(PATIENCE):
            assert (await self.sent.get())["type"] == "websocket.accept"
        return self

    async def hear(self, size=None, sound=b""):
        """Sound up to this size, told as played; without one all of it, with the last message and the code."""
        while size is None or len(sound) < size:
            one = await self.take()
            if not isinstance(one, bytes):
                return sound, one, await self.take()
            sound += one
            self.put(text=str(len(sound) // 2))
        return sound


class Pressed:
    """A take of a page; its views are read by a task of their own."""

    def __init__(self, takes, form, session="tab"):
        self._takes, self._form, self._session = takes, form, session
        self.views, self.key = [], asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        async with contextlib.aclosing(self._takes.views(self._session, self._form, WORDS, listen=True)) as views:
            async for view in views:
                self.views.append(view)
                if view.listen and not self.key.done():
                    self.key.set_result(view.listen)

    async def end(self):
        async with asyncio.timeout(PATIENCE):
            await self.task
        return self.views[-1]


def samples_of(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (24_000, 2, 1)
        return file.readframes(file.getnframes())


@pytest.mark.parametrize("memory", [4 << 20, 1000])
async def test_the_samples_are_those_of_the_file(fake_service, form, monkeypatch, memory):
    monkeypatch.setattr(recorder, "MEMORY_BYTES", memory)  # a little: it is read from the growing file
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=30] Long.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        sound, last, code = await listener.hear()
        result = (await pressed.end()).result
    assert sound == samples_of(result.path)
    assert (last, code) == ({"type": "done", "samples": 720_000}, 1000)


async def test_who_comes_after_the_end_hears_all_once(fake_service, form):
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=1] Short."))
        result = (await pressed.end()).result
        sound, last, _ = await (await Listener(takes, await pressed.key).accepted()).hear()
        assert sound == samples_of(result.path)
        assert last["type"] == "done"
        again = Listener(takes, await pressed.key)
        assert await again.take() == 1008, "a key opens one connection"


async def test_slow_listener_gets_no_more_than_some_seconds_and_the_take_goes_on(fake_service, form):
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=60] Long.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        result = (await pressed.end()).result  # nothing was told as played
        early = b""
        while len(early) < AHEAD_BYTES:
            early += await listener.take()
        assert len(early) == AHEAD_BYTES
        assert listener.sent.empty()
        listener.put(text=str(24_000))
        early += await listener.take()
        listener.put(text=str(len(early) // 2 + 999_999_999))  # more than was sent counts as all of that
        sound, last, _ = await listener.hear(sound=early)
        assert sound == samples_of(result.path)
        assert last["samples"] == 60 * 24_000


async def test_connection_that_does_not_take_anything_holds_up_nothing(fake_service, form):
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=30] Long.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        listener.reads.clear()
        assert (await pressed.end()).result.seconds == 30
        assert listener.blocked == 1
        listener.leave()
        await asyncio.wait_for(listener.task, PATIENCE)


async def test_idle_listener_is_given_up(fake_service, form, monkeypatch):
    monkeypatch.setattr(listening, "PATIENCE_SECONDS", 0.0)
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=20] Long.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        while isinstance(end := await listener.take(), bytes):
            pass
        assert end == 1008
        assert (await pressed.end()).result.seconds == 20


async def test_file_that_is_gone_ends_the_connection(fake_service, form):
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:seconds=1] Short."))
        (await pressed.end()).result.path.unlink()
        assert await (await Listener(takes, await pressed.key).accepted()).take() == 1011


async def test_leaving_does_not_stop_the_take(fake_service, form, tmp_path):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:hold][fake:seconds=2] Held.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        assert await listener.hear(2)
        listener.leave()
        await asyncio.wait_for(listener.task, PATIENCE)
        assert not pressed.task.done()
        release.touch()
        assert (await pressed.end()).result.seconds == 2


@pytest.mark.parametrize("how", ["stopped", "failed", "next"])
async def test_the_end_of_a_take_is_told(fake_service, form, how):
    async with fake_service() as service:
        takes = Takes(service)
        order = "[fake:fail]" if how == "failed" else "[fake:hold]"
        pressed = Pressed(takes, form(f"{order}[fake:seconds=2] Text.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        if how == "stopped":
            await listener.hear(2)
            await takes.stop("tab")
        if how == "next":
            await Pressed(takes, form("[fake:seconds=1] Next.")).end()
        _, last, code = await listener.hear()
        await pressed.end()
        assert (last["type"], code) == ("failed" if how == "failed" else "stopped", 1000)


@pytest.mark.parametrize("message", [{"text": "-1"}, {"text": "many"}, {"text": "9" * 13}, {"bytes": b"1"}])
async def test_message_that_is_no_number_ends_the_connection_only(fake_service, form, message):
    async with fake_service() as service:
        takes = Takes(service)
        pressed = Pressed(takes, form("[fake:hold] Text.", stream=True))
        listener = await Listener(takes, await pressed.key).accepted()
        listener.put(**message)
        while isinstance(end := await listener.take(), bytes):
            pass
        assert end == 1008
        assert not pressed.task.done()
        await takes.leave("tab")
        await pressed.end()


async def test_keys_are_of_the_latest_take_of_a_page_and_bounded():
    live, sound = LiveTakes(), recorder.Recorder.__new__(recorder.Recorder)
    first = live.open("tab", sound).key
    second = live.open("tab", sound).key
    assert live.claim(first) is None
    assert live.claim("é") is None
    assert live.claim(second) is not None
    keys = [live.open(str(number), sound).key for number in range(MOST_KEPT + 1)]
    assert len(set(keys)) == MOST_KEPT + 1
    assert live.claim(keys[0]) is None
    assert live.claim(keys[1]) is not None


@pytest.mark.parametrize("settings", [{}, {"login": "ann:secret"}])
def test_foreign_pages_wrong_keys_and_strangers_are_refused(tmp_path, settings):
    site = Site(tmp_path, **settings)
    opened = site.takes.live.open("tab", recorder.Recorder(site.service.outputs, "take"))
    opened.end("done")

    def listen(key, **headers):
        return site.client.websocket_connect(f"ws{OWN[4:]}/listen/{key}", headers={"origin": OWN} | headers)

    def refused(key, **headers):
        with pytest.raises(WebSocketDisconnect), listen(key, **headers):
            pass

    refused(opened.key, origin=EVIL)
    refused("wrong")
    if settings:
        refused(opened.key)
        login = {"username": "ann", "password": "secret"}
        assert site.client.post("/login", data=login).status_code == 200
    with listen(opened.key) as socket:
        assert socket.receive_json() == {"type": "done", "samples": 0}
