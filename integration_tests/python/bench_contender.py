#!/usr/bin/env python3
"""One contender of bench.py, in a process of its own: sessions of one provider with one setting, opened and timed on request.

Requests are lines of JSON on standard input, answers lines of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnxruntime as ort

import provider


def main() -> int:
    setting = json.loads(sys.argv[1])
    answers = sys.stdout
    # What libraries print must not get between the answers.
    sys.stdout = sys.stderr
    run: Callable[[], Any] = lambda: None
    # With one thread the caller does all the work: its own time leaves out what else the machine does.
    clock = time.thread_time if setting["threads"] == 1 else time.perf_counter
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            run, answer = open_session(setting, Path(request["open"]), Path(request["feeds"]), Path(request["outputs"]), clock)
        else:
            answer = timed(run, request["seconds"], clock)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def open_session(setting: dict[str, Any], model: Path, feeds: Path, outputs: Path,
                 clock: Callable[[], float]) -> tuple[Callable[[], Any], dict[str, float]]:
    """A session whose inputs and outputs are bound to memory that stays, and the milliseconds that it took to make, and its
    first run; writes what it computes to `outputs`."""
    start = clock()
    chosen = provider.options(setting["threads"], **{
        "session.set_denormal_as_zero": "1",
        "session.intra_op.allow_spinning": "1" if setting["spinning"] else "0",
    })
    if setting["provider"] == provider.CPU:
        session = ort.InferenceSession(str(model), chosen, providers=[provider.CPU])
    else:
        options = {"threads": str(setting["threads"]), **setting["options"]}
        session = provider.Session(model, options, chosen, report=False).session
    with np.load(feeds) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    made = clock()
    results = session.run(None, given)
    opening = {"session": 1e3 * (made - start), "first run": 1e3 * (clock() - made)}
    np.savez(outputs, *results)
    binding = session.io_binding()
    for name, value in given.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value))
    for output, value in zip(session.get_outputs(), results):
        binding.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(np.zeros_like(value)))
    return lambda: session.run_with_iobinding(binding), opening


def timed(run: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> float:
    """The time of the fastest run in milliseconds by `clock`, of as many as begin within `seconds` after one that is not counted.

    Others are longer for what else the machine does.
    """
    run()
    fastest, end = float("inf"), time.perf_counter() + seconds
    while fastest == float("inf") or time.perf_counter() < end:
        start = clock()
        run()
        fastest = min(fastest, 1e3 * (clock() - start))
    return fastest


if __name__ == "__main__":
    sys.exit(main())
