"""Runs on a stream that the application names for each (`c/application.c`), by ONNX Runtime's C API."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Iterator

import onnxruntime as ort

import emulated_gpu
import onnxruntime_ep_hipdnn_rs as wheel
import suite_umbrella
from gpu import networks
from gpu.steady import WAITS
from runner import Skip, check

SHAPE = [1, 3, 16, 16]


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "runs on streams that run options name: in order, right, and without waiting; pinned memory, allocators' numbers", named_by_run_options


def library() -> Path:
    found = sorted((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    if not found:
        raise Skip("the package of ONNX Runtime has no library of its C API")
    return found[0]


def named_by_run_options() -> None:
    runtime = library()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = suite_umbrella.compiled("application.c", folder / "application", "-lm")
        model = networks.resnet_block(SHAPE)
        (folder / "model.onnx").write_bytes(model)
        trace = folder / "trace.jsonl"
        runner = os.environ[emulated_gpu.RUNNER]
        command = [runner, str(program), str(runtime), wheel.get_library_path(), str(folder / "model.onnx"), networks.output_name(model)]
        ended = subprocess.run(command, env=os.environ | {"HIPEMU_TRACE": str(trace)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=300)
        check(ended.returncode == 0, f"exit status {ended.returncode}: {ended.stderr[-1500:]}")
        lines = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    marks = [index for index, line in enumerate(lines) if "mark" in line]
    check(len(marks) == 2, f"{len(marks)} marks")
    held = [line["call"] for line in lines[marks[0]:marks[1]] if "call" in line]
    check(not set(held) & set(WAITS), f"a run waits: {held}")
    # Everything of the held run is done after it was let go, on one stream.
    done = [line for line in lines[marks[1]:] if "kernel" in line or "copy" in line]
    launches = sum(call.startswith(("hipModuleLaunch", "hipExtModuleLaunch")) for call in held)
    first = done[:launches + 2]
    check(launches > 1 and len({line["stream"] for line in first}) == 1, f"{launches} launches, done: {first}")
