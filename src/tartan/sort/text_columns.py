"""Rows of text as the form of records takes them: what is carried, and the columns that are compared."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tartan.sort.delimited import WRITTEN
from tartan.sort.exact import keys_of
from tartan.sort.text_files import TextKey, read_part
from tartan.sort.text_reader import TextReader


@dataclass(frozen=True)
class TextColumns:
    """See the module.

    Attributes
    ----------
    schema : pyarrow.Schema
        What is carried, then what is compared and not written.
    keys : tuple of TextKey
    kinds : tuple of pyarrow.DataType or None
        How each part of the key is compared as numbers; None: as text.
    added : tuple of bool
        Whether each part of the key has columns of its own.
    as_lines : bool
        Whether rows are carried as they are written.
    total_order : bool
    """

    schema: pa.Schema
    keys: tuple[TextKey, ...]
    kinds: tuple[pa.DataType | None, ...]
    added: tuple[bool, ...]
    as_lines: bool
    total_order: bool

    def arrange(self, rows: pa.RecordBatch, source: TextReader) -> pa.RecordBatch:
        """Return the columns of the schema."""
        carried = [WRITTEN] if self.as_lines else source.carried
        columns = [rows.column(place) for place in carried]
        for key, kind, added, place in zip(self.keys, self.kinds, self.added, source.compared, strict=True):
            column = rows.column(place)
            if kind is not None:
                columns += keys_of(column, kind, total_order=self.total_order)
            elif added:
                columns.append(read_part(column, key))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
