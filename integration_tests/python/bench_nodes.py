#!/usr/bin/env python3
"""Times nodes other than convolutions, and small graphs of them, on the provider and on ONNX Runtime's CPU provider.

Products of matrices as transformer blocks have them, with constant and with run-time weights, attention as one node and spelled out,
softmax, normalizations, pools, reductions, transposes, element-wise chains, Concat and Split. Each contender has a process of its own
and is measured as in `bench.py`. The provider is measured without its cost rule, which leaves element-wise partitions to others; what of a
case it leaves to others nevertheless is printed.
"""

from __future__ import annotations

import math
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from onnx import TensorProto, helper

import bench_classes
from bench_classes import BEFORE, CPU, Figures, measured, report, some, write

OPSET = 17


class Graph:
    """A graph in the making, with seeded values of its inputs and constants."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.nodes: list[Any] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}

    def input(self, *shape: int) -> str:
        return self.put(self.feeds, f"x{len(self.feeds)}", self.rng.standard_normal(shape))

    def constant(self, *shape: int) -> str:
        """Weights whose products with inputs of unit variance have about unit variance too."""
        scale = 1 / math.sqrt(shape[-2]) if len(shape) > 1 else 1.0
        return self.put(self.constants, f"w{len(self.constants)}", scale * self.rng.standard_normal(shape))

    def values(self, *values: float) -> str:
        """A constant: a scalar of one value, a vector of several."""
        return self.put(self.constants, f"w{len(self.constants)}", np.array(values if len(values) > 1 else values[0]))

    def positive(self, *shape: int) -> str:
        return self.put(self.constants, f"w{len(self.constants)}", self.rng.uniform(0.5, 1.5, shape))

    def integers(self, *values: int) -> str:
        self.constants[name := f"w{len(self.constants)}"] = np.array(values, np.int64)
        return name

    def put(self, among: dict[str, np.ndarray], name: str, value: np.ndarray) -> str:
        among[name] = value.astype(np.float32)
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Adds a node; its first result. Others have the numbers of results behind a point: `v3.1`."""
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}.{number}" for number in range(1, outputs))]
        self.nodes.append(helper.make_node(operator, inputs, names, name, domain=domain, **attributes))
        return name

    def model(self, opset: int) -> tuple[bytes, dict[str, np.ndarray]]:
        """The model, whose outputs are the last node's."""
        of = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
        inputs = [helper.make_tensor_value_info(name, of[value.dtype], value.shape) for name, value in self.feeds.items()]
        constants = [helper.make_tensor(name, of[value.dtype], value.shape, value.tobytes(), raw=True) for name, value in self.constants.items()]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.nodes[-1].output]
        graph = helper.make_graph(self.nodes, "case", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return made.SerializeToString(), self.feeds


@dataclass(frozen=True)
class Node:
    """A case: a node, or a small graph of nodes."""

    kind: str
    name: str
    build: Callable[[Graph], Any] = field(compare=False)
    # Multiplications and additions; 0 where memory sets the pace.
    operations: int = 0
    # Elements of the outputs; those of inputs and constants are counted.
    results: int = 0
    opset: int = OPSET

    def __str__(self) -> str:
        return self.name

    @property
    def traffic(self) -> int:
        graph = self.graph()
        return 4 * self.results + sum(value.nbytes for value in (*graph.feeds.values(), *graph.constants.values()))

    def graph(self) -> Graph:
        graph = Graph()
        self.build(graph)
        return graph

    def model(self) -> tuple[bytes, dict[str, np.ndarray]]:
        return self.graph().model(self.opset)


# Rows, depth, columns: BERT-base's projections and feed-forward layers, a ViT's, a square, a language model's prefill, one token.
PRODUCTS = [(128, 768, 768), (128, 768, 3072), (128, 3072, 768), (197, 384, 384), (197, 384, 1536), (197, 1536, 384), (512, 512, 512),
            (512, 1024, 1024), (32, 768, 768), (8, 768, 3072), (1, 768, 3072), (1, 3072, 768)]
# Heads, queries, depth of a head.
HEADS = [(12, 128, 64), (6, 197, 64), (16, 512, 64)]


def cases() -> list[Node]:
    return [*products(), *attention(), *softmaxes(), *norms(), *pools(), *reductions(), *transposes(), *chains(), *joins()]


def products() -> Iterator[Node]:
    for rows, depth, columns in PRODUCTS:
        count = {"operations": 2 * rows * depth * columns, "results": rows * columns}
        size = f"{rows}×{depth}×{columns}"
        few = "vector × matrix" if rows == 1 else "few rows" if rows < 64 else ""
        x, w, row = (1, rows, depth), (depth, columns), (columns,)
        yield Node(few or "MatMul, constant", f"MatMul {size}", lambda g, x=x, w=w: g.node("MatMul", g.input(*x), g.constant(*w)), **count)
        yield Node(few or "MatMul, run-time", f"MatMul {size}, run-time", lambda g, x=x, w=w: g.node("MatMul", g.input(*x), g.input(*w)), **count)
        gemm = lambda g, x=x, w=w, row=row: g.node("Gemm", g.input(*x[1:]), g.constant(*w[::-1]), g.constant(*row), transB=1)
        yield Node(few or "Gemm", f"Gemm {size}, transposed", gemm, **count)
        if not few:
            tail = lambda g, x=x, w=w, row=row: biased(g, x, w, row)
            yield Node("MatMul with bias and more", f"MatMul {size}, bias", tail, **count)
    for rows, depth, columns in [(128, 768, 3072), (197, 384, 1536)]:
        count = {"operations": 2 * rows * depth * columns, "results": rows * columns}
        x, w, row = (1, rows, depth), (depth, columns), (columns,)
        tail = lambda g, x=x, w=w, row=row: gelu(g, biased(g, x, w, row))
        yield Node("MatMul with bias and more", f"MatMul {rows}×{depth}×{columns}, bias, GELU", tail, **count)
    for rows, depth, columns in [(128, 3072, 768), (197, 1536, 384)]:
        count = {"operations": 2 * rows * depth * columns, "results": rows * columns}
        x, w, row, y = (1, rows, depth), (depth, columns), (columns,), (1, rows, columns)
        tail = lambda g, x=x, w=w, row=row, y=y: g.node("Add", biased(g, x, w, row), g.input(*y))
        yield Node("MatMul with bias and more", f"MatMul {rows}×{depth}×{columns}, bias, residual", tail, **count)
    for heads, rows, size in HEADS:
        count = {"operations": 2 * heads * rows * rows * size, "results": heads * rows * rows}
        x, y = (1, heads, rows, size), (1, heads, size, rows)
        yield Node("MatMul, batched", f"MatMul {heads}×({rows}×{size}×{rows})", lambda g, x=x, y=y: g.node("MatMul", g.input(*x), g.input(*y)), **count)
        turned = lambda g, x=x: g.node("MatMul", g.input(*x), g.node("Transpose", g.input(*x), perm=[0, 1, 3, 2]))
        yield Node("MatMul, batched", f"MatMul {heads}×({rows}×{size}×{rows}), transposed", turned, **count)
        count["results"] = heads * rows * size
        p = (1, heads, rows, rows)
        yield Node("MatMul, batched", f"MatMul {heads}×({rows}×{rows}×{size})", lambda g, p=p, x=x: g.node("MatMul", g.input(*p), g.input(*x)), **count)


def biased(g: Graph, x: tuple[int, ...], w: tuple[int, ...], row: tuple[int, ...]) -> str:
    return g.node("Add", g.node("MatMul", g.input(*x), g.constant(*w)), g.constant(*row))


def gelu(g: Graph, x: str) -> str:
    """As exporters spell it."""
    erf = g.node("Erf", g.node("Div", x, g.values(math.sqrt(2))))
    return g.node("Mul", g.node("Mul", x, g.node("Add", erf, g.values(1.0))), g.values(0.5))


def attention() -> Iterator[Node]:
    for heads, rows, size in HEADS:
        count = {"operations": 4 * heads * rows * rows * size, "results": heads * rows * size}
        text = f"{heads} heads of {rows}×{size}"
        flat, mask = (1, rows, heads * size), (1, 1, rows, rows)
        one = lambda g, heads=heads, flat=flat: g.node("MultiHeadAttention", *(g.input(*flat) for _ in range(3)), domain="com.microsoft", num_heads=heads)
        yield Node("attention, one node", f"MultiHeadAttention {text}", one, **count)
        whole = lambda g, at=(heads, rows, size), mask=None: spelled(g, at, mask)
        yield Node("attention, spelled out", f"attention {text}", whole, **count)
        masked = lambda g, at=(heads, rows, size), mask=mask: spelled(g, at, mask)
        yield Node("attention, spelled out", f"attention {text}, mask", masked, **count)
        # Queries, keys and values as projections leave them, with transposes on the way in and out.
        inner = lambda g, at=(heads, rows, size): projected(g, at)
        yield Node("attention, spelled out", f"attention {text}, transposes", inner, **count)


def spelled(g: Graph, at: tuple[int, int, int], mask: tuple[int, ...] | None) -> str:
    shape = (1, *at)
    return by_heads(g, [g.input(*shape) for _ in range(3)], at[2], mask)


def by_heads(g: Graph, given: list[str], size: int, mask: tuple[int, ...] | None) -> str:
    q, k, v = given
    scores = g.node("Div", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2])), g.values(math.sqrt(size)))
    scores = g.node("Add", scores, g.input(*mask)) if mask else scores
    return g.node("MatMul", g.node("Softmax", scores, axis=-1), v)


