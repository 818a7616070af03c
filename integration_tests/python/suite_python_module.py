#!/usr/bin/env python3
"""The Python module for graphs: results beside NumPy's in double precision, with bounds derived where they are computed."""

from __future__ import annotations

import doctest
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import hipdnn_rs
from failure import Failure
from hipdnn_rs import Graph, Tensor
from runner import Runner, at_once, check, run_suite

Array = NDArray[Any]

# Half the distance of neighbors in float, relative.
U = 2.0**-24
# What the engines' exp, log and so on are off by, in units of U: SIMD polynomials keep well below it.
FUNCTION = 16 * U


def gamma(n: int) -> float:
    """The relative error of n roundings in a row."""
    return n * U / (1 - n * U)


def main() -> int:
    return run_suite(body, "python_module", __doc__ or "")


def body(runner: Runner) -> None:
    for name, graph in GRAPHS.items():
        runner.case(f"graph: {name}", lambda: same(name, graph))
    runner.case("every pointwise mode makes a plan", every_mode)
    runner.case("exactly rounded functions", exact_functions)
    runner.case("other functions", other_functions)
    runner.case("reductions", reductions)
    for operation in GRADIENTS:
        runner.case(f"gradients: {operation.__name__}", lambda: slopes(operation))
    runner.case("normalization by given statistics", given_statistics)
    runner.case("blocks times their scales", dequantized)
    runner.case("strided inputs and results, without a copy", strided)
    runner.case("memory for results", given_memory)
    runner.case("producers of the protocol without versions", unversioned)
    runner.case("scalars of a call", scalars)
    runner.case("types that NumPy lacks", few_bits)
    runner.case("graphs as JSON and as bytes", other_forms)
    runner.case("stored plans", stored)
    runner.case("a workspace apart from tensors", workspace_apart)
    runner.case("a backend keeps its plugins", engines_stay)
    runner.case("explanations by several threads", explained_at_once)
    runner.case("knobs", knobs)
    runner.case("other threads run meanwhile", releases_lock)
    runner.case("one plan in several threads", several_threads)
    for wrong in WRONG:
        runner.case(f"wrong: {wrong.__name__}", wrong)
    runner.case("the README's examples", readme)
    runner.case("the package's example", lambda: no_failures(doctest.testmod(hipdnn_rs)))
    runner.case("type hints", type_hints)
    runner.case("metadata of the wheel", metadata)


# Graphs with their definitions


class Case:
    """A graph under construction, with random inputs: float arrays here, tensors there."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self.arrays: dict[str, Array] = {}
        self._random = np.random.default_rng(len(name))

    def input(self, name: str, *shape: int, low: float = -1.0, high: float = 1.0) -> tuple[Tensor, Array]:
        array = self._random.uniform(low, high, shape).astype(np.float32)
        self.arrays[name] = array
        return self.graph.input(name, shape), array.astype(np.float64)


# Results by name, each with the definition's value and the largest error that float may make.
Definition = dict[str, tuple[Array, Array | float]]


def same(name: str, build: Callable[[Case], Definition]) -> None:
    """Runs a graph, compares its results, and has it explained."""
    case = Case(name)
    wanted = build(case)
    plan = case.graph.compile()
    results = plan(**case.arrays)
    results = results if isinstance(results, tuple) else (results,)
    check(plan.outputs == list(wanted), f"expected results {list(wanted)}, got {plan.outputs}")
    for (output, (value, bound)), result in zip(wanted.items(), results):
        near(output, result, value, bound)
    text = plan.explain()
    for part in (f'graph "{name}"', f"{plan.engine} takes it", "steps, "):
        check(part in text, f"expected {part!r} in the explanation, got {text}")
    check(case.graph.explain().startswith(text.splitlines()[0]), "expected the graph's own explanation to have the same title")


def near(name: str, got: Array, value: Array, bound: Array | float) -> None:
    check(got.shape == value.shape, f"{name}: expected shape {value.shape}, got {got.shape}")
    # The result is rounded once more where it is stored.
    error, limit = np.abs(got - value), bound + U * np.abs(value)
    check(bool(np.all(error <= limit)), f"{name}: expected errors within the bound, got {np.max(error - limit):.3g} more")
    check(bool(np.all(limit <= 0.01 * np.max(np.abs(value)) + 1e-30)), f"{name}: expected a bound of at most a hundredth, got {np.max(limit):.3g}")


def windows(x: Array, taps: tuple[int, int], stride: int = 1, padding: int = 0, fill: float = 0.0) -> Array:
    """The windows of images (N, C, H, W), as (N, C, rows, columns, taps, taps)."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, taps, (2, 3))[:, :, ::stride, ::stride]


def conv(x: Array, w: Array, stride: int = 1, padding: int = 0) -> Array:
    return np.einsum("nchwij,kcij->nkhw", windows(x, w.shape[2:], stride, padding), w)


