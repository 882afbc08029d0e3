"""From the options of a least-squares map to the problem that is minimised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan import _native
from tartan.analytics.maps.lmmds.objective import WEIGHTINGS, Evaluation, Objective, Survey, WeighedPairs
from tartan.analytics.maps.lmmds.points import Gauge, chosen, pinned, sorted_out
from tartan.analytics.maps.start import STARTS
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.check import Components, refuse_groups
from tartan.analytics.matrix.sources import Mapped
from tartan.base.checks import NOT_NEGATIVE, POSITIVE, flag, floats, number, whole
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.maps.lmmds.lmmds import LMMDS
    from tartan.analytics.monitor import Monitor
    from tartan.comm.communicator import Communicator

__all__ = ["Placement", "Setting", "opened", "prepared", "valued"]

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

#: Numbers of one problem are no farther apart than this: the fourth power of it is a number still.
_APART = 1e50


@dataclass(frozen=True)
class Setting:
    """Everything of a fit that does not change while it runs.

    ``rows`` are the varied points in order; ``weights`` are zero for points that do not count.
    """

    pairs: WeighedPairs
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


def opened(D: Any, missing: Any = None, transform: Any = None, monitor: Monitor | None = None) -> Dissimilarities:
    """Return the input as dissimilarities of which rows are quick to read."""
    opened = as_dissimilarities(D, missing=missing, transform=transform)
    return opened if opened.array is not None else opened.materialized(monitor=monitor)


def valued(D: Dissimilarities, missing_value: float | None) -> Dissimilarities:
    """Return the matrix with a dissimilarity in the place of missing pairs, where one is given."""
    if missing_value is None or not D.has_missing:
        return D
    stored = missing_value / D.scale

    def made(tile: NDArray[Any]) -> Floats:
        missing = tile < 0 if tile.dtype.kind == "i" else np.isnan(tile)
        return np.where(missing, stored, tile.astype(np.float64))

    return Dissimilarities(Mapped(D.source, made, np.dtype(np.float64)), scale=D.scale, names=D.names, label=D.label)


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
    check = D.check(monitor=monitor)
    check.require_positive(D)
    check.require_moderate(D)
    names = D.names if labels is None else labels
    if names is not None and (not isinstance(names, Sequence) or len(names) != n):
        raise ConfigError(f"labels is {labels!r}; it is a name for each of {n} points")
    varied, fixed = chosen(options.varied, options.fixed, names, n)
    if not varied.any() and not fixed.any():
        raise ConfigError("no point is varied and none is fixed; there is nothing to map")
    pairs, weights = WeighedPairs(D, ranks, monitor), _point_weights(sample_weight, n)
    weights[~(varied | fixed)] = 0.0
    base = _cutting(options, D, pairs)
    weights, survey = _without_loose_points(options, pairs, base, weights, varied, fixed)
    used = (weights > 0) | fixed
    _refuse_groups(D, options, weights, fixed, monitor)
    rows = np.flatnonzero(varied & used)
    gauge = None
    if options.gauge == "pinned" and not fixed.any():
        means = survey.total / np.maximum(survey.links, 1)
        gauge = pinned(valued(D, options.missing_value), means, used, dimension)
    return Setting(
        pairs, _weighted(options, base, survey), weights, rows, fixed, np.flatnonzero(varied & ~used), survey,
        gauge, dimension,
    )  # fmt: skip


_WHOLE = {"n_init": 1, "max_iter": 0, "max_rejected": 1, "cg_max_iter": 1, "n_steepest": 0}
_FLAGS = ("second_derivatives", "calculate_fixed")
_CHOICES = {
    "weighting": tuple(WEIGHTINGS),
    "formula": ("distance", "squared"),
    "gauge": ("free", "pinned"),
    "init": STARTS,
}
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "minimum_distance": ("a finite number", math.isfinite),
    "multiplier": POSITIVE,
    "max_left_out": ("a share, 0 to 1", lambda value: 0 <= value <= 1),
    "tol": NOT_NEGATIVE,
    "cg_tol": ("a number, 0 or more and below 1", lambda value: 0 <= value < 1),
    "damping": POSITIVE,
    "damping_floor": NOT_NEGATIVE,
    "accept_ratio": NOT_NEGATIVE,
}
_NUMBERS_OR_NONE = {
    "missing_value": NOT_NEGATIVE,
    "distance_cut": ("a number above 0", lambda value: value > 0),
    "max_seconds": ("a number, 0 or more", lambda value: value >= 0),
}


def _refuse_options(options: LMMDS) -> None:
    """Refuse what is not the kind of value that it must be."""
    whole("n_components", options.n_components, 1, _native.CHISQ_MAX_DIMENSION)
    for name, least in _WHOLE.items():
        whole(name, getattr(options, name), least)
    for name, fit in _NUMBERS.items():
        number(name, getattr(options, name), fit)
    for name, fit in _NUMBERS_OR_NONE.items():
        if getattr(options, name) is not None:
            number(name, getattr(options, name), fit)
    for name in _FLAGS:
        flag(name, getattr(options, name))
    for name, choices in _CHOICES.items():
        if not isinstance(getattr(options, name), str) or getattr(options, name) not in choices:
            raise ConfigError(f"{name} is {getattr(options, name)!r}; it is one of {', '.join(choices)}")
    if options.link_cut is not None:
        whole("link_cut", options.link_cut, 0)
    if options.callback is not None and not callable(options.callback):
        raise ConfigError(f"callback is {options.callback!r}; it is a function of one step")
    if options.bins is not None:
        limits = floats("bins", options.bins)
        if limits.ndim != 1 or not len(limits) or np.isnan(limits).any() or (np.diff(limits) <= 0).any():
            raise ConfigError(f"bins is {options.bins}; limits of bins ascend")


def _point_weights(given: ArrayLike | None, n: int) -> Floats:
    """Return the weights of the points with mean 1."""
    if given is None:
        return np.ones(n)
    weights = floats("sample_weight", given)
    if weights.shape != (n,):
        raise ConfigError(f"sample_weight has shape {weights.shape}; there are {n} points")
    wrong = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    if len(wrong):
        raise ConfigError(f"sample_weight of point {wrong[0]} is {weights[wrong[0]]}; weights are 0 or more")
    if not weights.any():
        raise ConfigError("every sample_weight is zero; there is nothing to fit")
    weights /= weights.max()  # so that no sum overflows
    weights /= weights.mean()
    return weights


def _cutting(options: LMMDS, D: Dissimilarities, pairs: WeighedPairs) -> Objective:
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
    options: LMMDS, pairs: WeighedPairs, base: Objective, weights: Floats, varied: Marks, fixed: Marks
) -> tuple[Floats, Survey]:
    """Leave out varied points with too few pairs until none is left; refuse to lose too many."""
    used = weights > 0
    while True:  # with link_cut None no point is loose, and what has no pair is refused later
        weights = np.where(used, weights, 0.0)
        survey = pairs.survey(base, weights)
        staying = used if options.link_cut is None else sorted_out(survey.links, used, fixed, options.link_cut)
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


def _refuse_groups(D: Dissimilarities, options: LMMDS, weights: Floats, fixed: Marks, monitor: Monitor) -> None:
    """Refuse points that hang together by no pair: their places would mean nothing to each other."""
    whole = not D.has_missing or options.missing_value is not None
    if whole and options.distance_cut is None:
        return
    used = weights > 0
    together = Components(D.n)
    together.join_items(np.flatnonzero(~used | fixed))
    cut = math.inf if options.distance_cut is None else options.distance_cut
    for start, block in D.blocks():
        monitor.check()
        rows = slice(start, start + len(block))
        values = np.nan_to_num(D.values(rows, slice(0, D.n)), nan=math.inf if math.isfinite(cut) else -1.0)
        together.join(start, 0, (values >= 0) & (values <= cut) & used & used[rows, None])
    refuse_groups(
        D, together.labels(), "the pairs that count leave the items", "leave out those without any pair (link_cut=0), "
        "raise distance_cut, or give missing_value", used,
    )  # fmt: skip


def _weighted(options: LMMDS, base: Objective, survey: Survey) -> Objective:
    """Return the whole objective, with all that needs the mean of the dissimilarities."""
    kind, power = WEIGHTINGS[options.weighting]
    mean = survey.mean
    minimum = options.minimum_distance if options.minimum_distance >= 0 else -options.minimum_distance * mean
    floor = minimum if minimum > 0 else survey.smallest_positive
    _refuse_extremes(options, mean, minimum, floor, survey.largest)
    return replace(
        base,
        minimum=minimum,
        weighting=kind,
        factor=options.multiplier**2 / mean**power,
        floor=floor,
        bin_weights=_bin_weights(survey.bins) if base.limits else (),
    )


def _refuse_extremes(options: LMMDS, mean: float, minimum: float, floor: float, largest: float) -> None:
    """Refuse numbers so far apart that weights or chi2 leave the range of float64."""
    if minimum > _APART * mean:
        raise ConfigError(
            f"minimum_distance is {options.minimum_distance:g}, and the mean dissimilarity {mean:g}; it is a distance "
            "of points, of the size of the dissimilarities"
        )
    if options.weighting != "even" and largest > _APART * floor:
        raise ConfigError(
            f"the smallest dissimilarity above 0 is {floor:g}, the largest {largest:g}, and weights that differ so "
            "much cannot be added up; give minimum_distance, or weighting='even'"
        )
    if not 1 / _APART < options.multiplier < _APART:
        raise ConfigError(f"multiplier is {options.multiplier:g}; it is between {1 / _APART:g} and {_APART:g}")


def _bin_weights(counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Give each bin that has pairs the same total weight, and all pairs the mean weight 1."""
    filled = int((counts > 0).sum())
    return tuple(counts.sum() / (filled * max(1, count)) for count in counts.tolist())
