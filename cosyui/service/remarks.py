"""What is wrong with engines, watching and tidying, as remarks with codes: the page says them in its own language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cosyui.host.pool import EngineView
from cosyui.notice import Notice
from cosyui.ops.journal import Journal
from cosyui.ops.leaks import Leak, amount
from cosyui.ops.purge import PurgeResult
from cosyui.ops.sampler import Sampler
from cosyui.ops.schedule import JobView


def not_started(part: str, error: Exception) -> Notice:
    """``part`` of the operations: journal, sampler or schedule."""
    return Notice.of(f"{part}_not_started", f"The {part} does not run: {{reason}}.", reason=str(error))


def uploads_kept(error: Exception) -> Notice:
    return Notice.of("uploads_kept", "Old uploads are not deleted: {reason}.", reason=str(error))


def sampler_crashed(error: Exception) -> Notice:
    reason = f"{type(error).__name__}: {error}"
    return Notice.of("sampler_crashed", "Nothing is measured: {reason}.", reason=reason)


def of_engines(engines: Iterable[EngineView]) -> Iterator[Notice]:
    """Why takes may be nonsense."""
    for engine in engines:
        if engine.facts is not None and engine.facts.degraded is not None:
            yield engine.facts.degraded


def of_sampler(sampler: Sampler) -> Iterator[Notice]:
    """Why figures are missing or old."""
    latest = sampler.latest
    if sampler.machine_problem is not None:
        sentence = "Memory and load of the machine cannot be read: {reason}."
        yield Notice.of("machine_unread", sentence, reason=sampler.machine_problem)
    elif latest.stale:
        sentence = "The machine's figures are {seconds:.0f} s old: its driver hangs."
        yield Notice.of("machine_stale", sentence, seconds=latest.machine_age or 0.0)
    if sampler.disk_problem is not None:
        yield Notice.of("disk_unread", "The disk of the outputs cannot be read: {reason}.", reason=sampler.disk_problem)
    if sampler.service_fails:
        yield Notice.of("service_untold", "The service does not tell its figures; the log has the reason.")


def of_journal(journal: Journal) -> Iterator[Notice]:
    if journal.problem is not None:
        sentence = "The journal {path} cannot be written: {reason}."
        yield Notice.of("journal_unwritten", sentence, path=str(journal.path), reason=journal.problem)
    if journal.dropped:
        yield Notice.of("journal_lost", "{count} rows of the journal are lost.", count=journal.dropped)


def journal_unread(reason: str) -> Notice:
    return Notice.of("journal_unread", "The journal cannot be read: {reason}.", reason=reason)


def voices_damaged(reasons: Sequence[str]) -> Notice:
    sentence = "{count} saved voices cannot be read and are left out: {reason}."
    return Notice.of("voices_damaged", sentence, count=len(reasons), reason="; ".join(reasons[:3]))


def voices_unread(folder: Path, error: OSError) -> Notice:
    sentence = "The folder of saved voices {path} cannot be read: {reason}."
    return Notice.of("voices_unread", sentence, path=str(folder), reason=error.strerror or str(error))


def batches_damaged(reasons: Sequence[str]) -> Notice:
    sentence = "{count} batches cannot be read and are left out: {reason}."
    return Notice.of("batches_damaged", sentence, count=len(reasons), reason="; ".join(reasons[:3]))


def batches_unread(folder: Path, error: OSError) -> Notice:
    sentence = "The folder of batches {path} cannot be read: {reason}."
    return Notice.of("batches_unread", sentence, path=str(folder), reason=error.strerror or str(error))


def history_failed(path: Path, reason: str) -> Notice:
    sentence = "The history of takes {path} cannot be read or written: {reason}. What is made meanwhile is not in it."
    return Notice.of("history_failed", sentence, path=str(path), reason=reason)


def history_damaged(aside: Path) -> Notice:
    sentence = (
        "The history of takes was damaged and is begun anew; the old one, whose favourites nothing keeps, is {path}."
    )
    return Notice.of("history_damaged", sentence, path=str(aside))


def of_purge(purge: JobView) -> Iterator[Notice]:
    """How the last run went."""
    if purge.error is not None:
        yield Notice.of("purge_failed", "Old files are not deleted: {reason}.", reason=purge.error)
    if isinstance(purge.result, PurgeResult):
        yield from of_purge_result(purge.result)


def of_purge_result(result: PurgeResult) -> Iterator[Notice]:
    if result.errors:
        sentence = "{count} old files could not be deleted: {reason}."
        yield Notice.of("purge_errors", sentence, count=result.errors, reason="; ".join(result.problems))
    if result.over_quota:
        sentence = "The outputs exceed their quota by {size} of files that are new or in use."
        yield Notice.of("purge_over_quota", sentence, size=amount(result.over_quota))


def of_leak(leak: Leak) -> Iterator[Notice]:
    """The growth, then each kind of request that it goes with."""
    values: dict[str, str | float] = {
        "engine": "" if leak.engine is None else f" {leak.engine}",
        "slope": amount(leak.slope),
        "rows": leak.rows,
        "growth": amount(leak.growth),
        "at_least": amount(leak.at_least),
    }
    yield Notice(f"leak_{leak.column}", leak.sentence, tuple(values.items()))
    for suspect in leak.suspects:
        each, others = amount(suspect.each), amount(suspect.otherwise)
        suspected = (("what", suspect.what), ("each", each), ("others", others))
        yield Notice(f"leak_with_{suspect.code}", f"It goes with {suspect}.", suspected)
    if not leak.suspects:
        yield Notice.of("leak_with_none", "No kind of request stands out.")
