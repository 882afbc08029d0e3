"""Data to sort, and the check that it was sorted: files far larger than memory, written and read in blocks.

Each generator returns what a correct sort must keep: count, sum and exclusive or of the values (of records: of a hash
of each). ``check`` reads a file once and returns the same numbers and whether it is in order. Both need some ten
megabytes, whatever the file; they pass the page cache by, so that whoever is measured next finds it as it was.

Integers: ``random`` (all 64 bits), ``narrow`` (32-bit values in 64 bits), ``equal``, ``two``, ``sorted``, ``reversed``,
``zipf`` (few values make most of it), ``extremes`` (the least and the greatest values of the type, zero, neighbours).
Records are in the manner of gensort: 100 bytes, of which the first 10 are the key, then the number of the record.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY_BYTES", "KINDS", "RECORD_BYTES", "Facts", "check", "write_integers", "write_records"]

RECORD_BYTES, KEY_BYTES = 100, 10
BLOCK_VALUES = 1 << 20
BLOCK_RECORDS = 1 << 16
_PAGE = 4096
_ZIPF_VALUES = 1 << 40
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Facts:
    """What a sort must keep, and whether the values are in order.

    Attributes
    ----------
    count : int
        Values or records.
    sum, xor : int
        Over all of them, modulo 2^64.
    ordered : bool
        Whether no value is less than the one before it.
    duplicates : int
        Values (keys of records) that equal the one before them; counted by ``check`` only.
    """

    count: int
    sum: int
    xor: int
    ordered: bool = False
    duplicates: int = 0

    def same_contents(self, other: Facts) -> bool:
        """Whether count, sum and exclusive or agree."""
        return (self.count, self.sum, self.xor) == (other.count, other.sum, other.xor)


class _Tally:
    """Adds up blocks."""

    def __init__(self) -> None:
        self.count, self.sum, self.xor = 0, 0, 0

    def add(self, values: NDArray[np.uint64]) -> None:
        self.count += len(values)
        self.sum = (self.sum + int(values.sum(dtype=np.uint64))) % 2**64
        self.xor ^= int(np.bitwise_xor.reduce(values, initial=np.uint64(0)))

    def facts(self, **more: Any) -> Facts:
        return Facts(self.count, self.sum, self.xor, **more)


def write_integers(path: Path, kind: str, n: int, seed: int = 1) -> Facts:
    """Write n values of 64 bits, signed, little-endian, raw.

    Parameters
    ----------
    path : Path
    kind : str
        One of ``KINDS``.
    n : int
    seed : int
        The same seed, the same file.
    """
    tally, make = _Tally(), KINDS[kind]
    generator = np.random.Generator(np.random.SFC64(seed))
    with _Writer(path, BLOCK_VALUES * 8) as writer:
        for first in range(0, n, BLOCK_VALUES):
            values = make(generator, first, min(BLOCK_VALUES, n - first), n)
            tally.add(values.view(np.uint64))
            writer.write(values.view(np.uint8))
    return tally.facts()


def _random(generator: np.random.Generator, first: int, count: int, n: int) -> Integers:
    raw: Any = generator.bit_generator
    return np.asarray(raw.random_raw(count)).view(np.int64)


def _narrow(generator: np.random.Generator, first: int, count: int, n: int) -> Integers:
    return (_random(generator, first, count, n).view(np.uint64) >> np.uint64(32)).view(np.int64)


def _zipf(generator: np.random.Generator, first: int, count: int, n: int) -> Integers:
    # The logarithm of a rank is spread evenly when its frequency falls as 1 / rank; the product scatters the ranks.
    ranks = np.exp(generator.random(count) * math.log(_ZIPF_VALUES)).astype(np.uint64)
    return (ranks * _ODD).view(np.int64)


def _extremes(generator: np.random.Generator, first: int, count: int, n: int) -> Integers:
    ends = np.iinfo(np.int64)
    choice = np.array([ends.min, ends.min + 1, -1, 0, 1, ends.max - 1, ends.max], np.int64)
    return choice[generator.integers(0, len(choice), count, dtype=np.int8)]


def _ramp(first: int, count: int, n: int) -> Integers:
    """Return part of n values from one end of the type to the other."""
    steps = np.arange(first, first + count, dtype=np.uint64) * np.uint64((2**64 - 1) // max(n, 1))
    return (steps ^ np.uint64(2**63)).view(np.int64)


Make = Callable[[np.random.Generator, int, int, int], Integers]
KINDS: dict[str, Make] = {
    "random": _random,
    "narrow": _narrow,
    "equal": lambda generator, first, count, n: np.full(count, -42, np.int64),
    "two": lambda generator, first, count, n: generator.integers(0, 2, count, dtype=np.int8) * np.int64(2**50) - 7,
    "sorted": lambda generator, first, count, n: _ramp(first, count, n),
    "reversed": lambda generator, first, count, n: ~_ramp(first, count, n),
    "zipf": _zipf,
    "extremes": _extremes,
}


def write_records(path: Path, n: int, seed: int = 1) -> Facts:
    """Write n records of ``RECORD_BYTES`` bytes.

    A record: a random key of 10 bytes, 00 11, the number of the record as 32 hexadecimal digits, 88 99 AA BB, 48
    letters that depend on the key, CC DD EE FF.
    """
    tally = _Tally()
    generator = np.random.Generator(np.random.SFC64(seed))
    with _Writer(path, BLOCK_RECORDS * RECORD_BYTES) as writer:
        for first in range(0, n, BLOCK_RECORDS):
            records = _records(generator, first, min(BLOCK_RECORDS, n - first))
            tally.add(_hashes(records))
            writer.write(records.reshape(-1))
    return tally.facts()


def _records(generator: np.random.Generator, first: int, count: int) -> Bytes:
    records = np.empty((count, RECORD_BYTES), np.uint8)
    random = _random(generator, 0, 2 * count, 0).view(np.uint8).reshape(count, 16)
    records[:, :10] = random[:, :10]
    records[:, 10:12] = (0x00, 0x11)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    records[:, 12:44] = ord("0")
    for place in range((first + count).bit_length() // 4 + 1):
        records[:, 43 - place] = _HEX[(numbers >> np.uint64(4 * place)) & np.uint64(15)]
    records[:, 44:48] = (0x88, 0x99, 0xAA, 0xBB)
    records[:, 48:96] = np.repeat(random[:, :12] % 26 + 65, 4, axis=1)
    records[:, 96:] = (0xCC, 0xDD, 0xEE, 0xFF)
    return records


def _hashes(records: Bytes) -> NDArray[np.uint64]:
    """Return a number of 64 bits for each record that depends on all of its bytes and their places."""
    words = records.reshape(-1).view([("most", "<u8", 12), ("rest", "<u4")])
    places = (2 * np.arange(13, dtype=np.uint64) + np.uint64(1)) * _ODD
    hashed: NDArray[np.uint64] = (words["rest"] + places[12]) * places[12]
    for place in range(12):
        word = words["most"][:, place] * places[place]
        hashed = (hashed ^ (word ^ (word >> np.uint64(32)))) * _ODD
    return hashed ^ (hashed >> np.uint64(32))


def check(path: Path, *, records: bool = False, offset: int = 0) -> Facts:
    """Read a file once; return what it holds and whether it is in order.

    Parameters
    ----------
    path : Path
    records : bool
        Whether it holds records of 100 bytes with a key of 10, else signed integers of 64 bits.
    offset : int
        Where the data begin: 4096 in .npy files that Tartan writes.
    """
    tally, ordered, duplicates = _Tally(), True, 0
    last: NDArray[Any] | None = None
    keys: NDArray[Any]
    for block in _read(path, BLOCK_RECORDS * RECORD_BYTES if records else BLOCK_VALUES * 8, offset):
        if records:
            rows = block.reshape(-1, RECORD_BYTES)
            tally.add(_hashes(rows))
            keys = _key_numbers(rows)
        else:
            keys = block.view(np.int64)
            tally.add(block.view(np.uint64))
        if last is not None:
            keys = np.concatenate([last, keys])
        falls, equal = _compare(keys)
        ordered, duplicates, last = ordered and not falls, duplicates + equal, keys[-1:].copy()
    return tally.facts(ordered=ordered, duplicates=duplicates)


def _key_numbers(rows: Bytes) -> NDArray[Any]:
    """Return keys as pairs of numbers: eight bytes and two."""
    keys = np.empty(len(rows), [("high", np.uint64), ("low", np.uint16)])
    keys["high"] = np.ascontiguousarray(rows[:, :8]).view(">u8")[:, 0]
    keys["low"] = np.ascontiguousarray(rows[:, 8:10]).view(">u2")[:, 0]
    return keys


def _compare(keys: NDArray[Any]) -> tuple[int, int]:
    """Return how many keys are less than the one before them, and how many equal it."""
    if keys.dtype.names is None:
        return int((keys[1:] < keys[:-1]).sum()), int((keys[1:] == keys[:-1]).sum())
    high, low = keys["high"], keys["low"]
    same = high[1:] == high[:-1]
    falls = (high[1:] < high[:-1]) | (same & (low[1:] < low[:-1]))
    return int(falls.sum()), int((same & (low[1:] == low[:-1])).sum())


class _Writer:
    """Writes a file past the page cache, from one aligned buffer; plainly where the file system refuses that."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = _open_direct(path, self._flags)
        self._buffer = mmap.mmap(-1, -(-block_bytes // _PAGE) * _PAGE)
        self._pending = 0
        self._written = 0

    def write(self, data: Bytes) -> None:
        """Take a block, no larger than was said."""
        rest = memoryview(data)
        while rest:
            taken = min(len(rest), len(self._buffer) - self._pending)
            self._buffer[self._pending : self._pending + taken] = rest[:taken]
            self._pending += taken
            rest = rest[taken:]
            if self._pending == len(self._buffer):
                self._flush(self._pending)

    def _flush(self, n_bytes: int) -> None:
        view, done = memoryview(self._buffer), 0
        while done < n_bytes:
            done += os.pwrite(self._descriptor, view[done:n_bytes], self._written + done)
        view.release()
        self._written += n_bytes
        self._pending = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._pending:
                _make_buffered(self._descriptor)
                self._flush(self._pending)
            os.fsync(self._descriptor)
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(self._descriptor)
            self._buffer.close()


def _open_direct(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_DIRECT, 0o666)
    except OSError:
        return os.open(path, flags, 0o666)


def _make_buffered(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)


def _read(path: Path, block_bytes: int, offset: int) -> Iterator[Bytes]:
    """Yield a file in blocks; each is valid until the next one."""
    size = path.stat().st_size
    descriptor = _open_direct(path, os.O_RDONLY | os.O_CLOEXEC) if offset % _PAGE == 0 else os.open(path, os.O_RDONLY)
    buffer = mmap.mmap(-1, -(-block_bytes // _PAGE) * _PAGE)
    try:
        for at in range(offset, size, block_bytes):
            wanted = min(block_bytes, size - at)
            view = memoryview(buffer)
            done = 0
            while done < wanted:
                taken = os.preadv(descriptor, [view[done:]], at + done)
                if not taken:
                    raise OSError(f"{path} ends before byte {at + wanted}")
                done += taken
                if done < wanted and done % _PAGE:
                    _make_buffered(descriptor)
            yield np.frombuffer(buffer, np.uint8, wanted)
            view.release()
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
