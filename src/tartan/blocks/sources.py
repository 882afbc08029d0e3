"""Where the first values of a space come from: an array, a ``.npy`` file, a Zarr array, or zeros. Never written."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tartan.base.format import show_value
from tartan.base.npy_input import open_npy
from tartan.base.zarr_input import open_zarr, read_zarr
from tartan.core.blocks.space import Box
from tartan.errors import ConfigError, StoreError, TransportError

KINDS = "biufc"
# By contract: half of ANSWER_SECONDS of blocks/fetch (60), so that the error is this one's.
PATIENCE_SECONDS = 30.0
"""Longest wait for a command that adds a space; shorter than others wait for the answer."""


@dataclass(frozen=True)
class SpaceSource:
    """The first values of a space.

    Attributes
    ----------
    kind : {"zeros", "npy", "zarr", "array"}
    shape : tuple of int
    dtype : str
        As NumPy writes it.
    path : str
        Of the file or folder.
    stamp : tuple of int
        Size and time of the file when the space was made; of a Zarr array those of its metadata.
    newest_ns : int
        Time of the newest file of a Zarr array when the space was made; a chunk that is newer was changed.
    array : ndarray, optional
        Where the kind is "array"; it does not travel.
    """

    kind: Literal["zeros", "npy", "zarr", "array"]
    shape: tuple[int, ...]
    dtype: str
    path: str = ""
    stamp: tuple[int, ...] = ()
    newest_ns: int = 0
    array: np.ndarray | None = None

    def open(self) -> SourceReader:
        """Return what reads it."""
        return SourceReader(self)

    def check_unchanged(self) -> None:
        """Refuse a source that is not what it was when the space was made.

        Raises
        ------
        StoreError
            If its file has another size or time, or is gone.
        """
        if self.path and _stamp(self.kind, Path(self.path)) != self.stamp:
            raise self.make_changed_error()

    def make_changed_error(self) -> StoreError:
        """Return the error of a source that was changed."""
        return StoreError(
            f"{self.path} was changed after it became the source of a space; make a new session",
            code="source-changed",
            context={"path": self.path},
        )


class SourceReader:
    """Reads boxes of a source; may be used by several threads."""

    def __init__(self, source: SpaceSource) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._values: Any = source.array

    def read(self, box: Box, target: np.ndarray) -> int:
        """Fill an array with the values of a box; return how many bytes were read.

        Raises
        ------
        StoreError
            If the source was changed or is damaged.
        """
        if self.source.kind == "zeros":
            target[...] = 0
            return 0
        self.source.check_unchanged()
        with self._lock:
            if self._values is None:
                self._values = self._open_values()
        part = tuple(slice(*interval) for interval in box)
        target[...] = self._values[part] if self.source.kind != "zarr" else self._of_zarr(part)
        if self.source.kind == "zarr":
            self._check_chunks(box)
        return 0 if self.source.kind == "array" else target.nbytes

    def _of_zarr(self, part: tuple[slice, ...]) -> np.ndarray:
        try:
            return read_zarr(self._values, part, self.source.path)
        except ConfigError as error:
            raise StoreError(str(error), code=error.code, context=error.context) from error

    def view(self, box: Box) -> np.ndarray | None:
        """Return the values of a box where they lie; None where they are not in memory, row after row."""
        array = self.source.array
        if array is None or not (array.flags.c_contiguous and array.flags.aligned):
            return None
        return array[tuple(slice(*interval) for interval in box)]

    def _check_chunks(self, box: Box) -> None:
        """Refuse a Zarr array of which a chunk that was read is newer than all of it was."""
        sides = self._values.shards or self._values.chunks
        numbers = (range(start // side, -(-stop // side)) for (start, stop), side in zip(box, sides, strict=True))
        for coordinates in itertools.product(*numbers):
            chunk = Path(self.source.path) / self._values.metadata.encode_chunk_key(coordinates)
            with contextlib.suppress(FileNotFoundError):  # one of fill values alone need not exist
                if chunk.stat().st_mtime_ns > self.source.newest_ns:
                    raise self.source.make_changed_error()

    def _open_values(self) -> Any:
        """Return what the values are read from; a file that changes meanwhile cannot be opened."""
        try:
            return open_npy(self.source.path) if self.source.kind == "npy" else open_zarr(self.source.path)
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.source.path} cannot be read: {error}", code="source-changed") from error


def source_of(given: Any, shape: Any, dtype: Any) -> SpaceSource:
    """Return the source that the arguments of ``Session.space`` name.

    Raises
    ------
    ConfigError
        If there is none, it cannot be read, or its values are not numbers.
    """
    if given is None:
        return _zeros(shape, dtype)
    if shape is not None or dtype is not None:
        raise ConfigError("a space has a source, or a shape and a dtype; convert a source before")
    if isinstance(given, str | os.PathLike):
        return _describe_stored(Path(given))
    array = np.asarray(given)
    _require_numbers(array.dtype, type(given).__name__)
    return SpaceSource("array", array.shape, array.dtype.str, array=array)


def _zeros(shape: Any, dtype: Any) -> SpaceSource:
    if shape is None:
        raise ConfigError("a space needs a source (an array, a .npy file, a Zarr array), or a shape and a dtype")
    try:
        lengths = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
        kind = np.dtype("f8" if dtype is None else dtype)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"shape={show_value(shape)}, dtype={show_value(dtype)} describe no space: {error}") from None
    _require_numbers(kind, "dtype")
    return SpaceSource("zeros", lengths, kind.str)


def _describe_stored(path: Path) -> SpaceSource:
    if not path.exists():
        raise ConfigError(f"{path} does not exist; the source of a space is an array, a .npy file or a Zarr array")
    if path.is_dir():
        values = open_zarr(path)
        if not hasattr(values, "dtype"):
            raise ConfigError(f"{path} is a Zarr group; name one of its arrays")
        kind: Literal["npy", "zarr"] = "zarr"
    else:
        kind = "npy"
        try:
            values = open_npy(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} is not an array that can be read: {error}") from None
    _require_numbers(values.dtype, str(path))
    if 0 in values.shape:
        raise ConfigError(f"{path} has no values: its shape is {tuple(values.shape)}; every size is at least 1")
    dtype = np.dtype(values.dtype)
    newest_ns = _newest_ns(path) if kind == "zarr" else 0
    return SpaceSource(kind, tuple(values.shape), dtype.str, str(path.resolve()), _stamp(kind, path), newest_ns)


def _newest_ns(folder: Path) -> int:
    """Return the time of the newest file below a folder."""
    return max((file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()), default=0)


def _require_numbers(dtype: np.dtype[Any], label: str) -> None:
    if dtype.kind not in KINDS:
        raise ConfigError(f"{label} has dtype {dtype}; spaces hold numbers or booleans")
    if dtype.char in "gG":
        narrower = "float64" if dtype.kind == "f" else "complex128"
        raise ConfigError(f"{label} has dtype {dtype}, which products and Zarr do not have; convert it to {narrower}")


def _stamp(kind: str, path: Path) -> tuple[int, ...]:
    if kind == "zarr":
        path = next((path / name for name in ("zarr.json", ".zarray") if (path / name).exists()), path)
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_size, about.st_mtime_ns


class OpenSources:
    """The sources that a rank reads, by number of their space; methods may be called from any thread.

    A rank may be asked for a block of a space before the command that adds the space has reached it: the session tells
    every rank for itself.
    """

    def __init__(self) -> None:
        self._readers: dict[int, SourceReader] = {}
        self._changed = threading.Condition()

    def __getitem__(self, space: int) -> SourceReader:
        """Return a source that is there."""
        return self._readers[space]

    def add(self, space: int, reader: SourceReader) -> None:
        """Add the source of a space."""
        with self._changed:
            self._readers[space] = reader
            self._changed.notify_all()

    def wait_for(self, space: int, timeout_seconds: float = PATIENCE_SECONDS) -> SourceReader:
        """Return a source, as soon as it is there.

        Raises
        ------
        TransportError
            If it does not come in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: space in self._readers, timeout_seconds):
                raise TransportError(f"space {space} is not known here")
            return self._readers[space]
