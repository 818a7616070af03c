#!/usr/bin/env python3
"""Times whole networks whose weights and tensors are of 16 bits, `half` and `bfloat16`, beside the same in `float`, on one thread.

The networks are those of `bench.py`, and each contender has a process of its own and is measured as there. All are converted to one
operator set, and take and give `float`: those of 16 bits have a cast at each border, so that all contenders get the same arrays, of which
ONNX Runtime's Python package has none of `bfloat16`. Its CPU provider has no `Conv` of `bfloat16`: there is no such column.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, version_converter

import provider
from bench import ONE_THREAD, OURS, Contender, Measured, geometric_mean, network_cases, open_each, take_turns

# The first operator set in which every operator of the networks takes bfloat16, and the format's version of that time.
OPSET = 22
IR_VERSION = 10

FLOAT, HALF, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
NAMES: dict[int, str] = {FLOAT: "float", HALF: "half", BFLOAT16: "bfloat16"}

# Contenders in the order of their turns: names, providers and types.
CONTENDERS = [(OURS, provider.NAME, FLOAT), (OURS, provider.NAME, BFLOAT16), (OURS, provider.NAME, HALF), ("CPU EP", provider.CPU, HALF)]

# How far outputs may be from the CPU provider's of the network as it came: root mean squares of the differences, as parts of the output's
# standard deviation, of which a constant is off by one. The largest differences say nothing: pixels on the border of a text are off by
# 0.9 of the text detector's range in bfloat16. The CPU provider's half has been off by 0.0006 (ResNet-50) to 0.035 (CenterFace, which is
# given noise).
FLOAT_BOUND, CPU_BOUND = 1e-3, 0.1

# How far the EP's may be as multiples of the CPU provider's in half: of equal rounding, and of eight times that. Measured were 1.04 and 9.2.
SPREADS = {HALF: 2, BFLOAT16: 16}

# Inputs that are float whatever the type of the others.
FLOAT_INPUTS = {"Resize": (1, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} CPUs; each contender in a process of its own, in {arguments.turns} turns.")
    print("Times of sessions' runs, outputs bound, denormals flushed: medians of the turns' fastest, in ms; ratios: medians of the turns'.")
    with tempfile.TemporaryDirectory() as directory:
        precisions(arguments.cache, arguments.turns, Path(directory))
    return 0


def precisions(cache: Path, turns: int, directory: Path) -> None:
    print(f"\nnetworks of 16-bit tensors, {ONE_THREAD}")
    print(f"{'':18} {'EP':>9} {'EP':>9} {'bfloat16':>9} {'EP':>9} {'CPU EP':>9} {'EP/CPU':>9}")
    print(f"{'model':18} {'float':>9} {'bfloat16':>9} {'/ float':>9} {'half':>9} {'half':>9} {'half':>9}")
    ratios: list[tuple[float, float]] = []
    left: list[str] = []
    with ExitStack() as stack:
        contenders = [stack.enter_context(Contender(f"{name}, {NAMES[kind]},", of, ONE_THREAD)) for name, of, kind in CONTENDERS]
        for name, path, feeds in network_cases(cache):
            variants = write_variants(path, directory)
            wanted = provider.cpu_session(path).run(None, feeds)
            openings, outputs = open_each(contenders, [variants[kind] for _, _, kind in CONTENDERS], feeds, directory)
            check(name, contenders, outputs, wanted)
            measured = Measured(take_turns(contenders, turns, 0.3), openings)
            of_float, of_bfloat16, of_half, of_cpu = measured.times()
            ratios.append((measured.ratio(1, 0), measured.ratio(2, 3)))
            print(f"{name:18} {of_float:9.2f} {of_bfloat16:9.2f} {ratios[-1][0]:9.2f} {of_half:9.2f} {of_cpu:9.2f} {ratios[-1][1]:9.2f}", flush=True)
            left += [f"{name}, {NAMES[kind]}: " + ", ".join(f"{count} {operator}" for operator, count in sorted(opening["left"].items()))
                     for opening, (_, _, kind) in zip(openings, CONTENDERS) if opening["left"]]
    of_float, of_cpu = (geometric_mean(list(column)) for column in zip(*ratios))
    print(f"{'geometric mean':18} {'':9} {'':9} {of_float:9.2f} {'':9} {'':9} {of_cpu:9.2f}")
    if left:
        print("nodes that the EP leaves to other providers:", *left, sep="\n  ")


def check(network: str, contenders: list[Contender], outputs: list[list[np.ndarray]], wanted: list[np.ndarray]) -> None:
    """Compares the contenders' results with the network's as it came."""
    found = [differences(f"{contender.name} {network}", got, wanted) for contender, got in zip(contenders, outputs)]
    # The CPU provider is the last.
    for contender, (_, of, kind), these in zip(contenders, CONTENDERS, found):
        for index, (difference, rounding) in enumerate(zip(these, found[-1])):
            bound = CPU_BOUND if of == provider.CPU else FLOAT_BOUND if kind == FLOAT else SPREADS[kind] * rounding
            # What is not a number is not within bounds.
            if not difference <= bound:
                raise SystemExit(f"{contender.name} {network}: output {index} is off by {difference:.3g} of its standard deviation, "
                                 f"expected at most {bound:.3g}")


def differences(what: str, got: list[np.ndarray], wanted: list[np.ndarray]) -> list[float]:
    """Root mean square of each output's difference, as a part of the wanted output's standard deviation."""
    shapes = [[output.shape for output in outputs] for outputs in (got, wanted)]
    if shapes[0] != shapes[1]:
        raise SystemExit(f"{what}: expected outputs of shapes {shapes[1]}, got {shapes[0]}")
    return [float(np.sqrt(np.mean((ours.astype(np.float64) - theirs) ** 2)) / np.std(theirs, dtype=np.float64)) for ours, theirs in zip(got, wanted)]


def write_variants(path: Path, directory: Path) -> dict[int, Path]:
    """The network in each type."""
    model = current(onnx.load(str(path)))
    variants: dict[int, Path] = {}
    for kind, name in NAMES.items():
        variants[kind] = directory / f"{name}.onnx"
        onnx.save(model if kind == FLOAT else narrowed(model, kind), str(variants[kind]))
    return variants


def current(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the operator set that takes 16-bit types, its weights constant."""
    result = version_converter.convert_version(model, OPSET)
    result.ir_version = IR_VERSION
    # Before IR 4 every initializer had to be a graph input as well, and so could not be constant.
    weights = {tensor.name for tensor in result.graph.initializer}
    inputs = [value for value in result.graph.input if value.name not in weights]
    del result.graph.input[:]
    result.graph.input.extend(inputs)
    return result


