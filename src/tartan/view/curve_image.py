"""Draw how a number of clusters was chosen: the mean silhouette of each number, and that of one group."""

from __future__ import annotations

from dataclasses import dataclass
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

_WIDTH, _HEIGHT = 800, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 56, 52
_FINER = 3  # pixels of the drawing for one of the PNG
_PAPER, _INK, _SOFT, _LINE, _CHANCE, _FAINT = "#ffffff", "#1d1e22", "#5b5d66", "#3b528b", "#b3562c", "#dba98f"
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
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (number - first + 0.5) / (last - first + 1)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[int]:
        numbers: list[int] = self.curve.numbers.tolist()
        return numbers[:: -(-len(numbers) // _MOST_TICKS)]

    def levels(self) -> list[float]:
        return [round(float(level), 1) for level in np.arange(self.low, 1.01, 0.2)]


def require_curve(path: str | Path) -> Path:
    """Return the path of a picture of a curve, or raise ConfigError for another ending than .svg and .png."""
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".png"):
        raise ConfigError(f"{target}: pictures of curves are .svg or .png")
    return target


def save_curve_image(curve: NumberCurve, path: str | Path, *, title: str = "") -> Path:
    """Draw a curve into an .svg or .png file, written whole or not at all.

    Raises
    ------
    ConfigError
        For another ending, or a curve without a point.
    """
    target = require_curve(path)
    if not len(curve.numbers):
        raise ConfigError(f"{target}: there are too few items for a curve; leave it out")
    with whole_file(target) as temporary:
        if target.suffix.lower() == ".svg":
            temporary.write_text(curve_svg(curve, title=title), encoding="utf-8")
        else:
            _picture(curve, title).save(temporary, format="PNG", optimize=True)
    return target


def curve_svg(curve: NumberCurve, *, title: str = "") -> str:
    """Return the picture as SVG."""
    frame = _CurveFrame(curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{_PAPER}"/>',
    ]
    for x1, y1, x2, y2, colour, width in _lines(frame):
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'
        )
    for x, y, radius, colour in _discs(frame):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')
    for x, y, text, anchor, colour in _texts(frame, title):
        at = {"l": "start", "m": "middle", "r": "end"}[anchor]
        parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{at}" fill="{colour}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _picture(curve: NumberCurve, title: str) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    frame = _CurveFrame(curve)
    fine = Image.new("RGB", (_WIDTH * _FINER, _HEIGHT * _FINER), _PAPER)
    pen = ImageDraw.Draw(fine)
    for x1, y1, x2, y2, colour, width in _lines(frame):
        pen.line([at * _FINER for at in (x1, y1, x2, y2)], fill=colour, width=round(width * _FINER))
    for x, y, radius, colour in _discs(frame):
        pen.ellipse([at * _FINER for at in (x - radius, y - radius, x + radius, y + radius)], fill=colour)
    picture = fine.resize((_WIDTH, _HEIGHT), Image.Resampling.LANCZOS)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
    for x, y, text, anchor, colour in _texts(frame, title):
        pen.text((x, y), text, fill=colour, font=font, anchor=anchor + "m")
    return picture


def _lines(frame: _CurveFrame) -> list[tuple[float, float, float, float, str, float]]:
    curve, right = frame.curve, _WIDTH - _RIGHT
    lines: list[tuple[float, float, float, float, str, float]]
    lines = [(_LEFT, frame.y(level), right, frame.y(level), "#e4e4e8", 1.0) for level in frame.levels()]
    drawn = (
        (curve.by_chance + curve.margin, _FAINT, 1.0),
        (curve.by_chance, _CHANCE, 1.5),
        (curve.silhouettes, _LINE, 2.0),
    )
    for values, colour, width in drawn:
        places = [(frame.x(k), frame.y(value)) for k, value in zip(curve.numbers.tolist(), values.tolist())]
        lines += [(*a, *b, colour, width) for a, b in pairwise(places)]
    return lines


def _discs(frame: _CurveFrame) -> list[tuple[float, float, float, str]]:
    curve = frame.curve
    found = []
    for k, value in zip(curve.numbers.tolist(), curve.silhouettes.tolist()):
        found.append((frame.x(k), frame.y(value), 6.0 if k == curve.chosen else 3.0, _LINE))
    return found


def _texts(frame: _CurveFrame, title: str) -> list[tuple[float, float, str, str, str]]:
    curve = frame.curve
    verdict = f"{curve.chosen} clusters" if curve.chosen > 1 else "one cluster: no number stands out"
    named = f"{printable(title)[:60]}: {verdict}" if title else verdict
    texts = [(float(_LEFT), 20.0, named, "l", _INK)]
    texts += [(_LEFT - 8.0, frame.y(level), f"{level:.1f}", "r", _SOFT) for level in frame.levels()]
    texts += [(frame.x(k), _HEIGHT - _BOTTOM + 14.0, str(k), "m", _SOFT) for k in frame.ticks()]
    texts.append(((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14.0, "number of clusters", "m", _SOFT))
    texts.append((float(_LEFT), 42.0, f"mean silhouette, measured from {curve.level:.4g}", "l", _LINE))
    texts.append(
        (float(_WIDTH - _RIGHT), 42.0, f"random points in one group, and {curve.margin:.2f} above", "r", _CHANCE)
    )
    return texts
