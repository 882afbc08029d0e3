"""Divide memory and predict what a sort needs: pure policy, nothing is opened or allocated.

The engine works in two phases with one set of buffers. In the first each buffer is filled, sorted and written as
one *run file*; in the second each holds one *range* of the output, read from all run files at once. While one
buffer is sorted by each thread, one is read and one is written, so there are at least three. Reading K run files at
once also takes windows of K blocks. More memory gives fewer and longer run files, and fewer run files need less
memory for windows.

Decisions, in this order: as few merge levels as possible (each one reads and writes everything once more),
then the widest requests to the disk, then the largest buffers up to the size that helps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tartan.errors import ConfigError

# By arithmetic: a page of memory, and the block that O_DIRECT asks for.
PAGE = 4096
# `tartan bench sort`: 44.4 bits a value where the rule with it says 44.5, 12.4 where it says 12.5.
PACKING_BITS = 2.0  # what bit packing costs over the entropy of the differences, measured
_RINGS = ((1 << 20, 8), (1 << 20, 4), (1 << 19, 4), (1 << 18, 4), (1 << 17, 2))
# By judgement: large blocks pack and read best, small ones let more runs merge in one pass of a small memory; 4 KiB is
# the least a disk reads. `tartan bench sort` holds the time.
_BLOCKS = (1 << 15, 1 << 14, 1 << 13, 1 << 12)
_FAN_INS = tuple(2**power for power in range(1, 11))
# _RUN_FILE_EXTRA_SHARE and _RUN_FILE_EXTRA_BYTES, by arithmetic: an entry of some 100 bytes for each block of 32 KiB is
# 0.3 %, and a header.
_RUN_FILE_EXTRA_SHARE = 0.005  # index and checksums, one entry a block
# By judgement: header and index of a run file of few blocks. No benchmark.
_RUN_FILE_EXTRA_BYTES = 64 << 10


@dataclass(frozen=True)
class Shape:
    """Size and form of a sort, and its number of threads.

    Attributes
    ----------
    n_records : int
    record_bytes : int
        Width of a record.
    is_word : bool
        Whether the record is a lone number of 4 or 8 bytes, which is sorted faster from one buffer into another. Other
        records are not moved while they are sorted; their order lies beside them.
    threads : int
    """

    n_records: int
    record_bytes: int
    is_word: bool
    threads: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of a buffer that one record takes."""
        return self.record_bytes + (0 if self.is_word else 8)

    @property
    def buffers(self) -> tuple[int, ...]:
        """Useful number of buffers: one to read, one to write, one for each thread, and one for it to sort into."""
        wide = (2 * self.threads + 2,) if self.is_word else ()
        return tuple(dict.fromkeys((*wide, self.threads + 2, 3)))

    def capacity(self, buffer_bytes: int) -> int:
        """Return the number of records that a buffer holds."""
        return buffer_bytes // self.slot_bytes

    def pieces(self, buffer_bytes: int) -> int:
        """Return the number of buffers that the input fills."""
        return -(-self.n_records // max(self.capacity(buffer_bytes), 1))


@dataclass(frozen=True)
class EngineLayout:
    """How the engine divides its memory.

    Attributes
    ----------
    buffer_bytes, buffers : int
        Size and number of the large buffers.
    fan_in : int
        Most run files that are read at once.
    block_bytes : int
        Unit of checksum and index of a run file.
    ring_bytes, ring_depth : int
        Size of one request to the disk, and how many are on the way.
    """

    buffer_bytes: int
    buffers: int
    fan_in: int
    block_bytes: int
    ring_bytes: int
    ring_depth: int


@dataclass(frozen=True)
class SortPlan:
    """Steps and needs of a sort.

    Attributes
    ----------
    layout : EngineLayout
    memory_bytes : int
        Memory that the engine takes.
    run_files : int
        Number written in the first phase; 0 if everything fits into one buffer.
    ranges : int
        Number of parts of the output.
    levels : int
        Number of times that everything is read and written after the first phase.
    temporary_bytes : int
        Most disk space that run files take at one time, if they are not packed.
    values_in_run_file : int
        Records that are sorted together in the first phase.
    """

    layout: EngineLayout
    memory_bytes: int
    run_files: int
    ranges: int
    levels: int
    temporary_bytes: int
    values_in_run_file: int

    def estimate_packed_bytes(self, width_bits: float, record_bits: int) -> int:
        """Return the disk space for packed run files of values out of ``2 ** width_bits``, with a tenth to spare."""
        share = 1.1 * estimate_bits(width_bits, self.values_in_run_file) / record_bits
        return int(self.temporary_bytes * min(share, 1.0))


Overhead = Callable[[EngineLayout], int]


def plan_sort(shape: Shape, memory_bytes: int, overhead: Overhead) -> SortPlan:
    """Divide memory.

    Parameters
    ----------
    shape : Shape
    memory_bytes : int
        Memory that the engine may take.
    overhead : callable
        Bytes that the engine takes for a layout; grows with each of its numbers.

    Raises
    ------
    ConfigError
        Code "memory", if memory is too small; its context holds ``least_bytes``, the least that the engine needs.
    """
    whole = _in_one_buffer(shape, overhead)
    if whole.memory_bytes <= memory_bytes:
        return whole
    found = list(_candidates(shape, memory_bytes, overhead))
    if not found:
        raise _too_little(shape, memory_bytes, overhead)
    return _describe(shape, min(found, key=lambda one: one[0])[1], overhead)


def _in_one_buffer(shape: Shape, overhead: Overhead) -> SortPlan:
    """Plan to hold everything at once. Only one buffer is touched then, and only touched memory counts."""
    block = _round_up(max(_BLOCKS[0], shape.record_bytes))
    layout = EngineLayout(max(4 * block * 2, _round_up(shape.n_records * shape.slot_bytes)), 3, 2, block, *_RINGS[0])
    plan = _describe(shape, replace(layout, buffer_bytes=_at_least(shape, layout)), overhead)
    return replace(plan, memory_bytes=plan.memory_bytes - 2 * plan.layout.buffer_bytes)


def _candidates(shape: Shape, memory_bytes: int, overhead: Overhead) -> Iterator[tuple[tuple[int, ...], EngineLayout]]:
    """Yield layouts that fit, each with its shortcomings; end with the first one that is good enough."""
    for rank, empty in enumerate(_empty_layouts(shape)):
        for fan_in in _FAN_INS:
            layout = _largest(shape, memory_bytes, replace(empty, fan_in=fan_in), overhead)
            if layout is None:
                break  # more windows leave even less
            levels = merge_levels(shape.pieces(layout.buffer_bytes), fan_in)
            # Windows and requests take more than the data.
            starved = 2 * layout.buffers * layout.buffer_bytes < overhead(layout)
            yield (levels, starved, rank, fan_in), layout
            if levels <= 1:
                if not starved:
                    return
                break


def _empty_layouts(shape: Shape) -> Iterator[EngineLayout]:
    """Yield layouts without buffers, best first."""
    least = _round_up(shape.record_bytes)
    blocks = sorted({max(block, least) for block in _BLOCKS}, reverse=True)
    for ring, buffers, block in itertools.product(_RINGS, shape.buffers, blocks):
        yield EngineLayout(0, buffers, 2, block, *ring)


def _largest(shape: Shape, memory_bytes: int, empty: EngineLayout, overhead: Overhead) -> EngineLayout | None:
    """Return the layout with the largest buffers that fit and help; None if none fit.

    A phase takes longer by the time of one buffer, which must be read before anything can be sorted. On the other hand,
    the parts of a range that come from one run file should fill a request to the disk. Both are balanced by buffers of
    the square root of input times request, so larger ones are no better.
    """
    whole = shape.n_records * shape.slot_bytes

    def fits(pages: int) -> bool:
        return overhead(replace(empty, buffer_bytes=pages * PAGE)) <= memory_bytes

    low = _at_least(shape, empty) // PAGE
    high = max(low, _round_up(min(whole, math.isqrt(whole * empty.ring_bytes))) // PAGE)
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return replace(empty, buffer_bytes=low * PAGE)


def _at_least(shape: Shape, layout: EngineLayout) -> int:
    """Return the least size of a buffer: two blocks of each run file that is merged, or the minimum."""
    records = 2 * layout.fan_in * max(layout.block_bytes // shape.record_bytes, 1)
    return max(layout.buffer_bytes, _round_up(records * shape.slot_bytes))


def _describe(shape: Shape, layout: EngineLayout, overhead: Overhead) -> SortPlan:
    pieces = shape.pieces(layout.buffer_bytes)
    runs = 0 if pieces <= 1 else pieces
    levels = merge_levels(pieces, layout.fan_in)
    return SortPlan(
        layout=layout,
        memory_bytes=overhead(layout),
        run_files=runs,
        ranges=pieces,
        levels=levels,
        temporary_bytes=_temporary_bytes(shape, runs, levels, layout),
        values_in_run_file=-(-shape.n_records // max(pieces, 1)),
    )


def _temporary_bytes(shape: Shape, runs: int, levels: int, layout: EngineLayout) -> int:
    if not runs:
        return 0
    whole = int(shape.n_records * shape.record_bytes * (1 + _RUN_FILE_EXTRA_SHARE)) + runs * _RUN_FILE_EXTRA_BYTES
    # A merged run file is whole before those that it was merged from are removed.
    twice = min(whole, layout.buffer_bytes * layout.fan_in ** (levels - 1)) if levels > 1 else 0
    return whole + twice


def merge_levels(pieces: int, fan_in: int) -> int:
    """Return how often ``pieces`` run files must be merged until one file is left; 0 for one piece."""
    levels = 0
    while pieces > 1:
        pieces, levels = -(-pieces // fan_in), levels + 1
    return levels


def least_memory_bytes(shape: Shape, overhead: Overhead) -> int:
    """Return the least memory that the engine can work with."""
    return min(overhead(replace(layout, buffer_bytes=_at_least(shape, layout))) for layout in _empty_layouts(shape))


def estimate_bits(width_bits: float, values_in_run_file: int) -> float:
    """Return bits a value of a packed run file of uniformly spread values.

    Sorted, k values out of 2^w differ by 2^w / k on average, and differences of random values are spread
    exponentially: their entropy is w - log2(k) + log2(e) bits.

    Parameters
    ----------
    width_bits : float
        Binary logarithm of the number of different values.
    values_in_run_file : int
        Values that are sorted together.
    """
    entropy = width_bits - math.log2(max(values_in_run_file, 1)) + math.log2(math.e)
    return max(entropy, 0.0) + PACKING_BITS


def _round_up(n_bytes: int) -> int:
    return max(1, -(-n_bytes // PAGE)) * PAGE


def _too_little(shape: Shape, memory_bytes: int, overhead: Overhead) -> ConfigError:
    least = least_memory_bytes(shape, overhead)
    return ConfigError(
        f"{memory_bytes} bytes are too little for sorting records of {shape.record_bytes} bytes; give {least} or more",
        code="memory",
        context={"available_bytes": memory_bytes, "least_bytes": least},
    )
