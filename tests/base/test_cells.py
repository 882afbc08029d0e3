"""Names as cells of text tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.base.format import in_one_line, printable
from tartan.base.text_table import cell_column, cell_of, name_of

# Letters of which escapes and formulas are made.
LETTERS = st.text(st.sampled_from("\\ntrxu0129af'=+-@.\t\n\r\x1b\u202e\u2028e ,\""), max_size=8)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("photo 1.jpg", "photo 1.jpg"),
        ("ä/é.jpg", "ä/é.jpg"),
        ("C:\\photos", "C:\\photos"),
        ("C:\\new", "C:\\\\new"),
        ("two\nlines", "two\\nlines"),
        ("a\tb\r", "a\\tb\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-", "'-"),
        ("'=1", "''=1"),
        ("'quoted'", "'quoted'"),
        ("-1", "-1"),
        ("+2.5e-3", "+2.5e-3"),
        ("", ""),
    ],
)
def test_cells_of_names(name: str, cell: str) -> None:
    assert (cell_of(name), name_of(cell)) == (cell, name)


@given(LETTERS, LETTERS)
def test_every_name_has_a_cell_of_its_own_on_one_line(one: str, other: str) -> None:
    cell = cell_of(one)
    assert name_of(cell) == one
    assert (cell == cell_of(other)) == (one == other)
    assert printable(in_one_line(cell)) == cell


@given(st.lists(LETTERS, max_size=5))
def test_a_column_has_the_same_cells(names: list[str]) -> None:
    assert cell_column(pa.array(names, pa.string())).to_pylist() == [cell_of(name) for name in names]


def test_what_turns_the_direction_of_writing_is_escaped() -> None:
    assert printable("a\u202eb\u2066c\u200fd\u061c\n\te") == "a\\u202eb\\u2066c\\u200fd\\u061c\n\te"
    assert in_one_line("a\n\tb") == "a\\n\\tb"
