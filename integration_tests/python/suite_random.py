#!/usr/bin/env python3
"""Random nodes and small graphs of the operators that the provider claims, against ONNX Runtime's CPU provider.

Each case is a model from a seed. No session may fail that the CPU provider opens, no run that it passes, and results must be
its results but for rounding. Extents change between runs where the model leaves them open.

`--nodes N --graphs N` chooses how many, `--seed S` which; without them a sample runs, as in `cargo xtask test`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import emulated_gpu
import workers
from ort_conformance import CPU, PROVIDER, register

SAMPLE = (400, 120)
# Seconds without an answer after which a worker hangs: graphs take seconds, and many times that where every core is busy.
PATIENCE = 1800
OPSET = 21

FLOAT, HALF, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
INT64, INT32, INT8, UINT8, BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL
NUMPY = {FLOAT: np.float32, HALF: np.float16, DOUBLE: np.float64, INT64: np.int64, INT32: np.int32, INT8: np.int8,
         UINT8: np.uint8, BOOL: np.bool_}


class Value:
    """A tensor of the model under construction: `symbols` has a name where an extent is free."""

    def __init__(self, name: str, kind: int, dims: list[int], positive: bool = False) -> None:
        self.name, self.kind, self.dims, self.positive = name, kind, list(dims), positive


class Build:
    """A model under construction."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[Value] = []
        self.constants: list[onnx.TensorProto] = []
        self.names = 0
        self.opset = OPSET
        self.fixed = False

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def choice(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def extent(self, most: int = 9) -> int:
        if self.chance(0.02) and not self.fixed:
            return 0
        return self.random.randint(1, most)

    def dims(self, least: int = 0, most: int = 5) -> list[int]:
        return [self.extent() for _ in range(self.random.randint(least, most))]

    def input(self, kind: int, dims: list[int], positive: bool = False) -> Value:
        value = Value(self.name(), kind, dims, positive)
        self.inputs.append(value)
        return value

    def content(self, kind: int, dims: list[int], positive: bool = False) -> np.ndarray:
        return content(self.numbers, kind, dims, positive)

    def constant(self, array: np.ndarray, name: str = "") -> str:
        name = name or self.name()
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def operand(self, kind: int, dims: list[int], positive: bool = False) -> str:
        """An input of the model, or a constant."""
        if self.chance(0.35):
            return self.constant(self.content(kind, dims, positive))
        return self.input(kind, dims, positive).name

    def broadcastable(self, dims: list[int]) -> list[int]:
        """Extents that broadcast to `dims`."""
        own = [1 if self.chance(0.3) else extent for extent in dims]
        return own[self.random.randint(0, len(own)):] if self.chance(0.3) and own else own

    def node(self, operator: str, inputs: list[str], outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        names = [self.name() for _ in range(outputs)]
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        free = not self.fixed and self.chance(0.3)
        declared = []
        for value in self.inputs:
            dims: list[Any] = [f"{value.name}_{axis}" if free else extent for axis, extent in enumerate(value.dims)]
            declared.append(helper.make_tensor_value_info(value.name, value.kind, dims))
        graph = helper.make_graph(self.nodes, "random", declared, [onnx.ValueInfoProto(name=name) for name in outputs],
                                  self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def content(numbers: np.random.Generator, kind: int, dims: list[int], positive: bool = False) -> np.ndarray:
    dtype = NUMPY[kind]
    if kind == BOOL:
        return numbers.integers(0, 2, dims).astype(dtype)
    if kind in (INT8, UINT8, INT32, INT64):
        low, high = {INT8: (-128, 128), UINT8: (0, 256)}.get(kind, (-1000, 1000))
        drawn = numbers.integers(1 if positive else low, high, dims).astype(dtype)
        return drawn
    drawn = numbers.standard_normal(dims) * 2
    if positive:
        drawn = np.abs(drawn) + 0.1
    return np.asarray(drawn).astype(dtype)


# Nodes: each takes the model and a value to read, or makes its own, and gives the names of its results with kinds.

FLOATS = (FLOAT, FLOAT, FLOAT, HALF)


def unary(operator: str, positive: bool = False, kinds: tuple[int, ...] = FLOATS, **attributes: Callable[[Build], Any]) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        kind = b.choice(*kinds)
        x = x or b.input(kind, b.dims(), positive)
        return b.node(operator, [x.name], **{name: draw(b) for name, draw in attributes.items()})
    return make


def number(low: float, high: float) -> Callable[[Build], float]:
    return lambda b: b.random.uniform(low, high)


def binary(operator: str, kinds: tuple[int, ...] = FLOATS, positive: bool = False) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        kind = x.kind if x else b.choice(*kinds)
        dims = x.dims if x else b.dims()
        if x is None and b.chance(0.3):
            x = b.input(kind, b.broadcastable(dims))
        x = x or b.input(kind, dims)
        other = b.operand(kind, b.broadcastable(dims), positive)
        pair = [x.name, other]
        if not positive and b.chance(0.3):
            pair.reverse()
        return b.node(operator, pair)
    return make


def variadic(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        kind = x.kind if x else b.choice(*FLOATS)
        x = x or b.input(kind, b.dims())
        others = [b.operand(kind, b.broadcastable(x.dims)) for _ in range(b.random.randint(0, 3))]
        return b.node(operator, [x.name, *others])
    return make


def logical(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        dims = b.dims()
        return b.node(operator, [b.input(BOOL, dims).name, b.operand(BOOL, b.broadcastable(dims))])
    return make


def where(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(*FLOATS, INT64, INT32)
    dims = x.dims if x else b.dims()
    first = x.name if x else b.operand(kind, b.broadcastable(dims))
    return b.node("Where", [b.input(BOOL, b.broadcastable(dims)).name, first, b.operand(kind, b.broadcastable(dims))])


def clip(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(*FLOATS, DOUBLE, INT64, INT32)
    x = x or b.input(kind, b.dims())
    bounds = [b.operand(kind, []) if b.chance(0.7) else "" for _ in range(2)]
    return b.node("Clip", [x.name, *bounds])


def prelu(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(FLOAT, HALF)
    x = x or b.input(kind, b.dims(1))
    return b.node("PRelu", [x.name, b.operand(kind, [1 if b.chance(0.4) else extent for extent in x.dims])])


def cast(b: Build, x: Value | None = None) -> list[str]:
    kinds = (FLOAT, HALF, DOUBLE, INT64, INT32, INT8, UINT8, BOOL)
    kind = x.kind if x else b.choice(*kinds)
    x = x or b.input(kind, b.dims())
    return b.node("Cast", [x.name], to=b.choice(*kinds))


def power(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(FLOAT, HALF)
    x = x or b.input(kind, b.dims(), positive=True)
    exponent = b.choice(0.5, 1, 2, 3, 4, -1, -2, -0.5)
    return b.node("Pow", [x.name, b.constant(np.asarray(exponent, NUMPY[kind]).reshape([1] * b.choice(0, 1)))])


def image(b: Build, kind: int, channels: int, spatial: int, least: int = 1) -> Value:
    b_extents = [max(least, b.extent(12)) for _ in range(spatial)]
    return b.input(kind, [max(1, b.extent(3)), channels, *b_extents])


def window(b: Build, spatial: int, kernel: list[int], dilations: bool, extents: list[int], any_pads: bool = True) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if b.chance(0.6):
        attributes["strides"] = [b.random.randint(1, 4) for _ in range(spatial)]
    if dilations and b.chance(0.4):
        attributes["dilations"] = [b.random.randint(1, 3) for _ in range(spatial)]
    if b.chance(0.25):
        attributes["auto_pad"] = b.choice("SAME_UPPER", "SAME_LOWER", "VALID")
        if attributes["auto_pad"] != "VALID":
            attributes.pop("dilations", None)
    elif b.chance(0.6):
        most = [max(0, extent - 1) if not any_pads else extent for extent in kernel]
        attributes["pads"] = [b.random.randint(0, most[axis % spatial]) for axis in range(2 * spatial)]
    return attributes


def hold_together(b: Build, operands: list[str]) -> None:
    """Keeps extents from changing between runs where one of weights and bias is a constant: the other's have to stay as they are, and
    the CPU provider reads whatever is behind a bias that is too short."""
    constants = {tensor.name for tensor in b.constants}
    if len({name in constants for name in operands}) > 1:
        b.fixed = True


def convolution(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(*FLOATS)
    group = 1 if x else b.choice(1, 1, 2, 3, 4)
    if x is None:
        x = image(b, kind, group * b.random.randint(1, 4), b.random.randint(1, 3), 3)
    spatial = len(x.dims) - 2
    kernel = [b.random.randint(1, 4) for _ in range(spatial)]
    filters = group * b.random.randint(1, 5)
    inputs = [x.name, b.operand(kind, [filters, x.dims[1] // group, *kernel])]
    if b.chance(0.6):
        inputs.append(b.operand(kind, [filters]))
    hold_together(b, inputs[1:])
    return b.node("Conv", inputs, group=group, **window(b, spatial, kernel, True, x.dims[2:]))


def transposed_convolution(b: Build, x: Value | None = None) -> list[str]:
    kind, group = FLOAT, b.choice(1, 1, 2, 3)
    spatial = b.random.randint(1, 3)
    x = image(b, kind, group * b.random.randint(1, 3), spatial)
    kernel = [b.random.randint(1, 4) for _ in range(spatial)]
    filters = b.random.randint(1, 4)
    inputs = [x.name, b.operand(kind, [x.dims[1], filters, *kernel])]
    if b.chance(0.6):
        inputs.append(b.operand(kind, [filters * group]))
    hold_together(b, inputs[1:])
    attributes: dict[str, Any] = {"strides": [b.random.randint(1, 3) for _ in range(spatial)]}
    if b.chance(0.3):
        attributes["dilations"] = [b.random.randint(1, 2) for _ in range(spatial)]
    if b.chance(0.4):
        attributes["output_padding"] = [b.random.randint(0, stride - 1) for stride in attributes["strides"]]
    if b.chance(0.25):
        attributes["auto_pad"] = b.choice("SAME_UPPER", "SAME_LOWER", "VALID")
    elif b.chance(0.5):
        attributes["pads"] = [b.random.randint(0, max(0, kernel[axis % spatial] - 1)) for axis in range(2 * spatial)]
    return b.node("ConvTranspose", inputs, group=group, **attributes)


def pool(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        kinds = (FLOAT, FLOAT, HALF, INT8, UINT8) if operator == "MaxPool" else (FLOAT, FLOAT, HALF)
        kind = x.kind if x else b.choice(*kinds)
        x = x or image(b, kind, b.random.randint(1, 5), b.random.randint(1, 3), 2)
        spatial = len(x.dims) - 2
        kernel = [b.random.randint(1, 4) for _ in range(spatial)]
        attributes = window(b, spatial, kernel, operator != "LpPool", x.dims[2:], any_pads=False)
        if "auto_pad" not in attributes and b.chance(0.4) and operator != "LpPool":
            attributes["ceil_mode"] = 1
        if operator == "AveragePool" and b.chance(0.4):
            attributes["count_include_pad"] = 1
        if operator == "LpPool":
            attributes["p"] = b.choice(1, 2)
        return b.node(operator, [x.name], kernel_shape=kernel, **attributes)
    return make


def global_pool(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        x = x or image(b, b.choice(FLOAT, HALF) if operator != "GlobalLpPool" else FLOAT, b.random.randint(1, 5), b.random.randint(1, 3))
        return b.node(operator, [x.name])
    return make


def matmul(b: Build, x: Value | None = None) -> list[str]:
    kind = x.kind if x else b.choice(FLOAT, FLOAT, HALF, DOUBLE)
    if x is None:
        batch = b.dims(0, 3)
        x = b.input(kind, [*b.broadcastable(batch), b.extent(), b.extent()] if b.chance(0.9) else [b.extent()])
    if not x.dims:
        return b.node("Identity", [x.name])
    inner = x.dims[-1]
    shape = [inner] if b.chance(0.1) else [*(b.broadcastable(x.dims[:-2])), inner, b.extent()]
    return b.node("MatMul", [x.name, b.operand(kind, shape)])


def gemm(b: Build, x: Value | None = None) -> list[str]:
    kind = b.choice(FLOAT, FLOAT, HALF, DOUBLE)
    rows, inner, columns = b.extent(), b.extent(), b.extent()
    a, c = b.choice(0, 1), b.choice(0, 1)
    inputs = [b.input(kind, [inner, rows] if a else [rows, inner]).name, b.operand(kind, [columns, inner] if c else [inner, columns])]
    if b.chance(0.7):
        inputs.append(b.operand(kind, b.broadcastable([rows, columns])))
    return b.node("Gemm", inputs, transA=a, transB=c, alpha=b.choice(1.0, 0.5, 2.25), beta=b.choice(1.0, 0.0, 0.75))


def batch_normalization(b: Build, x: Value | None = None) -> list[str]:
    kind = FLOAT
    x = x or b.input(kind, [max(1, b.extent(4)), b.random.randint(1, 6), *b.dims(0, 3)])
    if len(x.dims) < 2:
        return b.node("Relu", [x.name])
    channels = [x.dims[1]]
    return b.node("BatchNormalization", [x.name, b.operand(kind, channels), b.operand(kind, channels), b.operand(kind, channels),
                                         b.operand(kind, channels, True)], epsilon=b.choice(1e-5, 1e-3))


def instance_normalization(b: Build, x: Value | None = None) -> list[str]:
    x = image(b, FLOAT, b.random.randint(1, 5), b.random.randint(1, 3), 2)
    return b.node("InstanceNormalization", [x.name, b.operand(FLOAT, [x.dims[1]]), b.operand(FLOAT, [x.dims[1]])])


def group_normalization(b: Build, x: Value | None = None) -> list[str]:
    groups = b.choice(1, 2, 3)
    x = image(b, FLOAT, groups * b.random.randint(1, 3), b.random.randint(1, 2), 2)
    return b.node("GroupNormalization", [x.name, b.operand(FLOAT, [x.dims[1]]), b.operand(FLOAT, [x.dims[1]])], num_groups=groups)


def layer_normalization(b: Build, x: Value | None = None) -> list[str]:
    b.fixed = True
    x = b.input(b.choice(FLOAT, FLOAT, HALF), b.dims(1, 4))
    axis = b.random.randint(-len(x.dims), len(x.dims) - 1)
    inner = x.dims[axis if axis >= 0 else len(x.dims) + axis:]
    inputs = [x.name, b.operand(x.kind, inner)] + ([b.operand(x.kind, inner)] if b.chance(0.6) else [])
    return b.node("LayerNormalization", inputs, b.choice(1, 1, 3), axis=axis)[:3]


def softmax(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        x = x or b.input(b.choice(FLOAT, FLOAT, HALF, DOUBLE), b.dims(1))
        if not x.dims:
            return b.node("Exp", [x.name])
        if b.chance(0.3) and not b.nodes:
            b.opset = 11
        return b.node(operator, [x.name], axis=b.random.randint(-len(x.dims), len(x.dims) - 1))
    return make


def counted_as_by_onnx(b: Build, x: Value, axes: list[int]) -> list[int]:
    """The axes, counted from the first where the CPU provider would not go by ONNX: it passes over negative ones of tensors
    without elements. Where that is known before the model runs, such nodes are left to it."""
    return [axis % len(x.dims) for axis in axes] if 0 in x.dims and not b.fixed else axes


def reduction(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        b.fixed = b.fixed or x is None
        kinds = (FLOAT, FLOAT, DOUBLE, INT32, INT64) if operator in ("ReduceMax", "ReduceMin", "ReduceSum") else (FLOAT, FLOAT, DOUBLE)
        x = x or b.input(b.choice(*kinds), b.dims(0, 2 if operator == "ReduceProd" else 5), operator in ("ReduceLogSum", "ReduceProd"))
        axes = sorted(b.random.sample(range(len(x.dims)), b.random.randint(0, len(x.dims))))
        axes = [axis - len(x.dims) if b.chance(0.3) else axis for axis in axes]
        axes = counted_as_by_onnx(b, x, axes)
        inputs = [x.name]
        if axes or b.chance(0.5):
            content = np.asarray(axes, np.int64)
            if b.chance(0.3):
                value = b.input(INT64, [len(axes)])
                value.content = content
                inputs.append(value.name)
            else:
                inputs.append(b.constant(content))
        return b.node(operator, inputs, keepdims=b.choice(0, 1), noop_with_empty_axes=0)
    return make


def place(operator: str) -> Any:
    def make(b: Build, x: Value | None = None) -> list[str]:
        b.fixed = b.fixed or x is None
        x = x or b.input(b.choice(FLOAT, FLOAT, INT32, DOUBLE), b.dims(1))
        if not x.dims:
            return b.node("Abs", [x.name])
        axis, = counted_as_by_onnx(b, x, [b.random.randint(-len(x.dims), len(x.dims) - 1)])
        return b.node(operator, [x.name], axis=axis, keepdims=b.choice(0, 1), select_last_index=b.choice(0, 1))
    return make


MOVED = (FLOAT, HALF, DOUBLE, INT64, INT32, INT8, UINT8, BOOL)


def moved(b: Build, x: Value | None, least: int = 1, most: int = 5) -> Value:
    return x or b.input(b.choice(*MOVED), b.dims(least, most))


def transpose(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x)
    order = list(range(len(x.dims)))
    b.random.shuffle(order)
    return b.node("Transpose", [x.name], perm=order) if order else b.node("Identity", [x.name])


def reshape(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x, 0)
    factors: list[int] = []
    for extent in x.dims:
        split = [d for d in range(1, extent + 1) if extent % d == 0] or [0]
        first = b.choice(*split)
        factors += [first, extent // first] if first and b.chance(0.4) else [extent]
    if 0 not in factors and factors and b.chance(0.5):
        factors[b.random.randrange(len(factors))] = -1
        known = int(np.prod([f for f in factors if f > 0], dtype=np.int64))
        total = int(np.prod(x.dims, dtype=np.int64))
        if total % known or not total:
            factors = list(x.dims)
    return b.node("Reshape", [x.name, b.constant(np.asarray(factors, np.int64))], allowzero=1)


def slices(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x)
    axes = sorted(b.random.sample(range(len(x.dims)), b.random.randint(0, len(x.dims))))
    if not axes:
        return b.node("Identity", [x.name])
    starts, ends, steps = [], [], []
    for axis in axes:
        step = b.choice(1, 1, 2, 3, -1, -2)
        low, high = -x.dims[axis] - 2, x.dims[axis] + 2
        starts.append(b.random.randint(low, high))
        ends.append(b.choice(b.random.randint(low, high), 2**62 if step > 0 else -2**62))
        steps.append(step)
    return b.node("Slice", [x.name, *(b.constant(np.asarray(list_, np.int64)) for list_ in (starts, ends, axes, steps))])


def concat(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x)
    if not x.dims:
        return b.node("Identity", [x.name])
    axis = b.random.randrange(len(x.dims))
    names = [x.name]
    for _ in range(b.random.randint(0, 3)):
        dims = list(x.dims)
        dims[axis] = b.extent()
        names.append(b.chance(0.2) and x.name or b.operand(x.kind, dims))
    b.random.shuffle(names)
    return b.node("Concat", names, axis=axis)


def split(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x)
    if not x.dims:
        return b.node("Identity", [x.name])
    axis = b.random.randrange(len(x.dims))
    cut = b.random.randint(0, x.dims[axis])
    return b.node("Split", [x.name, b.constant(np.asarray([cut, x.dims[axis] - cut], np.int64))], 2, axis=axis)


def expand(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x, 0, 4)
    wanted = [b.random.randint(1, 4) if extent == 1 else b.choice(1, extent) for extent in x.dims]
    wanted = [b.random.randint(1, 3) for _ in range(b.choice(0, 0, 1))] + wanted
    return b.node("Expand", [x.name, b.constant(np.asarray(wanted, np.int64))])


def tile(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x, 1, 4)
    return b.node("Tile", [x.name, b.constant(np.asarray([b.choice(1, 1, 2, 3) for _ in x.dims], np.int64))])


def pad(b: Build, x: Value | None = None) -> list[str]:
    x = x or b.input(b.choice(FLOAT, HALF, DOUBLE, INT64, INT32), b.dims(1, 4))
    pads = [b.random.randint(0, 3) for _ in range(2 * len(x.dims))]
    if not pads:
        return b.node("Identity", [x.name])
    inputs = [x.name, b.constant(np.asarray(pads, np.int64))]
    if b.chance(0.5):
        inputs.append(b.constant(b.content(x.kind, [])))
    return b.node("Pad", inputs)


def squeeze(b: Build, x: Value | None = None) -> list[str]:
    x = moved(b, x)
    ones = [axis for axis, extent in enumerate(x.dims) if extent == 1]
    if not ones:
        return b.node("Unsqueeze", [x.name, b.constant(np.asarray([b.random.randint(0, len(x.dims))], np.int64))])
    return b.node("Squeeze", [x.name, b.constant(np.asarray(ones[:1], np.int64))])


def gather(b: Build, x: Value | None = None) -> list[str]:
    b.fixed = b.fixed or x is None
    x = x or b.input(b.choice(FLOAT, HALF, DOUBLE, INT32), [max(1, extent) for extent in b.dims(1, 4)])
    if not x.dims or 0 in x.dims:
        return b.node("Identity", [x.name])
    axis = b.random.randrange(len(x.dims))
    indices = b.numbers.integers(-x.dims[axis], x.dims[axis], b.dims(0, 2)).astype(np.int64)
    if b.chance(0.5):
        return b.node("Gather", [x.name, b.constant(indices)], axis=axis)
    value = b.input(INT64, list(indices.shape))
    value.content = indices
    return b.node("Gather", [x.name, value.name], axis=axis)


def gather_elements(b: Build, x: Value | None = None) -> list[str]:
    b.fixed = True
    x = b.input(b.choice(FLOAT, HALF, INT32), [max(1, extent) for extent in b.dims(1, 4)])
    axis = b.random.randrange(len(x.dims))
    shape = [b.random.randint(1, extent) for extent in x.dims]
    value = b.input(INT64, shape)
    value.content = b.numbers.integers(-x.dims[axis], x.dims[axis], shape).astype(np.int64)
    return b.node("GatherElements", [x.name, value.name], axis=axis)


def resize(b: Build, x: Value | None = None) -> list[str]:
    x = x if x and len(x.dims) == 4 else b.input(FLOAT, [max(1, b.extent(4)) for _ in range(4)])
    scales = np.asarray([1, 1, b.choice(1, 2, 3, 4), b.choice(1, 2, 3, 4)], np.float32)
    return b.node("Resize", [x.name, "", b.constant(scales)], mode="nearest", nearest_mode=b.choice("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"),
                  coordinate_transformation_mode=b.choice("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))


def depth_to_space(b: Build, x: Value | None = None) -> list[str]:
    block = b.choice(1, 2, 3)
    if b.chance(0.5):
        x = b.input(FLOAT, [b.extent(3), block * block * b.random.randint(1, 3), b.extent(4), b.extent(4)])
        return b.node("DepthToSpace", [x.name], blocksize=block, mode=b.choice("DCR", "CRD"))
    x = b.input(FLOAT, [b.extent(3), b.random.randint(1, 3), block * b.random.randint(1, 3), block * b.random.randint(1, 3)])
    return b.node("SpaceToDepth", [x.name], blocksize=block)


def quantize(b: Build, x: Value | None = None) -> list[str]:
    kind = b.choice(INT8, UINT8)
    x = x if x and x.kind == FLOAT else b.input(FLOAT, b.dims(1, 4))
    if not x.dims:
        return b.node("Abs", [x.name])
    axis = b.random.randrange(len(x.dims))
    dims = [x.dims[axis]] if b.chance(0.4) else []
    names = [x.name, b.constant(b.content(FLOAT, dims, True) * np.float32(0.1)), b.constant(b.content(kind, dims))]
    quantized = b.node("QuantizeLinear", names, axis=axis)
    return b.node("DequantizeLinear", [quantized[0], *names[1:]], axis=axis) if b.chance(0.6) else quantized


def lrn(b: Build, x: Value | None = None) -> list[str]:
    x = image(b, FLOAT, b.random.randint(1, 7), 2)
    return b.node("LRN", [x.name], size=b.choice(1, 3, 5), alpha=b.choice(1e-4, 0.1), beta=b.choice(0.75, 0.5), bias=b.choice(1.0, 2.0))


def triangle(b: Build, x: Value | None = None) -> list[str]:
    x = x if x and len(x.dims) > 1 else b.input(b.choice(FLOAT, INT64, DOUBLE), b.dims(2, 4))
    return b.node("Trilu", [x.name, b.constant(np.asarray(b.random.randint(-4, 4), np.int64))], upper=b.choice(0, 1))


def attention(b: Build, x: Value | None = None) -> list[str]:
    b.fixed, b.opset = True, 23
    batch, groups, rows, columns, size = (b.random.randint(1, 4) for _ in range(5))
    heads = groups * b.choice(1, 1, 2)
    names = [b.input(FLOAT, [batch, heads, rows, size]).name] + [b.input(FLOAT, [batch, groups, columns, size]).name for _ in range(2)]
    if b.chance(0.4):
        names.append(b.input(FLOAT, b.choice([rows, columns], [batch, 1, rows, columns], [batch, heads, rows, columns])).name)
    return b.node("Attention", names, is_causal=b.choice(0, 1), softcap=b.choice(0.0, 0.0, 2.0))


def multi_head_attention(b: Build, x: Value | None = None) -> list[str]:
    b.fixed = True
    batch, heads, rows, columns, size, width = (b.random.randint(1, 4) for _ in range(6))
    split = b.chance(0.3)
    names = [b.input(FLOAT, [batch, rows, heads * size]).name]
    names += [b.input(FLOAT, [batch, heads, columns, own] if split else [batch, columns, heads * own]).name for own in (size, width)]
    names.append("" if split or b.chance(0.5) else b.operand(FLOAT, [heads * (2 * size + width)]))
    if b.chance(0.4):
        names += ["", b.input(FLOAT, [b.choice(1, batch), b.choice(1, heads), rows, columns]).name]
    attributes = {"scale": b.choice(0.5, 2.0)} if b.chance(0.3) else {}
    if rows == columns and b.chance(0.4):
        attributes["unidirectional"] = 1
    return b.node("MultiHeadAttention", names, domain="com.microsoft", num_heads=heads, **attributes)


MAKERS: dict[str, Any] = {
    **{name: unary(name) for name in ("Relu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Softplus",
                                      "Softsign", "Erf", "Exp", "Floor", "Ceil", "Mish", "IsNaN", "IsInf", "Round")},
    **{name: unary(name, kinds=(FLOAT,)) for name in ("Sin", "Cos", "Shrink", "Gelu", "LeakyRelu", "ThresholdedRelu")},
    **{name: unary(name, kinds=(FLOAT, DOUBLE, INT32, INT64)) for name in ("Abs", "Neg", "Sign")},
    **{name: unary(name, positive=True) for name in ("Log", "Sqrt", "Reciprocal")},
    "LeakyRelu alpha": unary("LeakyRelu", alpha=number(0, 1)), "Elu alpha": unary("Elu", alpha=number(0.1, 2)),
    "Celu alpha": unary("Celu", kinds=(FLOAT,), alpha=number(0.1, 2)), "Gelu tanh": unary("Gelu", kinds=(FLOAT,), approximate=lambda _: "tanh"),
    **{name: binary(name, (*FLOATS, DOUBLE, INT32, INT64, INT8, UINT8)) for name in ("Add", "Sub", "Mul")},
    "Div": binary("Div", (*FLOATS, DOUBLE, INT32, INT64), positive=True), "Mod": binary("Mod", (INT32, INT64, INT8, UINT8), positive=True),
    **{name: binary(name, (*FLOATS, DOUBLE, INT32, INT64)) for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    **{name: variadic(name) for name in ("Max", "Min", "Sum", "Mean")},
    **{name: logical(name) for name in ("And", "Or", "Xor")}, "Not": unary("Not", kinds=(BOOL,)),
    "Where": where, "Clip": clip, "PRelu": prelu, "Cast": cast, "Pow": power,
    "Conv": convolution, "ConvTranspose": transposed_convolution, "MaxPool": pool("MaxPool"), "AveragePool": pool("AveragePool"),
    "LpPool": pool("LpPool"), **{name: global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    "MatMul": matmul, "Gemm": gemm, "BatchNormalization": batch_normalization, "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization, "LayerNormalization": layer_normalization, "LRN": lrn,
    "Softmax": softmax("Softmax"), "LogSoftmax": softmax("LogSoftmax"), "Hardmax": softmax("Hardmax"),
    **{name: reduction(name) for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                                          "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")},
    "ArgMax": place("ArgMax"), "ArgMin": place("ArgMin"), "Transpose": transpose, "Reshape": reshape, "Slice": slices,
    "Concat": concat, "Split": split, "Expand": expand, "Tile": tile, "Pad": pad, "Squeeze": squeeze, "Gather": gather,
    "GatherElements": gather_elements, "Resize": resize, "DepthToSpace": depth_to_space, "QuantizeLinear": quantize,
    "Trilu": triangle, "Attention": attention, "MultiHeadAttention": multi_head_attention,
}

# What takes a value of any extents, so that graphs can grow.
GROWING = ("Relu", "Sigmoid", "Tanh", "Elu", "Add", "Mul", "Sub", "Max", "Sum", "Where", "Clip", "Abs", "Softmax", "ReduceSum",
           "ReduceMax", "Transpose", "Reshape", "Slice", "Concat", "Split", "Expand", "Pad", "Squeeze", "MatMul", "PRelu", "Conv",
           "MaxPool", "AveragePool", "BatchNormalization", "Cast", "ArgMax", "Gather", "LeakyRelu", "Neg", "Equal")
FLOAT_ONLY = {"Relu", "Sigmoid", "Tanh", "Elu", "Softmax", "PRelu", "Conv", "MaxPool", "AveragePool", "BatchNormalization", "LeakyRelu",
              "MatMul", "Max", "Sum"}


def make_node(seed: int) -> Build:
    b = Build(seed)
    kinds = list(MAKERS)
    outputs = MAKERS[kinds[seed % len(kinds)]](b)
    b.outputs = outputs
    return b


def make_graph(seed: int) -> Build:
    """A graph grown from one value: nodes read any value, several read one, and some in the middle are outputs."""
    b = Build(seed)
    b.fixed = b.chance(0.6)
    spatial = b.choice(0, 1, 2)
    first = image(b, FLOAT, b.random.randint(1, 6), spatial, 3) if spatial else b.input(FLOAT, b.dims(1, 4))
    values, outputs = [first], []
    for _ in range(b.random.randint(2, 9)):
        x = b.random.choice(values[-4:])
        name = b.random.choice(GROWING)
        if (name in FLOAT_ONLY and x.kind != FLOAT) or (x.kind not in (FLOAT, INT64, INT32)):
            continue
        if name in ("Conv", "MaxPool", "AveragePool") and (len(x.dims) not in (3, 4, 5) or 0 in x.dims or min(x.dims[2:]) < 4):
            continue
        saved = len(b.nodes), len(b.inputs), len(b.constants)
        results = MAKERS[name](b, x)
        b.outputs = results
        shapes = infer(b, results)
        if shapes is None:
            del b.nodes[saved[0]:], b.inputs[saved[1]:], b.constants[saved[2]:]
            continue
        values += shapes
        if b.chance(0.2):
            outputs += results
    if not b.nodes:
        return make_node(seed)
    last = [name for node in b.nodes for name in node.output]
    read = {name for node in b.nodes for name in node.input}
    b.outputs = list(dict.fromkeys(outputs + [name for name in last if name not in read]))
    return b


def infer(b: Build, results: list[str]) -> list[Value] | None:
    """The results as the CPU provider computes them; `None` if it does not."""
    was = b.random.getstate(), b.fixed
    b.fixed = True
    model = b.model(results)
    b.random.setstate(was[0])
    b.fixed = was[1]
    try:
        session = ort.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
        got = session.run(None, feeds(b, 0))
    except Exception:
        return None
    if any(array.size > 20000 for array in got):
        return None
    kinds = {np.dtype(kind): code for code, kind in NUMPY.items()}
    return [Value(name, kinds[array.dtype], list(array.shape)) for name, array in zip(results, got)]


def feeds(b: Build, number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1000 + number)
    return {value.name: getattr(value, "content", None) if hasattr(value, "content") else content(rng, value.kind, value.dims, value.positive)
            for value in b.inputs}


def options() -> ort.SessionOptions:
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = 1
    chosen.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return chosen


# How far results may be apart, relative to the largest magnitude of the output, by element type. What cancels in a graph
# leaves the rounding of larger numbers.
TOLERANCE = {"float32": 2e-5, "float16": 8e-3, "float64": 2e-5}
CANCELLATION = 10


# The outcome of a model that the CPU provider does not open, or gets wrong.
NO_REFERENCE = "no reference"


def counts_padding(node: onnx.NodeProto) -> bool:
    return node.op_type == "AveragePool" and any(attribute.name == "count_include_pad" and attribute.i for attribute in node.attribute)


@functools.cache
def averages_wrongly() -> bool:
    """True if the CPU provider divides by less than the windows of an average pooling that counts its padding, as that of ONNX
    Runtime 1.24 does at the lower border: by onnx's definition they are whole until the padding ends."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in (("x", [1, 1, 6, 2]), ("y", [1, 1, 8, 1]))]
    node = helper.make_node("AveragePool", ["x"], ["y"], count_include_pad=1, kernel_shape=[3, 4], pads=[2, 1, 2, 2], strides=[1, 4])
    graph = helper.make_graph([node], "average", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    [got] = session.run(None, {"x": np.ones([1, 1, 6, 2], np.float32)})
    # The last window has a row of the image, both columns of it, and two rows of padding.
    return abs(float(got[0, 0, 7, 0]) - 2 / 12) > 1e-5


@functools.cache
def rounds_statistics() -> bool:
    """True if the CPU provider rounds the float32 statistics of a float16 layer norm to float16, as that of ONNX Runtime 1.27 does."""
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    tensors = [helper.make_tensor_value_info(name, kind, [3]) for name, kind in (("x", half), ("scale", half), ("y", half))]
    mean = helper.make_tensor_value_info("mean", single, [1])
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean"])
    graph = helper.make_graph([node], "statistics", tensors[:2], [tensors[2], mean])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    [got] = session.run(["mean"], {"x": np.array([1, 1, 2], np.float16), "scale": np.ones(3, np.float16)})
    return bool(got[0] == np.float16(4 / 3))


def tolerances(b: Build, model: onnx.ModelProto) -> dict[str, float]:
    """How far outputs may be apart whose types don't say it: statistics that the reference rounds."""
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization" and len(node.output) > 1]
    halves = {value.name for value in b.inputs if value.kind == TensorProto.FLOAT16}
    rounded = [name for node in norms if node.input[0] in halves for name in node.output[1:]]
    return dict.fromkeys(rounded, TOLERANCE["float16"]) if rounded and rounds_statistics() else {}


def differs(ours: np.ndarray, theirs: np.ndarray, slack: int, tolerance: float | None = None) -> str | None:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)}, wanted {theirs.dtype}{list(theirs.shape)}"
    if theirs.dtype.kind != "f":
        return None if np.array_equal(ours, theirs) else f"{int(np.sum(ours != theirs))} of {theirs.size} numbers differ: {first(ours, theirs)}"
    wide, wanted = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.array_equal(wide[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(wide[finite]).all():
        return f"infinite or not a number: {first(ours, theirs)}"
    if not finite.any():
        return None
    scale = max(1.0, float(np.abs(wanted[finite]).max()))
    worst = float(np.abs(wide[finite] - wanted[finite]).max()) / scale
    most = slack * (tolerance or TOLERANCE[theirs.dtype.name])
    return f"off by {worst:.2e}: {first(ours, theirs)}" if worst > most else None


def first(ours: np.ndarray, theirs: np.ndarray) -> str:
    apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    at = int(np.nanargmax(np.where(np.isnan(apart), np.inf, apart))) if apart.size else 0
    return f"{ours.reshape(-1)[at]} for {theirs.reshape(-1)[at]} at {at}" if ours.size else ""


def one_case(kind: str, seed: int, devices: list[Any], settings: dict[str, str] | None = None,
             made: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """The outcome of a case on a session with these options of the provider; `made` is called once the session is made."""
    b = make_node(seed) if kind == "node" else make_graph(seed)
    model = b.model(b.outputs)
    data = model.SerializeToString()
    entry = {"kind": kind, "seed": seed, "operators": sorted({node.op_type for node in model.graph.node}), "mine": 0}
    try:
        cpu = ort.InferenceSession(data, options(), providers=[CPU])
    except Exception:
        return entry | {"outcome": NO_REFERENCE}
    if any(counts_padding(node) for node in model.graph.node) and averages_wrongly():
        return entry | {"outcome": NO_REFERENCE}
    chosen = options()
    # The assignment is told since 1.24.
    told = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
    if told:
        chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    chosen.add_provider_for_devices(devices, settings or {"cost_rule": "0"})
    try:
        session = ort.InferenceSession(data, chosen, enable_fallback=0)
    except Exception as problem:
        return entry | {"outcome": "failed", "detail": f"no session: {str(problem)[:500]}"}
    made()
    shares = {share.ep_name: len(share.get_nodes()) for share in session.get_provider_graph_assignment_info()} if told else {}
    entry["mine"] = shares.get(PROVIDER, 0) if told else 1
    allowed = tolerances(b, model)
    free = any(dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
    for number in range(2 if free else 1):
        if number:
            # Other extents where all are free: each extent of 1 stays, others grow alike.
            sizes: dict[int, int] = {}
            for value in b.inputs:
                if not hasattr(value, "content"):
                    value.dims = [sizes.setdefault(extent, extent if extent < 2 else extent + 1) for extent in value.dims]
        values = feeds(b, number)
        try:
            wanted = cpu.run(None, values)
        except Exception:
            break
        try:
            got = session.run(None, values)
        except Exception as problem:
            if not entry["mine"]:
                break
            return entry | {"outcome": "failed", "detail": f"run {number}: {str(problem)[:500]}"}
        for name, ours, theirs in zip(b.outputs, got, wanted):
            problem = differs(ours, theirs, CANCELLATION if kind == "graph" else 1, allowed.get(name))
            if problem:
                return entry | {"outcome": "failed", "detail": f"run {number}, {name}: {problem}"}
    return entry | {"outcome": "passed"}


def worker(library: str) -> None:
    devices = register(library)
    for line in sys.stdin:
        kind, seed = line.split()
        print(json.dumps(one_case(kind, int(seed), devices)), flush=True)


def run(library: str, cases: list[tuple[str, int]], jobs: int, report: Callable[[dict[str, Any]], None]) -> None:
    """Runs cases in worker processes that share them; `report` gets the outcome of each when it is there."""

    def take(request: str, entry: dict[str, Any] | None, ended: str) -> None:
        kind, seed = request.split()
        report(entry or {"kind": kind, "seed": int(seed), "operators": [], "mine": 1, "outcome": "failed", "detail": ended})

    command = [*emulated_gpu.interpreter(), __file__, "--worker", "--library", library]
    workers.share(command, [f"{kind} {seed}" for kind, seed in cases], jobs, PATIENCE, take)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="the provider's library; that of the installed wheel if left out")
    parser.add_argument("--nodes", type=int, default=SAMPLE[0], help="single nodes")
    parser.add_argument("--graphs", type=int, default=SAMPLE[1], help="small graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, help="file that the outcomes are written to, as JSON lines")
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    library = arguments.library
    if library is None:
        import onnxruntime_ep_hipdnn_rs as wheel

        library = wheel.get_library_path()
    if arguments.worker:
        worker(library)
        return 0
    first = arguments.seed
    cases = [("node", seed) for seed in range(first, first + arguments.nodes)]
    cases += [("graph", seed) for seed in range(first, first + arguments.graphs)]
    counts = {"passed": 0, "failed": 0, NO_REFERENCE: 0}
    mine = 0
    results = arguments.results.open("w", encoding="utf-8") if arguments.results else None

    def write(line: dict[str, str]) -> None:
        if results:
            results.write(json.dumps(line) + "\n")
            results.flush()

    def report(entry: dict[str, Any]) -> None:
        nonlocal mine
        counts[entry["outcome"]] += 1
        mine += bool(entry["mine"])
        name = f"random: {entry['kind']} {entry['seed']} ({', '.join(entry['operators'])})"
        if entry["outcome"] == "failed":
            print(f"failed   {name}: {entry['detail']}", flush=True)
        if entry["outcome"] != NO_REFERENCE:
            write({"name": name, "outcome": entry["outcome"], "detail": entry.get("detail", "")})

    run(library, cases, arguments.jobs, report)
    print(f"random: {counts['passed']} passed, {counts['failed']} failed, {mine} with a node on the provider; "
          f"{counts[NO_REFERENCE]} are no models to the CPU provider, or it is known to be wrong")
    write({"outcome": "finished", "name": "random"})
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
