#!/usr/bin/env python3
"""Networks in fp16, in bf16, and quantized to 8 bits, wholly on the provider."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import models
import provider
from runner import Runner, Skip, check, run_suite

# The first operator set in which every operator of the orientation model takes bfloat16.
OPSET = 22

# The reference rounds to 16 bits behind every node. The provider rounds there or less often, and sums in another order, which
# in fp32 is nothing beside it: its error is one of the same size or smaller, of which the largest element is compared. Of errors
# of equal size, one in hundreds of inputs has a largest element of twice another's.
SPREAD = 2.0


def main() -> int:
    return run_suite(body, "precisions", __doc__ or "")


def body(runner: Runner) -> None:
    for name, kind in (("fp32", TensorProto.FLOAT), ("fp16", TensorProto.FLOAT16)):
        runner.case(f"rounding in {name}, signs of zeros included", lambda: rounding(kind))
        runner.case(f"maxima in {name} of windows without elements: the CPU provider's", lambda: empty_windows(kind))
    for name, kind in (("fp16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)):
        runner.case(f"orientation in {name}: as near to fp32 as rounding behind every node", lambda: orientation(runner.cache, kind))
        runner.case(f"a residual network in {name}: as near to fp32 as rounding behind every node", lambda: narrow(residual(), IMAGE, kind))
    for signed in (False, True):
        for level in LEVELS:
            kind = "int8" if signed else "uint8"
            runner.case(f"a residual network of {kind} activations and int8 weights, optimizations {level}: the CPU provider's",
                        lambda: quantized(signed, level))


IMAGE = [2, 3, 40, 40]

# ONNX Runtime's optimizations, and how the quantized network's outputs may differ under them: most steps of 8 bits, and the
# least part of the outputs that are equal. Without them both providers compute the same model, and only sums of another order
# round to the neighbor now and then. With them the CPU provider multiplies whole numbers, and biases are rounded for it.
LEVELS = {"off": (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 1, 0.99), "on": (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, 3, 0.5)}


def rounding(kind: int) -> None:
    """Round gives numpy's numbers, to the sign of a zero."""
    values = np.array([-0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 1.5, -1.5, 2.5, -2.5, 1023.5, np.inf, -np.inf, np.nan])
    x = values.astype(helper.tensor_dtype_to_np_dtype(kind))
    declared = [helper.make_tensor_value_info(name, kind, list(x.shape)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Round", ["x"], ["y"])], "rounding", declared[:1], declared[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = provider.Session(model.SerializeToString(), {"cost_rule": "0"})
    check(session.nodes().get(provider.NAME, {}) == {"Round": 1}, f"expected the node on the provider, got {session.nodes()}")
    got, wanted = session.run({"x": x})[0], np.rint(x)
    signs = [np.signbit(array[~np.isnan(x)]) for array in (got, wanted)]
    check(np.array_equal(got, wanted, equal_nan=True) and np.array_equal(*signs), f"expected {wanted}, got {got}")


def empty_windows(kind: int) -> None:
    """Both taps of the only window lie in the padding."""
    x = np.ones((1, 2, 2), helper.tensor_dtype_to_np_dtype(kind))
    declared = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [1, 2, 2]), ("y", None))]
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], dilations=[3], pads=[1, 1])
    model = helper.make_model(helper.make_graph([node], "windows", declared[:1], declared[1:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = provider.Session(model, {"cost_rule": "0"})
    check(session.nodes().get(provider.NAME, {}) == {"MaxPool": 1}, f"expected the node on the provider, got {session.nodes()}")
    got, wanted = session.run({"x": x})[0], provider.cpu_session(model).run(None, {"x": x})[0]
    check(got.shape == (1, 2, 1) and np.array_equal(got, wanted), f"expected {wanted}, got {got}")


def residual() -> onnx.ModelProto:
    """Six blocks of two convolutions and a sum, whose activations stay near one."""
    rng = np.random.default_rng(8)
    nodes, weights = [], {}

    def convolution(x: str, name: str, filters: int, channels: int, taps: int, stride: int = 1) -> str:
        weights[f"{name}_w"] = (rng.standard_normal((filters, channels, taps, taps)) * np.sqrt(1.5 / (channels * taps * taps))).astype(np.float32)
        weights[f"{name}_b"] = (rng.standard_normal(filters) / 8).astype(np.float32)
        nodes.append(helper.make_node("Conv", [x, f"{name}_w", f"{name}_b"], [name], name=f"the_{name}", pads=[taps // 2] * 4, strides=[stride] * 2))
        return name

    def step(operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [name], name=f"the_{name}", **attributes))
        return name

    x = step("Relu", [convolution("x", "stem", 16, 3, 3, 2)], "stem_r")
    for block in range(6):
        y = step("Relu", [convolution(x, f"c{block}", 16, 16, 3)], f"r{block}")
        y = convolution(y, f"d{block}", 16, 16, 1 + 2 * (block % 2))
        x = step("Relu", [step("Add", [x, y], f"s{block}")], f"t{block}")
    x = step("Flatten", [step("GlobalAveragePool", [x], "pool")], "flat")
    weights["fc_w"], weights["fc_b"] = (rng.standard_normal((16, 10)) / 4).astype(np.float32), (rng.standard_normal(10) / 4).astype(np.float32)
    step("Gemm", [x, "fc_w", "fc_b"], "y")
    graph = helper.make_graph(nodes, "residual", [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [IMAGE[0], 10])],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def orientation(cache: Path, kind: int) -> None:
    try:
        model = onnx.load(str(models.fetch("orientation", cache)))
    except models.FetchError as problem:
        raise Skip(str(problem)) from None
    model.opset_import[0].version = OPSET
    model.ir_version = 10
    # Probabilities near 0 and 1 would hide differences: the scores are compared.
    softmax = model.graph.node.pop()
    check(softmax.op_type == "Softmax", f"the last node is a {softmax.op_type}")
    del model.graph.output[:], model.graph.value_info[:]
    model.graph.output.append(onnx.ValueInfoProto(name=softmax.input[0]))
    narrow(model, [1, 3, 224, 224], kind)


def rounded(array: np.ndarray, kind: int) -> np.ndarray:
    return array.astype(helper.tensor_dtype_to_np_dtype(kind)).astype(np.float32)


def converted(model: onnx.ModelProto, change: Callable[[np.ndarray], np.ndarray], kind: int) -> onnx.ModelProto:
    """The model with its floats changed, and declared to be of that type."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    for value in [*result.graph.input, *result.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return result


def rounding_behind_every_node(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """The model with every result rounded, in fp32: inferred types say which results are floats."""
    typed = {value.name: value.type.tensor_type.elem_type for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    nodes = list(result.graph.node)
    del result.graph.node[:]
    for node in nodes:
        names = [name for name in node.output if typed.get(name, TensorProto.FLOAT) == TensorProto.FLOAT]
        node.output[:] = [f"{name}_exact" if name in names else name for name in node.output]
        result.graph.node.append(node)
        for name in names:
            result.graph.node.extend([helper.make_node("Cast", [f"{name}_exact"], [f"{name}_narrow"], to=kind),
                                      helper.make_node("Cast", [f"{name}_narrow"], [name], to=TensorProto.FLOAT)])
    return result


def cpu(model: onnx.ModelProto, feed: np.ndarray, level: Any = ort.GraphOptimizationLevel.ORT_DISABLE_ALL) -> np.ndarray:
    """The first output. Casts to 16 bits and back are what is looked for: no optimization must take them for nothing."""
    options = provider.options()
    options.graph_optimization_level = level
    # Without VNNI, the CPU provider's products of unsigned and signed bytes are summed in pairs that saturate at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[provider.CPU])
    return session.run(None, {session.get_inputs()[0].name: feed})[0].astype(np.float64)


def narrow(model: onnx.ModelProto, shape: list[int], kind: int) -> None:
    exact = converted(model, lambda array: rounded(array, kind), TensorProto.FLOAT)
    simulated = rounding_behind_every_node(exact, kind)
    numpy = helper.tensor_dtype_to_np_dtype(kind)
    # Where ONNX Runtime folds a batch normalization into a convolution, it rounds the new weights to 16 bits.
    options = provider.options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = provider.Session(converted(model, lambda array: array.astype(numpy), kind).SerializeToString(), session_options=options)
    left = [claim for claim in session.claims if claim.reason]
    check(not left and session.engines() == ["HIPDNN_RS_CPU_ENGINE"], f"expected every node on the provider, left are {left[:3]}")
    for seed in range(4):
        feed = rounded(np.random.default_rng(seed).standard_normal(shape), kind)
        want, allowed = cpu(exact, feed), np.abs(cpu(simulated, feed) - cpu(exact, feed)).max()
        check(0 < allowed < 0.1 * np.abs(want).max(), f"rounding costs {allowed:.3g} of {np.abs(want).max():.3g}: the reference says nothing")
        got = run(session, feed, kind, want.shape)
        difference = np.abs(got - want).max()
        check(difference <= SPREAD * allowed, f"input {seed}: off by {difference:.3g}, by rounding behind every node it is {allowed:.3g}")


def run(session: provider.Session, feed: np.ndarray, kind: int, shape: tuple[int, ...]) -> np.ndarray:
    """The first output, in double precision. ONNX Runtime's Python package has no arrays of bfloat16: bytes go in and come out."""
    numpy = helper.tensor_dtype_to_np_dtype(kind)
    if kind != TensorProto.BFLOAT16:
        return session.run({session.session.get_inputs()[0].name: feed.astype(numpy)})[0].astype(np.float64)
    binding = session.session.io_binding()
    source = np.ascontiguousarray(feed.astype(numpy).view(np.uint16))
    target = np.zeros(shape, np.uint16)
    binding.bind_input(session.session.get_inputs()[0].name, "cpu", 0, kind, list(source.shape), source.ctypes.data)
    binding.bind_output(session.session.get_outputs()[0].name, "cpu", 0, kind, list(shape), target.ctypes.data)
    session.session.run_with_iobinding(binding)
    return target.view(numpy).astype(np.float64)


# Quantization.


def ranges(model: onnx.ModelProto, feeds: list[np.ndarray]) -> dict[str, tuple[float, float]]:
    """The least and the largest number of every result on these inputs, zero included."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output]
    del wide.graph.output[:]
    wide.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = ort.InferenceSession(wide.SerializeToString(), provider.options(), providers=[provider.CPU])
    runs = [dict(zip(names, session.run(None, {"x": feed}))) | {"x": feed} for feed in feeds]
    return {name: (min(0.0, *(float(run[name].min()) for run in runs)), max(0.0, *(float(run[name].max()) for run in runs)))
            for name in [*names, "x"]}


def quantize(model: onnx.ModelProto, feeds: list[np.ndarray], signed: bool) -> tuple[onnx.ModelProto, float]:
    """The model with its activations and weights through 8 bits around every operator, and the last activation's scale."""
    seen = ranges(model, feeds)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights: dict[str, np.ndarray] = {}
    nodes: list[Any] = []
    scales: dict[str, float] = {}
    kind, least = (np.int8, -128) if signed else (np.uint8, 0)

    def activation(name: str) -> str:
        if f"{name}_dq" in weights or f"{name}_scale" in weights:
            return f"{name}_dq"
        low, high = seen[name]
        scales[name] = max((high - low) / 255, 1e-6)
        weights[f"{name}_scale"] = np.float32(scales[name])
        weights[f"{name}_zero"] = np.asarray(np.clip(np.round(least - low / scales[name]), least, least + 255)).astype(kind)
        parameters = [f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *parameters], [f"{name}_q"], name=f"{name}_quantize"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parameters], [f"{name}_dq"], name=f"{name}_dequantize"))
        return f"{name}_dq"

    def parameter(name: str, axis: int) -> str:
        array = constants[name]
        others = tuple(other for other in range(array.ndim) if other != axis)
        scale = np.maximum(np.abs(array).max(axis=others) / 127, 1e-6).astype(np.float32)
        row = [-1 if other == axis else 1 for other in range(array.ndim)]
        weights[f"{name}_q"] = np.clip(np.round(array / scale.reshape(row)), -127, 127).astype(np.int8)
        weights[f"{name}_scale"], weights[f"{name}_zero"] = scale, np.zeros(scale.shape, np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_scale", f"{name}_zero"], [f"{name}_dq"],
                                      name=f"{name}_dequantize", axis=axis))
        return f"{name}_dq"

    for node in model.graph.node:
        inputs = []
        for name in node.input:
            if name not in constants:
                inputs.append(activation(name))
            elif name.endswith("_w"):
                inputs.append(parameter(name, 0 if node.op_type == "Conv" else 1))
            else:
                weights[name] = constants[name]
                inputs.append(name)
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        changed.input[:] = inputs
        nodes.append(changed)
    activation("y")
    graph = helper.make_graph(nodes, "quantized", model.graph.input, [helper.make_tensor_value_info("y_dq", TensorProto.FLOAT, [IMAGE[0], 10])],
                              [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), scales["y"]


def quantized(signed: bool, optimizations: str) -> None:
    level, most, equal = LEVELS[optimizations]
    model = residual()
    feeds = [np.random.default_rng(seed).standard_normal(IMAGE).astype(np.float32) for seed in range(6)]
    eight, step = quantize(model, feeds[:3], signed)
    options = provider.options()
    options.graph_optimization_level = level
    session = provider.Session(eight.SerializeToString(), session_options=options)
    left = [claim for claim in session.claims if claim.reason and "has it already" not in claim.reason]
    check(not left, f"expected every node on the provider, left are {left[:3]}")
    apart = []
    for feed in feeds:
        want, ours, real = cpu(eight, feed, level), session.run({"x": feed})[0].astype(np.float64), cpu(model, feed)
        apart.append(np.round(np.abs(ours - want) / step))
        check(apart[-1].max() <= most, f"off by {apart[-1].max()} steps of 8 bits from the CPU provider's")
        # What 8 bits cost must not hide that nothing is computed.
        check(np.corrcoef(ours.ravel(), real.ravel())[0, 1] > 0.98, "the quantized network has little to do with the network")
    share = float(np.mean(np.concatenate(apart) == 0))
    check(share >= equal, f"only {share:.1%} of the outputs are the CPU provider's")


if __name__ == "__main__":
    sys.exit(main())