def convolution(case: Case) -> Definition:
    (x, xs), (w, ws), (b, bs) = case.input("x", 2, 5, 9, 8), case.input("w", 6, 5, 3, 3), case.input("b", 1, 6, 1, 1)
    case.graph.output(case.graph.relu(case.graph.conv(x, w, padding=1, stride=2) + b), "y")
    sums = conv(xs, ws, 2, 1) + bs
    # Products and sums of 45 terms and the bias, in any order; the clip widens no error.
    bound = gamma(5 * 9 + 2) * (conv(abs(xs), abs(ws), 2, 1) + abs(bs))
    return {"y": (np.maximum(sums, 0), bound)}


def data_gradient(case: Case) -> Definition:
    (dy, dys), (w, ws) = case.input("dy", 2, 4, 7, 6), case.input("w", 4, 3, 3, 3)
    case.graph.output(case.graph.conv_dgrad(dy, w, (2, 3, 9, 8)), "dx")
    flipped = ws[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return {"dx": (conv(dys, flipped, 1, 2), gamma(4 * 9 + 1) * conv(abs(dys), abs(flipped), 1, 2))}


def weight_gradient(case: Case) -> Definition:
    (x, xs), (dy, dys) = case.input("x", 2, 3, 9, 8), case.input("dy", 2, 4, 7, 6)
    case.graph.output(case.graph.conv_wgrad(x, dy, (4, 3, 3, 3)), "dw")

    def sums(images: Array, gradients: Array) -> Array:
        return np.einsum("nchwij,nkhw->kcij", windows(images, (3, 3)), gradients)

    return {"dw": (sums(xs, dys), gamma(2 * 7 * 6 + 1) * sums(abs(xs), abs(dys)))}


def matrices(case: Case) -> Definition:
    (a, xs), (b, ys) = case.input("a", 3, 17, 33), case.input("b", 1, 33, 9)
    case.graph.output(a @ b, "c")
    return {"c": (xs @ ys, gamma(33 + 1) * (abs(xs) @ abs(ys)))}


def softmax(case: Case) -> Definition:
    x, xs = case.input("x", 5, 40, low=-4, high=4)
    case.graph.output(case.graph.softmax(x), "y")
    shifted = xs - xs.max(1, keepdims=True)
    e = np.exp(shifted)
    y = e / e.sum(1, keepdims=True)
    # The difference's rounding becomes the exponential's relative error; numerator and sum have it, and the sum its own.
    relative = 2 * (U * np.abs(shifted).max() + FUNCTION) + gamma(40 + 2)
    return {"y": (y, 1.01 * relative * y)}


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Mean, inverse deviation and normalized x along dimensions, each with its bound to first order, by a hundredth more."""
    n = int(np.prod([x.shape[axis] for axis in axes]))
    mean = x.mean(axes, keepdims=True)
    mean_bound = gamma(n + 1) * np.abs(x).mean(axes, keepdims=True)
    d = x - mean
    d_bound = mean_bound + U * np.abs(d)
    variance = (d * d).mean(axes, keepdims=True)
    variance_bound = 2 * (np.abs(d) * d_bound).mean(axes, keepdims=True) + gamma(n + 2) * (x * x).mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + epsilon)
    inverse_bound = inverse * (variance_bound / (2 * (variance + epsilon)) + 4 * U)
    y = d * inverse
    y_bound = np.abs(inverse) * d_bound + np.abs(d) * inverse_bound + 2 * U * np.abs(y)
    return mean, 1.01 * mean_bound, inverse, 1.01 * inverse_bound, y, 1.01 * y_bound


def layer_normalization(case: Case) -> Definition:
    (x, xs), (s, ss), (b, bs) = case.input("x", 6, 50), case.input("s", 1, 50), case.input("b", 1, 50)
    y, mean, inverse = case.graph.layer_norm_training(x, s, b, epsilon=1e-3)
    for tensor, name in ((y, "y"), (mean, "mean"), (inverse, "inverse")):
        case.graph.output(tensor, name)
    m, m_bound, r, r_bound, z, z_bound = normalized(xs, (1,), float(np.float32(1e-3)))
    value = z * ss + bs
    return {"y": (value, np.abs(ss) * z_bound + 2 * U * (np.abs(z * ss) + np.abs(bs))), "mean": (m, m_bound), "inverse": (r, r_bound)}


def batch_normalization(case: Case) -> Definition:
    (x, xs), (s, ss), (b, bs) = case.input("x", 3, 4, 5, 6), case.input("s", 1, 4, 1, 1), case.input("b", 1, 4, 1, 1)
    y, mean, inverse = case.graph.batch_norm(x, s, b, epsilon=1e-3)
    for tensor, name in ((y, "y"), (mean, "mean"), (inverse, "inverse")):
        case.graph.output(tensor, name)
    m, m_bound, r, r_bound, z, z_bound = normalized(xs, (0, 2, 3), float(np.float32(1e-3)))
    # Engines may compute x * (r * s) + (b - mean * (r * s)): each product and sum rounds, and the statistics' errors stay.
    terms = np.abs(xs * r * ss) + np.abs(m * r * ss) + np.abs(bs)
    return {"y": (z * ss + bs, np.abs(ss) * z_bound + 4 * U * terms), "mean": (m, m_bound), "inverse": (r, r_bound)}


def root_mean_square(case: Case) -> Definition:
    (x, xs), (s, ss) = case.input("x", 6, 50), case.input("s", 1, 50)
    case.graph.output(case.graph.rms_norm(x, s, epsilon=1e-3), "y")
    square = (xs * xs).mean(1, keepdims=True) + float(np.float32(1e-3))
    y = xs / np.sqrt(square) * ss
    # The mean's relative error is halved by the root; root, quotient and two products round.
    return {"y": (y, (gamma(50 + 2) / 2 + 6 * U) * np.abs(y))}


def pooling(case: Case) -> Definition:
    x, xs = case.input("x", 2, 3, 8, 9)
    case.graph.output(case.graph.max_pool(x, 3, stride=2, padding=1), "most")
    case.graph.output(case.graph.avg_pool(x, 2), "mean")
    tiles = windows(xs, (2, 2), 2)
    return {"most": (windows(xs, (3, 3), 2, 1, -np.inf).max((4, 5)), 0.0), "mean": (tiles.mean((4, 5)), gamma(4 + 1) * abs(tiles).mean((4, 5)))}


def attention(case: Case) -> Definition:
    (q, qs), (k, ks), (v, vs) = case.input("q", 2, 4, 7, 16), case.input("k", 2, 2, 7, 16), case.input("v", 2, 2, 7, 8)
    case.graph.output(case.graph.sdpa(q, k, v, causal=True), "o")
    ks, vs = np.repeat(ks, 2, 1), np.repeat(vs, 2, 1)
    unseen = np.triu(np.ones((7, 7), bool), 1)
    scores = qs @ ks.swapaxes(2, 3) / 4
    shifted = np.where(unseen, -np.inf, scores - np.where(unseen, -np.inf, scores).max(3, keepdims=True))
    p = np.exp(shifted)
    p /= p.sum(3, keepdims=True)
    # An error of the scores is a relative one of the exponentials, of numerators and of the sum; then products and sums of 7.
    of_scores = (gamma(16 + 3) * (abs(qs) @ abs(ks).swapaxes(2, 3)) / 4).max() + U * np.abs(scores).max() * 2
    relative = 2 * (of_scores + FUNCTION) + 2 * gamma(7 + 2)
    return {"o": (p @ vs, 1.01 * relative * (p @ abs(vs)))}


def gate(case: Case) -> Definition:
    (x, xs), (w, ws) = case.input("x", 4, 12), case.input("w", 1, 12)
    graph = case.graph
    graph.output(graph.where(x > 0.25, x * w - 1, -x / 2), "y")
    return {"y": (np.where(xs > 0.25, xs * ws - 1, -xs / 2), 2 * U * (abs(xs * ws) + 1))}


GRAPHS: dict[str, Callable[[Case], Definition]] = {
    function.__name__: function
    for function in (convolution, data_gradient, weight_gradient, matrices, softmax, layer_normalization, batch_normalization,
                     root_mean_square, pooling, attention, gate)
}

# Element-wise functions and reductions


def every_mode() -> None:
    from hipdnn_rs import _native

    for mode, operands in _native.pointwise_modes():
        graph = Graph(mode)
        inputs = [graph.input(f"x{i}", (2, 3)) for i in range(operands)]
        axis = {"axis_tensor_uid": 1} if mode == "gen_index" else {}
        graph.output(graph.pointwise(mode, *inputs, **axis), "y")
        graph.compile()
    check(graph.nodes == ["PointwiseAttributes"], f"{graph.nodes}")


def applied(call: Callable[..., Tensor], graph: Graph, *arrays: Array) -> Array:
    """The result of one method on float arrays."""
    inputs = [graph.input(f"x{i}", array.shape) for i, array in enumerate(arrays)]
    graph.output(call(*inputs), "y")
    return np.asarray(graph.compile()(**{f"x{i}": array for i, array in enumerate(arrays)}))


def exact_functions() -> None:
    """One rounding in double precision and one to float give what float gives: both are NumPy's."""
    random = np.random.default_rng(5)
    a, b = (random.uniform(-4, 4, (3, 40)).astype(np.float32) for _ in range(2))
    a[0, :3] = b[0, :3] = 1.5
    unary: dict[str, Callable[..., Any]] = {
        "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "negative": np.negative, "sqrt": np.sqrt, "identity": np.positive,
        "logical_not": np.logical_not, "reciprocal": lambda x: np.float32(1) / x, "relu": lambda x: np.maximum(x, 0)}
    for name, function in unary.items():
        graph, x = Graph(name), np.abs(a) if name == "sqrt" else a
        check(np.array_equal(applied(getattr(graph, name), graph, x), function(x)), name)
    binary: dict[str, Callable[..., Any]] = {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum,
        "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal, "less": np.less,
        "less_equal": np.less_equal, "logical_and": np.logical_and, "logical_or": np.logical_or}
    for name, function in binary.items():
        graph = Graph(name)
        check(np.array_equal(applied(getattr(graph, name), graph, a, b), function(a, b)), name)
    graph = Graph("index")
    check(np.array_equal(applied(lambda x: graph.index(x, -1), graph, a), np.broadcast_to(np.arange(40), a.shape)), "index")


def other_functions() -> None:
    x = np.linspace(0.1, 1.4, 77, dtype=np.float32).reshape(7, 11)
    d = x.astype(np.float64)
    erf = np.vectorize(__import__("math").erf)
    functions: dict[str, Array] = {
        "exp": np.exp(d), "sin": np.sin(d), "tan": np.tan(d), "tanh": np.tanh(d), "erf": erf(d), "rsqrt": 1 / np.sqrt(d),
        "sigmoid": 1 / (1 + np.exp(-d)), "softplus": np.log1p(np.exp(d)), "swish": d / (1 + np.exp(-d)), "elu": d,
        "gelu": d * (1 + erf(d / np.sqrt(2))) / 2}
    for name, value in functions.items():
        graph = Graph(name)
        near(name, applied(getattr(graph, name), graph, x), value, 2 * FUNCTION * np.abs(value))
    graph = Graph("log")
    near("log", applied(graph.log, graph, x + 2), np.log((x + 2).astype(np.float64)), FUNCTION * 2)
    graph = Graph("elu")
    near("elu", applied(lambda t: graph.elu(t, 0.5), graph, -x), 0.5 * np.expm1(-d), 2 * FUNCTION * 0.5)


def reductions() -> None:
    x = np.random.default_rng(3).uniform(0.5, 1.5, (4, 6, 5)).astype(np.float32)
    x[::2] *= -1
    d = x.astype(np.float64)
    for axes in (None, 1, (0, -1)):
        n = x.size if axes is None else int(np.prod([x.shape[axis] for axis in np.atleast_1d(axes)]))
        whole = dict(axis=axes, keepdims=True)
        size = np.abs(d).sum(**whole)
        values: dict[str, tuple[Array, Any]] = {
            "sum": (d.sum(**whole), gamma(n) * size), "mean": (d.mean(**whole), gamma(n + 1) * size / n), "norm1": (size, gamma(n) * size),
            "min": (d.min(**whole), 0.0), "max": (d.max(**whole), 0.0), "absmax": (np.abs(d).max(**whole), 0.0),
            "norm2": (np.sqrt((d * d).sum(**whole)), gamma(n + 2) * np.sqrt((d * d).sum(**whole))),
            "prod": (d.prod(**whole), gamma(n) * np.abs(d.prod(**whole)))}
        for name, (value, bound) in values.items():
            graph = Graph(name)
            got = applied(lambda t: getattr(graph, name)(t, axes), graph, x)
            check(got.shape == value.shape, f"{name}: expected {value.shape}, got {got.shape}")
            # A sum of both signs may be near zero: its bound goes with the magnitudes.
            error = np.abs(got - value)
            check(bool(np.all(error <= bound + U * np.abs(value))), f"{name} along {axes}: off by {error.max():.3g}")


# Gradients

# The result's definition in double precision from the operands, and the gradients that the graph adds for them.
Differentiable = tuple[Callable[..., Array], list[Tensor]]


def slopes(operation: Callable[[Case, Tensor], Differentiable]) -> None:
    """Holds gradients along random directions against central differences of the definition. That is to find operands, attributes
    or shapes mixed up; the conformance suite judges the engines' precision."""
    case = Case(operation.__name__)
    dy, weights = case.input("dy", *RESULTS[operation.__name__])
    function, gradients = operation(case, dy)
    operands = [case.arrays[name].astype(np.float64) for name in case.arrays if name != "dy"][: len(gradients)]
    for i, gradient in enumerate(gradients):
        case.graph.output(gradient, f"d{i}")
    plan = case.graph.compile()
    by_name = dict(zip(plan.outputs, results if isinstance(results := plan(**case.arrays), tuple) else (results,)))
    random, step = np.random.default_rng(9), 1e-6
    for i, operand in enumerate(operands):
        got, direction = by_name[f"d{i}"].astype(np.float64), random.uniform(-1, 1, operand.shape)

        def along(distance: float) -> float:
            moved = [one + distance * direction if j == i else one for j, one in enumerate(operands)]
            return float((function(*moved) * weights).sum())

        wanted = (along(step) - along(-step)) / (2 * step)
        check(got.shape == operand.shape, f"operand {i}: expected shape {operand.shape}, got {got.shape}")
        error, limit = abs((got * direction).sum() - wanted), 1e-4 * np.abs(got * direction).sum()
        check(error <= limit, f"operand {i}: expected a slope of {wanted:.6g}, got {(got * direction).sum():.6g}")


def batch_norm(case: Case, dy: Tensor) -> Differentiable:
    (x, _), (s, _), (b, _) = case.input("x", 3, 4, 5, 6), case.input("s", 1, 4, 1, 1), case.input("b", 1, 4, 1, 1)
    _, mean, inverse = case.graph.batch_norm(x, s, b)
    return lambda x, s, b: normalized(x, (0, 2, 3), 1e-5)[4] * s + b, list(case.graph.batch_norm_grad(dy, x, s, mean, inverse))


def layer_norm(case: Case, dy: Tensor) -> Differentiable:
    (x, _), (s, _), (b, _) = case.input("x", 6, 20), case.input("s", 1, 20), case.input("b", 1, 20)
    _, mean, inverse = case.graph.layer_norm_training(x, s, b)
    return lambda x, s, b: normalized(x, (1,), 1e-5)[4] * s + b, list(case.graph.layer_norm_grad(dy, x, s, mean, inverse))


def rms_norm(case: Case, dy: Tensor) -> Differentiable:
    (x, _), (s, _) = case.input("x", 6, 20), case.input("s", 1, 20)
    _, inverse = case.graph.rms_norm_training(x, s)
    return lambda x, s: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * s, list(case.graph.rms_norm_grad(dy, x, s, inverse))


def max_pool(case: Case, dy: Tensor) -> Differentiable:
    x, _ = case.input("x", 2, 3, 8, 8)
    _, index = case.graph.max_pool_with_index(x, 2)
    return lambda x: windows(x, (2, 2), 2).max((4, 5)), [case.graph.max_pool_grad(dy, index, x.shape, 2)]


def avg_pool(case: Case, dy: Tensor) -> Differentiable:
    x, _ = case.input("x", 2, 3, 8, 8)
    gradient = case.graph.avg_pool_grad(dy, x.shape, 4, stride=2, padding=1, count_padding=True)
    return lambda x: windows(x, (4, 4), 2, 1).mean((4, 5)), [gradient]


def sdpa(case: Case, dy: Tensor) -> Differentiable:
    (q, _), (k, _), (v, _) = case.input("q", 1, 2, 5, 8), case.input("k", 1, 2, 6, 8), case.input("v", 1, 2, 6, 8)
    o, stats = case.graph.sdpa_training(q, k, v, scale=0.5)

    def definition(q: Array, k: Array, v: Array) -> Array:
        p = np.exp(0.5 * q @ k.swapaxes(2, 3))
        return np.asarray(p / p.sum(3, keepdims=True) @ v)

    return definition, list(case.graph.sdpa_grad(q, k, v, o, dy, stats, scale=0.5))


GRADIENTS = (batch_norm, layer_norm, rms_norm, max_pool, avg_pool, sdpa)
RESULTS = {"batch_norm": (3, 4, 5, 6), "layer_norm": (6, 20), "rms_norm": (6, 20), "max_pool": (2, 3, 4, 4), "avg_pool": (2, 3, 4, 4),
           "sdpa": (1, 2, 5, 8)}


def given_statistics() -> None:
    case = Case("given statistics")
    (x, xs), (m, ms), (v, vs) = case.input("x", 2, 3, 4, 5), case.input("m", 1, 3, 1, 1), case.input("v", 1, 3, 1, 1, low=0.5, high=2)
    (s, ss), (b, bs) = case.input("s", 1, 3, 1, 1), case.input("b", 1, 3, 1, 1)
    case.graph.output(case.graph.batch_norm_inference(x, m, v, s, b, epsilon=0.25), "y")
    case.graph.output(case.graph.batch_norm_apply(x, m, v, s, b), "z")
    y, z = case.graph.compile()(**case.arrays)
    for name, got, inverse in (("y", y, 1 / np.sqrt(vs + 0.25)), ("z", z, vs)):
        # As a sum of three products of at most three factors, whose inverse deviation is off by 4 units.
        near(name, got, (xs - ms) * inverse * ss + bs, 9 * U * ((abs(xs) + abs(ms)) * inverse * abs(ss) + abs(bs)))


def dequantized() -> None:
    graph = Graph("dequantized")
    x, s = graph.input("x", (1, 2, 64), "int8"), graph.input("s", (1, 2, 2))
    graph.output(graph.block_dequantize(x, s, [1, 1, 32]), "y")
    values = np.arange(-64, 64, dtype=np.int8).reshape(1, 2, 64)
    scales = np.array([0.5, 2, -3, 0.1], np.float32).reshape(1, 2, 2)
    check(np.array_equal(graph.compile()(x=values, s=scales), values * np.repeat(scales, 32, 2)), "expected each block times its scale")


# Arrays


def strided() -> None:
    images = np.random.default_rng(1).uniform(-1, 1, (2, 6, 7, 4)).astype(np.float32)
    graph = Graph("channels last")
    x = graph.input("x", (2, 4, 6, 7), layout="channels_last")
    y = graph.output(x + 1, "y")
    check(y.strides == x.strides, f"expected the operand's layout, got {y.strides}")
    seen = images.transpose(0, 3, 1, 2)
    result = graph.compile()(x=seen)
    check(result.strides == seen.strides, f"expected strides {seen.strides}, got {result.strides}")
    check(np.array_equal(result, seen + np.float32(1)), "expected one more than x")
    graph = Graph("every second column")
    x = graph.input("x", (3, 4), strides=(8, 2))
    graph.output(graph.identity(x), "y", strides=(1, 3))
    whole = np.arange(24, dtype=np.float32).reshape(3, 8)
    result = graph.compile()(x=whole[:, ::2])
    check(result.strides == (4, 12) and np.array_equal(result, whole[:, ::2]), f"{result}")
    graph = Graph("one row for all")
    x, z = graph.input("x", (3, 4), strides=(0, 1)), graph.input("z", (3, 4))
    graph.output(x * z, "y")
    row, other = np.arange(4, dtype=np.float32), whole[:, :4].copy()
    check(np.array_equal(graph.compile()(x=np.broadcast_to(row, (3, 4)), z=other), row * other), "expected the broadcast row")


def doubled() -> hipdnn_rs.Plan:
    graph = Graph("doubled")
    graph.output(graph.input("x", (4, 5)) * 2, "y")
    return graph.compile()


def given_memory() -> None:
    plan, x, y = doubled(), np.ones((4, 5), np.float32), np.zeros((4, 5), np.float32)
    check(plan(x=x, out=y) is y and bool(np.all(y == 2)), f"expected twos in the given array, got {y}")
    check(plan.run({"x": y}, out={"y": x}) is x and bool(np.all(x == 4)), f"expected fours in the given array, got {x}")
    # Off by one element from any larger alignment.
    memory = np.zeros(41, np.float32)
    check(bool(np.all(plan(x=memory[1:21].reshape(4, 5) + 1, out=memory[21:].reshape(4, 5)) == 2)) and not memory[:21].any(), f"{memory}")
    frozen = np.ones((4, 5), np.float32)
    frozen.flags.writeable = False
    check(bool(np.all(plan(x=frozen) == 2)), "expected a read-only array to be read")


def unversioned() -> None:
    class Old:
        """A producer from before the protocol had versions."""

        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, stream: int | None = None) -> Any:
            return self.array.__dlpack__(stream=stream)

    y = np.zeros((4, 5), np.float32)
    doubled()(x=Old(np.ones((4, 5), np.float32)), out=Old(y))
    check(bool(np.all(y == 2)), f"expected twos, got {y}")


