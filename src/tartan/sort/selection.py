"""Some of the rows of a sort: one for each key, the first ones, or both.

A ``Picker`` takes them out of sorted records. ``choose_leaders`` finds the records that can be among the first before
anything is sorted, in bounded memory, so that a short list of a long file needs neither a sort nor disk space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tartan.sort.dtypes import DType
from tartan.sort.keys import KeyPart

# By judgement: rows that come in before the worst are dropped once more, besides as many as are kept. No benchmark.
_SPARE_ROWS = 1 << 14


@dataclass(frozen=True)
class Selection:
    """Which of the sorted rows are written.

    Attributes
    ----------
    unique : bool
        Of rows with one key only the first in the order of the input.
    top : int or None
        How many rows, from the beginning; None for all.
    """

    unique: bool = False
    top: int | None = None


ALL_ROWS = Selection()
"""Every row is written."""


class RowBounds(Protocol):
    """Tells where rows begin among records."""

    def begins_row(self, records: np.ndarray) -> np.ndarray:
        """Tell which records begin a row, (n,)."""


class Picker:
    """Take rows out of sorted records.

    Parameters
    ----------
    bounds : RowBounds
    parts : sequence of KeyPart
        What is compared.
    unique : bool
        Of rows with one key only the first is kept.
    top : int or None
        How many rows are kept; None for all.

    Attributes
    ----------
    n_rows : int
        Rows that were kept so far.
    """

    def __init__(self, bounds: RowBounds, parts: Sequence[KeyPart], *, unique: bool, top: int | None) -> None:
        self._bounds, self._parts, self._unique, self._top = bounds, parts, unique, top
        self._last: np.ndarray | None = None
        self._keeps = False
        self._begun = 0
        self.n_rows = 0

    @property
    def is_done(self) -> bool:
        """Whether all further rows are dropped."""
        return self._top is not None and self._begun > self._top

    def pick(self, records: np.ndarray) -> np.ndarray:
        """Return the records of the rows that are kept; blocks come in order, and may end within a row."""
        first = self._bounds.begins_row(records)
        if not self._unique and self._top is None:
            self.n_rows += int(np.count_nonzero(first))
            return records
        kept = first.copy()
        if self._unique and len(records):
            keys = read_key_bytes(records, self._parts)
            kept[1:] &= keys[1:] != keys[:-1]
            kept[0] &= self._last is None or bool(keys[0] != self._last)
            self._last = keys[-1].copy()
        if self._top is not None:
            self._begun += int(np.count_nonzero(kept))
            places = np.flatnonzero(kept)[max(0, self._top - self.n_rows) :]
            kept[places] = False
        self.n_rows += int(np.count_nonzero(kept))
        # The pieces of a row go with the record that begins it; those before the first one are of the block before.
        number = np.cumsum(first)
        flags = np.concatenate([[self._keeps], kept[first]])
        self._keeps = bool(flags[-1])
        mask = flags[number]
        return records if mask.all() else records[mask]


def read_key_bytes(records: np.ndarray, parts: Sequence[KeyPart]) -> np.ndarray:
    """Return the bytes that are compared, as one value for each record, (n,)."""
    flat = records.view(np.uint8).reshape(len(records), records.dtype.itemsize)
    joined = np.concatenate([flat[:, part.offset : part.end] for part in parts], axis=1)
    keys: np.ndarray = np.ascontiguousarray(joined).view(f"V{joined.shape[1]}")[:, 0]
    return keys


def order_key_bytes(records: np.ndarray, parts: Sequence[KeyPart]) -> np.ndarray | None:
    """Return keys whose unsigned bytes order as the engine orders the records, (n,); None where that is not known.

    NaNs of unlike bits have an order of their own in the engine.
    """
    flat = records.view(np.uint8).reshape(len(records), records.dtype.itemsize)
    columns = []
    for part in parts:
        raw = np.ascontiguousarray(flat[:, part.offset : part.end])
        kind = np.dtype(part.kind)
        missing = np.zeros(len(raw), bool)
        if kind.kind == "f":
            values = raw.view(kind)[:, 0]
            missing = np.isnan(values)
            if missing.any() and len(np.unique(raw[missing], axis=0)) > 1:
                return None
        if kind.kind in "iuf" and kind.byteorder != ">":
            raw = raw[:, ::-1].copy()
        if kind.kind == "f":
            below = raw[:, 0] >= 0x80
            raw[below] ^= 0xFF
            raw[~below, 0] ^= 0x80
        elif kind.kind == "i":
            raw[:, 0] ^= 0x80
        if part.descending:
            raw = raw ^ np.uint8(0xFF)
        raw[missing] = 0xFF
        columns.append(raw)
    joined = np.ascontiguousarray(np.concatenate(columns, axis=1))
    keys: np.ndarray = joined.view(f"S{joined.shape[1]}")[:, 0]
    return keys


def choose_leaders(
    blocks: Iterable[np.ndarray],
    bounds: RowBounds,
    parts: Sequence[KeyPart],
    dtype: DType,
    *,
    unique: bool,
    top: int,
    most_bytes: int,
) -> np.ndarray | None:
    """Return the records of the first rows, in the order in which they came; None if they take too much memory.

    Parameters
    ----------
    blocks : iterable of ndarray
        Records of whole rows.
    bounds : RowBounds
    parts : sequence of KeyPart
    dtype : numpy.dtype
        Of the records.
    unique : bool
        Whether rows with one key count once, by the first of them.
    top : int
        How many rows.
    most_bytes : int
        Of the records that are held.
    """
    held: list[np.ndarray] = []
    bound: bytes | None = None
    n_rows = n_bytes = 0
    nan: bytes | None = None
    for block in blocks:
        keys = order_key_bytes(block, parts)
        if keys is None:
            return None
        seen = _find_nan(block, parts)
        if seen is not None:
            if nan is not None and seen != nan:
                return None
            nan = seen
        if bound is not None:
            block = _rows_where(block, bounds, keys < bound)
        held.append(block)
        n_rows += int(np.count_nonzero(bounds.begins_row(block)))
        n_bytes += block.nbytes
        if n_rows > 2 * top + _SPARE_ROWS or n_bytes > most_bytes:
            kept, bound = _drop_rest(_join(held), bounds, parts, unique=unique, top=top)
            held, n_bytes = [kept], kept.nbytes
            n_rows = int(np.count_nonzero(bounds.begins_row(kept)))
            if n_bytes > most_bytes // 2:
                return None
    if not held:
        return np.zeros(0, dtype)
    return _drop_rest(_join(held), bounds, parts, unique=unique, top=top)[0]


def _join(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Join blocks as they are; NumPy would turn numbers of the other byte order."""
    dtype = blocks[0].dtype
    return np.concatenate([block.view(f"V{dtype.itemsize}") for block in blocks]).view(dtype)


