"""Types of columns of text: a type is given only if it prints every value back as it stood."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.errors import ConfigError
from tartan.sort.printing import (
    TextType,
    common_type,
    find_exact_types,
    first_out_of_range,
    parse_texts,
    print_values,
    refuse_unprintable_type,
)

TRICKY = [
    "0", "1", "-1", "007", "+1", "-0", "-0.0", "1.0", "1.50", "1.5", ".5", "5.", "1e5", "1E5", "1e-05", "1e-5", "NaN",
    "nan", "inf", "-inf", "TRUE", "true", "false", "True", "2024-01-31", "2024-02-30", "24-01-31", "2024-1-3", "0x10",
    "1_000", "1,000", " 7", "7 ", "", "9223372036854775807", "9223372036854775808", "1" * 38, "1" * 39,
    "0.1" + 40 * "0", "123456789.123456789123", "2024-01-31 10:00:00", "٣", "1e400", "null", "\x00", "1e22",
    "0.30000000000000004", "10000000000.0", "10000000000", "12345678901.5", "1700000000000.25", "1e+10",
    "100000000000000000000000", "0.00001", "1e+16", "1e16", "10000-01-01", "0000-01-01", "-5.00", "0.00",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(TRICKY),
    st.integers().map(str),
    st.floats().map(str),
    st.floats(width=32).map(lambda value: f"{value:g}"),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.dates().map(str),
    st.text(alphabet="0123456789.-+eE", max_size=6),
)


def found_type(values: Sequence[str | None]) -> tuple[pa.Array, TextType]:
    column = pa.array([None if value is None else value.encode() for value in values], pa.large_binary())
    return column, common_type([find_exact_types(column, None)])


def said(value: Any, *, short: bool) -> str:
    """Print a value without Arrow."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, float) and short and float(value).is_integer() and abs(value) < 1e15:
        return str(value).removesuffix(".0")
    return str(value)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_type_prints_every_value_as_it_stood(values: list[str]) -> None:
    column, found = found_type([*values, None])
    back = parse_texts(column, found.kind)
    assert print_values(back, short=found.short).to_pylist() == [*values, None]
    if not found.short or all(1e-4 <= abs(float(value)) < 1e15 or float(value) == 0 for value in values):
        assert [said(value, short=found.short) for value in back.to_pylist()[:-1]] == values


@pytest.mark.parametrize(
    ("values", "kind", "short"),
    [
        (["1", "-20", "0"], pa.int64(), False),
        (["1.0", "2.55", "1e-05"], pa.float64(), False),
        (["1", "2.55", "-0"], pa.float64(), True),
        (["1700000000000.25", "1.5"], pa.float64(), False),
        (["10000000000", "2.5"], pa.float64(), True),
        (["12.50", "3.00"], pa.decimal128(18, 2), False),
        (["12345678901234567890", "5"], pa.decimal128(38, 0), False),
        (["12.50", "1234567890123456789012345678901234.00"], pa.decimal128(38, 2), False),
        (["2024-01-31", "0001-12-01"], pa.date32(), False),
        (["true", "false"], pa.bool_(), False),
        (["7", None, "8"], pa.int64(), False),
        ([None, None], pa.string(), False),
        ([], pa.string(), False),
    ],
)
def test_types_that_are_found(values: list[str | None], kind: pa.DataType, short: bool) -> None:
    assert found_type(values)[1] == TextType(kind, short)


@pytest.mark.parametrize(
    "values",
    [["007"], ["0000-01-01"], ["1", "1e5"], ["1.10", "1.1"], ["NaN", "1.0"], ["nan"], ["inf"], ["TRUE"], ["True"],
     ["1", ""], ["+1"],
     ["2024-01-31 10:00:00"], ["2024-1-31"], ["1" * 39], ["0.5", "5"  , "0.50"], ["1", "a"], ["-0.00"], [" 1"]],
)  # fmt: skip
def test_what_stays_text(values: list[str]) -> None:
    assert found_type(values)[1] == TextType(pa.string())


def test_files_have_the_type_that_fits_all() -> None:
    texts: list[list[str | None]] = [["1", "2"], ["2.5"], [None], ["1e-5", "3"]]
    columns = [pa.array([t and t.encode() for t in some], pa.large_binary()) for some in texts]
    assert common_type([find_exact_types(column, None) for column in columns[:2]]) == TextType(pa.float64(), True)
    assert common_type([find_exact_types(columns[2], None), find_exact_types(columns[0], None)]).kind == pa.int64()
    assert (
        common_type([find_exact_types(column, None) for column in columns]).kind == pa.string()
    )  # 1e-5 is 0.00001 there
    narrowed = None
    for column in columns[:3]:
        narrowed = find_exact_types(column, narrowed)
    assert common_type([narrowed]) == TextType(pa.float64(), True)


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=5), st.sampled_from([np.float64, np.float32, np.float16]))
def test_floats_read_back(values: list[float | None], kind: type[np.floating[Any]]) -> None:
    with np.errstate(over="ignore"):
        column = pa.array([None if value is None else kind(value) for value in values], pa.from_numpy_dtype(kind))
    for value, text in zip(column.to_pylist(), print_values(column).to_pylist(), strict=True):
        if value is None or math.isnan(value):
            assert text == (None if value is None else "nan")
        else:
            assert str(kind(float(text))) == str(kind(value)), text
            assert kind is not np.float64 or text == repr(float(value))


def test_other_values() -> None:
    small = pa.array([decimal.Decimal("0.0000000"), decimal.Decimal("0.0000012"), None], pa.decimal128(18, 7))
    assert print_values(small).to_pylist() == ["0.0000000", "0.0000012", None]
    zone = pa.array([datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)], pa.timestamp("ms", "Asia/Tokyo"))
    assert print_values(zone).to_pylist() == ["2024-01-31 12:00:00.000Z"]
    assert print_values(pa.array(["b", None, "a"]).dictionary_encode()).to_pylist() == ["b", None, "a"]
    assert print_values(pa.nulls(2)).to_pylist() == [None, None]
    assert print_values(pa.array([True, False])).to_pylist() == ["true", "false"]
    assert print_values(pa.array(["x"], pa.string_view())).to_pylist() == ["x"]


def test_dates_without_text() -> None:
    days = pa.array([0, None, 2932897], pa.date32())  # the last is in the year 10,000
    assert first_out_of_range(print_values(days), days.type) == 2
    assert first_out_of_range(print_values(days.slice(0, 2)), days.type) is None
    far = pa.array([0, 2**62], pa.timestamp("us"))
    assert first_out_of_range(print_values(far), far.type) == 1
    times = pa.array([0, 86_400_000], pa.time32("ms"))
    assert first_out_of_range(print_values(times), times.type) == 1


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.duration("us"), pa.uuid(), pa.bool8(), pa.binary(3), pa.dictionary(pa.int8(), pa.binary())]
)
def test_types_without_text(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column 'x' is .*, which CSV has no text for; leave it out"):
        refuse_unprintable_type(pa.field("x", kind), "CSV")
    refuse_unprintable_type(pa.field("x", pa.json_()), "CSV")
