"""Texts of LC-MS peaks and of their clusters: the nine-column table, the original program's output, plain TSV."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.errors import ConfigError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

COLUMNS = ("index", "m/z", "RT", "charge", "peptide", "peptideId", "mclust", "medea", "experiment")
# The last five columns where a file has only the first four.
_UNKNOWN = ["-", "-1", "0", "0", "0"]
# The cluster that the original program writes for a centre.
# By format of the original program.
_CENTRE = 100_000_000


@dataclass(frozen=True)
class Peaks:
    """Peaks of one file and charge.

    Attributes
    ----------
    index : ndarray of int64, shape (n,)
        First column.
    points : ndarray, shape (n, 2)
        m/z and retention time.
    charge, experiment : ndarray of int64, shape (n,)
    peptides : tuple of str
        Names.
    references : dict of str to ndarray of int64
        "golden", "mclust", "medea": clusters of others; below 1 for none, but golden ones begin with 0.
    """

    index: Ints
    points: Floats
    charge: Ints
    peptides: tuple[str, ...]
    references: dict[str, Ints]
    experiment: Ints


@dataclass(frozen=True)
class Earlier:
    """A clustering that was written: `read_clusters`.

    Attributes
    ----------
    index : ndarray of int64, shape (n,)
    points : ndarray, shape (n, 2)
    labels : ndarray of int64, shape (n,)
        -1 for noise; else the row in ``centers``.
    centers : ndarray, shape (n_clusters, 2)
    """

    index: Ints
    points: Floats
    labels: Ints
    centers: Floats


def read_peaks(path: str | Path, charge: int | None = 2) -> Peaks:
    """Read a text of peaks, plain or gzip: columns separated by white space.

    Parameters
    ----------
    path : path
        Columns: index, m/z, RT, charge, peptide, peptideId, mclust, medea, experiment; all nine, or the first four
        where no more is known. Empty lines and a first line of names are passed over.
    charge : int or None
        Which peaks: of this charge; a negative number takes all but those; None takes all.

    Returns
    -------
    Peaks
        In the order of the file.

    Raises
    ------
    ConfigError
        If the file cannot be read, a line has other columns or a value is none; line and column are named. If there
        are not peaks of the charge.
    """
    every = list(_rows(path))
    if not every:
        raise ConfigError(f"{path}: there are no peaks", context={"path": str(path)})
    rows = [row for row in every if charge is None or (row[3] == charge if charge >= 0 else row[3] != -charge)]
    if not rows:
        charges = ", ".join(map(str, sorted({row[3] for row in every})))
        raise ConfigError(
            f"{path}: there are no peaks of charge {charge}; there are those of {charges}", context={"path": str(path)}
        )
    columns = list(zip(*rows))
    ints = {name: np.array(columns[at], dtype=np.int64) for at, name in enumerate(COLUMNS) if at not in (1, 2, 4)}
    references = {"golden": ints["peptideId"], "mclust": ints["mclust"], "medea": ints["medea"]}
    points = np.column_stack([columns[1], columns[2]]).astype(np.float64)
    return Peaks(ints["index"], points, ints["charge"], columns[4], references, ints["experiment"])


def _rows(path: str | Path) -> Iterator[tuple[Any, ...]]:
    for number, fields in _fields(path):
        if fields[0].lstrip("#").lower() == "index" and number == 1:
            continue
        if len(fields) == 4:
            fields += _UNKNOWN
        if len(fields) != len(COLUMNS):
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} columns separated by white space; there must be the "
                f"{len(COLUMNS)} {', '.join(COLUMNS)}, or the first four of them",
                context={"path": str(path), "line": number},
            )
        yield tuple(_value(path, number, at, text) for at, text in enumerate(fields))


def _fields(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                fields = line.split()
                if fields:
                    yield number, fields
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read as text: {error}", context={"path": str(path)}) from error


def _open(path: str | Path) -> TextIO:
    """Open a text, plain or gzip, with or without a byte order mark."""
    with open(path, "rb") as file:
        opens = gzip.open if file.read(2) == b"\x1f\x8b" else open
    return cast(TextIO, opens(path, "rt", encoding="utf-8-sig"))


def _value(path: str | Path, line: int, column: int, text: str) -> int | float | str:
    if column == 4:
        return text
    kind = "a positive number" if column == 1 else "a finite number" if column == 2 else "a whole number"
    try:
        if column in (1, 2):
            value = float(text)
            if np.isfinite(value) and (column == 2 or value > 0):
                return value
        elif -(2**63) <= int(text) < 2**63:
            return int(text)
    except ValueError:
        pass
    raise ConfigError(
        f"{path}, line {line}, column {column + 1} ({COLUMNS[column]}): {text!r} must be {kind}",
        context={"path": str(path), "line": line, "column": column + 1},
    )


def write_clusters(folder: Path, stem: str, peaks: Peaks, labels: Ints, centers: Floats, max_clusters: int) -> Path:
    """Write the original program's output: one line for each peak, then one for each centre.

    Parameters
    ----------
    folder : Path
    stem : str
        Beginning of the file's name, followed by ``-M<max_clusters>-C<clusters>.txt``.
    peaks : Peaks
    labels : ndarray of int64, shape (n,)
        Row in ``centers``, -1 for noise. The file has 0 for noise, and clusters begin with 1.
    centers : ndarray, shape (n_clusters, 2)
    max_clusters : int

    Returns
    -------
    Path
        Of the file: index, m/z, RT, 0.0, cluster, then golden, mclust, medea and experiment.
    """
    path = folder / f"{stem}-M{max_clusters}-C{len(centers)}.txt"
    golden, mclust, medea = (peaks.references[name].tolist() for name in ("golden", "mclust", "medea"))
    extras = zip(golden, mclust, medea, peaks.experiment.tolist())
    rows = zip(peaks.index.tolist(), peaks.points.tolist(), (labels + 1).tolist(), extras)
    lines = [f"{i}\t{x!r}\t{y!r}\t0.0\t{k}\t" + "\t".join(map(str, more)) for i, (x, y), k, more in rows]
    after = int(peaks.index.max()) + 1
    lines += [f"{after + k}\t{x!r}\t{y!r}\t0.0\t{_CENTRE}" for k, (x, y) in enumerate(centers.tolist())]
    _replace(path, lines)
    return path


def read_clusters(path: str | Path) -> Earlier:
    """Read what `write_clusters` or the original program wrote, or the folder that ``tartan lcms cluster`` wrote.

    Raises
    ------
    ConfigError
        If a line is not index, two coordinates, a number and a cluster, or the centres do not fit to the clusters. If
        a folder does not hold such a result.
    """
    path = Path(path)
    if path.is_dir():
        return _read_tables(path)
    rows = []
    for number, fields in _fields(path):
        try:
            rows.append((int(fields[0]), float(fields[1]), float(fields[2]), int(fields[4])))
        except (IndexError, ValueError) as error:
            raise ConfigError(
                f"{path}, line {number}: must be index, m/z, RT, 0.0 and cluster ({error})",
                context={"path": str(path), "line": number},
            ) from error
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    of_centre = table[:, 3] == _CENTRE
    points, labels = table[~of_centre], table[~of_centre, 3].astype(np.int64) - 1
    return _earlier(path, points[:, 0], points[:, 1:3], labels, table[of_centre, 1:3])


def _read_tables(folder: Path) -> Earlier:
    """Read the tables that ``tartan lcms cluster`` wrote into a folder."""
    try:
        peaks = _columns(folder / "peaks.tsv", ("index", "mz", "rt", "cluster"))
        centers = _columns(folder / "clusters.tsv", ("mz", "rt"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder}: no result of tartan lcms cluster, which has peaks.tsv and clusters.tsv ({error})",
            context={"path": str(folder)},
        ) from error
    return _earlier(folder, peaks[:, 0], peaks[:, 1:3], peaks[:, 3].astype(np.int64), centers)


def _columns(path: Path, names: tuple[str, ...]) -> Floats:
    with open(path, encoding="utf-8") as file:
        found = file.readline().rstrip("\n").split("\t")
        at = [found.index(name) for name in names]
        lines = file.read().splitlines()
    return np.loadtxt(lines, delimiter="\t", comments=None, usecols=at, ndmin=2) if lines else np.empty((0, len(at)))


def _earlier(path: Path, index: Floats, points: Floats, labels: Ints, centers: Floats) -> Earlier:
    finite = all(np.isfinite(values).all() for values in (index, points, centers))
    if labels.max(initial=-1) >= len(centers) or labels.min(initial=0) < -1 or not finite:
        raise ConfigError(
            f"{path}: clusters up to {labels.max(initial=-1) + 1} and {len(centers)} centres; it is not a clustering"
        )
    return Earlier(index.astype(np.int64), points.copy(), labels, centers.copy())


def write_table(path: Path, columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns as tab-separated text with a line of names; floats to the last digit."""
    listed = [values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()]
    _replace(path, ["\t".join(columns), *("\t".join(map(str, row)) for row in zip(*listed))])


def _replace(path: Path, lines: Iterable[str]) -> None:
    with whole_file(path) as unfinished:
        unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
