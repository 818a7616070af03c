"""Behind another provider that calls it in the order of AMD's umbrella provider (`c/umbrella.c`), on the device."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import onnxruntime as ort

import emulated_gpu
import provider
import suite_umbrella
from gpu import children, device, networks
from runner import Failure, check

SHAPE = [1, 3, 10, 10]
IMAGE = [1, 3, 32, 32]
LATE_US = 300
# The name that the application registers the umbrella under, and the umbrella's own.
REGISTRATION, NAME = "foo", "amdgpu"
SESSIONS = 5
# Calls that are made to fail once, each when it is first made.
FIRST_CALLS = ("hipGetDeviceCount", "hipGetDevicePropertiesR0600", "hipStreamCreateWithFlags", "hipMalloc", "hipModuleLoadData", "hipMemcpyAsync")


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "Conv", lambda: behind(convolution)
    yield "two Conv with a node of the CPU provider between", lambda: behind(interrupted)
    yield "the same where nobody says that runs begin and end", lambda: behind(interrupted, UMBRELLA_RUNS="hidden")
    yield "the same with free extents", lambda: behind(free_extents)
    yield "a ResNet-like network", lambda: behind(network, "resnet_like")
    yield "a MobileNet-like network", lambda: behind(network, "mobilenet_like")
    yield "the same on streams that run late", lambda: behind(late, "mobilenet_like")
    yield "sessions that come and go get the same allocators and leave nothing", lambda: behind(come_and_go)
    yield "a library that is unregistered leaves nothing, and is registered again", lambda: behind(registered_again)
    yield "a session says how much of its device's memory is free", lambda: behind(available)
    yield "HIP's current device is used", lambda: behind(second_device, "current", HIPEMU_DEVICES="2", UMBRELLA_DEVICE="1")
    yield "the device that an option names is used", lambda: behind(second_device, "option", HIPEMU_DEVICES="2", UMBRELLA_DEVICE="1")
    yield "without a device a session is an error or on the CPU provider", lambda: behind(without_device, HIPEMU_DEVICES="0")
    yield "a library that could not be loaded is loaded once it is there", lambda: behind(library_appears, UMBRELLA_BACKEND="/nowhere/libnothing.so")
    yield "a backend that was not found is no lasting failure", lambda: behind(backend_appears)
    for name in FIRST_CALLS:
        yield f"{name} that fails at first is no lasting failure", lambda name=name: behind(fails_at_first, name)


@functools.cache
def scratch() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="umbrella-")


def behind(function: Callable[..., None], *arguments: str, **environment: str) -> None:
    library = suite_umbrella.compiled("umbrella.c", Path(scratch().name) / "libumbrella.so")
    settings = {"UMBRELLA_BACKEND": suite_umbrella.inner(), "UMBRELLA_MEMORY": "device", "UMBRELLA_NAME": NAME}
    children.run(function, str(library), *arguments, **settings | environment)


# ---- within a process that has it ----


class Umbrella:
    """The umbrella, registered."""

    def __init__(self, library: str) -> None:
        self.library = library
        ort.register_execution_provider_library(REGISTRATION, library)

    def log(self) -> list[str]:
        """What it was asked and what the inner provider answered, since the process began."""
        said = ctypes.CDLL(self.library).umbrella_log
        said.restype = ctypes.c_char_p
        return said().decode().splitlines()

    def session(self, model: bytes, **settings: str) -> ort.InferenceSession:
        """A session on it, with the CPU provider behind; keywords are the inner provider's options."""
        chosen = provider.options()
        chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        # Networks of tests are too small to be worth a copy.
        chosen.add_session_config_entry(f"ep.{provider.NAME.lower()}.cost_rule", "0")
        for key, value in settings.items():
            chosen.add_session_config_entry(f"ep.{provider.NAME.lower()}.{key}", value)
        chosen.add_provider_for_devices([found for found in ort.get_ep_devices() if found.ep_name == NAME], {})
        return ort.InferenceSession(model, chosen, enable_fallback=0)

    def unregister(self) -> None:
        gc.collect()
        ort.unregister_execution_provider_library(REGISTRATION)


