"""Indices of arrays: slices and integers that name one range of a space for each element of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tartan.core.space import bound_of, resolve
from tartan.errors import ConfigError


def in_arrays(key: Any) -> bool:
    """Whether an index names one range for each element of an array."""
    if isinstance(key, tuple):
        return any(map(in_arrays, key))
    if isinstance(key, slice):
        return isinstance(key.start, np.ndarray) or isinstance(key.stop, np.ndarray)
    return isinstance(key, np.ndarray) and key.ndim > 0


def resolved(key: Any, shape: Sequence[int]) -> np.ndarray:
    """Return the boxes that an index of arrays names, as ``resolve`` does for each of its elements.

    Returns
    -------
    ndarray of int64, shape (n, n_dimensions, 2)
    """
    keys = key if isinstance(key, tuple) else (key,)
    lengths = {len(one) for each in keys for one in _arrays(each)}
    if len(lengths) > 1:
        raise ConfigError(f"arrays of {' and '.join(map(str, sorted(lengths)))} elements in one index")
    n = lengths.pop()
    plain = resolve(tuple(slice(None) if in_arrays(one) else one for one in keys), shape)
    boxes = np.array([plain], dtype=np.int64).repeat(n, axis=0)
    skipped = len(shape) - len(keys)
    after = next((k for k, one in enumerate(keys) if one is Ellipsis), len(keys))
    for place, one in enumerate(keys):
        if in_arrays(one):
            at = place + (skipped if place > after else 0)
            boxes[:, at, 0], boxes[:, at, 1] = _intervals(one, shape[at])
    return boxes


def _arrays(key: Any) -> list[np.ndarray]:
    """Return the arrays of one dimension of an index."""
    bounds = (key.start, key.stop) if isinstance(key, slice) else (key,)
    found = [one for one in bounds if isinstance(one, np.ndarray)]
    for one in found:
        if one.ndim != 1 or one.dtype.kind not in "iu":
            raise ConfigError(f"an array of shape {one.shape} and dtype {one.dtype}: give one whole number a subtask")
    return found


def _intervals(key: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of one dimension; what is refused is refused as the first one alone would be."""
    if isinstance(key, slice):
        starts, stops = _bounds(key.start, 0, length), _bounds(key.stop, length, length)
        wrong = (starts < 0) | (starts >= stops) | (stops > length) | (key.step not in (None, 1))
    else:
        starts = _bounds(key, 0, length)
        stops = starts + 1
        wrong = (starts < 0) | (stops > length)
    if np.any(wrong):
        k = int(np.argmax(np.broadcast_to(wrong, np.broadcast_shapes(starts.shape, stops.shape))))
        resolve(_element(key, k), (length,))
        raise ConfigError(f"{key!r} names no intervals within 0:{length}")
    return starts, stops


def _bounds(value: Any, default: int, length: int) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        return np.asarray(bound_of(value, default, length))
    found = value.astype(np.int64, copy=False)
    return np.where(found < 0, found + length, found)


def _element(key: Any, k: int) -> Any:
    """Return the index of one subtask."""
    if isinstance(key, slice):
        return slice(_element(key.start, k), _element(key.stop, k), key.step)
    return int(key[k]) if isinstance(key, np.ndarray) else key
