"""A map of kept pairs: of a run that keeps the nearest pairs of each item, without the matrix.

Distances along the graph of kept pairs stand for those that are not kept (Isomap: Tenenbaum, de Silva, Langford,
Science 290, 2000). Of each connected part some landmarks are placed by an estimator, from the distances among them, and
all other items by their distances to these (landmark Isomap: de Silva, Tenenbaum, NIPS 15, 2003). No path leads from
part to part, so parts stand side by side, the largest first; the room between them means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.maps.interpolation import Interpolation, row_stress
from tartan.analytics.maps.smacof import Floats, Rule
from tartan.analytics.matrix import as_dissimilarities
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor

#: Landmarks of one part, at most, and at least where their distances to all items, 8 bytes each, take too much memory.
LANDMARKS, FEWEST_LANDMARKS = 500, 50
LANDMARK_BYTES = 1 << 30
_SLAB_BYTES = 64 << 20
_GAP = 0.5  # around a part, as a share of its radius
#: Fewer items are placed by classical scaling: thousands of small groups are near duplicates, as a rule.
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
    among = np.minimum(among, among.T)
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
    sides = [2 * radius * (1 + _GAP) for radius in radii]
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
