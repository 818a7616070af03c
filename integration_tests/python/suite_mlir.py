#!/usr/bin/env python3
"""The stages that `dump_ir` writes: the real torch-mlir-opt takes every one, and refuses broken ones.

TORCH_MLIR_OPT names the program; TORCH_MLIR_MISSING says why there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

import models
import provider
import suite_table
from runner import Runner, Skip, check, run_suite

STAGES = ["1-import", "2-outlined", "3-executables", "4-dps", "5-memref"]
# The cost rule would leave small models alone.
OPTIONS = {"cost_rule": "0"}

NAMES = {"float32": "float", "float16": "float16", "bfloat16": "bfloat16"}


def main() -> int:
    return run_suite(body, "mlir", __doc__ or "")


def body(runner: Runner) -> None:
    for name, path, shape in NETWORKS:
        runner.case(f"{name}: every stage of every program is taken", lambda: verified(str(path(runner.cache)), shape))
        runner.case(f"{name}: no windows overlap that are alive at once", lambda: apart(str(path(runner.cache)), shape))
    for case in table():
        runner.case(f"table, {case.name}: every stage is taken", lambda: verified(table_model(case), list((case.feeds or (case.x,))[0])))
    for kind in NAMES:
        runner.case(f"movement, {kind}: every stage is taken", lambda: verified(movement(kind), [2, 6, 8, 5]))
        runner.case(f"movement, {kind}: no windows overlap that are alive at once", lambda: apart(movement(kind), [2, 6, 8, 5]))
    runner.case("movement, no elements: every stage is taken", lambda: verified(movement("float32"), [0, 6, 8, 5]))
    for breakage in BREAKAGES:
        runner.case(f"broken: {breakage.name}, refused", lambda: refused(breakage))
    runner.case("two sessions write the same texts", deterministic)
    runner.case("a program for each set of extents has its files", extents)
    runner.case("a directory that can't be made is an error", no_directory)
    runner.case("a directory that is gone is no error of a run", directory_gone)


NETWORKS: list[tuple[str, Callable[[Path], Path], list[int]]] = [
    ("detector", lambda cache: models.fetch("detector", cache), [1, 3, 96, 160]),
    ("recognizer", lambda cache: models.fetch("recognizer", cache), [1, 3, 48, 160]),
    ("CenterFace", models.dynamic_centerface, [1, 3, 64, 96]),
    ("orientation", lambda cache: models.fetch("orientation", cache), [1, 3, 224, 224]),
    ("light ResNet-50", lambda cache: models.fetch("light-resnet50", cache), [1, 3, 224, 224]),
]


def table() -> list[suite_table.Case]:
    """One case of each rank and type, and one with open extents."""
    chosen: dict[tuple[int, str, bool], suite_table.Case] = {}
    for case in [*suite_table.SHAPES, *suite_table.TYPED, *suite_table.DYNAMIC]:
        chosen.setdefault((len(case.x), case.element_type, case.declared is not None), case)
    return list(chosen.values())


def table_model(case: suite_table.Case) -> bytes:
    rng = np.random.default_rng(5)
    w = suite_table.random(rng, case.w, case.element_type)
    b = suite_table.random(rng, (case.w[0],), case.element_type) if case.bias else None
    return suite_table.build(case, w, b)


def movement(kind: str) -> bytes:
    """Parts, joins, orders, comparisons, casts and integers around a product of matrices."""
    numpy_type, element = suite_table.NUMPY_TYPE[kind], suite_table.ONNX_TYPE[kind]
    weights = np.random.default_rng(3).standard_normal((5, 7)).astype(numpy_type)
    constants = [helper.make_tensor("w", element, weights.shape, weights.tobytes(), raw=True),
                 helper.make_tensor("two", element, [], np.array(2, numpy_type).tobytes(), raw=True),
                 helper.make_tensor("shape", TensorProto.INT64, [4], [0, 8, 6, 5]),
                 helper.make_tensor("sizes", TensorProto.INT64, [2], [2, 4]),
                 helper.make_tensor("starts", TensorProto.INT64, [1], [1]),
                 helper.make_tensor("ends", TensorProto.INT64, [1], [7]),
                 helper.make_tensor("axes", TensorProto.INT64, [1], [2])]
    node = helper.make_node
    nodes = [node("Relu", ["x"], ["r"]),
             node("Split", ["r", "sizes"], ["a", "b"], axis=1),
             node("Sigmoid", ["b"], ["s"]),
             node("Concat", ["s", "a"], ["joined"], axis=1),
             node("Slice", ["joined", "starts", "ends", "axes"], ["part"]),
             node("MatMul", ["part", "w"], ["product"]),
             node("Transpose", ["joined"], ["turned"], perm=[0, 2, 3, 1]),
             node("Neg", ["turned"], ["negated"]),
             node("Reshape", ["joined", "shape"], ["reshaped"]),
             node("Mul", ["reshaped", "two"], ["doubled"]),
             node("Greater", ["x", "r"], ["compared"]),
             node("Cast", ["doubled"], ["wide"], to=TensorProto.FLOAT),
             node("Softmax", ["wide"], ["soft"], axis=-1),
             node("ReduceMean", ["joined"], ["mean"], axes=[2, 3], keepdims=0)]
    outputs = {"product": element, "negated": element, "compared": TensorProto.BOOL, "soft": TensorProto.FLOAT, "mean": element}
    graph = helper.make_graph(nodes, "movement", [helper.make_tensor_value_info("x", element, ["n", 6, 8, 5])],
                              [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def programs(model: str | bytes, shape: list[int], directory: Path) -> dict[str, dict[str, str]]:
    """The stages of each program, by the program's name."""
    source = Path(model) if isinstance(model, str) else model
    session = provider.Session(source, OPTIONS | {"dump_ir": str(directory)}, report=False)
    if not all(isinstance(extent, int) for extent in session.session.get_inputs()[0].shape):
        run(session, shape)
    found: dict[str, dict[str, str]] = {}
    for path in sorted(directory.iterdir()):
        name, stage, _ = path.name.rsplit(".", 2)
        found.setdefault(name, {})[stage] = path.read_text(encoding="ascii")
    return found