def narrowed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """The model, without subgraphs, with 16-bit numbers for its floats, and casts behind its inputs and before its outputs."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    divide_by_deviations(graph)
    kept = kept_floats(graph)
    for tensor in floats(graph, kept):
        change(tensor, numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind)))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = kind
    borders = {value.name: f"{value.name}_narrow" for value in [*graph.input, *graph.output] if value.type.tensor_type.elem_type == FLOAT}
    for node in graph.node:
        node.input[:] = [borders.get(name, name) for name in node.input]
        node.output[:] = [borders.get(name, name) for name in node.output]
    before = [helper.make_node("Cast", [value.name], [borders[value.name]], to=kind) for value in graph.input if value.name in borders]
    behind = [helper.make_node("Cast", [borders[value.name]], [value.name], to=FLOAT) for value in graph.output if value.name in borders]
    nodes = [*before, *graph.node, *behind]
    # Types of the values between are others now.
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(result)
    return result


def divide_by_deviations(graph: onnx.GraphProto) -> None:
    """Divides scales of normalizations by standard deviations, which leaves variances of one: the text detector's exceed `half`."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    uses = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        if node.op_type != "BatchNormalization":
            continue
        scale, variance = (node.input[at] for at in (1, 4))
        if any(uses[name] != 1 or name not in constants for name in (scale, variance)):
            raise SystemExit(f"{node.name}: expected a scale and a variance that are constants of its own")
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        deviation = np.sqrt(numpy_helper.to_array(constants[variance]) + epsilon)
        change(constants[scale], numpy_helper.to_array(constants[scale]) / deviation)
        change(constants[variance], np.full_like(deviation, 1 - epsilon))


def change(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def kept_floats(graph: onnx.GraphProto) -> set[str]:
    """Names of the constants that have to stay float."""
    uses: dict[bool, set[str]] = {True: set(), False: set()}
    for node in graph.node:
        for index, name in enumerate(node.input):
            uses[index in FLOAT_INPUTS.get(node.op_type, ())].add(name)
    kept = uses[True] - {""}
    constants = {tensor.name for tensor in graph.initializer} | {node.output[0] for node in graph.node if node.op_type == "Constant"}
    if others := kept & uses[False] | kept - constants:
        raise SystemExit(f"expected constants of their own where an operator takes float alone, got {', '.join(sorted(others))}")
    return kept


def floats(graph: onnx.GraphProto, kept: set[str]) -> Iterator[onnx.TensorProto]:
    """The graph's tensors of floats, initializers and nodes' attributes, those of `kept` left out."""
    yield from (tensor for tensor in graph.initializer if tensor.data_type == FLOAT and tensor.name not in kept)
    for node in graph.node:
        if node.op_type not in ("Constant", "ConstantOfShape") or node.output[0] in kept:
            continue
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float32))))
        attribute = node.attribute[0]
        if attribute.name in ("value_float", "value_floats"):
            # These are float whatever they hold.
            numbers = np.array(helper.get_attribute_value(attribute), np.float32)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers)))
        if attribute.name == "value" and attribute.t.data_type == FLOAT:
            yield attribute.t


if __name__ == "__main__":
    sys.exit(main())
