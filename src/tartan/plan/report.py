"""Report predictions of described runs, beside published figures where there are any.

Pure: descriptions in, numbers and text out. ``tartan.plan`` reads descriptions from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from tartan.base.format import format_memory
from tartan.core.memory import MemoryNeed, need_of_plan
from tartan.core.pairs.workload import AllPairs, Rectangle, Workload
from tartan.core.replay.node import Machine, ReplayResult, WorkloadCosts, replay
from tartan.plan.blocks import COLUMNS as BLOCK_COLUMNS
from tartan.plan.blocks import BlockPlan, BlockRow, block_cells
from tartan.plan.cluster import (
    COLUMNS,
    ClusterPlan,
    ClusterRow,
    ClusterVariant,
    clock,
    cluster_cells,
    predict_cluster,
    throughput_lines,
)
from tartan.plan.sorting import COLUMNS as SORT_COLUMNS
from tartan.plan.sorting import NodeSortPlan, SortRow, sort_cells
from tartan.plan.triples import TRIPLE_COLUMNS, TriplePlan, TripleRow, triple_cells, triple_title

#: Order and disk level of the four replays of a plan.
VARIANTS = (("panel", False), ("panel", True), ("quadrant", False), ("quadrant", True))

RESOURCES = ("read", "parse", "upload", "compute", "download", "disk")


@dataclass(frozen=True)
class PublishedCache:
    """Published figures for another size of the cache."""

    slots: int
    load_factor: float | None = None
    system_efficiency: float | None = None


@dataclass(frozen=True)
class Published:
    """Published figures for the same workload and machine; None where there is none."""

    source: str
    load_factor: float | None = None
    system_efficiency: float | None = None
    seconds: float | None = None
    caches: tuple[PublishedCache, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A described run.

    Attributes
    ----------
    name : str
    costs : WorkloadCosts
    machine : Machine
    n_left : int or None
        Items of A in A x B; None for all pairs.
    diagonal : bool
        Whether each item is compared with itself.
    published : Published or None
    cluster : ClusterPlan or None
        Several nodes; ``machine`` is one of them.
    """

    name: str
    costs: WorkloadCosts
    machine: Machine
    n_left: int | None = None
    diagonal: bool = False
    published: Published | None = None
    cluster: ClusterPlan | None = None

    @property
    def need(self) -> MemoryNeed:
        """What one node needs at most, as far as a description says it."""
        machine = self.machine
        return need_of_plan(self.costs.n_items, machine.host_slots, self.costs.item_bytes, machine.cpu_workers)

    @property
    def workload(self) -> Workload:
        if self.n_left is not None:
            return Rectangle(self.n_left, self.costs.n_items)
        return AllPairs(self.costs.n_items, self.diagonal)


@dataclass(frozen=True, kw_only=True)
class Prediction(ReplayResult):
    """Result of the replay of one plan in one variant, without the sequence of its loads.

    Attributes
    ----------
    busy : dict of str to float
        Share of the time in which a resource works, over all its servers, 0 to 1.
    """

    name: str
    order: str
    disk_level: bool
    busy: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        about = asdict(self)
        del about["busy_seconds"], about["load_sequence"]
        return about


def predict(plan: Plan, order: str, disk_level: bool, seed: int = 0) -> Prediction:
    """Replay a plan.

    Parameters
    ----------
    plan : Plan
    order : {"panel", "quadrant"}
    disk_level : bool
        Whether preprocessed items are kept on a local disk.
    seed : int
        For the stage times that have a spread.
    """
    machine = replace(plan.machine, disk_level=disk_level)
    result = replay(plan.costs, machine, workload=plan.workload, order=order, seed=seed)
    return as_prediction(result, machine, plan.name, order)


def as_prediction(result: ReplayResult, machine: Machine, name: str, order: str) -> Prediction:
    """Return the result of a replay with the shares of the time in which resources work."""
    devices = range(len(machine.device_slots))
    compute = sum(map(machine.servers, devices))
    servers = {"parse": machine.cpu_workers, "upload": len(devices), "compute": compute, "download": len(devices)}
    busy = {name: result.busy_seconds[name] / servers.get(name, 1) / result.seconds for name in RESOURCES}
    found = {**vars(result), "load_sequence": ()}
    return Prediction(**found, name=name, order=order, disk_level=machine.disk_level, busy=busy)


def predict_nodes(plan: Plan, variant: ClusterVariant, fail: int = 0) -> ClusterRow:
    """Replay a plan on several nodes, of which some are lost."""
    assert plan.cluster is not None
    return predict_cluster(plan.name, plan.costs, plan.machine, plan.workload, plan.cluster, variant, fail)


