"""A take is heard while it is made: all of its samples, gaps are counted, and where that fails there is the file."""

import io

import pytest
import soundfile
from driving import fetch_take, generate, good_clip, wait_status, write_text
from playwright.sync_api import expect

END = "() => ['done', 'file', 'stopped'].includes(cosyui.player.stats.state)"
BY_HAND = """([seconds, rate, gap]) => {
  let Made, told = {};
  const Base = class { constructor() { this.port = { postMessage: (message) => { told = message; } }; } };
  new Function("AudioWorkletProcessor", "registerProcessor", "sampleRate", "(" + cosyui.player.worklet + ")()")(
    Base, (_, made) => { Made = made; }, rate);
  const node = new Made({ processorOptions: { rate: 24000, fill: 6000 } });
  const total = 24000 * seconds, sound = Int16Array.from({ length: total }, (_, i) => 1 + i % 30000);
  const give = (from, to) => node.port.onmessage({ data: { pcm: sound.slice(from, to).buffer } });
  const heard = [];
  let going = true, alive = 0;
  const play = (blocks) => {
    for (let i = 0; i < blocks && going; i++) {
      const out = new Float32Array(128);
      going = node.process([], [[out]]);
      alive++;
      heard.push(...out);
    }
  };
  give(0, 5999);
  play(20);
  const early = heard.some((value) => value);
  const pieces = 4800, middle = gap ? 24000 : 0;
  for (let at = 5999; at < total; at += pieces) {
    give(at, Math.min(total, at + pieces));
    if (gap && at <= middle && middle < at + pieces) play(1000);  // far more than there is: it runs dry
    play(Math.floor(pieces * rate / 24000 / 128));
  }
  node.port.onmessage({ data: { complete: true } });
  while (going && alive < 1e6) play(1);
  const voiced = heard.filter((value) => value), want = Array.from(sound, (value) => value / 32768);
  const same = voiced.length === total && voiced.every((value, i) => value === Math.fround(want[i]));
  return { ...told, early, same, voiced: voiced.length, length: heard.length };
}"""


def stats(page):
    return page.evaluate("cosyui.player.stats")


@pytest.fixture
def page(page):
    """With the switch on, as on a machine with a GPU."""
    expect(page.locator("#live input")).not_to_be_checked()
    page.locator("#live input").check()
    return page


def make(page, text):
    """What the player tells at the end, with the file's number of samples."""
    before = page.locator("[data-take]")
    old = before.get_attribute("data-take") if before.count() else ""
    write_text(page, text)
    generate(page)
    page.locator(f"[data-take]:not([data-take='{old}'])").wait_for()
    page.wait_for_function(END)
    return stats(page), soundfile.info(io.BytesIO(fetch_take(page)[0])).frames


def test_every_sample_of_a_take_is_played_and_stop_ends_it_at_once(page):
    good_clip(page)
    for seconds in (0.1, 1, 3):  # the first is shorter than the pre-buffer
        heard, samples = make(page, f"[fake:seconds={seconds}][fake:slow=0.05] A sentence to speak.")
        assert heard["state"] == "done"
        assert heard["given"] == heard["played"] == heard["samples"] == samples == seconds * 24_000
        told = "Played without a gap" if not heard["dry"] else "Ran dry"
        expect(page.locator("#heard [role=status]")).to_contain_text(told)

    write_text(page, "[fake:hold][fake:seconds=3] A sentence to speak.")
    generate(page)
    page.wait_for_function("() => cosyui.player.stats.played > 0")
    page.locator("#stop").click()
    assert stats(page)["state"] == "stopped"
    wait_status(page, "stopped")
    expect(page.locator("#heard [role=status]")).to_be_hidden()


def test_the_worklet_by_hand(page):
    whole = page.evaluate(BY_HAND, [30, 24_000, False])
    assert not whole["early"], "the pre-buffer was not waited for"
    assert whole["same"], "30 seconds, sample by sample"
    assert (whole["given"], whole["played"], whole["dry"], whole["over"]) == (720_000, 720_000, 0, True)
    gap = page.evaluate(BY_HAND, [3, 24_000, True])
    assert gap["same"]
    assert (gap["played"], gap["dry"], gap["over"]) == (72_000, 1, True)
    other = page.evaluate(BY_HAND, [3, 44_100, False])
    assert (other["played"], other["dry"], other["over"]) == (72_000, 0, True)
    assert other["voiced"] == pytest.approx(3 * 44_100, abs=2)


def test_where_it_cannot_be_played_there_is_the_file_and_the_switch_is_remembered(page):
    good_clip(page)
    for missing in ("AudioWorkletNode", "WebSocket"):
        page.evaluate(f"() => {{ window.kept = window.{missing}; window.{missing} = undefined; }}")
        heard, samples = make(page, "[fake:seconds=1] A sentence to speak.")
        assert (heard["state"], samples) == ("file", 24_000)
        expect(page.locator("#heard [role=status]")).to_contain_text("could not be played")
        page.evaluate(f"() => {{ window.{missing} = window.kept; }}")
    page.evaluate("() => { AudioWorklet.prototype.addModule = () => Promise.reject(new Error('refused')); }")
    assert make(page, "[fake:seconds=1] A sentence to speak.")[0]["state"] == "file"

    page.locator("#live input").uncheck()
    page.reload()
    page.locator("[data-engine=ready]").first.wait_for()
    expect(page.locator("#live input")).not_to_be_checked()
    assert page.evaluate("cosyui.player.begin(['text', false])") == ["text", False]
    assert stats(page)["state"] == "idle"