def projected(g: Graph, at: tuple[int, int, int]) -> str:
    heads, rows, size = at
    given = []
    for _ in range(3):
        apart = g.node("Reshape", g.input(1, rows, heads * size), g.integers(1, rows, heads, size))
        given.append(g.node("Transpose", apart, perm=[0, 2, 1, 3]))
    y = g.node("Transpose", by_heads(g, given, size, None), perm=[0, 2, 1, 3])
    return g.node("Reshape", y, g.integers(1, rows, heads * size))


def plain(kind: str, name: str, shape: tuple[int, ...], operator: str, results: int | None = None, opset: int = OPSET, **attributes: Any) -> Node:
    """A node with one input."""
    build = lambda g: g.node(operator, g.input(*shape), **attributes)
    return Node(kind, name, build, results=math.prod(shape) if results is None else results, opset=opset)


def softmaxes() -> Iterator[Node]:
    for shape in [(12, 128, 128), (6, 197, 197), (16, 512, 512), (40, 6625), (1, 1000), (1000, 20), (128, 30522)]:
        yield plain("softmax", f"Softmax {times(shape)}", shape, "Softmax", axis=-1)
    yield plain("softmax", "Softmax of channels 1×21×128×128", (1, 21, 128, 128), "Softmax", axis=1)


