"""The annealing of vector-sponge clustering: expectation-maximisation steps, splits, clean-up, cooling.

One step of the loop is: converge at this temperature, clean up, split; when nothing split, cool. All decisions follow
from sums over points, so every rank makes the same ones.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.field import Field, SpongeStep
from tartan.analytics.clusters.davs.model import SpongeSettings
from tartan.analytics.monitor import Monitor

# Decisions of vector-sponge clustering on sums: which clusters split and how, which are too close. Pure.


@dataclass(frozen=True)
class Splits:
    """Clusters to split, the most unstable first, and the way their children go, in coordinates."""

    clusters: NDArray[np.int64]
    displacements: Floats


def find_splits(
    moments: Floats, counts: Floats, widths: Floats, scales: Floats, eligible: NDArray[np.bool_], temperature: float
) -> Splits:
    """Find the clusters that a phase transition splits.

    Parameters
    ----------
    moments : ndarray, shape (K, d (d + 1) / 2 + d)
        As `Field.moments` gives them.
    counts, widths : ndarray, shape (K,)
        Mass of each cluster, and its mean energy.
    scales : ndarray, shape (K, d)
        Squares of the standard deviations.
    eligible : ndarray of bool, shape (K,)
        Which may split.
    temperature : float
        A cluster is unstable when the largest eigenvalue of its scaled covariance is above it.
    """
    chosen = np.flatnonzero(eligible)
    dim = scales.shape[1]
    covariance = _squares(moments[chosen, :-dim], dim) / counts[chosen, None, None]
    values, vectors = np.linalg.eigh(covariance)
    largest, direction = values[:, -1], vectors[:, :, -1]
    excess = 0.5 * counts[chosen] * (1 - largest / temperature)
    unstable = np.flatnonzero(excess < 0)
    unstable = unstable[np.argsort(excess[unstable], kind="stable")]
    clusters = chosen[unstable]
    direction = _fix_sign(direction[unstable])
    slope = np.abs((direction * moments[clusters, -dim:]).sum(axis=1))
    root = np.sqrt(widths[clusters])
    with np.errstate(divide="ignore"):
        length = np.clip(0.025 * counts[clusters] / slope, 0.05 * root, 0.2 * root)
    return Splits(clusters, length[:, None] * direction * np.sqrt(scales[clusters]))


def _squares(upper: Floats, dim: int) -> Floats:
    out = np.empty((len(upper), dim, dim))
    rows, columns = np.triu_indices(dim)
    out[:, rows, columns] = upper
    out[:, columns, rows] = upper
    return out


def _fix_sign(vectors: Floats) -> Floats:
    """Return vectors whose largest component is positive: eigenvectors come with either sign."""
    largest = np.argmax(np.abs(vectors), axis=1)
    signs = np.sign(vectors[np.arange(len(vectors)), largest])
    turned: Floats = vectors * signs[:, None]
    return turned


def close_pairs(positions: Floats, scales: Floats, limit: float) -> NDArray[np.int64]:
    """Return pairs of centres with a scaled squared distance below ``limit``, shape (m, 2).

    Distances take the smaller scale of the two. Cost: the sort along coordinate 0, and a pass for each neighbour there
    that is near enough in this coordinate alone.
    """
    order = np.argsort(positions[:, 0], kind="stable")
    y, s = positions[order], scales[order]
    # Scales may grow along coordinate 0; a distance measured with the largest one is never too large.
    widest = s[:, 0].max(initial=0.0)
    found = [np.empty((0, 2), dtype=np.int64)]
    for gap in range(1, len(y)):
        near = np.flatnonzero(np.square(y[gap:, 0] - y[:-gap, 0]) < limit * widest)
        if not len(near):
            break
        far = near + gap
        energy = (np.square(y[near] - y[far]) / np.minimum(s[near], s[far])).sum(axis=1)
        close = energy < limit
        found.append(np.column_stack([order[near[close]], order[far[close]]]))
    return np.concatenate(found)


Floats = NDArray[np.float64]

# By judgement: one point of ten million; below, a logarithm runs away. No benchmark.
_LEAST_PRIOR = 1e-7
# Near centres count in the masses of a point up to this energy beyond the nearest, in temperatures.
# By arithmetic: exp(-20) is 2e-9, below the tolerance of masses.
_MASS_CUT = 20.0
# Lists of near centres are made anew after so many coolings.
# By judgement: _LIST_CUT of davs/model lies twice as far as _MASS_CUT, so lists stay right while centres move. `tartan
# bench vs` holds what comes out.
_LISTS_LAST = 20
# Smaller clusters do not split; with a sponge, smaller ones are removed.
# _LEAST_SPLIT_COUNT and _LEAST_COUNT_BESIDE_SPONGE, by rule of the published program (TooSmallToSplit,
# MinimumCountForClusterCkWithSponge).
_LEAST_SPLIT_COUNT = 4.0
_LEAST_COUNT_BESIDE_SPONGE = 1.5
# Coolings between a removal and the next search for splits.
# By rule of the published program (WaitIterationsConverge).
_WAIT_AFTER_REMOVAL = 4
# The temperature below which clusters are tested for closeness.
# By rule of the published program (TemperatureForClosenessTest).
_CLOSENESS_BELOW = 4.0
# The last temperature is done when masses change by less in sum, on average, or after so many steps.
# _FINAL_TOL and _FINAL_STEPS, by rule of the published program (MalphaMaxChange1, IterationAtEnd).
_FINAL_TOL, _FINAL_STEPS = 0.005, 2000
# A centre with less mass stays where it is.
# By judgement: a thousandth of a point says nothing of a place. No benchmark.
_NO_MASS = 1e-3
# Clusters that are tested for closeness are tested again after such a fall of the temperature.
# By judgement: distances change little in between. `tartan bench vs` holds what comes out.
# By rule of the published program. `tartan bench vs` holds what comes out.
_CLOSENESS_STEP = 0.25


# Names of the numbers of one line of the history.
HISTORY = ("temperature", "n_clusters", "energy", "mean_width", "sponge_mass")


@dataclass
class SpongeState:
    """Everything that changes while annealing, but for lists and masses, which follow from it."""

    positions: Floats
    counts: Floats
    widths: Floats
    log_priors: Floats
    waiting: NDArray[np.int64]
    temperature: float
    start: float
    coarse: bool = False
    has_sponge: bool = False
    sponge_count: float = 0.0
    sponge_log_prior: float = 0.0
    has_split: bool = False
    until_test: int = 0
    until_cleanup: int = 0
    since_lists: int = 0
    closeness_at: float = np.inf
    energy: float = np.nan
    n_iter: int = 0
    n_here: int = 0  # steps at this temperature
    history: array[float] = field(default_factory=lambda: array("d"))

    @property
    def n_clusters(self) -> int:
        """Number of clusters without the sponge."""
        return len(self.positions)

    @classmethod
    def of(cls, positions: Floats, n_points: int, temperature: float, start: float) -> SpongeState:
        """Return the state with these centres, each of the same share of points."""
        k = len(positions)
        counts, priors = np.full(k, n_points / k), np.full(k, -np.log(k))
        return cls(positions, counts, np.zeros(k), priors, np.zeros(k, dtype=np.int64), temperature, start)

    @classmethod
    def restore(cls, saved: Mapping[str, Any]) -> SpongeState:
        """Return a state that was saved."""
        state = cls(**{one.name: saved[one.name] for one in fields(cls) if one.name != "history"})
        state.history.frombytes(np.ascontiguousarray(saved["history"], dtype=np.float64).tobytes())
        return state


class SpongeAnnealing:
    """One clustering in progress.

    Parameters
    ----------
    points : Field
        What is clustered.
    settings : SpongeSettings
        How.
    state : SpongeState
        From where; changed in place.
    monitor : Monitor
        Gets reports and checkpoints.
    saved : mapping, optional
        What a stopped annealing has saved; ``state`` is that of ``SpongeState.restored(saved)``.
    """

    def __init__(
        self,
        points: Field,
        settings: SpongeSettings,
        state: SpongeState,
        monitor: Monitor,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self.points, self.settings, self.state, self.monitor = points, settings, state, monitor
        self._last: SpongeStep | None = None
        if saved is None:
            self._consider_sponge(np.inf)
            self.rebuild()
        else:
            self._restore(saved)

    def run(self) -> SpongeState:
        """Anneal down to the lowest temperature and converge there."""
        self.descend(self.settings.cooling.lowest(self.state.start))
        self.finish()
        return self.state

    def descend(self, lowest: float, until_clusters: float = np.inf) -> None:
        """Anneal down to a temperature, or until there are enough clusters."""
        state, stopping = self.state, self.settings.stopping
        while state.temperature > lowest and state.n_clusters < until_clusters:
            self.save()
            self.converge(stopping.tol, stopping.max_iter)
            self.note()
            if not self.clean_up() and not self.split():
                self.cool(lowest)

    def refine(self, points: Field) -> SpongeAnnealing:
        """Return the annealing that continues with more points."""
        state = self.state
        state.counts = state.counts * (points.n / self.points.n)
        state.sponge_count *= points.n / self.points.n
        state.coarse = False
        return SpongeAnnealing(points, self.settings, state, self.monitor)

    def finish(self) -> None:
        """Converge at the last temperature, until nothing is left to clean up."""
        while True:
            self.save()
            self.converge(_FINAL_TOL, _FINAL_STEPS, centres=True)
            self.note()
            self.state.until_cleanup = 0
            if not self.clean_up():
                return

    def step(self) -> SpongeStep:
        """Return the centres and what determines masses now."""
        state, settings = self.state, self.settings
        sponge = None
        if state.has_sponge:
            sponge = (state.sponge_log_prior, settings.masses.factor(state.temperature) ** 2)
        weights = 1 / self._scales()
        return SpongeStep(state.positions, weights, state.log_priors, state.temperature, _MASS_CUT, sponge)

    def _scales(self) -> Floats:
        """Return the scales of each centre now, shape (K, d)."""
        return self.settings.scales.at(self.state.positions, self.state.temperature, self.state.start)

    def rebuild(self) -> None:
        """Make the lists of near centres anew."""
        self._listed, self._last = self.step(), None
        self._list()
        self.state.since_lists = 0

    def _list(self) -> None:
        limits = self.settings.lists.limits(self._listed.temperature)
        self.points.rebuild(self._listed.positions, self._listed.weights, *limits)

    def save(self) -> None:
        """Give the monitor everything from which lists, masses and the next steps can be computed again."""
        if self.monitor.checkpoint is None or self.points.rank > 0:
            return
        saved = {one.name: getattr(self.state, one.name) for one in fields(SpongeState)}
        saved |= {f"listed_{name}": value for name, value in _save_step(self._listed).items()}
        if self._last is not None:
            saved |= {f"last_{name}": value for name, value in _save_step(self._last).items()}
        self.monitor.save(saved)

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._listed = _restore_step(saved, "listed_")
        self._list()
        if "last_positions" in saved:
            self._last = _restore_step(saved, "last_")
            self.points.assign(self._last)

    def converge(self, tolerance: float, max_iter: int, *, centres: bool = False) -> None:
        """Make steps until masses stay, and, when asked, centres. A stopped call resumes after the last of them."""
        state = self.state
        while state.n_here < max_iter:
            change, moved = self.improve()
            state.n_here += 1
            still = not centres or moved <= 1e-6 * self.mean_width()
            if change <= tolerance and still:
                break
            self.save()
        state.n_here = 0

    def improve(self) -> tuple[float, float]:
        """Make one expectation-maximisation step.

        Returns
        -------
        change : float
            Sum of changes of masses, for each point on average.
        moved : float
            Largest squared move of a centre in units of its scales.
        """
        state, step = self.state, self.step()
        sums, totals = self.points.assign(step)
        self._last = step
        state.n_iter += 1
        counts = sums[:, 0]
        shares = 1 / np.maximum(counts, _NO_MASS)
        moves = np.where((counts > _NO_MASS)[:, None], sums[:, 1:-1] * shares[:, None], 0.0)
        state.positions = state.positions + moves
        state.counts, state.widths = counts, sums[:, -1] * shares
        state.sponge_count = float(totals[0])
        state.energy = -2 * state.temperature * float(totals[2])
        self.update_priors()
        moved = (np.square(moves) * step.weights).sum(axis=1).max(initial=0.0)
        return float(totals[1]) / self.points.n, float(moved)

    def update_priors(self) -> None:
        """Set priors from counts; the sponge's may be fixed."""
        state, masses = self.state, self.settings.masses
        n, k = self.points.n, state.n_clusters
        priors = state.counts / n if masses.priors else np.full(k, 1 / k)
        if state.has_sponge and masses.sponge_prior is not None:
            own = masses.sponge_prior / k
            priors = priors * ((1 - own) / max(priors.sum(), _LEAST_PRIOR))
        else:
            own = state.sponge_count / n if masses.priors else 1 / (k + 1)
        state.log_priors = np.log(np.maximum(priors, _LEAST_PRIOR))
        state.sponge_log_prior = float(np.log(max(own, _LEAST_PRIOR)))

    def mean_width(self) -> float:
        """Return the mean energy of what clusters hold."""
        total = self.state.counts.sum()
        return float((self.state.widths * self.state.counts).sum() / total) if total > 0 else 0.0

    def note(self) -> None:
        """Add a line to the history and report it."""
        state = self.state
        width = self.mean_width()
        state.history.extend((state.temperature, state.n_clusters, state.energy, width, state.sponge_count))
        lowest = self.settings.cooling.lowest(state.start)
        numbers = {"temperature": state.temperature, "lowest": lowest, "clusters": state.n_clusters, "width": width}
        span = math.log(state.start / lowest) if 0 < lowest < state.start else 0.0
        share = min(max(math.log(state.start / state.temperature) / span, 0.0), 1.0) if span else None
        self.monitor.report("annealing", share=share, **numbers)

    def cool(self, lowest: float) -> None:
        """Go to the next temperature; create the sponge when it is due."""
        state, settings = self.state, self.settings
        fine = state.has_split and state.n_clusters < settings.splitting.max_clusters
        state.temperature = max(settings.cooling.next(state.temperature, fine), lowest)
        state.until_test -= 1
        state.until_cleanup -= 1
        state.since_lists += 1
        self._consider_sponge(self.mean_width())
        if state.since_lists >= _LISTS_LAST:
            self.rebuild()

    def _consider_sponge(self, mean_width: float) -> None:
        if not self.state.has_sponge and self.settings.masses.wants_sponge(self.state.temperature, mean_width):
            self.state.has_sponge = True
            self.update_priors()

    def split(self) -> bool:
        """Split unstable clusters when a search is due; return whether there were any."""
        state, splitting = self.state, self.settings.splitting
        allowed = splitting.max_clusters - state.n_clusters
        if allowed <= 0 or (state.n_clusters > 1 and state.until_test > 0):
            return False
        state.until_test = splitting.wait
        eligible = (state.widths > splitting.min_split_width) & (state.counts > _LEAST_SPLIT_COUNT)
        eligible &= state.waiting == 0
        state.waiting = np.maximum(state.waiting - 1, 0)
        if not eligible.any():
            return False
        step = self.step()
        moments, scales = self.points.moments(step), 1 / step.weights
        found = find_splits(moments, state.counts, state.widths, scales, eligible, state.temperature)
        clusters, displacements = found.clusters[:allowed], found.displacements[:allowed]
        if len(clusters):
            self._divide(clusters, displacements)
        return len(clusters) > 0

    def _divide(self, clusters: NDArray[np.int64], displacements: Floats) -> None:
        state = self.state
        positions = state.positions.copy()
        positions[clusters] += displacements
        state.positions = np.concatenate([positions, state.positions[clusters] - displacements])
        state.log_priors[clusters] -= np.log(2)
        state.counts[clusters] *= 0.5
        state.waiting[clusters] = 2
        for name in ("log_priors", "counts", "widths", "waiting"):
            values = getattr(state, name)
            setattr(state, name, np.concatenate([values, values[clusters]]))
        state.has_split = True
        self.rebuild()

    def clean_up(self) -> bool:
        """Remove clusters that hold too little or lie too close to a larger one; return whether there were any."""
        state, removal = self.state, self.settings.removal
        if state.until_cleanup > 0 or state.n_clusters == 1:
            return False
        least = _LEAST_COUNT_BESIDE_SPONGE if state.has_sponge else removal.min_count
        gone = (state.counts < least) & (state.waiting == 0)
        if removal.min_points > 0:
            gone |= self._find_occupied() < removal.min_points
        self._spare(gone)
        if state.temperature < min(_CLOSENESS_BELOW, state.closeness_at):
            state.closeness_at = state.temperature - _CLOSENESS_STEP
            gone |= self._too_close()
        if not gone.any():
            return False
        if gone.all():
            gone[np.argmax(state.counts)] = False
        self._keep(~gone)
        # Among many clusters there is always one to remove: a search for splits must come between two removals.
        state.until_test = max(state.until_test, _WAIT_AFTER_REMOVAL)
        state.until_cleanup = _WAIT_AFTER_REMOVAL + 1
        return True

    def _spare(self, gone: NDArray[np.bool_]) -> None:
        """Let one of each pair of small neighbours stay for now: the points of both may yet make one cluster.

        Without it the fragments of a small cluster all go at once, and its points are noise.
        """
        state = self.state
        small = np.flatnonzero(gone)
        scales = self._scales()[small]
        near = self.settings.masses.factor(state.temperature) ** 2
        pairs = small[close_pairs(state.positions[small], scales, near)]
        gone[pairs[np.arange(len(pairs)), np.argmax(state.counts[pairs], axis=1)]] = False

    def _find_occupied(self) -> NDArray[np.int64]:
        step = self.step()
        labels, _ = self.points.label(step.positions, step.weights, np.zeros(self.state.n_clusters))
        return np.bincount(labels[labels >= 0], minlength=self.state.n_clusters)

    def _too_close(self) -> NDArray[np.bool_]:
        """Mark the smaller of every pair that is too close, unless it is gone already."""
        state = self.state
        scales = self._scales()
        gone = np.zeros(state.n_clusters, dtype=np.bool_)
        pairs = close_pairs(state.positions, scales, self.settings.removal.closeness)
        larger = np.where(state.counts[pairs[:, 0]] >= state.counts[pairs[:, 1]], 0, 1)
        rows = np.arange(len(pairs))
        keep, lose = pairs[rows, larger], pairs[rows, 1 - larger]
        for at in np.argsort(-state.counts[keep], kind="stable"):
            if not gone[keep[at]]:
                gone[lose[at]] = True
        return gone

    def sort(self) -> None:
        """Number clusters along coordinate 0."""
        self._keep(np.lexsort(self.state.positions.T[::-1]))

    def _keep(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> None:
        state = self.state
        for name in ("positions", "log_priors", "counts", "widths", "waiting"):
            setattr(state, name, np.ascontiguousarray(getattr(state, name)[kept]))
        self.rebuild()


def _save_step(step: SpongeStep) -> dict[str, Any]:
    return {one.name: getattr(step, one.name) for one in fields(SpongeStep) if getattr(step, one.name) is not None}


def _restore_step(saved: Mapping[str, Any], prefix: str) -> SpongeStep:
    values: dict[str, Any] = {one.name: saved.get(prefix + one.name) for one in fields(SpongeStep)}
    if values["sponge"] is not None:
        values["sponge"] = tuple(values["sponge"].tolist())
    return SpongeStep(**values)
