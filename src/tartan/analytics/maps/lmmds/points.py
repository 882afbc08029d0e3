"""Which points of a map are varied, fixed or left out, and which coordinates hold the map in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix import Dissimilarities
from tartan.errors import ConfigError

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]


def chosen(varied: Any, fixed: Any, names: Sequence[str] | None, n: int) -> tuple[Marks, Marks]:
    """Return marks of the varied and of the fixed points.

    Each is "all", "rest" (what the other has not), "none", a mask, or a list of indices or names.
    """
    if _word(varied) == "rest" and _word(fixed) == "rest":
        raise ConfigError("varied and fixed are both 'rest'; name the points of one of them")
    first = None if _word(varied) == "rest" else _marks("varied", varied, names, n)
    second = None if _word(fixed) == "rest" else _marks("fixed", fixed, names, n)
    if first is None:
        assert second is not None
        first = ~second
    if second is None:
        second = ~first
    both = np.flatnonzero(first & second)
    if len(both):
        raise ConfigError(
            f"{len(both)} points are both varied and fixed, such as {both[0]}; say varied='rest' or fixed='rest'",
            context={"points": both[:10].tolist()},
        )
    return first, second


def _word(given: Any) -> str | None:
    return given if isinstance(given, str) else None


def _marks(what: str, given: Any, names: Sequence[str] | None, n: int) -> Marks:
    if isinstance(given, str):
        if given not in ("all", "none"):
            raise ConfigError(f"{what} is {given!r}; it is 'all', 'rest', 'none', or a list of indices or names")
        return np.full(n, given == "all")
    if not isinstance(given, Iterable):
        raise ConfigError(f"{what} is {given!r}; it is 'all', 'rest', 'none', or a list of indices or names")
    listed = list(given)
    marks = np.zeros(n, bool)
    if listed and all(isinstance(item, str) for item in listed):
        marks[_places(what, listed, names)] = True
        return marks
    indices = np.asarray(listed)
    if indices.dtype == np.bool_ and len(indices) == n:
        return indices
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise ConfigError(f"{what}: give indices, names, or one truth value for each of the {n} points")
    wrong = indices[(indices < 0) | (indices >= n)] if len(indices) else indices
    if len(wrong):
        raise ConfigError(f"{what} has the index {wrong[0]}; there are {n} points, from 0")
    marks[indices.astype(np.int64)] = True
    return marks


def _places(what: str, listed: list[str], names: Sequence[str] | None) -> list[int]:
    if names is None:
        raise ConfigError(f"{what} has names such as {listed[0]!r}, but the matrix has none; give labels to fit")
    found = {name: place for place, name in enumerate(names)}
    missing = [name for name in listed if name not in found]
    if missing:
        raise ConfigError(f"{what} has {missing[0]!r}, which is no label of the matrix")
    return [found[name] for name in listed]


def sorted_out(links: NDArray[np.int64], used: Marks, fixed: Marks, n_links: int) -> Marks:
    """Return which used points stay: fixed ones, and varied ones with more than ``n_links`` links."""
    return used & (fixed | (links > n_links))


class Gauge:
    """Coordinates that are held at zero, so that a map without fixed points cannot move or turn.

    One point is the origin, the next lies on the first axis, the next in the plane of the first two, and so on.

    Attributes
    ----------
    anchors : list of int
        Those points.
    """

    def __init__(self, anchors: list[int], dimension: int) -> None:
        self.anchors = anchors
        self._dimension = dimension

    def moved(self, x: Floats) -> Floats:
        """Return the map, moved and turned (never mirrored) to where the coordinates are zero."""
        x = x - x[self.anchors[0]]
        others = x[self.anchors[1:]]
        if len(others):
            turn, triangle = np.linalg.qr(others.T, mode="complete")
            signs = np.ones(self._dimension)
            diagonal = np.diag(triangle)
            signs[: len(diagonal)] = np.where(diagonal < 0, -1.0, 1.0)
            turn = turn * signs
            if np.linalg.det(turn) < 0:
                turn[:, -1] *= -1.0
            x = x @ turn
        x[~self.free(len(x))] = 0.0
        return x

    def free(self, n: int) -> Marks:
        """Return (n, L) marks of the coordinates that may change."""
        marks = np.ones((n, self._dimension), bool)
        for place, anchor in enumerate(self.anchors):
            marks[anchor, place:] = False
        return marks


def pinned(D: Dissimilarities, means: Floats, used: Marks, dimension: int) -> Gauge:
    """Choose the anchors of a map: the centre, the point farthest from it, then those farthest from all before.

    "Farthest from all" is the largest product of the dissimilarities; the centre has the least mean dissimilarity.
    """
    anchors = [int(np.where(used, means, np.inf).argmin())]
    product = np.where(used, 1.0, -1.0)
    while len(anchors) < min(dimension, int(used.sum())):
        row = D.values(slice(anchors[-1], anchors[-1] + 1), slice(0, D.n))[0]
        product = product * np.nan_to_num(row)
        product[anchors] = -1.0
        product[~used] = -2.0
        anchors.append(int(product.argmax()))
    return Gauge(anchors, dimension)
