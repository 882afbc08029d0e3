"""The schedule of pairwise clustering: cooling, phase transitions, freezing.

``PairwiseAnnealing`` holds all that the rest of a run depends on, so a checkpoint of it leads to the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.clusters.dapwc.lanczos import MOST_STEPS, Focus, extremes, focus_on
from tartan.analytics.clusters.dapwc.level import ZeroLevel
from tartan.analytics.clusters.dapwc.product import Columns, Product
from tartan.analytics.clusters.dapwc.state import (
    Memberships,
    PairwiseSettings,
    assign,
    converge,
    first_state,
    stands,
    update_costs,
)
from tartan.analytics.clusters.search import join_costs
from tartan.analytics.monitor import Monitor

HISTORY = np.dtype([
    ("temperature", "f8"), ("n_clusters", "i8"), ("hamiltonian", "f8"), ("freezing", "f8"), ("n_steps", "i8"),
    ("final", "?"),
])  # fmt: skip
SPLITS = np.dtype([("temperature", "f8"), ("cluster", "i8"), ("smallest", "f8"), ("largest", "f8")])

# _FIRST_COOLING, _SPLIT_WAIT and _FINAL_STEPS, by rule of the published program (InitialCoolingFactor, WaitIterations,
# IterationAtEnd).
_FIRST_COOLING = 0.9  # of the temperature before the first split
_SPLIT_WAIT = 10  # coolings between two searches for splits
_FINAL_STEPS = 2000  # temperatures of the final stage, at most
# _RISES and _IGNORED_STEPS, by rule of the published program: the end comes when H has risen several times, and the
# first two steps after a split say nothing.
_RISES = 5
# By rule of the published program: the first two steps after a split are ignored.
_IGNORED_STEPS = 2
# By judgement: the first transition sets the temperature of all that follows, so it is looked for more closely than
# later ones. No benchmark.
_FIRST_TOL = 1e-5
# By arithmetic: rounding of float64 products, of sums of some thousand terms.
_NO_WIDTH = 1e-9
# By judgement. `tartan bench answers` holds what comes out.
_LEAST_SHARE = 0.01  # of the least distance: far below the temperature at which two items part
# By judgement: more at a time would part clusters whose neighbours have not settled; the published program splits
# three. `tartan bench answers`.
_SPLIT_SHARE = 4  # of so many clusters one may split at a time
# By judgement: half of FreezingLimit (0.002) of the published program. `tartan bench answers`.
_FROZEN = 1e-3  # undecided share of a cluster that counts as none
# By construction: tests come every ten coolings by default, so five on average.
_BELOW = 5  # coolings below a phase transition: as far as tests are from it on average
_NUMBERS = ("temperature", "critical_temperature", "final", "waited", "n_failed", "ignore", "n_coolings")


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
        done = self.rises >= _RISES or self.n_steps >= _FINAL_STEPS or self.temperature < least_temperature
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
        self.n_coolings = 1
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
            self.freezing = self._make_freezing(self.state)
        more = True
        while more:
            temperature = self.freezing.temperature
            steps, more = self.freezing.step(self.product, self.settings, self.least_temperature)
            self._record(self.freezing.state, temperature, steps)
            if more:  # from the last state a resumed call would go one step too far
                self._save()
        state = self._tidy(self.freezing.best, self.freezing.temperature)
        if self.settings.min_cluster_size > 1:
            return state
        return self.settle(state, self._improve(state.costs.argmin(1), state.k))

    def _improve(self, labels: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """Return labels of lower cost at temperature 0, if there are any near."""
        labels = move_items(labels, k, self.product)
        if k < 2 or len(np.unique(labels)) < k:
            return labels
        return exchange_clusters(labels, k, self.product, self.start)

    def settle(self, state: Memberships, labels: NDArray[np.int64]) -> Memberships:
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
        if 0 < self.waited < _SPLIT_WAIT and stands(self.state, self.product, self.settings):
            assign(self.state, self.temperature, self.settings)
        else:
            steps = converge(self.state, self.temperature, self.product, self.settings, self.ignore)
        self.ignore = 0
        self._record(self.state, self.temperature, steps)
        if self._is_enough():
            self.final = True
        elif self.state.k == 1:
            self._split_first()
        elif self.waited < _SPLIT_WAIT:
            self._cool_on(steps)
        else:
            self._test()

    def _test(self) -> None:
        """Split the clusters that have become unstable; of many clusters several at a time."""
        self.waited = 0
        if pairs := find_coincident(self.state):
            self.state = self.state.join(pairs)
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
        if temperature < self.temperature * self.settings.cooldown.cooling**_SPLIT_WAIT:
            self.temperature, self.waited = max(temperature, self.least_temperature), _SPLIT_WAIT

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
            self._cool(_FIRST_COOLING)
            self._record(self.state, self.temperature, 0)

    def _cool_on(self, steps: int) -> None:
        """Cool towards the next search for splits: twice as far as the last time where the costs stood after that."""
        twice = 2 * self.n_coolings if steps <= 1 else 1
        self.n_coolings = min(twice, _SPLIT_WAIT - self.waited)
        self._cool(self.settings.cooldown.cooling, self.n_coolings)

    def _cool(self, factor: float, times: int = 1) -> None:
        self.temperature *= factor**times
        self.waited += times

    def _split(self, found: list[Instability]) -> None:
        self.splits += [(self.temperature, one.cluster, one.smallest, one.largest) for one in found]
        if self.settings.intermediate:
            self.clusterings[self.state.k] = self._freeze_labels()
        self.state = split(self.state, found, self.temperature, self.settings)
        self.waited, self.ignore = 0, _IGNORED_STEPS

    def _freeze_labels(self) -> NDArray[np.int64]:
        """Return the labels that the present clusters freeze into."""
        freezing, more = self._make_freezing(self.state.copy()), True
        while more:
            _, more = freezing.step(self.product, self.settings, self.least_temperature)
            self.monitor.report("intermediate", temperature=freezing.temperature, K=freezing.state.k)
            self.monitor.check()
        labels: NDArray[np.int64] = self._tidy(freezing.best, freezing.temperature).costs.argmin(1)
        return labels

    def _make_freezing(self, state: Memberships) -> Freezing:
        return Freezing(state, self.temperature, state)

    def _tidy(self, state: Memberships, temperature: float) -> Memberships:
        """Remove small clusters; make costs and memberships consistent."""
        while True:
            sizes = state.members.sum(0)
            small = sizes < self.settings.min_cluster_size - 0.5
            small[np.argmax(sizes)] = False
            if not small.any():
                break
            state = state.keep(~small)
            assign(state, temperature, self.settings)
            converge(state, temperature, self.product, self.settings)
        update_costs(state, self.product)
        return state

    def _record(self, state: Memberships, temperature: float, steps: int) -> None:
        frozen = float(state.freezing.max())
        self.history.append((temperature, state.k, state.hamiltonian, frozen, steps, self.final))
        phase = "freeze" if self.final else "anneal"
        limit = self.settings.convergence.freezing_limit
        if self.final:  # falls by a factor a step
            share = math.log(max(frozen, limit)) / math.log(limit) if 0 < limit < 1 and frozen < 1 else 0.0
        else:
            share = state.k / self.settings.n_clusters
        self.monitor.report(
            phase, share=min(share, 1.0), temperature=temperature, K=state.k, H=state.hamiltonian, freezing=frozen
        )
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


# The end of annealing: at temperature 0 single items move, and a cluster is split for two that are joined.
#
# Each step lowers the cost.
#
# An item weighs in the means of its own cluster, so a fixed point of expectation-maximisation need not be a minimum: to
# move it from a cluster of C items, where it costs e, to one of C' items, where it costs e', changes the cost by
# 2 C' / (C' + 1) e' - 2 C / (C - 1) e (Hartigan's rule, which holds for any dissimilarities).

Labels = NDArray[np.int64]

# _STEPS and _EXCHANGES, by judgement: bounds of a search that ends when nothing is gained; an exchange costs a product.
# `tartan bench pwc` holds the time.
_STEPS = 50
_EXCHANGES = 20
# By arithmetic: transitions lie at some share of the unit, the smallest distance is hardly a millionth of it.
_COLD = 1e-6  # of the unit: below all transitions, where the least eigenvector is that of the largest variance
# By judgement. `tartan bench answers`: one item far from all was set apart in all fits.
_ROUGH = 0.1  # tolerance of that search: an item far from its cluster shows at once, and moves mend the rest
# By arithmetic: float32 rounds to 6e-8.
_GAIN = 1e-7  # of the cost: less is rounding of products in float32


def move_items(labels: Labels, k: int, product: Product) -> Labels:
    """Return labels from which no move of a single item lowers the cost, or those after 50 products.

    All items that would gain move at once; where that does not lower the cost, only those that gain most.
    """
    share, state = 1.0, _costs(labels, k, product)
    for _ in range(_STEPS):
        targets, gains = _moves(labels, state)
        movers = np.flatnonzero(gains > _GAIN * state.hamiltonian)
        if not len(movers):
            break
        movers = movers[np.argsort(-gains[movers], kind="stable")][: max(1, int(share * len(movers)))]
        tried = labels.copy()
        tried[movers] = targets[movers]
        after = _costs(tried, k, product)
        if after.hamiltonian < state.hamiltonian and len(np.unique(tried)) == len(np.unique(labels)):
            labels, state, share = tried, after, min(1.0, 2 * share)
        elif len(movers) == 1:
            break
        else:
            share /= 4
    return labels


def exchange_clusters(labels: Labels, k: int, product: Product, start: NDArray[np.float64]) -> Labels:
    """Return labels after clusters were split and others joined, as long as that and the moves after it lower the cost.

    An item that is equally far from all clusters is shared by them until the end, and then hides from the search for
    splits; once it belongs to one it stands out.

    Parameters
    ----------
    labels : ndarray (n,)
        Of k clusters, none empty.
    k : int
    product : Product
    start : ndarray (n,)
        Where the search for eigenvectors begins.
    """
    cost = _costs(labels, k, product).hamiltonian
    for _ in range(_EXCHANGES):
        tried = _join_cheapest(_split(labels, k, product, start), k + 1, product)
        tried = move_items(tried, k, product)
        after = _costs(tried, k, product).hamiltonian
        if not after < cost * (1 - _GAIN):
            break
        labels, cost = tried, after
    return labels


def _split(labels: Labels, k: int, product: Product, start: NDArray[np.float64]) -> Labels:
    """Return labels of one cluster more: that one is split of which this lowers the cost most.

    Each is cut in the middle of its direction of largest variance.
    """
    members = _members(labels, k)
    focus = focus_on(members, product, 0.5)
    directions = extremes(focus, _COLD * product.unit, product, start, _ROUGH).vectors
    along = directions[np.arange(len(labels)), labels]
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    np.minimum.at(low, labels, along)
    np.maximum.at(high, labels, along)
    halves = np.where(along > ((low + high) / 2)[labels], labels + k, labels)
    costs = _means(product, _members(halves, 2 * k))
    whole = _means(product, members)
    gains = np.where(np.bincount(halves, minlength=2 * k)[k:] > 0, whole - costs[:k] - costs[k:], -np.inf)
    best = int(gains.argmax())
    return np.where(halves == best + k, k, labels)


def _join_cheapest(labels: Labels, k: int, product: Product) -> Labels:
    """Return labels of one cluster less: those two are joined that raise the cost least."""
    members = _members(labels, k)
    sizes = members.sum(0)
    sums = members.T @ (_compute_known_mean(product, members) * sizes)
    _, joins = join_costs((sums + sums.T) / 2, np.maximum(sizes, 1.0))
    a, b = sorted(divmod(int(joins.argmin()), k))
    joined = np.where(labels == b, a, labels)
    return np.where(joined == k - 1, b, joined) if b != k - 1 else joined


def _means(product: Product, members: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return H of each cluster."""
    costs: NDArray[np.float64] = (_compute_known_mean(product, members) * members).sum(0)
    return costs


