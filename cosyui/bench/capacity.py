"""``python -m cosyui.bench capacity``: how many replicas a load needs, from what one was measured to do.

The number is the smallest that keeps the bounds in a simulation of the queue; what can be computed stands beside it.
``--check`` compares both with a service on this machine.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cosyui.bench import measured
from cosyui.bench.queueing import Bound, Curve, Load, Outlook, computed
from cosyui.bench.simulate import replicas_for, simulated
from cosyui.errors import SetupError

TABLE = (60, 300, 1000, 2000, 3000, 6000, 12000, 30000)
"""Takes a minute."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--card", choices=sorted(measured.H200), default="h200-64", help="measured here (h200-64)")
    parser.add_argument("--measured", type=Path, nargs="+", metavar="FILE", help="what the bench wrote with --json")
    parser.add_argument("--speeds", metavar="POINTS", help="takes at work and seconds of speech a second: 1:49,64:450")
    parser.add_argument("--firsts", metavar="POINTS", help="takes at work and seconds to the first sound, p95")
    parser.add_argument("--extra", type=float, default=0.0, help="seconds of speech that each take costs more")
    parser.add_argument("--per-minute", type=_positive, metavar="N", help="takes; without it a table of many loads")
    parser.add_argument("--seconds", type=_positive, default=10.0, help="of speech a take, mean (default 10)")
    parser.add_argument("--spread", type=float, default=0.5, help="standard deviation over mean (default 0.5)")
    parser.add_argument("--wait", type=_positive, default=1.0, help="bound of waiting for a place, p95, seconds (1)")
    parser.add_argument("--first", type=_positive, default=math.inf, help="bound of the first sound, p95, seconds")
    parser.add_argument("--queue", type=int, default=1000, help="how many may wait (default 1000)")
    parser.add_argument("--spare", type=int, default=1, help="replicas that may be lost (default 1)")
    parser.add_argument("--takes", type=int, default=20_000, help="in each simulation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", metavar="DIR", help="fake, embedded or a model folder: measure here, and compare")
    parser.add_argument("--places", type=int, default=1, help="of the service that is checked (default 1)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of the engine that is checked")
    parser.add_argument("--busy", type=float, default=0.7, help="share of its speed that is asked for (default 0.7)")
    parser.add_argument("--count", type=int, default=100, help="takes of each part of a check (default 100)")
    parser.add_argument("--words", type=int, default=10, help="of a text in a check, half to one and a half times that")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def run(args: argparse.Namespace) -> int:
    if args.check:
        from cosyui.bench import open_load

        rows = open_load.check(args)
    else:
        curve = _curve(args)
        bound = Bound(args.wait, args.first, args.queue)
        rates = [args.per_minute] if args.per_minute else TABLE
        loads = [Load(rate / 60, args.seconds, args.spread) for rate in rates]
        rows = [planned(curve, load, bound, args.spare, args.takes, args.seed) for load in loads]
        print(markdown(rows))
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0


def planned(curve: Curve, load: Load, bound: Bound, spare: int, takes: int, seed: int) -> dict[str, Any]:
    """A row: the load, the replicas that it needs, and what takes will meet there."""
    needed = replicas_for(curve, load, bound, takes=takes, seed=seed)
    row: dict[str, Any] = {"takes a minute": round(load.per_second * 60), "speech s/s": round(load.speech, 1)}
    if needed is None:
        return row | dict.fromkeys(("replicas", "with spare", *_shown(simulated(curve, load))), None)
    found = simulated(curve, load, needed, bound, takes, seed)
    row |= {"replicas": needed, "with spare": needed + spare, **_shown(found)}
    return row | {"wait p95 computed": round(computed(curve, load, needed).wait_p95, 3)}


def _shown(found: Outlook) -> dict[str, float]:
    figures = asdict(found)
    names = {"busy": "busy", "takes": "takes at work each", "wait_p50": "wait p50", "wait_p95": "wait p95"}
    return {shown: round(figures[name], 3) for name, shown in names.items()} | {"first p95": round(found.first_p95, 3)}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table; every row has the names of the first."""
    names = list(rows[0])
    lines = [
        names,
        ["---"] * len(names),
        *(["–" if row[name] is None else f"{row[name]}" for name in names] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _curve(args: argparse.Namespace) -> Curve:
    if args.measured:
        return replace(measured.read(args.measured), extra=args.extra)
    if args.speeds:
        return Curve(measured.typed(args.speeds), measured.typed(args.firsts) if args.firsts else {}, args.extra)
    if args.firsts or args.extra:
        raise SetupError("setting_invalid", "--firsts and --extra belong to --speeds or --measured.")
    return measured.H200[args.card]


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("it has to be a number above 0")
    return value
