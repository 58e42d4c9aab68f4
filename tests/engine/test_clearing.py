"""Clearing an engine frees what can be made again, and speech comes out as before."""

from __future__ import annotations

from cosyui.engine.engine import Engine
from cosyui.engine.request import Finished, PromptClip
from tests.engine.conftest import finish, pcm, request_of


def test_features_go_and_the_same_speech_comes(engine: Engine, clip: PromptClip) -> None:
    before = pcm(finish(engine, request_of(clip, "before")))
    held = engine.prompts.nbytes
    assert held > 0
    cleared = engine.clear()
    assert cleared.freed["features"] == held
    assert cleared.freed["unused"] == 0  # no card here
    assert engine.prompts.nbytes == len(engine.prompts) == 0
    after = pcm(finish(engine, request_of(clip, "after")))
    assert (before == after).all()


def test_a_take_in_work_goes_on(engine: Engine, clip: PromptClip) -> None:
    engine.submit(request_of(clip, "first"))
    events = engine.step() + engine.step()
    engine.clear()
    while engine.has_work:
        events += engine.step()
    assert isinstance(events[-1], Finished)
    alone = finish(engine, request_of(clip, "first"))
    assert (pcm(events) == pcm(alone)).all()


def test_a_light_one_keeps_what_was_made(engine: Engine, clip: PromptClip) -> None:
    finish(engine, request_of(clip, "before"))
    held = engine.prompts.nbytes
    cleared = engine.clear(light=True)
    assert cleared.freed["features"] == 0
    assert engine.prompts.nbytes == held > 0
