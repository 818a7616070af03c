#!/usr/bin/env python3
"""The provider's operator suites on a GPU: the emulated one, with late streams. Right results are asked for whatever the GPU's engine declines,
and of what it has that it ran there.

A sample runs, as in `cargo xtask test --only suite_gpu_conformance`; GPU_CONFORMANCE=all runs everything (hours).
GPU_PARTS=table,random,onnx chooses parts, GPU_JOBS how many processes share the cases.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

import emulated_gpu
import onnxruntime_ep_hipdnn_rs as wheel
import ort_conformance
import provider
import suite_random
import suite_table
from runner import Failure, Runner, check, run_suite

# Streams wait up to so long before each piece of work.
LATE_US = 100
WHOLE = os.environ.get("GPU_CONFORMANCE") == "all"
JOBS = int(os.environ.get("GPU_JOBS", os.cpu_count() or 1))

# Of the table's convolutions every n-th, by element type.
STRIDES = {"float32": 2, "float16": 4, "bfloat16": 6}
# Random nodes and graphs, from which seed on.
SAMPLE, EVERYTHING, SEED = (200, 40), (5000, 1000), 7000
# Of onnx's cases of one operator so many, spread over all that it has.
OF_EACH_OPERATOR = 2


def main() -> int:
    return run_suite(body, "gpu conformance", __doc__ or "")


def body(runner: Runner) -> None:
    if reason := emulated_gpu.missing():
        raise SystemExit(f"suite_gpu_conformance.py wants the emulated GPU (cargo xtask emulated-gpu python): {reason}")
    # Models of tests are too small to be worth a copy.
    provider.SETTINGS["cost_rule"] = "0"
    # For the processes that share the cases.
    os.environ.setdefault("HIPEMU_DELAY_US", str(LATE_US))
    wanted = os.environ.get("GPU_PARTS")
    chosen = wanted.split(",") if wanted else list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(f"GPU_PARTS: expected names of {', '.join(PARTS)}, got {', '.join(unknown)}")
    for name, part in PARTS.items():
        if name in chosen:
            part(runner)


# ---- the table of convolutions ----


def of_table() -> list[suite_table.Case]:
    if WHOLE:
        return suite_table.SHAPES + suite_table.TYPED + suite_table.DYNAMIC + suite_table.WEIGHTS
    chosen = suite_table.SHAPES[::STRIDES["float32"]]
    for element_type in ("float16", "bfloat16"):
        chosen += [case for case in suite_table.TYPED if case.element_type == element_type][::STRIDES[element_type]]
    # Eighty extents are eighty programs.
    return chosen + [case for case in suite_table.DYNAMIC if len(case.feeds) < 10] + suite_table.WEIGHTS


def table(runner: Runner) -> None:
    suite_table.MAY_DECLINE = True
    ran: dict[str, bool] = {}

    def one(name: str, of_float: bool, run: Callable[[], None]) -> None:
        before = emulated_gpu.counters().launches
        with emulated_gpu.delays(LATE_US):
            run()
        if of_float:
            ran[name] = emulated_gpu.counters().launches > before

    for case in of_table():
        runner.case(f"table: {case.name}", lambda: one(case.name, case.element_type == "float32", lambda: suite_table.run_case(case)))
    for case in (suite_table.overridable_weights, suite_table.changing_weights, suite_table.shared_weights, suite_table.branches,
                 suite_table.inside_if, suite_table.empty_bias_name):
        runner.case(f"table: {case.__name__}", lambda: one(case.__name__, True, case))
    for case in (suite_table.double_is_not_claimed, suite_table.other_operators_are_left):
        runner.case(f"table: {case.__name__}", lambda: one(case.__name__, False, case))

    def on_the_device() -> None:
        left = sorted(name for name, there in ran.items() if not there)
        check(2 * len(left) < len(ran), f"of {len(ran)} cases in float32 {len(left)} ran nothing on the device: {', '.join(left)}")

    runner.case("table: most convolutions in float32 ran on the device", on_the_device)


# ---- random nodes and graphs ----


def random(runner: Runner) -> None:
    nodes, graphs = EVERYTHING if WHOLE else SAMPLE
    cases = [("node", seed) for seed in range(SEED, SEED + nodes)] + [("graph", seed) for seed in range(SEED, SEED + graphs)]
    mine = 0

    def report(entry: dict[str, Any]) -> None:
        nonlocal mine
        if entry["outcome"] == "CPU does not open it":
            return
        mine += bool(entry["mine"])
        runner.case(f"random: {entry['kind']} {entry['seed']} ({', '.join(entry['operators'])})", lambda: passed(entry["outcome"], entry))

    suite_random.run(wheel.get_library_path(), cases, JOBS, report)
    runner.case("random: some models have nodes on the device", lambda: check(10 * mine > len(cases), f"{mine} of {len(cases)} have one"))


def passed(outcome: str, entry: dict[str, Any]) -> None:
    if outcome != "passed":
        raise Failure(entry.get("detail", outcome))


# ---- onnx's own cases ----


def of_onnx(cases: list[Any]) -> list[int]:
    """Numbers of cases: all that have only Conv, and some of each operator."""
    if WHOLE:
        return list(range(len(cases)))
    by_operators: dict[tuple[str, ...], list[int]] = {}
    for number, case in enumerate(cases):
        if case.kind != "real":
            operators = {node.op_type for node in ort_conformance.load_model(case).graph.node} - {"Constant", "Identity"}
            by_operators.setdefault(tuple(sorted(operators)), []).append(number)
    chosen = []
    for operators, numbers in by_operators.items():
        if operators == ("Conv",):
            chosen += numbers
        elif len(operators) == 1:
            chosen += numbers[::-(-len(numbers) // OF_EACH_OPERATOR)]
    return sorted(chosen)


def onnx(runner: Runner) -> None:
    cases = ort_conformance.collect()
    names, numbers = [case.name for case in cases], of_onnx(cases)
    # Without the cost rule each node that the engine has is on the device.
    results = ort_conformance.Pool(wheel.get_library_path(), {"cost_rule": "0"}, numbers, names, JOBS).results
    tally = ort_conformance.Tally(results)
    wrong = {id(result) for result in tally.crashes + tally.regressions + tally.failures}
    for result in results:
        outcome = "failed" if id(result) in wrong else "passed"
        runner.case(f"onnx: {result['name']}", lambda: passed(outcome, {"detail": f"{result['ep']}: {result.get('ep_detail', '')}"}))
    there = sorted({operator for result in tally.passed if result["mine"] for operator in result["mine"]})
    print(f"gpu conformance: {tally.summary()}; on the device: {', '.join(there)}", flush=True)
    runner.case("onnx: convolutions ran on the device", lambda: check("Conv" in there, f"only {', '.join(there)} were there"))


PARTS: dict[str, Callable[[Runner], None]] = {"table": table, "random": random, "onnx": onnx}


if __name__ == "__main__":
    sys.exit(main())
