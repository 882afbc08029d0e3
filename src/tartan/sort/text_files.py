"""Read and write lines, CSV and TSV for a sort: plain, gzip or zstd.

The values of a row are carried as the bytes that they are; only columns of a numeric key are read as numbers, into
columns of their own that are not written. One pass over the sources shows how long rows are, and which columns of the
key hold numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan.base.files import arrow_file
from tartan.base.text_table import concatenated, text_lines, with_line_ends
from tartan.errors import ConfigError, ItemError
from tartan.sort.text_form import TextForm

SEPARATORS = {"csv": ",", "tsv": "\t"}
LINE = "line"
MOST_ROW_BYTES = 65_000
"""Longest line, or values of a row together: a record has 65,536 bytes at most."""
_BLOCK_BYTES = 1 << 20
_NUMBERS = (pa.int64(), pa.decimal128(38, 0), pa.float64())


@dataclass(frozen=True)
class TextKey:
    """A part of a key of text.

    Attributes
    ----------
    column : str
    as_number : bool or None
        None: where all values are numbers.
    start, stop : int
        Which bytes of the value; a stop of -1 means all.
    """

    column: str
    as_number: bool | None = None
    start: int = 0
    stop: int = -1


class TextSource:
    """A file of text to sort; the counterpart of ``TableSource``.

    Parameters
    ----------
    path : Path
    form : TextForm
    keys : sequence of TextKey
    columns : sequence of str, optional
        Columns that are carried along; default: all.

    Attributes
    ----------
    names : list of str
        Columns of the file: those of its first line, or ``["line"]``.
    n_rows : int
    longest : dict of str to int
        Bytes of the longest value of each column that is carried.
    numbers : list of pyarrow.DataType or None
        For each key the narrowest type that holds all its values; None if they are text.
    part_bytes : int
        Most memory that reading takes.

    Raises
    ------
    ConfigError
        If a column is not there, or a row is too long or has no number where one is needed.
    ItemError
        If the file cannot be read.
    """

    def __init__(
        self, path: Path, form: TextForm, keys: Sequence[TextKey], columns: Sequence[str] | None = None
    ) -> None:
        self.path = path
        self.form = form
        self.compression = form.codec
        self.names = [LINE] if form.kind == "lines" else self._header()
        self.carried = self.names if columns is None else list(columns)
        for name in [*self.carried, *(key.column for key in keys)]:
            if self.names.count(name) != 1:
                how = "has no column" if name not in self.names else "has several columns"
                raise ConfigError(f"{path} {how} {name!r}; there are {', '.join(self.names)}", context={"column": name})
        self._keys = list(keys)
        self._key_longest = [0] * len(self._keys)
        self.n_rows = 0
        self.longest = dict.fromkeys(self.carried, 0)
        self.numbers: list[pa.DataType | None] = [
            _NUMBERS[0] if key.as_number is not False and key.stop < 0 else None for key in keys
        ]
        self.part_bytes = 8 * _BLOCK_BYTES
        for batch in self.rows():
            self._look_at(batch)

    def rows(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield rows from ``first`` on as columns of large_binary, all columns of the file.

        Raises
        ------
        ItemError
            If the file is damaged.
        """
        try:
            for batch in self._lines() if self.form.kind == "lines" else self._table():
                if first >= batch.num_rows:
                    first -= batch.num_rows
                    continue
                yield batch.slice(first)
                first = 0
        except (pa.ArrowException, OSError, EOFError) as error:
            raise ItemError(
                f"{self.path} cannot be read as {self.form.kind}: {error}", context={"path": str(self.path)}
            ) from error

    def longest_of(self, key: TextKey) -> int:
        """Return the bytes of the longest text that a part of a key compares."""
        return self._key_longest[self._keys.index(key)]

    def _open(self) -> Any:
        file = arrow_file(self.path)
        return file if self.form.codec == "none" else pa.CompressedInputStream(file, self.form.codec)

    def _header(self) -> list[str]:
        """Return the names in the first line."""
        try:
            with self._open() as stream:
                names: list[str] = self._reader(stream, ()).schema.names
        except (pa.ArrowException, OSError, EOFError) as error:
            raise ItemError(
                f"{self.path} cannot be read as {self.form.kind}, which begins with a line of column names: {error}",
                context={"path": str(self.path)},
            ) from error
        return names

    def _table(self) -> Iterator[pa.RecordBatch]:
        with self._open() as stream:
            for batch in self._reader(stream, self.names):
                columns = [column.cast(pa.large_binary()) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, names=self.names)

    def _reader(self, stream: Any, names: Sequence[str]) -> Any:
        """Open a table whose named columns are texts as they are."""
        from pyarrow import csv

        return csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=SEPARATORS[self.form.kind], newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types={name: pa.binary() for name in names}),
        )

    def _lines(self) -> Iterator[pa.RecordBatch]:
        number, rest = 1, b""
        with self._open() as stream:
            while block := stream.read(_BLOCK_BYTES):
                text = rest + block
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if end:
                    lines = _split(text[:end])
                    number += len(lines)
                    yield pa.RecordBatch.from_arrays([lines], names=[LINE])
                if len(rest) > MOST_ROW_BYTES:
                    self._refuse_long(number, len(rest), more=True)
        if rest:
            yield pa.RecordBatch.from_arrays([_split(rest + b"\n")], names=[LINE])

    def _look_at(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch, and see how long and of which types its values are."""
        lengths = np.zeros(batch.num_rows, np.int64)
        for name in self.carried:
            length = pc.binary_length(batch.column(name)).to_numpy(zero_copy_only=False)
            self.longest[name] = max(self.longest[name], int(length.max(initial=0)))
            lengths += length
        if lengths.max(initial=0) > MOST_ROW_BYTES:
            row = int(np.argmax(lengths > MOST_ROW_BYTES))
            self._refuse_long(self.n_rows + row + 1, int(lengths[row]))
        for place, key in enumerate(self._keys):
            self._widen(place, key, batch.column(key.column))
        self.n_rows += batch.num_rows

    def _refuse_long(self, row: int, length: int, *, more: bool = False) -> None:
        what = "line" if self.form.kind == "lines" else "row"
        size = f"more than {MOST_ROW_BYTES:,} bytes" if more else f"{length:,} bytes"
        raise ConfigError(
            f"{what} {row:,} of {self.path} has {size}, and {MOST_ROW_BYTES:,} are the most; "
            + ("shorten it" if what == "line" else "leave long columns out (columns), or shorten it"),
            context={"path": str(self.path), "row": row, "n_bytes": length},
        )

    def _widen(self, place: int, key: TextKey, column: pa.Array) -> None:
        """Find the type of a key that holds the values of a column too."""
        longest = int(pc.max(pc.binary_length(column)).as_py() or 0)
        if key.stop >= 0:
            longest = min(max(longest - key.start, 0), key.stop - key.start)
        self._key_longest[place] = max(self._key_longest[place], longest)
        kind = self.numbers[place]
        while kind is not None:
            try:
                numbers_of(column, kind)
                break
            except pa.ArrowInvalid:
                wider = _NUMBERS[_NUMBERS.index(kind) + 1 :]
                kind = wider[0] if wider else None
        if kind is None and self.numbers[place] is not None and key.as_number:
            row, value = _first_text(column)
            raise ConfigError(
                f"{self.path}: {value!r} in column {key.column!r}, row {self.n_rows + row + 1:,}, is no number; write "
                f"{key.column}:text to sort it as text",
                context={"path": str(self.path), "row": self.n_rows + row + 1},
            )
        self.numbers[place] = kind


def numbers_of(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as numbers of a type; empty ones are null.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one is no such number.
    """
    texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    filled = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)
    if pa.types.is_decimal(kind):
        return filled.cast(pa.string()).cast(kind)
    return filled.cast(kind)


