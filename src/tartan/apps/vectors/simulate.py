"""Vectors with known truth: clusters of rows in one .npy file, written in blocks, never all in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

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

    Returns
    -------
    Path
        ``truth.json``: n, d, seed, clusters, metric, spread, and labels, the cluster of each vector in order.

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
    _check(n, d, clusters, seed, spread, metric)
    folder.mkdir(parents=True, exist_ok=True)
    description = {"n": n, "d": d, "seed": seed, "clusters": clusters, "metric": metric, "spread": spread}
    centres = np.random.default_rng([seed, 0]).standard_normal((clusters, d), dtype=np.float32)
    draw = _booleans if metric in _BOOLEAN else _normals
    with _replacing(folder / "vectors.npy") as file:
        _write_header(file, (n, d), np.dtype(np.bool_ if metric in _BOOLEAN else np.float32))
        for block, labels in _labels(n, d, clusters, seed):
            draw(centres[labels], spread, np.random.default_rng([seed, 2, block])).tofile(file)
    with _replacing(folder / "truth.json") as file:
        file.write(json.dumps(description)[:-1].encode() + b', "labels": [')
        for block, labels in _labels(n, d, clusters, seed):
            file.write(b", " * (block > 0) + ", ".join(map(str, labels.tolist())).encode())
        file.write(b"]}\n")
    return folder / "truth.json"


def _check(n: int, d: int, clusters: int, seed: int, spread: float, metric: str) -> None:
    for name, value, least in (("n", n, 1), ("d", d, 1), ("clusters", clusters, 1), ("seed", seed, 0)):
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
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when all was written, and vanishes when not."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
