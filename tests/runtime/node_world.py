"""A node without a run folder: chunks go to memory, reports to a list, and what is wanted is everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.application import Application, output_dtypes
from tartan.base.trace import NO_TRACER
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.saves import SavePolicy
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.sizing import choose_grid, choose_layout, tile_filter
from tartan.core.pairs.verdict import NodeReport
from tartan.core.pairs.workload import AllPairs, Workload
from tartan.devices import open_device
from tartan.runtime.committer import FinishedChunk
from tartan.runtime.events import ChunkCommitted, ChunkSaved, Event
from tartan.runtime.execution import NodeInputs
from tartan.runtime.host import UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import open_source
from tartan.workers.executor import Executor
from tartan.workers.start import open_executor

ROW = ItemForm(np.dtype(np.float32), (3,))


class Everything:
    """All pairs are wanted."""

    def __init__(self, grid: Grid, workload: Workload) -> None:
        self.workload = workload
        self.needs = tile_filter(grid, workload)
        self.done: list[tuple[int, int]] = []
        self._grid = grid

    def cells(self, tile: Tile) -> np.ndarray | None:
        return self.workload.mask(self._grid.rect(tile))

    def on_committed(self, chunk: tuple[int, int]) -> None:
        self.done.append(chunk)


class Memory:
    """A sink that keeps chunks in memory."""

    commit_seconds = 0.0
    committed_bytes = 0
    keeper = None

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], FinishedChunk] = {}
        self.n_saves = 0
        self.closed = False

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        scores = {name: block.copy() for name, block in finished.outputs.items()}
        status, before = finished.status.copy(), self.chunks.get(finished.chunk)
        if before is not None:  # what was saved of it
            assert not ((before.status != 0) & (status != 0)).any(), "no pair is committed twice"
            for name, block in scores.items():
                scores[name] = np.where(before.status != 0, before.outputs[name], block)
            status = np.maximum(status, before.status)
        self.chunks[finished.chunk] = FinishedChunk(finished.chunk, scores, status, finished.failures, None)
        if not finished.last:
            self.n_saves += 1
        post(ChunkCommitted(finished.chunk) if finished.last else ChunkSaved(finished.chunk, 0.0))

    def close(self) -> None:
        self.closed = True

    def matrix(self, grid: Grid) -> np.ndarray:
        """Return the scores, NaN where there are none."""
        whole = np.full((grid.n_items, grid.n_items), np.nan)
        for chunk, finished in self.chunks.items():
            rect = grid.chunk_rect(chunk)
            done = finished.status == 1
            whole[rect.r0 : rect.r1, rect.c0 : rect.c1][done] = finished.outputs["scores"][done]
        return whole


@dataclass
class World:
    """What a node is given, and what it gave back."""

    inputs: NodeInputs
    sink: Memory
    reports: list[NodeReport] = field(default_factory=list)


def world(
    app: Application,
    items: Sequence[Any],
    *,
    slots: int = 6,
    n_workers: int = 1,
    judge: Callable[[NodeReport], None] = lambda report: None,
    executor: Executor | None = None,
    call_limit: CallLimit | None = None,
    saves: SavePolicy | None = None,
) -> World:
    """Prepare an execution on the CPU; without an executor, in that for which the application asks."""
    workload, sink, reports = AllPairs(len(items)), Memory(), list[NodeReport]()
    grid = choose_grid(workload, slots, chunk=8)
    layout = choose_layout(grid, workload, slots)

    def report(found: NodeReport) -> None:
        reports.append(found)
        judge(found)

    good, host_bytes = np.zeros(3, np.float32), layout.room.total * ROW.nbytes
    inputs = NodeInputs(
        source=open_source(items),
        app=app,
        outputs=output_dtypes(app),
        both_ways=False,
        plan=NodePlan(grid, workload, layout, slots=slots, host_bytes=host_bytes),
        items=ItemPlan(UniformItems(ROW), None, ROW, good, ready_substitute=good),
        remaining=Everything(grid, workload),
        executor=executor or open_executor(app, n_workers),
        devices=[open_device("cpu")],
        sink=sink,
        report=report,
        call_limit=call_limit,
        tracer=NO_TRACER,
        saves=saves,
    )
    return World(inputs, sink, reports)
