"""Read CSV and TSV as bytes: every value as it stands in the file, or an error that names the row.

There are two ways of quoting. In ``double`` a value that begins with a quote ends with one, may hold separators and
line ends, and its own quotes are doubled; anywhere else a quote is a character. In ``none`` all quotes are
characters. Lines end with LF or CR LF. A line without anything is not a row, unless there is one column. The text is
taken apart by native code (``delimited.rs``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan._native import find_end_of_rows, read_first_row, split_rows
from tartan.base.daemon_pool import ahead, map_ahead
from tartan.errors import ConfigError, ItemError
from tartan.sort.text_form import TextForm

# By judgement: a block is split into rows while it lies in the second cache. No benchmark.
BLOCK_BYTES = 1 << 20
# By judgement: a quote that is never closed must not take the memory of the sort. No benchmark.
MOST_ROW_BYTES = 16 << 20
"""Longest row, or line, that is read."""
WRITTEN = "line"
"""Name of the column that holds rows as they are written."""
_BOM = b"\xef\xbb\xbf"
_Split = tuple[
    int, int, list[tuple[np.ndarray, np.ndarray, np.ndarray, int]], tuple[str, int, int, int] | None
]  # rows, where the last one ends, columns, and what is wrong


def read_names(stream: Any, splitter: RowSplitter) -> list[bytes]:
    """Return the names in the first line of a file; none if it is empty."""
    for _ in read_rows(stream, splitter, []):
        break
    return splitter.names


def read_rows(
    stream: Any,
    splitter: RowSplitter,
    wanted: Sequence[int],
    *,
    block_bytes: int = BLOCK_BYTES,
    n_threads: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as columns of large_binary, called by their places: ``"0"``, ``"2"``.

    Parameters
    ----------
    stream : file
        Whose ``read`` returns bytes.
    splitter : RowSplitter
        One that has read nothing yet; it knows the end of the rows that were yielded.
    wanted : sequence of int
        Places of the columns.
    block_bytes : int
        How much is read at once.
    n_threads : int
        With more than one, another thread reads, and so many take the text apart, ahead of who uses the rows.

    Raises
    ------
    ItemError
        If a row is not one of the table.
    """
    text = b""
    if not splitter.names:
        start = stream.read(len(_BOM))
        text = start.removeprefix(_BOM)
        splitter.end += len(start) - len(text)
    while not splitter.names and (block := stream.read(block_bytes)):
        text += block
        batch, end = splitter.split(text, wanted)
        splitter.end += end
        text = text[end:]
        if len(text) > MOST_ROW_BYTES:
            splitter.refuse_unclosed(text)
        if batch is not None:
            yield batch
    blocks = _WholeRows(stream, splitter, text, block_bytes)

    def take_apart(text: bytes) -> tuple[bytes, _Split]:
        return text, splitter.take_apart(text, wanted)

    if n_threads > 1:
        with contextlib.closing(map_ahead(take_apart, ahead(iter(blocks)), n_threads)) as split:
            for text, found in split:
                splitter.end += len(text)
                yield splitter.make_batch(text, found, wanted)
    else:
        for text in blocks:
            splitter.end += len(text)
            yield splitter.make_batch(text, splitter.take_apart(text, wanted), wanted)
    text = blocks.rest
    if len(text) > MOST_ROW_BYTES:
        splitter.split(text, wanted)  # which knows better what is wrong with it, if something is
        splitter.refuse_unclosed(text)
    if text:
        splitter.end += len(text)
        text = text if text.endswith(b"\n") else text + b"\n"
        batch, end = splitter.split(text, wanted)
        if end < len(text):
            splitter.refuse_unclosed(text[end:])
        if batch is not None:
            yield batch


