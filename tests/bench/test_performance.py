"""The measuring commands: figures that hold together, lengths as asked for, and a soak that finds planted faults."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyui.bench import engine as engine_bench
from cosyui.bench import memory, rig, roofline, stream
from cosyui.bench.likeness import Verdict, aligned, compare
from cosyui.bench.load import Client, Load
from cosyui.bench.make_checkpoint import FULL, STEADY_PITCH, make_checkpoint
from cosyui.bench.workload import Workload
from cosyui.engine.request import AudioChunk, Cancelled, Event, Failed, Finished, SynthesisRequest
from cosyui.model.cosyvoice3 import load as load_model
from cosyui.speech.sound.audio_out import to_pcm16

RATIO = 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text id lasts a second."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_checkpoint(folder, "tiny", seed=3, tokens_per_text_id=RATIO)
    return folder


def arguments(module: Any, folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    shared = ["--device", "cpu", "--threads", "1", "--seconds", "2", "--prompt-seconds", "2"]
    return parser.parse_args([str(folder), *shared, *more])


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[rig.Started]:
    started = rig.start(arguments(memory, folder))
    yield started
    started.engine.close()


@pytest.fixture
def kept(started: rig.Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands get the engine that is there, and leave it open."""
    for module in (memory, stream):
        monkeypatch.setattr(module.rig if module is stream else module, "start", lambda _: started)
    monkeypatch.setattr(started.engine, "close", lambda: None)


@pytest.fixture
def work(started: rig.Started) -> Workload:
    return Workload(started.engine, 2.0, 2.0)


@pytest.mark.parametrize("seconds", [1, 2, 10, 60])
def test_texts_last_as_long_as_asked_for_and_are_one_segment(work: Workload, seconds: float) -> None:
    texts = {work.text(seconds, number) for number in range(5)}
    assert len(texts) == 5 or seconds < 3
    for text in texts:
        request = SynthesisRequest("", text, work.request("").mode, work.clip(), 0)
        (segment,), _ = work.engine.frontend.segments(request)
        assert segment.spoken_ids == max(2, seconds)  # a word and its full stop at least
    assert Workload(work.engine, seed=0).text(seconds, 3) == work.text(seconds, 3)


def test_a_fixed_length_is_spoken_exactly(work: Workload) -> None:
    client = Load(work.engine).alone(work.request("one", seconds=3))
    assert client.stats is not None
    assert client.stats.speech_tokens == 3 * RATIO
    assert client.speech_seconds == pytest.approx(3, abs=0.3)
    assert 0 < client.first_chunk <= client.seconds


def test_engine_figures_hold_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roofline, "RUNS", 3)
    monkeypatch.setattr(roofline, "COPY_BYTES", {"cpu": 1 << 24})
    file = tmp_path / "figures" / "engine.json"
    more = ("--repeats", "1", "--clients", "1", "--batches", "1,64", "--json", str(file), "--reference", str(tmp_path))
    assert engine_bench.run(arguments(engine_bench, folder, *more)) == 0
    content = json.loads(file.read_text())
    assert content["machine"]["torch"] == torch.__version__
    assert {"command", "date", "settings", "bench"} <= set(content)
    one = content["one"]
    assert (one["tokens"], one["segments"], one["retries"]) == (2 * RATIO, 1, 0)
    assert one["rtf"] == pytest.approx(one["wall_s"] / one["speech_s"])
    assert 0 < one["llm_s"] + one["flow_s"] + one["vocoder_s"] <= one["wall_s"]
    assert one["speech_s"] == pytest.approx(2, abs=0.3)
    assert 0 < one["flow_share_of_matmul"] < 1
    known, new = content["first_chunk"]
    assert 0 < known["median"] <= known["slowest"] <= known["whole_stream"]
    assert known["prompt"] < new["prompt"] < new["median"]
    assert [row["batch"] for row in content["decode"]] == [1], "a CPU has one slot"
    assert content["decode"][0]["steps"] == 2 * RATIO
    (row,) = content["throughput"]
    assert (row["clients"], row["requests"]) == (1, 2)
    assert row["speech_per_s"] == pytest.approx(row["speech_s"] / row["wall_s"])
    assert row["speech_s"] == pytest.approx(4, abs=0.5)
    assert 0 < row["flow_busy"] + row["vocoder_busy"] < 1
    assert 0 <= row["host_idle"] < 1
    assert "no checkout" in content["reference"]["missing"]
    assert "speech_per_s" in capsys.readouterr().out


