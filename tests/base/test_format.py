"""Figures as people read them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.base.format import (
    format_bytes,
    format_count,
    format_duration,
    format_long_count,
    format_number,
    format_rate,
    pluralize,
    round_marks,
    show_value,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (7, "7"), (999, "999"), (1000, "1 k"), (1234, "1.23 k"), (999_999, "1.00 M"), (45_600_000, "45.6 M"),
        (123_400_000, "123 M"), (2**61, "2305843 T"), (0.25, "0.25"),
    ],
)  # fmt: skip
def test_format_count(count: float, text: str) -> None:
    assert format_count(count) == text


def test_pluralize() -> None:
    assert [pluralize(n, "item") for n in (0, 1, 1200)] == ["0 items", "1 item", "1,200 items"]


def test_format_bytes_and_rate() -> None:
    assert format_bytes(512) == "512 B"
    assert format_bytes(4_000_000) == "4 MB"
    assert format_rate(1_234_000) == "1.23 Mpairs/s"
    assert format_rate(12) == "12 pairs/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.253, "0.25 s"), (9.9, "9.9 s"), (45.4, "45 s"), (59.7, "1 min"), (200, "3 min 20 s"), (3600, "1 h"),
        (12_000, "3 h 20 min"), (86_400 * 2 + 4 * 3600 + 59, "2 d 4 h"),
    ],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0, 1e9))
def test_every_duration_has_at_most_two_units(seconds: float) -> None:
    assert len(format_duration(seconds).split()) in (2, 4)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.123456, 3, "0.123"), (2.0, 3, "2"), (12345, 3, "12345"), (np.float32(0.1), 3, "0.1"),
        (np.int64(12345), 3, "12345"), (None, 3, "-"), ("damds", 3, "damds"), (0.123456789, 6, "0.123457"),
        (True, 3, "True"),
    ],
)  # fmt: skip
def test_format_number(value: object, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (12_345, "12,345"), (12_345_678, "12.3 million"), (2e9, "2 billion"), (3e13, "30 trillion")],
)
def test_format_long_count(count: float, text: str) -> None:
    assert format_long_count(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("near", "'near'"),
        (0.5, "0.5"),
        (np.ones((200, 300), "f4"), "an array of shape (200, 300) and dtype float32"),
        ([np.ones(4), "a"], "[an array of shape (4,) and dtype float64, 'a']"),
        (list(range(10**6)), "[0, 1, 2, 3, 4, 5, ...]"),
    ],
)
def test_wrong_values_are_shown_in_one_short_line(value: object, text: str) -> None:
    assert show_value(value) == text


def test_long_values_lose_their_middle() -> None:
    assert len(show_value("x" * 10_000)) <= 120
    assert "\n" not in show_value(object.__new__(type("Odd", (), {"__repr__": lambda self: "a\nb"})))


def test_marks_are_left_out_where_their_texts_would_touch() -> None:
    marks = round_marks(0.0, 1.0, 6)
    assert [text for _, text in marks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert round_marks(0.0, 1.0, 6, letters=20) == marks  # 4 letters apart: a text of 3 and a space
    assert round_marks(0.0, 1.0, 6, letters=19) == marks[::2]
    assert round_marks(0.0, 1.0, 6, letters=1) == marks[:1]
