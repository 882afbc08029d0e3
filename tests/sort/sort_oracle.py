"""The order that a sort must give, the slow and plain way: keys as bytes, compared one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.sort.keys import KeyPart

Bytes = NDArray[np.uint8]


def sort_rows(rows: Bytes, parts: Sequence[KeyPart]) -> Bytes:
    """Return rows of bytes (records) in order of their keys; equal ones keep their order."""
    keys = key_bytes(rows, parts)
    return rows[sorted(range(len(rows)), key=keys.__getitem__)]


def key_bytes(rows: Bytes, parts: Sequence[KeyPart]) -> list[bytes]:
    """Return for each record bytes that compare as its key does."""
    columns = [_column(np.ascontiguousarray(rows[:, part.offset : part.end]), part) for part in parts]
    joined = np.hstack([np.empty((len(rows), 0), np.uint8), *columns])
    return [row.tobytes() for row in joined]


def _column(raw: Bytes, part: KeyPart) -> Bytes:
    dtype = np.dtype(part.kind)
    if dtype.kind == "S":
        return ~raw if part.descending else raw
    native = raw.view(dtype)[:, 0].astype(dtype.newbyteorder("="))
    width = dtype.itemsize
    bits = native.view(f"u{width}")
    sign = bits.dtype.type(1 << (8 * width - 1))
    if dtype.kind == "i":
        bits = bits ^ sign
    elif dtype.kind == "f":
        bits = np.where(bits & sign, ~bits, bits | sign)
    if part.descending:
        bits = ~bits
    if dtype.kind == "f":
        bits = np.where(np.isnan(native), ~bits.dtype.type(0), bits)
    return np.ascontiguousarray(bits.astype(bits.dtype.newbyteorder(">"))).view(np.uint8).reshape(len(raw), width)


def as_rows(values: NDArray[Any]) -> Bytes:
    """Return an array of records as rows of bytes."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)
