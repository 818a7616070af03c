"""Convolution in double precision by plain loops over the taps, and how far rounding may take a result from it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Unit roundoff of each element type: half of the distance from 1 to the next number.
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Half of the smallest positive number: what rounding costs where numbers are too small to have all their digits.
UNDERFLOW = {"float32": 2.0**-150, "float16": 2.0**-25, "bfloat16": 2.0**-134}


@dataclass
class Geometry:
    """The attributes of a Conv node; lists are per spatial dimension, `pads` as ONNX writes them (all begins, all ends)."""

    strides: list[int] | None = None
    dilations: list[int] | None = None
    pads: list[int] | None = None
    group: int = 1
    auto_pad: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def attributes(self) -> dict[str, Any]:
        named = {"strides": self.strides, "dilations": self.dilations, "pads": self.pads, "auto_pad": self.auto_pad}
        chosen = {name: value for name, value in named.items() if value is not None}
        if self.group != 1:
            chosen["group"] = self.group
        return chosen | self.extra

    def padding(self, image: tuple[int, ...], window: tuple[int, ...]) -> list[tuple[int, int]]:
        strides, dilations = self.strides or [1] * len(image), self.dilations or [1] * len(image)
        if self.auto_pad in (None, "NOTSET"):
            pads = self.pads or [0] * (2 * len(image))
            return list(zip(pads[:len(image)], pads[len(image):]))
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(image)
        padding = []
        for extent, taps, stride, dilation in zip(image, window, strides, dilations):
            # The output has ceil(extent / stride) positions; the odd row goes to the end, or to the beginning for LOWER.
            total = max(0, (-(-extent // stride) - 1) * stride + dilation * (taps - 1) + 1 - extent)
            small, large = total // 2, total - total // 2
            padding.append((large, small) if self.auto_pad == "SAME_LOWER" else (small, large))
        return padding


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """The exact result, to double precision, and the sum of the magnitudes of everything that was added up."""
    spatial = x.ndim - 2
    strides, dilations = geometry.strides or [1] * spatial, geometry.dilations or [1] * spatial
    padding = geometry.padding(x.shape[2:], w.shape[2:])
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *padding])
    weights = w.astype(np.float64)
    extents = [(padded.shape[2 + axis] - dilations[axis] * (w.shape[2 + axis] - 1) - 1) // strides[axis] + 1 for axis in range(spatial)]
    groups, filters = geometry.group, w.shape[0]
    shape = (x.shape[0], groups, filters // groups, *extents)
    total, magnitude = np.zeros(shape), np.zeros(shape)
    grouped = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    weights = weights.reshape(groups, filters // groups, w.shape[1], *w.shape[2:])
    for tap in itertools.product(*map(range, w.shape[2:])):
        window = tuple(slice(tap[axis] * dilations[axis], tap[axis] * dilations[axis] + (extents[axis] - 1) * strides[axis] + 1, strides[axis])
                       for axis in range(spatial))
        seen = grouped[(slice(None),) * 3 + window]
        factor = weights[(slice(None),) * 3 + tap]
        total += np.einsum("ngc...,gkc->ngk...", seen, factor)
        magnitude += np.einsum("ngc...,gkc->ngk...", np.abs(seen), np.abs(factor))
    if b is not None:
        bias = b.astype(np.float64).reshape(groups, -1, *[1] * spatial)
        total, magnitude = total + bias, magnitude + np.abs(bias)
    full = (x.shape[0], filters, *extents)
    return total.reshape(full), magnitude.reshape(full)


def bound(total: np.ndarray, magnitude: np.ndarray, w: np.ndarray, element_type: str) -> np.ndarray:
    """How far a convolution that accumulates in fp32 may be from the exact one.

    Summing n products in any order is off by at most (n + 1) u Σ|products| to first order, u being fp32's roundoff (Higham,
    Accuracy and Stability of Numerical Algorithms, 3.1); twice that covers the second order and the bias. A square window
    of three taps or more may be computed by Winograd's algorithm, whose transforms cost a further small factor. The result is
    rounded once more to its own type.
    """
    terms = int(np.prod(w.shape[1:])) + 1
    is_square = w.ndim == 4 and w.shape[2] == w.shape[3] >= 3
    winograd = 16 if element_type == "float32" and is_square else 1
    accumulation = 2 * winograd * (terms + 1) * ROUNDOFF["float32"] * magnitude
    return accumulation + 1.01 * ROUNDOFF[element_type] * np.abs(total) + UNDERFLOW[element_type] + 1e-37
