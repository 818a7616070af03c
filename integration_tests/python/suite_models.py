#!/usr/bin/env python3
"""Real networks: every Conv of the main graph on the provider, outputs as the CPU provider's, also from four threads at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import onnxruntime as ort

import detector
import models
import provider
from runner import Runner, Skip, at_once, check, run_suite

TOLERANCE = 1e-3
THREADS = 4


@dataclass
class Network:
    name: str
    path: Callable[[Path], Path]
    feeds: Callable[[Path, ort.InferenceSession], list[dict[str, np.ndarray]]]
    # Convolutions in bodies of If or Loop are offered to the provider too, but only those of the main graph are promised.
    subgraphs: bool = False
    options: dict[str, str] = field(default_factory=dict)
    # Most programs that the model's nodes become on the provider; 0 where none is promised.
    programs: int = 0


def fetched(name: str) -> Callable[[Path], Path]:
    return lambda cache: models.fetch(name, cache)


def page(cache: Path, session: ort.InferenceSession) -> list[dict[str, np.ndarray]]:
    """The page, then the same upside down and a smaller part of it: other contents and other sizes on one session."""
    picture = detector.load(models.fetch("page", cache))
    name = session.get_inputs()[0].name
    pictures = [picture, picture.rotate(180), picture.crop((0, 0, 200, 120))]
    return [{name: detector.preprocess(one)} for one in pictures]


def generated(*shapes: dict[str, list[int]], values: dict[str, float] | None = None) -> Callable[..., list[dict[str, np.ndarray]]]:
    def feeds(cache: Path, session: ort.InferenceSession) -> list[dict[str, np.ndarray]]:
        return [provider.generated_inputs(session, shape, values, seed) for seed, shape in enumerate(shapes, 1)]
    return feeds


def first_input(*shapes: list[int]) -> Callable[..., list[dict[str, np.ndarray]]]:
    """Generated values in these shapes for a model's only input, whatever its name."""
    def feeds(cache: Path, session: ort.InferenceSession) -> list[dict[str, np.ndarray]]:
        name = session.get_inputs()[0].name
        return [provider.generated_inputs(session, {name: shape}, seed=seed) for seed, shape in enumerate(shapes, 1)]
    return feeds


SILERO = {"input": [1, 576], "state": [2, 1, 128], "sr": []}

NETWORKS = [
    Network("detector", fetched("detector"), page, programs=1),
    Network("recognizer", fetched("recognizer"), first_input([1, 3, 48, 320], [4, 3, 48, 200], [1, 3, 48, 96]), programs=5),
    Network("classifier", fetched("classifier"), first_input([1, 3, 48, 192], [3, 3, 48, 192]), programs=1),
    Network("CenterFace", fetched("centerface"), first_input([10, 3, 32, 32]), programs=1),
    Network("CenterFace of any size", models.dynamic_centerface, first_input([1, 3, 480, 640], [1, 3, 256, 320]), programs=1),
    Network("CenterFace, one program kept", models.dynamic_centerface, first_input([1, 3, 128, 160], [1, 3, 96, 64]),
            options={"plan_cache": "1"}, programs=1),
    Network("orientation", fetched("orientation"), first_input([1, 3, 224, 224]), programs=1),
    Network("ResNet-50, seeded", models.random_resnet50, first_input([1, 3, 224, 224]), programs=1),
    Network("Silero VAD", fetched("silero"), generated(SILERO, SILERO, values={"sr": 16000}), subgraphs=True),
    Network("Silero VAD without If", fetched("silero-ifless"), generated(SILERO, values={"sr": 16000})),
    Network("Silero VAD 16 kHz", fetched("silero-16k"), generated(SILERO, values={"sr": 16000})),
]


def main() -> int:
    return run_suite(body, "models", __doc__ or "")


def body(runner: Runner) -> None:
    for network in NETWORKS:
        prepared: dict[str, Any] = {}

        def prepare() -> tuple[Path, provider.Session, ort.InferenceSession, list[dict[str, np.ndarray]], list[list[Any]]]:
            if not prepared:
                try:
                    path = network.path(runner.cache)
                except models.FetchError as problem:
                    raise Skip(str(problem)) from None
                try:
                    cpu = provider.cpu_session(path)
                except Exception as problem:
                    raise Skip(f"ONNX Runtime {ort.__version__} does not accept the model: {problem}") from None
                feeds = fit(network.feeds(runner.cache, cpu), cpu)
                wanted = [cpu.run(None, feed) for feed in feeds]
                prepared["all"] = (path, provider.Session(path, network.options), cpu, feeds, wanted)
            return prepared["all"]

        runner.case(f"{network.name}: every Conv on the provider", lambda: convolutions(*prepare()))
        if network.programs:
            runner.case(f"{network.name}: at most {network.programs} programs", lambda: programs(network.programs, *prepare()))
        runner.case(f"{network.name}: same outputs", lambda: same_outputs(*prepare()))
        runner.case(f"{network.name}: same outputs from {THREADS} threads at once", lambda: concurrent(*prepare()))
    runner.case("detector: same boxes", lambda: same_boxes(runner.cache))
    runner.case("detector: two sessions at once", lambda: two_sessions(runner.cache))
    runner.case("detector: sessions come and go", lambda: sessions_come_and_go(runner.cache))