def run(session: provider.Session, shape: list[int]) -> None:
    """One run; extents that the model knows are its own."""
    value = session.session.get_inputs()[0]
    shape = [known if isinstance(known, int) else extent for known, extent in zip(value.shape, shape, strict=True)]
    x = np.random.default_rng(4).standard_normal(shape)
    kind = next((kind for kind, onnx_name in NAMES.items() if value.type == f"tensor({onnx_name})"), "float32")
    suite_table.run(session, {value.name: x.astype(suite_table.NUMPY_TYPE[kind])}, kind)


@contextmanager
def dumped(model: str | bytes, shape: list[int]) -> Iterator[dict[str, dict[str, str]]]:
    with tempfile.TemporaryDirectory() as directory:
        found = programs(model, shape, Path(directory))
        check(bool(found), "no program was written")
        for name, stages in found.items():
            check(list(stages) == STAGES, f"{name} has the stages {list(stages)}")
        yield found


def judge(text: str) -> subprocess.CompletedProcess[str]:
    program = os.environ.get("TORCH_MLIR_OPT")
    if not program:
        raise Skip(os.environ.get("TORCH_MLIR_MISSING", "TORCH_MLIR_OPT names no torch-mlir-opt"))
    return subprocess.run([program, "-", "-o", os.devnull], input=text, capture_output=True, text=True, timeout=600)


def verified(model: str | bytes, shape: list[int]) -> None:
    with dumped(model, shape) as found:
        for name, stages in found.items():
            for stage, text in stages.items():
                outcome = judge(text)
                check(outcome.returncode == 0, f"{name}, {stage}: {outcome.stderr[:1000]}")
            regions_give_their_results(stages["2-outlined"])
            calls = [len(re.findall(r"func\.call @graph_", stages[stage])) for stage in STAGES[2:]]
            graphs = stages["2-outlined"].count('"hipdnn.graph"')
            check(calls == [graphs] * 3, f"{graphs} graphs and {calls} calls")


