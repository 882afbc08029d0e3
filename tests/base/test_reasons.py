"""Lines and tracebacks of what user code raises have a bounded length, and keep their ends and their cause."""

from __future__ import annotations

from tartan.base.format import LONGEST_LINE, LONGEST_TRACEBACK, traceback_of


def test_a_long_message_loses_its_middle_and_the_cause_stays() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("head " + "x" * 100_000 + " tail") from inner
    except ValueError as error:
        text = traceback_of(error)
    assert len(text) < LONGEST_LINE + 2_000
    assert "KeyError: 'inner'" in text
    assert "ValueError: head xxx" in text
    assert text.endswith("xxx tail\n")


def test_a_message_of_many_lines_loses_its_middle() -> None:
    text = traceback_of(ValueError("\n".join(str(number) for number in range(100_000))))
    assert LONGEST_TRACEBACK <= len(text) < LONGEST_TRACEBACK + 10
    assert text.endswith("99999\n")
