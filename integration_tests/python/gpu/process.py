"""What all else stands on: one process with ONNX Runtime, the emulated HIP, its compiler and the real MIOpen."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path
from typing import Callable, Iterator

import numpy as np

import emulated_gpu
import miopen
import provider
from gpu import children
from reference import Geometry, bound, convolve
from runner import check
from suite_umbrella import model

SOURCE = 'extern "C" __global__ void twice(float* p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= 2; }'
LATE_US = 20_000


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "a kernel is compiled and runs late, on memory that copies reach", late_kernel
    yield "an access by the host ends the process with a report", stray_access
    yield "a process that a test starts has the device", lambda: children.run(device_is_there)
    yield "devices are as many as the environment says", lambda: children.run(count_devices, "3", HIPEMU_DEVICES="3")
    yield "MIOpen convolves", miopen_convolves
    yield "ONNX Runtime runs a model with the provider registered", beside_onnxruntime


def late_kernel() -> None:
    content = np.arange(1000, dtype=np.float32)
    with emulated_gpu.Memory(content) as memory, emulated_gpu.Module(emulated_gpu.compile_kernels(SOURCE)) as module:
        with emulated_gpu.delays(LATE_US), emulated_gpu.traced() as trace:
            module.launch("twice", content.size, memory.address, ctypes.c_int(content.size))
            got = memory.read(content.shape)
        np.testing.assert_array_equal(got, 2 * content)
    launches, kernels = trace.calls("hipModuleLaunchKernel"), trace.work("kernel")
    check([line["kernel"] for line in kernels] == ["twice"] and len(launches) == 1, f"{launches}, {kernels}")
    check(kernels[0]["t_us"] > launches[0]["t_us"] and kernels[0]["thread"] != launches[0]["thread"], f"{launches}, {kernels}")


def touch_device_memory() -> None:
    memory = emulated_gpu.Memory(64)
    ctypes.c_float.from_address(memory.address.value or 0).value


def stray_access() -> None:
    ended = children.start(touch_device_memory)
    check(ended.returncode == -signal.SIGSEGV or ended.returncode == 128 + signal.SIGSEGV, f"the process ended with {ended.returncode}")
    check("the host touched device memory" in ended.stderr and "byte 0 of 64" in ended.stderr, ended.stderr[-1000:])


def device_is_there() -> None:
    check(emulated_gpu.missing() is None, f"{emulated_gpu.missing()}")
    emulated_gpu.Memory(np.ones(4, np.float32)).read((4,))


def count_devices(wanted: str) -> None:
    check(emulated_gpu.device_count() == int(wanted), f"{emulated_gpu.device_count()} devices")


def miopen_convolves() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 8, 9, 9)).astype(np.float32), rng.standard_normal((4, 8, 3, 3)).astype(np.float32)
    total, magnitude = convolve(x, w, None, Geometry(pads=[1, 1, 1, 1]))
    error = np.abs(miopen.convolve(x, w, 1) - total)
    check(bool((error <= bound(total, magnitude, w, "float32")).all()), f"off by up to {error.max():.3g}")


def beside_onnxruntime() -> None:
    bytes_ = model()
    session, cpu = provider.Session(bytes_), provider.cpu_session(bytes_)
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    difference = provider.relative_difference(session.run(feeds), cpu.run(None, feeds))
    check(difference < 1e-5, f"off by {difference:.3g} of the range")
