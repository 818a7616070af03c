"""Small models and networks on the device, held against double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

import emulated_gpu
import models
import provider
from gpu import children, device, networks
from runner import Failure, Skip, check

LATE_US = 300


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "Conv", lambda: whole(networks.single([1, 3, 8, 8]), [1, 3, 8, 8])
    yield "Conv, Asinh on the CPU provider, Conv", lambda: interrupted()
    yield "the same, registered as foo", lambda: children.run(registered_as_foo)
    yield "what is not worth its copies stays with the CPU provider", cost_rule
    yield "several outputs", lambda: whole(networks.three_outputs(), [1, 3, 10, 10])
    yield "free extents", free_extents
    yield "free extents at which a slice of whole numbers is empty, or a copy", free_extents_of_whole_numbers
    yield "free extents on both sides of a node of the CPU provider", free_extents_interrupted
    yield "an empty batch", empty_batch
    yield "a ResNet-like network", lambda: whole(networks.resnet_like([1, 3, 32, 32]), [1, 3, 32, 32])
    yield "a MobileNet-like network", lambda: whole(networks.mobilenet_like([1, 3, 32, 32]), [1, 3, 32, 32])
    yield "the orientation model at 64 × 64", lambda: orientation(cache)
    yield "a ResNet-like network, another batch and size at each run", resnet_sizes
    yield "the same with streams that run late", late_streams
    for last in (False, True):
        yield f"a chain of convolutions copies no tensor into another layout between, channels {'last' if last else 'first'} outside", lambda last=last: layouts(last)


def whole(model: bytes, shape: list[int]) -> None:
    """The model is one program, whose runs copy the input in, the outputs out and nothing else."""
    session = device.session(model)
    device.claimed(session)
    check(device.programs(session) == 1, f"{device.programs(session)} programs: {session.claims}")
    agree(session, model, shape)
    feeds = networks.images(shape, seed=3)
    got: list[Any] = []
    spent = device.used(lambda: got.extend(session.run(feeds)))
    check(spent["launches"] > 0, f"nothing ran on the device: {spent}")
    check(spent["copies"] <= len(feeds) + len(got), f"{len(feeds)} inputs and {len(got)} outputs were copied in {spent['copies']} copies")


def layouts(channels_last: bool) -> None:
    length = 4
    model = networks.chain(length, channels_last)
    feeds = networks.images([1, 12, 12, 8] if channels_last else [1, 8, 12, 12])
    wanted = networks.expected(model, feeds)
    session = device.session(model)
    device.claimed(session)
    check(device.programs(session) == 1, f"{device.programs(session)} programs")
    for _ in range(2):
        wanted.meets(session.run(feeds))
    with emulated_gpu.traced() as trace:
        wanted.meets(session.run(feeds))
    kernels = [line["kernel"] for line in trace.work("kernel")]
    convolutions = [index for index, name in enumerate(kernels) if "conv" in name.lower()]
    check(len(convolutions) == length, f"{kernels}")
    # Between two convolutions there is one kernel, of bias and activation.
    gaps = [after - before for before, after in zip(convolutions, convolutions[1:])]
    check(set(gaps) == {2}, f"{kernels}")
    # Outside at most one for each of the transpositions that the model has.
    outside = len(kernels) - 2 * length
    check(outside <= (2 if channels_last else 0), f"{outside} kernels beside convolutions and activations: {kernels}")


def agree(session: provider.Session, model: bytes, *shapes: list[int]) -> None:
    """Each shape twice with other values, since a program of an earlier one must serve again."""
    for turn, shape in enumerate([*shapes, *shapes], 1):
        feeds = networks.images(shape, seed=turn)
        try:
            networks.expected(model, feeds).meets(session.run(feeds))
        except Failure as problem:
            raise Failure(f"run {turn}, input {shape}: {problem}") from None


def interrupted() -> None:
    model = networks.interrupted([1, 3, 10, 10])
    session = device.session(model)
    device.claimed(session, left=("Asinh",))
    agree(session, model, [1, 3, 10, 10])


def cost_rule() -> None:
    model = networks.interrupted([1, 3, 10, 10])
    session = device.session(model, cost_rule="1")
    reasons = {claim.op: claim.reason or "" for claim in session.claims}
    check("by the cost rule" in reasons["Conv"] and "copies of" in reasons["Conv"], f"{reasons}")
    agree(session, model, [1, 3, 10, 10])
    # Without a node of another provider there is nothing to copy.
    device.claimed(device.session(networks.single([1, 3, 10, 10]), cost_rule="1"))


def registered_as_foo() -> None:
    """ONNX Runtime knows nodes by the provider's name, and other things by the one that an application gave at registration."""
    provider.REGISTRATION = "foo"
    interrupted()


def free_extents() -> None:
    model = networks.single(["n", 3, "h", "w"])
    session = device.session(model)
    device.claimed(session)
    agree(session, model, [1, 3, 8, 8], [2, 3, 5, 9], [1, 3, 3, 3])


def free_extents_of_whole_numbers() -> None:
    """Nodes are tried at two sizes: behind 70 elements there is nothing of 64 and something of 96, which an engine is asked about, too."""
    for kind, mine in ((np.int32, True), (np.int64, False)):
        model = networks.behind(70, kind)
        session = device.session(model)
        check(all(claim.reason is None for claim in session.claims) == mine, f"{kind.__name__}: {session.claims}")
        for extents in ((2, 60), (3, 80), (1, 70), (4, 96)):
            x = np.arange(np.prod(extents), dtype=kind).reshape(extents) - 2**31 // 3
            [got] = session.run({"x": x})
            wanted = x[:, 70:]
            check(got.dtype == wanted.dtype and np.array_equal(got, wanted), f"{kind.__name__} of {extents}: got {got}, expected {wanted}")


def free_extents_interrupted() -> None:
    model = networks.interrupted(["n", 3, "h", "w"])
    session = device.session(model)
    device.claimed(session, left=("Asinh",))
    agree(session, model, [1, 3, 10, 10], [3, 3, 6, 7])


def empty_batch() -> None:
    model = networks.single(["n", 3, 8, 8])
    session = device.session(model)
    for count in (0, 2, 0):
        got = session.run(networks.images([count, 3, 8, 8]))
        check(got[0].shape == (count, 6, 8, 8), f"{got[0].shape}")
    agree(session, model, [1, 3, 8, 8])


def orientation(cache: Path) -> None:
    try:
        model = networks.orientation(cache)
    except models.FetchError as problem:
        raise Skip(str(problem)) from None
    whole(model, [1, 3, 64, 64])


def resnet_sizes() -> None:
    model = networks.resnet_like(["n", 3, "h", "w"])
    session = device.session(model)
    agree(session, model, [1, 3, 32, 32], [2, 3, 24, 40])


def late_streams() -> None:
    model = networks.resnet_like([1, 3, 32, 32])
    session = device.session(model)
    for seed in range(1, 4):
        with emulated_gpu.delays(LATE_US, seed):
            agree(session, model, [1, 3, 32, 32])
