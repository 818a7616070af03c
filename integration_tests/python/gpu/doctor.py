"""`python -m onnxruntime_ep_hipdnn_rs doctor` where there is a GPU: what it prints of it, and what it says of one that fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import emulated_gpu
import onnxruntime_ep_hipdnn_rs as wheel
from gpu import device
from onnxruntime_ep_hipdnn_rs import doctor
from runner import check

PATIENCE = 300


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "the GPU is described, and its engine computes the convolution", described
    yield "each of two GPUs is described", two
    yield "where HIP has no device the CPU's engine computes it, and the CPU is the device", without
    yield "a GPU that can't launch is an error that says so", broken


def said(**environment: str) -> tuple[int, str]:
    """The exit status, and the words that were printed."""
    command = [*emulated_gpu.interpreter(), "-m", "onnxruntime_ep_hipdnn_rs", "doctor"]
    ended = subprocess.run(command, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    check("Traceback" not in ended.stderr, f"{ended.stdout}{ended.stderr[-1500:]}")
    return ended.returncode, " ".join(ended.stdout.split())


def holds(outcome: tuple[int, str], status: int, wanted: list[str], unwanted: tuple[str, ...] = ()) -> None:
    code, text = outcome
    check(code == status, f"exit status {code}, expected {status}: {text}")
    for part in wanted:
        check(part in text, f"{part!r} is not in {text}")
    for part in unwanted:
        check(part not in text, f"{part!r} is in {text}")


def facts(index: int) -> list[str]:
    """What the runtime has of a device, as it is printed."""
    metadata = device.device(index).ep_metadata
    return [f"{key}: {metadata[key]}" for key in doctor.DEVICE_FACTS if metadata.get(key)]


def described() -> None:
    wanted = facts(0)
    for key in ("name", "architecture", "memory_bytes", "hip_version"):
        check(any(fact.startswith(f"{key}: ") for fact in wanted), f"the device has no {key}: {wanted}")
    works = "The provider works: HIPDNN_RS_GPU_ENGINE computed a convolution"
    holds(said(), 0, [f"device: GPU for {wheel.get_ep_name()}", "engine: HIPDNN_RS_GPU_ENGINE", works, *wanted], ("device: CPU for",))


def two() -> None:
    outcome = said(HIPEMU_DEVICES="2")
    holds(outcome, 0, ["The provider works: HIPDNN_RS_GPU_ENGINE computed a convolution", *facts(0)])
    count = outcome[1].count("device: GPU for")
    check(count == 2, f"{count} GPUs in {outcome[1]}")


def without() -> None:
    works = "The provider works: HIPDNN_RS_CPU_ENGINE computed a convolution"
    holds(said(HIPEMU_DEVICES="0"), 0, [f"device: CPU for {wheel.get_ep_name()}", works], ("device: GPU for",))


def broken() -> None:
    # Every launch fails, of those that try a solver, too; the plan that an earlier process chose is built without one.
    failing = ",".join(f"hipModuleLaunchKernel:{nth}" for nth in range(1, 33))
    wanted = ["The provider does not compute: ", "hipModuleLaunchKernel", "hipErrorUnknown"]
    holds(said(HIPEMU_FAIL=failing), 1, [f"device: GPU for {wheel.get_ep_name()}", *wanted])
