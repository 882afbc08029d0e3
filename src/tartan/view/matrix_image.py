"""Draw a matrix as a PNG.

The picture has the matrix, a strip and labels for groups of items, and a colour bar with numbers. Values that
are not known are hatched grey; an uncomputed diagonal is plain grey. Text uses the font that Pillow ships.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.base.format import format_number
from tartan.base.palette import DIAGONAL, PaletteName, Scale, colours
from tartan.errors import ConfigError
from tartan.store.downsample import DENSE_SIDE, block_means
from tartan.view.scene import group_colours

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

__all__ = ["save_matrix_image"]

_TARGET: Final = 840  # pixels that a small matrix is blown up to
_MARGIN: Final = 24
_STRIP: Final = 12
_BAR: Final = 18
_INK: Final = (38, 38, 42)
_HATCH: Final = ((208, 208, 211), (168, 168, 173))
_LABEL_CHARACTERS: Final = 22
_LEAST_BORDERED: Final = 6  # pixels
_BORDER: Final = (255, 255, 255)

Stretch = tuple[str, int, int]


def save_matrix_image(
    run: Any,
    path: str | Path,
    *,
    order: NDArray[np.integer] | None = None,
    groups: Sequence[str] | None = None,
    title: str = "",
    side: int = DENSE_SIDE,
    palette: PaletteName = "viridis",
) -> Path:
    """Draw the matrix of a run into a PNG file.

    Parameters
    ----------
    run : Run
        A run with a dense matrix; above 2000 items it is read in bands and averaged in blocks.
    path : path
        The file to write, a .png.
    order : ndarray of int, shape (n,), optional
        Row and column p show item ``order[p]``; `tartan.store.downsample.leaf_tree` makes one.
    groups : sequence of str, length n, optional
        A label for each item (in item order); neighbouring rows of one label get a strip and the label.
    title : str
        Text above the matrix.
    side : int
        Largest number of cells along one side.
    palette : {"viridis", "magma", "grey"}
        Colour map.

    Returns
    -------
    Path
        The file, written whole or not at all.
    """
    target = require_png(path)
    values = block_means(run, side, order=order)
    shown = None if groups is None else _choose_groups(groups, order, len(values))
    scale = Scale.of(values, larger_is_nearer=run.larger_is_nearer, name=run.manifest.name_score())
    image = draw_matrix(values, scale, title=title, groups=shown, palette=palette)
    with whole_file(target) as temporary:
        index_colours(image).save(temporary, format="PNG", optimize=True)
    return target


def require_png(path: str | Path) -> Path:
    """Return the path of a picture of a matrix.

    Raises
    ------
    ConfigError
        If it does not end with .png.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ConfigError(f"{target}: pictures of matrices are .png")
    return target


def draw_matrix(
    values: NDArray[np.floating],
    scale: Scale,
    *,
    title: str = "",
    groups: Sequence[str] | None = None,
    palette: PaletteName = "viridis",
    ends: tuple[str, str] = ("different", "similar"),
    borders: bool = False,
) -> Image:
    """Draw a matrix.

    Parameters
    ----------
    values : ndarray of float, shape (rows, columns)
        NaN marks what is not known.
    scale : Scale
        Colours of the values.
    title : str
        Text above the matrix.
    groups : sequence of str, length rows, optional
        Label of each row, in the order drawn; only for square matrices.
    palette : {"viridis", "magma", "grey"}
        Colour map.
    ends : (str, str)
        What the first and the last colour of the bar mean.
    borders : bool
        Draw lines between the groups, as far as they leave something to see.

    Returns
    -------
    PIL.Image.Image
        An RGB image.

    Raises
    ------
    ConfigError
        If the matrix is not two-dimensional, or groups do not fit it.
    """
    from PIL import Image, ImageDraw

    if values.ndim != 2:
        raise ConfigError(f"a matrix has two dimensions, not {values.ndim}")
    if groups is not None and (len(groups) != values.shape[0] or values.shape[0] != values.shape[1]):
        raise ConfigError(f"{len(groups)} group labels do not fit a matrix of shape {values.shape}")
    pixels = matrix_pixels(values, scale, palette)
    layout = _Frame.of(pixels, title, scale.name, [(_clip(name), a, b) for name, a, b in stretches(groups or [])])
    canvas = Image.new("RGB", layout.size, (255, 255, 255))
    pen = ImageDraw.Draw(canvas)
    canvas.paste(Image.fromarray(pixels), (layout.left, layout.top))
    if title:
        pen.text((layout.left, _MARGIN - 6), title, fill=_INK, font=_load_font(20))
    _draw_groups(pen, layout)
    if borders:
        _draw_borders(pen, layout)
    _draw_bar(canvas, pen, layout, scale, values, palette, ends)
    if _has_gaps(values):
        pen.text((layout.left, layout.top + layout.height + 8), "hatched: not known", fill=_INK, font=_load_font(13))
    return canvas


def index_colours(image: Image) -> Image:
    """Reduce a picture to a table of at most 256 colours, which makes its PNG several times smaller."""
    from PIL import Image as Images

    return image.quantize(colors=256, dither=Images.Dither.NONE)


