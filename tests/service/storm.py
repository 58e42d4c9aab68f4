"""A storm over one service: clients, an operator and somebody who kills processes do what comes to their minds.

What each of them decides comes from a seed; what then meets what is up to the machine. So nothing is told of when
something happens, only what must be true whenever it does.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter

from cosyui.errors import CosyuiError
from cosyui.service.types import Done, Problem, Stopped, TakeForm
from tests.service.truths import Asked, look, look_at

BOUND = 60.0
"""Seconds in which everything must have ended: far more than the takes' own limit of time."""
TRIES = 4
LONG = "A story that goes on and on. " * 8
TROUBLE = (
    *(
        "slow=0.02",
        "fail=output_bad",
        "oom",
        "empty",
        "noise",
        "segments=2][fake:bad=2",
        "segments=2][fake:bad_always=1",
    ),
    *("die", "die_always", "hold", "hang"),
)
ENDS = ("read", "read", "read", "slow", "cancel", "twice", "leave", "drop")


async def pause(chance, most):
    await asyncio.sleep(chance.random() ** 3 * most)


class Storm:
    """``clients`` of ``takes`` each over a service that is started; ``clip`` is a good one for all.

    ``rest``: seconds that an operator gives himself at most, ``peace``: between two kills, 0 for none at all.
    ``stall``: seconds that the event loop stands still now and then. ``sudden``: the service is closed in the middle.
    """

    def __init__(self, service, seed, clip, clients, takes):
        self.service = service
        self.seed = seed
        self.clip = clip
        self.clients = clients
        self.takes = takes
        self.rest, self.peace = random.Random(seed).choice(((0.3, 1.0), (1.0, 1.0), (1.0, 4.0), (3.0, 0.0)))
        whim = self.chance("weather")
        self.stall = whim.choice((0.0, 0.0, 0.05, 0.4))
        self.sudden = whim.random() < 0.25
        self.impatient = []
        self.asked = []
        self.refused = Counter()
        self.done = Counter()
        self._over = asyncio.Event()

    async def blow(self):
        """Until the last client has gone; then what must be true of each take and of the service."""
        acts = (self.operator, self.operator, self.outside, self.watch, self.stand_still, self.close)
        others = [asyncio.ensure_future(act()) for act in acts]
        try:
            async with asyncio.timeout(BOUND):
                await asyncio.gather(*(self.client(number) for number in range(self.clients)))
                self._over.set()
                await asyncio.gather(*others, *self.impatient)
                await self.calm()
        finally:
            for other in (*others, *self.impatient):
                other.cancel()

    def chance(self, name):
        return random.Random(f"{self.seed} {name}")

    # clients

    async def client(self, number):
        chance = self.chance(f"client {number}")
        for _ in range(self.takes):
            await pause(chance, 0.2)
            await asyncio.gather(
                *(self.take(self.form(chance, number), chance) for _ in range(chance.choice((1, 1, 3))))
            )

    def form(self, chance, number):
        text = f"[fake:seconds={chance.uniform(0.2, 3):.2f}]"
        if chance.random() < 0.2:
            text = f"{LONG}[fake:segments=4]{text}"
        if chance.random() < 0.5:
            order = chance.choice(TROUBLE[: None if self.peace else 6])
            text += f"[fake:{order}]"
        text = text if chance.random() > 0.03 else ""
        deadline = chance.choice((None, None, None, None, None, 0.01, 0.5, 3.0))
        fields = {"clip": self.clip, "transcript": "What the clip says.", "stream": chance.random() < 0.4}
        return TakeForm(text, client=f"client {number}", deadline=deadline, **fields)

    async def take(self, form, chance):
        end = chance.choice(ENDS)
        if "hold" in form.text and form.deadline is None and end in ("read", "slow"):
            end = "cancel"
        after = chance.randrange(6)
        ticket = await self.submit(form, chance)
        if ticket is None:
            return
        asked = Asked(form, ticket, [])
        self.asked.append(asked)
        reader = asyncio.ensure_future(self.read(asked, end, after, chance))
        if end == "drop":
            await pause(chance, 0.4)
            reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
        # Whoever went away hears no more of it; somebody who comes late still does.
        if not (asked.heard and isinstance(asked.heard[-1], Done | Problem | Stopped)):
            await asyncio.wait([ticket._job.task])
            asked.heard += [update async for update in ticket.updates()]

    async def submit(self, form, chance):
        """Try a few times; now and then who asks is gone before there is an answer."""
        for _ in range(TRIES):
            asking = asyncio.ensure_future(self.service.submit(form))
            if chance.random() < 0.05:
                await pause(chance, 0.02)
                asking.cancel()
            try:
                return await asking
            except CosyuiError as error:
                self.refused[error.code] += 1
            except asyncio.CancelledError:
                return None
            await pause(chance, 0.5)
        return None

    async def read(self, asked, end, after, chance):
        if end in ("cancel", "twice"):  # also when no update comes any more
            self.impatient.append(asyncio.ensure_future(self.give_up(asked.ticket, chance.random())))
        async with contextlib.aclosing(asked.ticket.updates()) as updates:
            async for update in updates:
                asked.heard.append(update)
                if end == "slow":
                    await pause(chance, 0.1)
                if len(asked.heard) == after + 1:
                    if end == "leave":
                        return
                    if end == "cancel":
                        await asked.ticket.cancel()
                    if end == "twice":
                        await asyncio.gather(*(asked.ticket.cancel() for _ in range(3)))

    async def give_up(self, ticket, seconds):
        await asyncio.sleep(0.5 + seconds)
        await ticket.cancel()

    # the operator and the world

    async def operator(self):
        service, chance = self.service, self.chance(f"operator {self.done['operators']}")
        self.done["operators"] += 1
        acts = {
            "soft": service.soft_restarter.run,
            "trim": service.trim,
            "unload": service.unload,
            "load": service.load,
            "restart": service.restart_engine,
            "purge": lambda: service.operations.schedule.run_now("purge"),
            "dry": lambda: asyncio.to_thread(service.operations.purge.run, True),
            "stats": service.client.stats,
            "one": lambda: service.client.restart(chance.randrange(len(service.client.engines))),
            "cancel": lambda: self.cancel_any(chance),
        }
        while not self._over.is_set():
            await pause(chance, self.rest)
            name = chance.choice([*acts])
            self.done[name] += 1
            calls = [asyncio.ensure_future(acts[name]()) for _ in range(chance.choice((1, 1, 2)))]
            if chance.random() < 0.3:
                await pause(chance, 0.1)
                calls[0].cancel()
            for end in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(end, Exception):
                    raise end

    async def cancel_any(self, chance):
        ticket = self.service.ticket(chance.choice([*self.service._drive.jobs, "nobody's"]))
        if ticket is not None:
            await ticket.cancel()

    async def outside(self):
        chance = self.chance("outside")
        while self.peace and not self._over.is_set():
            await pause(chance, self.peace)
            pids = self.service.client.pids
            if pids:
                self.done["kill"] += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)

    # what must be true

    async def stand_still(self):
        chance = self.chance("stall")
        while self.stall and not self._over.is_set():
            await pause(chance, 1.0)
            time.sleep(chance.random() * self.stall)  # noqa: ASYNC251  (that is the point)

    async def close(self):
        if self.sudden:
            await asyncio.sleep(self.chance("close").random() * 4)
            await self.service.close()

    async def watch(self):
        while not self._over.is_set():
            look(self.service)
            await asyncio.sleep(0.005)

    async def calm(self):
        """The storm is over."""
        service = self.service
        await service.soft_restarter.run()
        if service.life_cycle.unloading:
            await service.unload()
        look(self.service)
        overview = service.overview()
        assert (overview.running, overview.waiting, service._drive.jobs) == ((), (), {})
        assert not service._queue.held
        assert service._queue.running == service._queue.waiting == []
        assert (service._drive._limits, service.client._homes, service.client._waiting) == ({}, {}, [])
        if not self.sudden:
            await self.plain_take()
        files = {path for path in service.outputs.root.rglob("*") if path.is_file()}
        wanted = set()
        for asked in self.asked:
            ends = [update for update in asked.heard if isinstance(update, Done | Problem | Stopped)]
            assert len(ends) == 1
            assert asked.heard[-1] is ends[0]
            self.done[f"{type(ends[0]).__name__} {getattr(getattr(ends[0], 'error', None), 'code', '')}"] += 1
            look_at(asked, ends[0])
            if isinstance(ends[0], Done):
                wanted.add(ends[0].result.path)
        assert files == wanted

    async def plain_take(self):
        if self.service.client.state == "broken":
            await self.service.restart_engine()
        form = TakeForm("A plain take.", clip=self.clip, transcript="What the clip says.")
        ticket = await self.service.submit(form)
        self.asked.append(Asked(form, ticket, [update async for update in ticket.updates()]))
        assert isinstance(self.asked[-1].heard[-1], Done), self.asked[-1].heard

    def rows(self):
        """After the close: each that came in has one row."""
        rows = self.service.operations.journal.page(limit=10_000).rows
        assert len(rows) == len({row.id for row in rows})
        outcomes = Counter(row.outcome for row in rows)
        refused = self.refused.total() - (self.refused["service_stopping"] if self.sudden else 0)
        assert refused <= outcomes.pop("rejected", 0) <= self.refused.total(), (self.sudden, self.refused, rows)
        assert {row.id for row in rows if row.outcome != "rejected"} == {asked.ticket.id for asked in self.asked}
