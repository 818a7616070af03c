#!/usr/bin/env python3
"""onnx's backend tests and light models on the provider and on ONNX Runtime's CPU provider, case by case.

A case runs in a worker process, so that a crash costs that case and no other. For each one it is asked whether the results
are those that onnx expects, whether the provider has every node, whether a session with a node on the provider fails, and
whether the provider loses what the CPU provider passes. The light models come without weights: they get seeded random ones,
and the CPU provider's results are the expected ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

import emulated_gpu
import workers

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
PROVIDER = "HipDnnRsExecutionProvider"
CPU = "CPUExecutionProvider"

# Seconds without an answer after which a worker's case counts as a crash.
PATIENCE = 300

# What differs between the two runs.
RUNS = {"coverage": {"cost_rule": "0"}, "defaults": {}}

# Other plugin providers on the same cases, ONNX Runtime 1.31.1, x86-64: (passed, wholly on the provider, failures with a
# node on the provider, regressions, crashes).
PEERS = {
    "nxrt-ep-cpu 0.1.0.dev6": (1532, 703, 44, 39, 0),
    "OpenVINO 1.8.1, inference precision f32": (1483, 1266, 52, 106, 0),
    "OpenVINO 1.8.1, defaults": (1356, 1139, 179, 230, 0),
    "ggml 0.2.0": (1362, 658, 126, 193, 4),
}
# Passed wholly on the provider, of the cases with no other operator: nxrt, OpenVINO in f32, ggml.
PEERS_BY_OPERATOR = {
    "Conv": ("25/33", "33/33", "8/33"),
    "ConvTranspose": ("0/14", "14/14", "1/14"),
    "MatMul": ("5/7", "7/7", "7/7"),
    "Gemm": ("13/13", "13/13", "12/13"),
    "MaxPool": ("0/28", "27/28", "0/28"),
    "AveragePool": ("0/25", "25/25", "0/25"),
    "BatchNormalization": ("2/9", "9/9", "0/9"),
    "LayerNormalization": ("19/19", "19/19", "0/19"),
    "RMSNormalization": ("19/19", "0/19", "0/19"),
    "Attention": ("50/62", "0/62", "0/62"),
    "Softmax": ("10/10", "10/10", "10/10"),
    "Resize": ("0/39", "21/39", "11/39"),
    "Add": ("12/12", "9/12", "5/12"),
    "Mul": ("9/9", "9/9", "5/9"),
}


# Cases.


def collect() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    return [case for kind in KINDS for case in load_model_tests(kind=kind)]


def load_model(case: Any) -> onnx.ModelProto:
    if case.kind == "real":
        data = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{case.model_name}.onnx"
        return with_random_weights(onnx.load(str(data)))
    return onnx.load(f"{case.model_dir}/model.onnx")


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights, which the light models fill with a constant at run time, as seeded random initializers."""
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    # What each value is to the node that reads it first decides what numbers make sense.
    role: dict[str, tuple[str, int]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            role.setdefault(name, (node.op_type, place))
    rng = np.random.default_rng(20)
    kept = []
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        if node.op_type != "ConstantOfShape" or node.input[0] not in constants:
            kept.append(node)
            continue
        shape = [int(extent) for extent in constants[node.input[0]]]
        operator, place = role.get(node.output[0], ("", 0))
        if operator == "BatchNormalization" and place in (1, 4):
            values = rng.uniform(0.5, 1.5, shape)
        elif len(shape) > 1:
            values = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            values = rng.standard_normal(shape) * 0.1
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    return model


def random_feeds(session: ort.InferenceSession) -> dict[str, Any]:
    rng = np.random.default_rng(21)
    feeds = {}
    for value in session.get_inputs():
        shape = [extent if isinstance(extent, int) else 1 for extent in value.shape]
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def read_value(path: Path, kind: onnx.TypeProto) -> Any:
    content = path.read_bytes()
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        proto = onnx.SequenceProto()
        proto.ParseFromString(content)
        return numpy_helper.to_list(proto)
    if which == "optional_type":
        proto = onnx.OptionalProto()
        proto.ParseFromString(content)
        return numpy_helper.to_optional(proto)
    proto = TensorProto()
    proto.ParseFromString(content)
    return proto


def data_sets(case: Any, model: onnx.ModelProto) -> list[tuple[list[Any], list[Any]]]:
    sets = []
    for directory in sorted(Path(case.model_dir).glob("test_data_set_*")):
        def values(stem: str, declared: Any) -> list[Any]:
            files = sorted(directory.glob(f"{stem}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
            return [read_value(file, value.type) for file, value in zip(files, declared)]
        sets.append((values("input", model.graph.input), values("output", model.graph.output)))
    return sets


class Unsupported(Exception):
    """The case cannot be run from Python at all."""


def feedable(value: Any) -> Any:
    """What a session takes for an input."""
    if not isinstance(value, TensorProto):
        return value
    array = numpy_helper.to_array(value)
    if value.data_type == TensorProto.BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    if array.dtype.kind == "V" or array.dtype.name not in np.sctypeDict and array.dtype.kind not in "OUS":
        raise Unsupported(f"NumPy has no type for {TensorProto.DataType.Name(value.data_type)}")
    return array


def taken_out(value: Any) -> Any:
    """A result as arrays."""
    if isinstance(value, ort.OrtValue):
        if not value.has_value():
            return None
        if not value.is_tensor():
            raise Unsupported("a result is no tensor")
        if value.element_type() == TensorProto.BFLOAT16:
            import ctypes
            import ml_dtypes

            count = int(np.prod(value.shape()))
            raw = ctypes.string_at(value.data_ptr(), 2 * count)
            return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(value.shape())
        return value.numpy()
    return value


# Results.


def difference(got: list[Any], wanted: list[Any], rtol: float, atol: float) -> str | None:
    """How results differ; `None` if they do not."""
    if len(got) != len(wanted):
        return f"{len(got)} outputs, wanted {len(wanted)}"
    for index, (ours, theirs) in enumerate(zip(got, wanted)):
        if isinstance(theirs, TensorProto):
            theirs = numpy_helper.to_array(theirs)
        if isinstance(theirs, list):
            inner = difference(list(ours), theirs, rtol, atol)
            if inner:
                return inner
            continue
        if ours is None or theirs is None:
            if ours is not theirs:
                return f"output {index} is {'there' if ours is not None else 'missing'}"
            continue
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {index} is {ours.dtype}{list(ours.shape)}, wanted {theirs.dtype}{list(theirs.shape)}"
        if theirs.dtype.kind in "OUSb":
            same = np.array_equal(ours, theirs)
        else:
            if theirs.dtype.kind not in "iuc" or theirs.dtype.name == "bfloat16":
                ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
            same = np.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
        if not same:
            return f"output {index} has other values"
    return None


def run(session: ort.InferenceSession, feeds: dict[str, Any]) -> list[Any]:
    native = any(isinstance(value, ort.OrtValue) for value in feeds.values())
    native = native or any("bfloat16" in value.type for value in session.get_outputs())
    if not native:
        return session.run(None, feeds)
    values = {
        name: value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)
        for name, value in feeds.items()
    }
    return [taken_out(value) for value in session.run_with_ort_values(None, values)]


def options() -> ort.SessionOptions:
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = 1
    chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return chosen


def outcome(case: Any, model: onnx.ModelProto, session: Any, expected: list[list[Any]] | None) -> tuple[str, str, list[list[Any]]]:
    """"passed", "mismatch", "error" or "skipped", why, and the results."""
    results = []
    try:
        if case.kind == "real":
            sets = [(random_feeds(session), None)]
        else:
            names = [value.name for value in model.graph.input]
            known = {value.name for value in session.get_inputs()}
            sets = [
                ({name: feedable(value) for name, value in zip(names, inputs) if name in known}, outputs)
                for inputs, outputs in data_sets(case, model)
            ]
        for number, (feeds, wanted) in enumerate(sets):
            got = run(session, feeds)
            results.append(got)
            if case.kind == "real":
                wanted = expected[number] if expected else got
            problem = difference(got, wanted, case.rtol, max(case.atol, 1e-6) if case.kind == "real" else case.atol)
            if problem:
                return "mismatch", problem, results
    except Unsupported as reason:
        return "skipped", str(reason), results
    except Exception as problem:
        return "error", f"{type(problem).__name__}: {str(problem)[:400]}", results
    return "passed", "", results


def one_case(case: Any, library: list[Any], settings: dict[str, str]) -> dict[str, Any]:
    model = load_model(case)
    operators = sorted({node.op_type for node in model.graph.node})
    entry: dict[str, Any] = {"name": case.name, "operators": operators}
    content = model.SerializeToString()
    expected = None
    try:
        cpu = ort.InferenceSession(content, options(), providers=[CPU])
        entry["cpu"], entry["cpu_detail"], expected = outcome(case, model, cpu, None)
    except Exception as problem:
        entry["cpu"], entry["cpu_detail"] = "not loaded", str(problem)[:400]
    handle, report = tempfile.mkstemp(suffix=".jsonl")
    os.close(handle)
    try:
        chosen = options()
        chosen.add_provider_for_devices(library, dict(settings) | {"report": report})
        session = ort.InferenceSession(content, chosen, enable_fallback=0)
        shares = {share.ep_name: [node.op_type for node in share.get_nodes()]
                  for share in session.get_provider_graph_assignment_info()}
        entry["mine"] = shares.pop(PROVIDER, [])
        entry["others"] = sorted(name for nodes in shares.values() for name in nodes)
        entry["ep"], entry["ep_detail"], _ = outcome(case, model, session, expected)
    except Exception as problem:
        entry.setdefault("mine", [])
        entry["ep"], entry["ep_detail"] = "not loaded", str(problem)[:400]
    lines = [json.loads(line) for line in Path(report).read_text(encoding="utf-8").splitlines() if line.strip()]
    Path(report).unlink()
    reasons: dict[tuple[str, str], list[str | None]] = {}
    for line in lines:
        # Graphs are offered again after functions are inlined: programs are nodes then, and nodes have owners.
        if "node" in line and not line["op"].startswith(PROVIDER):
            owned = (line["reason"] or "").endswith("has it already")
            known = reasons.get((line["node"], line["op"]))
            reasons[line["node"], line["op"]] = known if owned and known else [line["op"], line["reason"]]
    entry["reasons"] = [reason for reason in reasons.values() if reason[1]]
    if entry["ep"] == "not loaded" and any("claimed" in line and line["claimed"] for line in lines):
        entry["mine"] = entry["mine"] or ["?"]
    return entry


def register(library: str) -> list[Any]:
    ort.register_execution_provider_library("hipdnn_rs", library)
    return [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]


def worker(library: str, settings: dict[str, str]) -> None:
    """Reads numbers of cases, answers each with a line."""
    devices = register(library)
    cases = collect()
    known = options_known(devices, settings)
    for line in sys.stdin:
        number = int(line)
        print(json.dumps({"number": number} | one_case(cases[number], devices, known)), flush=True)


def options_known(devices: list[Any], settings: dict[str, str]) -> dict[str, str]:
    """The settings that this build of the provider has."""
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    value = onnx.helper.make_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", kind)], [value("y", kind)])
    content = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    try:
        chosen = options()
        chosen.add_provider_for_devices(devices, settings)
        ort.InferenceSession(content.SerializeToString(), chosen, enable_fallback=0)
        return settings
    except Exception:
        return {}


def run_cases(library: str, settings: dict[str, str], numbers: list[int], names: list[str], jobs: int,
              report: Callable[[dict[str, Any]], None] = lambda result: None, patience: float = PATIENCE) -> list[dict[str, Any]]:
    """The results of the cases of these numbers, by worker processes that share them; `report` gets each one when it is there."""
    results: dict[int, dict[str, Any]] = {}

    def take(request: str, result: dict[str, Any] | None, ended: str) -> None:
        number = int(request)
        results[number] = result or {"number": number, "name": names[number], "operators": [], "cpu": "unknown", "mine": ["?"], "others": [],
                                     "ep": "crash", "ep_detail": ended, "reasons": []}
        report(results[number])

    command = [*emulated_gpu.interpreter(), __file__, "--worker", "--library", library, "--settings", json.dumps(settings)]
    workers.share(command, [str(number) for number in numbers], jobs, patience, take)
    return [results[number] for number in numbers]


# Report.


class Tally:
    """The figures of a run."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        self.results = results
        self.passed = [r for r in results if r["ep"] == "passed"]
        self.wholly = [r for r in self.passed if is_wholly(r)]
        self.cpu = [r for r in results if r["cpu"] == "passed"]
        self.crashes = [r for r in results if is_crash(r)]
        self.regressions = [r for r in results if is_regression(r)]
        self.failures = [r for r in results if is_failure(r)]
        self.shared = [r for r in results if r["mine"] and r["ep"] in ("mismatch", "error") and r["cpu"] == r["ep"]]

    def clean(self) -> bool:
        return not (self.crashes or self.regressions or self.failures)

    def summary(self) -> str:
        return (f"{len(self.results)} cases, CPU passes {len(self.cpu)}; passed {len(self.passed)}, "
                f"wholly on the provider {len(self.wholly)}, failures with a node on the provider {len(self.failures)} "
                f"(and {len(self.shared)} where the CPU provider fails too), regressions {len(self.regressions)}, "
                f"crashes {len(self.crashes)}")


def is_crash(result: dict[str, Any]) -> bool:
    return result["ep"] == "crash"


def is_regression(result: dict[str, Any]) -> bool:
    return result["cpu"] == "passed" and result["ep"] != "passed"


def is_failure(result: dict[str, Any]) -> bool:
    """Whether the provider fails with a node of its own. What the CPU provider gets wrong in the same way is the reference's affair."""
    return bool(result["mine"]) and result["ep"] in ("mismatch", "error", "not loaded", "crash") and result["cpu"] != result["ep"]


def is_wholly(result: dict[str, Any]) -> bool:
    return bool(result["mine"]) and not result["others"]


def main_operator(result: dict[str, Any]) -> str | None:
    """The operator of a case that has one only."""
    operators = set(result["operators"]) - {"Constant", "Identity"}
    return operators.pop() if len(operators) == 1 else None


def plain(reason: str) -> str:
    """A reason without what is particular to the case."""
    reason = re.sub(r"its (input|output) [^ ]*? (has|is|of|are)", r"its \1 # \2", reason)
    reason = re.sub(r"\[[^\]]*\]", "[#]", reason)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", reason)


def page(tallies: dict[str, Tally]) -> str:
    lines = [
        "# ONNX's backend tests on the execution provider", "",
        f"onnx {onnx.__version__}: every case of node, simple, pytorch-converted and pytorch-operator, and the nine light models "
        f"with seeded random weights; ONNX Runtime {ort.__version__}, CPU engine. `cargo xtask ort-conformance` writes this page.", "",
        "A case passes if its results are the expected ones; it is *wholly on the provider* if it passes and no node of the "
        "optimized graph is left to the CPU provider. A *failure* is a case with a node on the provider that does not load, "
        "does not run or gives other results, and on which the CPU provider does not fail in the same way; a *regression* is one that the CPU provider passes. *Coverage* is "
        "with the cost rule off (`cost_rule=0`), *defaults* without any option. The figures of other plugin providers were "
        "measured with the same cases and ONNX Runtime.", "",
        "| provider | passed | wholly on the provider | failures | regressions | crashes |", "|---|---:|---:|---:|---:|---:|",
    ]
    for name, tally in tallies.items():
        lines.append(f"| **hipdnn-rs, {name}** | {len(tally.passed)} | {len(tally.wholly)} | {len(tally.failures)} | "
                     f"{len(tally.regressions)} | {len(tally.crashes)} |")
    first = next(iter(tallies.values()))
    lines.append(f"| ONNX Runtime's CPU provider | {len(first.cpu)} | | | | |")
    lines += [f"| {name} | {' | '.join(map(str, figures))} |" for name, figures in PEERS.items()]
    lines += ["", "## By operator", "",
              "Cases with one operator only: passed wholly on the provider, of all. Cases that expand an operator into others, "
              "and models, are counted below as *several operators*.", "",
              "| operator | " + " | ".join(tallies) + " | nxrt | OpenVINO f32 | ggml |", "|---|" + "---:|" * (len(tallies) + 3)]
    names = sorted({main_operator(r) or "" for r in first.results} - {""}) + [""]
    for name in names:
        cells = []
        for tally in tallies.values():
            of = [r for r in tally.results if (main_operator(r) or "") == name]
            cells.append(f"{sum(r['ep'] == 'passed' and is_wholly(r) for r in of)}/{len(of)}")
        peers = PEERS_BY_OPERATOR.get(name, ("", "", ""))
        lines.append(f"| {name or '*several operators*'} | {' | '.join([*cells, *peers])} |")
    lines += ["", "## What is left to the CPU provider", "",
              "With the cost rule off: nodes by operator and reason; `#` stands for what differs from case to case.", "",
              "| operator | nodes | reason |", "|---|---:|---|"]
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for result in first.results:
        for operator, reason in result["reasons"]:
            reasons[operator][plain(reason)] += 1
    for operator in sorted(reasons):
        for reason, count in reasons[operator].most_common():
            lines.append(f"| {operator} | {count} | {reason.replace('|', chr(92) + '|')} |")
    for name, tally in tallies.items():
        for title, wrong in (("failures", tally.failures), ("regressions", tally.regressions)):
            if wrong:
                lines += ["", f"## {name}: {title}", ""]
                lines += [f"* {r['name']}: {r['ep']}: {r.get('ep_detail', '')}" for r in wrong]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="the provider's library; that of the installed wheel if left out")
    parser.add_argument("--page", type=Path, help="Markdown page to write")
    parser.add_argument("--json", type=Path, help="file for every case's outcome")
    parser.add_argument("--only", default="", help="regular expression of the cases' names")
    parser.add_argument("--run", action="append", choices=list(RUNS), help="one of the runs only")
    parser.add_argument("--sample", type=int, default=1, help="every n-th case only")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--settings", default="{}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    library = arguments.library
    if library is None:
        import onnxruntime_ep_hipdnn_rs as wheel

        library = wheel.get_library_path()
    if arguments.worker:
        worker(library, json.loads(arguments.settings))
        return 0
    names = [case.name for case in collect()]
    numbers = [number for number, name in enumerate(names) if re.search(arguments.only, name)][::arguments.sample]
    tallies = {}
    for name in arguments.run or RUNS:
        tally = Tally(run_cases(library, RUNS[name], numbers, names, arguments.jobs))
        tallies[name] = tally
        print(f"{name}: {tally.summary()}", flush=True)
        for title, wrong in (("failure", tally.failures), ("regression", tally.regressions)):
            for result in wrong:
                print(f"  {title}: {result['name']}: CPU {result['cpu']}, {result['ep']}: {result.get('ep_detail', '')}")
    if arguments.json:
        arguments.json.write_text(json.dumps({name: tally.results for name, tally in tallies.items()}, indent=1))
    if arguments.page:
        arguments.page.write_text(page(tallies), encoding="utf-8")
    return 0 if all(tally.clean() for tally in tallies.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
