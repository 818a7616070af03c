#!/usr/bin/env python3
"""One contender of bench.py, in a process of its own: sessions of one provider with one setting, opened and timed on request.

Requests are lines of JSON on standard input, answers lines of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnxruntime as ort

import provider

#: The least length of a batch of timed runs, in seconds.
BATCH = 3e-4


def main() -> int:
    setting = json.loads(sys.argv[1])
    provider.LIBRARY = setting["library"]
    answers = sys.stdout
    # What libraries print must not get between the answers.
    sys.stdout = sys.stderr
    run: Callable[[], Any] = lambda: None
    model, feeds = Path(), Path()
    # With one thread the caller does all the work: its own time leaves out what else the machine does.
    clock = time.thread_time if setting["threads"] == 1 else time.perf_counter
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            model, feeds = Path(request["open"]), Path(request["feeds"])
            run, answer = open_session(setting, model, feeds, Path(request["outputs"]), clock)
        elif "shares" in request:
            answer = shares(setting, model, feeds, request["shares"], Path(request["directory"]))
        else:
            answer = timed(run, request["seconds"], clock)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def open_session(setting: dict[str, Any], model: Path, feeds: Path, outputs: Path,
                 clock: Callable[[], float]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A session whose inputs and outputs are bound to memory that stays, and the milliseconds that it took to make, and its
    first run, and what nodes it left to other providers; writes what it computes to `outputs`."""
    start = clock()
    session = new_session(setting, model, session_options(setting))
    with np.load(feeds) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    made = clock()
    results = session.run(None, given)
    opening = {"session": 1e3 * (made - start), "first run": 1e3 * (clock() - made), "left": left(session, setting["provider"])}
    np.savez(outputs, *results)
    return bound(session, given, results), opening


def left(session: ort.InferenceSession, name: str) -> dict[str, int]:
    """How many nodes of each operator another provider has, where the runtime tells."""
    if name == provider.CPU or not provider.HAS_ASSIGNMENT:
        return {}
    others = [share for share in session.get_provider_graph_assignment_info() if share.ep_name != name]
    return dict(Counter(node.op_type for share in others for node in share.get_nodes()))


def session_options(setting: dict[str, Any]) -> ort.SessionOptions:
    return provider.options(setting["threads"], **{
        "session.set_denormal_as_zero": "1",
        "session.intra_op.allow_spinning": "1" if setting["spinning"] else "0",
    })


def new_session(setting: dict[str, Any], model: Path, chosen: ort.SessionOptions) -> ort.InferenceSession:
    if setting["provider"] == provider.CPU:
        return ort.InferenceSession(str(model), chosen, providers=[provider.CPU])
    options = {"threads": str(setting["threads"]), **setting["options"]}
    return provider.Session(model, options, chosen, report=False).session


def bound(session: ort.InferenceSession, given: dict[str, np.ndarray], results: list[Any]) -> Callable[[], Any]:
    """A run whose inputs and outputs are bound to memory of their own."""
    binding = session.io_binding()
    for name, value in given.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(aligned_copy(value)))
    for output, value in zip(session.get_outputs(), results):
        binding.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(aligned_copy(np.zeros_like(value))))
    return lambda: session.run_with_iobinding(binding)


def aligned_copy(value: np.ndarray) -> np.ndarray:
    """A copy aligned as the runtime's allocator aligns tensors between nodes. NumPy's memory may begin inside of a cache line."""
    copy = aligned(value.nbytes).view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def aligned(size: int) -> np.ndarray:
    """Bytes that begin on a cache line."""
    buffer = np.zeros(size + 64, np.uint8)
    return buffer[-buffer.ctypes.data % 64:][:size]


def shares(setting: dict[str, Any], model: Path, feeds: Path, seconds: float, directory: Path) -> dict[str, float]:
    """What runs of the provider are made of, as shares of their time that add up to 1.

    Durations are those of the runtime's profile, which has the runs, their nodes, and the provider's executions of engines' plans
    within its nodes. Within these, threads that wait are the difference between the time of all threads and the time that the process
    worked; one thread works outside of them. So threads must not spin.
    """
    chosen = session_options(setting)
    chosen.enable_profiling = True
    chosen.profile_file_prefix = str(directory / "shares")
    session = new_session(setting, model, chosen)
    with np.load(feeds) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    results = session.run(None, given)
    run = bound(session, given, results)
    run()
    unseen = 2
    start, began, runs = time.perf_counter(), time.process_time(), 0
    while runs == 0 or time.perf_counter() < start + seconds:
        run()
        runs += 1
    worked, around = time.process_time() - began, time.perf_counter() - start
    trace = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    since = sorted(event["ts"] for event in trace if event["name"] == "model_run")[unseen]
    durations: dict[str, float] = {"runs": 0, "ours": 0, "others": 0, "executions": 0}
    for event in trace:
        if event["ts"] < since:
            continue
        arguments = event.get("args", {})
        if event["name"] == "model_run":
            durations["runs"] += 1e-6 * event["dur"]
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            durations["ours" if arguments.get("provider") == provider.NAME else "others"] += 1e-6 * event["dur"]
        elif event["cat"] == "Kernel" and arguments.get("provider") == provider.NAME:
            durations["executions"] += 1e-6 * event["dur"]
    executions, total = durations["executions"], durations["runs"]
    # Python's call of a run, which is none of its parts, is one thread's work.
    busy = worked - (around - executions)
    kernels = min(executions, busy / setting["threads"])
    parts = {"kernels": kernels, "waiting": executions - kernels, "provider": durations["ours"] - executions, "others": durations["others"]}
    parts["runtime"] = total - sum(parts.values())
    return {part: time_of / total for part, time_of in parts.items()}


def timed(run: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> float:
    """The time of a run in milliseconds by `clock`: that of the fastest batch of runs, divided by their number.

    As many batches as begin within `seconds`, after a run that is not counted; other batches are longer for what else the machine
    does. A batch takes `BATCH` seconds or a run: a thread's own clock has been seen to stand still over a run of microseconds.
    """
    run()
    began = time.perf_counter()
    run()
    runs = max(1, round(BATCH / max(time.perf_counter() - began, 1e-6)))
    fastest, end = float("inf"), began + seconds
    while fastest == float("inf") or time.perf_counter() < end:
        start = clock()
        for _ in range(runs):
            run()
        worked = clock() - start
        if worked > 0:
            fastest = min(fastest, 1e3 * worked / runs)
    return fastest


if __name__ == "__main__":
    sys.exit(main())
