"""Lists of pairs, one a line, as FastANI, skani, Mash, sourmash, dRep and spreadsheets have them."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.materialize import new_square
from tartan.base.format import pluralize
from tartan.base.text_table import name_of
from tartan.errors import ConfigError

# By format: the columns that name the two items, in lower case: of skani, sourmash (branchwater), dRep, vclust, EzAAI,
# Tartan, BLAST, and of tables of edges. Where a name is that of a file with many sequences, the next pair that a table
# has names the sequences.
_NAMES = (
    ("ref_file", "query_file"), ("ref_name", "query_name"), ("query_name", "match_name"), ("query", "reference"),
    ("querry", "reference"), ("query", "ref"), ("query", "target"), ("query", "subject"), ("qseqid", "sseqid"),
    ("genome1", "genome2"), ("genome_1", "genome_2"), ("label 1", "label 2"), ("source", "target"), ("i", "j"),
)  # fmt: skip
# By format: scores that these programs write, the best one first; larger identities and similarities are nearer.
_IDENTITIES = (
    "max_containment_ani", "average_containment_ani", "tani", "ani", "aai", "identity", "pident", "percent_identity",
)  # fmt: skip
_DISTANCES = ("distance", "dist", "mash_distance", "d")
_SIMILARITIES = ("similarity", "max_containment", "containment", "jaccard")
# By format: columns of lists without a header, of FastANI and of Mash.
_COLUMNS_OF_PROGRAMS = 5
# By format: behind the two names.
_SCORE = 2
# By arithmetic.
_PERCENT = 100.0
# By arithmetic: as _ROUNDING of formula; a share of equal genomes may end above 1, and is no percentage.
_ROUNDING = 1e-5
#: The formula of similarities in per cent.
PER_CENT = "1-s/100"
# By judgement: as _MOST_ITEMS of files, for a square of 8 bytes a pair.
_MOST_NAMES = 200_000
#: Marks of a number that is not there, in lower case.
ABSENT = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))

_QUOTED = re.compile(r'"[^"]*"')

Row = Sequence[str]


@dataclass(frozen=True)
class PairList:
    """What a list of pairs holds.

    Attributes
    ----------
    square : float64 array (n, n)
        NaN where a pair is not listed.
    names : tuple of str
    distance : str or None
        The formula that makes distances of the values; None where they are distances.
    said : str
        What was taken for what, for the user.
    """

    square: NDArray[Any]
    names: tuple[str, ...]
    distance: str | None
    said: str


@dataclass(frozen=True)
class _Columns:
    """Which columns of a list are what."""

    first: int
    second: int
    score: int
    name: str
    has_header: bool
    kind: str  # similarity, distance, or unknown
    others: tuple[tuple[int, int], ...] = ()  # further columns of names


def is_pair_list(path: Path) -> bool:
    """Whether the first two lines of a text file are those of a list of pairs."""
    return _find_columns(_first_rows(path), None) is not None


def separator_of(path: Path) -> str | None:
    """Return what parts the columns of a text: a tab, a comma or a semicolon; None: spaces."""
    with open(path, encoding="utf-8-sig") as file:
        bare = _QUOTED.sub("", file.readline())
    return next((mark for mark in ("\t", ",", ";") if mark in bare), None)


def columns_of_list(
    given: Path | Sequence[Row], column: str | None
) -> tuple[tuple[int, int, int], str, list[str] | None, int]:
    """Return which columns of a list of pairs name items and which is the score, of what kind, the header, the width.

    Parameters
    ----------
    given : Path or sequence of rows
        A text, or its first two lines.
    column : str, optional
        As of ``read_pair_list``.

    Raises
    ------
    ConfigError
        If a text is none.
    """
    rows = _first_rows(given) if isinstance(given, Path) else given
    found = _find_columns(rows, column)
    if found is None or (found.score < 0 and isinstance(given, Path)):
        if not isinstance(given, Path):
            return (0, 1, -1), "unknown", None, len(rows[0])
        there = f" It has {', '.join(map(str.strip, rows[0]))}." if rows else ""
        raise ConfigError(
            f"{given} is not a list of pairs: a line has two names and a score, parted by tabs or commas, with or "
            f"without a header.{there} The score is named with `output=`"
        )
    header = [cell.strip() for cell in rows[0]] if found.has_header else None
    return (found.first, found.second, found.score), found.kind, header, len(rows[0])


def read_pair_list(path: Path, column: str | None = None) -> PairList:
    """Read a list of pairs; of a pair that is listed in both directions, the mean.

    Parameters
    ----------
    path : Path
    column : str, optional
        The column of the scores, by its name in the header or its number, from 1; default: that of a known program.

    Raises
    ------
    ConfigError
        If it is none, names a pair twice with unlike scores, or does not say which column is the score.
    """
    rows = _first_rows(path)
    columns = _find_columns(rows, column)
    if columns is None:
        raise ConfigError(
            f"{path} is not a list of pairs: a line has two names and a score, parted by tabs or commas, with or "
            "without a header"
        )
    if columns.score < 0:
        raise ConfigError(
            f"{path}: which column is the score of a pair? It has {', '.join(map(str.strip, rows[0]))}; name one with "
            "`output=`"
        )
    for ends in ((columns.first, columns.second), *columns.others):
        found = _read(path, columns, ends)
        if len(found.names) > 1 and found.twice is None:
            return _describe(path, columns, found)
    if found.twice is not None:
        raise ConfigError(f"{path}, line {found.twice[0]}: {found.twice[1]}; keep one line for each pair")
    raise ConfigError(f"{path} names {pluralize(len(found.names), 'item')}; pairs are of 2 or more", code="no-input")


@dataclass
class _Listed:
    names: tuple[str, ...]
    square: NDArray[Any]
    both_ways: bool = False
    twice: tuple[int, str] | None = None


def _first_rows(path: Path) -> list[Row]:
    """Return the cells of the first two lines that are not blank; fewer where it is not text."""
    found = []
    try:
        for _, row in _rows(path):
            found.append(row)
            if len(found) == 2:
                break
    except UnicodeDecodeError:
        return []
    return found


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the cells of each line with its number; the first line tells the separator."""
    separator: str | None = ""
    with open(path, encoding="utf-8-sig", newline=None) as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\n")
            if not text.strip():
                continue
            if separator == "":
                bare = _QUOTED.sub("", text)
                separator = next((mark for mark in ("\t", ",", ";") if mark in bare), None)
            if separator is not None and '"' in text:
                yield number, next(csv.reader([text], delimiter=separator))
            else:
                yield number, text.split(separator)


