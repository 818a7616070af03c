"""Share of memory bandwidth that the engine's kernels reach on an NVIDIA GPU, beside PyTorch's.

    bench.py [--only REGEX] [--inductor] [--csv FILE] [--sets-mb N] [--rounds N]

Executions go over sets of tensors in turn, so that none finds its own in the cache, are captured in a graph and replayed. Times are of one
execution: the best and the median of all rounds. The share is that of the peak of memory, counted in the bytes that the best known algorithm must
move. Before it is timed a graph's result is compared with PyTorch's in double precision where that fits in memory.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import re
import statistics
import sys
import traceback
from typing import Any, Callable

import hipdnn_rs
import torch

import graphs

# The device's memory in bytes a second, by its vendor.
PEAK = {"NVIDIA H200": 4.8e12, "NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA A100-SXM4-80GB": 2.04e12}

TYPES = {"half": torch.float16, "float": torch.float32, "bfloat16": torch.bfloat16}
ENGINE = "HIPDNN_RS_GPU_ENGINE"
REPLAYS = 8


class Lent:
    """A tensor of CUDA's, lent as one of ROCm's: HIP over CUDA has the same memory."""

    ROCM = 10

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.ROCM, self.tensor.get_device()

    def __dlpack__(self, **_: Any) -> Any:
        # The work is on the caller's own stream: -1 wants no synchronization.
        capsule = self.tensor.__dlpack__(stream=-1)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # Of `DLManagedTensor`, the device's kind is behind the address.
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = self.ROCM
        return capsule


def tensor(description: Any) -> torch.Tensor:
    """Random numbers with the strides of a graph's tensor; parameters are positive."""
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(description.shape, description.strides))
    flat = torch.randn(min(span, 1 << 22), device="cuda").to(TYPES[description.dtype])
    flat = flat if flat.numel() == span else flat.repeat(-(-span // flat.numel()))[:span]
    return (flat if span > 1 << 16 else flat.abs() + 0.5).as_strided(description.shape, description.strides)


class Set:
    """Memory for one execution."""

    def __init__(self, plan: hipdnn_rs.Plan, named: dict[str, Any]) -> None:
        self.inputs = {name: tensor(named[name]) for name in plan.inputs}
        self.outputs = {name: torch.full_like(tensor(named[name]), float("nan")) for name in plan.outputs}
        self.workspace = torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8, device="cuda")
        self.lent = ({name: Lent(x) for name, x in self.inputs.items()}, {name: Lent(x) for name, x in self.outputs.items()})

    def execute(self, plan: hipdnn_rs.Plan) -> None:
        inputs, outputs = self.lent
        plan.run(inputs, out=outputs, workspace=Lent(self.workspace), stream=torch.cuda.current_stream().cuda_stream)


def bytes_of(description: Any) -> int:
    return (1 + sum((extent - 1) * stride for extent, stride in zip(description.shape, description.strides))) * TYPES[description.dtype].itemsize


def timed(run: Callable[[Any], Any], sets: list[Any], rounds: int) -> tuple[float, float]:
    """Seconds of one execution, best and median, from graphs that go over all sets."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in sets[:2]:
            run(one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(max(1, 12 // len(sets))):
            kept = [run(one) for one in sets]
    executions = max(1, 12 // len(sets)) * len(sets)
    graph.replay()
    times = []
    for _ in range(rounds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / REPLAYS / executions)
    del kept, graph
    return min(times), statistics.median(times)


# What rounding a result to its type may cost, with what sums of its inputs' type cost before.
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5}


def difference(case: graphs.Case, one: Set) -> str:
    """Largest difference to PyTorch in double precision, by the largest result; an error where it is beyond what rounding explains."""
    if sum(x.numel() for x in one.inputs.values()) > 1 << 28:
        want = case.torch(*one.inputs.values()).double()
    else:
        want = case.torch(*(x.double() for x in one.inputs.values())).double()
    got = one.outputs["y"].double()
    found, bound = ((got - want).abs().max() / want.abs().max()).item(), BOUNDS[one.outputs["y"].dtype]
    # Not-a-number is beyond it too.
    if not found <= bound:
        raise ValueError(f"expected a difference to PyTorch of at most {bound:.1e}, got {found:.1e}")
    return f"{found:.1e}"


def measure(case: graphs.Case, options: argparse.Namespace, peak: float) -> dict[str, Any]:
    g = hipdnn_rs.Graph(case.name)
    case.build(g)
    plan, named = g.compile(engine=ENGINE, device="rocm"), g.tensors
    # What is lent has the strides of the graph.
    moved = sum(bytes_of(named[name]) for name in [*plan.inputs, *plan.outputs]) * case.passes
    count = max(1, min(24, int(options.sets_mb * 1e6 // (moved + plan.workspace_bytes))))
    sets = [Set(plan, named) for _ in range(count)]
    row: dict[str, Any] = {"graph": case.name, "MB": moved / 1e6, "workspace": plan.workspace_bytes, "why": case.why}
    sets[0].execute(plan)
    torch.cuda.synchronize()
    row["difference"] = difference(case, sets[0])
    best, median = timed(lambda one: one.execute(plan), sets, options.rounds)
    row |= {"us": best * 1e6, "median": median * 1e6, "share": moved / best / peak}
    if not options.alone:
        best, _ = timed(lambda one: case.torch(*one.inputs.values()), sets, options.rounds)
        row |= {"torch": best * 1e6}
        if options.inductor:
            torch._dynamo.reset()
            compiled = torch.compile(case.torch, dynamic=False)
            best, _ = timed(lambda one: compiled(*one.inputs.values()), sets, options.rounds)
            row |= {"inductor": best * 1e6}
    return row


def line(row: dict[str, Any], peak: float) -> str:
    def cell(name: str) -> str:
        return f"{row[name]:9.1f} {row['MB'] * 1e6 / row[name] * 1e6 / peak:5.0%}" if name in row else f"{'':15}"
    return (f"{row['graph']:28} {row['MB']:7.1f} | {cell('us')} | {row['median']:9.1f} | {cell('torch')} | {cell('inductor')} | {row['difference']}"
            f"{'  ' + row['why'] if row['why'] else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="graphs whose names have it")
    parser.add_argument("--alone", action="store_true", help="without PyTorch's times")
    parser.add_argument("--inductor", action="store_true", help="torch.compile too, which takes seconds for each graph")
    parser.add_argument("--csv", metavar="FILE", help="the rows for programs")
    parser.add_argument("--sets-mb", type=float, default=300, metavar="N", help="megabytes of tensors that executions go over")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    options = parser.parse_args()
    device = torch.cuda.get_device_name()
    peak = PEAK.get(device)
    if peak is None:
        print(f"expected one of {', '.join(PEAK)}, got {device}", file=sys.stderr)
        return 1
    print(f"{device}, PyTorch {torch.__version__}, peak {peak / 1e12} TB/s; times in microseconds")
    print(f"{'graph':28} {'MB':>7} | {'best':>9} share | {'median':>9} | {'PyTorch':>9} share | {'Inductor':>9} share | difference")
    rows, failed = [], 0
    for case in graphs.CASES:
        if not re.search(options.only, case.name):
            continue
        try:
            rows.append(measure(case, options, peak))
            print(line(rows[-1], peak), flush=True)
        except Exception as problem:  # noqa: BLE001 - the other graphs are measured all the same
            failed += 1
            print(f"{case.name:28} failed: {' '.join(str(problem).split())[:300]}", flush=True)
            traceback.print_exc()
        torch.cuda.empty_cache()
    compared = [(row, min(row[name] for name in ("torch", "inductor") if name in row)) for row in rows if "torch" in row]
    if compared:
        ratio = statistics.geometric_mean(best / row["us"] for row, best in compared)
        print(f"{len(rows)} graphs; the best of PyTorch's times over ours in geometric mean: {ratio:.2f}; "
              f"{sum(best / row['us'] >= 0.8 for row, best in compared)} reach 80 % of its speed")
    if options.csv:
        names = ["graph", "MB", "us", "median", "share", "torch", "inductor", "difference", "workspace", "why"]
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
