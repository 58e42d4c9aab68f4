"""The teacher's weights: Kokoro-82M as int8 ONNX to plain arrays under the names of the PyTorch modules.

``python -m cosyui.voice_training.teacher_weights kokoro-v1.0.int8.onnx kokoro-w8.npz`` keeps the 8-bit values with
their scales: 85 MB that `cosyui.voice_training.teacher` reads without ONNX.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Entry:
    """``values``, or (``values`` - ``zero``) * ``scale`` where a scale is given."""

    values: Array
    scale: Array | None = None
    zero: Array | None = None

    def floats(self) -> NDArray[np.float32]:
        wide = self.values.astype(np.float32)
        if self.scale is None:
            return wide
        zero = np.float32(0) if self.zero is None else self.zero.astype(np.float32)
        return np.asarray((wide - zero) * self.scale.astype(np.float32), np.float32)


def module_path(node: str) -> str:
    """Name of the PyTorch module that an ONNX node was exported from."""
    path = node.rsplit("/", 1)[0]
    if path.startswith("/decoder/decoder/"):
        path = "decoder." + path.removeprefix("/decoder/decoder/")
    elif re.match(r"/encoder/(F0|N)[._]", path) or path.startswith("/encoder/shared"):
        path = "predictor." + path.removeprefix("/encoder/")
    else:
        path = path.removeprefix("/encoder/")
    path = path.replace("/", ".")
    path = re.sub(r"text_encoder\.cnn\.(\d)\.cnn\.\1\.0", r"text_encoder.cnn.\1.0", path)
    return re.sub(r"asr_res\.asr_res\.0", "asr_res.0", path)


def _quantised_layer(node: Any, path: str, arrays: dict[str, Array]) -> dict[str, Entry]:
    """A convolution or a matrix product with 8-bit weights."""
    name = node.input[1]
    if name not in arrays or (re.search(r"_\d+$", path) and "albert" in path):  # repeated layers share weights
        return {}
    values, zero, scale = arrays[name], arrays[node.input[3]], arrays[name.replace("_quantized", "_scale")]
    if node.op_type == "ConvInteger":
        return {f"{path}.weight": Entry(values, scale, zero)}
    assert not zero.any(), "8-bit matrices are symmetric"
    scale = scale.reshape(-1, 1) if scale.ndim else scale
    return {f"{path}.weight": Entry(np.ascontiguousarray(values.T), scale)}


def _torch_gates(array: Array) -> Array:
    """ONNX's gate order i, o, f, c on the last axis to PyTorch's i, f, c, o on the first."""
    i, o, f, c = np.split(array, 4, -1)
    return np.ascontiguousarray(np.concatenate([i, f, c, o], -1).T)


def _lstm(node: Any, path: str, arrays: dict[str, Array]) -> dict[str, Entry]:
    inner, recurrent, bias = (arrays[node.input[k]] for k in (1, 2, 3))
    inner_scale, recurrent_scale = arrays[node.input[8]], arrays[node.input[10]]
    width = recurrent.shape[1]
    entries: dict[str, Entry] = {}
    for direction, suffix in enumerate(("", "_reverse")):
        biases = bias[direction][None]
        entries |= {
            f"{path}.weight_ih_l0{suffix}": Entry(_torch_gates(inner[direction]), np.asarray(inner_scale[direction])),
            f"{path}.weight_hh_l0{suffix}": Entry(
                _torch_gates(recurrent[direction]), np.asarray(recurrent_scale[direction])
            ),
            f"{path}.bias_ih_l0{suffix}": Entry(_torch_gates(biases[:, : 4 * width]).reshape(-1)),
            f"{path}.bias_hh_l0{suffix}": Entry(_torch_gates(biases[:, 4 * width :]).reshape(-1)),
        }
    return entries


def _layers(node: Any, arrays: dict[str, Array]) -> dict[str, Entry]:
    path = module_path(node.name) if node.name else ""
    kind, given = node.op_type, len(node.input) > 1 and node.input[1] in arrays
    if kind in ("ConvInteger", "MatMulInteger"):
        return _quantised_layer(node, path, arrays)
    if kind in ("Conv", "ConvTranspose") and given and "istft" not in path:
        return {f"{path}.weight": Entry(arrays[node.input[1]])}
    if kind == "MatMul" and given:
        return {f"{path}.weight": Entry(np.ascontiguousarray(arrays[node.input[1]].T))}
    return _lstm(node, path, arrays) if kind == "DynamicQuantizeLSTM" else {}


def _named(arrays: dict[str, Array], found: dict[str, Entry]) -> dict[str, Entry]:
    """Arrays that keep their PyTorch name in the file: biases, norms, embeddings."""
    entries = {}
    for key, values in arrays.items():
        match = re.match(r"(?:encoder|decoder)\.(.*)", key)
        quantised = key.endswith("_quantized")
        if not match or key.endswith("_scale") or not (quantised or values.dtype == np.float32):
            continue
        name = match.group(1)
        if "istft" in name or "reshape_shape" in name:
            continue
        if not quantised:
            entries[name] = Entry(values)
        elif "embedding" in name:
            zero = arrays.get(key.replace("_quantized", "_zero_point"))
            entries[name.removesuffix("_quantized")] = Entry(values, arrays[key.replace("_quantized", "_scale")], zero)
    return {name: entry for name, entry in entries.items() if name not in found}


def of_onnx(file: Path) -> dict[str, Entry]:
    """All weights of the int8 export."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file)).graph
    arrays = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    found: dict[str, Entry] = {}
    for node in graph.node:
        found |= _layers(node, arrays)
    return found | _named(arrays, found)


def write(entries: dict[str, Entry], file: Path) -> None:
    """As ``.npz``: 8-bit values with ``NAME|s`` and ``NAME|z``, large float arrays as halves."""
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        wide = entry.values.dtype == np.float32 and entry.values.size > 4096
        arrays[name] = entry.values.astype(np.float16) if wide else entry.values
        if entry.scale is not None:
            arrays[f"{name}|s"] = entry.scale
            arrays[f"{name}|z"] = np.zeros((), np.int8) if entry.zero is None else entry.zero
    np.savez(file, **arrays)  # type: ignore[arg-type]


def read(file: Path) -> dict[str, NDArray[np.float32]]:
    """The float arrays of an ``.npz`` that `write` made."""
    data = np.load(file)
    arrays = {}
    for name in data.files:
        if "|" not in name:
            scaled = f"{name}|s" in data.files
            entry = Entry(data[name], data[f"{name}|s"], data[f"{name}|z"]) if scaled else Entry(data[name])
            arrays[name] = entry.floats()
    return arrays


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Pack the teacher's int8 ONNX file for the GPU machine.")
    parser.add_argument("onnx", type=Path, help="kokoro-v1.0.int8.onnx")
    parser.add_argument("out", type=Path, help="file to write, e.g. teacher/kokoro-w8.npz")
    args = parser.parse_args(argv)
    entries = of_onnx(args.onnx)
    write(entries, args.out)
    print(f"{len(entries)} tensors, {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
