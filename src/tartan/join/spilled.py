"""A table on disk while it is joined: its prepared vectors row by row, its other columns as an Arrow stream.

Both are files without a name, which are gone with the process. Vectors are read, not mapped, where rows lie side by
side; what is mapped is given back after each use, so that it does not count as memory of the process for long.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import disk_errors
from tartan.join.streams import small_batches, vectors_of

if TYPE_CHECKING:
    import pyarrow as pa

Index = NDArray[np.int64]

# By arithmetic: a page fault maps up to 64 KB around it; so many rows are 16 MB at most.
_GATHERED_ROWS = 256
# By arithmetic: as much; batches from which rows are taken before what is mapped of them is given back.
_TAKEN_BYTES = 16 << 20

#: Prepares raw rows (m, d) for the metric; the second argument is the number of the first, for errors.
Prepare = Callable[[np.ndarray, int], np.ndarray]


@dataclass(eq=False)
class VectorFile:
    """Prepared rows (n, d') of one type in a file.

    Attributes
    ----------
    n : int
    width : int
        d'.
    dtype : dtype
    """

    file: BinaryIO
    width: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    n: int = 0
    _mapped: mmap.mmap | None = None

    def append(self, rows: np.ndarray) -> None:
        """Write rows behind the last."""
        self.width, self.dtype = rows.shape[1], rows.dtype
        self.file.write(np.ascontiguousarray(rows).data)
        self.n += len(rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows side by side, as a new array."""
        rows = np.empty((stop - start, self.width), self.dtype)
        view, at = memoryview(rows.view(np.uint8).reshape(-1).data), start * self.width * self.dtype.itemsize
        while len(view):
            count = os.preadv(self.file.fileno(), [view], at)
            view, at = view[count:], at + count
        return rows

    def take(self, rows: Index | range) -> np.ndarray:
        """Return some rows, as a new array."""
        if isinstance(rows, range):
            return self.read(rows.start, rows.stop)
        if not len(rows) or (rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all()):
            return self.read(int(rows[0]), int(rows[-1]) + 1) if len(rows) else self.read(0, 0)
        if self._mapped is None:
            self._mapped = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = np.frombuffer(self._mapped, self.dtype).reshape(self.n, self.width)
        found = np.empty((len(rows), self.width), self.dtype)
        for start in range(0, len(rows), _GATHERED_ROWS):
            np.take(whole, rows[start : start + _GATHERED_ROWS], axis=0, out=found[start : start + _GATHERED_ROWS])
            self._mapped.madvise(mmap.MADV_DONTNEED)
        return found


@dataclass(eq=False)
class CarriedColumns:
    """The columns of a table that a join carries, mapped.

    Attributes
    ----------
    schema : pyarrow.Schema
    n : int
        Number of rows.
    """

    file: BinaryIO
    schema: pa.Schema
    n: int
    _mapped: mmap.mmap
    _batches: list[pa.RecordBatch]
    _starts: Index

    @classmethod
    def of(cls, file: BinaryIO) -> CarriedColumns:
        """Map a file that holds one stream."""
        import pyarrow as pa

        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_stream(pa.py_buffer(mapped))
        batches = list(reader)
        ends = np.cumsum([0, *(batch.num_rows for batch in batches)], dtype=np.int64)
        return cls(file, reader.schema, int(ends[-1]), mapped, batches, ends)

    def row_bytes(self) -> int:
        """Return about how many bytes a row takes."""
        return len(self._mapped) // max(1, self.n)

    def taking_bytes(self) -> int:
        """Return the most bytes that are mapped while rows are taken."""
        most = max((batch.nbytes for batch in self._batches), default=0)
        return min(len(self._mapped), _TAKEN_BYTES + most)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, self.schema).column(name)

    def take(self, rows: Index) -> pa.Table:
        """Return some rows; all is null in those with the number -1."""
        import pyarrow as pa

        known = rows >= 0
        wanted, inverse = np.unique(rows[known], return_inverse=True)
        chunks = np.searchsorted(self._starts, wanted, side="right") - 1
        parts = np.split(wanted, np.flatnonzero(np.diff(chunks)) + 1) if len(wanted) else []
        pieces, n_bytes = [], 0
        for part in parts:
            at = int(np.searchsorted(self._starts, part[0], side="right")) - 1
            pieces.append(self._batches[at].take(pa.array(part - self._starts[at])))
            n_bytes += self._batches[at].nbytes
            if n_bytes >= _TAKEN_BYTES:
                self._mapped.madvise(mmap.MADV_DONTNEED)
                n_bytes = 0
        found = pa.Table.from_batches(pieces, self.schema).unify_dictionaries().combine_chunks()
        places = np.zeros(len(rows), np.int64)
        places[known] = inverse
        chosen = found.take(pa.array(places, mask=~known))
        self._mapped.madvise(mmap.MADV_DONTNEED)
        return chosen


@dataclass(frozen=True, eq=False)
class SpilledTable:
    """A table of a join: its vectors, and its other columns in the same order."""

    vectors: VectorFile
    carried: CarriedColumns

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.vectors.n


def spill(
    reader: pa.RecordBatchReader, on: str, prepare: Prepare, place: str, *, width: int | None, folder: Path
) -> tuple[SpilledTable, int | None]:
    """Read a stream once, to its end.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
    on : str
        The column of vectors.
    prepare : callable
        Makes of raw rows what is compared, or raises.
    place : str
        What messages call the table.
    width : int, optional
        Numbers in each vector; None: as in its first row.
    folder : Path
        Where files lie.

    Returns
    -------
    SpilledTable, int or None
        And the width; None where there is no row.

    Raises
    ------
    ConfigError
        If a vector is null or has another width.
    DiskFullError, StoreError
        If the files cannot be written.
    """
    with contextlib.ExitStack() as stack:
        with disk_errors(folder):
            files = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2)]
        vectors, width = _spill_into(files[0], files[1], reader, on, prepare, place, width, folder)
        table = SpilledTable(vectors, CarriedColumns.of(files[1]))
        weakref.finalize(table, stack.pop_all().close)
    return table, width


def _spill_into(
    file: Any, others: Any, reader: pa.RecordBatchReader, on: str, prepare: Prepare, place: str, width: int | None,
    folder: Path,
) -> tuple[VectorFile, int | None]:  # fmt: skip
    """Write the vectors of a stream to one file, its other columns to another."""
    import pyarrow as pa

    vectors = VectorFile(file)
    names = [name for name in reader.schema.names if name != on]
    kept = [_plain_field(reader.schema.field(name)) for name in names]
    if not kept:
        kept = [pa.field("row", pa.int64())]
    schema = pa.schema(kept)
    with pa.ipc.new_stream(others, schema) as writer:
        for batch in small_batches(reader):
            raw = vectors_of(batch.column(on), width, place, vectors.n)
            width, first = raw.shape[1], vectors.n
            prepared = prepare(raw, first)
            columns = [batch.column(name).cast(field.type) for name, field in zip(names, kept)] if names else None
            if columns is None:
                columns = [pa.array(np.arange(first, first + batch.num_rows))]
            with disk_errors(folder):
                vectors.append(prepared)
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    with disk_errors(folder):
        vectors.file.flush()
    return vectors, width


def _plain_field(given: pa.Field) -> pa.Field:
    """Return a field in a type from which rows can be taken, without metadata."""
    import pyarrow as pa

    kind = given.type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    if pa.types.is_binary_view(kind):
        kind = pa.large_binary()
    return pa.field(given.name, kind, given.nullable)
