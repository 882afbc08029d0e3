"""Makes ``sort_file`` work with buffers of some kilobytes, and end its process at a known point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tartan._native import SortJob
from tartan.sort import engine
from tartan.sort.plan import EngineLayout, Shape, SortPlan

PAGE = 4096


def small_layout(
    record_bytes: int, *, fan_in: int = 4, pages: int = 1, buffers: int = 3, word: bool = True
) -> EngineLayout:
    """Return the least layout for a width, with buffers ``pages`` times as large."""
    block = -(-record_bytes // PAGE) * PAGE
    order = 0 if word and record_bytes in (4, 8) else 8 * (block // record_bytes)
    buffer = -(-2 * fan_in * (block + order) // PAGE) * PAGE
    return EngineLayout(buffer * pages, buffers, fan_in, block, block + 2 * PAGE, 2)


@contextmanager
def layouts(layout: EngineLayout) -> Iterator[None]:
    """Plan with this layout, whatever the memory."""

    def plan(shape: Shape, *_: object) -> SortPlan:
        pieces = max(1, shape.pieces(layout.buffer_bytes))
        memory = 2 * shape.n_records * shape.record_bytes
        return SortPlan(layout, 0, pieces, 0, 1, memory, shape.n_records // pieces)

    original, engine.plan_sort = engine.plan_sort, plan  # type: ignore[assignment]
    try:
        yield
    finally:
        engine.plan_sort = original


@contextmanager
def aborting(**after: int) -> Iterator[None]:
    """Abort this process once that many ``runs`` or ``ranges`` of a sort are done."""

    def open_engine(**options: Any) -> SortJob:
        job = SortJob(**options)
        job.abort_after(**after)
        return job

    original, engine.SortJob = engine.SortJob, open_engine  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        engine.SortJob = original  # type: ignore[misc]
