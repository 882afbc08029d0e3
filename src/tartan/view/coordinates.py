"""Read and write coordinates of maps: tables with keys, the text formats of PlotViz, .npy and .pviz."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.base.files import whole_file
from tartan.base.format import format_number, pluralize
from tartan.base.palette import colours, hex_colour
from tartan.base.text_table import cell_of, name_of
from tartan.errors import ConfigError
from tartan.view.pviz import read_pviz
from tartan.view.scene import NO_VALUE

_AXES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A map from a file.

    Attributes
    ----------
    points : ndarray (n, L)
    keys : tuple of str or None
        Name of each point, where the file has them.
    clusters : tuple of str or None
        Cluster of each point, where the file has them.
    """

    points: NDArray[np.float64]
    keys: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None


def write_coordinates(
    path: str | Path,
    points: ArrayLike,
    keys: Sequence[str] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Path:
    """Write a map: .npy (coordinates only), .csv, or else tab separated, with a head: key, x, y, z, cluster.

    Returns
    -------
    Path
        The file, written whole or not at all.
    """
    target, given = Path(path), np.asarray(points, np.float64)
    with whole_file(target) as unfinished:
        if target.suffix.lower() == ".npy":
            with open(unfinished, "wb") as file:
                np.save(file, given)
        else:
            with open(unfinished, "w", encoding="utf-8", newline="") as file:
                comma = target.suffix.lower() == ".csv"
                writer = csv.writer(file, delimiter="," if comma else "\t", lineterminator="\n")
                writer.writerow(["key", *_names(given.shape[1]), *(["cluster"] if clusters is not None else [])])
                for i, row in enumerate(given.tolist()):
                    of = [] if clusters is None else [cell_of(str(clusters[i]))]
                    writer.writerow([i if keys is None else cell_of(keys[i]), *(f"{value:.10g}" for value in row), *of])
    return target


def _names(dimension: int) -> list[str]:
    return list(_AXES[:dimension]) if dimension <= 3 else [f"x{d + 1}" for d in range(dimension)]


def read_coordinates(path: str | Path) -> Coordinates:
    """Read a map.

    Parameters
    ----------
    path : path
        .npy, .pviz, or text separated by tabs, commas or blanks: with a head (key, x, y, z, cluster) as
        ``write_coordinates`` writes it, or without one as PlotViz reads it: 3 columns x y z; 4: number x y cluster; 5:
        number x y z cluster; 6: number x y z cluster label; 2: x y.

    Raises
    ------
    ConfigError
        If the file is not there or none of these.
    """
    place = Path(path)
    if not place.is_file():
        raise ConfigError(f"there is no file {place}")
    if place.suffix.lower() == ".npy":
        return Coordinates(_array(place))
    if place.suffix.lower() == ".pviz":
        scene = read_pviz(place)
        names = tuple(scene.clusters[k].label for k in scene.cluster_of.tolist())
        return Coordinates(scene.maps[0].points, scene.labels, names)
    return _from_text(place)


def _array(place: Path) -> NDArray[np.float64]:
    try:
        points = np.load(place, allow_pickle=False)
    except ValueError as error:
        raise ConfigError(f"{place} is not an .npy file of numbers: {error}") from error
    if points.ndim != 2 or points.dtype.kind not in "fiu":
        raise ConfigError(
            f"{place} has {points.dtype} of shape {points.shape}; a map has a row of numbers for each point"
        )
    return np.asarray(points, np.float64)


def _from_text(place: Path) -> Coordinates:
    text = _text(place)
    if not text.strip():
        raise ConfigError(f"{place} is empty")
    first = text.lstrip("\r\n").partition("\n")[0]
    comma = place.suffix.lower() == ".csv" or ("\t" not in first and "," in first)
    rows = _cells(place, text, "," if comma else "\t" if "\t" in first else None)
    width = len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise ConfigError(f"{place}, line {number}: {len(row)} columns, where the first line has {width}")
    if _is_number(rows[0][-1]) or _is_number(rows[0][min(1, width - 1)]):
        return _without_head(place, rows, width)
    return _with_head(place, rows)


def _text(place: Path) -> str:
    """Return the text of a file, without the mark that spreadsheets put before UTF-8; line ends as they are."""
    try:
        with open(place, encoding="utf-8-sig", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{place} is not text in UTF-8: {error}; a column of a Parquet table is taken by `--color-by TABLE:COLUMN`"
            if place.suffix.lower() in {".parquet", ".pq"}
            else f"{place} is not text in UTF-8: {error}"
        ) from error


def _cells(place: Path, text: str, mark: str | None) -> list[list[str]]:
    """Return the cells of the lines that are not blank, separated by a mark as CSV has them, or by blanks."""
    try:
        found = csv.reader(io.StringIO(text, newline=""), delimiter=mark) if mark else map(str.split, _lines(text))
        return [row for row in found if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ConfigError(f"{place} is not a table: {error}; is a quotation mark unclosed?") from error


def _lines(text: str) -> list[str]:
    # Not splitlines(): names may hold what it takes for a line end.
    return [line for line in text.replace("\r", "\n").split("\n") if line.strip()]


def _with_head(place: Path, rows: list[list[str]]) -> Coordinates:
    head = [name.strip().lower() for name in rows[0]]
    axes = [k for k, name in enumerate(head) if name in _AXES or (name[:1] == "x" and name[1:].isdigit())]
    axes.sort(key=lambda k: (len(head[k]), head[k]))  # x, y, z, or x1 to x12, in any order
    if not axes or len(rows) < 2:
        raise ConfigError(f"{place}: the head is {', '.join(rows[0])}; columns x, y, z are needed, one line a point")
    keys = _column(rows[1:], head, ("key", "label", "name"))
    return Coordinates(_numbers(place, rows[1:], axes, 2), keys, _column(rows[1:], head, ("cluster",)))


def _column(rows: list[list[str]], head: list[str], names: tuple[str, ...]) -> tuple[str, ...] | None:
    found = next((head.index(name) for name in names if name in head), None)
    return None if found is None else tuple(name_of(row[found]) for row in rows)


def _without_head(place: Path, rows: list[list[str]], width: int) -> Coordinates:
    layouts: dict[int, tuple[list[int], int | None, int | None]] = {
        2: ([0, 1], None, None),
        3: ([0, 1, 2], None, None),
        4: ([1, 2], 0, 3),
        5: ([1, 2, 3], 0, 4),
        6: ([1, 2, 3], 5, 4),
    }
    if width not in layouts:
        raise ConfigError(f"{place} has {width} columns and no head; without a head there are 2 to 6")
    axes, key, cluster = layouts[width]
    texts = [None if k is None else tuple(row[k] for row in rows) for k in (key, cluster)]
    return Coordinates(_numbers(place, rows, axes, 1), *texts)


def _numbers(place: Path, rows: list[list[str]], axes: list[int], first: int) -> NDArray[np.float64]:
    points = np.empty((len(rows), len(axes)))
    for i, row in enumerate(rows):
        try:
            points[i] = [float(row[k]) for k in axes]
        except ValueError as error:
            raise ConfigError(f"{place}, line {i + first}: {error}") from None
    return points


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text)) or text.strip().lower() == "nan"
    except ValueError:
        return False


