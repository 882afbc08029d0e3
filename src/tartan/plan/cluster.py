"""Predict runs on several nodes: the coordinator, the division and the homes of a real run, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isqrt
from typing import Any

import numpy as np

from tartan.core.pairs.grid import Grid
from tartan.core.pairs.workload import Workload
from tartan.core.ranks.division import chunk_pairs
from tartan.core.replay.cluster import ClusterReplay
from tartan.core.replay.described import ClusterNetwork, ClusterOptions, ClusterPrediction, ReplayedRank
from tartan.core.replay.model import system_efficiency
from tartan.core.replay.node import Machine, WorkloadCosts

#: Chunks along a side of the replay, at least; and chunks for each node.
#: LINES and CHUNKS_A_NODE, by judgement: 115,000 chunks are replayed in a second or two, and 256 a node end within 1 %
#: of each other. `tartan bench cluster_plan`: a million items take 14 s.
LINES = 480
# By judgement, see LINES.
CHUNKS_A_NODE = 256
# By judgement: columns of a chart.
THROUGHPUT_PARTS = 20
#: Nodes whose throughput is printed.
#: By judgement: lines of a table.
MOST_LINES = 8


@dataclass(frozen=True)
class PublishedCluster:
    """Published figures for a number of nodes; None where there is none."""

    nodes: int
    homes: bool = True
    hops: int = 0
    load_factor: float | None = None
    system_efficiency: float | None = None
    seconds: float | None = None
    storage_bytes_per_second: float | None = None
    hop_shares: tuple[str, ...] = ()


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
        Whether to predict it, too, for nodes that do not send items to each other: each has a cache of its own, from
        which what was used longest ago goes.
    hops : int
        If not 0, predict it, too, with the directory of the Rocket paper in place of homes, with this number of hops.
    each_alone : bool
        Whether to predict each of the unlike nodes alone, too.
    published : tuple of PublishedCluster
    """

    nodes: tuple[int, ...]
    speeds: tuple[float, ...] = (1.0,)
    link_bytes_per_second: float = float("inf")
    latency_seconds: float = 1e-4
    without_homes: bool = False
    hops: int = 0
    each_alone: bool = False
    published: tuple[PublishedCluster, ...] = ()


@dataclass(frozen=True)
class ClusterVariant:
    """What is predicted of a plan of several nodes: one line.

    Attributes
    ----------
    nodes : int
    homes : bool
        Whether nodes send items to each other.
    hops : int
        By the paper's directory, with this number of hops, in place of homes.
    alone : int
        Only this one of the unlike nodes, counted from 1; 0: the first ``nodes``.
    """

    nodes: int
    homes: bool = True
    hops: int = 0
    alone: int = 0


def variants(cluster: ClusterPlan) -> list[ClusterVariant]:
    """Return what is predicted of a plan."""
    found = [ClusterVariant(1, alone=k + 1) for k in range(len(cluster.speeds) if cluster.each_alone else 0)]
    found += [ClusterVariant(nodes) for nodes in cluster.nodes]
    if cluster.hops:
        found += [ClusterVariant(nodes, hops=cluster.hops) for nodes in cluster.nodes if nodes > 1]
    if cluster.without_homes:
        found += [ClusterVariant(nodes, homes=False) for nodes in cluster.nodes]
    return found


@dataclass(frozen=True)
class ClusterRow:
    """The prediction for one number of nodes.

    Attributes
    ----------
    idle_share : float
        Of the time, that the node which ended first had nothing left to compute.
    pairs_per_second : float
    hops : int
        Of the paper's directory; 0 for homes, and for none.
    hop_shares : tuple of float
        Of the requests: those answered at each hop, and those that were not.
    alone : int
        Which of the unlike nodes this is, alone, counted from 1; 0 where all are together.
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
    pairs_per_second: float = 0.0
    hops: int = 0
    hop_shares: tuple[float, ...] = ()
    alone: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def predict_cluster(
    name: str,
    costs: WorkloadCosts,
    machine: Machine,
    workload: Workload,
    cluster: ClusterPlan,
    variant: ClusterVariant,
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
    variant : ClusterVariant
    fail : int
        Nodes that are lost on the way, in equal intervals; one always stays.
    """
    nodes = variant.nodes
    first = max(0, variant.alone - 1)
    speeds = [cluster.speeds[(first + k) % len(cluster.speeds)] for k in range(nodes)]
    chunk = max(1, workload.n_items // max(LINES, isqrt(2 * CHUNKS_A_NODE * nodes)))
    pairs = chunk_pairs(Grid(workload.n_items, chunk, 0, chunk, chunk), workload)
    ranks = [_node(costs, machine, speed) for speed in speeds]
    options = _options(variant, workload.n_pairs / sum(rank.speed for rank in ranks), min(fail, nodes - 1))
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
        homes=variant.homes,
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
        pairs_per_second=workload.n_pairs / found.seconds,
        hops=variant.hops,
        hop_shares=found.hops,
        alone=variant.alone,
    )


