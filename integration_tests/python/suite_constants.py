#!/usr/bin/env python3
"""Initializers that `SessionOptions.add_initializer` replaces, or that are in files: every run is computed with the bytes that its own
session has."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import provider
from reference import Geometry, convolve
from runner import Failure, Runner, at_once, check, run_suite

LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}

# The input's extents in the model, and those of runs. Before the first run programs are built for a batch of one where the batch is
# free, and for extents of 320 where others are.
EXTENTS: dict[str, tuple[list[int | str], list[tuple[int, ...]]]] = {
    "static": ([1, 4, 9, 9], [(1, 4, 9, 9)]),
    "free batch": (["n", 4, 9, 9], [(1, 4, 9, 9), (3, 4, 9, 9)]),
    "free batch, larger first": (["n", 4, 9, 9], [(3, 4, 9, 9), (1, 4, 9, 9)]),
    "dynamic": (["n", 4, "h", "w"], [(1, 4, 9, 9), (2, 4, 6, 11)]),
    "dynamic, the assumed first": (["n", 4, "h", "w"], [(1, 4, 320, 320), (1, 4, 9, 9)]),
}

THREADS = 4
RUNS = 3

# This release of ONNX Runtime opens no external data outside of the model's folder.
CONFINED = (1, 31)

PADS = Geometry(pads=[1, 1, 1, 1])


def main() -> int:
    return run_suite(body, "constants", __doc__ or "")


def body(runner: Runner) -> None:
    for level in LEVELS:
        for extents in EXTENTS:
            for order in ("replaced first", "plain first"):
                runner.case(f"{extents} extents at level {level}: sessions alive at once, {order}",
                            lambda: alive_at_once(level, extents, order == "plain first"))
            runner.case(f"{extents} extents at level {level}: sessions one after another", lambda: one_after_another(level, extents))
            runner.case(f"{extents} extents at level {level}: {THREADS} threads of three sessions, first runs at once",
                        lambda: threads_at_once(level, extents))
        runner.case(f"level {level}: a replaced bias", lambda: replaced_bias(level))
        runner.case(f"level {level}: a bias that is an output too, in a buffer that is written to", lambda: handed_out(level))
        runner.case(f"level {level}: external weights given in memory", lambda: external(level))
        runner.case(f"level {level}: replaced weights of a body", lambda: replaced_in_body(level))
        runner.case(f"level {level}: replaced bounds of a Clip that is computed with its convolution", lambda: replaced_bounds(level))
    runner.case("external weights: in the model's folder, and by paths out of it", external_paths)
    runner.case("weights that differ in one bit", one_bit)
    for what, w in [("extents", random(1, 8, 4, 1, 1)), ("type", random(1, 8, 4, 3, 3).astype(np.float64))]:
        runner.case(f"a replacement of another {what} is an error", lambda: misfit(w))


@dataclass
class Layer:
    """Conv, then Relu or Clip, on weights of `filters` × 4 × 3 × 3."""

    w: np.ndarray
    b: np.ndarray
    low: float = 0.0
    high: float | None = None

    def wanted(self, x: np.ndarray) -> np.ndarray:
        return np.clip(convolve(x, self.w, self.b, PADS)[0], self.low, self.high)

    def model(self, extents: str = "static") -> bytes:
        initializers = [constant("w", self.w), constant("b", self.b)]
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=PADS.pads)]
        if self.high is None:
            nodes.append(helper.make_node("Relu", ["c"], ["y"]))
        else:
            initializers += [constant("low", np.float32(self.low)), constant("high", np.float32(self.high))]
            nodes.append(helper.make_node("Clip", ["c", "low", "high"], ["y"]))
        graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, EXTENTS[extents][0])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)], initializers)
        return finished(graph)


def constant(name: str, value: np.ndarray) -> TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.tobytes(), raw=True)


def finished(graph: object) -> bytes:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer(seed: int, **bounds: float) -> Layer:
    return Layer(random(seed, 8, 4, 3, 3), random(seed + 1, 8), **bounds)


class Replaced:
    """A session on a model some of whose initializers are replaced; the replacements live as long."""

    def __init__(self, model: bytes, level: str, replacements: dict[str, np.ndarray], claimed: bool = True, **settings: str) -> None:
        options = provider.options()
        options.graph_optimization_level = LEVELS[level]
        self._values = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in replacements.items()}
        for name, value in self._values.items():
            options.add_initializer(name, value)
        self._session = provider.Session(model, settings, session_options=options)
        check(not claimed or self._session.nodes().get(provider.NAME, {}).get("Conv", 0) > 0, f"no Conv on the provider: {self._session.claims}")

    def run(self, **feeds: np.ndarray) -> np.ndarray:
        return self._session.run(feeds)[0]


def close(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    difference = provider.relative_difference([got], [wanted.astype(np.float32)])
    check(difference < 1e-5, f"{what}: off by {difference:.3g} of the range")


def variants(level: str, extents: str, plain_first: bool = False) -> list[tuple[str, Layer, Replaced]]:
    """Sessions of one model: with the weights doubled, as they are, and trebled."""
    own = layer(1)
    model = own.model(extents)

    def session(factor: int) -> tuple[str, Layer, Replaced]:
        w = own.w * np.float32(factor)
        return f"weights × {factor}", Layer(w, own.b), Replaced(model, level, {} if factor == 1 else {"w": w})

    return [session(factor) for factor in ((1, 2, 3) if plain_first else (2, 1, 3))]


def inputs(extents: str = "static", seed: int = 5) -> list[np.ndarray]:
    return [random(seed + turn, *shape) for turn in range(RUNS) for shape in EXTENTS[extents][1]]


def alive_at_once(level: str, extents: str, plain_first: bool) -> None:
    sessions = variants(level, extents, plain_first)
    for turn, x in enumerate(inputs(extents)):
        for what, computed, session in sessions:
            close(session.run(x=x), computed.wanted(x), f"{what}, run {turn}")


def one_after_another(level: str, extents: str) -> None:
    own = layer(1)
    for factor in (2, 1, 3, 1, 2):
        w = own.w * np.float32(factor)
        session = Replaced(own.model(extents), level, {} if factor == 1 else {"w": w})
        for turn, x in enumerate(inputs(extents)):
            close(session.run(x=x), Layer(w, own.b).wanted(x), f"weights × {factor}, run {turn}")
        # The next one's weights may come to lie where this one's are.
        del session, w
        gc.collect()


def threads_at_once(level: str, extents: str) -> None:
    sessions = variants(level, extents)
    xs = inputs(extents)

    def work(index: int) -> None:
        what, computed, session = sessions[index % len(sessions)]
        for turn, x in enumerate(xs):
            close(session.run(x=x), computed.wanted(x), f"{what}, run {turn}")

    at_once(THREADS * len(sessions), work)


def replaced_bias(level: str) -> None:
    own = layer(1)
    other = Layer(own.w, own.b + np.float32(7))
    sessions = [Replaced(own.model(), level, {"b": other.b}), Replaced(own.model(), level, {})]
    for x in inputs():
        for computed, session in zip((other, own), sessions):
            close(session.run(x=x), computed.wanted(x), "the bias")


def handed_out(level: str) -> None:
    """Where an initializer is an output, a run has it in the output's buffer, which is the application's between runs."""
    own = layer(1)
    proto = onnx.load_from_string(own.model())
    proto.graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, own.b.shape))
    options = provider.options()
    options.graph_optimization_level = LEVELS[level]
    session = provider.Session(proto.SerializeToString(), session_options=options)
    for turn, x in enumerate(inputs()):
        bias = np.zeros_like(own.b)
        binding = session.session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        binding.bind_ortvalue_output("b", ort.OrtValue.ortvalue_from_numpy(bias))
        session.session.run_with_iobinding(binding)
        close(binding.copy_outputs_to_cpu()[0], own.wanted(x), f"run {turn} with the bias")
        check(np.array_equal(bias, own.b), f"run {turn}: the bias is {bias}")
        bias[:] = 1e9
        close(session.session.run(["y"], {"x": x})[0], own.wanted(x), f"run {turn} without it")


def external(level: str) -> None:
    """`add_external_initializers` takes the place of a file that the model names."""
    own = layer(1)
    model = with_weights_in(own, "none.bin")
    sessions = []
    for factor in (2, 1, 3):
        weights = own.w * np.float32(factor)
        options = provider.options()
        options.graph_optimization_level = LEVELS[level]
        values = [ort.OrtValue.ortvalue_from_numpy(weights)]
        options.add_external_initializers(["w"], values)
        sessions.append((Layer(weights, own.b), provider.Session(model, session_options=options), values))
    for x in inputs():
        for computed, session, _ in sessions:
            close(session.run({"x": x})[0], computed.wanted(x), "external weights")


def external_paths() -> None:
    """Files of weights are ONNX Runtime's to open or to refuse, and the provider opens none that it refuses."""
    own = layer(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        (folder / "below").mkdir(parents=True)
        outside = Path(name) / "outside.bin"
        for path in (outside, folder / "beside.bin", folder / "below/part.bin"):
            path.write_bytes(own.w.astype(np.float32).tobytes())
        for link, target in (("near.bin", "beside.bin"), ("link.bin", outside), ("folder", name)):
            os.symlink(target, folder / link)
        inside = ["beside.bin", "below/part.bin", "near.bin"]
        leaving = ["../outside.bin", "below/../../outside.bin", str(outside), "link.bin", "folder/outside.bin", "none.bin"]
        x = inputs()[0]
        for location in inside + leaving:
            path = folder / "model.onnx"
            path.write_bytes(with_weights_in(own, location))
            plain = outcome(location, lambda: ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["y"], {"x": x}))
            ours = outcome(location, lambda: provider.Session(path).run({"x": x}))
            check((plain is None) == (ours is None), f"{location}: the CPU provider's {plain is not None}, ours {ours is not None}")
            if location in inside:
                check(ours is not None, f"{location} is refused")
                close(ours[0], own.wanted(x), location)
            elif location == "none.bin" or release() >= CONFINED:
                check(ours is None, f"{location} is followed")


