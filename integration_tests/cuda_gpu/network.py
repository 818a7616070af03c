"""A seeded ResNet-50 as one hipDNN graph, beside PyTorch, on an NVIDIA GPU: fp16, channels last, batch norms folded, captured graphs.

    network.py [--batch N …] [--inductor] [--warm] [--turns N] [--profile FILE] [--explain FILE] [--json FILE]

Weights and images are random numbers of one seed, the same for all. The graph has every convolution's bias, residual and ReLU as nodes of
their own, the max pool, the mean over places, and the classifier as a convolution of one tap. Ours are plans of the engine without search, with
`global.benchmarking` and with `hipdnn_rs.gpu.search=tune`; "parts" have MIOpen asked for no fused kernels. PyTorch runs the same arithmetic eagerly with
cuDNN's search (`torch.backends.cudnn.benchmark`), and with its own operators for convolution, bias, residual and ReLU in one; with --inductor also
what torch.compile makes of it. All are captured and replayed in turns; times are of one replay, the fastest and the median of all turns.

The share that is not convolution is that of the kernels' own times on the device, one behind the other, in which cuDNN's and cuBLAS's kernels and
what they copy and clear count as convolution. Results are compared with PyTorch's in float, beside what PyTorch's own in fp16 differ by.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

# Plans are built without what another run has found, unless this process is told where that is.
WARM = "HIPDNN_RS_NETWORK_CACHE"
if WARM in os.environ:
    os.environ["HIPDNN_RS_CACHE_DIR"] = os.environ[WARM]
else:
    os.environ["HIPDNN_RS_CACHE_DIR"] = tempfile.mkdtemp(prefix="hipdnn-network-")
    atexit.register(shutil.rmtree, os.environ["HIPDNN_RS_CACHE_DIR"], ignore_errors=True)

import hipdnn_rs  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from bench import ENGINE, Lent  # noqa: E402

# What tensors promise: PyTorch's memory begins at multiples of more.
ALIGNMENT = 16
LAST = "channels_last"
CLASSES = 1000
# Blocks of each stage, and the channels of their middle; results have four times as many.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
REPLAYS = 20

Knobs = dict[str, int | str]


@dataclass
class Layer:
    """A convolution, and what is done with its result."""

    channels: int
    filters: int
    taps: int = 1
    stride: int = 1
    relu: bool = True
    # Scale of the weights, so that sums of residuals stay in range.
    gain: float = 1.0


@dataclass
class Block:
    """Three convolutions, around which the input is added, through one more where it has another shape."""

    inner: list[Layer]
    shortcut: Layer | None = None


def blocks() -> Iterator[Block]:
    channels = 64
    for stage, (count, middle) in enumerate(STAGES):
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            inner = [Layer(channels, middle), Layer(middle, middle, 3, stride), Layer(middle, 4 * middle, relu=True, gain=0.3)]
            yield Block(inner, Layer(channels, 4 * middle, 1, stride, relu=False) if index == 0 else None)
            channels = 4 * middle


STEM = Layer(3, 64, 7, 2)
BLOCKS = list(blocks())
HEAD = Layer(4 * STAGES[-1][1], CLASSES, relu=False)


def layers() -> list[Layer]:
    """All convolutions, in order."""
    of_blocks = [layer for block in BLOCKS for layer in [*([block.shortcut] if block.shortcut else []), *block.inner]]
    return [STEM, *of_blocks, HEAD]


def weights(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Filters, channels last, and biases of all convolutions."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for layer in layers():
        fan = layer.channels * layer.taps**2
        w = torch.randn(layer.filters, layer.channels, layer.taps, layer.taps, generator=random) * layer.gain * (2 / fan) ** 0.5
        b = torch.randn(layer.filters, generator=random) * 0.1
        made.append((w.half().cuda().contiguous(memory_format=torch.channels_last), b.half().cuda()))
    return made


def image(batch: int, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, 224, 224, generator=random).half().cuda().contiguous(memory_format=torch.channels_last)


# ---- the graph ----


def described(batch: int) -> hipdnn_rs.Graph:
    """The network as one graph: inputs `x`, `w0`, `b0`, …, result `y`."""
    g = hipdnn_rs.Graph(f"resnet50_{batch}", dtype="half")
    count = iter(range(len(layers())))

    def aligned(tensor: hipdnn_rs.Tensor) -> hipdnn_rs.Tensor:
        tensor._description["alignment"] = ALIGNMENT
        return tensor

    def convolved(x: hipdnn_rs.Tensor, layer: Layer, residual: hipdnn_rs.Tensor | None = None) -> hipdnn_rs.Tensor:
        n = next(count)
        w = aligned(g.input(f"w{n}", (layer.filters, layer.channels, layer.taps, layer.taps), layout=LAST))
        b = aligned(g.input(f"b{n}", (1, layer.filters, 1, 1), layout=LAST))
        y = g.add(g.conv(x, w, padding=layer.taps // 2, stride=layer.stride), b)
        if residual is not None:
            y = g.add(y, residual)
        return g.relu(y) if layer.relu else y

    x = convolved(aligned(g.input("x", (batch, 3, 224, 224), layout=LAST)), STEM)
    x = g.max_pool(x, 3, stride=2, padding=1)
    for block in BLOCKS:
        around = convolved(x, block.shortcut) if block.shortcut else x
        first, second, third = block.inner
        x = convolved(convolved(convolved(x, first), second), third, around)
    aligned(g.output(convolved(g.mean(x, (2, 3)), HEAD), "y", layout=LAST))
    return g


# ---- PyTorch ----


def eager(x: torch.Tensor, parameters: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The network by PyTorch's operators, in place where a program would."""
    each = iter(parameters)

    def convolved(x: torch.Tensor, layer: Layer, residual: torch.Tensor | None = None) -> torch.Tensor:
        w, b = next(each)
        y = F.conv2d(x, w, b, stride=layer.stride, padding=layer.taps // 2)
        if residual is not None:
            y += residual
        return y.relu_() if layer.relu else y

    return network(x, convolved, each)


def fused(x: torch.Tensor, parameters: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The same by PyTorch's operators for a convolution with what follows it."""
    each = iter(parameters)

    def convolved(x: torch.Tensor, layer: Layer, residual: torch.Tensor | None = None) -> torch.Tensor:
        w, b = next(each)
        stride, padding = [layer.stride] * 2, [layer.taps // 2] * 2
        if residual is not None:
            return torch.cudnn_convolution_add_relu(x, w, residual, 1.0, b, stride, padding, [1, 1], 1)
        if layer.relu:
            return torch.cudnn_convolution_relu(x, w, b, stride, padding, [1, 1], 1)
        return F.conv2d(x, w, b, stride=stride, padding=padding)

    return network(x, convolved, each)


def network(x: torch.Tensor, convolved: Callable[..., torch.Tensor], each: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    x = F.max_pool2d(convolved(x, STEM), 3, 2, 1)
    for block in BLOCKS:
        around = convolved(x, block.shortcut) if block.shortcut else x
        first, second, third = block.inner
        x = convolved(convolved(convolved(x, first), second), third, around)
    w, b = next(each)
    return F.linear(x.mean((2, 3)), w.flatten(1), b)


# ---- what is timed ----


@dataclass
class Contender:
    """A captured graph, and what was found of it."""

    name: str
    # What was captured.
    run: Callable[[], torch.Tensor]
    graph: torch.cuda.CUDAGraph
    result: torch.Tensor
    seconds_to_build: float | None = None
    times: list[float] = field(default_factory=list)
    kernels: list[tuple[str, float]] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.times)

    @property
    def other_share(self) -> float | None:
        """Share of the kernels' time that is not convolution."""
        total = sum(us for _, us in self.kernels)
        return sum(us for name, us in self.kernels if not is_convolution(name)) / total if total else None


# Names of kernels that compute something else: PyTorch's own, Triton's, those of the engine's compiler.
OTHERS = re.compile(r"at::native|^triton|^kernel$")


def is_convolution(name: str) -> bool:
    return not OTHERS.search(name)


def captured(name: str, run: Callable[[], torch.Tensor]) -> Contender:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    graph.replay()
    torch.cuda.synchronize()
    return Contender(name, run, graph, result)


def ours(name: str, batch: int, knobs: Knobs, x: torch.Tensor, parameters: list[tuple[torch.Tensor, torch.Tensor]],
         options: argparse.Namespace) -> Contender:
    g = described(batch)
    started = time.perf_counter()
    plan = g.compile(engine=ENGINE, device="rocm", knobs=knobs)
    seconds = time.perf_counter() - started
    named = g.tensors

    def lent(name: str, memory: torch.Tensor) -> Lent:
        return Lent(memory.as_strided(named[name].shape, named[name].strides))

    y = torch.full((batch * CLASSES,), float("nan"), dtype=torch.float16, device="cuda")
    workspace = Lent(torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8, device="cuda"))
    inputs = {"x": lent("x", x)}
    for n, (w, b) in enumerate(parameters):
        inputs |= {f"w{n}": lent(f"w{n}", w), f"b{n}": lent(f"b{n}", b)}
    outputs = {"y": lent("y", y)}

    def run() -> torch.Tensor:
        plan.run(inputs, out=outputs, workspace=workspace, stream=torch.cuda.current_stream().cuda_stream)
        return y

    print(f"{name}, batch {batch}: a plan in {seconds:.2f} s", file=sys.stderr, flush=True)
    made = captured(name, run)
    made.seconds_to_build = seconds
    if options.explain:
        with open(options.explain, "a", encoding="utf-8") as file:
            file.write(f"--- {name}, batch {batch}\n{plan.explain()}\n")
    return made


def theirs(name: str, run: Callable[..., torch.Tensor], x: torch.Tensor, parameters: list[tuple[torch.Tensor, torch.Tensor]]) -> Contender:
    return captured(name, lambda: run(x, parameters))


def profiled(contender: Contender) -> None:
    """Takes the kernels' own times of one run, launched one by one."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        contender.run()
        torch.cuda.synchronize()
    found = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
    contender.kernels = [(event.name, event.time_range.elapsed_us()) for event in found]


def warm(batch: int, knobs: Knobs) -> float:
    """Seconds that another process takes for a plan whose choices and kernels are kept."""
    environment = os.environ | {WARM: os.environ["HIPDNN_RS_CACHE_DIR"]}
    command = [sys.executable, __file__, "--plan-only", json.dumps([batch, knobs])]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def only_plan(batch: int, knobs: Knobs) -> None:
    g = described(batch)
    torch.cuda.init()
    started = time.perf_counter()
    g.compile(engine=ENGINE, device="rocm", knobs=knobs)
    print(time.perf_counter() - started)


# What ours are built with.
TUNED: Knobs = {"hipdnn_rs.gpu.search": "tune"}
PARTS: Knobs = {"hipdnn_rs.gpu.fused_kernels": 0}
OURS: dict[str, Knobs] = {
    "ours": {}, "ours, parts": PARTS, "ours, benchmark": {"global.benchmarking": 1}, "ours, tune": TUNED, "ours, tune, parts": TUNED | PARTS,
}


def measure(batch: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    x, parameters = image(batch, 1), weights(0)
    with torch.inference_mode():
        contenders = [ours(name, batch, knobs, x, parameters, options) for name, knobs in OURS.items()]
        contenders.append(theirs("PyTorch", eager, x, parameters))
        contenders.append(theirs("PyTorch, fused", fused, x, parameters))
        if options.inductor:
            contenders.append(theirs("Inductor", torch.compile(eager, dynamic=False), x, parameters))
        for turn in range(options.turns):
            for contender in contenders if turn % 2 else reversed(contenders):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(REPLAYS):
                    contender.graph.replay()
                stop.record()
                stop.synchronize()
                contender.times.append(start.elapsed_time(stop) * 1e3 / REPLAYS)
        exact = eager(x.float(), [(w.float(), b.float()) for w, b in parameters])
        for contender in contenders:
            try:
                profiled(contender)
            except Exception as problem:  # noqa: BLE001 - the times are good without it
                print(f"{contender.name}: no kernels' times: {problem}", file=sys.stderr)
    by_torch = next(contender for contender in contenders if contender.name == "PyTorch")
    rows = []
    for contender in contenders:
        got = contender.result.float().reshape(batch, CLASSES)
        difference = ((got - exact).abs().max() / exact.abs().max()).item()
        rows.append({
            "batch": batch, "contender": contender.name, "us": contender.best, "median": statistics.median(contender.times),
            "ratio": contender.best / by_torch.best, "kernels": len(contender.kernels), "kernels_us": sum(us for _, us in contender.kernels),
            "other_share": contender.other_share, "difference": difference, "cold_s": contender.seconds_to_build,
            "warm_s": warm(batch, OURS["ours"]) if options.warm and contender.name == "ours" else None,
        })
    allowed = 3 * max(row["difference"] for row in rows if row["contender"] == "PyTorch")
    for row in rows:
        # Not-a-number is beyond it too.
        row["right"] = bool(row["difference"] <= allowed)
    if options.profile:
        with open(options.profile, "a", encoding="utf-8") as file:
            for contender in contenders:
                file.write(f"--- {contender.name}, batch {batch}\n")
                file.writelines(f"{us:9.2f} {'conv ' if is_convolution(name) else 'other'} {name[:150]}\n" for name, us in contender.kernels)
    return rows


def line(row: dict[str, Any]) -> str:
    share = f"{row['other_share']:5.0%}" if row["other_share"] is not None else "     "
    built = " ".join(f"{row[name]:6.2f}" if row[name] is not None else f"{'':6}" for name in ("cold_s", "warm_s"))
    return (f"{row['batch']:5} {row['contender']:20} | {row['us']:8.1f} {row['median']:8.1f} | {row['ratio']:5.2f} | {row['kernels']:4} "
            f"{row['kernels_us']:8.1f} {share} | {built} | {row['difference']:.1e}{'' if row['right'] else '  WRONG'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32], metavar="N")
    parser.add_argument("--inductor", action="store_true", help="torch.compile too, which takes a minute")
    parser.add_argument("--turns", type=int, default=15, metavar="N")
    parser.add_argument("--profile", metavar="FILE", help="each kernel's time")
    parser.add_argument("--json", metavar="FILE", help="the rows for programs")
    parser.add_argument("--explain", metavar="FILE", help="the plans, in words")
    parser.add_argument("--warm", action="store_true", help="how long another process takes for the first plan again, whose choices and kernels are kept")
    parser.add_argument("--plan-only", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plan_only:
        only_plan(*json.loads(options.plan_only))
        return 0
    torch.backends.cudnn.benchmark = True
    # What is compared with is computed in float.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; times in microseconds")
    print(f"{'batch':5} {'':20} | {'best':>8} {'median':>8} | {'ratio':>5} | {'kernels, their time, not conv':>19} | {'cold':>6} {'warm':>6} | difference")
    rows = []
    for batch in options.batch:
        found = measure(batch, options)
        rows += found
        for row in found:
            print(line(row), flush=True)
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
