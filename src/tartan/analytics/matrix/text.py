"""Matrices as text: PHYLIP, and tables with or without names. Read once, line by line, into one array."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.materialize import new_square
from tartan.base.cells import name_of
from tartan.errors import ConfigError

Named = tuple[NDArray[Any], tuple[str, ...] | None]
Line = tuple[int, str]
Numbers = NDArray[np.float64]
_STRICT_NAME = 10
_ABSENT = {"", "na", "n/a", "null", "none", "-", "?"}


def read_phylip(path: Path) -> Named:
    """Read distances in PHYLIP's format: square, lower or upper triangle; names of any length, or of ten columns."""
    lines = _lines(path)
    first = next(lines, (1, ""))[1].split()
    if len(first) != 1 or not first[0].isdigit() or int(first[0]) == 0:
        raise ConfigError(f"{path}, line 1: PHYLIP begins with the number of items, not with {' '.join(first)[:40]!r}")
    n = int(first[0])
    _require_room(path, n)
    square, names = new_square(n, np.dtype(np.float64)), []
    shape = ""
    for item in range(n):
        number, line = _next(path, lines, f"item {item + 1} of {n}")
        name, values = _name_and_numbers(path, number, line)
        shape = shape or _shape(len(values), n)
        needed = {"lower": item, "upper": n - item - 1, "square": n}[shape]
        while len(values) < needed:
            values = np.append(values, _numbers(path, *_next(path, lines, f"the distances of {name}")))
        if len(values) > needed:
            raise _wrong_count(path, number, name, len(values), needed)
        _place(square, shape, item, values)
        names.append(name)
    if (left := next(lines, None)) is not None:
        raise ConfigError(f"{path}, line {left[0]}: more follows after the {n} items of line 1")
    return square, tuple(names)


def _require_room(path: Path, n: int) -> None:
    """Refuse a number of items for which the file is too short: a pair takes at least a digit and a blank."""
    least = n * (n - 1) + 2 * n
    if path.stat().st_size < least:
        raise ConfigError(
            f"{path}, line 1: {n:,} items take {least:,} bytes at least, and the file has {path.stat().st_size:,}; it "
            "has been cut off, or this is no PHYLIP"
        )


def _shape(count: int, n: int) -> str:
    """Return which part of the matrix a PHYLIP file has, by its first row."""
    if count == 0:
        return "lower"
    return "upper" if count == n - 1 else "square"


def _place(square: NDArray[Any], shape: str, item: int, values: Numbers) -> None:
    if shape == "square":
        square[item] = values
        return
    others = slice(0, item) if shape == "lower" else slice(item + 1, None)
    square[item, others] = values
    square[others, item] = values


def _name_and_numbers(path: Path, number: int, line: str) -> tuple[str, Numbers]:
    words = line.split()
    try:
        return words[0], np.array(words[1:], np.float64)
    except ValueError:
        # Names of exactly ten columns may have blanks, and the first number may follow without one.
        return line[:_STRICT_NAME].strip(), _numbers(path, number, line[_STRICT_NAME:])


def _numbers(path: Path, number: int, text: str) -> Numbers:
    return _parsed(path, number, text.split())


def _parsed(path: Path, number: int, cells: Sequence[str]) -> Numbers:
    """Return cells as numbers; marks of absent ones become NaN."""
    try:
        return np.array(cells, np.float64)
    except ValueError:
        return np.array([_number(path, number, column, cell) for column, cell in enumerate(cells)], np.float64)


def _number(path: Path, number: int, column: int, cell: str) -> float:
    text = cell.strip()
    if text.lower() in _ABSENT:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{path}, line {number}, number {column + 1}: {text[:40]!r} is no number") from None


def _wrong_count(path: Path, number: int, name: str, count: int, needed: int) -> ConfigError:
    return ConfigError(
        f"{path}, line {number}: {name} has {count} distances where {needed} are due; the matrix is not square",
        context={"line": number},
    )


def _lines(path: Path) -> Iterator[Line]:
    """Yield the lines that are not blank, with their numbers."""
    with open(path, encoding="utf-8-sig", newline=None) as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is no text: {error}; if it is raw numbers, say which with `format=`") from error


def _next(path: Path, lines: Iterator[Line], what: str) -> Line:
    line = next(lines, None)
    if line is None:
        raise ConfigError(f"{path} ends before {what}; it has been cut off")
    return line


def read_table(path: Path, separator: str) -> Named:
    """Read a square table of numbers: with or without names above, with or without names at the left."""
    n_lines = sum(1 for _ in _lines(path))
    if n_lines == 0:
        raise ConfigError(f"{path} is empty")
    cells = _cells(path, separator)
    first = next(cells)[1]
    second = next(_skipped(_cells(path, separator)), (0, first))[1]
    above, left = _margins(path, first, n_lines, len(second))
    n = n_lines - above
    square, names, at_left = new_square(n, np.dtype(np.float64)), list(first[-n:]) if above else [], []
    rows = cells if above else _cells(path, separator)
    for item, (number, row) in enumerate(rows):
        if len(row) != n + left:
            raise _wrong_count(path, number, f"row {item}", len(row) - left, n)
        square[item] = _parsed(path, number, row[left:])
        if left:
            at_left.append(row[0])
    if above and left:
        _refuse_other_order(path, names, at_left)
    return square, tuple(name_of(name.strip()) for name in names or at_left) or None


def _refuse_other_order(path: Path, above: list[str], at_left: list[str]) -> None:
    """Refuse rows that are named as the columns are, in another order."""
    if above != at_left and sorted(above) == sorted(at_left):
        item = next(k for k, (a, b) in enumerate(zip(above, at_left)) if a != b)
        raise ConfigError(
            f"{path}: rows and columns are in different orders, such as row {item + 1}, {at_left[item]!r}, and column "
            f"{item + 1}, {above[item]!r}; bring them into one order"
        )


def _margins(path: Path, first: list[str], n_lines: int, width: int) -> tuple[int, int]:
    """Return whether (1 or 0) there are names above and names at the left."""
    if n_lines - width in (1, -1):
        return (1, 0) if n_lines > width else (0, 1)
    if n_lines != width:
        raise ConfigError(f"{path} has {n_lines} rows and {width} columns; the matrix is not square")
    named = n_lines > 1 and (not first[0].strip() or not all(map(_is_number, first)))
    return (1, 1) if named else (0, 0)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() in _ABSENT
    return True


def _skipped(cells: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    next(cells, None)
    return cells


def _cells(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line; tables that do not have the separator have another usual one, or blanks."""
    chosen: str | None = ""
    for number, line in _lines(path):
        if chosen == "":
            chosen = next((mark for mark in (separator, "\t", ",", ";") if mark in line), None)
        quoted = '"' in line and chosen is not None
        yield number, next(csv.reader([line], delimiter=chosen or " ")) if quoted else line.split(chosen)
