"""Predict a sort on several nodes: what is kept on their disks, what crosses links, and how long it takes.

A sort reads, sorts, packs and keeps runs, then fetches, merges and writes parts. In each of the two phases all of that
goes on at a time, so that the slowest of them decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tartan.plan.cluster import clock

# By contract: PACKING_BITS of sort/plan: what bit packing costs over the entropy of the differences.
_PACKING_BITS = 2.0
# By contract: CHUNKS_IN_MEMORY of sort/ranks/memory: a share is sorted in three chunks, or more if memory asks for it.
_CHUNKS = 3
# By judgement: of the memory of a node what a chunk takes: one is read, one is sorted into another, one is written. The
# plan of a real sort, which knows the processes, says it exactly.
_CHUNK_SHARE = 0.2


@dataclass(frozen=True)
class PublishedSort:
    """Published figures for a number of nodes; None where there is none.

    Attributes
    ----------
    nodes, storage_nodes : int
    seconds : float or None
    moved_share : float or None
        Bytes over links, over those of the records.
    times_faster : float or None
        Than a sort that keeps its runs in the file system of input and output.
    """

    nodes: int
    storage_nodes: int = 0
    seconds: float | None = None
    moved_share: float | None = None
    times_faster: float | None = None


@dataclass(frozen=True)
class NodeSortPlan:
    """A sort on several nodes, as a file describes it.

    Attributes
    ----------
    name : str
    n_bytes : float
        Of all records.
    record_bytes : int
    value_bits : float or None
        Logarithm of the range of values, evenly spread; None: records that are not packed.
    nodes : tuple of int
        Numbers of nodes to be predicted.
    storage_nodes : int
        How many of them read and sort beside the data, while the others merge; 0: all do both.
    memory_bytes : float
        Of a node.
    disk_bytes_per_second : float
        Of a node's own disk, where runs are kept.
    source_bytes_per_second, target_bytes_per_second : float
        Of the file system of input and output, which all nodes share.
    link_bytes_per_second : float
        Of a node, in each direction.
    sort_bytes_per_second, merge_bytes_per_second : float
        Of the processors of a node, packing counted.
    published : tuple of PublishedSort
    """

    name: str
    n_bytes: float
    nodes: tuple[int, ...]
    memory_bytes: float
    record_bytes: int = 8
    value_bits: float | None = None
    storage_nodes: int = 0
    disk_bytes_per_second: float = math.inf
    source_bytes_per_second: float = math.inf
    target_bytes_per_second: float = math.inf
    link_bytes_per_second: float = math.inf
    sort_bytes_per_second: float = 3e8
    merge_bytes_per_second: float = 1e9
    published: tuple[PublishedSort, ...] = ()


@dataclass(frozen=True)
class SortRow:
    """One prediction.

    Attributes
    ----------
    packed : bool
    bits_per_value : float
    run_files : int
    run_bytes : float
        Kept on the disks of all nodes together.
    link_bytes, plain_link_bytes : float
        Over links, and what that would be without packing.
    sort_seconds, merge_seconds : float
        Of the two phases.
    limits : tuple of str
        What decides each.
    two_pass_seconds : float
        Of a sort that keeps its runs in the file system of input and output, as BigSort: all is read and written twice
        there, and nothing else counts.
    """

    name: str
    nodes: int
    storage_nodes: int
    packed: bool
    bits_per_value: float
    run_files: int
    run_bytes: float
    link_bytes: float
    plain_link_bytes: float
    sort_seconds: float
    merge_seconds: float
    limits: tuple[str, str]
    two_pass_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the whole sort."""
        return self.sort_seconds + self.merge_seconds

    @property
    def times_faster(self) -> float | None:
        """Than the sort of two passes; None where the file system has no limit."""
        return self.two_pass_seconds / self.seconds if self.two_pass_seconds and self.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        about = {"limits": list(self.limits), "seconds": self.seconds, "times_faster": self.times_faster}
        return {**asdict(self), **about}


