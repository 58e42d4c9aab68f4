"""Voices on the page, by its handlers: saved, chosen, heard, changed, deleted, taken along, from two browser tabs."""

import asyncio
import contextlib
import io
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError
from cosyui.host.config import FakeScript
from cosyui.service.voice_record import VoiceForm
from cosyui.ui.i18n import Dictionary, translations
from cosyui.ui.locales import zh
from cosyui.ui.synthesis import SynthesisTab
from cosyui.ui.takes import Takes
from cosyui.ui.voice_copies import VoiceCopies
from cosyui.ui.voice_desk import SENTENCES, VoiceDesk
from cosyui.ui.voice_list import MANY
from cosyui.ui.voices_tab import VoicesTab
from tests.service.conftest import clip, fake_service, form, new_service  # noqa: F401

pytestmark = pytest.mark.anyio
TRANSCRIPT = "What the clip says."
GHOST = "voice_" + "0" * 24
HOSTILE = "<img src=x>"


class Page:
    """Both tabs of a service, as its page lays them out; ``one`` and ``two`` are browser tabs, ``chinese`` a third."""

    def __init__(self, service, folder):
        self.service, self.voices = service, service.voices
        dictionary, t = Dictionary(service.settings), translations()
        self.takes = Takes(service)
        self.desk = VoiceDesk(service, dictionary, VoiceCopies(folder / "copies"))
        self.copies = folder / "copies"
        with gr.Blocks():
            self.speak = SynthesisTab(service, self.takes, self.desk, dictionary, t, gr.BrowserState(""))
            self.tab = VoicesTab(service, self.takes, self.desk, dictionary, t)
        self.list, self.detail, self.saving = self.tab.list, self.tab.detail, self.tab.saving
        self.requests = []
        submit = service.submit

        async def watched(asked):
            ticket = await submit(asked)
            self.requests.append(ticket._job.request)
            return ticket

        service.submit = watched
        self.clip = folder / "clip.wav"

    one, two, chinese = (
        SimpleNamespace(session_hash=name, cookies={"cosyui_lang": language}, headers={}, client=None, username=None)
        for name, language in (("tab-one", "en"), ("tab-two", "en"), ("tab-three", "zh"))
    )

    def save(self, name="Ann", transcript=TRANSCRIPT, consent="Ann herself.", request=one, saving=None):
        return (saving or self.saving).save(str(self.clip), transcript, name, "en", consent, request)

    def add(self, name="Ann", **words):
        given = {"transcript": TRANSCRIPT, "language": "en", "consent": "Ann herself."} | words
        return self.voices.add(VoiceForm(name, self.clip, **given))

    async def generate(self, chosen, mode=Mode.ZERO_SHOT, instruction="", request=one):
        """The last update of a take; what is typed beside a chosen voice is somebody else's."""
        updates = self.speak._run(
            "Hello.", mode.value, chosen, None, "Other words.", instruction, 1.0, "7", "", False, request
        )
        return [update async for update in updates][-1]

    def problem(self, update, field):
        return update[self.speak._problems[field]]

    def bytes(self):
        folder = self.service.settings.voices_folder
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def pages(fake_service, tmp_path, clip):  # noqa: F811
    @contextlib.asynccontextmanager
    async def start(**settings):
        async with fake_service(**settings) as service:
            page = Page(service, tmp_path)
            page.clip.write_bytes(clip)
            yield page

    return start


def text_of(update):
    return re.sub(r"<[^>]*>", "", update)


async def test_voice_is_saved_and_its_fields_are_empty_for_the_next(pages):
    async with pages() as page:
        told = await page.save()
        (voice,) = page.voices.all()
        assert (voice.name, voice.transcript, voice.language) == ("Ann", TRANSCRIPT, "en")
        assert text_of(told[page.saving.told]) == "Saved: Ann."
        assert [told[part] for part in page.saving._emptied] == ["", "", "", None, ""]
        kept = await page.save("Bob", saving=page.speak.prompt.saving)
        assert [voice.name for voice in page.voices.all()] == ["Ann", "Bob"]
        assert page.speak.prompt.clip not in kept, "the clip goes on to be used"


async def test_problems_stand_beside_their_fields_and_nothing_typed_is_touched(pages):
    async with pages(voices_max=2) as page:
        page.add()
        told = await page.saving.save(None, "word " * 200, "a\nb", "xx", " ", page.one)
        fields = page.saving.problems
        assert all("problem-line" in told[place] for place in fields.values())
        assert set(fields) == {"clip", "transcript", "name", "language", "consent"}
        assert set(told) == {page.saving.told, *fields.values()}
        taken = await page.save("ANN", request=page.chinese)
        assert zh.ERRORS["voice_name_taken"] in taken[fields["name"]]
        assert [place for field, place in fields.items() if taken[place]] == [fields["name"]]
        page.add("Bob")
        full = await page.save("Eve")
        assert "which is the limit" in full[page.saving.told], "of no field: it is told at the button"
        assert not any(full[place] for place in fields.values())


