"""Pages of kept keys and values: who has which, and what a prompt's stay is good for.

A page is one block of the streaming mask (1 s) of one utterance in all Euler steps and layers, about 90 MB at full size
in half precision. Blocks that a prompt alone determines are the same for all of its streams: they are shared, and stay
after the streams while nobody else needs the room.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

import torch

from cosyui.engine.render import PromptFeatures
from cosyui.model.config import FlowConfig
from cosyui.model.dit import POSITION_KERNEL
from cosyui.model.flow_packed import PageStore


class PagePool:
    """As many pages as fit in ``nbytes``; none if a block is too short to hold what the convolutions look back at."""

    def __init__(self, config: FlowConfig, nbytes: int, dtype: torch.dtype, device: torch.device) -> None:
        self.count = nbytes // self.page_bytes(config, dtype) if config.chunk_frames >= POSITION_KERNEL - 1 else 0
        self.store: PageStore | None = None
        if self.count:
            shapes = PageStore.shapes(config)
            self.store = PageStore(*(torch.empty(self.count, *s, dtype=dtype, device=device) for s in shapes))
        self._free = list(range(self.count - 1, -1, -1))
        self._holders: Counter[int] = Counter()
        self._prompts: OrderedDict[int, tuple[PromptFeatures, tuple[int, ...]]] = OrderedDict()
        self._written: dict[int, torch.cuda.Event] = {}
        self._used: dict[int, dict[int, torch.cuda.Event]] = {}

    @staticmethod
    def page_bytes(config: FlowConfig, dtype: torch.dtype) -> int:
        return dtype.itemsize * sum(torch.Size(shape).numel() for shape in PageStore.shapes(config))

    @property
    def nbytes(self) -> int:
        """Of all pages."""
        return sum(tensor.nbytes for tensor in self.store) if self.store is not None else 0

    @property
    def free(self) -> int:
        """Pages that can be taken now, those kept for prompts only included."""
        remembered = {page for _, pages in self._prompts.values() for page in pages}
        return len(self._free) + sum(self._holders[page] == 1 for page in remembered)

    def take(self, most: int) -> list[int]:
        """Up to ``most`` pages; pages that are only kept for a prompt make room, the least used prompt first."""
        while len(self._free) < most:
            idle = [key for key, (_, pages) in self._prompts.items() if any(self._holders[p] == 1 for p in pages)]
            if not idle:
                break
            self.give(self._prompts.pop(idle[0])[1])
        taken = [self._free.pop() for _ in range(min(most, len(self._free)))]
        self._holders.update(taken)
        return taken

    def give(self, pages: Iterable[int]) -> None:
        """Give up a hold of each of ``pages``."""
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                self._free.append(page)

    def of_prompt(self, prompt: PromptFeatures) -> list[int]:
        """Pages of the first blocks of this very prompt (object, not value), held once more; [] if there are none."""
        if id(prompt) not in self._prompts:
            return []
        self._prompts.move_to_end(id(prompt))
        pages = self._prompts[id(prompt)][1]
        self._holders.update(pages)
        return list(pages)

    def remember(self, prompt: PromptFeatures, pages: Sequence[int]) -> None:
        """``pages`` hold the first blocks of ``prompt`` and nothing else."""
        known = self._prompts.get(id(prompt))
        if not pages or (known is not None and len(known[1]) >= len(pages)):
            return
        self._holders.update(pages)
        # The prompt is held with its pages, so that its id stays its own.
        self._prompts[id(prompt)] = prompt, tuple(pages)
        if known is not None:
            self.give(known[1])

    def forget(self) -> None:
        """Keep nothing for prompts any more."""
        while self._prompts:
            self.give(self._prompts.popitem()[1][1])

    def wait(self, stream: torch.cuda.Stream, reading: Iterable[int], writing: Iterable[int]) -> None:
        """Orders ``stream`` behind the runs on other streams that wrote or last used these pages."""
        events = {self._written[page] for page in reading if page in self._written}
        for page in writing:
            events.update(self._used.get(page, {}).values())
        for event in events:
            stream.wait_event(event)

    def note(self, stream: torch.cuda.Stream, reading: Iterable[int], writing: Iterable[int]) -> None:
        """A run that used these pages was put on ``stream``."""
        event = stream.record_event()
        for page in writing:
            self._written[page] = event
            self._used[page] = {stream.cuda_stream: event}
        for page in reading:
            self._used.setdefault(page, {})[stream.cuda_stream] = event