def sort_variants(plan: NodeSortPlan) -> list[tuple[int, bool]]:
    """Return numbers of nodes, each with and without packing where there is any."""
    return [(nodes, packed) for nodes in plan.nodes for packed in ((True, False) if plan.value_bits else (False,))]


def predict_sort(plan: NodeSortPlan, nodes: int, packed: bool) -> SortRow:
    """Predict one variant."""
    storage = min(plan.storage_nodes, nodes - 1)
    readers, writers = storage or nodes, nodes - storage
    share = plan.n_bytes / readers
    run_files = readers * math.ceil(max(_CHUNKS, share / (_CHUNK_SHARE * plan.memory_bytes)))
    width = 8.0 * plan.record_bytes
    bits = width
    if packed and plan.value_bits is not None:
        values = max(1.0, plan.n_bytes / plan.record_bytes / run_files)
        entropy = plan.value_bits - math.log2(values) + math.log2(math.e)
        bits = min(width, max(entropy, 0.0) + _PACKING_BITS)
    run_bytes = plan.n_bytes * bits / width
    crossing = 1.0 if storage else (nodes - 1) / nodes  # of keys that are spread evenly
    link_bytes = crossing * run_bytes
    sort = {
        "source": plan.n_bytes / plan.source_bytes_per_second,
        "sorting": share / plan.sort_bytes_per_second,
        "disks": run_bytes / readers / plan.disk_bytes_per_second,
    }
    merge = {
        "disks": run_bytes / readers / plan.disk_bytes_per_second,
        "links": link_bytes / min(readers, writers) / plan.link_bytes_per_second,
        "merging": plan.n_bytes / writers / plan.merge_bytes_per_second,
        "target": plan.n_bytes / plan.target_bytes_per_second,
    }
    limits = max(sort, key=sort.__getitem__), max(merge, key=merge.__getitem__)
    return SortRow(
        name=plan.name,
        nodes=nodes,
        storage_nodes=storage,
        packed=packed,
        bits_per_value=bits,
        run_files=run_files,
        run_bytes=run_bytes,
        link_bytes=link_bytes,
        plain_link_bytes=crossing * plan.n_bytes,
        sort_seconds=sort[limits[0]],
        merge_seconds=merge[limits[1]],
        limits=limits,
        two_pass_seconds=2 * (sort["source"] + merge["target"]),
    )


COLUMNS = (
    "nodes", "storage", "packed", "bits a value", "runs", "kept", "over links", "of unpacked", "sort", "by", "merge",
    "by", "time", "of unpacked", "times two passes", "published time", "over links", "times two passes",
)  # fmt: skip


def sort_cells(rows: Sequence[SortRow], plan: NodeSortPlan) -> list[list[str]]:
    """Return the cells of a table: one line a prediction, with published figures beside it."""
    return [_cells(row, rows, plan) for row in rows]


def _cells(row: SortRow, rows: Sequence[SortRow], plan: NodeSortPlan) -> list[str]:
    plain = next((one for one in rows if one.nodes == row.nodes and not one.packed), None) if row.packed else None
    known = next(
        (one for one in plan.published if one.nodes == row.nodes and (row.packed or not plan.value_bits)), None
    )
    return [
        str(row.nodes),
        str(row.storage_nodes) if row.storage_nodes else "",
        "yes" if row.packed else "no",
        f"{row.bits_per_value:.1f}",
        f"{row.run_files:,}",
        f"{row.run_bytes / 1e9:,.2f} GB",
        f"{row.link_bytes / 1e9:,.2f} GB",
        f"{row.link_bytes / row.plain_link_bytes:.3f}" if row.plain_link_bytes and row.packed else "",
        clock(row.sort_seconds),
        row.limits[0],
        clock(row.merge_seconds),
        row.limits[1],
        clock(row.seconds),
        f"{row.seconds / plain.seconds:.3f}" if plain is not None and plain.seconds else "",
        "" if row.times_faster is None else f"{row.times_faster:.2f}",
        "" if known is None or known.seconds is None else clock(known.seconds),
        "" if known is None or known.moved_share is None else f"{known.moved_share:.2f} of all",
        "" if known is None or known.times_faster is None else f"{known.times_faster:.2f}",
    ]
