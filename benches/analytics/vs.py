"""Vector-sponge clustering of simulated LC-MS peaks: time, precision and recall by pairs, against three peers.

- The same equations and decisions in plain NumPy: the same annealing, with every pass over all centres as arrays of
  points times centres, on as many peaks as that allows. Both must end with the same clusters.
- What one would use else: scikit-learn's DBSCAN (the best of several radii, judged by the truth) and BIRCH, on
  coordinates divided by the standard deviations.
- The best that can be: every peak to the nearest mean of a peptide, if within three standard deviations.

``tartan bench vs n=240000 times=4 small=1500``: peaks, how many times faster than by default they cool, and peaks for
NumPy. Peptides crowd only where there are many peaks: fewer of them make it easy for all.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import DBSCAN, Birch

from benches.shared._measure import cores, load_average, options_of, print_table
from tartan.analytics import DAVS, Monitor
from tartan.analytics.clusters.davs.anneal import SpongeAnnealing, SpongeState
from tartan.analytics.clusters.davs.davs import check_settings
from tartan.analytics.clusters.davs.field import Field, SpongeStep
from tartan.apps import lcms
from tartan.apps.lcms.simulate import simulate

PEAKS, TIMES, SMALL = 240_000, 4.0, 1500
SIGMA = np.array(lcms.SETTINGS["sigma"])
RADII = (0.5, 0.75, 1.0, 1.5, 2.0)


class PlainField(Field):
    """The passes in NumPy: no lists, no threads of ours."""

    def __init__(self, points: np.ndarray) -> None:
        super().__init__(points)
        self.points = points[self.order]
        self.masses = np.zeros((0, 0))

    def rebuild(self, positions: np.ndarray, weights: np.ndarray, most: int, least: int, reach: float) -> None:
        self.masses = np.zeros((self.n, len(positions)))

    def weigh(self, step: SpongeStep) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        delta = self.points[:, None, :] - step.positions
        energies = (np.square(delta) * step.weights).sum(axis=2)
        exponents = step.log_priors - energies / (2 * step.temperature)
        sponge = -np.inf if step.sponge is None else step.sponge[0] - step.sponge[1] / (2 * step.temperature)
        top = np.maximum(exponents.max(axis=1), sponge)
        masses = np.exp(exponents - top[:, None])
        norms = masses.sum(axis=1) + np.exp(sponge - top)
        return delta, energies, masses / norms[:, None], top + np.log(norms)

    def assign(self, step: SpongeStep) -> tuple[np.ndarray, np.ndarray]:
        delta, energies, masses, norms = self.weigh(step)
        change = masses - self.masses
        total = np.abs(change).sum() + (0 if step.sponge is None else np.abs(change.sum(axis=1)).sum())
        self.masses = masses
        moved = np.einsum("nk,nkd->kd", masses, delta)
        sums = np.column_stack([masses.sum(axis=0), moved, (masses * energies).sum(axis=0)])
        return sums, np.array([self.n - masses.sum(), total, norms.sum()])

    def moments(self, step: SpongeStep) -> np.ndarray:
        delta, _, masses, _ = self.weigh(step)
        z = delta * np.sqrt(step.weights)
        squares = [np.einsum("nk,nk->k", masses, z[:, :, i] * z[:, :, j]) for i, j in zip(*np.triu_indices(self.dim))]
        slopes = masses / 2 * (1 - masses / 2) / step.temperature
        return np.column_stack([*squares, np.einsum("nk,nkd->kd", slopes, z)])

    def label(self, positions: np.ndarray, weights: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        energies = (np.square(self.points[:, None, :] - positions) * weights).sum(axis=2)
        labels, lowest = np.empty(self.n, dtype=np.int64), np.empty(self.n)
        labels[self.order] = np.argmin(energies + offsets, axis=1)
        lowest[self.order] = energies[np.arange(self.n), np.argmin(energies + offsets, axis=1)]
        return labels, lowest


def options(times: float) -> dict[str, Any]:
    """Return the settings of the LC-MS case, cooling so many times faster."""
    cooling = {"cooling": (0.9875**times, 0.9975**times), "cooling_below": (0.99375**times, 0.999375**times)}
    return lcms.SETTINGS | cooling


def peaks_of(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return simulated peaks and their peptides."""
    with tempfile.TemporaryDirectory() as folder:
        truth = json.loads(simulate(Path(folder), n, 1).read_text())
        return lcms.read_peaks(Path(folder) / "peaks.txt").points, np.array(truth["labels"])


