"""MATLAB files of version 5: cells, structs and arrays of real numbers, and nothing else.

Files are not trusted. Every length is compared with what is there before it is used; nesting, the number of arrays
and the size of what is compressed are limited. Version 7.3 (HDF5) and version 4 are refused by name. Text, sparse
arrays, objects and functions are left out.

Reference: MAT-File Format, The MathWorks, "Level 5 MAT-File Format".
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# _HEADER, _MATRIX, _COMPRESSED, _STRUCT and _COMPLEX, by format of MATLAB's MAT-files, level 5.
_HEADER: Final = 128
_MATRIX: Final = 14
_COMPRESSED: Final = 15
_CELL: Final = 1
_STRUCT: Final = 2
#: Classes of arrays of numbers: double, single, and integers of 8 to 64 bits.
_NUMBERS: Final = range(6, 16)
# By format.
_COMPLEX: Final = 0x08
_STORED: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# By judgement: particles lie three deep; a bound against strangers' files.
_MOST_DEPTH: Final = 8
# By judgement: five for each of _MOST_PARTICLES; was two million, whose empty cells took half a minute.
_MOST_ARRAYS: Final = 500_000
# By judgement: a bound against strangers' files.
_MOST_BYTES: Final = 1 << 28  # as of JSON
_SMALLER: Final = "save its particles in several files, or without compression: save('file.mat', 'particles', '-v6')"
# By arithmetic: deflate makes at most 1,032 bytes of one.
_MOST_RATIO: Final = 1100
# By limit of NumPy before version 2.
_MOST_DIMENSIONS: Final = 32

#: A value of a file: an array, the cells of one, or the structs of one; None for what is left out.
Value = Any


class MatError(ValueError):
    """What is wrong with a file."""


@dataclass(frozen=True)
class MatCells:
    """A cell array: its values, in the order of MATLAB."""

    values: list[Value]


@dataclass(frozen=True)
class MatStructs:
    """A struct array: its elements by their fields, in the order of MATLAB."""

    values: list[dict[str, Value]]


@dataclass
class _MatAllowance:
    """What a file may still hold."""

    arrays: int = _MOST_ARRAYS
    bytes_left: int = _MOST_BYTES

    def array(self) -> None:
        self.arrays -= 1
        self.require_arrays(0)

    def require_arrays(self, n: int) -> None:
        """Refuse so many arrays more."""
        if n > self.arrays:
            raise MatError(f"it holds more than {_MOST_ARRAYS:,} arrays; save its particles in several files")

    def take(self, n: int) -> None:
        self.bytes_left -= n
        if self.bytes_left < 0:
            raise MatError(
                f"it holds more than {_MOST_BYTES:,} bytes when decompressed; save it in several files, or with '-v6'"
            )


@dataclass
class _Elements:
    """Elements of a stretch of bytes, one after the other."""

    data: memoryview
    order: str
    limits: _MatAllowance
    at: int = 0
    depth: int = 0
    names: dict[str, Value] = field(default_factory=dict)

    def inside(self, data: memoryview) -> _Elements:
        if self.depth + 1 > _MOST_DEPTH:
            raise MatError(f"its arrays are nested more than {_MOST_DEPTH} deep")
        return _Elements(data, self.order, self.limits, depth=self.depth + 1)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.data)

    def element(self) -> tuple[int, memoryview]:
        """Return the type and the bytes of the next element."""
        if len(self.data) - self.at < 8:
            raise MatError("it is truncated")
        first, second = struct.unpack_from(f"{self.order}II", self.data, self.at)
        if first >> 16:  # up to four bytes lie in the tag itself
            kind, n = first & 0xFFFF, first >> 16
            if n > 4:
                raise MatError(f"an element of {n} bytes lies in its tag, which has room for 4; the file is damaged")
            start, step = self.at + 4, 8
        else:
            kind, n, start = first, second, self.at + 8
            step = 8 + (n if kind == _COMPRESSED else -(-n // 8) * 8)
        if n > len(self.data) - start:
            raise MatError(f"an element says {n:,} bytes, {max(0, len(self.data) - start):,} are left; it is truncated")
        self.at += step
        return kind, self.data[start : start + n]

    def numbers(self) -> NDArray[Any]:
        """Return the next element as numbers of one dimension."""
        kind, raw = self.element()
        if kind not in _STORED:
            raise MatError(f"an element of type {kind} stands where numbers are expected; the file is damaged")
        dtype = np.dtype(self.order + _STORED[kind])
        if len(raw) % dtype.itemsize:
            raise MatError(f"{len(raw)} bytes are not a whole number of {dtype}; the file is damaged")
        return np.frombuffer(raw, dtype)


def read_mat(data: bytes) -> dict[str, Value]:
    """Return the variables of a file by name.

    Returns
    -------
    dict of str to ndarray, MatCells, MatStructs or None
        Arrays have MATLAB's shape; None stands for what is left out.

    Raises
    ------
    MatError
        If the file is damaged, hostile, or of another version.
    """
    reader = _Elements(memoryview(data)[_HEADER:], _byte_order(data), _MatAllowance())
    found: dict[str, Value] = {}
    while not reader.ended:
        kind, raw = reader.element()
        if kind == _COMPRESSED:
            raw = memoryview(_inflate(raw, reader.limits))
            kind, raw = _Elements(raw, reader.order, reader.limits).element()
        if kind == _MATRIX:
            name, value = _matrix(reader.inside(raw))
            found[name] = value
    return found


def _byte_order(data: bytes) -> str:
    """Return the byte order that the header names, or say what the file is instead."""
    if data[:19] == b"MATLAB 7.3 MAT-file" or data[512:516] == b"\x89HDF":
        raise MatError("it is a MAT file of version 7.3 (HDF5); save it with: save('file.mat', '-v7')")
    if len(data) < _HEADER or not data.startswith(b"MATLAB"):
        raise MatError("it is not a MAT file of version 5; save it with: save('file.mat', '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise MatError("its header names no byte order; the file is damaged")
    return order


def _inflate(raw: memoryview, limits: _MatAllowance) -> bytes:
    """Decompress a variable, up to what is allowed."""
    allowed = min(limits.bytes_left, len(raw) * _MOST_RATIO + 1024)
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(raw, allowed + 1)
    except zlib.error as error:
        raise MatError(f"a variable cannot be decompressed ({error}); the file is damaged") from None
    if len(plain) > allowed:
        raise MatError(
            f"a variable of {len(raw):,} bytes holds more than {allowed:,} bytes when decompressed; {_SMALLER}"
        )
    if not inflater.eof:
        raise MatError("a compressed variable is truncated")
    limits.take(len(plain))
    return plain


def _matrix(reader: _Elements) -> tuple[str, Value]:
    """Return the name and the value of an array."""
    reader.limits.array()
    if reader.ended:  # an empty element stands for an empty array
        return "", np.zeros((0, 0))
    flags = reader.numbers()
    if len(flags) < 1:
        raise MatError("an array has no flags; the file is damaged")
    kind, is_complex = int(flags[0]) & 0xFF, bool((int(flags[0]) >> 8) & _COMPLEX)
    shape = _shape(reader.numbers())
    _, name = reader.element()
    label = bytes(name).decode("utf-8", "replace")
    if kind == _CELL:
        return label, MatCells(_values(reader, math.prod(shape)))
    if kind == _STRUCT:
        return label, _structs(reader, math.prod(shape))
    if kind not in _NUMBERS or is_complex:
        return label, None
    values = reader.numbers()
    if len(values) != math.prod(shape):
        raise MatError(f"an array of shape {shape} holds {len(values):,} numbers; the file is damaged")
    return label, values.reshape(shape, order="F")


def _shape(sizes: NDArray[Any]) -> tuple[int, ...]:
    shape = tuple(int(side) for side in sizes)
    if not 1 <= len(shape) <= _MOST_DIMENSIONS or min(shape) < 0:
        raise MatError(f"an array has dimensions {shape[:4]}; the file is damaged")
    return shape


def _values(reader: _Elements, n: int) -> list[Value]:
    """Return n arrays that follow each other; each takes 8 bytes or more, which bounds n before anything is kept."""
    left = len(reader.data) - reader.at
    if n * 8 > left:
        raise MatError(f"{n:,} arrays are announced and {left:,} bytes are left; it is truncated or damaged")
    reader.limits.require_arrays(n)
    found = []
    for _ in range(n):
        kind, raw = reader.element()
        if kind != _MATRIX:
            raise MatError(f"an element of type {kind} stands where an array is expected; the file is damaged")
        found.append(_matrix(reader.inside(raw))[1])
    return found


def _structs(reader: _Elements, n: int) -> MatStructs:
    width = reader.numbers()
    if len(width) != 1 or not 1 <= int(width[0]) <= 64:
        raise MatError("the names of a struct's fields have no length; the file is damaged")
    _, raw = reader.element()
    step = int(width[0])
    names = [bytes(raw[at : at + step]).split(b"\0")[0].decode("utf-8", "replace") for at in range(0, len(raw), step)]
    if not names:
        return MatStructs([{} for _ in range(min(n, 1))])
    values = _values(reader, n * len(names))
    return MatStructs([dict(zip(names, values[at * len(names) : (at + 1) * len(names)])) for at in range(n)])
