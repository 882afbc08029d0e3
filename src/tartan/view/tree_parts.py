"""What all pictures of trees share: matplotlib, colours of clusters, names, support."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError
from tartan.view.page import show_on_one_line
from tartan.view.scene import group_colours

if TYPE_CHECKING:
    from tartan.analytics import Tree

INK: Final = "#26262a"
SMALLEST_TEXT: Final = 3.0  # points
_SOFT: Final = "#5b5d66"
_BRANCH: Final = "#3b528b"
_LEGEND_NAMES: Final = 12
_LABEL_CHARACTERS: Final = 48


def matplotlib_of_trees() -> Any:
    """Import matplotlib, here only."""
    try:
        import matplotlib
        import matplotlib.collections
        import matplotlib.figure
    except ImportError as error:
        raise ConfigError(
            "pictures of trees need matplotlib: pip install 'tartan-allpairs[plots]'; --draw draws in the terminal"
        ) from error
    return matplotlib


def lines_of(tree: Tree) -> NDArray[np.float64]:
    """Return the line of each node: leaves have one each, an inner node is between its first and its last child."""
    y = np.zeros(tree.n_nodes)
    y[list(tree.leaves)] = np.arange(len(tree.leaves))
    for node in reversed(tree.order):
        if children := tree.children[node]:
            y[node] = (y[children[0]] + y[children[-1]]) / 2
    return y


class Colours:
    """Colours of the branches and names of a tree.

    Parameters
    ----------
    tree : Tree
    clusters : mapping of str to str, or None
        Cluster of each leaf, by its name.

    Raises
    ------
    ConfigError
        If a leaf has no cluster.
    """

    def __init__(self, tree: Tree, clusters: Mapping[str, str] | None) -> None:
        self._of: list[str | None] = [None] * tree.n_nodes
        self._inks: dict[str, str] = {}
        if clusters is None:
            return
        missing = [name for name in tree.leaf_names if name not in clusters]
        if missing:
            raise ConfigError(f"clusters: the leaf {missing[0]!r} has none, nor have {len(missing) - 1} others")
        for leaf in tree.leaves:
            self._of[leaf] = clusters[tree.names[leaf]]
        for node in reversed(tree.order):
            inner = {self._of[child] for child in tree.children[node]}
            if tree.children[node]:
                self._of[node] = inner.pop() if len(inner) == 1 else None
        self._inks = group_colours(clusters[name] for name in tree.leaf_names)

    def of_branch(self, node: int) -> str:
        """Return the colour of the branch above a node."""
        cluster = self._of[node]
        return _BRANCH if cluster is None else self._inks[cluster]

    def of_name(self, leaf: int) -> str:
        """Return the colour of the name of a leaf."""
        return self.of_branch(leaf) if self._inks else INK

    def write_legend(self, figure: Any, height: float) -> None:
        """Write the names of the clusters in one line at the foot, as far as there are few."""
        if len(self._inks) < 2:
            return
        at = 0.45
        for name, ink in sorted(self._inks.items())[:_LEGEND_NAMES]:
            text = f"■ {clean_name(name)[:16]}"
            figure.text(at, 0.1 / height, text, fontsize=8, color=ink, parse_math=False)
            at += 0.012 * len(text) + 0.015


def write_supports(
    axes: Any, tree: Tree, x: NDArray[np.float64], y: NDArray[np.float64], size: float, *, least: float = 0.0
) -> None:
    """Write the support of each inner branch of at least some length, in percent, beside its node."""
    if tree.support is None or size < SMALLEST_TEXT:
        return
    for node in tree.order:
        share = float(tree.support[node])
        above = int(tree.parents[node])
        if (
            tree.children[node]
            and not math.isnan(share)
            and math.hypot(x[node] - x[above], y[node] - y[above]) >= least
        ):
            axes.annotate(
                f"{100 * share:.0f}", (x[node], y[node]), xytext=(-2, 2), textcoords="offset points", ha="right",
                fontsize=0.8 * size, color=_SOFT, annotation_clip=False,
            )  # fmt: skip


def clean_name(name: str) -> str:
    """Return a name as pictures of trees write it."""
    return show_on_one_line(name, _LABEL_CHARACTERS)
