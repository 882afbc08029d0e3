"""Open Zarr input written elsewhere, and refuse it before a byte is decoded unless decoding it is harmless.

The metadata of an array names the codecs that decode its chunks, and some of them run what they decode (``pickle``).
Only codecs and kinds of data on the lists here are read.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.compat import ensure_contiguous_ndarray
from numcodecs.zstd import Zstd

from tartan.base.format import format_bytes, reason_of
from tartan.base.machine import memory
from tartan.base.urls import is_url, refuse_chained
from tartan.errors import ConfigError

KINDS = "biufcmMSUV"  # of fixed size: no Python object comes out of a chunk
# Decoders that turn bytes into bytes or numbers, and do nothing else.
CODECS = {
    *("adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset"),
    *("fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits", "pcodec", "quantize", "sharding_indexed"),
    *("shuffle", "transpose", "zlib", "zfpy", "zstd"),
}


def open_zarr(path: str | Path) -> Any:
    """Open a Zarr array or group for reading, and check every array that is opened from it.

    Raises
    ------
    ConfigError
        If it cannot be opened, or an array holds no numbers or names a codec that is not on the list.
    """
    import zarr

    path = str(path)
    if is_url(path):
        refuse_chained(path)
    try:
        opened = zarr.open(path if is_url(path) else _local(path), mode="r")
    except Exception as error:  # the errors of Zarr have no common class
        raise ConfigError(f"Zarr {path!r} cannot be opened: {error}", context={"input": path}) from error
    if isinstance(opened, zarr.Array):
        refuse_unsafe(opened, path)
    return opened


def _local(path: str) -> Any:
    from tartan.base.zarr_store import RegularStore

    return RegularStore(path, read_only=True)


def refuse_unsafe(array: Any, label: str) -> None:
    """Refuse an opened Zarr array that needs a decoder that is not on the list, and guard those that it needs.

    Raises
    ------
    ConfigError
        Naming the kind of data, the codec or the chunks, and the way out.
    """
    if array.dtype.kind not in KINDS:
        raise ConfigError(
            f"Zarr {label!r} holds {array.dtype}, which is not read; write it with a dtype of numbers",
            context={"input": label},
        )
    unknown = sorted(set(_codec_names(array.metadata.to_dict())) - CODECS)
    if unknown:
        raise ConfigError(
            f"Zarr {label!r} is encoded by {', '.join(unknown)}, which is not read, because decoding it may run code; "
            "write it again with blosc, zstd, gzip or no compression",
            code="unsafe-codec",
            context={"input": label},
        )
    guard(array, label)


def read_zarr(array: Any, part: slice | tuple[slice, ...], label: str) -> np.ndarray:
    """Return a part of an opened Zarr array.

    Raises
    ------
    ConfigError
        If a chunk is damaged; it is named.
    """
    return read_chunks(array, part, label)


def _codec_names(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all codecs in the metadata of an array, of either format, those within shards too."""
    entries: Iterable[Any] = [
        *(metadata.get("filters") or ()),
        *(metadata.get("codecs") or ()),
        *([metadata["compressor"]] if metadata.get("compressor") else ()),
    ]
    for entry in entries:
        config = entry if isinstance(entry, Mapping) else entry.get_config()
        yield str(config.get("id") or config.get("name")).removeprefix("numcodecs.")
        inner = config.get("configuration") or {}
        yield from _codec_names({"codecs": [*inner.get("codecs", ()), *inner.get("index_codecs", ())]})


# Read chunks of Zarr arrays that came from elsewhere: what is damaged is named, and no decoder is misled.
#
# The header of a chunk says how long it is, packed and unpacked. Blosc believes it and reads beyond the end of a file
# that was cut off; Blosc and zstd make room for whatever it says. Both are compared with what is there and what an
# array needs.

# By judgement: codecs before a compressor add some bytes a chunk. A bound against strangers' files.
_SLACK_BYTES = 1 << 20  # checksums and headers of codecs that come before
# By format of Blosc.
_BLOSC_HEADER_BYTES = 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CODECS_INSIDE = ("_blosc_codec", "_zstd_codec", "_codec")  # where codecs of Zarr keep those of numcodecs


