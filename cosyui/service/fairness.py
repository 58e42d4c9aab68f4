"""Whose turn it is: round robin between clients, first come first served within one."""

from __future__ import annotations

from collections import OrderedDict, deque

from cosyui.service.job import Job


class Line:
    """Jobs that wait for places of one kind, and how many of each client have one.

    Next is a job of the client with the least in work; among those, of the one that has gone without a place the
    longest. A client that comes new queues up behind those that wait already, so nobody waits for ever. Nothing is
    remembered of a client that neither waits nor works. Each step takes the same time, however many wait.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Job]] = {}
        self._at_work: dict[str, int] = {}
        self._rounds: dict[int, OrderedDict[str, None]] = {}
        """The clients that wait, by how many of their jobs are in work; in each the next one stands first."""

    def add(self, job: Job) -> None:
        jobs = self._waiting.setdefault(job.client, deque())
        jobs.append(job)
        if len(jobs) == 1:
            self._join(job.client)

    def remove(self, job: Job) -> None:
        """One that waits goes away."""
        jobs = self._waiting[job.client]
        jobs.remove(job)
        if not jobs:
            self._gone(job.client)

    def take(self) -> Job | None:
        """The next one: it has a place now, until `ended`. None if nobody waits."""
        if not self._rounds:
            return None
        client = next(iter(self._rounds[min(self._rounds)]))
        jobs = self._waiting[client]
        self._move(client, 1)
        job = jobs.popleft()
        if not jobs:
            self._gone(client)
        return job

    def ended(self, client: str) -> None:
        """A job of this client gave back its place."""
        self._move(client, -1)

    def waiting_of(self, client: str) -> int:
        return len(self._waiting.get(client, ()))

    def copy(self) -> Line:
        """To look ahead in, without any effect on this one."""
        other = Line()
        other._waiting = {client: jobs.copy() for client, jobs in self._waiting.items()}
        other._at_work = self._at_work.copy()
        other._rounds = {number: clients.copy() for number, clients in self._rounds.items()}
        return other

    def _move(self, client: str, by: int) -> None:
        waits = client in self._waiting
        if waits:
            self._step_out(client)
        self._at_work[client] = count = self._at_work.get(client, 0) + by
        if not count:
            del self._at_work[client]
        if waits:
            self._join(client)

    def _gone(self, client: str) -> None:
        self._step_out(client)
        del self._waiting[client]

    def _join(self, client: str) -> None:
        count = self._at_work.get(client, 0)
        if count not in self._rounds:
            self._rounds[count] = OrderedDict()
        self._rounds[count][client] = None

    def _step_out(self, client: str) -> None:
        count = self._at_work.get(client, 0)
        clients = self._rounds[count]
        del clients[client]
        if not clients:
            del self._rounds[count]
