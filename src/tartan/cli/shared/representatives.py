"""``--representative``: which item of each cluster stands for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.keys import stems
from tartan.base.text_table import read_cells
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics import Clustering, Dissimilarities
    from tartan.run.inspection import Inspector

_FACTS = {
    "longest": ("letters", "amino acids", "members", "shingles", "length"),
    "n50": ("N50",),
}
_WAYS = ("first", "central", *_FACTS)


def add_representative(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--representative",
        metavar="WAY",
        help="name one item of each cluster: first, central (nearest to the others), longest, n50 (items of a run that "
        "have lengths or contigs), or TABLE:COLUMN, the largest number in a column of a CSV or TSV file whose first "
        "column names items",
    )


def require_way(way: str, *, is_run: bool) -> None:
    """Refuse a way that is none, or that needs what is not there, before anything is computed."""
    if way in _FACTS and not is_run:
        raise ConfigError(f"--representative {way} opens the items of a run, and a matrix has none; use central")
    if way not in _WAYS and ":" not in way:
        raise ConfigError(f"--representative: {way!r} is none of {', '.join(_WAYS)} or TABLE:COLUMN")
    if way not in _WAYS:
        name, _, column = way.rpartition(":")
        read_column(Path(name), column, ())


def choose_representatives(
    way: str,
    found: Clustering,
    keys: Sequence[str],
    matrix: Dissimilarities | None = None,
    inspector: Inspector | None = None,
) -> NDArray[np.int64]:
    """Return the item (n_clusters,) that stands for each cluster.

    Parameters
    ----------
    way : str
        As of the option.
    found : Clustering
        Labels of all items of the input.
    keys : sequence of str
        Names of the items.
    matrix : Dissimilarities, optional
        What was clustered; None for the pairs that a run keeps.
    inspector : Inspector, optional
        Opens the items of a run.

    Raises
    ------
    ConfigError
        If no item of a cluster has the number that decides.
    """
    if way == "first":
        return _choose_largest(found.labels, np.zeros(len(keys)), way, keys)
    if way == "central":
        return _choose_central(found, matrix)
    if way in _FACTS:
        assert inspector is not None
        there = np.flatnonzero(found.labels >= 0)
        return _choose_largest(found.labels, _read_facts(way, inspector, there, keys), way, keys)
    name, _, column = way.rpartition(":")
    return _choose_largest(found.labels, read_column(Path(name), column, keys), way, keys)


def rank_items(
    way: str | None, keys: Sequence[str], inspector: Inspector | None = None, failed: Sequence[int] = ()
) -> NDArray[np.float64] | None:
    """Return a number (n,) of each item, by which "greedy" chooses representatives; None: by how many are near.

    Parameters
    ----------
    way : str or None
        As of the option; None is "central".
    keys : sequence of str
    inspector : Inspector, optional
        Opens the items of a run.
    failed : sequence of int
        Items that are not opened.
    """
    if way is None or way == "central":
        return None
    if way == "first":
        return np.zeros(len(keys))
    if way in _FACTS:
        assert inspector is not None
        there = np.setdiff1d(np.arange(len(keys)), np.asarray(failed, np.int64))
        return _read_facts(way, inspector, there, keys)
    name, _, column = way.rpartition(":")
    return read_column(Path(name), column, keys)


def require_numbers(way: str, numbers: NDArray[np.float64], chosen: NDArray[np.int64], keys: Sequence[str]) -> None:
    """Refuse representatives that have no number: nothing of their clusters has.

    Raises
    ------
    ConfigError
    """
    lacking = chosen[np.isnan(numbers[chosen])]
    if lacking.size:
        raise ConfigError(f"--representative {way}: no item of the cluster of {keys[lacking[0]]!r} has a number there")


def _choose_central(found: Clustering, matrix: Dissimilarities | None) -> NDArray[np.int64]:
    if matrix is None:
        assert found.representatives is not None
        return found.representatives
    from tartan.analytics import cluster_centres

    there = np.asarray(matrix.kept)
    return there[cluster_centres(matrix, found.labels[there], n_centres=1)["mean"][:, 0]]


def _choose_largest(
    labels: NDArray[np.int64], numbers: NDArray[np.float64], way: str, keys: Sequence[str]
) -> NDArray[np.int64]:
    """Return of each cluster the item with the largest number, the first of several; NaN: it has none."""
    order = np.lexsort((np.arange(len(labels)), -numbers, labels))  # NaN is last
    order = order[labels[order] >= 0]
    first = order[np.flatnonzero(np.diff(labels[order], prepend=-1))]
    require_numbers(way, numbers, first, keys)
    return first


def _read_facts(way: str, inspector: Inspector, items: NDArray[np.int64], keys: Sequence[str]) -> NDArray[np.float64]:
    """Return a fact of each of some items; NaN for others."""
    numbers = np.full(len(keys), np.nan)
    for item in items.tolist():
        described = inspector.describe(item)
        value = next((described[name] for name in _FACTS[way] if name in described), None)
        if not isinstance(value, (int, float, np.integer, np.floating)):
            has = ", ".join(map(str, described)) or "nothing"
            raise ConfigError(
                f"--representative {way}: {keys[item]!r} has no {' or '.join(_FACTS[way])}; known of it is {has}. Use "
                "first, central or TABLE:COLUMN"
            )
        numbers[item] = value
    return numbers


def read_column(path: Path, column: str, keys: Sequence[str]) -> NDArray[np.float64]:
    """Return a number (n,) of each item from a table with a line of names; NaN for items that it does not name.

    The first column holds names of items, with or without their suffixes (``a.fna.gz`` is ``a``).

    Raises
    ------
    ConfigError
        If the file cannot be read, has no such column, or a number is none.
    """
    rows = read_cells(path, "--representative TABLE:COLUMN names a CSV or TSV file")
    names = [name.strip() for name in rows[0]] if rows else []
    if column not in names[1:]:
        raise ConfigError(f"{path} has no column {column!r}; it has {', '.join(names[1:]) or 'none'}")
    at = names.index(column, 1)
    known: dict[str, Any] = {row[0].strip(): (number, row) for number, row in enumerate(rows[1:], 2) if row}
    numbers = np.full(len(keys), np.nan)
    for item, (key, stem) in enumerate(zip(keys, stems(keys), strict=True)):
        number, row = known.get(key) or known.get(stem) or (0, None)
        if row is None:
            continue
        cell = row[at].strip() if at < len(row) else ""
        try:
            numbers[item] = float(cell) if cell else np.nan
        except ValueError:
            raise ConfigError(f"{path}, line {number}: {cell!r} in the column {column!r} is not a number") from None
    return numbers
