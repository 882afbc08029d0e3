"""What rules pairs of rows out: 8-bit copies of them, or of their coordinates on a few axes where these decide most.

Rows of embeddings lie near few axes. Where all pairs below a bar are wanted, products of some coordinates rule most
others out for a fraction of the work (`tartan_kernels::screen`, whose bound is proven whatever the axes are). Axes come
from rows of the first tiles; if others are so unlike these that too little is ruled out, whole rows are used from then
on. What is kept of the pairs does not depend on any of that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from tartan import _native

# Measured: what a look at one pair costs, and a pair of a tile without a look, in passes over whole copies. `tartan
# bench vectors parts=screen` holds the time; as RARE of crates/tartan-kernels/src/screened.rs.
_LOOK, _UNSCREENED = 40.0, 1.6
#: Fewest items for each position of a row that axes are looked for.
#: By arithmetic: axes take some 10 d^3 operations, a pass over so many items 8,000 d^3 that are ten times as fast.
#: `tartan bench vectors parts=near` holds the whole.
ROWS_PER_POSITION = 128
# By judgement: rows of a sample for each position of a row, and of one tile at most: a sample of more tiles is more
# like all rows. Half of them make axes, a fortieth of their pairs tell what these save. No benchmark.
_SAMPLED_PER_POSITION, _SAMPLED_OF_TILE = 6, 256
# By judgement: rows of each side of the pairs that tell what axes save, and of one block of those that make them: a
# million pairs, some megabytes. No benchmark.
_TRIED_ROWS = 1024
# By arithmetic: axes of rows so wide take 150 MB for a while, in the place of copies, of which none are kept yet; of
# wider ones minutes and more than that.
_WIDEST = 1536
# By arithmetic: positions of one look at the coordinates; two vectors of 16 words of four.
_STEP = 32
# By arithmetic: copies of 7 bits lose at most 3.5 / 63 / sqrt(12) of the length of a turned row, so pairs twice that.
_COPIES_LOSE = 0.03
# By judgement: axes are taken where they save a fifth, since a sample says what they do. `tartan bench vectors
# parts=near` has the figures.
_WORTH = 0.8
# By judgement: pairs after which it is judged whether axes pay, some tiles. No benchmark.
_JUDGED_PAIRS = 4 << 20

_NORMED = ("euclidean", "sqeuclidean")  # whose rows end in their squared norms


def choose_axes(rows: np.ndarray, metric: str, limit: float, *, largest: bool) -> np.ndarray | None:
    """Return the axes on which coordinates of rows decide most pairs beyond a limit for the least work.

    What they would save is found on rows from which they were not made.

    Parameters
    ----------
    rows : float array (n, d)
        A sample: unit rows for "cosine".
    metric : str
    limit : float
        The score that is kept at least, or at most.
    largest : bool
        Whether large scores are kept.

    Returns
    -------
    float64 array (axes, d) or None
        Orthonormal; None where whole rows are as fast, or where coordinates can tell nothing.
    """
    if largest != (metric == "inner"):
        return None
    width = rows.shape[1]
    moments = np.zeros((width, width))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(rows), 2 * _TRIED_ROWS):
            some = rows[start : start + 2 * _TRIED_ROWS : 2].astype(np.float64)
            moments += some.T @ some
        tried = rows[1 :: 2 * max(1, len(rows) // (4 * _TRIED_ROWS))].astype(np.float64)
        bounded = np.isfinite(np.trace(moments)) and np.isfinite(np.square(tried).sum())  # so is each product of two
    if not bounded:
        return None
    axes = np.linalg.eigh(moments)[1][:, ::-1]  # those with the largest coordinates first
    tried = tried @ axes
    sides = tried[::2], tried[1::2]
    squares = [np.einsum("ij,ij->i", side, side) for side in sides]
    products, sums = sides[0] @ sides[1].T, np.add.outer(*squares)
    if metric in _NORMED:
        least = (sums - (limit * limit if metric == "euclidean" else limit)) / 2
    else:
        least = np.full(products.shape, limit if largest else 1 - limit)
    least -= _COPIES_LOSE * np.sqrt(np.multiply.outer(*squares))
    least[products >= (0.5 - 1e-6) * sums] = np.inf  # a row that the sample has twice
    found, best = None, _WORTH * (1 + _LOOK * np.mean(products >= least))
    products[:] = 0
    for n in range(_STEP, width, _STEP):
        here = [side[:, n - _STEP : n] for side in sides]
        products += here[0] @ here[1].T
        rests = [np.sqrt(np.einsum("ij,ij->i", side[:, n:], side[:, n:])) for side in sides]
        cost = n / width + _LOOK * np.mean(products + np.multiply.outer(*rests) >= least)
        if cost < best:
            found, best = n, cost
    return None if found is None else np.ascontiguousarray(axes[:, :found].T)


class RowScreen:
    """The screen of the rows of a run or join, for any number of threads.

    Parameters
    ----------
    n_items, most_bytes : int
        Items, and most memory for their copies: of more, each tile makes its own.
    trust : float
        1; less multiplies the bound, which is wrong then, for tests of what finds that.
    limit : float, optional
        The score beyond which all pairs are kept. Where the best are, bars rise with the tiles, and rows are copied
        whole.
    largest : bool
        Whether large scores are kept.
    """

    def __init__(
        self, n_items: int, most_bytes: int, *, trust: float = 1.0, limit: float | None = None, largest: bool = False
    ) -> None:
        self._n_items, self._most_bytes, self._trust = n_items, most_bytes, trust
        self._limit, self._largest = limit, largest
        self._lock = threading.Lock()
        self._screens: list[_native.Screen] = []
        self._sampled: dict[int, np.ndarray] | None = {}

    def of_tile(self, corner: tuple[int, int], left: np.ndarray, right: np.ndarray, metric: str) -> _native.Screen:
        """Return what rules pairs of a tile out.

        Parameters
        ----------
        corner : tuple of int
            Numbers of its first row and column.
        left, right : float arrays (rows, d), (columns, d)
            Unit rows for "cosine", rows that end in their squared norms for "euclidean" and "sqeuclidean".
        metric : str
        """
        width = left.shape[1] - (metric in _NORMED)
        with self._lock:
            if not self._screens:
                self._screens.append(self._new(width, None))
            sample = self._sample(zip(corner, (left, right), strict=True), width)
        if sample is not None and self._limit is not None:  # meanwhile other threads go on with whole copies
            axes = choose_axes(sample, metric, self._limit, largest=self._largest)
            if axes is not None:
                with self._lock:
                    self._screens.append(self._new(width, axes))
        with self._lock:
            if self._screens[-1].n_axes and not self._pays(self._screens[-1], width):
                self._screens.append(self._screens[0])
            return self._screens[-1]

    def decided(self) -> dict[str, Any]:
        """Return how many pairs each stage decided; empty where no rows were screened.

        Returns
        -------
        dict
            ``by_coordinates``, ``by_bound``: pairs that the bound of coordinates on a few axes ruled out, and that of
            whole rows; ``exactly``: pairs that it did not, computed one by one; ``unscreened``: pairs of tiles where it
            rules too few out, all computed; ``largest_bound``: the largest error that the product of two rows may have
            had, in its unit.
        """
        said = [(screen.n_axes, *screen.decided()) for screen in self._screens[:2]]
        if not said:
            return {}
        return {
            "by_coordinates": sum(ruled_out for n_axes, ruled_out, *_ in said if n_axes),
            "by_bound": sum(ruled_out for n_axes, ruled_out, *_ in said if not n_axes),
            "exactly": sum(one[2] for one in said),
            "unscreened": sum(one[3] for one in said),
            "largest_bound": max(one[4] for one in said),
        }

    def _sample(self, sides: Iterable[tuple[int, np.ndarray]], width: int) -> np.ndarray | None:
        """Take some rows of each side that none were taken of; return all of them, once, when they are enough."""
        few = width > _WIDEST or self._n_items < ROWS_PER_POSITION * width  # finding axes takes too long
        if self._limit is None or self._sampled is None or few:
            return None
        for start, side in sides:
            if start not in self._sampled and len(side) >= _SAMPLED_OF_TILE:
                step = len(side) // _SAMPLED_OF_TILE
                self._sampled[start] = side[::step, :width][:_SAMPLED_OF_TILE].copy()
        if len(self._sampled) * _SAMPLED_OF_TILE < _SAMPLED_PER_POSITION * width:
            return None
        rows, self._sampled = np.concatenate(list(self._sampled.values())), None
        return rows

    def _new(self, width: int, axes: np.ndarray | None) -> _native.Screen:
        return _native.Screen(self._n_items, width, self._most_bytes, trust=self._trust, axes=axes)

    @staticmethod
    def _pays(screen: _native.Screen, width: int) -> bool:
        """Whether axes have taken less than whole copies would have, those of pairs that neither rules out aside."""
        ruled_out, looked_at, unscreened, _ = screen.decided()
        n_pairs = ruled_out + looked_at + unscreened
        cost = ruled_out * screen.n_axes / width + looked_at * _LOOK + unscreened * _UNSCREENED
        return n_pairs < _JUDGED_PAIRS or cost <= n_pairs
