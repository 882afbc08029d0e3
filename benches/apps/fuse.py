"""Fusion of simulated particles against their known truth, end to end: ``tartan run``, then ``tartan microscopy fuse``.

100 particles (``n=``) of the simulator's structure, at densities 0.8 and 0.5 (``density=0.8``: only that):

- particles whose angle is within 0.1 rad of the truth, and the root mean square of all angles, after one turn of all;
- root mean square distance of the fused points to the true sites, those that belong to no site left out, beside
  the least that localisation allows, sqrt(2) sigma;
- Fourier ring correlation: resolution of two halves over that of the median single particle.

Pictures and tables stay where ``keep=FOLDER`` says.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.shared._measure import options_of, print_table
from tartan.apps.microscopy.fused_run import move_points
from tartan.apps.microscopy.simulate import simulate
from tartan.cli.main import main as tartan_command
from tartan.errors import InternalError

Array = NDArray[np.float64]

#: Density, least share of angles within 0.1 rad, and most rms of angles where there is a bar.
CASES = ((0.8, 1.0, 0.01), (0.5, 0.95, None))
RIGHT = 0.1


def command(*words: object) -> str:
    """Run a command of Tartan; return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = tartan_command([*map(str, words)])
    if status:
        raise InternalError(f"tartan {words[0]} ended with status {status}")
    return printed.getvalue()


def fused(folder: Path, n: int, density: float) -> tuple[dict[str, Any], float]:
    """Simulate, compare and fuse; return what fusion says, and its seconds."""
    simulate(folder, n, 1, density=density)
    command("run", "microscopy", folder / "particles.json", "-o", folder / "run", "--quiet")
    start = time.perf_counter()
    about: dict[str, Any] = json.loads(command("microscopy", "fuse", folder / "run", "-o", folder / "fused", "--json"))
    return about, time.perf_counter() - start


def angle_errors(folder: Path) -> Array:
    """Return how far the angle of each particle is from the truth, after the turn of all that suits most."""
    truth = json.loads((folder / "truth.json").read_text())
    lines = (folder / "fused" / "particles.csv").read_text().splitlines()[1:]
    found = {int(line.split(",")[0].rpartition("#")[2]): float(line.split(",")[1]) for line in lines}
    off = np.array([found[k] - truth["particles"][k]["angle"] for k in sorted(found)])
    most = max(off.tolist(), key=lambda one: int((np.abs(wrapped(off - one)) < RIGHT).sum()))
    centred = wrapped(off - most)
    errors = np.full(len(truth["particles"]), np.pi)  # what is apart counts as wrong
    errors[sorted(found)] = wrapped(centred - np.median(centred[np.abs(centred) < RIGHT]))
    return np.abs(errors)


def wrapped(angles: Array) -> Array:
    """Return angles from -pi to pi."""
    return np.angle(np.exp(1j * angles))


def site_distance(folder: Path, errors: Array) -> float:
    """Return the root mean square distance of the fused points to the nearest true sites, strays left out.

    The frame of the truth is laid onto that of the fusion by the particles whose angle is right; all count.
    """
    import pyarrow.parquet as pq
    from scipy.spatial import cKDTree

    truth = json.loads((folder / "truth.json").read_text())
    table = pq.read_table(folder / "fused" / "fused.parquet").to_pydict()
    points = np.column_stack([table["x"], table["y"]])
    particle = np.array([int(name.rpartition("#")[2]) for name in table["particle"]])
    known, real = np.empty_like(points), np.ones(len(points), bool)
    particles = json.loads((folder / "particles.json").read_text())["particles"]
    for k in np.unique(particle).tolist():
        there = np.column_stack([np.array(particles[k]["points"]), particles[k]["sigma"]])
        pose = truth["particles"][k]
        at = np.flatnonzero(particle == k)
        known[at] = move_points(there, pose["angle"], np.array(pose["translation"]))[:, :2]
        real[at[len(at) - truth["stray"] :]] = False
    good = real & (errors[particle] < RIGHT)
    a, b = points[good] - points[good].mean(axis=0), known[good] - known[good].mean(axis=0)
    theta = np.arctan2((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum(), (a * b).sum())
    turned = move_points(
        np.column_stack([points - points[good].mean(axis=0), np.zeros(len(points))]), theta, np.zeros(2)
    )
    distances, _ = cKDTree(np.array(truth["sites"])).query(turned[real, :2] + known[good].mean(axis=0))
    return float(np.sqrt(np.mean(distances**2)))


def case(folder: Path, n: int, density: float, least: float, most_rms: float | None) -> list[list[object]]:
    """Measure one density."""
    about, seconds = fused(folder, n, density)
    sigma = json.loads((folder / "truth.json").read_text())["sigma"]
    errors = angle_errors(folder)
    ideal = np.sqrt(2) * sigma
    name = f"density {density}"
    rms_bar = "" if most_rms is None else f"<= {most_rms}"
    distance = site_distance(folder, errors) / ideal
    return [
        [name, "angles within 0.1 rad, share", float((errors < RIGHT).mean()), f">= {least:g}"],
        [name, "rms of angles, rad", float(np.sqrt(np.mean(errors**2))), rms_bar],
        [name, "rms of the right angles, rad", float(np.sqrt(np.mean(errors[errors < RIGHT] ** 2))), ""],
        [name, "points to sites / sqrt(2) sigma", distance, "<= 1.1"],
        [name, "resolution of halves / of single", about["resolution"] / about["resolution_of_single"], "<= 0.65"],
        [name, "fusion, s", seconds, ""],
    ]


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    words = options_of(arguments, n=100, density=0.0, keep="")
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(words.keep or temporary)
        for density, least, most_rms in CASES:
            if words.density in (0.0, density):
                rows += case(base / f"density_{density}", words.n, density, least, most_rms)
    print_table(f"fusion of {words.n} simulated particles", rows, ("what", "unit", "value", "bar"))
    return {f"{what}, {unit}": value for what, unit, value, _ in rows}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
