"""What a rank reads of rows: it makes the records of exact ranges by itself, as the driver has written down how."""

from __future__ import annotations

import bisect
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from tartan.errors import InputChangedError
from tartan.sort.columns import ColumnKey
from tartan.sort.parquet_types import DateUnit
from tartan.sort.recipes import RowsRecipe, SourceRecipe, TableRecipe, read_form, read_schema, read_text
from tartan.sort.spans import Span
from tartan.sort.table_job import KeyedTable, RowBatches, make_records
from tartan.sort.tables import TableSource
from tartan.sort.text_columns import TextColumns
from tartan.sort.text_reader import MOST_THREADS, TextReader


class RowReader:
    """The records of all sources, from any of them on.

    Parameters
    ----------
    recipe : RowsRecipe
    paths : sequence of Path
        Where the sources are.
    threads : int
    """

    def __init__(self, recipe: RowsRecipe, paths: Sequence[Path], threads: int) -> None:
        self._recipe, self._paths = recipe, list(paths)
        self._form = read_form(recipe.form)
        self._columns = None if recipe.text is None else read_text(recipe.text)
        self._n_makers = 1 if recipe.text is None else min(threads, MOST_THREADS)
        self._spans = [(place, span) for place, source in enumerate(recipe.sources) for span in source.spans]
        self._places = [place for place, _ in self._spans]
        self._begins = [0, *accumulate(span[2] for _, span in self._spans)]

    def records(self, first: int, count: int) -> Generator[np.ndarray, None, None]:
        """Yield some records, from the first on.

        Raises
        ------
        InputChangedError
            If the sources have fewer.
        """
        left = count
        for records in self._records_from(first) if count else ():
            part = records[:left]
            left -= len(part)
            yield part
            if not left:
                return
        if left:
            raise InputChangedError(
                f"{', '.join(map(str, self._paths))}: rows are missing that were there before; keep the sources "
                "unchanged and sort them again"
            )

    def _records_from(self, first: int) -> Iterator[np.ndarray]:
        number = bisect.bisect_right(self._begins, first) - 1
        skip = first - self._begins[number]
        while number < len(self._spans):
            place, span = self._spans[number]
            source = self._open(place)
            batches = source.batches_at(span, skip if self._form.is_row else 0)
            skip = 0 if self._form.is_row else skip
            for records in make_records(self._form, batches, source.arrange, self._n_makers):
                if skip < len(records):
                    yield records[skip:]
                skip = max(0, skip - len(records))
            number = next(
                (at for at in range(number, len(self._spans)) if self._spans[at][0] > place), len(self._spans)
            )

    def _open(self, place: int) -> RowBatches:
        source, path = self._recipe.sources[place], self._paths[place]
        if self._columns is not None:
            return _TextSpans(self._open_text(source, path), self._columns)
        assert self._recipe.table is not None
        return self._open_table(self._recipe.table, path)

    def _open_text(self, source: SourceRecipe, path: Path) -> TextReader:
        text = self._recipe.text
        assert text is not None
        assert source.form is not None
        return TextReader(
            path,
            source.form,
            names=source.names,
            carried=source.carried,
            compared=source.compared,
            target=text.target,
            shown=source.shown,
            typed=text.typed,
            n_threads=self._n_makers,
        )

    def _open_table(self, recipe: TableRecipe, path: Path) -> KeyedTable:
        schema = read_schema(recipe.schema)
        dates: DateUnit = "us" if recipe.dates == "us" else "ns"
        table = TableSource(path, schema.names, dates=dates, batch_bytes=recipe.batch_bytes)
        table.read_as(schema)
        return KeyedTable(table, schema, [ColumnKey(name) for name in recipe.key], self._form)


@dataclass(frozen=True)
class _TextSpans:
    """A file of text whose rows are those of a form."""

    reader: TextReader
    columns: TextColumns

    def batches_at(self, span: Span, skip: int) -> Iterator[pa.RecordBatch]:
        return self.reader.rows(skip, max(0, span[1]))

    def arrange(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.columns.arrange(batch, self.reader)
