"""How much of a photo strong compression has made flat, and with that emptied of the sensor's noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.apps.forensics.prnu import GREY_SCALE
from tartan.errors import ItemError

# Measured on 24 flat photos of four cameras, whole, at half size and cropped to 1,024 x 1,024. As cameras saved them
# the share is at most 0.002, at half size and quality 90 it is 0.07. At quality 60 and 30 it is 0.44 to 0.99, and pairs
# of unlike cameras reach a PCE of 302, and -380: the steps between flat blocks are left, and light falls off alike.
_MOST_FLAT = 0.4
# By judgement: below and above, a flat area is a matter of the light.
_DARK, _BRIGHT = 3, 252
# By arithmetic: 2 MiB of grey stay in the caches.
_STRIP_PIXELS = 1 << 20


def require_noise(key: str, grey: np.ndarray) -> None:
    """Refuse a photo of 8 bits whose compression has flattened most of it.

    Parameters
    ----------
    key : str
    grey : uint16 array (h, w)
        In units of 1/257.

    Raises
    ------
    ItemError
        If more than 0.4 of it is flat.
    """
    share = find_flat_share(grey)
    if share > _MOST_FLAT:
        raise ItemError(
            f"{key}: strong compression has left {share:.0%} of the photo flat, without the noise of the sensor, and "
            "what is left agrees between unlike cameras too; give the photo as the camera saved it",
            context={"key": key},
        )


def find_flat_share(grey: np.ndarray) -> float:
    """Return the share of windows of 6 x 6 pixels, at every fourth row and column, whose greys differ by one at most.

    Only windows whose greys are from 3 to 252 of 255 count: clipped and black areas are flat in every photo.

    Parameters
    ----------
    grey : uint16 array (h, w)
        In units of 1/257, both sides at least 16.

    Returns
    -------
    float
        From 0 to 1; 0 where no window counts.

    Examples
    --------
    >>> find_flat_share(np.full((16, 16), 100 * GREY_SCALE, np.uint16))
    1.0
    """
    height, width = (side // 4 * 4 for side in grey.shape)
    step = max(1, _STRIP_PIXELS // width // 4) * 4
    n_flat, n_counted = 0, 0
    for start in range(0, height - 4, step):
        rows = grey[start : min(start + step + 2, height), :width]
        low, high = _reduce_windows(rows, np.minimum), _reduce_windows(rows, np.maximum)
        counted = (low >= _DARK * GREY_SCALE) & (high <= _BRIGHT * GREY_SCALE)
        n_counted += int(np.count_nonzero(counted))
        n_flat += int(np.count_nonzero((high - low <= GREY_SCALE) & counted))
    return n_flat / n_counted if n_counted else 0.0


def _reduce_windows(grey: np.ndarray, least: Any) -> np.ndarray:
    """Return the least (or greatest) grey of each window of 6 x 6 at every fourth row and column."""
    pairs = least(grey[0::2], grey[1::2])
    pairs = least(pairs[:, 0::2], pairs[:, 1::2])
    rows = least(least(pairs[:-2:2], pairs[1:-1:2]), pairs[2::2])
    return np.asarray(least(least(rows[:, :-2:2], rows[:, 1:-1:2]), rows[:, 2::2]))
