"""What must be true of a service and its takes, whatever happens to them."""

from dataclasses import dataclass

from watching import samples

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.host.fake_sound import fake_pcm
from cosyui.service.types import Chunk, Done, Problem, TakeForm


@dataclass
class Asked:
    """A take that was taken in, and all that its reader heard."""

    form: TakeForm
    ticket: object
    heard: list

    @property
    def pcm(self):
        clip = PromptClip(None, 16_000)
        text = self.form.text.strip()
        return fake_pcm(SynthesisRequest(self.ticket.id, text, Mode.ZERO_SHOT, clip, 1, long=len(text) > 200))


def look(service):
    """At any moment, between two steps of the loop."""
    overview = service.overview()
    for long in (False, True):
        places = [entry.position for entry in overview.waiting if entry.long == long]
        assert sorted(places) == list(range(1, len(places) + 1))
    etas = [entry.eta_seconds for entry in (*overview.running, *overview.waiting)]
    assert all(eta is None or eta >= 0 for eta in etas)
    queue, drive, pool = service._queue, service._drive, service.client
    lines = [sum(job.request.long == long for job in queue.waiting) for long in (False, True)]
    assert max(lines) <= queue.size
    assert {*queue.running, *queue.waiting} <= {*drive.jobs.values()}
    assert all(job in drive.jobs.values() for job in drive._limits)
    assert len(drive._heard) <= len(pool.engines)
    assert set(service.operations.in_use._paths) == set(drive.jobs)
    assert set(pool._streams) <= set(drive.jobs)
    assert set(pool._homes) <= set(pool._streams)
    for engine in pool.engines:
        assert set(engine.residents._streams) == {key for key, home in pool._homes.items() if home is engine}
        assert engine.state != "ready" or engine._process is not None
        assert engine.state not in ("unloaded", "broken") or engine._process is None
    if queue.held:
        assert service.soft_restarter.busy or service.life_cycle.unloading


def look_at(asked, end):
    """Once all has ended."""
    whole = asked.pcm
    spoken = b"".join(update.pcm for update in asked.heard if isinstance(update, Chunk))
    assert whole.startswith(spoken)
    if isinstance(end, Done):
        assert samples(end.result.path) == whole
        assert not asked.form.stream or spoken == whole
    if isinstance(end, Problem):
        assert end.error.code != "internal"
