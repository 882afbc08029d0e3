"""Describe a photo in a few facts and a small picture for people who look at it; no comparison uses them."""

from __future__ import annotations

import io
import warnings
from typing import Any, Final

import numpy as np

from tartan.errors import ItemError

_SIDE: Final = 640
_FORMATS: Final = ("JPEG", "PNG", "TIFF", "BMP")
_TAGS: Final = {"camera": (271, 272), "taken": (306,)}  # EXIF: make and model, date


def described(key: str, data: bytes, max_megapixels: float) -> dict[str, Any]:
    """Return facts of a photo and a picture of at most 640 pixels a side, in the orientation of the sensor.

    Raises
    ------
    ItemError
        If it is no photo, damaged, or has more pixels (10^6) than allowed.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as photo:
                if photo.width * photo.height > max_megapixels * 1e6:
                    raise ItemError(f"{key}: more than {max_megapixels:g} megapixels", context={"key": key})
                about: dict[str, Any] = {"pixels": f"{photo.width:,} x {photo.height:,}", "format": str(photo.format)}
                about |= _named(photo)
                photo.draft("RGB", (_SIDE, _SIDE))
                small = photo.convert("RGB")
                small.thumbnail((_SIDE, _SIDE))
    except ItemError:
        raise
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise ItemError(f"{key}: no photo, or a damaged one ({type(error).__name__})", context={"key": key}) from error
    return about | {"photo": np.asarray(small)}


def _named(photo: Any) -> dict[str, str]:
    """Return what the photo says of its camera and its date."""
    tags = photo.getexif()
    found: dict[str, str] = {}
    for name, codes in _TAGS.items():
        words = [str(tags[code]).strip("\0 ") for code in codes if tags.get(code)]
        text = words[-1] if len(words) == 2 and words[1].startswith(words[0].split()[0]) else " ".join(words)
        if text:
            found[name] = text
    return found
