"""Draw a tree as SVG for a page: the root at the left, one line a leaf, branches in proportion to their lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tartan.base.format import format_number
from tartan.view.page import clipped, render
from tartan.view.tree_parts import lines_of

if TYPE_CHECKING:
    from tartan.analytics import Tree

MAX_LEAVES: Final = 300
_WIDE: Final = 440
_LINE: Final = 18
_NAME: Final = 44


def tree_svg(tree: Tree, *, described: str, colours: Sequence[str] = ()) -> str:
    """Return a drawing of a tree of at most 300 leaves; an unrooted one is drawn from its midpoint.

    Parameters
    ----------
    tree : Tree
    described : str
        What a reader who does not see it is told.
    colours : sequence of str, optional
        Colour of each leaf, in the order of ``tree.leaf_names``.
    """
    of_leaf = dict(zip(tree.leaf_names, colours))
    shown = tree if tree.rooted else tree.rooted_at_midpoint()
    lengths = np.maximum(np.nan_to_num(np.asarray(shown.lengths, np.float64)), 0.0)
    across, down = np.zeros(shown.n_nodes), 12 + _LINE * lines_of(shown)
    for node in shown.order[1:]:
        across[node] = across[int(shown.parents[node])] + lengths[node]
    deepest = float(across.max()) or 1.0
    across = 6 + _WIDE * across / deepest
    lines = []
    for node in reversed(shown.order):
        below = shown.children[node]
        if below:
            lines.append(f"M{across[node]:.1f} {down[below[0]]:.1f}V{down[below[-1]]:.1f}")
            lines += [f"M{across[node]:.1f} {down[child]:.1f}H{across[child]:.1f}" for child in below]
    names = [
        (round(across[leaf] + 6, 1), round(down[leaf], 1), clipped(shown.names[leaf], _NAME),
         of_leaf.get(shown.names[leaf], "currentColor"))
        for leaf in shown.leaves
    ]  # fmt: skip
    scale = 10.0 ** math.floor(math.log10(deepest / 3))
    return render(
        "tree.svg",
        described=described,
        size=(_WIDE + 400, 12 + _LINE * len(shown.leaves) + 30),
        lines="".join(lines),
        names=names,
        scale=(round(6 + _WIDE * scale / deepest, 1), format_number(scale)),
    )
