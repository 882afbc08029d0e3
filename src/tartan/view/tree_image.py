"""Draw a tree as a picture, with matplotlib, which is an extra of its own ("plots").

Rectangular: the root is at the left, one line a leaf. Radial: leaves point in all directions. Branches
are in proportion to their lengths, with a bar that has a length; those of one cluster have its colour.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.trees import depths
from tartan.base.checks import check_one_of
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
    unit: str = "",
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
    unit : str
        What the length of a branch is; beside the bar below the tree.

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
    check_one_of("layout", layout, LAYOUTS)
    kind = require_picture(target)
    matplotlib = matplotlib_of_trees()
    shown = tree if tree.rooted else tree.rooted_at_midpoint()
    # Text stays text in SVG; names may have characters that no font here has; the same tree gives the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "tartan", "pdf.fonttype": 42}
    with whole_file(target) as temporary, matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        colours = Colours(shown, clusters)
        if layout == "radial":
            figure = radial_figure(shown, title, colours, unit)
        else:
            figure = _draw(shown, title, colours, unit)
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


def _draw(tree: Tree, title: str, colours: Colours, unit: str) -> Any:
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
        _draw_scale(axes, float(x.max()), line, unit)
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


def _draw_scale(axes: Any, deepest: float, line: float, unit: str) -> None:
    """Draw a bar of a round length below the tree."""
    if not deepest > 0:
        return
    length = 10 ** math.floor(math.log10(deepest / 4))
    length *= max(step for step in (1, 2, 5) if step * length <= deepest / 4 * 1.0001)
    below = axes.get_ylim()[0] + 0.12 / line
    axes.plot([0, length], [below, below], color=INK, linewidth=1.4, clip_on=False)
    axes.annotate(
        _say_length(length, unit), (length, below), xytext=(4, 0), textcoords="offset points", fontsize=8, color=INK,
        verticalalignment="center_baseline", annotation_clip=False,
    )  # fmt: skip


def _say_length(length: float, unit: str) -> str:
    return f"{length:g} ({unit})" if unit else f"{length:g}"


# Draw a tree with its leaves in all directions: every leaf has an equal share of the circle.
#
# The layout is that of equal angles (Felsenstein: Inferring phylogenies, 2004, chapter 34): a node shares its part of
# the circle among its children in proportion to their leaves.

Floats = NDArray[np.float64]

_SIDE: Final = 8.0  # inches of the picture
_WIDEST: Final = 40.0
_RADIAL_MARGIN: Final = 0.35
_RADIAL_TEXT: Final = 9.0
_BRANCHES: Final = 4.0  # inches that they have at least, beside the names
_LOOSE: Final = 1.1  # programs that show SVG have fonts of their own
_LEAST_WITH_SUPPORT: Final = 0.2  # inches of a branch; beside shorter ones there is no place
_GAP: Final = 0.06  # inches between a leaf and its name


def radial_figure(tree: Tree, title: str, colours: Colours, unit: str = "") -> Any:
    """Return a figure of a tree with equal angles; it grows with the number of leaves."""
    matplotlib = matplotlib_of_trees()
    x, y, angles = radial_places(tree)
    n = len(tree.leaves)
    side = min(_WIDEST, max(_SIDE, 0.045 * n))
    size = min(_RADIAL_TEXT, 72 * 2 * math.pi * (side / 2.6) / n)
    names = [clean_name(tree.names[leaf]) for leaf in tree.leaves] if size >= SMALLEST_TEXT else [""] * n
    widths = _widths(matplotlib.figure.Figure(), names, size)
    side = max(side, 2 * float(widths.max()) + _BRANCHES)
    figure = matplotlib.figure.Figure(figsize=(side, side))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    room = side - 2 * _RADIAL_MARGIN - 0.5
    scale, (left, low) = _fit_scale(tree, (x, y, angles), widths, room)
    x, y = (x * scale - left) + _RADIAL_MARGIN, (y * scale - low) + _RADIAL_MARGIN + 0.3
    axes.set_xlim(0, side)
    axes.set_ylim(0, side)
    ends = [node for node in tree.order if tree.parents[node] >= 0]
    lines = [[(x[tree.parents[node]], y[tree.parents[node]]), (x[node], y[node])] for node in ends]
    inks = [colours.of_branch(node) for node in ends]
    width = 1.2 if n < 200 else 0.7
    axes.add_collection(matplotlib.collections.LineCollection(lines, colors=inks, linewidths=width))
    _write_names(axes, tree, (x, y, angles), (names, size), colours)
    write_supports(axes, tree, x, y, size, least=_LEAST_WITH_SUPPORT)
    colours.write_legend(figure, side)
    _draw_bar(axes, tree, scale, unit)
    if title:
        figure.text(_RADIAL_MARGIN / side, 1 - 0.35 / side, clean_name(title), fontsize=11, color=INK, parse_math=False)
    return figure


def radial_places(tree: Tree) -> tuple[Floats, Floats, Floats]:
    """Return where each node is, in units of the branches, and the direction of its branch in radians."""
    depth = depths(tree)
    n_leaves = np.zeros(tree.n_nodes, np.int64)
    n_leaves[list(tree.leaves)] = 1
    for node in reversed(tree.order[1:]):
        n_leaves[tree.parents[node]] += n_leaves[node]
    x, y, angles, begins = (np.zeros(tree.n_nodes) for _ in range(4))
    for node in tree.order:
        begin = begins[node]
        for child in tree.children[node]:
            share = 2 * math.pi * n_leaves[child] / n_leaves[tree.order[0]]
            begins[child], angles[child] = begin, begin + share / 2
            length = depth[child] - depth[node]
            x[child] = x[node] + length * math.cos(angles[child])
            y[child] = y[node] + length * math.sin(angles[child])
            begin += share
    return x, y, angles


def _widths(figure: Any, names: list[str], size: float) -> Floats:
    """Return how many inches each name takes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    texts = [figure.text(0, 0, name, fontsize=size, parse_math=False) for name in names]
    widths = np.array([text.get_window_extent(renderer).width if text.get_text() else 0.0 for text in texts])
    for text in texts:
        text.remove()
    inches: Floats = _LOOSE * widths / float(figure.dpi) + _GAP
    return inches


