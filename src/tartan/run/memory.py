"""What one rank of a run will hold at most, from its plan and from what the process holds now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.application import Application, output_dtypes
from tartan.base.machine import held_bytes
from tartan.core.memory import MemoryNeed, RunMemory, need_of_list, need_of_nearest
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import TripleGrid
from tartan.run.probing import ItemFacts
from tartan.runtime.loader import AHEAD_BYTES
from tartan.runtime.node import IO_THREADS
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
    ahead_bytes, parse_bytes = need_of_files(*_list_files(app, source), executor.n_workers, in_processes=in_processes)
    reduced = manifest.reduce is not None
    triples = isinstance(grid, TripleGrid)
    objects = facts.form is None and not isinstance(facts.substitute, np.ndarray)
    return RunMemory(
        held_bytes=held_bytes(),
        n_workers=executor.n_workers,
        in_processes=in_processes,
        arena_bytes=0 if facts.form is None else plan.host_bytes,
        items_bytes=0 if facts.form is not None else facts.item_bytes * source.n_items,
        room_bytes=0 if facts.form is not None else _room_bytes(plan, facts),
        item_bytes=int(facts.largest_bytes),
        ahead_bytes=ahead_bytes,
        parse_bytes=parse_bytes,
        parse_memory=parse_memory_of(app, ""),
        chunk_bytes=_chunk_bytes(app, plan, manifest),
        n_chunks=0 if triples else min(plan.layout.open_chunks, _count_chunks(plan)),
        tile_cells=0 if triples else grid.longest_strip * grid.longest_span,
        called_bytes=(grid.longest_strip + grid.longest_span) * facts.item_bytes if objects and not triples else 0,
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


def need_of_files(
    file_bytes: NDArray[np.int64], times: NDArray[np.float64], n_workers: int, *, in_processes: bool
) -> tuple[int, int]:
    """Return what files that were read hold at most, and what parsing takes beside them.

    Parameters
    ----------
    file_bytes : int64 array (n,)
        Sizes of the files.
    times : float64 array (n,)
        Bytes that parsing takes for each byte of a file, the file included.
    n_workers : int
    in_processes : bool
        Whether workers are processes, which read for themselves.
    """
    if not len(file_bytes):
        return 0, 0
    costs = np.sort(file_bytes * times)[::-1][:n_workers]
    if in_processes:
        return 0, int(costs.sum())
    # One file is always let through, however large, and each thread that reads may wait with another.
    largest = np.sort(file_bytes)[::-1][: 1 + IO_THREADS]
    at_once = max(AHEAD_BYTES, int(largest[0]))
    beside = np.sort(file_bytes * np.maximum(times - 1, 0))[::-1][:n_workers]
    ahead = min(int(file_bytes.sum()), at_once + int(largest[1:].sum()))
    return ahead, int(min(beside.sum(), at_once * max(times.max() - 1, 0)))


def _list_files(app: Application, source: Source) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the sizes of files, and what parsing takes for each byte of them; of what has none, nothing."""
    stamps = source.fingerprints()
    if stamps is None:
        return np.empty(0, np.int64), np.empty(0)
    return stamps[0].clip(min=0), np.array([parse_memory_of(app, key) for key in source.keys], np.float64)


def parse_memory_of(app: Application, name: str) -> float:
    """Return what parsing takes for each byte of a file of this name, or of what is no file."""
    given = app.parse_memory
    if not isinstance(given, Mapping):
        return given
    suffix = max((suffix for suffix in given if name.lower().endswith(suffix)), key=len, default="")
    default = Application.parse_memory
    assert isinstance(default, float)
    return given.get(suffix, default)


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
