"""The one way to everything of the ops tab: who asks is looked at before anything is shown or done."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.service import SynthesisService
from cosyui.ui.i18n import Dictionary, Words
from cosyui.ui.pieces import hint
from cosyui.ui.render import problem, problem_of

logger = logging.getLogger(__name__)
Work = Callable[..., AsyncIterator[str]]
"""Given the words and the values of inputs: sentences that tell how it goes, the last one how it went."""
Handler = Callable[..., AsyncGenerator[str, None]]


class Guard:
    def __init__(self, service: SynthesisService, dictionary: Dictionary) -> None:
        self._service = service
        self._dictionary = dictionary

    def words(self, request: gr.Request) -> Words:
        return self._dictionary.of(request)

    def is_admin(self, request: gr.Request) -> bool:
        return self._service.rights.is_admin(*_who(request))

    def sees(self, request: gr.Request) -> bool:
        """Whether the contents of the tab are for this one."""
        return self._service.rights.sees_ops(*_who(request))

    @property
    def password_set(self) -> bool:
        return self._service.rights.password_set

    @property
    def refusal(self) -> CosyuiError:
        """What who is no admin is told."""
        return self._service.rights.refusal

    def check(self, request: gr.Request) -> None:
        """Before every action. Raises CosyuiError ``admin_only`` or ``too_many_actions``."""
        self._service.rights.check_action(*_who(request))

    def unlock(self, request: gr.Request, password: str) -> bool:
        """Raises CosyuiError ``too_many_passwords``."""
        return self._service.rights.unlock(*_who(request), password)

    def lock(self, request: gr.Request) -> None:
        self._service.rights.lock(_who(request)[0])

    def action(self, work: Work) -> Handler:
        """A handler that checks, works, and shows each sentence in its place."""

        async def run(request: gr.Request, *values: Any) -> AsyncGenerator[str, None]:
            words = self.words(request)
            try:
                self.check(request)
                async for sentence in work(words, *values):
                    yield hint(sentence)
            except CosyuiError as error:
                yield problem_of(error, words)
            except Exception:
                logger.exception("action_failed")
                yield problem(words("unexpected"))

        run.__name__ = work.__name__
        return run


def _who(request: gr.Request) -> tuple[str, str]:
    """Gradio's id of the browser tab, and the address that it has."""
    return request.session_hash or "none", request.client.host if request.client is not None else ""
