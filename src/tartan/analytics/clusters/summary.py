"""Work on clusters: representatives, the matrix of some of them, joining and refining."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.materialize import INT16_ONE, new_square
from tartan.analytics.matrix.sources import native
from tartan.analytics.monitor import Monitor
from tartan.base.checks import floats
from tartan.errors import ConfigError

Labels = NDArray[np.int64]
Centres = dict[str, Labels]

# By judgement: quartiles right to a thousandth of the largest value. No benchmark.
_BINS = 1000
# By judgement: as BLOCK_BYTES of matrix/rows.
_CHUNK_BYTES = 64 << 20


def cluster_centres(
    D: Any,
    labels: ArrayLike,
    *,
    embedding: ArrayLike | None = None,
    n_centres: int = 8,
    fractions: Sequence[float] = (0.15, 0.4, 0.75),
    monitor: Monitor | None = None,
) -> Centres:
    """Choose the items that stand for each cluster best, in several ways.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    labels : array_like of int, shape (n,)
        Cluster of each item, from 0; items with a negative or masked label belong to none.
    embedding : array_like (n, dimension), optional
        Coordinates of the items, such as those of :class:`tartan.analytics.DAMDS`.
    n_centres : int
        Items for each cluster and way.
    fractions : sequence of float
        Radii of the buckets, as quantiles of the dissimilarities within the cluster.
    monitor : Monitor, optional

    Returns
    -------
    dict of str to int64 array, shape (n_clusters, n_centres)
        Best first; -1 where a cluster has fewer items. "mean": least mean dissimilarity to the cluster's items.
        "bucket 0.15" and so on: most items within that radius. With an embedding "embedding mean": least mean
        distance there, and "centroid": nearest to the cluster's mean. "vote": those that the others name most often
        and earliest (a first place counts n_centres, a last place 1).

    Raises
    ------
    ConfigError
        If D is not a matrix of dissimilarities, or labels, embedding or fractions do not fit.

    Notes
    -----
    Two passes over the matrix; quantiles are those of a histogram of 1000 bins. Missing pairs are left out.
    """
    matrix = as_dissimilarities(D)
    found = _check_labels(labels, matrix.n)
    largest = matrix.check(monitor=monitor).largest
    if n_centres < 1 or not all(0 < fraction <= 1 for fraction in fractions):
        raise ConfigError(
            f"n_centres is {n_centres}, which must be 1 or more, and fractions {fractions}, each above 0 and up to 1"
        )
    groups = [np.flatnonzero(found == k) for k in range(int(found.max(initial=-1)) + 1)]
    scores = _scores(matrix, groups, largest if largest > 0 else 1.0, tuple(fractions), monitor)
    if embedding is not None:
        scores |= _score_embedding(_check_embedding(embedding, matrix.n), groups)
    centres = {kind: _find_medoids(values, groups, n_centres) for kind, values in scores.items()}
    return {**centres, "vote": _vote(list(centres.values()), matrix.n, groups, n_centres)}


def _check_labels(labels: ArrayLike, n: int) -> Labels:
    found = np.ma.filled(labels, -1) if np.ma.isMaskedArray(labels) else np.asarray(labels)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise ConfigError(f"labels have shape {found.shape} and type {found.dtype}; there must be {n} whole numbers")
    if found.max(initial=-1) >= n:
        raise ConfigError(f"label {found.max()} of item {found.argmax()}; clusters of {n} items are 0 to {n - 1}")
    return found.astype(np.int64)


def _check_embedding(embedding: ArrayLike, n: int) -> NDArray[np.float64]:
    points = floats("embedding", embedding)
    if points.ndim != 2 or len(points) != n or not np.isfinite(points).all():
        raise ConfigError(f"embedding has shape {points.shape}; it must have {n} rows of finite coordinates")
    return points


def _scores(
    matrix: Dissimilarities, groups: list[Labels], largest: float, fractions: tuple[float, ...], monitor: Monitor | None
) -> dict[str, NDArray[np.float64]]:
    """Return for each way and item a score, the smaller the better."""
    mean = np.full(matrix.n, np.inf)
    counts = np.zeros((len(groups), _BINS), np.int64)
    for k, items, others, values in _within(matrix, groups, monitor):
        valid = np.isfinite(values) & (items[:, None] != others)
        known = valid.sum(1)
        sums = np.where(valid, values, 0.0).sum(1)
        mean[items] = np.where(known > 0, sums / np.maximum(known, 1), np.inf)
        bins = np.minimum((values[valid] * (_BINS / largest)).astype(np.int64), _BINS - 1)
        counts[k] += np.bincount(bins, minlength=_BINS)
    below = counts.cumsum(1) / np.maximum(counts.sum(1, keepdims=True), 1)
    radii = {f: ((below < f).sum(1) + 1) * (largest / _BINS) for f in fractions}
    near = {f: np.zeros(matrix.n) for f in fractions}
    for k, items, _, values in _within(matrix, groups, monitor):
        for fraction, radius in radii.items():
            near[fraction][items] = -(values <= radius[k]).sum(1)
    return {"mean": mean, **{f"bucket {fraction:g}": counted for fraction, counted in near.items()}}


def _within(matrix: Dissimilarities, groups: list[Labels], monitor: Monitor | None) -> Any:
    """Yield (cluster, some of its items, all of its items, their dissimilarities); NaN where missing."""
    step = max(1, _CHUNK_BYTES // (8 * matrix.n))
    for start in range(0, matrix.n, step):
        if monitor is not None:
            monitor.check()
        rows = slice(start, min(matrix.n, start + step))
        block = matrix.values(rows, slice(0, matrix.n))
        for k, group in enumerate(groups):
            items = group[np.searchsorted(group, rows.start) : np.searchsorted(group, rows.stop)]
            if len(items):
                yield k, items, group, block[np.ix_(items - start, group)]


def _score_embedding(points: NDArray[np.float64], groups: list[Labels]) -> dict[str, NDArray[np.float64]]:
    from scipy.spatial.distance import cdist

    mean, centroid = np.full(len(points), np.inf), np.full(len(points), np.inf)
    for group in groups:
        step = max(1, _CHUNK_BYTES // (8 * max(1, len(group))))
        for start in range(0, len(group), step):
            items = group[start : start + step]
            mean[items] = cdist(points[items], points[group]).mean(1)
        if len(group):
            centroid[group] = np.linalg.norm(points[group] - points[group].mean(0), axis=1)
    return {"embedding mean": mean, "centroid": centroid}


def _find_medoids(scores: NDArray[np.float64], groups: list[Labels], n_centres: int) -> Labels:
    """Return the items of least score of each cluster; the first ones where scores are equal."""
    chosen = np.full((len(groups), n_centres), -1, np.int64)
    for k, group in enumerate(groups):
        best = group[np.argsort(scores[group], kind="stable")[:n_centres]]
        chosen[k, : len(best)] = best
    return chosen


def _vote(lists: list[Labels], n: int, groups: list[Labels], n_centres: int) -> Labels:
    votes = np.zeros(n)
    for chosen in lists:
        places = np.broadcast_to(np.arange(n_centres, 0, -1), chosen.shape)
        np.add.at(votes, chosen[chosen >= 0], places[chosen >= 0])
    return _find_medoids(-votes, groups, n_centres)


def extract_clusters(
    D: Any, labels: ArrayLike, clusters: Iterable[int], *, memory_bytes: int = 1 << 30
) -> tuple[Dissimilarities, Labels]:
    """Return the matrix of the items of some clusters, to analyse it on its own.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    labels : array_like of int, shape (n,)
    clusters : iterable of int
        Labels whose items are taken.
    memory_bytes : int
        A larger result lies in a temporary file.

    Returns
    -------
    part : Dissimilarities
        In the type of the stored values; names of items are kept.
    items : int64 array
        Which item of D each row is, ascending.

    Raises
    ------
    ConfigError
        If no item has one of the labels.
    """
    matrix = as_dissimilarities(D)
    found, wanted = _check_labels(labels, matrix.n), sorted(set(clusters))
    items = np.flatnonzero(np.isin(found, wanted))
    if not len(items):
        raise ConfigError(f"no item has a label of {wanted}; there are {sorted(set(found.tolist()))[:20]}")
    part = new_square(len(items), native(matrix.dtype), memory_bytes)
    step = matrix.block_rows(_CHUNK_BYTES)
    for start in range(0, matrix.n, step):
        rows = slice(*np.searchsorted(items, (start, start + step)).tolist())
        if rows.stop > rows.start:
            block = matrix.block(start, min(matrix.n, start + step))
            part[rows] = block[np.ix_(items[rows] - start, items)]
    names = None if matrix.names is None else [matrix.names[item] for item in items]
    missing = "nan" if matrix.missing_allowed and part.dtype.kind == "f" else None
    maximum = matrix.scale * INT16_ONE if part.dtype.kind == "i" else 1.0
    return as_dissimilarities(part, names=names, missing=missing, maximum=maximum), items


def merge_labels(labels: ArrayLike, parts: Iterable[tuple[ArrayLike, ArrayLike]]) -> Labels:
    """Replace clusters by clusterings of their items.

    Parameters
    ----------
    labels : array_like of int, shape (n,)
        Clustering of all items.
    parts : iterable of (items, labels)
        Items of a part, as :func:`extract_clusters` returns them, and their new labels.

    Returns
    -------
    int64 array (n,)
        Clusters of different parts are different clusters; numbered from 0 in the order of their first items.
        Negative labels stay.

    Examples
    --------
    >>> merge_labels([0, 0, 1, 1, 1], [([2, 3, 4], [0, 1, 1])]).tolist()
    [0, 0, 1, 2, 2]
    """
    merged = np.array(labels, np.int64)
    for items, refined in parts:
        at, new = np.asarray(items), np.asarray(refined, np.int64)
        if at.shape != new.shape or (at.size and not 0 <= at.min() <= at.max() < len(merged)):
            raise ConfigError(f"a part has {at.shape} items and {new.shape} labels, of {len(merged)} items in all")
        merged[at] = np.where(new < 0, new, new + max(0, merged.max(initial=-1) + 1))
    return _renumber(merged)


def join_clusters(labels: ArrayLike, groups: Iterable[Iterable[int]]) -> Labels:
    """Make one cluster of each group of clusters; groups with a cluster in common are one group.

    Examples
    --------
    >>> join_clusters([0, 1, 2, 3, -1], [[1, 3]]).tolist()
    [0, 1, 2, 1, -1]
    """
    joined = np.array(labels, np.int64)
    separate: list[set[int]] = []
    for group in map(set, groups):
        met = [other for other in separate if not other.isdisjoint(group)]
        separate = [other for other in separate if other.isdisjoint(group)] + [group.union(*met)]
    for members in separate:
        joined[np.isin(joined, sorted(members))] = min(members, default=-1)
    return _renumber(joined)


def _renumber(labels: Labels) -> Labels:
    """Number clusters from 0 in the order of their first items."""
    kept = labels >= 0
    labels[kept] = number_labels(labels[kept])
    return labels
