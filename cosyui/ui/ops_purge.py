"""Cleaning up by hand: what would be deleted, and to delete it now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import gradio as gr

from cosyui.ops.purge import PurgeResult
from cosyui.service import remarks
from cosyui.service.operations import Operations
from cosyui.ui.action_button import ActionButton
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import size

KEPT = ("protected", "young", "foreign", "settling", "error")
"""Why a file was kept, in the order in which it is told."""


class OpsPurge:
    """Lays its buttons where it is made. Two tabs at once: a look waits for a run, a run is joined."""

    def __init__(self, operations: Operations, guard: Guard, t: gr.I18n) -> None:
        self._operations = operations
        with gr.Row(elem_classes="ops-actions"):
            look = ActionButton(t, "purge_look")
            now = ActionButton(t, "purge_now", asks=True)
        look.does(guard.action(self._look))
        now.does(guard.action(self._clean_up))

    async def _look(self, words: Words) -> AsyncIterator[str]:
        yield words("action_works")
        yield told(await asyncio.to_thread(self._operations.purge.run, dry_run=True), words)

    async def _clean_up(self, words: Words) -> AsyncIterator[str]:
        yield words("action_works")
        view = await self._operations.schedule.run_now("purge")
        if isinstance(view.result, PurgeResult):
            yield told(view.result, words)
        else:
            yield " ".join(map(words.notice, remarks.of_purge(view)))


def told(result: PurgeResult, words: Words) -> str:
    """What was deleted, or would be, what was kept and why, and what could not be done."""
    sentence = words(
        "purge_would" if result.dry_run else "purge_did",
        files=result.files,
        size=size(result.bytes),
        folders=result.folders,
    )
    kept = [words(f"purge_kept_{reason}", count=result.kept[reason]) for reason in KEPT if result.kept[reason]]
    if kept:
        sentence += words("purge_kept", reasons=words("list_comma").join(kept))
    return " ".join([sentence, *map(words.notice, remarks.of_purge_result(result))])
