"""Draw a tree as a picture, with matplotlib, which is an extra of its own ("plots").

Rectangular: the root is at the left, one line a leaf. Radial (tree_radial.py): leaves point in all directions. Branches
are in proportion to their lengths, with a bar that has a length; those of one cluster have its colour.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.trees import depths
from tartan.base.checks import one_of
from tartan.base.files import whole_file
from tartan.errors import ConfigError
from tartan.view.tree_parts import (
    INK,
    SMALLEST_TEXT,
    Colours,
    clean_name,
    lines_of,
    matplotlib_of_trees,
    write_supports,
)
from tartan.view.tree_radial import radial_figure

if TYPE_CHECKING:
    from tartan.analytics import Tree

__all__ = ["save_tree_image"]

PICTURE_FORMATS: Final = ("png", "svg", "pdf")

# Inches, and points of 1/72 inch.
_WIDTH: Final = 8.0
_LINE: Final = 0.17
_MARGIN: Final = 0.3
_FOOT: Final = 0.55
_HIGHEST: Final = 100.0
_TEXT: Final = 9.0
_DOTS_PER_INCH: Final = 120
LAYOUTS: Final = ("rectangular", "radial")


def save_tree_image(
    tree: Tree,
    path: str | Path,
    *,
    title: str = "",
    layout: str = "rectangular",
    clusters: Mapping[str, str] | None = None,
) -> Path:
    """Draw a tree into a file, with the support of its branches if it has one.

    Parameters
    ----------
    tree : Tree
        An unrooted one is drawn from its midpoint. Negative lengths are drawn as zero; all branches are alike where no
        length is known.
    path : path
        .png, .svg or .pdf. The picture is 8 inches wide and grows with the leaves, up to 100 inches; from there on the
        names become smaller, and beyond some 1,700 leaves they are left out.
    title : str
        Text above the tree.
    layout : {"rectangular", "radial"}
        Radial: leaves point in all directions, each in a share of the circle of its own (equal angles).
    clusters : mapping of str to str, optional
        Cluster of each leaf, by its name: names, and branches all of whose leaves are of one cluster, have its colour.

    Returns
    -------
    Path
        The file, written whole or not at all.

    Raises
    ------
    ConfigError
        If matplotlib is not installed, the name has another ending, the layout is unknown, or a leaf has no cluster.
    """
    target = Path(path)
    one_of("layout", layout, LAYOUTS)
    kind = require_picture(target)
    matplotlib = matplotlib_of_trees()
    shown = tree if tree.rooted else tree.rooted_at_midpoint()
    # Text stays text in SVG; names may have characters that no font here has; the same tree gives the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "tartan", "pdf.fonttype": 42}
    with whole_file(target) as temporary, matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        colours = Colours(shown, clusters)
        if layout == "radial":
            figure = radial_figure(shown, title, colours)
        else:
            figure = _drawn(shown, title, colours)
        about = {"CreationDate" if kind == "pdf" else "Date": None} if kind != "png" else None
        figure.savefig(temporary, format=kind, dpi=_DOTS_PER_INCH, metadata=about)
    return target


def require_picture(path: str | Path) -> str:
    """Return the format of a picture by its name, or raise ConfigError as ``save_tree_image`` would."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in PICTURE_FORMATS:
        raise ConfigError(f"{path}: pictures of trees end with .{', .'.join(PICTURE_FORMATS)}")
    matplotlib_of_trees()
    return kind


def _drawn(tree: Tree, title: str, colours: Colours) -> Any:
    """Return a figure of the tree; the length of names decides how much of the width is left for branches."""
    matplotlib = matplotlib_of_trees()
    x, y = depths(tree), lines_of(tree)
    n = len(tree.leaves)
    line = min(_LINE, _HIGHEST / n)
    size = min(_TEXT, _TEXT * line / _LINE)
    head = _MARGIN + (0.3 if title else 0.0)
    height = n * line + head + _FOOT
    figure = matplotlib.figure.Figure(figsize=(_WIDTH, height))
    axes = figure.add_axes((_MARGIN / _WIDTH, _FOOT / height, 1 - 2 * _MARGIN / _WIDTH, n * line / height))
    axes.set_axis_off()
    axes.set_ylim(n - 0.5, -0.5)
    width = min(1.4, 0.5 + 0.05 * math.sqrt(n)) if n < 200 else 0.8
    paths, inks = _branches(tree, x, y, colours)
    lines = matplotlib.collections.LineCollection(paths, colors=inks, linewidths=width)
    axes.add_collection(lines)
    names = _labels(axes, tree, (x, y), size, colours) if size >= SMALLEST_TEXT else []
    _fit(axes, names, float(x.max()))
    if not np.isnan(tree.lengths[np.asarray(tree.parents) >= 0]).all():
        _draw_scale(axes, float(x.max()), line)
    write_supports(axes, tree, x, y, size)
    colours.write_legend(figure, height)
    if title:
        figure.text(_MARGIN / _WIDTH, 1 - 0.3 / height, clean_name(title), fontsize=11, color=INK, parse_math=False)
    return figure


def _branches(
    tree: Tree, x: NDArray[np.float64], y: NDArray[np.float64], colours: Colours
) -> tuple[list[list[tuple[float, float]]], list[str]]:
    """Return lines and their colours: from the parent to each node, and the bar that the children of a node hang on."""
    found, inks = [], []
    for node in tree.order:
        start = x[tree.parents[node]] if tree.parents[node] >= 0 else -0.01 * x.max()
        found.append([(start, y[node]), (x[node], y[node])])
        inks.append(colours.of_branch(node))
        children = tree.children[node]
        if len(children) > 1:
            found.append([(x[node], y[children[0]]), (x[node], y[children[-1]])])
            inks.append(colours.of_branch(node))
    return found, inks


def _labels(
    axes: Any, tree: Tree, places: tuple[NDArray[np.float64], NDArray[np.float64]], size: float, colours: Colours
) -> list[Any]:
    x, y = places
    return [
        axes.annotate(
            clean_name(tree.names[leaf]),
            (x[leaf], y[leaf]),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=size,
            color=colours.of_name(leaf),
            verticalalignment="center_baseline",
            parse_math=False,
            annotation_clip=False,
        )
        for leaf in tree.leaves
    ]


def _fit(axes: Any, names: list[Any], deepest: float) -> None:
    """Set the scale so that every name ends inside the picture, and branches have a third of the width at least."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # One for all names: each has the whole picture in memory, and without it every name would make one of its own.
    canvas: Any = FigureCanvasAgg(axes.figure)
    renderer = canvas.get_renderer()
    width = axes.get_window_extent(renderer).width
    deepest = deepest or 1.0
    scale = width / deepest
    for name in names:
        needed = name.get_window_extent(renderer).width + 6
        if name.xy[0] > 0:
            scale = min(scale, (width - needed) / name.xy[0])
    axes.set_xlim(0.0, width / max(scale, width / deepest / 3))


def _draw_scale(axes: Any, deepest: float, line: float) -> None:
    """Draw a bar of a round length below the tree."""
    if not deepest > 0:
        return
    length = 10 ** math.floor(math.log10(deepest / 4))
    length *= max(step for step in (1, 2, 5) if step * length <= deepest / 4 * 1.0001)
    below = axes.get_ylim()[0] + 0.12 / line
    axes.plot([0, length], [below, below], color=INK, linewidth=1.4, clip_on=False)
    axes.annotate(
        f"{length:g}", (length, below), xytext=(4, 0), textcoords="offset points", fontsize=8, color=INK,
        verticalalignment="center_baseline", annotation_clip=False,
    )  # fmt: skip
