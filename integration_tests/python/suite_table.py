#!/usr/bin/env python3
"""The project's own table of convolutions: element types, paddings, ranks, groups, dynamic shapes, sources of weights."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import provider
from reference import Geometry, bound, convolve
from runner import Failure, Runner, check, run_suite

ONNX_TYPE = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
NUMPY_TYPE: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass
class Case:
    """One Conv node. `feeds` are the shapes that x takes, one run each; `declared` is x's shape in the model."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    geometry: Geometry = field(default_factory=Geometry)
    element_type: str = "float32"
    bias: bool = True
    declared: tuple[int | str | None, ...] | None = None
    feeds: tuple[tuple[int, ...], ...] = ()
    weights: str = "constant"
    opset: int = 17


def same(auto_pad: str, **attributes: Any) -> Geometry:
    return Geometry(auto_pad=auto_pad, **attributes)


SHAPES = [
    Case("1-D", (2, 3, 17), (5, 3, 3), Geometry(pads=[1, 1])),
    Case("1-D strided, dilated", (1, 4, 33), (6, 4, 5), Geometry(strides=[2], dilations=[3], pads=[2, 5])),
    Case("1-D of two groups", (2, 6, 40), (8, 3, 3), Geometry(group=2)),
    Case("2-D 1x1", (2, 17, 9, 11), (33, 17, 1, 1)),
    Case("2-D 1x1 stride 2", (1, 16, 9, 11), (24, 16, 1, 1), Geometry(strides=[2, 2])),
    Case("2-D 3x3", (1, 16, 20, 23), (32, 16, 3, 3), Geometry(pads=[1, 1, 1, 1])),
    Case("2-D 3x3 one channel", (1, 1, 28, 28), (8, 1, 3, 3), Geometry(pads=[1, 1, 1, 1])),
    Case("2-D 5x5 stride 2", (2, 7, 21, 19), (9, 7, 5, 5), Geometry(strides=[2, 2], pads=[2, 2, 2, 2])),
    Case("2-D 7x7 stride 2 stem", (1, 3, 64, 64), (32, 3, 7, 7), Geometry(strides=[2, 2], pads=[3, 3, 3, 3])),
    Case("2-D uneven window", (1, 5, 13, 31), (6, 5, 1, 7), Geometry(strides=[1, 3], pads=[0, 3, 0, 3])),
    Case("2-D dilated", (1, 6, 25, 25), (8, 6, 3, 3), Geometry(dilations=[2, 3], pads=[2, 3, 2, 3])),
    Case("2-D asymmetric pads", (1, 4, 12, 10), (5, 4, 3, 3), Geometry(pads=[0, 2, 1, 0])),
    Case("2-D pads wider than the window", (1, 2, 5, 5), (3, 2, 3, 3), Geometry(pads=[4, 3, 5, 6])),
    Case("2-D asymmetric pads and strides", (2, 4, 15, 14), (5, 4, 4, 3), Geometry(strides=[3, 2], pads=[1, 0, 2, 1])),
    Case("2-D depthwise", (2, 24, 19, 17), (24, 1, 3, 3), Geometry(group=24, pads=[1, 1, 1, 1])),
    Case("2-D depthwise stride 2", (1, 32, 20, 20), (32, 1, 5, 5), Geometry(group=32, strides=[2, 2], pads=[2, 2, 2, 2])),
    Case("2-D depthwise, two filters a channel", (1, 6, 11, 9), (12, 1, 3, 3), Geometry(group=6)),
    Case("2-D of four groups", (1, 16, 14, 14), (24, 4, 3, 3), Geometry(group=4, pads=[1, 1, 1, 1])),
    Case("2-D without bias", (1, 8, 10, 10), (8, 8, 3, 3), Geometry(pads=[1, 1, 1, 1]), bias=False),
    Case("2-D of one pixel", (1, 64, 1, 1), (10, 64, 1, 1)),
    Case("2-D window as large as the image", (3, 8, 6, 7), (4, 8, 6, 7)),
    Case("3-D", (1, 3, 8, 9, 10), (4, 3, 3, 3, 3), Geometry(pads=[1, 1, 1, 1, 1, 1])),
    Case("3-D strided, grouped, uneven", (2, 4, 9, 8, 7), (6, 2, 2, 3, 1), Geometry(group=2, strides=[2, 1, 2], pads=[1, 0, 0, 0, 2, 1])),
    Case("3-D dilated", (1, 2, 9, 9, 9), (3, 2, 3, 3, 3), Geometry(dilations=[2, 1, 3])),
    Case("SAME_UPPER", (1, 3, 13, 14), (4, 3, 4, 3), same("SAME_UPPER")),
    Case("SAME_UPPER stride 2", (1, 3, 13, 14), (4, 3, 3, 3), same("SAME_UPPER", strides=[2, 2])),
    Case("SAME_LOWER", (1, 3, 13, 14), (4, 3, 4, 4), same("SAME_LOWER")),
    Case("SAME_LOWER stride 3", (1, 3, 13, 14), (4, 3, 5, 2), same("SAME_LOWER", strides=[3, 3])),
    Case("SAME_UPPER 1-D", (1, 3, 20), (4, 3, 4), same("SAME_UPPER", strides=[2])),
    Case("SAME_LOWER 3-D", (1, 2, 6, 7, 8), (3, 2, 2, 3, 4), same("SAME_LOWER", strides=[2, 1, 3])),
    Case("VALID", (1, 3, 13, 14), (4, 3, 3, 5), same("VALID", strides=[2, 1])),
    Case("explicit NOTSET", (1, 3, 9, 9), (4, 3, 3, 3), Geometry(auto_pad="NOTSET", pads=[1, 1, 1, 1])),
    Case("kernel_shape given", (1, 3, 9, 9), (4, 3, 3, 2), Geometry(extra={"kernel_shape": [3, 2]})),
    Case("operator set 1", (1, 3, 9, 9), (4, 3, 3, 3), Geometry(pads=[1, 1, 1, 1]), opset=8),
    Case("operator set 11", (1, 3, 9, 9), (4, 3, 3, 3), Geometry(pads=[1, 1, 1, 1]), opset=11),
    Case("operator set 22", (1, 3, 9, 9), (4, 3, 3, 3), Geometry(pads=[1, 1, 1, 1]), opset=22),
    Case("many channels", (1, 512, 7, 7), (128, 512, 3, 3), Geometry(pads=[1, 1, 1, 1])),
    Case("batch 8", (8, 12, 9, 9), (16, 12, 3, 3), Geometry(pads=[1, 1, 1, 1])),
]

