"""Draw how a number of clusters was chosen: the mean silhouette of each number, and that of one group."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tartan.errors import ConfigError
from tartan.view.curve_drawing import (
    BOTTOM,
    HEIGHT,
    INK,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    CurveDrawing,
    Disc,
    Line,
    Words,
    axes,
    require_drawing,
)
from tartan.view.page import printable

if TYPE_CHECKING:
    from tartan.analytics import NumberCurve

__all__ = ["save_curve_image"]

_LINE, _CHANCE, _FAINT = "#3b528b", "#b3562c", "#dba98f"
_MOST_TICKS = 14


@dataclass(frozen=True)
class _CurveFrame:
    """Where numbers and silhouettes lie in the picture."""

    curve: NumberCurve

    @property
    def low(self) -> float:
        least = min(self.curve.silhouettes.min(initial=0.0), self.curve.by_chance.min(initial=0.0))
        return min(0.0, float(np.floor(10 * least) / 10))

    @property
    def high(self) -> float:
        return max(1.0, float((self.curve.by_chance + self.curve.margin).max(initial=0.0)))

    def x(self, number: float) -> float:
        first, last = int(self.curve.numbers[0]), int(self.curve.numbers[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * (number - first + 0.5) / (last - first + 1)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        numbers: list[int] = self.curve.numbers.tolist()
        return [(self.x(number), str(number)) for number in numbers[:: -(-len(numbers) // _MOST_TICKS)]]

    def levels(self) -> list[tuple[float, str]]:
        levels = [round(float(level), 1) for level in np.arange(self.low, 1.01, 0.2)]
        return [(self.y(level), f"{level:.1f}") for level in levels]


def save_curve_image(curve: NumberCurve, path: str | Path, *, title: str = "") -> Path:
    """Draw a curve into an .svg or .png file, written whole or not at all.

    Raises
    ------
    ConfigError
        For another ending, or a curve without a point.
    """
    target = require_drawing(path)
    if not len(curve.numbers):
        raise ConfigError(f"{target}: there are too few items for a curve; leave it out")
    return _drawing(curve, title).save(target)


def _drawing(curve: NumberCurve, title: str) -> CurveDrawing:
    frame = _CurveFrame(curve)
    lines, texts = axes(frame.levels(), frame.ticks(), "number of clusters")
    head, *foot = _texts(curve, title)
    return CurveDrawing([*lines, *_lines(frame)], _discs(frame), [head, *texts, *foot])


def _lines(frame: _CurveFrame) -> list[Line]:
    curve, lines = frame.curve, list[Line]()
    drawn = (
        (curve.by_chance + curve.margin, _FAINT, 1.0),
        (curve.by_chance, _CHANCE, 1.5),
        (curve.silhouettes, _LINE, 2.0),
    )
    for values, colour, width in drawn:
        places = [(frame.x(k), frame.y(value)) for k, value in zip(curve.numbers.tolist(), values.tolist())]
        lines += [(*a, *b, colour, width) for a, b in pairwise(places)]
    return lines


def _discs(frame: _CurveFrame) -> list[Disc]:
    curve = frame.curve
    found = []
    for k, value in zip(curve.numbers.tolist(), curve.silhouettes.tolist()):
        found.append((frame.x(k), frame.y(value), 6.0 if k == curve.chosen else 3.0, _LINE))
    return found


def _texts(curve: NumberCurve, title: str) -> list[Words]:
    """Return the title, then what the lines are."""
    verdict = f"{curve.chosen} clusters" if curve.chosen > 1 else "one cluster: no number stands out"
    named = f"{printable(title)[:60]}: {verdict}" if title else verdict
    return [
        (float(LEFT), 20.0, named, "l", INK),
        (float(LEFT), 42.0, f"mean silhouette, measured from {curve.level:.4g}", "l", _LINE),
        (float(WIDTH - RIGHT), 42.0, f"random points in one group, and {curve.margin:.2f} above", "r", _CHANCE),
    ]