def _find_nan(block: np.ndarray, parts: Sequence[KeyPart]) -> bytes | None:
    """Return the bits of the NaNs of a block, of all float parts together; None if there is none."""
    flat = block.view(np.uint8).reshape(len(block), block.dtype.itemsize)
    found = b""
    for part in parts:
        if np.dtype(part.kind).kind == "f":
            raw = np.ascontiguousarray(flat[:, part.offset : part.end])
            missing = np.isnan(raw.view(part.kind)[:, 0])
            if missing.any():
                found += raw[missing][0].tobytes()
    return found or None


def _drop_rest(
    records: np.ndarray, bounds: RowBounds, parts: Sequence[KeyPart], *, unique: bool, top: int
) -> tuple[np.ndarray, bytes | None]:
    """Return the records of the first rows, and the key from which on others are none of them."""
    first = np.flatnonzero(bounds.begins_row(records))
    keys = order_key_bytes(records[first], parts)
    assert keys is not None, "blocks were looked through"
    order = np.argsort(keys, kind="stable")
    if unique and len(order):
        ordered = keys[order]
        order = order[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    order = order[:top]
    mask = np.zeros(len(records), bool)
    mask[first[order]] = True
    return _rows_where(records, bounds, mask), bytes(keys[order[-1]]) if len(order) == top else None


def _rows_where(records: np.ndarray, bounds: RowBounds, mask: np.ndarray) -> np.ndarray:
    """Return the records of the rows whose first record is marked."""
    first = bounds.begins_row(records)
    return records[mask[first][np.cumsum(first) - 1]] if len(records) else records
