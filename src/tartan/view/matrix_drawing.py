"""Draw a matrix as SVG for a page: with its tree, the groups and names of its rows, and a bar of colours.

Text and lines take the colour of the page. The pixels are one embedded PNG; large matrices come averaged in cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_number
from tartan.base.palette import colours, value_limits
from tartan.view.dendrogram import branches
from tartan.view.matrix_image import indexed, matrix_pixels, stretches
from tartan.view.page import one_line, png_uri, render
from tartan.view.scene import group_colours

MAX_NAMED: Final = 70
_MAX_TREE: Final = 600
_SIDE: Final = 600
_TREE: Final = 90
_STRIP: Final = 12
_NAME: Final = 30  # characters
_CHARACTER: Final = 0.56  # width over height of a letter, nearly
_TICKS: Final = 3


def matrix_svg(
    values: NDArray[np.float64],
    *,
    described: str,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
    colour_of: Mapping[str, str] | None = None,
    joined: NDArray[np.float64] | None = None,
) -> str:
    """Return a drawing of a matrix.

    Parameters
    ----------
    values : ndarray of float64, shape (rows, columns)
        In the order drawn; NaN where nothing is known.
    described : str
        What a reader who does not see it is told.
    names : sequence of str, length rows, optional
        Beside the rows; left out of more than 70.
    groups : sequence of str, length rows, optional
        A strip beside the rows shows them in colours.
    colour_of : mapping of str to str, optional
        Colours of the groups; default: by their order in the drawing.
    joined : ndarray of float64, shape (rows - 1, 4), optional
        The tree whose leaves, from left to right, are the rows; left out of more than 600.
    """
    rows, columns = values.shape
    height = _SIDE * min(1.0, rows / columns) if rows != columns else _SIDE
    width = _SIDE * min(1.0, columns / rows)
    shown = joined if joined is not None and rows == len(joined) + 1 <= _MAX_TREE else None
    left = (_TREE if shown is not None else 0) + (_STRIP + 4 if groups else 0)
    step = height / rows
    size = min(13.0, 0.92 * step)
    labels = [one_line(name, _NAME) for name in names] if 0 < len(names) <= MAX_NAMED else []
    aside = max((len(label) for label in labels), default=0) * _CHARACTER * size + 12
    limits = value_limits(values)
    return render(
        "matrix.svg",
        described=described,
        size=(round(max(left + width + aside, left + 260)), round(height + 52)),
        left=left,
        width=round(width, 2),
        height=round(height, 2),
        picture=_pixels(values, limits),
        bar=_bar(),
        ticks=[(round(left + 240 * k / (_TICKS - 1), 1), _tick(limits, k)) for k in range(_TICKS)],
        labels=[(round((row + 0.5) * step, 2), label) for row, label in enumerate(labels)],
        font=round(size, 2),
        strip=_strip(groups, step, colour_of or group_colours(groups)),
        strip_left=left - _STRIP - 4,
        tree="" if shown is None else _tree(shown, step),
    )


def _tick(limits: tuple[float, float], k: int) -> str:
    return format_number(limits[0] + (limits[1] - limits[0]) * k / (_TICKS - 1))


def _pixels(values: NDArray[np.float64], limits: tuple[float, float]) -> str:
    from PIL import Image

    return png_uri(indexed(Image.fromarray(matrix_pixels(values, limits, "viridis", target=_SIDE))))


def _bar() -> str:
    from PIL import Image

    return png_uri(indexed(Image.fromarray(colours(np.linspace(0, 1, 240))[None, :, :])))


def _strip(groups: Sequence[str], step: float, colour_of: Mapping[str, str]) -> list[tuple[float, float, str, str]]:
    """Return (top, height, colour, name) of every stretch of one group."""
    return [
        (round(first * step, 2), round((after - first) * step, 2), colour_of[name], one_line(name, _NAME))
        for name, first, after in stretches(groups)
    ]


def _tree(joined: NDArray[np.float64], step: float) -> str:
    """Return the lines of a tree whose leaves lie at the right, in the order of its own drawing."""
    scale = (_TREE - 6) / max(joined[:, 2].max(initial=0.0), np.finfo(float).tiny)
    return branches(joined, lambda height: _TREE - scale * max(height, 0.0), lambda place: (place + 0.5) * step)