TYPED = [replace(case, name=f"{case.name}, {element_type}", element_type=element_type)
         for element_type in ("float16", "bfloat16") for case in SHAPES if "operator set" not in case.name]

# Where the engine on a device need not have every node, so that results alone are asked for.
MAY_DECLINE = False

# Conv takes bfloat16 from this operator set on.
BFLOAT16_OPSET = 22

DYNAMIC = [
    Case("dynamic batch", (1, 4, 9, 9), (6, 4, 3, 3), Geometry(pads=[1, 1, 1, 1]), declared=("n", 4, 9, 9),
         feeds=((1, 4, 9, 9), (5, 4, 9, 9), (2, 4, 9, 9), (1, 4, 9, 9))),
    Case("dynamic size", (1, 4, 9, 9), (6, 4, 3, 3), Geometry(pads=[1, 1, 1, 1]), declared=(1, 4, "h", "w"),
         feeds=((1, 4, 9, 9), (1, 4, 31, 7), (1, 4, 1, 1), (1, 4, 9, 9))),
    Case("dynamic size, SAME_UPPER", (1, 3, 9, 9), (4, 3, 3, 3), same("SAME_UPPER", strides=[2, 2]), declared=(1, 3, "h", "w"),
         feeds=((1, 3, 9, 9), (1, 3, 10, 13), (1, 3, 2, 1))),
    Case("dynamic size, SAME_LOWER", (1, 3, 9, 9), (4, 3, 2, 2), same("SAME_LOWER", strides=[2, 2]), declared=(1, 3, "h", "w"),
         feeds=((1, 3, 9, 9), (1, 3, 10, 13), (1, 3, 2, 1))),
    Case("everything dynamic", (1, 4, 9, 9), (6, 4, 3, 3), declared=("n", None, "h", "w"), feeds=((2, 4, 12, 5), (1, 4, 3, 3), (3, 4, 8, 8))),
    Case("more shapes than the cache holds", (1, 4, 9, 9), (6, 4, 3, 3), Geometry(pads=[1, 1, 1, 1]), declared=(1, 4, "h", "w"),
         feeds=tuple((1, 4, 4 + index, 5) for index in range(80)) * 2),
    Case("empty batch", (1, 4, 9, 9), (6, 4, 3, 3), declared=("n", 4, 9, 9), feeds=((0, 4, 9, 9), (2, 4, 9, 9), (0, 4, 9, 9))),
    Case("dynamic 1-D", (1, 4, 9), (6, 4, 3), declared=(1, 4, "t"), feeds=((1, 4, 16), (1, 4, 3), (1, 4, 100))),
    Case("dynamic batch, float16", (1, 4, 9, 9), (6, 4, 3, 3), element_type="float16", declared=("n", 4, 9, 9),
         feeds=((1, 4, 9, 9), (3, 4, 9, 9))),
    Case("dynamic size, bfloat16", (1, 4, 9, 9), (6, 4, 3, 3), element_type="bfloat16", declared=(1, 4, "h", "w"),
         feeds=((1, 4, 9, 9), (1, 4, 12, 7))),
]

