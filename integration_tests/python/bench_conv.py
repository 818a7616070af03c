#!/usr/bin/env python3
"""Times single convolutions on the provider, on ONNX Runtime's CPU provider and, with constant weights, in oneDNN.

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

import csv
import math
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import bench_classes
import models
import provider
from bench import LAYERS, Contender, Setting
from bench_classes import BEFORE, CPU, Figures, measured, report, some, write

ONEDNN = "oneDNN"


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
    # Filters and bias are constants, not inputs.
    constant: bool = True

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
    def traffic(self) -> int:
        """Bytes of input, filters and output."""
        filters = self.filters * self.channels // self.groups * math.prod(self.kernel)
        return 4 * (self.batch * (self.channels * math.prod(self.extents) + self.filters * math.prod(self.outputs)) + filters)

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
        """The convolution as a model, and its inputs."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((self.batch, self.channels, *self.extents)).astype(np.float32)
        weights = {"w": rng.standard_normal((self.filters, self.channels // self.groups, *self.kernel)).astype(np.float32)}
        if self.bias:
            weights["b"] = rng.standard_normal(self.filters).astype(np.float32)
        feeds, constants = ({"x": x}, weights) if self.constant else ({"x": x, **weights}, {})
        node = helper.make_node("Conv", ["x", *weights], ["y"], strides=self.stride, pads=self.pads, dilations=self.dilation, group=self.groups)
        graph = helper.make_graph([node], "layer", [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in feeds.items()],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * x.ndim)],
                                  [helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.tobytes(), raw=True) for name, value in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return model.SerializeToString(), feeds


# Layers with their weights.
Layers = dict[Layer, int]


def main() -> int:
    options = bench_classes.parser(__doc__, turns=5)
    options.add_argument("--cache", type=Path, required=True, help="directory of the models")
    options.add_argument("--list", type=Path, help="a CSV file of layers, in the place of the tables")
    options.add_argument("--only", default="", help="layers whose class or sizes contain this text, as in '3×3/2×2' or '64→256 1×1 at 56×56'")
    options.add_argument("--run-time", action="store_true", help="filters and biases are inputs, which each run packs anew; without oneDNN")
    arguments = options.parse_args()
    setting = Setting(arguments.threads, True)
    peers = []
    if not arguments.run_time:
        try:
            peers.append(Contender(ONEDNN, str(models.fetch("onednn", arguments.cache)), setting, script="bench_onednn.py"))
        except models.FetchError as problem:
            print(f"oneDNN is left out: {problem}")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        contenders = bench_classes.contenders(arguments, peers)
        tables = {arguments.list.name: read_list(arguments.list)} if arguments.list else {
            "the layers of layers.csv": read_layers(), "distinct convolutions of the open models": read_models(arguments.cache)}
        if arguments.run_time:
            tables = {f"{title}, run-time weights": {replace(layer, constant=False): count for layer, count in table.items()} for title, table in tables.items()}
        for contender in contenders:
            stack.enter_context(contender)
        times_of: dict[Layer, Figures] = {}
        for title, table in tables.items():
            chosen = some(list(table), arguments)
            for layer in chosen:
                if layer not in times_of:
                    times_of[layer], _ = measured(contenders, layer, arguments, Path(directory))
            if chosen:
                report(title, {layer: table[layer] for layer in chosen}, times_of, [CPU, ONEDNN, BEFORE], arguments.peak * arguments.threads)
        if arguments.csv:
            write(arguments.csv, times_of, [contender.name for contender in contenders])
    return 0


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
        (models.fetch("detector", cache), [1, 3, 736, 1472]), (models.fetch("recognizer", cache), [1, 3, 48, 320]),
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
