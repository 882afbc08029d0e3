"""The files that hold matrices: which format, how large, in which byte order."""

from __future__ import annotations

import codecs
import csv
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.materialize import new_square
from tartan.analytics.matrix.pair_lists import ABSENT, is_number, is_pair_list
from tartan.analytics.matrix.sources import Array, Condensed, MatrixSource, Triangle, Windowed
from tartan.base.compressed import compression_of
from tartan.base.npy_input import open_npy
from tartan.base.text_table import name_of
from tartan.base.zarr_input import open_zarr, read_zarr, refuse_unsafe
from tartan.errors import ConfigError

RAW: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("int16", "float32", "float64")}
FORMATS = ("npy", "zarr", "run", "phylip", "csv", "tsv", "pairs", *RAW)
_SUFFIXES = {
    ".npy": "npy", ".phy": "phylip", ".phylip": "phylip", ".dist": "phylip", ".csv": "csv", ".tsv": "tsv",
    ".tab": "tsv", ".i16": "int16", ".int16": "int16", ".f32": "float32", ".float32": "float32", ".f64": "float64",
    ".float64": "float64",
}  # fmt: skip
# By judgement: 10**16 pairs are more than any disk holds.
_MOST_ITEMS = 10**8  # of Zarr, whose metadata may say anything
# _SAMPLED_RUNS and _SAMPLED_RUN, by judgement: 16,384 values from all over a file take 64 reads, and tell shares of a
# few per cent.
_SAMPLED_RUNS = 64
# By judgement, see _SAMPLED_RUNS.
_SAMPLED_RUN = 256
# By arithmetic: shares of 16,384 values have a standard error of 0.4 %; ten times that.
_CLEAR = 0.05
# By judgement: the first line of a text with a line of 500 names of 128 letters.
_HEAD = 1 << 16
_ORDERS: dict[str, Any] = {"little": "<", "big": ">"}


@dataclass(frozen=True)
class RawLayout:
    """What is known of a raw file; None: to be found out."""

    n: int | None = None
    byteorder: str | None = None

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n is {self.n}; a matrix has at least one item")
        if self.byteorder is not None and self.byteorder not in _ORDERS:
            raise ConfigError(f"byteorder is {self.byteorder!r}; it must be 'little' or 'big'")


def format_of(path: Path) -> str:
    """Return the format of a file or folder by what it contains or is called.

    Raises
    ------
    ConfigError
        If neither says it.
    """
    if path.is_dir():
        if (path / "manifest.json").exists():
            return "run"
        if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
            return "zarr"
        raise ConfigError(f"{path} is a folder, but neither a run nor a Zarr array")
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind in RAW:
        return kind
    if (packed := compression_of(head)) is not None:
        raise ConfigError(f"{path} is compressed by {packed}; unpack it first")
    kind = _text_format(path, head) or kind
    if kind is None:
        raise ConfigError(
            f"{path}: its name does not tell the format; say `format=`, one of {', '.join(FORMATS)} (raw int16 of n "
            "items has 2 n^2 bytes)"
        )
    return kind


def _text_format(path: Path, head: bytes) -> str | None:
    """Return the format of a text whose first lines tell it, whatever it is called; None for all else."""
    first, _, rest = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\n\r").partition(b"\n")
    if b"\0" in head or not rest.strip():
        return None
    if first.strip().isdigit():
        return "phylip"
    if is_pair_list(path):
        return "pairs"
    return "tsv" if first.count(b"\t") > 1 and path.suffix.lower() not in _SUFFIXES else None


def open_file(path: Path, kind: str, layout: RawLayout) -> tuple[Any, tuple[str, ...] | None]:
    """Return what a file holds, an array or a run, and the names of the items where it has them; not for pairs."""
    if kind in RAW:
        return _open_raw(path, RAW[kind], layout), None
    if layout != RawLayout():
        raise ConfigError(f"{path}: `n=` and `byteorder=` are for raw files; {kind} says both itself")
    if kind in ("csv", "tsv"):
        return read_table(path, "," if kind == "csv" else "\t")
    openers: dict[str, Callable[[Path], Any]] = {
        "npy": _open_npy,
        "zarr": open_zarr,
        "run": _open_run,
    }
    return read_phylip(path) if kind == "phylip" else (openers[kind](path), None)


