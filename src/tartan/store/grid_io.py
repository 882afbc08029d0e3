"""Read and write one n x n result grid on disk: a Zarr v3 array.

``zarr.open`` reads the array; this module writes it without zarr's event loop, through the same codecs: bytes
(little endian), zstd where it helps, crc32c. A chunk file exists exactly when the chunk was written, whatever it
holds (``write_empty_chunks``); chunks at the ragged edge are padded to full size with the fill value, so that
more items only change ``zarr.json``.

ledger.py knows the order of writing that makes a commit (README.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checksum import crc32c
from tartan.base.files import FileWriter, open_regular
from tartan.base.json_input import read_json
from tartan.errors import ConfigError, CorruptResultError, StoreError

# By format.
_CRC_BYTES = 4
# By judgement: a line or two of a message.
_MOST_SAID = 200
_CODECS = (("bytes", "crc32c"), ("bytes", "zstd", "crc32c"))
_READ = {
    "zarr_format": 3,
    "chunk_grid": "regular",
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "storage_transformers": [],
    "endian": "little",
}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,12}", re.ASCII)
# By judgement: Zstandard's fastest ordinary level; scores are noise in their low bits, so higher ones gain per cents at
# several times the time. No benchmark of levels.
_ZSTD_LEVEL = 1
# By judgement: less than a fifth saved does not pay for decompression at each read. No benchmark.
_PAYS = 0.8  # compressed over plain size, at most
# By judgement: measured, 256 KiB compress in 0.25 ms at level 1, which is nothing beside a chunk of megabytes, and long
# enough to tell.
_SAMPLE_BYTES = 1 << 18
# By judgement: codes of a run are a few patterns (all done, diagonal), each of which is decoded once. It was 4,096
# before half-empty chunks were to fit. No benchmark.
_MEMO_BYTES = 1 << 16  # constant chunks compress to far fewer bytes than this, half-empty ones on the diagonal to fewer
# By judgement: 64 rows of 2,048 codes are 128 KiB, within the second cache. No benchmark.
_COUNT_ROWS = 64  # that are counted at a time, in the cache
# By arithmetic: 64 of at most 64 KiB are 4 MiB.
_MEMO_ENTRIES = 64


def compress(data: np.ndarray) -> bytes:
    """Return the array's bytes as one zstd frame."""
    from numcodecs.zstd import Zstd

    return bytes(Zstd(level=_ZSTD_LEVEL).encode(data))


def decompress(data: np.ndarray, target: np.ndarray) -> None:
    """Decode one zstd frame into ``target``; raise RuntimeError or ValueError if it does not fit."""
    from numcodecs.zstd import Zstd

    Zstd().decode(data, out=target)


def count_codes(values: np.ndarray, n_codes: int) -> np.ndarray:
    """Count each of the codes 0 .. n_codes-1 in a block, some rows at a time."""
    counts = np.zeros(n_codes, np.int64)
    for start in range(0, len(values), _COUNT_ROWS):
        rows = values[start : start + _COUNT_ROWS]
        counts += [np.count_nonzero(rows == code) for code in range(n_codes)]
    return counts


def _digest(data: np.ndarray | None) -> str:
    return "0" if data is None else hashlib.blake2b(data.data, digest_size=8).hexdigest()


def is_one_value(block: np.ndarray) -> bool:
    """Whether a block is one value in memory, repeated by strides of 0: known without reading it."""
    return block.size > 0 and not any(block.strides)