def claimed(session: ort.InferenceSession, left: tuple[str, ...] = (), open_: tuple[str, ...] = ()) -> None:
    """Every node is behind the umbrella but for those of the operators in `left`, and whatever becomes of those in `open_`."""
    shares: dict[str, list[str]] = {}
    for share in session.get_provider_graph_assignment_info():
        shares.setdefault(share.ep_name, []).extend(node.op_type for node in share.get_nodes())
    mine = shares.pop(NAME, [])
    elsewhere = sorted({name for names in shares.values() for name in names} - {"Constant", *open_})
    check(bool(mine) and elsewhere == sorted(left), f"expected all but {list(left)} behind the umbrella, got {mine} there, {elsewhere} elsewhere")


def right(session: ort.InferenceSession, model: bytes, *shapes: list[int]) -> None:
    """Runs give what they are to give, and kernels ran for it. Each shape twice, since a program of an earlier one must serve again."""
    for turn, shape in enumerate([*shapes, *shapes], 1):
        feeds = networks.images(shape, seed=turn)
        got: list[Any] = []
        spent = device.used(lambda: got.extend(session.run(None, feeds)))
        try:
            networks.expected(model, feeds).meets(got)
        except Failure as problem:
            raise Failure(f"run {turn}, input {shape}: {problem}") from None
        check(spent["launches"] > 0, f"nothing ran on the device: {spent}")


def refused(body: Callable[[], Any]) -> None:
    """The body is an error of ONNX Runtime's that says something."""
    try:
        body()
    except Exception as problem:
        check(device.is_error_of_runtime(problem), f"{type(problem)}: {problem}")
        check(len(str(problem)) > 20, f"the error says only {problem}")
    else:
        raise Failure("expected an error, got none")


def available(library: str) -> None:
    umbrella = Umbrella(library)
    said = ctypes.CDLL(library).umbrella_available
    said.restype = ctypes.c_longlong
    check(said() == -1, "there is a session")
    session = umbrella.session(networks.single(SHAPE))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for taken in (0, 64 << 20):
        with emulated_gpu.Memory(taken) if taken else contextlib.nullcontext():
            emulated_gpu.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
            check(0 < free.value < total.value and said() == free.value, f"expected {free.value} of {total.value} bytes, got {said()}")
    del session


def convolution(library: str) -> None:
    umbrella, model = Umbrella(library), networks.single(SHAPE)
    session = umbrella.session(model)
    claimed(session)
    right(session, model, SHAPE)
    log = umbrella.log()
    for wanted in ("allocator default: given", "allocator pinned: given", "data transfer: given", "kernels: given"):
        check(any(line.startswith(wanted) for line in log), f"expected {wanted!r}, got {log}")


def interrupted(library: str) -> None:
    umbrella, model = Umbrella(library), networks.interrupted(SHAPE)
    session = umbrella.session(model)
    claimed(session, left=("Asinh",))
    right(session, model, SHAPE)
    check(emulated_gpu.counters().violations == 0, f"{emulated_gpu.counters().violations} bad addresses")


def free_extents(library: str) -> None:
    umbrella, model = Umbrella(library), networks.interrupted(["n", 3, "h", "w"])
    session = umbrella.session(model)
    claimed(session, left=("Asinh",))
    right(session, model, SHAPE, [2, 3, 6, 7])


def network(library: str, name: str) -> None:
    umbrella, model = Umbrella(library), getattr(networks, name)(IMAGE)
    session = umbrella.session(model)
    # Who has the classifier's matrix product is asked without an umbrella.
    claimed(session, open_=("Gemm", "MatMul"))
    right(session, model, IMAGE)


def late(library: str, name: str) -> None:
    with emulated_gpu.delays(LATE_US, 5):
        network(library, name)