def norms() -> Iterator[Node]:
    for rows, width in [(128, 768), (197, 384), (512, 1024), (1, 768)]:
        shape, count = (1, rows, width), {"results": rows * width}
        layer = lambda g, s=shape: g.node("LayerNormalization", g.input(*s), g.constant(s[-1]), g.constant(s[-1]), axis=-1, epsilon=1e-5)
        yield Node("layer norm", f"LayerNormalization {rows}×{width}", layer, **count)
        yield Node("layer norm", f"layer norm {rows}×{width}, spelled out", lambda g, s=shape: spelled_norm(g, s), **count)
        rms = lambda g, s=shape: g.node("SimplifiedLayerNormalization", g.input(*s), g.constant(s[-1]), axis=-1, epsilon=1e-5)
        yield Node("RMS norm", f"SimplifiedLayerNormalization {rows}×{width}", rms, **count)
        yield Node("RMS norm", f"RMS norm {rows}×{width}, spelled out", lambda g, s=shape: spelled_rms(g, s), **count)
    for shape in [(1, 64, 112, 112), (1, 256, 28, 28), (1, 1024, 14, 14)]:
        count, channels = {"results": math.prod(shape)}, shape[1]
        batch = lambda g, s=shape, c=channels: g.node("BatchNormalization", g.input(*s), *(g.constant(c) for _ in range(3)), g.positive(c))
        yield Node("batch norm", f"BatchNormalization {times(shape)}", batch, **count)
        instance = lambda g, s=shape, c=channels: g.node("InstanceNormalization", g.input(*s), g.constant(c), g.constant(c))
        yield Node("instance norm", f"InstanceNormalization {times(shape)}", instance, **count)