def outcome(location: str, body: Callable[[], list[np.ndarray]]) -> list[np.ndarray] | None:
    """The outputs, or nothing where ONNX Runtime refuses the weights' file or has none."""
    try:
        return body()
    except Exception as problem:
        check("External data" in str(problem) or location in str(problem), f"another error: {problem}")
        return None


def release() -> tuple[int, ...]:
    return tuple(int(number) for number in ort.__version__.split(".")[:2])


def with_weights_in(own: Layer, location: str) -> bytes:
    proto = onnx.load_from_string(own.model())
    w = proto.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    w.external_data.add(key="location", value=location)
    return proto.SerializeToString()


def replaced_in_body(level: str) -> None:
    own = layer(1)
    output = [helper.make_tensor_value_info("branch", TensorProto.FLOAT, [None] * 4)]
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=PADS.pads), helper.make_node(op, ["h"], ["branch"])]
        branches[name] = helper.make_graph(nodes, name, [], output)
    graph = helper.make_graph([helper.make_node("If", ["condition"], ["y"], **branches)], "outer",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 9]),
                               helper.make_tensor_value_info("condition", TensorProto.BOOL, [])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)], [constant("w", own.w), constant("b", own.b)])
    model = finished(graph)
    # Before 1.24.4 ONNX Runtime takes fused nodes in one graph of a model only.
    claimed = provider.VERSION > (1, 24)
    sessions = [(factor, Replaced(model, level, {} if factor == 1 else {"w": own.w * np.float32(factor)}, claimed)) for factor in (2, 1, 3)]
    for x in inputs():
        for factor, session in sessions:
            total = convolve(x, own.w * np.float32(factor), own.b, PADS)[0]
            close(session.run(x=x, condition=np.array(True)), np.maximum(total, 0), f"then, weights × {factor}")
            close(session.run(x=x, condition=np.array(False)), -total, f"else, weights × {factor}")


