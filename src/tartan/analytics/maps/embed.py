"""A map of any matrix in one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.interpolation import row_stress
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.matrix.kept import kept_pairs
from tartan.analytics.matrix.open import folder_of, for_map
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.comm.communicator import Communicator
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder

METHODS = ("damds", "smacof", "lmmds")


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
    similarity: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    drop_failed: bool = False,
    start: ArrayLike | None = None,
    monitor: Monitor | None = None,
    communicator: Communicator | None = None,
    **options: Any,
) -> Embedding:
    """Place the items of a matrix so that distances match dissimilarities.

    A run that keeps pairs instead of the matrix is placed by distances along these (``graph_map.py``).

    Items without any dissimilarity, such as those of a run that could not be read, get no place; the others are placed
    as if they were not there.

    Parameters
    ----------
    D : array_like, Dissimilarities, Run or path
    method : {"damds", "smacof", "lmmds"}
        Deterministic annealing; plain SMACOF from the classical solution; least squares by Levenberg and Marquardt.
    n_components : int
        Dimension of the map.
    similarity, transform, missing, output : optional
        As in :func:`tartan.analytics.as_dissimilarities`; but where nothing is said, similarities of a run are spread:
        ``recipe["matrix"]["similarity"]`` of the result is the formula.
    drop_failed : bool
        Of a run: give items that failed no place, whatever an option such as ``missing_value`` says of them.
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
    if method not in METHODS:
        raise ConfigError(f"method is {method!r}; it is one of {', '.join(METHODS)}")
    monitor = as_monitor(monitor)
    how = {"similarity": similarity, "transform": transform, "missing": missing, "output": output}
    folder = folder_of(D)
    if folder is not None and folder.manifest.reduce is not None:
        if communicator is not None:
            raise ConfigError("ranks share the work on a matrix, and the run keeps pairs only; embed without ranks")
        return _of_pairs(folder, method, n_components, how, options, (start, monitor))
    matrix = for_map(D, **how)
    how["similarity"] = similarity if callable(similarity) else matrix.conversion
    matrix = matrix if matrix.array is not None else matrix.materialized(monitor=monitor)
    here = _with_a_pair(matrix, options, monitor)
    here = np.setdiff1d(here, matrix.failed) if drop_failed else here
    whole = len(here) == matrix.n
    chosen = matrix if whole else matrix.chosen(here).materialized(monitor=monitor)
    if start is not None and not whole:
        start = np.asarray(start)[here]
    estimator = _estimator(method, n_components, options)
    estimator.fit(chosen, init=start, monitor=monitor, communicator=communicator)
    rule, why = _rule(estimator, chosen)
    found = np.asarray(estimator.embedding_, np.float64)
    points, stress = np.full((matrix.n, found.shape[1]), np.nan), np.full(matrix.n, np.nan)
    points[here] = found
    if communicator is None or communicator.rank == 0:
        stress[here] = _item_stress(chosen, found, monitor)
    return Embedding(
        points=points,
        keys=tuple(map(str, range(matrix.n) if matrix.names is None else matrix.names)),
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
    folder: RunFolder,
    method: str,
    n_components: int,
    how: dict[str, Any],
    options: dict[str, Any],
    run: tuple[ArrayLike | None, Monitor],
) -> Embedding:
    """Make a map of the pairs that a run keeps instead of the matrix."""
    from tartan.analytics.maps.graph_map import graph_map

    start, monitor = run
    refused = [name for name in (*_OF_ITEMS, "missing_value", "distance_transform", "formula") if name in options]
    refused += ["start"] if start is not None else []
    refused += ["missing"] if how["missing"] is not None else []
    if refused:
        raise ConfigError(f"{folder.path} keeps pairs and no matrix; leave out {', '.join(refused)}")
    pairs = kept_pairs(folder, **{name: how[name] for name in ("output", "similarity", "transform")})
    if not len(pairs.i):
        raise ConfigError(f"{folder.path} keeps no pair: there is nothing to draw")

    def fit(landmarks: Dissimilarities) -> Any:
        return _estimator(method, n_components, options).fit(landmarks, monitor=Monitor(0))

    points, stress, numbers = graph_map(pairs, fit, n_components, monitor)
    how = {**how, "similarity": how["similarity"] if callable(how["similarity"]) else pairs.conversion}
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

    if method == "lmmds":
        return LMMDS(n_components, **options)
    if method == "smacof":
        options = {"annealing": False, "init": "classical", **options}
    return DAMDS(n_components, **options)


def _numbers(estimator: Any) -> dict[str, Any]:
    names = ("stress_", "chisq_", "n_iter_", "stop_reason_")
    return {name.rstrip("_"): getattr(estimator, name) for name in names if hasattr(estimator, name)}