WEIGHTS = [
    Case("weights as graph input", (1, 4, 9, 9), (6, 4, 3, 3), weights="input"),
    Case("weights as graph input, float16", (1, 4, 9, 9), (6, 4, 3, 3), weights="input", element_type="float16"),
    Case("weights as graph input without bias", (1, 4, 9, 9), (6, 4, 3, 3), weights="input", bias=False),
    Case("weights from a Constant node", (1, 4, 9, 9), (6, 4, 3, 3), weights="node"),
]


def main() -> int:
    return run_suite(body, "own table", __doc__ or "")


def body(runner: Runner) -> None:
    for case in SHAPES + TYPED + DYNAMIC + WEIGHTS:
        runner.case(case.name, lambda: run_case(case))
    runner.case("an initializer that a graph input overrides", overridable_weights)
    runner.case("one session, other weights at every run", changing_weights)
    runner.case("two nodes share their weights", shared_weights)
    runner.case("a convolution that feeds one on another branch", branches)
    runner.case("convolution inside If", inside_if)
    runner.case("float64 is not claimed", double_is_not_claimed)
    runner.case("other operators stay on the CPU provider", other_operators_are_left)
    runner.case("an empty optional bias", empty_bias_name)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        for pads in ([0, 0, 0, 0], [1, 1, 1, 1]):
            runner.case(f"{auto_pad} beside pads {pads} is the CPU provider's error", lambda: pads_beside(auto_pad, pads))
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for dynamic in (False, True):
            runner.case(f"{auto_pad} with gaps between the windows{', dynamic size' if dynamic else ''}", lambda: gaps(auto_pad, dynamic))
    for name, attributes, wanted in EXTREMES:
        runner.case(f"the report has the true numbers of {name}", lambda: extreme(attributes, wanted))
    runner.case("minus infinity before an activation that is computed with its convolution", minus_infinity)
    runner.case("a thread setting gives the same values", threads_agree)