class GuardedBlosc(Blosc):  # type: ignore[misc]
    """Blosc that believes no header."""

    _most_bytes = 1 << 62

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return what a chunk holds; raise ValueError where its header does not fit."""
        data = ensure_contiguous_ndarray(buf).view(np.uint8)
        if len(data) < _BLOSC_HEADER_BYTES:
            raise ValueError(f"it has {len(data)} bytes, less than a header")
        plain, _, packed = struct.unpack("<III", data[4:_BLOSC_HEADER_BYTES].tobytes())
        if packed > len(data):
            raise ValueError(f"it has {len(data):,} bytes of {packed:,}")
        _refuse_large(plain, self._most_bytes)
        return super().decode(buf, out)


class GuardedZstd(Zstd):  # type: ignore[misc]
    """Zstd that makes room for no more than an array needs."""

    _most_bytes = 1 << 62

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return what a chunk holds; raise ValueError where its header does not fit."""
        _refuse_large(_zstd_length(ensure_contiguous_ndarray(buf).view(np.uint8)[:18].tobytes()), self._most_bytes)
        return super().decode(buf, out)


def _zstd_length(header: bytes) -> int:
    """Return the length that the header of a frame says; 0 where it says none."""
    if len(header) < 18 or not header.startswith(_ZSTD_MAGIC):
        return 0
    flags = header[4]
    single = flags >> 5 & 1
    size = (single, 2, 4, 8)[flags >> 6]
    start = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    return int.from_bytes(header[start : start + size], "little") + (256 if size == 2 else 0)


def _refuse_large(n_bytes: int, most_bytes: int) -> None:
    if n_bytes > most_bytes:
        raise ValueError(f"its header says {format_bytes(n_bytes)}, where a chunk takes {format_bytes(most_bytes)}")


def guard(array: Any, label: str) -> None:
    """Make an opened Zarr array safe to read; its codecs were looked at before.

    Raises
    ------
    ConfigError
        If its chunks have no length, or more than all of the memory.
    """
    sides = _sides(array)
    n_bytes = math.prod(sides) * array.dtype.itemsize
    if array.size and not n_bytes:
        raise ConfigError(f"Zarr {label!r} has chunks of shape {sides}, which hold nothing; write it again")
    if n_bytes > memory().total_bytes:
        raise ConfigError(
            f"Zarr {label!r} has chunks of shape {sides}, {format_bytes(n_bytes)} each, and this machine has "
            f"{format_bytes(memory().total_bytes)} of memory; write it again in smaller chunks",
            context={"input": label},
        )
    for codec in _decoders(array.metadata):
        guarded = {Blosc: GuardedBlosc, Zstd: GuardedZstd}.get(type(codec))
        if guarded is not None:
            codec.__class__ = guarded
            codec._most_bytes = n_bytes + _SLACK_BYTES


def _sides(array: Any) -> tuple[int, ...]:
    return tuple(int(side) for side in (getattr(array, "shards", None) or array.chunks))


def _decoders(metadata: Any) -> Iterator[Any]:
    """Yield the codecs of numcodecs that an array goes through, of either format, those within shards too."""
    yield getattr(metadata, "compressor", None)
    yield from getattr(metadata, "filters", None) or ()
    yield from _inner(getattr(metadata, "codecs", ()))


def _inner(codecs: Iterable[Any]) -> Iterator[Any]:
    for codec in codecs:
        yield from (getattr(codec, name, None) for name in _CODECS_INSIDE)
        yield from _inner(getattr(codec, "codecs", ()))


def read_chunks(array: Any, part: Any, label: str) -> np.ndarray:
    """Return a part of a Zarr array.

    Parameters
    ----------
    part : slice or tuple of slices

    Raises
    ------
    ConfigError
        If a chunk cannot be read or decoded; it is named.
    """
    try:
        return np.asarray(array[part])
    except MemoryError:
        raise
    except Exception as error:  # what decoders raise has no common class
        slices = part if isinstance(part, tuple) else (part,)
        name, cause = _first_damaged(array, slices) or ("a chunk", error)
        raise ConfigError(
            f"{label}: {name} is damaged or cannot be read ({reason_of(cause)}); restore it from a copy, or write the "
            "array again",
            code="damaged-chunk",
            context={"input": label, "chunk": name},
        ) from error


def _first_damaged(array: Any, slices: Sequence[slice]) -> tuple[str, Exception] | None:
    """Return the name of the first chunk in a part of an array that cannot be read, and why."""
    slices = [*slices, *[slice(None)] * (array.ndim - len(slices))]
    ranges = [part.indices(length)[:2] for part, length in zip(slices, array.shape, strict=True)]
    sides = _sides(array)
    numbers = (range(start // side, -(-stop // side)) for (start, stop), side in zip(ranges, sides, strict=True))
    for place in itertools.product(*numbers):
        try:
            array[tuple(slice(at * side, (at + 1) * side) for at, side in zip(place, sides, strict=True))]
        except Exception as error:
            return f"chunk {array.metadata.encode_chunk_key(place)}", error
    return None
