"""Which rows of two tables meet: blocks of rows of the left, and the rows of the right that each is compared with.

Without keys every block meets all rows of the right. With keys, rows are ordered by the number of their key, and blocks
are cut so that large keys have blocks of their own and small ones share one, in which only rows of equal keys count: a
million keys of one row each are some thousand blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Index = NDArray[np.int64]

# By judgement: beyond, a key has a block of its own, in which no pair is computed in vain. `tartan bench nearest_join`
# has a part with keys.
_LARGE = 256
# By judgement: rows of both sides in a block of several keys; a product of so few is over before a call costs more.
SHARED_ROWS = 256


@dataclass(frozen=True, eq=False)
class MeetingRows:
    """Rows of the left, and the rows of the right that they meet.

    Attributes
    ----------
    left, right : ranges or int64 arrays
        Numbers of rows; those of one key ascend.
    left_keys, right_keys : int64 arrays or None
        Numbers of keys, where only pairs of equal ones count.
    """

    left: Index | range
    right: Index | range
    left_keys: Index | None = None
    right_keys: Index | None = None

    def halves(self) -> tuple[MeetingRows, MeetingRows]:
        """Return two blocks of half of the rows of the left."""
        middle = len(self.left) // 2
        keys = (None, None) if self.left_keys is None else (self.left_keys[:middle], self.left_keys[middle:])
        parts = self.left[:middle], self.left[middle:]
        first, second = (
            MeetingRows(part, self.right, key, self.right_keys) for part, key in zip(parts, keys, strict=True)
        )
        return first, second


def blocks_of_all(n_left: int, n_right: int, height: int) -> Iterator[MeetingRows]:
    """Yield blocks of ``height`` rows, each of which meets every row of the right."""
    for start in range(0, n_left, height):
        yield MeetingRows(range(start, min(n_left, start + height)), range(n_right))


def number_keys(left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]) -> tuple[Index, Index]:
    """Number keys from 0 in the order of their first rows on the left; -1 where one of the columns is null.

    Parameters
    ----------
    left, right : sequences of chunked arrays
        The columns of the key, of one name in the same place.

    Raises
    ------
    ConfigError
        If the types of two columns have no common one.
    """
    n_left, (numbers, *others) = len(left[0]), (_encode(*columns) for columns in zip(left, right, strict=True))
    for found in others:
        lacks = (numbers < 0) | (found < 0)
        both = numbers * (int(found.max(initial=0)) + 1) + found
        numbers = np.where(lacks, -1, np.unique(both, return_inverse=True)[1])
    known = np.flatnonzero(numbers >= 0)
    _, first, inverse = np.unique(numbers[known], return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int64)
    ranks[np.argsort(first, kind="stable")] = np.arange(len(first))
    numbers[known] = ranks[inverse]
    return numbers[:n_left], numbers[n_left:]


def _encode(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Index:
    """Return a number for each value of both; -1 for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = [column.type.value_type if pa.types.is_dictionary(column.type) else column.type for column in (left, right)]
    kinds = [pa.large_string() if kind == pa.string() else kind for kind in kinds]
    try:
        kind = kinds[0] if kinds[0] == kinds[1] else _common_type(*kinds)
        chunks = [*left.cast(kind).chunks, *right.cast(kind).chunks]
        if pa.types.is_null(kind):
            return np.full(len(left) + len(right), -1, np.int64)
        column = pa.chunked_array(chunks, kind)
        if pa.types.is_floating(kind):
            column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 becomes 0.0, which it is equal to
        encoded = column.dictionary_encode()
        indices = [np.asarray(chunk.indices.fill_null(-1)) for chunk in encoded.unify_dictionaries().chunks]
    except (pa.ArrowException, TypeError) as error:
        raise ConfigError(
            f"by: a column has the type {left.type} on the left and {right.type} on the right, which cannot be "
            "compared; cast one of them"
        ) from error
    return np.concatenate([np.empty(0, np.int64), *indices]).astype(np.int64)


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds the values of both."""
    import pyarrow as pa

    for kind, another in ((one, other), (other, one)):
        if pa.types.is_null(kind):
            return another
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    raise TypeError("no common type")


def blocks_of_keys(left: Index, right: Index, height: int, *, keeps_all: bool) -> Iterator[MeetingRows]:
    """Yield blocks of rows whose keys are equal somewhere, in the order of the keys.

    Parameters
    ----------
    left, right : int64 arrays
        Numbers of keys, from 0; -1 is equal to nothing.
    height : int
        Most rows of the left.
    keeps_all : bool
        Whether rows of the left that meet nothing are in blocks, too: those without a key come last.
    """
    n_keys = int(left.max(initial=-1)) + 1
    left = np.where(left < 0, n_keys, left)
    right = np.where((right < 0) | (right >= n_keys), n_keys, right)
    order, other_order = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    counts, others = np.bincount(left, minlength=n_keys + 1), np.bincount(right, minlength=n_keys + 1)
    others[n_keys] = 0
    starts, other_starts = np.cumsum(counts) - counts, np.cumsum(others) - others
    keys = np.flatnonzero((counts > 0) & (keeps_all | (others > 0)))
    large = np.maximum(counts[keys], others[keys]) > _LARGE
    filled = np.cumsum(np.where(large, 0, counts[keys] + others[keys])) // SHARED_ROWS
    ends = np.flatnonzero(np.diff(filled) | large[1:] | large[:-1]) + 1 if len(keys) else keys
    for group in np.split(keys, ends) if len(keys) else ():
        if len(group) == 1:
            key = int(group[0])
            own = order[starts[key] : starts[key] + counts[key]]
            met = other_order[other_starts[key] : other_starts[key] + others[key]]
            for start in range(0, len(own), height):
                yield MeetingRows(own[start : start + height], met)
        else:
            own = order[_spans(starts[group], counts[group])]
            met = other_order[_spans(other_starts[group], others[group])]
            for start in range(0, len(own), height):
                part = own[start : start + height]
                yield MeetingRows(part, met, left[part], right[met])


def _spans(starts: Index, counts: Index) -> Index:
    """Return the numbers start, start + 1, ... of several spans, one after the other."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
