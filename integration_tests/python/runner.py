"""A small test runner: each case is a function that returns, raises, or raises `Skip`; outcomes go to a file as JSON lines.

The line `{"outcome": "finished"}` ends the file, so that a process that dies does not pass for one that had few cases. With `--resume`
cases that passed by the file of an earlier run count as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Callable

from failure import Failure
from workers import in_threads


class Skip(Exception):
    """The case can't run here; the message says why."""


class Runner:
    def __init__(self, suite: str, description: str) -> None:
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--results", type=Path, help="file that the outcomes are written to")
        parser.add_argument("--cache", type=Path, required=True, help="directory of the models")
        parser.add_argument("--only", default="", help="run only cases whose name contains this")
        parser.add_argument("--resume", action="store_true", help="don't run again what passed by the file of results")
        arguments = parser.parse_args()
        self.suite = suite
        self.cache: Path = arguments.cache
        self._only: str = arguments.only
        self._passed = passed(arguments.results) if arguments.resume and arguments.results else set()
        self._file = arguments.results.open("w", encoding="utf-8") if arguments.results else None
        self._counts = {"passed": len(self._passed), "failed": 0, "skipped": 0}
        for name in sorted(self._passed):
            self._write({"name": name, "outcome": "passed", "detail": ""})

    def wants(self, name: str) -> bool:
        """Whether a case is to be run: it is chosen, and did not pass in the run that this one resumes."""
        return self._only in name and f"{self.suite}: {name}" not in self._passed

    def case(self, name: str, body: Callable[[], None]) -> None:
        if not self.wants(name):
            return
        outcome, detail = "passed", ""
        start = time.monotonic()
        try:
            body()
        except Skip as reason:
            outcome, detail = "skipped", str(reason)
        except (Failure, AssertionError) as problem:
            outcome, detail = "failed", str(problem) or traceback.format_exc(limit=-2)
        except Exception as problem:
            outcome, detail = "failed", f"{type(problem).__name__}: {problem}"
        self._counts[outcome] += 1
        if outcome != "passed":
            print(f"{outcome:8} {self.suite}: {name}: {detail}", flush=True)
        self._write({"name": f"{self.suite}: {name}", "outcome": outcome, "detail": detail, "seconds": round(time.monotonic() - start, 3)})

    def finish(self) -> int:
        print(f"{self.suite}: {self._counts['passed']} passed, {self._counts['failed']} failed, {self._counts['skipped']} skipped")
        self._write({"outcome": "finished", "name": self.suite})
        if self._file:
            self._file.close()
        return 1 if self._counts["failed"] else 0

    def _write(self, line: dict[str, str | float]) -> None:
        if self._file:
            # Flushed at once: a crash in native code must not take the outcomes before it along.
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def passed(results: Path) -> set[str]:
    """Names of the cases that passed by a file of results."""
    names = set()
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            # A process that died may leave half a line.
            continue
        if entry["outcome"] == "passed":
            names.add(entry["name"])
    return names


def check(holds: bool, message: str) -> None:
    if not holds:
        raise Failure(message)


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Runs a function in so many threads that begin together, each with its number; what they raised is one failure."""
    problems: list[str] = []
    start = threading.Barrier(count)

    def guarded(index: int) -> None:
        try:
            start.wait()
            work(index)
        except Failure as problem:
            problems.append(f"thread {index}: {problem}")
        except Exception as problem:
            problems.append(f"thread {index}: {type(problem).__name__}: {problem}")

    in_threads([lambda index=index: guarded(index) for index in range(count)])
    if problems:
        raise Failure("; ".join(problems))


def run_suite(body: Callable[[Runner], None], suite: str, description: str) -> int:
    runner = Runner(suite, description)
    body(runner)
    return runner.finish()


__all__ = ["Failure", "Runner", "Skip", "at_once", "check", "run_suite"]
