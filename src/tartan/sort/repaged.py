"""Columns of a Parquet file in temporary files, where they take little memory side by side.

A column that is read holds a page, and writers make pages of any size: of a hundred columns with pages of some MB each,
no row can be read within a few hundred MB. So a few columns at a time are read, and written as record batches of some
thousand rows; a batch of each file together is then a batch of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from tartan.base.files import arrow_file, disk_errors
from tartan.errors import InternalError


class RepagedColumns:
    """The columns of a table in files of record batches.

    Parameters
    ----------
    folder : Path
        For the files; empty, and the caller's to remove.
    groups : sequence of sequence of str
        Which columns are read at a time.
    read : callable
        Given columns, yields them in batches; those of different columns have the same rows.
    """

    def __init__(
        self,
        folder: Path,
        groups: Sequence[Sequence[str]],
        read: Callable[[list[str]], Iterator[pa.RecordBatch]],
    ) -> None:
        self._files: list[tuple[Path, list[str]]] = []
        for number, names in enumerate(groups):
            path = folder / f"columns-{number}.arrows"
            self._files.append((path, list(names)))
            self._write(path, read(list(names)))
            pa.default_memory_pool().release_unused()

    @staticmethod
    def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with disk_errors(path), arrow_file(path, "wb") as file:
            writer = None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(file, batch.schema, options=options)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()

    def batches(self, first: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some of the columns from row ``first`` on."""
        wanted = set(names)
        paths = [path for path, there in self._files if wanted.intersection(there) and path.stat().st_size]
        streams = [pa.ipc.open_stream(arrow_file(path)) for path in paths]
        for parts in _align(streams):
            n_rows = parts[0].num_rows
            if first >= n_rows:
                first -= n_rows
                continue
            columns = {field.name: part.column(place) for part in parts for place, field in enumerate(part.schema)}
            batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))
            yield batch.slice(first)
            first = 0


def _align(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches of the same rows: those of dictionaries end where a row group does, others do not."""
    left: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        parts = [
            part if part is not None and part.num_rows else next(stream, None)
            for part, stream in zip(left, streams, strict=True)
        ]
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts) or not parts:
            if whole:
                raise InternalError("temporary files of columns have unlike numbers of rows")
            return
        n_rows = min(part.num_rows for part in whole)
        yield [part.slice(0, n_rows) for part in whole]
        left = [part.slice(n_rows) for part in whole]
