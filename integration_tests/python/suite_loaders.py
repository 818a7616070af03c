#!/usr/bin/env python3
"""The programs of `examples/`, one for each language: a session with the provider, and the CPU provider's results.

ORT_HEADERS is the directory of ONNX Runtime's C++ headers, RUST_SESSION the program in Rust; with _MISSING behind the name, why there
is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
import onnxruntime_ep_hipdnn_rs as wheel
from gpu import streams
from runner import Runner, Skip, check, run_suite
from suite_umbrella import model

ROOT = Path(__file__).resolve().parents[2]

SHAPE = (1, 3, 8, 8)


def main() -> int:
    return run_suite(body, "loaders", __doc__ or "")


def body(runner: Runner) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        (scratch / "model.onnx").write_bytes(model())
        for language, command in (("C++", cpp), ("Rust", rust), ("Python", python)):
            runner.case(f"a session in {language}", lambda command=command: session(command(scratch), scratch))
            runner.case(f"an unknown option in {language}", lambda command=command: refused(command(scratch), scratch))


def needed(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise Skip(os.environ.get(f"{name}_MISSING", f"{name} is not set"))
    return value


def cpp(scratch: Path) -> list[str]:
    headers, runtime, program = needed("ORT_HEADERS"), streams.library(), scratch / "session"
    compiler = os.environ.get("CXX", "c++")
    if not shutil.which(compiler):
        raise Skip(f"there is no C++ compiler {compiler}")
    if not program.exists():
        # The package of Python has the library without the name by which programs open it. Older releases want another one beside it.
        (scratch / "libonnxruntime.so.1").symlink_to(runtime)
        for library in runtime.parent.glob("libonnxruntime_providers_shared.so"):
            (scratch / library.name).symlink_to(library)
        outcome = subprocess.run([compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", headers, "-o", str(program),
                                  str(ROOT / "examples/cpp/session.cpp"), str(runtime), f"-Wl,-rpath,{scratch}"],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(outcome.returncode == 0, f"session.cpp does not compile: {outcome.stderr}")
    return [str(program), wheel.get_library_path()]


def rust(_: Path) -> list[str]:
    return [needed("RUST_SESSION"), str(streams.library()), wheel.get_library_path()]


def python(_: Path) -> list[str]:
    return [sys.executable, str(ROOT / "examples/python/session.py")]


def run(command: list[str], scratch: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, str(scratch / "model.onnx"), *settings], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=600)


def session(command: list[str], scratch: Path) -> None:
    report = scratch / "claims.jsonl"
    report.unlink(missing_ok=True)
    outcome = run(command, scratch, f"report={report}")
    check(outcome.returncode == 0, f"exit status {outcome.returncode}: {outcome.stderr[-1000:]}")
    got = np.array(outcome.stdout.split(), np.float32)
    x = (np.arange(np.prod(SHAPE)) % 7 - 3).astype(np.float32).reshape(SHAPE)
    (wanted,) = ort.InferenceSession(model(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    # The programs print six digits or more.
    np.testing.assert_allclose(got, wanted.reshape(-1), rtol=2e-5, atol=2e-5)
    claims = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    check(any("Conv" in json.dumps(claim) for claim in claims), f"{claims}")


def refused(command: list[str], scratch: Path) -> None:
    outcome = run(command, scratch, "thread=2")
    check(outcome.returncode == 1, f"exit status {outcome.returncode}: {outcome.stdout[-200:]}{outcome.stderr[-1000:]}")
    check("thread" in outcome.stderr, outcome.stderr[-1000:])


if __name__ == "__main__":
    sys.exit(main())