def random(rng: np.random.Generator, shape: tuple[int, ...], element_type: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(NUMPY_TYPE[element_type])


def tensor(name: str, value: np.ndarray, element_type: str) -> TensorProto:
    return helper.make_tensor(name, ONNX_TYPE[element_type], value.shape, value.tobytes(), raw=True)


def unknown(name: str, rank: int = 4, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A value whose extents the model does not tell."""
    return helper.make_tensor_value_info(name, kind, [None] * rank)


def finish(graph: onnx.GraphProto, opset: int = 17) -> bytes:
    # IR 8 is the newest that goes with operator sets of 2021, which every ONNX Runtime here takes.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset <= 17 else 10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def build(case: Case, w: np.ndarray, b: np.ndarray | None) -> bytes:
    kind = ONNX_TYPE[case.element_type]
    inputs = [helper.make_tensor_value_info("x", kind, case.declared or case.x)]
    nodes, initializers = [], []
    for name, value in [("w", w), ("b", b)]:
        if value is None:
            continue
        if case.weights == "input":
            inputs.append(helper.make_tensor_value_info(name, kind, value.shape))
        elif case.weights == "node":
            nodes.append(helper.make_node("Constant", [], [name], value=tensor(name, value, case.element_type)))
        else:
            initializers.append(tensor(name, value, case.element_type))
    nodes.append(helper.make_node("Conv", ["x", "w"] + (["b"] if b is not None else []), ["y"], name="conv", **case.geometry.attributes()))
    output = unknown("y", len(case.x), kind)
    return finish(helper.make_graph(nodes, "case", inputs, [output], initializers), max(case.opset, BFLOAT16_OPSET if case.element_type == "bfloat16" else 0))


def run_case(case: Case) -> None:
    rng = np.random.default_rng(7)
    w = random(rng, case.w, case.element_type)
    b = random(rng, case.w[:1], case.element_type) if case.bias else None
    session = provider.Session(build(case, w, b))
    wholly_on_the_provider(session)
    for shape in case.feeds or (case.x,):
        x = random(rng, shape, case.element_type)
        feeds = {"x": x} | ({"w": w} | ({"b": b} if b is not None else {}) if case.weights == "input" else {})
        close(run(session, feeds, case.element_type), x, w, b, case.geometry, case.element_type)


def wholly_on_the_provider(session: provider.Session, convolutions: int = 1) -> None:
    if MAY_DECLINE:
        return
    shares = session.nodes()
    mine = shares.pop(provider.NAME, {})
    left = [name for counts in shares.values() for name in counts if name != "Constant"]
    check(mine.get("Conv", 0) == convolutions and not left, f"{dict(mine)} on the provider, {left} elsewhere: {session.claims}")


def run(session: provider.Session, feeds: dict[str, np.ndarray], element_type: str) -> np.ndarray:
    if element_type != "bfloat16":
        return session.run(feeds)[0]
    # NumPy has no bfloat16: ONNX Runtime takes and gives the bits.
    values = {name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), TensorProto.BFLOAT16) for name, value in feeds.items()}
    output = session.session.run_with_ort_values(None, values)[0]
    size = int(np.prod(output.shape()))
    bits = (ctypes.c_uint16 * size).from_address(output.data_ptr()) if size else b""
    return np.frombuffer(bits, np.uint16).copy().view(ml_dtypes.bfloat16).reshape(output.shape())


def close(got: np.ndarray, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, geometry: Geometry, element_type: str) -> None:
    total, magnitude = convolve(x, w, b, geometry)
    check(got.shape == total.shape, f"the output has shape {got.shape}, wanted {total.shape}")
    if not total.size:
        return
    error = np.abs(got.astype(np.float64) - total)
    excess = error / bound(total, magnitude, w, element_type)
    # A comparison with a value that is not a number is false: this form catches it.
    if not bool((excess <= 1).all()):
        worst = np.unravel_index(int(np.nan_to_num(excess, nan=np.inf).argmax()), excess.shape)
        raise Failure(f"element {tuple(map(int, worst))} is {got[worst]!r}, wanted {total[worst]!r}: {excess[worst]:.3g} times the allowed error; "
                      f"{int((~(excess <= 1)).sum())} of {excess.size} elements are off")


def weights_model(initializer: np.ndarray) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 9, 9)),
              helper.make_tensor_value_info("w", TensorProto.FLOAT, (6, 4, 3, 3))]
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    output = unknown("y")
    return finish(helper.make_graph([node], "overridable", inputs, [output], [tensor("w", initializer, "float32")]))


def overridable_weights() -> None:
    rng = np.random.default_rng(8)
    first, second = random(rng, (6, 4, 3, 3), "float32"), random(rng, (6, 4, 3, 3), "float32")
    x = random(rng, (1, 4, 9, 9), "float32")
    session = provider.Session(weights_model(first))
    for w, feeds in [(first, {}), (second, {"w": second}), (first, {}), (first, {"w": first})]:
        close(session.run({"x": x} | feeds)[0], x, w, None, Geometry(), "float32")


def changing_weights() -> None:
    rng = np.random.default_rng(9)
    case = Case("", (1, 4, 9, 9), (6, 4, 3, 3), weights="input")
    w, b = random(rng, case.w, "float32"), random(rng, case.w[:1], "float32")
    session = provider.Session(build(case, w, b))
    x = random(rng, case.x, "float32")
    for _ in range(5):
        # In place: the address stays, the contents change.
        w[...] = random(rng, case.w, "float32")
        b[...] = random(rng, case.w[:1], "float32")
        close(session.run({"x": x, "w": w, "b": b})[0], x, w, b, Geometry(), "float32")


def shared_weights() -> None:
    rng = np.random.default_rng(10)
    w = random(rng, (4, 4, 3, 3), "float32") * np.float32(0.2)
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]), helper.make_node("Conv", ["h", "w"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 9, 9))]
    outputs = [unknown(name) for name in ("y", "h")]
    session = provider.Session(finish(helper.make_graph(nodes, "shared", inputs, outputs, [tensor("w", w, "float32")])))
    wholly_on_the_provider(session, convolutions=2)
    x = random(rng, (1, 4, 9, 9), "float32")
    y, h = session.run({"x": x})
    close(h, x, w, None, Geometry(pads=[1, 1, 1, 1]), "float32")
    close(y, h, w, None, Geometry(), "float32")


def branches() -> None:
    """conv → relu → conv, with the first one's result also added at the end and also an output: no cycle may come of fusing."""
    rng = np.random.default_rng(11)
    w1, w2 = random(rng, (8, 8, 3, 3), "float32"), random(rng, (8, 8, 1, 1), "float32")
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Asinh", ["r"], ["s"]), helper.make_node("Conv", ["s", "w2"], ["c"]),
             helper.make_node("Add", ["c", "r"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 12, 12))]
    outputs = [unknown(name) for name in ("y", "a")]
    model = finish(helper.make_graph(nodes, "branches", inputs, outputs, [tensor("w1", w1, "float32"), tensor("w2", w2, "float32")]))
    session = provider.Session(model)
    check(session.nodes().get(provider.NAME, {}).get("Conv", 0) == 2, f"both convolutions are wanted on the provider: {session.nodes()}")
    x = random(rng, (1, 8, 12, 12), "float32")
    difference = provider.relative_difference(session.run({"x": x}), provider.cpu_session(model).run(None, {"x": x}))
    check(difference < 1e-5, f"off by {difference:.3g} of the range from the CPU provider")


def inside_if() -> None:
    rng = np.random.default_rng(12)
    w = random(rng, (4, 3, 3, 3), "float32")
    output = [unknown("y_branch")]
    then = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y_branch"])], "then", [], output)
    other = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Neg", ["h"], ["y_branch"])], "else", [], output)
    node = helper.make_node("If", ["condition"], ["y"], then_branch=then, else_branch=other)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8)), helper.make_tensor_value_info("condition", TensorProto.BOOL, ())]
    model = finish(helper.make_graph([node], "if", inputs, [unknown("y")], [tensor("w", w, "float32")]))
    session, cpu = provider.Session(model), provider.cpu_session(model)
    for condition in (True, False, True):
        feeds = {"x": random(rng, (1, 3, 8, 8), "float32"), "condition": np.array(condition)}
        difference = provider.relative_difference(session.run(feeds), cpu.run(None, feeds))
        check(difference < 1e-5, f"branch {condition}: off by {difference:.3g} of the range from the CPU provider")


