"""Arrays in ``.npy`` files that were written elsewhere: whatever the header says, it is a file or an error."""

from __future__ import annotations

import io
import math
import os
import threading
import tokenize
from typing import Any, BinaryIO

import numpy as np

_MAGIC, _ARCHIVE = b"\x93NUMPY", b"PK\x03\x04"

PARSER_LOCK = threading.Lock()
"""Held while Python parses a literal: before 3.11.8 its parser counts the depth of all threads in one number, so that a
good header fails now and then where two threads read one (python/cpython#106905)."""


def open_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Map an array from a file, without reading its values.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is not an array, or one of objects.
    """
    with open(path, "rb") as file:
        begin = file.read(len(_MAGIC))
    if begin.startswith(_ARCHIVE):
        raise ValueError("it is an archive of arrays; give one array")
    if not begin.startswith(_MAGIC):  # NumPy takes it for a pickle, and would advise to load that
        raise ValueError(f"it does not begin as a .npy file does, but with {begin!r}" if begin else "it is empty")
    try:
        with PARSER_LOCK, np.errstate(over="ignore"):  # of a product of sides, which is refused then
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, SyntaxError, tokenize.TokenError, TypeError, KeyError, OverflowError, MemoryError) as error:
        # The header is a text of Python: NumPy lets through what its parser raises.
        raise ValueError(f"it is damaged ({error})") from error
    _refuse_no_values(array.dtype)
    return array


def npy_of_bytes(data: bytes) -> np.ndarray:
    """Return the array that the bytes of a file hold, without copying its values.

    Raises
    ------
    ValueError
        If it is not an array, one of objects, or has more or fewer bytes than its header says.
    """
    stream = io.BytesIO(data)
    try:
        shape, fortran, dtype = read_npy_header(stream)
    except Exception as error:  # NumPy parses the header as Python text: damage shows as errors of many kinds
        raise ValueError(f"it is not a .npy file ({error})") from error
    if dtype.hasobject:
        raise ValueError("it holds objects of Python, which are not read")
    _refuse_no_values(dtype)
    expected, found = math.prod(map(int, shape)) * dtype.itemsize, len(data) - stream.tell()
    if expected != found:
        raise ValueError(f"its header says shape {shape} of {dtype}, {expected:,} bytes, and {found:,} follow")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape, order="F" if fortran else "C")


def read_npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order (True: columns first) and dtype; damage shows as errors of many kinds."""
    old = np.lib.format.read_magic(stream) == (1, 0)
    with PARSER_LOCK:
        if old:
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)


def _refuse_no_values(dtype: np.dtype[Any]) -> None:
    """Refuse values of no bytes: any number of them fits into any file."""
    if not dtype.itemsize:
        raise ValueError(f"its values have the dtype {dtype}, of no bytes")
