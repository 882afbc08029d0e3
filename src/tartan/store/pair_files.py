"""Pairs or triples of a run in files: Parquet, or text with one of them a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import arrow_file
from tartan.base.text_table import cell_column, text_lines
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
    **ways: Any,
) -> None:
    """Write all pairs of a reader to a file, a batch at a time.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
        Columns i, j, key_i, key_j and scores; of triples k and key_k, too.
    path : Path
    kind : {"parquet", "csv", "tsv"}
    keys : bool
        Whether text has the names of the items too, in its last columns; Parquet always has them.
    **ways
        How Parquet is written: ``compression``, ``use_dictionary``. Text ignores them.
    """
    if kind == "parquet":
        with arrow_file(path, "wb") as file:
            write_batches(file, reader, **ways)
        return
    separator, columns = SEPARATORS[kind], reader.schema.names
    first = columns.index("key_i")  # after as many indices as there are names
    key_names = columns[first : 2 * first]
    columns = [name for name in columns if name not in key_names] + (key_names if keys else [])
    with reader, arrow_file(path, "wb") as file:
        file.write((separator.join(columns) + "\n").encode())
        for batch in reader:
            cells = [cell_column(batch[name]) if name in key_names else batch[name] for name in columns]
            file.write(text_lines(cells, separator))
