"""Pairs of a run in files: Parquet, or text with one pair a line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import arrow_file
from tartan.base.text_table import text_lines

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
    import pyarrow.parquet as pq

    chosen = pa.schema([schema.field(name) for name in columns])
    if kind == "parquet":
        with arrow_file(path, "wb") as file, pq.ParquetWriter(file, chosen, **ways) as parquet:
            yield parquet.write_batch
        return
    separator = SEPARATORS[kind]
    with arrow_file(path, "wb") as file:
        file.write((separator.join(columns) + "\n").encode())
        yield lambda batch: file.write(text_lines(batch.columns, separator))
