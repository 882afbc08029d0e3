"""How many clusters there are: the number at which the mean silhouette is highest, corrected for chance.

The silhouette of an item is (b - a) / max(a, b), where a is its mean distance to its own cluster and b that to the next
one (Rousseeuw, J. Comput. Appl. Math. 20, 1987); 0 for an item that is alone, and never above 0 for one whose nearest
item lies in another cluster. Distances are measured from one level for every number, that of pairwise clustering, so
that low contrast counts as much as high; clusters are those of one linkage, cut.

One group has silhouettes too, and higher ones the smaller its parts are. So the same is done with twenty sets of
random points in one group: a normal distribution in as many dimensions as the spread of the distances says, or as the
items lie along, where these are fewer: one of a ring, two of a sphere. Where the longest side of a triangle is often
above the sum of the others, as of 1 - cos, these are squares of distances, too, and the number must stand out as well
against directions, where these may be some. With s the mean silhouette of a number and c that of these sets, the
number with the largest (s - c) / (1 - c) counts: what is reached of what can be reached beyond chance, as the adjusted
Rand index has it (Hubert, Arabie, J. Classif. 2, 1985). So chance hardly counts where clusters are clear, and a group
of 5 among 2,000 items is not lost. If one of the sets rises as far above c as s does, and one as high as s, at any
number, there is one cluster: the gap statistic (Tibshirani, Walther, Hastie, J. R. Stat. Soc. B 63, 2001), of
silhouettes, for distances without coordinates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.dapwc.level import find_level
from tartan.analytics.clusters.outcome import NumberCurve
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.hierarchy import linkage

Matrix = NDArray[np.float64]
_Draw = Callable[[np.random.Generator, int], Matrix]

# By judgement: more are looked for only where the linkage has a clear step (`tartan bench groups`: up to 500).
MOST_CLUSTERS = 40
# Was 1,000, then 2,500, until hundreds of groups were counted right: `tartan bench groups`.
SAMPLED_ITEMS = 5000  # 200 MB, and seconds for hundreds of clusters
# By judgement: a number stands out where it beats twenty sets of random points, one chance in twenty, as the gap
# statistic compares (Tibshirani, Walther and Hastie 2001). `tartan bench answers` counts right numbers.
# By rule of the gap statistic (Tibshirani, Walther, Hastie 2001), which takes some ten to twenty sets. `tartan bench
# answers` counts right numbers.
_REFERENCES = 20
# Was 100: with twice as many points chance scatters less. `tartan bench answers` counts right numbers.
_REFERENCE_ITEMS = 200
# By judgement: in more dimensions random points are equally far apart but for per cents. No benchmark.
_MOST_DIMENSIONS = 64
# By judgement: one in twenty is known to a per cent then; measured distances break the rule by noise now and then.
_TRIPLES = 5000
# By judgement, see _TRIPLES.
_OFTEN = 0.05
# By arithmetic: sides in float32.
_ROUNDED = 1e-6
# By arithmetic: 1 - cos of directions in the plane has the mean 1 and the variance 1/2; a twentieth for chance.
_CIRCLE_SPREAD = 1.05 * math.sqrt(0.5)
# By arithmetic: rounding of float64 sums.
_EQUAL = 1e-9  # relative
# By judgement: shares of the items, within a group of several and across groups of many. `tartan bench groups
# parts=none` counts rings and spheres, too.
_NEAREST_SHARES = (0.05, 0.1, 0.2)
# By arithmetic: the smallest share of so many is one item.
_LEAST_FOR_SHARES = 20
_TINY = np.finfo(float).tiny
# By judgement. `tartan bench groups` holds what comes out.
_CLEAR_STEP = 1.2  # of a linkage, over the step before; in one group, joins of many clusters differ by a few per cent


def number_of_clusters(
    D: Dissimilarities,
    method: str = "average",
    *,
    seed: int = 0,
    most_items: int = SAMPLED_ITEMS,
    monitor: Monitor | None = None,
) -> NumberCurve:
    """Find the number of clusters of a checked matrix without missing pairs.

    Parameters
    ----------
    D : Dissimilarities
        Complete.
    method : {"single", "complete", "average", "weighted"}
    seed : int
        Of the sample and of the random points.
    most_items : int
        Of more items as many are drawn.
    monitor : Monitor, optional

    Notes
    -----
    2 to 40 clusters are tried, or twice as many as where the linkage has its largest step, and twice as many again as
    long as the best number lies in the upper half, up to half of the items. A few seconds at most, besides reading the
    rows of the items.
    """
    watch = Monitor(0) if monitor is None else monitor
    random = np.random.default_rng(seed)
    values = _sample(D, most_items, random)
    n = len(values)
    most = min(n - 1, MOST_CLUSTERS)
    if most < 2 or not values.any():
        return NumberCurve(np.empty(0, np.int64), np.empty(0), np.empty(0), 0.0, 0.0, 0.0, n)
    watch.report("number of clusters", tried=f"2 to {most}")
    linked = link_distances(values, method)
    curve: NumberCurve | None = None
    for points in _single_groups(values, linked.measured):
        found = _draw_curve(linked, _SingleGroup(points, n, method, random, watch), watch)
        if curve is None or found.chosen == 1:
            curve = found
        if found.chosen == 1:
            break
    assert curve is not None
    return replace(curve, are_squares=_is_squared(values))


def _draw_curve(linked: LinkedDistances, group: _SingleGroup, watch: Monitor) -> NumberCurve:
    """Return the curve beside that of random points, of as many numbers as its best one needs."""
    n = len(linked.measured)
    most = max(min(n - 1, MOST_CLUSTERS), min(2 * _clear_number(linked.steps), n // 2))
    while True:
        silhouettes = mean_silhouettes(linked, most)
        numbers = np.arange(2, most + 1)
        curve = NumberCurve(
            numbers, silhouettes, group.by_chance(numbers), group.margin, group.highest, linked.level, n
        )
        if curve.best <= max(1, most // 2) or most >= n // 2:
            return curve
        most = min(2 * most, n // 2)
        watch.report("number of clusters", tried=f"2 to {most}")
        watch.check()


class _SingleGroup:
    """Twenty sets of random points in one group, and their mean silhouettes.

    Parameters
    ----------
    draw : callable
        Returns the distances (m, m) of m random points.
    n : int
        Items that the points stand for.
    method : str
        The linkage.
    random : Generator
    watch : Monitor

    Attributes
    ----------
    margin, highest : float
        As of ``NumberCurve``.
    """

    def __init__(self, draw: _Draw, n: int, method: str, random: np.random.Generator, watch: Monitor) -> None:
        self._n, self._size = n, min(n, _REFERENCE_ITEMS)
        self._linked = []
        for _ in range(_REFERENCES):
            watch.check()
            self._linked.append(link_distances(draw(random, self._size), method))
        self._measure(min(n - 1, MOST_CLUSTERS))

    def by_chance(self, numbers: NDArray[np.int64]) -> Matrix:
        """Return the mean over the sets of their silhouettes, of fewer points as of parts of as many."""
        same = max(min(self._size - 1, MOST_CLUSTERS), 0)
        alike = np.minimum(numbers, np.maximum(same, numbers * self._size // self._n))
        if alike[-1] > len(self._chance) + 1:
            self._measure(max(same, self._size // 2))
        chance: Matrix = self._chance[alike - 2]
        return chance

    def _measure(self, most: int) -> None:
        """Take the silhouettes of the sets, of 2 to so many clusters."""
        tried = np.array([mean_silhouettes(linked, most) for linked in self._linked])
        self._chance: Matrix = tried.mean(axis=0)
        above = float((tried - self._chance).max())
        self.margin = above * _REFERENCES / (_REFERENCES - 1)  # each set is part of the mean
        self.highest = float(tried.max())


def _single_groups(values: Matrix, measured: Matrix) -> list[_Draw]:
    """Return what draws the distances of one group that vary as these do."""
    spread = _spread(measured)
    if not _is_squared(values):
        dimensions = min(_least_dimensions(spread, _spread_of_normal), _dimensions_along(values))
        flat = [_draw_line] if dimensions == 1 else []
        return [partial(_draw_heap, dimensions, 1), *flat]
    draws: list[_Draw] = [partial(_draw_heap, _least_dimensions(spread, lambda d: math.sqrt(2 / d)), 2)]
    if spread <= _CIRCLE_SPREAD:
        draws.append(partial(_draw_directions, max(2, _least_dimensions(spread, lambda d: math.sqrt(1 / d)))))
    return draws


def _draw_heap(dimensions: int, power: int, random: np.random.Generator, size: int) -> Matrix:
    """Return distances of normal points, to a power."""
    return _distances(random.standard_normal((size, dimensions)), power)


def _draw_line(random: np.random.Generator, size: int) -> Matrix:
    """Return distances of points on a line, as many everywhere."""
    return _distances(random.random((size, 1)), 1)


def _draw_directions(dimensions: int, random: np.random.Generator, size: int) -> Matrix:
    """Return squares of distances of points on a sphere: those of cosine, but for a factor."""
    points = random.standard_normal((size, dimensions))
    return _distances(points / np.linalg.norm(points, axis=1)[:, None], 2)


def _is_squared(values: Matrix) -> bool:
    """Return whether distances grow as squares do: often one is longer than two others that join its ends."""
    n = len(values)
    a, b, c = np.random.default_rng(0).integers(0, n, (3, _TRIPLES))
    sides = np.sort([values[a, b], values[b, c], values[a, c]], axis=0)
    return bool((sides[2] > (1 + _ROUNDED) * (sides[0] + sides[1])).mean() > _OFTEN)


def _dimensions_along(values: Matrix) -> int:
    """Return the dimensions of what items lie along, 1 for a ring: how much farther twice as many of the nearest reach.

    Parts of a ring have silhouettes like those of a line, although its distances vary as in a plane or more.
    """
    n = len(values)
    if n < _LEAST_FOR_SHARES:
        return _MOST_DIMENSIONS
    ranked = np.maximum(np.sort(values[:: -(-n // _REFERENCE_ITEMS)], axis=1), _TINY)
    places = [int(share * n) for share in _NEAREST_SHARES]
    growth = min(float(np.median(np.log(ranked[:, 2 * at] / ranked[:, at]))) for at in places)
    return min(_MOST_DIMENSIONS, max(1, round(math.log(2) / max(growth, _EQUAL))))


def _sample(D: Dissimilarities, most: int, random: np.random.Generator) -> Matrix:
    items = np.arange(D.n)
    if D.n > most:
        items = np.sort(random.choice(items, most, replace=False))
    values = np.empty((len(items), len(items)))
    for row, item in enumerate(items.tolist()):
        values[row] = D.values(slice(item, item + 1), slice(0, D.n))[0, items]
    np.fill_diagonal(values, 0.0)
    return values


def _distances(points: Matrix, power: int = 1) -> Matrix:
    from scipy.spatial.distance import pdist, squareform

    return np.asarray(squareform(pdist(points) ** power), np.float64)


class LinkedDistances(NamedTuple):
    """Distances (n, n) measured from a level, their linkage (n - 1, 4), and the nearest of each item, with ties."""

    level: float
    measured: Matrix
    steps: Matrix
    nearest: tuple[NDArray[np.int64], NDArray[np.int64]]


def link_distances(values: Matrix, method: str) -> LinkedDistances:
    """Measure distances (n, n) from their level, and link them."""
    quiet = Monitor(0)
    matrix = as_dissimilarities(values)
    matrix.check()
    level = find_level(matrix, quiet).value
    measured = values - level
    np.maximum(measured, 0.0, out=measured)
    np.fill_diagonal(measured, 0.0)
    return LinkedDistances(
        level, measured, linkage(matrix, method, memory=sys.maxsize, monitor=quiet), _nearest(values)
    )


def _clear_number(steps: Matrix) -> int:
    """Return the number of clusters at which the next step of a linkage is the largest, as a share; 1 if none is."""
    n = len(steps) + 1
    heights = np.maximum(steps[n - 2 :: -1, 2], 0.0)  # heights[k - 1] joins k + 1 clusters
    later, sooner = heights[: n // 2 - 1], heights[1 : n // 2]  # of k clusters: the step from k, and that to k
    clear = later > _CLEAR_STEP * sooner
    if not clear.any():
        return 1
    with np.errstate(over="ignore"):  # groups of equal items: infinitely clear
        shares = later[clear] / np.maximum(sooner[clear], np.finfo(float).tiny)
    return int(np.flatnonzero(clear)[shares.argmax()]) + 2


def mean_silhouettes(linked: LinkedDistances, most: int) -> Matrix:
    """Return the mean silhouette of 2 to ``most`` clusters of a linkage; each join adds two columns of sums.

    What a join does not touch stays: only items of the joined clusters, and those nearest to one of the two, look for
    the nearest other cluster again.
    """
    n = len(linked.measured)
    labels, found, items = cut(linked.steps, n, most), np.empty(most - 1), np.arange(n)
    members = np.zeros((n, most))
    members[items, labels] = 1.0
    sums, sizes = linked.measured @ members, members.sum(0)
    means = sums / sizes
    means[items, labels] = np.inf
    place = means.argmin(1)
    other = means[items, place]
    for k in range(most, 1, -1):
        own = sums[items, labels] / np.maximum(sizes[labels] - 1, 1)
        found[k - 2] = _mean_silhouette(own, other, sizes[labels] == 1, labels, linked.nearest)
        a, b = sorted(int(labels[_leaf(linked.steps, int(node))]) for node in linked.steps[n - k, :2])
        for totals in (sums, sizes):
            totals[..., a] += totals[..., b]
            totals[..., b] = totals[..., k - 1]
        means[:, b] = means[:, k - 1]
        means[:, a] = sums[:, a] / sizes[a]
        labels[labels == b] = a
        labels[labels == k - 1] = b
        joined = labels == a
        means[joined, a] = np.inf
        again = joined | (place == a) | (place == b)
        place[place == k - 1] = b
        nearer = ~again & (means[:, a] < other)
        place[nearer], other[nearer] = a, means[nearer, a]
        rows = np.flatnonzero(again)
        place[rows] = means[rows, : k - 1].argmin(1)
        other[rows] = means[rows, place[rows]]
    return found


def _leaf(steps: Matrix, node: int) -> int:
    """Return an item of a cluster of a linkage."""
    n = len(steps) + 1
    while node >= n:
        node = int(steps[node - n, 0])
    return node


def _nearest(values: Matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nearest item of each, and the next one where that is as near, else the nearest again.

    The matrix is written to meanwhile, since a copy of it takes as long as the search, and is then as it was.
    """
    items, diagonal = np.arange(len(values)), values.diagonal().copy()
    np.fill_diagonal(values, np.inf)
    first = values.argmin(1)
    nearest = values[items, first]
    values[items, first] = np.inf
    second = values.argmin(1)
    tied = values[items, second] <= nearest * (1 + _EQUAL)
    values[items, first] = nearest
    np.fill_diagonal(values, diagonal)
    return first, np.where(tied, second, first)