def scalars() -> None:
    graph = Graph("axpy")
    x, alpha = graph.input("x", (3, 4)), graph.scalar("alpha")
    graph.output(x * alpha, "y")
    plan, values = graph.compile(), np.arange(12, dtype=np.float32).reshape(3, 4)
    check(plan.inputs == ["x", "alpha"], f"{plan.inputs}")
    for number in (2, 0.5, np.full(1, -3, np.float32)):
        check(np.array_equal(plan(x=values, alpha=number), values * np.float32(np.asarray(number).item())), f"alpha = {number}")


def few_bits() -> None:
    graph = Graph("bfloat16", dtype="bfloat16")
    graph.output(graph.relu(graph.input("x", (2, 8))), "y")
    plan = graph.compile()
    x = np.linspace(-2, 2, 16).reshape(2, 8).astype(ml_dtypes.bfloat16)
    y = plan(x=x)
    check(y.dtype == ml_dtypes.bfloat16 and np.array_equal(y, np.maximum(x, ml_dtypes.bfloat16(0))), f"{y}")
    bits = np.zeros((2, 8), np.uint16)
    plan(x=x.view(np.uint16), out=bits)
    check(np.array_equal(bits, y.view(np.uint16)), f"expected the same bits, got {bits}")
    graph = Graph("blocks")
    quantized, scale = graph.block_quantize(graph.input("x", (1, 2, 64)), 32)
    graph.output(quantized, "q")
    graph.output(scale, "s")
    x = np.ldexp(1.0, np.arange(128) % 7).astype(np.float32).reshape(1, 2, 64)
    q, s = graph.compile()(x=x)
    check(q.dtype == ml_dtypes.float8_e4m3fn and s.shape == (1, 2, 2), f"{q.dtype} {s.shape}")
    again = q.astype(np.float32).reshape(1, 2, 2, 32) * s.astype(np.float32)[..., None]
    # Powers of two are exact in either type.
    check(np.array_equal(again.reshape(x.shape), x), f"expected powers of two again, got {again}")


