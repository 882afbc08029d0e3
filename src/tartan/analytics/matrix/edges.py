"""Kept pairs that were made elsewhere: tables of edges, and sparse matrices of SciPy such as graphs of neighbours.

Read are the graphs of ``sklearn.neighbors.kneighbors_graph``, UMAP and PyNNDescent (``scipy.sparse.save_npz``), and
tables with two columns of names or numbers and one of scores, as users of FAISS, MMseqs2 and DIAMOND write them. Of a
pair that is listed in both directions the mean counts, as in lists of pairs.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import Transform
from tartan.analytics.matrix.kept import Index, KeptPairs, Values, with_distances
from tartan.analytics.matrix.pair_lists import columns_of_list, formula_of, separator_of
from tartan.base.files import arrow_file, open_regular
from tartan.base.format import pluralize, say_conversion
from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError

EDGES = "edges"
"""The format of a list of pairs that is not a matrix: what is not listed is farther, or not known."""

_TABLES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc")
_NUMBERED = ("i", "j")
# By judgement: columns i and j that hold larger numbers than this many times the pairs are names.
_MOST_SPARSE = 1000
_ARROW_MAGIC = b"ARROW1"


@dataclass(frozen=True)
class _Edges:
    """Entries as they are listed."""

    left: Index
    right: Index
    scores: Values
    names: Sequence[str]
    kind: str  # similarity, distance or unknown
    said: str


def are_edges(given: Any, format: str | None = None) -> bool:  # noqa: A002
    """Whether something is kept pairs, and no matrix: by its format, its suffix, or because it is sparse."""
    if isinstance(given, KeptPairs) or _is_sparse(given):
        return True
    if not isinstance(given, str | os.PathLike):
        return False
    path = Path(given)
    return path.is_file() and (format == EDGES or (format is None and path.suffix.lower() in (*_TABLES, ".npz")))


def read_edges(
    given: Any, *, output: str | None = None, distance: Any = None, transform: Transform | None = None
) -> KeptPairs:
    """Return pairs that were made elsewhere.

    Parameters
    ----------
    given : path, sparse matrix of SciPy, or KeptPairs
        A table: Parquet, Arrow, or text separated by commas or tabs, with or without a header; or a ``.npz`` file of
        ``scipy.sparse.save_npz``. Two columns name items; columns ``i`` and ``j`` of whole numbers count them from 0.
    output : str, optional
        Column of the scores; default: that of a known program, else the only one of numbers.
    distance, transform : optional
        As of ``tartan.analytics.cluster``. Default: scores of columns that are known for similarities are turned into
        distances, all others are distances.

    Raises
    ------
    ConfigError
        If it holds no pairs, an entry has no name or no number, or two say unlike things of one pair in one direction.
    """
    if isinstance(given, KeptPairs):
        return given
    if _is_sparse(given):
        label, found = "the sparse matrix", _of_matrix(given, "the sparse matrix", output)
    else:
        label = str(given)
        found = _read(Path(given), output)
    i, j, scores = _join_directions(found, label)
    if not len(i):
        raise ConfigError(f"{label} has no pair of two items; give some", code="no-input")
    formula = distance
    if formula is None and found.kind == "similarity":
        formula = formula_of(float(scores.max()))
    plain = formula is None and transform is None
    if plain and scores.min() < 0:
        at = int(scores.argmin())
        raise ConfigError(
            f"{label}: {found.names[i[at]]} and {found.names[j[at]]} are at {scores[at]:g}, and a distance is 0 or "
            "more; of similarities say how they become distances: `distance='1-s'`"
        )
    return with_distances(
        KeptPairs(len(found.names), i, j, scores, scores, found.names, label, np.empty(0, np.int64)), formula, transform
    )


def _is_sparse(given: Any) -> bool:
    return hasattr(given, "nnz") and hasattr(given, "tocoo")


def _of_matrix(matrix: Any, label: str, output: str | None) -> _Edges:
    if output is not None:
        raise ConfigError(f"{label} has one number a pair; leave out `output={output!r}`")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"{label} has shape {matrix.shape}; a graph of items has as many columns as rows")
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        entries = matrix.tocoo()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{label} is damaged: {error}") from error
    left, right = (np.asarray(ends, np.int64) for ends in (entries.row, entries.col))
    n = int(matrix.shape[0])
    wrong = np.flatnonzero((left < 0) | (left >= n) | (right < 0) | (right >= n))
    if len(wrong):
        raise ConfigError(f"{label} is damaged: entry {wrong[0]} is of {left[wrong[0]]} and {right[wrong[0]]} of {n}")
    return _Edges(left, right, np.asarray(entries.data, np.float64), IndexKeys(n), "unknown", "entries")


def _read(path: Path, output: str | None) -> _Edges:
    if path.suffix.lower() == ".npz":
        from scipy.sparse import load_npz

        try:
            with open_regular(path) as file:
                matrix = load_npz(file)
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, TypeError) as error:
            raise ConfigError(
                f"{path}: this is not a sparse matrix of SciPy, or it is damaged; scipy.sparse.save_npz writes one"
            ) from error
        return _of_matrix(matrix, str(path), output)
    return _of_table(path, output)


def _of_table(path: Path, output: str | None) -> _Edges:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        table, columns, kind, headed = _read_table(path, output)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError(f"{path}: it cannot be read ({reason})") from error
    left, right, score = (table[column].combine_chunks() for column in range(3))
    for values, name in ((left, columns[0]), (right, columns[1])):
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise ConfigError(f"{path}: row {row} names no item in {name!r}; leave it out")
    numbers = pc.cast(pc.utf8_trim_whitespace(score), pa.float64()) if pa.types.is_string(score.type) else score
    scores = np.asarray(numbers.cast(pa.float64()).to_numpy(zero_copy_only=False))
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        row = int(wrong[0])
        pair = f"{left[row].as_py()} and {right[row].as_py()}"
        raise ConfigError(f"{path}: row {row}, {pair}, has {scores[row]} in {columns[2]!r}; leave such pairs out")
    ends, names = _number_items(left, right, headed and tuple(name.lower() for name in columns[:2]) == _NUMBERED)
    return _Edges(*ends, scores, names, kind, columns[2])


def _read_table(path: Path, output: str | None) -> tuple[Any, list[str], str, bool]:
    """Return a table of three columns, their names, the kind of the scores, and whether there is a header."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    suffix = path.suffix.lower()
    if suffix not in _TABLES:
        chosen, kind, header, width = columns_of_list(path, output)
        mark = separator_of(path)
        if mark is None:
            raise ConfigError(f"{path}: columns are parted by spaces; write tabs or commas")
        every = [f"column {at}" for at in range(width)]
        types = dict.fromkeys(every, pa.string()) | {every[chosen[2]]: pa.float64()}
        with arrow_file(path) as file:
            table = csv.read_csv(
                file,
                read_options=csv.ReadOptions(column_names=every, skip_rows=int(header is not None)),
                parse_options=csv.ParseOptions(delimiter=mark),
                convert_options=csv.ConvertOptions(
                    column_types=types, include_columns=[every[at] for at in chosen], strings_can_be_null=False
                ),
            )
        return table, [every[at] if header is None else header[at] for at in chosen], kind, header is not None
    with arrow_file(path) as file:
        if suffix in (".parquet", ".pq"):
            schema = pq.ParquetFile(file).schema_arrow
        else:
            schema = _open_arrow(path, file).schema
    names, kind = _choose_columns(path, schema, output)
    with arrow_file(path) as file:
        if suffix in (".parquet", ".pq"):
            table = pq.read_table(file, columns=names)
        else:
            table = _open_arrow(path, file).read_all()
    return table.select(names), names, kind, True


