"""Tables as Parquet files. Those of a run folder have checksums of their pages, which reading verifies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import FileWriter, arrow_file

if TYPE_CHECKING:
    import pyarrow as pa


def write_table(path: Path, table: pa.Table, writer: FileWriter) -> None:
    """Write a table of a run folder."""
    import pyarrow.parquet as pq

    with writer.new_file(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table of a run folder, or some of its columns.

    Raises
    ------
    ValueError, OSError
        If the file is damaged or cannot be read.
    """
    import pyarrow.parquet as pq

    with arrow_file(path) as file, pq.ParquetFile(file, page_checksum_verification=True) as table:
        return table.read(None if columns is None else list(columns))


def write_batches(file: Any, batches: pa.RecordBatchReader, **options: Any) -> None:
    """Write batch after batch to an open file; ``options`` are those of ``pyarrow.parquet.ParquetWriter``."""
    import pyarrow.parquet as pq

    with batches, pq.ParquetWriter(file, batches.schema, **options) as parquet:
        for batch in batches:
            parquet.write_batch(batch)


def is_whole(path: Path, schema: pa.Schema) -> bool:
    """Whether there is an undamaged table of a schema; reads it to its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with arrow_file(path) as file, pq.ParquetFile(file, page_checksum_verification=True) as table:
            n_rows = sum(batch.num_rows for batch in table.iter_batches())
            return bool(table.schema_arrow.equals(schema)) and n_rows == table.metadata.num_rows
    except (pa.ArrowException, OSError, ValueError):
        return False