def _mean_silhouette(
    own: Matrix,
    other: Matrix,
    alone: NDArray[np.bool_],
    labels: NDArray[np.int64],
    nearest: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> float:
    """Return the mean silhouette of labels, by the mean distances (n,) to the own and to the nearest other cluster."""
    silhouettes = (other - own) / np.maximum(np.maximum(other, own), np.finfo(float).tiny)
    torn = (labels[nearest[0]] != labels) | (labels[nearest[1]] != labels)
    return float(np.where(alone, 0.0, np.where(torn, np.minimum(silhouettes, 0.0), silhouettes)).mean())


def _spread(measured: Matrix) -> float:
    """Return the standard deviation of distances as a share of their mean."""
    n = len(measured)
    n_pairs = n * (n - 1)
    mean = float(measured.sum()) / n_pairs
    if not mean:
        return 0.0
    squares = float(np.einsum("ij,ij->", measured, measured)) / n_pairs
    return math.sqrt(max(squares - mean**2, 0.0)) / mean


def _least_dimensions(spread: float, spread_in: Callable[[int], float]) -> int:
    """Return the dimensions in which distances of random points vary at least as much, of their mean, as these do."""
    dimensions = 1
    while dimensions < _MOST_DIMENSIONS and spread_in(dimensions + 1) >= spread:
        dimensions += 1
    return dimensions


def _spread_of_normal(dimensions: int) -> float:
    """Return standard deviation over mean of the distances of normal points: those of the chi distribution."""
    mean = math.sqrt(2) * math.exp(math.lgamma((dimensions + 1) / 2) - math.lgamma(dimensions / 2))
    return math.sqrt(max(dimensions - mean**2, 0.0)) / mean
