"""CSV and TSV taken apart: as Python's strict reader does, whatever stands at the edge of a block."""

from __future__ import annotations

import csv
import io
import random

import pytest

from tartan.errors import ItemError
from tartan.sort.delimited import RowSplitter, read_names, read_rows

Rows = list[list[bytes]]


def read(text: bytes, separator: str = ",", *, quoted: bool = True, block_bytes: int = 7, n_threads: int = 1) -> Rows:
    """Return the names and the rows."""
    names = read_names(io.BytesIO(text), RowSplitter("t.csv", separator, quoted=quoted))
    splitter = RowSplitter("t.csv", separator, quoted=quoted)
    batches = read_rows(io.BytesIO(text), splitter, range(len(names)), block_bytes=block_bytes, n_threads=n_threads)
    rows = [list(row) for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    assert splitter.n_rows == len(rows)
    return [names, *rows] if names else []


def told_by_python(text: str) -> Rows | str:
    """Return what Python reads; "error" for text that is not a table."""
    try:
        rows = [[value.encode() for value in row] for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
    except csv.Error:
        return "error"
    first = next((number for number, row in enumerate(rows) if row), len(rows))
    if first == len(rows):
        return []
    width = len(rows[first])
    rows = [row or [b""] for row in rows[first:] if row or width == 1]
    return rows if all(len(row) == width for row in rows) else "error"


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_what_python_reads_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = "".join(rng.choice(["a", '"', '"', "\n", "\r\n", ",", "é"]) for _ in range(rng.randrange(14)))
        try:
            found: Rows | str = read(text.encode(), block_bytes=rng.randrange(1, 20), n_threads=1 + seed % 3)
        except ItemError:
            found = "error"
        assert found == told_by_python(text), repr(text)


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_python_writes(separator: str, end: str) -> None:
    rng = random.Random(0)
    for _ in range(50):
        rows = [[rng.choice(['"', "a,b", "x\ty", "1\r\n2", "", '6" pipe']) for _ in "abc"] for _ in range(4)]
        stream = io.StringIO()
        csv.writer(stream, delimiter=separator, lineterminator=end).writerows(rows)
        found = read(stream.getvalue().encode(), separator, block_bytes=rng.randrange(1, 30))
        assert found == [[value.encode() for value in row] for row in rows]


def test_quotes_are_characters_if_said() -> None:
    text = b'x\ty"z\n2\t"hello\n1\t""\n"\t"p"q\r\n'
    rows = [[b"x", b'y"z'], [b"2", b'"hello'], [b"1", b'""'], [b'"', b'"p"q']]
    assert read(text, "\t", quoted=False) == rows


def test_blank_lines_and_marks_of_order() -> None:
    assert read(b"\xef\xbb\xbf\n\na,b\n\n1,2\n\r\n3,4") == [[b"a", b"b"], [b"1", b"2"], [b"3", b"4"]]
    assert read(b'a\n\n1\n""\n') == [[b"a"], [b""], [b"1"], [b""]], "one column: an empty value is a row"
    assert read(b"\n\n") == read(b"") == []
    assert read(b"a,a\n1,2\n") == [[b"a", b"a"], [b"1", b"2"]]
    assert read(b"gr\xf6\xdfe\n1\n") == [[b"gr\xf6\xdfe"], [b"1"]]


WRONG = [
    (b"a,b\n1,2\n\n3\n", "row 2 of t.csv has 1 value, and the first line 2 names"),
    (b"a,b\n1,2,3\n", "row 1 of t.csv has 3 values"),
    (b'a,b\n1,2\n1,"p"q\n', r"row 2 of t.csv has a value that goes on behind its quotes: '\"p\"q"),
    (b'a,b\n1,2\n1,"p" \n', "row 2 of t.csv has a value that goes on"),
    (b'a,b\n1,"2\n1,2\n', "row 1 of t.csv has a quote that is not closed: '1,\"2"),
    (b'a,"b\n1,2\n1,2\n', "the first line of t.csv has a quote that is not closed"),
    (b'a,"b"c\n1,2\n', "the first line of t.csv has a value that goes on"),
    (b"a,b\n1,2\r3,4\n", "row 1 of t.csv has a carriage return"),
    (b"a\r1\r2\n", "the first line of t.csv has a carriage return"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("block_bytes", [3, 1000])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_what_is_no_table_is_refused_by_its_row(text: bytes, says: str, block_bytes: int, n_threads: int) -> None:
    with pytest.raises(ItemError, match=says):
        read(text, block_bytes=block_bytes, n_threads=n_threads)


def test_threads_read_what_one_reads() -> None:
    rng = random.Random(3)
    stream = io.StringIO()
    rows = [[rng.choice(['"', "a,b", "", "1\n2", 'a"b', "\n\n"]) for _ in "abc"] for _ in range(2000)]
    csv.writer(stream).writerows([["x", "y", "z"], *rows])
    text = stream.getvalue().encode()
    assert read(text, block_bytes=100, n_threads=4) == read(text, block_bytes=1 << 20)


@pytest.mark.slow
def test_quotes_that_are_not_closed_take_no_more_memory_than_a_row_may() -> None:
    text = b'a,b\n1,"' + b"x,y\n" * (5 << 20)
    with pytest.raises(ItemError, match=r"row 1 of t\.csv has a quote that is not closed"):
        read(text, block_bytes=1 << 20)
    with pytest.raises(ItemError, match=r"row 1 of t\.csv has more than"):
        read(b"a,b\n" + b"x" * (18 << 20), block_bytes=4 << 20)
