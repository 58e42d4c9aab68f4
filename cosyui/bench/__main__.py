"""``python -m cosyui.bench COMMAND``: measuring tools, each with its own ``--help``."""

from __future__ import annotations

import argparse
import importlib
import sys

from cosyui.errors import CosyuiError

COMMANDS = {
    "parity": ("cosyui.bench.parity.run", "compare with the golden data of a folder"),
    "make-checkpoint": ("cosyui.bench.make_checkpoint", "write a random checkpoint in the released layout"),
    "capacity": ("cosyui.bench.capacity", "how many replicas a load needs, from what one was measured to do"),
    "devices": ("cosyui.bench.devices", "throughput of several GPUs against one"),
    "engine": ("cosyui.bench.engine", "time one request, first chunks, decoding, and many requests at once"),
    "stream": ("cosyui.bench.stream", "time listeners at once, and long streams"),
    "memory": ("cosyui.bench.memory", "mixed requests for long: memory at its level, nothing lost or swapped"),
    "service": ("cosyui.bench.service", "the whole service under a crowd, with soft restarts and a look at the ETAs"),
    "http": ("cosyui.bench.http", "clients of a running server over HTTP: first sound, throughput, gaps"),
    "texts": ("cosyui.bench.texts", "judge what becomes of the texts of a file on their way to the model"),
    "voice": ("cosyui.bench.voice", "judge a voice: word error by ASR, similarity to the prompt"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 and one sentence on stderr when it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m cosyui.bench", description="Measuring tools of cosyui.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    arguments = sys.argv[1:] if argv is None else argv
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if arguments[:1] == [name]:  # a command's own needs are only imported for that command
            importlib.import_module(module).add_arguments(command)
    args = parser.parse_args(arguments)
    try:
        return int(importlib.import_module(COMMANDS[args.command][0]).run(args))
    except CosyuiError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
