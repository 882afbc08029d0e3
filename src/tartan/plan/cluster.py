"""Predict runs on several nodes: the coordinator, the division and the homes of a real run, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isqrt
from typing import Any

import numpy as np

from tartan.core.cluster_replay import (
    ClusterNetwork,
    ClusterOptions,
    ClusterPrediction,
    ClusterReplay,
    ReplayedRank,
)
from tartan.core.division import chunk_pairs
from tartan.core.grid import Grid
from tartan.core.model import system_efficiency
from tartan.core.replay import Machine, WorkloadCosts
from tartan.core.workload import Workload

#: Chunks along a side of the replay, at least; and chunks for each node.
LINES = 480
CHUNKS_A_NODE = 256
THROUGHPUT_PARTS = 20


@dataclass(frozen=True)
class PublishedCluster:
    """Published figures for a number of nodes; None where there is none."""

    nodes: int
    homes: bool = True
    load_factor: float | None = None
    system_efficiency: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ClusterPlan:
    """Several nodes.

    Attributes
    ----------
    nodes : tuple of int
        Numbers of nodes to be predicted.
    speeds : tuple of float
        Relative speeds of the nodes, if they are unlike; repeated where there are more nodes.
    link_bytes_per_second : float
        Of one node, each way.
    latency_seconds : float
        Of one message.
    without_homes : bool
        Whether to predict it, too, for nodes that do not send items to each other.
    published : tuple of PublishedCluster
    """

    nodes: tuple[int, ...]
    speeds: tuple[float, ...] = (1.0,)
    link_bytes_per_second: float = float("inf")
    latency_seconds: float = 1e-4
    without_homes: bool = False
    published: tuple[PublishedCluster, ...] = ()


@dataclass(frozen=True)
class ClusterRow:
    """The prediction for one number of nodes.

    Attributes
    ----------
    idle_share : float
        Of the time, that the node which ended first had nothing left to compute.
    throughput : tuple of tuple of float
        Pairs a second of every node, in equal parts of the time.
    """

    name: str
    nodes: int
    homes: bool
    seconds: float
    storage_load_factor: float
    storage_load_factor_bound: float
    load_factor: float
    load_factor_bound: float
    system_efficiency: float
    idle_share: float
    steals: int
    ranks_lost: int
    storage_bytes_per_second: float
    bytes_between_ranks_per_second: float
    throughput: tuple[tuple[float, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def predict_cluster(
    name: str,
    costs: WorkloadCosts,
    machine: Machine,
    workload: Workload,
    cluster: ClusterPlan,
    nodes: int,
    homes: bool = True,
    fail: int = 0,
) -> ClusterRow:
    """Replay a run on several nodes; its arguments are one fact of the run each.

    Parameters
    ----------
    name : str
    costs : WorkloadCosts
    machine : Machine
        One node, of relative speed 1.
    workload : Workload
    cluster : ClusterPlan
    nodes : int
    homes : bool
        Whether nodes send items to each other.
    fail : int
        Nodes that are lost on the way, in equal intervals; one always stays.
    """
    speeds = [cluster.speeds[k % len(cluster.speeds)] for k in range(nodes)]
    chunk = max(1, workload.n_items // max(LINES, isqrt(2 * CHUNKS_A_NODE * nodes)))
    pairs = chunk_pairs(Grid(workload.n_items, chunk, 0, chunk, chunk), workload)
    ranks = [_node(costs, machine, speed) for speed in speeds]
    ideal = workload.n_pairs / sum(rank.speed for rank in ranks)
    fail = min(fail, nodes - 1)
    options = ClusterOptions(
        homes=homes and nodes > 1,
        losses=tuple((ideal * (k + 1) / (fail + 1), k * nodes // fail) for k in range(fail)),
        ahead_seconds=max(0.01, min(2.0, ideal / 200)),
    )
    network = ClusterNetwork(
        costs.item_bytes,
        costs.file_bytes,
        cluster.link_bytes_per_second,
        machine.storage_bytes_per_second,
        cluster.latency_seconds,
    )
    found = ClusterReplay(pairs, chunk, workload.n_items, ranks, network, options).run()
    speed = sum(speeds) * _device_speed(machine)
    return ClusterRow(
        name=name,
        nodes=nodes,
        homes=homes,
        seconds=found.seconds,
        storage_load_factor=found.storage_load_factor,
        storage_load_factor_bound=found.storage_load_factor_bound,
        load_factor=found.load_factor,
        load_factor_bound=found.load_factor_bound,
        system_efficiency=system_efficiency(
            workload.n_items, workload.n_pairs, costs.stage_times(), found.seconds, speed
        ),
        idle_share=_idle_share(found),
        steals=found.steals,
        ranks_lost=found.lost,
        storage_bytes_per_second=found.bytes_from_storage / found.seconds,
        bytes_between_ranks_per_second=found.bytes_between_ranks / found.seconds,
        throughput=_throughput(found, nodes),
    )


def _device_speed(machine: Machine) -> float:
    return sum(machine.speed(d) * machine.servers(d) for d in range(len(machine.device_slots)))


def _node(costs: WorkloadCosts, machine: Machine, speed: float) -> ReplayedRank:
    device = _device_speed(machine) * speed
    return ReplayedRank(
        slots=min(machine.host_slots, costs.n_items),
        speed=device / costs.compare.mean,
        load_seconds=costs.parse.mean / machine.cpu_workers,
        prepare_seconds=costs.preprocess.mean / device,
    )


def _idle_share(found: ClusterPrediction) -> float:
    worked = [end for end, n_pairs in zip(found.ends, found.pairs, strict=True) if n_pairs]
    lasting = sorted(worked)[found.lost :]
    return 1 - lasting[0] / found.seconds if lasting and found.seconds else 0.0


def _throughput(found: ClusterPrediction, nodes: int) -> tuple[tuple[float, ...], ...]:
    """Return pairs a second of every node in equal parts of the time; a step counts where it ended."""
    counts = np.zeros((nodes, THROUGHPUT_PARTS))
    for rank, _, end, n_pairs in found.steps:
        counts[rank, min(int(end / found.seconds * THROUGHPUT_PARTS), THROUGHPUT_PARTS - 1)] += n_pairs
    rates = counts * THROUGHPUT_PARTS / found.seconds
    return tuple(tuple(row) for row in rates.tolist())


COLUMNS = (
    "nodes", "homes", "R", "R_min", "F", "F_min", "time", "speedup", "efficiency", "idle", "steals", "lost",
    "from storage", "between nodes", "published R", "efficiency", "time",
)  # fmt: skip


def cluster_cells(rows: Sequence[ClusterRow], cluster: ClusterPlan) -> list[list[str]]:
    """Return the cells of a table: one line a prediction, with published figures beside it.

    The speedup is that over the first line of the same kind, times its number of nodes.
    """
    first: dict[bool, ClusterRow] = {}
    cells = []
    for row in rows:
        base = first.setdefault(row.homes, row)
        known = next((p for p in cluster.published if (p.nodes, p.homes) == (row.nodes, row.homes)), None)
        cells.append(
            [
                str(row.nodes),
                "yes" if row.homes else "no",
                f"{row.storage_load_factor:.2f}",
                f"{row.storage_load_factor_bound:.2f}",
                f"{row.load_factor:.2f}",
                f"{row.load_factor_bound:.2f}",
                clock(row.seconds),
                f"{base.seconds / row.seconds * base.nodes:.1f}",
                f"{row.system_efficiency:.1%}",
                f"{row.idle_share:.1%}",
                str(row.steals),
                str(row.ranks_lost),
                f"{row.storage_bytes_per_second / 1e6:.1f} MB/s",
                f"{row.bytes_between_ranks_per_second / 1e6:.0f} MB/s",
                *_published(known),
            ]
        )
    return cells


def _published(known: PublishedCluster | None) -> list[str]:
    if known is None:
        return ["", "", ""]
    efficiency, seconds = known.system_efficiency, known.seconds
    return [
        "" if known.load_factor is None else f"{known.load_factor:.1f}",
        "" if efficiency is None else f"{efficiency:.1%}",
        "" if seconds is None else clock(seconds),
    ]


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds, or in seconds where it is short."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if seconds >= 10 else f"{seconds:.2f} s"
