#!/usr/bin/env python3
"""onnx's own backend tests whose only operator is Conv: each must run wholly on the provider and give the expected values."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import provider
from runner import Runner, check, run_suite

# The package counts 33 of them, and ONNX Runtime 1.31 takes each one.
EXPECTED = {"1.21.0": 33}
KINDS = ("node", "pytorch-converted", "pytorch-operator")
HARMLESS = {"Constant", "Identity"}


def main() -> int:
    return run_suite(body, "onnx cases", __doc__ or "")


def body(runner: Runner) -> None:
    cases = [case for kind in KINDS for case in load_model_tests(kind=kind) if is_conv_only(load_model(case))]
    accepted = 0
    for case in cases:
        model = load_model(case).SerializeToString()
        try:
            cpu = provider.cpu_session(model)
        except Exception:
            # This release of ONNX Runtime does not know the model's IR or operator set.
            continue
        accepted += 1
        runner.case(case.name, lambda: one_case(case, model, cpu))
    wanted = EXPECTED.get(onnx.__version__)

    def count() -> None:
        if provider.VERSION >= (1, 31) and wanted is not None:
            check(accepted == wanted, f"{accepted} cases have only Conv and are accepted by the CPU provider, wanted {wanted}")
        check(accepted >= 27, f"only {accepted} cases are accepted by the CPU provider of {ort.__version__}")

    runner.case("number of cases", count)


def is_conv_only(model: onnx.ModelProto) -> bool:
    kinds = {node.op_type for node in model.graph.node}
    return "Conv" in kinds and kinds <= {"Conv"} | HARMLESS


def load_model(case: "onnx.backend.test.case.test_case.TestCase") -> onnx.ModelProto:
    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def data_sets(case: "onnx.backend.test.case.test_case.TestCase") -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    if case.data_sets:
        return [(list(map(as_array, inputs)), list(map(as_array, outputs))) for inputs, outputs in case.data_sets]
    from pathlib import Path

    sets = []
    for directory in sorted(Path(case.model_dir).glob("test_data_set_*")):
        def tensors(stem: str) -> list[np.ndarray]:
            files = sorted(directory.glob(f"{stem}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
            return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]
        sets.append((tensors("input"), tensors("output")))
    return sets


def as_array(value: object) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def one_case(case: "onnx.backend.test.case.test_case.TestCase", model: bytes, cpu: ort.InferenceSession) -> None:
    session = provider.Session(model)
    shares = session.nodes()
    mine, others = shares.pop(provider.NAME, {}), shares
    left = [name for counts in others.values() for name in counts]
    check(mine.get("Conv", 0) >= 1 and not left, f"not wholly on the provider: {dict(mine)} there, {left} elsewhere; {session.claims}")
    names = [value.name for value in session.session.get_inputs()]
    sets = data_sets(case)
    check(bool(sets), "the case has no data")
    for inputs, outputs in sets:
        got = session.run(dict(zip(names, inputs)))
        check(len(got) == len(outputs), f"{len(got)} outputs, wanted {len(outputs)}")
        for ours, wanted in zip(got, outputs):
            np.testing.assert_allclose(ours, wanted, rtol=case.rtol, atol=case.atol)


if __name__ == "__main__":
    sys.exit(main())
