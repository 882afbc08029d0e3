"""Read and write lines, CSV and TSV for a sort: plain, gzip or zstd.

The values of a row are carried as the bytes that they are; numeric keys are columns of their own that are not written.
One pass over the sources shows how long rows are, and which columns of the key hold numbers.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan.base.confined import open_unfinished
from tartan.base.text_table import concatenate, text_lines, with_line_ends
from tartan.errors import ConfigError, ItemError
from tartan.sort.exact import NumberFacts, facts_of, first_text
from tartan.sort.printing import TextType, find_exact_types
from tartan.sort.text_form import BEGINNING_BYTES, TextForm, open_text, refuse_beginning

LINE = "line"
# By format: 65,536 less keys and lengths that stand beside the text.
MOST_ROW_BYTES = 65_000
"""Longest line, or values of a row together: a record has 65,536 bytes at most."""
# By judgement: a block is split into rows while it lies in the second cache. No benchmark.
_BLOCK_BYTES = 1 << 20
_DAMAGE = (pa.ArrowException, OSError, EOFError, zlib.error)


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

    Attributes
    ----------
    names : list of bytes
        Columns of the file: those of its first line, or ``[b"line"]``.
    carried, compared : list of str
        Places of the columns that are carried, and of those of the key.
    n_rows : int
    longest : dict of str to int
        Bytes of the longest value of each column that is carried.
    numbers : list of NumberFacts or None
        For each key what numbers all its values are; None if they are text.
    has_nulls : dict of str to bool
        Whether there are rows without a value in a column that is carried or compared; only if values are typed.
    types : dict of str to tuple of TextType or None
        Types that a column that is carried may have in a table; None if it has no value.
    part_bytes : int
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
    ) -> None:
        self.path = path
        self.form = form
        self.shown = shown or str(path)
        self._target, self._typed = target or form, typed
        self._forbidden = _forbidden(form, self._target)
        self._refuse_other_kinds()
        self.names = [LINE.encode()] if form.kind == "lines" else self._header()
        every = range(len(self.names))
        self.carried = [str(place) for place in every] if columns is None else [self._place(name) for name in columns]
        self.compared = [self._place(key.column) for key in keys]
        if form.kind != "lines":
            for place in self.carried:
                self._refuse_forbidden(pa.array([self.names[int(place)]], pa.large_binary()), place, 0)
        self._keys = list(keys)
        self._key_longest = [0] * len(self._keys)
        self.n_rows = 0
        self.longest = dict.fromkeys(self.carried, 0)
        self.has_nulls = dict.fromkeys((*self.carried, *self.compared), False)
        self.types: dict[str, tuple[TextType, ...] | None] = dict.fromkeys(self.carried)
        self.numbers = [NumberFacts() if key.as_number is not False and key.stop < 0 else None for key in keys]
        self.part_bytes = 16 * _BLOCK_BYTES
        for batch in self.rows():
            self._look_at(batch)

    def rows(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield rows from ``first`` on: the columns that are carried or compared, called by their places.

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
        except _DAMAGE as error:
            raise self._make_damaged_error(error) from error

    def longest_of(self, key: TextKey) -> int:
        """Return the bytes of the longest text that a part of a key compares."""
        return self._key_longest[self._keys.index(key)]

    def _place(self, name: str) -> str:
        """Return the place of a column."""
        wanted = name.encode("utf-8", "surrogateescape")  # as the command line gives bytes of another encoding
        if self.names.count(wanted) != 1:
            how = "has no column" if wanted not in self.names else "has several columns"
            there = ", ".join(map(show_name, self.names))
            hint = "; its names are quoted: add --quote double" if b'"%b"' % wanted in self.names else ""
            raise ConfigError(
                f"{self.shown} {how} {show_name(wanted)!r}; there are {there}{hint}", context={"column": name}
            )
        return str(self.names.index(wanted))

    def _make_damaged_error(self, error: Exception) -> ItemError:
        return ItemError(f"{self.shown} cannot be read as {self.form.kind}: {error}", context={"path": str(self.path)})

    def _refuse_other_kinds(self) -> None:
        try:
            with self.path.open("rb") as file:
                refuse_beginning(self.shown, file.read(BEGINNING_BYTES), self.form.codec)
        except OSError as error:
            raise self._make_damaged_error(error) from error

    def _splitter(self) -> RowSplitter:
        return RowSplitter(self.shown, self.form.separator, quoted=self.form.quoted, nulls=self._typed)

    def _header(self) -> list[bytes]:
        """Return the names in the first line."""
        try:
            with open_text(self.path, self.form.codec) as stream:
                names = read_names(stream, self._splitter())
        except _DAMAGE as error:
            raise self._make_damaged_error(error) from error
        if not names:
            raise self._make_damaged_error(ValueError("it is empty, and should begin with a line of column names"))
        return names

    def _table(self) -> Iterator[pa.RecordBatch]:
        wanted = sorted({int(place) for place in (*self.carried, *self.compared)})
        with open_text(self.path, self.form.codec) as stream:
            yield from read_rows(stream, self._splitter(), wanted)

    def _lines(self) -> Iterator[pa.RecordBatch]:
        number, rest = 1, b""
        with open_text(self.path, self.form.codec) as stream:
            while block := stream.read(_BLOCK_BYTES):
                text = rest + block
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if end:
                    lines = _split(text[:end])
                    number += len(lines)
                    yield pa.RecordBatch.from_arrays([lines], names=["0"])
                if len(rest) > MOST_ROW_BYTES:
                    self._refuse_long(number, len(rest), more=True)
        if rest:
            yield pa.RecordBatch.from_arrays([_split(rest + b"\n")], names=["0"])

    def _look_at(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch, and see how long and of which kinds its values are."""
        lengths = np.zeros(batch.num_rows, np.int64)
        for name in self.carried:
            length = pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy(zero_copy_only=False)
            self.longest[name] = max(self.longest[name], int(length.max(initial=0)))
            lengths += length
            self._refuse_forbidden(batch.column(name), name, self.n_rows + 1)
            if self._typed:
                self._narrow(batch.column(name), name)
        if lengths.max(initial=0) > MOST_ROW_BYTES:
            row = int(np.argmax(lengths > MOST_ROW_BYTES))
            self._refuse_long(self.n_rows + row + 1, int(lengths[row]))
        for name in self.has_nulls:
            self.has_nulls[name] |= batch.column(name).null_count > 0
        for place, (key, column) in enumerate(zip(self._keys, self.compared, strict=True)):
            self._widen(place, key, batch.column(column))
        self.n_rows += batch.num_rows

    def _refuse_forbidden(self, column: pa.Array, name: str, first_row: int) -> None:
        """Refuse values that the destination has no way to write; row 0 is the line of names."""
        if self._forbidden is None:
            return
        found = pc.match_substring_regex(column, self._forbidden)
        if pc.any(found).as_py():
            row = first_row + pc.index(found, True).as_py()
            where = f"row {row:,}" if row else "the first line"
            raise ConfigError(
                f"{where} of {self.shown} has a separator or a line end in column "
                f"{show_name(self.names[int(name)])!r}, which {self._target.kind.upper()} without quotes cannot hold; "
                "say `quote='double'`",
                context={"path": str(self.path), "row": row},
            )

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

    def _refuse_long(self, row: int, length: int, *, more: bool = False) -> None:
        what = "line" if self.form.kind == "lines" else "row"
        size = f"more than {MOST_ROW_BYTES:,} bytes" if more else f"{length:,} bytes"
        raise ConfigError(
            f"{what} {row:,} of {self.shown} has {size}, and {MOST_ROW_BYTES:,} are the most; "
            + ("shorten it" if what == "line" else "leave long columns out with `columns=`, or shorten it"),
            context={"path": str(self.path), "row": row, "n_bytes": length},
        )

    def _widen(self, place: int, key: TextKey, column: pa.Array) -> None:
        """Find out which numbers a key holds."""
        longest = int(pc.max(pc.binary_length(column)).as_py() or 0)
        if key.stop >= 0:
            longest = min(max(longest - key.start, 0), key.stop - key.start)
        self._key_longest[place] = max(self._key_longest[place], longest)
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


