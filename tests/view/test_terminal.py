from __future__ import annotations

import io
import re

import numpy as np
import pytest

from tartan.view.demo import Terminal, matrix_text, terminal_of

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"COLORTERM": "truecolor"}, True),
        ({"COLORTERM": "24bit"}, True),
        ({}, False),
        ({"COLORTERM": "truecolor", "NO_COLOR": "1"}, False),
        ({"COLORTERM": "truecolor", "TERM": "dumb"}, False),
    ],
)
def test_colour_only_where_the_terminal_says_so(environ, colour):
    assert terminal_of(Screen(), environ).colour is colour
    assert terminal_of(io.StringIO(), environ).colour is False


def test_blocks_only_in_unicode():
    assert terminal_of(Screen(), {}).blocks
    assert not terminal_of(io.TextIOWrapper(io.BytesIO(), encoding="ascii"), {}).blocks


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("n", [1, 3, 24, 100, 300])
@pytest.mark.parametrize("columns", [20, 80, 200])
def test_lines_keep_the_width(n, columns, colour):
    values = np.random.default_rng(1).random((n, n))
    *lines, legend = matrix_text(values, Terminal(columns, colour, True)).split("\n")
    widths = {len(ANSI.sub("", line)) for line in lines}
    assert len(widths) == 1
    assert widths.pop() <= min(columns, 96)
    assert len(lines) <= 48
    assert "|" in legend


def test_shades_follow_values():
    values = np.array([[0.0, 1.0], [0.0, 1.0]])
    line = matrix_text(values, Terminal(2, False, True), limits=(0.0, 1.0)).split("\n")[0]
    assert line == 32 * " " + 32 * "█" or set(line[: len(line) // 2]) == {" "}
    assert set(line[len(line) // 2 :]) == {"█"}


def test_ascii_terminal_gets_ascii():
    values = np.random.default_rng(1).random((9, 9))
    values[2, 3] = np.nan
    drawn = matrix_text(values, Terminal(40, False, False))
    assert drawn.isascii()
    assert matrix_text(values, Terminal(40, True, False)).isascii()


def test_gaps_are_marked_and_explained():
    values = np.random.default_rng(1).random((8, 8))
    assert "not known" not in matrix_text(values, Terminal())
    values[0:4, 4:8] = np.nan
    drawn = matrix_text(values, Terminal())
    assert "?" in drawn.split("\n")[0]
    assert drawn.endswith("?: not known")


@pytest.mark.parametrize("n", [2, 3, 5, 9, 40])
def test_an_uncomputed_diagonal_is_no_gap(n):
    values = np.ones((n, n))
    np.fill_diagonal(values, np.nan)
    drawn = matrix_text(values, Terminal(40, False, True))
    assert "?" not in drawn
    assert ("\\" in drawn) == (n < 40)


@pytest.mark.slow
def test_no_items():
    assert matrix_text(np.zeros((0, 0)), Terminal()) == "(no pairs)"
