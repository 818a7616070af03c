"""Options of the provider that reach the GPU's engine: tuning, precision and the directory of its cache."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
from gpu import children, device, networks
from runner import check

SHAPE = [1, 3, 12, 12]


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "the cache's directory keeps what tuning found for the next process", cached
    yield "a cache that is off keeps nothing", off
    yield "strict precision rounds what lies between fp16 tensors only where they are stored", strict


def timings(folder: str, tuning: str, wanted: str) -> None:
    """A session in a process of its own; whether solvers were timed."""
    model, feeds = networks.single(SHAPE), networks.images(SHAPE)
    session = device.session(model, cache_dir=folder, tuning=tuning)
    networks.expected(model, feeds).meets(session.run(feeds))
    timed = emulated_gpu.call_count("hipEventElapsedTime")
    check((timed > 0) == (wanted == "timed"), f"tuning {tuning}: {timed} times were taken, expected it to be {wanted}")


def cached() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "a" / "cache"
        children.run(timings, str(folder), "immediate", "untimed")
        before = {entry.name for entry in folder.iterdir()}
        check(bool(before), "the directory has no entry")
        children.run(timings, str(folder), "benchmark", "timed")
        check(before < {entry.name for entry in folder.iterdir()}, "what was found is not kept")
        # The next process takes it from there.
        children.run(timings, str(folder), "benchmark", "untimed")


def off() -> None:
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            children.run(timings, "off", "benchmark", "timed", HIPDNN_RS_CACHE_DIR=name)
        check(not any(Path(name).iterdir()), "the directory of the environment has entries")


def half(make: Callable[[networks.Build], str], shape: list[int]) -> bytes:
    """A network in fp16."""
    b = networks.Build(37)
    proto = onnx.load_from_string(b.model({"x": shape}, [make(b)]))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in [*proto.graph.input, *proto.graph.output]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del proto.graph.value_info[:]
    return proto.SerializeToString()


def strict() -> None:
    model = half(lambda b: b.node("Tanh", b.node("Conv", "x", b.weights(16, 3, 3, 3))), SHAPE)
    x = networks.images(SHAPE)["x"].astype(np.float16)
    exact = np.asarray(ReferenceEvaluator(networks.in_double(in_float(model))).run(None, {"x": x.astype(np.float64)})[0])
    errors = {}
    results: dict[str, Any] = {}
    for precision in ("default", "strict"):
        session = device.session(model, precision=precision)
        device.claimed(session)
        results[precision] = session.run({"x": x})[0]
        errors[precision] = float(np.abs(results[precision].astype(np.float64) - exact).sum())
    check(not np.array_equal(results["default"], results["strict"]), "precision changes nothing")
    check(errors["strict"] < errors["default"], f"errors {errors}")


def in_float(model: bytes) -> bytes:
    """The same network on float tensors."""
    proto = onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in [*proto.graph.input, *proto.graph.output]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    return proto.SerializeToString()
