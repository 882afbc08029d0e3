"""Draw how a number of clusters was chosen: the mean silhouette of each number, and that of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import whole_file
from tartan.errors import ConfigError
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
    return _make_drawing(curve, title).save(target)


def _make_drawing(curve: NumberCurve, title: str) -> CurveDrawing:
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
    verdict = f"{curve.chosen} clusters" if curve.chosen > 1 else "one cluster: no number is better than chance"
    named = f"{printable(title)[:60]}: {verdict}" if title else verdict
    return [
        (float(LEFT), 20.0, named, "l", INK),
        (float(LEFT), 42.0, f"mean silhouette, measured from {curve.level:.4g}", "l", _LINE),
        (float(WIDTH - RIGHT), 42.0, f"random points in one group, and {curve.margin:.2f} above", "r", _CHANCE),
    ]


# Draw lines, discs and words into an SVG or PNG file: all that pictures of curves are made of.

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 56, 52
PAPER, INK, SOFT, GRID = "#ffffff", "#1d1e22", "#5b5d66", "#e4e4e8"
_FINER = 3  # pixels of the drawing for one of the PNG

#: x1, y1, x2, y2, colour, width; x, y, radius, colour; x, y, text, anchor (l, m or r), colour.
Line = tuple[float, float, float, float, str, float]
Disc = tuple[float, float, float, str]
Words = tuple[float, float, str, str, str]


def axes(
    levels: Sequence[tuple[float, str]], ticks: Sequence[tuple[float, str]], below: str
) -> tuple[list[Line], list[Words]]:
    """Return the lines of levels, and what is written beside them, below ticks, and below all: (place, text) each."""
    lines: list[Line] = [(LEFT, y, WIDTH - RIGHT, y, GRID, 1.0) for y, _ in levels]
    texts: list[Words] = [(LEFT - 8.0, y, text, "r", SOFT) for y, text in levels]
    texts += [(x, HEIGHT - BOTTOM + 14.0, text, "m", SOFT) for x, text in ticks]
    return lines, [*texts, ((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14.0, below, "m", SOFT)]


@dataclass
class CurveDrawing:
    """What lies on a sheet of ``WIDTH`` x ``HEIGHT``."""

    lines: Sequence[Line] = field(default_factory=list)
    discs: Sequence[Disc] = field(default_factory=list)
    texts: Sequence[Words] = field(default_factory=list)

    def save(self, path: str | Path) -> Path:
        """Write an .svg or .png file, whole or not at all.

        Raises
        ------
        ConfigError
            For another ending.
        """
        target = require_drawing(path)
        with whole_file(target) as temporary:
            if target.suffix.lower() == ".svg":
                temporary.write_text(self.svg(), encoding="utf-8")
            else:
                self._picture().save(temporary, format="PNG", optimize=True)
        return target

    def svg(self) -> str:
        """Return the picture as SVG."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="system-ui, sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        ]
        for x1, y1, x2, y2, colour, width in self.lines:
            at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            parts.append(f'<line {at} stroke="{colour}" stroke-width="{width}"/>')
        for x, y, radius, colour in self.discs:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')
        for x, y, text, anchor, colour in self.texts:
            end = {"l": "start", "m": "middle", "r": "end"}[anchor]
            parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{end}" fill="{colour}">{escape(text)}</text>')
        return "\n".join([*parts, "</svg>\n"])

    def _picture(self) -> Any:
        from PIL import Image, ImageDraw, ImageFont

        fine = Image.new("RGB", (WIDTH * _FINER, HEIGHT * _FINER), PAPER)
        pen = ImageDraw.Draw(fine)
        for x1, y1, x2, y2, colour, width in self.lines:
            pen.line([at * _FINER for at in (x1, y1, x2, y2)], fill=colour, width=round(width * _FINER))
        for x, y, radius, colour in self.discs:
            pen.ellipse([at * _FINER for at in (x - radius, y - radius, x + radius, y + radius)], fill=colour)
        picture = fine.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
        for x, y, text, anchor, colour in self.texts:
            pen.text((x, y), text, fill=colour, font=font, anchor=anchor + "m")
        return picture


def require_drawing(path: str | Path) -> Path:
    """Return the path of a picture of curves, or raise ConfigError for another ending than .svg and .png."""
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".png"):
        raise ConfigError(f"{target}: pictures of curves are .svg or .png")
    return target
