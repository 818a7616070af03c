"""The provider's GPU devices, and sessions on one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnxruntime as ort

import emulated_gpu
import provider
from runner import Failure, check

AMD = 0x1002


def devices() -> list[Any]:
    """The GPUs on which the provider offers itself."""
    return [device for device in provider.devices() if device.device.type == ort.OrtHardwareDeviceType.GPU]


def device(index: int = 0) -> Any:
    found = devices()
    check(len(found) > index, f"{len(found)} GPU devices are offered, number {index} is wanted")
    return found[index]


def session(model: Path | bytes, index: int = 0, **options: str) -> provider.Session:
    """A session on one GPU with the CPU provider behind it; keywords are the provider's options."""
    # Networks of tests are too small to be worth a copy.
    return provider.Session(model, {"cost_rule": "0"} | options, on=[device(index)])


def claimed(session: provider.Session, left: tuple[str, ...] = ()) -> None:
    """Every node is the provider's, but for those of the operators in `left`, which are not."""
    shares = session.nodes()
    mine = shares.pop(provider.NAME, {})
    elsewhere = sorted({name for counts in shares.values() for name in counts} - {"Constant"})
    check(bool(mine) and elsewhere == sorted(left), f"expected all but {list(left)} on the provider, got {elsewhere} elsewhere: {session.claims}")


def programs(session: provider.Session) -> int:
    """How many programs the session's nodes became."""
    return len({claim.group for claim in session.claims if claim.engine})


def is_error_of_runtime(problem: Exception) -> bool:
    """Whether an exception is ONNX Runtime's: its own, or the plain one that its Python package makes of some errors."""
    return type(problem).__module__.startswith("onnxruntime") or type(problem) is RuntimeError


def clear(problem: Exception) -> None:
    """The error of a provider: ONNX Runtime's own exception, with a text of ours that names what failed."""
    text = str(problem)
    check(is_error_of_runtime(problem), f"{type(problem).__module__}.{type(problem).__name__}: {text}")
    check("hip" in text.lower() or "miopen" in text.lower(), f"the error does not say what failed: {text}")


def right_or_clear(body: Callable[[], None]) -> bool:
    """Runs what checks its own result, or raises an error that says what failed; whether it came to its end."""
    try:
        body()
    except Failure:
        raise
    except Exception as problem:
        clear(problem)
        return False
    return True


def bound(session: provider.Session, x: ort.OrtValue, y: ort.OrtValue) -> ort.IOBinding:
    """A binding of a session's input `x` and its first output."""
    binding = session.session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output(session.session.get_outputs()[0].name, y)
    return binding


def device_id(index: int = 0) -> int:
    """The number of a device in its memory's description, which OrtValues are made with."""
    return device(index).memory_info(ort.OrtDeviceMemoryType.DEFAULT).device_id


def on_device(content: np.ndarray, index: int = 0) -> ort.OrtValue:
    """A copy of an array in device memory."""
    return ort.OrtValue.ortvalue_from_numpy(content, "gpu", device_id(index), AMD)


def empty_on_device(shape: tuple[int, ...], kind: Any = np.float32, index: int = 0) -> ort.OrtValue:
    """Device memory without content."""
    return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), kind, "gpu", device_id(index), AMD)


def used(body: Any) -> dict[str, int]:
    """How many kernels, copies and host waits a function makes on the device."""
    before = emulated_gpu.counters()
    body()
    after = emulated_gpu.counters()
    return {name: getattr(after, name) - getattr(before, name) for name in ("launches", "copies", "fills", "waits")}
