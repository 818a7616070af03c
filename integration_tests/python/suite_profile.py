#!/usr/bin/env python3
"""ONNX Runtime's own profile has an event for every step of every run of a program: which graph, which engine, which ONNX nodes."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import provider
from runner import Runner, at_once, check, run_suite

# The first release that takes events of providers.
FIRST = (1, 25)
THREADS, RUNS = 4, 5
# Arguments of an event.
ARGUMENTS = {"provider", "program", "step", "graph", "operations", "engine", "nodes"}
# ONNX Runtime cuts the times of its events to whole microseconds, and ours are cut apart from them.
ROUNDING = 2


def main() -> int:
    return run_suite(body, "profile", __doc__ or "")


def body(runner: Runner) -> None:
    runner.case("a session without a profile", without)
    if provider.VERSION < FIRST:
        runner.case("no events where ONNX Runtime takes none", not_offered)
        return
    runner.case("events for every step of every run", every_step)
    runner.case("events of nodes between which another provider has some", two_programs)
    runner.case(f"events of {THREADS} threads are on their threads", several_threads)
    runner.case("profiles of two sessions at once have their own runs only", two_sessions)


def model(asinh: bool = False) -> bytes:
    """A convolution, a transposition that ends the graph, and a sum; with an operator between that the provider leaves."""
    w = np.random.default_rng(4).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="the_conv", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"], name="the_relu")]
    if asinh:
        nodes.append(helper.make_node("Asinh", ["r"], ["s"], name="the_asinh"))
    nodes += [helper.make_node("Transpose", ["s" if asinh else "r"], ["t"], name="the_turn", perm=[0, 1, 3, 2]),
              helper.make_node("Exp", ["t"], ["y"], name="the_exp")]
    graph = helper.make_graph(nodes, "profiled", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


FEED = {"x": np.ones((1, 3, 16, 16), np.float32)}


def profiled(directory: str, content: bytes) -> provider.Session:
    options = provider.options()
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(directory) / "profile")
    return provider.Session(content, {"cost_rule": "0"}, options)


def events(session: provider.Session) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The provider's events, and the runtime's own of its nodes, of the profile that ends now."""
    trace = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    mine = [event for event in trace if event.get("args", {}).get("provider") == provider.NAME]
    steps = [event for event in mine if event["cat"] == "Kernel"]
    return steps, [event for event in mine if event["cat"] == "Node"]


def complete(steps: list[dict[str, Any]], nodes: list[dict[str, Any]], runs: int, wanted: list[set[str]]) -> None:
    """Each step is there once a run, within the time of a node of the runtime's on the same thread."""
    for event in steps:
        check(set(event["args"]) >= ARGUMENTS, f"expected the arguments {sorted(ARGUMENTS)}, got {event}")
        check(event["args"]["engine"] == "HIPDNN_RS_CPU_ENGINE" and event["args"]["operations"] != "", f"no engine, or no operations: {event}")
        check(event["dur"] >= 0, f"a step ends before it begins: {event}")
        around = [node for node in nodes if node["tid"] == event["tid"] and node["name"].startswith(event["args"]["program"])
                  and node["ts"] - ROUNDING <= event["ts"] and event["ts"] + event["dur"] <= node["ts"] + node["dur"] + ROUNDING]
        check(len(around) == 1, f"{len(around)} of {len(nodes)} nodes' times are around {event}")
    found = Counter((event["args"]["program"], event["args"]["step"], event["args"]["nodes"]) for event in steps)
    check(set(found.values()) == {runs}, f"expected each step {runs} times, got {found}")
    covered = [set(nodes.split(", ")) for _, _, nodes in sorted(found)]
    check(sorted(map(sorted, covered)) == sorted(map(sorted, wanted)), f"expected steps of {wanted}, got {covered}")


# The transposition is a view, and the sum behind it reads it.
STEPS = [{"the_conv", "the_relu"}, {"the_exp"}]


def not_offered() -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = profiled(directory, model())
        session.run(FEED)
        steps, nodes = events(session)
        check(not steps and len(nodes) == 1, f"expected the runtime's own event alone, got {steps} and {nodes}")


def every_step() -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = profiled(directory, model())
        for _ in range(RUNS):
            session.run(FEED)
        complete(*events(session), RUNS, STEPS)


def two_programs() -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = profiled(directory, model(asinh=True))
        for _ in range(RUNS):
            session.run(FEED)
        steps, nodes = events(session)
        complete(steps, nodes, RUNS, STEPS)
        programs = {event["args"]["program"] for event in steps}
        check(len(programs) == 2, f"expected the names of two programs, got {programs}")


def several_threads() -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = profiled(directory, model())
        threads: set[int] = set()

        def work(index: int) -> None:
            threads.add(threading.get_native_id())
            for _ in range(RUNS):
                session.run(FEED)

        at_once(THREADS, work)
        steps, nodes = events(session)
        complete(steps, nodes, RUNS * THREADS, STEPS)
        counted = Counter(event["tid"] for event in steps)
        check(counted == {thread: RUNS * len(STEPS) for thread in threads}, f"expected events on {threads}, got {counted}")


def without() -> None:
    session = provider.Session(model(), {"cost_rule": "0"})
    first = session.run(FEED)[0]
    check(np.array_equal(first, session.run(FEED)[0]), "two runs differ")


def two_sessions() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        sessions = [profiled(one, model()), profiled(other, model(asinh=True))]
        for turn in range(RUNS):
            for number, session in enumerate(sessions):
                for _ in range(number + 1):
                    session.run(FEED)
        complete(*events(sessions[0]), RUNS, STEPS)
        complete(*events(sessions[1]), 2 * RUNS, STEPS)


if __name__ == "__main__":
    sys.exit(main())
