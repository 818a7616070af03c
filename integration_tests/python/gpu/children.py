"""Functions of these modules in processes of their own: settings of the device are read once in a process, and some cases end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

import emulated_gpu
from runner import Skip, check

PROGRAM = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
from runner import Failure, Skip
try:
    getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(*sys.argv[4:])
except (Failure, AssertionError) as problem:
    outcome = f'failed {problem}'
except Skip as reason:
    outcome = f'skipped {reason}'
else:
    outcome = 'passed'
print('outcome:', outcome, flush=True)
"""

PATIENCE = 900


def start(function: Callable[..., None], *arguments: str, patience: float = PATIENCE, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs a function of a module to its end; its last line on the standard output says what came of it."""
    command = [*emulated_gpu.interpreter(), "-c", PROGRAM, str(Path(__file__).parents[1]), function.__module__, function.__name__, *arguments]
    return subprocess.run(command, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience)


def run(function: Callable[..., None], *arguments: str, patience: float = PATIENCE, **environment: str) -> None:
    """The same; what the function raised is raised here, and the process has to end without a signal."""
    ended = start(function, *arguments, patience=patience, **environment)
    said = [line.removeprefix("outcome: ") for line in ended.stdout.splitlines() if line.startswith("outcome: ")]
    kind, _, detail = (said[-1] if said else "").partition(" ")
    if kind == "skipped":
        raise Skip(detail)
    check(kind == "passed", f"{detail or 'no outcome'}; exit status {ended.returncode}: {ended.stderr[-1500:]}")
    check(ended.returncode == 0, f"the process ended with {ended.returncode} after its work: {ended.stderr[-1500:]}")


def run_at_home(function: Callable[..., None], *arguments: str) -> None:
    """The same with copies of MIOpen's caches: nobody else compiles into them, which a process that traces its calls can't tell from what it compiles itself."""

    def copied(source: str, to: str) -> None:
        # Others rename what they have written.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, to)

    with tempfile.TemporaryDirectory() as home:
        for cache in (".cache/miopen", ".config/miopen"):
            if (Path.home() / cache).is_dir():
                shutil.copytree(Path.home() / cache, Path(home) / cache, copy_function=copied)
        run(function, *arguments, HIPEMU_HOME=home)
