"""What an operator can do with the engine: restart it softly or for good, let it give memory back, unload and load."""

from __future__ import annotations

from collections.abc import AsyncIterator

import gradio as gr

from cosyui.service.service import SynthesisService
from cosyui.service.soft_restart import SoftRestart, Trim
from cosyui.ui.action_button import ActionButton
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import size


class OpsActions:
    """Lays its buttons where it is made, and what came of them below."""

    def __init__(self, service: SynthesisService, guard: Guard, t: gr.I18n) -> None:
        self._service = service
        with gr.Row(elem_classes="ops-actions"):
            soft = ActionButton(t, "soft_restart", asks=True)
            trim = ActionButton(t, "trim")
            unload = ActionButton(t, "unload", asks=True)
            load = ActionButton(t, "load")
            restart = ActionButton(t, "restart_engine", asks=True)
        soft.does(guard.action(self._soft_restart))
        trim.does(guard.action(self._trim))
        unload.does(guard.action(self._unload))
        load.does(guard.action(self._load))
        restart.does(guard.action(self._restart_engine))

    async def _soft_restart(self, words: Words) -> AsyncIterator[str]:
        yield words("soft_restart_waits", count=len(self._service.overview().running))
        yield result(await self._service.soft_restarter.run(), words)

    async def _trim(self, words: Words) -> AsyncIterator[str]:
        yield words("action_works")
        yield trimmed(await self._service.trim(), words)

    async def _unload(self, words: Words) -> AsyncIterator[str]:
        yield words("unload_waits", count=len(self._service.overview().running))
        done = await self._service.unload()
        yield words(f"unload_{done.outcome}", seconds=done.seconds, running=done.running, held=done.held_back)

    async def _load(self, words: Words) -> AsyncIterator[str]:
        yield words("load_works")
        done = await self._service.load()
        if done.state == "ready":
            yield words("load_done" if done.fresh else "load_nothing", seconds=done.seconds)
        else:
            yield words("load_failed", state=words(f"engine_{done.state}"))

    async def _restart_engine(self, words: Words) -> AsyncIterator[str]:
        yield words("action_works")
        await self._service.restart_engine()
        yield words("restart_engine_done")


def result(done: SoftRestart, words: Words) -> str:
    """What came of a soft restart, as a sentence."""
    if not done.engines:
        return words("soft_restart_nobody")
    sentence = words(
        "soft_restart_done",
        freed=size(sum(done.freed.values())),
        parts=_parts(done.freed, words),
        seconds=done.cleared_seconds,
        waited=done.waited_seconds,
        held=done.held_back,
    )
    return sentence + (words("soft_restart_around", count=done.around) if done.around else "")


def trimmed(done: Trim, words: Words) -> str:
    """What the engines gave back, as a sentence."""
    if not done.engines:
        return words("soft_restart_nobody")
    total = size(sum(done.freed.values()))
    return words("trim_done", freed=total, parts=_parts(done.freed, words), seconds=done.seconds)


def _parts(freed: dict[str, int], words: Words) -> str:
    return ", ".join(f"{words(f'soft_restart_{part}')} {size(amount)}" for part, amount in freed.items())
