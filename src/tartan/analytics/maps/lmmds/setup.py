"""From the options of a least-squares map to the problem that is minimised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.lmmds.objective import WEIGHTINGS, Evaluation, Objective, Survey, WeighedPairs
from tartan.analytics.maps.lmmds.options import LmmdsOptions, PointChoice, Weighing
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.check import Components, refuse_groups
from tartan.analytics.matrix.sources import Mapped
from tartan.base.checks import floats
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.monitor import Monitor
    from tartan.comm.communicator import Communicator

# Which points of a map are varied, fixed or left out, and which coordinates hold the map in place.


def choose_points(varied: Any, fixed: Any, names: Sequence[str] | None, n: int) -> tuple[Marks, Marks]:
    """Return marks of the varied and of the fixed points.

    Each is "all", "rest" (what the other has not), "none", a mask, or a list of indices or names.
    """
    if _word(varied) == "rest" and _word(fixed) == "rest":
        raise ConfigError("varied and fixed are both 'rest'; name the points of one of them")
    first = None if _word(varied) == "rest" else _marks("varied", varied, names, n)
    second = None if _word(fixed) == "rest" else _marks("fixed", fixed, names, n)
    if first is None:
        assert second is not None
        first = ~second
    if second is None:
        second = ~first
    both = np.flatnonzero(first & second)
    if len(both):
        raise ConfigError(
            f"{len(both)} points are both varied and fixed, such as {both[0]}; say varied='rest' or fixed='rest'",
            context={"points": both[:10].tolist()},
        )
    return first, second


def _word(given: Any) -> str | None:
    return given if isinstance(given, str) else None


def _marks(what: str, given: Any, names: Sequence[str] | None, n: int) -> Marks:
    if isinstance(given, str):
        if given not in ("all", "none"):
            raise ConfigError(f"{what} is {given!r}; it must be 'all', 'rest', 'none', or a list of indices or names")
        return np.full(n, given == "all")
    if not isinstance(given, Iterable):
        raise ConfigError(f"{what} is {given!r}; it must be 'all', 'rest', 'none', or a list of indices or names")
    listed = list(given)
    marks = np.zeros(n, bool)
    if listed and all(isinstance(item, str) for item in listed):
        marks[_places(what, listed, names)] = True
        return marks
    indices = np.asarray(listed)
    if indices.dtype == np.bool_ and len(indices) == n:
        return indices
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise ConfigError(f"{what}: give indices, names, or one truth value for each of the {n} points")
    wrong = indices[(indices < 0) | (indices >= n)] if len(indices) else indices
    if len(wrong):
        raise ConfigError(f"{what} has the index {wrong[0]}; there are {n} points, from 0")
    marks[indices.astype(np.int64)] = True
    return marks


def _places(what: str, listed: list[str], names: Sequence[str] | None) -> list[int]:
    if names is None:
        raise ConfigError(f"{what} has names such as {listed[0]!r}, but the matrix has none; give labels to fit")
    found = {name: place for place, name in enumerate(names)}
    missing = [name for name in listed if name not in found]
    if missing:
        raise ConfigError(f"{what} has {missing[0]!r}, which is not a label of the matrix")
    return [found[name] for name in listed]


def sort_out_points(links: NDArray[np.int64], used: Marks, fixed: Marks, n_links: int) -> Marks:
    """Return which used points stay: fixed ones, and varied ones with more than ``n_links`` links."""
    return used & (fixed | (links > n_links))


class Gauge:
    """Coordinates that are held at zero, so that a map without fixed points cannot move or turn.

    One point is the origin, the next lies on the first axis, the next in the plane of the first two, and so on.

    Attributes
    ----------
    anchors : list of int
        Those points.
    """

    def __init__(self, anchors: list[int], dimension: int) -> None:
        self.anchors = anchors
        self._dimension = dimension

    def move(self, x: Floats) -> Floats:
        """Return the map, moved and turned (never mirrored) to where the coordinates are zero."""
        x = x - x[self.anchors[0]]
        others = x[self.anchors[1:]]
        if len(others):
            turn, triangle = np.linalg.qr(others.T, mode="complete")
            signs = np.ones(self._dimension)
            diagonal = np.diag(triangle)
            signs[: len(diagonal)] = np.where(diagonal < 0, -1.0, 1.0)
            turn = turn * signs
            if np.linalg.det(turn) < 0:
                turn[:, -1] *= -1.0
            x = x @ turn
        x[~self.free(len(x))] = 0.0
        return x

    def free(self, n: int) -> Marks:
        """Return (n, L) marks of the coordinates that may change."""
        marks = np.ones((n, self._dimension), bool)
        for place, anchor in enumerate(self.anchors):
            marks[anchor, place:] = False
        return marks


def pin_anchors(D: Dissimilarities, means: Floats, used: Marks, dimension: int) -> Gauge:
    """Choose the anchors of a map: the centre, the point farthest from it, then those farthest from all before.

    "Farthest from all" is the largest product of the dissimilarities; the centre has the least mean dissimilarity.
    """
    anchors = [int(np.where(used, means, np.inf).argmin())]
    product = np.where(used, 1.0, -1.0)
    while len(anchors) < min(dimension, int(used.sum())):
        row = D.values(slice(anchors[-1], anchors[-1] + 1), slice(0, D.n))[0]
        product = product * np.nan_to_num(row)
        product[anchors] = -1.0
        product[~used] = -2.0
        anchors.append(int(product.argmax()))
    return Gauge(anchors, dimension)


Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

#: Numbers of one problem are no farther apart than this: its fourth power is still finite.
#: By arithmetic: 1e200 is finite, and so are sums of as many.
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


def value_missing(D: Dissimilarities, missing_value: float | None) -> Dissimilarities:
    """Return the matrix with a dissimilarity in place of missing pairs, where one is given."""
    if missing_value is None or not D.has_missing:
        return D
    stored = missing_value / D.scale

    def made(tile: NDArray[Any]) -> Floats:
        missing = tile < 0 if tile.dtype.kind == "i" else np.isnan(tile)
        return np.where(missing, stored, tile.astype(np.float64))

    source = Mapped(D.source, made, np.dtype(np.float64))
    return Dissimilarities(source, scale=D.scale, names=D.names, label=D.label).like(D)


def prepare_setting(
    options: LmmdsOptions,
    D: Dissimilarities,
    ranks: Communicator,
    monitor: Monitor,
    sample_weight: ArrayLike | None,
    labels: Sequence[str] | None,
) -> Setting:
    """Check the matrix; find out which points and pairs count, and what they weigh."""
    _check_matrix(D, options.n_components, monitor)
    varied, fixed = _choose(options.points, D.names if labels is None else labels, D.n)
    pairs, weights = WeighedPairs(D, ranks, monitor), _weigh_points(sample_weight, D.n)
    weights[~(varied | fixed)] = 0.0
    base = _make_cutting_part(options.weighing, D, pairs)
    weights, survey = _without_loose_points(options.points, pairs, base, weights, varied, fixed)
    _refuse_groups(D, options.weighing, weights, fixed, monitor)
    used = (weights > 0) | fixed
    gauge = None
    if options.gauge == "pinned" and not fixed.any():
        means = survey.total / np.maximum(survey.links, 1)
        gauge = pin_anchors(value_missing(D, options.weighing.missing_value), means, used, options.n_components)
    points = MapPoints(weights, np.flatnonzero(varied & used), fixed, np.flatnonzero(varied & ~used))
    return Setting(pairs, _weigh(options.weighing, base, survey), points, survey, gauge, options.n_components)


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


def _choose(choice: PointChoice, names: Sequence[str] | None, n: int) -> tuple[Marks, Marks]:
    """Return which points are varied and which are fixed."""
    if names is not None and (not isinstance(names, Sequence) or len(names) != n):
        raise ConfigError(f"labels is {names!r}; it must be a name for each of {n} points")
    varied, fixed = choose_points(choice.varied, choice.fixed, names, n)
    if not varied.any() and not fixed.any():
        raise ConfigError("no point is varied and none is fixed; there is nothing to map")
    return varied, fixed


def _weigh_points(given: ArrayLike | None, n: int) -> Floats:
    """Return the weights of the points with mean 1."""
    if given is None:
        return np.ones(n)
    weights = floats("sample_weight", given)
    if weights.shape != (n,):
        raise ConfigError(f"sample_weight has shape {weights.shape}; there are {n} points")
    wrong = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    if len(wrong):
        raise ConfigError(f"sample_weight of point {wrong[0]} is {weights[wrong[0]]}; weights must be 0 or more")
    if not weights.any():
        raise ConfigError("every sample_weight is zero; there is nothing to fit")
    weights /= weights.max()  # so that no sum overflows
    weights /= weights.mean()
    return weights


def _make_cutting_part(weighing: Weighing, D: Dissimilarities, pairs: WeighedPairs) -> Objective:
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
        staying = used if choice.link_cut is None else sort_out_points(survey.links, used, fixed, choice.link_cut)
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


def _weigh(weighing: Weighing, base: Objective, survey: Survey) -> Objective:
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
            f"minimum_distance is {weighing.minimum_distance:g}, and the mean dissimilarity {mean:g}; it must be a "
            "distance of points, of the size of the dissimilarities"
        )
    if weighing.weighting != "even" and largest > _APART * floor:
        raise ConfigError(
            f"the smallest dissimilarity above 0 is {floor:g}, the largest {largest:g}, and weights that differ so "
            "much cannot be added up; give minimum_distance, or weighting='even'"
        )
    if not 1 / _APART < weighing.multiplier < _APART:
        raise ConfigError(f"multiplier is {weighing.multiplier:g}; it must be between {1 / _APART:g} and {_APART:g}")


def _bin_weights(counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Give each bin that has pairs the same total weight, and all pairs the mean weight 1."""
    filled = int((counts > 0).sum())
    return tuple(counts.sum() / (filled * max(1, count)) for count in counts.tolist())
