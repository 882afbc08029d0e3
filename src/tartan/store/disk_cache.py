"""Keep loaded items on disk beyond the run. It is a cache: entries may vanish, and it never fails a run.

One file an entry, named by a digest that the caller derives from everything the entry depends on. An entry holds
a list of arrays after a header with a checksum; a damaged, torn or foreign entry counts as absent and is removed.
Entries are compressed where a sample shrinks. The cache is bounded: when it is full, the least recently used entries
are removed. Two processes may share a folder; each sees the entries of the other, and the bound holds up to what both
write between two scans of the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checksum import crc32c
from tartan.base.temporary import temporary_names
from tartan.errors import ConfigError
from tartan.store.grid_io import compress, decompress, pays_to_compress

_MAGIC = b"TTNC\x01\x00\x00\x00"
_ALIGN = 64
_LOW_WATER = 0.9  # eviction goes down to this share, so that it is rare


class DiskCache:
    """A bounded store of lists of arrays by digest; safe for threads and processes.

    Parameters
    ----------
    folder : path
        Created if absent.
    capacity_bytes : int
        Largest total size of the entries on disk.
    """

    def __init__(self, folder: str | Path, capacity_bytes: int) -> None:
        if capacity_bytes <= 0:
            raise ConfigError(f"disk cache: a capacity of {capacity_bytes} bytes is not possible; give a positive size")
        self.folder = Path(folder)
        self.capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._names = temporary_names()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._used_bytes = sum(size for _, size, _ in self._entries())
        self._evict()

    @property
    def used_bytes(self) -> int:
        """Bytes on disk, as far as this process knows."""
        return self._used_bytes

    def get(self, digest: str) -> list[np.ndarray] | None:
        """Return the arrays of an entry, new and writable, or None if there is no intact one."""
        path = self._path(digest)
        try:
            data = np.fromfile(path, np.uint8)
        except OSError:
            return None
        try:
            arrays = decode(data)
        except (ValueError, KeyError, TypeError, RuntimeError, RecursionError, MemoryError):
            self._drop(path, len(data))
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of the last use
        return arrays

    def put(self, digest: str, arrays: Sequence[np.ndarray]) -> bool:
        """Store arrays; return whether they were stored, which a full disk or too large an entry may prevent.

        Raises
        ------
        ConfigError
            If an array has a dtype that holds Python objects, or the digest is not a file name.
        """
        path = self._path(digest)
        buffers = encode(arrays)
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if size > self.capacity_bytes or path.exists():
            return path.exists()
        if not self._write(path, buffers):
            return False
        with self._lock:
            self._used_bytes += size
            full = self._used_bytes > self.capacity_bytes
        if full:
            self._evict()
        return True

    def _path(self, digest: str) -> Path:
        if not digest.isalnum() or len(digest) < 4:
            raise ConfigError(f"disk cache: {digest!r} is not a digest")
        return self.folder / digest[:2] / digest

    def _write(self, path: Path, buffers: Sequence[Any]) -> bool:
        temporary = self.folder / f"tmp-{next(self._names)}"
        try:
            path.parent.mkdir(exist_ok=True)
            with open(temporary, "xb") as stream:
                for buffer in buffers:
                    stream.write(buffer)
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return False
        return True

    def _entries(self) -> list[tuple[float, int, Path]]:
        """List entries and what killed writers left: (time of last use, bytes, path)."""
        found = []
        for folder in (self.folder, *(p for p in self.folder.iterdir() if p.is_dir())):
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        state = entry.stat()
                        found.append((state.st_mtime, state.st_size, Path(entry.path)))
        return found

    def _evict(self) -> None:
        """Scan the folder and remove the least recently used entries while there are too many bytes."""
        entries = sorted(self._entries())
        used = sum(size for _, size, _ in entries)
        if used > self.capacity_bytes:
            for _, size, path in entries:
                if used <= _LOW_WATER * self.capacity_bytes:
                    break
                path.unlink(missing_ok=True)
                used -= size
        with self._lock:
            self._used_bytes = used

    def _drop(self, path: Path, size: int) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        with self._lock:
            self._used_bytes = max(0, self._used_bytes - size)


def encode(arrays: Sequence[np.ndarray]) -> list[Any]:
    """Return header and bodies: magic, length and CRC of the header, JSON, then each array at a multiple of 64."""
    parts, bodies = [], []
    for array in arrays:
        plain = np.ascontiguousarray(array)
        if plain.dtype.hasobject or plain.dtype.names:
            raise ConfigError(f"disk cache: arrays of dtype {plain.dtype} cannot be stored")
        flat = plain.reshape(-1).view(np.uint8) if plain.size else np.empty(0, np.uint8)
        packed = pays_to_compress(flat)
        body = np.frombuffer(compress(flat), np.uint8) if packed else flat
        part = {"dtype": plain.dtype.str, "shape": array.shape, "zstd": packed}
        parts.append({**part, "bytes": len(body), "crc": crc32c(body)})
        bodies.append(body)
    header = json.dumps(parts).encode()
    front = _MAGIC + len(header).to_bytes(4, "little") + crc32c(header).to_bytes(4, "little") + header
    buffers: list[Any] = [front + _padding(len(front))]
    for body in bodies:
        buffers += [body, _padding(len(body))]
    return buffers


def decode(data: np.ndarray) -> list[np.ndarray]:
    """Undo ``encode``; ValueError when a checksum does not match."""
    if data[:8].tobytes() != _MAGIC:
        raise ValueError("not a cache entry")
    length, check = (int.from_bytes(data[at : at + 4].tobytes(), "little") for at in (8, 12))
    header = data[16 : 16 + length].tobytes()
    if len(header) != length or crc32c(header) != check:
        raise ValueError("damaged header")
    at, arrays = 16 + length + len(_padding(16 + length)), []
    for part in json.loads(header):
        body = data[at : at + part["bytes"]]
        if len(body) != part["bytes"] or crc32c(body) != part["crc"]:
            raise ValueError("damaged array")
        arrays.append(_array(body, part))
        at += len(body) + len(_padding(len(body)))
    return arrays


def _array(body: np.ndarray, part: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(part["dtype"]), tuple(part["shape"])
    if dtype.hasobject or dtype.names or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("no array of numbers")
    if not part["zstd"]:
        return np.asarray(body.view(dtype).reshape(shape))
    plain = np.empty(shape, dtype)
    decompress(body, plain.reshape(-1).view(np.uint8))
    return plain


def _padding(length: int) -> bytes:
    return bytes(-length % _ALIGN)
