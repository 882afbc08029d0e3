"""Read and write lines, CSV and TSV for a sort: plain, gzip or zstd.

The values of a row are carried as the bytes that they are; numeric keys are columns of their own that are not written.
One pass over the sources shows how long rows are, and which columns of the key hold numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan.base.confined import open_unfinished
from tartan.base.text_table import concatenate, text_lines, with_line_ends
from tartan.errors import ConfigError
from tartan.sort.delimited import WRITTEN, make_unwritable_error, read_names, show_name
from tartan.sort.exact import NumberFacts, facts_of, first_text
from tartan.sort.pieces import LengthCount, LongTexts
from tartan.sort.printing import TextType, find_exact_types
from tartan.sort.quoted_names import is_number_of
from tartan.sort.spans import RowMarks
from tartan.sort.text_form import BEGINNING_BYTES, TextForm, open_text, refuse_beginning
from tartan.sort.text_reader import DAMAGE, TextReader, skip_rows

LINE = "line"
# By arithmetic: the largest byte; longer numbers say their length in eight more.
_LONG_NUMBER = 255


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
    natural : bool
        Whether numbers within a text are compared as numbers.
    """

    column: str
    as_number: bool | None = None
    start: int = 0
    stop: int = -1
    natural: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the value is compared as it stands."""
        return self.stop < 0 and not self.natural


@dataclass
class TextFacts:
    """How long rows and texts of the key are, of all sources.

    Attributes
    ----------
    keys : list of LongTexts
        One for each part of the key.
    rows : LengthCount
        Of rows as they are written, or, of those of tables, their values together.
    spare_bytes : int
        Memory for rows that are kept until they are read for the second time.
    n_threads : int
        That take text apart ahead of who uses it.
    marked : bool
        Whether it is remembered where rows lie, so that others can read some of them.
    """

    keys: list[LongTexts]
    rows: LengthCount = field(default_factory=LengthCount)
    spare_bytes: int = 0
    n_threads: int = 1
    marked: bool = False


def read_part(column: pa.Array, key: TextKey) -> pa.Array:
    """Return the part of texts that a key compares."""
    if key.natural:
        return order_naturally(column)
    if key.stop < 0:
        return column
    return pc.binary_slice(column.cast(pa.binary()), key.start, key.stop).cast(pa.large_binary())


def order_naturally(column: pa.Array) -> pa.Array:
    """Return texts whose bytes order as the given ones with the numbers in them: ``chr2`` before ``chr10``.

    A number is some digits; in their place come a 0, how many there are without zeros in front, and these.
    """
    coded = column.dictionary_encode()
    texts = [None if text is None else _DIGITS.sub(_write_number, text) for text in coded.dictionary.to_pylist()]
    return pc.take(pa.array(texts, pa.large_binary()), coded.indices)


_DIGITS = re.compile(rb"[0-9]+")


def _write_number(found: re.Match[bytes]) -> bytes:
    digits = found[0].lstrip(b"0")
    n = len(digits)
    length = bytes([n]) if n < _LONG_NUMBER else bytes([_LONG_NUMBER]) + n.to_bytes(8, "big")
    return b"0" + length + digits


class TextSource(TextReader):
    """A file of text to sort; the counterpart of ``TableSource``.

    Columns are known by their places in the file: names may be in any encoding, and repeated.

    Parameters
    ----------
    path : Path
    form : TextForm
    keys : sequence of TextKey
    columns : sequence of str, optional
        Columns that are carried along; default: all.
    target : TextForm, optional
        What the values will be written as; default: the same form.
    shown : str, optional
        What messages call the file.
    typed : bool
        Whether the values become those of a table: their types are looked for, and empty ones are null.
    facts : TextFacts, optional
        Of all sources together; this one's are added.

    Attributes
    ----------
    names : list of bytes
        Columns of the file: those of its first line, or ``[b"line"]``; without a line of names ``column_1`` and on.
    carried, compared : list of str
        Places of the columns that are carried, and of those of the key.
    n_rows : int
    longest : dict of str to int
        Bytes of the longest value of each column of a table that is carried.
    numbers : list of NumberFacts or None
        For each key what numbers all its values are; None if they are text.
    has_nulls : dict of str to bool
        Whether there are rows without a value in a column that is carried or compared; only if values are typed.
    types : dict of str to tuple of TextType or None
        Types that a column that is carried may have in a table; None if it has no value.
    marks : RowMarks or None
        Where rows lie, if the facts are to be ``marked``.
    reading_bytes : int
        Most memory that reading takes.

    Raises
    ------
    ConfigError
        If a column is not there, or a row is too long, has no number where one is needed, or a value cannot be written.
    ItemError
        If the file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        form: TextForm,
        keys: Sequence[TextKey],
        columns: Sequence[str] | None = None,
        *,
        target: TextForm | None = None,
        shown: str | None = None,
        typed: bool = False,
        facts: TextFacts | None = None,
    ) -> None:
        self._together = facts or TextFacts([LongTexts(0) for _ in keys])
        n_threads = self._together.n_threads
        super().__init__(path, form, target=target or form, shown=shown or str(path), typed=typed, n_threads=n_threads)
        self._refuse_other_kinds()
        self.names = [LINE.encode()] if form.kind == "lines" else self._header()
        every = range(len(self.names))
        self.carried = [str(place) for place in every] if columns is None else [self._place(name) for name in columns]
        self.compared = [self._place(key.column) for key in keys]
        self._refuse_unwritable_names()
        self._keys = list(keys)
        self.n_rows = 0
        self.longest = dict.fromkeys(self.carried, 0)
        self.has_nulls = dict.fromkeys((*self.carried, *self.compared), False)
        self.types: dict[str, tuple[TextType, ...] | None] = dict.fromkeys(self.carried)
        self.numbers = [NumberFacts() if key.as_number is not False and key.is_whole else None for key in keys]
        self.marks = RowMarks() if self._together.marked else None
        self._kept: list[pa.RecordBatch] = []
        self._may_keep, self._is_kept = True, False
        begin = 0
        for batch in self.rows():
            self._look_at(batch, begin)
            self._keep(batch)
            begin = self.end
        self._is_kept = self._may_keep

    def rows(self, first: int = 0, offset: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield rows from ``first`` on, as ``TextReader`` does."""
        return skip_rows(self._kept, first) if self._is_kept else super().rows(first, offset)

    def _keep(self, batch: pa.RecordBatch) -> None:
        """Keep rows for the second time that they are read, as long as all of the file fit."""
        n_bytes = batch.nbytes
        if self._may_keep and n_bytes <= self._together.spare_bytes:
            self._together.spare_bytes -= n_bytes
            self._kept.append(batch)
            return
        self._may_keep = False
        self._together.spare_bytes += sum(one.nbytes for one in self._kept)
        self._kept.clear()

    def _place(self, name: str) -> str:
        """Return the place of a column."""
        wanted = name.encode("utf-8", "surrogateescape")  # as the command line gives bytes of another encoding
        if wanted not in self.names and is_number_of(name, len(self.names)):
            return str(int(name) - 1)
        if self.names.count(wanted) != 1:
            how = "has no column" if wanted not in self.names else "has several columns"
            there = ", ".join(map(show_name, self.names))
            hint = "; its names are quoted: add --quote double" if b'"%b"' % wanted in self.names else ""
            if wanted in self.names:
                hint = f"; say which by its number, the first is {self.names.index(wanted) + 1}"
            elif len(self.names) == 1 and self.form.kind != "lines":
                hint = "; if another character stands between values, say `separator=`"
            raise ConfigError(
                f"{self.shown} {how} {show_name(wanted)!r}; there are {there}{hint}", context={"column": name}
            )
        return str(self.names.index(wanted))

    def _refuse_other_kinds(self) -> None:
        try:
            with self.path.open("rb") as file:
                refuse_beginning(self.shown, file.read(BEGINNING_BYTES), self.form.codec)
        except OSError as error:
            raise self._make_damaged_error(error) from error

    def _header(self) -> list[bytes]:
        """Return the names in the first line."""
        try:
            with open_text(self.path, self.form.codec) as stream:
                names = read_names(stream, self._splitter())
        except DAMAGE as error:
            raise self._make_damaged_error(error) from error
        if not names:
            what = "should begin with a line of column names" if self.form.header else "should have rows"
            raise self._make_damaged_error(ValueError(f"it is empty, and {what}"))
        return names

    def _look_at(self, batch: pa.RecordBatch, begin: int) -> None:
        """Count the rows of a batch, which begin at a byte, and see how long and of which kinds its values are."""
        lengths = np.zeros(batch.num_rows, np.int64)
        for name in self.carried if self._typed else ():
            length = pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy(zero_copy_only=False)
            self.longest[name] = max(self.longest[name], int(length.max(initial=0)))
            lengths += length
            self._narrow(batch.column(name), name)
        if not self._typed:
            lengths = pc.binary_length(batch.column(WRITTEN)).to_numpy(zero_copy_only=False)
        self._together.rows.add(lengths)
        if self.marks is not None:
            self.marks.add(lengths, begin)
        for name in self.has_nulls if self._typed else ():
            self.has_nulls[name] |= batch.column(name).null_count > 0
        for place, (key, column) in enumerate(zip(self._keys, self.compared, strict=True)):
            self._widen(place, key, batch.column(column))
        self.n_rows += batch.num_rows

    def _refuse_unwritable_names(self) -> None:
        """Refuse names that the destination has no way to write."""
        form, target = self.form, self._target
        if form.kind == "lines" or not form.header or target.quoted:
            return
        if not form.quoted and form.separator == target.separator:
            return
        for place in self.carried:
            name = self.names[int(place)]
            if set(name) & set(f"{target.separator}\r\n".encode()):
                raise make_unwritable_error(0, self.shown, name, target)

    def _narrow(self, column: pa.Array, name: str) -> None:
        """Find out which types a column of a table may have."""
        try:
            self.types[name] = find_exact_types(column, self.types[name])
        except pa.ArrowInvalid:
            row = (
                self.n_rows + 1 + next(row for row, value in enumerate(column.to_pylist()) if not is_utf8(value or b""))
            )
            raise ConfigError(
                f"row {row:,} of {self.shown} has a value in column {show_name(self.names[int(name)])!r} that is not "
                "UTF-8, as the text of tables is; convert it first (iconv -f LATIN1 -t UTF-8), or sort it to text",
                context={"path": str(self.path), "row": row},
            ) from None

    def _widen(self, place: int, key: TextKey, column: pa.Array) -> None:
        """Find out which numbers a key holds."""
        if key.as_number is not True:
            self._together.keys[place].add(read_part(column, key))
        known = self.numbers[place]
        if known is None:
            return
        found = facts_of(column)
        if found is None and key.as_number:
            row, value = first_text(column)
            raise ConfigError(
                f"{self.shown}: {value!r} in column {key.column!r}, row {self.n_rows + row + 1:,}, is not a "
                "number; write "
                f"{key.column}:text to sort it as text",
                context={"path": str(self.path), "row": self.n_rows + row + 1},
            )
        self.numbers[place] = None if found is None else known | found


def is_utf8(text: bytes) -> bool:
    """Tell whether bytes are text in UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class TextWriter:
    """Write rows as text; the counterpart of ``TableWriter``.

    Parameters
    ----------
    path : Path
        The file under its temporary name.
    form : TextForm
    names : sequence of bytes
        Of the columns; they are the first line of CSV and TSV with one.
    quote_empty : bool
        Whether empty texts are written as ``""``, and nothing stands for null.
    """

    def __init__(self, path: Path, form: TextForm, names: Sequence[bytes], *, quote_empty: bool = False) -> None:
        self._form, self._quote_empty = form, quote_empty
        file = open(open_unfinished(path, os.O_WRONLY | os.O_TRUNC), "wb")  # noqa: SIM115 - finish and abandon close it
        self._file: Any = file if form.codec == "none" else pa.CompressedOutputStream(file, form.codec)
        if form.kind != "lines" and form.header:
            self._file.write(self._text([pa.array([name], pa.large_binary()) for name in names]))

    def write_lines(self, lines: memoryview) -> None:
        """Write rows that are lines in this form already."""
        self._file.write(lines)

    def write(self, batch: pa.RecordBatch, n_columns: int) -> None:
        """Write the rows of the first columns of a batch."""
        self._file.write(self._text(batch.columns[:n_columns]))

    def _text(self, columns: list[pa.Array]) -> memoryview:
        if self._form.quoted:
            return text_lines(columns, self._form.separator, quote_empty=self._quote_empty)
        columns = [pc.fill_null(column, b"") for column in columns]
        joined = columns[0]
        if len(columns) > 1:
            joined = pc.binary_join_element_wise(*columns, pa.scalar(self._form.separator.encode(), pa.large_binary()))
        return concatenate(with_line_ends(joined))

    def finish(self) -> None:
        """Write the end of the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        if not self._file.closed:
            self._file.close()