def _find_columns(rows: Sequence[Row], column: str | None) -> _Columns | None:
    """Return which columns are names and the score (-1: unknown), or None where this is not a list of pairs."""
    if not rows or len(rows[0]) <= _SCORE or any(len(row) != len(rows[0]) for row in rows):
        return None
    header = [cell.strip().lstrip("#").lower() for cell in rows[0]]
    row = rows[-1]
    known = [(header.index(a), header.index(b)) for a, b in _NAMES if a in header and b in header]
    known = [ends for ends in known if _are_names([row[at].strip() for at in ends], ends)]
    has_header = bool(known) or not any(is_number(cell) for cell in rows[0][_SCORE:])
    if not known:
        if (len(rows) < 2 and has_header) or any(is_number(cell) for cell in row[:_SCORE]):
            return None
        if not any(is_number(cell) for cell in row[_SCORE:]):
            return None
        known = [(0, 1)]
    (first, second), *others = known
    score, kind = _find_score(rows, header if has_header else None, column, (first, second))
    if kind is None:
        return None
    name = rows[0][score].strip() if has_header and score >= 0 else f"column {score + 1}"
    return _Columns(first, second, score, name, has_header, kind, tuple(others))


def _are_names(cells: Sequence[str], ends: tuple[int, int]) -> bool:
    """Whether cells are names of items, not numbers of a matrix; numbers of items stand first in a line."""
    return not any(map(is_number, cells)) or (ends == (0, 1) and all(cell.isdecimal() for cell in cells))


def _find_score(
    rows: Sequence[Row], header: Sequence[str] | None, column: str | None, names: tuple[int, int]
) -> tuple[int, str | None]:
    """Return the column of the score and whether it is a similarity, a distance or unknown; None: no list of pairs."""
    if column is not None:
        return _choose_column(header, len(rows[0]), column)
    if header is None:
        return _SCORE, _kind_of_program(rows[0])
    for chosen in (*_IDENTITIES, *_DISTANCES, *_SIMILARITIES):
        if chosen in header:
            return header.index(chosen), _kind_of(chosen)
    row = rows[-1]
    numbers = [at for at in range(len(header)) if at not in names and (len(rows) < 2 or is_number(row[at]))]
    return (numbers[0] if len(numbers) == 1 else -1), "unknown" if numbers else None


def _choose_column(header: Sequence[str] | None, width: int, column: str) -> tuple[int, str]:
    """Return the column that is asked for by its name or its number, from 1; -1 where there is none."""
    if header is not None and column.lower() in header:
        return header.index(column.lower()), _kind_of(column.lower())
    at = int(column) - 1 if column.isdecimal() else -1
    return (at if at < width else -1), "unknown" if header is None or not 0 <= at < width else _kind_of(header[at])