def _fit_scale(
    tree: Tree, places: tuple[Floats, Floats, Floats], widths: Floats, room: float
) -> tuple[float, tuple[float, float]]:
    """Return the largest scale at which all names end inside the picture, and the least coordinates in inches."""
    x, y, angles = places
    leaves = list(tree.leaves)
    out_x, out_y = widths * np.cos(angles[leaves]), widths * np.sin(angles[leaves])
    extent = max(np.ptp(x), np.ptp(y), 1e-300)

    def bounds(scale: float) -> tuple[float, float, float]:
        ends_x = np.concatenate([x * scale, x[leaves] * scale + out_x])
        ends_y = np.concatenate([y * scale, y[leaves] * scale + out_y])
        return max(np.ptp(ends_x), np.ptp(ends_y)), float(ends_x.min()), float(ends_y.min())

    least, most = 0.25 * room / extent, room / extent
    for _ in range(40):
        middle = (least + most) / 2
        least, most = (middle, most) if bounds(middle)[0] <= room else (least, middle)
    _, left, low = bounds(least)
    return least, (left, low)


def _write_names(
    axes: Any,
    tree: Tree,
    places: tuple[Floats, Floats, Floats],
    texts: tuple[list[str], float],
    colours: Colours,
) -> None:
    """Write the names of the leaves along their branches, never upside down."""
    x, y, angles = places
    names, size = texts
    for leaf, name in zip(tree.leaves, names):
        if not name:
            continue
        angle = float(angles[leaf])
        turned = math.cos(angle) < 0
        axes.text(
            x[leaf] + _GAP * math.cos(angle),
            y[leaf] + _GAP * math.sin(angle),
            name,
            fontsize=size,
            color=colours.of_name(leaf),
            rotation=math.degrees(angle) + (180 if turned else 0),
            rotation_mode="anchor",
            horizontalalignment="right" if turned else "left",
            verticalalignment="center_baseline",
            parse_math=False,
        )


def _draw_bar(axes: Any, tree: Tree, scale: float, unit: str) -> None:
    """Draw a bar of a round length in the lower left corner."""
    if np.isnan(tree.lengths[np.asarray(tree.parents) >= 0]).all():
        return
    length = 10 ** math.floor(math.log10(2.0 / scale))
    length *= max(step for step in (1, 2, 5) if step * length * scale <= 2.0001)
    axes.plot([_RADIAL_MARGIN, _RADIAL_MARGIN + length * scale], [0.2, 0.2], color=INK, linewidth=1.4)
    end = _RADIAL_MARGIN + length * scale + 0.06
    axes.text(end, 0.2, _say_length(length, unit), fontsize=8, color=INK, verticalalignment="center")


# A linkage beside the rows of a matrix: the order of its leaves, and the lines that join them.


def leaves_of(joined: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the leaves of a linkage (n - 1, 4) from one end to the other."""
    n = len(joined) + 1
    waiting, found = [2 * n - 2], []
    while waiting:
        node = waiting.pop()
        if node < n:
            found.append(node)
        else:
            waiting += [int(joined[node - n, 1]), int(joined[node - n, 0])]
    return np.array(found, np.intp)


def tree_ends(heights: NDArray[np.float64], *, larger_is_nearer: bool) -> tuple[float, float]:
    """Return the ends of the axis of a linkage: the height of its last joint, and where its leaves are drawn.

    Distances begin at 0, or nearer to the first joint where all are far from 0: a joint is never where the leaves are,
    unless its items are at distance 0.
    """
    far, near = (float(heights.min()), float(heights.max()))
    if not larger_is_nearer:
        far, near = near, far
    if far == near == 0.0:
        return (0.0, 1.0) if larger_is_nearer else (1.0, 0.0)
    room = 0.15 * (near - far) or (-0.15 if not larger_is_nearer else 0.15) * (abs(near) or 1.0)
    if not larger_is_nearer and 0 <= near < far / 2:
        return far, 0.0
    if not larger_is_nearer and near >= 0:
        return far, max(0.0, near + room)
    return far, near + room


def branches(
    joined: NDArray[np.float64],
    across: Callable[[float], float],
    down: Callable[[float], float],
    *,
    leaf: float = 0.0,
) -> str:
    """Return the path of an SVG that draws a linkage.

    Parameters
    ----------
    joined : ndarray (n - 1, 4)
    across : callable
        Where a height lies in the picture.
    down : callable
        Where a leaf lies by its place in ``leaves_of``; between two leaves for a half.
    leaf : float
        Height of the leaves.
    """
    n = len(joined) + 1
    places = np.empty(2 * n - 1)
    places[leaves_of(joined)] = np.arange(n)
    heights = np.concatenate([np.full(n, leaf), joined[:, 2]])
    lines = []
    for node, (a, b) in enumerate(joined[:, :2].astype(int).tolist(), n):
        places[node] = (places[a] + places[b]) / 2
        first, last, ends = down(places[a]), down(places[b]), [across(heights[part]) for part in (a, node, b)]
        lines.append(f"M{ends[0]:.2f} {first:.2f}H{ends[1]:.2f}V{last:.2f}H{ends[2]:.2f}")
    return "".join(lines)
