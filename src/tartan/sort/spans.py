"""Where rows lie in their sources, so that any of their records is found without reading all that come before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# By judgement: who begins to read somewhere reads half a 256th of a source too much; the lengths of the rows of a span,
# some thousand different ones, take some ten KB. No benchmark.
MOST_SPANS = 256
# By judgement: as MOST_SPANS; of a file of some MB there is one span. No benchmark.
LEAST_BATCHES = 4

Span = tuple[int, int, int]
"""The first row, the byte where it begins, and the records of all rows; -1 where the byte is not known."""
CountRecords = Callable[[np.ndarray, np.ndarray], int]
"""Returns the records of rows, given lengths and how many rows have each."""


class RowMarks:
    """Remembers where rows of a source lie, and how long they are."""

    def __init__(self) -> None:
        self._batches = LEAST_BATCHES
        self._first_rows: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[tuple[np.ndarray, np.ndarray]] = []
        self._n_in_last = self._n_rows = 0

    def add(self, lengths: np.ndarray, offset: int = -1) -> None:
        """Remember a batch of rows, which begins at a byte.

        Parameters
        ----------
        lengths : numpy.ndarray of int, (n,)
            Of the rows, in bytes.
        offset : int
        """
        found = np.unique(lengths, return_counts=True)
        if not self._offsets or self._n_in_last == self._batches:
            self._first_rows.append(self._n_rows)
            self._offsets.append(offset)
            self._lengths.append(found)
            self._n_in_last = 0
        else:
            self._lengths[-1] = _add_counts(self._lengths[-1], found)
        self._n_in_last += 1
        self._n_rows += len(lengths)
        if len(self._offsets) > MOST_SPANS:
            self._join_pairs()

    def _join_pairs(self) -> None:
        pairs = range(0, len(self._offsets), 2)
        self._lengths = [
            _add_counts(*self._lengths[at : at + 2]) if at + 1 < len(self._lengths) else self._lengths[at]
            for at in pairs
        ]
        self._first_rows, self._offsets = self._first_rows[::2], self._offsets[::2]
        self._batches *= 2  # the last one has half of it, which does no harm

    def spans(self, count: CountRecords) -> list[Span]:
        """Return the rows of the source in their order."""
        places = zip(self._first_rows, self._offsets, self._lengths, strict=True)
        return [(first, offset, count(*lengths)) for first, offset, lengths in places]


def _add_counts(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    lengths, places = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    counts = np.zeros(len(lengths), np.int64)
    np.add.at(counts, places, np.concatenate([one[1], other[1]]))
    return lengths, counts


def join_spans(spans: list[Span]) -> list[Span]:
    """Return the rows of a source as one span, as where only its beginning is found."""
    return [(*spans[0][:2], sum(records for *_, records in spans))] if spans else []
