"""Download, verify, load and warm up the model before the first start, and print a report.

``python preload_model.py --model hf:OWNER/NAME``. Options not given here are read from COSYUI_* variables, as by the
server. Exit code 0, or 2 after one sentence on what is wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cosyui.engine.base import EngineProtocol
from cosyui.engine.config import ENVIRONMENT, EngineConfig
from cosyui.engine.request import EngineFacts, EngineStats, Failed, Finished, Mode, RequestStats, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError
from cosyui.hub import Source, parse_source, resolve, verify_folder
from cosyui.settings import Settings

BAD_SETUP, INTERRUPTED = 2, 130
WARM_UP_TEXT = "Hello, it is good to hear you."
EXAMPLE_CLIP = Path(__file__).resolve().parent / "cosyui" / "assets" / "examples" / "en.wav"
EXAMPLE_TRANSCRIPT = "Teaching was, of course, the first thing that suggested itself."
MIB = 1 << 20


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("preload_model.py", description="Download, verify, load and warm up a model.")
    parser.add_argument("--model", help="'embedded', a folder, hf:OWNER/NAME or modelscope:OWNER/NAME")
    parser.add_argument("--llm-file", help="speech-token LLM of the checkpoint: llm.pt or llm.rl.pt")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--precision", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--threads", help="CPU threads; 0 leaves the default")
    parser.add_argument("--download-only", action="store_true", help="stop after the files are there and verified")
    parser.add_argument("--offline", action="store_true", help="use what is already downloaded")
    parser.add_argument("--refresh", action="store_true", help="ask the hub for newer files")
    parser.add_argument("--no-progress", action="store_true", help="no progress bars")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = arguments().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        names = ("model", "llm_file", "device", "precision", "threads")
        preload(Settings.load({name: getattr(args, name) for name in names}), args)
    except CosyuiError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_SETUP
    except KeyboardInterrupt:
        print("stopped; run the command again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


def preload(settings: Settings, args: argparse.Namespace) -> None:
    """All steps, each reported as soon as it is done. Raises CosyuiError."""
    source = parse_source(settings.model)
    began = time.perf_counter()
    folder = resolve(
        settings.model,
        llm_file=settings.llm_file,
        offline=args.offline,
        progress=not args.no_progress,
        refresh=args.refresh,
    )
    report_files(source, folder, verify_folder(folder, settings.llm_file), time.perf_counter() - began)
    if not args.download_only:
        load_and_speak(settings, folder)


def load_and_speak(settings: Settings, folder: Path) -> None:
    """Load the model as the server would, and let it say one sentence twice. Raises CosyuiError."""
    os.environ.update({**ENVIRONMENT, **os.environ})
    import torch

    from cosyui.engine.engine import Engine

    config = EngineConfig(
        model=str(folder),
        llm_file=settings.llm_file,
        device=settings.device,
        precision=settings.precision,
        threads=settings.threads,
        vram_budget=settings.vram_budget,
    )
    try:
        engine = Engine(config)
        report_model(engine.facts)
        report_speech("first sentence", speak(engine))
        report_speech("once more", speak(engine))  # with everything compiled, cached and paged in
        report_memory(engine.stats())
        engine.close()
    except torch.OutOfMemoryError as error:
        message = "The GPU has too little free memory for this model. Close other programs or use --device cpu."
        raise EngineError("out_of_memory", message) from error


def speak(engine: EngineProtocol) -> RequestStats:
    """Say `WARM_UP_TEXT` in the voice of the example clip. Raises EngineError if that fails."""
    from cosyui.speech.clip.intake import load_clip

    clip, _ = load_clip(EXAMPLE_CLIP, transcript=EXAMPLE_TRANSCRIPT)
    engine.submit(SynthesisRequest("warm-up", WARM_UP_TEXT, Mode.ZERO_SHOT, clip, seed=0))
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Failed):
                raise EngineError(event.code, f"The model is loaded but the warm-up sentence failed: {event.message}")
            if isinstance(event, Finished):
                return event.stats
    raise EngineError("engine_fault", "The engine dropped the warm-up sentence without saying why.")


def report_files(source: Source, folder: Path, sizes: dict[str, int], seconds: float) -> None:
    line("model", str(source))
    if source.kind != "local":
        line("folder", str(folder))
    for name, size in sizes.items():
        print(f"    {name:42}{size / MIB:10.2f} MiB")
    line("files", f"{len(sizes)}, {sum(sizes.values()) / MIB:.0f} MiB, complete and checked in {seconds:.1f} s")


def report_model(facts: EngineFacts) -> None:
    line("device", facts.device)
    line("loaded in", f"{facts.load_seconds:.1f} s")
    for part, count in facts.parameters.items():
        memory, precision = facts.memory.get(part, 0) / MIB, facts.precision.get(part, "")
        print(f"    {part:12}{count / 1e6:9.1f} M parameters{memory:10.1f} MiB  {precision}")
    if facts.demo_voice:
        line("note", "this is a small demo voice; for quality choose the released model with --model")
    for warning in facts.warnings:
        line("warning", warning)
    if facts.degraded is not None:
        line("warning", str(facts.degraded))


def report_speech(title: str, stats: RequestStats) -> None:
    stages = f"LLM {stats.llm_seconds:.2f}, flow {stats.flow_seconds:.2f}, vocoder {stats.vocoder_seconds:.2f}"
    line(
        title, f"{stats.total_seconds:.2f} s for {stats.speech_seconds:.2f} s of speech, RTF {stats.rtf:.3f} ({stages})"
    )


def report_memory(stats: EngineStats) -> None:
    line("process", f"{stats.rss / MIB:.0f} MiB of main memory")
    if stats.device_total:
        used = f"{stats.allocated / MIB:.0f} MiB allocated, {stats.reserved / MIB:.0f} MiB reserved"
        line("GPU", f"{used}, {stats.device_used / MIB:.0f} of {stats.device_total / MIB:.0f} MiB in use by all")


def line(title: str, text: str) -> None:
    print(f"{title:16}{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
