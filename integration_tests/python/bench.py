#!/usr/bin/env python3
"""Times single convolutions and whole networks in sessions on the provider and on ONNX Runtime's CPU provider.

Each contender has a process of its own. All are measured between the same two points, a session's run with its inputs and
outputs bound, with denormals flushed; they take turns, so that a slow spell of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import detector
import models
import provider

# Square images and windows: batch n, c channels of h × h, k filters of r × r.
LAYERS = Path(__file__).parent / "layers.csv"
OURS = "EP"


@dataclass(frozen=True)
class Setting:
    """What holds for all contenders of a table."""

    threads: int
    spinning: bool

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{threads}, its own time" if self.threads == 1 else f"{threads}, ONNX Runtime's {'spin' if self.spinning else 'do not spin'} between runs"


ONE_THREAD = Setting(1, True)


def settings() -> list[Setting]:
    """One thread, which does not wait for others; then two, with and without ONNX Runtime's busy waiting."""
    two = [Setting(2, True), Setting(2, False)] if (os.cpu_count() or 1) > 1 else []
    return [ONE_THREAD, *two]


@dataclass
class Contender:
    """A process with sessions of one provider."""

    name: str
    provider: str
    setting: Setting
    options: dict[str, str] = field(default_factory=dict)
    # The provider's library, if it is not the installed one.
    library: Path | None = None
    script: str = "bench_contender.py"

    def __enter__(self) -> Contender:
        setting = {"provider": self.provider, "options": self.options, "threads": self.setting.threads, "spinning": self.setting.spinning,
                   "library": str(self.library or provider.LIBRARY)}
        command = [sys.executable, str(Path(__file__).with_name(self.script)), json.dumps(setting)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--direct", type=Path, help="lines layer,threads,weights,seconds of the engine's kernels without a session")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--skip", choices=["layers", "models"])
    arguments = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} CPUs; each contender in a process of its own, in {arguments.turns} turns.")
    print("Times of sessions' runs, outputs bound, denormals flushed: medians of the turns' fastest, in ms; ratios: medians of the turns'.")
    with tempfile.TemporaryDirectory() as directory:
        if arguments.skip != "layers":
            layers(read_direct(arguments.direct), arguments.turns, Path(directory))
        if arguments.skip != "models":
            networks(arguments.cache, arguments.turns, Path(directory))
    return 0


def read_direct(path: Path | None) -> dict[tuple[str, int], float]:
    if path is None:
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["weights"] == "constant"]
    return {(row["layer"], int(row["threads"])): 1e3 * float(row["seconds"]) for row in rows}


def layers(direct: dict[tuple[str, int], float], turns: int, directory: Path) -> None:
    with LAYERS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for setting in settings():
        print(f"\nlayers, {setting}; kernels: the engine alone, without a session, to be compared with the provider's session only")
        print(f"{'':22} {'session':>9} {'session':>9} {'':>8} {'kernels':>9} {'session /':>9}")
        print(f"{'layer':22} {'EP':>9} {'CPU EP':>9} {'EP/CPU':>8} {'alone':>9} {'kernels':>9}")
        ratios = []
        with Contender(OURS, provider.NAME, setting) as ours, Contender("CPU EP", provider.CPU, setting) as cpu:
            for row in rows:
                model, feeds = layer_model({key: int(value) for key, value in row.items() if key not in ("name", "class")})
                path = directory / "layer.onnx"
                path.write_bytes(model)
                measured = compare([ours, cpu], path, feeds, turns, 0.03, directory)
                (ep_time, cpu_time), ratio = measured.times(), measured.ratio(0, 1)
                ratios.append(ratio)
                alone = direct.get((row["name"], setting.threads), math.nan)
                print(f"{row['name']:22} {ep_time:9.3f} {cpu_time:9.3f} {ratio:8.2f} {alone:9.3f} {ep_time / alone:9.2f}", flush=True)
        print(f"{'geometric mean':22} {'':9} {'':9} {geometric_mean(ratios):8.2f}")


@dataclass
class Measured:
    """What contenders took: the fastest run of each turn, in ms, and what opening the session took."""

    turns: list[list[float]]
    openings: list[dict[str, Any]]

    def times(self) -> list[float]:
        """The contenders' medians over the turns."""
        return [statistics.median(record) for record in self.turns]

    def ratio(self, one: int, other: int) -> float:
        """Median of one contender's time divided by another's in the same turn."""
        return statistics.median(a / b for a, b in zip(self.turns[one], self.turns[other]))

    def fastest(self) -> Measured:
        """The same with a single turn: each contender's fastest."""
        return Measured([[min(record)] for record in self.turns], self.openings)


def compare(contenders: list[Contender], model: Path, feeds: dict[str, np.ndarray], turns: int, seconds: float, directory: Path) -> Measured:
    """Opens the model in each contender, holds the results against the last one's, and times runs in turn."""
    openings, outputs = open_each(contenders, [model] * len(contenders), feeds, directory)
    for contender, ours in zip(contenders, outputs[:-1]):
        if (difference := provider.relative_difference(ours, outputs[-1])) > 1e-3:
            raise SystemExit(f"{contender.name} on {model.name}: off by {difference:.3g} of the output's range, expected at most 1e-3")
    return Measured(take_turns(contenders, turns, seconds), openings)


