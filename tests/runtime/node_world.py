"""A node without a run folder: chunks go to memory, reports to a list, and what is wanted is everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.application import Application, output_dtypes
from tartan.base.trace import NO_TRACER
from tartan.core.grid import Grid, Tile
from tartan.core.sizing import choose_grid, choose_layout, tile_filter
from tartan.core.verdict import NodeReport
from tartan.core.workload import AllPairs, Workload
from tartan.devices import open_device
from tartan.runtime.events import ChunkCommitted, Event
from tartan.runtime.execution import Execution
from tartan.runtime.host import UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.sink import FinishedChunk
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

    def pairs(self, tile: Tile) -> np.ndarray | None:
        return self.workload.mask(self._grid.rect(tile))

    def committed(self, chunk: tuple[int, int]) -> None:
        self.done.append(chunk)


class Memory:
    """A sink that keeps chunks in memory."""

    commit_seconds = 0.0
    committed_bytes = 0
    keeper = None

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], FinishedChunk] = {}
        self.closed = False

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        scores = {name: block.copy() for name, block in finished.outputs.items()}
        copied = FinishedChunk(finished.chunk, scores, finished.status.copy(), finished.failures, None)
        self.chunks[finished.chunk] = copied
        post(ChunkCommitted(finished.chunk))

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

    execution: Execution
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
    timeout_seconds: float | None = None,
) -> World:
    """Prepare an execution on the CPU; without an executor, in that for which the application asks."""
    workload, sink, reports = AllPairs(len(items)), Memory(), list[NodeReport]()
    grid = choose_grid(workload, slots, chunk=8)
    layout = choose_layout(grid, workload, slots)

    def report(found: NodeReport) -> None:
        reports.append(found)
        judge(found)

    execution = Execution(
        source=open_source(items),
        app=app,
        outputs=output_dtypes(app),
        both_ways=False,
        grid=grid,
        remaining=Everything(grid, workload),
        layout=layout,
        order="panel",
        item_plan=ItemPlan(UniformItems(ROW), None, ROW, np.zeros(3, np.float32)),
        substitute=np.zeros(3, np.float32),
        executor=executor or open_executor(app, n_workers),
        devices=[open_device("cpu")],
        device_rooms=[None],
        host_bytes=layout.room.total * ROW.nbytes,
        span_bytes=None,
        sink=sink,
        report=report,
        timeout_seconds=timeout_seconds,
        tracer=NO_TRACER,
    )
    return World(execution, sink, reports)
