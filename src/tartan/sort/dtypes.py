"""Read the types of records, and say which of them can be sorted.

A record has a fixed width. It is a plain number (``int64``, ``">f4"``), bytes (``record:100``), or named fields
(``"key:u4,score:f8"``, any structured NumPy dtype). keys.py says which parts of it are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tartan.errors import ConfigError

DType = np.dtype[Any]

KNOWN = (
    "int8 int16 int32 int64, uint8 to uint64, float16 float32 float64 (each also big-endian: '>i8'), bool, "
    "record:WIDTH for bytes, fields such as 'key:u4,score:f8,tag:S4' or 'S10,V90', or any NumPy dtype made of these"
)
_RECORD = "record:"
_NUMBER_BYTES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
_HINTS = {
    "M": "; sort the int64 behind it: 'i8' for a raw file, view('i8') of the array for .npy",
    "m": "; sort the int64 behind it: 'i8' for a raw file, view('i8') of the array for .npy",
    "c": "; sort its two parts as fields: 'real:f8,imaginary:f8' for a raw file, a view of the array for .npy",
    "O": "; objects have no fixed width",
    "T": "; its strings have no fixed width",
}


def parse_dtype(dtype: Any) -> DType:
    """Read the type of a record.

    Parameters
    ----------
    dtype : str, type or numpy.dtype
        What NumPy takes as a dtype, ``record:WIDTH``, or ``name:type,name:type`` for fields that lie one after the
        other without gaps.

    Raises
    ------
    ConfigError
        If it is unknown, has no width, or contains types without an order here (dates, complex numbers, objects).

    Examples
    --------
    >>> parse_dtype("record:100").itemsize, parse_dtype("key:u4,score:f8").names
    (100, ('key', 'score'))
    """
    try:
        parsed = _read(dtype)
    except (TypeError, ValueError) as error:
        raise _make_unknown_error(dtype, "") from error
    if parsed.itemsize == 0:
        raise _make_unknown_error(dtype, ": a record needs at least one byte")
    for leaf in leaves(parsed):
        if not _is_known(leaf):
            inside = "" if leaf == parsed else f": it contains {leaf}"
            raise _make_unknown_error(dtype, inside + _HINTS.get(leaf.kind, ""))
    return parsed


def _read(dtype: Any) -> DType:
    if isinstance(dtype, str):
        text = dtype.strip()
        if text.startswith(_RECORD):
            return np.dtype(f"V{int(text.removeprefix(_RECORD))}")
        if ":" in text:
            return np.dtype([_parse_field(part) for part in text.split(",")])
        if not text:
            raise ValueError("empty")
        return np.dtype(text)
    if dtype is None:  # which NumPy takes for float64
        raise TypeError("no dtype")
    whole: DType = np.dtype(dtype)
    return whole


def _parse_field(text: str) -> tuple[str, DType]:
    name, separator, kind = (word.strip() for word in text.partition(":"))
    if not (name and separator and kind):
        raise ValueError(text)
    return name, _read(kind)


def leaves(dtype: DType) -> Iterator[DType]:
    """Yield the plain types that a dtype is made of."""
    if dtype.subdtype is not None:
        yield from leaves(dtype.subdtype[0])
    elif dtype.names is not None:
        for name in dtype.names:
            yield from leaves(dtype[name])
    else:
        yield dtype


def _is_known(leaf: DType) -> bool:
    return leaf.kind in "SVU" or leaf.itemsize in _NUMBER_BYTES.get(leaf.kind, ())


def _make_unknown_error(dtype: Any, why: str) -> ConfigError:
    return ConfigError(
        f"dtype {dtype!s} cannot be sorted{why}; known are {KNOWN}", context={"option": "dtype", "value": str(dtype)}
    )


def describe_dtype(dtype: DType) -> str:
    """Write a dtype as a text that ``parse_dtype`` or NumPy reads, for messages and manifests."""
    if dtype.names is None and dtype.subdtype is None:
        return f"{_RECORD}{dtype.itemsize}" if dtype.kind == "V" else dtype.str
    return str(dtype.descr if dtype.names is not None and dtype.isbuiltin != 1 else dtype)
