#!/usr/bin/env python3
"""Runs a text detector, or any model, on this project's provider and on ONNX Runtime's CPU provider, and compares them."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnxruntime as ort
from PIL import UnidentifiedImageError

import detector
import models
import provider
from provider import CPU, Failure

TOLERANCE = 1e-3
# Corners come from thresholded pixels: a last-bit difference may move one by less than a pixel of the picture.
LARGEST_SHIFT = 1.0


def main() -> int:
    arguments = parse()
    try:
        return run(arguments)
    except (Failure, models.FetchError) as problem:
        print(f"demo: {problem}", file=sys.stderr)
    return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cargo xtask demo", description=__doc__)
    parser.add_argument("--model", type=Path, help="run this ONNX file with generated input instead of the detector")
    parser.add_argument("--image", type=Path, help="look for text in this picture (any format that Pillow reads)")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1x3x224x224", help="shape of an input of --model")
    parser.add_argument("--value", action="append", default=[], metavar="NAME=NUMBER", help="fill an input of --model with one number")
    parser.add_argument("--runs", type=int, default=15, help="timed runs of each provider (default 15)")
    parser.add_argument("--cache", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.model and arguments.image:
        parser.error("--image is for the text detector; --model takes generated input")
    if (arguments.shape or arguments.value) and not arguments.model:
        parser.error("--shape and --value go with --model")
    if arguments.runs < 1:
        parser.error("--runs must be at least 1")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    picture = None
    if arguments.model:
        model = arguments.model
        if not model.is_file():
            raise Failure(f"there is no model {model}")
    else:
        model = models.fetch("detector", arguments.cache)
        picture_path = arguments.image or models.fetch("page", arguments.cache)
        try:
            picture = detector.load(picture_path)
        except (OSError, UnidentifiedImageError) as problem:
            raise Failure(f"the picture {picture_path} can't be read: {problem}") from None
    try:
        cpu = provider.cpu_session(model)
    except Exception as problem:
        raise Failure(f"ONNX Runtime {ort.__version__} does not accept {model.name}: {problem}") from None
    ours = provider.Session(model)

    if picture is None:
        feeds = provider.generated_inputs(cpu, dict(map(parse_shape, arguments.shape)), dict(map(parse_value, arguments.value)))
    else:
        feeds = {cpu.get_inputs()[0].name: detector.preprocess(picture)}
    try:
        wanted = cpu.run(None, feeds)
    except Exception as problem:
        raise Failure(f"ONNX Runtime's CPU provider can't run {model.name} with the input {describe(feeds)}: {problem}\n"
                      "demo: choose shapes and values with --shape NAME=1x3x224x224 and --value NAME=NUMBER") from None
    got = ours.run(feeds)

    rows: list[tuple[str, str]] = [("model", f"{model.name}, input {describe(feeds)}"),
                                   ("ONNX Runtime", ort.__version__)]
    rows += node_rows(ours)
    passed = True
    if picture is not None:
        found, reference = detector.boxes(got[0], picture.size), detector.boxes(wanted[0], picture.size)
        shift = detector.largest_shift(found, reference)
        same = shift <= LARGEST_SHIFT
        passed &= same
        verdict = f"the same (largest shift {shift:.2g} px)" if same else f"not the same (largest shift {shift:.2g} px)"
        rows.append(("boxes", f"{len(found)} on the EP, {len(reference)} on the CPU EP: {verdict}"))
        target = arguments.output / f"{picture_path.stem}-boxes.png"
        detector.draw(picture, found, target)
        rows.append(("picture", shown_path(target)))
    difference = provider.relative_difference(got, wanted)
    passed &= difference <= TOLERANCE
    rows.append(("largest difference", f"{difference:.2g} of the output's range ({'within' if difference <= TOLERANCE else 'above'} {TOLERANCE:g})"))
    our_time, cpu_time = interleaved([lambda: ours.run(feeds), lambda: cpu.run(None, feeds)], arguments.runs)
    rows.append(("median latency", f"{our_time:.1f} ms on the EP, {cpu_time:.1f} ms on the CPU EP ({arguments.runs} runs each, in turn)"))

    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0 if passed else 1


def node_rows(ours: provider.Session) -> list[tuple[str, str]]:
    shares = ours.nodes()
    mine = shares.pop(provider.NAME, {})
    rows = [("nodes on the EP", count_by_kind(mine) or "none"),
            ("nodes elsewhere", "; ".join(f"{sum(counts.values())} on {name.removesuffix('ExecutionProvider')}: {count_by_kind(counts, 6)}"
                                          for name, counts in shares.items()) or "none"),
            ("engine", ", ".join(ours.engines()) or "none")]
    return rows


def shown_path(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def count_by_kind(counts: Any, most: int = 12) -> str:
    ordered = counts.most_common()
    shown = [f"{count} {kind}" for kind, count in ordered[:most]]
    rest = sum(count for _, count in ordered[most:])
    return ", ".join(shown + ([f"{rest} of other kinds"] if rest else []))


def describe(feeds: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, value.shape)) or 'scalar'} {value.dtype}" for name, value in feeds.items())


def parse_shape(text: str) -> tuple[str, list[int]]:
    name, separator, extents = text.rpartition("=")
    try:
        if not separator or not name:
            raise ValueError
        return name, [int(extent) for extent in extents.split("x")] if extents else []
    except ValueError:
        raise Failure(f"--shape wants NAME=1x3x224x224, got {text!r}") from None


def parse_value(text: str) -> tuple[str, float]:
    name, separator, number = text.rpartition("=")
    try:
        if not separator or not name:
            raise ValueError
        return name, float(number)
    except ValueError:
        raise Failure(f"--value wants NAME=NUMBER, got {text!r}") from None


def interleaved(calls: list[Callable[[], Any]], runs: int) -> list[float]:
    """Median milliseconds of each call; taking turns spreads a slow spell of the machine over all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(runs + 1):
        for call, record in zip(calls, times):
            # Threads of the call before may still be spinning for more work.
            time.sleep(0.01)
            start = time.perf_counter()
            call()
            if turn > 0:
                record.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(record) if record else math.nan for record in times]


if __name__ == "__main__":
    sys.exit(main())
