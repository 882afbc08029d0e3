"""Predict runs of triples: the loads that they make, to the last one, and the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tartan.core.pairs.planned import count_loads
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import triples_bound
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.run_sizing import RunSizing
from tartan.core.replay.node import Machine, WorkloadCosts
from tartan.plan.cluster import clock

TRIPLE_COLUMNS = ("loads", "bound", "loads/bound", "R", "least time", "tiles of at most")


@dataclass(frozen=True)
class TriplePlan:
    """A described run of triples.

    Attributes
    ----------
    name : str
    costs : WorkloadCosts
        ``compare`` is what a triple costs.
    machine : Machine
        One that compares in host memory.
    """

    name: str
    costs: WorkloadCosts
    machine: Machine


@dataclass(frozen=True, kw_only=True)
class TripleRow:
    """What was predicted.

    Attributes
    ----------
    loads : int
    loads_bound : float
        n^3 / (3 S^2), and n where everything fits.
    load_factor, load_factor_bound : float
        Per item.
    least_seconds : float
        If reading, and the work of the CPU, overlap perfectly.
    n_triples : int
    box : tuple of int
        Items of the largest tile, by its three sides.
    """

    name: str
    loads: int
    loads_bound: float
    load_factor: float
    load_factor_bound: float
    least_seconds: float
    n_triples: int
    box: tuple[int, int, int]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def predict_triples(plan: TriplePlan) -> TripleRow:
    """Count the loads of a run of triples."""
    costs, machine, n = plan.costs, plan.machine, plan.costs.n_items
    sizing = RunSizing(machine.host_slots)
    grid, workload = sizing.triple_grid(n, costs.compare.mean), AllPairs(n)
    setup = NodePlan(grid, workload, sizing.layout(grid, workload), n_workers=machine.cpu_workers)
    loads, bound = count_loads(setup), triples_bound(n, min(machine.host_slots, n))
    work = loads * (costs.parse.mean + costs.preprocess.mean) + grid.n_triples * costs.compare.mean
    return TripleRow(
        name=plan.name,
        loads=loads,
        loads_bound=bound,
        load_factor=loads / n,
        load_factor_bound=bound / n,
        least_seconds=max(work / machine.cpu_workers, loads * costs.file_bytes / machine.storage_bytes_per_second),
        n_triples=grid.n_triples,
        box=(grid.longest_strip, grid.longest_strip, grid.longest_span),
    )


def triple_title(plan: TriplePlan, found: Sequence[TripleRow]) -> str:
    """Say what a plan describes."""
    machine, n_triples = plan.machine, found[0].n_triples
    workers = "1 CPU worker" if machine.cpu_workers == 1 else f"{machine.cpu_workers:,} CPU workers"
    what = f"{plan.costs.n_items:,} items, {n_triples:,} triples"
    return f"{plan.name}: {what}; {workers}, {machine.host_slots:,} host slots"


def triple_cells(found: Sequence[TripleRow]) -> list[list[str]]:
    """Return the cells of a table, a row a prediction."""
    return [
        [
            f"{row.loads:,}",
            f"{row.loads_bound:,.0f}",
            f"{row.loads / row.loads_bound:.2f}",
            f"{row.load_factor:.2f}",
            clock(row.least_seconds),
            "{} x {} x {}".format(*row.box),
        ]
        for row in found
    ]