def _options(variant: ClusterVariant, seconds: float, fail: int) -> ClusterOptions:
    """Return how a replay goes that takes so many seconds at the best, and loses so many nodes."""
    nodes = variant.nodes
    return ClusterOptions(
        homes=variant.homes and nodes > 1,
        hops=variant.hops if nodes > 1 else 0,
        losses=tuple((seconds * (k + 1) / (fail + 1), k * nodes // fail) for k in range(fail)),
        ahead_seconds=max(0.01, min(2.0, seconds / 200)),
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
    "nodes", "homes", "R", "R_min", "F", "F_min", "time", "pairs/s", "speedup", "efficiency", "idle", "steals", "lost",
    "from storage", "between nodes", "hits by hop, misses", "published R", "efficiency", "time", "from storage",
    "hits by hop, misses",
)  # fmt: skip


def cluster_cells(rows: Sequence[ClusterRow], cluster: ClusterPlan) -> list[list[str]]:
    """Return the cells of a table: one line a prediction, with published figures beside it.

    The speedup is that over the first line of the same kind, times its number of nodes; of unlike nodes that were
    predicted alone, too, that over the sum of what they compute alone, times their number.
    """
    alone = [row.pairs_per_second for row in rows if row.alone]
    first: dict[tuple[bool, int], ClusterRow] = {}
    cells = []
    for row in rows:
        base = row if row.alone else first.setdefault((row.homes, row.hops), row)
        if row.hops and row is base:  # the first line with hops is that of one node
            base = first.get((True, 0), row)
        speedup = base.seconds / row.seconds * base.nodes
        if alone and not row.alone:
            speedup = row.pairs_per_second / sum(alone[: row.nodes]) * row.nodes
        cells.append([*_figures(row, speedup), *_format_published(_find_known(row, cluster))])
    return cells


def _figures(row: ClusterRow, speedup: float) -> list[str]:
    return [
        f"only {row.alone}" if row.alone else str(row.nodes),
        f"{row.hops} hops" if row.hops else "yes" if row.homes else "no",
        f"{row.storage_load_factor:.2f}",
        f"{row.storage_load_factor_bound:.2f}",
        f"{row.load_factor:.2f}",
        f"{row.load_factor_bound:.2f}",
        clock(row.seconds),
        f"{row.pairs_per_second:,.1f}",
        f"{speedup:.1f}",
        f"{row.system_efficiency:.1%}",
        f"{row.idle_share:.1%}",
        str(row.steals),
        str(row.ranks_lost),
        f"{row.storage_bytes_per_second / 1e6:.1f} MB/s",
        f"{row.bytes_between_ranks_per_second / 1e6:.0f} MB/s",
        " ".join(f"{share:.0%}" for share in row.hop_shares),
    ]


def _find_known(row: ClusterRow, cluster: ClusterPlan) -> PublishedCluster | None:
    kind = (row.nodes, row.homes, row.hops)
    return next((p for p in cluster.published if not row.alone and (p.nodes, p.homes, p.hops) == kind), None)


def _format_published(known: PublishedCluster | None) -> list[str]:
    if known is None:
        return [""] * 5
    efficiency, seconds, rate = known.system_efficiency, known.seconds, known.storage_bytes_per_second
    return [
        "" if known.load_factor is None else f"{known.load_factor:.1f}",
        "" if efficiency is None else f"{efficiency:.1%}",
        "" if seconds is None else clock(seconds),
        "" if rate is None else f"{rate / 1e6:.1f} MB/s",
        " ".join(known.hop_shares),
    ]


def throughput_lines(rows: Sequence[ClusterRow], cluster: ClusterPlan) -> list[str]:
    """Return pairs a second of every one of unlike nodes in equal parts of the time, a line a node."""
    lines = []
    for row in rows:
        if row.alone or row.hops or not row.homes or len(set(cluster.speeds)) == 1 or row.nodes > MOST_LINES:
            continue
        lines.append(f"pairs/s of each node in {THROUGHPUT_PARTS} equal parts of {clock(row.seconds)}:")
        for node, rates in enumerate(row.throughput):
            lines.append(f"  {node + 1}  " + " ".join(f"{rate:7,.2f}" for rate in rates))
    return lines


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds, or in seconds where it is short."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if seconds >= 10 else f"{seconds:.2f} s"
