"""What the provider finds on this machine, and why something is missing.

A convolution is run through ONNX Runtime on the provider; what is printed about backend and engines is the provider's own
report on it. The exit status is 0 if the provider computed it, 1 otherwise.
"""

from __future__ import annotations

import array
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from . import get_ep_name, get_library_path

DISTRIBUTION = "onnxruntime-ep-hipdnn-rs"
LIBRARIES = ["libonnxruntime_providers_hipdnn_rs.so", "libhipdnn_backend.so", "libhipdnn_rs_plugin.so"]
OLDEST_RUNTIME = (1, 23)
VARIABLES = ("HIPDNN_", "MIOPEN_", "ROCM_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


class Problem(Exception):
    """Why the provider can't compute; the message says what to do where there is something."""


# What the provider says of a GPU.
DEVICE_FACTS = ("name", "architecture", "memory_bytes", "pci_bus_id", "hip_version", "os_driver_version", "miopen_library")


def run() -> int:
    """Prints everything. Gives the exit status."""
    show("Python", f"{platform.python_version()} on {platform.machine()}, {' '.join(platform.libc_ver()) or 'not glibc'}")
    show("package", f"{distribution_version(DISTRIBUTION) or 'not installed as a distribution'} in {Path(get_library_path()).parent}")
    for name in LIBRARIES:
        path = Path(get_library_path()).parent / name
        show(f"  {name}", f"{path.stat().st_size:,} bytes" if path.is_file() else "missing")
    for name in sorted(name for name in os.environ if name.startswith(VARIABLES)):
        show(f"  {name}", os.environ[name])
    for line in graphics():
        show("AMD GPU", line)
    try:
        engine = probe()
    except Problem as problem:
        print(f"\nThe provider does not compute: {problem}")
        return 1
    print(f"\nThe provider works: {engine} computed a convolution as ONNX Runtime's CPU provider does.")
    return 0


def show(what: str, value: object) -> None:
    print(f"{what + ':':<42} {value}")


def distribution_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def graphics() -> list[str]:
    """Why an AMD GPU can or can't be used, as far as files tell."""
    driver = Path("/dev/kfd")
    if not driver.exists():
        return ["none: there is no /dev/kfd, so the driver amdgpu is not loaded, or this container was not given it"]
    if not os.access(driver, os.R_OK | os.W_OK):
        return ["/dev/kfd is there, but this user may not open it; it is usually a member of the group render who may"]
    folders = [Path(os.environ.get("ROCM_PATH") or "/opt/rocm") / "lib", Path("/opt/rocm/lib")]
    found = next((folder / "libamdhip64.so" for folder in folders if (folder / "libamdhip64.so").exists()), None)
    return ["/dev/kfd can be opened", f"HIP is {found}" if found else f"libamdhip64.so is not in {folders[0]}; set ROCM_PATH if it is elsewhere"]


def probe() -> str:
    """Runs a convolution on each device of the provider. Gives the engines that computed it."""
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise Problem(f"onnxruntime can't be imported ({error}); pip install onnxruntime") from None
    show("ONNX Runtime", f"{ort.__version__} in {Path(ort.__file__).parent}")
    version = tuple(int(part) for part in ort.__version__.split(".")[:2])
    if version < OLDEST_RUNTIME:
        raise Problem(f"ONNX Runtime is expected to be {'.'.join(map(str, OLDEST_RUNTIME))} or newer, got {ort.__version__}")
    try:
        ort.register_execution_provider_library("hipdnn_rs_doctor", get_library_path())
    except Exception as error:
        raise Problem(f"ONNX Runtime can't load {get_library_path()}: {error}") from None
    devices = [device for device in ort.get_ep_devices() if device.ep_name == get_ep_name()]
    for device in devices:
        show("device", f"{device.device.type.name} for {device.ep_name} {device.ep_metadata.get('version', '')}")
        for key in DEVICE_FACTS:
            if value := device.ep_metadata.get(key):
                show(f"  {key}", value)
    if not devices:
        raise Problem(f"the library is loaded, but offers no device for {get_ep_name()}")
    engines: list[str] = []
    for index, device in enumerate(devices):
        try:
            engine = probe_device(ort, device, is_first=index == 0)
        except Problem as problem:
            raise Problem(f"device {index}: {problem}" if len(devices) > 1 else str(problem)) from None
        if engine not in engines:
            engines.append(engine)
    return ", ".join(engines)


def probe_device(ort: Any, device: Any, is_first: bool) -> str:
    """Runs a convolution on a device, in a session of its own: ONNX Runtime 1.24 takes no two GPUs in one. Gives the engine
    that computed it; backend and engines are shown once."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.jsonl"
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.add_provider_for_devices([device], {"report": str(report)})
        try:
            session = ort.InferenceSession(convolution(), options, enable_fallback=0)
        except Exception as error:
            raise Problem(f"a session can't be made: {error}") from None
        lines: list[dict[str, Any]] = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    opened = next((line for line in lines if "provider" in line), {})
    if is_first:
        show("backend", f"{opened.get('backend') or 'none'}, version {opened.get('backend_version') or 'unknown'}")
        for engine in opened.get("engines", []):
            show("engine", engine)
    if not opened.get("backend"):
        raise Problem(str(opened.get("reason")))
    node = next((line for line in lines if line.get("op") == "Conv"), {})
    if not node.get("claimed"):
        raise Problem(f"no engine takes a convolution: {node.get('reason')}")
    compare(ort, session)
    return str(node.get("engine"))


def compare(ort: Any, session: Any) -> None:
    """Holds the result against the CPU provider's."""
    import numpy as np

    feeds = {"x": np.linspace(-1, 1, 2 * 5 * 5, dtype=np.float32).reshape(1, 2, 5, 5)}
    wanted = ort.InferenceSession(convolution(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    try:
        got = session.run(None, feeds)[0]
    except Exception as error:
        raise Problem(f"the convolution fails: {error}") from None
    difference = float(np.abs(got - wanted).max())
    if not difference < 1e-4:
        raise Problem(f"the convolution is off by {difference:.3g}")


def convolution() -> bytes:
    """A model of one node, y = Conv(x, w) with x of 1 × 2 × 5 × 5 and w of 3 × 2 × 3 × 3, in ONNX's wire format."""
    weights = array.array("f", [((7 * index) % 11 - 5) / 8 for index in range(3 * 2 * 3 * 3)]).tobytes()
    node = text(1, "x") + text(1, "w") + text(2, "y") + text(3, "convolution") + text(4, "Conv")
    tensor = b"".join(number(1, extent) for extent in (3, 2, 3, 3)) + number(2, 1) + text(8, "w") + field(9, weights)
    graph = field(1, node) + text(2, "doctor") + field(5, tensor) + field(11, value("x", [1, 2, 5, 5])) + field(12, value("y", [1, 3, 3, 3]))
    return number(1, 8) + field(7, graph) + field(8, number(2, 17))


def value(name: str, shape: list[int]) -> bytes:
    extents = b"".join(field(1, number(1, extent)) for extent in shape)
    return text(1, name) + field(2, field(1, number(1, 1) + field(2, extents)))


def text(tag: int, content: str) -> bytes:
    return field(tag, content.encode())


def field(tag: int, content: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(content)) + content


def number(tag: int, content: int) -> bytes:
    return varint(tag << 3) + varint(content)


def varint(content: int) -> bytes:
    low, rest = content & 0x7F, content >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])
