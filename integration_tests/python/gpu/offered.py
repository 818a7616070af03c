"""The devices that the provider offers."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import onnxruntime as ort

import emulated_gpu
import provider
from gpu import children, device, networks
from runner import check


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "one GPU of AMD with its memory", one_gpu
    yield "a GPU for each of HIP's devices", lambda: children.run(count_gpus, "3", HIPEMU_DEVICES="3")
    yield "without a GPU the CPU device, as on a machine without HIP", lambda: children.run(only_cpu, HIPEMU_DEVICES="0")
    yield "README's quick start runs on the GPU", lambda: children.run(quick_start)
    yield "beside a GPU the CPU device on request, and sessions on each and on both", lambda: children.run(beside, HIPDNN_RS_CPU_ENGINE="on")


def one_gpu() -> None:
    found = device.devices()
    check(len(found) == 1 == len(provider.devices()), f"{len(found)} GPU devices of {len(provider.devices())}")
    check(found[0].device.vendor_id == device.AMD, f"vendor {found[0].device.vendor_id:#x}")
    metadata = dict(found[0].ep_metadata)
    check(any("gfx1100" in value for value in metadata.values()), f"no architecture in {metadata}")
    memory = found[0].memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    check(memory is not None and memory.device_vendor_id == device.AMD, f"{memory}")
    pinned = found[0].memory_info(ort.OrtDeviceMemoryType.HOST_ACCESSIBLE)
    check(pinned is not None and pinned.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE, f"{pinned}")


def quick_start() -> None:
    """In a process in which nothing is registered, as the page has it."""
    page = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = [block for block in code if "register_execution_provider_library" in block]
    check(len(found) == 1, f"{len(found)} quick starts in README.md")
    model, feeds = networks.resnet_like([1, 3, 32, 32]), networks.images([1, 3, 32, 32])
    wanted = networks.expected(model, feeds)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("model.onnx").write_bytes(model)
        names: dict[str, Any] = {}
        exec(compile(found[0], "README.md", "exec"), names)
        spent = device.used(lambda: wanted.meets(names["session"].run(None, feeds)))
        claims = Path("claims.jsonl").read_text(encoding="utf-8")
    check(spent["launches"] > 0, f"nothing ran on the device: {spent}")
    check("HIPDNN_RS_GPU_ENGINE" in claims, f"the report names no engine of a GPU: {claims[:500]}")


def beside() -> None:
    kinds = [found.device.type for found in provider.devices()]
    check(kinds == [ort.OrtHardwareDeviceType.GPU, ort.OrtHardwareDeviceType.CPU], f"{kinds}")
    model, feeds = networks.single([1, 3, 8, 8]), networks.images([1, 3, 8, 8])
    wanted = networks.expected(model, feeds)
    gpu, cpu = provider.devices()
    chosen = [([gpu], "HIPDNN_RS_GPU_ENGINE", True), ([cpu], "HIPDNN_RS_CPU_ENGINE", False)]
    # ONNX Runtime 1.24 has no session on devices of two memories.
    chosen += [([gpu, cpu], "HIPDNN_RS_GPU_ENGINE", True)] if provider.VERSION > (1, 24) else []
    for on, engine, launches in chosen:
        session = provider.Session(model, {"cost_rule": "0"}, on=on)
        check(session.engines() == [engine], f"{session.engines()} on {[found.device.type for found in on]}")
        spent = device.used(lambda: wanted.meets(session.run(feeds)))
        check((spent["launches"] > 0) == launches, f"{spent} on {[found.device.type for found in on]}")


def before_devices(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """For releases of ONNX Runtime before 1.24, whose plugins have no memory of their own."""
    yield "ONNX Runtime before 1.24 is offered no GPU, and the log says why", no_gpu


def no_gpu() -> None:
    ended = children.start(only_cpu_and_why)
    check("outcome: passed" in ended.stdout, f"{ended.stdout}{ended.stderr[-1500:]}")
    check("1.24" in ended.stderr, f"the log does not say why: {ended.stderr[-1500:]}")


def only_cpu_and_why() -> None:
    informational = 1
    ort.set_default_logger_severity(informational)
    only_cpu()


def count_gpus(wanted: str) -> None:
    found = device.devices()
    check(len(found) == int(wanted) == emulated_gpu.device_count(), f"{len(found)} GPU devices")
    numbers = {gpu.memory_info(ort.OrtDeviceMemoryType.DEFAULT).device_id for gpu in found}
    check(len(numbers) == len(found), f"device ids {numbers}")


def only_cpu() -> None:
    check([found.device.type for found in provider.devices()] == [ort.OrtHardwareDeviceType.CPU], f"{provider.devices()}")