def pays_to_compress(sample: np.ndarray) -> bool:
    """Whether zstd shrinks a sample (any shape, up to 256 KiB are looked at) by a fifth or more."""
    plain = np.ascontiguousarray(sample).reshape(-1).view(np.uint8)
    middle = max(0, (len(plain) - _SAMPLE_BYTES) // 2)
    plain = plain[middle : middle + _SAMPLE_BYTES]
    return len(plain) > 0 and len(compress(plain)) < _PAYS * len(plain)


class ChunkArray:
    """The chunks of one array; every method may be called from several threads.

    Parameters
    ----------
    path : Path
        Folder of the Zarr array, such as ``scores.zarr``.
    dtype : dtype
    chunk : int
        Side of a chunk, in items.
    compressed : bool
        Whether chunks go through zstd.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], chunk: int, *, compressed: bool) -> None:
        self.path = path
        self.dtype = np.dtype(dtype).newbyteorder("=")
        self.chunk = chunk
        self.compressed = compressed
        self.fill = fill_value(self.dtype)
        self._stored = self.dtype.newbyteorder("<")
        self._bytes = chunk * chunk * self.dtype.itemsize
        self._most_bytes = self._bytes + self._bytes // 100 + 4096  # zstd adds less to what it cannot shrink
        self._chunks = path / "c"
        self._scratch = threading.local()
        self._constants: dict[bytes, list[bytes]] = {}
        self._counts: dict[bytes, np.ndarray] = {}

    @classmethod
    def open(cls, path: Path, dtype: np.dtype[Any], chunk: int) -> ChunkArray:
        """Open an array by its ``zarr.json``.

        Parameters
        ----------
        dtype, chunk
            What the manifest says.

        Raises
        ------
        CorruptResultError
            If the file is absent, is not what this module writes, or says something else than the manifest.
        StoreError
            If it has a codec, a grid, an order of bytes or a way of naming chunks that this module does not read (code
            "newer-format").
        """
        try:
            meta = read_json(path / "zarr.json")
            codecs = [codec["name"] for codec in meta["codecs"]]
            found = np.dtype(meta["data_type"]).newbyteorder("="), *meta["chunk_grid"]["configuration"]["chunk_shape"]
            if found != (dtype.newbyteorder("="), chunk, chunk):
                raise ValueError(f"dtype and chunks are {found}, and manifest.json has {dtype} and {chunk}")
            if unread := _find_unread(meta, codecs):
                raise StoreError(
                    f"{path}/zarr.json has {unread}, which this Tartan does not read; use a newer Tartan",
                    code="newer-format",
                    context={"path": f"{path}/zarr.json", "unknown": unread},
                )
            return cls(path, dtype, chunk, compressed="zstd" in codecs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            raise CorruptResultError(
                f"{path}/zarr.json cannot be read ({error}); restore it from a copy, or start a new run in "
                "another folder",
                context={"path": f"{path}/zarr.json"},
            ) from error

    def describe(self, writer: FileWriter, n_items: int) -> None:
        """Write ``zarr.json`` for n items: creates the array, or changes its shape."""
        text = json.dumps(_metadata(self, n_items), indent=1) + "\n"
        writer.replace(self.path / "zarr.json", [text.encode()])

    def chunk_path(self, row: int, column: int) -> Path:
        """Return the file of chunk (row, column)."""
        return Path(f"{self._chunks}/{row}/{column}")

    def exists(self, row: int, column: int) -> bool:
        """Whether the chunk was written; its contents are not looked at."""
        return self.chunk_path(row, column).exists()

    def list_written(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks that were written, row by row: what is asked is what is there, not what might be."""
        for row in list_numbered(self._chunks):
            for column in list_numbered(self._chunks / str(row)):
                yield row, column

    def file(
        self, row: int, column: int, block: np.ndarray, keep: np.ndarray | None = None
    ) -> tuple[Path, Sequence[Any]]:
        """Return the file of a chunk and what is to be in it: ``block`` where ``keep`` is true, else the fill value.

        Parameters
        ----------
        block : array (rows, columns), at most the chunk side each
        keep : bool array (rows, columns), optional
            Default: true everywhere.

        Returns
        -------
        (Path, buffers)
            The buffers hold until this thread asks for the next file.
        """
        return self.chunk_path(row, column), self._encode(block, keep)

    def digest(self, row: int, column: int) -> str:
        """Return what names the contents of the file of a chunk, in letters and digits; "0" where there is none.

        Raises
        ------
        StoreError
            If the system refuses to read it.
        """
        return _digest(self._bytes_of(row, column))

    def read_named(self, row: int, column: int) -> tuple[str, np.ndarray | None]:
        """Return the digest of a chunk and what ``read`` does, of one state; None where it is damaged, too."""
        data = self._bytes_of(row, column)
        try:
            block = None if data is None else self._decode(self._check(data, row, column), row, column)
        except CorruptResultError:
            block = None
        return _digest(data), block

    def read(self, row: int, column: int) -> np.ndarray | None:
        """Return a chunk as a new (chunk, chunk) array, or None when it was never written.

        Raises
        ------
        CorruptResultError
            If it does not match its checksum.
        StoreError
            If the system refuses to read it.
        """
        data = self._read_checked(row, column)
        return None if data is None else self._decode(data, row, column)

    def decode(self, data: bytes, row: int, column: int) -> np.ndarray:
        """Return the chunk that the bytes of a file hold; raises CorruptResultError as ``read``."""
        return self._decode(self._check(np.frombuffer(data, np.uint8), row, column), row, column)

    def verify(self, row: int, column: int) -> bool:
        """Whether the chunk is there and matches its checksum."""
        try:
            data = self._read_checked(row, column)
        except CorruptResultError:
            return False
        return data is not None and (self.compressed or len(data) == self._bytes)

    def count(self, row: int, column: int, n_codes: int) -> np.ndarray | None:
        """Return how often each of the codes 0 .. n_codes-1 occurs in a uint8 chunk, padding included.

        Chunks that compress to a few bytes are counted once for all their equals.
        """
        data = self._read_checked(row, column)
        if data is None:
            return None
        memo = data.tobytes() if len(data) <= _MEMO_BYTES else b""
        counts = self._counts.get(memo)
        if counts is None:
            counts = count_codes(self._decode(data, row, column), n_codes)
            if memo and len(self._counts) < _MEMO_ENTRIES:
                self._counts[memo] = counts
        return counts

    def _encode(self, block: np.ndarray, keep: np.ndarray | None) -> Sequence[Any]:
        whole = block.shape == (self.chunk, self.chunk) and keep is None
        if self.compressed and whole and (is_one_value(block) or block.min() == block.max()):
            return self._encode_constant(block)
        if not (whole and block.dtype == self._stored and block.flags.c_contiguous):
            block = self._pad(block, keep)
        return self._checksum(compress(block) if self.compressed else block)

    def _encode_constant(self, block: np.ndarray) -> Sequence[Any]:
        """Encode a chunk of equal values: nearly every status chunk is one, so it is done once."""
        value = block[:1, :1].astype(self._stored).tobytes()
        encoded = self._constants.get(value)
        if encoded is None:
            encoded = self._checksum(compress(self._pad(block, None)))
            if len(self._constants) < _MEMO_ENTRIES:
                self._constants[value] = encoded
        return encoded

    def _checksum(self, body: Any) -> list[Any]:
        return [body, crc32c(body).to_bytes(_CRC_BYTES, "little")]

    def _pad(self, block: np.ndarray, keep: np.ndarray | None) -> np.ndarray:
        """Copy a block into this thread's full-size buffer; fresh memory for each chunk would cost more."""
        buffer: np.ndarray | None = getattr(self._scratch, "buffer", None)
        if buffer is None:
            buffer = self._scratch.buffer = np.empty((self.chunk, self.chunk), self._stored)
        rows, columns = block.shape
        if keep is not None or block.shape != buffer.shape:
            buffer.fill(self.fill)
        np.copyto(buffer[:rows, :columns], block, casting="same_kind", where=True if keep is None else keep)
        return buffer

    def _read_checked(self, row: int, column: int) -> np.ndarray | None:
        """Return the chunk's encoded bytes without their checksum, or None when there is no file."""
        data = self._bytes_of(row, column)
        return None if data is None else self._check(data, row, column)

    def _bytes_of(self, row: int, column: int) -> np.ndarray | None:
        """Return what is in the file of a chunk, or None when there is none."""
        path = self.chunk_path(row, column)
        try:
            with open_regular(path, buffering=0) as file:
                return np.fromfile(file, np.uint8, min(os.fstat(file.fileno()).st_size, self._most_bytes))
        except FileNotFoundError:
            return None
        except (IsADirectoryError, NotADirectoryError) as error:
            raise make_damaged_error(path, "is not a file: remove it") from error
        except OSError as error:
            hint = "" if error.errno else "; remove it, and `tartan resume` computes this chunk again"
            raise StoreError(f"{path} cannot be read: {error.strerror}{hint}", context={"path": str(path)}) from error

    def _check(self, data: np.ndarray, row: int, column: int) -> np.ndarray:
        """Return the bytes of a file without their checksum."""
        body, found = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        if len(data) < _CRC_BYTES or crc32c(body) != int.from_bytes(found.tobytes(), "little"):
            raise make_damaged_error(self.chunk_path(row, column), "does not match its checksum")
        return body

    def _decode(self, data: np.ndarray, row: int, column: int) -> np.ndarray:
        shape = self.chunk, self.chunk
        try:
            if not self.compressed:
                return data.view(self._stored).reshape(shape).astype(self.dtype, copy=False)
            plain = np.empty(shape, self._stored)
            decompress(data, plain.reshape(-1).view(np.uint8))
        except (ValueError, RuntimeError) as error:
            raise make_damaged_error(self.chunk_path(row, column), "does not match its checksum") from error
        return plain.astype(self.dtype, copy=False)


def list_numbered(folder: Path) -> list[int]:
    """Return the numbers that are names in a folder, in order; none where there is no folder."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def fill_value(dtype: np.dtype[Any]) -> Any:
    """Return what stands for "no score": NaN for floats, zero for the others."""
    return dtype.type(np.nan) if dtype.kind in "fc" else dtype.type(0)


def make_damaged_error(path: Path, what: str) -> CorruptResultError:
    """Return the error for a part of the result that a later writer computes again."""
    return CorruptResultError(f"{path} {what}; `tartan resume` computes this chunk again", context={"path": str(path)})


def _find_unread(meta: dict[str, Any], codecs: Sequence[str]) -> str | None:
    """Return what of a description would have to be understood to read chunks right, and is not."""
    if tuple(codecs) not in _CODECS:
        return _clip(f"codecs {list(codecs)!r}")
    said = {
        "zarr_format": meta["zarr_format"],
        "chunk_grid": meta["chunk_grid"]["name"],
        "chunk_key_encoding": meta["chunk_key_encoding"],
        "storage_transformers": meta.get("storage_transformers", []),
        "endian": meta["codecs"][0].get("configuration", {}).get("endian", "little"),
    }
    return next((_clip(f"{name} {value!r}") for name, value in said.items() if value != _READ[name]), None)


def _clip(text: str) -> str:
    """Return the beginning of what a folder from anywhere says, for a message."""
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]} ..."


def _metadata(array: ChunkArray, n_items: int) -> dict[str, Any]:
    kind = array.dtype.kind
    if kind not in "biufc":
        raise ConfigError(f"{array.path.stem}: outputs of dtype {array.dtype} cannot be stored; use a number")
    codecs: list[dict[str, Any]] = [{"name": "bytes"}]
    if array.dtype.itemsize > 1:
        codecs[0]["configuration"] = {"endian": "little"}
    if array.compressed:
        codecs.append({"name": "zstd", "configuration": {"level": _ZSTD_LEVEL, "checksum": False}})
    fill: Any = {"f": "NaN", "c": ["NaN", "NaN"], "b": False}.get(kind, 0)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [n_items, n_items],
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [array.chunk, array.chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": [*codecs, {"name": "crc32c"}],
        "attributes": {},
        "storage_transformers": [],
    }