async def test_take_in_a_chosen_voice_has_its_words_in_clone_mode_alone(pages):
    async with pages() as page:
        voice = page.add()
        before = page.bytes()
        for mode in (Mode.INSTRUCT, Mode.CROSS_LINGUAL, Mode.ZERO_SHOT):
            done = await page.generate(voice.id, mode, "Speak happily.")
            assert 'data-status="done"' in done[page.speak.status]
            request = page.requests[-1]
            assert request.mode is mode
            assert request.prompt.transcript == (TRANSCRIPT if mode is Mode.ZERO_SHOT else "")
            assert request.instruction == ("Speak happily." if mode is Mode.INSTRUCT else "")
        assert page.bytes() == before
        await page.generate("zh")
        assert page.requests[-1].prompt.transcript.startswith("当年"), "a built-in one"


async def test_voice_that_is_gone_is_an_error_and_never_another_voice(pages):
    async with pages() as page:
        voice, other = page.add(), page.add("Bob")
        await page.detail.remove("", voice.id, page.two)
        told = await page.generate(voice.id)
        assert "perhaps it was deleted" in page.problem(told, "voice")
        assert page.requests == []
        assert page.service.overview().rejected == 0
        dropdown, about, problem = page.speak.prompt.voice.refresh(voice.id, page.chinese)
        assert zh.ERRORS["voice_not_found"] in problem
        assert about == ""
        assert dropdown.choices[-2:] == [("Bob", other.id), (zh.LIVE["voice_lost"], voice.id)]


async def test_voice_that_was_renamed_goes_on_under_its_id(pages):
    async with pages() as page:
        voice = page.add()
        await page.detail.change(voice.id, "Anna", "en", "New words.", "Ann", "", page.two)
        page.add("Ann", transcript="Words of another one.")
        await page.generate(voice.id)
        assert page.requests[0].prompt.transcript == "New words."
        dropdown, _, problem = page.speak.prompt.voice.refresh(voice.id, page.one)
        assert ("Anna", voice.id) in dropdown.choices
        assert problem == ""


async def test_what_is_wrong_with_a_chosen_voice_is_told_where_it_was_chosen(pages):
    async with pages() as page:
        silent = page.add(transcript="")
        assert "No transcript" in page.speak.prompt.voice.refresh(silent.id, page.one)[1]
        told = await page.generate(silent.id)
        assert "problem-line" in page.problem(told, "voice")
        assert page.problem(told, "transcript") == ""
        told = await page.generate(silent.id, Mode.CROSS_LINGUAL)
        assert page.problem(told, "voice") == ""
        next(page.service.settings.voices_folder.rglob("clip.wav")).write_bytes(b"noise")
        assert "damaged" in page.problem(await page.generate(silent.id, Mode.CROSS_LINGUAL), "voice")


async def test_fields_are_those_that_mode_and_voice_need(pages):
    async with pages() as page:
        voice = page.add()

        def shown(mode, chosen, keep):
            parts = page.speak.prompt._show_parts(mode, chosen, keep, page.one)
            names = ("instruction", "clip", "transcript", "keeping", "panel")
            return {name for name, part in zip(names, (parts[1], *parts[3:7]), strict=True) if part.visible}

        assert shown("zero_shot", "", False) == {"clip", "transcript", "keeping"}
        assert shown("cross_lingual", "", False) == {"clip", "keeping"}
        assert shown("cross_lingual", None, True) == {"clip", "transcript", "keeping", "panel"}
        assert shown("instruct", voice.id, False) == {"instruction"}


async def test_list_is_searched_and_names_are_text(pages):
    async with pages() as page:
        _, query, rows = page.list.show("", "", page.one)
        assert "No voice is saved yet" in rows
        voices = [page.add(name) for name in (HOSTILE, "Zoë", *(f"Ann {number}" for number in range(MANY - 2)))]
        count, query, rows = page.list.show("", voices[1].id, page.one)
        assert (text_of(count), query.visible) == (str(MANY), True)
        assert "<img" not in rows
        assert rows.index("Ann 0") < rows.index("Zoë")
        assert re.findall(r'data-value="(\w+)" aria-pressed="true"', rows) == [voices[1].id]
        assert page.list.show("ZO\u00cb", "", page.one)[2].count("<li>") == 1
        assert page.list.show("english", "", page.one)[2].count("<li>") == MANY
        assert "No voice fits" in page.list.show("nobody", "", page.one)[2]
        assert HOSTILE not in (await page.detail.open("", voices[0].id, page.one))[page.detail.head]