def _open_arrow(path: Path, file: Any) -> Any:
    import pyarrow as pa

    with open_regular(path) as plain:
        whole = plain.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    return pa.ipc.open_file(file) if whole else pa.ipc.open_stream(file)


def _choose_columns(path: Path, schema: Any, output: str | None) -> tuple[list[str], str]:
    """Return the columns of names and of scores, and the kind of the scores."""
    import pyarrow as pa

    names = list(schema.names)
    numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in schema.types]
    floats = [pa.types.is_floating(kind) for kind in schema.types]
    listed = " and ".join(f"{name} ({kind})" for name, kind in zip(names, schema.types, strict=True))
    if len(names) < 3:
        there = f"has the columns {listed}" if names else "has no columns"
        raise ConfigError(f"{path} {there}; two that name items and one of scores are needed")
    # What a line of text would show, where a cell is a number or is none.
    row = ["0.5" if isfloat else "1" if number else "x" for number, isfloat in zip(numbers, floats, strict=True)]
    found = columns_of_list([names, row], output)[:2]
    if found[0][2] < 0:
        score = next((at for at, name in enumerate(names) if name == output), None)
        if score is None:
            score = next((at for at, isfloat in enumerate(floats) if isfloat and at > 1), None)
        if (output is not None and output not in names) or score is None:
            raise ConfigError(f"{path}: which column is the score of a pair? It has {listed}; name one with `output=`")
        rest = [at for at in range(len(names)) if at != score][:2]
        found = (rest[0], rest[1], score), "unknown"
    at, kind = found
    return [names[column] for column in at], kind