@dataclass(frozen=True)
class _Frame:
    left: int
    top: int
    width: int
    height: int
    scale: float  # pixels per row
    size: tuple[int, int]
    groups: list[Stretch]

    @classmethod
    def of(cls, pixels: NDArray[np.uint8], title: str, scale_name: str, groups: list[Stretch]) -> _Frame:
        height, width = pixels.shape[:2]
        font = _load_font(14)
        label = max((font.getlength(name) for name, _, _ in groups), default=0.0)
        left = _MARGIN + (int(label) + 10 + _STRIP + 4 if groups else 0)
        top = _MARGIN + (30 if title else 0) + (_STRIP + 4 if groups else 0)
        aside = max(_BAR + 92, int(_load_font(13).getlength(scale_name)) + 8)
        size = (left + width + 28 + aside, top + height + _MARGIN + 8)
        rows = groups[-1][2] if groups else 1
        return cls(left, top, width, height, height / rows, size, groups)


def matrix_pixels(
    values: NDArray[np.floating],
    scale: Scale,
    palette: PaletteName = "viridis",
    *,
    target: int = _TARGET,
) -> NDArray[np.uint8]:
    """Return the pixels of a matrix, (height, width, 3): small ones blown up towards ``target``, gaps hatched."""
    known = np.isfinite(values)
    painted = scale.paint(values, palette)
    cell = max(1, target // max(values.shape))
    pixels = painted.repeat(cell, 0).repeat(cell, 1)
    unknown = (~known).repeat(cell, 0).repeat(cell, 1)
    y, x = np.indices(unknown.shape, sparse=True)
    hatch = np.array(_HATCH, np.uint8)[((x + y) // 3) % 2]
    pixels[unknown] = hatch[unknown]
    if values.shape[0] == values.shape[1]:
        diagonal = np.diag(~known.diagonal()).repeat(cell, 0).repeat(cell, 1)
        pixels[diagonal] = DIAGONAL
    return pixels


def _has_gaps(values: NDArray[np.floating]) -> bool:
    unknown = ~np.isfinite(values)
    if values.shape[0] == values.shape[1]:
        np.fill_diagonal(unknown, False)
    return bool(unknown.any())


def stretches(groups: Sequence[str]) -> list[Stretch]:
    """Return (label, first row, row after the last) of every stretch of equal labels."""
    found, first = [], 0
    for name, members in itertools.groupby(groups):
        after = first + sum(1 for _ in members)
        found.append((name, first, after))
        first = after
    return found


def _clip(name: str) -> str:
    return name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 2] + ".."


def _choose_groups(groups: Sequence[str], order: NDArray[np.integer] | None, cells: int) -> list[str]:
    ordered = list(groups) if order is None else [groups[int(i)] for i in order]
    return [ordered[(cell * len(ordered)) // cells] for cell in range(cells)]


def _draw_groups(pen: ImageDraw, layout: _Frame) -> None:
    colour_of = group_colours(name for name, _, _ in layout.groups)
    free_from = -1.0
    for name, first, after in layout.groups:
        low, high = first * layout.scale, after * layout.scale - 1
        x, y = layout.left - _STRIP - 4, layout.top - _STRIP - 4
        pen.rectangle((x, layout.top + low, x + _STRIP, layout.top + high), fill=colour_of[name])
        pen.rectangle((layout.left + low, y, layout.left + high, y + _STRIP), fill=colour_of[name])
        middle = (low + high) / 2
        if middle - 8 >= free_from:
            pen.text((x - 8, layout.top + middle), name, fill=_INK, font=_load_font(14), anchor="rm")
            free_from = middle + 8


def _draw_borders(pen: ImageDraw, layout: _Frame) -> None:
    """Draw a line between two groups, unless both are too narrow for it."""
    before = 0
    for (_, first, _), (_, low, high) in itertools.pairwise(layout.groups):
        if max(low - first, high - low) * layout.scale < _LEAST_BORDERED:
            continue
        at = round(low * layout.scale)
        if at - before < 2:
            continue
        before = at
        pen.line((layout.left, layout.top + at, layout.left + layout.width - 1, layout.top + at), fill=_BORDER)
        pen.line((layout.left + at, layout.top, layout.left + at, layout.top + layout.height - 1), fill=_BORDER)


def _draw_bar(
    canvas: Image,
    pen: ImageDraw,
    layout: _Frame,
    scale: Scale,
    values: NDArray[np.floating],
    palette: PaletteName,
    ends: tuple[str, str],
) -> None:
    from PIL import Image

    height = layout.height
    x, y = layout.left + layout.width + 28, layout.top
    ramp = colours(np.linspace(1.0, 0.0, height), palette)[:, None, :].repeat(_BAR, 1)
    canvas.paste(Image.fromarray(ramp), (x, y))
    font = _load_font(13)
    pen.text((x, y - 10), scale.name, fill=_INK, font=font, anchor="ls")
    for share, value in scale.marks(5 if height >= 120 else 2):
        at = y + (height - 1) * (1 - share)
        pen.line((x + _BAR, at, x + _BAR + 5, at), fill=_INK)
        text = _clip_mark(values, scale, share) + format_number(value)
        pen.text((x + _BAR + 9, at), text, fill=_INK, font=font, anchor="lm")
        if share in (0.0, 1.0):
            beside = at + 16 if share else at - 16
            pen.text((x + _BAR + 9, beside), ends[int(share)], fill=_INK, font=font, anchor="lm")


def _clip_mark(values: NDArray[np.floating], scale: Scale, share: float) -> str:
    """Say at an end of the bar that there are values beyond it."""
    finite = values[np.isfinite(values)]
    end = scale.near if share == 1.0 else scale.far
    if share not in (0.0, 1.0) or not finite.size:
        return ""
    if end == max(scale.limits):
        return "> " if finite.max() > end else ""
    return "< " if finite.min() < end else ""


def _load_font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)
