"""Small networks with seeded weights, and how far rounding may take their results.

A network sums some thousand products in an order of its own on every device. How far that takes its result from the exact one
is no property of the order but of the network, and no closed form bounds it tightly: so the CPU provider's own distance from
the same network in double precision is the measure, and a result may be `FACTOR` times as far away.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import models
import provider
from runner import Failure

# What the transforms of Winograd's algorithm may cost beside a plain sum, as in reference.bound.
FACTOR = 16
# Where the CPU provider happens to be exact: half of the distance between numbers of the output's size.
ROUNDOFF = 2.0**-24


class Build:
    """A network under construction, over float tensors."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"{operator}_{name}", **attributes))
        return name

    def weights(self, *shape: int) -> str:
        """Drawn with the scale that keeps activations near one."""
        fan_in = int(np.prod(shape[1:]))
        return self.constant((self.rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32))

    def conv(self, x: str, channels: int, filters: int, window: int, stride: int = 1, group: int = 1) -> str:
        bias = self.constant((self.rng.standard_normal(filters) * 0.1).astype(np.float32))
        return self.node("Conv", x, self.weights(filters, channels // group, window, window), bias, strides=[stride] * 2,
                         pads=[window // 2] * 4, group=group)

    def normalized(self, x: str, channels: int) -> str:
        draws = [self.rng.uniform(0.6, 1.0, channels), self.rng.standard_normal(channels) * 0.1, self.rng.standard_normal(channels) * 0.1,
                 self.rng.uniform(1.0, 2.0, channels)]
        return self.node("BatchNormalization", x, *[self.constant(draw.astype(np.float32)) for draw in draws])

    def model(self, inputs: dict[str, list[Any]], outputs: list[str]) -> bytes:
        declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        graph = helper.make_graph(self.nodes, "network", declared, [onnx.ValueInfoProto(name=name) for name in outputs], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model).SerializeToString()


def resnet_like(shape: list[Any]) -> bytes:
    """A 7×7 stem, pooling, four blocks of two 3×3 convolutions with a residual, and a classifier."""
    b = Build(31)
    x = b.node("Relu", b.normalized(b.conv("x", 3, 8, 7, stride=2), 8))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 8
    for filters, stride in ((8, 1), (16, 2), (16, 1), (32, 2)):
        y = b.node("Relu", b.normalized(b.conv(x, channels, filters, 3, stride), filters))
        y = b.normalized(b.conv(y, filters, filters, 3), filters)
        if stride > 1:
            x = b.normalized(b.conv(x, channels, filters, 1, stride), filters)
        x, channels = b.node("Relu", b.node("Add", y, x)), filters
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    y = b.node("Gemm", x, b.weights(10, channels), b.constant(np.zeros(10, np.float32)), transB=1)
    return b.model({"x": shape}, [y])


def mobilenet_like(shape: list[Any]) -> bytes:
    """Inverted residuals with depthwise convolutions, clipped and hard-swish activations, squeeze and excitation."""
    b = Build(32)
    x, channels = b.node("HardSwish", b.normalized(b.conv("x", 3, 8, 3, stride=2), 8)), 8
    low, high = b.constant(np.float32(0)), b.constant(np.float32(6))
    for filters, stride, window, squeezed in ((8, 1, 3, False), (12, 2, 3, True), (12, 1, 5, True), (16, 2, 5, False)):
        wide = 3 * channels
        y = b.node("Clip", b.normalized(b.conv(x, channels, wide, 1), wide), low, high)
        y = b.normalized(b.conv(y, wide, wide, window, stride, group=wide), wide)
        if squeezed:
            s = b.node("Relu", b.conv(b.node("GlobalAveragePool", y), wide, 6, 1))
            y = b.node("Mul", y, b.node("HardSigmoid", b.conv(s, 6, wide, 1)))
        y = b.normalized(b.conv(b.node("HardSwish", y), wide, filters, 1), filters)
        x = b.node("Add", x, y) if channels == filters and stride == 1 else y
        channels = filters
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    y = b.node("Softmax", b.node("MatMul", x, b.constant((b.rng.standard_normal((channels, 10)) * 0.3).astype(np.float32))), axis=1)
    return b.model({"x": shape}, [y])


def three_outputs() -> bytes:
    """A convolution whose result, its activation and what comes of that are all outputs."""
    b = Build(33)
    a = b.conv("x", 3, 6, 3)
    r = b.node("Relu", a)
    return b.model({"x": [1, 3, 10, 10]}, [b.conv(r, 6, 4, 1), a, r])


def interrupted(shape: list[Any]) -> bytes:
    """Conv, an operator that hipDNN has not, Conv."""
    b = Build(34)
    return b.model({"x": shape}, [b.conv(b.node("Asinh", b.conv("x", 3, 6, 3)), 6, 4, 3)])


def resnet_block(shape: list[Any]) -> bytes:
    """Two convolutions with a residual between, which are several kernels."""
    b = Build(38)
    x = b.node("Relu", b.normalized(b.conv("x", 3, 6, 3), 6))
    y = b.conv(b.node("Relu", b.conv(x, 6, 6, 3)), 6, 6, 3)
    return b.model({"x": shape}, [b.node("Tanh", b.node("Add", x, y))])


def chain(length: int, channels_last: bool) -> bytes:
    """Convolutions of eight channels with activations, between transpositions if the outer tensors have their channels last."""
    b = Build(39)
    x = b.node("Transpose", "x", perm=[0, 3, 1, 2]) if channels_last else "x"
    for _ in range(length):
        x = b.node("Relu", b.conv(x, 8, 8, 3))
    x = b.node("Transpose", x, perm=[0, 2, 3, 1]) if channels_last else x
    return b.model({"x": [1, 12, 12, 8] if channels_last else [1, 8, 12, 12]}, [x])


def output_name(model: bytes) -> str:
    return onnx.load_from_string(model).graph.output[0].name


def single(shape: list[Any]) -> bytes:
    b = Build(35)
    return b.model({"x": shape}, [b.conv("x", 3, 6, 3)])


def behind(start: int, kind: Any) -> bytes:
    """A slice of what is behind the first `start` columns of a matrix of free extents."""
    values = {name: numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("start", start), ("end", 1 << 40), ("axis", 1))}
    node = helper.make_node("Slice", ["x", *values], ["y"], name="Slice")
    tensors = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["n", name]) for name in ("x", "y")]
    graph = helper.make_graph([node], "behind", tensors[:1], tensors[1:], list(values.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def orientation(cache: Path) -> bytes:
    """A classifier of pages, of any size instead of 224 × 224."""
    model = onnx.load(str(models.fetch("orientation", cache)))
    for axis, name in [(2, "h"), (3, "w")]:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    del model.graph.value_info[:]
    return model.SerializeToString()


def images(shape: list[int], seed: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


@dataclass
class Expectation:
    """What a run is to give, to double precision, and how far off each output may be."""

    exact: list[np.ndarray]
    allowed: list[float]

    def meets(self, got: list[Any]) -> None:
        if len(got) != len(self.exact):
            raise Failure(f"{len(got)} outputs, wanted {len(self.exact)}")
        for index, (ours, exact, allowed) in enumerate(zip(got, self.exact, self.allowed)):
            if ours.shape != exact.shape:
                raise Failure(f"output {index} has shape {ours.shape}, wanted {exact.shape}")
            # A comparison with what is not a number is false: this form catches it.
            error = np.abs(ours.astype(np.float64) - exact)
            if not bool((error <= allowed).all()):
                raise Failure(f"output {index} is off by {np.nan_to_num(error, nan=np.inf).max(initial=0):.3g}, allowed {allowed:.3g}")


def expected(model: bytes, feeds: dict[str, np.ndarray]) -> Expectation:
    """The exact result, and the error that the CPU provider's own allows."""
    exact = ReferenceEvaluator(in_double(model)).run(None, {name: value.astype(np.float64) for name, value in feeds.items()})
    cpu = provider.cpu_session(model).run(None, feeds)
    allowed = []
    for ours, theirs in zip(exact, cpu):
        size = float(np.abs(ours).max(initial=0))
        own = float(np.abs(theirs.astype(np.float64) - ours).max(initial=0))
        # An output in double that the float one does not come near is a mistake of this reference.
        if own > 1e-4 * max(size, 1e-3):
            raise Failure(f"the CPU provider is {own:.3g} off from double precision, of values up to {size:.3g}")
        allowed.append(FACTOR * max(own, ROUNDOFF * size))
    return Expectation(exact, allowed)


def in_double(model: bytes) -> onnx.ModelProto:
    """The same network on double tensors."""
    proto = onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        widen(tensor)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                widen(attribute.t)
    for value in [*proto.graph.input, *proto.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del proto.graph.value_info[:]
    return proto


def widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
