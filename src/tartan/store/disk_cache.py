"""Keep loaded items on disk beyond the run. It is a cache: entries may vanish, and it never fails a run.

One file an entry, named by a digest that the caller derives from everything the entry depends on. An entry holds
a list of arrays after a header with a checksum; a damaged, torn or foreign entry counts as absent and is removed.
Entries are compressed where a sample shrinks. The cache is bounded: when it is full, the least recently used entries
are removed. Two processes may share a folder; each sees the entries of the other, and the bound holds up to what both
write between two scans of the folder. Files of other names than those of entries are never touched, and no link is
followed (base/confined.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checksum import crc32c
from tartan.base.confined import ConfinedFolder
from tartan.base.temporary import is_abandoned, is_writers_name, temporary_names
from tartan.errors import ConfigError, StoreError
from tartan.store.grid_io import compress, decompress, pays_to_compress

_MAGIC = b"TTNC\x01\x00\x00\x00"
# By arithmetic: a cache line, so that arrays mapped from the file are aligned for every vector.
_ALIGN = 64
_UNFINISHED = "tmp-"
# By convention of git and ccache: two hexadecimal digits, 256 folders.
_FOLDER_CHARACTERS = 2
_DIGEST = re.compile(r"[0-9a-f]{8,}")
_FOLDER = re.compile(r"[0-9a-f]{2}")
# By judgement: a tenth at a time makes one walk of the folder serve many files. No benchmark.
_LOW_WATER = 0.9  # eviction goes down to this share, so that it is rare


class DiskCache:
    """A bounded store of lists of arrays by digest; safe for threads and processes.

    Parameters
    ----------
    folder : path
        Created if absent.
    capacity_bytes : int
        Largest total size of the entries on disk.
    root : path, optional
        A folder that the cache lies in, and below which no link is followed; default: the folder itself.

    Raises
    ------
    ConfigError
        If the capacity is not positive.
    StoreError
        If the folder, or one in it, is a link below the root.
    """

    def __init__(self, folder: str | Path, capacity_bytes: int, *, root: Path | None = None) -> None:
        if capacity_bytes <= 0:
            raise ConfigError(f"disk cache: a capacity of {capacity_bytes} bytes is not possible; give a positive size")
        self.folder = Path(folder)
        self.capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._names = temporary_names()
        self._confined = ConfinedFolder(root or self.folder)
        if root is None:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            self._confined.make_folder(self.folder, exist_ok=True)
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
            with open(self._confined.open(path, os.O_RDONLY), "rb") as file:
                data = np.fromfile(file, np.uint8)
        except (OSError, StoreError):
            return None
        try:
            arrays = decode(data)
        except (ValueError, KeyError, TypeError, RuntimeError, RecursionError, MemoryError):
            self._drop(path, len(data))
            return None
        with contextlib.suppress(OSError):
            self._confined.renew(path)  # the time of the last use
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
        if _DIGEST.fullmatch(digest) is None:
            raise ConfigError(f"disk cache: {digest!r} is not a digest")
        return self.folder / digest[:_FOLDER_CHARACTERS] / digest

    def _write(self, path: Path, buffers: Sequence[Any]) -> bool:
        temporary = self.folder / f"{_UNFINISHED}{next(self._names)}"
        try:
            self._confined.make_folder(path.parent, exist_ok=True)
            with self._confined.new_file(temporary) as stream:
                for buffer in buffers:
                    stream.write(buffer)
            self._confined.move(temporary, path)
        except (OSError, StoreError):
            with contextlib.suppress(OSError):
                self._confined.remove(temporary)
            return False
        return True

    def _entries(self) -> list[tuple[float, int, Path]]:
        """List entries and what killed writers left: (time of last use, bytes, path)."""
        places, now = [(self.folder, self._confined.entries(self.folder))], time.time()
        for name, state in places[0][1]:
            if stat.S_ISDIR(state.st_mode) and _FOLDER.fullmatch(name) is not None:
                places.append((self.folder / name, self._confined.entries(self.folder / name)))
        return [
            (state.st_mtime, state.st_size, place / name)
            for place, found in places
            for name, state in found
            if stat.S_ISREG(state.st_mode) and self._is_ours(place, name, now - state.st_mtime)
        ]

    def _is_ours(self, place: Path, name: str, silent_seconds: float) -> bool:
        """Whether a file is an entry, or what a writer that is gone left."""
        if place == self.folder:
            writer = name.removeprefix(_UNFINISHED)
            return writer != name and is_writers_name(writer) and is_abandoned(writer, silent_seconds)
        return _DIGEST.fullmatch(name) is not None and name.startswith(place.name)

    def _evict(self) -> None:
        """Scan the folder and remove the least recently used entries while there are too many bytes."""
        entries = sorted(self._entries())
        used = sum(size for _, size, _ in entries)
        if used > self.capacity_bytes:
            for _, size, path in entries:
                if used <= _LOW_WATER * self.capacity_bytes:
                    break
                self._confined.remove(path, missing_ok=True)
                used -= size
        with self._lock:
            self._used_bytes = used

    def _drop(self, path: Path, size: int) -> None:
        with contextlib.suppress(OSError):
            self._confined.remove(path)
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
    buffers: list[Any] = [front + _pad(len(front))]
    for body in bodies:
        buffers += [body, _pad(len(body))]
    return buffers


def decode(data: np.ndarray) -> list[np.ndarray]:
    """Undo ``encode``; ValueError when a checksum does not match."""
    if data[:8].tobytes() != _MAGIC:
        raise ValueError("not a cache entry")
    length, check = (int.from_bytes(data[at : at + 4].tobytes(), "little") for at in (8, 12))
    header = data[16 : 16 + length].tobytes()
    if len(header) != length or crc32c(header) != check:
        raise ValueError("damaged header")
    at, arrays = 16 + length + len(_pad(16 + length)), []
    for part in json.loads(header):
        body = data[at : at + part["bytes"]]
        if len(body) != part["bytes"] or crc32c(body) != part["crc"]:
            raise ValueError("damaged array")
        arrays.append(_array(body, part))
        at += len(body) + len(_pad(len(body)))
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


def _pad(length: int) -> bytes:
    return bytes(-length % _ALIGN)