def open_each(contenders: list[Contender], paths: list[Path], feeds: dict[str, np.ndarray],
              directory: Path) -> tuple[list[dict[str, Any]], list[list[np.ndarray]]]:
    """Opens each contender's model in it; what it answers, and what it computes."""
    given = directory / "feeds.npz"
    np.savez(given, **feeds)
    openings, outputs = [], []
    for contender, path in zip(contenders, paths):
        to = directory / "outputs.npz"
        openings.append(contender.ask(open=str(path), feeds=str(given), outputs=str(to)))
        with np.load(to) as arrays:
            outputs.append([arrays[name] for name in arrays.files])
    return openings, outputs


def take_turns(contenders: list[Contender], turns: int, seconds: float) -> list[list[float]]:
    """The fastest run of each contender in each turn, in ms."""
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(turns):
        for contender, record in zip(contenders, times):
            # Threads of the one before may still be busy waiting.
            time.sleep(0.01)
            record.append(contender.ask(seconds=seconds))
    return times


def layer_model(row: dict[str, int]) -> tuple[bytes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((row["n"], row["c"], row["h"], row["h"])).astype(np.float32)
    w = rng.standard_normal((row["k"], row["c"] // row["groups"], row["r"], row["r"])).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[row["stride"]] * 2, pads=[row["pad"]] * 4,
                            dilations=[row["dilation"]] * 2, group=row["groups"])
    graph = helper.make_graph([node], "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), {"x": x}


def network_cases(cache: Path) -> list[tuple[str, Path, dict[str, np.ndarray]]]:
    """Networks: their names, models and inputs."""
    page = detector.preprocess(detector.load(models.fetch("page", cache)))
    cases: list[tuple[str, Path, Any]] = [
        ("text detector", models.fetch("detector", cache), page),
        ("text recognizer", models.fetch("recognizer", cache), [1, 3, 48, 320]),
        ("CenterFace", models.dynamic_centerface(cache), [1, 3, 480, 640]),
        ("page orientation", models.fetch("orientation", cache), [1, 3, 224, 224]),
        ("ResNet-50", models.random_resnet50(cache), [1, 3, 224, 224]),
    ]
    return [(name, path, network_feeds(path, given)) for name, path, given in cases]


def network_feeds(path: Path, given: Any) -> dict[str, np.ndarray]:
    """The first input, if it is given, or random numbers of its shape."""
    session = provider.cpu_session(path)
    first = session.get_inputs()[0].name
    return {first: given} if isinstance(given, np.ndarray) else provider.generated_inputs(session, {first: given})


def networks(cache: Path, turns: int, directory: Path) -> None:
    cases = network_cases(cache)
    shares: dict[Setting, list[tuple[str, dict[str, float]]]] = {}
    for setting in settings():
        alone = setting.threads == 1
        scale = "" if alone else f" {'EP/EP,1':>8}"
        print(f"\nnetworks, {setting}; session and first run: the first of the process" + ("" if alone else "; EP/EP,1: beside one thread in the same turns"))
        print(f"{'':18} {'':>16} {'':>9} {'':>9} {'':>8}{'' if alone else ' ' * 9} {'session':>9} {'':>9} {'first run':>9} {'':>9}")
        print(f"{'model':18} {'input':>16} {'EP':>9} {'CPU EP':>9} {'EP/CPU':>8}{scale} {'EP':>9} {'CPU EP':>9} {'EP':>9} {'CPU EP':>9}")
        ratios: list[float] = []
        with ExitStack() as stack:
            ours, cpu = (stack.enter_context(Contender(name, of, setting)) for name, of in [(OURS, provider.NAME), ("CPU EP", provider.CPU)])
            one = [] if alone else [stack.enter_context(Contender(f"{OURS}, one thread", provider.NAME, ONE_THREAD))]
            for name, path, feeds in cases:
                measured = compare([ours, *one, cpu], path, feeds, turns, 0.3, directory)
                # The CPU provider is the last.
                mine, theirs = measured.times()[0], measured.times()[-1]
                ratios.append(measured.ratio(0, -1))
                shape = "x".join(map(str, next(iter(feeds.values())).shape))
                opened = " ".join(f"{measured.openings[at][what]:9.1f}" for what in ("session", "first run") for at in (0, -1))
                scaled = "" if alone else f" {measured.ratio(0, 1):8.2f}"
                print(f"{name:18} {shape:>16} {mine:9.2f} {theirs:9.2f} {ratios[-1]:8.2f}{scaled} {opened}", flush=True)
                if alone or not setting.spinning:
                    shares.setdefault(setting, []).append((name, ours.ask(shares=2.0, directory=str(directory))))
        print(f"{'geometric mean':18} {'':16} {'':9} {'':9} {geometric_mean(ratios):8.2f}")
    for setting, rows in shares.items():
        print_shares(setting, rows)


# The parts of a run, as `bench_contender.py` measures them.
PARTS = ["kernels", "waiting", "provider", "others", "runtime"]


def print_shares(setting: Setting, rows: list[tuple[str, dict[str, float]]]) -> None:
    """What the provider's runs are made of, in per cent."""
    print(f"\na run's time, {setting}, in per cent, by ONNX Runtime's profile; within the engine's executions kernels and")
    print("waiting: threads at work and without any; provider: the rest of its nodes; others: other providers' nodes; runtime: no node's")
    print(f"{'model':18} " + " ".join(f"{part:>9}" for part in PARTS))
    for name, parts in rows:
        print(f"{name:18} " + " ".join(f"{100 * parts[part]:9.1f}" for part in PARTS))


def geometric_mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan


if __name__ == "__main__":
    sys.exit(main())