def _kind_of(name: str) -> str:
    if name in _DISTANCES:
        return "distance"
    near = name in _IDENTITIES or name in _SIMILARITIES or name.endswith(("ani", "identity"))
    return "similarity" if near else "unknown"


def _kind_of_program(row: Row) -> str:
    """Return what the score of a list without a header is: FastANI ends with two counts, Mash with a fraction."""
    if len(row) != _COLUMNS_OF_PROGRAMS:
        return "unknown"
    if row[3].strip().isdecimal() and row[4].strip().isdecimal():
        return "similarity"
    return "distance" if "/" in row[4] else "unknown"


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, or says that there is none."""
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() in ABSENT
    return True


def _read(path: Path, columns: _Columns, ends: tuple[int, int]) -> _Listed:
    """Read all pairs, with the names in two columns."""
    numbers: dict[str, int] = {}
    left, right, lines, scores = array("q"), array("q"), array("q"), array("d")
    rows = _rows(path)
    if columns.has_header:
        next(rows)
    for number, row in rows:
        try:
            a, b, score = row[ends[0]].strip(), row[ends[1]].strip(), row[columns.score].strip()
            value = float("nan") if score.lower() in ABSENT else float(score)
        except (IndexError, ValueError):
            what = "\t".join(row)[:60]
            raise ConfigError(f"{path}, line {number}: {what!r} has no number in {columns.name}") from None
        if value < 0 or math.isinf(value):
            raise ConfigError(
                f"{path}, line {number}: {columns.name} of {a} and {b} is {score}; scores must be 0 or more"
            )
        scores.append(value)
        left.append(numbers.setdefault(a, len(numbers)))
        right.append(numbers.setdefault(b, len(numbers)))
        lines.append(number)
    n = len(numbers)
    if n > _MOST_NAMES:
        raise ConfigError(f"{path} names {n:,} items; as a matrix at most {_MOST_NAMES:,} are taken")
    names = tuple(map(name_of, numbers))
    ends_of_pairs = [np.frombuffer(values, np.int64) for values in (left, right)]
    return _fill(names, ends_of_pairs, np.frombuffer(lines, np.int64), np.frombuffer(scores, np.float64))


def _fill(names: tuple[str, ...], ends: Sequence[NDArray[Any]], lines: NDArray[Any], scores: NDArray[Any]) -> _Listed:
    """Put the scores of pairs into a square."""
    n, (left, right) = len(names), ends
    square = new_square(n, np.dtype(np.float64))
    square[...] = np.nan
    square[left, right] = scores
    unlike = np.flatnonzero((square[left, right] != scores) & ~np.isnan(scores))
    if unlike.size:
        at = int(unlike[0])
        a, b = names[left[at]], names[right[at]]
        text = f"{a} with {b} has the scores {scores[at]:g} and {square[left[at], right[at]]:g}"
        return _Listed(names, square, twice=(int(lines[at]), text))
    # Both ends of a pair at once, so that nothing of the size of the matrix is copied.
    forth, back = square[left, right].copy(), square[right, left].copy()
    known = np.isnan(back)
    mean = np.where(known, forth, np.where(np.isnan(forth), back, (forth + back) / 2))
    square[left, right] = mean
    square[right, left] = mean
    return _Listed(names, square, both_ways=bool((~known & (left != right) & (forth != back)).any()))


def _describe(path: Path, columns: _Columns, found: _Listed) -> PairList:
    """Say what a list holds."""
    square, n, kind = found.square, len(found.names), columns.kind
    diagonal = square.diagonal()
    largest = float(np.nanmax(square, initial=-np.inf))
    if kind == "unknown" and largest > 0 and bool((diagonal[~np.isnan(diagonal)] == largest).any()):
        kind = "similarity"  # items are nearest to themselves
    distance = formula_of(largest) if kind == "similarity" else None
    said = [f"{path}: pairs of {n:,} items, by {columns.name}" + (", in the mean of both ways" * found.both_ways)]
    if kind == "unknown":
        said.append("taken as distances; of similarities say so by `distance=`, such as `distance='1-s'`")
    listed = (np.count_nonzero(~np.isnan(square)) - np.count_nonzero(~np.isnan(diagonal))) // 2
    if listed < n * (n - 1) // 2:
        said.append(
            f"{listed:,} of {n * (n - 1) // 2:,} pairs are listed: `tartan cluster FILE --format edges` takes the "
            "others for farther"
        )
    np.fill_diagonal(square, largest if distance is not None else 0.0)
    return PairList(square, found.names, distance, "; ".join(said))


def formula_of(largest: float) -> str:
    """Return the formula of distances of similarities up to 1, up to 100 (per cent), or beyond."""
    if largest <= 1 + _ROUNDING:
        return "1-s"
    return PER_CENT if largest <= _PERCENT + _ROUNDING else "max-s"
