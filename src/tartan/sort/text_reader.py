"""Read the rows of lines, CSV and TSV, plain, gzip or zstd, from their beginning or from where a row begins."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tartan.base.text_table import with_line_ends
from tartan.errors import ConfigError, ItemError
from tartan.sort.delimited import BLOCK_BYTES, MOST_ROW_BYTES, WRITTEN, RowSplitter, read_rows
from tartan.sort.text_form import TextForm, open_text

# By judgement: text, values, lines and records of each block, of which some are read ahead. The tests of 300 MB hold
# the peak.
_READING_BLOCKS = 40
# By arithmetic: each holds a block and what becomes of it, some three blocks, within those that reading may take.
MOST_THREADS = 4
"""Threads that take text apart at a time."""
READING_BYTES = _READING_BLOCKS * BLOCK_BYTES
"""Most memory that reading takes."""
DAMAGE = (pa.ArrowException, OSError, EOFError, zlib.error)
"""What reading a file that is damaged raises."""


class TextReader:
    """A file of text of which the columns are known.

    Parameters
    ----------
    path : Path
    form : TextForm
    names : sequence of bytes
        Of all columns of the file.
    carried, compared : sequence of str
        Places of the columns that are carried, and of those of the key.
    target : TextForm
        What the values will be written as.
    shown : str
        What messages call the file.
    typed : bool
        Whether the values become those of a table: empty ones are null.
    n_threads : int
        That take text apart ahead of who uses it.

    Attributes
    ----------
    end : int
        Byte behind the rows that were yielded last, without what they are compressed with.
    """

    reading_bytes = READING_BYTES

    # One for each field of the recipe that ranks are told.
    def __init__(
        self,
        path: Path,
        form: TextForm,
        *,
        names: Sequence[bytes] = (),
        carried: Sequence[str] = (),
        compared: Sequence[str] = (),
        target: TextForm,
        shown: str,
        typed: bool,
        n_threads: int,
    ) -> None:
        self.path, self.form, self.shown = path, form, shown
        self.names, self.carried, self.compared = list(names), list(carried), list(compared)
        self._target, self._typed, self._n_threads = target, typed, n_threads
        self.end = 0

    def rows(self, first: int = 0, offset: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield rows: the columns that are carried or compared, called by their places.

        Parameters
        ----------
        first : int
            Rows that are left out.
        offset : int
            Byte at which a row begins; rows before it are not counted. Only of files that are not compressed.

        Raises
        ------
        ItemError
            If the file is damaged.
        """
        try:
            yield from skip_rows(self._lines(offset) if self.form.kind == "lines" else self._table(offset), first)
        except DAMAGE as error:
            raise self._make_damaged_error(error) from error

    def _open(self, offset: int) -> Any:
        stream = open_text(self.path, self.form.codec)
        if offset:
            stream.seek(offset)
        self.end = offset
        return stream

    def _make_damaged_error(self, error: Exception) -> ItemError:
        return ItemError(f"{self.shown} cannot be read as {self.form.kind}: {error}", context={"path": str(self.path)})

    def _splitter(self, *, written: bool = False) -> RowSplitter:
        form = self.form
        ways = {"quoted": form.quoted, "nulls": self._typed, "header": form.header}
        places = [int(place) for place in self.carried] if written else []
        return RowSplitter(self.shown, form.separator, **ways, written=(places, self._target) if written else None)

    def _table(self, offset: int) -> Iterator[pa.RecordBatch]:
        columns = (*self.carried, *self.compared) if self._typed else self.compared
        with self._open(offset) as stream:
            splitter = self._splitter(written=not self._typed)
            if offset:
                splitter.begin_at(offset, self.names)
            places = sorted({int(place) for place in columns})
            for batch in read_rows(stream, splitter, places, n_threads=self._n_threads):
                self.end = splitter.end
                yield batch

    def _lines(self, offset: int) -> Iterator[pa.RecordBatch]:
        number, rest = 1, b""
        with self._open(offset) as stream:
            while block := stream.read(BLOCK_BYTES):
                text = rest + block
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if end:
                    lines = _split(text[:end])
                    number += len(lines)
                    self.end += end
                    yield self._batch_of(lines)
                if len(rest) > MOST_ROW_BYTES:
                    self._refuse_long(number, len(rest))
        if rest:
            self.end += len(rest)
            yield self._batch_of(_split(rest + b"\n"))

    def _batch_of(self, lines: pa.Array) -> pa.RecordBatch:
        if self._typed:
            return pa.RecordBatch.from_arrays([lines], names=["0"])
        return pa.RecordBatch.from_arrays([lines, with_line_ends(lines)], names=["0", WRITTEN])

    def _refuse_long(self, row: int, length: int) -> None:
        raise ConfigError(
            f"line {row:,} of {self.shown} has more than {MOST_ROW_BYTES:,} bytes, which are the most; shorten it",
            context={"path": str(self.path), "row": row, "n_bytes": length},
        )


def skip_rows(batches: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches without the first ones."""
    for batch in batches:
        if first >= batch.num_rows:
            first -= batch.num_rows
            continue
        yield batch.slice(first) if first else batch
        first = 0


def _split(text: bytes) -> pa.Array:
    """Return the lines of a text that ends with a line end, without their ends."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == 10)
    keep = np.ones(len(data), bool)
    keep[ends] = False
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    content = pa.py_buffer(data[keep])
    return pa.Array.from_buffers(pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), content])
