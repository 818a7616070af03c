"""Sessions on this project's execution provider, on every ONNX Runtime that it supports, through the installed wheel."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_hipdnn_rs as wheel
from failure import Failure

NAME = wheel.get_ep_name()
CPU = "CPUExecutionProvider"
REGISTRATION = "hipdnn_rs"

VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])

# Session.get_provider_graph_assignment_info arrived in 1.24; before, the provider's own report has to do.
HAS_ASSIGNMENT = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")


SMALLEST_RANGE = 1e-3


# The provider's library.
LIBRARY = wheel.get_library_path()

# Options of the provider that every session has unless it says otherwise.
SETTINGS: dict[str, str] = {}

_registered = False


def devices() -> list[Any]:
    """The devices on which the provider offers itself; registers the library the first time."""
    global _registered
    if not _registered:
        ort.register_execution_provider_library(REGISTRATION, LIBRARY)
        _registered = True
    found = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    if not found:
        raise Failure(f"the library registered, but no device is offered under the name {NAME}")
    return found


def options(threads: int | None = None, **entries: str) -> ort.SessionOptions:
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 3
    if threads is not None:
        chosen.intra_op_num_threads = threads
    for key, value in entries.items():
        chosen.add_session_config_entry(key, value)
    return chosen


@dataclass
class Claim:
    """One node as the report of the provider shows it."""

    node: str
    op: str
    engine: str | None
    reason: str | None
    group: str | None = None


class Session:
    """A session with the provider first and the CPU provider behind it; `on` some of the provider's devices, or all."""

    def __init__(self, model: Path | bytes, provider_options: dict[str, str] | None = None,
                 session_options: ort.SessionOptions | None = None, report: bool = True, on: list[Any] | None = None) -> None:
        chosen = session_options or options()
        if HAS_ASSIGNMENT:
            chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        settings = SETTINGS | (provider_options or {})
        self._report: Path | None = None
        if report and "report" not in settings:
            handle, name = tempfile.mkstemp(prefix="hipdnn-rs-report-", suffix=".jsonl")
            os.close(handle)
            self._report = Path(name)
            settings["report"] = name
        elif "report" in settings:
            self._report = Path(settings["report"])
        try:
            chosen.add_provider_for_devices(on or devices(), settings)
            # Without this the Python package answers a provider's error with a session on the CPU provider.
            self.session = ort.InferenceSession(model if isinstance(model, bytes) else str(model), chosen, enable_fallback=0)
            self.claims = read_report(self._report) if self._report else []
        finally:
            if self._report and "report" not in (provider_options or {}):
                self._report.unlink(missing_ok=True)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return self.session.run(None, feeds)

    def engines(self) -> list[str]:
        return sorted({claim.engine for claim in self.claims if claim.engine})

    def nodes(self) -> dict[str, Counter[str]]:
        """Per provider, how many nodes of each operator it got."""
        shares: dict[str, Counter[str]] = {}
        if HAS_ASSIGNMENT:
            for share in self.session.get_provider_graph_assignment_info():
                shares.setdefault(share.ep_name, Counter()).update(node.op_type for node in share.get_nodes())
        else:
            for claim in self.claims:
                shares.setdefault(NAME if claim.engine else CPU, Counter())[claim.op] += 1
        return shares


def read_report(path: Path) -> list[Claim]:
    """The last word on each node: a graph may be offered to the provider more than once."""
    latest: dict[tuple[str, str], Claim] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        entry = json.loads(line)
        if "node" not in entry:
            continue
        claim = Claim(entry["node"], entry.get("op", ""), entry.get("engine"), entry.get("reason"), entry.get("group"))
        latest[claim.node, claim.op] = claim
    return list(latest.values())


def cpu_session(model: Path | bytes) -> ort.InferenceSession:
    chosen = options()
    # Errors arrive as exceptions; the log would only say them once more.
    chosen.log_severity_level = 4
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), chosen, providers=[CPU])


ELEMENT_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(int16)": np.int16, "tensor(int8)": np.int8, "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32, "tensor(uint16)": np.uint16, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_,
}


def default_shape(declared: list[Any]) -> list[int]:
    """The declared shape with every open dimension filled in: one image, of 224 × 224, or one sequence of 128."""
    shape = []
    for axis, extent in enumerate(declared):
        if isinstance(extent, int) and extent > 0:
            shape.append(extent)
        elif axis == 0:
            shape.append(1)
        elif len(declared) in (4, 5):
            # Channels first or last: the open axis beside two open or large ones is the channel axis only if it is the second.
            shape.append(3 if axis == 1 else 224 if len(declared) == 4 else 16)
        else:
            shape.append(128)
    return shape


def generated_inputs(session: ort.InferenceSession, shapes: dict[str, list[int]] | None = None,
                     values: dict[str, float] | None = None, seed: int = 1) -> dict[str, np.ndarray]:
    """Seeded values for every input of a model."""
    rng = np.random.default_rng(seed)
    shapes, values = shapes or {}, values or {}
    names = [value.name for value in session.get_inputs()]
    for name in [*shapes, *values]:
        if name not in names:
            raise Failure(f"the model has no input {name!r}; it has {', '.join(names)}")
    feeds = {}
    for value in session.get_inputs():
        if value.type not in ELEMENT_TYPES:
            raise Failure(f"input {value.name!r} has type {value.type}, for which no values can be generated")
        kind = np.dtype(ELEMENT_TYPES[value.type])
        shape = shapes.get(value.name) or default_shape(list(value.shape or []))
        if value.name in values:
            feeds[value.name] = np.full(shape, values[value.name], kind)
        elif kind.kind == "f":
            feeds[value.name] = rng.standard_normal(shape).astype(kind)
        elif kind.kind == "b":
            feeds[value.name] = np.ones(shape, kind)
        else:
            feeds[value.name] = rng.integers(0, 2, shape).astype(kind)
    return feeds


def relative_difference(got: list[Any], wanted: list[Any]) -> float:
    """The largest difference of any element, relative to the range of the wanted output it belongs to.

    The range of one value is its magnitude. An output that hardly moves is held against `SMALLEST_RANGE` instead: the CPU provider's sigmoid, for one, has steps of
    6e-8 whatever its value, which are a large part of a range of 1e-6.
    """
    if len(got) != len(wanted):
        raise Failure(f"{len(got)} outputs, wanted {len(wanted)}")
    worst = 0.0
    for index, (ours, theirs) in enumerate(zip(got, wanted)):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise Failure(f"output {index} is {ours.dtype}{list(ours.shape)}, wanted {theirs.dtype}{list(theirs.shape)}")
        if theirs.size == 0:
            continue
        if theirs.dtype.kind != "f":
            worst = max(worst, float(np.mean(ours != theirs)))
            continue
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(theirs)
        if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
            raise Failure(f"output {index} differs where the wanted values are infinite or not a number")
        if not np.isfinite(ours[finite]).all():
            raise Failure(f"output {index} has values that are not finite where finite ones are wanted")
        if finite.any():
            values = theirs[finite]
            span = max(SMALLEST_RANGE, float(np.ptp(values) if values.size > 1 else abs(values[0])))
            worst = max(worst, float(np.abs(ours[finite] - theirs[finite]).max()) / span)
    return worst
