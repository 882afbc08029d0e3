"""One HTML page about a computation by block tasks: what it moved, and which rank computed which block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tartan.base.files import whole_file
from tartan.base.palette import GROUP_COLOURS, colours, hex_colour
from tartan.view.page import png_uri, render

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE: Final = 640
"""Longest side of the picture, in pixels, where blocks are fewer."""
_NOWHERE: Final = (225, 225, 225)


def write_blocks_report(path: str | Path, title: str, figures: Mapping[str, str], owners: np.ndarray) -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
    title : str
    figures : mapping of str to str
        What is said beside the picture, by name.
    owners : ndarray of int
        The rank that computed each block, -1 for none, by the index of the block. Of three dimensions and more, the
        first block along all but two is shown.
    """
    flat = _flat(owners)
    ranks, counts = np.unique(flat, return_counts=True)
    shades = dict(zip(ranks.tolist(), _shades(ranks), strict=True))
    legend: list[dict[str, Any]] = [
        {"name": f"rank {rank}" if rank >= 0 else "on no rank", "colour": hex_colour(shades[rank]),
         "blocks": count}
        for rank, count in zip(ranks.tolist(), counts.tolist(), strict=True)
    ]  # fmt: skip
    page = render(
        "blocks.html",
        title=title,
        figures=figures,
        picture=png_uri(picture_of_owners(flat, shades)),
        shape=flat.shape,
        legend=legend,
    )
    target = Path(path)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def picture_of_owners(owners: np.ndarray, shades: Mapping[int, tuple[int, int, int]]) -> Image:
    """Draw a square for each block, in the colour of its rank; blocks have lines between them where there is room."""
    from PIL import Image

    side = max(1, _SIDE // max(owners.shape))
    pixels = np.array([[shades[rank] for rank in row] for row in owners.tolist()], dtype=np.uint8)
    drawn = pixels.repeat(side, axis=0).repeat(side, axis=1)
    if side >= 6:
        drawn[side - 1 :: side] = 255
        drawn[:, side - 1 :: side] = 255
    return Image.fromarray(drawn)


def _flat(owners: np.ndarray) -> np.ndarray:
    found = owners.reshape(owners.shape[0], -1) if owners.ndim < 2 else owners
    while found.ndim > 2:
        found = found[..., 0]
    return found.T if found.shape[1] == 1 < found.shape[0] else found


def _shades(ranks: np.ndarray) -> list[tuple[int, int, int]]:
    """Return a colour for each rank: those of groups while they last, else a scale."""
    if ranks.max(initial=0) < len(GROUP_COLOURS):
        table = list(GROUP_COLOURS)
    else:
        scale = colours(np.linspace(0, 1, int(ranks.max()) + 1))
        table = [tuple(shade) for shade in scale.tolist()]
    return [table[rank] if rank >= 0 else _NOWHERE for rank in ranks.tolist()]
