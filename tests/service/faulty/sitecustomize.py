"""Put on the path of an engine's process, this makes one call of one stage go wrong, when it is told to.

A file ``$FAULTS/<stage>-<kind>`` asks for it; the first call of that stage takes the file away and has the fault.
"""

import os
import signal
import sys
from pathlib import Path

STAGES = {
    "text": ("cosyui.speech.prompt_format", "TextFrontend", "segments"),
    "prompt": ("cosyui.engine.prompts", "PromptCache", "_compute"),
    "prefill": ("cosyui.engine.slots", "SlotDecoder", "join"),
    "decode": ("cosyui.engine.slots", "SlotDecoder", "poll"),
    "flow": ("cosyui.engine.flow_runner", "FlowRunner", "run"),
    "vocoder": ("cosyui.engine.vocoder_runner", "VocoderRunner", "run"),
    "output": ("cosyui.engine.segment", "Attempt", "finish"),
}
FOLDER = Path(os.environ.get("FAULTS", "/nonexistent"))


def ordered(stage):
    """The kind of fault that is asked for, once."""
    for path in FOLDER.glob(f"{stage}-*"):
        path.unlink()
        return path.name.partition("-")[2]
    return None


def device_assert():
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")].cpu()
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def oom():
    import torch

    if torch.cuda.is_available():
        torch.empty(1 << 50, device="cuda")
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 TiB")


def host_memory():
    raise MemoryError


def exception():
    raise RuntimeError("a fault that was asked for")


ACTS = {
    "oom": oom,
    "memory": host_memory,
    "exception": exception,
    "hang": signal.pause,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "assert": device_assert,
}


def spoiled(result):
    """The same with no number in it that is one."""
    import dataclasses

    import numpy as np
    import torch

    from cosyui.engine.slots import Decoded

    match result:
        case torch.Tensor() if result.is_floating_point():
            return result * float("nan")
        case np.ndarray():
            return result * float("nan")
        case Decoded():
            return Decoded([], True, True)
        case list():
            return [spoiled(one) for one in result]
        case dict():
            return {key: spoiled(one) for key, one in result.items()}
        case _ if dataclasses.is_dataclass(result):
            names = [field.name for field in dataclasses.fields(result) if field.init]
            return dataclasses.replace(result, **{name: spoiled(getattr(result, name)) for name in names})
    return result


def install(stage):
    module, owner, name = STAGES[stage]
    place = getattr(__import__(module, fromlist=[owner]), owner)
    good = getattr(place, name)

    def faulty(*args, **kwargs):
        kind = ordered(stage)
        if kind is None:
            return good(*args, **kwargs)
        if kind != "nan":
            return ACTS[kind]()
        result = good(*args, **kwargs)
        if result == {}:  # of a decoder that has nothing to tell yet
            (FOLDER / f"{stage}-nan").touch()
        return spoiled(result)

    setattr(place, name, faulty)


if "cosyui.host.worker" in sys.orig_argv:
    for stage in STAGES:
        install(stage)
