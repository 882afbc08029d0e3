"""Pairs of a run in files: Parquet, or text with one pair a line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import arrow_file

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {"csv": ",", "tsv": "\t"}
KEYS = ("key_i", "key_j")


def write_pairs(reader: pa.RecordBatchReader, path: Path, kind: str, *, keys: bool = True, **ways: Any) -> None:
    """Write all pairs of a reader to a file, a batch at a time.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
        Columns i, j, key_i, key_j and scores.
    path : Path
    kind : {"parquet", "csv", "tsv"}
    keys : bool
        Whether text has the names of the items too, in its last columns; Parquet always has them.
    **ways
        How Parquet is written: ``compression``, ``use_dictionary``. Text ignores them.
    """
    names: list[str] = reader.schema.names
    chosen = names
    if kind in SEPARATORS:
        chosen = [name for name in names if name not in KEYS] + (list(KEYS) if keys else [])
    with _writer(path, kind, reader.schema, chosen, ways) as write:
        for batch in reader:
            write(batch.select(chosen))


@contextlib.contextmanager
def _writer(
    path: Path, kind: str, schema: pa.Schema, columns: list[str], ways: dict[str, Any]
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    chosen = pa.schema([schema.field(name) for name in columns])
    if kind == "parquet":
        with arrow_file(path, "wb") as file, pq.ParquetWriter(file, chosen, **ways) as parquet:
            yield parquet.write_batch
        return
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in chosen])
    options = pa.csv.WriteOptions(include_header=False, delimiter=SEPARATORS[kind], quoting_style="needed")
    with arrow_file(path, "wb") as file:
        file.write((SEPARATORS[kind].join(columns) + "\n").encode())
        with pa.csv.CSVWriter(file, plain, write_options=options) as text:
            yield lambda batch: text.write_batch(batch.cast(plain))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type whose values Arrow writes as text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.float32() if pa.types.is_float16(kind) else kind
