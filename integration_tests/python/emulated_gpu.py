"""The emulated GPU from Python: HIP by ctypes, and what `hipemu_control.h` lets tests ask beside HIP.

A process has it where `cargo xtask emulated-gpu python` or a stage of `cargo xtask test` started it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import numpy as np

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
NON_BLOCKING = 1
OUT_OF_MEMORY, UNKNOWN = 2, 999

# The script that starts a program on the emulated GPU.
RUNNER = "HIPEMU_RUNNER"


class HipError(Exception):
    """A HIP function that did not answer with success."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} gave {code}, {hip().hipGetErrorName(code).decode()}")
        self.function, self.code = function, code


class Counters(ctypes.Structure):
    """`struct hipemu_counters`: what is alive now, and what was done since the process began."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "live_streams", "live_events", "live_allocations", "live_bytes", "live_host_allocations", "live_modules", "live_graphs",
        "live_graph_execs", "calls", "launches", "kernels_run", "kernels_failed", "copies", "fills", "waits", "injected_failures",
        "violations")]

    def living(self) -> dict[str, int]:
        """What somebody has made and not released yet."""
        return {name: getattr(self, name) for name, _ in self._fields_ if name.startswith("live_")}


def missing() -> str | None:
    """Why this process has no emulated GPU; nothing where it has one."""
    try:
        library = hip()
    except OSError as problem:
        return f"no HIP: {problem}"
    return None if hasattr(library, "hipemu_get_counters") else "HIP is not the emulated one"


@functools.cache
def hip() -> ctypes.CDLL:
    """The HIP runtime. It is never unloaded."""
    library = ctypes.CDLL("libamdhip64.so")
    library.hipGetErrorName.restype = ctypes.c_char_p
    library.hipemu_call_count.restype = ctypes.c_uint64
    library.hipemu_call_count.argtypes = [ctypes.c_char_p]
    library.hipemu_fail_call.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
    library.hipemu_set_memory_limit.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.hipemu_set_delay.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.hipemu_trace.argtypes = [ctypes.c_char_p]
    library.hipemu_trace_mark.argtypes = [ctypes.c_char_p]
    library.hipemu_get_counters.argtypes = [ctypes.POINTER(Counters), ctypes.c_size_t]
    for name in ("hipemu_get_counters", "hipemu_fail_call", "hipemu_fail_clear", "hipemu_set_memory_limit", "hipemu_hold_streams",
                 "hipemu_set_delay", "hipemu_skip_launches", "hipemu_watch_launches", "hipemu_trace_mark", "hipemu_clear_errors"):
        getattr(library, name).restype = None
    return library


def call(name: str, *arguments: Any) -> None:
    """Calls a HIP function; an error is an exception."""
    if code := getattr(hip(), name)(*arguments):
        raise HipError(name, code)


def interpreter() -> list[str]:
    """How a script starts another Python: on the emulated GPU if this one is."""
    runner = os.environ.get(RUNNER)
    return [runner, sys.executable] if runner else [sys.executable]


# ---- what tests control ----


def counters() -> Counters:
    now = Counters()
    hip().hipemu_get_counters(ctypes.byref(now), ctypes.sizeof(now))
    return now


def call_count(function: str = "*") -> int:
    """How often a function was called since the process began; of all together without a name."""
    return hip().hipemu_call_count(function.encode())


@contextmanager
def failing(function: str, nth: int, error: int = UNKNOWN) -> Iterator[None]:
    """The n-th call of `function` (`*`: of any) from now fails, if it happens within this block."""
    hip().hipemu_fail_call(function.encode(), nth, error)
    try:
        yield
    finally:
        hip().hipemu_fail_clear()


@contextmanager
def delays(most_us: int, seed: int = 1) -> Iterator[None]:
    """Streams wait up to so many microseconds before each piece of work."""
    hip().hipemu_set_delay(most_us, seed)
    try:
        yield
    finally:
        hip().hipemu_set_delay(0, seed)


@contextmanager
def memory_limit(total: int, single: int = 0) -> Iterator[None]:
    """A device has no more bytes of memory than this, and none longer than `single` in one piece (0: any)."""
    hip().hipemu_set_memory_limit(total, single)
    try:
        yield
    finally:
        hip().hipemu_set_memory_limit(0, 0)


class Trace:
    """What happened on the device within a block, as the lines of the trace."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def calls(self, *names: str) -> list[dict[str, Any]]:
        """Calls of these functions; of all without names."""
        return [line for line in self.lines if "call" in line and (not names or line["call"] in names)]

    def work(self, kind: str) -> list[dict[str, Any]]:
        """What streams did of a kind: kernel, copy, fill, event, wait, host, graph or free."""
        return [line for line in self.lines if kind in line]


