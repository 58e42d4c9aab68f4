"""The history on the page, by its handlers: listed, opened, kept, used again and deleted, each owner by himself."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from cosyui.service.outputs import OutputStore
from cosyui.service.types import TakeForm
from cosyui.ui import history_list
from cosyui.ui.history_tab import PAGE_ROWS, HistoryTab
from cosyui.ui.i18n import Dictionary, translations
from cosyui.ui.output_files import OutputFiles
from cosyui.ui.owner import drawn, owner_of, owner_state
from cosyui.ui.page import Page
from cosyui.ui.synthesis import SynthesisTab
from cosyui.ui.takes import Takes
from cosyui.ui.voice_copies import VoiceCopies
from cosyui.ui.voice_desk import VoiceDesk
from tests.service.conftest import clip, fake_service, new_service  # noqa: F401

pytestmark = pytest.mark.anyio
HOSTILE = "<img src=x onerror=alert(1)>"
ONE, TWO = "0" * 31 + "1", "0" * 31 + "2"


def request(language="en", session="tab", username=None):
    return SimpleNamespace(session_hash=session, cookies={"cosyui_lang": language}, headers={}, username=username)


class Tab:
    """The tab of a service, beside the one where takes are made, or something in its place that is made faster."""

    def __init__(self, service, *, whole):
        self.service, self.takes = service, Takes(service)
        dictionary, t = Dictionary(service.settings), translations()
        desk = VoiceDesk(service, dictionary, VoiceCopies(service.outputs.root))
        with gr.Blocks():
            owner = owner_state()
            with gr.Tabs() as self.tabs, gr.Tab():
                self.speak = SimpleNamespace(fields=[])
                if whole:
                    self.speak = SynthesisTab(service, self.takes, desk, dictionary, t, owner)
                self.tab = HistoryTab(service.history, self.speak, desk, dictionary, t, owner)
            self.tab.wire(gr.Button().click, self.tabs)

    async def make(self, owner, text, sound, **changes):
        words = Dictionary(self.service.settings).of(request())
        form = TakeForm(**{"text": text, "clip": sound, "transcript": "Words.", "seed": 5} | changes)
        views = [view async for view in self.takes.views("tab", form, words, owner_of(request(), owner))]
        await self.service.history.settled()
        return views[-1].result

    async def html(self, owner, search="", starred=False, offset=0, **who):
        return (await self.tab.show(request(**who), owner, search, starred, offset, ""))[self.tab._list]


@pytest.fixture
async def tab(fake_service):  # noqa: F811
    async with fake_service() as service:
        yield Tab(service, whole=False)


@pytest.fixture
async def whole(fake_service):  # noqa: F811
    async with fake_service() as service:
        yield Tab(service, whole=True)


async def test_a_take_is_in_the_history_of_who_made_it_and_in_no_others(tab, clip):  # noqa: F811
    await tab.make(ONE, f"Mine {HOSTILE}", clip)
    assert "Mine &lt;img" in await tab.html(ONE)
    assert HOSTILE not in await tab.html(ONE)
    assert "appear here" in await tab.html(TWO)
    assert "还没有记录" in await tab.html(TWO, language="zh")
    assert "appear here" in await tab.html(ONE, username="ann"), "with a login the browser's name counts nothing"
    assert "None of your takes" in await tab.html(ONE, "something else")


async def test_what_a_browser_sends_is_somebody_only_in_our_shape(tab, clip):  # noqa: F811
    await tab.make("", "Of a browser that keeps nothing", clip)
    for sent in ("", None, 7, {"a": 1}, "user:ann", ONE + "\n", ONE.upper().replace("0", "F")):
        assert "Of a browser" in await tab.html(sent)
        assert "Of a browser" not in await tab.html(sent, session="other")
    assert drawn(ONE) == ONE
    assert len({drawn(""), drawn(None), drawn("user:ann")}) == 3


async def test_a_preview_without_an_owner_leaves_nothing(tab, clip):  # noqa: F811
    words = Dictionary(tab.service.settings).of(request())
    form = TakeForm("Nobody's", clip=clip, transcript="Words.")
    assert [view async for view in tab.takes.views("tab", form, words)][-1].result is not None
    await tab.service.history.settled()
    assert not list(Path(tab.service.settings.history_path).parent.glob("history*"))


async def test_opening_using_again_and_deleting(whole, clip):  # noqa: F811
    result = await whole.make(ONE, "First.", clip, speed=1.25, instruction="Softly.")
    opened = await whole.tab.open(request(), ONE, "", False, 0, "", result.id)
    assert opened[whole.tab._chosen] == result.id
    assert opened[whole.tab._player] == str(result.path.resolve())
    assert "First." in opened[whole.tab._head]

    filled = await whole.tab.reuse(request(), ONE, "", False, 0, "", result.id)
    speak = whole.speak
    assert set(filled) == {whole.tabs, *speak.fields}
    assert (filled[speak.text], filled[speak.speed], filled[speak.seed]) == ("First.", 1.25, "5")
    voice = speak.prompt
    assert (filled[voice.mode], filled[voice.transcript], filled[voice.instruction]) == (
        "zero_shot", "Words.", "Softly.",
    )  # fmt: skip
    assert filled[voice.clip] == clip

    for handler in (whole.tab.open, whole.tab.reuse, whole.tab.remove, whole.tab.star):
        assert "not in your history" in (await handler(request(), TWO, "", False, 0, "", result.id))[whole.tab._told]
    removed = await whole.tab.remove(request(), ONE, "", False, 0, result.id, result.id)
    assert (removed[whole.tab._chosen], result.path.exists()) == ("", False)
    assert "Deleted" in removed[whole.tab._told]


async def test_an_expired_take_is_told_and_can_be_used_again(whole, clip):  # noqa: F811
    result = await whole.make(ONE, "Old.", clip)
    result.path.unlink()
    assert "expired" in await whole.html(ONE)
    opened = await whole.tab.open(request(), ONE, "", False, 0, "", result.id)
    assert (opened[whole.tab._player], opened[whole.tab._sound].visible) == (None, False)
    assert "cleaned up" in opened[whole.tab._foot]
    filled = await whole.tab.reuse(request(), ONE, "", False, 0, "", result.id)
    assert filled[whole.speak.prompt.clip] == clip
    for kept in whole.service.settings.history_path.with_name("history-clips").iterdir():
        kept.unlink()
    filled = await whole.tab.reuse(request(), ONE, "", False, 0, "", result.id)
    assert filled[whole.speak.prompt.clip] is None
    assert "give it again" in filled[whole.speak.status]


async def test_a_star_is_turned_and_all_can_be_deleted(tab, clip):  # noqa: F811
    first, second = await tab.make(ONE, "First.", clip), await tab.make(ONE, "Second.", clip)
    starred = await tab.tab.star(request(), ONE, "", False, 0, first.id, first.id)
    assert starred[tab.tab._star].value == "No favourite any more"
    assert tab.tab._player not in starred, "the player goes on"
    assert "Second." not in await tab.html(ONE, starred=True)
    again = await tab.tab.star(request(), ONE, "", False, 0, second.id, first.id)
    assert tab.tab._star not in again
    assert "None of your takes" in await tab.html(ONE, starred=True)
    cleared = await tab.tab.clear(request(), ONE, "", False, 0, second.id)
    assert "2 takes are deleted" in cleared[tab.tab._told]
    assert not first.path.exists()


async def test_pages_of_the_list_are_turned(tab, clip):  # noqa: F811
    result = await tab.make(ONE, "A take", clip)
    history, owner = tab.service.history, owner_of(request(), ONE)
    take = history.find(owner, result.id).take
    for number in range(PAGE_ROWS):
        history._store.file.add(replace(take, id=f"id-{number}", text=f"Copy {number}", clip=""))
    page = await tab.tab.show(request(), ONE, "", False, 0, "")
    assert (page[tab.tab._back].interactive, page[tab.tab._on].interactive) == (False, True)
    assert "1 to 20 of 21" in page[tab.tab._rows]
    page = await tab.tab.turn_on(request(), ONE, "", False, 0, "")
    assert (page[tab.tab._offset], page[tab.tab._on].interactive) == (20, False)
    assert "A take" in page[tab.tab._list]
    assert (await tab.tab.turn_back(request(), ONE, "", False, 20, ""))[tab.tab._offset] == 0
    found = await tab.tab.find(request(), ONE, "copy 7", False, 20, "")
    assert (found[tab.tab._offset], found[tab.tab._list].count("<li")) == (0, 1)


async def test_remarks_and_words_of_a_take_are_shown_in_the_language_of_the_page(tab, clip):  # noqa: F811
    result = await tab.make(ONE, HOSTILE + "a", clip, instruction=HOSTILE)
    shown = tab.service.history.find(owner_of(request(), ONE), result.id)
    notices = [{"code": "clip_short", "message": "short", "values": [["seconds", 3.2]]}]
    shown = shown._replace(take=replace(shown.take, mode="instruct", notices=json.dumps(notices)))
    for language, word in (("en", "short"), ("zh", "只有 3.2 秒")):
        words = Dictionary(tab.service.settings).of(request(language))
        assert word in history_list.foot(shown, words)
        assert HOSTILE not in history_list.head(shown.take, words, tab.tab._desk.name)


@pytest.mark.parametrize("kept", [True, False])
async def test_the_page_has_the_tab_only_where_there_is_a_history(new_service, kept):  # noqa: F811
    page = Page(new_service(history=kept, ops="off"))
    ids = {block.elem_id for block in page.blocks.blocks.values()}
    assert ("past-list" in ids) == kept


async def test_a_file_that_was_cleaned_up_is_told_as_gone(tmp_path):
    outputs = OutputStore(tmp_path / "outputs")
    there = outputs.root / "2026-11-01" / "120000-00000001.wav"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"x")
    client = TestClient(OutputFiles(PlainTextResponse("the page's own answer"), outputs))
    gone = client.get(f"/gradio_api/file={there.with_name('120000-00000002.wav')}")
    assert (gone.status_code, gone.json()["code"]) == (410, "take_gone")
    assert str(tmp_path) not in gone.text
    for path in (there, tmp_path / "x.wav", tmp_path / "x"):
        assert client.get(f"/gradio_api/file={path}").text == "the page's own answer"
    for path in (there.with_name("notes.txt"), there.parent, outputs.root / "batches" / "batch_1" / "order.json"):
        assert client.get(f"/gradio_api/file={path}").status_code == 403
