#!/usr/bin/env python3
"""Host time of a run of the provider's program on a GPU, beside that of its kernels' bare launches.

For the emulated GPU with HIPEMU_SKIP=1, where launches succeed and run nothing: what is left is the host's work. A run is one with
bound memory, without what ONNX Runtime takes for a run of a single Identity of its own: reading extents, finding the program,
memory, every step, and the wait at the end. A bare launch is `hipModuleLaunchKernel` in a loop. `cargo xtask bench dispatch`
runs this.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import Callable

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import emulated_gpu
import provider
from gpu import device, networks

SHAPE = [1, 3, 32, 32]
RUNS, ROUNDS = 200, 7
ARGUMENTS = 6
KERNEL = 'extern "C" __global__ void nothing(float* a, float* b, float* c, int d, int e, int f) { if (d < 0) *a = *b + *c + e + f; }'


def main() -> None:
    print("| program | kernels | host time of a run, µs | of its bare launches, µs | ratio |\n|---|---|---|---|---|")
    for name, make in (("ResNet-like", networks.resnet_like), ("MobileNet-like", networks.mobilenet_like)):
        kernels, ran, bare = measure(make(SHAPE))
        print(f"| {name} | {kernels} | {ran:.1f} | {bare:.1f} | {ran / bare:.2f} |")


def measure(model: bytes) -> tuple[int, float, float]:
    """The kernels of a run, and microseconds of a run and of so many bare launches."""
    options = provider.options()
    options.add_provider_for_devices([device.device()], {"cost_rule": "0"})
    session = ort.InferenceSession(model, options)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", device.on_device(networks.images(SHAPE)["x"]))
    shape = session.run(None, networks.images(SHAPE))[0].shape
    binding.bind_ortvalue_output(session.get_outputs()[0].name, device.empty_on_device(shape))
    before = emulated_gpu.counters().launches
    session.run_with_iobinding(binding)
    kernels = emulated_gpu.counters().launches - before
    empty = empty_run()
    runs, nothing, launches = [], [], []
    for _ in range(ROUNDS):
        runs.append(timed(lambda: session.run_with_iobinding(binding)))
        nothing.append(timed(empty))
        launches.append(bare_launch())
    return kernels, statistics.median(runs) - statistics.median(nothing), kernels * statistics.median(launches)


def timed(body: Callable[[], object]) -> float:
    """Microseconds of a call."""
    start = time.perf_counter()
    for _ in range(RUNS):
        body()
    return (time.perf_counter() - start) / RUNS * 1e6


def empty_run() -> Callable[[], None]:
    """A run of ONNX Runtime's own with a bound input and output, whose time is no program's."""
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider.CPU])
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros(1, np.float32))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32)))
    return lambda: session.run_with_iobinding(binding)


def bare_launch() -> float:
    """Microseconds of a launch, without what calling it from Python takes."""
    hip = emulated_gpu.hip()
    with emulated_gpu.Module(emulated_gpu.compile_kernels(KERNEL)) as module:
        function = ctypes.c_void_p()
        emulated_gpu.call("hipModuleGetFunction", ctypes.byref(function), module.handle, b"nothing")
        values = [ctypes.c_void_p()] * 3 + [ctypes.c_int(1)] * 3
        pointers = (ctypes.c_void_p * ARGUMENTS)(*[ctypes.addressof(value) for value in values])
        stream = ctypes.c_void_p()
        emulated_gpu.call("hipStreamCreateWithFlags", ctypes.byref(stream), 1)
        launch, nothing = hip.hipModuleLaunchKernel, hip.hipPeekAtLastError
        arguments = (function, 1, 1, 1, 64, 1, 1, 0, stream, pointers, None)
        took = timed(lambda: launch(*arguments))
        # A function without arguments leaves those that it is passed alone, and Python prepares as many.
        called = timed(lambda: nothing(*arguments))
        emulated_gpu.call("hipStreamSynchronize", stream)
        emulated_gpu.call("hipStreamDestroy", stream)
    return took - called


if __name__ == "__main__":
    main()
