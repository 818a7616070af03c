#!/usr/bin/env python3
"""`python -m onnxruntime_ep_hipdnn_rs doctor`: what it says where all is well, and where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnxruntime as ort

import onnxruntime_ep_hipdnn_rs as wheel
from onnxruntime_ep_hipdnn_rs import doctor
from runner import Runner, check, run_suite

PACKAGE = Path(wheel.get_library_path()).parent


def main() -> int:
    return run_suite(body, "doctor", __doc__ or "")


def body(runner: Runner) -> None:
    runner.case("all is well", well)
    runner.case("its model is one that ONNX's checker takes", model)
    runner.case("the package says that it is typed", typed)
    for case in CASES:
        runner.case(case.name, lambda: missing(case))
    runner.case("a command that there is not", unknown)


def run(*arguments: str, code: str = "", package: Path = PACKAGE, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with the package of that directory; `code` runs before it."""
    program = f"import sys, runpy; sys.path.insert(0, sys.argv.pop(1))\n{code}\nrunpy.run_module('onnxruntime_ep_hipdnn_rs', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", program, str(package.parent), *arguments], env=os.environ | environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def well() -> None:
    outcome = run("doctor")
    check(outcome.returncode == 0, f"exit status {outcome.returncode}: {outcome.stdout}{outcome.stderr}")
    for wanted in [*doctor.LIBRARIES, ort.__version__, str(PACKAGE), wheel.get_ep_name(), "HIPDNN_RS_CPU_ENGINE computed a convolution",
                   "libhipdnn_backend.so, version", "AMD GPU:", "CPU for"]:
        check(wanted in outcome.stdout, f"{wanted!r} is not in {outcome.stdout}")
    plain = subprocess.run([sys.executable, "-m", "onnxruntime_ep_hipdnn_rs", "doctor"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    check(plain.returncode == 0, f"exit status {plain.returncode}: {plain.stdout}{plain.stderr}")


def model() -> None:
    loaded = onnx.load_model_from_string(doctor.convolution())
    onnx.checker.check_model(loaded, full_check=True)
    check([node.op_type for node in loaded.graph.node] == ["Conv"], f"{loaded.graph.node}")


def typed() -> None:
    check((PACKAGE / "py.typed").is_file(), "there is no py.typed")


@dataclass
class Missing:
    """What is taken away, and what is said then."""

    name: str
    wanted: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    code: str = ""
    without: str = ""


CASES = [
    Missing("a backend that is not where it is said to be", ["can't be made", "/nonexistent/backend.so"], {"HIPDNN_RS_BACKEND": "/nonexistent/backend.so"}),
    Missing("the CPU engine switched off", ["no engine takes a convolution", "HIPDNN_RS_CPU_ENGINE:"], {"HIPDNN_RS_CPU_ENGINE": "off"}),
    Missing("no ONNX Runtime", ["onnxruntime can't be imported", "pip install onnxruntime"], code="sys.modules['onnxruntime'] = None"),
    Missing("an ONNX Runtime that is too old", ["1.23 or newer, got 1.22.1"], code="import onnxruntime; onnxruntime.__version__ = '1.22.1'"),
    Missing("a package without its provider", ["libonnxruntime_providers_hipdnn_rs.so: missing", "can't load"],
            without="libonnxruntime_providers_hipdnn_rs.so"),
    Missing("a package without its engines", ["libhipdnn_rs_plugin.so: missing", "no engine takes a convolution"], without="libhipdnn_rs_plugin.so"),
    Missing("a package without its backend", ["libhipdnn_backend.so: missing", "libhipdnn_backend.so"], without="libhipdnn_backend.so"),
]


def missing(case: Missing) -> None:
    with tempfile.TemporaryDirectory() as directory:
        package = PACKAGE
        if case.without:
            package = Path(directory) / PACKAGE.name
            shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
            (package / case.without).unlink()
        outcome = run("doctor", code=case.code, package=package, **case.environment)
    check(outcome.returncode == 1, f"exit status {outcome.returncode}: {outcome.stdout}{outcome.stderr}")
    said = " ".join(outcome.stdout.split())
    check("The provider does not compute: " in said and "Traceback" not in outcome.stderr, f"{outcome.stdout}{outcome.stderr}")
    for wanted in case.wanted:
        check(wanted in said, f"{wanted!r} is not in {outcome.stdout}")


def unknown() -> None:
    outcome = run("surgeon")
    check(outcome.returncode == 2 and "doctor" in outcome.stderr, f"exit status {outcome.returncode}: {outcome.stderr}")


if __name__ == "__main__":
    sys.exit(main())
