"""A small ONNX graph writer, and the two encoders written with it. Weights are halves, arithmetic is float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, numpy_helper, save
from torch import Tensor, nn

from cosyui.voice_training.encoders import DIGITS, INSIDE, ConvNext, Speaker, Tokenizer

_SMALL = 64
"""Weights with up to so many values stay float32."""


class Graph:
    """Nodes are added by methods that return the name of their result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def axes(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def weight(self, tensor: Tensor) -> str:
        values = tensor.detach().float().numpy()
        if values.size <= _SMALL:
            return self.constant(values)
        return self.node("Cast", self.constant(values.astype(np.float16)), to=TensorProto.FLOAT)

    def node(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        name = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, layer: nn.Conv1d) -> str:
        assert layer.bias is not None
        padding = int(layer.padding[0])
        parts = (self.weight(layer.weight), self.weight(layer.bias))
        return self.node("Conv", x, *parts, strides=[layer.stride[0]], pads=[padding, padding], group=layer.groups)

    def linear(self, x: str, layer: nn.Linear) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(layer.weight.T)), self.weight(layer.bias))

    def gelu(self, x: str) -> str:
        bell = self.node("Erf", self.node("Mul", x, self.number(math.sqrt(0.5))))
        half = self.node("Mul", x, self.number(0.5))
        return self.node("Mul", half, self.node("Add", bell, self.number(1.0)))

    def layer_norm(self, x: str, layer: nn.LayerNorm) -> str:
        parts = (self.weight(layer.weight), self.weight(layer.bias))
        return self.node("LayerNormalization", x, *parts, axis=-1, epsilon=layer.eps)

    def transpose(self, x: str) -> str:
        return self.node("Transpose", x, perm=[0, 2, 1])

    def convnext(self, x: str, block: ConvNext) -> str:
        h = self.layer_norm(self.transpose(self.conv(x, block.dw)), block.n)
        h = self.linear(self.gelu(self.linear(h, block.a)), block.b)
        return self.node("Add", x, self.transpose(self.node("Mul", h, self.weight(block.g))))

    def save(self, file: Path, inputs: list[Any], outputs: list[Any]) -> None:
        graph = helper.make_graph(self.nodes, file.name, inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        checker.check_model(model)
        save(model, str(file))


def _convnexts(graph: Graph, x: str, blocks: nn.ModuleList) -> str:
    for block in blocks:
        assert isinstance(block, ConvNext)
        x = graph.convnext(x, block)
    return x


def write_tokenizer(model: Tokenizer, file: Path) -> None:
    """``feats`` float (1, 128, T), ``feats_length`` int32 (1) -> ``indices`` int64 (1, N), N = ceil(ceil(T/2)/2)."""
    g = Graph()
    x = g.node("Sub", "feats", g.node("ReduceMean", "feats", g.axes(2), keepdims=1))
    x = g.gelu(g.conv(g.gelu(g.conv(x, model.c1)), model.c2))
    x = _convnexts(g, x, model.blocks)
    latent = g.node("Tanh", g.linear(g.layer_norm(g.transpose(x), model.n), model.out))
    digits = g.node("Add", g.node("Round", g.node("Mul", latent, g.number(INSIDE))), g.number(1.0))
    powers = g.constant((3.0 ** np.arange(DIGITS)).astype(np.float32))
    summed = g.node("ReduceSum", g.node("Mul", digits, powers), g.axes(-1), keepdims=0)
    every = g.node("Cast", summed, to=TensorProto.INT64)
    one, two = g.constant(np.array([1], np.int32)), g.constant(np.array([2], np.int32))
    count = "feats_length"
    for _ in range(2):
        count = g.node("Div", g.node("Add", count, one), two)
    longest = g.node("ReduceMax", g.node("Cast", count, to=TensorProto.INT64), keepdims=1)
    g.node("Slice", every, g.axes(0), longest, g.axes(1), out="indices")
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
    ]
    g.save(file, inputs, [helper.make_tensor_value_info("indices", TensorProto.INT64, [1, "N"])])


def write_speaker(model: Speaker, file: Path) -> None:
    """``input`` float (B, T, 80), mean-free filter bank -> ``output`` float (B, 192)."""
    g = Graph()
    x = _convnexts(g, g.gelu(g.conv(g.transpose("input"), model.inp)), model.blocks)
    into, back = model.att[0], model.att[2]
    assert isinstance(into, nn.Conv1d)
    assert isinstance(back, nn.Conv1d)
    weight = g.node("Softmax", g.conv(g.node("Tanh", g.conv(x, into)), back), axis=2)
    weighted = g.node("Mul", x, weight)
    mean = g.node("ReduceSum", weighted, g.axes(2), keepdims=0)
    square = g.node("ReduceSum", g.node("Mul", x, weighted), g.axes(2), keepdims=0)
    variance = g.node("Sub", square, g.node("Mul", mean, mean))
    deviation = g.node("Sqrt", g.node("Max", variance, g.number(1e-5)))
    both = g.node("Concat", mean, deviation, axis=1)
    g.node("Add", g.node("MatMul", both, g.weight(model.out.weight.T)), g.weight(model.out.bias), out="output")
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["B", "T", 80])]
    g.save(file, inputs, [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["B", 192])])
