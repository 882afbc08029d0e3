"""Makes ``sort_file`` work with buffers of some kilobytes, so that small inputs need many run files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
