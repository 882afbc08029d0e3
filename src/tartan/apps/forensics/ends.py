"""Pixels that tell nothing of a sensor: clipped, black, or drawn over; found, and filled where no weight can be given.

Captions, date stamps, frames and highlights have sharp edges, which the noise filter takes for noise. Where photos of
unlike cameras have the same ones, they would agree.
"""

from __future__ import annotations

import numpy as np

# By convention: 8-bit values from 250 on are taken for clipped, as in the MATLAB code of the method's authors.
_HIGH = 250
# By judgement: drawn letters, red, orange or yellow, have a missing colour, which JPEG mixes with what is beside them.
_LOW = 64
# Measured on text of six colours over grey, as JPEG saves it by default, colours at half the size: of strokes 24 pixels
# high 76 to 100 % lie in areas by this, of coloured ones 0 to 27 % by the ends alone. Blue is left out: skies have it.
_BRIGHT = 200
# As _BRIGHT: measured on the same strokes.
_VIVID = 120
# By judgement: as far from the other end; noise leaves no sensor's darkest grey so low throughout.
_BLACK = 5
# By construction: the noise filter's differences of differences reach two pixels.
_REACH = 2
# By format: JPEG's ringing around an edge ends with its block of 8 x 8.
_BLOCK = 8
# By judgement: single clipped pixels of bright flat photos are no area: of a twentieth, a thousandth has three others
# among its eight neighbours.
_NEIGHBOURS = 4


def find_ends(pixels: np.ndarray) -> np.ndarray:
    """Return which pixels are at an end of the range: bool (h, w).

    Parameters
    ----------
    pixels : uint8 array (h, w) or (h, w, 3), or uint16 array (h, w)
        In colours also those are meant of which one colour is full and another one is missing, as in drawn text, and
        bright ones with vivid red, yellow or green, which JPEG makes of thin strokes.
    """
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    scale = 257 if pixels.dtype == np.uint16 else 1
    if pixels.ndim == 2:
        alike: np.ndarray = (pixels >= _HIGH * scale) | (pixels <= _BLACK * scale)
        return alike
    low = np.minimum(np.minimum(pixels[..., 0], pixels[..., 1]), pixels[..., 2])
    warm = np.maximum(pixels[..., 0], pixels[..., 1])
    high = np.maximum(warm, pixels[..., 2])
    found: np.ndarray = (low >= _HIGH) | (high <= _BLACK) | ((high >= _HIGH) & (low <= _LOW))
    found |= (warm >= _BRIGHT) & (warm - low >= _VIVID)
    return found


def find_areas(ends: np.ndarray) -> np.ndarray | None:
    """Return areas of such pixels with the blocks of JPEG around them: bool (h, w); None where there are none."""
    from scipy.ndimage import maximum_filter

    rows, columns = (np.flatnonzero(ends.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return None
    margin = _BLOCK + 1
    part = tuple(slice(max(at[0] - margin, 0), at[-1] + margin + 1) for at in (rows, columns))
    areas = ends[part] & (_count_around(ends[part]) >= _NEIGHBOURS)
    if not areas.any():
        return None
    found = np.zeros(ends.shape, bool)
    found[part] = maximum_filter(areas.view(np.uint8), 2 * _BLOCK + 1).view(bool)
    return found


def _count_around(flags: np.ndarray) -> np.ndarray:
    """Return how many of the 3 x 3 pixels around each are set: uint8 (h, w)."""
    counts = flags.astype(np.uint8)
    for axis in (0, 1):
        alone = np.moveaxis(counts.copy(), axis, 0)
        wide = np.moveaxis(counts, axis, 0)
        wide[1:] += alone[:-1]
        wide[:-1] += alone[1:]
    return counts


def find_usable(ends: np.ndarray) -> np.ndarray:
    """Return the pixels that are neither at an end, nor mixed with such ones by the noise filter, nor near areas."""
    from scipy.ndimage import maximum_filter

    if not ends.any():
        return np.ones(ends.shape, bool)
    touched = maximum_filter(ends.view(np.uint8), 2 * _REACH + 1).view(bool)
    areas = find_areas(ends)
    if areas is not None:
        touched |= maximum_filter(areas.view(np.uint8), 2 * _REACH + 1).view(bool)
    found: np.ndarray = ~touched
    return found


def fill_areas(grey: np.ndarray, areas: np.ndarray) -> None:
    """Fill areas of a grey photo smoothly from beside them, along rows, in place; rows that are areas from the nearest.

    Nothing is left of what was drawn there, not even its outline.
    """
    rows = np.flatnonzero(areas.any(axis=1))
    whole = areas[rows].all(axis=1)
    for row in rows[~whole]:
        kept = np.flatnonzero(~areas[row])
        gone = np.flatnonzero(areas[row])
        grey[row, gone] = np.interp(gone, kept, grey[row, kept]).astype(grey.dtype)
    good = np.setdiff1d(np.arange(len(grey)), rows[whole])
    if not good.size:
        return
    for row in rows[whole]:
        at = int(np.searchsorted(good, row))
        near = min((good[i] for i in (at - 1, at) if 0 <= i < good.size), key=lambda one: abs(one - row))
        grey[row] = grey[near]
