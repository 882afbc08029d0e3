"""Vectors with known truth: clusters of rows in one .npy file, written in blocks, never all in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tartan.apps.vectors.metrics import METRICS
from tartan.errors import ConfigError

# Values generated at a time: 16 MB of float32.
_BLOCK_VALUES = 1 << 22
# Metrics of sets and symbols: their vectors are booleans.
_BOOLEAN = ("hamming", "jaccard")


def simulate(
    folder: Path,
    n: int,
    seed: int,
    *,
    d: int = 128,
    clusters: int = 10,
    metric: str = "cosine",
    spread: float = 0.25,
    hard: bool = False,
) -> Path:
    """Write n vectors that lie around ``clusters`` centres, and the cluster of each.

    Parameters
    ----------
    folder : Path
        Gets ``vectors.npy``, (n, d), and ``truth.json``; made when absent.
    n, d : int
        Number of vectors, and positions of each.
    seed : int
        The same arguments give the same files.
    clusters : int
        Number of centres; the cluster of a vector is drawn uniformly.
    metric : str
        What the vectors are for. "hamming" and "jaccard" get booleans, all others float32.
    spread : float
        float32: standard deviation around a centre, whose own coordinates have 1. Booleans: the chance that a position
        is drawn anew instead of copied from the centre, up to 1.
    hard : bool
        Difficult vectors, see ``DifficultVectors``: three in front of which the metric says nothing, duplicates, ties,
        clusters that are chains, another unit, and with angles rows of different lengths. Takes 8 vectors or more.

    Returns
    -------
    Path
        ``truth.json``: n, d, seed, clusters, metric, spread, and labels, the cluster of each vector in order. With
        ``hard`` also ``unit``, the length of what is 1 otherwise; ``bad``, why rows cannot be compared; and
        ``duplicates``, the earlier row that a row equals. The first three have the label -1.

    Raises
    ------
    ConfigError
        If a count is below 1, the metric is unknown, or the spread is out of range.

    Notes
    -----
    Memory is some 50 MB and the centres, whatever n is. A longer file begins with the shorter one's vectors.

    Examples
    --------
    >>> import tempfile
    >>> truth = simulate(Path(tempfile.mkdtemp()), 100, 1, d=8, clusters=3)
    >>> np.load(truth.with_name("vectors.npy")).shape
    (100, 8)
    """
    _check(n, d, clusters, seed, spread, metric, hard)
    folder.mkdir(parents=True, exist_ok=True)
    description: dict[str, Any] = {"n": n, "d": d, "seed": seed, "clusters": clusters, "metric": metric}
    description["spread"] = spread
    difficult = DifficultVectors(seed, metric, max(1, _BLOCK_VALUES // d)) if hard else None
    if difficult is not None:
        description |= difficult.truth(n)
    centres = np.random.default_rng([seed, 0]).standard_normal((clusters, d), dtype=np.float32)
    draw = _booleans if metric in _BOOLEAN else _normals
    with _replace(folder / "vectors.npy") as file:
        _write_header(file, (n, d), np.dtype(np.bool_ if metric in _BOOLEAN else np.float32))
        for block, labels in _labels(n, d, clusters, seed):
            rows = draw(centres[labels], spread, np.random.default_rng([seed, 2, block]))
            (rows if difficult is None else difficult.rows(block, rows, labels)).tofile(file)
    with _replace(folder / "truth.json") as file:
        file.write(json.dumps(description)[:-1].encode() + b', "labels": [')
        for block, drawn in _labels(n, d, clusters, seed):
            labels = drawn if difficult is None else difficult.labels(block, drawn)
            file.write(b", " * (block > 0) + ", ".join(map(str, labels.tolist())).encode())
        file.write(b"]}\n")
    return folder / "truth.json"


def _check(n: int, d: int, clusters: int, seed: int, spread: float, metric: str, hard: bool) -> None:
    if hard and n < LEAST_ITEMS:
        raise ConfigError(f"n: {n} must be {LEAST_ITEMS} or more with hard=True", context={"option": "n"})
    for name, value, least in (
        ("n", n, 1),
        ("d", d, 1),
        ("clusters", clusters, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ConfigError(f"{name}: {value} must be {least} or more", context={"option": name})
    if metric not in METRICS:
        raise ConfigError(f"metric: {metric!r} is unknown; choose from {', '.join(METRICS)}")
    largest = 1.0 if metric in _BOOLEAN else float(np.finfo(np.float32).max) / 100
    if not 0 <= spread <= largest:
        raise ConfigError(f"spread: {spread} must be between 0 and {largest:g}", context={"option": "spread"})


def _labels(n: int, d: int, clusters: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """Draw the clusters of each block of vectors; a longer run begins with the same ones."""
    step = max(1, _BLOCK_VALUES // d)
    for block, start in enumerate(range(0, n, step)):
        rng = np.random.default_rng([seed, 1, block])
        yield block, rng.integers(clusters, size=min(step, n - start))


def _normals(centres: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    rows: np.ndarray = rng.standard_normal(centres.shape, dtype=np.float32)
    rows *= np.float32(spread)
    rows += centres
    return rows


def _booleans(centres: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    draws = rng.random(centres.shape, dtype=np.float32)
    # Below the spread a draw decides anew, by which half of that range it fell in.
    rows: np.ndarray = np.where(draws < spread, draws < spread / 2, centres > 0)
    return rows


def _write_header(file: BinaryIO, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    description = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": description, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


@contextmanager
def _replace(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when all was written, and vanishes when not."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


# What makes simulated vectors difficult, and the truth about it.
#
# The first three vectors cannot be compared (``bad``), or for sets are empty, full and empty. Every fifth one is a copy
# of an earlier one of its block. Of the clusters, every third is rounded to quarters, so that distances tie, and every
# other one is a chain, a line of vectors. All have another unit; where only angles count, each has a length of its own.

LEAST_ITEMS = 8

_N_BAD = 3
_EVERY = 5  # one vector of so many is a copy
_ANGLES = ("cosine", "correlation")
_SETS = ("hamming", "jaccard")
_LONGEST_CHAIN = 2.0  # in the unit in which coordinates of centres have a deviation of 1
_MOST_EXPONENT = 12


@dataclass(frozen=True)
class DifficultVectors:
    """Difficult vectors of one seed and metric, made in blocks of ``step`` of them."""

    seed: int
    metric: str
    step: int

    @property
    def unit(self) -> float:
        """A power of ten; 1 for sets."""
        exponent = np.random.default_rng([self.seed, 3]).integers(-_MOST_EXPONENT, _MOST_EXPONENT + 1)
        return 1.0 if self.metric in _SETS else float(f"1e{exponent}")

    def truth(self, n: int) -> dict[str, Any]:
        """Return the unit, the rows that cannot be compared with the reason, and the row that each copy equals."""
        names = {} if self.metric in _SETS else {0: "NaN", 1: "infinite", 2: self._third()}
        copies = {2: 0} if self.metric in _SETS else {}
        for block, start in enumerate(range(0, n, self.step)):
            sources = self._sources(block, min(self.step, n - start))
            at = np.flatnonzero(sources != np.arange(len(sources)))
            copies |= dict(zip((at + start).tolist(), (sources[at] + start).tolist(), strict=True))
        return {"hard": True, "unit": self.unit, "bad": names, "duplicates": copies}

    def labels(self, block: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the clusters of a block: -1 for what cannot be compared, and of a copy that of its original."""
        found: NDArray[np.int64] = labels[self._sources(block, len(labels))]
        if block * self.step < _N_BAD:
            found[: max(0, _N_BAD - block * self.step)] = -1
        return found

    def rows(self, block: int, rows: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
        """Return a block of vectors made difficult; ``rows`` are overwritten."""
        if self.metric not in _SETS:
            rows = self._numbers(block, rows, labels)
        rows = rows[self._sources(block, len(rows))]
        for row in range(max(0, min(_N_BAD - block * self.step, len(rows)))):
            self._spoil(rows, row, row + block * self.step)
        return rows

    def _numbers(self, block: int, rows: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
        rng = np.random.default_rng([self.seed, 4, block])
        draws = rng.random((len(rows), 2), dtype=np.float32)
        direction = np.random.default_rng([self.seed, 5]).choice([-1, 1], rows.shape[1]).astype(np.float32)
        rows += np.where(labels % 2 == 1, _LONGEST_CHAIN * draws[:, 0], np.float32(0))[:, None] * direction
        tied = labels % 3 == 0
        rows[tied] = np.round(rows[tied] * 4) / 4
        lengths = 10 ** (6 * draws[:, 1] - 3) if self.metric in _ANGLES else np.ones(len(rows), np.float32)
        rows *= (lengths * np.float32(self.unit))[:, None]
        return rows

    def _third(self) -> str:
        return {"cosine": "zero", "correlation": "constant"}.get(self.metric, "infinite")

    def _spoil(self, rows: NDArray[Any], row: int, which: int) -> None:
        """Overwrite one of the first vectors."""
        if self.metric in _SETS:
            rows[row] = which == 1
        elif which == 2 and self.metric in _ANGLES:
            rows[row] = 0.0 if self.metric == "cosine" else 1.5
        else:
            rows[row, -1] = (np.nan, np.inf, -np.inf)[which]

    def _sources(self, block: int, m: int) -> NDArray[np.int64]:
        """Return the row of the block that each row is a copy of, or itself; no copy is copied, nor what is bad."""
        sources = np.arange(m)
        copies = sources[sources % _EVERY == _EVERY - 1]
        first = max(0, _N_BAD - block * self.step)
        copies = copies[copies > first]
        draws = np.random.default_rng([self.seed, 6, block]).random(len(copies))
        originals = first + (draws * ((copies + 1) // _EVERY * (_EVERY - 1) - first)).astype(np.int64)
        sources[copies] = originals // (_EVERY - 1) * _EVERY + originals % (_EVERY - 1)
        return sources