@pytest.mark.usefixtures("kept")
def test_stream_figures_hold_together(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    more = ("--repeats", "1", "--clients", "1,2", "--long-seconds", "3", "--json", str(file))
    assert stream.run(arguments(stream, folder, *more)) == 0
    content = json.loads(file.read_text())
    alone, both = content["listeners"]
    assert 0 < alone["first_p50"] == alone["first_p95"] == alone["first_worst"]
    assert both["chunks"] > alone["chunks"] > 1
    assert (alone["least_margin"] < 0) == (alone["underruns"] > 0) == (alone["dry_streams"] > 0)
    assert [row["segments"] for row in content["length"]] == [1, 1]
    assert [row["speech_s"] for row in content["length"]] == pytest.approx([2, 3], abs=0.3)
    assert all(value > 0 for value in content["length_ratio"].values())


def listener(*arrivals: tuple[float, float]) -> Client:
    client = Client(None, 0.0)  # type: ignore[arg-type]
    client.arrivals = [(moment, round(24_000 * seconds)) for moment, seconds in arrivals]
    return client


def test_a_listener_plays_from_the_first_chunk_on() -> None:
    assert listener((5.0, 1.0)).margins() == []
    assert listener((5.0, 1.0), (5.5, 2.0), (6.0, 1.0)).margins() == pytest.approx([0.5, 2.0])
    dry = listener((5.0, 1.0), (6.5, 1.0), (7.0, 1.0))
    assert dry.margins() == pytest.approx([-0.5, 0.5]), "after a gap playing goes on with the chunk that came late"


def noise(seed: int, seconds: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9000, 9000, round(24_000 * seconds)).astype(np.int16)


def test_likeness_forgives_last_bits_and_edges_and_nothing_else() -> None:
    one = noise(1)
    assert compare(one, one.copy())[0] is Verdict.EQUAL
    off = (one + np.random.default_rng(2).integers(-3, 4, len(one))).astype(np.int16)
    assert compare(off, one)[0] is Verdict.CLOSE
    assert compare(off[700:], one[:-300])[0] is Verdict.CLOSE
    assert all(np.array_equal(*aligned(one[a:], one[b:])) for a, b in ((0, 900), (900, 0), (480, 490)))
    for wrong in (noise(3), one[:-9600], np.zeros_like(one), one[:0], np.roll(one, 9000)):
        assert compare(wrong, one)[0] is Verdict.OTHER


def test_likeness_hears_a_voice_whose_phase_has_drifted(work: Workload) -> None:
    load = Load(work.engine, keep_audio=True)
    first, second = (load.alone(work.request(str(n), number=n)).audio for n in range(2))
    spectrum = np.fft.rfft(first.astype(np.float64))
    drifted = np.fft.irfft(spectrum * np.exp(1j), len(first)).round().clip(-32768, 32767).astype(np.int16)
    assert compare(drifted, first)[0] is Verdict.SPECTRUM
    assert compare(first, second)[0] is Verdict.OTHER


class Faulty:
    """An engine with a fault planted in its events; everything else is the real one's."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.kept: dict[str, list[AudioChunk]] = {}
        self.changed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def step(self) -> list[Event]:
        return [change for event in self.engine.step() for change in self.change(event)]

    def change(self, event: Event) -> list[Event]:
        raise NotImplementedError


class Swapping(Faulty):
    """Once, gives one request the sound of the one before it."""

    last = b""

    def change(self, event: Event) -> list[Event]:
        if isinstance(event, AudioChunk) and event.samples > 24_000:
            if self.last and self.last != event.pcm and not self.changed:
                self.changed += 1
                return [AudioChunk(event.request_id, event.index, self.last)]
            self.last = event.pcm
        return [event]


class Losing(Faulty):
    """Never tells the end of one request."""

    def change(self, event: Event) -> list[Event]:
        if isinstance(event, Finished) and not self.changed:
            self.changed += 1
            return []
        return [event]


class Repeating(Faulty):
    """Tells the end of one request twice."""

    def change(self, event: Event) -> list[Event]:
        if isinstance(event, Finished) and not self.changed:
            self.changed += 1
            return [event, event]
        return [event]


class Failing(Faulty):
    """Fails one request."""

    def change(self, event: Event) -> list[Event]:
        if isinstance(event, Finished) and not self.changed:
            self.changed += 1
            return [Failed(event.request_id, "engine_fault", "planted")]
        return [event]


@pytest.fixture(scope="module")
def rehearsed(started: rig.Started) -> memory.Soak:
    soak = memory.Soak(started, Workload(started.engine, 1.5, 2.0), 4)
    soak.rehearse(3)
    return soak


@pytest.fixture
def soak(rehearsed: memory.Soak, started: rig.Started) -> Iterator[memory.Soak]:
    rehearsed.tally = memory.Tally()
    yield rehearsed
    rehearsed.load.engine = started.engine


def test_a_soak_of_a_good_engine_finds_nothing(soak: memory.Soak, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CANCELLED_SHARE", 0.4)
    soak.round(6)
    tally = soak.tally
    assert tally.faults == []
    assert tally.sent == 6 == tally.outcomes["finished"] + tally.outcomes["cancelled"]
    assert tally.verdicts == {Verdict.EQUAL: tally.outcomes["finished"]}
    before = soak.level()
    soak.round(2)
    after = soak.level()
    assert after.requests == before.requests + 2
    assert (after.allocated, after.tensors) == (before.allocated, pytest.approx(before.tensors, abs=4096))


@pytest.mark.parametrize(
    ("fault", "said"),
    [(Swapping, "has another sound"), (Losing, "never ended"), (Repeating, "not running"), (Failing, "planted")],
)
def test_a_soak_finds_a_planted_fault(
    soak: memory.Soak, fault: type[Faulty], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CANCELLED_SHARE", 0.0)
    soak.load.engine = faulty = fault(soak.load.engine)
    soak.round(4)
    assert faulty.changed == 1
    assert len(soak.tally.faults) == 1
    assert said in soak.tally.faults[0]


def test_a_cancelled_request_that_is_heard_again_is_a_stray(work: Workload) -> None:
    class Ghost:
        has_work = True

        def submit(self, request: SynthesisRequest) -> None: ...

        def step(self) -> list[Event]:
            return [Cancelled("a"), AudioChunk("a", 0, b"\0\0")]

    load = Load(Ghost())  # type: ignore[arg-type]
    load.send(work.request("a"))
    (ended,) = load.step()
    assert ended.outcome == "cancelled"
    assert load.strays == ["AudioChunk for a, which was not running"]


@pytest.mark.usefixtures("kept")
def test_memory_command_tells_its_verdict(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "memory.json"
    more = (
        "--requests",
        "4",
        "--round",
        "2",
        "--scripts",
        "2",
        "--concurrency",
        "2",
        "--seconds",
        "1",
        "--json",
        str(file),
    )
    args = arguments(memory, folder, *more)
    assert memory.run(args) == 0
    content = json.loads(file.read_text())
    assert [level["requests"] for level in content["levels"]] == [2, 4, 6]
    assert content["soak"]["requests"] == 4
    assert content["faults"] == []
    monkeypatch.setattr(memory, "compare", lambda *_: (Verdict.OTHER, 0.0, 0.0))
    args.requests = args.concurrency = args.scripts = 1
    assert memory.run(args) == 1
    assert "fault:" in capsys.readouterr().out


def test_growth_is_a_slope() -> None:
    levels = [memory.Level(n, 5000 + 7 * n, 0, 100, 1 << 20) for n in (10, 20, 30)]
    drift = memory.drift_figures(levels)
    assert drift["device_bytes_grown"] == 140
    assert drift["allocated_a_request"] == pytest.approx(7)
    assert drift["cpu_tensor_bytes_grown"] == 0


def test_the_flows_work_is_that_of_its_matrix_products() -> None:
    """Against the products of the network itself, counted by their weights."""
    flow = FULL.flow
    per_frame = roofline.flow_flops(flow, 1, 0) / (2 * flow.steps)
    inner = flow.heads * flow.dim_head
    weights = flow.depth * (4 * flow.dim * inner + 2 * flow.dim * flow.ff_mult * flow.dim)
    weights += 4 * flow.mel_dim * flow.dim + flow.dim * flow.mel_dim + 2 * flow.dim * (flow.dim // 16) * 31
    assert per_frame == 2 * weights
    attention = roofline.flow_flops(flow, 1, 750) - roofline.flow_flops(flow, 1, 0)
    assert attention == 2 * flow.steps * flow.depth * 4 * inner * 750
    assert roofline.flow_flops(flow, 750, 750) == pytest.approx(6.7e12, rel=0.01)


def test_keys_seen_behind_the_block_mask() -> None:
    assert roofline.seen_keys(100, 50, 0) == 150
    assert roofline.seen_keys(100, 50, 50) == pytest.approx((50 * 100 + 50 * 150) / 100)
    assert roofline.seen_keys(20, 50, 50) == 70


def test_weights_of_a_decode_step_leave_the_tables_out(started: rig.Started) -> None:
    llm = started.engine.model.llm
    tables = sum(p.numel() for name, p in llm.named_parameters() if "embed" in name)
    everything = sum(p.numel() for p in llm.parameters())
    assert 0 < roofline.decode_weight_bytes(started.engine.model) == 4 * (everything - tables)


def test_a_steady_pitch_makes_the_sound_of_rounded_mels_comparable(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "tiny", steady_pitch=True)
    vocoder = load_model(tmp_path).vocoder
    mels = torch.randn(2, 1, 80, 60, generator=torch.Generator().manual_seed(0)) - 2
    with torch.inference_mode():
        assert vocoder.f0_predictor(mels[0]).numpy() == pytest.approx(STEADY_PITCH, abs=0.1)
        first, other, rounded = (vocoder(mel)[0][0] for mel in (mels[0], mels[1], mels[0] + 0.01 * mels[1]))
    sounds = [np.frombuffer(to_pcm16(wave), dtype="<i2") for wave in (first, other, rounded)]
    assert compare(sounds[2], sounds[0])[0] is Verdict.CLOSE
    assert compare(sounds[1], sounds[0])[0] is Verdict.OTHER
