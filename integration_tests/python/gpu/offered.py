"""The devices that the provider offers."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import onnxruntime as ort

import emulated_gpu
import provider
from gpu import children, device
from runner import check


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "one GPU of AMD with its memory", one_gpu
    yield "a GPU for each of HIP's devices", lambda: children.run(count_gpus, "3", HIPEMU_DEVICES="3")
    yield "without a GPU the CPU device, as on a machine without HIP", lambda: children.run(only_cpu, HIPEMU_DEVICES="0")


def one_gpu() -> None:
    found = device.devices()
    check(len(found) == 1, f"{len(found)} GPU devices")
    check(found[0].device.vendor_id == device.AMD, f"vendor {found[0].device.vendor_id:#x}")
    metadata = dict(found[0].ep_metadata)
    check(any("gfx1100" in value for value in metadata.values()), f"no architecture in {metadata}")
    memory = found[0].memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    check(memory is not None and memory.device_vendor_id == device.AMD, f"{memory}")
    pinned = found[0].memory_info(ort.OrtDeviceMemoryType.HOST_ACCESSIBLE)
    check(pinned is not None and pinned.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE, f"{pinned}")


def count_gpus(wanted: str) -> None:
    found = device.devices()
    check(len(found) == int(wanted) == emulated_gpu.device_count(), f"{len(found)} GPU devices")
    numbers = {gpu.memory_info(ort.OrtDeviceMemoryType.DEFAULT).device_id for gpu in found}
    check(len(numbers) == len(found), f"device ids {numbers}")


def only_cpu() -> None:
    check([found.device.type for found in provider.devices()] == [ort.OrtHardwareDeviceType.CPU], f"{provider.devices()}")
