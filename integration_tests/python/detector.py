"""Text detection around the PP-OCRv4 model: a picture in, quadrilaterals of the words and lines out.

The model is a DBNet: it answers one probability per pixel, shrunk towards the middle of each text line. Boxes come from
the connected regions above a threshold, each wrapped in its smallest rectangle and grown back by the amount that the
training labels were shrunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.6
UNCLIP_RATIO = 1.6
SHORTEST_SIDE = 736
LONGEST_SIDE = 1920
MULTIPLE = 32
MINIMUM_SIDE = 3.0

# The color statistics that the detector was trained with, in its channel order blue, green, red.
MEAN = np.array([0.406, 0.456, 0.485], np.float32)
DEVIATION = np.array([0.225, 0.224, 0.229], np.float32)


@dataclass
class Box:
    """Four corners in picture coordinates, clockwise from the upper left, and the mean probability inside."""

    corners: np.ndarray
    score: float


def load(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def preprocess(picture: Image.Image) -> np.ndarray:
    """The network's input [1, 3, H, W], with both sides scaled to multiples of 32."""
    width, height = picture.size
    ratio = max(1.0, SHORTEST_SIDE / min(width, height))
    ratio = min(ratio, LONGEST_SIDE / max(width, height))
    sides = [max(MULTIPLE, round(side * ratio / MULTIPLE) * MULTIPLE) for side in (width, height)]
    scaled = np.asarray(picture.resize(tuple(sides), Image.Resampling.BILINEAR), np.float32)
    normal = (scaled[:, :, ::-1] / 255.0 - MEAN) / DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)


def boxes(probability: np.ndarray, picture_size: tuple[int, int]) -> list[Box]:
    """Boxes in reading order from the network's output [1, 1, H, W]."""
    plane = np.asarray(probability, np.float32).reshape(probability.shape[-2:])
    scale = np.array([picture_size[0] / plane.shape[1], picture_size[1] / plane.shape[0]])
    found = []
    for runs in components(plane > PIXEL_THRESHOLD):
        # The mean over the region itself: a rectangle around a curved line holds much background.
        score = sum(float(plane[y, start:stop].sum()) for y, start, stop in runs) / sum(stop - start for _, start, stop in runs)
        if score < BOX_THRESHOLD:
            continue
        ends = [(x, y) for y, start, stop in runs for x in (start, stop - 1)]
        rectangle = smallest_rectangle(hull(np.array(ends, np.float64)))
        if rectangle is None or min(rectangle.sides) < MINIMUM_SIDE:
            continue
        # Growing by area × ratio / perimeter undoes the shrinking of the training labels.
        area, perimeter = rectangle.sides[0] * rectangle.sides[1], 2 * sum(rectangle.sides)
        corners = rectangle.grown(area * UNCLIP_RATIO / perimeter).corners() * scale
        found.append(Box(np.clip(corners, 0, np.array(picture_size) - 1), float(score)))
    # Lines whose tops lie within half a line of each other are read from left to right.
    found.sort(key=lambda box: (round(box.corners[0, 1] / 10), box.corners[0, 0]))
    return found


def components(mask: np.ndarray) -> list[list[tuple[int, int, int]]]:
    """The 8-connected regions of `mask`, each as its horizontal runs (y, start, stop) with `stop` just past the end."""
    parent: list[int] = []

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = parent[parent[label]]
            label = parent[label]
        return label

    runs: list[tuple[int, int, int]] = []
    above: list[int] = []
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    for y, row in enumerate(edges):
        here = []
        first = 0
        for start, stop in zip(np.flatnonzero(row == 1).tolist(), np.flatnonzero(row == -1).tolist()):
            label = len(parent)
            parent.append(label)
            runs.append((y, start, stop))
            here.append(label)
            # Runs of the row above are ordered: those that end before this one begins can't touch a later one either.
            while first < len(above) and runs[above[first]][2] < start:
                first += 1
            for other in above[first:]:
                if runs[other][1] > stop:
                    break
                parent[root(label)] = root(other)
        above = here
    regions: dict[int, list[tuple[int, int, int]]] = {}
    for label, run in enumerate(runs):
        regions.setdefault(root(label), []).append(run)
    return list(regions.values())