def show_name(name: bytes) -> str:
    """Return a name of a column for messages."""
    return name.decode("utf-8", "backslashreplace")


def is_utf8(text: bytes) -> bool:
    """Tell whether bytes are text in UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _forbidden(form: TextForm, target: TextForm) -> str | None:
    """Return a pattern of what values of one form may hold and another form cannot; None for nothing."""
    if target.kind == "lines" or target.quoted or (not form.quoted and form.separator == target.separator):
        return None
    return f"[{target.separator}\r\n]"


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
    names : sequence of bytes
        Of the columns; they are the first line of CSV and TSV.
    quote_empty : bool
        Whether empty texts are written as ``""``, and nothing stands for null.
    """

    def __init__(self, path: Path, form: TextForm, names: Sequence[bytes], *, quote_empty: bool = False) -> None:
        self._form, self._quote_empty = form, quote_empty
        file = open(open_unfinished(path, os.O_WRONLY | os.O_TRUNC), "wb")  # noqa: SIM115 - finish and abandon close it
        self._file: Any = file if form.codec == "none" else pa.CompressedOutputStream(file, form.codec)
        if form.kind != "lines":
            self._file.write(self._text([pa.array([name], pa.large_binary()) for name in names]))

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


# Read CSV and TSV as bytes: every value as it stands in the file, or an error that names the row.
#
# There are two ways of quoting. In ``double`` a value that begins with a quote ends with one, may hold separators and
# line ends, and its own quotes are doubled; anywhere else a quote is a character. In ``none`` all quotes are
# characters. Lines end with LF or CR LF. A line without anything is not a row, unless there is one column.

