"""Read CSV and TSV as bytes: every value as it stands in the file, or an error that names the row.

There are two ways of quoting. In ``double`` a value that begins with a quote ends with one, may hold separators and
line ends, and its own quotes are doubled; anywhere else a quote is a character. In ``none`` all quotes are
characters. Lines end with LF or CR LF. A line without anything is not a row, unless there is one column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan.errors import ItemError

# By judgement: a block is split into rows while it lies in the second cache. No benchmark.
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
    header : bool
        Whether the first line holds names; else columns are called ``column_1`` and on.

    Attributes
    ----------
    names : list of bytes
        Of the columns, once the first line was read.
    n_rows : int
        Rows that were split, without the first line.
    """

    def __init__(self, path: str, separator: str, *, quoted: bool, nulls: bool = False, header: bool = True) -> None:
        self.names: list[bytes] = []
        self.n_rows = 0
        self._path, self._quoted, self._nulls = path, quoted, nulls
        self._separator, self._header = ord(separator), header
        self._blank_before = 0  # lines without anything before the first row, of which nobody knows yet what they are

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
        if not self.names and blank.all():
            self._blank_before += len(blank)
            return values.slice(0, 0), len(data)
        if not self.names:
            first = int(np.argmin(blank))
            end = first + int(np.argmax(is_last[first:])) + 1
            if self._header:
                self.names = pc.fill_null(values.slice(first, end - first), b"").to_pylist()
                values, is_last, blank = values.slice(end), is_last[end:], blank[end:]
            else:
                self.names = [b"column_%d" % number for number in range(1, end - first + 1)]
                before, self._blank_before = self._blank_before, 0
                if len(self.names) == 1 and before:
                    values = pa.concat_arrays([pa.array([b""] * before, pa.large_binary()), values])
                    is_last = np.concatenate([np.ones(before, bool), is_last])
                    blank = np.concatenate([np.ones(before, bool), blank])
        return self._rows(values, is_last, blank), len(data)

    def _rows(self, values: pa.Array, is_last: np.ndarray, blank: np.ndarray) -> pa.Array:
        """Return values without lines that are not rows; refuse rows of another length."""
        width = len(self.names)
        if width > 1 and blank.any():
            values, is_last = values.filter(pa.array(~blank)), is_last[~blank]
        lengths = np.diff(np.flatnonzero(is_last), prepend=-1)
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise self._error(
                self.n_rows + row + 1,
                f"has {_format_count(int(lengths[row]), 'value')}, and the first line "
                f"{_format_count(width, 'name' if self._header else 'value')}; mend it"
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
        return self.n_rows + before + self._first_row

    @property
    def _first_row(self) -> int:
        """Number of the row that comes next, of this block; 0 for a line of names."""
        return 0 if self._header and not self.names else 1

    def refuse_unclosed(self, text: bytes) -> NoReturn:
        """Refuse a text whose first row does not end."""
        row = self.n_rows + self._first_row
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
