"""``python -m cosyui.bench parity DIR``: every golden file of a folder against this implementation."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from cosyui.bench.parity import flow, llm, pipeline, text, vocoder
from cosyui.bench.parity.deviation import Deviation
from cosyui.bench.parity.folder import Folder
from cosyui.engine.config import Precision
from cosyui.engine.precision import by_hand, choose_device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder with checkpoint/ and golden/")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument(
        "--precision",
        default="float32",
        choices=("float32", "float16", "bfloat16"),
        help="tolerances stay those of float32",
    )
    parser.add_argument("--only", default="", help="golden files to check, separated by commas (default: all)")
    parser.add_argument("--verbose", action="store_true", help="print every comparison, not only the worst of a file")


def checks_of(folder: Folder) -> dict[str, Callable[[], Iterator[Deviation]]]:
    """Golden file name -> the comparisons that belong to it."""
    found: dict[str, Callable[[], Iterator[Deviation]]] = {}
    for module in (llm, flow, vocoder, pipeline):
        for name, check in module.CHECKS.items():
            found[name] = lambda check=check: check(folder)  # type: ignore[misc]
    for name, text_check in text.CHECKS.items():
        found[name] = lambda check=text_check: check(folder.checkpoint, folder.golden)  # type: ignore[misc]
    return found


def line(name: str, deviations: list[Deviation]) -> tuple[str, bool]:
    """The report line of one golden file: its worst comparison, and whether all hold."""
    ok = bool(deviations) and all(deviation.ok for deviation in deviations)
    if not deviations:
        return f"{name:<26} nothing was compared  FAIL", False
    worst = max(deviations, key=lambda d: (not d.ok, d.error / d.tolerance if d.tolerance else d.error))
    verdict = "ok" if ok else f"FAIL ({worst.what})"
    return f"{name:<26} max error {worst.error:9.2e}  tolerance {worst.tolerance:8.1e}  {verdict}", ok


@torch.inference_mode()
def run(args: argparse.Namespace) -> int:
    """Print a line per golden file, then ``parity: N of M``; 0 only if all hold."""
    device = choose_device(args.device)
    precision: Precision = args.precision
    stages = by_hand(precision)
    folder = Folder(args.folder / "checkpoint", args.folder / "golden", device, stages)
    wanted = [name for name in args.only.split(",") if name]
    files = wanted or sorted(path.name for path in folder.golden.iterdir() if path.is_file())
    checks, passed = checks_of(folder), 0
    for name in files:
        try:
            deviations = list(checks[name]()) if name in checks else []
        except Exception as error:  # noqa: BLE001 - a check that breaks is a check that fails; the others go on
            print(f"{name:<26} {type(error).__name__}: {error}  FAIL", flush=True)
            continue
        report, ok = line(name, deviations)
        passed += ok
        print(report, flush=True)
        if args.verbose:
            for deviation in deviations:
                mark = "ok" if deviation.ok else "FAIL"
                print(f"    {deviation.what:<56} {deviation.error:9.2e}  {deviation.tolerance:8.1e}  {mark}")
    print(f"parity: {passed} of {len(files)}")
    return 0 if passed == len(files) and files else 1
