#!/usr/bin/env python3
"""Compiled models (EPContext) on the CPU engine; `suite_gpu.py` has the same on a GPU."""

from __future__ import annotations

import sys

import compiled_models
from runner import Runner, run_suite


def body(runner: Runner) -> None:
    for name, case in compiled_models.cases([sys.executable]):
        runner.case(name, case)


if __name__ == "__main__":
    sys.exit(run_suite(body, "compiled", __doc__ or ""))