async def test_voice_is_opened_heard_and_changed(pages):
    async with pages() as page:
        voice, detail = page.add(language="zh"), page.detail
        told = await detail.open("", voice.id, page.one)
        assert await asyncio.to_thread(Path(told[detail.clip]).read_bytes) == page.voices.clip(voice.id)
        values = [told[part] for part in detail._values]
        assert values == ["Ann", "zh", TRANSCRIPT, "Ann herself."]
        spoken = [update async for update in detail.preview(voice.id, page.one)][-1]
        assert spoken[detail.spoken].value["path"].endswith(".wav")
        assert page.requests[0].text == SENTENCES["zh"]
        assert page.requests[0].prompt.transcript == TRANSCRIPT
        bad = await detail.change(voice.id, "zh", "xx", TRANSCRIPT, "", "", page.one)
        assert "problem-line" in bad[detail.problems["consent"]]
        assert "problem-line" in bad[detail.problems["language"]]
        assert not set(bad) & set(detail._values), "what was typed stays"
        good = await detail.change(voice.id, "Anna", "", "", "Ann, in writing", "", page.one)
        changed = page.voices.get(voice.id)
        assert (changed.name, changed.language, changed.transcript) == ("Anna", None, "")
        assert text_of(good[detail.told]) == "The changes are saved."
        assert "Anna" in good[page.list.shown[-1]]


async def test_next_voice_shows_nothing_of_the_one_before(pages):
    async with pages(script=FakeScript(directives="[fake:hold]")) as page:
        voice, other = page.add(), page.add("Bob")
        updates = page.detail.preview(voice.id, page.one)
        while not page.requests:
            await anext(updates)
        opened = await page.detail.open("", other.id, page.one)
        rest = [update async for update in updates]
        assert 'data-status="stopped"' in rest[-1][page.detail.status]
        assert not any(page.detail.spoken in update for update in rest)
        assert opened[page.detail.spoken].value is None
        assert [button.visible for button in map(opened.get, page.detail._delete.buttons)] == [True, False, False]


async def test_deleting_says_what_and_leaves_no_copy(pages):
    async with pages() as page:
        voice, detail = page.add("王小明"), page.detail
        await detail.open("", voice.id, page.one)
        await detail.export(voice.id, page.two)
        assert len(list(page.copies.rglob("*.*"))) == 2
        told = await detail.remove("", voice.id, page.one)
        assert text_of(told[page.list.told]) == "Deleted: 王小明, with its clip, transcript and note."
        assert told[page.list.chosen] == ""
        assert list(page.copies.iterdir()) == []
        assert page.bytes() == {}
        other = page.add()
        await page.desk.clip_file(other.id)
        page.voices.remove(other.id)
        assert list(page.copies.iterdir()) == [], "as by the API"
        for update in (await detail.remove("", voice.id, page.two), await detail.open("", voice.id, page.two)):
            assert "perhaps it was deleted" in update[page.list.told]
            assert update[detail.card].visible is False
        late = await detail.change(voice.id, "Late", "", "", "x", "", page.two)
        assert "perhaps it was deleted" in late[detail.told]
        assert "perhaps it was deleted" in (await detail.export(voice.id, page.two))[0]
        (update,) = [update async for update in detail.preview(voice.id, page.two)]
        assert "perhaps it was deleted" in update[detail.status]


def test_number_of_copies_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("cosyui.ui.voice_copies.MOST", 2)
    copies = VoiceCopies(tmp_path)
    paths = [copies.put(name, "clip.wav", b"x") for name in "abc"]
    assert [path.exists() for path in paths] == [False, True, True]


async def test_export_comes_back_as_a_zip_or_as_its_parts(pages):
    async with pages() as page:
        voice, tab = page.add(), page.tab
        told, path = await page.detail.export(voice.id, page.one)
        assert f"{voice.id}.zip" in told
        data = await asyncio.to_thread(Path(path).read_bytes)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
        for given, name in (([data], "Copy"), (parts, "Parts"), (parts[::-1], "Parts, turned round")):
            saved = await tab.take_in(given, name, page.one)
            assert text_of(saved[tab._told]) == f"Saved: {name}."
        copies = [(copy.transcript, copy.consent, copy.clip) for copy in page.voices.all()]
        assert len(set(copies)) == 1
        assert len(copies) == 4
        taken = await tab.take_in([data], " ", page.one)
        assert "problem-line" in taken[tab._problems["name"]]
        assert tab._files not in taken
        for given in (None, [], [b"noise"], [data, data], parts[:1], [parts[0], b"{}"], [*parts, b""], [b"{}", b"{}"]):
            refused = await tab.take_in(given, "x", page.one)
            assert "problem-line" in refused[tab._problems["file"]], given


async def test_with_keys_the_page_is_one_more_client(pages):
    async with pages(api_keys="a-long-enough-key") as page:
        assert page.desk.by
        keys = page.add("Key's", maker="key-x")
        await page.save("Page's")
        mine = page.voices.all()[-1]
        opened = await page.detail.open("", keys.id, page.one)
        assert "Saved with an API key" in opened[page.detail.head]
        assert opened[page.detail._delete.buttons[0]].interactive is False
        for told in (
            (await page.detail.remove("", keys.id, page.one))[page.detail.told],
            (await page.detail.change(keys.id, "x", "", "", "x", "", page.one))[page.detail.told],
        ):
            assert "Another key saved this voice" in told
        await page.generate(keys.id)
        assert len(page.requests) == 1, "it can be used"
        with pytest.raises(CosyuiError, match="Another key"):
            page.voices.remove(mine.id, "key-x")
        await page.detail.remove("", mine.id, page.two)
        assert page.voices.all() == (keys,)