def _compute_known_mean(product: Product, members: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean dissimilarity (n, k) of each item to the items of each cluster, of pairs that are known."""
    products, mass = product(members)
    known = np.broadcast_to(members.sum(0), members.shape) if mass is None else mass
    divisor = np.where(known > 0, known, 1.0)
    means: NDArray[np.float64] = np.where(known > 0, product.scale * products / divisor, product.unknown)
    return means


def _members(labels: Labels, k: int) -> NDArray[np.float64]:
    members: NDArray[np.float64] = (labels[:, None] == np.arange(k)).astype(np.float64)
    return members


def _costs(labels: Labels, k: int, product: Product) -> Memberships:
    state = first_state(_members(labels, k))
    update_costs(state, product)
    return state


def _moves(labels: Labels, state: Memberships) -> tuple[Labels, NDArray[np.float64]]:
    """Return where each item would move, and what that gains; minus infinity for the last item of a cluster."""
    items, sizes = np.arange(len(labels)), state.sizes
    joining = np.where(sizes > 0, 2.0 * sizes / (sizes + 1.0), np.inf) * np.maximum(state.costs, 0.0)
    joining[items, labels] = np.inf
    targets = joining.argmin(1)
    own = sizes[labels]
    leaving = 2.0 * own / np.maximum(own - 1.0, 1.0) * state.costs[items, labels]
    return targets, np.where(own > 1, leaving - joining[items, targets], -np.inf)


# Phase transitions: which cluster is unstable at a temperature, and how it becomes two.

Vector = NDArray[np.float64]

# _COPY_STEPS and _COPY_TOL, by rule of the published program: 200 steps and 0.001 for two coincident copies.
_COPY_STEPS = 200
_COPY_TOL = 1e-3
# By judgement: memory beside the matrix, as other blocks here. No benchmark.
_BATCH_BYTES = 256 << 20
# By construction: members, energies, products, and what is made of them.
_ARRAYS_OF_A_COPY = 6
# By judgement: with few clusters a wrong share decides a split, with many each has little, and convergence of all costs
# a product each. `tartan bench answers`.
_CONVERGED_COPIES = 8  # clusters from which on copies take their share without a convergence of each of them
# By judgement: ten times below _COPY_TOL. No benchmark.
_SAME = 1e-4


@dataclass(frozen=True)
class Instability:
    """The least stable cluster: its column, the extreme eigenvalues of its matrix, the direction of its split."""

    cluster: int
    smallest: float
    largest: float
    direction: Vector

    def splits(self, threshold: float) -> bool:
        """Whether the cluster has passed its phase transition."""
        return self.smallest <= threshold * self.largest

    def critical(self, temperature: float) -> float:
        """The temperature of the phase transition, if memberships are 0 or 1 and stay as they are."""
        return temperature * (1.0 - 2.0 * self.smallest)


def unstable(
    state: Memberships, temperature: float, product: Product, settings: PairwiseSettings, start: Vector, most: int
) -> list[Instability]:
    """Return the least stable clusters, the least stable first, at most so many; none where all are too small to split.

    Of several, that is first which the cost falls by most when it is split: size times temperature of its transition.
    """
    large = np.flatnonzero(state.members.sum(0) > settings.division.min_split_size)
    wanted = -math.inf if most == 1 else settings.division.split_threshold
    found: list[Instability] = []
    for group in _groups(large, state):
        focus = _focus(state, group, temperature, product, settings)
        result = extremes(focus, temperature, product, start, wanted=wanted)
        chosen = [int(np.argmin(result.smallest))] if most == 1 else range(len(group))
        found += [
            Instability(int(group[at]), float(result.smallest[at]), float(result.largest[at]), result.vectors[:, at])
            for at in chosen
        ]
    if most == 1:
        return sorted(found, key=lambda one: one.smallest)[:1]
    sizes = state.members.sum(0)
    ready = [one for one in found if one.splits(settings.division.split_threshold)]
    if not ready:
        return sorted(found, key=lambda one: one.smallest)[:1]
    return sorted(ready, key=lambda one: -sizes[one.cluster] * one.critical(temperature))[:most]


def _focus(
    state: Memberships, clusters: NDArray[np.intp], temperature: float, product: Product, settings: PairwiseSettings
) -> Focus:
    """Return what the matrices of clusters need: each as two coincident copies of itself."""
    if state.k == 1 or settings.continuous_prior:
        return focus_on(np.ascontiguousarray(state.members[:, clusters]), product, 0.5)
    if state.k < _CONVERGED_COPIES:
        return focus_on(_double(state, clusters, temperature, product), product, 1.0)
    members = state.members[:, clusters]
    return focus_on(np.ascontiguousarray(members / (1.0 + members)), product, 1.0)


def find_coincident(state: Memberships) -> list[tuple[int, int]]:
    """Return pairs of clusters with the same members: a split that did not last; no cluster is in two pairs."""
    inner = state.members.T @ state.members
    squares = np.diag(inner)
    apart = squares[:, None] + squares - 2.0 * inner
    same = np.triu(apart <= _SAME * np.minimum(squares[:, None], squares), 1)
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for a, b in np.argwhere(same).tolist():
        if not taken & {a, b}:
            taken |= {a, b}
            pairs.append((a, b))
    return pairs


def _groups(clusters: NDArray[np.intp], state: Memberships) -> list[NDArray[np.intp]]:
    """Divide clusters into groups whose copies fit into the memory set aside for them."""
    if not len(clusters):
        return []
    copy = state.members.nbytes * _ARRAYS_OF_A_COPY if state.k < _CONVERGED_COPIES else 0
    krylov = MOST_STEPS * state.members[:, 0].nbytes
    fit = max(1, _BATCH_BYTES // max(copy, krylov))
    return np.array_split(clusters, -(-len(clusters) // fit))


def _double(state: Memberships, clusters: NDArray[np.intp], temperature: float, product: Product) -> Columns:
    """Return the memberships (n, p) of one copy of each cluster when two coincident copies of it have converged.

    Each cluster is doubled in a problem of its own, all problems side by side in the columns of one matrix; those
    that have converged leave it.
    """
    k, n = state.k, len(state.members)
    result = np.empty((n, len(clusters)))
    waiting = np.arange(len(clusters))
    members, costs = (np.tile(value, len(clusters)) for value in (state.members, state.costs))
    for step in range(_COPY_STEPS):
        copies = np.ones((len(waiting), k))
        copies[np.arange(len(waiting)), clusters[waiting]] = 2.0
        sizes, inner, change = (np.empty(len(waiting) * k) for _ in range(3))
        products, mass = product(members)
        scratch = np.empty(_native.pwc_scratch_len(*members.shape))
        _native.pwc_costs(products, mass, members, product.scale, product.unknown, costs, sizes, inner, change, scratch)
        _native.pwc_assign(costs, np.ones(copies.size), copies.ravel(), k, temperature, members)
        moving = change.reshape(-1, k).max(1) > _COPY_TOL * product.unit * n
        if step == _COPY_STEPS - 1:
            moving[:] = False
        done = np.flatnonzero(~moving)
        result[:, waiting[done]] = members[:, done * k + clusters[waiting[done]]]
        if not moving.any():
            break
        if len(done):
            columns = np.repeat(moving, k)
            members, costs = (np.ascontiguousarray(value[:, columns]) for value in (members, costs))
            waiting = waiting[moving]
    return result


def split(state: Memberships, found: list[Instability], temperature: float, settings: PairwiseSettings) -> Memberships:
    """Return the state with unstable clusters in two: costs move apart along their directions, and members follow."""
    clusters = [one.cluster for one in found]
    new = Memberships(*(np.concatenate([v, v[..., clusters]], axis=-1) for v in state.arrays().values()))
    new.change[:] = np.inf
    for place, one in enumerate(found, state.k):
        step = _step(state, one, temperature)
        new.costs[:, one.cluster] = state.costs[:, one.cluster] + step * one.direction
        new.costs[:, place] = state.costs[:, one.cluster] - step * one.direction
        if settings.continuous_prior:
            new.prior[[one.cluster, place]] /= 2
    assign(new, temperature, settings)
    return new


def _step(state: Memberships, found: Instability, temperature: float) -> float:
    """Return how far costs move along the direction of a split."""
    k, direction = found.cluster, found.direction
    slope = state.members[:, k] / 2 * direction / temperature
    gradient = abs(float(np.abs(slope).sum() if state.k == 1 else slope.sum()))
    step = 0.1 * float(np.sqrt((state.costs[:, k] ** 2).sum() / (direction**2).sum()))
    return min(step, 0.05 * float(state.members[:, k].sum()) / gradient) if gradient > 0 else step
