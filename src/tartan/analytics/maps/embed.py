"""A map of any matrix in one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.interpolation import Interpolation, row_stress
from tartan.analytics.maps.smacof import Floats, Rule
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.edges import are_edges, read_edges
from tartan.analytics.matrix.kept import KeptPairs, read_kept_pairs
from tartan.analytics.matrix.open import folder_of, for_map
from tartan.analytics.methods import MAP_METHODS
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.signatures import require_options
from tartan.comm.communicator import Communicator
from tartan.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Embedding:
    """A map of a matrix.

    Attributes
    ----------
    points : ndarray of float64, shape (n, L)
        NaN for items that have no place.
    keys : tuple of str
        Names of the items; their numbers where the matrix has none.
    method : str
    numbers : dict
        What the method says of the map: stress or chisq, and the number of steps.
    estimator : DAMDS or LMMDS, or None
        The fitted estimator, with everything else, of the items that have a place; None for a map that a run kept.
    item_stress : ndarray of float64, shape (n,)
        How badly each item fits: the squared errors of its distances over its squared dissimilarities.
    recipe : dict
        How the matrix was read, and the rule by which new items are placed; what a run keeps with its map.
    """

    points: NDArray[np.float64]
    keys: tuple[str, ...]
    method: str
    numbers: dict[str, Any] = field(repr=False)
    estimator: Any = field(repr=False)
    item_stress: NDArray[np.float64] = field(repr=False)
    recipe: dict[str, Any] = field(repr=False)


def embed(
    D: Any,
    method: str = "damds",
    n_components: int = 3,
    *,
    distance: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    failed: str | None = None,
    start: ArrayLike | None = None,
    monitor: Monitor | None = None,
    communicator: Communicator | None = None,
    **options: Any,
) -> Embedding:
    """Place the items of a matrix so that distances match dissimilarities.

    A run that keeps pairs instead of the matrix is placed by distances along these (``graph_map``).

    Items without any dissimilarity, such as those of a run that could not be read, get no place; the others are placed
    as if they were not there.

    Parameters
    ----------
    D : array_like, Dissimilarities, Run or path
    method : {"damds", "smacof", "lmmds"}
        Deterministic annealing; plain SMACOF from the classical solution; least squares by Levenberg and Marquardt.
    n_components : int
        Dimension of the map.
    distance, transform, missing, output : optional
        As in :func:`tartan.analytics.as_dissimilarities`; but where nothing is said, similarities of a run are spread:
        ``recipe["matrix"]["distance"]`` of the result is the formula.
    failed : {"drop", "error"}, optional
        Of a run: items that failed get no place, whatever an option such as ``missing_value`` says of them (default),
        or such a run is refused. Options that have an entry for each item have one for failed ones, too.
    start : array_like (n, L), optional
        Coordinates to begin with.
    monitor : Monitor, optional
        Progress, cancel and checkpoint.
    communicator : Communicator, optional
        Ranks that share the work; all make the same call. The stress of items is computed on rank 0 alone.
    **options
        Parameters of ``DAMDS`` or ``LMMDS``, such as ``random_state``.

    Raises
    ------
    ConfigError
        If the method is unknown, or the matrix or an option is wrong.

    Examples
    --------
    >>> D = abs(np.arange(4.0)[:, None] - np.arange(4.0))
    >>> embed(D, "smacof", 1, random_state=0).points.shape
    (4, 1)
    """
    if method not in MAP_METHODS:
        raise ConfigError(f"method is {method!r}; it must be one of {', '.join(MAP_METHODS)}")
    monitor = as_monitor(monitor)
    how = {"distance": distance, "transform": transform, "missing": missing, "output": output}
    edges = are_edges(D)
    folder = None if edges else folder_of(D)
    if edges or (folder is not None and folder.manifest.reduce is not None):
        if communicator is not None:
            raise ConfigError("ranks share the work on a matrix, and the run keeps pairs only; embed without ranks")
        return _of_pairs(
            D if edges else folder, method, n_components, how | {"failed": failed}, options, (start, monitor)
        )
    matrix = for_map(D, failed=failed, **how)
    how["distance"] = distance if callable(distance) else matrix.conversion
    matrix = matrix if matrix.array is not None else matrix.materialized(monitor=monitor)
    here = _with_a_pair(matrix, options, monitor)
    chosen = matrix if len(here) == matrix.n else matrix.chosen(here).materialized(monitor=monitor)
    names, places = _places(D, matrix, here)
    if len(here) < len(names):
        start = start if start is None or len(np.asarray(start)) != len(names) else np.asarray(start)[places]
        options = _options_of(places, len(names), options)
    estimator = _estimator(method, n_components, options)
    estimator.fit(chosen, init=start, monitor=monitor, communicator=communicator)
    rule, why = _rule(estimator, chosen)
    found = np.asarray(estimator.embedding_, np.float64)
    points, stress = np.full((len(names), found.shape[1]), np.nan), np.full(len(names), np.nan)
    points[places] = found
    if communicator is None or communicator.rank == 0:
        stress[places] = _item_stress(chosen, found, monitor)
    return Embedding(
        points=points,
        keys=names,
        method=method,
        numbers=_numbers(estimator),
        estimator=estimator,
        item_stress=stress,
        recipe={
            "matrix": {name: value for name, value in how.items() if value is not None},
            "rule": rule,
            "why": why,
            "n_neighbors": options.get("n_neighbors"),
        },
    )


def _of_pairs(
    given: Any,
    method: str,
    n_components: int,
    how: dict[str, Any],
    options: dict[str, Any],
    run: tuple[ArrayLike | None, Monitor],
) -> Embedding:
    """Make a map of the pairs that a run keeps instead of the matrix, or that were kept elsewhere."""
    start, monitor = run
    refused = [name for name in (*_OF_ITEMS, "missing_value", "distance_transform", "formula") if name in options]
    refused += ["start"] if start is not None else []
    refused += ["missing"] if how["missing"] is not None else []
    if refused:
        label = getattr(given, "path", "the input")
        raise ConfigError(f"{label} keeps pairs and no matrix; leave out {', '.join(refused)}")
    ways = {name: how[name] for name in ("output", "distance", "transform")}
    pairs = read_edges(given, **ways) if are_edges(given) else read_kept_pairs(given, failed=how["failed"], **ways)
    if not len(pairs.i):
        raise ConfigError(f"{pairs.label} keeps no pair: there is nothing to draw")

    def fit(landmarks: Dissimilarities) -> Any:
        return _estimator(method, n_components, options).fit(landmarks, monitor=Monitor(0))

    points, stress, numbers = graph_map(pairs, fit, n_components, monitor)
    distance = how["distance"] if callable(how["distance"]) else pairs.conversion
    how = {name: how[name] for name in ("transform", "output")} | {"distance": distance}
    return Embedding(
        points=points,
        keys=tuple(map(str, pairs.names)),
        method=method,
        numbers=numbers,
        estimator=None,
        item_stress=stress,
        recipe={
            "matrix": {name: value for name, value in how.items() if value is not None},
            "rule": None,
            "why": "it was made of kept pairs",
            "n_neighbors": options.get("n_neighbors"),
        },
    )


#: Options that have an entry for each item.
_OF_ITEMS = {"weights", "fixed", "varied"}


def _with_a_pair(matrix: Dissimilarities, options: dict[str, Any], monitor: Monitor) -> NDArray[np.int64]:
    """Return the items that have a dissimilarity to another one."""
    components = matrix.check(monitor=monitor).components
    everything = np.arange(matrix.n)
    if components is None or _OF_ITEMS & options.keys() or options.get("missing_value") is not None:
        return everything
    here = everything[np.bincount(components)[components] > 1]
    return here if len(here) else everything  # nothing can be placed: the estimator raises the error


def _places(D: Any, matrix: Dissimilarities, here: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names of all items of what was given, and which of them are placed."""
    names = matrix.names
    if matrix.dropped is not None and not isinstance(D, Dissimilarities):
        names, here = matrix.input_names, matrix.kept[here]
    return tuple(map(str, range(matrix.n) if names is None else names)), here