# By judgement: more colours than eight are hard to tell apart, and a column of numbers with more values is a measure.
_MOST_NAMED_VALUES = 12
_CLASSES = 6
# By convention: what pandas and R write for a number that is not known.
_NO_NUMBERS = frozenset({"nan", "na"})


@dataclass(frozen=True)
class Coloured:
    """A column of a table as classes of the points: names, with a colour where they are ranges of numbers.

    Attributes
    ----------
    classes : tuple of str
        Of each point; ``NO_VALUE`` where the table has none.
    shades : mapping of str to str, or None
        Colour of each class, from dark for small numbers to yellow for large ones; None: names without an order.
    column : str
        Its name.
    unlisted : tuple of str
        Points that have no row in the table.
    """

    classes: tuple[str, ...]
    shades: Mapping[str, str] | None = None
    column: str = ""
    unlisted: tuple[str, ...] = ()


def split_column(given: str) -> tuple[Path, str]:
    """Return the file and the column that TABLE:COLUMN names.

    Raises
    ------
    ConfigError
        If there is no colon with a name on both sides.
    """
    table, _, column = given.rpartition(":")
    if not table or not column:
        raise ConfigError(f"{given}: give a table and one of its columns as TABLE:COLUMN, such as samples.csv:site")
    return Path(table), column


