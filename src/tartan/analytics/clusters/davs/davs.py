"""Vector-sponge clustering: deterministic annealing of points in a metric space, with a sponge for noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.clusters.davs.anneal import HISTORY, SpongeAnnealing, SpongeState
from tartan.analytics.clusters.davs.field import Field
from tartan.analytics.clusters.davs.model import SpongeSettings, require_moderate
from tartan.analytics.estimator import Estimator
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import POSITIVE, Fit, check_one_of, floats, number, wrong_option
from tartan.base.checksum import checksum_of_array
from tartan.base.signatures import group_options
from tartan.comm.communicator import Communicator, require_same_input
from tartan.errors import ConfigError

Floats = NDArray[np.float64]

# A sample stands for all points while a cluster has this many of its points on average, and the temperature is at least
# this many times the lowest.
# _SAMPLE_POINTS and _SAMPLE_ABOVE, by judgement: a mean of 24 points is right to a fifth of a deviation, and far above
# the lowest temperature clusters are wide. `tartan bench vs` holds what comes out.
_SAMPLE_POINTS = 24
_SAMPLE_ABOVE = 50.0


class DAVS(Estimator):
    """Cluster points by deterministic annealing, with a sponge that takes the noise.

    All points begin in one cluster at a high temperature. As it falls, each cluster whose scaled covariance has an
    eigenvalue above the temperature splits along that eigenvector. The number of clusters follows from the scales and
    the lowest temperature; it is not given. A point x has the energy E = sum_i (x_i - Y_i)^2 / sigma_i^2 in a cluster
    with centre Y, and its share there goes with P exp(-E / 2T); the sponge has the same energy for every point,
    ``sponge_factor`` squared. Results are deterministic: nothing is drawn by chance.

    The options come in groups: how wide a cluster is (``sigma`` to ``final_sigma_temperature``), the cooling
    (``min_temperature`` to ``sample``), which clusters there are (``max_clusters`` to ``closeness``), shares and noise
    (``priors`` to ``assignment``), effort (``centers_per_point`` to ``max_iter``), and the call
    (``restart_temperature`` to ``checkpoint``).

    Parameters
    ----------
    sigma : float or sequence of float, shape (n_features,)
        Standard deviation expected of a cluster along each coordinate; with a relative scale of coordinate 0,
        that as a fraction of the coordinate.
    scaling : {"absolute", "relative", "annealed"}
        "relative": coordinate 0 has the standard deviation sigma_0 Y_0, as a mass-to-charge ratio has. "annealed": the
        same, and sigma_0 falls from ``initial_sigma`` at the first temperature to its own value at
        ``final_sigma_temperature``, geometrically in the logarithm of T.
    initial_sigma : float, optional
        See "annealed"; default: 100 times sigma_0.
    final_sigma_temperature : float
        See "annealed".
    min_temperature : float, optional
        Where the annealing ends. Clusters as wide as sigma split below 1. Default: the first temperature,
        divided by ``temperature_ratio``.
    temperature_ratio : float
        See ``min_temperature``.
    cooling, cooling_below : pair of float
        Factors of the temperature while there was no split and after the last possible one, and between; from T = 12
        upwards and below it.
    sample : int, optional
        While clusters are few and the temperature is high, an even sample of at most this many points is annealed in
        place of all; None: never. Which clusters there are is decided later, by all points.
    max_clusters : int, optional
        No more clusters than these; default: as many as points.
    min_split_width : float
        Clusters of a smaller mean energy do not split.
    wait : int
        Coolings between two searches for splits.
    min_count : float
        Clusters of less mass are removed.
    min_points : int
        Clusters that are the nearest of fewer points are removed; 0 for no such test.
    closeness : float
        Of two clusters whose scaled squared distance is smaller, the smaller one is removed, once T is below 4.
    priors : bool
        Whether P is the share of points of a cluster; otherwise all are the same.
    sponge : {"never", "late", "always"}
        Whether there is a sponge; "late": from the time that ``sponge_temperatures`` or ``sponge_width`` says.
    sponge_factor : float
        Distance from which a point is noise, in standard deviations, at the end.
    sponge_factor_start : float, optional
        The same at the beginning; default: as at the end.
    sponge_temperatures : pair of float, optional
        The factor changes linearly with T between these two, the higher one first; the sponge is there below the first.
    sponge_width : float, optional
        The sponge is there once the mean energy of clusters is at most this.
    sponge_prior : float, optional
        P of the sponge is this divided by the number of clusters; None: its share of points, as of other clusters.
    assignment : {"distance", "mass"}
        Which points are noise. "distance": those farther than ``sponge_factor`` standard deviations from every centre.
        "mass": those that belong to the sponge more than to any cluster, priors and temperature included; at T above 1
        this keeps more of the outskirts of large clusters.
    centers_per_point : pair of int
        Least and largest number of near centres that a point is compared with.
    tol : float
        A temperature is done when the shares of a point change by less in sum, on average.
    max_iter : int
        Most steps at a temperature.
    restart_temperature : float, optional
        Where to begin with the centres given to ``fit``; default: the lowest temperature.
    verbose : int
        1 shows progress on stderr, 2 every temperature.
    checkpoint : path, optional
        File from which a stopped ``fit`` resumes when it is called again.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (n_samples,)
        Cluster of each point; -1 for noise.
    energies_ : ndarray, shape (n_samples,)
        Energy of each point in its nearest cluster.
    cluster_centers_ : ndarray, shape (k, n_features)
        Sorted along coordinate 0.
    n_clusters_ : int
        Number of clusters without the sponge: k.
    cluster_sizes_ : ndarray of int64, shape (k,)
        Points of each label.
    cluster_masses_, cluster_widths_ : ndarray, shape (k,)
        Sum of shares, and mean energy, of each cluster.
    cluster_sigmas_ : ndarray, shape (k, n_features)
        Standard deviations that were taken for each cluster.
    sponge_size_ : int
        Points with label -1.
    sponge_mass_ : float
        Sum of shares of the sponge.
    start_temperature_, temperature_ : float
        First and last temperature.
    n_iter_ : int
        Passes over the points.
    history_ : dict of str to ndarray
        Of each temperature step: temperature, n_clusters, energy (the free energy at this temperature), mean_width,
        sponge_mass.
    n_features_in_ : int
        Coordinates of a point.

    Notes
    -----
    One pass costs n times the length of the lists times the dimension, whatever the number of clusters. Centres are
    found by a search along coordinate 0, so let that be the one that separates clusters best. Memory: about
    150 bytes a point at lists of 10. Any number of threads and ranks gives the same bits.

    References
    ----------
    Fox, Mani, Pyne: Parallel deterministic annealing clustering and its application to LC-MS data analysis. IEEE
    International Conference on Big Data (2013) 665-673.
    Rose: Deterministic annealing for clustering, compression, classification, regression, and related optimization
    problems. Proc. IEEE 86 (1998) 2210-2239.

    Examples
    --------
    >>> import numpy as np
    >>> from tartan.analytics import DAVS
    >>> rng = np.random.default_rng(0)
    >>> points = np.concatenate([rng.normal(centre, 0.1, (40, 2)) for centre in (0, 2, 4)] + [[[9.0, -9.0]]])
    >>> found = DAVS(sigma=0.1, min_temperature=2, sponge="late", sponge_temperatures=(9, 3)).fit(points)
    >>> found.n_clusters_, found.labels_[[0, 40, 80, -1]].tolist()
    (3, [0, 1, 2, -1])
    """

    # What is read here; the others go to the settings by name.
    assignment: str
    restart_temperature: float | None

    _estimator_type = "clusterer"

    def __init__(
        self,
        sigma: float | Sequence[float] = 1.0,
        *,
        scaling: str = "absolute",
        initial_sigma: float | None = None,
        final_sigma_temperature: float = 3.0,
        min_temperature: float | None = None,
        temperature_ratio: float = 1000.0,
        cooling: Sequence[float] = (0.9875, 0.9975),
        cooling_below: Sequence[float] = (0.99375, 0.999375),
        sample: int | None = 20_000,
        max_clusters: int | None = None,
        min_split_width: float = 1.5,
        wait: int = 10,
        min_count: float = 1.0,
        min_points: int = 0,
        closeness: float = 0.5,
        priors: bool = True,
        sponge: str = "never",
        sponge_factor: float = 3.0,
        sponge_factor_start: float | None = None,
        sponge_temperatures: Sequence[float] | None = None,
        sponge_width: float | None = None,
        sponge_prior: float | None = 0.1,
        assignment: str = "distance",
        centers_per_point: Sequence[int] = (1, 20),
        tol: float = 0.005,
        max_iter: int = 20,
        restart_temperature: float | None = None,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self._keep(locals())

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        init: ArrayLike | None = None,
        monitor: Monitor | None = None,
        communicator: Communicator | None = None,
    ) -> DAVS:
        """Cluster points.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Points, finite. With a relative scale coordinate 0 must be positive.
        y : ignored
        init : array-like, shape (n_clusters, n_features), optional
            Centres of an earlier result to begin with, at ``restart_temperature``.
        monitor : Monitor, optional
            Receives progress and can cancel, in place of ``verbose`` and ``checkpoint``.
        communicator : Communicator, optional
            Ranks that share the work; each is given all points.

        Returns
        -------
        DAVS
            Itself.

        Raises
        ------
        ConfigError
            If a parameter or a point is not what it must be, or ``init`` does not fit to the points.
        RunCancelledError
            If the monitor was asked to stop; the same call resumes from the checkpoint, if there is one.
        """
        points = self._points(X, reset=True)
        init = None if init is None else floats("init", init)
        settings = check_settings(self.get_params(deep=False), points)
        monitor = as_monitor(monitor, self.verbose, self.checkpoint)
        asked = settings.by_name() | {"init": init}
        asked["restart_temperature"] = self.restart_temperature
        require_same_input(communicator, lambda: checksum_of_array(points))
        monitor.identify("DAVS", lambda: checksum_of_array(points), lambda: asked)
        saved = monitor.load()
        state = SpongeState.restore(saved) if saved is not None else self._first_state(points, settings, init)
        with monitor.keeping():
            annealing = _anneal_all(points, settings, state, saved, (communicator, monitor))
            annealing.run()
        self._conclude(annealing)
        if annealing.points.rank == 0:
            monitor.finish()
        return self

    def _points(self, X: ArrayLike, *, reset: bool) -> Floats:
        from sklearn.utils.validation import validate_data

        if np.ma.isMaskedArray(X):
            X = floats("X", X)
        try:
            points = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False, order="C")
        except ValueError as error:  # other types stay a TypeError, as in scikit-learn
            raise ConfigError(f"X is not an array of points, (n_samples, n_features): {error}") from error
        bad = np.argwhere(~np.isfinite(points))
        if len(bad):
            row, column = bad[0].tolist()
            what = "NaN" if np.isnan(points[row, column]) else "infinity"
            raise ConfigError(f"X: {what} in row {row}, column {column}; leave such points out or fill them in")
        found: Floats = points
        return found

    def _first_state(self, points: Floats, settings: SpongeSettings, centres: Floats | None) -> SpongeState:
        settings.scales.require_moderate("X", points)
        start = settings.scales.first_temperature(points)
        lowest = settings.cooling.lowest(start)
        settings.cooling.require_range(start)
        if centres is None:
            state = SpongeState.of(points.mean(axis=0)[None], len(points), max(start, lowest), start)
            state.coarse = len(points) > settings.cooling.sample
            return state
        if centres.ndim != 2 or centres.shape[1] != points.shape[1] or not len(centres):
            raise ConfigError(f"init: centres of shape {centres.shape} for points of {points.shape[1]} coordinates")
        if not np.isfinite(centres).all() or (settings.scales.relative and (centres[:, 0] <= 0).any()):
            raise ConfigError("init: centres must be finite, and positive in coordinate 0 where its scale is relative")
        settings.scales.require_moderate("init", centres)
        state = SpongeState.of(centres, len(points), self.restart_temperature or lowest, start)
        state.has_split, state.until_test = True, 10 * settings.splitting.wait
        return state

    def _conclude(self, annealing: SpongeAnnealing) -> None:
        annealing.sort()
        state, settings = annealing.state, annealing.settings
        step = annealing.step()
        self.cluster_centers_, self.n_clusters_ = state.positions, state.n_clusters
        self.cluster_masses_, self.cluster_widths_ = state.counts, state.widths
        self.cluster_sigmas_ = np.sqrt(1 / step.weights)
        self.sponge_mass_ = state.sponge_count
        self.start_temperature_, self.temperature_, self.n_iter_ = state.start, state.temperature, state.n_iter
        lines = np.array(state.history).reshape(-1, len(HISTORY))
        self.history_ = dict(zip(HISTORY, lines.T.copy()))
        self._offsets, self._noise_from = settings.masses.rule(self.assignment, step)
        self._limits = settings.lists.limits(state.temperature)
        self.labels_, self.energies_ = self._labels(annealing.points)
        self.cluster_sizes_ = np.bincount(self.labels_[self.labels_ >= 0], minlength=self.n_clusters_)
        self.sponge_size_ = int((self.labels_ < 0).sum())

    def _labels(self, field: Field) -> tuple[NDArray[np.int64], Floats]:
        weights = 1 / np.square(self.cluster_sigmas_)
        labels, energies = field.label(self.cluster_centers_, weights, self._offsets)
        labels[energies + self._offsets[labels] > self._noise_from] = -1
        return labels, energies

    def fit_predict(self, X: ArrayLike, y: Any = None, **options: Any) -> NDArray[np.int64]:
        """Cluster and return the labels; parameters as for :meth:`fit`."""
        return self.fit(X, y, **options).labels_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the cluster of new points, -1 for noise, by the rule that made ``labels_``.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Points, finite.

        Returns
        -------
        ndarray of int64, shape (n_samples,)

        Raises
        ------
        ConfigError
            If a point is not finite.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        points = self._points(X, reset=False)
        require_moderate("X", points, self.cluster_sigmas_.min(axis=0))
        field = Field(points, None)
        field.rebuild(self.cluster_centers_, 1 / np.square(self.cluster_sigmas_), *self._limits)
        return self._labels(field)[0]


def _anneal_all(
    points: Floats,
    settings: SpongeSettings,
    state: SpongeState,
    saved: dict[str, Any] | None,
    around: tuple[Communicator | None, Monitor],
) -> SpongeAnnealing:
    """Return the annealing of all points, after that of the sample; ``around``: the ranks, and the monitor."""
    ranks, monitor = around
    field = Field(points, ranks, monitor.check)
    if not state.coarse:
        return SpongeAnnealing(field, settings, state, monitor, saved)
    # Points evenly spaced along coordinate 0: the sample has the density of all.
    chosen = field.order[:: -(-len(points) // settings.cooling.sample)]
    first = SpongeAnnealing(Field(points[chosen], ranks, monitor.check), settings, state, monitor, saved)
    lowest = _SAMPLE_ABOVE * settings.cooling.lowest(state.start)
    first.descend(lowest, len(chosen) / _SAMPLE_POINTS)
    return first.refine(field)


# Checks the options of vector-sponge clustering and puts them into groups.

_SMALL_ENOUGH: Fit = ("a number above 0, 1e100 or less", lambda value: 0 < value <= 1e100)


def check_settings(given: Mapping[str, Any], points: NDArray[np.float64]) -> SpongeSettings:
    """Return the settings for these points.

    Parameters
    ----------
    given : mapping
        All options of `DAVS` by name.
    points : ndarray, shape (n, d)

    Raises
    ------
    ConfigError
        If an option is out of its range or does not fit to the points; the message names it.
    """
    check_one_of("assignment", given["assignment"], ("distance", "mass"))
    unlimited = {name: len(points) for name in ("sample", "max_clusters") if given[name] is None}
    found = group_options(
        SpongeSettings, {**given, **unlimited, **_scales(given, points), "sponge_factors": _sponge_factors(given)}
    )
    _refuse_contradictions(found, given, len(points))
    return found


def _scales(given: Mapping[str, Any], points: NDArray[np.float64]) -> dict[str, Any]:
    scaling = check_one_of("scaling", given["scaling"], ("absolute", "relative", "annealed"))
    dim = points.shape[1]
    listed: list[Any] = np.atleast_1d(np.asarray(given["sigma"], dtype=object)).tolist()
    sigma = tuple(number("sigma", value, POSITIVE) for value in (listed * dim if len(listed) == 1 else listed))
    if len(sigma) != dim:
        raise wrong_option("sigma", given["sigma"], f"one number, or one for each of {dim} coordinates")
    if scaling != "absolute" and points[:, 0].min() <= 0:
        row = int(points[:, 0].argmin())
        raise ConfigError(
            f"X: coordinate 0 is {points[row, 0]} in row {row}; with scaling {scaling!r} it must be positive"
        )
    initial = given["initial_sigma"]
    initial = 100 * sigma[0] if initial is None else number("initial_sigma", initial, POSITIVE)
    return {"sigma": sigma, "initial_sigma": initial}


def _sponge_factors(given: Mapping[str, Any]) -> tuple[float, float]:
    last, first = number("sponge_factor", given["sponge_factor"], _SMALL_ENOUGH), given["sponge_factor_start"]
    return last if first is None else number("sponge_factor_start", first, _SMALL_ENOUGH), last


def _refuse_contradictions(found: SpongeSettings, given: Mapping[str, Any], n_points: int) -> None:
    """Raise ConfigError where options are right one by one, but not together."""
    low, restart, masses = found.cooling.min_temperature, given["restart_temperature"], found.masses
    if restart is not None and number("restart_temperature", restart, POSITIVE) < (low or 0.0):
        raise wrong_option("restart_temperature", restart, f"at least min_temperature, {low}")
    if found.splitting.max_clusters > n_points:
        raise wrong_option("max_clusters", found.splitting.max_clusters, f"at most the number of points, {n_points}")
    temperatures = masses.sponge_temperatures
    if temperatures is not None and temperatures[0] <= temperatures[1]:
        raise wrong_option("sponge_temperatures", temperatures, "a higher temperature and a lower one")
    if masses.sponge == "late" and temperatures is None and masses.sponge_width is None:
        raise ConfigError("sponge is 'late' without a time: give sponge_temperatures or sponge_width")
