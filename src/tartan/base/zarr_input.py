"""Open Zarr input written elsewhere, and refuse it before a byte is decoded unless decoding it is harmless.

The metadata of an array names the codecs that decode its chunks, and some of them run what they decode (``pickle``).
Only codecs and kinds of data on the lists here are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
    """Refuse an opened Zarr array that needs a decoder that is not on the list.

    Raises
    ------
    ConfigError
        Naming the kind of data or the codec, and the way out.
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