def read_column(path: str | Path, column: str, keys: Sequence[str]) -> Coloured:
    """Read a column of a table of items, by their names in its first column.

    Parameters
    ----------
    path : path
        CSV or TSV, with a line of names of columns; or Parquet, whose rows may also be named by another column, or
        stand in the order of points that are called by their numbers.
    column : str
    keys : sequence of str
        Names of the points.

    Raises
    ------
    ConfigError
        If the file or the column is not there, no line is of one of the points, or two lines are of one.
    """
    place = Path(path)
    if not place.is_file():
        raise ConfigError(f"there is no file {place}")
    if place.suffix.lower() in {".parquet", ".pq"}:
        rows = _parquet_rows(place, column, keys)
    else:
        text = _text(place)
        first = next(iter(_lines(text)), "")
        rows = _cells(place, text, "\t" if "\t" in first else ",")
    head = [cell.strip() for cell in rows[0]] if rows else []
    if column not in head[1:]:
        known = ", ".join(head[1:]) or "none besides the names of the items"
        raise ConfigError(f"{place} has no column {column!r}; its columns are: {known}")
    at = head.index(column, 1)
    known_rows = {row[0]: row[at].strip() for row in rows[1:] if len(row) > at}
    named = [key if key in known_rows else cell_of(key) for key in keys]
    _refuse_twice(place, [row[0] for row in rows[1:]], named)
    values = [known_rows.get(name, "") for name in named]
    if not any(values):
        raise ConfigError(
            f"{place} has no value of {column!r} for any of {len(keys):,} items: its first column has names such as "
            f"{next(iter(known_rows), '')!r}, and the items are called {keys[0]!r}"
            if keys
            else f"{place}: no items"
        )
    unlisted = tuple(key for key, name in zip(keys, named) if name not in known_rows)
    return replace(_classify(values), column=column, unlisted=unlisted)


def _refuse_twice(place: Path, rows: Sequence[str], points: Sequence[str]) -> None:
    """Refuse a table that has two rows of one point: which of them counts is not for a picture to say."""
    if len(set(rows)) == len(rows):
        return
    counts = Counter(rows)
    twice = [name for name in dict.fromkeys(points) if counts[name] > 1]
    if twice:
        more = f", and several of {pluralize(len(twice) - 1, 'other item')}" if len(twice) > 1 else ""
        raise ConfigError(f"{place} has {counts[twice[0]]} rows of {twice[0]!r}{more}; leave one row of each item")


