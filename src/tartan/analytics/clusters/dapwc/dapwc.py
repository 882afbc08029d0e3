"""Pairwise clustering by deterministic annealing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.anneal import HISTORY, SPLITS, PairwiseAnnealing
from tartan.analytics.clusters.dapwc.contest import ANNEALING, LOWER, Contest, Winner
from tartan.analytics.clusters.dapwc.level import LeveledProduct
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.clusters.dapwc.product import Columns, HostProduct, Product
from tartan.analytics.clusters.dapwc.state import (
    Memberships,
    PairwiseSettings,
    update_costs,
)
from tartan.analytics.clusters.hierarchies import Hierarchies
from tartan.analytics.estimator import PairwiseEstimator
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities, require_precomputed
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import Fit, generator, number
from tartan.base.signatures import group_options
from tartan.comm.communicator import Alone, Communicator, partition, require_same_input
from tartan.devices.protocol import Device
from tartan.errors import ConfigError


class DAPWC(PairwiseEstimator):
    r"""Cluster items by their pairwise dissimilarities, by deterministic annealing.

    No coordinates are needed. The run begins at a high temperature with one cluster. As it cools, a cluster that has
    become unstable (a phase transition) is split, until there are ``n_clusters``; then memberships freeze. The result
    hardly depends on chance.

    The options come in groups: cooling (``cooling`` to ``min_temperature``), splits (``split_threshold`` to
    ``max_failed_splits``), the end of each temperature and of the run (``tol`` to ``min_cluster_size``), what is
    computed (``level`` to ``random_state``), and the call (``verbose``, ``checkpoint``).

    Parameters
    ----------
    n_clusters : int
        Splitting stops at this many clusters.
    cooling, final_cooling : float
        What the temperature is multiplied with between splits, and while freezing; before the first split it is 0.9.
    min_temperature : float, optional
        Last temperature, as a share of the first (twice the mean dissimilarity). Default: where no two items can part
        any more, a share of the least distance.
    split_threshold : float
        A cluster is split when the smallest eigenvalue of its stability matrix is at most this times the largest.
        Larger (towards 0) splits more readily.
    min_split_size : float
        Clusters of this size or less are not split.
    max_failed_splits : int, optional
        Searches that may find nothing before splitting ends; default: any number, until the last temperature.
    tol : float
        Steps at one temperature end when costs change by less, on average over the points; a share of the largest
        dissimilarity.
    max_iter : int
        Steps at one temperature, at most.
    freezing_limit : float
        The final stage ends when no cluster has a larger share of undecided points.
    min_cluster_size : float
        Smaller clusters are removed at the end, and their points given to the others.
    level : float, optional
        What is taken off all dissimilarities between different items before they are compared; smaller ones count as
        0. Default: the median distance to a nearest neighbour, which tells apart clusters of items that are all about
        equally far from each other, and is not moved by a few copies of an item or a gross outlier. 0 takes nothing
        off, as in the published programs.
    metric : "precomputed"
        As scikit-learn calls it: ``fit`` is given dissimilarities, never points.
    continuous_prior : bool
        Weight clusters by their sizes.
    intermediate : bool
        Keep the clustering of every K on the way (``clusterings_``).
    device : {"cpu", "cuda", "cuda:0", ...}
        Where products with the matrix are computed.
    random_state : int, RandomState or None
        Begins the searches for eigenvectors; matters only where symmetry leaves a choice.
    verbose : int
        1 shows progress on stderr, 2 every step.
    checkpoint : path, optional
        File from which an interrupted ``fit`` of the same input and parameters resumes, with the same result.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (n,)
        Cluster of each item, from 0.
    n_clusters_ : int
        Clusters that there are: k.
    membership_ : ndarray of float64, shape (n, k)
        Share of each item in each cluster; rows sum to 1.
    sizes_, widths_, freezing_ : ndarray of float64, shape (k,)
        Sums of memberships; mean dissimilarities within the clusters; undecided shares.
    correlation_ : ndarray of float64, shape (k, k)
        Mean dissimilarity of the items of two clusters, divided by the mean of those within clusters.
    hamiltonian_, hard_hamiltonian_ : float
        Sum of sizes times widths, of the memberships and of the labels; with nothing taken off.
    level_ : float
        What was taken off. Temperatures, ``history_`` and ``splits_`` are measured from it; different numbers of
        clusters can be compared by costs measured from one level only.
    n_clipped_ : int
        Pairs that are nearer than the level: they count as 0, and differences among them do not count.
    note_ : str
        One sentence that says so; empty where there are none.
    method_ : str
        What found the labels: "annealing", "average linkage" and the like, or "search from ..." where a local search
        found labels of lower cost from those. All compete for complete matrices, annealing and single linkage where
        pairs are missing.
    costs_ : dict of str to float
        H, measured from the level, of each that took part, before the search.
    temperatures_ : ndarray of float64
        All temperatures, in order.
    history_ : structured ndarray
        For each temperature: temperature, n_clusters, hamiltonian, freezing (the largest), n_steps, final.
    splits_ : structured ndarray
        For each split: temperature, cluster, smallest and largest eigenvalue.
    critical_temperature_ : float
        Temperature below which a single cluster is unstable: for squared Euclidean distances and ``level=0`` twice the
        largest variance in any direction. NaN when nothing was to be split.
    clusterings_ : dict of int to ndarray of int64
        Labels for each K on the way, with ``intermediate``.
    n_iter_ : int
        Steps of expectation-maximisation, without those of searches for splits.
    n_features_in_ : int
        n.

    Notes
    -----
    With memberships :math:`M_a(k)`, :math:`C(k) = \sum_a M_a(k)`, :math:`B_a(k) = \sum_b d_{ab} M_b(k) / C(k)`,
    :math:`A(k) = -\tfrac12 \sum_a B_a(k) M_a(k) / C(k)`, a step sets :math:`M_a(k) \propto \exp(-(B_a(k) + A(k))/T)`.
    Each step reads the matrix once: O(n\ :sup:`2` K) work; memory grows with n K. Missing pairs are left out and B is
    divided by the mass of the known ones. At the end a local search moves single items and joins and splits clusters
    as long as the cost of the labels falls. The result does not depend on the number of threads or ranks.

    References
    ----------
    Hofmann, Buhmann: Pairwise data clustering by deterministic annealing. IEEE Trans. PAMI 19 (1997) 1-14.
    Rose: Deterministic annealing for clustering, compression, classification, regression, and related optimization
    problems. Proc. IEEE 86 (1998) 2210-2239.
    Fox et al.: Parallel deterministic annealing clustering and its application to LC-MS data analysis. IEEE Big Data
    (2013).

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    >>> D = abs(points[:, None] - points)
    >>> DAPWC(2, random_state=0).fit_predict(D).tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """

    level: float | None
    intermediate: bool
    device: str
    random_state: Any

    _estimator_type = "clusterer"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        cooling: float = 0.99,
        final_cooling: float = 0.98,
        min_temperature: float | None = None,
        split_threshold: float = -0.01,
        min_split_size: float = 1,
        max_failed_splits: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 2000,
        freezing_limit: float = 0.002,
        min_cluster_size: float = 1,
        level: float | None = None,
        metric: str = "precomputed",
        continuous_prior: bool = False,
        intermediate: bool = False,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self._keep(locals())

    def fit(
        self, D: Any, y: Any = None, *, monitor: Monitor | None = None, communicator: Communicator | None = None
    ) -> DAPWC:
        """Cluster.

        Parameters
        ----------
        D : array_like (n, n) or condensed, path, Run, or Dissimilarities
            See :func:`tartan.analytics.as_dissimilarities`. float64 is computed in float64; float32 and int16 in
            float32 with float64 sums.
        y : ignored
        monitor : Monitor, optional
            Receives progress and can cancel, in place of ``verbose`` and ``checkpoint``.
        communicator : Communicator, optional
            Ranks that share the rows; each calls ``fit`` with the same D.

        Returns
        -------
        DAPWC
            This object.

        Raises
        ------
        ConfigError
            If D is not a matrix of dissimilarities, all of them are 0, missing pairs cut the items apart, or there are
            fewer items than clusters.
        RunCancelledError
            If the monitor was asked to stop; the checkpoint, if there is one, is up to date.
        """
        dissimilarities = as_dissimilarities(D)
        monitor = as_monitor(monitor, self.verbose, self.checkpoint)
        communicator = Alone() if communicator is None else communicator
        _check_input(dissimilarities, _settings(self.get_params(deep=False)), monitor)
        if dissimilarities.n == 1:
            return self._fit_one()
        return self.fit_prepared(Prepared(dissimilarities, monitor), None, monitor, communicator)

    def fit_prepared(
        self, case: Prepared, contest: Contest | None, monitor: Monitor, communicator: Communicator | None = None
    ) -> DAPWC:
        """Cluster a matrix that others work on, too; what has entered the contest competes with what is found here."""
        settings = _settings(self.get_params(deep=False))
        communicator = Alone() if communicator is None else communicator
        self.n_features_in_ = case.D.n
        start = generator(self.random_state).standard_normal(case.D.n)
        require_same_input(communicator, lambda: case.given.fingerprint(monitor))
        monitor.identify("DAPWC", lambda: case.given.fingerprint(monitor), lambda: _parameters(self))
        level = case.level(None if self.level is None else number("level", self.level, _LEVEL))
        product = _product(case.D, self.device, communicator, monitor)
        measured = LeveledProduct(product, level) if level.value else product
        start = communicator.broadcast(start)
        annealing = PairwiseAnnealing(measured, settings, level, start, monitor)
        try:
            with monitor.keeping():
                state = annealing.run()
                contest = contest or _contest(case, level.value, settings, state.k, start, communicator, monitor)
                found = _winner(contest, state.costs.argmin(1), measured, case, communicator)
                self.costs_ = {name: cost * case.unit for name, cost in (contest.costs if contest else {}).items()}
                self._take(annealing, annealing.settle(state, found.labels), found, product, case.unit)
                self.level_, self.n_clipped_ = level.value * case.unit, level.n_clipped
                self.note_ = level.note(case.unit)
        finally:
            product.close()
        monitor.finish()
        return self

    def _fit_one(self) -> DAPWC:
        """Take the only clustering of one item."""
        self.n_features_in_ = 1
        self.critical_temperature_, self.hard_hamiltonian_ = math.nan, 0.0
        self.level_, self.n_clipped_, self.note_, self.method_, self.costs_ = 0.0, 0, "", ANNEALING, {}
        return self._finish(_single(), np.empty(0, HISTORY), np.empty(0, SPLITS), 1.0)

    def _take(
        self, annealing: PairwiseAnnealing, state: Memberships, found: Winner, product: Product, unit: float
    ) -> None:
        """Store the results, in units of the dissimilarities themselves."""
        self.critical_temperature_ = annealing.critical_temperature * unit
        if annealing.product is not product:
            update_costs(state, product)
        history, splits = np.array(annealing.history, HISTORY), np.array(annealing.splits, SPLITS)
        self._finish(state, history, splits, unit)
        self.labels_: NDArray[np.int64] = found.labels
        self.method_ = found.method
        self.hard_hamiltonian_ = hard_cost(self.labels_, self.n_clusters_, product) * unit
        if self.intermediate:
            self.clusterings_ = {**annealing.clusterings, self.n_clusters_: self.labels_}

    def fit_predict(self, D: Any, y: Any = None, **options: Any) -> NDArray[np.int64]:
        """Cluster and return the labels; parameters as for :meth:`fit`."""
        return self.fit(D, y, **options).labels_

    def _finish(self, state: Memberships, history: NDArray[Any], splits: NDArray[Any], unit: float) -> DAPWC:
        for array, names in ((history, ("temperature", "hamiltonian")), (splits, ("temperature",))):
            for name in names:
                array[name] *= unit
        self.labels_ = state.costs.argmin(1)
        self.membership_ = state.members
        self.n_clusters_ = state.k
        self.sizes_ = state.sizes
        self.widths_ = -2.0 * state.inner * unit
        self.freezing_ = state.freezing
        self.hamiltonian_ = state.hamiltonian * unit
        self.correlation_ = _correlation(state)
        self.history_, self.splits_ = history, splits
        self.temperatures_ = history["temperature"]
        self.n_iter_ = int(history["n_steps"].sum())
        return self


def _parameters(estimator: DAPWC) -> dict[str, Any]:
    """Return what the result depends on."""
    return {k: v for k, v in estimator.get_params(deep=False).items() if k not in ("device", "verbose", "checkpoint")}


# By judgement: a product with 64 columns reads the matrix once and is bound by arithmetic (`tartan bench pwc`); more
# only take memory.
_COLUMNS = 64  # of one product
# By format of what ranks tell each other.
_NAME_BYTES = 64  # of what found the labels
_LEVEL: Fit = ("a dissimilarity, 0 or more", lambda value: value >= 0)


def _settings(given: Mapping[str, Any]) -> PairwiseSettings:
    """Check the options, given by name."""
    require_precomputed(given["metric"])
    if not isinstance(given["device"], str):
        raise ConfigError(f"device is {given['device']!r}; it must be 'cpu', 'cuda' or 'cuda:1'")
    return group_options(PairwiseSettings, given)


def _check_input(D: Dissimilarities, settings: PairwiseSettings, monitor: Monitor) -> None:
    """Refuse what cannot be clustered."""
    if settings.n_clusters > D.n:
        raise ConfigError(f"{D.label}: {settings.n_clusters} clusters of {D.n} items; n_clusters must be at most {D.n}")
    found = D.check(monitor=monitor)
    if D.n > 1:
        found.require_connected(D)
        found.require_positive(D)
        if not math.isfinite(found.total_squares):
            found.require_moderate(D)


def _product(D: Dissimilarities, device: str, communicator: Communicator, monitor: Monitor) -> Product:
    if device == "cpu":
        return HostProduct(D, communicator, monitor)
    from tartan.devices import open_device

    return DeviceProduct(D, open_device(device), communicator, monitor)


def _contest(
    case: Prepared,
    level: float,
    settings: PairwiseSettings,
    k: int,
    start: NDArray[np.float64],
    communicator: Communicator,
    monitor: Monitor,
) -> Contest | None:
    """Return the contest of linkages and of chance; None where pairs are missing, or another rank holds it.

    It is of as many clusters as were asked for, or of those that annealing found where options limit its splits.
    """
    if case.D.has_missing or communicator.rank:
        return None
    division = settings.division
    limited = division.max_failed_splits is not None or division.min_split_size > 1 or settings.min_cluster_size > 1
    contest = Contest(case.D, level, k if limited else settings.n_clusters, case.hierarchies, monitor)
    contest.enter_all(start)
    return contest


def _winner(
    contest: Contest | None, labels: NDArray[np.int64], product: Product, case: Prepared, communicator: Communicator
) -> Winner:
    """Return the best labels, the same on all ranks; the contest is on the first one."""
    if case.D.has_missing:
        return _better_with_missing(labels, product, case.hierarchies)
    name = np.zeros(_NAME_BYTES, np.uint8)
    if contest is not None:
        contest.enter(ANNEALING, labels)
        labels = contest.winner.labels
        written = np.frombuffer(contest.winner.method.encode(), np.uint8)
        name[: len(written)] = written
    labels, name = communicator.broadcast(labels), communicator.broadcast(name)
    return Winner(labels, bytes(name[name > 0].tolist()).decode(), math.nan)


def _better_with_missing(labels: NDArray[np.int64], product: Product, hierarchies: Hierarchies) -> Winner:
    """Return the better of what annealing found and single linkage, the only one that takes missing pairs."""
    k = len(np.unique(labels))
    own = Winner(labels, ANNEALING, hard_cost(labels, int(labels.max()) + 1, product))
    linked = hierarchies.cut("single", k)
    other = Winner(linked, "single linkage", hard_cost(linked, k, product))
    return other if other.cost < own.cost * (1 - LOWER) else own


def _single() -> Memberships:
    """Return the clustering of one item."""
    one, zero = np.ones(1), np.zeros(1)
    return Memberships(np.ones((1, 1)), np.zeros((1, 1)), one, one, zero, zero)


def _correlation(state: Memberships) -> NDArray[np.float64]:
    """Return the mean dissimilarities of clusters, in units of the mean within clusters."""
    distances = state.costs - state.inner
    means: NDArray[np.float64] = distances.T @ state.members / state.sizes
    within = float(np.diag(means).mean())
    return means / within if within > 0 else means


def hard_cost(labels: NDArray[np.int64], k: int, product: Product) -> float:
    """Return H of labels: for each cluster the sum of dissimilarities within, divided by its size."""
    return sum(_cost_of_columns(labels, np.arange(k)[at : at + _COLUMNS], product) for at in range(0, k, _COLUMNS))


def _cost_of_columns(labels: NDArray[np.int64], clusters: NDArray[np.int64], product: Product) -> float:
    members = (labels[:, None] == clusters).astype(np.float64)
    products, mass = product(members)
    known = np.broadcast_to(members.sum(0), members.shape) if mass is None else mass
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(members > 0, product.scale * products / known, 0.0)
    return float(means.sum())


# Products with the matrix on a device, such as a GPU: the matrix stays there as stored, or is streamed through it.

# By judgement: large enough for a GPU at full speed, small beside its memory. No benchmark: no GPU measured yet.
_TILE_BYTES = 256 << 20
# By judgement: the rest is for three tiles and the library. No benchmark: no GPU measured yet.
_SHARE = 0.8  # of the free memory may be taken by the matrix


class DeviceProduct:
    """The operator on a device; see ``Product``.

    Parameters
    ----------
    D : Dissimilarities
        Checked.
    device : Device
        Closed by :meth:`close`.
    communicator : Communicator
    monitor : Monitor
    tile_bytes : int
        Values that are converted for one product at a time.

    Notes
    -----
    Values stay int16 or float32 in the device's memory and are converted a tile at a time. Sums are taken in float32,
    in float64 where values are float64: they differ from those of the CPU in the last digits of that type.
    """

    def __init__(
        self,
        D: Dissimilarities,
        device: Device,
        communicator: Communicator,
        monitor: Monitor,
        tile_bytes: int = _TILE_BYTES,
    ) -> None:
        found = D.check()
        self.n, self.scale = D.n, D.scale
        self.unknown = self.unit = found.largest
        self.masses = found.n_missing > 0
        self._D, self._device, self._communicator, self._monitor = D, device, communicator, monitor
        self._real = np.dtype(np.float64 if D.dtype.itemsize == 8 else np.float32)
        self._stored = np.dtype(np.int16) if D.dtype.kind == "i" else self._real
        first, last = partition(D.n, communicator.size)[communicator.rank]
        height = max(1, tile_bytes // (D.n * self._real.itemsize))
        self._tiles = [(start, min(last, start + height)) for start in range(first, last, height)]
        size = (last - first) * D.n * self._stored.itemsize
        self._held: list[Any] = []
        if size + 3 * tile_bytes <= _SHARE * device.free_bytes():
            self._held = [self._upload(D.block(*tile)) for tile in self._tiles]

    @property
    def resident(self) -> bool:
        """Whether the whole matrix lies on the device."""
        return bool(self._held)

    def __call__(self, columns: Columns) -> tuple[Columns, Columns | None]:
        on_device = self._upload(columns.astype(self._real))
        products, masses = [], []
        for place, tile in enumerate(self._tiles):
            rows = self._held[place] if self._held else self._upload(self._D.block(*tile))
            multiply = partial(self._multiply, rows, on_device)
            product, mass = self._device.compute("product", tile[1] - tile[0], multiply)
            products.append(self._download(product))
            if mass is not None:
                masses.append(self._download(mass))
            self._monitor.check()
        empty = np.empty((0, columns.shape[1]))
        gathered = self._communicator.all_gather(np.concatenate([empty, *products]))
        if not self.masses:
            return gathered, None
        return gathered, self._communicator.all_gather(np.concatenate([empty, *masses]))

    def close(self) -> None:
        """Give the device back."""
        self._held = []
        self._device.close()

    def _multiply(self, rows: Any, columns: Any) -> tuple[Any, Any]:
        xp = self._device.xp
        values = xp.astype(rows, columns.dtype)
        if not self.masses:
            return xp.matmul(values, columns), None
        known = values >= 0  # neither NaN nor a negative integer
        product = xp.matmul(xp.where(known, values, xp.zeros_like(values)), columns)
        return product, xp.matmul(xp.astype(known, columns.dtype), columns)

    def _upload(self, host: NDArray[Any]) -> Any:
        contiguous = np.ascontiguousarray(host)
        array = self._device.allocate(contiguous.shape, contiguous.dtype)
        self._device.upload(contiguous, array)
        return array

    def _download(self, array: Any) -> Columns:
        host = np.empty(array.shape, self._real)
        self._device.download(array, host)
        return host.astype(np.float64)
