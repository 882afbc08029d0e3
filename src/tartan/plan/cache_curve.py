"""Efficiency against cache size: one plan or one finished run, replayed with smaller and larger caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tartan.errors import ConfigError
from tartan.options import Size
from tartan.plan.from_run import MeasuredRun, OtherRun
from tartan.plan.report import Plan, Prediction, predict
from tartan.plan.run_report import table
from tartan.plan.side_by_side import PredictionCall, predict_all

# POINTS, LEAST_SHARE and LEAST_SLOTS, by judgement: a curve of six points from a fiftieth on. A look.
POINTS = 6
# By judgement, see POINTS.
LEAST_SHARE = 0.02
# By judgement, see POINTS.
LEAST_SLOTS = 4


@dataclass(frozen=True)
class CachePoint:
    """A cache size and what it gives.

    Attributes
    ----------
    slots : int
        Of the host; a device has as many, at most its own.
    share : float
        Of the items that they hold, 0 to 1.
    load_factor, system_efficiency : float or None
        None where that was not published.
    """

    slots: int
    share: float
    load_factor: float | None
    system_efficiency: float | None


@dataclass(frozen=True)
class CacheCurve:
    """Predictions by cache size, beside published or measured ones."""

    name: str
    item_bytes: float
    points: Sequence[CachePoint]
    known: Sequence[CachePoint] = ()
    known_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def as_text(self) -> str:
        """Return a table, one line a cache size."""
        rows = [["cache", "of the items", "bytes", "R", "efficiency", ""]]
        lines = [*((point, "") for point in self.points), *((point, self.known_by) for point in self.known)]
        rows += [self._row(point, source) for point, source in sorted(lines, key=lambda line: line[0].slots)]
        return table(f"{self.name}: efficiency by cache size", rows)

    def _row(self, point: CachePoint, source: str) -> list[str]:
        factor = "" if point.load_factor is None else f"{point.load_factor:.2f}"
        efficiency = "" if point.system_efficiency is None else f"{point.system_efficiency:.1%}"
        return [
            f"{point.slots:,} items",
            f"{point.share:.1%}",
            f"{point.slots * self.item_bytes / 1e9:,.3g} GB" if self.item_bytes else "",
            factor,
            efficiency,
            source,
        ]


def cache_sizes(n_items: int) -> list[int]:
    """Return host slots from a fiftieth of the items to all of them, in equal ratios."""
    least = min(n_items, max(LEAST_SLOTS, round(LEAST_SHARE * n_items)))
    return sorted({round(slots) for slots in np.geomspace(least, n_items, POINTS).tolist()})


def cache_curves(sources: Sequence[Plan | MeasuredRun], *, processes: int) -> list[CacheCurve]:
    """Replay each plan or run with caches of all sizes; with one process, in this one.

    Raises
    ------
    ConfigError
        If a plan is of several nodes.
    """
    sizes = [cache_sizes(_n_items(source)) for source in sources]
    tasks = [_task(source, slots) for source, its in zip(sources, sizes) for slots in its]
    found = iter([task() for task in tasks] if processes == 1 else predict_all(tasks, processes))
    curves = []
    for source, its in zip(sources, sizes):
        predictions = [next(found) for _ in its]
        points = [_compute_point(one, slots) for one, slots in zip(predictions, its) if isinstance(one, Prediction)]
        curves.append(_curve(source, points))
    return curves


def _n_items(source: Plan | MeasuredRun) -> int:
    if isinstance(source, Plan) and source.cluster is not None:
        raise ConfigError(
            f"{source.name} has several nodes; --chart is for plans of one", context={"option": "--chart"}
        )
    return source.workload.n_items


def _task(source: Plan | MeasuredRun, slots: int) -> PredictionCall:
    if isinstance(source, MeasuredRun):
        own = [room for room in source.sizing.device_items if room is not None]
        device = Size(max(2, min([slots, *own])), in_items=True) if own else None
        return partial(source.predict, OtherRun(host_cache=Size(slots, in_items=True), device_cache=device))
    machine = source.machine
    devices = tuple(None if room is None else min(room, slots) for room in machine.device_slots)
    return partial(predict, replace(source, machine=replace(machine, host_slots=slots, device_slots=devices)),
                   "panel", False)  # fmt: skip


def _compute_point(found: Prediction, slots: int) -> CachePoint:
    return CachePoint(slots, slots / found.n_items, found.load_factor, found.system_efficiency)


def _curve(source: Plan | MeasuredRun, points: Sequence[CachePoint]) -> CacheCurve:
    if isinstance(source, MeasuredRun):
        measured, n = source.measured(), source.workload.n_items
        slots = source.sizing.host_slots(n)
        there = CachePoint(slots, slots / n, measured["load_factor"], measured["system_efficiency"])
        return CacheCurve(source.name, source.item_bytes, points, [there], "measured")
    n, published = source.costs.n_items, source.published
    known = []
    if published is not None:
        slots = min(n, source.machine.host_slots)
        known = [CachePoint(slots, slots / n, published.load_factor, published.system_efficiency)]
        known += [CachePoint(one.slots, one.slots / n, one.load_factor, one.system_efficiency)
                  for one in published.caches]  # fmt: skip
    return CacheCurve(source.name, source.costs.item_bytes, points, known, published.source if published else "")
