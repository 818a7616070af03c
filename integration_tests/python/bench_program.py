#!/usr/bin/env python3
"""Host time of a run of the provider's programs on a GPU, beside that of their kernels' bare launches, in C and in Python.

For the emulated GPU, where launches succeed and run nothing while the clock runs: what is left is the host's work. All inputs and
outputs are bound, in device memory. What is printed:

* The bare launches: a C loop calls `hipModuleLaunchKernel` with the functions, grids and arguments of the program's own launches,
  which the emulated GPU showed; in turn with the runs.
* The program: from the entry of the provider's `Compute` to its return, which has enqueued everything. The ratio is that of this to
  the bare launches.
* The other callbacks of the provider that a run makes: where it begins and ends, with the wait for the stream, and `Flush`.
* What ONNX Runtime takes itself, with the application's call of it: the rest of the run.

Each program is run by an application in C (`c/program_times.c`), one run after the other as a server makes them, and by Python, whose own
code between the runs leaves them colder caches. Figures are medians. `c/callback_times.c` has the clock around the callbacks;
`cargo xtask bench dispatch` runs this.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort

import emulated_gpu
import onnxruntime_ep_hipdnn_rs as wheel
import provider
from gpu import device, networks, streams
from suite_umbrella import compiled

SHAPE = [1, 3, 32, 32]
RUNS = 3000
# Callbacks of a run, by the numbers of callback_times.c.
COMPUTE, OTHERS = 0, (1, 2, 3, 4)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        library = compiled("callback_times.c", Path(directory) / "libcallback_times.so")
        os.environ["CALLBACK_TIMES_PROVIDER"] = wheel.get_library_path()
        provider.LIBRARY = str(library)
        device.device()
        clock = Clock(library)
        application = compiled("program_times.c", Path(directory) / "program_times")
        print("| program | application | kernels | bare launches, µs | program, µs | ratio | other callbacks, µs | ONNX Runtime, µs |\n"
              "|---|---|---|---|---|---|---|---|")
        for name, make in (("ResNet-like", networks.resnet_like), ("MobileNet-like", networks.mobilenet_like)):
            model = make(SHAPE)
            for language, figures in (("C", in_c(model, application, library)), ("Python", measure(model, clock))):
                kernels, bare, program, others, runtime = figures
                print(f"| {name} | {language} | {kernels} | {bare:.2f} | {program:.2f} | {program / bare:.2f} | {others:.2f} | {runtime:.2f} |")
    return 0


def in_c(model: bytes, application: Path, library: Path) -> tuple[int, float, float, float, float]:
    """As `measure`, of the application in C."""
    path = application.with_name("model.onnx")
    path.write_bytes(model)
    output = provider.cpu_session(model).get_outputs()[0]
    command = [os.environ[emulated_gpu.RUNNER], application, streams.library(), library, path, output.name, output.shape[1], RUNS]
    ended = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{application.name} ended with {ended.returncode}: {ended.stderr[-1000:]}")
    launches, *nanoseconds = map(int, ended.stdout.split())
    bare, program, others, runtime = (figure / 1e3 for figure in nanoseconds)
    return launches, bare, program, others, runtime


class Clock:
    """The provider's callbacks as callback_times.c takes their times; microseconds."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.callback_times_take.restype = ctypes.c_size_t
        self.library.callback_times_recorded.restype = ctypes.c_size_t
        self.library.callback_times_clock.restype = ctypes.c_longlong
        self.library.callback_times_launches.restype = ctypes.c_longlong
        self.times = (ctypes.c_longlong * 4096)()
        self.look = statistics.median(self.library.callback_times_clock() for _ in range(1000))

    def take(self, kind: int) -> list[float]:
        """The calls of a kind since the last question, without what the clock itself takes."""
        return [(self.times[index] - self.look) / 1e3 for index in range(self.library.callback_times_take(kind, self.times))]

    def record(self, run: Callable[[], object]) -> int:
        """Records the launches that `run` makes, instead of earlier ones; their number."""
        self.library.callback_times_forget()
        emulated_gpu.hip().hipemu_watch_launches(ctypes.cast(self.library.callback_times_record, ctypes.c_void_p))
        try:
            run()
        finally:
            emulated_gpu.hip().hipemu_watch_launches(None)
        return self.library.callback_times_recorded()

    def launches(self, stream: ctypes.c_void_p) -> float:
        launch = ctypes.cast(emulated_gpu.hip().hipModuleLaunchKernel, ctypes.c_void_p)
        spent = self.library.callback_times_launches(launch, stream)
        if spent < 0:
            raise RuntimeError("a bare launch failed")
        return (spent - self.look) / 1e3


def measure(model: bytes, clock: Clock) -> tuple[int, float, float, float, float]:
    """The kernels of a run, and microseconds of as many bare launches, of the program, of other callbacks and of the runtime."""
    options = provider.options()
    options.add_provider_for_devices([device.device()], {"cost_rule": "0"})
    session = ort.InferenceSession(model, options, enable_fallback=0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", device.on_device(networks.images(SHAPE)["x"]))
    shape = session.run(None, networks.images(SHAPE))[0].shape
    binding.bind_ortvalue_output(session.get_outputs()[0].name, device.empty_on_device(shape))
    work = device.used(lambda: session.run_with_iobinding(binding))
    if work["copies"]:
        raise RuntimeError("a part of the network is not the provider's")
    kernels = work["launches"]
    if (recorded := clock.record(lambda: session.run_with_iobinding(binding))) != kernels:
        raise RuntimeError(f"expected {kernels} launches with their arguments in one piece, got {recorded}")
    bare, program, others, runtime = [], [], [], []
    stream = ctypes.c_void_p()
    emulated_gpu.call("hipStreamCreateWithFlags", ctypes.byref(stream), emulated_gpu.NON_BLOCKING)
    emulated_gpu.hip().hipemu_skip_launches(1)
    for kind in (COMPUTE, *OTHERS):
        clock.take(kind)
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        whole = (time.perf_counter() - start) * 1e6
        program.append(sum(clock.take(COMPUTE)))
        others.append(sum(sum(clock.take(kind)) for kind in OTHERS))
        runtime.append(whole - program[-1] - others[-1])
        # In turn with the runs: either finds the caches as Python and the runtime leave them.
        bare.append(clock.launches(stream))
    emulated_gpu.hip().hipemu_skip_launches(0)
    emulated_gpu.call("hipStreamSynchronize", stream)
    emulated_gpu.call("hipStreamDestroy", stream)
    return kernels, *map(statistics.median, (bare, program, others, runtime))


if __name__ == "__main__":
    sys.exit(main())
