"""Describe a proteome in a few facts for people who look at it; nothing here takes part in a comparison."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tartan.errors import ItemError

_MOST_BYTES: Final = 256 * 2**20
_PIECE: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"


def described(key: str, data: bytes) -> dict[str, Any]:
    """Return facts of a FASTA file, plain or gzip.

    Raises
    ------
    ItemError
        If it is no FASTA, damaged, or larger than 256 MiB when decompressed.
    """
    text = b"".join(_plain(key, data))
    if not text.lstrip().startswith(b">"):
        raise ItemError(f"{key}: no FASTA file", context={"key": key})
    records = text.lstrip()[1:].split(b"\n>")
    lengths = np.array([_n_letters(record) for record in records])
    about: dict[str, Any] = {}
    organism = re.search(rb"\[([^\[\]\r\n]{1,120})\]\s*$", records[0].partition(b"\n")[0])
    if organism:
        about["organism"] = organism.group(1).decode("utf-8", errors="replace")
    about |= {"proteins": len(records), "amino acids": int(lengths.sum())}
    return about | {"median length": float(np.median(lengths)), "longest": int(lengths.max())}


def _n_letters(record: bytes) -> int:
    letters = record.partition(b"\n")[2]
    return len(letters) - sum(letters.count(blank) for blank in (b"\n", b"\r", b" ", b"\t", b"*"))


def _plain(key: str, data: bytes) -> Iterator[bytes]:
    """Yield the text in pieces, and refuse one that grows too large."""
    if not data.startswith(_GZIP):
        yield data
        return
    total = 0
    while data.startswith(_GZIP):  # members follow each other
        reader = zlib.decompressobj(wbits=31)
        while not reader.eof:
            try:
                piece = reader.decompress(data, _PIECE)
            except zlib.error as error:
                raise ItemError(f"{key}: damaged gzip: {error}", context={"key": key}) from error
            data = reader.unconsumed_tail
            total += len(piece)
            if total > _MOST_BYTES:
                raise ItemError(f"{key}: more than {_MOST_BYTES:,} bytes when decompressed", context={"key": key})
            if not piece and not data and not reader.eof:
                raise ItemError(f"{key}: truncated gzip", context={"key": key})
            yield piece
        data = reader.unused_data