def _number_items(left: Any, right: Any, counted: bool) -> tuple[tuple[Index, Index], Sequence[str]]:
    """Return the items of each pair by number, and their names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if counted:
        ends = _whole_numbers(left), _whole_numbers(right)
        if ends[0] is not None and ends[1] is not None and len(left):
            n = int(max(ends[0].max(), ends[1].max())) + 1
            if min(ends[0].min(), ends[1].min()) >= 0 and n <= _MOST_SPARSE * len(left):
                return (ends[0], ends[1]), IndexKeys(n)
    both = pa.concat_arrays([values.cast(pa.large_string()) for values in (left, right)])
    coded = pc.dictionary_encode(both)
    numbers = np.asarray(coded.indices.to_numpy(), np.int64)
    return (numbers[: len(left)], numbers[len(left) :]), coded.dictionary.to_pylist()


def _whole_numbers(values: Any) -> Index | None:
    """Return whole numbers, None where some are none."""
    import pyarrow as pa

    try:
        return np.asarray(values.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    except pa.ArrowException:
        return None


def _join_directions(found: _Edges, label: str) -> tuple[Index, Index, Values]:
    """Return each pair once, i < j; refuse a pair that has two scores in one direction."""
    other = found.left != found.right
    left, right, scores = found.left[other], found.right[other], found.scores[other]
    n = len(found.names)
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        at = wrong[0]
        pair = f"{found.names[left[at]]} and {found.names[right[at]]}"
        raise ConfigError(f"{label}: the pair {pair} has {scores[at]}; leave such pairs out")
    order = np.argsort(left * n + right, kind="stable")
    left, right, scores = left[order], right[order], scores[order]
    again = np.flatnonzero((left[1:] == left[:-1]) & (right[1:] == right[:-1]) & (scores[1:] != scores[:-1]))
    if len(again):
        at = again[0]
        raise ConfigError(
            f"{label}: {found.names[left[at]]} with {found.names[right[at]]} has the scores {scores[at]:g} and "
            f"{scores[at + 1]:g}; keep one of them"
        )
    fresh = np.ones(len(left), bool)
    fresh[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    left, right, scores = left[fresh], right[fresh], scores[fresh]
    i, j = np.minimum(left, right), np.maximum(left, right)
    _, first, places, counts = np.unique(i * n + j, return_index=True, return_inverse=True, return_counts=True)
    return i[first], j[first], np.bincount(places, scores, len(first)) / counts


def neighbors_of_pairs(pairs: KeptPairs, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest items of each one among its kept pairs.

    Returns
    -------
    indices : int64 array (n, count)
        -1 where an item has fewer pairs.
    distances : float64 array (n, count)
        NaN there.
    """
    ends = np.concatenate([pairs.i, pairs.j]), np.concatenate([pairs.j, pairs.i])
    distances = np.concatenate([pairs.distances, pairs.distances])
    order = np.lexsort((ends[1], distances, ends[0]))
    item, other, distances = ends[0][order], ends[1][order], distances[order]
    rank = np.arange(len(item)) - np.searchsorted(item, item)
    near = rank < count
    indices = np.full((pairs.n, count), -1, np.int64)
    values = np.full((pairs.n, count), np.nan)
    indices[item[near], rank[near]] = other[near]
    values[item[near], rank[near]] = distances[near]
    return indices, values


def say_edges(pairs: KeptPairs) -> str:
    """Say what was taken for what."""
    how = "taken as distances" if pairs.conversion is None else say_conversion(pairs.conversion)
    return f"{pairs.label}: {pluralize(len(pairs.i), 'pair')} of {pairs.n:,} items, kept elsewhere; {how}"
