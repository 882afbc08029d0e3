"""Unpacking what other programs compressed, within limits."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import pyarrow as pa
import pytest

from tartan.base.compressed import compression_of, decompress


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd,
}  # fmt: skip


@pytest.mark.parametrize("kind", PACK)
def test_what_is_packed_comes_back(kind: str) -> None:
    text = bytes(range(256)) * 3000
    packed = PACK[kind](text)
    assert compression_of(packed) == kind
    assert decompress(packed, len(text), 10**6) == text
    assert decompress(packed * 2, 2 * len(text), 10**6) == text * 2
    for length in (5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(ValueError, match=f"the {kind} data are damaged or end early"):
            decompress(packed[:length], 10**9, 10**6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACK)
def test_limits_are_kept(kind: str) -> None:
    packed = PACK[kind](bytes(32 << 20))
    with pytest.raises(ValueError, match="more than the limit of 1048576 bytes; raise max_bytes"):
        decompress(packed, 1 << 20, 10**9)
    with pytest.raises(ValueError, match="above the ratio of 200 that is allowed; raise max_ratio"):
        decompress(packed, 1 << 30, 200)


def test_plain_bytes_stay() -> None:
    assert compression_of(b"ACGT") is None
    assert decompress(b"ACGT", 1, 1) == b"ACGT"


@pytest.mark.parametrize("kind", ["bzip2", "xz", "gzip"])
def test_damage_in_a_later_stream_is_found(kind: str) -> None:
    text = bytes(range(256)) * 3000
    first, second = PACK[kind](text), bytearray(PACK[kind](text[::-1]))
    assert decompress(first + bytes(second), 10**9, 10**6) == text + text[::-1]
    # Byte 5 of gzip is a part of a time, and may be any.
    for place in (0, *([5] if kind != "gzip" else []), len(second) // 2, len(second) - 3):
        damaged = bytearray(second)
        damaged[place] ^= 0x55
        with pytest.raises(ValueError, match=f"the {kind} data are damaged or end early"):
            decompress(first + bytes(damaged), 10**9, 10**6)


def test_padding_of_xz_is_skipped() -> None:
    packed = lzma.compress(b"text")
    assert decompress(packed + bytes(512) + packed + bytes(4), 100, 100) == b"texttext"
