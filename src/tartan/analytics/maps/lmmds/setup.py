"""From the options of a least-squares map to the problem that is minimised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.lmmds.objective import WEIGHTINGS, Evaluation, Objective, Survey, WeighedPairs
from tartan.analytics.maps.lmmds.options import LmmdsOptions, PointChoice, Weighing
from tartan.analytics.maps.lmmds.points import Gauge, chosen, pinned, sorted_out
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.check import Components, refuse_groups
from tartan.analytics.matrix.sources import Mapped
from tartan.base.checks import floats
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.monitor import Monitor
    from tartan.comm.communicator import Communicator

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

#: Numbers of one problem are no farther apart than this: its fourth power is still finite.
_APART = 1e50


@dataclass(frozen=True)
class MapPoints:
    """The points of a map.

    ``rows`` are the varied points in order; ``weights`` are zero for points that do not count; ``left_out`` are the
    varied points that ``link_cut`` took away.
    """

    weights: Floats
    rows: NDArray[np.int64]
    fixed: Marks
    left_out: NDArray[np.int64]

    @property
    def counted(self) -> Marks:
        """Which points have a place."""
        counted: Marks = (self.weights > 0) | self.fixed
        return counted


@dataclass(frozen=True)
class Setting:
    """Everything of a fit that does not change while it runs."""

    pairs: WeighedPairs
    objective: Objective
    points: MapPoints
    survey: Survey
    gauge: Gauge | None
    dimension: int

    @property
    def n(self) -> int:
        return len(self.points.weights)

    @property
    def exact(self) -> Objective:
        """The objective with all second derivatives."""
        return replace(self.objective, second=True)

    def free(self) -> Marks:
        """Return (rows, L) marks of the coordinates that may change."""
        if self.gauge is None:
            return np.ones((len(self.points.rows), self.dimension), bool)
        return self.gauge.free(self.n)[self.points.rows]

    def evaluate(self, x: Floats, exact: bool = False) -> Evaluation:
        """Return chi2 and its derivatives at a map (n, L)."""
        fixed = self.points.fixed.astype(np.float64)
        return self.pairs.evaluate(
            self.exact if exact else self.objective, x, self.points.weights, self.points.rows, fixed
        )

    def n_parameters(self) -> int:
        """How many numbers of the map the pairs determine."""
        held = 0 if self.points.fixed.any() else self.dimension * (self.dimension + 1) // 2
        return max(0, len(self.points.rows) * self.dimension - held)

    def n_pairs(self) -> int:
        """How many unordered pairs with a varied point count."""
        links = int(self.survey.links.sum())
        if not self.points.fixed.any():
            return links // 2
        only = np.where(self.points.fixed, self.points.weights, 0.0)
        between_fixed = int(self.pairs.survey(self.objective, only).links.sum())
        return (links - between_fixed) // 2


class Placement:
    """The problem of the damped iteration: the free coordinates of one map, in one vector."""

    def __init__(self, setting: Setting, x: Floats) -> None:
        self.setting, self._x, self._free = setting, x, setting.free()

    def start(self) -> Floats:
        """Return the free coordinates of the map."""
        return self._x[self.setting.points.rows][self._free]

    def map(self, parameters: Floats) -> Floats:
        """Return the map (n, L) with these free coordinates."""
        x = self._x.copy()
        rows = x[self.setting.points.rows]
        rows[self._free] = parameters
        x[self.setting.points.rows] = rows
        return x

    def evaluate(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        found = self.setting.evaluate(self.map(parameters))
        diagonal = np.einsum("iaa->ia", found.blocks)
        return found.chisq, found.gradient[self._free], diagonal[self._free]

    def product(self, parameters: Floats, vector: Floats, exact: bool) -> Floats:
        s = self.setting
        objective = s.exact if exact else s.objective
        whole = np.zeros_like(self._x)
        rows = np.zeros((len(s.points.rows), s.dimension))
        rows[self._free] = vector
        whole[s.points.rows] = rows
        return s.pairs.product(objective, self.map(parameters), s.points.weights, s.points.rows, whole)[self._free]


def opened(D: Any, missing: Any = None, transform: Any = None, monitor: Monitor | None = None) -> Dissimilarities:
    """Return the input as dissimilarities whose rows are quick to read."""
    opened = as_dissimilarities(D, missing=missing, transform=transform)
    return opened if opened.array is not None else opened.materialized(monitor=monitor)


def valued(D: Dissimilarities, missing_value: float | None) -> Dissimilarities:
    """Return the matrix with a dissimilarity in place of missing pairs, where one is given."""
    if missing_value is None or not D.has_missing:
        return D
    stored = missing_value / D.scale

    def made(tile: NDArray[Any]) -> Floats:
        missing = tile < 0 if tile.dtype.kind == "i" else np.isnan(tile)
        return np.where(missing, stored, tile.astype(np.float64))

    source = Mapped(D.source, made, np.dtype(np.float64))
    return Dissimilarities(source, scale=D.scale, names=D.names, label=D.label).like(D)


def prepared(
    options: LmmdsOptions,
    D: Dissimilarities,
    ranks: Communicator,
    monitor: Monitor,
    sample_weight: ArrayLike | None,
    labels: Sequence[str] | None,
) -> Setting:
    """Check the matrix; find out which points and pairs count, and what they weigh."""
    _check_matrix(D, options.n_components, monitor)
    varied, fixed = _chosen(options.points, D.names if labels is None else labels, D.n)
    pairs, weights = WeighedPairs(D, ranks, monitor), _point_weights(sample_weight, D.n)
    weights[~(varied | fixed)] = 0.0
    base = _cutting(options.weighing, D, pairs)
    weights, survey = _without_loose_points(options.points, pairs, base, weights, varied, fixed)
    _refuse_groups(D, options.weighing, weights, fixed, monitor)
    used = (weights > 0) | fixed
    gauge = None
    if options.gauge == "pinned" and not fixed.any():
        means = survey.total / np.maximum(survey.links, 1)
        gauge = pinned(valued(D, options.weighing.missing_value), means, used, options.n_components)
    points = MapPoints(weights, np.flatnonzero(varied & used), fixed, np.flatnonzero(varied & ~used))
    return Setting(pairs, _weighted(options.weighing, base, survey), points, survey, gauge, options.n_components)


def _check_matrix(D: Dissimilarities, dimension: int, monitor: Monitor) -> None:
    """Refuse a matrix of which there is no map."""
    if D.n < 2:
        raise ConfigError(f"{D.label} has {D.n} item (one sample); a map needs two or more")
    if dimension > D.n - 1:
        raise ConfigError(
            f"n_components is {dimension}, and {D.n} items span at most {D.n - 1} dimensions; ask for fewer",
        )
    check = D.check(monitor=monitor)
    check.require_positive(D)
    check.require_moderate(D)


def _chosen(choice: PointChoice, names: Sequence[str] | None, n: int) -> tuple[Marks, Marks]:
    """Return which points are varied and which are fixed."""
    if names is not None and (not isinstance(names, Sequence) or len(names) != n):
        raise ConfigError(f"labels is {names!r}; it must be a name for each of {n} points")
    varied, fixed = chosen(choice.varied, choice.fixed, names, n)
    if not varied.any() and not fixed.any():
        raise ConfigError("no point is varied and none is fixed; there is nothing to map")
    return varied, fixed


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


def _cutting(weighing: Weighing, D: Dissimilarities, pairs: WeighedPairs) -> Objective:
    """Return the part of the objective that determines which pairs count."""
    return Objective(
        scale=D.scale,
        swapped=pairs.swapped,
        squared=weighing.formula == "squared",
        cut=weighing.distance_cut,
        missing=math.nan if weighing.missing_value is None else weighing.missing_value,
        limits=weighing.bins,
    )


def _without_loose_points(
    choice: PointChoice, pairs: WeighedPairs, base: Objective, weights: Floats, varied: Marks, fixed: Marks
) -> tuple[Floats, Survey]:
    """Leave out varied points with too few pairs until none is left; refuse to lose too many."""
    used = weights > 0
    while True:  # with link_cut None no point is loose, and what has no pair is refused later
        weights = np.where(used, weights, 0.0)
        survey = pairs.survey(base, weights)
        staying = used if choice.link_cut is None else sorted_out(survey.links, used, fixed, choice.link_cut)
        if (staying == used).all():
            break
        used = staying
    lost = int((varied & ~used).sum())
    if lost > choice.max_left_out * max(1, int(varied.sum())):
        raise ConfigError(
            f"{lost} of {int(varied.sum())} points have at most link_cut={choice.link_cut} pairs that count; "
            f"raise distance_cut, lower link_cut, or allow it by max_left_out (now {choice.max_left_out})",
            context={"left_out": lost},
        )
    if survey.links.sum() == 0 or not survey.largest > 0:
        raise ConfigError("no pair with a dissimilarity above 0 counts; raise distance_cut or give other weights")
    return weights, survey


def _refuse_groups(D: Dissimilarities, weighing: Weighing, weights: Floats, fixed: Marks, monitor: Monitor) -> None:
    """Refuse points that no pair connects: their places relative to each other would be arbitrary."""
    cut = weighing.distance_cut
    if (not D.has_missing or weighing.missing_value is not None) and math.isinf(cut):
        return
    used = weights > 0
    together = Components(D.n)
    together.join_items(np.flatnonzero(~used | fixed))
    for start, block in D.blocks():
        monitor.check()
        rows = slice(start, start + len(block))
        values = np.nan_to_num(D.values(rows, slice(0, D.n)), nan=math.inf if math.isfinite(cut) else -1.0)
        together.join(start, 0, (values >= 0) & (values <= cut) & used & used[rows, None])
    refuse_groups(
        D, together.labels(), "the pairs that count leave the items", "leave out those without any pair (link_cut=0), "
        "raise distance_cut, or give missing_value", used,
    )  # fmt: skip


def _weighted(weighing: Weighing, base: Objective, survey: Survey) -> Objective:
    """Return the whole objective, with all that needs the mean of the dissimilarities."""
    kind, power = WEIGHTINGS[weighing.weighting]
    mean = survey.mean
    minimum = weighing.minimum_distance if weighing.minimum_distance >= 0 else -weighing.minimum_distance * mean
    floor = minimum if minimum > 0 else survey.smallest_positive
    _refuse_extremes(weighing, mean, minimum, floor, survey.largest)
    return replace(
        base,
        minimum=minimum,
        weighting=kind,
        factor=weighing.multiplier**2 / mean**power,
        floor=floor,
        bin_weights=_bin_weights(survey.bins) if base.limits else (),
    )


def _refuse_extremes(weighing: Weighing, mean: float, minimum: float, floor: float, largest: float) -> None:
    """Refuse numbers so far apart that weights or chi2 leave the range of float64."""
    if minimum > _APART * mean:
        raise ConfigError(
            f"minimum_distance is {weighing.minimum_distance:g}, and the mean dissimilarity {mean:g}; it is a distance "
            "of points, of the size of the dissimilarities"
        )
    if weighing.weighting != "even" and largest > _APART * floor:
        raise ConfigError(
            f"the smallest dissimilarity above 0 is {floor:g}, the largest {largest:g}, and weights that differ so "
            "much cannot be added up; give minimum_distance, or weighting='even'"
        )
    if not 1 / _APART < weighing.multiplier < _APART:
        raise ConfigError(f"multiplier is {weighing.multiplier:g}; it is between {1 / _APART:g} and {_APART:g}")


def _bin_weights(counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Give each bin that has pairs the same total weight, and all pairs the mean weight 1."""
    filled = int((counts > 0).sum())
    return tuple(counts.sum() / (filled * max(1, count)) for count in counts.tolist())