def regions_give_their_results(text: str) -> None:
    """What torch-mlir-opt does not look at: a region ends with values of the types that its operator has."""
    opened: list[str] = []
    for line in text.splitlines():
        if '"hipdnn.graph"' in line:
            opened.append(line.rsplit(" -> ", 1)[1].removesuffix(" {").strip("()"))
        elif "torch.operator_terminator" in line:
            given, wanted = line.split(" : ", 1)[1], opened.pop()
            check(given == wanted, f"a region of results {wanted} ends with {given}")
    check(not opened, f"{len(opened)} regions do not end")


WINDOW = re.compile(r"(%\d+) = memref\.reinterpret_cast (%\w+) to offset: \[(\d+)\], sizes: \[([\d, ]*)\], strides: \[([\d, ]*)\] : memref<((?:\d+x)*)")
VIEW = re.compile(r"(%\d+) = memref\.view %arena\[(%\d+)\]\[\] : memref<(\d+)xi8> to memref<(\d+)x(\w+)>")
SIZES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i64": 8, "i32": 4, "i8": 1, "ui8": 1, "i1": 1}


def apart(model: str | bytes, shape: list[int]) -> None:
    """Windows lie in their buffers, buffers in the arena, and two of these share bytes only if no step uses both, nor one
    between two uses of the other."""
    with dumped(model, shape) as found:
        for name, stages in found.items():
            layout(name, stages["5-memref"])


def layout(name: str, text: str) -> None:
    offsets = {match[1]: int(match[2]) for match in re.finditer(r"(%\d+) = arith\.constant (\d+) : index", text)}
    buffers: dict[str, tuple[int, int]] = {}
    for match in VIEW.finditer(text):
        start, arena = offsets[match[2]], int(match[3])
        end = start + int(match[4]) * SIZES[match[5]]
        check(end <= arena, f"{name}: {match[1]} ends at {end} of an arena of {arena} bytes")
        buffers[match[1]] = (start, end)
    owners: dict[str, str] = {}
    for match in WINDOW.finditer(text):
        sizes, strides = ([int(number) for number in match[group].split(", ") if number] for group in (4, 5))
        elements = int(np.prod([int(number) for number in match[6].split("x") if number], dtype=np.int64))
        last = int(match[3]) + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        check(last < elements, f"{name}: {match[1]} reaches element {last} of {elements}")
        owners[match[1]] = match[2]
    for match in re.finditer(r"(%\d+) = memref\.cast (%\d+)", text):
        owners[match[1]] = owners[match[2]]
    lives: dict[str, tuple[int, int]] = {}
    for step, match in enumerate(re.finditer(r"func\.call @graph_\d+\(([^)]*)\)", text)):
        for operand in match[1].split(", "):
            owner = owners[operand]
            if owner in buffers:
                lives[owner] = (lives.get(owner, (step, step))[0], step)
    check(set(lives) == set(buffers), f"{name}: buffers that no step uses: {set(buffers) - set(lives)}")
    for one in lives:
        for other in lives:
            if one < other and lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]:
                (a, b), (c, d) = buffers[one], buffers[other]
                check(b <= c or d <= a, f"{name}: {one} at {a} to {b} and {other} at {c} to {d} are alive at once")


@dataclass
class Breakage:
    """A change of a stage that makes it wrong: the first match of `pattern` becomes `replacement`."""

    name: str
    stage: str
    pattern: str
    replacement: str
    message: str