@contextmanager
def traced() -> Iterator[Trace]:
    """The trace of a block; its lines are there once the block has ended."""
    trace = Trace()
    handle, name = tempfile.mkstemp(prefix="hipemu-", suffix=".jsonl")
    os.close(handle)
    try:
        if hip().hipemu_trace(name.encode()):
            raise OSError(f"{name} can't be opened")
        try:
            yield trace
        finally:
            hip().hipemu_trace(None)
        trace.lines = [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]
    finally:
        os.unlink(name)


# ---- HIP ----


def device_count() -> int:
    count = ctypes.c_int()
    call("hipGetDeviceCount", ctypes.byref(count))
    return count.value


class Memory:
    """Device memory, given back at the end of a `with`."""

    def __init__(self, content: np.ndarray | int) -> None:
        self.bytes = content if isinstance(content, int) else content.nbytes
        self.address = ctypes.c_void_p()
        call("hipMalloc", ctypes.byref(self.address), ctypes.c_size_t(self.bytes))
        if not isinstance(content, int):
            self.write(content)

    def write(self, content: np.ndarray) -> None:
        content = np.ascontiguousarray(content)
        call("hipMemcpy", self.address, content.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(content.nbytes), HOST_TO_DEVICE)

    def read(self, shape: tuple[int, ...], kind: Any = np.float32) -> np.ndarray:
        out = np.empty(shape, kind)
        call("hipMemcpy", out.ctypes.data_as(ctypes.c_void_p), self.address, ctypes.c_size_t(out.nbytes), DEVICE_TO_HOST)
        return out

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: Any) -> None:
        call("hipFree", self.address)


@functools.cache
def compiler() -> ctypes.CDLL:
    return ctypes.CDLL("libhiprtc.so")


def compile_kernels(source: str) -> bytes:
    """The code object of a HIP source."""
    rtc, program = compiler(), ctypes.c_void_p()

    def checked(name: str, *arguments: Any) -> None:
        if code := getattr(rtc, name)(*arguments):
            size = ctypes.c_size_t()
            rtc.hiprtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            rtc.hiprtcGetProgramLog(program, log)
            raise RuntimeError(f"{name} gave {code}: {log.value.decode()}")

    checked("hiprtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.hip", 0, None, None)
    try:
        checked("hiprtcCompileProgram", program, 0, None)
        size = ctypes.c_size_t()
        checked("hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        checked("hiprtcGetCode", program, code)
        return code.raw
    finally:
        rtc.hiprtcDestroyProgram(ctypes.byref(program))


class Module:
    """Kernels on the current device, unloaded at the end of a `with`."""

    def __init__(self, code: bytes) -> None:
        self.handle = ctypes.c_void_p()
        call("hipModuleLoadData", ctypes.byref(self.handle), code)

    def launch(self, kernel: str, items: int, *arguments: Any, stream: ctypes.c_void_p | None = None, block: int = 64) -> None:
        """Launches over so many work-items, rounded up to blocks; arguments are ctypes values."""
        function = ctypes.c_void_p()
        call("hipModuleGetFunction", ctypes.byref(function), self.handle, kernel.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        call("hipModuleLaunchKernel", function, -(-items // block), 1, 1, block, 1, 1, 0, stream, pointers, None)

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: Any) -> None:
        call("hipModuleUnload", self.handle)
