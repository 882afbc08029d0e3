"""Maps of a matrix of dissimilarities: weighted SMACOF with deterministic annealing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.estimator import PairwiseEstimator
from tartan.analytics.maps.descent import anneal
from tartan.analytics.maps.interpolation import Interpolation
from tartan.analytics.maps.preparation import DamdsOptions, Preparation, elementwise
from tartan.analytics.maps.smacof import Floats, Rule
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities, require_precomputed
from tartan.analytics.matrix.materialize import INT16_ONE
from tartan.analytics.matrix.sources import fill_masked, native
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import generator, whole
from tartan.base.signatures import group_options
from tartan.comm.communicator import Communicator, require_same_input
from tartan.errors import ConfigError

#: Parameters that do not change the result, and so need not match those of a checkpoint.
_NOT_THE_RESULT = {"verbose", "checkpoint", "n_neighbors", "metric"}


#: The square of a larger dissimilarity, or the square of that, overflows.
#: By arithmetic: 1e75 to the fourth is 1e300.
_LARGEST = 1e75


class DAMDS(PairwiseEstimator):
    """Multidimensional scaling by SMACOF with deterministic annealing.

    Places n points so that their distances match given dissimilarities: it minimises the sum of
    ``w_ij (max(delta_ij - sqrt(2 L) T, 0) - |x_i - x_j|)^2`` while the temperature T falls from where all targets are
    0 to 0. At high temperatures only the large dissimilarities are felt, so the result depends little on the start and
    is rarely a poor local minimum.

    The options come in groups: the annealing (``annealing`` to ``max_temperatures``), steps (``max_iter`` to
    ``cg_tol``), the start (``init`` to ``fixed``), what pairs count (``weights`` to ``distance_transform``), how
    they are computed (``precision``, ``device``), new points (``n_neighbors``), and the call (``verbose``,
    ``checkpoint``).

    Parameters
    ----------
    n_components : int
        Dimension L of the map. More than n - 1 give nothing new.
    annealing : bool
        False: plain SMACOF, all at T = 0.
    alpha : float
        Cooling factor.
    max_temperatures : int, optional
        Stop after this many temperatures, even above 0. The lowest temperature but 0 is half of that at which the
        smallest positive dissimilarity would vanish.
    max_iter : int
        Most steps at one temperature.
    tol : float
        A loop at one temperature ends when the normalised stress falls by less in a step. 0: it makes exactly
        ``max_iter`` steps.
    accelerate : {"auto", "lbfgs", "none"}
        How steps are chosen; none of these ever raises the stress. "auto" is "lbfgs", which needs 3 to 7 times fewer
        passes than plain steps ("none"), but "none" where ``tol`` is 0.
    cg_tol : float
        Where weights are not all 1: conjugate gradients solve for a step until the squared residual has fallen to this
        share, in 100 passes at most.
    init : {"random", "classical", "landmark"} or array_like (n, L)
        The start: uniform at random; the classical solution (five passes; a good start for plain SMACOF, often better
        than annealing); the classical solution of 500 items with the others placed by them; or coordinates, in the
        units of the dissimilarities. With ``fixed``, rows of NaN stand for free points that begin at random.
    random_state : int, RandomState or None
        Of the start.
    fixed : array_like of int or bool, optional
        Points that stay where ``init`` has them.
    weights : array_like (n,) or (n, n), or path, optional
        One weight a point, whose products are the weights of pairs, or a symmetric matrix. int16 means 32767 for 1.
        A pair of weight 0 counts as missing, and so does one whose weight is masked.
    sammon : bool
        Divide weights by the dissimilarity, or by a thousandth of the mean one where it is smaller.
    zeros : {"smallest", "keep"}, optional
        What pairs at dissimilarity 0 count as: the smallest positive one, or 0. Default: "smallest" with annealing,
        "keep" without.
    metric : "precomputed"
        As scikit-learn calls it: ``fit`` is given dissimilarities, never points.
    distance_transform : str, float or callable, optional
        Applied to the dissimilarities first, as in :func:`tartan.analytics.as_dissimilarities`.
    precision : {"float32", "float64"}, optional
        What single pairs are computed in; sums are float64. Default: float64 for a float64 matrix or one of extreme
        values, otherwise float32, which gives the stress to 8 digits.
    device : {"cpu", "cuda"}
        Where the passes are computed; "cuda" needs CuPy.
    n_neighbors : int, optional
        Old points by which :meth:`transform` places a new one; default: all.
    verbose : int
        1: a line of progress, 2: a line for every step.
    checkpoint : path, optional
        File from which a stopped ``fit`` resumes when it is called again; removed at the end.

    Attributes
    ----------
    embedding_ : ndarray of float64, shape (n, L)
        Coordinates, in the units of the dissimilarities; centred unless points are fixed.
    stress_ : float
        Sum of the weighted squared errors over all pairs, divided by the sum of the squared dissimilarities.
    n_iter_ : int
        Steps in all.
    n_passes_ : int
        Passes over the matrix in all: for stresses, and for products of conjugate gradients.
    temperatures_ : ndarray of float64, shape (n_loops, 3)
        Temperature, steps, and stress at the end of each loop.
    history_ : ndarray of float64
        Stress after each pass; it begins anew at each temperature.
    check_ : Check
        What the pass that checks the input found.
    n_features_in_ : int
        n.

    Notes
    -----
    A step reads the matrix once, computes n (n - 1) / 2 distances, and takes memory of n times L only: a matrix on disk
    may be larger than memory. Results do not depend on the number of threads.

    References
    ----------
    Bae, Qiu, Fox: High performance multidimensional scaling for large high-dimensional data visualization (2012).
    Ruan, House, Ekanayake, ... Fox: DACIDR / SPIDAL, weighted SMACOF (2014).
    de Leeuw: Applications of convex analysis to multidimensional scaling (1977).

    Examples
    --------
    >>> D = np.array([[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]])
    >>> mds = DAMDS(n_components=2, random_state=0).fit(D)
    >>> bool(mds.stress_ < 1e-6), mds.embedding_.shape
    (True, (3, 2))
    """

    init: str | ArrayLike
    random_state: Any
    fixed: ArrayLike | None
    distance_transform: Any
    n_neighbors: int | None

    def __init__(
        self,
        n_components: int = 3,
        *,
        annealing: bool = True,
        alpha: float = 0.95,
        max_temperatures: int | None = None,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        accelerate: str = "auto",
        cg_tol: float = 1e-5,
        init: str | ArrayLike = "random",
        random_state: Any = None,
        fixed: ArrayLike | None = None,
        weights: Any = None,
        sammon: bool = False,
        zeros: str | None = None,
        metric: str = "precomputed",
        distance_transform: Any = None,
        precision: str | None = None,
        device: str = "cpu",
        n_neighbors: int | None = None,
        verbose: int = 0,
        checkpoint: Any = None,
    ) -> None:
        self._keep(locals())

    def fit(
        self,
        D: Any,
        y: None = None,
        init: ArrayLike | str | None = None,
        monitor: Monitor | None = None,
        *,
        communicator: Communicator | None = None,
    ) -> DAMDS:
        """Place the points.

        Parameters
        ----------
        D : array_like (n, n), condensed (n (n - 1) / 2,), Dissimilarities, Run, or path
            int16 (either byte order; negative: missing), float32 or float64, in memory or mapped. Anything that is no
            square array is written as one first.
        y : None
            Not used.
        init : str or array_like (n, L), optional
            In place of the parameter.
        monitor : Monitor, optional
            In place of one made of ``verbose`` and ``checkpoint``.
        communicator : Communicator, optional
            Ranks that share the work; every rank calls ``fit`` with the same arguments and gets the same result, to the
            last bit the same for every number of ranks.

        Returns
        -------
        DAMDS
            Itself.

        Raises
        ------
        ConfigError
            If a parameter or the matrix is invalid, also where missing pairs cut the points into groups.
        RunCancelledError
            If the monitor was asked to stop; with a checkpoint the same call resumes.
        """
        require_precomputed(self.metric)
        monitor = as_monitor(monitor, self.verbose, self.checkpoint)
        given = as_dissimilarities(D)
        self._step = given.scale if native(given.dtype) == np.int16 else 1.0 / INT16_ONE
        matrix = as_dissimilarities(given, transform=self.distance_transform)
        self.check_ = matrix.check(monitor=monitor)
        self.n_features_in_ = matrix.n
        if matrix.n == 1:
            return self._embed_single()
        self._embed(matrix.materialized(monitor=monitor), self.init if init is None else init, communicator, monitor)
        monitor.finish()
        return self

    def _embed(self, matrix: Dissimilarities, init: Any, ranks: Communicator | None, monitor: Monitor) -> None:
        require_same_input(ranks, lambda: matrix.fingerprint(monitor))
        preparation = Preparation(
            group_options(DamdsOptions, self.get_params(deep=False)), matrix, init, ranks, monitor
        )
        rng = generator(self.random_state)
        weights = preparation.problem.weights
        counted = weights.points if weights.matrix is None else weights.matrix  # what a path names may change
        monitor.identify(
            "DAMDS",
            lambda: matrix.fingerprint(monitor),
            lambda: self._what_matters(init) | {"weights": counted},
        )
        state = monitor.load()
        start = preparation.start(rng) if state is None else state["points"]
        descent = preparation.descent(start)
        if state is not None:
            descent.restore(state)
        with monitor.keeping():
            anneal(descent, preparation.schedule, monitor, matrix.scale)
        points = descent.points if self.fixed is not None else descent.points - descent.points.mean(axis=0)
        self.embedding_ = points * matrix.scale
        self.stress_, self.n_iter_ = descent.stress, descent.n_iter
        self.n_passes_ = descent.n_passes + descent.solve.n_products
        self.history_ = np.array(descent.history)
        self.temperatures_ = np.array(descent.temperatures) * (matrix.scale, 1.0, 1.0)
        self._rule = preparation.rule_in_units(matrix.scale)

    _rule: Rule | None
    _step: float  # what 1 means in int16 dissimilarities of new points

    def _embed_single(self) -> DAMDS:
        """Embed a single point: at the origin."""
        self.embedding_ = np.zeros((1, group_options(DamdsOptions, self.get_params(deep=False)).n_components))
        self.stress_, self.n_iter_, self.n_passes_ = 0.0, 0, 0
        self.history_, self.temperatures_ = np.zeros(0), np.zeros((0, 3))
        self._rule = None
        return self

    def _what_matters(self, init: Any) -> dict[str, Any]:
        parameters = {**self.get_params(deep=False), "init": init}
        return {name: value for name, value in parameters.items() if name not in _NOT_THE_RESULT}

    def fit_transform(
        self,
        D: Any,
        y: None = None,
        init: Any = None,
        monitor: Monitor | None = None,
        *,
        communicator: Communicator | None = None,
    ) -> Floats:
        """Place the points and return their coordinates; see :meth:`fit`."""
        return self.fit(D, init=init, monitor=monitor, communicator=communicator).embedding_

    def transform(self, D: ArrayLike, monitor: Monitor | None = None) -> Floats:
        """Place new points on the map, each on its own; the map stays as it is.

        Parameters
        ----------
        D : array_like (m, n)
            Dissimilarities of the new points to the n old ones; NaN, masked, or negative in int16: missing. int16
            means what it meant in ``fit``, or 32767 for 1 where that had no int16. The parameter
            ``distance_transform`` is applied to them only if it is a number (an exponent) or a function.
        monitor : Monitor, optional

        Returns
        -------
        ndarray of float64, shape (m, L)
            Where the stress of each new point to the old ones (to the ``n_neighbors`` nearest) is least, as far as
            majorisation finds it, starting in the middle of its nearest neighbours.

        Raises
        ------
        ConfigError
            If the shape is another, values are negative, or a point has no dissimilarity at all.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "embedding_")
        if self._rule is None:
            raise ConfigError("a map of one point has no directions in which new points could be placed")
        if self.n_neighbors is not None:
            whole("n_neighbors", self.n_neighbors, 1)
        fit = Interpolation(self.embedding_, self._rule, self.n_neighbors)
        return fit.place(self._transform(self._new_rows(D)), as_monitor(monitor, self.verbose, None))

    def _new_rows(self, D: ArrayLike) -> Floats:
        """Return checked dissimilarities of new points as they were given, NaN where missing."""
        try:
            given = fill_masked(D) if np.ma.isMaskedArray(D) else np.asarray(D)
        except ValueError as error:
            raise ConfigError("dissimilarities of new points have rows of different lengths") from error
        if given.ndim != 2 or given.shape[1] != self.n_features_in_ or given.dtype.kind not in "fiub":
            raise ConfigError(
                f"dissimilarities of new points have shape {given.shape} and type {given.dtype}; "
                f"they are numbers of shape (m, {self.n_features_in_})"
            )
        rows = given.astype(np.float64)
        if native(given.dtype) == np.int16:
            rows = np.where(rows < 0, np.nan, rows * self._step)
        _refuse_new(rows, np.isinf(rows) | (rows < 0))
        if np.isnan(rows).all(axis=1).any():
            raise ConfigError(f"new point {np.isnan(rows).all(axis=1).argmax()} has no dissimilarity to any point")
        return rows

    def _transform(self, rows: Floats) -> Floats:
        """Return dissimilarities of new points in the units of the map."""
        made = rows
        if self.distance_transform is not None:
            with np.errstate(all="ignore"):  # what is not defined is refused
                made = np.asarray(elementwise(self.distance_transform)(rows), np.float64)
        if made.shape != rows.shape:
            raise ConfigError(f"distance_transform made {made.shape} of {rows.shape}; it keeps the shape")
        _refuse_new(made, ~np.isnan(rows) & ~((made >= 0) & (made <= _LARGEST)))
        return made


def _refuse_new(rows: Floats, wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise ConfigError(
            f"dissimilarity {rows[i, j]} of new point {i} to point {j}; it must be 0 or more, and its square finite"
        )
