"""Plans: arrays in, arrays out."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from . import _native

# hipDNN's types that NumPy has.
_NUMPY: dict[str, type] = {
    "float": np.float32, "half": np.float16, "double": np.float64, "uint8": np.uint8, "int8": np.int8, "int32": np.int32,
    "int64": np.int64, "boolean": np.bool_,
}
# Those that the package ml_dtypes has, with the type of their bits.
_BITS: dict[str, tuple[str, type]] = {
    "bfloat16": ("bfloat16", np.uint16), "fp8_e4m3": ("float8_e4m3fn", np.uint8), "fp8_e5m2": ("float8_e5m2", np.uint8),
    "fp8_e4m3_fnuz": ("float8_e4m3fnuz", np.uint8), "fp8_e5m2_fnuz": ("float8_e5m2fnuz", np.uint8),
    "fp8_e8m0": ("float8_e8m0fnu", np.uint8),
}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's type for a type of hipDNN. For types that NumPy lacks (`bfloat16`, `fp8_…`) it is that of the package `ml_dtypes`,
    or, where this is not installed, the unsigned integer of the bits."""
    if dtype in _NUMPY:
        return np.dtype(_NUMPY[dtype])
    if dtype not in _BITS:
        raise ValueError(f"expected a type of whole bytes among {', '.join([*_NUMPY, *_BITS])}, got {dtype}")
    name, bits = _BITS[dtype]
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(bits)
    return np.dtype(getattr(ml_dtypes, name))


@functools.cache
def default_backend() -> _native.Backend:
    """The backend that graphs are compiled with unless they are told another one, opened at the first call."""
    return _native.Backend()


# One at a time: the environment is the process's.
_DESCRIBING = threading.Lock()


@contextlib.contextmanager
def _plans_described() -> Iterator[None]:
    """Has our plugin log what plans consist of, which it reads from the environment when a log level is set."""
    before = os.environ.get("HIPDNN_RS_LOG")
    os.environ["HIPDNN_RS_LOG"] = "debug"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HIPDNN_RS_LOG"]
        else:
            os.environ["HIPDNN_RS_LOG"] = before


def explain(backend: _native.Backend, graph: _native.Graph, device: str, engine: str | None = None,
            knobs: Sequence[tuple[str, int | float | str]] = ()) -> str:
    """What engines say of a graph. An environment variable is set meanwhile: not while other threads change the environment."""
    with _DESCRIBING:
        try:
            with _plans_described():
                return backend.explain(graph, device, engine, list(knobs))
        finally:
            backend.refresh_log()


class Plan:
    """A graph ready to run on one engine; `Graph.compile` makes them. Several threads may call one at once."""

    def __init__(self, backend: _native.Backend, graph: _native.Graph, plan: _native.Plan, device: str,
                 knobs: Sequence[tuple[str, int | float | str]] = ()) -> None:
        self._backend = backend
        self._graph = graph
        self._plan = plan
        self._device = device
        self._knobs = knobs
        rows = graph.tensors()
        self._outputs = [row for row in rows if row[6] == "output"]
        self._given = {row[1]: row for row in rows if row[6] in ("input", "scalar")}

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._plan.engine

    @property
    def workspace_bytes(self) -> int:
        """Bytes of memory that the plan works in."""
        return self._plan.workspace_bytes

    @property
    def inputs(self) -> list[str]:
        """The names of the arrays that a call takes."""
        return list(self._given)

    @property
    def outputs(self) -> list[str]:
        """The names of the results, in order."""
        return [row[1] for row in self._outputs]

    def __call__(self, *, out: Any = None, stream: int | None = None, workspace: Any = None, **arrays: Any) -> Any:
        """Runs the plan on arrays by name, and returns the result, or a tuple of the results. `Plan.run` says more."""
        return self.run(arrays, out=out, stream=stream, workspace=workspace)

    def run(self, arrays: Mapping[str, Any], *, out: Any = None, stream: int | None = None, workspace: Any = None) -> Any:
        """Runs the plan on arrays by name: NumPy's, or any with `__dlpack__`. None is copied.

        `out` is memory for the result, or for results by name; the others are new NumPy arrays. Plans for `device="rocm"` take and
        fill arrays in a GPU's memory: they want `out` for every result, a `workspace` of `workspace_bytes` bytes, and enqueue on
        HIP's `stream` without waiting for it.
        """
        for name in arrays:
            if name not in self._given:
                raise TypeError(f"expected arrays named {', '.join(self._given)}, got {name}")
        places: dict[int, Any] = {}
        for name, row in self._given.items():
            if name in arrays:
                places[row[0]] = _scalar(arrays[name], row) if row[6] == "scalar" else _lendable(arrays[name])
        wanted = out if isinstance(out, Mapping) else {} if out is None else {self._only_output(): out}
        for name in wanted:
            if name not in self.outputs:
                raise TypeError(f"out: expected results named {', '.join(self.outputs)}, got {name}")
        results = []
        for row in self._outputs:
            result = wanted[row[1]] if row[1] in wanted else _empty(row)
            results.append(result)
            places[row[0]] = _lendable(result)
        self._plan.execute(places, stream, workspace)
        return results[0] if len(results) == 1 else tuple(results)

    def explain(self) -> str:
        """How the engine computes the graph: which kernels compute which nodes, and what was fused. The engine is asked for the
        plan once more."""
        return explain(self._backend, self._graph, self._device, self.engine, self._knobs)

    def to_bytes(self) -> bytes:
        """The plan as its engine stores it, for `Graph.load_plan`."""
        return self._plan.to_bytes()

    def _only_output(self) -> str:
        if len(self._outputs) != 1:
            raise TypeError(f"out: expected arrays by name for {', '.join(self.outputs)}, got one array")
        return self._outputs[0][1]


def _lendable(array: Any) -> Any:
    """The array itself, or, of a type that NumPy can't lend, its bits."""
    if isinstance(array, np.ndarray):
        for name, bits in _BITS.values():
            if array.dtype.name == name:
                return array.view(bits)
    return array


def _scalar(value: Any, row: tuple[Any, ...]) -> Any:
    """A number as the array that the engine reads it from."""
    return _lendable(value if hasattr(value, "__dlpack__") else np.full(row[3], value, numpy_dtype(row[2])))


def _empty(row: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Memory for a result, with the graph's strides and alignment."""
    _, _, dtype, shape, strides, alignment, _ = row
    kind = numpy_dtype(dtype)
    span = (1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))) * kind.itemsize
    memory = np.empty(span + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    flat = memory[start:start + span].view(kind)
    return np.lib.stride_tricks.as_strided(flat, shape, [stride * kind.itemsize for stride in strides])