def other_forms() -> None:
    graph = Graph("forms")
    x, w = graph.input("x", (1, 3, 6, 6)), graph.input("w", (2, 3, 3, 3))
    graph.output(graph.conv(x, w, padding=[(1, 0), (0, 1)]), "y")
    random = np.random.default_rng(2)
    arrays = {"x": random.uniform(-1, 1, x.shape).astype(np.float32), "w": random.uniform(-1, 1, w.shape).astype(np.float32)}
    result = graph.compile()(**arrays)
    for again in (Graph.from_json(graph.to_json()), Graph.from_bytes(graph.to_bytes())):
        check(again.to_bytes() == graph.to_bytes() and list(again.tensors) == list(graph.tensors), "expected the same graph")
        check(np.array_equal(again.compile()(**arrays), result), "expected the same result")
    longer = Graph.from_json(graph.to_json())
    longer.output(longer.relu(longer.tensors["y"]), "z")
    y, z = longer.compile()(**arrays)
    check(np.array_equal(z, np.maximum(y, 0)), "expected a node on top of a graph that was read")


def stored() -> None:
    graph = Graph("stored")
    graph.output(graph.input("x", (4, 5)) + 1, "y")
    bytes = graph.compile().to_bytes()
    check(np.array_equal(graph.load_plan(bytes)(x=np.zeros((4, 5), np.float32)), np.ones((4, 5))), "expected ones of a stored plan")
    for damaged in (b"", bytes[:5], bytes[: len(bytes) // 2], bytes[:-40]):
        refuses(hipdnn_rs.PlanError, "stored plan", lambda: graph.load_plan(damaged))
    # The same nodes and uids at other extents: its plan would write behind this graph's arrays.
    larger = Graph("stored")
    larger.output(larger.input("x", (2000, 5)) + 1, "y")
    refuses(hipdnn_rs.PlanError, "expected a plan of this graph, got one of another graph",
            lambda: graph.load_plan(larger.compile().to_bytes()))


def workspace_apart() -> None:
    graph = Graph("workspace")
    a, b = graph.input("a", (1, 64, 64)), graph.input("b", (1, 64, 64))
    scores = a @ b
    graph.output(graph.softmax(scores), "y")
    plan = graph.compile()
    check(plan.workspace_bytes > 0, "expected a plan with a workspace")
    memory = np.zeros(plan.workspace_bytes + 64 * 64 * 4 + 4096, np.uint8)
    inside = memory[4096 - memory.ctypes.data % 4096:][:64 * 64 * 4].view(np.float32).reshape(1, 64, 64)
    other = np.ones((1, 64, 64), np.float32)
    refuses(ValueError, "workspace: expected memory of its own, got a's", lambda: plan(a=inside, b=other, workspace=memory))
    check(np.array_equal(plan(a=inside, b=other, workspace=np.empty(plan.workspace_bytes + 4096, np.uint8)), plan(a=inside, b=other)),
          "expected the same result in any workspace")


def engines_stay() -> None:
    """The plugins of a backend are those that it was opened with, whoever opens it again."""
    one = hipdnn_rs.default_backend()
    with tempfile.TemporaryDirectory() as empty:
        refuses(hipdnn_rs.BackendError, "choosing engine plugins", lambda: hipdnn_rs.Backend(plugins=empty))
    graph = Graph("again")
    graph.output(graph.input("x", (4, 5)) + 1, "y")
    check(graph.compile(backend=one).engine in one.engines, "expected an engine of the backend")


def explained_at_once() -> None:
    """Explanations by several threads leave the environment as it was."""
    graph = Graph("explained")
    graph.output(graph.input("x", (4, 5)) + 1, "y")
    before = os.environ.get("HIPDNN_RS_LOG")
    threads = [threading.Thread(target=lambda: [graph.explain() for _ in range(10)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(os.environ.get("HIPDNN_RS_LOG") == before, "expected the environment of before")


def knobs() -> None:
    graph = Graph("knobs")
    graph.output(graph.input("x", (4, 5)) + 1, "y")
    one = np.ones((4, 5), np.float32)
    check(bool(np.all(graph.compile(engine="HIPDNN_RS_CPU_ENGINE", knobs={"hipdnn_rs.cpu.threads": 1})(x=one) == 2)), "expected twos")
    refuses(hipdnn_rs.PlanError, "expected knobs among hipdnn_rs.cpu.threads", lambda: graph.compile(knobs={"no.such": 1}))
    refuses(hipdnn_rs.PlanError, "hipdnn_rs.cpu.threads", lambda: graph.compile(knobs={"hipdnn_rs.cpu.threads": -5}))


def releases_lock() -> None:
    """Without switches of its own, the interpreter lets another thread run only where the lock is let go."""
    graph = Graph("long")
    graph.output(graph.input("a", (1, 600, 600)) @ graph.input("b", (1, 600, 600)), "c")
    plan, one = graph.compile(knobs={"hipdnn_rs.cpu.threads": 1}), np.ones((1, 600, 600), np.float32)
    during: list[bool] = []
    running = False

    def work() -> None:
        nonlocal running
        # Until the other thread was seen, which a busy machine may start late.
        for _ in range(100):
            running = True
            plan(a=one, b=one, out=out)
            running = False
            if during:
                return

    out = np.empty_like(one)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        during.append(running)
        thread.join()
    finally:
        sys.setswitchinterval(before)
    check(during == [True], "expected this thread to run during the plan's execution")
    check(bool(np.all(out == 600)), "expected the product of ones")


def several_threads() -> None:
    graph = Graph("threads")
    graph.output(graph.softmax(graph.input("x", (64, 100))), "y")
    plan = graph.compile()

    def work(index: int) -> None:
        x = np.random.default_rng(index).uniform(-1, 1, (64, 100)).astype(np.float32)
        first = plan(x=x)
        for _ in range(20):
            check(np.array_equal(plan(x=x), first), "expected the same result each time")

    at_once(6, work)


# Mistakes


def refuses(kind: type[Exception], part: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        check(part in str(error), f"expected {part!r}, got {error}")
        return
    raise Failure(f"expected {kind.__name__} with {part!r}, got no error")


def graphs() -> None:
    graph = Graph("wrong")
    x, w = graph.input("x", (1, 3, 8, 8)), graph.input("w", (4, 2, 3, 3))
    graph.output(graph.conv(x, w), "y")
    refuses(hipdnn_rs.GraphError, "expected a dimension 1 that divides the 3 channels of x, got 2", graph.compile)
    refuses(hipdnn_rs.GraphError, "expected a pointwise mode among abs", lambda: graph.pointwise("sqare", x))
    refuses(hipdnn_rs.GraphError, "add: expected 2 operands, got 1", lambda: graph.pointwise("add", x))
    refuses(hipdnn_rs.GraphError, "expected a tensor of this graph", lambda: Graph().relu(x))
    refuses(hipdnn_rs.GraphError, "axis: expected -4 to 3, got 4", lambda: graph.sum(x, 4))
    refuses(hipdnn_rs.GraphError, "stride: expected 2 entries", lambda: graph.conv(x, w, stride=(1, 1, 1)))
    refuses(hipdnn_rs.GraphError, "expected a finite constant, got inf", lambda: x + float("inf"))
    refuses(hipdnn_rs.GraphError, "JSON", lambda: Graph.from_json("{"))
    refuses(hipdnn_rs.GraphError, "", lambda: Graph.from_bytes(b"no graph"))
    twice = Graph()
    twice.output(twice.input("x", (1,)) + twice.input("x", (1,)), "y")
    refuses(hipdnn_rs.GraphError, "expected names that differ, got 'x' twice", twice.compile)


def arrays() -> None:
    plan, good = doubled(), np.ones((4, 5), np.float32)
    refuses(TypeError, "x: expected an array, got none", plan)
    refuses(TypeError, "expected arrays named x, got z", lambda: plan(x=good, z=good))
    refuses(TypeError, "x: expected an array with __dlpack__, got list", lambda: plan(x=[[1.0] * 5] * 4))
    refuses(ValueError, "x: expected elements of type float, got float64", lambda: plan(x=np.ones((4, 5))))
    refuses(ValueError, "x: expected elements of type float, got int32", lambda: plan(x=np.ones((4, 5), np.int32)))
    refuses(ValueError, "x: expected shape [4, 5], got [5, 4]", lambda: plan(x=np.ones((5, 4), np.float32)))
    refuses(ValueError, "x: expected strides [5, 1] in elements, got [1, 4]", lambda: plan(x=np.ones((5, 4), np.float32).T))
    memory = np.zeros(81, np.uint8)
    start = (1 - memory.ctypes.data) % 4 or 1
    odd = np.zeros(85, np.uint8)[start:start + 80]
    if odd.ctypes.data % 4 == 0:
        odd = np.zeros(85, np.uint8)[start + 1:start + 81]
    refuses(ValueError, "x: expected an address that is a multiple of 4", lambda: plan(x=odd.view(np.float32).reshape(4, 5)))
    frozen = np.ones((4, 5), np.float32)
    frozen.flags.writeable = False
    refuses(ValueError, "y: expected memory that may be written", lambda: plan(x=good, out=frozen))
    refuses(ValueError, "y: expected memory of its own, got x's", lambda: plan(x=good, out=good))
    refuses(TypeError, "out: expected results named y, got z", lambda: plan(x=good, out={"z": good}))


def engines() -> None:
    graph = Graph("engines")
    graph.output(graph.input("x", (4, 5)) + 1, "y")
    refuses(hipdnn_rs.PlanError, "expected an engine among HIPDNN_RS_CPU_ENGINE", lambda: graph.compile(engine="NO_ENGINE"))
    refuses(ValueError, 'device: expected "cpu" or "rocm", got "cuda"', lambda: graph.compile(device="cuda"))
    refuses(hipdnn_rs.BackendError, "libhipdnn_backend.so not found", lambda: hipdnn_rs.Backend("/nonexistent/library.so"))
    declined = Graph("declined")
    x = declined.input("x", (1, 1, 4, 4, 4, 4))
    declined.output(declined.conv(x, declined.input("w", (1, 1, 2, 2, 2, 2))), "y")
    refuses(hipdnn_rs.PlanError, "HIPDNN_RS_CPU_ENGINE", declined.compile)
    check("HIPDNN_RS_CPU_ENGINE declines: " in declined.explain(), f"expected the reason, got {declined.explain()}")


WRONG = (graphs, arrays, engines)

# The package


def no_failures(result: doctest.TestResults) -> None:
    check(result.failed == 0 and result.attempted > 5, f"{result}")


def readme() -> None:
    no_failures(doctest.testfile(os.environ["MODULE_README"], module_relative=False))


def type_hints() -> None:
    package = Path(hipdnn_rs.__file__).parent
    check((package / "py.typed").exists(), "expected py.typed in the package")
    with tempfile.TemporaryDirectory() as place:
        # The checker passes over what lies among installed packages.
        copy = shutil.copytree(package, Path(place) / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        outcome = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(copy)], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, timeout=300)
    check(outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-500:])


def metadata() -> None:
    found = importlib.metadata.metadata("hipdnn-rs")
    check(found["Requires-Python"] == ">=3.11" and found.get_all("Requires-Dist") == ["numpy>=2.1"], f"{found.items()}")
    tags = importlib.metadata.distribution("hipdnn-rs").read_text("WHEEL") or ""
    check("Tag: cp311-abi3-manylinux_2_" in tags, tags)


if __name__ == "__main__":
    sys.exit(main())
