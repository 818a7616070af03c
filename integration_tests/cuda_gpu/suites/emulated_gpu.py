"""What the provider's suites ask of the emulated GPU, where the GPU is NVIDIA's: work is late by itself, and nothing fails on demand."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from dataclasses import dataclass
from typing import Iterator


@dataclass
class Counters:
    """What was done since the process began."""

    launches: int


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
    library.hipdnn_cuda_gpu_launches.restype = ctypes.c_uint64
    return library


def counters() -> Counters:
    return Counters(hip().hipdnn_cuda_gpu_launches())


def interpreter() -> list[str]:
    """How a script starts another Python."""
    return [sys.executable]


@contextlib.contextmanager
def delays(_most_us: int, _seed: int = 1) -> Iterator[None]:
    """A real stream is as late as it is."""
    yield
