"""Read keys: which bytes of a record are compared, how, and in which direction.

A key is a list of parts, most significant first. Each part has an offset in the record, a kind (a NumPy type
with its byte order, or ``S<length>`` for bytes compared as unsigned ones) and a direction. Everything that users
name (fields, fields of fields, subarrays, text, ranges of bytes) becomes such parts; the engine knows nothing else.

Order of numbers: as usual; floats in total order, -0.0 before 0.0, and every NaN last, also when descending. Where the
two zeros are to be equal, records come without the sign (request.py, columns.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.errors import ConfigError
from tartan.sort.dtypes import DType, describe_dtype, parse_dtype

# By judgement: more columns in a key than tables have; a bound on what one option can make of it. No benchmark.
MAX_PARTS = 256
_DIRECTIONS = {"asc": False, "desc": True}
_SYNTAX = "write NAME, OFFSET:LENGTH or OFFSET:TYPE, each optionally followed by :desc or :asc, separated by commas"


@dataclass(frozen=True)
class KeyPart:
    """Some bytes of a record that are compared.

    Attributes
    ----------
    offset : int
        First byte, counted from the beginning of the record.
    kind : str
        ``S<n>`` for n bytes, else a NumPy type with its byte order: ``"<i8"``, ``">f4"``, ``"|u1"``.
    descending : bool
        Whether large values come first.
    """

    offset: int
    kind: str
    descending: bool = False

    @property
    def width_bytes(self) -> int:
        """Number of bytes that are compared."""
        return np.dtype(self.kind).itemsize

    @property
    def end(self) -> int:
        """First byte after the part."""
        return self.offset + self.width_bytes


@dataclass(frozen=True)
class _Named:
    """A key as the user named it: a place in the record with a type."""

    name: str
    offset: int
    dtype: DType
    descending: bool


def parse_key(key: str | Sequence[str] | None, dtype: DType, *, descending: bool = False) -> tuple[KeyPart, ...]:
    """Turn a key as users write it into parts.

    Parameters
    ----------
    key : str or sequence of str, optional
        Names of fields or ranges of bytes: ``"score:desc,key"``, ``"0:10"`` (ten bytes), ``"8:<f8:desc"`` (a number at
        byte 8). Default: the whole record, field by field.
    dtype : numpy.dtype
        The record, as ``parse_dtype`` returned it.
    descending : bool
        Direction of the parts that do not name their own.

    Returns
    -------
    tuple of KeyPart
        Most significant first; at most ``MAX_PARTS``.

    Raises
    ------
    ConfigError
        If a part cannot be read, names no field, lies outside the record or overlaps another.

    Examples
    --------
    >>> parse_key("score:desc,key", np.dtype([("key", "<u4"), ("score", "<f8")]))
    (KeyPart(offset=4, kind='<f8', descending=True), KeyPart(offset=0, kind='<u4', descending=False))
    """
    expanded = (
        (one.name, part)
        for one in _find_named(key, dtype, descending)
        for part in _expand(_inside(one, dtype).dtype, one.offset, one.descending)
    )
    parts = list(itertools.islice(expanded, MAX_PARTS + 1))
    if len(parts) > MAX_PARTS:
        raise _wrong(f"the key has more than {MAX_PARTS} parts; name fewer fields, or bytes as OFFSET:LENGTH", key)
    _refuse_overlaps(parts)
    return tuple(part for _, part in parts)


def _find_named(key: str | Sequence[str] | None, dtype: DType, descending: bool) -> Iterator[_Named]:
    if key is None:
        yield _Named("the record", 0, dtype, descending)
        return
    texts = [text.strip() for part in ([key] if isinstance(key, str) else key) for text in str(part).split(",")]
    if not texts or not all(texts):
        raise _wrong(f"the key {key!r} is empty or has an empty part; {_SYNTAX}", key)
    for text in texts:
        yield _read_part(text, dtype, descending)


def _read_part(text: str, dtype: DType, descending: bool) -> _Named:
    words = [word.strip() for word in text.split(":")]
    if len(words) > 1 and words[-1] in _DIRECTIONS and words[0]:
        descending = _DIRECTIONS[words.pop()]
    if len(words) == 1:
        return _find_field(words[0], dtype, descending)
    if len(words) == 2 and words[0].isdecimal():
        kind = f"V{int(words[1])}" if words[1].isdecimal() else words[1]
        return _Named(text, int(words[0]), parse_dtype(kind), descending)
    raise _wrong(f"the key {text!r} cannot be read; {_SYNTAX}", text)


def _find_field(name: str, dtype: DType, descending: bool) -> _Named:
    """Find a field, or a field of a field (``position.x``)."""
    offset, inner = 0, dtype
    for step in [name] if name in (dtype.names or ()) else name.split("."):
        if inner.names is None or step not in inner.names:
            raise _wrong(f"the key {name!r} is not a field of {describe_dtype(dtype)}; {_what_there_is(inner)}", name)
        fields: Any = inner.fields
        inner, at = fields[step][:2]
        offset += at
    return _Named(name, offset, inner, descending)


def _what_there_is(dtype: DType) -> str:
    if dtype.names:
        return f"its fields are {', '.join(dtype.names)}"
    return f"it has no fields; omit the key to compare whole records, or write OFFSET:LENGTH within 0:{dtype.itemsize}"


def _inside(one: _Named, dtype: DType) -> _Named:
    end = one.offset + one.dtype.itemsize
    if end > dtype.itemsize:
        raise _wrong(
            f"the key {one.name!r} ends at byte {end}, outside of the record of {dtype.itemsize} bytes; "
            f"keep offset + length within {dtype.itemsize}",
            one.name,
        )
    if one.dtype.itemsize == 0:
        raise _wrong(f"the key {one.name!r} is empty; a key needs at least one byte", one.name)
    return one


def _refuse_overlaps(parts: Sequence[tuple[str, KeyPart]]) -> None:
    ordered = sorted(parts, key=lambda named: named[1].offset)
    for (name, part), (after_name, after) in itertools.pairwise(ordered):
        if part.end > after.offset:
            raise _wrong(
                f"the keys {name!r} and {after_name!r} overlap at byte {after.offset}; compare each byte once",
                after_name,
            )


def _expand(dtype: DType, offset: int, descending: bool) -> Iterator[KeyPart]:
    if dtype.itemsize == 0:
        return
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for number in range(int(np.prod(shape))):
            yield from _expand(base, offset + number * base.itemsize, descending)
    elif dtype.names is not None:
        fields: Any = dtype.fields
        for name in dtype.names:
            yield from _expand(fields[name][0], offset + fields[name][1], descending)
    elif dtype.kind in "SV":
        yield KeyPart(offset, f"S{dtype.itemsize}", descending)
    elif dtype.kind == "U":  # characters of four bytes
        yield from _expand(np.dtype((f"{dtype.str[0]}u4", (dtype.itemsize // 4,))), offset, descending)
    else:
        yield KeyPart(offset, "|u1" if dtype.kind == "b" else dtype.str, descending)


def _wrong(message: str, value: object) -> ConfigError:
    return ConfigError(message, context={"option": "key", "value": str(value)})
