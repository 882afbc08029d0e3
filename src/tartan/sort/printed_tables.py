"""Write tables as CSV or TSV: all that has no text that reads back as the same is refused before anything is written.

A row without a value is written as nothing, an empty text as ``""``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tartan.errors import ConfigError
from tartan.sort.printing import first_out_of_range, is_short, print_values, refuse_unprintable_type
from tartan.sort.tables import TableSource
from tartan.sort.text_files import TextWriter
from tartan.sort.text_form import TextForm

Writer = tuple[Callable[[Any], None], Callable[[], None], Callable[[], None]]
"""What writes a batch, what writes the end of a file, and what closes it as it is."""
# By judgement: 2 MiB as text are 10 to 20, within the room that Python has in a sort. No benchmark.
_PART_BYTES = 2 << 20  # of rows that are printed at once: there are several copies of them as text


def open_printing_writer(path: Path, form: TextForm, schema: pa.Schema) -> Writer:
    """Open a file of CSV or TSV to which batches of a schema are written as text."""
    writer = TextWriter(path, form, [name.encode() for name in schema.names], quote_empty=True)

    def write(batch: pa.RecordBatch) -> None:
        rows = 1 + batch.num_rows * _PART_BYTES // (1 + batch.nbytes)
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            texts = [
                print_values(column, short=is_short(field)).cast(pa.large_binary())
                for column, field in zip(part.columns, schema, strict=True)
            ]
            writer.write(pa.RecordBatch.from_arrays(texts, names=schema.names), len(texts))

    return write, writer.finish, writer.abandon


def refuse_unprintable(tables: Sequence[TableSource], schema: pa.Schema, form: TextForm) -> None:
    """Refuse columns and values that have no text; those that may be such are read once.

    Raises
    ------
    ConfigError
    """
    what = form.kind.upper()
    for field in schema:
        refuse_unprintable_type(field, what)
        if form.header and not form.quoted and set(field.name) & {form.separator, "\r", "\n"}:
            raise ConfigError(
                f"the name {field.name!r} has a separator or a line end, which {what} without quotes cannot hold; say "
                "`quote='double'`",
                context={"column": field.name},
            )
    alone = not form.quoted or len(schema) == 1
    for field in schema:
        check = _TextCheck(field, form, tells_nulls=not alone)
        for texts, path, first_row in _texts(tables, field) if check.is_needed else ():
            check.look_at(texts, path, first_row)


def _texts(tables: Sequence[TableSource], field: pa.Field) -> Iterator[tuple[pa.Array, Path, int]]:
    for table in tables:
        row = 1
        for batch in table.batches(columns=[field.name]):
            yield print_values(batch.column(0)), table.path, row
            row += batch.num_rows


class _TextCheck:
    """Looks at the texts of a column."""

    def __init__(self, field: pa.Field, form: TextForm, *, tells_nulls: bool) -> None:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        self._field, self._kind, self._form = field, kind, form
        is_text = not pa.types.is_primitive(kind) and not pa.types.is_decimal(kind) and not pa.types.is_null(kind)
        self._tells_nulls = tells_nulls or not is_text
        self._is_split = is_text and not form.quoted
        self._has_null = self._has_empty = False
        self.is_needed = pa.types.is_temporal(kind) or not self._tells_nulls or self._is_split

    def look_at(self, texts: pa.Array, path: Path, first_row: int) -> None:
        """Refuse texts that do not read back as the values that they are of."""
        what, name = self._form.kind.upper(), self._field.name
        late = first_out_of_range(texts, self._kind)
        if late is not None:
            self._refuse(path, first_row + late, "a date or time that no text holds", "leave it out (columns)")
        if self._is_split:
            split = pc.index(pc.match_substring_regex(texts, f"[{re.escape(self._form.separator)}\r\n]"), True).as_py()
            if split >= 0:
                cannot = f"a separator or a line end, which {what} without quotes cannot hold"
                self._refuse(path, first_row + split, cannot, "say `quote='double'`")
        self._has_null |= texts.null_count > 0
        self._has_empty |= bool(pc.any(pc.equal(texts, "")).as_py())
        if self._has_null and self._has_empty and not self._tells_nulls:
            where = f"{what} of one column" if self._form.quoted else f"{what} without quotes"
            out = "keep another column, too" if self._form.quoted else "say `quote='double'`"
            raise ConfigError(
                f"column {name!r} of {path} has empty texts and rows without a value, which {where} cannot tell apart; "
                f"{out}, or write Parquet",
                context={"path": str(path), "column": name},
            )

    def _refuse(self, path: Path, row: int, what: str, way_out: str) -> None:
        raise ConfigError(
            f"row {row:,} of {path} has in column {self._field.name!r} {what}; {way_out}",
            context={"path": str(path), "column": self._field.name, "row": row},
        )
