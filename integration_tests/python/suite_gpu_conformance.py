#!/usr/bin/env python3
"""The provider's operator suites on a GPU: the emulated one, with late streams. Right results are asked for whatever the GPU's engine declines,
and of what it has that it ran there.

GPU_EXTENT says how much (`gpu.extent`): one case of each operator, and in a sample all those that have only Conv.
GPU_PARTS=table,random,onnx,networks chooses parts, GPU_JOBS how many processes share the cases. GPU_IMAGE has
all nine light models run, with images of that many pixels a side, from 32 to their own 224.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Callable

import emulated_gpu
import onnxruntime_ep_hipdnn_rs as wheel
import ort_conformance
import provider
import suite_random
import suite_table
from gpu import children, light
from gpu import extent as gpu_extent
from runner import Failure, Runner, check, run_suite

# Streams wait up to so long before each piece of work.
LATE_US = 100
JOBS = int(os.environ.get("GPU_JOBS", len(os.sched_getaffinity(0))))
# The first seed of the random nodes and graphs.
SEED = 7000
# Seconds without an answer after which a worker's case counts as a crash, and which a network at its own size may take.
PATIENCE, PATIENCE_WITH_NETWORK = 1800, 7200


@dataclass(frozen=True)
class Extent:
    """How much is run."""

    # Of the table's convolutions every n-th, by element type.
    strides: dict[str, int]
    # Numbers of random nodes and graphs.
    nodes: int
    graphs: int
    # Of onnx's cases of one operator so many, spread over all that it has, and whether those with only Conv are all among them;
    # `None`: every case of any number of operators.
    of_each_operator: int | None
    # Of the light models, and the pixels of an image's side.
    networks: tuple[str, ...]
    image: int
    every_convolution: bool = True


# Without those with more weights than anything else: AlexNet and its kind.
SAMPLED_NETWORKS = ("densenet121", "inception_v2", "resnet50", "shufflenet")

EXTENTS = {
    "thin": Extent({"float32": 8, "float16": 12, "bfloat16": 12}, 60, 12, 1, ("shufflenet",), 32, every_convolution=False),
    "sample": Extent({"float32": 4, "float16": 6, "bfloat16": 8}, 120, 24, 1, SAMPLED_NETWORKS, 32),
    "all": Extent({"float32": 1, "float16": 1, "bfloat16": 1}, 5000, 1000, None, light.NAMES, light.FULL),
}
HOW_MUCH = gpu_extent.chosen()


def extent() -> Extent:
    return EXTENTS[HOW_MUCH]


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
    everything = suite_table.SHAPES + suite_table.TYPED
    chosen = [case for kind, stride in extent().strides.items() for case in [c for c in everything if c.element_type == kind][::stride]]
    # Eighty extents are eighty programs.
    return chosen + [case for case in suite_table.DYNAMIC if HOW_MUCH == "all" or len(case.feeds) < 10] + suite_table.WEIGHTS


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
        check(2 * len(left) <= len(ran), f"of {len(ran)} cases in float32 {len(left)} ran nothing on the device: {', '.join(left)}")

    runner.case("table: most convolutions in float32 ran on the device", on_the_device)


# ---- random nodes and graphs ----


def random(runner: Runner) -> None:
    nodes, graphs = extent().nodes, extent().graphs
    cases = [("node", seed) for seed in range(SEED, SEED + nodes)] + [("graph", seed) for seed in range(SEED, SEED + graphs)]
    cases = [(kind, seed) for kind, seed in cases if runner.wants(f"random: {kind} {seed}")]
    mine = 0

    def report(entry: dict[str, Any]) -> None:
        nonlocal mine
        if entry["outcome"] == suite_random.NO_REFERENCE:
            return
        mine += bool(entry["mine"])
        runner.case(f"random: {entry['kind']} {entry['seed']}", lambda: judged(entry))

    suite_random.run(wheel.get_library_path(), cases, JOBS, report)
    runner.case("random: some models have nodes on the device", lambda: check(10 * mine >= len(cases), f"{mine} of {len(cases)} have one"))


def judged(entry: dict[str, Any]) -> None:
    if entry["outcome"] != "passed":
        raise Failure(f"{', '.join(entry['operators'])}: {entry.get('detail', '')}")


# ---- onnx's own cases ----


def of_onnx(cases: list[Any]) -> list[int]:
    """Numbers of cases."""
    of_each = extent().of_each_operator
    # The light models are a part of their own, where more than what their Softmax leaves is compared.
    if of_each is None:
        return [number for number, case in enumerate(cases) if case.kind != "real"]
    by_operators: dict[tuple[str, ...], list[int]] = {}
    for number, case in enumerate(cases):
        if case.kind != "real":
            operators = {node.op_type for node in ort_conformance.load_model(case).graph.node} - {"Constant", "Identity"}
            by_operators.setdefault(tuple(sorted(operators)), []).append(number)
    chosen = []
    for operators, numbers in by_operators.items():
        if operators == ("Conv",) and extent().every_convolution:
            chosen += numbers
        elif len(operators) == 1:
            chosen += numbers[::-(-len(numbers) // of_each)]
    return sorted(chosen)


def onnx(runner: Runner) -> None:
    cases = ort_conformance.collect()
    # Names alone are not unique: some cases come in two kinds.
    names = [f"{case.kind}/{case.name}" for case in cases]

    def report(name: str, result: dict[str, Any]) -> None:
        runner.case(name, lambda: right(result))

    chosen = [number for number in of_onnx(cases) if runner.wants(f"onnx: {names[number]}")]
    # Without the cost rule each node that the engine has is on the device.
    results = ort_conformance.run_cases(wheel.get_library_path(), {"cost_rule": "0"}, chosen, names, JOBS,
                                        lambda result: report(f"onnx: {names[result['number']]}", result), PATIENCE)
    tally = ort_conformance.Tally(results)
    there = sorted({operator for result in tally.passed if result["mine"] for operator in result["mine"]})
    print(f"gpu conformance: {tally.summary()}; on the device: {', '.join(there)}", flush=True)
    runner.case("onnx: convolutions ran on the device", lambda: check("Conv" in there or not results, f"only {', '.join(there)} were there"))


def right(result: dict[str, Any]) -> None:
    wrong = (ort_conformance.is_crash, ort_conformance.is_regression, ort_conformance.is_failure)
    if any(judge(result) for judge in wrong):
        raise Failure(f"{result['ep']}: {result.get('ep_detail', '')}")


# ---- whole networks ----


def networks(runner: Runner) -> None:
    wanted = os.environ.get("GPU_IMAGE", "")
    if wanted and not (wanted.isdecimal() and 32 <= int(wanted) <= light.FULL):
        raise SystemExit(f"GPU_IMAGE: expected 32 to {light.FULL}, got {wanted}")
    names, image = (light.NAMES, int(wanted)) if wanted else (extent().networks, extent().image)
    for name in names:
        runner.case(f"networks: {name} at {image} × {image}",
                    lambda name=name: children.run(light.same, name, str(image), patience=PATIENCE_WITH_NETWORK))


PARTS: dict[str, Callable[[Runner], None]] = {"table": table, "random": random, "onnx": onnx, "networks": networks}


if __name__ == "__main__":
    sys.exit(main())
