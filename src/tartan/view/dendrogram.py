"""A linkage beside the rows of a matrix: the order of its leaves, and the lines that join them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


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


def branches(joined: NDArray[np.float64], across: Callable[[float], float], down: Callable[[float], float]) -> str:
    """Return the path of an SVG that draws a linkage.

    Parameters
    ----------
    joined : ndarray (n - 1, 4)
    across : callable
        Where a height lies in the picture; leaves have height 0.
    down : callable
        Where a leaf lies by its place in ``leaves_of``; between two leaves for a half.
    """
    n = len(joined) + 1
    places = np.empty(2 * n - 1)
    places[leaves_of(joined)] = np.arange(n)
    heights = np.concatenate([np.zeros(n), joined[:, 2]])
    lines = []
    for node, (a, b) in enumerate(joined[:, :2].astype(int).tolist(), n):
        places[node] = (places[a] + places[b]) / 2
        first, last, ends = down(places[a]), down(places[b]), [across(heights[part]) for part in (a, node, b)]
        lines.append(f"M{ends[0]:.2f} {first:.2f}H{ends[1]:.2f}V{last:.2f}H{ends[2]:.2f}")
    return "".join(lines)
