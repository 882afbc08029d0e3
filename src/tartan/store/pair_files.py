"""Pairs or triples of a run in files: Parquet, or text with one of them a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.cells import cell_column
from tartan.base.files import arrow_file
from tartan.base.text_table import text_lines
from tartan.store.parquet import write_batches

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {"csv": ",", "tsv": "\t"}
KEYS = ("key_i", "key_j")


def write_pairs(
    reader: pa.RecordBatchReader,
    path: Path,
    kind: str,
    *,
    keys: bool = True,
    key_names: Sequence[str] = KEYS,
    **ways: Any,
) -> None:
    """Write all pairs of a reader to a file, a batch at a time.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
        Columns i, j, key_i, key_j and scores.
    path : Path
    kind : {"parquet", "csv", "tsv"}
    keys : bool
        Whether text has the names of the items too, in its last columns; Parquet always has them.
    key_names : sequence of str
        Columns of the names.
    **ways
        How Parquet is written: ``compression``, ``use_dictionary``. Text ignores them.
    """
    if kind == "parquet":
        with arrow_file(path, "wb") as file:
            write_batches(file, reader, **ways)
        return
    separator = SEPARATORS[kind]
    columns = [name for name in reader.schema.names if name not in key_names] + (list(key_names) if keys else [])
    with reader, arrow_file(path, "wb") as file:
        file.write((separator.join(columns) + "\n").encode())
        for batch in reader:
            cells = [cell_column(batch[name]) if name in key_names else batch[name] for name in columns]
            file.write(text_lines(cells, separator))
