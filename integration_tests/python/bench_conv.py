#!/usr/bin/env python3
"""Times single convolutions with constant weights on the provider, on ONNX Runtime's CPU provider and in oneDNN.

The layers are those of `layers.csv`, all distinct convolutions of the open models of `bench.py`, or those of a list (`--list`):
a CSV file with a header, a row for each convolution, sizes of several axes written as in 3x3:

    N, C, in_spatial    extents of the input, one axis or more
    K, kernel           number of filters and their extents
    stride, dilation    for each axis; 1 where the column is missing
    pads_begin_end      padding before each axis, then behind each, with spaces between; 0 where the column is missing
    group, bias         number of groups, and whether a bias is added (yes or no); 1 and no where the column is missing
    nodes               how often networks have it: the weight of the layer in sums; 1 where the column is missing

Other columns are passed over, except that rows whose `op` is not Conv, and those with an `auto_pad`, are left out and counted.

Each contender has a process of its own and is measured as in `bench.py`. oneDNN runs its primitive in the layouts that it prefers, its
input reordered before: what a layer costs inside of a network of its own.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import models
import provider
from bench import LAYERS, OURS, Contender, Setting, compare, geometric_mean

CPU, ONEDNN, BEFORE = "CPU EP", "oneDNN", "before"


@dataclass(frozen=True)
class Layer:
    """A convolution of images of any rank."""

    batch: int
    channels: int
    extents: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    # Before each axis, then behind each.
    pads: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    bias: bool

    def __str__(self) -> str:
        text = f"{self.channels}→{self.filters} {times(self.kernel)}"
        text += f"/{times(self.stride)}" if set(self.stride) != {1} else ""
        text += f" d{times(self.dilation)}" if set(self.dilation) != {1} else ""
        text += f" g{self.groups}" if self.groups > 1 else ""
        return f"{text} at {times(self.extents)}" + (f", batch {self.batch}" if self.batch > 1 else "")

    @property
    def outputs(self) -> tuple[int, ...]:
        axes = range(len(self.extents))
        return tuple((self.extents[axis] + self.pads[axis] + self.pads[axis + len(axes)] - self.dilation[axis] * (self.kernel[axis] - 1) - 1)
                     // self.stride[axis] + 1 for axis in axes)

    @property
    def operations(self) -> int:
        """Multiplications and additions of the definition."""
        return 2 * self.batch * self.filters * math.prod(self.outputs) * self.channels // self.groups * math.prod(self.kernel)

    @property
    def kind(self) -> str:
        """The class that the layer is counted in."""
        strided, pixels = set(self.stride) != {1}, math.prod(self.outputs)
        size = "1 place" if pixels == 1 else next((f"≤ {most} places" for most in (256, 3600) if pixels <= most), "> 3600 places")
        kernel = times(self.kernel)
        over = f"/{times(self.stride)}" if strided else ""
        if len(self.extents) != 2:
            return f"{len(self.extents)}-D"
        if 1 < self.groups == self.channels:
            return f"depthwise {kernel}{over}"
        if self.groups > 1:
            return "grouped"
        if math.prod(self.kernel) == 1:
            return f"pointwise{over}, {size}"
        if self.channels <= 4:
            return "stem"
        if set(self.dilation) != {1}:
            return "dilated"
        return f"3×3{over}, {size}" if kernel == "3×3" else f"other{over}"

    def model(self) -> tuple[bytes, dict[str, np.ndarray]]:
        """The convolution as a model with constant weights, and an input for it."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((self.batch, self.channels, *self.extents)).astype(np.float32)
        constants = {"w": rng.standard_normal((self.filters, self.channels // self.groups, *self.kernel)).astype(np.float32)}
        if self.bias:
            constants["b"] = rng.standard_normal(self.filters).astype(np.float32)
        node = helper.make_node("Conv", ["x", *constants], ["y"], strides=self.stride, pads=self.pads, dilations=self.dilation, group=self.groups)
        graph = helper.make_graph([node], "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * x.ndim)],
                                  [helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.tobytes(), raw=True) for name, value in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return model.SerializeToString(), {"x": x}


# Layers with their weights.
Layers = dict[Layer, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="directory of the models")
    parser.add_argument("--peak", type=float, required=True, help="multiplications and additions of a thread without memory, in GFLOP/s")
    parser.add_argument("--list", type=Path, help="a CSV file of layers, in the place of the tables")
    parser.add_argument("--only", default="", help="layers whose class or sizes contain this text, as in '3×3/2×2' or '64→256 1×1 at 56×56'")
    parser.add_argument("--part", default="1/1", help="a part of the layers: 2/4 is the second quarter (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="time of a contender in a turn")
    parser.add_argument("--before", type=Path, help="libonnxruntime_providers_hipdnn_rs.so of another build with its libraries beside it, as one more contender")
    parser.add_argument("--csv", type=Path, help="file for the times of each layer")
    arguments = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} CPUs, {arguments.threads} thread(s), {arguments.turns} turns; peak {arguments.peak:.0f} GFLOP/s a thread")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        setting = Setting(arguments.threads, True)
        contenders = [Contender(OURS, provider.NAME, setting)]
        if arguments.before:
            contenders.append(Contender(BEFORE, provider.NAME, setting, library=arguments.before.resolve()))
        try:
            contenders.append(Contender(ONEDNN, str(models.fetch("onednn", arguments.cache)), setting, script="bench_onednn.py"))
        except models.FetchError as problem:
            print(f"oneDNN is left out: {problem}")
        contenders.append(Contender(CPU, provider.CPU, setting))
        tables = {arguments.list.name: read_list(arguments.list)} if arguments.list else {
            "the layers of layers.csv": read_layers(), "distinct convolutions of the open models": read_models(arguments.cache)}
        for contender in contenders:
            stack.enter_context(contender)
        times_of: dict[Layer, dict[str, float]] = {}
        for title, table in tables.items():
            part, parts = map(int, arguments.part.split("/"))
            chosen = [layer for layer in table if arguments.only in f"{layer.kind} {layer}"][part - 1::parts]
            for layer in chosen:
                if layer not in times_of:
                    times_of[layer] = measured(contenders, layer, arguments, Path(directory))
            if chosen:
                report(title, {layer: table[layer] for layer in chosen}, times_of, arguments.peak * arguments.threads)
        if arguments.csv:
            write(arguments.csv, times_of, [contender.name for contender in contenders])
    return 0


def measured(contenders: list[Contender], layer: Layer, arguments: argparse.Namespace, directory: Path) -> dict[str, float]:
    """Milliseconds of each contender, and ratios `EP/other` as medians of the turns'."""
    model, feeds = layer.model()
    path = directory / "layer.onnx"
    path.write_bytes(model)
    taken = compare(contenders, path, feeds, arguments.turns, arguments.seconds, directory)
    figures = {contender.name: time for contender, time in zip(contenders, taken.times())}
    return figures | {f"{OURS}/{contender.name}": taken.ratio(0, at) for at, contender in enumerate(contenders) if at}


def report(title: str, weights: Layers, times_of: dict[Layer, dict[str, float]], peak: float) -> None:
    """The table of the classes, worst first, and the layers on which most is lost."""
    peers = [name for name in (CPU, ONEDNN, BEFORE) if all(name in times_of[layer] for layer in weights)]
    print(f"\n{title}: EP's time / {' / '.join(peers)}'s; sum: of times, by use; share: of the peak, in %")
    print(f"{'class':28} {'layers':>6} {'EP, ms':>9} {'share':>5} " + " ".join(f"{name:>7} {'sum':>5}" for name in peers) + "  worst")
    classes: dict[str, list[Layer]] = defaultdict(list)
    for layer in weights:
        classes[layer.kind].append(layer)
    ratio = lambda layer, name: times_of[layer][f"{OURS}/{name}"]
    mean = lambda layers, name: geometric_mean([ratio(layer, name) for layer in layers])
    rows = sorted(classes.items(), key=lambda row: -mean(row[1], CPU)) + [("all", list(weights))]
    for kind, layers in rows:
        spent = {name: sum(weights[layer] * times_of[layer][name] for layer in layers) for name in (OURS, *peers)}
        share = 100 * sum(weights[layer] * layer.operations for layer in layers) / (1e6 * peak * spent[OURS])
        worst = max(layers, key=lambda layer: ratio(layer, CPU))
        figures = " ".join(f"{mean(layers, name):7.2f} {spent[OURS] / spent[name]:5.2f}" for name in peers)
        print(f"{kind:28} {len(layers):6} {spent[OURS]:9.3f} {share:5.0f} {figures}  {ratio(worst, CPU):.2f} {worst}")
    lost = lambda layer: weights[layer] * (times_of[layer][OURS] - times_of[layer][CPU])
    print("most lost: layers, µs of EP and of CPU EP, how often used")
    for layer in [layer for layer in sorted(weights, key=lost, reverse=True) if lost(layer) > 0][:15]:
        taken = times_of[layer]
        print(f"  {str(layer):44} {1e3 * taken[OURS]:9.1f} {1e3 * taken[CPU]:9.1f} × {weights[layer]}")


def write(path: Path, times_of: dict[Layer, dict[str, float]], names: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["class", "layer", "operations", *names])
        out.writerows([layer.kind, str(layer), layer.operations, *(f"{1e-3 * figures[name]:.9f}" for name in names)] for layer, figures in times_of.items())


def read_layers() -> Layers:
    """The square layers that `bench.py` has."""
    with LAYERS.open(newline="") as file:
        rows = [{key: int(value) for key, value in row.items() if key not in ("name", "class")} for row in csv.DictReader(file)]
    return {Layer(row["n"], row["c"], (row["h"],) * 2, row["k"], (row["r"],) * 2, (row["stride"],) * 2, (row["pad"],) * 4,
                  (row["dilation"],) * 2, row["groups"], False): 1 for row in rows}


def read_list(path: Path) -> Layers:
    found: Layers = {}
    left_out: Counter[str] = Counter()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get("op", "Conv") != "Conv":
                left_out[row["op"]] += 1
            elif row.get("auto_pad", "NOTSET") != "NOTSET":
                left_out[f"auto_pad {row['auto_pad']}"] += 1
            else:
                layer = listed(row)
                found[layer] = found.get(layer, 0) + int(row.get("nodes") or 1)
    if left_out:
        print(f"{path.name}: left out " + ", ".join(f"{count} of {what}" for what, count in left_out.items()))
    return found


def listed(row: dict[str, str]) -> Layer:
    extents = sizes(row["in_spatial"])
    rank = len(extents)
    each = lambda key: sizes(row[key]) if row.get(key) else (1,) * rank
    pads = tuple(map(int, (row.get("pads_begin_end") or " ".join(["0"] * 2 * rank)).split()))
    layer = Layer(int(row["N"]), int(row["C"]), extents, int(row["K"]), sizes(row["kernel"]), each("stride"), pads, each("dilation"),
                  int(row.get("group") or 1), row.get("bias") == "yes")
    lengths = [len(layer.kernel), len(layer.stride), len(layer.dilation), len(pads) / 2]
    if any(length != rank for length in lengths):
        raise SystemExit(f"{layer}: expected sizes of {rank} axes, as in_spatial has, got {lengths}")
    return layer


def read_models(cache: Path) -> Layers:
    """All convolutions of the models that `bench.py` times, with the extents that they have there."""
    given: list[tuple[Path, list[int]]] = [
        (models.fetch("detector", cache), [1, 3, 736, 1472]), (models.fetch("recogniser", cache), [1, 3, 48, 320]),
        (models.dynamic_centerface(cache), [1, 3, 480, 640]), (models.fetch("orientation", cache), [1, 3, 224, 224]),
        (models.random_resnet50(cache), [1, 3, 224, 224])]
    found: Layers = {}
    for path, shape in given:
        for layer in convolutions(path, shape):
            found[layer] = found.get(layer, 0) + 1
    return found


def convolutions(path: Path, shape: list[int]) -> list[Layer]:
    """The convolutions of a model with one input, whose shapes a run of the CPU provider tells."""
    model = onnx.load(str(path))
    graph = model.graph
    nodes = [node for node in graph.node if node.op_type == "Conv"]
    del graph.output[:]
    wanted = sorted({name for node in nodes for name in node.input[:2]})
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted)
    options = provider.options(1)
    # Every value that is asked for has to stay one.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[provider.CPU])
    feeds = provider.generated_inputs(session, {session.get_inputs()[0].name: shape})
    shapes = {name: value.shape for name, value in zip(wanted, session.run(wanted, feeds))}
    return [convolution(node, shapes) for node in nodes]


def convolution(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> Layer:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    (batch, channels, *extents), (filters, _, *kernel) = shapes[node.input[0]], shapes[node.input[1]]
    rank = len(extents)
    if attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise SystemExit(f"{node.name}: expected pads, got auto_pad {attributes['auto_pad'].decode()}")
    strides, dilations = (tuple(attributes.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = tuple(attributes.get("pads", [0] * 2 * rank))
    return Layer(batch, channels, tuple(extents), filters, tuple(kernel), strides, pads, dilations, attributes.get("group", 1), len(node.input) > 2)


def sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.replace("×", "x").split("x")))


def times(extents: tuple[int, ...]) -> str:
    return "×".join(map(str, extents))


if __name__ == "__main__":
    sys.exit(main())
