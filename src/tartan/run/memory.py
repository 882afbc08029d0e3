"""What one rank of a run will hold at most, from its plan and from what the process holds now."""

from __future__ import annotations

from typing import Any

from tartan.application import Application, output_dtypes
from tartan.base.machine import held_bytes
from tartan.core.memory import MemoryNeed, RunMemory, need_of_list, need_of_nearest
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import TripleGrid
from tartan.run.probing import ItemFacts
from tartan.runtime.loader import AHEAD_BYTES
from tartan.sources.items import Source
from tartan.store.manifest import Manifest
from tartan.workers.executor import Executor


def need_of_run(
    app: Application, source: Source, facts: ItemFacts, plan: NodePlan, executor: Executor, manifest: Manifest
) -> MemoryNeed:
    """Return what an execution will hold at most.

    Parameters
    ----------
    app, source
        What compares, and what is compared.
    facts : ItemFacts
        In the form in which this rank keeps items.
    plan : NodePlan
    executor : Executor
        Started.
    manifest : Manifest
    """
    grid, in_processes = plan.grid, executor.in_processes
    largest_file, all_files = _file_bytes(source)
    reduced = manifest.reduce is not None
    return RunMemory(
        held_bytes=held_bytes(),
        n_workers=executor.n_workers,
        in_processes=in_processes,
        arena_bytes=0 if facts.form is None else plan.host_bytes,
        items_bytes=0 if facts.form is not None else facts.item_bytes * source.n_items,
        room_bytes=0 if facts.form is not None else _room_bytes(plan, facts),
        item_bytes=int(facts.largest_bytes),
        file_bytes=largest_file,
        ahead_bytes=0 if in_processes else min(AHEAD_BYTES, all_files),
        parse_memory=app.parse_memory,
        chunk_bytes=_chunk_bytes(app, plan, manifest),
        n_chunks=0 if isinstance(grid, TripleGrid) else min(plan.layout.open_chunks, _count_chunks(plan)),
        tile_cells=0 if isinstance(grid, TripleGrid) else grid.longest_strip * grid.longest_span,
        reduced=reduced,
        kept_bytes=_kept_bytes(manifest) if reduced else 0,
    ).need()


def need_of_listed(manifest: Manifest, facts: ItemFacts, slots: int, n_pairs: int) -> MemoryNeed:
    """Return what a run of a list of pairs will hold at most, ``slots`` rows at a time."""
    each = sum(dtype.itemsize for dtype in manifest.outputs.values())
    return need_of_list(held_bytes(), n_pairs, each, int(min(slots, manifest.n_items) * facts.item_bytes))


def need_of_neighbors(manifest: Manifest, count: int) -> MemoryNeed:
    """Return what reading some nearest items of each item of a run needs."""
    reduced, cells = manifest.reduce is not None, int(manifest.grid["chunk"]) ** 2
    chunk_bytes = 0 if reduced else cells * max(dtype.itemsize for dtype in manifest.outputs.values())
    n_rows = manifest.n_items * int((manifest.reduce or {}).get("k", 0))
    return need_of_nearest(held_bytes(), manifest.shape[0] * count, chunk_bytes, n_rows, in_table=reduced)


def _file_bytes(source: Source) -> tuple[int, int]:
    """Return the bytes of the largest file and of all files; 0 of what has none."""
    stamps = source.fingerprints()
    if stamps is None or not len(stamps[0]):
        return 0, 0
    lengths = stamps[0].clip(min=0)
    return int(lengths.max()), int(lengths.sum())


def _room_bytes(plan: NodePlan, facts: ItemFacts) -> float:
    """Return the room for items that differ in size: in bytes, or that of a number of items."""
    total = float(plan.layout.room.total)
    return total if plan.span_size is not None else total * facts.item_bytes


def _count_chunks(plan: NodePlan) -> int:
    n = plan.grid.n_chunks
    return n * (n + 1) // 2


def _chunk_bytes(app: Application, plan: NodePlan, manifest: Manifest) -> int:
    dtypes: dict[str, Any] = {} if manifest.reduce is not None else dict(output_dtypes(app))
    sides = 1 if app.symmetric else 2
    stored = sum(int(dtype.itemsize) for dtype in dtypes.values()) * sides + 1
    return stored * int(plan.grid.chunk) ** 2


def _kept_bytes(manifest: Manifest) -> int:
    """Return the bytes of the best pairs of all items, which are merged at the end; 0 where no number is fixed."""
    assert manifest.reduce is not None
    k = int(manifest.reduce.get("k", 0))
    pair_bytes = 16 + sum(dtype.itemsize for dtype in manifest.outputs.values())
    return 2 * manifest.n_items * k * pair_bytes
