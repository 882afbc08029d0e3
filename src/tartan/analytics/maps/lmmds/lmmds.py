"""Maps as nonlinear least squares, by Levenberg and Marquardt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.estimator import PairwiseEstimator
from tartan.analytics.maps.lmmds.damped import Minimum, Step, StepLimits, minimise, restore_minimum
from tartan.analytics.maps.lmmds.options import LmmdsOptions
from tartan.analytics.maps.lmmds.setup import Placement, Setting, opened, prepare_setting, value_missing
from tartan.analytics.maps.start import start_points
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities, require_precomputed
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import floats, generator, require_apart, require_near
from tartan.base.signatures import group_options
from tartan.comm.communicator import Alone, Communicator, require_same_input
from tartan.errors import ConfigError

Floats = NDArray[np.float64]
Callback = Callable[[dict[str, Any]], Any]


class LMMDS(PairwiseEstimator):
    """Multidimensional scaling as nonlinear least squares (Levenberg-Marquardt), without a matrix of its own.

    Minimises chi2, the sum over ordered pairs of (W (delta - D))^2: D is the distance of two points of the map
    or its square, W a weight made of delta. Needs memory of n times the dimension beside the matrix.

    The options come in groups: what is minimised (``weighting`` to ``distance_transform``), which pairs and points
    count (``missing_value`` to ``fixed``), the iteration (``second_derivatives`` to ``max_seconds``), the start
    (``init`` to ``random_state``), and the call (``calculate_fixed`` to ``checkpoint``).

    Parameters
    ----------
    n_components : int
        Dimension L of the map.
    weighting : {"sammon", "relative", "relative34", "even", "large"}
        W: "relative" 1/delta, "relative34" delta^-0.75 mean^-0.25, "sammon" 1/sqrt(delta mean), "even" 1/mean,
        "large" sqrt(delta)/mean^1.5, with the mean over all pairs that count.
    formula : {"distance", "squared"}
        D = ``sqrt(|dx|^2 + m^2)`` with m = ``minimum_distance``, or ``|dx|^2``.
    minimum_distance : float
        m; also the least delta in the first three weightings (where it is 0: the smallest positive delta). A negative
        number counts in mean dissimilarities.
    multiplier : float
        Factor of W: chi2 and the limit ``tol`` are in units of its square.
    bins : sequence of float, optional
        Limits of bins of delta, each of which gets the same total weight.
    metric : "precomputed"
        As scikit-learn calls it: ``fit`` is given dissimilarities, never points.
    distance_transform : str, float or callable, optional
        Function of the dissimilarities, as ``transform`` of :func:`tartan.analytics.matrix.as_dissimilarities`.
    missing_value : float, optional
        Dissimilarity that stands for missing pairs; default: they are left out.
    distance_cut : float, optional
        Pairs with a larger delta are left out.
    link_cut : int, optional
        Varied points with this many pairs or fewer are left out, again and again; their coordinates are NaN. Default:
        none is left out, and points that no pair connects with the others are an error that names them.
    max_left_out : float
        Largest share of the varied points that ``link_cut`` may leave out.
    varied, fixed : {"all", "rest", "none"} or sequence of int, str or bool
        Points that are placed, and points that stay where ``init`` has them: indices, labels or a mask. "rest" is
        what the other has not. Points of neither are left out.
    second_derivatives : bool
        Use the exact Hessian (fewer passes in all, and better maps), or that of Gauss and Newton.
    gauge : {"free", "pinned"}
        "pinned" holds L (L + 1) / 2 coordinates of L points at zero where no point is fixed; "free" leaves the map
        where the iteration takes it.
    max_iter : int
        Largest number of steps, accepted or not.
    tol : float
        Stop when the predicted fall of chi2 is at most this for each varied point.
    max_seconds : float, optional
        Stop after this time.
    init : {"classical", "landmark", "random"}
        Where ``fit`` begins when it is given no coordinates: at the classical solution (five passes over the matrix),
        at that of 500 items with the others placed by their dissimilarities to those, or at random in a cube of the
        mean dissimilarity. The first two are shaken by a hundredth of that.
    n_init : int
        Starts, all but the first at random; the best result is kept. One where ``fit`` is given coordinates.
    random_state : int, RandomState or None
        Of the starts.
    calculate_fixed : bool
        Whether the chi2 of pairs of fixed points is computed too, for ``chisq_parts_``.
    callback : callable, optional
        Called with each entry of ``history_``; a true answer ends the iteration.
    verbose : int
        0, 1 or 2: progress on stderr.
    checkpoint : path, optional
        File from which a stopped ``fit`` resumes when it is called again.

    Attributes
    ----------
    embedding_ : ndarray (n, L)
        NaN for points that were left out (``sample_weight`` 0, ``link_cut``).
    chisq_ : float
        Sum over ordered pairs with a varied point.
    chisq_parts_ : dict
        "varied": pairs of varied points; "cross": of varied and fixed ones; "fixed": NaN unless computed.
    errors_ : ndarray (n, L)
        Standard error of each coordinate, sqrt(chi2 / (pairs - parameters) / H_pp); 0 where it was fixed, NaN where
        there are not more pairs than parameters, or where H_pp is not positive.
    n_iter_ : int
        Steps of the best start.
    stop_reason_ : str
        "small_gain", "max_iter", "time", "no_progress", "boundary" (chi2 is not finite), "singular", "user".
    history_ : list of dict
        What each step did: chisq, predicted, ratio, damping, n_products, accepted.
    anchors_ : list of int
        Points that hold the map in place.
    left_out_ : ndarray of int
        Varied points that ``link_cut`` left out.
    n_features_in_ : int

    Notes
    -----
    A pass costs n^2 L operations for each rank's share; rows are summed in a fixed order, so that from one start the
    result is the same for any number of threads and ranks. The classical start is computed by BLAS.

    References
    ----------
    Fox et al.: Parallel deterministic annealing clustering and its application to LC-MS data analysis. IEEE Big Data
    (2013), and Ekanayake et al.: SPIDAL Java. HPC (2016) for chi2 and its options.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(30, 2))
    >>> D = np.linalg.norm(points[:, None] - points, axis=2)
    >>> found = LMMDS(2, tol=1e-9, n_init=4, random_state=0).fit(D)
    >>> bool(found.chisq_ < 1e-6), found.embedding_.shape
    (True, (30, 2))
    """

    formula: str
    distance_transform: Any
    missing_value: float | None
    second_derivatives: bool
    init: str
    n_init: int
    random_state: Any
    calculate_fixed: bool

    def __init__(
        self,
        n_components: int = 3,
        *,
        weighting: str = "sammon",
        formula: str = "distance",
        minimum_distance: float = 0.0,
        multiplier: float = 10.0,
        bins: Sequence[float] | None = None,
        metric: str = "precomputed",
        distance_transform: Any = None,
        missing_value: float | None = None,
        distance_cut: float | None = None,
        link_cut: int | None = None,
        max_left_out: float = 0.25,
        varied: Any = "rest",
        fixed: Any = "none",
        second_derivatives: bool = True,
        gauge: str = "free",
        max_iter: int = 100,
        tol: float = 1e-3,
        max_seconds: float | None = None,
        init: str = "classical",
        n_init: int = 1,
        random_state: Any = None,
        calculate_fixed: bool = False,
        callback: Callback | None = None,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self._keep(locals())

    def fit(
        self,
        D: Any,
        y: Any = None,
        init: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        labels: Sequence[str] | None = None,
        monitor: Monitor | None = None,
        communicator: Communicator | None = None,
    ) -> LMMDS:
        """Place the points.

        Parameters
        ----------
        D : array_like (n, n), Dissimilarities, Run or path
            Dissimilarities, as :func:`tartan.analytics.matrix.as_dissimilarities` takes them.
        y : ignored
        init : array_like (n, L), optional
            The start, and the places of fixed points. Default: as the parameter ``init`` says.
        sample_weight : array_like (n,), optional
            Weights p of the points, with any mean: a pair counts sqrt(p_i p_j) in W. 0 leaves a point out.
        labels : sequence of str, optional
            Names of the points, for ``varied`` and ``fixed``; default: those of the matrix.
        monitor : Monitor, optional
            Progress, checkpoint and cancel, instead of ``verbose`` and ``checkpoint``.
        communicator : Communicator, optional
            The ranks that share the rows; default: this process alone.

        Raises
        ------
        ConfigError
            If the matrix or an option is wrong.
        RunCancelledError
            If the monitor was asked to stop; the same call resumes from the checkpoint, if there is one.
        """
        require_precomputed(self.metric)
        monitor = as_monitor(monitor, self.verbose, self.checkpoint)
        options = group_options(LmmdsOptions, self.get_params(deep=False))
        opened_matrix = opened(D, transform=self.distance_transform, monitor=monitor)
        require_same_input(communicator, lambda: opened_matrix.fingerprint(monitor))
        setting = prepare_setting(options, opened_matrix, communicator or Alone(), monitor, sample_weight, labels)
        starts = self._starts(setting, opened_matrix, init, monitor)
        monitor.identify(
            "LMMDS",
            lambda: opened_matrix.fingerprint(monitor),
            lambda: self._identity(init, sample_weight) | {"labels": labels},
        )
        with monitor.keeping():
            search = _Search(options.callback, options.limits, setting, monitor)
            for place, start in enumerate(starts):
                search.run(place, start)
        assert search.best is not None
        self._publish(setting, search.best, search.best_history)
        self.n_features_in_ = opened_matrix.n
        monitor.finish()
        return self

    def fit_transform(self, D: Any, y: Any = None, init: ArrayLike | None = None, **options: Any) -> Floats:
        """Place the points and return ``embedding_``; for the parameters see :meth:`fit`."""
        return self.fit(D, y, init, **options).embedding_

    def _identity(self, init: ArrayLike | None, sample_weight: ArrayLike | None) -> dict[str, Any]:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_THE_RESULT}
        given = {"init": init, "sample_weight": sample_weight}
        return {**parameters, **{name: None if v is None else np.asarray(v) for name, v in given.items()}}

    def _starts(self, setting: Setting, D: Dissimilarities, init: ArrayLike | None, monitor: Monitor) -> list[Floats]:
        shape = (setting.n, setting.dimension)
        if init is None:
            if setting.points.fixed.any():
                raise ConfigError("fixed points need their places: give init, with any numbers for the other points")
            random = generator(self.random_state)
            size = setting.survey.mean
            first = self._first(setting, D, random, monitor)
            starts = [random.uniform(-size, size, shape) for _ in range(self.n_init)]
            if first is not None:
                # It may be flat or have points in one place, from where no step leads down: hence the noise.
                starts[0] = first + _SHAKEN * starts[0]
            return starts
        start = floats("init", init)
        if start.shape != shape:
            raise ConfigError(f"init has shape {start.shape}; {setting.n} points in {setting.dimension} dimensions")
        counted = start[setting.points.counted]
        if not np.isfinite(counted).all():
            raise ConfigError("init has a coordinate that is not finite")
        require_near("init", counted, setting.survey.largest)
        require_apart("init", counted)
        return [np.nan_to_num(start)]

    def _first(self, setting: Setting, D: Dissimilarities, random: Any, monitor: Monitor) -> Floats | None:
        """Return the start that ``init`` names; None: at random."""
        if self.init == "random":
            return None
        whole = value_missing(D, self.missing_value)
        metric = as_dissimilarities(whole, transform="sqrt") if self.formula == "squared" else whole
        return start_points(self.init, metric, setting.dimension, random, monitor) * metric.scale

    def _publish(self, setting: Setting, best: tuple[Floats, Minimum], history: list[dict[str, Any]]) -> None:
        x, minimum = best
        found = setting.evaluate(x, exact=bool(self.second_derivatives))
        counted = setting.points.counted
        self.embedding_ = np.where(counted[:, None], x, np.nan)
        self.chisq_ = found.chisq
        fixed = self._compute_fixed_chisq(setting, x) if self.calculate_fixed else math.nan
        self.chisq_parts_ = {"varied": found.varied, "cross": 2.0 * found.cross, "fixed": fixed}
        self.errors_ = _errors(setting, found.blocks, found.chisq)
        self.n_iter_, self.stop_reason_, self.history_ = minimum.iteration, minimum.stop_reason, history
        self.anchors_ = [] if setting.gauge is None else setting.gauge.anchors
        self.left_out_ = setting.points.left_out

    def _compute_fixed_chisq(self, setting: Setting, x: Floats) -> float:
        only = np.where(setting.points.fixed, setting.points.weights, 0.0)
        rows = np.flatnonzero(setting.points.fixed)
        marks = np.zeros(setting.n)
        return setting.pairs.evaluate(setting.objective, x, only, rows, marks).chisq

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedding_")


# By judgement: a hundredth of the width leaves the start and its symmetries. `tartan bench chisq` compares starts.
_SHAKEN = 0.01
_NOT_THE_RESULT = {"verbose", "checkpoint", "callback", "max_seconds", "metric"}


def _errors(setting: Setting, blocks: Floats, chisq: float) -> Floats:
    """Return the standard error of each coordinate; NaN where there are too few pairs to tell."""
    errors = np.zeros((setting.n, setting.dimension))
    freedom = setting.n_pairs() - setting.n_parameters()
    variance = chisq / freedom if freedom > 0 else math.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        of_rows = np.sqrt(variance / np.einsum("iaa->ia", blocks))
    errors[setting.points.rows] = np.where(setting.free(), of_rows, 0.0)
    errors[setting.points.left_out] = math.nan
    return errors


class _Search:
    """One minimisation after the other, with what a checkpoint must hold."""

    def __init__(self, callback: Callback | None, limits: StepLimits, setting: Setting, monitor: Monitor) -> None:
        self._callback, self._setting, self._monitor = callback, setting, monitor
        n_varied = len(setting.points.rows)
        self._limits = replace(
            limits, max_iter=limits.max_iter if n_varied else 0, small_gain=limits.small_gain * n_varied
        )
        self.best: tuple[Floats, Minimum] | None = None
        self.best_history: list[dict[str, Any]] = []
        self._number, self._history, self._saved = 0, list[dict[str, Any]](), monitor.load()

    def run(self, number: int, x: Floats) -> None:
        """Minimise from a start, unless a checkpoint is beyond it."""
        saved = self._saved
        if saved is not None and number < saved["start"]:
            return
        if self._setting.gauge is not None:
            x = self._setting.gauge.move(x)
        self._number, self._history = number, []
        placement = Placement(self._setting, x)
        now = Minimum(placement.start(), math.inf)
        if saved is not None and number == saved["start"]:
            now = self._restore(saved)
            self._saved = None
        minimise(placement, now, self._limits, self._follow(placement))
        if self.best is None or now.chisq < self.best[1].chisq:
            self.best, self.best_history = (placement.map(now.x), now), self._history

    def _follow(self, placement: Placement) -> Callable[[Minimum, Step], bool]:
        def follow(now: Minimum, step: Step) -> bool:
            entry = asdict(step)
            self._history.append(entry)
            self._save(now)
            share = min(step.iteration / max(self._limits.max_iter, 1), 1.0)
            self._monitor.report(f"start {self._number + 1}", share=share, **entry)
            return bool(self._callback(entry)) if self._callback is not None else False

        return follow

    def _save(self, now: Minimum) -> None:
        state = {"start": self._number, **now.state(), **_pack("history", self._history)}
        if self.best is not None:
            state["best_x"] = self.best[0]
            state |= {f"best_{name}": value for name, value in self.best[1].state().items() if name != "x"}
            state |= _pack("best_history", self.best_history)
        self._monitor.save(state)

    def _restore(self, saved: dict[str, Any]) -> Minimum:
        self._history = _unpack("history", saved)
        if "best_x" in saved:
            of_best = {name: saved[f"best_{name}"] for name in Minimum.__dataclass_fields__ if name != "x"}
            self.best = (saved["best_x"], restore_minimum(of_best, np.empty(0)))
            self.best_history = _unpack("best_history", saved)
        return replace(restore_minimum(saved, saved["x"]), stop_reason="")


def _pack(name: str, history: list[dict[str, Any]]) -> dict[str, Floats]:
    return {name: np.array([list(entry.values()) for entry in history], np.float64).reshape(len(history), -1)}


def _unpack(name: str, saved: dict[str, Any]) -> list[dict[str, Any]]:
    fields = Step.__dataclass_fields__
    kinds = {"int": int, "float": float, "bool": bool}
    return [
        {field.name: kinds[str(field.type)](value) for field, value in zip(fields.values(), line)}
        for line in saved[name]
    ]
