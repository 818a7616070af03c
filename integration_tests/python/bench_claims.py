#!/usr/bin/env python3
"""How long a session on a chain of small convolutions takes to make, and how much of that the provider's callbacks are.

A chain is one program, so one claim, whatever its length. Between others stand nodes that the provider leaves: each stretch is
a program, and ONNX Runtime's own part grows with their number. The times are those that the thread worked, in milliseconds,
behind `c/umbrella.c`, which takes the callbacks' time.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import onnxruntime_ep_hipdnn_rs as wheel
import provider
from suite_umbrella import compiled

# Convolutions, and programs that they become.
CHAINS = [(125, 1), (250, 1), (500, 1), (1000, 1), (2000, 1), (1000, 10), (1000, 50), (1000, 200)]


def chain(length: int, programs: int) -> bytes:
    rng = np.random.default_rng(1)
    weights = [helper.make_tensor(f"w{index}", TensorProto.FLOAT, (8, 8, 3, 3), rng.standard_normal((8, 8, 3, 3)).astype(np.float32).tobytes(), raw=True)
               for index in range(length)]
    nodes, value = [], "x"
    for index in range(length):
        if index and index % (length // programs) == 0:
            nodes.append(helper.make_node("Asinh", [value], [f"a{index}"], name=f"asinh{index}"))
            value = f"a{index}"
        nodes.append(helper.make_node("Conv", [value, f"w{index}"], [f"t{index}"], name=f"conv{index}", pads=[1, 1, 1, 1]))
        value = f"t{index}"
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 8, 8))],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, [None] * 4)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        library = compiled("umbrella.c", Path(directory) / "libumbrella.so")
        os.environ["UMBRELLA_BACKEND"] = wheel.get_library_path()
        ort.register_execution_provider_library("umbrella", str(library))
        log = ctypes.CDLL(str(library)).umbrella_log
        log.restype = ctypes.c_char_p
        devices = [device for device in ort.get_ep_devices() if device.ep_name == "umbrella"]
        print("| Conv in a chain | programs | CPU provider | session | claiming | compiling | the rest: ONNX Runtime |\n|---|---|---|---|---|---|---|")
        for length, programs in CHAINS:
            model = chain(length, programs)
            start = time.thread_time()
            provider.cpu_session(model)
            cpu, seen = time.thread_time() - start, len(log())
            options = provider.options()
            options.add_provider_for_devices(devices, {})
            start = time.thread_time()
            session = ort.InferenceSession(model, options, enable_fallback=0)
            whole = time.thread_time() - start
            lines = log()[seen:].decode()
            claiming, compiling = (sum(map(int, re.findall(rf"{what} took (\d+) ns", lines))) / 1e6 for what in ("claiming", "compiling"))
            print(f"| {length} | {programs} | {1e3 * cpu:.0f} | {1e3 * whole:.0f} | {claiming:.0f} | {compiling:.0f} | {1e3 * whole - claiming - compiling:.0f} |", flush=True)
            del session
    return 0


if __name__ == "__main__":
    sys.exit(main())
