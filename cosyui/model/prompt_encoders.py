"""The two networks that describe a prompt clip, run through ONNX Runtime with the released files' signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import CheckpointError

if TYPE_CHECKING:
    import onnxruntime

SPEAKER_FILE = "campplus.onnx"
TOKENIZER_FILE = "speech_tokenizer_v3.onnx"


def open_session(path: Path, inputs: tuple[str, ...], threads: int) -> onnxruntime.InferenceSession:
    """An ONNX session on the CPU. Raises CheckpointError when the file cannot be read or has other inputs."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    faults = (ort_errors.Fail, ort_errors.InvalidProtobuf, ort_errors.InvalidGraph, ort_errors.NoSuchFile)
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (*faults, ort_errors.InvalidArgument, ort_errors.NotImplemented) as error:
        raise CheckpointError(
            "checkpoint_corrupt", f"{path.name} cannot be read ({type(error).__name__}): download it again."
        ) from error
    found = tuple(node.name for node in session.get_inputs())
    if found != inputs:
        raise CheckpointError(
            "checkpoint_corrupt", f"{path.name} has the inputs {found}, expected {inputs}: is it the released file?"
        )
    return session


def provider_of(session: onnxruntime.InferenceSession) -> str:
    """What it runs on, as ``CPU``."""
    first: str = session.get_providers()[0]
    return first.removesuffix("ExecutionProvider")


def shrink(session: onnxruntime.InferenceSession, feeds: dict[str, NDArray[Any]]) -> None:
    """Have a session give its unused memory back, which it does behind a run: one of small ``feeds``."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, feeds, options)


class SpeakerEncoder:
    """CAM++: filter bank -> speaker vector."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.session = open_session(path, ("input",), threads)
        self.provider = provider_of(self.session)

    def __call__(self, fbank: NDArray[np.float32]) -> NDArray[np.float32]:
        """Kaldi filter bank (T, 80), mean over time removed -> (192,) float32."""
        outputs: list[Any] = self.session.run(None, {"input": fbank[None].astype(np.float32)})
        return np.asarray(outputs[0], dtype=np.float32).reshape(-1)

    def shrink(self) -> None:
        """Give unused memory back."""
        shrink(self.session, {"input": np.zeros((1, 100, 80), np.float32)})


class SpeechTokenizer:
    """Speech tokenizer v3: whisper log-mel -> 25 speech tokens a second."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.session = open_session(path, ("feats", "feats_length"), threads)
        self.provider = provider_of(self.session)

    def __call__(self, log_mel: NDArray[np.float32]) -> NDArray[np.int64]:
        """Whisper log-mel (128, T) at 100 frames/s -> (ceil(ceil(T/2)/2),) int64."""
        feeds = {
            "feats": log_mel[None].astype(np.float32),
            "feats_length": np.array([log_mel.shape[1]], dtype=np.int32),
        }
        outputs: list[Any] = self.session.run(None, feeds)
        return np.asarray(outputs[0]).reshape(-1).astype(np.int64)

    def shrink(self) -> None:
        """Give unused memory back."""
        feeds = {"feats": np.zeros((1, 128, 100), np.float32), "feats_length": np.array([100], np.int32)}
        shrink(self.session, feeds)
