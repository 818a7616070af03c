"""Two devices in one process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import onnxruntime as ort

import emulated_gpu
from gpu import children, device, networks
from runner import check

SHAPE = [1, 3, 32, 32]


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in (two_sessions, values_on_each, between_devices):
        yield (name.__doc__ or "").rstrip("."), lambda name=name: children.run(name, HIPEMU_DEVICES="2")


def two_sessions() -> None:
    """two sessions on two devices at once."""
    model, feeds = networks.resnet_like(SHAPE), [networks.images(SHAPE, seed) for seed in (1, 2)]
    wanted = [networks.expected(model, feed) for feed in feeds]
    sessions = [device.session(model, index) for index in range(2)]
    problems: list[str] = []

    def work(index: int) -> None:
        try:
            for _ in range(3):
                wanted[index].meets(sessions[index].run(feeds[index]))
        except Exception as problem:
            problems.append(f"device {index}: {problem}")

    with emulated_gpu.delays(300):
        workers = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    check(not problems, "; ".join(problems))
    check(emulated_gpu.counters().violations == 0, f"{emulated_gpu.counters().violations} bad addresses")


def values_on_each() -> None:
    """values bound on the second device feed its session."""
    model, feeds = networks.single(SHAPE), networks.images(SHAPE)
    session = device.session(model, 1)
    y = device.empty_on_device((1, 6, 32, 32), index=1)
    binding = session.session.io_binding()
    binding.bind_ortvalue_input("x", device.on_device(feeds["x"], index=1))
    binding.bind_ortvalue_output(session.session.get_outputs()[0].name, y)
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