class _WholeRows:
    """The text of a file in blocks that end with a row; what is left of it stays in ``rest``."""

    def __init__(self, stream: Any, splitter: RowSplitter, rest: bytes, block_bytes: int) -> None:
        self._stream, self._splitter, self.rest, self._block_bytes = stream, splitter, rest, block_bytes

    def __iter__(self) -> Iterator[bytes]:
        while len(self.rest) <= MOST_ROW_BYTES and (block := self._stream.read(self._block_bytes)):
            text = self.rest + block
            end = self._splitter.find_end(text)
            self.rest = text[end:]
            if end:
                yield text[:end]


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
    written : tuple of (sequence of int, TextForm), optional
        Columns that also come as rows of text in another form, with line ends, in a column called ``"line"``.

    Attributes
    ----------
    names : list of bytes
        Of the columns, once the first line was read.
    n_rows : int
        Rows that were split, without the first line.
    end : int
        Byte of the file behind the rows that ``read_rows`` has yielded.
    """

    def __init__(
        self,
        path: str,
        separator: str,
        *,
        quoted: bool,
        nulls: bool = False,
        header: bool = True,
        written: tuple[Sequence[int], TextForm] | None = None,
    ) -> None:
        self.names: list[bytes] = []
        self.n_rows = self.end = 0
        self._path, self._quoted, self._nulls, self._header = path, quoted, nulls, header
        self._separator = ord(separator)
        self._written = written
        self._blank_before = 0  # lines without anything before the first row, of which nobody knows yet what they are

    def begin_at(self, offset: int, names: Sequence[bytes]) -> None:
        """Begin with a row in the middle of a file, whose columns have these names."""
        self.end, self.names = offset, list(names)

    def split(self, text: bytes, wanted: Sequence[int]) -> tuple[pa.RecordBatch | None, int]:
        """Return the rows of a text that are whole, and where the last of them ends; None as long as none is.

        Parameters
        ----------
        text : bytes
            Begins with a row.
        wanted : sequence of int
            Places of the columns.

        Raises
        ------
        ItemError
            If a row has other values than the first line has names, a quote is followed by anything but a separator or
            a line end, or a carriage return by anything but a line end.
        ConfigError
            If a value cannot be written in the other form.
        """
        begin = 0
        if not self.names:
            begin = self._read_first(text)
            if not self.names:
                return None, begin
        rest = text[begin:] if begin else text
        blank, self._blank_before = self._blank_before, 0
        if blank and len(self.names) == 1 and not self._header:
            rest, begin = b"\n" * blank + rest, begin - blank
        found = self.take_apart(rest, wanted)
        return self.make_batch(rest, found, wanted), begin + found[1]

    def find_end(self, text: bytes) -> int:
        """Return where the last whole row of a text ends that begins with one."""
        return find_end_of_rows(text, self._separator, self._quoted)

    def take_apart(self, text: bytes, wanted: Sequence[int]) -> _Split:
        """Split a text behind the line of names; several threads may at a time. ``make_batch`` takes what comes out."""
        line = None
        if self._written is not None:
            places, form = self._written
            line = (list(places), ord(form.separator), form.quoted)
        return split_rows(
            text,
            self._separator,
            self._quoted,
            width=len(self.names),
            columns=list(wanted),
            nulls=self._nulls,
            line=line,
        )

    def make_batch(self, text: bytes, found: _Split, wanted: Sequence[int]) -> pa.RecordBatch:
        """Return the rows of a text that was taken apart; texts come in the order of the file.

        Raises
        ------
        ItemError, ConfigError
            As ``split`` does.
        """
        n_rows, _, columns, wrong = found
        if wrong is not None:
            self._refuse(text, *wrong)
        self.n_rows += n_rows
        names = [*map(str, wanted), *([WRITTEN] if self._written is not None else [])]
        arrays = [_array(n_rows, *column) for column in columns]
        if self._nulls and len(self.names) == 1:
            arrays = [pc.if_else(pc.equal(array, b""), None, array) for array in arrays]
        if not arrays:  # a batch without columns has no rows
            return pa.RecordBatch.from_arrays([pa.nulls(n_rows)], names=["rows"])
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _read_first(self, text: bytes) -> int:
        """Find the names in the first line; return how much of the text is done with."""
        end, blank, values, wrong = read_first_row(text, self._separator, self._quoted)
        if wrong is not None:
            self._refuse(text, *wrong)
        if values is None:
            self._blank_before += blank
            return end
        if self._header:
            self.names = list(values)
            return end
        self.names = [b"column_%d" % number for number in range(1, len(values) + 1)]
        return 0

    def _refuse(self, text: bytes, kind: str, row: int, one: int, other: int) -> NoReturn:
        """Refuse what other programs would read in other ways."""
        number = self.n_rows + row + 1 if self.names else self._first_row
        if kind == "ragged":
            raise self._error(
                number,
                f"has {_format_count(one, 'value')}, and the first line "
                f"{_format_count(len(self.names), 'name' if self._header else 'value')}; mend it"
                + ("" if self._quoted else ", or give --quote double if separators or line ends stand within quotes"),
            )
        if kind == "return":
            raise self._error(number, "has a carriage return that is not part of a line end; write line ends as LF")
        if kind == "goes on":
            raise self._error(
                number,
                f"has a value that goes on behind its quotes: {_show(text[one : other + 10])}; double "
                "quotes within quotes, or give --quote none if quotes are plain characters",
            )
        assert self._written is not None
        raise make_unwritable_error(number, self._path, self.names[one], self._written[1])

    @property
    def _first_row(self) -> int:
        """Number of the row that comes next, of this block; 0 for a line of names."""
        return 0 if self._header and not self.names else 1

    def refuse_unclosed(self, text: bytes) -> NoReturn:
        """Refuse a text whose first row does not end."""
        row = self.n_rows + self._first_row
        if not self._quoted or b'"' not in text[:MOST_ROW_BYTES]:
            raise self._error(row, f"has more than {MOST_ROW_BYTES:,} bytes; shorten it")
        raise self._error(
            row,
            f"has a quote that is not closed: {_show(text)}; close it, or give --quote none if quotes are plain "
            "characters",
        )

    def _error(self, row: int, what: str) -> ItemError:
        where = f"row {row:,}" if row else "the first line"
        return ItemError(f"{where} of {self._path} {what}", context={"path": self._path, "row": row})


def make_unwritable_error(row: int, path: str, name: bytes, target: TextForm) -> ConfigError:
    """Return the error for a value that the destination has no way to write; row 0 is the line of names."""
    where = f"row {row:,}" if row else "the first line"
    return ConfigError(
        f"{where} of {path} has a separator or a line end in column {show_name(name)!r}, which {target.kind.upper()} "
        "without quotes cannot hold; say `quote='double'`",
        context={"path": path, "row": row},
    )


def show_name(name: bytes) -> str:
    """Return a name of a column for messages."""
    return name.decode("utf-8", "backslashreplace")


def _array(n: int, offsets: np.ndarray, data: np.ndarray, valid: np.ndarray, nulls: int) -> pa.Array:
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(pa.large_binary(), n, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


def _format_count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _show(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
