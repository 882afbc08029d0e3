"""Read a run once for its report: a picture of its matrix, an order of the items, and a sample of its scores.

Up to `TREE_SIDE` items the matrix is held in memory and ordered by a tree. A larger one is read chunk by chunk, and
a run that keeps less than the matrix gives the pairs that it keeps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.store.downsample import CellSums, leaf_tree, shrink, without_self
from tartan.view.scene import ASIDE, order_groups

TREE_SIDE: Final = 2000
_SAMPLE: Final = 2_000_000
_LANDMARKS: Final = 600
_MOST_ORDERED: Final = 50_000
_NEAREST: Final = 10  # pairs; twice as many are looked at, because some runs have both (i, j) and (j, i)


@dataclass(frozen=True, eq=False)
class Overview:
    """What one pass over the scores of a run gives.

    Attributes
    ----------
    cells : ndarray of float64, shape (rows, columns)
        The matrix in the order below, averaged in blocks; NaN where no score is known or kept.
    order : ndarray of int, shape (n,), or None
        Row and column p show item ``order[p]``; None: the order of the input.
    joined : ndarray of float64, shape (n - 1, 4), or None
        The tree by which the items are ordered, with scores as heights; see ``tartan.store.downsample.leaf_tree``.
    sample : ndarray of float64
        Finite scores of pairs: all, or every n-th.
    n_scores : int
        How many there are.
    limits : (float, float)
        Least and greatest of them; NaN where there is none.
    shown : ndarray of int, shape (m,), or None
        The items that the picture shows where it leaves out those without a group; row p of m shows ``shown[p]``.
    nearest : tuple of (int, int, float)
        The most alike pairs and their scores, the first one foremost.
    """

    cells: NDArray[np.float64]
    order: NDArray[np.intp] | None
    joined: NDArray[np.float64] | None
    sample: NDArray[np.float64]
    n_scores: int
    limits: tuple[float, float]
    nearest: tuple[tuple[int, int, float], ...]
    shown: NDArray[np.intp] | None = None


def overview(run: Any, side: int, labels: Sequence[Hashable] | None = None) -> Overview:
    """Read the scores of a run.

    Parameters
    ----------
    run : Run
    side : int
        Largest side of the picture.
    labels : sequence, length n, optional
        Groups that lie together in the picture where no tree orders the items.
    """
    if run.manifest.reduce is not None:
        return _read_kept(run, side, labels)
    if max(run.shape) <= TREE_SIDE:
        return _whole(run, side)
    return _stream(run, side, labels)


def _whole(run: Any, side: int) -> Overview:
    output = run.manifest.analysed
    matrix = np.array(run.matrix(output), dtype=np.float64)
    order, joined, square = None, None, matrix.shape[0] == matrix.shape[1] == run.n_items
    if square:
        np.fill_diagonal(matrix, np.nan)
    known = np.isfinite(matrix)
    if square and run.manifest.symmetric_in(output):
        known &= np.triu(known, 1)
        if known.any():
            order, joined = leaf_tree(matrix, similarity=run.larger_is_nearer)
    picked = _Picked(run)
    picked.add(0, 0, matrix, known)
    shown = matrix if order is None else matrix[np.ix_(order, order)]
    return Overview(shrink(shown, side), order, joined, *picked.result())


def _stream(run: Any, side: int, labels: Sequence[Hashable] | None) -> Overview:
    square = run.shape[0] == run.shape[1] == run.n_items
    order = _by_label(labels) if square and labels is not None else None
    output = run.manifest.analysed
    if order is None and run.manifest.symmetric_in(output) and run.n_items <= _MOST_ORDERED:
        order = _by_landmarks(run)
    sums, picked = CellSums(run.shape, side, order), _Picked(run)
    once = _both_alike(run, output)
    for block in run.view(output).blocks():
        known = without_self(run, block.row, block.column, block.done & np.isfinite(block.scores))
        sums.add(block.row, block.column, block.scores, known)
        above = np.triu(known, block.row - block.column + 1) if once else known
        picked.add(block.row, block.column, block.scores, above)
    return Overview(sums.means(run.manifest.symmetric), order, None, *picked.result())


def _read_kept(run: Any, side: int, labels: Sequence[Hashable] | None) -> Overview:
    square = run.shape[0] == run.shape[1] == run.n_items
    order = _by_label(labels) if square and labels is not None else None
    grouped = _grouped(labels) if order is not None and labels is not None else None
    place = None if grouped is None else _places(grouped, run.n_items)
    shape, order = (run.shape, order) if grouped is None else ((len(grouped), len(grouped)), None)
    sums, picked = CellSums(shape, side, order), _Picked(run)
    rule = run.manifest.reduce or {}
    output = run.manifest.analysed_by(None)
    once = _both_alike(run, output) and rule.get("kind") == "threshold"  # keeps both or none
    for batch in run.pairs(output):
        i, j, scores = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("i", "j", "score"))
        known = np.isfinite(scores.astype(np.float64))
        i, j, scores = i[known], j[known], scores[known]
        if place is None:
            sums.add_pairs(i, j, scores)
        else:
            inside = (place[i] >= 0) & (place[j] >= 0)
            sums.add_pairs(place[i[inside]], place[j[inside]], scores[inside])
        above = i < j if once else np.ones(len(i), bool)
        picked.add_pairs(i[above], j[above], scores[above])
    seen = Overview(sums.means(run.manifest.symmetric), order, None, *picked.result())
    return replace(seen, shown=grouped)


def _grouped(labels: Sequence[Hashable]) -> NDArray[np.intp] | None:
    """Return the items that are in groups, group by group, where most are in none: a picture of all would be empty."""
    order = _by_label(labels)
    inside = np.array([labels[item] != ASIDE for item in order.tolist()], bool)
    return order[inside] if 0 < 2 * np.count_nonzero(inside) < len(order) else None


def _places(items: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Return the place of each of n items among some, -1 where it is none of them."""
    places = np.full(n, -1, np.intp)
    places[items] = np.arange(len(items))
    return places


