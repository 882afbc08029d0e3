"""Say what stands beside the matrix of the page of a run, row by row: its tree, groups, and names when asked for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.view.matrix_image import stretches
from tartan.view.page import clip_text
from tartan.view.scene import group_colours, order_groups
from tartan.view.tiles import Pyramid
from tartan.view.tree_image import branches, tree_ends

TREE_WIDTH: Final = 1000
MOST_NAMES: Final = 512
# By judgement: stretches of one group that a browser paints in a frame; an order that mixes groups has more, and a
# strip of it would tell nothing.
_MOST_STRETCHES: Final = 20_000
_CHARACTERS: Final = 60


def describe_beside(pyramid: Pyramid, labels: Sequence[Hashable] | None, *, larger_is_nearer: bool) -> dict[str, Any]:
    """Return the tree and the groups of the rows of a matrix.

    Parameters
    ----------
    pyramid : Pyramid
        The matrix as it is drawn.
    labels : sequence, length n, or None
        Group of each item.
    larger_is_nearer : bool
        Of the heights of the tree, which are scores.

    Returns
    -------
    dict
        tree: the path of an SVG, from 0 at its last joint to ``TREE_WIDTH`` at the leaves across, and a row high each
        leaf, or ""; groups: {names, colours, stretches}, of stretches (first row, group), or None.
    """
    joined = pyramid.joined
    tree = "" if joined is None else _draw_tree(joined, larger_is_nearer)
    return {"tree": tree, "groups": _describe_groups(pyramid, labels)}


def _draw_tree(joined: NDArray[np.float64], larger_is_nearer: bool) -> str:
    far, near = tree_ends(joined[:, 2], larger_is_nearer=larger_is_nearer)

    def across(height: float) -> float:
        return TREE_WIDTH * (height - far) / (near - far)

    return branches(joined, across, lambda place: place + 0.5, leaf=near)


def _describe_groups(pyramid: Pyramid, labels: Sequence[Hashable] | None) -> dict[str, Any] | None:
    if labels is None or not pyramid.square or len(labels) != pyramid.shape[0]:
        return None
    named = [str(label) for label in labels]
    rows = named if pyramid.order is None else [named[item] for item in pyramid.order.tolist()]
    parts = stretches(rows)
    if len(parts) > _MOST_STRETCHES:
        return None
    names, colour_of = order_groups(named), group_colours(named)
    place = {name: k for k, name in enumerate(names)}
    return {
        "names": [clip_text(name, _CHARACTERS) for name in names],
        "colours": [colour_of[name] for name in names],
        "stretches": [(first, place[name]) for name, first, _ in parts],
    }


def names_beside(keys: Sequence[str], pyramid: Pyramid, axis: str, first: int, count: int) -> list[str]:
    """Return the names of some rows or columns of a matrix as it is drawn; fewer at its end.

    Parameters
    ----------
    keys : sequence of str, length n
    pyramid : Pyramid
    axis : {"rows", "columns"}
    first, count : int
        Which ones; at most ``MOST_NAMES``.
    """
    length = pyramid.shape[0 if axis == "rows" else 1]
    places = range(first, min(length, first + min(count, MOST_NAMES)))
    # The columns of two sets are the last items.
    offset = 0 if axis == "rows" else len(keys) - length
    items = [place + offset if pyramid.order is None else int(pyramid.order[place]) for place in places]
    return [clip_text(keys[item], _CHARACTERS) for item in items]