# By judgement: as _BLOCK_BYTES above.
BLOCK_BYTES = 1 << 20
# By judgement: a quote that is never closed must not take the memory of the sort. No benchmark.
_MOST_ROW_BYTES = 16 << 20  # of a row that is read; what is carried of it is shorter
_QUOTE, _LF, _CR = b'"\n\r'
_BOM = b"\xef\xbb\xbf"


def read_names(stream: Any, splitter: RowSplitter) -> list[bytes]:
    """Return the names in the first line of a file; none if it is empty."""
    for _ in _blocks(stream, splitter, BLOCK_BYTES):
        if splitter.names:
            break
    return splitter.names


def read_rows(
    stream: Any, splitter: RowSplitter, wanted: Sequence[int], *, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as columns of large_binary, called by their places: ``"0"``, ``"2"``.

    Parameters
    ----------
    stream : file
        Whose ``read`` returns bytes.
    splitter : RowSplitter
        One that has read nothing yet.
    wanted : sequence of int
        Places of the columns.
    block_bytes : int
        How much is read at once.

    Raises
    ------
    ItemError
        If a row is not one of the table.
    """
    for values in filter(len, _blocks(stream, splitter, block_bytes)):
        width = len(splitter.names)
        first = np.arange(0, len(values), width)
        columns = [values.take(pa.array(first + place)) for place in wanted]
        yield pa.RecordBatch.from_arrays(columns, names=[str(place) for place in wanted])


def _blocks(stream: Any, splitter: RowSplitter, block_bytes: int) -> Iterator[pa.Array]:
    """Yield the values of whole rows, row after row."""
    text = stream.read(len(_BOM)).removeprefix(_BOM)
    while block := stream.read(block_bytes):
        values, end = splitter.split(text + block)
        text = (text + block)[end:]
        if len(text) > _MOST_ROW_BYTES:
            splitter.refuse_unclosed(text)
        yield values
    if text:
        values, end = splitter.split(text if text.endswith(b"\n") else text + b"\n")
        if end < len(text):
            splitter.refuse_unclosed(text[end:])
        yield values


class _Marks(NamedTuple):
    """Where things are in a text of whole lines: places of bytes, in order.

    Attributes
    ----------
    ends : numpy.ndarray of int64
        Separators and line ends.
    is_last : numpy.ndarray of bool
        Which of them are line ends.
    quotes : numpy.ndarray of int64
        Quotes that open or close, in turns.
    returns : numpy.ndarray of int64
        Carriage returns outside of quotes.
    """

    ends: np.ndarray
    is_last: np.ndarray
    quotes: np.ndarray
    returns: np.ndarray


class RowSplitter:
    """Split text into the values of its rows.

    Parameters
    ----------
    path : str
        For messages.
    separator : str
        One character of ASCII.
    quoted : bool
        Whether quotes are doubled; else they are characters.
    nulls : bool
        Whether values without anything, not even quotes, are null; of a single column also those within quotes, which
        is how they are written there.

    Attributes
    ----------
    names : list of bytes
        Values of the first line, once it was read.
    n_rows : int
        Rows that were split, without the first line.
    """

    def __init__(self, path: str, separator: str, *, quoted: bool, nulls: bool = False) -> None:
        self.names: list[bytes] = []
        self.n_rows = 0
        self._path, self._quoted, self._nulls = path, quoted, nulls
        self._separator = ord(separator)

    def split(self, text: bytes) -> tuple[pa.Array, int]:
        """Return the values of the rows of a text that are whole, and where the last of them ends.

        Raises
        ------
        ItemError
            If a row has other values than the first line has names, a quote is followed by anything but a separator or
            a line end, or a carriage return by anything but a line end.
        """
        data = np.frombuffer(text, np.uint8)
        marks = self._marks(data)
        if not len(marks.ends):
            return pa.array([], pa.large_binary()), 0
        data = data[: marks.ends[-1] + 1]
        empty = _empty_values(data, marks)
        blank = _blank_lines(marks, empty)
        self._check(data, marks, blank)
        values = _values(data, marks, empty if self._nulls else None)
        is_last = marks.is_last
        if not self.names:
            first = int(np.argmin(blank))
            end = first + int(np.argmax(is_last[first:])) + 1
            self.names = [] if blank.all() else pc.fill_null(values.slice(first, end - first), b"").to_pylist()
            values, is_last, blank = values.slice(end), is_last[end:], blank[end:]
        return self._rows(values, is_last, blank), len(data)

    def _rows(self, values: pa.Array, is_last: np.ndarray, blank: np.ndarray) -> pa.Array:
        """Return values without lines that are not rows; refuse rows of another length."""
        width = len(self.names)
        if not self.names:
            return values.slice(0, 0)
        if width > 1 and blank.any():
            values, is_last = values.filter(pa.array(~blank)), is_last[~blank]
        lengths = np.diff(np.flatnonzero(is_last), prepend=-1)
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise self._error(
                self.n_rows + row + 1,
                f"has {_format_count(int(lengths[row]), 'value')}, and the first line "
                f"{_format_count(width, 'name')}; mend it"
                + ("" if self._quoted else ", or give --quote double if separators or line ends stand within quotes"),
            )
        self.n_rows += len(lengths)
        return pc.if_else(pc.equal(values, b""), None, values) if self._nulls and width == 1 else values

    def _marks(self, data: np.ndarray) -> _Marks:
        quotes = _find_quotes(data, self._separator) if self._quoted else np.zeros(0, np.int64)
        outside = _outside(quotes, len(data))
        ends = np.flatnonzero(((data == self._separator) | (data == _LF)) & outside)
        is_last = data[ends] == _LF
        whole = int(np.flatnonzero(is_last)[-1]) + 1 if is_last.any() else 0
        ends = ends[:whole]
        end = int(ends[-1]) + 1 if whole else 0
        returns = np.flatnonzero((data[:end] == _CR) & outside[:end])
        return _Marks(ends, is_last[:whole], quotes[quotes < end], returns)

    def _check(self, data: np.ndarray, marks: _Marks, blank: np.ndarray) -> None:
        """Refuse what other programs would read in other ways."""
        lone = marks.returns[data[marks.returns + 1] != _LF]
        if len(lone):
            row = self._row_at(int(lone[0]), marks, blank)
            raise self._error(row, "has a carriage return that is no part of a line end; write line ends as LF")
        closing = marks.quotes[1::2]
        after = data[closing + 1]
        fine = (after == self._separator) | (after == _LF) | (after == _CR)
        fine[: len(marks.quotes[2::2])] |= closing[: len(marks.quotes[2::2])] + 1 == marks.quotes[2::2]
        if not fine.all():
            place = int(closing[np.argmin(fine)])
            opening = int(marks.quotes[0::2][np.argmin(fine)])
            raise self._error(
                self._row_at(place, marks, blank),
                f"has a value that goes on behind its quotes: {_show(data[opening : place + 10].tobytes())}; double "
                "quotes within quotes, or give --quote none if quotes are plain characters",
            )

    def _row_at(self, place: int, marks: _Marks, blank: np.ndarray) -> int:
        """Return the number of the row at a place of the text; 0 for the line of names."""
        counted = marks.is_last & ~blank if len(self.names) != 1 else marks.is_last
        before = int(np.count_nonzero(counted & (marks.ends < place)))
        return self.n_rows + before + (1 if self.names else 0)

    def refuse_unclosed(self, text: bytes) -> NoReturn:
        """Refuse a text whose first row does not end."""
        row = self.n_rows + 1 if self.names else 0
        if not self._quoted or b'"' not in text[:_MOST_ROW_BYTES]:
            raise self._error(row, f"has more than {_MOST_ROW_BYTES:,} bytes; shorten it")
        raise self._error(
            row,
            f"has a quote that is not closed: {_show(text)}; close it, or give --quote none if quotes are plain "
            "characters",
        )

    def _error(self, row: int, what: str) -> ItemError:
        where = f"row {row:,}" if row else "the first line"
        return ItemError(f"{where} of {self._path} {what}", context={"path": self._path, "row": row})


def _find_quotes(data: np.ndarray, separator: int) -> np.ndarray:
    """Return the places of quotes that open or close a value, in turns; two in a row are a doubled one."""
    quotes = np.flatnonzero(data == _QUOTE)
    before = data[quotes - 1]
    begins = (before == separator) | (before == _LF) | (quotes == 0)
    follows = np.diff(quotes, prepend=-2) == 1
    opening = begins[0::2] | follows[0::2]
    if opening.all():
        return quotes
    return quotes[_open_and_close(begins.tolist(), follows.tolist(), 2 * int(np.argmin(opening)))]


def _open_and_close(begins: list[bool], follows: list[bool], first: int) -> list[int]:
    """Return the numbers of quotes that open or close, one by one from the first that is a plain character."""
    found = list(range(first))
    inside = closed = False
    for number in range(first, len(begins)):
        if inside:
            inside, closed = False, True
        elif begins[number] or (closed and follows[number]):
            inside, closed = True, False
        else:
            closed = False
            continue
        found.append(number)
    return found


def _outside(quotes: np.ndarray, n_bytes: int) -> np.ndarray:
    """Return which bytes are outside of quotes."""
    if not len(quotes):
        return np.ones(n_bytes, bool)
    steps = np.zeros(n_bytes, np.int8)
    steps[quotes[0::2]] = 1
    steps[quotes[1::2]] = -1
    outside: np.ndarray = np.cumsum(steps, dtype=np.int8) == 0
    return outside


def _empty_values(data: np.ndarray, marks: _Marks) -> np.ndarray:
    """Return which values are nothing at all, not even quotes."""
    starts = np.concatenate([[0], marks.ends[:-1] + 1])
    length = marks.ends - starts
    empty: np.ndarray = (length == 0) | ((length == 1) & (data[starts] == _CR) & marks.is_last)
    return empty


def _blank_lines(marks: _Marks, empty: np.ndarray) -> np.ndarray:
    """Return which values are lines without anything."""
    begins_line = np.concatenate([[True], marks.is_last[:-1]])
    blank: np.ndarray = empty & begins_line & marks.is_last
    return blank


def _values(data: np.ndarray, marks: _Marks, missing: np.ndarray | None) -> pa.Array:
    """Return what stands between the ends, without quotes that open or close, and null where it is missing."""
    keep = np.ones(len(data), bool)
    keep[marks.ends] = False
    keep[marks.returns] = False
    keep[marks.quotes] = False
    opening, closing = marks.quotes[2::2], marks.quotes[1::2]
    keep[opening[opening == closing[: len(opening)] + 1]] = True  # the second of a doubled quote
    offsets = np.zeros(len(marks.ends) + 1, np.int64)
    offsets[1:] = np.cumsum(keep, dtype=np.int64)[marks.ends]
    validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data[keep])]
    return pa.Array.from_buffers(pa.large_binary(), len(marks.ends), buffers)


def _format_count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _show(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
