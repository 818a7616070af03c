#!/usr/bin/env python3
"""An engine that declines by rule drives the splitting of programs: results stay the CPU provider's, and nothing fails after a claim.

The engine is the CPU engine behind a plugin that declines (`integration_tests/examples/declining_plugin`): graphs of several
operations, every n-th one, kinds, sizes; when it is asked, when a plan is built, when it runs, and also only once a session
is made. `DECLINING_PLUGIN` names the plugin's file.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_hipdnn_rs as wheel
import models
import provider
import suite_random
from runner import Failure, Runner, Skip, at_once, check, run_suite

TOLERANCE = 1e-4
# Rounding to 16 bits between two graphs where one kept a float.
TOLERANCE_OF_HALVES = 1e-2
THREADS = 4
RANDOM_GRAPHS = 300

# Where nothing but the size of a graph is declined, splitting alone serves everything.
SIZES = ("nodes=1", "nodes=2", "nodes=5", "nodes=1 at=plan", "nodes=3 at=plan")
# Some networks have no graph as large.
LARGEST = "nodes=5"
# Some operations are declined by themselves: their nodes are left to the CPU provider.
PICKS = ("operations=2", "operations=3", "operations=7 nodes=2", "operations=3 at=plan", "graphs=2", "graphs=3", "graphs=5 at=plan",
         "kinds=ConvolutionFwd", "kinds=Pointwise", "kinds=Pointwise.ReluFwd+Reduction", "kinds=Matmul+ResampleFwd", "elements=100",
         "elements=600 nodes=3", "elements=600 at=plan")
# Reasons of nodes that an engine could take: the rule's, and the runtime's when it asks once more.
REASONS = ("declining_plugin: ", "CPUExecutionProvider has it already", "takes fused nodes in one graph of a model only")
EVERYTHING = ("graphs=1", "graphs=1 at=plan")


def main() -> int:
    return run_suite(body, "splitting", __doc__ or "")


def body(runner: Runner) -> None:
    plugin = os.environ.get("DECLINING_PLUGIN", "")
    if not plugin:
        def absent() -> None:
            raise Skip("DECLINING_PLUGIN names no plugin: cargo xtask test builds and names it")
        runner.case("the declining plugin", absent)
        return
    with tempfile.TemporaryDirectory() as directory:
        engine = Declining(Path(plugin), Path(directory))
        for name, make in NETWORKS.items():
            for rule in SIZES + PICKS + EVERYTHING:
                runner.case(f"{name}: {rule}", lambda: declined_when_claimed(engine, make(free=False), rule))
            for rule in SIZES + PICKS:
                runner.case(f"{name} of free extents: {rule}", lambda: declined_when_claimed(engine, make(free=True), rule))
            for rule in SIZES:
                runner.case(f"{name} of free extents: only at run time {rule}", lambda: split_at_run_time(engine, make(free=True), rule))
            for rule in ("graphs=1", "graphs=1 at=plan"):
                runner.case(f"{name} of free extents: only at run time {rule}", lambda: refused_at_run_time(engine, make(free=True), rule))
        runner.case("sizes above a limit: an error that names the node, and the session lives on", lambda: too_large(engine))
        runner.case("an execution that fails: an error that names the nodes", lambda: failing_execution(engine))
        runner.case(f"{THREADS} threads with new extents while programs are split", lambda: threads_at_once(engine))
        runner.case("plans of extents that are gone are gone", lambda: bounded(engine))
        runner.case("blocks of one structure share their plans, whatever their nodes are called", lambda: shared(engine))
        for rule in ("", "nodes=1", "nodes=4", "operations=4", "graphs=3 nodes=10", "kinds=ResampleFwd+Reduction", "elements=100000 at=plan"):
            runner.case(f"orientation: {rule or 'nothing declined'}", lambda: orientation(engine, runner.cache, rule))
        rules = SIZES + PICKS
        for seed in range(RANDOM_GRAPHS):
            rule = rules[seed % len(rules)]
            runner.case(f"random graph {seed}: {rule}", lambda: random_graph(engine, seed, rule))


class Declining:
    """The plugin: alone in a directory, so that the backend loads no other, and opened here too."""

    def __init__(self, plugin: Path, directory: Path) -> None:
        os.environ["DECLINING_PLUGIN_BASE"] = str(Path(wheel.get_library_path()).with_name("libhipdnn_rs_plugin.so"))
        copy = directory / plugin.name
        copy.write_bytes(plugin.read_bytes())
        self.directory = directory
        self.library = ctypes.CDLL(str(copy))
        self.library.decliningPluginDeclined.restype = ctypes.c_uint64
        self.library.decliningPluginPlans.restype = ctypes.c_uint64

    def rule(self, text: str) -> None:
        check(self.library.decliningPluginSetRule(text.encode()) == 0, f"{text!r} is no rule")

    @property
    def declined(self) -> int:
        return self.library.decliningPluginDeclined()

    @property
    def plans(self) -> int:
        """Plans that live, of all sessions."""
        gc.collect()
        return self.library.decliningPluginPlans()

    def options(self, **more: str) -> dict[str, str]:
        return {"plugin_dir": str(self.directory), "cost_rule": "0"} | more


class Network:
    """A model, and inputs of several extents where they are free."""

    def __init__(self, nodes: list[Any], weights: dict[str, np.ndarray], inputs: dict[str, list[list[int]]], outputs: list[str],
                 free: bool, kind: int = TensorProto.FLOAT) -> None:
        shapes = {name: [f"{name}_{axis}" for axis in range(len(each[0]))] if free else each[0] for name, each in inputs.items()}
        graph = helper.make_graph(
            nodes, "network", [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs], [numpy_helper.from_array(array, name) for name, array in weights.items()])
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
        rng = np.random.default_rng(11)
        numpy = helper.tensor_dtype_to_np_dtype(kind)
        self.feeds = [{name: rng.standard_normal(each[turn]).astype(numpy) for name, each in inputs.items()}
                      for turn in range(len(next(iter(inputs.values()))) if free else 1)]
        self.tolerance = TOLERANCE if kind == TensorProto.FLOAT else TOLERANCE_OF_HALVES
        self.nodes = len(nodes)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), name=f"the_{outputs.split()[0]}", **attributes)


def residual(free: bool) -> Network:
    """Convolutions with what goes into their epilogues, pools, a residual sum and a classifier."""
    rng = np.random.default_rng(1)
    weights = {"w1": (rng.standard_normal((8, 3, 3, 3)) / 4), "b1": rng.standard_normal(8), "w2": rng.standard_normal((8, 8, 3, 3)) / 8,
               "w3": rng.standard_normal((8, 1, 3, 3)) / 3, "w4": rng.standard_normal((8, 10)) / 3, "b4": rng.standard_normal(10)}
    nodes = [
        node("Conv", "x w1 b1", "a", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "a", "b"), node("MaxPool", "b", "c", kernel_shape=[2, 2]),
        node("Conv", "c w2", "d", pads=[1, 1, 1, 1]), node("Sigmoid", "d", "e"), node("Mul", "d e", "f"), node("Add", "f c", "g"),
        node("Conv", "g w3", "h", pads=[1, 1, 1, 1], group=8), node("HardSwish", "h", "i"), node("GlobalAveragePool", "i", "j"),
        node("Mul", "i j", "k"), node("AveragePool", "k", "l", kernel_shape=[2, 2], strides=[2, 2]), node("ReduceMean", "l axes", "m", keepdims=0),
        node("Gemm", "m w4 b4", "n"), node("Softmax", "n", "y"),
    ]
    floats = {name: array.astype(np.float32) for name, array in weights.items()}
    extents = [[2, 3, 20, 16], [1, 3, 12, 28], [3, 3, 9, 9]]
    return Network(nodes, floats | {"axes": np.asarray([2, 3])}, {"x": extents}, ["y", "g", "d"], free)


def branches(free: bool, kind: int = TensorProto.FLOAT) -> Network:
    """Views and parts of buffers: splits, joins, transposes and slices between element-wise nodes; outputs in the middle."""
    rng = np.random.default_rng(2)
    numpy = helper.tensor_dtype_to_np_dtype(kind)
    weights = {"w": (rng.standard_normal((6, 6, 1, 1)) / 2).astype(numpy), "s": rng.standard_normal((1, 6, 1, 1)).astype(numpy),
               "starts": np.asarray([1]), "ends": np.asarray([-1]), "axis": np.asarray([3])}
    nodes = [
        node("Tanh", "x", "a"), node("Split", "a", "b c", axis=1, num_outputs=2), node("Exp", "b", "d"), node("Neg", "c", "e"),
        node("Concat", "d e c", "f", axis=1), node("Slice", "f starts ends axis", "g"), node("Transpose", "g", "h", perm=[0, 1, 3, 2]),
        node("Abs", "h", "i"), node("Transpose", "i", "j", perm=[0, 1, 3, 2]), node("Split", "j", "k l m", axis=1, num_outputs=3),
        node("Max", "k l m", "n"), node("Concat", "n n", "o", axis=1), node("Conv", "o w", "p"), node("Mul", "p s", "q"), node("LeakyRelu", "q", "r"),
        node("Concat", "r o", "y", axis=1),
    ]
    return Network(nodes, weights, {"x": [[2, 6, 8, 9], [1, 6, 5, 4], [4, 6, 3, 12]]}, ["y", "f", "i"], free, kind)


def branches_of_halves(free: bool) -> Network:
    return branches(free, TensorProto.FLOAT16)


def transformer(free: bool) -> Network:
    """Attention and a block behind it, spelled out."""
    rng = np.random.default_rng(3)
    square = {name: (rng.standard_normal((16, 16)) / 4).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    weights = square | {"w1": (rng.standard_normal((16, 32)) / 4).astype(np.float32), "w2": (rng.standard_normal((32, 16)) / 5).astype(np.float32),
                        "scale": rng.standard_normal(16).astype(np.float32), "bias": rng.standard_normal(16).astype(np.float32),
                        "heads": np.asarray([0, 0, 4, 4]), "flat": np.asarray([0, 0, 16]), "half": np.float32(0.5)}
    nodes = [node("LayerNormalization", "x scale bias", "a", axis=-1)]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [node("MatMul", f"a w{name}", f"{name}1"), node("Reshape", f"{name}1 heads", f"{name}2"), node("Transpose", f"{name}2", f"{name}3", perm=order)]
    nodes += [
        node("MatMul", "q3 k3", "b"), node("Mul", "b half", "c"), node("Softmax", "c", "d"), node("MatMul", "d v3", "e"),
        node("Transpose", "e", "f", perm=[0, 2, 1, 3]), node("Reshape", "f flat", "g"), node("MatMul", "g wo", "h"), node("Add", "h x", "i"),
        node("LayerNormalization", "i scale bias", "j", axis=-1), node("MatMul", "j w1", "k"), node("Gelu", "k", "l"), node("MatMul", "l w2", "m"),
        node("Add", "m i", "y"),
    ]
    return Network(nodes, weights, {"x": [[2, 6, 16], [1, 9, 16], [3, 4, 16]]}, ["y", "d"], free)


NETWORKS: dict[str, Callable[..., Network]] = {
    "residual": residual, "branches": branches, "branches of halves": branches_of_halves, "transformer": transformer,
}


def session(engine: Declining, network: Network, **options: str) -> provider.Session:
    quiet = provider.options()
    # Errors arrive as exceptions; the log would only say them once more.
    quiet.log_severity_level = 4
    return provider.Session(network.model, engine.options(**options), quiet)


def compare(network: Network, ours: provider.Session, feeds: Iterable[dict[str, np.ndarray]], what: str = "") -> None:
    cpu = provider.cpu_session(network.model)
    for turn, feed in enumerate(feeds):
        difference = provider.relative_difference(ours.run(feed), cpu.run(None, feed))
        check(difference <= network.tolerance, f"{what}run {turn}: off by {difference:.3g} of the output's range")


def mine(of: provider.Session) -> set[str]:
    return {claim.node for claim in of.claims if claim.reason is None}


def declined_when_claimed(engine: Declining, network: Network, rule: str) -> None:
    engine.rule("")
    whole = mine(session(engine, network))
    check(len(whole) > network.nodes // 2, f"only {sorted(whole)} are on the provider where nothing is declined")
    engine.rule(rule)
    ours = session(engine, network)
    if rule in EVERYTHING:
        # What is a view or a constant is claimed, as it is never asked about.
        check(not any(claim.engine for claim in ours.claims), f"an engine that takes nothing has {ours.claims}")
    elif rule in SIZES:
        check(mine(ours) == whole, f"splitting is enough, but {sorted(whole - mine(ours))} are left out")
    for claim in ours.claims:
        check(claim.reason is None or claim.node not in whole or any(part in claim.reason for part in REASONS),
              f"{claim.node} is left out for another reason than the rule's: {claim.reason}")
    if len(network.feeds) > 1 and rule in PICKS:
        # Extents that were not assumed may be refused when they turn up, with an error that says what is.
        cpu = provider.cpu_session(network.model)
        for feed in network.feeds:
            try:
                got = ours.run(feed)
            except Exception as problem:
                check("declining_plugin: " in str(problem) and any(name in str(problem) for name in mine(ours)), f"no clear error: {problem}")
                continue
            difference = provider.relative_difference(got, cpu.run(None, feed))
            check(difference <= network.tolerance, f"off by {difference:.3g} of the output's range while some are refused")
        engine.rule("")
    # Twice round: programs of earlier extents serve again.
    compare(network, ours, network.feeds * 2)


def split_at_run_time(engine: Declining, network: Network, rule: str) -> None:
    engine.rule("")
    ours = session(engine, network)
    compare(network, ours, network.feeds[:1], "before the rule: ")
    engine.rule(rule)
    compare(network, ours, network.feeds)
    check(engine.declined > 0 or rule == LARGEST, "nothing was declined")


def refused_at_run_time(engine: Declining, network: Network, rule: str) -> None:
    engine.rule("")
    ours = session(engine, network)
    engine.rule(rule)
    names = mine(ours)
    message = failure(lambda: ours.run(network.feeds[0]))
    check(any(name in message for name in names) and "this is graph" in message, f"the error names no node or no reason: {message}")
    # The refusal is not kept: an engine that takes the graphs now has them.
    engine.rule("")
    compare(network, ours, network.feeds)


def failure(run: Callable[[], Any]) -> str:
    try:
        run()
    except Exception as problem:
        return str(problem)
    raise Failure("a run succeeds whose operations are all refused")


def too_large(engine: Declining) -> None:
    nodes = [node("Exp", "x", "a"), node("Neg", "a", "y")]
    network = Network(nodes, {}, {"x": [[4, 8], [2, 3], [3, 3]]}, ["y"], free=True)
    # More than the extents that are assumed when nodes are claimed.
    engine.rule("elements=8000")
    ours = session(engine, network)
    check(mine(ours) == {"the_a", "the_y"}, f"{mine(ours)} are on the provider")
    compare(network, ours, network.feeds)
    message = failure(lambda: ours.run({"x": np.zeros((100, 81), np.float32)}))
    check("the_a" in message and "expected at most 8000 elements" in message, f"the error does not name node and reason: {message}")
    compare(network, ours, [*network.feeds, {"x": np.ones((100, 80), np.float32)}], "after the error: ")


def failing_execution(engine: Declining) -> None:
    for free in (False, True):
        network = residual(free)
        engine.rule("kinds=Matmul at=execute")
        ours = session(engine, network)
        message = failure(lambda: ours.run(network.feeds[0]))
        check("the_n" in message and "Matmul is declined" in message, f"the error does not name nodes and reason: {message}")
    engine.rule("")


def threads_at_once(engine: Declining) -> None:
    network = residual(free=True)
    engine.rule("")
    ours, cpu = session(engine, network), provider.cpu_session(network.model)
    engine.rule("nodes=2")
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((1 + turn % 2, 3, 9 + turn, 21 - turn)).astype(np.float32)} for turn in range(6)]
    wanted = [cpu.run(None, feed) for feed in feeds]

    def work(first: int) -> None:
        for turn in range(2 * len(feeds)):
            at = (first + turn) % len(feeds)
            difference = provider.relative_difference(ours.run(feeds[at]), wanted[at])
            check(difference <= TOLERANCE, f"input {at}: off by {difference:.3g}")

    at_once(THREADS, work)


def bounded(engine: Declining) -> None:
    network = residual(free=True)
    engine.rule("nodes=2")
    before = engine.plans
    ours = session(engine, network, plan_cache="2")
    alive = []
    for turn in range(12):
        ours.run({"x": np.zeros((1, 3, 9 + turn, 21 - turn), np.float32)})
        alive.append(engine.plans - before)
    # Two programs' plans at most, of which some are the same.
    check(max(alive) <= 2 * alive[0] and alive[0] > 4, f"plans that live after each of 12 extents, of which 2 are kept: {alive}")
    del ours
    check(engine.plans == before, f"{engine.plans - before} plans outlive their session")


def shared(engine: Declining) -> None:
    """A chain of equal blocks, each of which a transposition that is a view ends."""
    engine.rule("")
    plans = []
    for blocks in (2, 12):
        nodes, value = [], "x"
        for block in range(blocks):
            nodes += [node("Neg", value, f"a{block}"), node("LeakyRelu", f"a{block}", f"b{block}", alpha=0.9), node("Transpose", f"b{block}", f"c{block}", perm=[1, 0])]
            value = f"c{block}"
        network = Network(nodes, {}, {"x": [[8, 8]]}, [value], free=False)
        before = engine.plans
        ours = session(engine, network)
        plans.append(engine.plans - before)
        compare(network, ours, network.feeds)
        del ours
    # The first block reads the input as it lies, all others a view; the last result is laid out anew.
    check(plans[0] == plans[1] <= 3, f"expected as many plans for 12 blocks as for 2, got {plans}")


def orientation(engine: Declining, cache: Path, rule: str) -> None:
    try:
        path = models.fetch("orientation", cache)
    except models.FetchError as problem:
        raise Skip(str(problem)) from None
    cpu = provider.cpu_session(path)
    feeds = {cpu.get_inputs()[0].name: np.random.default_rng(6).standard_normal((1, 3, 224, 224)).astype(np.float32)}
    wanted = cpu.run(None, feeds)
    engine.rule(rule)
    ours = provider.Session(path, engine.options())
    if not rule or rule in SIZES:
        left = [claim for claim in ours.claims if claim.reason]
        check(not left, f"nothing has to be left out, but {left[:3]}")
    check(not rule or engine.declined > 0, "nothing was declined")
    free = any(not isinstance(extent, int) for extent in cpu.get_inputs()[0].shape)
    if free and not rule.startswith("nodes"):
        engine.rule("")
    difference = provider.relative_difference(ours.run(feeds), wanted)
    check(difference <= 1e-3, f"off by {difference:.3g} of the output's range")


def random_graph(engine: Declining, seed: int, rule: str) -> None:
    engine.rule(rule)
    # Extents that only a run knows are refused only at run time: an error by right.
    entry = suite_random.one_case("graph", seed, provider.devices(), engine.options(), lambda: rule in SIZES or engine.rule(""))
    check(entry["outcome"] != "failed", f"{', '.join(entry['operators'])}: {entry.get('detail', '')}")


if __name__ == "__main__":
    sys.exit(main())
