"""Compute short numbers and texts that distinguish data of any size: every byte counts, and hardly a copy is made.

All of this runs at gigabytes a second, and none of it is a protection against forgery.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

# By judgement: from some MiB on a block costs no call; held in memory for each file that is checked. `tartan bench
# reads` measures loads with checksums.
BLOCK_BYTES = 16 << 20
NOT_KNOWN, NOT_TELLING = 0, 1
"""In place of the checksum of an item: it has none yet; it can have none, as nothing describes it wholly."""
# By arithmetic: 16 KiB, half of a first cache of 32 KiB.
_WORDS = 4096  # 32-bit words that are multiplied at a time: their factors stay in the first cache
_BAND_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def checksum(head: str, blocks: Iterable[NDArray[Any]]) -> str:
    """Return a hash of a text and of the CRC-32 of each block.

    CRC-32 runs at gigabytes a second, so hashing a matrix of 20 GB takes as long as reading it. A changed block goes
    unnoticed once in 2**32 times; this is no protection against forgery.
    """
    digest = hashlib.blake2b(head.encode(), digest_size=16)
    for block in blocks:
        flat = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        digest.update(zlib.crc32(flat.data).to_bytes(4, "little"))
    return digest.hexdigest()


def checksum_of_array(array: NDArray[Any], block_bytes: int = BLOCK_BYTES) -> str:
    """Return the checksum of one array, its shape and its type, read in blocks."""
    return checksum(f"{array.shape} {array.dtype.str}", _blocks(array, block_bytes))


def _blocks(array: NDArray[Any], block_bytes: int) -> Iterator[NDArray[Any]]:
    if array.ndim == 0 or array.nbytes <= block_bytes:
        yield array
        return
    height = max(1, block_bytes * len(array) // array.nbytes)
    for start in range(0, len(array), height):
        yield array[start : start + height]


def crc32c(data: NDArray[Any] | bytes) -> int:
    """Return the CRC-32C of bytes or of a contiguous array."""
    import google_crc32c

    return int(google_crc32c.value(data))


def length_and_crc32c(file: BinaryIO) -> tuple[int, int]:
    """Return the bytes of a file from where it is, and their CRC-32C."""
    import google_crc32c

    n_bytes = crc = 0
    while block := file.read(BLOCK_BYTES):
        n_bytes, crc = n_bytes + len(block), google_crc32c.extend(crc, block)
    return n_bytes, int(crc)


def checksum_of_bytes(data: bytes | NDArray[np.uint8]) -> int:
    """Return the checksum of bytes: their length and their CRC-32C in 64 bits."""
    return max((len(data) & 0xFFFFFFFF) << 32 | crc32c(data), NOT_TELLING + 1)


def checksums_of_rows(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a checksum of each row of an array without Python objects.

    Row i is the slice ``rows[i]``, and its sum is the same in any block of rows. Rows are taken as words of 32 bits
    that are multiplied by random 64-bit factors and added modulo 2**64: two unlike rows have one sum about once in
    2**32 times, whatever they differ by [1]_. It runs at 2 to 5 GB/s.

    References
    ----------
    .. [1] D. Lemire and O. Kaser, Strongly universal string hashing is fast, Computer Journal 57(11), 2014.
    """
    n_rows = len(rows)
    flat = (
        np.ascontiguousarray(rows).reshape(n_rows, -1).view(np.uint8) if rows.size else np.empty((n_rows, 0), np.uint8)
    )
    if lacking := -flat.shape[1] % 4:
        flat = np.pad(flat, ((0, 0), (0, lacking)))
    words, factors = flat.view(np.uint32), _factors()
    sums = np.full(n_rows, flat.shape[1], np.uint64)
    for start in range(0, words.shape[1], _WORDS):
        band = words[:, start : start + _WORDS]
        sums = sums * _BAND_FACTOR + np.einsum(
            "ij,j->i", band, factors[: band.shape[1]], dtype=np.uint64, casting="safe"
        )
    return np.maximum(sums, np.uint64(NOT_TELLING + 1))


def checksums_of_entries(
    positions: NDArray[np.uint32], values: NDArray[Any], there: NDArray[np.bool_], width: int
) -> NDArray[np.uint64]:
    """Return the checksums that rows have with their zeros, from what is not 0.

    Zeros add nothing to a sum, so a row need not be written out. See ``checksums_of_rows``.

    Parameters
    ----------
    positions : uint32 array (m, length)
    values : array (m, length)
        In the type of the rows.
    there : bool array (m, length)
        Which of these the rows have.
    width : int
        Values of a row, with those that are 0.
    """
    size = values.dtype.itemsize
    n_bytes = -(-width * size // 4) * 4
    n_bands = -(-n_bytes // (4 * _WORDS))
    powers = np.multiply.accumulate(np.r_[np.uint64(1), np.full(n_bands, _BAND_FACTOR)])
    start = np.where(there, positions, 0).astype(np.int64) * size
    kept = np.ascontiguousarray(np.where(there, values, values.dtype.type(0)))
    parts = kept.view(f"<u{min(size, 4)}").reshape(*kept.shape, -1).astype(np.uint64) << np.uint64(8) * (
        start[:, :, None] % 4
    ).astype(np.uint64)
    word = start[:, :, None] // 4 + np.arange(parts.shape[2])
    factors = _factors()[word % _WORDS] * powers[n_bands - 1 - word // _WORDS]
    sums: NDArray[np.uint64] = np.full(len(positions), n_bytes, np.uint64) * powers[n_bands]
    sums += (parts * factors).sum(axis=(1, 2), dtype=np.uint64)
    return np.maximum(sums, np.uint64(NOT_TELLING + 1))


@functools.cache
def _factors() -> NDArray[np.uint64]:
    """Return the factors of words; they are part of the format of run folders, and never change."""
    text = b"".join(hashlib.sha256(b"tartan rows %d" % at).digest() for at in range(_WORDS // 4))
    return np.frombuffer(text, "<u8").astype(np.uint64)


def checksum_of_object(value: Any) -> int:
    """Return the checksum of a Python object: of its pickle, and of arrays and sets in it by what they hold.

    Equal texts count alike whether or not they are one object, and sets in any order. NOT_TELLING where an object
    cannot be pickled.
    """
    if isinstance(value, bytes):
        return checksum_of_bytes(value)
    try:
        return checksum_of_bytes(_pickle(value))
    except Exception:  # whatever the methods of a user's class raise
        return NOT_TELLING


def _pickle(value: Any) -> bytes:
    try:
        return _dump(value, fast=True)
    except (ValueError, RecursionError):  # it holds itself
        return _dump(value, fast=False)


def _dump(value: Any, *, fast: bool) -> bytes:
    buffer = io.BytesIO()
    pickler = _ByValue(buffer, protocol=5)
    pickler.fast = fast  # without references to what was met before: these tell objects apart that are equal
    pickler.dump(value)
    return buffer.getvalue()


class _ByValue(pickle.Pickler):
    """Describes arrays and sets by what they hold: their pickles depend on versions, and on the order of hashes."""

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for an object; None for one that is pickled as ever."""
        if type(value) in (set, frozenset):
            return (type(value).__name__, sorted(checksum_of_object(one) for one in value))
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8) if value.size else np.empty(0, np.uint8)
            return ("array", value.dtype.str, value.shape, crc32c(flat))
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return ("number", value.dtype.str, value.tobytes())
        return None
