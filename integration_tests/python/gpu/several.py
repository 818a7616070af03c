"""Two devices in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import onnxruntime as ort

import emulated_gpu
from gpu import children, device, networks
from runner import at_once, check

SHAPE = [1, 3, 32, 32]


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in (two_sessions, values_on_each, between_devices, direct, staged):
        yield (name.__doc__ or "").rstrip("."), lambda name=name: children.run(name, HIPEMU_DEVICES="2")


def two_sessions() -> None:
    """two sessions on two devices at once."""
    model, feeds = networks.resnet_like(SHAPE), [networks.images(SHAPE, seed) for seed in (1, 2)]
    wanted = [networks.expected(model, feed) for feed in feeds]
    sessions = [device.session(model, index) for index in range(2)]

    def work(index: int) -> None:
        for _ in range(3):
            wanted[index].meets(sessions[index].run(feeds[index]))

    with emulated_gpu.delays(300):
        at_once(2, work)
    check(emulated_gpu.counters().violations == 0, f"{emulated_gpu.counters().violations} bad addresses")


def values_on_each() -> None:
    """values bound on the second device feed its session."""
    model, feeds = networks.single(SHAPE), networks.images(SHAPE)
    session = device.session(model, 1)
    y = device.empty_on_device((1, 6, 32, 32), index=1)
    binding = device.bound(session, device.on_device(feeds["x"], index=1), y)
    spent = device.used(lambda: session.session.run_with_iobinding(binding))
    check(spent["launches"] > 0, f"{spent}")
    networks.expected(model, feeds).meets([y.numpy()])


def between_devices() -> None:
    """values are copied from one device to the other, and feed sessions of the other."""
    content = networks.images(SHAPE)["x"]
    first, second = device.on_device(content, 0), device.empty_on_device(tuple(SHAPE), index=1)
    ort.copy_tensors([first], [second])
    np.testing.assert_array_equal(second.numpy(), content)
    model = networks.single(SHAPE)
    session = device.session(model, 1)
    got = session.session.run_with_ort_values(None, {"x": first})
    networks.expected(model, {"x": content}).meets([value.numpy() for value in got])


def across(first: ort.OrtValue, second: ort.OrtValue, *stream: object) -> None:
    """Copies a value to the other device and back, over what was changed meanwhile."""
    content = first.numpy()
    ort.copy_tensors([first], [second], *stream)
    if stream:
        emulated_gpu.call("hipDeviceSynchronize")
    first.update_inplace(np.zeros_like(content))
    ort.copy_tensors([second], [first])
    np.testing.assert_array_equal(first.numpy(), content)


def direct() -> None:
    """devices are let into each other's memory once, at the first copy, and reach it on either's stream."""
    content = networks.images(SHAPE)["x"]
    first, second = device.on_device(content, 0), device.empty_on_device(tuple(SHAPE), index=1)
    with emulated_gpu.delays(300), emulated_gpu.traced() as trace:
        for _ in range(3):
            across(first, second)
    opened = trace.calls("hipDeviceEnablePeerAccess")
    check(len(opened) == 2 and not any(line["result"] for line in opened), f"{opened}")
    for index in range(2):
        stream = device.device(index).create_sync_stream()
        with emulated_gpu.delays(300):
            emulated_gpu.call("hipSetDevice", index)
            across(first, second, stream)
    emulated_gpu.call("hipSetDevice", 0)
    check(emulated_gpu.counters().violations == 0, f"{emulated_gpu.counters().violations} bad addresses")


def staged() -> None:
    """devices that are not let into each other's memory copy all the same."""
    content = networks.images(SHAPE)["x"]
    first, second = device.on_device(content, 0), device.empty_on_device(tuple(SHAPE), index=1)
    for name in ("hipDeviceCanAccessPeer", "hipDeviceEnablePeerAccess"):
        before = emulated_gpu.counters().injected_failures
        with emulated_gpu.failing(name, 1):
            across(first, second)
        check(emulated_gpu.counters().injected_failures > before, f"{name} is not called")
