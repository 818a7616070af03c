"""Runs of one session from several threads at once, with streams that run late."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import emulated_gpu
import models
import provider
from gpu import device, extent, networks
from runner import Skip, at_once, check

THREADS = 4
RUNS = 4
LATE_US = 500


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, make in (("ResNet-like", networks.resnet_like), ("MobileNet-like", networks.mobilenet_like)):
        yield f"a {name} network from {THREADS} threads, each on a stream of its own", lambda make=make: on_streams(make([1, 3, 32, 32]), [1, 3, 32, 32])
    if extent.chosen() != "thin":
        yield f"the orientation model at 64 × 64 from {THREADS} threads, each on a stream of its own", lambda: orientation(cache)
    yield f"free extents from {THREADS} threads", lambda: one_session(networks.single(["n", 3, "h", "w"]), [[1, 3, 8, 8], [2, 3, 5, 9], [1, 3, 4, 4]])
    yield f"free extents from {THREADS} threads with room for one program, which goes under work of others", dropped
    yield f"nodes of the CPU provider between, from {THREADS} threads", lambda: one_session(networks.interrupted([1, 3, 10, 10]), [[1, 3, 10, 10]])
    yield "a session for each thread, made at once", own_sessions


def prepared(model: bytes, shapes: list[list[int]]) -> list[tuple[dict[str, Any], networks.Expectation]]:
    """Other values for each thread, so that one that gets another's result shows."""
    feeds = [networks.images(shapes[index % len(shapes)], seed=10 + index) for index in range(max(THREADS, len(shapes)))]
    return [(feed, networks.expected(model, feed)) for feed in feeds]


def one_session(model: bytes, shapes: list[list[int]]) -> None:
    shared(device.session(model), prepared(model, shapes))


def shared(session: provider.Session, inputs: list[tuple[dict[str, Any], networks.Expectation]]) -> None:
    """Each thread runs the session on each of the inputs."""

    def work(index: int) -> None:
        for turn in range(RUNS):
            feeds, wanted = inputs[(index + turn) % len(inputs)]
            wanted.meets(session.run(feeds))

    with emulated_gpu.delays(LATE_US):
        at_once(THREADS, work)


def on_streams(model: bytes, shape: list[int]) -> None:
    """Runs that begin together take so long that none gets a stream that another has done with."""
    # Solvers are tried while the session is made.
    session, inputs = device.session(model), prepared(model, [shape])
    streams: set[int] = set()
    # A thread that begins late may get the stream of one that has done.
    for _ in range(20):
        with emulated_gpu.traced() as trace:
            shared(session, inputs)
        streams |= {line["stream"] for line in trace.work("kernel")}
        if len(streams) == THREADS:
            break
    check(len(streams) == THREADS, f"runs of {THREADS} threads were on the streams {sorted(streams)}")


def orientation(cache: Path) -> None:
    try:
        model = networks.orientation(cache)
    except models.FetchError as problem:
        raise Skip(str(problem)) from None
    on_streams(model, [1, 3, 64, 64])


def dropped() -> None:
    shapes = [[1, 3, 8, 8], [2, 3, 5, 9], [1, 3, 4, 4]]
    before = emulated_gpu.counters().violations
    model = networks.single(["n", 3, "h", "w"])
    shared(device.session(model, plan_cache="1"), prepared(model, shapes))
    check(emulated_gpu.counters().violations == before, "work read or ran what was gone")


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
