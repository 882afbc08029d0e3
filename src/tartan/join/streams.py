"""Tables that are given for a join, as streams of record batches of few rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tartan.base.files import arrow_file, is_parquet
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

# By judgement: so many rows of a thousand numbers are a few MB. No benchmark.
BATCH_ROWS = 4096
# By judgement: what is read of a file at once. No benchmark.
_READ_BYTES = 1 << 20
# By format: numbers that NumPy has, too, up to 64 bits.
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float",
            "double")  # fmt: skip


class TableGiven(NamedTuple):
    """A table that is not read yet."""

    schema: pa.Schema
    open: Callable[[], pa.RecordBatchReader]


def look_at(given: Any, name: str) -> TableGiven:
    """Return the columns of a table, and what opens it: DuckDB has one open result of a connection at a time.

    Parameters and errors as of :func:`open_stream`.
    """
    if _is_relation(given):
        return TableGiven(open_stream(given.limit(0), name).read_all().schema, lambda: open_stream(given, name))
    reader = open_stream(given, name)
    return TableGiven(reader.schema, lambda: reader)


def _is_relation(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] in ("duckdb", "_duckdb") and hasattr(given, "limit")


def open_stream(given: Any, name: str) -> pa.RecordBatchReader:
    """Return a reader of a table.

    Parameters
    ----------
    given : object
        Anything with ``__arrow_c_stream__`` (a relation of DuckDB, a frame of Polars or pandas, a table or reader of
        PyArrow), a record batch, or the path of a Parquet or Arrow file.
    name : str
        What messages call it.

    Raises
    ------
    ConfigError
        If it is none of these, or a file cannot be read.
    """
    import pyarrow as pa

    if isinstance(given, str | os.PathLike):
        return _open_file(Path(given), name)
    if isinstance(given, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(given.schema, [given])
    if isinstance(given, pa.RecordBatchReader):
        return given
    if _is_relation(given):
        # Its stream has batches of a million rows.
        for method in ("to_arrow_reader", "fetch_arrow_reader", "fetch_record_batch"):
            if hasattr(given, method):
                return getattr(given, method)(BATCH_ROWS)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given)
    way_out = ": call .collect() first" if type(given).__name__ == "LazyFrame" else ""
    raise ConfigError(
        f"{name} is a {type(given).__module__}.{type(given).__name__}{way_out}; give a table with __arrow_c_stream__ "
        "(DuckDB, Polars, pandas, PyArrow) or the path of a Parquet or Arrow file"
    )


def _open_file(path: Path, name: str) -> pa.RecordBatchReader:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if is_parquet(path):
            file = pq.ParquetFile(arrow_file(path), buffer_size=_READ_BYTES, pre_buffer=False)
            batches = file.iter_batches(BATCH_ROWS, use_threads=False)
            return pa.RecordBatchReader.from_batches(file.schema_arrow, batches)
        return _open_arrow(path)
    except (pa.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{name}: {path} cannot be read as a Parquet or Arrow file: {reason}") from error


def _open_arrow(path: Path) -> pa.RecordBatchReader:
    import pyarrow as pa

    try:
        file = pa.ipc.open_file(arrow_file(path))
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(arrow_file(path))
    batches = (file.get_batch(at) for at in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


def small_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``BATCH_ROWS`` rows; slices share the memory of what they are of."""
    for batch in reader:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def find_vectors(schema: pa.Schema, on: str | None, name: str) -> str:
    """Return the column of vectors: the one that is named, else the only one with lists of numbers.

    Raises
    ------
    ConfigError
        If there is no such column, it has no vectors, or there are several.
    """
    require_column(schema, on, name)
    if on is not None:
        if number_type(schema.field(on).type) is None:
            raise ConfigError(
                f"{name}: the column {on!r} has the type {schema.field(on).type}; vectors are lists or fixed-size "
                "lists of numbers"
            )
        return on
    found = [field.name for field in schema if number_type(field.type) is not None]
    if len(found) != 1:
        what = "no column has" if not found else f"the columns {', '.join(found)} have"
        raise ConfigError(f"{name}: {what} lists of numbers; say which column holds the vectors with on=NAME (--on)")
    return str(found[0])


def require_column(schema: pa.Schema, column: str | None, name: str) -> None:
    """Refuse a column that is not there, or there twice.

    Raises
    ------
    ConfigError
    """
    if column is None:
        return
    count = schema.names.count(column)
    if count == 0:
        raise ConfigError(f"{name} has no column {column!r}; it has {', '.join(schema.names) or 'none'}")
    if count > 1:
        raise ConfigError(f"{name} has {count} columns {column!r}; rename all but one")


def number_type(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the type of the numbers in lists; None where these are not lists of numbers."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    views = (pa.types.is_list_view, pa.types.is_large_list_view)
    if not any(check(kind) for check in (*lists, *views)):
        return None
    inner = kind.value_type
    if str(inner) not in _NUMBERS:
        return None
    found: np.dtype[Any] = np.dtype(inner.to_pandas_dtype())
    return found


def vectors_of(column: pa.Array, width: int | None, place: str, first_row: int) -> np.ndarray:
    """Return the vectors (m, d) of a column of lists; a view where that is possible.

    Parameters
    ----------
    column : pyarrow array of lists
    width : int or None
        How many numbers there must be; None: as many as the first row has.
    place : str
        What messages call the column.
    first_row : int
        Number of the first of these rows, for messages.

    Raises
    ------
    ConfigError
        If a row is null, holds a null, or has another width.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise ConfigError(f"{place}, row {row}: the vector is null; leave such rows out first")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    wanted = int(lengths[0]) if width is None else width
    odd = np.flatnonzero(lengths != wanted)
    if len(odd) or wanted == 0:
        row, found = first_row + int(odd[0] if len(odd) else 0), int(lengths[odd[0]] if len(odd) else 0)
        raise ConfigError(
            f"{place}, row {row}: the vector has {found} values, and {wanted or 'at least one'} are wanted"
        )
    values = column.flatten()  # of views, too, in the order of the rows; casts of sliced views lose their ends
    if values.null_count:
        at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise ConfigError(
            f"{place}, row {first_row + at // wanted}: the value at position {at % wanted} is null; leave such rows "
            "out first"
        )
    rows: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(-1, wanted)
    return rows
