"""How items of unequal size lie in shared memory: pickle protocol 5 with the buffers of arrays beside the pickle.

Items may be objects of classes that a script defines, so it is cloudpickle that writes the pickle. Decoded arrays are
read-only views of the memory; nothing is copied. Layout: a header of little-endian int64 (number of parts, then the
byte length of each part), the pickle, the buffers; each part starts at a multiple of 64.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle
import numpy as np

# By arithmetic: a cache line, and the widest vector of a processor.
_ALIGNMENT = 64


def encode_parts(items: Any) -> tuple[list[Any], int]:
    """Return the parts that ``encode`` writes, and how many bytes they take together."""
    buffers: list[pickle.PickleBuffer] = []
    head = cloudpickle.dumps(items, protocol=5, buffer_callback=buffers.append)
    parts = [head, *(buffer.raw() for buffer in buffers)]
    total = _align(8 * (len(parts) + 1)) + sum(_align(len(part)) for part in parts)
    return parts, total


def encode(parts: list[Any], memory: np.ndarray) -> None:
    """Write parts into a uint8 array that is large enough."""
    lengths = [len(part) for part in parts]
    header = np.array([len(parts), *lengths], "<i8").view(np.uint8)
    memory[: len(header)] = header
    offset = _align(len(header))
    for part, length in zip(parts, lengths, strict=True):
        memory[offset : offset + length] = np.frombuffer(part, np.uint8)
        offset += _align(length)


def decode(memory: np.ndarray) -> Any:
    """Read what ``encode`` wrote; arrays in it are views of ``memory``."""
    count = int(memory[:8].view("<i8")[0])
    lengths = memory[8 : 8 * (count + 1)].view("<i8").tolist()
    offset = _align(8 * (count + 1))
    parts = []
    for length in lengths:
        part = memory[offset : offset + length]
        part.flags.writeable = False
        parts.append(part)
        offset += _align(length)
    return pickle.loads(parts[0].tobytes(), buffers=parts[1:])


def measure_encoded(memory: np.ndarray) -> int:
    """Return how many bytes of ``memory`` are what ``encode`` wrote."""
    count = int(memory[:8].view("<i8")[0])
    lengths = memory[8 : 8 * (count + 1)].view("<i8").tolist()
    return _align(8 * (count + 1)) + sum(_align(length) for length in lengths)


def object_bytes(memory: np.ndarray) -> int:
    """Return the length of the pickle in what ``encode`` wrote: about what its objects take, arrays apart."""
    return int(memory[8:16].view("<i8")[0])


def nbytes_of(item: Any) -> int:
    """Return about how much memory an item takes."""
    if isinstance(item, np.ndarray):
        return int(item.nbytes)
    if isinstance(item, tuple | list):
        return sum(nbytes_of(part) for part in item)
    if isinstance(item, dict):
        return sum(nbytes_of(part) for part in item.values())
    if isinstance(item, bytes | bytearray | str):
        return len(item) + 64
    try:
        return encode_parts(item)[1]
    except Exception:  # threads may hold what cannot be pickled
        return sys.getsizeof(item)


def _align(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT
