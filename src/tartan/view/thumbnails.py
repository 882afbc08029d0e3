"""Make small JPEG pictures of photos for reports. Files are not trusted: unreadable ones have no thumbnail."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_PIXELS = 200_000_000
_SIDE = 96
_MOST = 240


def thumbnails_of(paths: Sequence[str | Path]) -> Mapping[int, bytes]:
    """Return JPEG thumbnails of the first 240 photos, by index; unreadable ones are left out."""
    made = {index: photo_thumbnail(path) for index, path in enumerate(paths[:_MOST])}
    return {index: data for index, data in made.items() if data is not None}


def pictures_of(portrait: Callable[[int], Any]) -> Callable[[int], bytes | None]:
    """Return what makes a square JPEG of an item from the first picture in its portrait; None where it has none."""

    def picture(item: int) -> bytes | None:
        arrays = portrait(item).arrays.values()
        found = next((array for array in arrays if array.ndim == 3 and array.dtype == np.uint8), None)
        return None if found is None else _square(found)

    return picture


def _square(pixels: NDArray[np.uint8]) -> bytes:
    from PIL import Image, ImageOps

    buffer = io.BytesIO()
    ImageOps.fit(Image.fromarray(pixels), (_SIDE, _SIDE)).save(buffer, format="JPEG", quality=78, optimize=True)
    return buffer.getvalue()


def photo_thumbnail(path: str | Path, *, max_pixels: int = _MAX_PIXELS) -> bytes | None:
    """Return a square JPEG thumbnail of a photo (about 3 kB at 96 x 96), or None.

    Decoding starts from the JPEG's own reduced scales, so a large photo costs a few milliseconds. A photo of
    more than ``max_pixels`` pixels (default: 200 million) is refused unread.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as photo:
                if photo.width * photo.height > max_pixels:
                    return None
                photo.draft("RGB", (2 * _SIDE, 2 * _SIDE))
                small = ImageOps.fit(photo.convert("RGB"), (_SIDE, _SIDE))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=78, optimize=True)
    return buffer.getvalue()