def _options_of(places: NDArray[np.int64], n: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of n items with the entries of those that are placed; what fits no item stays, and is refused."""
    chosen = dict(options)
    for name in _OF_ITEMS & options.keys():
        values = np.asarray(options[name])
        if values.dtype.kind in "iu" and name != "weights":
            if ((values >= 0) & (values < n)).all():
                chosen[name] = np.searchsorted(places, values[np.isin(values, places)])
        elif values.ndim and values.shape == (n,) * values.ndim:
            chosen[name] = values[np.ix_(*(places,) * values.ndim)]
    return chosen


def _item_stress(matrix: Dissimilarities, points: NDArray[np.float64], monitor: Monitor) -> NDArray[np.float64]:
    """Return how badly each item fits; one pass over the matrix."""
    has = np.flatnonzero(np.isfinite(points).all(axis=1))
    stress = np.full(matrix.n, np.nan)
    if len(has) < 2:
        stress[has] = 0.0
        return stress
    # Where nothing is missing the stored values are taken as they are, and the coordinates are brought to their units.
    whole = len(has) == matrix.n and not matrix.has_missing
    unit = matrix.scale if whole else 1.0
    known, tiny = np.ascontiguousarray(points[has] / unit), _tiny(matrix) / unit**2
    height = matrix.block_rows(_STRESS_BYTES)
    for first in range(0, matrix.n, height):
        monitor.check()
        rows = slice(first, min(matrix.n, first + height))
        delta = matrix.block(rows.start, rows.stop) if whole else _others(matrix, rows)[:, has]
        stress[rows] = row_stress(known, points[rows] / unit, delta, tiny, missing=not whole)
    return stress


def _others(matrix: Dissimilarities, rows: slice) -> NDArray[np.float64]:
    """Return rows without the dissimilarity of an item to itself, which counts for nothing."""
    delta = matrix.values(rows, slice(0, matrix.n))
    at = np.arange(len(delta))
    delta[at, rows.start + at] = np.nan
    return delta


# By judgement: 8 MiB of rows and what is made of them stay in the last cache. No benchmark.
_STRESS_BYTES = 8 << 20


def _tiny(matrix: Dissimilarities) -> float:
    return float((1e-10 * max(matrix.check().largest, 1e-300)) ** 2)


def _rule(estimator: Any, matrix: Dissimilarities) -> tuple[dict[str, float | None] | None, str]:
    """Return the rule by which new items are placed, or None and why there is none."""
    if matrix.n < 2:
        return None, "a map of one item has no directions"
    if hasattr(estimator, "_rule"):  # DAMDS
        # A map by annealing draws equal items apart (zeros="smallest"); new ones lie where their originals lie.
        rule = estimator._rule
        return {"floor": 0.0, "tiny": rule.tiny, "sammon": rule.sammon}, ""
    if estimator.formula != "distance":
        return None, f"its distances have formula={estimator.formula!r}"
    check, least = matrix.check(), estimator.minimum_distance
    least = least if least >= 0 else -least * check.mean
    sammon = max(least, check.smallest_positive) if estimator.weighting == "sammon" else None
    return {"floor": 0.0, "tiny": max(least**2, _tiny(matrix)), "sammon": sammon}, ""


def _estimator(method: str, n_components: int, options: dict[str, Any]) -> Any:
    from tartan.analytics.maps.damds import DAMDS
    from tartan.analytics.maps.lmmds.lmmds import LMMDS

    kind = LMMDS if method == "lmmds" else DAMDS
    require_options("embed", options, embed, kind)
    if method == "smacof":
        options = {"annealing": False, "init": "classical", **options}
    return kind(n_components, **options)


def _numbers(estimator: Any) -> dict[str, Any]:
    names = ("stress_", "chisq_", "n_iter_", "stop_reason_")
    return {name.rstrip("_"): getattr(estimator, name) for name in names if hasattr(estimator, name)}


# A map of kept pairs: of a run that keeps the nearest pairs of each item, without the matrix.
#
# Distances along the graph of kept pairs stand for those that are not kept (Isomap: Tenenbaum, de Silva, Langford,
# Science 290, 2000). Of each connected part some landmarks are placed by an estimator, from the distances among them,
# and all other items by their distances to these (landmark Isomap: de Silva, Tenenbaum, NIPS 15, 2003). No path leads
# from part to part, so parts stand side by side, the largest first; the room between them means nothing.

#: Landmarks of one part, at most, and at least where their distances to all items, 8 bytes each, take too much memory.
#: By judgement: as _LANDMARKS of maps/start; 50 still span three dimensions many times over. LANDMARK_BYTES is memory
#: that nobody asked for. No benchmark.
LANDMARKS, FEWEST_LANDMARKS = 500, 50
# By judgement: memory beside the graph, 250,000 items with all landmarks. No benchmark.
LANDMARK_BYTES = 1 << 30
# By judgement: as BLOCK_BYTES of matrix/rows.
_SLAB_BYTES = 64 << 20
# By judgement: parts look apart, and the two points of a pair nearer to each other than to the next pair. No benchmark.
_GAP, _GAP_OF_FEW = 0.5, 1.5  # around a part, as a share of its radius
#: Fewer items are placed by classical scaling: thousands of small groups are near duplicates, as a rule.
#: By judgement, as said. No benchmark.
_FEW = 10


def graph_map(
    pairs: KeptPairs, fit: Callable[[Any], Any], n_components: int, monitor: Monitor
) -> tuple[Floats, Floats, dict[str, Any]]:
    """Place items by their kept pairs.

    Parameters
    ----------
    pairs : KeptPairs
    fit : callable
        Takes the dissimilarities of some items and returns an estimator that has placed them (``embedding_``).
    n_components : int
        Dimension of the map.
    monitor : Monitor

    Returns
    -------
    points : float64 array (n, n_components)
        NaN for items without a kept pair.
    stress : float64 array (n,)
        Of each item, by its distances to the landmarks of its part.
    numbers : dict
        n_parts, n_landmarks, stress (median).
    """
    from scipy.sparse.csgraph import connected_components

    graph = pairs.graph(np.maximum(pairs.distances, _least(pairs)))  # a stored 0 would be no pair at all
    components = connected_components(graph, directed=False)[1]
    parts = [items for items in _by_size(components) if len(items) > 1]
    points, stress = np.full((pairs.n, n_components), np.nan), np.full(pairs.n, np.nan)
    n_landmarks = 0
    for done, items in enumerate(parts):
        monitor.report("parts", placed=done, of=len(parts))
        monitor.check()
        points[items], stress[items], used = _part(graph[items][:, items], fit, n_components, monitor)
        n_landmarks += used
    _side_by_side(points, parts)
    known = stress[np.isfinite(stress)]
    numbers = {"n_parts": len(parts), "n_landmarks": n_landmarks}
    return points, stress, numbers | {"stress": float(np.median(known)) if len(known) else math.nan}


def _least(pairs: KeptPairs) -> float:
    return 1e-9 * float(pairs.distances.max(initial=0.0)) or 1e-9


def _by_size(components: NDArray[Any]) -> list[NDArray[np.int64]]:
    order = np.argsort(components, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(components[order])) + 1)
    return sorted(parts, key=lambda items: (-len(items), int(items[0])) if len(items) else (0, 0))


def _part(graph: Any, fit: Callable[[Any], Any], dimension: int, monitor: Monitor) -> tuple[Floats, Floats, int]:
    """Place the items of one connected part; return places, stress, and how many landmarks there were."""
    n = graph.shape[0]
    affordable = max(FEWEST_LANDMARKS, LANDMARK_BYTES // (8 * n))
    chosen, delta = _landmarks(graph, min(n, LANDMARKS, affordable), monitor)
    among = delta[:, chosen]
    among = np.minimum(among, among.T)  # both are sums along one path, rounded in two orders
    np.fill_diagonal(among, 0.0)
    if n < _FEW:
        placed = _classical(among, dimension)
    else:
        placed = np.asarray(fit(as_dissimilarities(among)).embedding_, np.float64)
    tiny = float((1e-10 * among.max()) ** 2)
    points = np.empty((n, dimension))
    rest = np.setdiff1d(np.arange(n), chosen)
    points[chosen] = placed
    if len(rest):
        rows = np.ascontiguousarray(delta[:, rest].T)
        points[rest] = Interpolation(np.ascontiguousarray(placed), Rule(tiny=tiny)).place(rows, monitor)
    step = max(1, _SLAB_BYTES // (8 * len(chosen)))
    stress = [row_stress(placed, points[at : at + step], delta[:, at : at + step].T, tiny) for at in range(0, n, step)]
    return points, np.concatenate(stress), len(chosen)


def _classical(delta: Floats, dimension: int) -> Floats:
    """Place a few items by the leading eigenvectors of their centred squared distances (Torgerson)."""
    n = len(delta)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ np.square(delta) @ centre)
    used = min(n, dimension)
    points = np.zeros((n, dimension))
    points[:, :used] = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :used]
    return points


def _landmarks(graph: Any, count: int, monitor: Monitor) -> tuple[NDArray[np.int64], Floats]:
    """Choose landmarks, each farthest from those before; return them and their distances (count, n) along the graph."""
    from scipy.sparse.csgraph import dijkstra

    n = graph.shape[0]
    if count == n:
        return np.arange(n), np.asarray(dijkstra(graph, directed=False), np.float64)
    delta = np.empty((count, n))
    chosen = np.zeros(count, np.int64)
    reach = np.asarray(dijkstra(graph, directed=False, indices=0), np.float64)
    for number in range(count):
        monitor.check()
        chosen[number] = int(reach.argmax())
        delta[number] = dijkstra(graph, directed=False, indices=int(chosen[number]))
        reach = np.minimum(reach, delta[number]) if number else delta[number].copy()
    return chosen, delta


def _side_by_side(points: Floats, parts: list[NDArray[np.int64]]) -> None:
    """Move parts beside each other in the plane of the first two dimensions, in rows, the largest first."""
    if len(parts) < 2:
        return
    radii = []
    for items in parts:
        points[items] -= (points[items].max(0) + points[items].min(0)) / 2
        radii.append(float(np.linalg.norm(points[items], axis=1).max()))
    gaps = [_GAP if len(items) >= _FEW else _GAP_OF_FEW for items in parts]
    sides = [2 * radius * (1 + gap) for radius, gap in zip(radii, gaps, strict=True)]
    width = max(max(sides), math.sqrt(sum(side**2 for side in sides)))
    across, down, height = 0.0, 0.0, 0.0
    flat = points.shape[1] == 1
    for items, side in zip(parts, sides, strict=True):
        if across + side > width * (1 + 1e-9) and across > 0 and not flat:
            across, down, height = 0.0, down + height, 0.0
        points[items, 0] += across + side / 2
        if not flat:
            points[items, 1] -= down + side / 2
        across, height = across + side, max(height, side)
