"""Trees as text: where each node goes on a grid of characters, and which lines meet in a character."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.trees.nodes import Nodes

# Lines of a drawing by what they join: 1 up, 2 down, 4 left, 8 right.
_BOXES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


def draw(tree: Nodes, width: int, inner: Sequence[str]) -> str:
    """Draw a tree with lines of at most ``width`` characters; ``inner`` has a label of each node, or none.

    Labels of leaves do not count.
    """
    leaves = tree.leaves
    shown = [_cut(tree.names[leaf], width // 2) for leaf in leaves]
    n_columns = width - max(map(len, shown)) - 1
    columns, rows = _columns(tree, n_columns), _rows(tree)
    grid = np.zeros((len(leaves), n_columns), np.uint8)
    for node in tree.order:
        _draw_branch(grid, tree, node, columns, rows)
    lines = [[_BOXES[code] for code in line] for line in grid.tolist()]
    for node in tree.order[1:]:
        if tree.children[node]:
            _write_label(lines[rows[node]], inner[node], columns[tree.parents[node]], columns[node])
    return "\n".join(f"{''.join(line)} {name}".rstrip() for line, name in zip(lines, shown))


def _write_label(line: list[str], label: str, begin: int, end: int) -> None:
    """Write the support or the name of an inner node into the line that leads to it, where it fits."""
    shown = _cut(label, len(label))
    if 0 < len(shown) < end - begin:
        line[end - len(shown) : end] = shown


def _draw_branch(
    grid: NDArray[np.uint8], tree: Nodes, node: int, columns: NDArray[np.int64], rows: NDArray[np.int64]
) -> None:
    """Draw the line from the parent to a node, and the bar that its children hang on."""
    parent = int(tree.parents[node])
    row, end = rows[node], columns[node]
    if parent >= 0 and end > columns[parent]:
        grid[row, columns[parent]] |= 8
        grid[row, columns[parent] + 1 : end] |= 12
        grid[row, end] |= 4 if tree.children[node] else 12
    children = tree.children[node]
    if children:
        first, last = rows[children[0]], rows[children[-1]]
        grid[first:last, end] |= 2
        grid[first + 1 : last + 1, end] |= 1
        if parent < 0:
            grid[row, end] |= 4


def depths(tree: Nodes) -> NDArray[np.float64]:
    """Return how far each node is from the root.

    Negative lengths count as zero; where no length is known, each counts as one.
    """
    depth = np.zeros(tree.n_nodes)
    lengths = np.nan_to_num(np.maximum(tree.lengths, 0.0))
    lengths = lengths if lengths.max() > 0 else np.ones(tree.n_nodes)
    for node in tree.order[1:]:
        depth[node] = depth[tree.parents[node]] + lengths[node]
    return depth


def _columns(tree: Nodes, n_columns: int) -> NDArray[np.int64]:
    """Return the column of each node: the depth to scale, and at least one to the right of the parent."""
    depth = depths(tree)
    columns: NDArray[np.int64] = np.round(depth * ((n_columns - 1) / max(depth.max(), 1e-300))).astype(np.int64)
    for node in tree.order[1:]:
        columns[node] = min(n_columns - 1, max(columns[node], columns[tree.parents[node]] + 1))
    return columns


def _rows(tree: Nodes) -> NDArray[np.int64]:
    """Return the line of each node: leaves in order, the others in the middle of their children."""
    rows = np.zeros(tree.n_nodes, np.int64)
    rows[list(tree.leaves)] = np.arange(len(tree.leaves))
    for node in reversed(tree.order):
        children = tree.children[node]
        if children:
            rows[node] = (rows[children[0]] + rows[children[-1]]) // 2
    return rows


def _cut(name: str, width: int) -> str:
    shown = " ".join(name.splitlines())  # a leaf has one line
    return shown if len(shown) <= width else shown[: width - 1] + "…"