def hull(points: np.ndarray) -> np.ndarray:
    """The convex hull, counter-clockwise (Andrew's monotone chain)."""
    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered

    def chain(sequence: np.ndarray) -> list[np.ndarray]:
        kept: list[np.ndarray] = []
        for point in sequence:
            while len(kept) > 1 and cross(kept[-1] - kept[-2], point - kept[-1]) <= 0:
                kept.pop()
            kept.append(point)
        return kept[:-1]

    return np.array(chain(ordered) + chain(ordered[::-1]))


def cross(a: np.ndarray, b: np.ndarray) -> float:
    return float(a[0] * b[1] - a[1] * b[0])


@dataclass
class Rectangle:
    """A rectangle of any direction: `along` is the unit vector of its first side."""

    center: np.ndarray
    along: np.ndarray
    sides: tuple[float, float]

    def grown(self, distance: float) -> "Rectangle":
        return Rectangle(self.center, self.along, (self.sides[0] + 2 * distance, self.sides[1] + 2 * distance))

    def corners(self) -> np.ndarray:
        across = np.array([-self.along[1], self.along[0]])
        a, b = self.along * self.sides[0] / 2, across * self.sides[1] / 2
        corners = np.array([self.center - a - b, self.center + a - b, self.center + a + b, self.center - a + b])
        # Clockwise (y grows downwards) by angle around the center, starting at the corner nearest to the upper left.
        angles = np.arctan2(*(corners - self.center).T[::-1])
        corners = corners[np.argsort(angles)]
        return np.roll(corners, -int(np.argmin(corners.sum(axis=1))), axis=0)


def smallest_rectangle(polygon: np.ndarray) -> Rectangle | None:
    """The rectangle of least area around a convex polygon: one of its sides lies on a side of the polygon."""
    if len(polygon) < 3:
        return None
    best: Rectangle | None = None
    for edge in np.roll(polygon, -1, axis=0) - polygon:
        length = math.hypot(*edge)
        if length == 0:
            continue
        along = edge / length
        axes = np.array([along, [-along[1], along[0]]])
        projected = polygon @ axes.T
        low, high = projected.min(axis=0), projected.max(axis=0)
        sides = (float(high[0] - low[0]), float(high[1] - low[1]))
        if best is None or sides[0] * sides[1] < best.sides[0] * best.sides[1] - 1e-9:
            best = Rectangle((low + high) / 2 @ axes, along, sides)
    return best


def largest_shift(ours: list[Box], theirs: list[Box]) -> float:
    """How far, in pixels of the picture, any corner of one list lies from its like in the other; infinite if a box has none.

    Boxes are paired by their centers, so that an order that hangs on the last bit of a coordinate makes no difference.
    """
    if len(ours) != len(theirs):
        return math.inf
    remaining = list(theirs)
    worst = 0.0
    for box in ours:
        center = box.corners.mean(axis=0)
        nearest = min(range(len(remaining)), key=lambda index: float(np.abs(remaining[index].corners.mean(axis=0) - center).sum()))
        other = remaining.pop(nearest)
        turns = [float(np.abs(np.roll(other.corners, turn, axis=0) - box.corners).max()) for turn in range(4)]
        worst = max(worst, min(turns))
    return worst


def draw(picture: Image.Image, ours: list[Box], target: Path) -> None:
    """Writes the picture with the boxes as a PNG, enlarged when it is small so that the outlines don't hide the words."""
    factor = max(1, round(1400 / max(picture.size)))
    canvas = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(canvas)
    width = max(2, canvas.width // 500)
    for box in ours:
        outline = [tuple(point * factor) for point in box.corners]
        pen.line([*outline, outline[0]], fill=(0, 150, 60), width=width, joint="curve")
    target.parent.mkdir(parents=True, exist_ok=True)
    canvas.save(target)
