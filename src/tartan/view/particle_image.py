"""Draw fused particles: the density of all points beside some single particles, as PNG.

y points downwards, as in the pictures of ThunderSTORM, Picasso and Fiji, so that a structure is not mirrored beside
theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.palette import colours

Array = NDArray[np.float64]

_SIDE = 480
_SINGLE = 4
_GAP = 8
_MARGIN = 0.06
# By judgement: room for numbers of six characters, and for one line below.
_LEFT, _BELOW = 52, 34
# By judgement: a bar of a fifth of the picture or less, ticks at least this far apart, in shares of the side.
_BAR, _TICKS = 0.2, 0.15
_INK, _LIGHT = (40, 40, 40), (255, 255, 255)


def save_particle_image(path: Path, fused: Array, particles: Sequence[Array]) -> None:
    """Write the density of the fused points, and of up to four particles at the right, all in the same frame.

    Parameters
    ----------
    path : Path
        PNG. y points downwards; numbers at the axes and at the scale bar are in the unit of the points.
    fused : ndarray (m, 2) or wider
    particles : sequence of ndarray
        Each in the common frame.
    """
    from PIL import Image, ImageDraw

    corner, width = frame_of(fused)
    small = (_SIDE - (_SINGLE // 2 - 1) * _GAP) // (_SINGLE // 2)
    picture = np.full((_SIDE + _BELOW, _LEFT + _SIDE + _GAP + 2 * small + _GAP, 3), 255, np.uint8)
    picture[:_SIDE, _LEFT : _LEFT + _SIDE] = draw_density(fused, corner, width, _SIDE)
    for at, one in enumerate(particles[:_SINGLE]):
        row, column = (at // 2) * (small + _GAP), _LEFT + _SIDE + _GAP + (at % 2) * (small + _GAP)
        picture[row : row + small, column : column + small] = draw_density(one, corner, width, small)
    image = Image.fromarray(picture)
    drawing = ImageDraw.Draw(image)
    _draw_axes(drawing, corner, width)
    _draw_bar(drawing, width)
    image.save(path, format="PNG", optimize=True)


def frame_of(points: Array) -> tuple[Array, float]:
    """Return the corner of least x and y, (2,), and the width of the square that is drawn of some points."""
    low, high = np.percentile(points[:, :2], [0.5, 99.5], axis=0)
    width = float((high - low).max()) * (1 + 2 * _MARGIN) or 1.0
    return (low + high) / 2 - width / 2, width


def round_length(most: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most some length above 0."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power <= most * (1 + 1e-9))


def draw_density(points: Array, corner: Array, width: float, side: int) -> NDArray[np.uint8]:
    """Return the colours (side, side, 3) of a square: the first row is that of the least y, the first column of x."""
    from scipy.ndimage import gaussian_filter

    ends = [(float(corner[1]), float(corner[1]) + width), (float(corner[0]), float(corner[0]) + width)]
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], bins=side, range=ends)
    smooth = gaussian_filter(counts, side / 240)
    top = float(np.percentile(smooth[smooth > 0], 99)) if (smooth > 0).any() else 1.0
    shown: NDArray[np.uint8] = colours(np.clip(smooth / top, 0, 1), "viridis")
    return shown


def _draw_axes(drawing: Any, corner: Array, width: float) -> None:
    """Draw ticks and numbers at the left, y downwards, and below, x to the right."""
    step = round_length(2 * _TICKS * width)
    for axis in (0, 1):
        least = float(corner[axis])
        for number in range(math.ceil(least / step), math.floor((least + width) / step) + 1):
            at, text = round((number * step - least) / width * _SIDE), f"{number * step:.6g}"
            if axis == 0:
                drawing.line([(_LEFT + at, _SIDE), (_LEFT + at, _SIDE + 4)], fill=_INK)
                drawing.text((_LEFT + at, _SIDE + 6), text, fill=_INK, anchor="ma")
            else:
                drawing.line([(_LEFT - 5, at), (_LEFT - 1, at)], fill=_INK)
                drawing.text((_LEFT - 8, min(max(at, 6), _SIDE - 6)), text, fill=_INK, anchor="rm")
    drawing.text((_LEFT + _SIDE, _SIDE + _BELOW - 2), "x", fill=_INK, anchor="rs")
    drawing.text((4, _SIDE - 2), "y", fill=_INK, anchor="ls")


def _draw_bar(drawing: Any, width: float) -> None:
    """Draw a bar of a round length into the lower right corner of the large picture."""
    length = round_length(_BAR * width)
    right, low = _LEFT + _SIDE - 12, _SIDE - 12
    left = right - round(length / width * _SIDE)
    drawing.rectangle([(left, low - 4), (right - 1, low)], fill=_LIGHT)
    drawing.text(((left + right) / 2, low - 8), f"{length:g}", fill=_LIGHT, anchor="ms")