def _open_npy(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(open_npy(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as npy: {error}") from error


def _open_run(path: Path) -> Any:
    from tartan.store.version_view import open_version

    return open_version(path)


def is_zarr(given: Any) -> bool:
    """Whether something is an array or a group of Zarr; does not import it."""
    return type(given).__module__.partition(".")[0] == "zarr"


def zarr_source(given: Any, label: str, name: str | None = None, triangle: str | None = None) -> MatrixSource:
    """Return a Zarr array, or one array of a group, as a source."""
    _require_triangle(triangle)
    if hasattr(given, "arrays"):
        found = dict(given.arrays())
        if name is None and len(found) == 1:
            name = next(iter(found))
        if name not in found:
            has = f"has the arrays {', '.join(sorted(found))}; name one with `output=`" if found else "has no array"
            raise ConfigError(f"{label} {has}")
        given = found[name]
    if given.dtype.kind not in "fiub":
        raise ConfigError(f"{label}: dissimilarities must be numbers; these have the type {given.dtype}")
    refuse_unsafe(given, label)
    if given.ndim == 1:
        return Condensed(read_zarr(given, slice(None), label), side_of(given.shape[0], label))
    require_square(given.shape, label)
    if given.shape[0] > _MOST_ITEMS:  # what is not there counts as a fill value: the size of files bounds nothing
        raise ConfigError(f"{label} says that it has {given.shape[0]:,} items; at most {_MOST_ITEMS:,} are taken")
    # Zarr has no byte order of its own in memory: its arrays are native.
    window = Windowed(given.shape[0], given.dtype, lambda rows, columns: read_zarr(given, (rows, columns), label))
    return window if triangle is None else Triangle(window, upper=triangle == "upper")


def square_source(values: NDArray[Any], label: str, triangle: str | None = None) -> MatrixSource:
    """Return an array as a source: square, one triangle of it, or condensed."""
    _require_triangle(triangle)
    if values.ndim == 1:
        return Condensed(values, side_of(len(values), label))
    require_square(values.shape, label)
    source = Array(values)
    return source if triangle is None else Triangle(source, upper=(triangle == "upper") != source.transposed)


def _require_triangle(triangle: str | None) -> None:
    if triangle not in (None, "upper", "lower"):
        raise ConfigError(f"triangle is {triangle!r}; it must be 'upper' or 'lower'")


def require_square(shape: tuple[int, ...], label: str) -> None:
    """Refuse what is not a square matrix."""
    if 0 in shape:
        raise _without_values(label, shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ConfigError(
            f"{label} has the shape {tuple(shape)}; dissimilarities are a square matrix, or the n (n - 1) / 2 pairs of "
            "n items in one row",
            context={"shape": list(shape)},
        )


def _without_values(label: str, shape: tuple[int, ...]) -> ConfigError:
    return ConfigError(
        f"{label} has no values: its shape is {tuple(shape)}; give the distances of at least two items",
        code="no-input",
        context={"shape": list(shape)},
    )


def side_of(size: int, label: str) -> int:
    """Return n for n (n - 1) / 2 values."""
    if size == 0:
        raise _without_values(label, (0,))
    n = (1 + math.isqrt(1 + 8 * size)) // 2
    if n * (n - 1) // 2 != size:
        raise ConfigError(f"{label}: {size} values in one row are not the n (n - 1) / 2 pairs of any n")
    return n


def _open_raw(path: Path, dtype: np.dtype[Any], layout: RawLayout) -> NDArray[Any]:
    n, condensed = _raw_shape(path, dtype, layout.n)
    shape = (n * (n - 1) // 2,) if condensed else (n, n)
    little = np.asarray(np.memmap(path, dtype.newbyteorder("<"), "r", shape=shape))
    order = _agree_order(path, layout.byteorder, _likely_orders(little))
    return little.view(dtype.newbyteorder(_ORDERS[order]))


def _agree_order(path: Path, said: str | None, likely: tuple[str, ...]) -> str:
    if said is None and not likely:
        raise ConfigError(
            f"{path}: the values do not show whether it is little or big endian; say `byteorder='little'` or "
            "`byteorder='big'`"
        )
    if said is not None and likely and said not in likely:
        raise ConfigError(
            f"{path} is said to be {said} endian, but its values make sense only as {likely[0]} endian; say "
            f"`byteorder={likely[0]!r}`, or leave it out"
        )
    return said or likely[0]


def _raw_shape(path: Path, dtype: np.dtype[Any], n: int | None) -> tuple[int, bool]:
    """Return the number of items of a raw file, and whether it has the pairs i < j only."""
    size = path.stat().st_size
    found = _sides(size, dtype.itemsize)
    fitting = {side: condensed for side, condensed in found if n is None or side == n}
    if not fitting:
        raise ConfigError(_wrong_size(path, size, dtype, n), context={"path": str(path), "bytes": size})
    # 2 n^2 bytes may also be the pairs of another n; a square is what these files are, unless n says otherwise.
    return next((side, condensed) for side, condensed in found if side in fitting)


def _sides(size: int, itemsize: int) -> list[tuple[int, bool]]:
    """Return the n for which a file of this size is a square matrix, or the pairs i < j."""
    count, rest = divmod(size, itemsize)
    if rest or not count:
        return []
    square, pairs = math.isqrt(count), (1 + math.isqrt(1 + 8 * count)) // 2
    found = [(square, False)] if square * square == count else []
    return found + ([(pairs, True)] if pairs * (pairs - 1) // 2 == count else [])


def _wrong_size(path: Path, size: int, dtype: np.dtype[Any], n: int | None) -> str:
    text = f"{path} has {size:,} bytes, which is neither a square matrix of {dtype} nor n (n - 1) / 2 pairs"
    if n is not None:
        text = f"{path} has {size:,} bytes; {n} items take {n * n * dtype.itemsize:,} bytes as {dtype}"
    other = [
        f"{name} of {side} items" + (", pairs i < j only" if condensed else "")
        for name, kind in RAW.items()
        for side, condensed in _sides(size, kind.itemsize)
        if (kind, side) != (dtype, n)
    ]
    fit = f"it would fit {' or '.join(other)}" if other else "it may be cut off, or have a header"
    return f"{text}; {fit}"


def _likely_orders(little: NDArray[Any]) -> tuple[str, ...]:
    """Return the byte orders in which the values make sense; none where they do not show it, both where it is one."""
    flat = little.reshape(-1)
    starts = np.linspace(0, max(0, flat.size - _SAMPLED_RUN), _SAMPLED_RUNS).astype(np.int64)
    sample = np.concatenate([flat[start : start + _SAMPLED_RUN] for start in starts.tolist()])
    swapped = sample.view(sample.dtype.newbyteorder(">"))
    if sample.tobytes() == sample.byteswap().tobytes():
        return "little", "big"
    odd = [_oddness(values) for values in (sample, swapped)]
    if abs(odd[0] - odd[1]) < _CLEAR and sample.dtype.kind == "i":
        # The byte that counts more takes fewer values.
        odd = [float(len(np.unique(sample.view(np.uint8)[at::2]))) for at in (1, 0)]
    if abs(odd[0] - odd[1]) < _CLEAR:
        return ()
    return ("little",) if odd[0] < odd[1] else ("big",)


def _oddness(values: NDArray[Any]) -> float:
    """Return which share of the values is none that dissimilarities have: negative, or absurdly large or small."""
    if values.dtype.kind == "i":
        return float(((values < 0) & (values != -1)).mean())
    with np.errstate(invalid="ignore"):
        sizes = np.abs(values)
        return 1.0 - float(((sizes == 0) | ((sizes > 1e-15) & (sizes < 1e15))).mean())


# Matrices as text: PHYLIP, and tables with or without names. Read once, line by line, into one array.

Named = tuple[NDArray[Any], tuple[str, ...] | None]
Line = tuple[int, str]
Numbers = NDArray[np.float64]
# By format: names of strict PHYLIP have ten characters.
_STRICT_NAME = 10


def read_phylip(path: Path) -> Named:
    """Read distances in PHYLIP's format: square, lower or upper triangle; names of any length, or of ten columns."""
    lines = _lines(path)
    first = next(lines, (1, ""))[1].split()
    if len(first) != 1 or not first[0].isdigit() or int(first[0]) == 0:
        raise ConfigError(f"{path}, line 1: PHYLIP begins with the number of items, not with {' '.join(first)[:40]!r}")
    n = int(first[0])
    _require_room(path, n)
    square, names = new_square(n, np.dtype(np.float64)), []
    first_two = list(itertools.islice(lines, 2))
    with_tabs, lines = _has_tabs(first_two), itertools.chain(first_two, lines)
    shape = ""
    for item in range(n):
        number, line = _next(path, lines, f"item {item + 1} of {n}")
        name, values = _name_and_numbers(path, number, line, with_tabs)
        shape = shape or _shape(len(values), n, first_two)
        needed = {"lower": item, "diagonal": item + 1, "upper": n - item - 1, "square": n}[shape]
        while len(values) < needed:
            values = np.append(values, _numbers(path, *_next(path, lines, f"the distances of {name}")))
        if len(values) > needed:
            raise _wrong_count(path, number, name, len(values), needed)
        _place(square, shape, item, values)
        names.append(name)
    if (left := next(lines, None)) is not None:
        raise ConfigError(f"{path}, line {left[0]}: more follows after the {n} items of line 1")
    return square, tuple(names)


def is_triangle(path: Path) -> tuple[bool, bool]:
    """Return whether a PHYLIP file that can be read is a triangle without a diagonal, and whether tabs part it."""
    lines = _lines(path)
    n = int(next(lines)[1])
    first_two = list(itertools.islice(lines, 2))
    with_tabs = _has_tabs(first_two)
    n_first = len(_name_and_numbers(path, *first_two[0], with_tabs)[1])
    return n > 1 and _shape(n_first, n, first_two) in ("lower", "upper"), with_tabs


def _has_tabs(lines: Sequence[Line]) -> bool:
    return any("\t" in line.strip() for _, line in lines)


def _require_room(path: Path, n: int) -> None:
    """Refuse a number of items for which the file is too short: a pair takes at least a digit and a blank."""
    least = n * (n - 1) + 2 * n
    if path.stat().st_size < least:
        raise ConfigError(
            f"{path}, line 1: {n:,} items take {least:,} bytes at least, and the file has {path.stat().st_size:,}; it "
            "has been cut off, or this is not PHYLIP"
        )


def _shape(count: int, n: int, first_two: Sequence[Line]) -> str:
    """Return which part of the matrix a PHYLIP file has, by the numbers in its first row and the line behind it."""
    if count == 0:
        return "lower"
    words = first_two[1][1].split("\t" if _has_tabs(first_two) else None) if len(first_two) > 1 else []
    if count == 1 and n > 1 and len(words) == 3 and not is_number(words[0]):
        return "diagonal"
    return "upper" if count == n - 1 else "square"


def _place(square: NDArray[Any], shape: str, item: int, values: Numbers) -> None:
    if shape == "square":
        square[item] = values
        return
    others = {"lower": slice(0, item), "diagonal": slice(0, item + 1), "upper": slice(item + 1, None)}[shape]
    square[item, others] = values
    square[others, item] = values


def _name_and_numbers(path: Path, number: int, line: str, with_tabs: bool) -> tuple[str, Numbers]:
    if with_tabs:  # names may have blanks
        name, *cells = line.strip().split("\t")
        return name.strip(), _parse_cells(path, number, cells)
    words = line.split()
    try:
        return words[0], np.array(words[1:], np.float64)
    except ValueError:
        if all(map(is_number, words[1:])):  # absent ones among them
            return words[0], _parse_cells(path, number, words[1:])
        # Names of exactly ten columns may have blanks, and the first number may follow without one.
        return line[:_STRICT_NAME].strip(), _numbers(path, number, line[_STRICT_NAME:])


def _numbers(path: Path, number: int, text: str) -> Numbers:
    return _parse_cells(path, number, text.split())


def _parse_cells(path: Path, number: int, cells: Sequence[str]) -> Numbers:
    """Return cells as numbers; marks of absent ones become NaN."""
    try:
        return np.array(cells, np.float64)
    except ValueError:
        return np.array([_number(path, number, column, cell) for column, cell in enumerate(cells)], np.float64)


def _number(path: Path, number: int, column: int, cell: str) -> float:
    text = cell.strip()
    if text.lower() in ABSENT:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{path}, line {number}, number {column + 1}: {text[:40]!r} is not a number") from None


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
            raise ConfigError(f"{path} is not text: {error}; if it is raw numbers, say which with `format=`") from error


def _next(path: Path, lines: Iterator[Line], what: str) -> Line:
    line = next(lines, None)
    if line is None:
        raise ConfigError(f"{path} ends before {what}; it has been cut off")
    return line


def read_table(path: Path, separator: str) -> Named:
    """Read a square table of numbers: with or without names above, with or without names at the left.

    Blanks around a name are part of it, quoted or not, as to other readers of CSV.
    """
    n_lines = sum(1 for _ in _lines(path))
    if n_lines == 0:
        raise ConfigError(f"{path} is empty; give the distances of at least two items", code="no-input")
    cells = _cells(path, separator)
    first = next(cells)[1]
    second = next(_skip_lines(_cells(path, separator)), (0, first))[1]
    above, left = _margins(path, first, n_lines, len(second))
    n = n_lines - above
    square, names, at_left = new_square(n, np.dtype(np.float64)), list(first[-n:]) if above else [], []
    rows = cells if above else _cells(path, separator)
    for item, (number, row) in enumerate(rows):
        if len(row) != n + left:
            raise _wrong_count(path, number, f"row {item}", len(row) - left, n)
        square[item] = _parse_cells(path, number, row[left:])
        if left:
            at_left.append(row[0])
    if above and left:
        names = _join_names(path, names, at_left)
    return square, tuple(name_of(name) for name in names or at_left) or None


def _join_names(path: Path, above: list[str], at_left: list[str]) -> list[str]:
    """Return the names above: blanks around them are part of them, unless those at the left have others.

    Raises
    ------
    ConfigError
        If rows are named as the columns are, in another order, or as the columns beside them, as a triangle is printed.
    """
    if above == at_left:
        return above
    kept, above, at_left = above, [name.strip() for name in above], [name.strip() for name in at_left]
    if above != at_left and sorted(above) == sorted(at_left):
        item = next(k for k, (a, b) in enumerate(zip(above, at_left)) if a != b)
        raise ConfigError(
            f"{path}: rows and columns are in different orders, such as row {item + 1}, {at_left[item]!r}, and column "
            f"{item + 1}, {above[item]!r}; bring them into one order"
        )
    if len(above) > 1 and above[1:] == at_left[:-1]:
        raise ConfigError(
            f"{path}: rows begin with {at_left[0]!r} and columns with {above[0]!r}: a triangle as R prints it, without "
            "the diagonal; write the whole matrix, as write.csv(as.matrix(d)) does"
        )
    return above if above == at_left else kept


def _margins(path: Path, first: list[str], n_lines: int, width: int) -> tuple[int, int]:
    """Return whether (1 or 0) there are names above and names at the left."""
    if n_lines - width in (1, -1):
        return (1, 0) if n_lines > width else (0, 1)
    if n_lines != width:
        raise ConfigError(f"{path} has {n_lines} rows and {width} columns; the matrix is not square")
    named = n_lines > 1 and (not first[0].strip() or not all(map(is_number, first)))
    return (1, 1) if named else (0, 0)


def _skip_lines(cells: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
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
