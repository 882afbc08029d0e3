"""All particles of a run laid onto each other: one particle, with the pose of each and the detail that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.apps.microscopy.fused_files import Detail, fused_points, measure_detail, spread, write_points, write_rows
from tartan.apps.microscopy.fusion import Fusion, PairMotions, fuse, groups, pair_weights
from tartan.base.files import disk_errors
from tartan.errors import ConfigError

Array = NDArray[np.float64]

_DRAWN = 4
_LEAST_HALVES = 4
_OF_SOME = ("frc.csv", "fused.png")


@dataclass(frozen=True)
class FusedParticle:
    """What the particles of a run show together.

    Attributes
    ----------
    points : ndarray (m, 3)
        x, y and uncertainty of the points of all particles that fit, in one frame.
    particle : int64 array (m,)
        The particle of each point, as a position in ``keys``.
    keys : list of str
        The n particles of the largest group that pairs connect.
    fusion : Fusion
        The pose of each of them, how well its pairs agree with it, and whether it fits.
    detail : Detail or None
        Fourier ring correlation of two halves; None below four particles, and where a half is not connected.
    apart : list of (str, int)
        Particles of other groups, each with the number of its group, the second largest first.
    single : list of ndarray
        Up to four particles of the highest weight, in the same frame.
    n_pairs_failed : int
    """

    points: Array
    particle: NDArray[np.int64]
    keys: list[str]
    fusion: Fusion
    detail: Detail | None
    apart: list[tuple[str, int]]
    single: list[Array]
    n_pairs_failed: int

    def spread(self) -> Array:
        """Return the points as they are drawn: those of a symmetric structure are spread over its copies."""
        return spread(self.points, self.particle, self.fusion.symmetry)

    def write(self, folder: Path) -> None:
        """Write points, poses, particles apart and correlation into a folder.

        Raises
        ------
        StoreError
            If the system refuses.
        """
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in _OF_SOME:  # of another fusion; not every one has them
                (folder / name).unlink(missing_ok=True)
            write_points(folder, self.points, self.particle, self.keys)
            write_rows(folder / "particles.csv", ("particle", "angle", "x", "y", "weight", "fits"), self._poses())
            write_rows(folder / "apart.csv", ("particle", "group"), self.apart)
            if self.detail is not None:
                curve = list(zip(self.detail.frequencies.tolist(), self.detail.correlation.tolist()))
                write_rows(folder / "frc.csv", ("frequency", "correlation"), curve)

    def _poses(self) -> list[tuple[object, ...]]:
        found = self.fusion
        return [
            (key, found.angles[k], *found.shifts[k], found.weights[k], "yes" if found.fits[k] else "no")
            for k, key in enumerate(self.keys)
        ]


def require_motions(run: Any) -> None:
    """Refuse runs that have no motions of all pairs.

    Raises
    ------
    ConfigError
        If the run is another application's, keeps less than all pairs, or is not finished.
    """
    manifest = run.manifest
    if manifest.application.get("source") != "builtin:microscopy" and manifest.application["name"] != "microscopy":
        raise ConfigError(f"{run.path} is a run of {manifest.application['name']}; fuse takes one of microscopy")
    if manifest.workload["kind"] == "rectangle" or manifest.reduce is not None:
        raise ConfigError(f"{run.path} keeps not all motions of one set of particles; run again without that")
    if run.n_pairs_left:
        raise ConfigError(f"{run.path} is not finished: {run.n_pairs_left:,} pairs are left; tartan resume finishes it")


def fuse_run(run: Any, items: Sequence[Any]) -> FusedParticle:
    """Lay the particles of a run onto each other.

    Parameters
    ----------
    run : Run
        Finished, of this application; see ``require_motions``.
    items : sequence
        Its particles as ``Microscopy.parse`` returns them; None where one cannot be read.

    Raises
    ------
    ConfigError
        If no pair connects two particles that could be read.
    """
    good = np.array([at for at, item in enumerate(items) if item is not None], np.intp)
    if len(good) < 2:
        raise ConfigError(f"{run.path} has {len(good)} particles that could be read; fusion takes two or more")
    points = [items[at][0] for at in good]
    motions = PairMotions(*(run.matrix(output=name) for name in ("scores", "theta", "tx", "ty"))).of(good)
    group = groups(pair_weights(motions.scores, np.array([len(one) for one in points])))
    members = np.flatnonzero(group == 0)
    if len(members) < 2:
        raise ConfigError(f"no pairs of {run.path} connect two particles; nothing can be fused")
    symmetry = int(run.manifest.application["parameters"].get("symmetry", 1))
    chosen, theirs = [points[k] for k in members], motions.of(members)
    found = fuse(chosen, theirs, symmetry)
    best = np.argsort(-found.weights, kind="stable")[:_DRAWN]
    return FusedParticle(
        *fused_points(chosen, found),
        keys=[str(run.keys[good[k]]) for k in members],
        fusion=found,
        detail=measure_detail(chosen, theirs, symmetry) if len(chosen) >= _LEAST_HALVES else None,
        apart=[(str(run.keys[good[k]]), int(group[k])) for k in np.flatnonzero(group > 0)],
        single=[found.moved(chosen[k], k) for k in best],
        n_pairs_failed=run.n_pairs_failed,
    )
