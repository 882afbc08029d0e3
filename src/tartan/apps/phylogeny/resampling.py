"""Draw the proteins of a proteome with replacement."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib

import numpy as np

from tartan.errors import ItemError

_GZIP = b"\x1f\x8b"


def resampled_proteome(key: str, data: bytes, seed: int, max_bytes: int) -> bytes:
    """Return a FASTA file of as many records as another one has, drawn from them with replacement.

    Parameters
    ----------
    key : str
        Of the item; the records that are drawn depend on it and on ``seed``.
    data : bytes
        The file, plain or gzip.
    seed : int
    max_bytes : int
        Most bytes after decompression.

    Raises
    ------
    ItemError
        If the file is damaged or too large, or has fewer than two records.
    """
    text = _plain(key, data, max_bytes)
    records = [b">" + record.rstrip() for record in text.strip().removeprefix(b">").split(b"\n>")]
    if len(records) < 2:
        raise ItemError(f"{key}: a proteome of one protein cannot be resampled", context={"key": key})
    digest = hashlib.sha256(f"{seed} {key}".encode(errors="surrogateescape")).digest()
    random = np.random.default_rng(np.frombuffer(digest, np.uint32))
    return b"\n".join(records[choice] for choice in random.integers(0, len(records), len(records)))


def _plain(key: str, data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ItemError(f"{key}: {error}", context={"key": key}) from error
    if len(text) > max_bytes:
        raise ItemError(f"{key}: more than max_bytes={max_bytes:,} after decompression", context={"key": key})
    return text
