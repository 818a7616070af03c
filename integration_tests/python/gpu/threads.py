"""Runs of one session from several threads at once, with streams that run late."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import emulated_gpu
import provider
from gpu import device, networks
from runner import at_once

THREADS = 4
RUNS = 4
LATE_US = 500


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, make in (("ResNet-like", networks.resnet_like), ("MobileNet-like", networks.mobilenet_like)):
        yield f"a {name} network from {THREADS} threads", lambda make=make: one_session(make([1, 3, 32, 32]), [[1, 3, 32, 32]])
    yield f"free extents from {THREADS} threads", lambda: one_session(networks.single(["n", 3, "h", "w"]), [[1, 3, 8, 8], [2, 3, 5, 9], [1, 3, 4, 4]])
    yield f"nodes of the CPU provider between, from {THREADS} threads", lambda: one_session(networks.interrupted([1, 3, 10, 10]), [[1, 3, 10, 10]])
    yield "a session for each thread, made at once", own_sessions


def prepared(model: bytes, shapes: list[list[int]]) -> list[tuple[dict[str, Any], networks.Expectation]]:
    """Other values for each thread, so that one that gets another's result shows."""
    feeds = [networks.images(shapes[index % len(shapes)], seed=10 + index) for index in range(max(THREADS, len(shapes)))]
    return [(feed, networks.expected(model, feed)) for feed in feeds]


def one_session(model: bytes, shapes: list[list[int]]) -> None:
    session, inputs = device.session(model), prepared(model, shapes)

    def work(index: int) -> None:
        for turn in range(RUNS):
            feeds, wanted = inputs[(index + turn) % len(inputs)]
            wanted.meets(session.run(feeds))

    with emulated_gpu.delays(LATE_US):
        at_once(THREADS, work)


def own_sessions() -> None:
    model = networks.resnet_like([1, 3, 32, 32])
    inputs = prepared(model, [[1, 3, 32, 32]])
    sessions: dict[int, provider.Session] = {}

    def work(index: int) -> None:
        sessions[index] = device.session(model)
        feeds, wanted = inputs[index]
        for _ in range(2):
            wanted.meets(sessions[index].run(feeds))

    provider.devices()
    with emulated_gpu.delays(LATE_US):
        at_once(THREADS, work)