@dataclass(frozen=True)
class PlanReport:
    """Plans, and what was predicted for one node and for several, in the order of the plans."""

    plans: Sequence[Plan | BlockPlan | TriplePlan | NodeSortPlan]
    predictions: Sequence[Prediction]
    rows: Sequence[ClusterRow | BlockRow | TripleRow | SortRow] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: one entry a plan, with its predictions and the published figures."""
        return {"plans": [self._entry(plan) for plan in self.plans]}

    def as_text(self) -> str:
        """Return one table for each plan."""
        return "\n\n".join(self._text(plan) for plan in self.plans)

    def _text(self, plan: Plan | BlockPlan | TriplePlan | NodeSortPlan) -> str:
        if isinstance(plan, BlockPlan):
            return _block_table(plan, self._block_rows(plan))
        if isinstance(plan, TriplePlan):
            rows = self._triple_rows(plan)
            return "\n  ".join([triple_title(plan, rows), *_lines([list(TRIPLE_COLUMNS), *triple_cells(rows)])])
        if isinstance(plan, NodeSortPlan):
            title = f"{plan.name}: {plan.n_bytes / 1e9:,.1f} GB in records of {plan.record_bytes} bytes"
            return "\n  ".join([title, *_lines([list(SORT_COLUMNS), *sort_cells(self._sort_rows(plan), plan)])])
        if plan.cluster is None:
            return _table(plan, self._of(plan))
        return _cluster_table(plan, plan.cluster, self._rows(plan))

    def _of(self, plan: Plan) -> list[Prediction]:
        return [prediction for prediction in self.predictions if prediction.name == plan.name]

    def _rows(self, plan: Plan) -> list[ClusterRow]:
        return [row for row in self.rows if isinstance(row, ClusterRow) and row.name == plan.name]

    def _block_rows(self, plan: BlockPlan) -> list[BlockRow]:
        return [row for row in self.rows if isinstance(row, BlockRow) and row.name == plan.name]

    def _triple_rows(self, plan: TriplePlan) -> list[TripleRow]:
        return [row for row in self.rows if isinstance(row, TripleRow) and row.name == plan.name]

    def _sort_rows(self, plan: NodeSortPlan) -> list[SortRow]:
        return [row for row in self.rows if isinstance(row, SortRow) and row.name == plan.name]

    def _entry(self, plan: Plan | BlockPlan | TriplePlan | NodeSortPlan) -> dict[str, Any]:
        if isinstance(plan, BlockPlan):
            rows = [row.as_dict() for row in self._block_rows(plan)]
            return {"name": plan.name, "blocks": asdict(plan), "predictions": rows}
        if isinstance(plan, NodeSortPlan):
            return {
                "name": plan.name,
                "sort": asdict(plan),
                "predictions": [r.as_dict() for r in self._sort_rows(plan)],
            }
        if isinstance(plan, TriplePlan):
            found = [row.as_dict() for row in self._triple_rows(plan)]
            sizes = {"n_items": plan.costs.n_items, "host_slots": plan.machine.host_slots}
            return {"name": plan.name, **sizes, "arity": 3, "predictions": found}
        return {
            "name": plan.name,
            "n_items": plan.costs.n_items,
            "n_pairs": plan.workload.n_pairs,
            "host_slots": plan.machine.host_slots,
            "device_slots": list(plan.machine.device_slots),
            "memory_need": plan.need.as_dict(),
            "published": asdict(plan.published) if plan.published else None,
            "predictions": [found.as_dict() for found in self._of(plan)] + [row.as_dict() for row in self._rows(plan)],
            **({"cluster": asdict(plan.cluster)} if plan.cluster else {}),
        }


_COLUMNS = ("order", "disk level", "R", "R_min", "R/R_min", "time", "model", "efficiency")


def _table(plan: Plan, predictions: Sequence[Prediction]) -> str:
    rows = [[*_COLUMNS, *RESOURCES], *(_row(prediction) for prediction in predictions)]
    if plan.published is not None:
        rows.append(_format_published_row(plan.published))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(_align(row, widths)).rstrip() for row in rows]
    return "\n".join([_title(plan), *(f"  {line}" for line in lines)])


def _cluster_table(plan: Plan, cluster: ClusterPlan, found: Sequence[ClusterRow]) -> str:
    lines = _lines([list(COLUMNS), *cluster_cells(found, cluster)])
    return "\n".join([_title(plan), *(f"  {line}" for line in (*lines, *throughput_lines(found, cluster)))])


def _block_table(plan: BlockPlan, found: Sequence[BlockRow]) -> str:
    names = [f"{one.name} of {one.blocks[0]:,} x {one.blocks[1]:,} blocks" for one in plan.computations]
    return "\n  ".join([f"{plan.name}: {', '.join(names)}", *_lines([list(BLOCK_COLUMNS), *block_cells(found, plan)])])


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of a table under its head; columns without a figure are left out."""
    columns = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in columns]
    return ["  ".join(row[k].rjust(w) for k, w in zip(columns, widths, strict=True)).rstrip() for row in rows]


def _align(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _title(plan: Plan) -> str:
    machine = plan.machine
    devices = ", ".join(_device(slots, len(list(same))) for slots, same in groupby(machine.device_slots))
    return (
        f"{plan.name}: {plan.costs.n_items:,} items, {plan.workload.n_pairs:,} pairs; "
        f"{_number(machine.cpu_workers, 'CPU worker')}, {_number(machine.host_slots, 'host slot')}, {devices}; "
        f"{'each node ' if plan.cluster else ''}{format_memory(plan.need.total_bytes, plan.need.parts)}"
    )


def _device(slots: int | None, count: int) -> str:
    place = "in host memory" if slots is None else f"of {_number(slots, 'slot')}"
    return f"{_number(count, 'device')} {place}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _row(p: Prediction) -> list[str]:
    return [
        p.order,
        "yes" if p.disk_level else "no",
        f"{p.load_factor:.2f}",
        f"{p.load_factor_bound:.2f}",
        f"{p.load_factor / p.load_factor_bound:.2f}",
        clock(p.seconds),
        clock(p.modelled_seconds),
        f"{p.system_efficiency:.1%}",
        *(f"{p.busy[name]:.0%}" for name in RESOURCES),
    ]


def _format_published_row(published: Published) -> list[str]:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    seconds = "" if published.seconds is None else clock(published.seconds)
    known = [text(published.load_factor, ".2f"), "", "", seconds, "", text(published.system_efficiency, ".1%")]
    return [published.source, "", *known, *[""] * len(RESOURCES)]