def double_is_not_claimed() -> None:
    """No provider has a double-precision Conv. ONNX Runtime says so, provided that ours does not claim to have one."""
    w = np.random.default_rng(13).standard_normal((4, 3, 3, 3))
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], name="double")], "double",
                              [helper.make_tensor_value_info("x", TensorProto.DOUBLE, (1, 3, 8, 8))], [unknown("y", kind=TensorProto.DOUBLE)],
                              [helper.make_tensor("w", TensorProto.DOUBLE, w.shape, w.tobytes(), raw=True)])
    try:
        provider.Session(finish(graph))
    except Exception as problem:
        # With a device in the session it misses the node's provider before the operator's kernel.
        check("NOT_IMPLEMENTED" in str(problem) or "Provider type for Conv node" in str(problem), f"wanted ONNX Runtime's NOT_IMPLEMENTED, got: {problem}")
        return
    raise Failure("a session with a double-precision Conv was made")


def other_operators_are_left() -> None:
    """An operator that hipDNN has no operation for stays on the CPU provider, with its result unchanged."""
    rng = np.random.default_rng(16)
    graph = helper.make_graph([helper.make_node("Asinh", ["x"], ["y"])], "asinh",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))], [unknown("y")])
    model = finish(graph)
    session = provider.Session(model)
    check(provider.NAME not in session.nodes(), f"claimed: {session.nodes()}")
    feeds = {"x": random(rng, (1, 3, 8, 8), "float32")}
    np.testing.assert_array_equal(session.run(feeds)[0], provider.cpu_session(model).run(None, feeds)[0])


def empty_bias_name() -> None:
    rng = np.random.default_rng(14)
    w, x = random(rng, (4, 3, 3, 3), "float32"), random(rng, (1, 3, 8, 8), "float32")
    node = helper.make_node("Conv", ["x", "w", ""], ["y"])
    graph = helper.make_graph([node], "empty", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [unknown("y")], [tensor("w", w, "float32")])
    session = provider.Session(finish(graph))
    wholly_on_the_provider(session)
    close(session.run({"x": x})[0], x, w, None, Geometry(), "float32")