BREAKAGES = [
    Breakage("an operand of another type", "1-import", r'("onnx\.Relu"\(%in0\).*?) : \(!torch\.vtensor<\[\?,6,8,5\],f32>\)',
             r"\1 : (!torch.vtensor<[?,6,8,5],f16>)", "expects different type than prior uses"),
    Breakage("a literal of another number of elements", "1-import", r"dense<\[2, 4\]>", "dense<[2, 4, 6]>", "type"),
    Breakage("a value that nothing defines", "2-outlined", r"torch\.operator_terminator %\d+", "torch.operator_terminator %99999", "undeclared SSA value"),
    Breakage("a region without an end", "2-outlined", r"\n *torch\.operator_terminator [^\n]*", "", "no terminator"),
    Breakage("results of another type", "2-outlined", r"(return .*)!torch\.vtensor<\[2,6,6,7\],f32>", r"\1!torch.vtensor<[2,6,6,8],f32>",
             "expects different type than prior uses"),
    Breakage("a call of what is not there", "3-executables", r"func\.call @graph_0\(", "func.call @graph_777(", "does not reference a valid function"),
    Breakage("a function of other operands", "3-executables", r"func\.func private @graph_0\(!torch\.vtensor<\[2,", "func.func private @graph_0(!torch.vtensor<[3,",
             "operand type mismatch"),
    Breakage("a destination of other extents", "4-dps", r"tensor\.empty\(\) : tensor<2x", "tensor.empty() : tensor<3x", "expects different type than prior uses"),
    Breakage("a slice outside of its tensor", "4-dps", r"(tensor\.insert_slice \S+ into \S+)\[0, 4,", r"\1[0, 5,", "out-of-bounds"),
    Breakage("a window of other strides", "5-memref", r"(memref\.reinterpret_cast \S+ to offset: \[0\], sizes: \[2, 6, 8, 5\], strides: )\[240, 40, 5, 1\]",
             r"\1[240, 40, 6, 1]", "stride"),
    Breakage("a window with another offset", "5-memref", r"(memref\.reinterpret_cast \S+ to offset: )\[0\]", r"\1[64]", "offset"),
    Breakage("a window that becomes another", "5-memref", r"(memref\.cast \S+ : .*? to )memref<2x6x8x5xf32", r"\1memref<2x6x8x4xf32", ""),
    Breakage("a buffer of another type", "5-memref", r"(memref\.view %arena.*? to memref<\d+x)f32", r"\1f16", "expects different type than prior uses"),
]


def refused(breakage: Breakage) -> None:
    with dumped(movement("float32"), [2, 6, 8, 5]) as found:
        for stages in found.values():
            text = stages[breakage.stage]
            broken, changes = re.subn(breakage.pattern, breakage.replacement, text, count=1)
            if changes:
                break
        else:
            raise AssertionError(f"nothing to break in {breakage.stage}: no match of {breakage.pattern}")
        check(judge(text).returncode == 0, "the text is refused as it is")
        outcome = judge(broken)
        check(outcome.returncode == 1, f"taken, or a crash: {outcome.returncode} {outcome.stderr[-300:]}")
        check("error:" in outcome.stderr and breakage.message in outcome.stderr, f"the message is {outcome.stderr[:500]}")


def deterministic() -> None:
    with dumped(movement("float32"), [2, 6, 8, 5]) as one, dumped(movement("float32"), [2, 6, 8, 5]) as other:
        check(one == other, "the texts differ")


def extents() -> None:
    for batch_alone in (True, False):
        model = movement("float32") if batch_alone else free_rows()
        with tempfile.TemporaryDirectory() as directory:
            session = provider.Session(model, OPTIONS | {"dump_ir": directory}, report=False)
            check_batches(directory, {1} if batch_alone else set())
            for batch in (1, 3, 1):
                run(session, [batch, 6, 8, 5])
            check_batches(directory, {1, 3})


def free_rows() -> bytes:
    """A model whose batch and rows are free."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6, "h", 5]) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Sigmoid", ["r"], ["y"])]
    graph = helper.make_graph(nodes, "free_rows", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check_batches(directory: str, batches: set[int]) -> None:
    """Every stage was written for inputs of `batches`x6x8x5, and nothing else was."""
    found = {path.name.split(".", 1)[1] for path in Path(directory).iterdir()}
    expected = {f"{batch}x6x8x5.{stage}.mlir" for batch in batches for stage in STAGES}
    check(found == expected, f"expected files for {sorted(expected)}, got {sorted(found)}")


def no_directory() -> None:
    with tempfile.NamedTemporaryFile() as file:
        try:
            provider.Session(movement("float32"), {"dump_ir": f"{file.name}/below"}, report=False)
        except Exception as problem:
            check(file.name in str(problem) and "directory for stages" in str(problem), f"the message is: {problem}")
            return
        raise AssertionError("the session was made")


def directory_gone() -> None:
    with tempfile.TemporaryDirectory() as directory:
        below = Path(directory) / "ir"
        session = provider.Session(movement("float32"), OPTIONS | {"dump_ir": str(below)}, report=False)
        shutil.rmtree(below)
        run(session, [1, 6, 8, 5])
        check(not below.exists(), "the directory is there again")


if __name__ == "__main__":
    sys.exit(main())
