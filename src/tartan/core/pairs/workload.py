"""Which pairs are wanted. A workload counts and masks the wanted pairs of any rectangle of the upper triangle.

Pairs are (i, j) with i < j, or i <= j when the diagonal is wanted. A x B lies in one index space: the items of A
come first, then those of B. An application that is not symmetric visits the same pairs; each then counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from tartan.core.pairs.grid import Rect
from tartan.errors import ConfigError


class Workload(Protocol):
    """The pairs that a run computes."""

    @property
    def n_items(self) -> int: ...

    @property
    def n_pairs(self) -> int:
        """Number of wanted pairs, each unordered pair once."""

    @property
    def n_mixed_pairs(self) -> int:
        """Number of wanted pairs of two different items."""

    @property
    def n_occurring(self) -> int:
        """Number of items that occur in a wanted pair."""

    @property
    def borders(self) -> tuple[int, ...]:
        """Lines that no tile may cross."""

    @property
    def has_diagonal(self) -> bool:
        """Whether a pair (i, i) may be wanted."""

    def rows(self) -> range:
        """Items that can be the first of a wanted pair."""

    def columns(self) -> range:
        """Items that can be the second of a wanted pair."""

    def count(self, rect: Rect) -> int:
        """Number of wanted pairs in a rectangle."""

    def mask(self, rect: Rect) -> np.ndarray | None:
        """Wanted pairs as a boolean array of the rectangle's shape; None when all of it is wanted."""


class _OneSet:
    """Any two items of one set may be a pair."""

    n_items: int
    borders: ClassVar[tuple[int, ...]] = ()

    def rows(self) -> range:
        return range(self.n_items)

    def columns(self) -> range:
        return range(self.n_items)


@dataclass(frozen=True)
class AllPairs(_OneSet):
    """Every pair of n items, with the diagonal when asked for."""

    n_items: int
    diagonal: bool = False

    @property
    def n_pairs(self) -> int:
        return self.n_items * (self.n_items + (1 if self.diagonal else -1)) // 2

    @property
    def n_mixed_pairs(self) -> int:
        return self.n_items * (self.n_items - 1) // 2

    @property
    def n_occurring(self) -> int:
        return self.n_items if self.n_pairs else 0

    @property
    def has_diagonal(self) -> bool:
        return self.diagonal

    def count(self, rect: Rect) -> int:
        r0, r1, c0, c1 = rect
        below = 0 if self.diagonal else 1
        full_rows = max(0, min(r1, c0 - below + 1) - r0)
        start, stop = max(r0, c0 - below + 1), min(r1, c1 - below + 1)
        cut_rows = max(0, stop - start)
        longest, shortest = c1 - below - start, c1 - below - stop + 1
        return full_rows * (c1 - c0) + cut_rows * (longest + shortest) // 2

    def mask(self, rect: Rect) -> np.ndarray | None:
        r0, r1, c0, c1 = rect
        if r1 <= c0 + (1 if self.diagonal else 0):
            return None  # all of it lies above the diagonal, as most tiles do
        rows, columns = np.arange(r1 - r0, dtype=np.int32), np.arange(c0 - r0, c1 - r0, dtype=np.int32)
        return rows[:, None] <= columns if self.diagonal else rows[:, None] < columns


@dataclass(frozen=True, eq=False)
class LivePairs(_OneSet):
    """Every pair of those of n items that are still wanted: the others were removed from a run.

    Parameters
    ----------
    n_items : int
    live : bool array (n,)
    diagonal : bool
    """

    n_items: int
    live: np.ndarray
    diagonal: bool = False
    _before: np.ndarray = field(init=False, repr=False)  # how many live ones there are before each item

    def __post_init__(self) -> None:
        object.__setattr__(self, "_before", np.concatenate([[0], np.cumsum(self.live, dtype=np.int64)]))

    @property
    def n_occurring(self) -> int:
        return int(self._before[-1]) if self.n_pairs else 0

    @property
    def n_mixed_pairs(self) -> int:
        return self.n_pairs - (int(self._before[-1]) if self.diagonal else 0)

    @property
    def n_pairs(self) -> int:
        return AllPairs(int(self._before[-1]), self.diagonal).n_pairs

    @property
    def has_diagonal(self) -> bool:
        return self.diagonal

    def count(self, rect: Rect) -> int:
        rows = np.flatnonzero(self.live[rect.r0 : rect.r1]) + rect.r0
        starts = np.clip(rows + (0 if self.diagonal else 1), rect.c0, rect.c1)
        return int((self._before[rect.c1] - self._before[starts]).sum())

    def mask(self, rect: Rect) -> np.ndarray | None:
        return _mask_live(self.live, rect, AllPairs(self.n_items, self.diagonal).mask(rect))


