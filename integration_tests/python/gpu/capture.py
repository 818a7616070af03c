"""Captured runs, streams of the application, and limits of memory."""

from __future__ import annotations

import ctypes
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnxruntime as ort

import emulated_gpu
import provider
from gpu import device, networks
from runner import Skip, check

SHAPE = [1, 3, 16, 16]


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, make in (("Conv", networks.single), ("a ResNet-like network", networks.resnet_like)):
        yield f"{name}: a captured run is replayed with new inputs", lambda make=make: replayed(make(SHAPE))
    yield "two graphs of one session, one of them released", two_graphs
    yield "a node of the CPU provider refuses the capture", refused
    yield "runs are enqueued on the application's stream", user_stream
    yield "an address that is no stream is refused", no_stream
    yield "a session's limit of device memory", limited
    yield "the profile has the device's time of each step", profile
    yield "regions grow by what is asked for, or double", growth


class Bound:
    """A session with its input and output bound in device memory."""

    def __init__(self, model: bytes, shape: list[int] = SHAPE, **options: str) -> None:
        self.model, self.shape = model, shape
        self.session = device.session(model, **options)
        self.x = device.on_device(networks.images(shape)["x"])
        wanted = networks.expected(model, networks.images(shape))
        self.y = device.empty_on_device(wanted.exact[0].shape)
        self.binding = device.bound(self.session, self.x, self.y)

    def run(self, seed: int, graph: int | None = None) -> None:
        """Runs on other content at the same address, and compares."""
        feeds = networks.images(self.shape, seed=seed)
        self.x.update_inplace(feeds["x"])
        options: Any = None
        if graph is not None:
            options = ort.RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(graph))
        self.session.session.run_with_iobinding(self.binding, options)
        networks.expected(self.model, feeds).meets([self.y.numpy()])


def captured(model: bytes) -> Bound:
    skip_without_captures()
    return Bound(model, graph_capture="1")


def skip_without_captures() -> None:
    if provider.VERSION < (1, 26):
        raise Skip(f"ONNX Runtime {ort.__version__} captures no runs of plugins")


def calls_of_a_run(bound: Bound, seed: int) -> list[str]:
    feeds = networks.images(bound.shape, seed=seed)
    bound.x.update_inplace(feeds["x"])
    with emulated_gpu.traced() as trace:
        bound.session.session.run_with_iobinding(bound.binding)
    networks.expected(bound.model, feeds).meets([bound.y.numpy()])
    return [line["call"] for line in trace.lines if "call" in line]


def replayed(model: bytes) -> None:
    bound = captured(model)
    for seed in range(4):
        bound.run(seed)
    calls = calls_of_a_run(bound, 9)
    check("hipGraphLaunch" in calls, f"a run after the first calls {sorted(set(calls))}")
    launches = [name for name in calls if name.startswith(("hipModuleLaunch", "hipExtModuleLaunch"))]
    check(not launches, f"a replay launches {len(launches)} kernels by themselves")


def two_graphs() -> None:
    bound = captured(networks.resnet_like(SHAPE))
    for seed in range(3):
        bound.run(seed, graph=1)
        bound.run(seed + 10, graph=2)
    # A run that is not captured in between uses other memory.
    bound.run(20, graph=-1)
    if hasattr(bound.session.session, "release_captured_graph"):
        bound.session.session.release_captured_graph(1)
    for seed in range(3):
        bound.run(seed + 30, graph=2)
        bound.run(seed + 40, graph=1)


def refused() -> None:
    skip_without_captures()
    try:
        device.session(networks.interrupted(SHAPE), graph_capture="1")
    except Exception as problem:
        check(device.is_error_of_runtime(problem), f"{type(problem).__name__}: {problem}")
    else:
        check(False, "a session with a node of the CPU provider was made, though its runs are captured")


@contextmanager
def stream() -> Iterator[int]:
    """The address of an application's stream, which is still there when the block ends."""
    made = ctypes.c_void_p()
    emulated_gpu.call("hipStreamCreateWithFlags", ctypes.byref(made), emulated_gpu.NON_BLOCKING)
    try:
        yield made.value or 0
    finally:
        emulated_gpu.call("hipStreamSynchronize", made)
        emulated_gpu.call("hipStreamDestroy", made)


def user_stream() -> None:
    with stream() as address:
        bound = Bound(networks.single(SHAPE), user_compute_stream=str(address))
        bound.run(1)
        with emulated_gpu.Memory(256) as memory, emulated_gpu.traced() as trace:
            # By work of its own the application's stream is known in the trace.
            emulated_gpu.call("hipMemsetAsync", memory.address, 0, ctypes.c_size_t(memory.bytes), ctypes.c_void_p(address))
            bound.run(2)
        launched = {line["stream"] for line in trace.work("kernel")}
        (own,) = {line["stream"] for line in trace.work("fill")}
        check(launched == {own}, f"kernels ran on the streams {sorted(launched)}, the application's is {own}")
        del bound


def no_stream() -> None:
    if reason := getattr(emulated_gpu, "UNCHECKED_STREAMS", None):
        raise Skip(reason)
    try:
        device.session(networks.single(SHAPE), user_compute_stream="12345")
    except Exception as problem:
        check("expected a stream of HIP" in str(problem), str(problem))
    else:
        check(False, "a session took an address that is no stream")


def limited() -> None:
    model = networks.single([1, 3, 64, 64])
    feeds = networks.images([1, 3, 64, 64])
    networks.expected(model, feeds).meets(device.session(model, memory_limit=str(8 << 20)).run(feeds))
    # Room for the input, and not for the output.
    try:
        device.session(model, memory_limit="90000").run(feeds)
    except Exception as problem:
        check("of at most 90000 bytes" in str(problem) and "device memory" in str(problem), str(problem))
    else:
        check(False, "a session had more than its limit")


def profile() -> None:
    if provider.VERSION < (1, 25):
        raise Skip(f"ONNX Runtime {ort.__version__} takes no events of plugins")
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        options.add_provider_for_devices([device.device()], {})
        session = ort.InferenceSession(networks.resnet_like([1, 3, 32, 32]), options)
        for _ in range(3):
            session.run(None, networks.images([1, 3, 32, 32]))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    steps = [event for event in events if event.get("args", {}).get("engine") == "HIPDNN_RS_GPU_ENGINE"]
    check(len(steps) >= 3, f"the profile has {len(steps)} steps of the engine")
    check(sum(event["dur"] for event in steps) > 0, "no step took any time on the device")


def growth() -> None:
    model, feeds = networks.single(SHAPE), networks.images(SHAPE)
    taken = {}
    for strategy in ("kSameAsRequested", "kNextPowerOfTwo"):
        before = emulated_gpu.call_count("hipMalloc")
        session = device.session(model, arena_extend_strategy=strategy)
        networks.expected(model, feeds).meets(session.run(feeds))
        taken[strategy] = emulated_gpu.call_count("hipMalloc") - before
        del session
    check(taken["kSameAsRequested"] >= taken["kNextPowerOfTwo"], f"{taken}")
