#!/usr/bin/env python3
"""Times single convolutions and whole networks on the provider and on ONNX Runtime's CPU provider, taking turns."""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import detector
import models
import provider
from demo import interleaved

# Square images and windows: batch n, c channels of h × h, k filters of r × r.
LAYERS = Path(__file__).parent / "layers.csv"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--direct", type=Path, help="lines layer,threads,weights,seconds of the engine without ONNX Runtime")
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--skip", choices=["layers", "models"])
    arguments = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} CPUs, medians of {arguments.runs} runs in turn, milliseconds")
    if arguments.skip != "layers":
        layers(read_direct(arguments.direct), arguments.runs)
    if arguments.skip != "models":
        networks(arguments.cache, max(11, arguments.runs // 2))
    return 0


def read_direct(path: Path | None) -> dict[str, float]:
    if path is None:
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["weights"] == "constant"]
    return {row["layer"]: 1e3 * float(row["seconds"]) for row in rows}


def layers(direct: dict[str, float], runs: int) -> None:
    print(f"\n{'layer':22} {'engine':>9} {'EP':>9} {'CPU EP':>9} {'engine/CPU EP':>14} {'EP/CPU EP':>10}")
    ratios: dict[str, list[float]] = {"engine": [], "EP": []}
    with LAYERS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        model, feeds = layer_model({key: int(value) for key, value in row.items() if key not in ("name", "class")})
        ours, cpu = provider.Session(model, report=False), provider.cpu_session(model)
        if (difference := provider.relative_difference(ours.run(feeds), cpu.run(None, feeds))) > 1e-4:
            raise SystemExit(f"{row['name']}: off by {difference:.3g} of the output's range")
        ep_time, cpu_time = interleaved([lambda: ours.run(feeds), lambda: cpu.run(None, feeds)], runs)
        alone = direct.get(row["name"], math.nan)
        ratios["engine"].append(alone / cpu_time)
        ratios["EP"].append(ep_time / cpu_time)
        print(f"{row['name']:22} {alone:9.3f} {ep_time:9.3f} {cpu_time:9.3f} {alone / cpu_time:14.2f} {ep_time / cpu_time:10.2f}", flush=True)
    engine, ep = (geometric_mean(ratios[name]) for name in ("engine", "EP"))
    print(f"{'geometric mean':22} {'':9} {'':9} {'':9} {engine:14.2f} {ep:10.2f}")


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


def networks(cache: Path, runs: int) -> None:
    page = detector.preprocess(detector.load(models.fetch("page", cache)))
    cases: list[tuple[str, Path, Any]] = [
        ("text detector", models.fetch("detector", cache), page),
        ("text recogniser", models.fetch("recogniser", cache), [1, 3, 48, 320]),
        ("CenterFace", models.dynamic_centerface(cache), [1, 3, 480, 640]),
        ("page orientation", models.fetch("orientation", cache), [1, 3, 224, 224]),
        ("ResNet-50", models.random_resnet50(cache), [1, 3, 224, 224]),
    ]
    print(f"\n{'model':18} {'input':>16} {'EP':>9} {'EP fused':>9} {'CPU EP':>9} {'EP/CPU EP':>10} {'fused/CPU EP':>13}")
    ratios: list[list[float]] = [[], []]
    for name, path, given in cases:
        cpu = provider.cpu_session(path)
        feeds = {cpu.get_inputs()[0].name: given} if isinstance(given, np.ndarray) else provider.generated_inputs(cpu, {cpu.get_inputs()[0].name: given})
        plain, fused = provider.Session(path, report=False), provider.Session(path, {"fuse": "1"}, report=False)
        times = interleaved([lambda: plain.run(feeds), lambda: fused.run(feeds), lambda: cpu.run(None, feeds)], runs)
        for record, time in zip(ratios, times):
            record.append(time / times[2])
        shape = "x".join(map(str, next(iter(feeds.values())).shape))
        print(f"{name:18} {shape:>16} {times[0]:9.2f} {times[1]:9.2f} {times[2]:9.2f} {times[0] / times[2]:10.2f} {times[1] / times[2]:13.2f}", flush=True)
    print(f"{'geometric mean':18} {'':16} {'':9} {'':9} {'':9} {geometric_mean(ratios[0]):10.2f} {geometric_mean(ratios[1]):13.2f}")


def geometric_mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan


if __name__ == "__main__":
    sys.exit(main())
