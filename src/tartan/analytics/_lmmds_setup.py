"""From the options of a least-squares map to the problem that is minimised."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan import _native
from tartan.analytics._lmmds_objective import WEIGHTINGS, Evaluation, Objective, Pairs, Survey
from tartan.analytics._lmmds_points import Gauge, chosen, pinned, sorted_out
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix._check import Components
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics._lmmds import LMMDS
    from tartan.analytics._monitor import Monitor
    from tartan.analytics.communicator import Communicator

__all__ = ["Placement", "Setting", "opened", "prepared"]

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """Everything of a fit that does not change while it runs.

    ``rows`` are the varied points in order; ``weights`` are zero for points that do not count.
    """

    pairs: Pairs
    objective: Objective
    weights: Floats
    rows: NDArray[np.int64]
    fixed: Marks
    left_out: NDArray[np.int64]
    survey: Survey
    gauge: Gauge | None
    dimension: int

    @property
    def n(self) -> int:
        return len(self.weights)

    @property
    def exact(self) -> Objective:
        """The objective with all second derivatives."""
        return replace(self.objective, second=True)

    def free(self) -> Marks:
        """Return (rows, L) marks of the coordinates that may change."""
        if self.gauge is None:
            return np.ones((len(self.rows), self.dimension), bool)
        return self.gauge.free(self.n)[self.rows]

    def evaluate(self, x: Floats, exact: bool = False) -> Evaluation:
        """Return chi2 and its derivatives at a map (n, L)."""
        fixed = self.fixed.astype(np.float64)
        return self.pairs.evaluate(self.exact if exact else self.objective, x, self.weights, self.rows, fixed)

    def n_parameters(self) -> int:
        """How many numbers of the map the pairs determine."""
        held = 0 if self.fixed.any() else self.dimension * (self.dimension + 1) // 2
        return max(0, len(self.rows) * self.dimension - held)

    def n_pairs(self) -> int:
        """How many unordered pairs with a varied point count."""
        links = int(self.survey.links.sum())
        if not self.fixed.any():
            return links // 2
        only = np.where(self.fixed, self.weights, 0.0)
        between_fixed = int(self.pairs.survey(self.objective, only).links.sum())
        return (links - between_fixed) // 2


class Placement:
    """The problem of the damped iteration: the free coordinates of one map, in one vector."""

    def __init__(self, setting: Setting, x: Floats) -> None:
        self._setting, self._x, self._free = setting, x, setting.free()

    def start(self) -> Floats:
        """Return the free coordinates of the map."""
        return self._x[self._setting.rows][self._free]

    def map(self, parameters: Floats) -> Floats:
        """Return the map (n, L) with these free coordinates."""
        x = self._x.copy()
        rows = x[self._setting.rows]
        rows[self._free] = parameters
        x[self._setting.rows] = rows
        return x

    def evaluate(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        found = self._setting.evaluate(self.map(parameters))
        diagonal = np.einsum("iaa->ia", found.blocks)
        return found.chisq, found.gradient[self._free], diagonal[self._free]

    def product(self, parameters: Floats, vector: Floats, exact: bool) -> Floats:
        s = self._setting
        objective = s.exact if exact else s.objective
        whole = np.zeros_like(self._x)
        rows = np.zeros((len(s.rows), s.dimension))
        rows[self._free] = vector
        whole[s.rows] = rows
        return s.pairs.product(objective, self.map(parameters), s.weights, s.rows, whole)[self._free]


def opened(D: Any, missing: Any = None, transform: Any = None) -> Dissimilarities:
    """Return the input as dissimilarities of which rows are quick to read."""
    opened = as_dissimilarities(D, missing=missing, transform=transform)
    return opened if opened.array is not None else opened.materialized()


def prepared(
    options: LMMDS,
    D: Dissimilarities,
    ranks: Communicator,
    monitor: Monitor,
    sample_weight: ArrayLike | None,
    labels: Sequence[str] | None,
) -> Setting:
    """Check options and matrix; find out which points and pairs count, and what they weigh."""
    _refuse_options(options)
    n, dimension = D.n, options.n_components
    if n < 2:
        raise ConfigError(f"{D.label} has {n} item (one sample); a map needs two or more")
    if dimension > n - 1:
        raise ConfigError(
            f"n_components is {dimension}, and {n} items span at most {n - 1} dimensions; ask for fewer",
        )
    D.check(monitor=monitor).require_positive(D)
    varied, fixed = chosen(options.varied, options.fixed, D.names if labels is None else labels, n)
    if not varied.any() and not fixed.any():
        raise ConfigError("no point is varied and none is fixed; there is nothing to map")
    pairs, weights = Pairs(D, ranks, monitor), _point_weights(sample_weight, n)
    weights[~(varied | fixed)] = 0.0
    base = _cutting(options, D, pairs)
    weights, survey = _without_loose_points(options, pairs, base, weights, varied, fixed)
    used = (weights > 0) | fixed
    _refuse_groups(D, options, weights, fixed)
    rows = np.flatnonzero(varied & used)
    gauge = None
    if options.gauge == "pinned" and not fixed.any():
        means = survey.total / np.maximum(survey.links, 1)
        gauge = pinned(D, means, used, dimension)
    return Setting(
        pairs, _weighted(options, base, survey), weights, rows, fixed, np.flatnonzero(varied & ~used), survey,
        gauge, dimension,
    )  # fmt: skip


def _refuse_options(options: LMMDS) -> None:
    wrong = _wrong_number(options)
    if wrong:
        pass  # what follows compares numbers
    elif not 1 <= options.n_components <= _native.CHISQ_MAX_DIMENSION:
        wrong = f"n_components is {options.n_components}; it is 1 to {_native.CHISQ_MAX_DIMENSION}"
    elif options.weighting not in WEIGHTINGS:
        wrong = f"weighting is {options.weighting!r}; it is one of {', '.join(WEIGHTINGS)}"
    elif options.formula not in ("distance", "squared"):
        wrong = f"formula is {options.formula!r}; it is 'distance' or 'squared'"
    elif options.gauge not in ("free", "pinned"):
        wrong = f"gauge is {options.gauge!r}; it is 'free' or 'pinned'"
    elif not 0 < options.multiplier < math.inf:
        wrong = f"multiplier is {options.multiplier}; it is a number above 0"
    elif options.bins is not None and (len(options.bins) == 0 or np.any(np.diff(options.bins) <= 0)):
        wrong = f"bins is {options.bins}; limits of bins ascend"
    elif options.n_init < 1 or options.max_iter < 0 or options.cg_max_iter < 1 or options.max_rejected < 1:
        wrong = "n_init, cg_max_iter and max_rejected are at least 1, max_iter at least 0"
    if wrong:
        raise ConfigError(wrong)


def _wrong_number(options: LMMDS) -> str:
    """Say which parameter is not the kind of number that it must be; "" if all are."""
    for name in ("n_components", "n_init", "max_iter", "cg_max_iter", "max_rejected"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            return f"{name} is {value!r}; it is a whole number"
    for name, least in (("tol", "0 or more"), ("multiplier", "above 0")):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) >= 0:
            return f"{name} is {value!r}; it is a number, {least}"
    return ""


def _point_weights(given: ArrayLike | None, n: int) -> Floats:
    """Return the weights of the points with mean 1."""
    if given is None:
        return np.ones(n)
    weights = np.array(given, np.float64)
    if weights.shape != (n,):
        raise ConfigError(f"sample_weight has shape {weights.shape}; there are {n} points")
    wrong = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    if len(wrong):
        raise ConfigError(f"sample_weight of point {wrong[0]} is {weights[wrong[0]]}; weights are 0 or more")
    if not weights.any():
        raise ConfigError("every sample_weight is zero; there is nothing to fit")
    weights /= weights.mean()
    return weights


def _cutting(options: LMMDS, D: Dissimilarities, pairs: Pairs) -> Objective:
    """Return the objective as far as it says which pairs count."""
    return Objective(
        scale=D.scale,
        swapped=pairs.swapped,
        squared=options.formula == "squared",
        cut=math.inf if options.distance_cut is None else options.distance_cut,
        missing=math.nan if options.missing_value is None else options.missing_value,
        limits=() if options.bins is None else tuple(map(float, options.bins)),
    )


def _without_loose_points(
    options: LMMDS, pairs: Pairs, base: Objective, weights: Floats, varied: Marks, fixed: Marks
) -> tuple[Floats, Survey]:
    """Leave out varied points with too few pairs until none is left; refuse to lose too many."""
    used = weights > 0
    while True:
        weights = np.where(used, weights, 0.0)
        survey = pairs.survey(base, weights)
        staying = sorted_out(survey.links, used, fixed, options.link_cut)
        if (staying == used).all():
            break
        used = staying
    lost = int((varied & ~used).sum())
    if lost > options.max_left_out * max(1, int(varied.sum())):
        raise ConfigError(
            f"{lost} of {int(varied.sum())} points have at most link_cut={options.link_cut} pairs that count; "
            f"raise distance_cut, lower link_cut, or allow it by max_left_out (now {options.max_left_out})",
            context={"left_out": lost},
        )
    if survey.links.sum() == 0 or not survey.largest > 0:
        raise ConfigError("no pair with a dissimilarity above 0 counts; raise distance_cut or give other weights")
    return weights, survey


def _refuse_groups(D: Dissimilarities, options: LMMDS, weights: Floats, fixed: Marks) -> None:
    """Refuse points that hang together by no pair: their places would mean nothing to each other."""
    whole = not D.has_missing or options.missing_value is not None
    if whole and options.distance_cut is None:
        return
    used = weights > 0
    together = Components(D.n)
    together.join(int(np.flatnonzero(~used | fixed)[0]) if (~used | fixed).any() else 0, 0, (~used | fixed)[None])
    cut = math.inf if options.distance_cut is None else options.distance_cut
    for start, block in D.blocks():
        rows = slice(start, start + len(block))
        values = np.nan_to_num(D.values(rows, slice(0, D.n)), nan=math.inf if math.isfinite(cut) else -1.0)
        together.join(start, 0, (values >= 0) & (values <= cut) & used & used[rows, None])
    labels = together.labels()
    if labels is not None:
        _check_groups(D, labels, used)


def _check_groups(D: Dissimilarities, labels: NDArray[np.int64], used: Marks) -> None:
    groups = np.unique(labels[used])
    if len(groups) > 1:
        named = "; ".join(_named(D, np.flatnonzero(used & (labels == group))) for group in groups[:5])
        raise ConfigError(
            f"{D.label}: the pairs that count leave {len(groups)} groups without a pair between them: {named}. Map "
            "each group on its own, raise distance_cut, or give missing_value",
            context={"components": len(groups)},
        )


def _named(D: Dissimilarities, items: NDArray[np.int64]) -> str:
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(D.name_of(int(item)) for item in items[:5]) + more


def _weighted(options: LMMDS, base: Objective, survey: Survey) -> Objective:
    """Return the whole objective, with all that needs the mean of the dissimilarities."""
    kind, power = WEIGHTINGS[options.weighting]
    mean = survey.mean
    minimum = options.minimum_distance if options.minimum_distance >= 0 else -options.minimum_distance * mean
    return replace(
        base,
        minimum=minimum,
        weighting=kind,
        factor=options.multiplier**2 / mean**power,
        floor=minimum if minimum > 0 else survey.smallest_positive,
        bin_weights=_bin_weights(survey.bins) if base.limits else (),
    )


def _bin_weights(counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Give each bin that has pairs the same total weight, and all pairs the mean weight 1."""
    filled = int((counts > 0).sum())
    return tuple(counts.sum() / (filled * max(1, count)) for count in counts.tolist())