def replaced_bounds(level: str) -> None:
    own = layer(1, low=-1.0, high=1.0)
    replaced = Layer(own.w, own.b, low=-3.0, high=5.0)
    bounds = {"low": np.array(replaced.low, np.float32), "high": np.array(replaced.high, np.float32)}
    sessions = [(replaced, Replaced(own.model(), level, bounds)), (own, Replaced(own.model(), level, {}))]
    for x in inputs():
        for computed, session in sessions:
            close(session.run(x=x), computed.wanted(x), f"clipped to {computed.low} … {computed.high}")


def one_bit() -> None:
    """Contents that almost agree are not the same: the last bit of the exponent, in the last weight."""
    own = layer(1)
    w = own.w.copy()
    w.reshape(-1).view(np.uint32)[-1] ^= 1 << 23
    sessions = [(Layer(weights, own.b), Replaced(own.model(), "all", {"w": weights})) for weights in (own.w, w)]
    for x in inputs():
        for computed, session in sessions:
            close(session.run(x=x), computed.wanted(x), "the last weight")


def misfit(w: np.ndarray) -> None:
    """ONNX Runtime takes the session; it is a run that finds out."""
    session = Replaced(layer(1).model(), "all", {"w": w})
    for x in inputs():
        try:
            session.run(x=x)
        except Exception as problem:
            check("initializer \"w\": expected ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT of extents [8, 4, 3, 3], got" in str(problem), f"the message is: {problem}")
        else:
            raise Failure("the weights were taken for what they are not")


if __name__ == "__main__":
    sys.exit(main())