def _first_text(column: pa.Array) -> tuple[int, str]:
    for row in range(len(column)):
        try:
            numbers_of(column.slice(row, 1), _NUMBERS[-1])
        except pa.ArrowInvalid:
            return row, column[row].as_py().decode("utf-8", "replace")[:40]
    raise AssertionError("a column that is no number has a value that is none")


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


class TextWriter:
    """Write rows as text; the counterpart of ``TableWriter``.

    Parameters
    ----------
    path : Path
        The file under its temporary name.
    form : TextForm
    names : sequence of str
        Columns to write; their names are the first line of CSV and TSV.
    """

    def __init__(self, path: Path, form: TextForm, names: Sequence[str]) -> None:
        self._form, self._names = form, list(names)
        file = pa.OSFile(os.fsencode(path), "wb")
        self._file: Any = file if form.codec == "none" else pa.CompressedOutputStream(file, form.codec)
        if form.kind != "lines":
            header = [pa.array([name], pa.string()) for name in names]
            self._file.write(text_lines(header, SEPARATORS[form.kind]))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        columns = [batch.column(name) for name in self._names]
        if self._form.kind == "lines":
            self._file.write(concatenated(with_line_ends(columns[0])))
        else:
            self._file.write(text_lines(columns, SEPARATORS[self._form.kind]))

    def finish(self) -> None:
        """Write the end of the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        if not self._file.closed:
            self._file.close()
