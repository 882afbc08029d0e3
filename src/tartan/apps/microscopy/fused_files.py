"""What a fusion writes: points and poses as tables, for MATLAB, and the detail in which two halves agree."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.apps.microscopy.frc import resolution, ring_correlation
from tartan.apps.microscopy.fusion import Fusion, PairMotions, fuse, groups, moved, pair_weights
from tartan.apps.microscopy.points import thinned
from tartan.base.cells import cell_of

Array = NDArray[np.float64]

_ALIGNED_POINTS = 2000
_PIXELS = 4.0


@dataclass(frozen=True)
class Detail:
    """Fourier ring correlation of a fusion.

    Attributes
    ----------
    frequencies, correlation : ndarray
        Of two halves of the particles, fused apart.
    fused, single : float
        Length at which the correlation of the halves falls to 1/7, and the median of that of single particles whose
        points are split at random; NaN where it cannot be said.
    """

    frequencies: Array
    correlation: Array
    fused: float
    single: float


def measure_detail(points: Sequence[Array], motions: PairMotions, symmetry: int) -> Detail | None:
    """Fuse two random halves of the particles apart, lay them onto each other, and correlate them.

    Of each half those particles count that pairs within it connect; None where a half has none.
    """
    n, rng = len(points), np.random.default_rng(0)
    pixel = float(np.median(np.concatenate([one[:, 2] for one in points]))) / _PIXELS
    order = rng.permutation(n)
    halves = []
    for half in (np.sort(order[: n // 2]), np.sort(order[n // 2 :])):
        half = half[groups(pair_weights(motions.of(half).scores, np.array([len(points[k]) for k in half]))) == 0]
        if len(half) < 2:
            return None
        chosen = [points[k] for k in half]
        found = fuse(chosen, motions.of(half), symmetry)
        halves.append(np.concatenate([found.moved(one, k) for k, one in enumerate(chosen) if found.fits[k]]))
    few = [thinned(half, _ALIGNED_POINTS) for half in halves]
    x, y, theta = _native.microscopy_register([few[0]], [few[1]], symmetry=symmetry)[0, 0, 1:4]
    frequencies, correlation = ring_correlation(moved(halves[0], theta, np.array([x, y])), halves[1], pixel)
    alone = []
    for one in points:
        mixed = one[rng.permutation(len(one))]
        alone.append(resolution(*ring_correlation(mixed[::2], mixed[1::2], pixel)))
    known = [length for length in alone if np.isfinite(length)]
    single = float(np.median(known)) if known else float("nan")
    return Detail(frequencies, correlation, resolution(frequencies, correlation), single)


def fused_points(points: Sequence[Array], fusion: Fusion) -> tuple[Array, NDArray[np.int64]]:
    """Return the points of the particles that fit in the common frame, (m, 3), and the particle of each."""
    kept: list[int] = np.flatnonzero(fusion.fits).tolist()
    placed = [fusion.moved(points[k], k) for k in kept]
    return np.concatenate(placed), np.repeat(np.array(kept, np.int64), [len(points[k]) for k in kept])


def spread(points: Array, particle: NDArray[np.int64], symmetry: int) -> Array:
    """Turn the particles of a symmetric structure to its copies in turn, about the centre of all points."""
    if symmetry == 1:
        return points
    angles = 2 * np.pi * (particle % symmetry) / symmetry
    centre = points[:, :2].mean(axis=0)
    x, y = (points[:, :2] - centre).T
    cos, sin = np.cos(angles), np.sin(angles)
    return np.column_stack([cos * x - sin * y + centre[0], sin * x + cos * y + centre[1], points[:, 2]])


def write_points(folder: Path, points: Array, particle: NDArray[np.int64], keys: Sequence[str]) -> None:
    """Write ``fused.parquet`` and ``fused.mat``: x, y, sigma and the particle of each point."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.io

    names = pa.array([keys[k] for k in particle.tolist()]).dictionary_encode()
    columns = {"x": points[:, 0], "y": points[:, 1], "sigma": points[:, 2], "particle": names}
    _replacing(folder / "fused.parquet", lambda path: pq.write_table(pa.table(columns), path))
    stored = {"points": points[:, :2], "sigma": points[:, 2:], "particle": particle[:, None] + 1}
    _replacing(folder / "fused.mat", lambda path: scipy.io.savemat(path, stored, appendmat=False, do_compression=True))


def write_rows(path: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table as CSV."""

    def write(partial: Path) -> None:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([cell_of(one) if isinstance(one, str) else one for one in row] for row in rows)

    _replacing(path, write)


def _replacing(path: Path, write: object) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)  # type: ignore[operator]
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
