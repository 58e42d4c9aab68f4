"""Decoding while the text is still arriving: text and speech interleaved in a fixed mix.

Source: CosyVoice 2 (arXiv:2412.10117), unified streaming mode of the language model: after every ``mix[0]`` text rows
come ``mix[1]`` speech tokens and a fill id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cosyui.engine.decode import SpecialRows

Row = tuple[Literal["text", "speech"], int]
"""One row of LLM input: which embedding table, which id."""


class TextStreamError(RuntimeError):
    """The model chose a special id where only speech or fill may stand."""


@dataclass(frozen=True)
class Call:
    """What the driver of `interleave` has to do: append ``rows`` to the context and choose an id after them.

    ``forced`` is the id to take without choosing, if any; ``free`` is False while a stop id is not allowed.
    ``history`` is what was chosen so far, fill ids included.
    """

    rows: tuple[Row, ...]
    history: tuple[int, ...]
    forced: int | None
    free: bool


class Interleave:
    """Plans the calls of one utterance and collects the chosen ids.

    ``prefix``: text ids up to and including the end of the prompt; ``transcript``: text ids of the prompt speech;
    ``mix``: text rows and speech tokens per block. ``upstream_refeed``: when the text ends right after a fill, feed the
    last speech row a second time, as the reference does; without it that row is fed once.
    """

    def __init__(
        self,
        prefix: Sequence[int],
        transcript: Sequence[int],
        prompt_speech: Sequence[int],
        special: SpecialRows,
        mix: tuple[int, int],
        *,
        upstream_refeed: bool = False,
    ) -> None:
        self.special = special
        self.text_block, self.speech_block = mix
        self.pending: list[Row] = [("speech", special.sos), *(("text", i) for i in prefix)]
        self.queue = list(transcript)
        self.prompt = list(prompt_speech)
        self.chosen: list[int] = []
        self.next_fill = (len(self.prompt) // self.speech_block + 1) * self.speech_block - len(self.prompt)
        self.upstream_refeed = upstream_refeed
        self.after_fill = False

    def calls(self, text_ids: Iterable[int]) -> Iterator[Call]:
        """Yield one call after another; answer each through `answer` before taking the next. Ends after a stop id."""
        for text_id in text_ids:
            self.queue.append(text_id)
            self._interleave_prompt()
            if not self.prompt:
                yield from self._block()
        if self.after_fill and not self.upstream_refeed:
            self.pending = []
        self.pending += [("text", i) for i in self.queue]
        self.pending.append(("speech", self.special.task))
        while self.pending:
            yield self._call(None, free=True)

    def answer(self, token: int, call: Call) -> int | None:
        """Record the id chosen for ``call``; returns it if it is speech. Raises TextStreamError on a stray special."""
        index = len(self.chosen)
        if token >= self.special.sos:
            self.chosen.append(token)
            if call.free and token == self.special.eos:
                self.pending = []
                return None
            if call.free or token != self.special.fill:
                raise TextStreamError(f"special id {token} in the speech")
            self.next_fill = index + self.speech_block + 1
            self.after_fill = True
            return None
        self.chosen.append(token)
        self.pending = [("speech", token)]
        return token

    def _interleave_prompt(self) -> None:
        while self.prompt and len(self.queue) >= self.text_block:
            self.pending += [("text", i) for i in self.queue[: self.text_block]]
            self.pending += [("speech", i) for i in self.prompt[: self.speech_block]]
            del self.queue[: self.text_block], self.prompt[: self.speech_block]

    def _block(self) -> Iterator[Call]:
        """Decode up to the next fill, if there is enough text to start."""
        if self.after_fill:
            if len(self.queue) < self.text_block:
                return
            self.pending = [("text", i) for i in self.queue[: self.text_block]]
            del self.queue[: self.text_block]
            self.after_fill = False
        while not self.after_fill:
            due = len(self.chosen) == self.next_fill
            yield self._call(self.special.fill if due else None, free=False)

    def _call(self, forced: int | None, *, free: bool) -> Call:
        return Call(tuple(self.pending), tuple(self.chosen), forced, free)
