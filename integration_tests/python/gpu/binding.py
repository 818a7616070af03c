"""IO binding and OrtValues in device memory."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import onnxruntime as ort

from gpu import device, networks
from runner import Skip, check

SHAPE = [1, 3, 8, 8]
TYPES = (np.float32, np.float16, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_)


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "values of every type go to the device and back", round_trips
    yield "a value without elements", empty_value
    yield "copy_tensors in both directions and on the device", copies
    yield "a value is changed in place", changed_in_place
    yield "input and output in device memory: a run copies nothing", bound_to_device
    yield "an output that ONNX Runtime allocates on the device feeds the next run", chained
    yield "input on the device, output on the host, and the other way round", mixed
    yield "values passed without a binding", passed
    yield "bound memory with a CPU node between", bound_interrupted


def model() -> bytes:
    return networks.single(SHAPE)


def round_trips() -> None:
    rng = np.random.default_rng(5)
    for kind in TYPES:
        content = (rng.standard_normal((3, 5)) * 50).astype(kind)
        value = device.on_device(content)
        check(value.device_name().lower() != "cpu", f"the value is on {value.device_name()}")
        np.testing.assert_array_equal(value.numpy(), content)


def empty_value() -> None:
    check(device.on_device(np.zeros((0, 4), np.float32)).numpy().shape == (0, 4), "an empty value lost its shape")


def copies() -> None:
    if not hasattr(ort, "copy_tensors"):
        raise Skip(f"ONNX Runtime {ort.__version__} has no copy_tensors")
    content = np.random.default_rng(6).standard_normal((4, 7)).astype(np.float32)
    here, there, beyond = ort.OrtValue.ortvalue_from_numpy(content.copy()), device.empty_on_device((4, 7)), device.empty_on_device((4, 7))
    back = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(content))
    for source, target in ((here, there), (there, beyond), (beyond, back)):
        ort.copy_tensors([source], [target])
    np.testing.assert_array_equal(back.numpy(), content)


def changed_in_place() -> None:
    value = device.on_device(np.zeros((4, 7), np.float32))
    address, content = value.data_ptr(), np.random.default_rng(7).standard_normal((4, 7)).astype(np.float32)
    value.update_inplace(content)
    check(value.data_ptr() == address, "the value moved")
    np.testing.assert_array_equal(value.numpy(), content)


def bound_to_device() -> None:
    session, feeds = device.session(model()), networks.images(SHAPE)
    x, y = device.on_device(feeds["x"]), device.empty_on_device((1, 6, 8, 8))
    binding = device.bound(session, x, y)
    session.session.run_with_iobinding(binding)
    networks.expected(model(), feeds).meets([y.numpy()])
    feeds = networks.images(SHAPE, seed=2)
    x.update_inplace(feeds["x"])
    spent = device.used(lambda: session.session.run_with_iobinding(binding))
    check(spent["launches"] > 0 and spent["copies"] == 0, f"{spent}")
    networks.expected(model(), feeds).meets([y.numpy()])


def chained() -> None:
    b = networks.Build(36)
    chain = b.model({"x": SHAPE}, [b.conv("x", 3, 3, 3)])
    session, feeds = device.session(chain), networks.images(SHAPE)
    x = device.on_device(feeds["x"])
    for _ in range(2):
        binding = device.bound(session, x, device.empty_on_device(tuple(SHAPE)))
        session.session.run_with_iobinding(binding)
        x = binding.get_outputs()[0]
    once = networks.expected(chain, feeds).exact[0].astype(np.float32)
    twice = networks.expected(chain, {"x": once})
    # The second run starts from the rounded result of the first.
    got = x.numpy()
    check(float(np.abs(got - twice.exact[0]).max()) < 1e-4 * float(np.abs(got).max()), "two runs in a row are off")


def mixed() -> None:
    session, feeds = device.session(model()), networks.images(SHAPE)
    wanted = networks.expected(model(), feeds)
    host = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 6, 8, 8), np.float32))
    session.session.run_with_iobinding(device.bound(session, device.on_device(feeds["x"]), host))
    wanted.meets([host.numpy()])
    there = device.empty_on_device((1, 6, 8, 8))
    session.session.run_with_iobinding(device.bound(session, ort.OrtValue.ortvalue_from_numpy(feeds["x"]), there))
    wanted.meets([there.numpy()])


def passed() -> None:
    session, feeds = device.session(model()), networks.images(SHAPE)
    got = session.session.run_with_ort_values(None, {"x": device.on_device(feeds["x"])})
    networks.expected(model(), feeds).meets([value.numpy() for value in got])


def bound_interrupted() -> None:
    interrupted = networks.interrupted([1, 3, 10, 10])
    session, feeds = device.session(interrupted), networks.images([1, 3, 10, 10])
    y = device.empty_on_device((1, 4, 10, 10))
    session.session.run_with_iobinding(device.bound(session, device.on_device(feeds["x"]), y))
    networks.expected(interrupted, feeds).meets([y.numpy()])
