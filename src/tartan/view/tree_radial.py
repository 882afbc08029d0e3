"""Draw a tree with its leaves in all directions: every leaf has an equal share of the circle.

The layout is that of equal angles (Felsenstein: Inferring phylogenies, 2004, chapter 34): a node shares its part of the
circle among its children in proportion to their leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.trees import depths
from tartan.view.tree_parts import INK, SMALLEST_TEXT, Colours, clean_name, matplotlib_of_trees, write_supports

if TYPE_CHECKING:
    from tartan.analytics import Tree

Floats = NDArray[np.float64]

_SIDE: Final = 8.0  # inches of the picture
_WIDEST: Final = 40.0
_MARGIN: Final = 0.35
_TEXT: Final = 9.0
_BRANCHES: Final = 4.0  # inches that they have at least, beside the names
_LOOSE: Final = 1.1  # programs that show SVG have fonts of their own
_LEAST_WITH_SUPPORT: Final = 0.2  # inches of a branch; beside shorter ones there is no place
_GAP: Final = 0.06  # inches between a leaf and its name


def radial_figure(tree: Tree, title: str, colours: Colours) -> Any:
    """Return a figure of a tree with equal angles; it grows with the number of leaves."""
    matplotlib = matplotlib_of_trees()
    x, y, angles = radial_places(tree)
    n = len(tree.leaves)
    side = min(_WIDEST, max(_SIDE, 0.045 * n))
    size = min(_TEXT, 72 * 2 * math.pi * (side / 2.6) / n)
    names = [clean_name(tree.names[leaf]) for leaf in tree.leaves] if size >= SMALLEST_TEXT else [""] * n
    widths = _widths(matplotlib.figure.Figure(), names, size)
    side = max(side, 2 * float(widths.max()) + _BRANCHES)
    figure = matplotlib.figure.Figure(figsize=(side, side))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    room = side - 2 * _MARGIN - 0.5
    scale, (left, low) = _fitted(tree, (x, y, angles), widths, room)
    x, y = (x * scale - left) + _MARGIN, (y * scale - low) + _MARGIN + 0.3
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
    _draw_bar(axes, tree, scale)
    if title:
        figure.text(_MARGIN / side, 1 - 0.35 / side, clean_name(title), fontsize=11, color=INK, parse_math=False)
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


def _fitted(
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


def _draw_bar(axes: Any, tree: Tree, scale: float) -> None:
    """Draw a bar of a round length in the lower left corner."""
    if np.isnan(tree.lengths[np.asarray(tree.parents) >= 0]).all():
        return
    length = 10 ** math.floor(math.log10(2.0 / scale))
    length *= max(step for step in (1, 2, 5) if step * length * scale <= 2.0001)
    axes.plot([_MARGIN, _MARGIN + length * scale], [0.2, 0.2], color=INK, linewidth=1.4)
    axes.text(_MARGIN + length * scale + 0.06, 0.2, f"{length:g}", fontsize=8, color=INK, verticalalignment="center")
