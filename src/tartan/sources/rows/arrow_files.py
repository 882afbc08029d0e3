"""Parquet and Arrow files as tables that are read from the first row on."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import arrow_file, open_regular
from tartan.errors import ConfigError

# By judgement: as Arrow reads files in small parts without it; a whole row group is read at once otherwise.
_BUFFER_BYTES = 1 << 20
# By judgement: a header line has tens of bytes; a bound against strangers' files.
_MOST_HEADER = 1 << 20
_ARROW_MAGIC = b"ARROW1"


class ParquetTable:
    """A Parquet file.

    Parameters
    ----------
    path : str

    Raises
    ------
    ConfigError
        If it is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with _readable(path, "Parquet"), self._open() as file:
            self.schema = file.schema_arrow
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self.n_rows = int(sum(counts))

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with arrow_file(Path(self.path)) as file:
            yield pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Yield record batches; none reaches over the end of a row group."""
        with self._open() as file:
            for group in range(file.metadata.num_row_groups):
                yield from file.iter_batches(n_rows, row_groups=[group], columns=list(columns), use_threads=False)

    def place(self, row: int) -> str:
        """Say where a row is."""
        group = int(np.searchsorted(self._ends, row, side="right"))
        return f"row {row}" if len(self._ends) < 2 else f"row {row} (row group {group})"


class ArrowTable:
    """An Arrow file (Feather version 2) or stream; buffers that are not packed are mapped, not read.

    Parameters
    ----------
    path : str

    Raises
    ------
    ConfigError
        If it is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with _readable(path, "Arrow"):
            with self._open() as reader:
                self.schema = reader.schema
            with self._open() as reader:
                self._lengths = [batch.num_rows for batch in _batches_of(reader)]
        self.n_rows = sum(self._lengths)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa

        with open_regular(self.path) as file:
            whole = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        with pa.memory_map(str(Path(self.path).absolute())) as mapped:
            yield (pa.ipc.open_file if whole else pa.ipc.open_stream)(mapped)

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Yield record batches."""
        with self._open() as reader:
            for batch in _batches_of(reader):
                chosen = batch.select(list(columns))
                for start in range(0, chosen.num_rows, n_rows):
                    yield chosen.slice(start, n_rows)

    def place(self, row: int) -> str:
        """Say where a row is."""
        if len(self._lengths) < 2:
            return f"row {row}"
        batch = int(np.searchsorted(list(itertools.accumulate(self._lengths)), row, side="right"))
        return f"row {row} (record batch {batch})"


class SeparatedTable:
    """A table of texts, separated by commas or tabs, with the names of its columns in the first line.

    Parameters
    ----------
    path : str

    Raises
    ------
    ConfigError
        If it is none.
    """

    def __init__(self, path: str) -> None:
        import pyarrow as pa

        self.path = path
        with _readable(path, "text"):
            self._table = read_text(Path(path))
        self.schema, self.n_rows = self._table.schema, self._table.num_rows
        if not all(pa.types.is_string(kind) for kind in self.schema.types):  # of lines without columns
            raise ConfigError(f"{path}: this is not a table", context={"input": path})

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Yield record batches."""
        yield from self._table.select(list(columns)).to_batches(n_rows)

    def place(self, row: int) -> str:
        """Say where a row is."""
        return f"row {row}, counted from 0 behind the names of columns,"


def read_text(path: Path) -> Any:
    """Return a table of texts, every value as text.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If it cannot be read.
    """
    from pyarrow import csv

    with open_regular(path) as file:
        first = file.readline(_MOST_HEADER).decode("utf-8-sig")
    delimiter = "\t" if "\t" in first else ","
    with arrow_file(path) as file:
        names = csv.open_csv(file, parse_options=csv.ParseOptions(delimiter=delimiter)).schema.names
    with arrow_file(path) as file:
        return csv.read_csv(
            file,
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, "string"), strings_can_be_null=False),
        )


def _batches_of(reader: Any) -> Iterator[Any]:
    """Yield the record batches of a file or a stream."""
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


@contextlib.contextmanager
def _readable(path: str, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", context={"input": path}) from error
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{path}: this is no {kind} file, or it is damaged ({reason}); write it again", context={"input": path}
        ) from error
