#!/usr/bin/env python3
"""The provider on a GPU: the emulated one, with the real MIOpen. `cargo xtask test --only suite_gpu` runs it there.

Groups that the provider can't pass yet are skipped, and counted so: `READY` names the others. GPU_GROUPS=name,… (or `all`)
chooses groups whatever is ready.
"""

from __future__ import annotations

import os
import sys

import emulated_gpu
from gpu import binding, capture, device, faults, offered, process, several, small, steady, threads, umbrella
from runner import Runner, Skip, run_suite

GROUPS = {"process": process.cases, "offered": offered.cases, "small": small.cases, "binding": binding.cases, "threads": threads.cases,
          "steady": steady.cases, "faults": faults.cases, "several": several.cases, "umbrella": umbrella.cases,
          "capture": capture.cases}

# What the provider can do today.
READY = ("process",)


def main() -> int:
    return run_suite(body, "gpu", __doc__ or "")


def body(runner: Runner) -> None:
    if reason := emulated_gpu.missing():
        raise SystemExit(f"suite_gpu.py wants the emulated GPU (cargo xtask emulated-gpu python): {reason}")
    device.switch_on()
    wanted = os.environ.get("GPU_GROUPS")
    chosen = wanted.split(",") if wanted else list(READY)
    if unknown := set(chosen) - {*GROUPS, "all"}:
        raise SystemExit(f"GPU_GROUPS: expected names of {', '.join(GROUPS)}, got {', '.join(unknown)}")
    for group, cases in GROUPS.items():
        for name, case in cases(runner.cache):
            if group in chosen or "all" in chosen:
                runner.case(f"{group}: {name}", case)
            elif not wanted:
                runner.case(f"{group}: {name}", skipped)


def skipped() -> None:
    raise Skip("the provider offers no GPU device yet")


if __name__ == "__main__":
    sys.exit(main())
