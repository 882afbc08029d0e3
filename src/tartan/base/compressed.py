"""Files that other programs compressed, unpacked within limits: gzip, bzip2, xz, zstd."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from tartan.base.format import reason_of

# By format: after BZh and a level, bzip2 begins a block or ends; a text may begin with BZh, too.
_BZIP2 = tuple(b"BZh%d" % level + then for level in range(1, 10) for then in (b"1AY&SY", b"\x17rE8P\x90"))
_MARKS = {"gzip": (b"\x1f\x8b",), "bzip2": _BZIP2, "xz": (b"\xfd7zXZ",), "zstd": (b"\x28\xb5\x2f\xfd",)}
# By judgement: as STEP_BYTES of crates/tartan-kernels/src/inflate.
_STEP_BYTES = 1 << 18
# By judgement: memory that harms nobody, so small files may have any ratio; as in crates/tartan-kernels/src/inflate.
_RATIO_FREE_BYTES = 16 << 20


def compression_of(data: bytes) -> str | None:
    """Return the program that compressed a file, by its first bytes; None where no known one did."""
    return next((name for name, marks in _MARKS.items() if data.startswith(marks) or _is_cut(data, marks)), None)


def _is_cut(data: bytes, marks: tuple[bytes, ...]) -> bool:
    """Whether a file ends within a mark, after more than a text may hold: BZh and a level."""
    return len(data) > len("BZh") and any(mark.startswith(data) for mark in marks)


def decompress(data: bytes, max_bytes: int, max_ratio: int) -> bytes:
    """Return what a file holds; one that no known program compressed is returned as it is.

    Parameters
    ----------
    data : bytes
    max_bytes : int
        Most bytes after decompression.
    max_ratio : int
        Most bytes after decompression for each byte before it, above 16 MiB.

    Raises
    ------
    ValueError
        If the file is damaged, ends early, or holds more than is allowed.
    """
    kind = compression_of(data)
    if kind is None:
        return data
    parts, n_bytes = [], 0
    try:
        for part in _read_parts(kind, data):
            parts.append(part)
            n_bytes += len(part)
            if n_bytes > max_bytes:
                raise ValueError(f"it holds more than the limit of {max_bytes} bytes; raise max_bytes if it is genuine")
            if n_bytes > _RATIO_FREE_BYTES and n_bytes / len(data) > max_ratio:
                raise ValueError(
                    f"{len(data)} bytes of {kind} give more than {n_bytes}, above the ratio of {max_ratio} that is "
                    "allowed; raise max_ratio if the file is genuine"
                )
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"the {kind} data are damaged or end early ({reason_of(error)}); copy or download the file again"
        ) from error
    return b"".join(parts)


def _read_parts(kind: str, data: bytes) -> Iterator[bytes]:
    if kind == "bzip2":
        return _read_streams(data, bz2.BZ2Decompressor)
    if kind == "xz":
        return _read_streams(data, lzma.LZMADecompressor)
    return _read_whole(_open(kind, data))


def _read_whole(stream: Any) -> Iterator[bytes]:
    with stream:
        while part := stream.read(_STEP_BYTES):
            yield part


def _read_streams(data: bytes, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Yield what all streams of a file hold, one behind the other.

    The file objects of the library take a damaged later stream for garbage behind the file, and end without a word.
    Padding of zeros may stand behind each stream, as the format of xz has it.
    """
    rest = data
    while rest:
        stream = decompressor()
        part = stream.decompress(rest, _STEP_BYTES)
        while not stream.eof:
            yield part
            if stream.needs_input:
                raise EOFError("it ends within a stream")
            part = stream.decompress(b"", _STEP_BYTES)
        yield part
        rest = stream.unused_data.lstrip(b"\0")


def _open(kind: str, data: bytes) -> Any:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=io.BytesIO(data))
    import pyarrow as pa

    return pa.CompressedInputStream(pa.BufferReader(data), "zstd")