def come_and_go(library: str) -> None:
    umbrella, model = Umbrella(library), networks.interrupted(SHAPE)
    living: list[dict[str, int]] = []
    for _ in range(SESSIONS):
        session = umbrella.session(model)
        right(session, model, SHAPE)
        del session
        gc.collect()
        living.append(emulated_gpu.counters().living())
    check(living[1] == living[-1], f"{living[1]} became {living[-1]}")
    both = [umbrella.session(model), umbrella.session(networks.single(SHAPE))]
    right(both[1], networks.single(SHAPE), SHAPE)
    right(both[0], model, SHAPE)
    for asked in ("allocator default", "allocator pinned", "data transfer"):
        new = [line for line in umbrella.log() if line == f"{asked}: given"]
        check(len(new) == 1, f"{asked} was made {len(new)} times, and nobody releases it")


def registered_again(library: str) -> None:
    model = networks.interrupted(SHAPE)
    before = emulated_gpu.counters().living()
    after = []
    for _ in range(3):
        umbrella = Umbrella(library)
        session = umbrella.session(model)
        right(session, model, SHAPE)
        del session
        umbrella.unregister()
        after.append(emulated_gpu.counters().living())
    for name in ("live_streams", "live_events", "live_allocations", "live_host_allocations"):
        check(after[-1][name] == after[0][name], f"{name} became {[now[name] for now in after]}")
    check(after[-1]["live_bytes"] == before["live_bytes"], f"{after[-1]['live_bytes'] - before['live_bytes']} bytes of the device are kept")


def used_memory(index: int) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    emulated_gpu.call("hipSetDevice", index)
    emulated_gpu.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def second_device(library: str, how: str) -> None:
    umbrella, model = Umbrella(library), networks.interrupted(SHAPE)
    emulated_gpu.call("hipSetDevice", 1 if how == "current" else 0)
    session = umbrella.session(model, **({} if how == "current" else {"device_id": "1"}))
    claimed(session, left=("Asinh",))
    emulated_gpu.call("hipSetDevice", 0)
    right(session, model, SHAPE)
    first, second = used_memory(0), used_memory(1)
    check(first == 0 and second > 0, f"{first} bytes of the first device are in use, {second} of the second")


def without_device(library: str) -> None:
    umbrella, model, feeds = Umbrella(library), networks.single(SHAPE), networks.images(SHAPE)
    device.right_or_clear(lambda: networks.expected(model, feeds).meets(umbrella.session(model).run(None, feeds)))
    networks.expected(model, feeds).meets(provider.cpu_session(model).run(None, feeds))
    umbrella.unregister()


def library_appears(library: str) -> None:
    refused(lambda: ort.register_execution_provider_library(REGISTRATION, library))
    os.environ["UMBRELLA_BACKEND"] = suite_umbrella.inner()
    convolution(library)


def backend_appears(library: str) -> None:
    umbrella, model = Umbrella(library), networks.interrupted(SHAPE)
    refused(lambda: umbrella.session(model, backend="/nowhere/libnothing.so"))
    session = umbrella.session(model)
    claimed(session, left=("Asinh",))
    right(session, model, SHAPE)


def fails_at_first(library: str, function: str) -> None:
    """From the first call on: whatever asks first, be it registration, a session or a run, gets an error or a right result."""
    model, feeds = networks.interrupted(SHAPE), networks.images(SHAPE)
    umbrella: Umbrella | None = None

    def whole_way() -> None:
        nonlocal umbrella
        umbrella = Umbrella(library)
        networks.expected(model, feeds).meets(umbrella.session(model).run(None, feeds))

    with emulated_gpu.failing(function, 1):
        device.right_or_clear(whole_way)
    check(emulated_gpu.counters().injected_failures == 1, f"{function} is not called")
    gc.collect()
    umbrella = umbrella or Umbrella(library)
    session = umbrella.session(model)
    claimed(session, left=("Asinh",))
    right(session, model, SHAPE)
