"""Fixed shares of a run for processes that do not talk to each other: ``--part I/N``.

A share is a function of the chunks, the pairs they hold and the number of parts; what is done or missing does not
enter. So any number of parts may run at the same time, one that was killed has the same share when it is started again,
and no chunk is in two shares. Shares are equal in pairs, as far as whole chunks can be.

Chunks are bisected: along rows or along columns, where both halves together need fewer items, then each half again. A
half ends inside a row of chunks if it must, so that the pairs are right. Compact shares load few items: for n items and
p parts about 1.4 sqrt(p) n loads in all, where consecutive rows would take up to p n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tartan.core.pairs.grid import Rect
from tartan.core.pairs.workload import Workload

# By judgement: more than any cluster has nodes; a slip of the keyboard beyond it would only make empty parts. No
# benchmark.
MOST_PARTS = 100_000
Chunk = tuple[int, int]


def shares(chunks: Sequence[Chunk], n_pairs: Sequence[int], n_parts: int) -> list[list[Chunk]]:
    """Divide the chunks of a run.

    Parameters
    ----------
    chunks : sequence of (I, J)
        All of them, each once.
    n_pairs : sequence of int
        Wanted pairs of each.
    n_parts : int

    Returns
    -------
    list of list of (I, J)
        For each part its chunks, row by row; empty where there are more parts than chunks.
    """
    places = np.array(chunks, np.int64).reshape(-1, 2)
    weights = np.array(n_pairs, np.int64)
    found = _bisect(places, weights, np.arange(len(places)), n_parts)
    return [[(row, column) for row, column in places[np.sort(part)].tolist()] for part in found]


def _bisect(places: np.ndarray, weights: np.ndarray, which: np.ndarray, n_parts: int) -> list[np.ndarray]:
    if n_parts == 1:
        return [which]
    if not len(which):
        return [which] * n_parts
    first = n_parts // 2
    ways = [_cut(places, weights, which, first / n_parts, axis) for axis in (0, 1)]
    halves = min(ways, key=lambda way: sum(_n_touched(places[half]) for half in way))
    return [
        part
        for half, parts in zip(halves, (first, n_parts - first), strict=True)
        for part in _bisect(places, weights, half, parts)
    ]


def _cut(
    places: np.ndarray, weights: np.ndarray, which: np.ndarray, ratio: float, axis: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut chunks in two by their rows (axis 0) or columns; the first half gets a ratio of the pairs."""
    order = which[np.lexsort((places[which, 1 - axis], places[which, axis]))]
    before = np.concatenate([[0], np.cumsum(weights[order])])
    at = int(np.argmin(np.abs(before - ratio * before[-1])))
    return order[:at], order[at:]


def _n_touched(places: np.ndarray) -> int:
    """Return how many lines of chunks some chunks take items from."""
    return len(np.unique(places))


@dataclass(frozen=True)
class ShareOf:
    """The pairs of a workload that lie in some chunks; a ``Workload``.

    Rectangles that are asked for lie in one chunk each.

    Parameters
    ----------
    base : Workload
    side : int
        Of a chunk, in items.
    chunks : frozenset of (I, J)
    """

    base: Workload
    side: int
    chunks: frozenset[Chunk]

    @property
    def n_items(self) -> int:
        return self.base.n_items

    @cached_property
    def n_pairs(self) -> int:
        """Number of wanted pairs, each unordered pair once."""
        return sum(self.base.count(self._rect(chunk)) for chunk in self.chunks)

    @cached_property
    def n_mixed_pairs(self) -> int:
        """Number of wanted pairs of two different items."""
        return self.n_pairs - sum(int(np.trace(self._mask(chunk))) for chunk in self.chunks if chunk[0] == chunk[1])

    @cached_property
    def n_occurring(self) -> int:
        """Number of items that occur in a wanted pair."""
        occurring = np.zeros(self.n_items, bool)
        for chunk in self.chunks:
            (r0, r1, c0, c1), mask = self._rect(chunk), self._mask(chunk)
            occurring[r0:r1] |= mask.any(axis=1)
            occurring[c0:c1] |= mask.any(axis=0)
        return int(occurring.sum())

    @property
    def borders(self) -> tuple[int, ...]:
        """Lines that no tile may cross."""
        return self.base.borders

    @property
    def has_diagonal(self) -> bool:
        """Whether a pair (i, i) may be wanted."""
        return self.base.has_diagonal

    def rows(self) -> range:
        """Items that can be the first of a wanted pair."""
        return _common(self.base.rows(), self._compute_extent(0))

    def columns(self) -> range:
        """Items that can be the second of a wanted pair."""
        return _common(self.base.columns(), self._compute_extent(1))

    def count(self, rect: Rect) -> int:
        """Number of wanted pairs in a rectangle."""
        return self.base.count(rect) if self._has(rect) else 0

    def mask(self, rect: Rect) -> np.ndarray | None:
        """Wanted pairs as a boolean array of the rectangle's shape; None when all of it is wanted."""
        return self.base.mask(rect) if self._has(rect) else np.zeros(rect.shape, bool)

    def _has(self, rect: Rect) -> bool:
        return (rect.r0 // self.side, rect.c0 // self.side) in self.chunks

    def _rect(self, chunk: Chunk) -> Rect:
        n, side = self.n_items, self.side
        return Rect(*(min(n, line * side) for line in (chunk[0], chunk[0] + 1, chunk[1], chunk[1] + 1)))

    def _mask(self, chunk: Chunk) -> np.ndarray:
        rect = self._rect(chunk)
        mask = self.base.mask(rect)
        return np.ones(rect.shape, bool) if mask is None else mask

    def _compute_extent(self, axis: int) -> range:
        lines = [chunk[axis] for chunk in self.chunks]
        return range(min(lines) * self.side, (max(lines) + 1) * self.side) if lines else range(0)


def _common(one: range, other: range) -> range:
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    return range(start, max(start, stop))
