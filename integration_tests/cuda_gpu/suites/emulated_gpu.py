"""What the provider's suites ask of the emulated GPU, where the GPU is NVIDIA's: work is late by itself, nothing fails on demand, and of what
happened only the launches are known, by stream."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from dataclasses import dataclass, field
from typing import Any, Iterator

from runner import Skip

NON_BLOCKING = 1
# Why no address is passed that is no stream.
UNCHECKED_STREAMS = "CUDA's driver reads what is at a stream's address"
RUNNER = "HIPEMU_RUNNER"
# Streams that are told apart.
MOST_STREAMS = 1 << 12


@dataclass
class Counters:
    """What was done since the process began. Bad addresses are compute-sanitizer's to find."""

    launches: int
    violations: int = 0

    def __getattr__(self, name: str) -> int:
        raise Skip(f"{name} are not counted on a real GPU")


def missing() -> str | None:
    """Why this process has no HIP over CUDA; nothing where it has."""
    try:
        library = hip()
    except (OSError, AttributeError) as problem:
        return f"no HIP over CUDA: {problem}"
    count = ctypes.c_int()
    return "no device" if library.hipGetDeviceCount(ctypes.byref(count)) else None


@functools.cache
def hip() -> ctypes.CDLL:
    """The HIP runtime. It is never unloaded."""
    library = ctypes.CDLL("libamdhip64.so.7")
    library.hipdnn_cuda_gpu_launches.restype = ctypes.c_size_t
    return library


def launches() -> dict[int, int]:
    """The launches since the process began, by stream."""
    streams, counts = (ctypes.c_size_t * MOST_STREAMS)(), (ctypes.c_uint64 * MOST_STREAMS)()
    known = hip().hipdnn_cuda_gpu_launches(streams, counts, ctypes.c_size_t(MOST_STREAMS))
    return dict(zip(streams[:known], counts[:known]))


def counters() -> Counters:
    return Counters(sum(launches().values()))


def device_count() -> int:
    count = ctypes.c_int()
    call("hipGetDeviceCount", ctypes.byref(count))
    return count.value


def call(name: str, *arguments: Any) -> None:
    """Calls a HIP function; an error is an exception."""
    if code := getattr(hip(), name)(*arguments):
        raise RuntimeError(f"{name} gave {code}")


def call_count(_function: str = "*") -> int:
    raise Skip("calls of HIP over CUDA are not counted")


def interpreter() -> list[str]:
    """How a script starts another Python."""
    return [sys.executable]


@contextlib.contextmanager
def delays(_most_us: int, _seed: int = 1) -> Iterator[None]:
    """A real stream is as late as it is."""
    yield


def failing(_function: str, _nth: int, _error: int = 0) -> Any:
    raise Skip("nothing fails on demand")


def memory_limit(_total: int, _single: int = 0) -> Any:
    raise Skip("the device's memory has no limit on demand")


class Launch(dict[str, Any]):
    """A launch, of which no more is known than its stream."""

    def __missing__(self, key: str) -> Any:
        raise Skip(f"a real GPU does not tell a launch's {key}")


@dataclass
class Trace:
    """The launches within a block, by stream."""

    kernels: list[Launch] = field(default_factory=list)

    @property
    def lines(self) -> list[dict[str, Any]]:
        raise Skip("a real GPU leaves no trace of calls")

    def calls(self, *_names: str) -> list[dict[str, Any]]:
        return self.lines

    def work(self, kind: str) -> list[Any]:
        return self.kernels if kind == "kernel" else self.lines


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    """The trace of a block; its launches are there once the block has ended."""
    trace, before = Trace(), launches()
    yield trace
    trace.kernels = [Launch(stream=stream) for stream, count in launches().items() for _ in range(count - before.get(stream, 0))]


class Memory:
    """Device memory, given back at the end of a `with`."""

    def __init__(self, content: int) -> None:
        self.bytes, self.address = content, ctypes.c_void_p()
        call("hipMalloc", ctypes.byref(self.address), ctypes.c_size_t(content))

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: Any) -> None:
        call("hipFree", self.address)


def compile_kernels(_source: str) -> bytes:
    raise Skip("the suite's kernels are for AMD GPUs")
