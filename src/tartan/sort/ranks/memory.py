"""Divide the memory of each rank of a sort, and cut input and output to it: pure policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tartan.base.format import format_bytes
from tartan.core.sorting.shares import ChunkGrid, cut_input, plan_parts
from tartan.errors import ConfigError
from tartan.sort.plan import PAGE, EngineLayout, Shape, plan_sort
from tartan.sort.ranks.keeping import ANSWER_BYTES, ANSWERS_AT_ONCE
from tartan.sort.ranks.messages import SortBegin, SortHello
from tartan.sort.space import memory_for_engine

# By arithmetic: while one buffer is read and one is written, another is sorted.
CHUNKS_IN_MEMORY = 3
# By judgement: parts of this size keep the last one short beside the whole, and their pieces long beside a block. No
# benchmark.
MOST_RANGE_BYTES = 64 << 20
# By judgement: run files of an earlier attempt with much less memory are so short that sorting again costs less than
# merging them. No benchmark.
MOST_SPLIT = 4
# By arithmetic: place, bytes, checksum and records of a block, in memory while its run is open.
_BLOCK_FACTS_BYTES = 24


@dataclass(frozen=True)
class RecordShape:
    """What is sorted.

    Attributes
    ----------
    n_records, record_bytes : int
    is_word : bool
        Whether records are lone numbers, which are sorted into a second buffer.
    """

    n_records: int
    record_bytes: int
    is_word: bool


def plan_ranks(
    shape: RecordShape, hellos: Sequence[SortHello], overhead: Callable[[EngineLayout, int], int]
) -> SortBegin:
    """Return how all ranks begin: alike, so that any of them can take over from any other.

    Parameters
    ----------
    shape : RecordShape
    hellos : sequence of SortHello
        Of the ranks.
    overhead : callable
        Bytes that the engine takes for a layout and a number of threads.

    Raises
    ------
    ConfigError
        Code "memory", if the rank with the least memory has too little.
    """
    able = [hello for hello in hellos if not hello.blind]
    readers = [hello for hello in able if hello.storage] or able
    able = [hello for hello in hellos if not hello.walled]
    writers = [hello for hello in able if not hello.storage] or able
    threads = min(hello.threads for hello in hellos)
    least = min(hellos, key=lambda hello: memory_for_engine(hello.memory_bytes, hello.held_bytes))
    available = memory_for_engine(least.memory_bytes, least.held_bytes)
    share = Shape(-(-shape.n_records // len(readers)), shape.record_bytes, shape.is_word, threads)
    try:
        found = max(hello.chunk_records for hello in hellos)
        layout = _chunk_layout(share, found, available, lambda candidate: overhead(candidate, threads))
        n_written = -(-shape.n_records // len(writers))
        n_blocks = max(share.n_records, n_written) * shape.record_bytes // layout.block_bytes + 1
        left = available - ANSWERS_AT_ONCE * ANSWER_BYTES - n_blocks * _BLOCK_FACTS_BYTES
        mergers, range_bytes = _range_bytes(left, threads, shape, layout)
        grid = cut_input(shape.n_records, share.capacity(layout.buffer_bytes), len(readers))
        again = ChunkGrid(shape.n_records, max(1, found))
        if found <= share.capacity(layout.buffer_bytes) and again.n_chunks <= MOST_SPLIT * grid.n_chunks:
            grid = again  # whatever the number of ranks was then
        capacity = range_bytes // share.slot_bytes
        parts = plan_parts(grid, capacity, len(writers))
    except ConfigError as error:
        if error.code != "memory":
            raise
        raise ConfigError(
            f"memory of {format_bytes(least.memory_bytes)} for each rank is too little: the rank on {least.host} holds "
            f"{format_bytes(least.held_bytes)} before it begins ({error}); give more to each with --memory",
            code="memory",
            context={"memory_bytes": least.memory_bytes, "held_bytes": least.held_bytes},
        ) from None
    return SortBegin(
        shape.n_records,
        grid.chunk_records,
        layout=dict(vars(layout)),
        range_bytes=range_bytes,
        threads=threads,
        mergers=mergers,
        sample_step=parts.sample_step,
        n_parts=parts.n_parts,
    )


def _chunk_layout(share: Shape, found: int, available: int, overhead: Callable[[EngineLayout], int]) -> EngineLayout:
    """Return the layout by which a rank sorts its share: in several chunks, so that others can share them if need be.

    Buffers hold chunks of ``found`` records, of an earlier attempt, where there is the memory for them.
    """
    layout = plan_sort(share, available, overhead).layout
    low, high = (
        layout.buffer_bytes // PAGE,
        max(layout.buffer_bytes, max(share.n_records, found) * share.slot_bytes + PAGE) // PAGE,
    )
    while low < high:  # longer runs are packed better, and cut into fewer pieces
        middle = (low + high + 1) // 2
        fits = overhead(replace(layout, buffer_bytes=middle * PAGE)) <= available
        low, high = (middle, high) if fits else (low, middle - 1)
    layout = replace(layout, buffer_bytes=low * PAGE)
    third = math.ceil(share.n_records / CHUNKS_IN_MEMORY) * share.slot_bytes
    least = 2 * layout.fan_in * max(layout.block_bytes // share.record_bytes, 1) * share.slot_bytes
    wanted = -(-max(third, least, found * share.slot_bytes) // PAGE) * PAGE
    return replace(layout, buffer_bytes=min(layout.buffer_bytes, wanted))


def _range_bytes(left: int, threads: int, shape: RecordShape, layout: EngineLayout) -> tuple[int, int]:
    """Return how many parts a rank merges at a time, and the bytes of the buffer of each."""
    copies = 2 if shape.is_word else 1
    block = max(layout.block_bytes, shape.record_bytes)
    for mergers in range(threads + 1, 0, -1):
        # What is fetched, and two blocks of which a part takes only some records.
        each = (left - mergers * (2 * ANSWER_BYTES + 2 * block)) // (mergers * copies)
        if each >= 4 * block * copies:
            return mergers, min(each, MOST_RANGE_BYTES) // PAGE * PAGE
    raise ConfigError("there is no room to merge a part", code="memory")
