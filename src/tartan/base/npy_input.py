"""Arrays in ``.npy`` files that were written elsewhere: whatever the header says, it is a file or an error."""

from __future__ import annotations

import os
import tokenize
from typing import Any

import numpy as np

_MAGIC, _ARCHIVE = b"\x93NUMPY", b"PK\x03\x04"


def open_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Map an array from a file, without reading its values.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no array, or one of objects.
    """
    with open(path, "rb") as file:
        begin = file.read(len(_MAGIC))
    if not begin.startswith((_MAGIC, _ARCHIVE)):  # NumPy takes it for a pickle, and would advise to load that
        raise ValueError(f"it does not begin as a .npy file does, but with {begin!r}" if begin else "it is empty")
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, SyntaxError, tokenize.TokenError, TypeError, KeyError, OverflowError, MemoryError) as error:
        # The header is a text of Python: NumPy lets through what its parser raises.
        raise ValueError(f"it is damaged ({error})") from error
    if not isinstance(array, np.ndarray):
        raise ValueError("it is an archive of arrays; give one array")
    return array
