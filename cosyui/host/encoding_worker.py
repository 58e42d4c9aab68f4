"""The process of `cosyui.host.encoding`: encoders by number, one command after another."""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import BinaryIO

COMMAND = struct.Struct("<BII")
"""Command, number of the encoder, and bytes that follow: PCM, or what `OPEN` needs as JSON."""
ANSWER = struct.Struct("<I")
"""Bytes that follow; only to `ADD` and `FINISH`."""
OPEN, ADD, FINISH, CLOSE = range(4)


def serve(commands: BinaryIO, answers: BinaryIO) -> None:
    """Until there are no more commands."""
    from cosyui.speech.sound.encode import Encoder  # only where it is run: who starts it needs the names above

    encoders: dict[int, Encoder] = {}
    while head := commands.read(COMMAND.size):
        command, number, size = COMMAND.unpack(head)
        data = commands.read(size)
        if command == OPEN:
            encoders[number] = Encoder(*json.loads(data))
        elif command == CLOSE:
            encoders.pop(number).close()
        else:
            encoder = encoders[number]
            sound = encoder.add(data) if command == ADD else encoder.finish()
            answers.write(ANSWER.pack(len(sound)) + sound)
            answers.flush()


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # no stray print garbles the pipe
        serve(sys.stdin.buffer, out)
