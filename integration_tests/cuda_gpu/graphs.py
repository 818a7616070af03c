"""The graphs of the benchmark: each as the engine gets it, and the same work in PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import hipdnn_rs
import torch
import torch.nn.functional as F

IMAGE = (32, 64, 56, 56)
CHANNELS = (1, 64, 1, 1)
DEEP = (32, 256, 28, 28)
LAST = "channels_last"


@dataclass
class Case:
    """A graph: inputs are named `x`, `a`, `b`, …, and what is compared is called `y`."""

    name: str
    build: Callable[[hipdnn_rs.Graph], None]
    torch: Callable[..., torch.Tensor]
    # How often the best known algorithm must move each byte, and why it is not once.
    passes: float = 1.0
    why: str = ""


CASES: list[Case] = []


def case(name: str, reference: Callable[..., torch.Tensor], passes: float = 1.0, why: str = "") -> Callable[[Callable[[hipdnn_rs.Graph], None]], None]:
    return lambda build: CASES.append(Case(name, build, reference, passes, why))


def layouts(dtype: str = "f16") -> list[tuple[str, str | None]]:
    return [(f"nchw_{dtype}", None), (f"nhwc_{dtype}", LAST)]


def gelu(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + a)


def _element_wise() -> None:
    for name, dtype in (("relu_f16", "half"), ("relu_f32", "float")):
        case(name, lambda x: torch.relu(x))(lambda g, dtype=dtype: put(g, g.relu(g.input("x", IMAGE, dtype))))
    case("add_relu_bf16", lambda x, a: torch.relu(x + a))(
        lambda g: put(g, g.relu(g.add(g.input("x", IMAGE, "bfloat16"), g.input("a", IMAGE, "bfloat16"), dtype="float"), dtype="bfloat16")))
    for layout, order in layouts():
        case(f"bias_gelu_{layout}", gelu)(lambda g, order=order: put(g, g.gelu(
            g.add(g.input("x", IMAGE, "half", layout=order), g.input("a", CHANNELS, "half"), dtype="float"), dtype="half")))
    case("bias_gelutanh_rows_f16", lambda x, a: F.gelu(x + a, approximate="tanh"))(lambda g: put(g, g.gelu(
        g.add(g.input("x", (8192, 4096), "half"), g.input("a", (1, 4096), "half"), dtype="float"), approximate=True, dtype="half")))
    for layout, order in reversed(layouts()):
        def epilogue(g: hipdnn_rs.Graph, order: str | None = order) -> None:
            x, rest = g.input("x", IMAGE, "half", layout=order), [g.input(name, CHANNELS, "float") for name in "ab"]
            scaled = g.add(g.multiply(x, rest[0], dtype="float"), rest[1])
            put(g, g.relu(g.add(scaled, g.input("c", IMAGE, "half", layout=order)), dtype="half"))
        case(f"conv_epilogue_{layout}", lambda x, a, b, c: torch.relu(x * a + b + c).half())(epilogue)
    for layout, order in layouts():
        def inference(g: hipdnn_rs.Graph, order: str | None = order) -> None:
            x, rest = g.input("x", IMAGE, "half", layout=order), [g.input(name, CHANNELS, "float") for name in "abcd"]
            put(g, g.batch_norm_apply(x, *rest))
        case(f"bn_inf_{layout}", lambda x, a, b, c, d: ((x - a) * b * c + d).half())(inference)
    case("cast_f32_f16", lambda x: x.half())(lambda g: put(g, g.identity(g.input("x", IMAGE, "float"), dtype="half")))


def _movement() -> None:
    for name, dtype in (("f16", "half"), ("f32", "float")):
        case(f"copy_nchw_to_nhwc_{name}", lambda x: x.contiguous(memory_format=torch.channels_last))(
            lambda g, dtype=dtype: put(g, g.identity(g.input("x", IMAGE, dtype)), layout=LAST))
    case("copy_nhwc_to_nchw_f16", lambda x: x.contiguous())(
        lambda g: put(g, g.identity(g.input("x", IMAGE, "half", layout=LAST)), strides=packed(IMAGE)))
    case("transpose_8192_f16", lambda x: x.t().contiguous().t())(
        lambda g: put(g, g.identity(g.input("x", (8192, 8192), "half")), strides=(1, 8192)))


def _norms() -> None:
    for name, shape, dtype in (("f16_8192x4096", (8192, 4096), "half"), ("f16_8192x768", (8192, 768), "half"), ("f32_8192x4096", (8192, 4096), "float")):
        def training(g: hipdnn_rs.Graph, shape: Sequence[int] = shape, dtype: str = dtype) -> None:
            y, mean, inverse = g.layer_norm_training(g.input("x", shape, dtype), g.input("a", (1, shape[1]), "float"), g.input("b", (1, shape[1]), "float"))
            put(g, y)
            g.output(mean, "mean"), g.output(inverse, "inverse")
        case(f"layernorm_{name}", lambda x, a, b: F.layer_norm(x, x.shape[1:], a[0].to(x.dtype), b[0].to(x.dtype), 1e-5))(training)
    case("layernorm_inf_f16_8192x768", lambda x, a, b: F.layer_norm(x, x.shape[1:], a[0], b[0], 1e-5))(lambda g: put(g, g.layer_norm(
        g.input("x", (8192, 768), "half"), g.input("a", (1, 768), "half"), g.input("b", (1, 768), "half"))))
    case("rmsnorm_bf16_8192x4096", lambda x, a: F.rms_norm(x, x.shape[1:], a[0], 1e-5))(
        lambda g: put(g, g.rms_norm(g.input("x", (8192, 4096), "bfloat16"), g.input("a", (1, 4096), "bfloat16"))))
    more = [(f"bn_train_{layout}", DEEP, order, 1.0, "") for layout, order in layouts()]
    more.append(("bn_train_nchw_big_f16", (64, 64, 112, 112), None, 1.5, "x twice: a channel leaves the caches"))
    for name, shape, order, passes, why in more:
        def batch(g: hipdnn_rs.Graph, shape: Sequence[int] = shape, order: str | None = order) -> None:
            channels = (1, shape[1], 1, 1)
            x = g.input("x", shape, "half", layout=order)
            y, mean, inverse = g.batch_norm(x, g.input("a", channels, "float"), g.input("b", channels, "float"))
            put(g, y)
            g.output(mean, "mean"), g.output(inverse, "inverse")
        case(name, lambda x, a, b: F.batch_norm(x, None, None, a.flatten(), b.flatten(), True, 0.1, 1e-5), passes, why)(batch)


def _reductions() -> None:
    for rows, columns in ((8192, 1024), (8192, 128000), (16, 128000)):
        passes = 1.5 if rows * columns > 1 << 28 else 1.0
        case(f"softmax_f16_{rows}x{columns}", lambda x: torch.softmax(x, 1), passes, "x twice: a row leaves the registers" if passes > 1 else "")(
            lambda g, shape=(rows, columns): put(g, spelled_softmax(g, g.input("x", shape, "half"))))
    rows = (8192, 4096)
    for name, axis, dtype in (("rows_f16", 1, "half"), ("cols_f16", 0, "half"), ("all_f16", None, "half"), ("all_f32", None, "float")):
        case(f"sum_{name}", lambda x, axis=axis: x.sum((0, 1) if axis is None else axis, keepdim=True))(
            lambda g, axis=axis, dtype=dtype: put(g, g.sum(g.input("x", rows, dtype), axis)))
    case("max_rows_f16", lambda x: x.amax(1, keepdim=True))(lambda g: put(g, g.max(g.input("x", rows, "half"), 1)))
    for layout, order in layouts():
        case(f"bias_grad_{layout}", lambda x: x.sum((0, 2, 3), keepdim=True, dtype=torch.float32))(
            lambda g, order=order: put(g, g.sum(g.input("x", DEEP, "half", layout=order), (0, 2, 3), dtype="float")))
    def variance(g: hipdnn_rs.Graph) -> None:
        x = g.input("x", rows, "half")
        difference = g.subtract(x, g.mean(x, 1, dtype="float"), dtype="float")
        put(g, g.mean(g.multiply(difference, difference), 1, dtype="float"))
    case("variance_f16_8192x4096", lambda x: torch.var(x, 1, correction=0, keepdim=True).float())(variance)
    for layout, order in layouts():
        case(f"maxpool_{layout}", lambda x: F.max_pool2d(x, 3, 2, 1))(
            lambda g, order=order: put(g, g.max_pool(g.input("x", (32, 64, 112, 112), "half", layout=order), 3, stride=2, padding=1)))
    for layout, order in layouts():
        case(f"gap_{layout}", lambda x: x.mean((2, 3), keepdim=True))(
            lambda g, order=order: put(g, g.mean(g.input("x", (32, 2048, 7, 7), "half", layout=order), (2, 3))))


def spelled_softmax(g: hipdnn_rs.Graph, x: Any) -> Any:
    """A softmax as its nodes: there is none for the whole."""
    e = g.exp(g.subtract(x, g.max(x, 1, dtype="float"), dtype="float"))
    return g.divide(e, g.sum(e, 1), dtype="half")


def packed(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


def put(g: hipdnn_rs.Graph, y: Any, **layout: Any) -> None:
    g.output(y, "y", **layout)


_element_wise()
_movement()
_norms()
_reductions()
