"""Rows that a file holds in another form than memory does: unpacked once to a file without a name, and mapped.

Rows are asked for in blocks, in any order and more than once, and a Parquet file often is one row group: it can be
decoded from its beginning only. What is unpacked takes disk space in the folder for temporary files (``TMPDIR``) until
the source is gone, and no memory of this process.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np

from tartan.base.files import disk_errors, open_regular
from tartan.base.format import format_bytes, name_some, show_value
from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError
from tartan.sources.arrays import ArraySource
from tartan.sources.paths import absolute

KEY_NAMES = ("id", "key", "name", "__index_level_0__")
"""Columns that name rows without being asked for, the first that is there; whatever their case."""
OTHER_KEYS = "name another column by --keys COLUMN, a file of names by --keys FILE, or --keys numbers"
Reopen = Callable[[Sequence[str], Sequence[str] | None, str | None], ArraySource]
NUMBERS = "numbers"
"""The word of ``--keys`` for rows that are called by their numbers, whatever columns there are."""


class RowFile(Protocol):
    """A file of rows that are read from the first to the last.

    Attributes
    ----------
    path : str
        Of the file.
    part : str or None
        Which of the arrays or columns in it, as it was named; None where it was not.
    shape : tuple of int
        (n, d).
    dtype : dtype
        Of the rows as they are given out.
    stored : dtype
        Of the rows as ``blocks`` and ``map`` return them; another one is converted when it is given out.
    columns_first : bool
        Whether the first axis is the fastest in the file, and ``blocks`` are of columns.
    """

    path: str
    part: str | None
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    columns_first: bool

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map the file where rows lie in it as they do in memory; return the mapping and where they begin, or None."""
        ...

    def convert(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of ``stored`` as rows of ``dtype``."""
        ...

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in blocks of moderate size, each (m, d); where ``columns_first``, columns, each (m, n).

        Raises
        ------
        ConfigError
            If a row is none; it names the file, the row and the value.
        """
        ...

    def key_column(self, wanted: str | None) -> str | None:
        """Return the column with the names of rows: the one that is wanted, else one that is called so; or None.

        Raises
        ------
        ConfigError
            If there is no such column.
        """
        ...

    def can_name(self, column: str) -> bool:
        """Whether there is a column of this name that can name rows."""
        ...

    def read_keys(self, column: str) -> list[str]:
        """Return the names of all rows, all different.

        Raises
        ------
        ConfigError
            If one is missing, or two are equal.
        """
        ...

    def describe(self) -> str:
        """Say what the rows are, such as "column 'embedding', float16"."""
        ...


class StoredRows(ArraySource):
    """Rows of a ``RowFile``.

    Parameters
    ----------
    file : RowFile
    reopen : callable
        Opens it again in another process, by a list of its name, the names of its rows and the column of these.
    """

    def __init__(self, file: RowFile, reopen: Reopen) -> None:
        self._names: Sequence[str] | None = None
        super().__init__(NotThereYet(file.shape, file.dtype), file.path)
        self._names = None
        self.file = file
        self._column: str | None = None
        self._reopen = reopen
        self._lock = threading.Lock()
        self._mapping: Any = None
        self._refused: ConfigError | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the rows as they are given out."""
        return self.file.dtype

    @property
    def keys(self) -> Sequence[str]:
        """Names of the rows, read when they are first asked for."""
        if self._names is None:
            column = self.named_by()
            self._names = IndexKeys(self.n_items) if column is None else self.file.read_keys(column)
        return self._names

    @keys.setter
    def keys(self, names: Sequence[str]) -> None:
        self._names = names

    @property
    def name(self) -> str:
        """The file, with what is taken of it, as it is named on the command line."""
        path = absolute(self.file.path)
        return path if self.file.part is None else f"{path}:{self.file.part}"

    def named_by(self) -> str | None:
        """Return the column that names the rows, None where they have numbers."""
        return None if self._column == NUMBERS else self.file.key_column(self._column)

    def say(self) -> str:
        """Say what is read, for people."""
        n_rows, width = self.file.shape
        column = self.named_by()
        names = self._offer_names() if column is None else f"; names from {column!r}"
        wide = f", compared as {self.dtype}" if self.file.stored != self.file.dtype else ""
        return (
            f"{PurePath(self.file.path).name}: {n_rows:,} rows of {width:,} values, {self.file.describe()}{wide}{names}"
        )

    def _offer_names(self) -> str:
        """Say which columns could name rows that nobody has named yet."""
        offered = getattr(self.file, "offered_names", ()) if self._column is None and self._names is None else ()
        return f"; rows have numbers, `--keys COLUMN` names them ({name_some(offered)})" if offered else ""

    def names_rows(self, column: str) -> bool:
        """Whether there is a column of this name that can name the rows."""
        return self.file.can_name(column)

    def name_rows(self, column: str) -> None:
        """Take the names of the rows from another column.

        Raises
        ------
        ConfigError
            If there is no such column.
        """
        self.file.key_column(None if column == NUMBERS else column)
        self._column, self._names = column, None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process by the path and the names, not by the rows."""
        return self._reopen, ([self.name], self._names, self._column)

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows, and give back the pages of all others."""
        self.prepare()
        self._mapping.madvise(mmap.MADV_DONTNEED)
        rows = super().read_block(start, stop)
        return rows if self.file.stored == self.file.dtype else self.file.convert(rows)

    def prepare(self) -> None:
        """Unpack the rows, unless they are.

        Raises
        ------
        ConfigError
            If a row is none, or the disk has no room for them; what was raised once is raised again.
        """
        with self._lock:
            if self._refused is not None:
                raise self._refused
            if self._mapping is None:
                try:
                    self._unpack()
                except ConfigError as error:
                    self._refused = error
                    raise

    def _unpack(self) -> None:
        n_rows, width = self.file.shape
        n_bytes = n_rows * width * self.file.stored.itemsize
        mapped = self.file.map()
        if mapped is None:
            mapped = write_unnamed(self.file.path, self.file.blocks(), self.file.stored, n_bytes), 0
        self._mapping, first = mapped
        values = np.frombuffer(self._mapping, self.file.stored, n_rows * width, first)
        self._array = values.reshape(self.file.shape, order="F" if self.file.columns_first else "C")

    def describe(self) -> dict[str, Any]:
        """Return what the manifest records: as of an array, with what is taken of the file."""
        return super().describe() | {"patterns": [self.name]}


class NotThereYet:
    """The shape and the dtype of an array that is not there yet."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype


class PackedRows:
    """What files have in common whose rows lie in no memory as they are, and have no names."""

    path: str
    columns_first = False
    columns: Sequence[str] = ()

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map nothing."""
        return None

    def convert(self, rows: np.ndarray) -> np.ndarray:
        """Return rows as they are."""
        return rows

    def can_name(self, column: str) -> bool:
        """Whether there is a column of this name that can name rows."""
        return column in self.columns

    def key_column(self, wanted: str | None) -> str | None:
        """Return the column that names the rows."""
        if wanted is None:
            return next((name for key in KEY_NAMES for name in self.columns if name.lower() == key), None)
        if wanted in self.columns:
            return wanted
        there = f"it has {name_some([show_value(name) for name in self.columns])}" if self.columns else "it has none"
        raise ConfigError(
            f"{self.path} has no names {wanted!r} for its rows; {there}: give names by --keys FILE, one a line",
            context={"input": self.path, "option": "--keys"},
        )


def require_names(path: str, column: str, names: list[str], place: Callable[[int], str]) -> list[str]:
    """Return names of rows; refuse those that are empty, or two that are equal.

    Parameters
    ----------
    path, column : str
        Where they are from.
    names : list of str
    place : callable
        Says where a row is.

    Raises
    ------
    ConfigError
    """
    context = {"input": path, "option": "--keys"}
    if "" in names:
        raise ConfigError(f"{path}: {place(names.index(''))} has an empty {column!r}; {OTHER_KEYS}", context=context)
    if len(set(names)) < len(names):
        seen: dict[str, int] = {}
        row = next(row for row, name in enumerate(names) if seen.setdefault(name, row) != row)
        raise ConfigError(
            f"{path}: {place(seen[names[row]])} and {place(row)} have the same {column!r}, {show_value(names[row])}; "
            f"names of rows are all different; {OTHER_KEYS}",
            context=context,
        )
    return names


def write_unnamed(path: str, blocks: Iterable[np.ndarray], dtype: np.dtype[Any], n_bytes: int) -> mmap.mmap:
    """Write blocks one after the other to a file that has no name, in the folder for temporary files; map it.

    Parameters
    ----------
    path : str
        Where the blocks are from.
    blocks : iterable of array
    dtype : dtype
        In which they are written.
    n_bytes : int
        What they take.

    Raises
    ------
    ConfigError
        If they take more or less, or the disk has no room for them.
    """
    folder, seen = Path(tempfile.gettempdir()), 0
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ConfigError(
            f"{path}: its rows take {format_bytes(n_bytes)} unpacked, and {folder} has {format_bytes(free)}; set "
            "TMPDIR to a folder with more room",
            context={"input": path},
        )
    with disk_errors(folder), tempfile.TemporaryFile(dir=folder) as unpacked:
        for block in blocks:
            seen += unpacked.write(np.ascontiguousarray(block, dtype).data.cast("B"))
        if seen != n_bytes:
            raise ConfigError(
                f"{path}: its rows should take {n_bytes:,} bytes, and {seen:,} are there; it is truncated or damaged",
                context={"input": path},
            )
        unpacked.flush()
        return mmap.mmap(unpacked.fileno(), n_bytes, access=mmap.ACCESS_READ)


def map_file(path: str, n_bytes: int, first: int = 0) -> tuple[mmap.mmap, int]:
    """Map a file of which so many bytes from ``first`` on are meant; return the mapping and ``first``.

    Raises
    ------
    ConfigError
        If it is shorter, or cannot be mapped.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size >= first + n_bytes:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), first
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", context={"input": path}) from error
    raise ConfigError(
        f"{path}: its rows end at byte {first + n_bytes:,}, and it has {size:,} bytes; it is truncated",
        context={"input": path},
    )


def prepare_rows(source: Any) -> None:
    """Unpack all rows of a source, of whatever sources it is made; nothing for one that has none.

    Raises
    ------
    ConfigError
        If a row is none, or the disk has no room.
    """
    for part in getattr(source, "parts", ()):
        prepare_rows(part)
    inner = getattr(source, "inner", None)
    if inner is not None:
        prepare_rows(inner)
    prepare = getattr(source, "prepare", None)
    if prepare is not None:
        prepare()