def fit(feeds: list[dict[str, np.ndarray]], session: ort.InferenceSession) -> list[dict[str, np.ndarray]]:
    names = {value.name for value in session.get_inputs()}
    return [{name: value for name, value in feed.items() if name in names} for feed in feeds]


def main_graph_convolutions(path: Path) -> int:
    return sum(node.op_type == "Conv" for node in onnx.load(str(path), load_external_data=False).graph.node)


def convolutions(path: Path, session: provider.Session, cpu: ort.InferenceSession, feeds: Any, wanted: Any) -> None:
    shares = session.nodes()
    mine = shares.get(provider.NAME, {}).get("Conv", 0)
    elsewhere = {name: counts["Conv"] for name, counts in shares.items() if name != provider.NAME and counts["Conv"]}
    wanted_count = main_graph_convolutions(path)
    declined = [claim for claim in session.claims if claim.op == "Conv" and not claim.engine]
    check(mine >= wanted_count, f"{mine} Conv on the provider, the main graph has {wanted_count}; elsewhere {elsewhere}; {declined[:3]}")


def programs(most: int, path: Path, session: provider.Session, cpu: ort.InferenceSession, feeds: Any, wanted: Any) -> None:
    groups = {claim.group for claim in session.claims if claim.engine}
    declined = [claim for claim in session.claims if claim.reason]
    check(0 < len(groups) <= most, f"expected 1 to {most} programs, got {len(groups)}; declined: {declined[:5]}")


def same_outputs(path: Path, session: provider.Session, cpu: ort.InferenceSession, feeds: Any, wanted: Any) -> None:
    # Twice round: a plan of an earlier shape must serve again.
    for turn, (feed, reference) in enumerate(list(zip(feeds, wanted)) * 2):
        difference = provider.relative_difference(session.run(feed), reference)
        check(difference <= TOLERANCE, f"input {turn % len(feeds)}: off by {difference:.3g} of the output's range")


def concurrent(path: Path, session: provider.Session, cpu: ort.InferenceSession, feeds: Any, wanted: Any) -> None:
    def work(index: int) -> None:
        for turn in range(3):
            at = (index + turn) % len(feeds)
            difference = provider.relative_difference(session.run(feeds[at]), wanted[at])
            check(difference <= TOLERANCE, f"run {turn}: off by {difference:.3g} of the output's range")

    at_once(THREADS, work)


def detector_case(cache: Path) -> tuple[Path, Any, dict[str, np.ndarray]]:
    try:
        path, picture = models.fetch("detector", cache), detector.load(models.fetch("page", cache))
    except models.FetchError as problem:
        raise Skip(str(problem)) from None
    return path, picture, {"x": detector.preprocess(picture)}


def same_boxes(cache: Path) -> None:
    path, picture, feeds = detector_case(cache)
    ours = detector.boxes(provider.Session(path).run(feeds)[0], picture.size)
    theirs = detector.boxes(provider.cpu_session(path).run(None, feeds)[0], picture.size)
    check(len(theirs) >= 6, f"the CPU provider finds only {len(theirs)} lines on the page")
    shift = detector.largest_shift(ours, theirs)
    check(shift <= 1.0, f"{len(ours)} boxes, the CPU provider has {len(theirs)}; largest shift {shift} pixels")


def two_sessions(cache: Path) -> None:
    path, _, feeds = detector_case(cache)
    sessions = [provider.Session(path) for _ in range(2)]
    wanted = provider.cpu_session(path).run(None, feeds)

    def work(index: int) -> None:
        difference = provider.relative_difference(sessions[index].run(feeds), wanted)
        check(difference <= TOLERANCE, f"off by {difference:.3g} of the output's range")

    at_once(2, work)


def sessions_come_and_go(cache: Path) -> None:
    path, _, feeds = detector_case(cache)
    wanted = provider.cpu_session(path).run(None, feeds)
    for turn in range(5):
        difference = provider.relative_difference(provider.Session(path, report=False).run(feeds), wanted)
        check(difference <= TOLERANCE, f"session {turn}: off by {difference:.3g} of the output's range")


if __name__ == "__main__":
    sys.exit(main())