def pads_beside(auto_pad: str, pads: list[int]) -> None:
    model = build(Case("", (1, 4, 9, 9), (6, 4, 3, 3), Geometry(auto_pad=auto_pad, extra={"pads": pads}), bias=False),
                  random(np.random.default_rng(17), (6, 4, 3, 3), "float32"), None)
    errors = []
    for make in (provider.cpu_session, provider.Session):
        try:
            make(model)
        except Exception as problem:
            errors.append(str(problem))
        else:
            raise Failure(f"{make.__name__} took the model")
    check("both 'auto_pad' and 'pads' attributes" in errors[1] and errors[0].split("Name:")[0] == errors[1].split("Name:")[0], f"wanted {errors[0]}, got {errors[1]}")


def gaps(auto_pad: str, dynamic: bool) -> None:
    """The CPU provider lets the first window begin behind the first element where there is more stride than window."""
    rng = np.random.default_rng(18)
    for kernel, stride in [(1, 2), (1, 3), (1, 4), (1, 5), (1, 8), (2, 5), (2, 9), (3, 6), (3, 7)]:
        w = random(rng, (5, 4, kernel, kernel), "float32")
        model = build(Case("", (1, 4, 12, 13), w.shape, same(auto_pad, strides=[stride, stride]), bias=False,
                           declared=(1, 4, "h", "w") if dynamic else None), w, None)
        session, cpu = provider.Session(model), provider.cpu_session(model)
        for shape in [(1, 4, 12, 13)] + ([(1, 4, 16, 9), (1, 4, 1, 20)] if dynamic else []):
            feeds = {"x": random(rng, shape, "float32")}
            difference = provider.relative_difference(session.run(feeds), cpu.run(None, feeds))
            check(difference < 1e-5, f"kernel {kernel}, stride {stride}, {shape}: off by {difference:.3g} of the range from the CPU provider")


EXTREMES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a dilation of 2^62", {"dilations": [1 << 62]}, [str((1 << 63) + 1), "window"]),
    ("a dilation of 2^31", {"dilations": [1 << 31], "pads": [1 << 32, 0]}, [str(1 << 32), "padding"]),
    ("a stride of 2^31", {"strides": [1 << 31]}, [str(1 << 31), "stride"]),
    ("a stride of 2^62", {"strides": [1 << 62]}, [str(1 << 62), "stride"]),
    ("a padding of 2^62 on both sides", {"pads": [1 << 62, 1 << 62]}, [str(1 << 62), "padding"]),
    ("a padding of 2^31", {"pads": [1 << 31, 0], "strides": [1 << 30]}, [str(1 << 31), "padding"]),
]


def extreme(attributes: dict[str, Any], wanted: list[str]) -> None:
    w = random(np.random.default_rng(19), (1, 1, 3), "float32")
    session = provider.Session(build(Case("", (1, 1, 12), w.shape, Geometry(extra=attributes), bias=False), w, None))
    reasons = [claim.reason or "" for claim in session.claims]
    check(len(reasons) == 1 and all(part in reasons[0] for part in wanted) and " -" not in reasons[0], f"wanted {wanted} in the reason, got {session.claims}")


def minus_infinity() -> None:
    """Zero, the limit, where the CPU provider multiplies zero by infinity: README.md says so."""
    x = np.full((1, 1, 1, 8), -np.inf, np.float32)
    for op, opset in [("HardSwish", 17), ("Gelu", 20), ("Swish", 24)]:
        if op == "Swish" and provider.VERSION < (1, 24):
            continue
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(op, ["c"], ["y"])]
        graph = helper.make_graph(nodes, "infinite", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [unknown("y")],
                                  [tensor("w", np.ones((1, 1, 1, 1), np.float32), "float32")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()
        got = provider.Session(model).run({"x": x})[0]
        check(not got.any(), f"{op} of minus infinity is {got.ravel()}, wanted zeros")


def threads_agree() -> None:
    rng = np.random.default_rng(15)
    case = Case("", (1, 16, 40, 40), (32, 16, 3, 3), Geometry(pads=[1, 1, 1, 1]))
    w, b, x = (random(rng, shape, "float32") for shape in (case.w, case.w[:1], case.x))
    model = build(case, w, b)
    results = [provider.Session(model, session_options=provider.options(threads=threads)).run({"x": x})[0] for threads in (1, 2, 5)]
    for result in results:
        close(result, x, w, b, case.geometry, "float32")
        np.testing.assert_array_equal(result, results[0])


if __name__ == "__main__":
    sys.exit(main())
