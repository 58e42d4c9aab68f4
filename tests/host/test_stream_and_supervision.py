"""What happens to events across two lives of a process, and when to give up: without any process."""

import pytest

from cosyui.engine.request import AudioChunk, Failed, Finished, RequestStats, Started
from cosyui.errors import InputError
from cosyui.host.stream import HandedOver, Stream
from cosyui.host.supervision import Deaths, RestartPolicy

pytestmark = pytest.mark.anyio
STATS = RequestStats(1.0, 0.5, 0.1, 25, 1)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def pcm(*samples):
    return b"".join(sample.to_bytes(2, "little") for sample in samples)


async def drain(stream):
    events = []
    while not stream.drained:
        events.append(await stream.next())
    return events


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([], [(1, 2, 3), (4, 5, 6)]),
        ([(1, 2)], [(1, 2, 3, 4, 5, 6)]),
        ([(1, 2, 3)], [(1,), (2,), (3,), (4, 5), (6,)]),
        ([(1, 2), (3, 4)], [(1, 2, 3), (4, 5, 6)]),
        ([(1, 2, 3), (4, 5, 6)], [(1, 2, 3, 4), (5, 6)]),
    ],
)
async def test_second_start_skips_delivered_samples(make_request, first, second):
    stream = Stream(make_request("a"))
    for chunks in (first, second):
        stream.begin()
        stream.take(Started("a", 1))
        for index, chunk in enumerate(chunks):
            stream.take(AudioChunk("a", index, pcm(*chunk)))
    stream.take(Finished("a", STATS))
    events = await drain(stream)
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    assert b"".join(chunk.pcm for chunk in chunks) == pcm(1, 2, 3, 4, 5, 6)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert sum(isinstance(event, Started) for event in events) == 1
    assert [event.attempt for event in events if isinstance(event, HandedOver)] == [1, 2]
    assert events[-1].stats.retries == 1


async def test_nothing_follows_the_final_event(make_request):
    stream = Stream(make_request("a"))
    stream.begin()
    stream.fail(InputError("text_empty", "Type something.", "text"))
    stream.take(AudioChunk("a", 0, pcm(1)))
    stream.take(Finished("a", STATS))
    events = await drain(stream)
    assert events[1:] == [Failed("a", "text_empty", "Type something.", "text", 400)]


@pytest.mark.parametrize(
    ("times", "pauses"),
    [
        ([0, 1, 2, 3, 4, 5], [0.0, 1.0, 2.0, 4.0, 5.0, None]),
        ([0, 1, 200, 201], [0.0, 1.0, 0.0, 1.0]),
        ([0, 60, 120, 180, 240], [0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
    ids=["in a row", "forgotten after the window", "sliding window"],
)
def test_pauses_grow_within_the_window_then_it_gives_up(times, pauses):
    deaths = Deaths(RestartPolicy(max_deaths=5, window=100, first_pause=1.0, longest_pause=5.0))
    assert [deaths.record(now) for now in times] == pauses


def test_failed_starts_in_a_row_are_given_up_sooner():
    deaths = Deaths(RestartPolicy(max_failed_starts=3, max_deaths=100, first_pause=1.0))
    lives = [False, False, True, False, False, False]
    assert [deaths.record(now, loaded) for now, loaded in enumerate(lives)] == [0.0, 1.0, 2.0, 4.0, 8.0, None]


def test_forgotten_deaths_do_not_count():
    deaths = Deaths(RestartPolicy(max_deaths=1))
    assert deaths.record(0) == 0.0
    deaths.forget()
    assert deaths.record(1) == 0.0
    assert deaths.record(2) is None


def test_thousands_of_deaths_are_paused_for_as_well():
    deaths = Deaths(RestartPolicy(max_deaths=5000, longest_pause=5.0))
    assert [deaths.record(now / 100) for now in range(2000)][-1] == 5.0