def _both_alike(run: Any, output: str) -> bool:
    """Whether a run keeps the score of a pair in both directions, alike: it counts once then."""
    return bool(run.manifest.symmetric_in(output) and not run.manifest.symmetric)


def _by_landmarks(run: Any) -> NDArray[np.intp] | None:
    """Order many items by the tree of some of them: each stands with the one that it is nearest to."""
    n, sign = run.n_items, -1.0 if run.larger_is_nearer else 1.0
    chosen = np.unique(np.linspace(0, n - 1, _LANDMARKS).astype(np.intp))
    view = run.view(run.manifest.analysed)
    scores = np.full((len(chosen), n), np.nan, np.promote_types(view.dtype, np.float32))
    for block in view.blocks():
        values = np.where(block.done, block.scores, np.nan)
        rows, columns = (
            slice(first, first + count) for first, count in zip((block.row, block.column), values.shape, strict=True)
        )
        of_rows = slice(*np.searchsorted(chosen, [rows.start, rows.stop]))
        of_columns = slice(*np.searchsorted(chosen, [columns.start, columns.stop]))
        _fill(scores[of_rows, columns], values[chosen[of_rows] - rows.start])
        _fill(scores[of_columns, rows], values[:, chosen[of_columns] - columns.start].T)
    if not np.isfinite(scores).any():
        return None
    leaves, _ = leaf_tree(scores[:, chosen], similarity=run.larger_is_nearer)
    place = np.argsort(leaves)
    distances = np.where(np.isfinite(scores), sign * scores, np.inf)
    distances[np.arange(len(chosen)), chosen] = -np.inf  # each landmark stands with itself
    nearest = distances.argmin(axis=0)
    return np.lexsort((np.arange(n), place[nearest]))


def _fill(target: NDArray[np.float32], values: NDArray[Any]) -> None:
    np.copyto(target, values, where=np.isfinite(values), casting="same_kind")


def _by_label(labels: Sequence[Hashable]) -> NDArray[np.intp]:
    numbers = {name: k for k, name in enumerate(order_groups(map(str, labels)))}
    return np.argsort([numbers[str(label)] for label in labels], kind="stable")


class _Picked:
    """Of the scores that come by: every n-th, with n growing, the most alike, their number and their range."""

    def __init__(self, run: Any) -> None:
        self._step = 1
        self._sign = -1.0 if _largest(run) else 1.0
        self._first = run.n_items - run.shape[1]
        self._parts: list[NDArray[np.float64]] = []
        self._limits: list[tuple[float, float]] = []
        self._nearest = np.zeros((0, 3))  # i, j, signed score
        self._n = 0

    def add(self, row: int, column: int, values: NDArray[Any], known: NDArray[np.bool_]) -> None:
        """Take a block whose first value stands at (row, column)."""
        scores = values[known].astype(np.float64)
        self._count(scores)
        i, j = np.nonzero(known & (self._sign * values <= self._bar()))
        self._offer(i + row, j + column + self._first, values[i, j])

    def add_pairs(self, i: NDArray[np.integer], j: NDArray[np.integer], scores: NDArray[Any]) -> None:
        """Take single pairs, counted within their sides."""
        self._count(scores.astype(np.float64))
        near = self._sign * scores <= self._bar()
        self._offer(i[near], j[near] + self._first, scores[near])

    def _count(self, scores: NDArray[np.float64]) -> None:
        if not len(scores):
            return
        self._parts.append(scores[(-self._n) % self._step :: self._step])
        self._limits.append((float(scores.min()), float(scores.max())))
        self._n += len(scores)
        while self._n > 2 * _SAMPLE * self._step:
            self._parts, self._step = [np.concatenate(self._parts)[::2]], 2 * self._step

    def _bar(self) -> float:
        return float(self._nearest[-1, 2]) if len(self._nearest) == 2 * _NEAREST else np.inf

    def _offer(self, i: NDArray[np.integer], j: NDArray[np.integer], scores: NDArray[Any]) -> None:
        rows = np.column_stack([i, j, self._sign * scores.astype(np.float64)])
        if len(rows) > 2 * _NEAREST:
            rows = rows[np.argpartition(rows[:, 2], 2 * _NEAREST)[: 2 * _NEAREST]]
        rows = np.concatenate([self._nearest, rows])
        self._nearest = rows[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 2]))][: 2 * _NEAREST]

    def result(self) -> tuple[Any, ...]:
        """Return the sample, the number of scores, their range, and the most alike pairs, each of them once."""
        sample = np.concatenate([np.zeros(0), *self._parts])
        lows, highs = zip(*self._limits) if self._limits else ((np.nan,), (np.nan,))
        found: dict[tuple[int, int], float] = {}
        for i, j, score in self._nearest.tolist():
            found.setdefault((int(min(i, j)), int(max(i, j))), self._sign * score)
        nearest = tuple((i, j, score) for (i, j), score in found.items())[:_NEAREST]
        return sample, self._n, (min(lows), max(highs)), nearest


def _largest(run: Any) -> bool:
    return bool((run.manifest.reduce or {}).get("largest", run.larger_is_nearer))