def plain(points: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    """Return labels by NumPy."""
    settings = check_settings(DAVS(**given).get_params(), points)
    field, start = PlainField(points), settings.scales.first_temperature(points)
    annealing = SpongeAnnealing(
        field, settings, SpongeState.of(points.mean(axis=0)[None], len(points), start, start), Monitor()
    )
    annealing.run()
    step = annealing.step()
    labels, energies = field.label(step.positions, step.weights, np.zeros(len(step.positions)))
    return np.where(energies > given["sponge_factor"] ** 2, -1, labels)


def timed(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    labels = call()
    return time.perf_counter() - start, labels


def row(name: str, seconds: float, labels: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return one line of the table."""
    scores, noise = lcms.compare(labels, truth), truth < 0
    return {
        "method": name, "seconds": seconds, "clusters": len(np.unique(labels[labels >= 0])),
        "precision": scores.precision, "recall": scores.recall,
        "noise precision": float(noise[labels < 0].mean()) if (labels < 0).any() else 1.0,
        "noise recall": float((labels[noise] < 0).mean()) if noise.any() else 1.0,
    }  # fmt: skip


def dbscan(points: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return the line of the best radius, with the time of this radius alone."""
    rows = []
    for radius in RADII:
        seconds, labels = timed(lambda radius=radius: DBSCAN(eps=radius, min_samples=2).fit_predict(points))
        rows.append(row(f"DBSCAN eps {radius}", seconds, labels, truth))
    return max(rows, key=lambda one: 2 / (1 / one["precision"] + 1 / one["recall"]))


def nearest_peptide(points: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return what a reader of the truth would say: the nearest mean of a peptide within three standard deviations."""
    peptides, owner, sizes = np.unique(truth, return_inverse=True, return_counts=True)
    means = np.column_stack([np.bincount(owner, points[:, axis]) / sizes for axis in range(2)])[peptides >= 0]
    weights = 1 / np.column_stack([means[:, 0] * SIGMA[0], np.full(len(means), SIGMA[1])]) ** 2
    field = Field(points)
    field.rebuild(means, weights, 17, 2, 18.0)
    labels, energies = field.label(means, weights, np.zeros(len(means)))
    return np.where(energies > 9, -1, labels)


def large(n: int, times: float) -> list[dict[str, Any]]:
    points, truth = peaks_of(n)
    rows = [row("DAVS", *timed(lambda: DAVS(**options(times)).fit_predict(points)), truth)]
    scaled = np.column_stack([np.log(points[:, 0]), points[:, 1]]) / SIGMA
    rows.append(dbscan(scaled, truth))
    rows.append(row("BIRCH", *timed(lambda: Birch(threshold=1.5, n_clusters=None).fit_predict(scaled)), truth))
    rows.append(row("nearest true mean", 0.0, nearest_peptide(points, truth), truth))
    return rows


def small(n: int) -> list[dict[str, Any]]:
    points, truth = peaks_of(n)
    given = options(16.0)
    ours = row("DAVS", *timed(lambda: DAVS(**given).fit_predict(points)), truth)
    peer = row("NumPy", *timed(lambda: plain(points, given)), truth)
    return [ours, peer]


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    print_table(title, [list(one.values()) for one in rows], list(rows[0]))


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run all; print the tables; return the numbers."""
    words = options_of(arguments, n=PEAKS, times=float(TIMES), small=SMALL)
    n, times, n_small = words.n, words.times, words.small
    few = small(n_small)
    show(f"{n_small} peaks, the same annealing in NumPy: {few[1]['seconds'] / few[0]['seconds']:.1f} times", few)
    many = large(n, times)
    show(f"{n} peaks, cooling {times:g} times faster than by default", many)
    return {"cores": cores(), "load": load_average(), "n": n, "times": times, "small": few, "large": many}


if __name__ == "__main__":
    main(sys.argv[1:])
