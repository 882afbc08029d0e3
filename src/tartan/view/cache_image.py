"""Draw system efficiency against the size of the cache: curves of predictions, discs of what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tartan.view.curve_image import (
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
)
from tartan.view.page import printable

_COLOURS = ("#3b528b", "#b3562c", "#21918c", "#7a4b9e", "#5b5d66")
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class DrawnCurve:
    """One curve: places (share of the items in the cache, efficiency), both 0 to 1, and what is known beside it."""

    name: str
    places: Sequence[tuple[float, float]]
    known: Sequence[tuple[float, float]] = ()
    known_by: str = ""


def save_cache_image(curves: Sequence[DrawnCurve], path: str | Path) -> Path:
    """Draw curves into an .svg or .png file, written whole or not at all.

    Raises
    ------
    ConfigError
        For another ending.
    """
    least = min(min(place[0] for curve in curves for place in curve.places), _SHARES[0])
    lines, texts = _frame(least)
    discs: list[Disc] = []
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [_at(place, least) for place in sorted(curve.places)]
        lines += [(*a, *b, colour, 2.0) for a, b in pairwise(places)]
        discs += [(*_at(place, least), 5.0, colour) for place in curve.known]
        said = printable(curve.name)[-40:] + (f" (discs: {printable(curve.known_by)})" if curve.known else "")
        texts.append((WIDTH - RIGHT - 8.0, HEIGHT - BOTTOM - 16.0 - 18.0 * number, said, "r", colour))
    return CurveDrawing(lines, discs, texts).save(path)


def _at(place: tuple[float, float], least: float) -> tuple[float, float]:
    """Return where a share and an efficiency lie; shares on a logarithmic scale."""
    share = math.log(min(1.0, max(place[0], least)) / least) / max(1e-9, -math.log(least))
    efficiency = min(1.0, max(0.0, place[1]))
    return LEFT + (WIDTH - LEFT - RIGHT) * share, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * efficiency


def _frame(least: float) -> tuple[list[Line], list[Words]]:
    levels = [(_at((1.0, level), least)[1], f"{level:.0%}") for level in _LEVELS]
    ticks = [(_at((share, 0.0), least)[0], f"{share:.0%}") for share in _SHARES]
    lines, texts = axes(levels, ticks, "items that the cache holds")
    return lines, [(float(LEFT), 20.0, "system efficiency, predicted by replay", "l", INK), *texts]
