"""What is told about a prompt clip: figures, what was done to it, and advice in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from cosyui.notice import Notice
from cosyui.speech.clip.mix import Sound
from cosyui.speech.clip.voiced import Speech

GOOD_SECONDS = (5.0, 13.0)
QUIET_DBFS = -42.0
"""Speech below this was recorded too quietly: its noise is raised with it."""
NARROW_HZ = 4_600.0
"""Speech without anything above this went through a telephone."""
NOISY_DB = 15.0
CLIPPING_SHARE = 1e-3


@dataclass(frozen=True)
class ClipReport:
    """Figures of the recording before any change of level; lengths in seconds.

    ``seconds`` is the length of the file, ``kept_seconds`` what is used of it, ``speech_seconds`` the speech in that,
    without pauses. ``rms_dbfs`` is the level of the speech, ``noise_db`` how far the noise is below it,
    ``bandwidth_hz`` the highest frequency in the speech (8,000 at most). ``changes`` say what was done, ``advice`` what
    could be better.
    """

    seconds: float
    kept_seconds: float
    speech_seconds: float
    sample_rate: int
    channels: int
    bandwidth_hz: float
    peak_dbfs: float
    rms_dbfs: float
    noise_db: float
    clipped: float
    changes: tuple[Notice, ...] = ()
    advice: tuple[Notice, ...] = ()

    @property
    def notices(self) -> tuple[Notice, ...]:
        return self.changes + self.advice

    @property
    def cut(self) -> bool:
        """Whether speech was left out: a transcript of the whole recording is none of what is kept."""
        return any(notice.code == "clip_cut" for notice in self.changes)


def changes_of(sound: Sound, kept: tuple[float, float], *, cut: bool) -> tuple[Notice, ...]:
    """``kept`` are the first and last second that are used; ``cut``: speech was left out with them."""
    found = []
    start, end = kept
    if cut:
        sentence = "The best {kept:.1f} s of the {seconds:.1f} s are used, from second {start:.1f} on."
        found.append(Notice.of("clip_cut", sentence, kept=end - start, seconds=sound.seconds, start=start))
    elif sound.seconds - (end - start) >= 0.5:
        sentence = "{seconds:.1f} s without speech were cut off at its ends; the transcript stays the same."
        found.append(Notice.of("clip_trimmed", sentence, seconds=sound.seconds - (end - start)))
    if sound.opposite:
        sentence = "Its channels cancel each other (one is wired the wrong way round), so one of them is used."
        found.append(Notice.of("clip_opposite", sentence))
    if sound.repaired:
        sentence = "{count} damaged samples were repaired. If you hear clicks, export the clip again."
        found.append(Notice.of("clip_repaired", sentence, count=sound.repaired))
    return tuple(found)


def advice_on(sound: Sound, speech: Speech, kept: float, rms_dbfs: float, shortest: float) -> tuple[Notice, ...]:
    """``kept`` seconds with ``speech`` at ``rms_dbfs`` are used; ``shortest`` is the least that was asked for."""
    found = []
    if speech.seconds < shortest:
        sentence = "Only {speech:.1f} s of it are speech; with 5 to 13 s the voice is copied better."
        found.append(Notice.of("clip_little_speech", sentence, speech=speech.seconds))
    elif kept < GOOD_SECONDS[0]:
        sentence = "It has {seconds:.1f} s: that works, but 5 to 13 s copy the voice better."
        found.append(Notice.of("clip_short", sentence, seconds=kept))
    elif kept > GOOD_SECONDS[1] + 0.05:
        sentence = "It has {seconds:.1f} s: more than 13 s bring no more likeness and cost time. Use its best part."
        found.append(Notice.of("clip_long", sentence, seconds=kept))
    if rms_dbfs < QUIET_DBFS:
        sentence = "Very quiet ({level:.0f} dBFS): it was raised, and its noise too. Record closer to the microphone."
        found.append(Notice.of("clip_quiet", sentence, level=rms_dbfs))
    if sound.clipped > CLIPPING_SHARE:
        sentence = "Overdriven ({share:.1%} of it is clipped): the voice will sound rough. Record with less gain."
        found.append(Notice.of("clip_clipped", sentence, share=sound.clipped))
    if speech.above_noise < NOISY_DB:
        sentence = "Noisy (speech only {ratio:.0f} dB above it): noise is copied too. Record in a quieter place."
        found.append(Notice.of("clip_noisy", sentence, ratio=speech.above_noise))
    if speech.bandwidth < NARROW_HZ:
        sentence = "Telephone quality (nothing above {khz:.1f} kHz): the voice will sound dull."
        found.append(Notice.of("clip_narrow", sentence, khz=speech.bandwidth / 1000))
    return tuple(found)
