"""Draw fused particles: the density of all points beside some single particles, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan.base.palette import colours

Array = NDArray[np.float64]

_SIDE = 480
_SINGLE = 4
_GAP = 8
_MARGIN = 0.06


def save_particle_image(path: Path, fused: Array, particles: Sequence[Array]) -> None:
    """Write the density of the fused points, and of up to four particles at the right, all in the same frame.

    Parameters
    ----------
    path : Path
        PNG.
    fused : ndarray (m, 2) or wider
    particles : sequence of ndarray
        Each in the common frame.
    """
    from PIL import Image

    low, high = np.percentile(fused[:, :2], [0.5, 99.5], axis=0)
    width = float((high - low).max()) * (1 + 2 * _MARGIN) or 1.0
    corner = (low + high) / 2 - width / 2
    small = (_SIDE - (_SINGLE // 2 - 1) * _GAP) // (_SINGLE // 2)
    picture = np.full((_SIDE, _SIDE + _GAP + 2 * small + _GAP, 3), 255, np.uint8)
    picture[:, :_SIDE] = _density(fused, corner, width, _SIDE)
    for at, one in enumerate(particles[:_SINGLE]):
        row, column = (at // 2) * (small + _GAP), _SIDE + _GAP + (at % 2) * (small + _GAP)
        picture[row : row + small, column : column + small] = _density(one, corner, width, small)
    Image.fromarray(picture).save(path, format="PNG", optimize=True)


def _density(points: Array, corner: Array, width: float, side: int) -> NDArray[np.uint8]:
    """Return the colours of a square, y upwards."""
    from scipy.ndimage import gaussian_filter

    ends = [(float(corner[1]), float(corner[1]) + width), (float(corner[0]), float(corner[0]) + width)]
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], bins=side, range=ends)
    smooth = gaussian_filter(counts, side / 240)
    top = float(np.percentile(smooth[smooth > 0], 99)) if (smooth > 0).any() else 1.0
    shown: NDArray[np.uint8] = colours(np.clip(smooth[::-1] / top, 0, 1), "viridis")
    return shown
