"""Functions in threads, and worker processes that share a list of cases."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any, Callable, Sequence


def in_threads(bodies: Sequence[Callable[[], None]]) -> None:
    """Runs functions that raise nothing in a thread each, to their end."""
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def share(command: list[str], requests: Sequence[str], jobs: int, patience: float, report: Callable[[str, dict[str, Any] | None, str], None]) -> None:
    """Hands out requests, a line each, to worker processes that answer each with a line of JSON.

    `report` gets each request with its answer, one at a time; `None` and what became of the process where it died of the request,
    or gave no answer for `patience` seconds.
    """
    queue, lock = list(reversed(requests)), threading.Lock()

    def serve() -> None:
        process: subprocess.Popen[str] | None = None
        while True:
            with lock:
                if not queue:
                    break
                request = queue.pop()
            if process is None:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            answer, ended = ask(process, request, patience), ""
            if answer is None:
                process.kill()
                ended = f"the process ended with {process.wait()}"
                process = None
            with lock:
                report(request, answer, ended)
        if process is not None and process.stdin:
            process.stdin.close()
            process.wait()

    in_threads([serve] * jobs)


def ask(process: subprocess.Popen[str], request: str, patience: float) -> dict[str, Any] | None:
    """A worker's answer; `None` from one that died or was ended for its silence."""
    timer = threading.Timer(patience, process.kill)
    timer.start()
    try:
        assert process.stdin and process.stdout
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        return json.loads(line) if line.strip() else None
    except (BrokenPipeError, ValueError):
        return None
    finally:
        timer.cancel()
