"""The map that a run keeps, and new items on it: each placed by majorisation while all others stay where they are.

A map is made from the first ``n_fitted`` items of a run. Items that were added since are placed by their
dissimilarities to those alone, so the places do not depend on when and in which order items came, and no item that is
on the map moves.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.maps.align import align
from tartan.analytics.maps.embed import Embedding
from tartan.analytics.maps.interpolation import Interpolation, row_stress
from tartan.analytics.maps.smacof import Floats, Rule
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.matrix.open import grown
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.files import FileWriter
from tartan.base.lock import FolderLock
from tartan.errors import ConfigError, StoreError
from tartan.store.folder import RunFolder
from tartan.store.maps import StoredMap, map_of, write_map
from tartan.store.version_view import VersionFolder, open_version

# By judgement: distances of some thousand new items at a time. No benchmark.
BLOCK_BYTES = 32 << 20
#: The map should be made afresh where new items fit much worse: their median stress is above this, ...
#: _POOR_STRESS, _POOR_FACTOR and _MANY_PLACED, by judgement: a stress of 0.01 is seen in a picture, and half as many
#: again make the old items a minority of the fit. A note, no error. No benchmark.
_POOR_STRESS = 0.01
#: ... and this many times that of the items that the map was made from.
#: By judgement, see _POOR_STRESS.
_POOR_FACTOR = 2.0
#: With more placed items than this for each fitted one the map should be made afresh, too.
#: By judgement, see _POOR_STRESS.
_MANY_PLACED = 0.5


def require_keepable(options: Any) -> None:
    """Refuse what cannot be written down, before a map is computed.

    Raises
    ------
    ConfigError
        If a conversion is a function of Python, or is hidden in the estimator.
    """
    for name in ("distance", "transform", "missing"):
        if callable(options.get(name)):
            raise ConfigError(f"{name}: a function cannot be kept with the map of a run; write it as a formula")
    for name in ("distance_transform", "missing_value"):
        if options.get(name) is not None:
            raise ConfigError(f"{name} cannot be kept with the map of a run; give transform or missing instead")


def keep_frame(run: RunFolder, found: Embedding) -> Embedding:
    """Return a map turned, mirrored and moved, not scaled, to lie best on the map that the run keeps.

    Unchanged where there is no such map, it has another dimension, or they share fewer items than one more than that.
    """
    try:
        before = map_of(run)
    except StoreError:  # it is replaced
        return found
    if before is None or before.points.shape[1] != found.points.shape[1]:
        return found
    n = min(len(before), len(found.points))
    source, target = found.points[:n], before.points[:n]
    shared = np.isfinite(source).all(axis=1) & np.isfinite(target).all(axis=1)
    if int(shared.sum()) <= found.points.shape[1]:
        return found
    turned = align(source[shared], target[shared], scale=False).apply(found.points)
    return replace(found, points=turned)


def keep_map(run: RunFolder, found: Embedding) -> StoredMap:
    """Write a map into the folder of its run, in place of the one that is there.

    Raises
    ------
    ConfigError
        If no item could be placed on such a map.
    StoreError
        If the folder is locked, cannot be written, or has grown since.
    """
    require_keepable(found.recipe["matrix"])
    if found.recipe["rule"] is None:
        raise ConfigError(f"new items cannot be placed on this map: {found.recipe['why']}")
    with FolderLock(run.path):
        now = open_version(run.path)
        if run.version is not None and not run.version.newest:
            raise ConfigError(
                f"{run.path} keeps the map of its newest version only; version {run.version.number} is not it"
            )
        if now.manifest.n_items != len(found.points) or _slots_differ(now, run):
            raise StoreError(
                f"{run.path} has {now.manifest.n_items} items now, the map {len(found.points)}; make it again"
            )
        points, stress = found.points, found.item_stress
        if now.slots is not None:
            points, stress = (_in_slots(part, now.slots, now.stored.manifest.n_items) for part in (points, stress))
        recipe = json.loads(json.dumps({name: found.recipe[name] for name in ("matrix", "rule", "n_neighbors")}))
        made = StoredMap(
            points=points,
            stress=stress,
            n_fitted=len(points),
            method=found.method,
            run=now.manifest.created,
            recipe=recipe,
            numbers=json.loads(json.dumps(found.numbers, default=float)),
        )
        write_map(run.path, made, FileWriter(run.path))
    return made


def _slots_differ(now: RunFolder, run: RunFolder) -> bool:
    """Whether a run has other items than when it was opened."""
    a, b = (np.arange(one.manifest.n_items) if one.slots is None else one.slots for one in (now, run))
    return not np.array_equal(a, b)


def _in_slots(rows: Floats, slots: NDArray[np.int64], n_slots: int) -> Floats:
    """Return rows of items as rows of slots, NaN for those that are not items."""
    found = np.full((n_slots, *rows.shape[1:]), np.nan)
    found[slots] = rows
    return found


def extend_map(run: RunFolder, monitor: Monitor | None = None, *, block_bytes: int = BLOCK_BYTES) -> StoredMap:
    """Place the items of a run that its map does not have yet, and keep the larger map.

    Parameters
    ----------
    run : RunFolder
    monitor : Monitor, optional
        Receives progress and can cancel.
    block_bytes : int
        How much of the scores is read at a time.

    Returns
    -------
    StoredMap
        With a row for every item of the run. Items without a dissimilarity to any item that the map was made from
        have no place.

    Raises
    ------
    ConfigError
        If the run has no map or is not finished, or a score of a new item cannot become a dissimilarity.
    StoreError
        If the folder is locked or cannot be written.

    Notes
    -----
    Reads the scores of new items with fitted ones, in blocks; needs memory of n times the dimension and a block.
    """
    monitor = as_monitor(monitor)
    with FolderLock(run.path) as held:
        now = _in_order_of_slots(open_version(run.path))
        old = map_of(now)
        if old is None:
            raise ConfigError(f"{run.path} keeps no map; `tartan embed {run.path}` makes one")
        left = now.n_left
        if left:
            raise ConfigError(
                f"{run.path} is not finished, {left:,} pairs are to be computed; `tartan resume {run.path}` does that, "
                f"then `tartan embed {shlex.quote(str(run.path))} --extend --overwrite` places the new items"
            )
        if len(old) == now.manifest.n_items:
            return map_of(open_version(run.path)) or old
        matrix = grown(now, old.n_fitted, **old.recipe["matrix"])
        points, stress = [old.points], [old.stress]
        for start, placed, stresses in _Placing(old, matrix).blocks(monitor, block_bytes):
            held.renew()
            monitor.report("place", items=start, of=now.manifest.n_items)
            points.append(placed)
            stress.append(stresses)
        made = replace(old, points=np.concatenate(points), stress=np.concatenate(stress))
        write_map(run.path, _with_rows_of_slots(now, made), FileWriter(run.path))
        return map_of(open_version(run.path)) or made


def _in_order_of_slots(run: RunFolder) -> RunFolder:
    """Return a run with its items in the order in which they came: those that replace others are the last then."""
    if run.version is None or run.version.ascends:
        return run
    return VersionFolder(run.stored, replace(run.version, slots=np.sort(run.version.slots)))


def _with_rows_of_slots(now: RunFolder, made: StoredMap) -> StoredMap:
    """Return a map as it is stored, with a row for each slot; what is no longer an item keeps its place."""
    before, n_slots = map_of(now.stored), now.stored.manifest.n_items
    if now.slots is None or before is None:
        return made
    points, stress = (_in_slots(part, now.slots, n_slots) for part in (made.points, made.stress))
    points[: len(before)], stress[: len(before)] = before.points, before.stress
    return replace(before, points=points, stress=stress)


class _Placing:
    """New items against the items that a map was made from."""

    def __init__(self, old: StoredMap, matrix: Dissimilarities) -> None:
        self._matrix, self._first, self._n_fitted = matrix, len(old), old.n_fitted
        self._known = np.flatnonzero(np.isfinite(old.points[: old.n_fitted]).all(axis=1))
        self._points = np.ascontiguousarray(old.points[self._known])
        self._rule = Rule(**old.recipe["rule"], missing=True)
        self._interpolation = Interpolation(self._points, self._rule, old.recipe["n_neighbors"])

    def blocks(self, monitor: Monitor, block_bytes: int) -> Iterator[tuple[int, Floats, Floats]]:
        """Yield (first item, places, stress) of new items, some at a time."""
        height = max(1, block_bytes // (8 * self._n_fitted))
        for start in range(self._first, self._matrix.n, height):
            monitor.check()
            yield start, *self._place(start, min(self._matrix.n, start + height), monitor)

    def _place(self, start: int, stop: int, monitor: Monitor) -> tuple[Floats, Floats]:
        rows = self._matrix.values(slice(start, stop), slice(0, self._n_fitted))[:, self._known]
        self._refuse(rows, start)
        points = self._interpolation.place(rows, monitor)
        points[np.isnan(rows).all(axis=1)] = np.nan
        return points, row_stress(self._points, points, rows, self._rule.tiny)

    def _refuse(self, rows: Floats, start: int) -> None:
        wrong = np.isinf(rows) | (rows < 0)
        if wrong.any():
            i, j = (int(at) for at in np.argwhere(wrong)[0])
            new, old = self._matrix.name_of(start + i), self._matrix.name_of(int(self._known[j]))
            raise ConfigError(
                f"{self._matrix.label}: the dissimilarity of the new item {new} and {old} is {rows[i, j]:.9g}; it must "
                f"be finite and not negative. Make the map afresh with another --distance or --transform"
            )


@dataclass(frozen=True)
class Fit:
    """How well the items of a map fit.

    Attributes
    ----------
    n_fitted, n_placed : int
        Items that the map was made from, and items that were placed on it later.
    without_place : tuple of int
        Items without a place: they have no dissimilarity.
    stress_fitted, stress_placed : float
        Median stress of either kind; NaN where there is none.
    worst : int or None
        The placed item with the largest stress.
    poor : bool
        Whether the map should be made afresh: the placed items fit much worse than the others, or are many.
    """

    n_fitted: int
    n_placed: int
    without_place: tuple[int, ...]
    stress_fitted: float
    stress_placed: float
    worst: int | None
    poor: bool


def fit_of(made: StoredMap) -> Fit:
    """Return how well the items fit on a map, the placed ones against those it was made from."""
    has = np.isfinite(made.points).all(axis=1)
    placed_later = np.flatnonzero(~made.is_fitted)
    placed_later = placed_later[~np.isin(placed_later, made.waiting)]
    old, new = made.stress[made.is_fitted], made.stress[placed_later]
    fitted, placed = _median(old), _median(new)
    known = np.flatnonzero(np.isfinite(new))
    placeless = np.setdiff1d(np.flatnonzero(~has), made.waiting)  # those that wait are to be placed
    bad = placed > _POOR_STRESS and placed > _POOR_FACTOR * fitted
    return Fit(
        n_fitted=made.n_fitted,
        n_placed=len(new),
        without_place=tuple(placeless.tolist()),
        stress_fitted=fitted,
        stress_placed=placed,
        worst=int(placed_later[known[new[known].argmax()]]) if len(known) else None,
        poor=bool(bad or len(new) > _MANY_PLACED * made.n_fitted),
    )


def _median(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
