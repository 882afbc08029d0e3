"""Draw clusters: the matrix with its rows and columns sorted by cluster, and lines between the clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError
from tartan.store.downsample import mean_cells
from tartan.view.matrix_image import draw_matrix, indexed

if TYPE_CHECKING:
    from tartan.analytics import Dissimilarities, Monitor

__all__ = ["save_cluster_image"]

_SIDE = 840
_SQUARE = 1500  # side of the squares that are read at once, in items


def save_cluster_image(
    D: Any,
    labels: Sequence[Hashable],
    path: str | Path,
    *,
    title: str = "",
    monitor: Monitor | None = None,
) -> Path:
    """Draw a matrix of dissimilarities, sorted by cluster, into a PNG file.

    Good clusters are dark squares along the diagonal; what is bright in a square does not belong together, what is dark
    beside one does.

    Parameters
    ----------
    D : anything that ``tartan.analytics.as_dissimilarities`` takes
        Every pair is read once. More than 840 items are averaged in cells; missing pairs do not count.
    labels : sequence, length n
        Cluster of each item. Clusters stand in the order of their first items, and items within one in their own.
    path : path
        The file, written whole or not at all; its name ends with .png.
    title : str
        Text above the matrix.
    monitor : Monitor, optional
        Progress and cancel.

    Raises
    ------
    ConfigError
        If an item has no label, or the file is not a .png.

    Examples
    --------
    >>> save_cluster_image(abs(np.arange(4.0)[:, None] - np.arange(4.0)), "aabb", "four.png")  # doctest: +SKIP
    PosixPath('four.png')
    """
    from tartan.analytics import Monitor, as_dissimilarities

    target, matrix = require_png(path), as_dissimilarities(D)
    names = [str(label) for label in labels]
    if len(names) != matrix.n:
        raise ConfigError(f"{len(names)} labels for {matrix.n} items: each item needs one")
    counts = Counter(names)  # in the order of their first items
    places = {name: place for place, name in enumerate(counts)}
    order = np.argsort([places[name] for name in names], kind="stable")
    values = mean_cells(squares(matrix, monitor or Monitor()), matrix.n, _SIDE, order)
    shown = [names[int(order[(cell * matrix.n) // len(values)])] for cell in range(len(values))]
    groups = [f"{name} ({counts[name]:,})" for name in shown]
    image = draw_matrix(values, title=title, groups=groups, borders=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    indexed(image).save(unfinished, format="PNG", optimize=True)
    unfinished.replace(target)
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


def squares(
    matrix: Dissimilarities, monitor: Monitor, side: int = _SQUARE
) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Yield squares that cover the upper triangle, missing pairs as NaN."""
    for top in range(0, matrix.n, side):
        for left in range(top, matrix.n, side):
            monitor.check()
            monitor.report("picture", rows=top, of=matrix.n)
            rows, columns = slice(top, min(matrix.n, top + side)), slice(left, min(matrix.n, left + side))
            yield top, left, matrix.values(rows, columns)