def _parquet_rows(place: Path, column: str, keys: Sequence[str]) -> list[list[str]]:
    """Return rows of name and value, after a head, of a Parquet table: named by the first column that names points.

    Points that are called by their numbers are its rows in order, where there is no such column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(place)
        plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
        if column not in plain:
            return [["", *plain]]
        table = pq.read_table(place, columns=plain).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{place} cannot be read as Parquet: {error}") from None
    table_rows = len(table[column])
    texts = {name: ["" if cell is None else str(cell) for cell in table[name]] for name in plain}
    wanted, numbers = set(keys), [str(row) for row in range(table_rows)]
    candidates = [cells for name, cells in texts.items() if name != column]
    whole = (cells for cells in candidates if wanted <= set(cells) and len(set(cells)) == len(cells))
    some = (cells for cells in candidates if not wanted.isdisjoint(cells))
    names = next(whole, None) or (numbers if list(keys) == numbers else next(some, (candidates or [numbers])[0]))
    return [["", column], *map(list, zip(names, texts[column], strict=True))]


def _classify(values: Sequence[str]) -> Coloured:
    """Return values as they are, or as ranges where they are numbers with many values; NaN and NA are none, then."""
    known = [value for value in values if value and value.lower() not in _NO_NUMBERS]
    as_they_are = Coloured(tuple(name_of(value) if value else NO_VALUE for value in values))
    if len(set(known)) <= _MOST_NAMED_VALUES or not all(map(_is_finite, known)):
        return as_they_are
    numbers = [float(value) for value in known]
    low, high = min(numbers), max(numbers)
    edges = [low * (1 - k / _CLASSES) + high * (k / _CLASSES) for k in range(_CLASSES + 1)]
    texts = _tell_apart(edges)
    if texts is None:
        return as_they_are
    names = [f"{one} to {next_one}" for one, next_one in pairwise(texts)]
    shades = {name: hex_colour(shade) for name, shade in zip(names, colours(np.linspace(0, 1, _CLASSES)).tolist())}
    places = iter(np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, _CLASSES - 1).tolist())
    has_number = (value and value.lower() not in _NO_NUMBERS for value in values)
    return Coloured(tuple(names[next(places)] if has else NO_VALUE for has in has_number), shades)


def _tell_apart(numbers: Sequence[float]) -> list[str] | None:
    """Write numbers with as few digits as tell all of them apart, three at least; None where two are equal."""
    for digits in range(3, 18):
        texts = [format_number(number, digits) for number in numbers]
        if len(set(texts)) == len(texts):
            return texts
    return None


def _is_finite(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def _read_simulated(place: Path, text: str, keys: Sequence[str]) -> list[str]:
    """Return the labels of a file of ``tartan simulate``: the camera of each photo, or a list in the order of items."""
    try:
        truth = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} cannot be read as JSON: {error}") from None
    known = truth if isinstance(truth, dict) else {}
    cameras, labels = known.get("cameras"), known.get("labels")
    if isinstance(cameras, dict) and all(key in cameras for key in keys):
        return [str(cameras[key]) for key in keys]
    if isinstance(labels, list) and len(labels) == len(keys):
        return list(map(str, labels))
    raise ConfigError(
        f"{place} has no clusters of these {len(keys):,} items: of what `tartan simulate` writes, that of forensics, "
        "vectors and lcms has some; otherwise give a table of keys and labels"
    )


def read_labels(path: str | Path, keys: Sequence[str]) -> list[str]:
    """Read the cluster of each point: a line a point, or lines of key and cluster, separated by a tab or comma.

    The ``truth.json`` of a simulation with clusters is read, too.

    Lines of other keys are ignored, such as the line of names that ``tartan cluster`` begins with.

    Raises
    ------
    ConfigError
        If a key has none.
    """
    place = Path(path)
    if not place.is_file():
        raise ConfigError(f"there is no file {place}")
    text = _text(place)
    if place.suffix.lower() == ".json":
        return _read_simulated(place, text, keys)
    first = next(iter(_lines(text)), "")
    tables = ((mark, _cells(place, text, mark)) for mark in ("\t", ",") if mark in first)
    mark, rows = next(((mark, rows) for mark, rows in tables if all(len(row) > 1 for row in rows)), (None, []))
    if mark is None:
        lines = _lines(text)
        if len(lines) != len(keys):
            raise ConfigError(f"{place} has {len(lines)} labels for {len(keys)} points; give one on each line")
        return [line.strip() for line in lines]
    head = rows[0]
    if head[:3] == ["item", "cluster", "representative"] and all(len(words) == len(head) for words in rows):
        rows = [words[:2] for words in rows]  # as tartan cluster writes them of a run that keeps pairs
    pairs = {mark.join(words[:-1]): words[-1] for words in rows}
    pairs |= {key: pairs[cell] for key in keys if key not in pairs and (cell := cell_of(key)) in pairs}
    missing = [key for key in keys if key not in pairs]
    if missing:
        more = f" and {len(missing) - 1} more points" if len(missing) > 1 else ""
        raise ConfigError(
            f"{place} has no label for {missing[0]!r}{more}: its lines are read as name and label. Of a table with "
            "more columns, `--color-by TABLE:COLUMN` takes one"
        )
    return [name_of(pairs[key].strip()) for key in keys]