def spelled_norm(g: Graph, shape: tuple[int, ...]) -> str:
    x = g.input(*shape)
    centered = g.node("Sub", x, g.node("ReduceMean", x, axes=[-1]))
    variance = g.node("ReduceMean", g.node("Pow", centered, g.values(2.0)), axes=[-1])
    y = g.node("Div", centered, g.node("Sqrt", g.node("Add", variance, g.values(1e-5))))
    return g.node("Add", g.node("Mul", y, g.constant(shape[-1])), g.constant(shape[-1]))


def spelled_rms(g: Graph, shape: tuple[int, ...]) -> str:
    x = g.input(*shape)
    square = g.node("ReduceMean", g.node("Pow", x, g.values(2.0)), axes=[-1])
    inverse = g.node("Reciprocal", g.node("Sqrt", g.node("Add", square, g.values(1e-5))))
    return g.node("Mul", g.node("Mul", x, inverse), g.constant(shape[-1]))


def pools() -> Iterator[Node]:
    for operator, (channels, extent, window, stride, pad) in [
            ("MaxPool", (64, 112, 3, 2, 1)), ("MaxPool", (256, 28, 2, 2, 0)), ("MaxPool", (192, 35, 3, 1, 1)),
            ("AveragePool", (256, 28, 2, 2, 0)), ("AveragePool", (288, 35, 3, 1, 1)), ("AveragePool", (2048, 7, 7, 1, 0))]:
        out = (extent + 2 * pad - window) // stride + 1
        name = f"{operator} {window}×{window}/{stride} {channels} on {extent}×{extent}"
        yield plain("pool", name, (1, channels, extent, extent), operator, channels * out * out, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4)
    for operator in ["GlobalAveragePool", "GlobalMaxPool"]:
        for channels, extent in [(2048, 7), (96, 56)]:
            yield plain("pool", f"{operator} {channels} on {extent}×{extent}", (1, channels, extent, extent), operator, channels)


def reductions() -> Iterator[Node]:
    for operator in ["ReduceSum", "ReduceMean", "ReduceMax"]:
        for shape, axes, what in [((512, 1024), [1], "rows"), ((512, 1024), [0], "columns"), ((1, 64, 112, 112), [2, 3], "planes"),
                                  ((1, 256, 28, 28), [1], "channels"), ((1, 128, 768), [1], "places")]:
            left = math.prod(extent for axis, extent in enumerate(shape) if axis not in axes)
            name = f"{operator} {times(shape)} by {what}"
            if operator == "ReduceSum":
                build = lambda g, s=shape, a=axes: g.node("ReduceSum", g.input(*s), g.integers(*a), keepdims=1)
                yield Node("reduction", name, build, results=left)
            else:
                yield plain("reduction", name, shape, operator, left, axes=axes, keepdims=1)


def transposes() -> Iterator[Node]:
    for shape, order, what in [((1, 64, 112, 112), (0, 2, 3, 1), "NCHW → NHWC"), ((1, 3, 224, 224), (0, 2, 3, 1), "NCHW → NHWC"),
                               ((1, 112, 112, 64), (0, 3, 1, 2), "NHWC → NCHW"), ((1, 224, 224, 3), (0, 3, 1, 2), "NHWC → NCHW"),
                               ((1024, 1024), (1, 0), "matrix"), ((768, 3072), (1, 0), "matrix"), ((1, 128, 12, 64), (0, 2, 1, 3), "heads"),
                               ((1, 12, 128, 64), (0, 2, 1, 3), "heads"), ((1, 12, 128, 64), (0, 1, 3, 2), "keys")]:
        yield plain("transpose", f"Transpose {times(shape)}, {what}", shape, "Transpose", perm=order)


