"""Items of unequal size as arrays for the disk level, which anyone who wrote the run folder may have filled.

Arrays, numbers, texts, bytes, and tuples, lists and dicts of these are described by JSON that names their arrays:
reading them back runs nothing. Everything else needs a pickle, and a pickle runs what it holds. Such items are kept
only with a key that the user alone has, and read back only where the seal over all their bytes and their name is of
that key. Built-in applications get no key.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tartan.base.user_key import same_seal, seal
from tartan.runtime.codec import encoded_parts

FORM = b"items 2"
"""Part of every digest: what an older form kept is not found."""
_PURPOSE = "kept item"
_DEEPEST = 32
_NUMBERS = "biufcmMSU"


class _NotPlainError(Exception):
    """The item holds an object that JSON and arrays cannot describe."""


def to_arrays(item: Any, name: str, key: bytes | None) -> list[np.ndarray] | None:
    """Return an item as plain arrays.

    Parameters
    ----------
    item : object
    name : str
        What the arrays are found by.
    key : bytes or None
        Seals items that need a pickle.

    Returns
    -------
    list of array or None
        A header, then what it names; None for an item that needs a pickle, without a key.
    """
    arrays: list[np.ndarray] = []
    try:
        header: dict[str, Any] = {"plain": _described(item, arrays, _DEEPEST)}
    except _NotPlainError:
        if key is None:
            return None
        arrays = [np.frombuffer(part, np.uint8) for part in encoded_parts(item)[0]]
        header = {"seal": _sealed(arrays, name, key)}
    return [np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays]


def from_arrays(arrays: Sequence[np.ndarray], name: str, key: bytes | None) -> Any:
    """Return the item that ``to_arrays`` took apart; arrays in it may be views.

    Raises
    ------
    ValueError, TypeError, KeyError, LookupError, RecursionError
        If they are no item, or a pickle that was not sealed with this key under this name.
    """
    header = json.loads(arrays[0].tobytes())
    if "seal" not in header:
        return _restored(header["plain"], arrays[1:], _DEEPEST)
    if key is None or not same_seal(header["seal"], _sealed(arrays[1:], name, key)):
        raise ValueError("a pickle that this user did not write")
    return pickle.loads(arrays[1].tobytes(), buffers=arrays[2:])


def _sealed(arrays: Sequence[np.ndarray], name: str, key: bytes) -> str:
    return seal(key, _PURPOSE, [name.encode(), *(array.tobytes() for array in arrays)])


def _described(item: Any, arrays: list[np.ndarray], depth: int) -> Any:
    """Return JSON for an item, and put its arrays into the list; exact types only, so that it comes back as it was."""
    kind = type(item)
    if depth == 0:
        raise _NotPlainError
    if item is None or kind in (bool, str) or (kind is int and abs(item) < 2**53):
        return item
    if kind is float:
        return item if math.isfinite(item) else {"float": repr(item)}
    if kind in (tuple, list):
        return {kind.__name__: [_described(part, arrays, depth - 1) for part in item]}
    if kind is dict and all(type(name) is str for name in item):
        return {"dict": [[name, _described(part, arrays, depth - 1)] for name, part in item.items()]}
    return {_array_word(item, kind): _added(item, arrays)}


def _array_word(item: Any, kind: type) -> str:
    if kind is bytes:
        return "bytes"
    dtype = item.dtype if kind is np.ndarray or isinstance(item, np.generic) else None
    if dtype is None or dtype.kind not in _NUMBERS:
        raise _NotPlainError
    return "array" if kind is np.ndarray else "number"


def _added(item: Any, arrays: list[np.ndarray]) -> int:
    arrays.append(np.frombuffer(item, np.uint8) if type(item) is bytes else np.asarray(item))
    return len(arrays) - 1


def _restored(value: Any, arrays: Sequence[np.ndarray], depth: int) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a list without a kind")
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    ((kind, content),) = value.items()
    return _RESTORE[kind](content, arrays, depth - 1)


def _parts(content: Any, arrays: Sequence[np.ndarray], depth: int) -> list[Any]:
    return [_restored(part, arrays, depth) for part in content]


def _array_at(content: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    if type(content) is not int or content < 0:
        raise ValueError("no index of an array")
    return arrays[content]


_RESTORE: dict[str, Callable[[Any, Sequence[np.ndarray], int], Any]] = {
    "float": lambda content, arrays, depth: float(content),
    "list": _parts,
    "tuple": lambda content, arrays, depth: tuple(_parts(content, arrays, depth)),
    "dict": lambda content, arrays, depth: {str(name): _restored(part, arrays, depth) for name, part in content},
    "bytes": lambda content, arrays, depth: _array_at(content, arrays).tobytes(),
    "array": lambda content, arrays, depth: _array_at(content, arrays),
    "number": lambda content, arrays, depth: _array_at(content, arrays)[()],
}
