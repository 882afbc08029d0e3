"""Draw lines, discs and words into an SVG or PNG file: all that pictures of curves are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tartan.base.files import whole_file
from tartan.errors import ConfigError

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
