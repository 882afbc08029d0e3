"""Draw the arrays that describe an item as PNG: a line for (m,), a picture for (h, w) and (h, w, 3)."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.palette import colours, value_limits
from tartan.errors import ConfigError

_SIDE: Final = 640
_PLOT: Final = (640, 240)
_FINER: Final = 2
_LINE: Final = (47, 143, 118, 255)
_ZERO: Final = (128, 128, 128, 110)


def draw_array(array: NDArray[Any]) -> bytes:
    """Return a PNG of an array, on a transparent ground.

    Raises
    ------
    ConfigError
        If it is no array of numbers with one, two or three dimensions, as ``Application.describe_item`` says.
    """
    values = np.abs(array) if array.dtype.kind == "c" else array
    if values.dtype.kind not in "biuf" or not values.size:
        raise ConfigError(f"an array of {array.dtype} and shape {array.shape} cannot be drawn")
    if values.ndim == 1:
        return _png(_line(values.astype(np.float64)))
    if values.ndim == 2:
        return _png(_picture(values))
    if values.ndim == 3 and values.shape[2] == 3 and values.dtype == np.uint8:
        return _png(_shrunk(values))
    raise ConfigError(f"an array of {array.dtype} and shape {array.shape} cannot be drawn")


def _line(values: NDArray[np.float64]) -> Any:
    """Draw a line; of more values than pixels the least and the greatest of each pixel."""
    from PIL import Image, ImageDraw

    width, height = (side * _FINER for side in _PLOT)
    image = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return image.resize(_PLOT)
    low, high = min(0.0, float(finite.min())), max(0.0, float(finite.max()))
    scale = (height - 12) / ((high - low) or 1.0)
    zero = height - 6 + low * scale
    pen.line((0, zero, width, zero), fill=_ZERO, width=_FINER)
    pieces = np.array_split(values, min(len(values), _PLOT[0]))
    step = width / len(pieces)
    points = []
    for k, piece in enumerate(pieces):
        known = piece[np.isfinite(piece)]
        ends = sorted({float(known.min()), float(known.max())}) if len(known) else []
        points += [((k + 0.5) * step, height - 6 - (end - low) * scale) for end in ends]
    if len(points) == 1:
        pen.ellipse((points[0][0] - 6, points[0][1] - 6, points[0][0] + 6, points[0][1] + 6), fill=_LINE)
    pen.line(points, fill=_LINE, width=2 * _FINER, joint="curve")
    return image.resize(_PLOT, Image.Resampling.LANCZOS)


def _picture(values: NDArray[Any]) -> Any:
    step = max(1, -(-max(values.shape) // (2 * _SIDE)))
    some = values[::step, ::step].astype(np.float64)
    low, high = value_limits(some[:, :-1] if some.shape[0] == some.shape[1] > 1 else some)
    return _shrunk(colours((some - low) / (high - low), "grey"))


def _shrunk(pixels: NDArray[np.uint8]) -> Any:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((_SIDE, _SIDE))
    return image


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()
