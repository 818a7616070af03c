#!/usr/bin/env python3
"""A contender of `bench_conv.py`: models of one convolution as a primitive of oneDNN, through its C API.

Requests and answers are those of `bench_contender.py`. Input, weights and output are in the layouts that the primitive prefers: they are
reordered before and behind the clock. Numbers are those of `dnnl_types.h`, of oneDNN 3.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any, Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench_contender import aligned, timed

CPU, IN_ORDER, FORWARD_INFERENCE, DIRECT, F32, ANY = 1, 1, 96, 1, 3, 1
SRC, DST, WEIGHTS, BIAS = 1, 17, 33, 41
QUERIES = {SRC: 129, WEIGHTS: 131, DST: 133}
LONGS = ctypes.c_int64 * 12


class Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class Library:
    """The library, an engine and a stream of it."""

    def __init__(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)
        self.functions.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.functions.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.engine = self.made("dnnl_engine_create", CPU, ctypes.c_size_t(0))
        self.stream = self.made("dnnl_stream_create", self.engine, IN_ORDER)

    def call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self.functions, name)(*arguments):
            raise RuntimeError(f"{name}: expected status 0, got {status}")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """The object that a function writes to its first argument."""
        new = ctypes.c_void_p()
        self.call(name, ctypes.byref(new), *arguments)
        return new

    def described(self, shape: tuple[int, ...], preferred: bool) -> ctypes.c_void_p:
        """A tensor in a layout that a primitive prefers, or without gaps."""
        if preferred:
            return self.made("dnnl_memory_desc_create_with_tag", len(shape), LONGS(*shape), F32, ANY)
        strides = [int(np.prod(shape[axis + 1:])) for axis in range(len(shape))]
        return self.made("dnnl_memory_desc_create_with_strides", len(shape), LONGS(*shape), F32, LONGS(*strides))

    def execute(self, primitive: ctypes.c_void_p, memories: dict[int, ctypes.c_void_p]) -> Callable[[], None]:
        """A function that executes the primitive and waits for it."""
        arguments = (Argument * len(memories))(*(Argument(arg, memory.value) for arg, memory in memories.items()))
        run, wait = self.functions.dnnl_primitive_execute, self.functions.dnnl_stream_wait
        count, stream = len(memories), self.stream

        def executed() -> None:
            if run(primitive, stream, count, arguments) or wait(stream):
                raise RuntimeError("expected the primitive to execute, got an error")

        return executed

    def reorder(self, from_: tuple[ctypes.c_void_p, ctypes.c_void_p], to: tuple[ctypes.c_void_p, ctypes.c_void_p]) -> None:
        """Copies one memory (its description, itself) to another one."""
        description = self.made("dnnl_reorder_primitive_desc_create", from_[0], self.engine, to[0], self.engine, None)
        self.execute(self.made("dnnl_primitive_create", description), {SRC: from_[1], DST: to[1]})()


def opened(library: Library, model: onnx.ModelProto, x: np.ndarray) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    """The convolution's run, and a function that gives its result."""
    node = model.graph.node[0]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    w, rank, groups = constants[node.input[1]], x.ndim - 2, attributes["group"]
    strides, dilations, pads = attributes["strides"], attributes["dilations"], attributes["pads"]
    outputs = [(x.shape[axis + 2] + pads[axis] + pads[axis + rank] - dilations[axis] * (w.shape[axis + 2] - 1) - 1) // strides[axis] + 1 for axis in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *outputs), np.float32)
    arrays = {SRC: x, WEIGHTS: w.reshape(groups, w.shape[0] // groups, *w.shape[1:]) if groups > 1 else w, DST: y}
    wanted = {arg: library.described(array.shape, True) for arg, array in arrays.items()}
    if bias := node.input[2:]:
        arrays[BIAS] = constants[bias[0]]
    plain = {arg: library.described(array.shape, False) for arg, array in arrays.items()}
    # Its dilation counts the places between taps.
    between = [dilation - 1 for dilation in dilations]
    description = library.made("dnnl_convolution_forward_primitive_desc_create", library.engine, FORWARD_INFERENCE, DIRECT, wanted[SRC], wanted[WEIGHTS],
                               plain.get(BIAS), wanted[DST], LONGS(*strides), LONGS(*between), LONGS(*pads[:rank]), LONGS(*pads[rank:]), None)
    memory = lambda of, at: library.made("dnnl_memory_create", of, library.engine, at)
    arrays = {arg: np.ascontiguousarray(array) for arg, array in arrays.items()}
    own = {arg: memory(plain[arg], ctypes.c_void_p(array.ctypes.data)) for arg, array in arrays.items()}
    chosen = {arg: ctypes.c_void_p(library.functions.dnnl_primitive_desc_query_md(description, query, 0)) for arg, query in QUERIES.items()}
    buffers = {arg: aligned(library.functions.dnnl_memory_desc_get_size(of)) for arg, of in chosen.items()}
    memories = {arg: memory(of, ctypes.c_void_p(buffers[arg].ctypes.data)) for arg, of in chosen.items()}
    memories |= {arg: own[arg] for arg in own if arg == BIAS}
    for arg in (SRC, WEIGHTS):
        library.reorder((plain[arg], own[arg]), (chosen[arg], memories[arg]))

    def result() -> np.ndarray:
        library.reorder((chosen[DST], memories[DST]), (plain[DST], own[DST]))
        return y

    run = library.execute(library.made("dnnl_primitive_create", description), memories)
    # What the memories refer to lives as long as the run.
    run.kept = arrays, buffers  # type: ignore[attr-defined]
    return run, result


def main() -> int:
    setting = json.loads(sys.argv[1])
    os.environ["OMP_NUM_THREADS"] = str(setting["threads"])
    library = Library(setting["provider"])
    # With one thread the caller does all the work: its own time leaves out what else the machine does.
    clock = time.thread_time if setting["threads"] == 1 else time.perf_counter
    run: Callable[[], None] = lambda: None
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            start = clock()
            with np.load(request["feeds"]) as arrays:
                run, result = opened(library, onnx.load(request["open"]), np.ascontiguousarray(arrays["x"]))
            made = clock()
            run()
            answer: Any = {"session": 1e3 * (made - start), "first run": 1e3 * (clock() - made)}
            np.savez(request["outputs"], result())
        else:
            answer = timed(run, request["seconds"], clock)
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
