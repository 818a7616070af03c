"""What benchmarks of single cases by class have in common: their options, their contenders, and the tables that they print."""

from __future__ import annotations

import argparse
import csv
import os
from collections import defaultdict
from pathlib import Path
from typing import Protocol, Sequence, TypeVar

import numpy as np
import onnxruntime as ort

import provider
from bench import OURS, Contender, Setting, compare, geometric_mean

CPU, BEFORE = "CPU EP", "before"


class Case(Protocol):
    """Something that is timed by itself."""

    @property
    def kind(self) -> str:
        """The class that the case is counted in."""

    @property
    def operations(self) -> int:
        """Multiplications and additions of the definition; 0 where memory sets the pace."""

    @property
    def traffic(self) -> int:
        """Bytes of inputs, constants and outputs."""

    def model(self) -> tuple[bytes, dict[str, np.ndarray]]:
        """A model of nothing else, and inputs for it."""


C = TypeVar("C", bound=Case)

# Milliseconds of each contender, and ratios `EP/other` as medians of the turns'.
Figures = dict[str, float]


def parser(description: str | None, turns: int) -> argparse.ArgumentParser:
    """The options that all such benchmarks have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--peak", type=float, required=True, help="multiplications and additions of a thread without memory, in GFLOP/s")
    made.add_argument("--part", default="1/1", help="a part of the cases: 2/4 is the second quarter (default: all)")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--turns", type=int, default=turns)
    made.add_argument("--seconds", type=float, default=0.02, help="time of a contender in a turn")
    made.add_argument("--fastest", action="store_true", help="each contender's fastest turn instead of medians over the turns, for machines with other work")
    made.add_argument("--before", type=Path, help="libonnxruntime_providers_hipdnn_rs.so of another build with its libraries beside it, as one more contender")
    made.add_argument("--csv", type=Path, help="file for the times of each case")
    return made


def contenders(arguments: argparse.Namespace, peers: Sequence[Contender] = (), options: dict[str, str] | None = None) -> list[Contender]:
    """The provider, its other build if there is one, `peers`, and the CPU provider, against whose results the others' are held."""
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} CPUs, {arguments.threads} thread(s), {arguments.turns} turns{', the fastest' if arguments.fastest else ''}; peak {arguments.peak:.0f} GFLOP/s a thread")
    setting = Setting(arguments.threads, True)
    ours = [Contender(OURS, provider.NAME, setting, options or {})]
    if arguments.before:
        ours.append(Contender(BEFORE, provider.NAME, setting, options or {}, library=arguments.before.resolve()))
    return [*ours, *peers, Contender(CPU, provider.CPU, setting)]


def some(cases: Sequence[C], arguments: argparse.Namespace) -> list[C]:
    """Those that `--only` and `--part` leave."""
    part, parts = map(int, arguments.part.split("/"))
    return [case for case in cases if arguments.only in f"{case.kind} {case}"][part - 1::parts]


def measured(contenders: list[Contender], case: Case, arguments: argparse.Namespace, directory: Path) -> tuple[Figures, dict[str, int]]:
    """Times of a case, and the nodes of it that the provider left to others."""
    model, feeds = case.model()
    path = directory / "case.onnx"
    path.write_bytes(model)
    taken = compare(contenders, path, feeds, arguments.turns, arguments.seconds, directory)
    if arguments.fastest:
        taken = taken.fastest()
    figures = {contender.name: time for contender, time in zip(contenders, taken.times())}
    figures |= {f"{OURS}/{contender.name}": taken.ratio(0, at) for at, contender in enumerate(contenders) if at}
    return figures, taken.openings[0].get("left", {})


def report(title: str, weights: dict[C, int], times_of: dict[C, Figures], names: list[str], peak: float) -> None:
    """The table of the classes, worst first, and the cases on which most is lost."""
    peers = [name for name in names if all(name in times_of[case] for case in weights)]
    print(f"\n{title}: EP's time / {' / '.join(peers)}'s; sum: of times, by use; share: of the peak, in %, or GB/s")
    print(f"{'class':28} {'cases':>6} {'EP, ms':>9} {'share':>9} " + " ".join(f"{name:>7} {'sum':>5}" for name in peers) + "  worst")
    classes: dict[str, list[C]] = defaultdict(list)
    for case in weights:
        classes[case.kind].append(case)
    ratio = lambda case, name: times_of[case][f"{OURS}/{name}"]
    mean = lambda cases, name: geometric_mean([ratio(case, name) for case in cases])
    rows = sorted(classes.items(), key=lambda row: -mean(row[1], CPU)) + [("all", list(weights))]
    for kind, cases in rows:
        spent = {name: sum(weights[case] * times_of[case][name] for case in cases) for name in (OURS, *peers)}
        worst = max(cases, key=lambda case: ratio(case, CPU))
        figures = " ".join(f"{mean(cases, name):7.2f} {spent[OURS] / spent[name]:5.2f}" for name in peers)
        print(f"{kind:28} {len(cases):6} {spent[OURS]:9.3f} {rate(weights, cases, spent[OURS], peak):>9} {figures}  {ratio(worst, CPU):.2f} {worst}")
    lost = lambda case: weights[case] * (times_of[case][OURS] - times_of[case][CPU])
    print("most lost: cases, µs of EP and of CPU EP, how often used")
    for case in [case for case in sorted(weights, key=lost, reverse=True) if lost(case) > 0][:15]:
        taken = times_of[case]
        print(f"  {str(case):44} {1e3 * taken[OURS]:9.1f} {1e3 * taken[CPU]:9.1f} × {weights[case]}")


def rate(weights: dict[C, int], cases: list[C], milliseconds: float, peak: float) -> str:
    """Share of the peak in per cent where all cases are arithmetic, GB/s where none is, nothing of both."""
    operations, traffic = (sum(weights[case] * number for case, number in zip(cases, numbers))
                           for numbers in ([case.operations for case in cases], [case.traffic for case in cases]))
    if all(case.operations for case in cases):
        return f"{100 * operations / (1e6 * peak * milliseconds):.0f}"
    return f"{traffic / (1e6 * milliseconds):.1f} GB/s" if operations == 0 else ""


def write(path: Path, times_of: dict[C, Figures], names: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["class", "case", "operations", "bytes", *names])
        out.writerows([case.kind, str(case), case.operations, case.traffic, *(f"{1e-3 * figures[name]:.9f}" for name in names)]
                      for case, figures in times_of.items())
