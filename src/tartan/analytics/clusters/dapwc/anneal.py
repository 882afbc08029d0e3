"""The schedule of pairwise clustering: cooling, phase transitions, freezing.

``PairwiseAnnealing`` holds all that the rest of a run depends on, so a checkpoint of it leads to the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.lanczos import extremes, focus_on
from tartan.analytics.clusters.dapwc.level import ZeroLevel
from tartan.analytics.clusters.dapwc.moves import exchanged, moved
from tartan.analytics.clusters.dapwc.product import Product
from tartan.analytics.clusters.dapwc.split import Instability, coincident, split, unstable
from tartan.analytics.clusters.dapwc.state import (
    Memberships,
    PairwiseSettings,
    assign,
    converge,
    first_state,
    stands,
    update_costs,
)
from tartan.analytics.monitor import Monitor

HISTORY = np.dtype([
    ("temperature", "f8"), ("n_clusters", "i8"), ("hamiltonian", "f8"), ("freezing", "f8"), ("n_steps", "i8"),
    ("final", "?"),
])  # fmt: skip
SPLITS = np.dtype([("temperature", "f8"), ("cluster", "i8"), ("smallest", "f8"), ("largest", "f8")])

_RISES = 5
_IGNORED_STEPS = 2
_FIRST_TOL = 1e-5
_NO_WIDTH = 1e-9
_LEAST_SHARE = 0.01  # of the least distance: far below the temperature at which two items part
_SPLIT_SHARE = 4  # of so many clusters one may split at a time
_FROZEN = 1e-3  # undecided share of a cluster that counts as none
_BELOW = 5  # coolings below a phase transition: as far as tests are from it on average
_NUMBERS = ("temperature", "critical_temperature", "final", "waited", "n_failed", "ignore")


@dataclass
class Freezing:
    """Cooling without splits until every point belongs to one cluster; the state of lowest H is kept."""

    state: Memberships
    temperature: float
    best: Memberships
    last: float = np.inf
    rises: int = 0
    n_steps: int = 0

    def step(self, product: Product, settings: PairwiseSettings, least_temperature: float) -> tuple[int, bool]:
        """Converge at one temperature and cool; return the steps it took, and whether there is more to do."""
        steps = converge(self.state, self.temperature, product, settings)
        value = self.state.hamiltonian
        if self.n_steps == 0 or value < self.best.hamiltonian:
            self.best = self.state.copy()
        self.rises = self.rises + 1 if value > self.last else 0
        self.last = value
        self.n_steps += 1
        limits = settings.convergence
        done = self.rises >= _RISES or self.n_steps >= limits.final_steps or self.temperature < least_temperature
        if done or self.state.freezing.max() <= limits.freezing_limit:
            return steps, False
        self.temperature *= settings.cooldown.final_cooling
        return steps, True


class PairwiseAnnealing:
    """One run of the algorithm.

    Parameters
    ----------
    product : Product
    settings : PairwiseSettings
    level : ZeroLevel
        From which the product measures; twice its mean is the first temperature.
    start : ndarray (n,)
        Where searches for eigenvectors begin.
    monitor : Monitor
    """

    def __init__(
        self,
        product: Product,
        settings: PairwiseSettings,
        level: ZeroLevel,
        start: NDArray[np.float64],
        monitor: Monitor,
    ) -> None:
        self.product, self.settings, self.monitor = product, settings, monitor
        self.start = start
        self.temperature = 2.0 * level.mean
        share = settings.cooldown.min_temperature
        self.least_temperature = _LEAST_SHARE * level.least if share is None else self.temperature * share
        self.critical_temperature = np.nan
        self.state = first_state(np.ones((product.n, 1)))
        self.final = False
        self.waited = self.n_failed = self.ignore = 0
        self.freezing: Freezing | None = None
        self.history: list[tuple[Any, ...]] = []
        self.splits: list[tuple[Any, ...]] = []
        self.clusterings: dict[int, NDArray[np.int64]] = {}

    def run(self) -> Memberships:
        """Cool to the end; return the frozen state, with costs that belong to its memberships."""
        self._load()
        while not self.final:
            self._anneal()
            self._save()
        if self.freezing is None:
            self.freezing = self._freezing(self.state)
        more = True
        while more:
            temperature = self.freezing.temperature
            steps, more = self.freezing.step(self.product, self.settings, self.least_temperature)
            self._record(self.freezing.state, temperature, steps)
            if more:  # from the last state a resumed call would go one step too far
                self._save()
        state = self._tidied(self.freezing.best, self.freezing.temperature)
        if self.settings.min_cluster_size > 1:
            return state
        return self.settled(state, self._improved(state.costs.argmin(1), state.k))

    def _improved(self, labels: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """Return labels of lower cost at temperature 0, if there are any near."""
        labels = moved(labels, k, self.product)
        if k < 2 or len(np.unique(labels)) < k:
            return labels
        return exchanged(labels, k, self.product, self.start)

    def settled(self, state: Memberships, labels: NDArray[np.int64]) -> Memberships:
        """Return the frozen state of these labels, which may be others than the annealing found."""
        if np.array_equal(state.costs.argmin(1), labels):
            return state
        state = first_state(np.eye(int(labels.max()) + 1)[labels])
        update_costs(state, self.product)
        assign(state, self.freezing.temperature if self.freezing else self.temperature, self.settings)
        update_costs(state, self.product)
        return state

    def _anneal(self) -> None:
        """Converge at one temperature, then split or cool."""
        steps = 0
        if 0 < self.waited < self.settings.division.split_wait and stands(self.state, self.product, self.settings):
            assign(self.state, self.temperature, self.settings)
        else:
            steps = converge(self.state, self.temperature, self.product, self.settings, self.ignore)
        self.ignore = 0
        self._record(self.state, self.temperature, steps)
        if self._is_enough():
            self.final = True
        elif self.state.k == 1:
            self._split_first()
        elif self.waited < self.settings.division.split_wait:
            self._cool(self.settings.cooldown.cooling)
        else:
            self._test()

    def _test(self) -> None:
        """Split the clusters that have become unstable; of many clusters several at a time."""
        self.waited = 0
        if pairs := coincident(self.state):
            self.state = self.state.joined(pairs)
            update_costs(self.state, self.product)
        wanted = 1 if self.settings.intermediate else max(1, self.state.k // _SPLIT_SHARE)
        most = min(wanted, self.settings.n_clusters - self.state.k)
        found = unstable(self.state, self.temperature, self.product, self.settings, self.start, most)
        if found and found[0].splits(self.settings.division.split_threshold):
            self._split(found)
            return
        self.n_failed += 1
        self._cool(self.settings.cooldown.cooling)
        if found and self.state.freezing.max() <= _FROZEN:
            self._go_on_at(found[0].critical(self.temperature) * self.settings.cooldown.cooling**_BELOW)

    def _go_on_at(self, temperature: float) -> None:
        """Go down to where the next cluster splits: what is decided stays so at any temperature on the way.

        So neither the cooling nor a lowest temperature limits how many clusters there can be.
        """
        waits = self.settings.division.split_wait
        if temperature < self.temperature * self.settings.cooldown.cooling**waits:
            self.temperature, self.waited = max(temperature, self.least_temperature), waits

    def _is_enough(self) -> bool:
        limit = self.settings.division.max_failed_splits
        failed = limit is not None and self.n_failed > limit
        points = bool((-2.0 * self.state.inner).max() <= _NO_WIDTH * self.product.unit)
        over = failed or points or self.temperature <= self.least_temperature
        return over or self.state.k >= self.settings.n_clusters

    def _split_first(self) -> None:
        """Cool a single cluster until it splits.

        Its memberships are 1 at all temperatures, so its eigenvalues are 1/2 + (those at T = 1 minus 1/2) / T: one
        search serves all steps.
        """
        focus = focus_on(self.state.members, self.product, 0.5)
        found = extremes(focus, 1.0, self.product, self.start, _FIRST_TOL)
        low, high = float(found.smallest[0]) - 0.5, max(0.0, float(found.largest[0]) - 0.5)
        self.critical_temperature = -2.0 * low
        while self.temperature > self.least_temperature:
            at = self.temperature
            first = Instability(0, 0.5 + low / at, 0.5 + high / at, found.vectors[:, 0])
            if first.splits(self.settings.division.split_threshold):
                self._split([first])
                return
            self._cool(self.settings.cooldown.initial_cooling)
            self._record(self.state, self.temperature, 0)

    def _cool(self, factor: float) -> None:
        self.temperature *= factor
        self.waited += 1

    def _split(self, found: list[Instability]) -> None:
        self.splits += [(self.temperature, one.cluster, one.smallest, one.largest) for one in found]
        if self.settings.intermediate:
            self.clusterings[self.state.k] = self._frozen_labels()
        self.state = split(self.state, found, self.temperature, self.settings)
        self.waited, self.ignore = 0, _IGNORED_STEPS

    def _frozen_labels(self) -> NDArray[np.int64]:
        """Return the labels that the present clusters freeze into."""
        freezing, more = self._freezing(self.state.copy()), True
        while more:
            _, more = freezing.step(self.product, self.settings, self.least_temperature)
            self.monitor.report("intermediate", temperature=freezing.temperature, K=freezing.state.k)
            self.monitor.check()
        labels: NDArray[np.int64] = self._tidied(freezing.best, freezing.temperature).costs.argmin(1)
        return labels

    def _freezing(self, state: Memberships) -> Freezing:
        return Freezing(state, self.temperature, state)

    def _tidied(self, state: Memberships, temperature: float) -> Memberships:
        """Remove small clusters; make costs and memberships consistent."""
        while True:
            sizes = state.members.sum(0)
            small = sizes < self.settings.min_cluster_size - 0.5
            small[np.argmax(sizes)] = False
            if not small.any():
                break
            state = state.kept(~small)
            assign(state, temperature, self.settings)
            converge(state, temperature, self.product, self.settings)
        update_costs(state, self.product)
        return state

    def _record(self, state: Memberships, temperature: float, steps: int) -> None:
        frozen = float(state.freezing.max())
        self.history.append((temperature, state.k, state.hamiltonian, frozen, steps, self.final))
        phase = "freeze" if self.final else "anneal"
        self.monitor.report(phase, temperature=temperature, K=state.k, H=state.hamiltonian, freezing=frozen)
        self.monitor.check()

    # Checkpoints

    def _save(self) -> None:
        saved: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        saved["start"] = self.start
        saved["history"] = np.array(self.history, HISTORY)
        saved["splits"] = np.array(self.splits, SPLITS)
        saved.update({f"labels_{k}": labels for k, labels in self.clusterings.items()})
        _put(saved, "state", self.state)
        if self.freezing is not None:
            _put(saved, "freezing", self.freezing.state)
            _put(saved, "best", self.freezing.best)
            saved.update({f"freezing_{name}": getattr(self.freezing, name) for name in _FREEZING_NUMBERS})
        self.monitor.save(saved)

    def _load(self) -> None:
        saved = self.monitor.load()
        if saved is None:
            return
        for name in (*_NUMBERS, "start"):
            setattr(self, name, saved[name])
        self.history, self.splits = saved["history"].tolist(), saved["splits"].tolist()
        self.clusterings = {int(name[7:]): value for name, value in saved.items() if name.startswith("labels_")}
        self.state = _take(saved, "state")
        if "freezing_last" in saved:
            numbers = {name: saved[f"freezing_{name}"] for name in _FREEZING_NUMBERS}
            self.freezing = Freezing(_take(saved, "freezing"), best=_take(saved, "best"), **numbers)


_FREEZING_NUMBERS = ("temperature", "last", "rises", "n_steps")


def _put(saved: dict[str, Any], prefix: str, state: Memberships) -> None:
    saved.update({f"{prefix}.{name}": value for name, value in state.arrays().items()})


def _take(saved: dict[str, Any], prefix: str) -> Memberships:
    return Memberships(**{name[len(prefix) + 1 :]: v for name, v in saved.items() if name.startswith(prefix + ".")})
