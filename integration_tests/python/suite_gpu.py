#!/usr/bin/env python3
"""The provider on a GPU: the emulated one, with the real MIOpen. `cargo xtask test --only suite_gpu` runs it there.

GPU_GROUPS=name,… chooses groups.
"""

from __future__ import annotations

import os
import sys

import compiled_models
import emulated_gpu
import provider
from gpu import binding, capture, doctor, faults, offered, options, process, several, small, steady, streams, threads, umbrella
from runner import Runner, run_suite

GROUPS = {"process": process.cases, "offered": offered.cases, "small": small.cases, "binding": binding.cases, "threads": threads.cases,
          "steady": steady.cases, "streams": streams.cases, "doctor": doctor.cases, "faults": faults.cases, "options": options.cases, "several": several.cases, "umbrella": umbrella.cases,
          "capture": capture.cases, "compiled": lambda _: compiled_models.cases(emulated_gpu.interpreter())}


def main() -> int:
    return run_suite(body, "gpu", __doc__ or "")


def body(runner: Runner) -> None:
    if reason := emulated_gpu.missing():
        raise SystemExit(f"suite_gpu.py wants the emulated GPU (cargo xtask emulated-gpu python): {reason}")
    groups = GROUPS if provider.VERSION >= (1, 24) else {"offered": offered.before_devices}
    wanted = os.environ.get("GPU_GROUPS")
    chosen = wanted.split(",") if wanted else list(groups)
    if unknown := set(chosen) - {*groups}:
        raise SystemExit(f"GPU_GROUPS: expected names of {', '.join(groups)}, got {', '.join(unknown)}")
    for group in chosen:
        for name, case in groups[group](runner.cache):
            runner.case(f"{group}: {name}", case)


if __name__ == "__main__":
    sys.exit(main())