@dataclass(frozen=True)
class Rectangle:
    """Every item of A (the first ``n_left``) against every item of B (the others)."""

    n_left: int
    n_items: int
    has_diagonal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.n_left < self.n_items:
            raise ConfigError(f"A x B needs items on both sides: {self.n_left} of {self.n_items} are in A")

    @property
    def n_pairs(self) -> int:
        return self.n_left * (self.n_items - self.n_left)

    @property
    def n_mixed_pairs(self) -> int:
        return self.n_pairs

    @property
    def n_occurring(self) -> int:
        return self.n_items

    @property
    def borders(self) -> tuple[int, ...]:
        return (self.n_left,)

    def rows(self) -> range:
        return range(self.n_left)

    def columns(self) -> range:
        return range(self.n_left, self.n_items)

    def count(self, rect: Rect) -> int:
        return max(0, min(rect.r1, self.n_left) - rect.r0) * max(0, rect.c1 - max(rect.c0, self.n_left))

    def mask(self, rect: Rect) -> np.ndarray | None:
        if rect.r1 <= self.n_left <= rect.c0:
            return None
        rows, columns = np.arange(rect.r0, rect.r1)[:, None], np.arange(rect.c0, rect.c1)[None, :]
        return (rows < self.n_left) & (columns >= self.n_left)


@dataclass(frozen=True, eq=False)
class LiveRectangle(Rectangle):
    """Every item of A that is still wanted against every such item of B.

    Parameters
    ----------
    live : bool array (n_items,)
    """

    live: np.ndarray

    @property
    def n_pairs(self) -> int:
        return int(self.live[: self.n_left].sum()) * int(self.live[self.n_left :].sum())

    @property
    def n_occurring(self) -> int:
        return int(self.live.sum())

    def count(self, rect: Rect) -> int:
        rows = self.live[rect.r0 : min(rect.r1, self.n_left)]
        return int(rows.sum()) * int(self.live[max(rect.c0, self.n_left) : rect.c1].sum())

    def mask(self, rect: Rect) -> np.ndarray | None:
        return _mask_live(self.live, rect, Rectangle(self.n_left, self.n_items).mask(rect))


def _mask_live(live: np.ndarray, rect: Rect, mask: np.ndarray | None) -> np.ndarray | None:
    """Return which pairs of a mask are of items that are live."""
    rows, columns = live[rect.r0 : rect.r1], live[rect.c0 : rect.c1]
    if rows.all() and columns.all():
        return mask
    wanted: np.ndarray = rows[:, None] & columns[None, :]
    return wanted if mask is None else wanted & mask


@dataclass(frozen=True)
class NewAgainstOld:
    """The pairs of a workload that have at least one item from ``n_old`` on."""

    base: AllPairs | LivePairs | Rectangle
    n_old: int

    @property
    def n_items(self) -> int:
        return self.base.n_items

    @property
    def n_pairs(self) -> int:
        return self.base.n_pairs - self.base.count(Rect(0, self.n_old, 0, self.n_old))

    @property
    def n_mixed_pairs(self) -> int:
        return self.n_pairs - (self._n_live(self.n_old) if self.has_diagonal else 0)

    def _n_live(self, start: int) -> int:
        """Return how many items from one on are wanted."""
        return int(self.base.live[start:].sum()) if isinstance(self.base, LivePairs) else self.n_items - start

    @property
    def n_occurring(self) -> int:
        return self._n_live(0) if self.n_pairs else 0

    @property
    def borders(self) -> tuple[int, ...]:
        return (*self.base.borders, self.n_old)

    @property
    def has_diagonal(self) -> bool:
        return self.base.has_diagonal

    def rows(self) -> range:
        return self.base.rows()

    def columns(self) -> range:
        return range(max(self.n_old, self.base.columns().start), self.n_items)

    def count(self, rect: Rect) -> int:
        old = Rect(rect.r0, min(rect.r1, self.n_old), rect.c0, min(rect.c1, self.n_old))
        inside = self.base.count(old) if old.r1 > old.r0 and old.c1 > old.c0 else 0
        return self.base.count(rect) - inside

    def mask(self, rect: Rect) -> np.ndarray | None:
        mask = self.base.mask(rect)
        if rect.c0 >= self.n_old or rect.r0 >= self.n_old:
            return mask
        rows, columns = np.arange(rect.r0, rect.r1)[:, None], np.arange(rect.c0, rect.c1)[None, :]
        new = (rows >= self.n_old) | (columns >= self.n_old)
        return new if mask is None else mask & new


