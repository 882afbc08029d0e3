"""Colours of a matrix: perceptual maps from a few anchors, and colours that tell groups apart.

Nothing here draws. A map takes numbers between 0 and 1 to 8-bit colours; NaN is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

PaletteName = Literal["viridis", "magma", "grey"]

# Every sixteenth colour of the maps by Smith and van der Walt (matplotlib, CC0); between them linear
# interpolation stays within 2/255 of the originals.
_ANCHORS: Final = {
    "viridis": "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c "
    "1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
    "magma": "000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 "
    "d0416f e75263 f56b5c fc8961 fea772 fec488 fde2a3 fcfdbf",
    "grey": "101010 f4f4f4",
}

# Okabe and Ito (2008), colours that people with a colour-vision deficiency can tell apart.
GROUP_COLOURS: Final = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167),
    (86, 180, 233), (213, 94, 0), (170, 160, 30), (110, 110, 110),
)  # fmt: skip


# By judgement: of cells where an item meets itself, a grey that no palette of scores has.
DIAGONAL: Final = (200, 200, 204)


def colours(values: NDArray[np.floating], palette: PaletteName = "viridis") -> NDArray[np.uint8]:
    """Map numbers to colours.

    Parameters
    ----------
    values : ndarray of float, shape (...)
        Numbers, clipped to 0..1; NaN becomes the colour of 0.
    palette : {"viridis", "magma", "grey"}
        Name of the colour map.

    Returns
    -------
    ndarray of uint8, shape (..., 3)

    Raises
    ------
    ConfigError
        If there is no such map.
    """
    table = _table(palette)
    clipped = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0), 0.0, 1.0)
    return table[np.rint(clipped * (len(table) - 1)).astype(np.intp)]


def value_colours(
    values: NDArray[np.floating], limits: tuple[float, float], palette: PaletteName = "viridis"
) -> NDArray[np.uint8]:
    """Map values to colours, given those of the first and the last one; what is not finite has the first one."""
    first, last = limits
    return colours((np.where(np.isfinite(values), values, first) - first) / (last - first), palette)


@dataclass(frozen=True)
class Scale:
    """Which colour a score has. One rule for all pictures: the last colour, a bright yellow, is the most similar.

    Attributes
    ----------
    far, near : float
        Scores of the first and the last colour: the most different and the most similar of those drawn. ``far`` is the
        larger one where scores are distances.
    name : str
        What a score is, with its unit, such as "Mash distance".
    """

    far: float
    near: float
    name: str = "score"

    @classmethod
    def of(cls, values: NDArray[np.floating], *, larger_is_nearer: bool, name: str = "score") -> Scale:
        """Return the scale that fits values: from percentile 1 to 99, as ``value_limits`` has them."""
        low, high = value_limits(values)
        return cls(low, high, name) if larger_is_nearer else cls(high, low, name)

    @property
    def limits(self) -> tuple[float, float]:
        """Scores of the first and the last colour."""
        return self.far, self.near

    def paint(self, values: NDArray[np.floating], palette: PaletteName = "viridis") -> NDArray[np.uint8]:
        """Return the colours of scores, (..., 3); what is not finite has the first one."""
        return value_colours(values, self.limits, palette)

    def marks(self, n: int) -> list[tuple[float, float]]:
        """Return n places between 0 (different) and 1 (similar), with their scores; n is 2 or more."""
        return [(k / (n - 1), self.far + (self.near - self.far) * k / (n - 1)) for k in range(n)]


def hex_colour(colour: Iterable[int]) -> str:
    """Return a colour as pages write it: ``#0072b2``."""
    return "#" + "".join(f"{int(channel):02x}" for channel in colour)


def value_limits(values: NDArray[np.floating], *, cut: float = 1.0) -> tuple[float, float]:
    """Return the range of values that deserves the colours.

    Parameters
    ----------
    values : ndarray of float, shape (rows, columns)
        A matrix; NaN and infinities do not count, nor what a square one has on its diagonal, where every item meets
        itself: of few items that would take most of the colours.
    cut : float
        Percentage cut off at each end, so that a single outlier does not swallow all contrast.

    Returns
    -------
    (low, high) : tuple of float
        low < high; (0, 1) when no value is finite.
    """
    counts = np.isfinite(values)
    if values.ndim == 2 and values.shape[0] == values.shape[1]:
        pairs = counts & ~np.eye(len(values), dtype=bool)
        counts = pairs if pairs.any() else counts
    finite = values[counts]
    if finite.size == 0:
        return 0.0, 1.0
    low, high = (float(x) for x in np.percentile(finite, [cut, 100.0 - cut]))
    if high > low:
        return low, high
    low, high = float(finite.min()), float(finite.max())
    margin = 0.5 * max(abs(low), 1.0)
    return (low, high) if high > low else (low - margin, high + margin)


def _table(palette: str) -> NDArray[np.uint8]:
    if palette not in _ANCHORS:
        raise ConfigError(f"palette: {palette!r} is not one of {', '.join(_ANCHORS)}")
    anchors = np.array([list(bytes.fromhex(code)) for code in _ANCHORS[palette].split()], dtype=np.float64)
    where = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(where, np.arange(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)
