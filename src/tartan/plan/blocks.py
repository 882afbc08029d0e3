"""Predict block tasks on several nodes: the division, the order and the stealing of a real run, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from tartan.core.affinity import Steal
from tartan.core.blocks.assignment import Affinity
from tartan.core.blocks.bounds import halo_bound, product_bound
from tartan.core.blocks.placement import Place
from tartan.core.blocks.shares_of_grid import whole_shares
from tartan.core.blocks.workloads import BlockWorkload, lu_of_blocks, product_of_blocks, stencil_of_blocks
from tartan.core.replay.blocks import BlockNetwork, BlockOptions, BlockRank, BlockReplay
from tartan.plan.cluster import clock

Kind = Literal["product", "lu", "stencil"]

#: Rows of blocks from which the units of a product are whole lines.
#: By judgement: 4,096 blocks of each operand would be as many units a subtask; replays are of whole lines then. `tartan
#: bench blocks_plan`.
MANY_BLOCKS = 64


@dataclass(frozen=True)
class Computation:
    """A sequence of block tasks.

    Attributes
    ----------
    name : str
    kind : {"product", "lu", "stencil"}
    blocks : tuple of int
        Rows and columns of blocks; of a product and of LU these are equal.
    side : int
        Rows and columns of a block.
    item_bytes : float
        Of one element.
    halo, repeats : int
        Of stencils: rows and columns that a block needs beyond each of its sides; tasks, one after the other.
    operations : float
        Of stencils: for one element.
    placements : tuple of str
        Those that are compared, if not those of the plan.
    """

    name: str
    kind: Kind
    blocks: tuple[int, int]
    side: int
    item_bytes: float = 4.0
    halo: int = 1
    repeats: int = 1
    operations: float = 1.0
    placements: tuple[Place, ...] = ()

    def workload(self) -> BlockWorkload:
        """Return its tasks."""
        if self.kind == "stencil":
            return stencil_of_blocks(self.blocks, self.side, self.halo, self.repeats, self.item_bytes, self.operations)
        if self.kind == "lu":
            return lu_of_blocks(self.blocks[0], self.side, self.item_bytes)
        return product_of_blocks(self.blocks[0], self.side, self.item_bytes, lines=self.blocks[0] >= MANY_BLOCKS)

    def bound(self, nodes: int, placement: Place, seed: int = 0) -> float | None:
        """Return the bytes that no division, or no division into fixed shares, can go below; None where none is known.

        Of a product, the two-dimensional bound for its placement; of stencils, the halos of near-square shares that
        lie where they are computed.
        """
        if self.kind == "stencil":
            lengths = [[self.side] * count for count in self.blocks]
            return self.repeats * self.item_bytes * halo_bound(lengths, (self.halo, self.halo), nodes)
        if self.kind == "lu":
            return None
        n = self.blocks[0]
        workload = product_of_blocks(n, self.side, self.item_bytes, lines=True)
        held = workload.count_held(placement, nodes, seed)
        counts = whole_shares(np.full(nodes, n * n / nodes))
        return product_bound(held[:, :n], held[:, n:], float(workload.sizes[0]), counts)


@dataclass(frozen=True)
class PublishedBlocks:
    """Published figures for one variant; None where there is none.

    Attributes
    ----------
    moved_bytes : float or None
    moved_share, time_share : float or None
        Of those of pieces dealt at random.
    slower : float or None
        Time over that with all pieces evaluated, less 1.
    """

    computation: str
    nodes: int
    affinity: Affinity
    placement: Place = "random"
    evaluate: float = 1.0
    moved_bytes: float | None = None
    moved_share: float | None = None
    time_share: float | None = None
    slower: float | None = None


@dataclass(frozen=True)
class BlockPlan:
    """Block tasks on several nodes, as a file describes them.

    Attributes
    ----------
    name : str
    computations : tuple of Computation
    nodes : tuple of int
        Numbers of nodes to be predicted, with the first placement.
    affinities, placements : tuple of str
    compare_at : int
        Nodes for which placements and evaluated shares are compared.
    evaluate : tuple of float
        Shares of the pieces that are evaluated, besides 1.
    evaluate_with : tuple of str
        The affinities for which they are compared.
    operations_per_second : float
        Of one node, over all its lanes.
    lanes : int
        Pieces that a node computes at a time.
    link_bytes_per_second, storage_bytes_per_second, latency_seconds : float
    steal : {"difference", "plain"}
    published : tuple of PublishedBlocks
    """

    name: str
    computations: tuple[Computation, ...]
    nodes: tuple[int, ...]
    affinities: tuple[Affinity, ...] = ("none", "auto")
    placements: tuple[Place, ...] = ("random",)
    compare_at: int = 0
    evaluate: tuple[float, ...] = ()
    evaluate_with: tuple[Affinity, ...] = ("local", "auto")
    operations_per_second: float = 1e12
    lanes: int = 1
    link_bytes_per_second: float = float("inf")
    storage_bytes_per_second: float = float("inf")
    latency_seconds: float = 1e-4
    steal: Steal = "difference"
    published: tuple[PublishedBlocks, ...] = ()


@dataclass(frozen=True)
class BlockVariant:
    """What is predicted of a plan of block tasks: one line."""

    computation: str
    nodes: int
    placement: Place
    affinity: Affinity
    evaluate: float = 1.0


@dataclass(frozen=True)
class BlockRow:
    """One prediction.

    Attributes
    ----------
    bytes_moved : float
        Between nodes, every received copy counted.
    bytes_bound : float or None
        See ``Computation.bound``.
    waited_seconds : float
        During which a node had pieces to compute, but not their data; mean over nodes.
    steals, nodes_lost, recomputed : int
        Pieces stolen; nodes lost; pieces computed again because a lost node alone held what they wrote.
    """

    name: str
    computation: str
    nodes: int
    affinity: Affinity
    placement: Place
    evaluate: float
    seconds: float
    bytes_moved: float
    bytes_bound: float | None
    bytes_from_storage: float
    waited_seconds: float
    steals: int
    nodes_lost: int
    recomputed: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def variant(self) -> BlockVariant:
        """What was predicted."""
        return BlockVariant(self.computation, self.nodes, self.placement, self.affinity, self.evaluate)


def block_variants(plan: BlockPlan) -> list[BlockVariant]:
    """Return what is predicted: every affinity by nodes, then by placement, then for parts of the pieces evaluated."""
    found = []
    for one in plan.computations:
        usual, *others = one.placements or plan.placements
        compared = [(plan.compare_at, placement) for placement in others if plan.compare_at]
        places = [*((nodes, usual) for nodes in plan.nodes), *compared]
        found += [BlockVariant(one.name, *place, affinity) for place in places for affinity in plan.affinities]
        parts = [(affinity, share) for affinity in plan.evaluate_with for share in plan.evaluate if plan.compare_at]
        found += [BlockVariant(one.name, plan.compare_at, usual, *part) for part in parts]
    return found


def predict_blocks(plan: BlockPlan, variant: BlockVariant, fail: int = 0) -> BlockRow:
    """Replay one variant; ``fail`` nodes are lost on the way, in equal intervals, one always stays."""
    computation = next(one for one in plan.computations if one.name == variant.computation)
    workload, nodes = computation.workload(), variant.nodes
    fail = min(fail, nodes - 1)
    work = sum(float(task.work.sum()) for task in workload.tasks()) if fail else 0.0
    ideal = work / plan.operations_per_second / nodes
    options = BlockOptions(
        affinity=variant.affinity,
        steal=plan.steal,
        evaluate=variant.evaluate,
        placement=variant.placement,
        losses=tuple((ideal * (k + 1) / (fail + 1), k * nodes // fail) for k in range(fail)),
    )
    ranks = [BlockRank(plan.operations_per_second, plan.lanes)] * nodes
    network = BlockNetwork(plan.link_bytes_per_second, plan.storage_bytes_per_second, plan.latency_seconds)
    found = BlockReplay(workload, ranks, network, options).run()
    return BlockRow(
        name=plan.name,
        **asdict(variant),
        seconds=found.seconds,
        bytes_moved=found.bytes_moved,
        bytes_bound=computation.bound(nodes, variant.placement),
        bytes_from_storage=found.bytes_from_storage,
        waited_seconds=found.waited_seconds,
        steals=found.steals,
        nodes_lost=found.lost,
        recomputed=found.recomputed,
    )


COLUMNS = (
    "computation", "nodes", "placement", "affinity", "evaluated", "moved", "of random", "of bound", "time", "of random",
    "slower", "waits", "steals", "lost", "again", "published moved", "of random", "time of random", "slower",
)  # fmt: skip


def block_cells(rows: Sequence[BlockRow], plan: BlockPlan) -> list[list[str]]:
    """Return the cells of a table: one line a prediction, with published figures beside it."""
    by_variant = {row.variant: row for row in rows}
    return [_cells(row, by_variant, plan) for row in rows]


def _cells(row: BlockRow, by_variant: dict[BlockVariant, BlockRow], plan: BlockPlan) -> list[str]:
    random = by_variant.get(replace(row.variant, affinity="none", evaluate=1.0))
    whole = by_variant.get(replace(row.variant, evaluate=1.0)) if row.evaluate < 1 else None
    return [
        row.computation,
        str(row.nodes),
        row.placement,
        row.affinity,
        f"{row.evaluate:.0%}",
        _gib(row.bytes_moved),
        _share(row.bytes_moved, random.bytes_moved if random else None),
        "" if not row.bytes_bound else f"{row.bytes_moved / row.bytes_bound:.2f}",
        clock(row.seconds),
        _share(row.seconds, random.seconds if random else None),
        "" if whole is None else f"{row.seconds / whole.seconds - 1:+.1%}",
        clock(row.waited_seconds),
        str(row.steals),
        str(row.nodes_lost) if row.nodes_lost else "",
        str(row.recomputed) if row.nodes_lost else "",
        *_format_published(row, plan),
    ]


def _format_published(row: BlockRow, plan: BlockPlan) -> list[str]:
    known = next((one for one in plan.published if _find_variant(one) == row.variant), None)
    if known is None:
        return [""] * 4
    figures = (known.moved_share, known.time_share)
    return [
        "" if known.moved_bytes is None else _gib(known.moved_bytes),
        *("" if figure is None else f"{figure:.3f}" for figure in figures),
        "" if known.slower is None else f"{known.slower:+.1%}",
    ]


def _find_variant(known: PublishedBlocks) -> BlockVariant:
    return BlockVariant(known.computation, known.nodes, known.placement, known.affinity, known.evaluate)


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:,.2f} GiB"


def _share(value: float, whole: float | None) -> str:
    return f"{value / whole:.3f}" if whole else ""