@dataclass(frozen=True)
class Candidates(_OneSet):
    """A list of pairs; each unordered pair is wanted once.

    Parameters
    ----------
    n_items : int
    pairs : ndarray of int64, shape (n_pairs, 2)
        Item indices in any order; duplicates count once. Kept in order: i <= j, by i and then by j.
    """

    n_items: int
    pairs: np.ndarray
    _keys: np.ndarray = field(init=False, repr=False, compare=False)
    has_diagonal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pairs = np.asarray(self.pairs, dtype=np.int64).reshape(-1, 2)
        low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
        wrong = np.flatnonzero((low < 0) | (high >= self.n_items))
        if len(wrong):
            raise ConfigError(
                f"candidate pair {wrong[0]} is {tuple(pairs[wrong[0]].tolist())}, "
                f"but the items are 0 to {self.n_items - 1}"
            )
        given = low * self.n_items + high
        keys = _sort_unique(given)
        if keys is not given or not np.array_equal(low, pairs[:, 0]):
            pairs = np.column_stack(np.divmod(keys, self.n_items))
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "_keys", keys)

    @property
    def n_pairs(self) -> int:
        return len(self._keys)

    @property
    def n_mixed_pairs(self) -> int:
        return int(np.count_nonzero(self.pairs[:, 0] != self.pairs[:, 1]))

    @property
    def n_occurring(self) -> int:
        occurs = np.zeros(self.n_items, bool)
        occurs[self.pairs] = True
        return int(np.count_nonzero(occurs))

    def _inside(self, rect: Rect) -> tuple[np.ndarray, np.ndarray]:
        lo, hi = np.searchsorted(self._keys, [rect.r0 * self.n_items, rect.r1 * self.n_items])
        if hi - lo > _MANY_A_ROW * (rect.r1 - rect.r0):
            starts, stops = self._find_rows(rect)
            n_before = np.cumsum(stops - starts)
            at = np.arange(n_before[-1]) + np.repeat(stops - n_before, stops - starts)
            return self.pairs[at, 0] - rect.r0, self.pairs[at, 1] - rect.c0
        i, j = self.pairs[lo:hi, 0], self.pairs[lo:hi, 1]
        keep = (j >= rect.c0) & (j < rect.c1)
        return i[keep] - rect.r0, j[keep] - rect.c0

    def _find_rows(self, rect: Rect) -> tuple[np.ndarray, np.ndarray]:
        """Return where the pairs of each row of a rectangle begin and end among all."""
        rows = np.arange(rect.r0, rect.r1, dtype=np.int64) * self.n_items
        return np.searchsorted(self._keys, rows + rect.c0), np.searchsorted(self._keys, rows + rect.c1)

    def count(self, rect: Rect) -> int:
        lo, hi = np.searchsorted(self._keys, [rect.r0 * self.n_items, rect.r1 * self.n_items])
        if hi - lo > _MANY_A_ROW * (rect.r1 - rect.r0):
            starts, stops = self._find_rows(rect)
            return int((stops - starts).sum())
        return len(self._inside(rect)[0])

    def mask(self, rect: Rect) -> np.ndarray | None:
        rows, columns = self._inside(rect)
        if len(rows) == (rect.r1 - rect.r0) * (rect.c1 - rect.c0):
            return None
        mask = np.zeros(rect.shape, dtype=bool)
        mask[rows, columns] = True
        return mask


# By arithmetic: two searches of some 20 steps find a row's pairs; beyond so many pairs in all columns that is less.
_MANY_A_ROW = 16


def _sort_unique(numbers: np.ndarray) -> np.ndarray:
    """Return numbers in order, each once; the array itself where it is so already."""
    if len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all()):
        return numbers
    ordered = np.sort(numbers)
    unique: np.ndarray = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return unique
