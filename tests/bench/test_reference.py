"""The reference implementation is timed as it is, or a sentence says why not: with a stand-in of a few lines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cosyui.bench import reference

FAKE_REFERENCE = """
from pathlib import Path

import torch

class Encoder:
    def forward_one_step(self, xs, masks, cache):
        assert masks.shape == (1, xs.shape[1], xs.shape[1])
        kept = xs if cache is None else torch.cat([cache, xs], 1)
        return kept.cumsum(1)[:, -xs.shape[1] :], kept

class Llm:
    llm, llm_decoder = Encoder(), torch.nn.Linear(8, 3)

    def inference(self, max_token_text_ratio=20, min_token_text_ratio=2):
        assert max_token_text_ratio == min_token_text_ratio
        return max_token_text_ratio

class Model:
    llm, token_hop_len = Llm(), 25

class Tokenizer:
    def encode(self, text):
        return [7] if text == "<|endofprompt|>" else [1, 7, 2]

class Frontend:
    tokenizer = Tokenizer()

class CosyVoice3:
    sample_rate = 24000

    def __init__(self, model_dir):
        self.model, self.frontend = Model(), Frontend()
        self.random = not any(Path(model_dir, "CosyVoice-BlankEN").glob("*.safetensors"))
        if self.random:
            import transformers
            assert transformers.Qwen2ForCausalLM.from_pretrained(model_dir) == "random weights"

    def inference_zero_shot(self, text, transcript, clip, stream, text_frontend):
        assert "<|endofprompt|>" in transcript and open(clip, "rb").read(4) == b"RIFF"
        assert (151646 in self.frontend.tokenizer.encode(transcript)) == self.random
        seconds = int(self.model.llm.inference() / 25) * len(text.split())
        for _ in range(seconds if stream else 1):
            self.model.token_hop_len *= 2
            yield {"tts_speech": torch.zeros(1, 24000 if stream else 24000 * seconds)}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reference of a few lines, which is the model folder, too: a random one."""
    package = tmp_path / "cosyvoice" / "cli"
    package.mkdir(parents=True)
    (package / "cosyvoice.py").write_text(FAKE_REFERENCE)
    (package / "__init__.py").touch()
    for name in ("cosyvoice", "cosyvoice.cli", "cosyvoice.cli.cosyvoice"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    config = SimpleNamespace(from_pretrained=lambda _: "random weights")
    library = SimpleNamespace(Qwen2ForCausalLM=type("Qwen2", (str,), {}), AutoConfig=config, __version__="4.51.3")
    monkeypatch.setitem(sys.modules, "transformers", library)
    tf32, level = torch.backends.cudnn.allow_tf32, logging.getLogger().level
    yield tmp_path
    torch.backends.cudnn.allow_tf32 = tf32
    logging.getLogger().setLevel(level)


def of_reference(checkout: Path) -> dict[str, Any]:
    path = list(sys.path)
    found = reference.measure(checkout, checkout, ["a", "a b c", "a b c"], np.zeros(24_000, np.float32), 25.0)
    assert sys.path == path
    return found


@pytest.mark.parametrize("random", [True, False])
def test_a_reference_is_timed_on_the_same_texts(checkout: Path, random: bool) -> None:
    if not random:
        (checkout / "CosyVoice-BlankEN").mkdir()
        (checkout / "CosyVoice-BlankEN" / "model.safetensors").touch()
    found = of_reference(checkout)
    assert found["speech_s"] == 3
    assert found["rtf"] == pytest.approx(found["wall_s"] / 3, rel=0.5)
    assert min(found["first_chunk_ms"], found["first_chunk_later_ms"]) > 0
    assert (found["precision"], found["transformers"]) == ("float32", "4.51.3")
    assert "noise" not in found


def test_a_reference_that_forgets_what_it_read_is_named(checkout: Path) -> None:
    code = checkout / "cosyvoice" / "cli" / "cosyvoice.py"
    code.write_text(FAKE_REFERENCE.replace("torch.cat([cache, xs], 1)", "xs"))
    found = of_reference(checkout)
    assert "transformers 4.51.3 is not what the reference was made for" in found["noise"]
    assert found["speech_s"] == 3


def test_a_reference_that_says_nothing_is_named(checkout: Path) -> None:
    code = checkout / "cosyvoice" / "cli" / "cosyvoice.py"
    code.write_text(FAKE_REFERENCE.replace("len(text.split())", "0"))
    assert of_reference(checkout) == {"missing": "The reference does not speak: ValueError: no speech came out."}


def test_a_reference_that_cannot_be_imported_is_named(checkout: Path) -> None:
    (checkout / "cosyvoice" / "cli" / "cosyvoice.py").write_text("import a_package_that_nobody_has\n")
    found = of_reference(checkout)
    assert found == {
        "missing": "The reference needs the package a_package_that_nobody_has, which is not installed here."
    }
    assert reference.compared(found, {"rtf": 1.0}) == found
    assert reference.compared({"rtf": 3.0}, {"rtf": 0.1})["times_faster"] == pytest.approx(30)