def chains() -> Iterator[Node]:
    for rows, width in [(128, 3072), (197, 1536)]:
        shape = (1, rows, width)
        yield Node("element-wise", f"GELU {rows}×{width}, spelled out", lambda g, s=shape: gelu(g, g.input(*s)), results=rows * width)
        yield plain("element-wise", f"tanh {rows}×{width}", shape, "Tanh")
    for shape in [(1, 512, 2048), (1, 256, 56, 56)]:
        count = {"results": math.prod(shape)}
        yield Node("element-wise", f"SiLU {times(shape)}", silu_of(shape), **count)
        yield Node("element-wise", f"add, ReLU {times(shape)}", lambda g, s=shape: g.node("Relu", g.node("Add", g.input(*s), g.input(*s))), **count)
    shape = (1, 512, 2048)
    gated = lambda g, s=shape: g.node("Mul", silu(g, g.input(*s)), g.input(*s))
    yield Node("element-wise", f"SiLU times {times(shape)}", gated, results=math.prod(shape))
    row = lambda g, s=shape: g.node("Add", g.input(*s), g.constant(s[-1]))
    yield Node("element-wise", f"bias {times(shape)}", row, results=math.prod(shape))
    image = (1, 256, 56, 56)
    scaled = lambda g, s=image: g.node("Mul", g.input(*s), g.node("Sigmoid", g.input(1, s[1], 1, 1)))
    yield Node("element-wise", f"gate of channels {times(image)}", scaled, results=math.prod(image))


def silu(g: Graph, x: str) -> str:
    return g.node("Mul", x, g.node("Sigmoid", x))


def silu_of(shape: tuple[int, ...]) -> Callable[[Graph], str]:
    return lambda g: silu(g, g.input(*shape))


def joins() -> Iterator[Node]:
    for shape, axis in [((1, 64, 56, 56), 1), ((1, 56, 56, 64), 3), ((128, 768), 1)]:
        build = lambda g, s=shape, a=axis: g.node("Concat", g.input(*s), g.input(*s), axis=a)
        yield Node("Concat, Split", f"Concat 2 of {times(shape)} along {axis}", build, results=2 * math.prod(shape))
    for shape, axis, parts in [((1, 128, 2304), 2, 3), ((1, 128, 56, 56), 1, 2)]:
        sizes = [shape[axis] // parts] * parts
        build = lambda g, s=shape, a=axis, p=sizes: g.node("Split", g.input(*s), g.integers(*p), outputs=len(p), axis=a)
        yield Node("Concat, Split", f"Split {times(shape)} in {parts} along {axis}", build, results=math.prod(shape))


def times(extents: tuple[int, ...]) -> str:
    return "×".join(map(str, extents))


def main() -> int:
    options = bench_classes.parser(__doc__, turns=5)
    options.add_argument("--only", default="", help="cases whose class or name contains this text, as in 'softmax' or '128×768×3072'")
    options.add_argument("--cost-rule", action="store_true", help="with the provider's cost rule, as sessions have it")
    options.add_argument("--all", action="store_true", help="a line for each case")
    arguments = options.parse_args()
    chosen = some(cases(), arguments)
    if not chosen:
        raise SystemExit(f"expected a text that a class or a name contains, got {arguments.only!r}")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        contenders = bench_classes.contenders(arguments, options={} if arguments.cost_rule else {"cost_rule": "0"})
        for contender in contenders:
            stack.enter_context(contender)
        times_of: dict[Node, Figures] = {}
        left: dict[Node, dict[str, int]] = {}
        for case in chosen:
            times_of[case], left[case] = measured(contenders, case, arguments, Path(directory))
            if arguments.all:
                figures = times_of[case]
                peers = " ".join(f"{1e3 * figures[name]:10.1f} {figures[f'EP/{name}']:6.2f}" for name in (BEFORE, CPU) if name in figures)
                print(f"{str(case):56} {1e3 * figures['EP']:10.1f} µs, {peers}", flush=True)
        report("nodes", {case: 1 for case in chosen}, times_of, [CPU, BEFORE], arguments.peak * arguments.threads)
        for case in [case for case in chosen if left[case]]:
            print(f"left to other providers of {case}: " + ", ".join(f"{count} {operator}" for operator, count in left[case].items()))
        if arguments.csv:
            write(arguments.csv, times_of, [contender.name for contender in contenders])
    return 0


if __name__ == "__main__":
    sys.exit(main())
