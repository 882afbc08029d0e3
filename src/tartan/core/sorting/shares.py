"""How the input and the output of a sort are divided among ranks.

The input is cut into *chunks*, by the numbers of its records alone: whoever sorts a chunk makes the same run of it. The
output is cut into *parts* at *splitters*. A splitter is a record: its key, the number of its chunk, and its place in
the run of that chunk. All records are in one total order by (key, chunk, place in the run), in which no two are equal;
so a splitter cuts every run at an exact place, ties included, and it cuts the run of a chunk that is sorted again where
it cut the first one.

Splitters are chosen from a sample of every run, at even steps. Of each other run the number of records before a sample
is known up to one step, so a part is at most ``n_records / samples of a run`` records from its wanted size, whatever
the keys are (regular sampling [1]_).

References
----------
.. [1] H. Shi, J. Schaeffer, Parallel sorting by regular sampling, Journal of Parallel and Distributed Computing 14(4),
   361-372, 1992.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tartan.errors import ConfigError

# By arithmetic: a part ends within N / 64R records of its place where each run gives 64 samples a rank: 1.6 % of the
# share of a rank, against the tenth that is allowed.
SAMPLES_A_RANK = 64
# By arithmetic: as much of a buffer is left free for what a sample does not tell.
SLACK = 4
# By judgement: a million keys are sorted by the driver in some seconds; a sort that needs more has buffers that are too
# small for its input. No benchmark.
MOST_SAMPLES = 1 << 20


@dataclass(frozen=True)
class ChunkGrid:
    """The chunks of an input.

    Attributes
    ----------
    n_records : int
    chunk_records : int
        Of every chunk but the last.
    """

    n_records: int
    chunk_records: int

    @property
    def n_chunks(self) -> int:
        """Number of chunks; 0 of an empty input."""
        return -(-self.n_records // self.chunk_records)

    def range_of(self, chunk: int) -> tuple[int, int]:
        """Return the first record of a chunk, and the one behind its last."""
        first = chunk * self.chunk_records
        return first, min(first + self.chunk_records, self.n_records)

    def count(self, chunk: int) -> int:
        """Return the number of records of a chunk."""
        first, end = self.range_of(chunk)
        return end - first


def cut_input(n_records: int, capacity: int, n_ranks: int) -> ChunkGrid:
    """Cut an input into as few chunks as fit a buffer, as many on each rank; of few records into one each.

    Parameters
    ----------
    n_records : int
    capacity : int
        Records that a buffer holds.
    n_ranks : int
        Ranks that sort.

    Examples
    --------
    >>> cut_input(1000, 300, 2)
    ChunkGrid(n_records=1000, chunk_records=250)
    >>> cut_input(3, 300, 4).n_chunks
    3
    """
    fewest = -(-n_records // max(1, capacity))
    n_chunks = max(1, -(-fewest // n_ranks)) * n_ranks
    return ChunkGrid(n_records, max(1, -(-n_records // n_chunks)))


def divide_evenly(numbers: Sequence[int], names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Give each name as many of the numbers, neighbours to one name; names that get none are left out.

    Examples
    --------
    >>> divide_evenly(range(5), ["a", "b"])
    {'a': (0, 1), 'b': (2, 3, 4)}
    """
    n = len(numbers)
    cuts = [n * place // len(names) for place in range(len(names) + 1)] if names else []
    return {
        name: tuple(numbers[cuts[place] : cuts[place + 1]])
        for place, name in enumerate(names)
        if cuts[place] < cuts[place + 1]
    }


def join_neighbours(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of neighbouring numbers: the first, and the one behind the last.

    Examples
    --------
    >>> join_neighbours([4, 5, 6, 1, 9])
    [(4, 7), (1, 2), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def divide_by_room(numbers: Sequence[int], rooms: Mapping[str, int]) -> tuple[dict[str, tuple[int, ...]], int]:
    """Give each name as many neighbouring numbers as its room allows, and as nearly equally many as they all allow.

    Parameters
    ----------
    numbers : sequence of int
    rooms : mapping of str to int
        Most numbers of each name.

    Returns
    -------
    shares : dict of str to tuple of int
        Names that get none are left out.
    n_left : int
        Numbers for which there is no room.

    Examples
    --------
    >>> divide_by_room(range(6), {"a": 1, "b": 9, "c": 9})
    ({'a': (0,), 'b': (1, 2, 3), 'c': (4, 5)}, 0)
    >>> divide_by_room(range(3), {"a": 1})
    ({'a': (0,)}, 2)
    """
    counts, left = dict.fromkeys(rooms, 0), len(numbers)
    open_names = sorted(rooms, key=lambda name: rooms[name])
    while open_names:  # whoever has the least room takes its even share of what is left, or all that it can
        name = open_names.pop(0)
        counts[name] = min(max(0, rooms[name]), left // (len(open_names) + 1))
        left -= counts[name]
        if not open_names and left:
            break
    for name in rooms:
        more = min(max(0, rooms[name]) - counts[name], left, 1)
        counts[name], left = counts[name] + more, left - more
    shares, place = {}, 0
    for name in rooms:
        if counts[name]:
            shares[name] = tuple(numbers[place : place + counts[name]])
            place += counts[name]
    return shares, left


@dataclass(frozen=True)
class PartPlan:
    """How finely the output is cut.

    Attributes
    ----------
    n_parts : int
        A multiple of the ranks that merge, unless there are fewer records.
    sample_step : int
        Records of a run between two samples.
    """

    n_parts: int
    sample_step: int


def plan_parts(grid: ChunkGrid, capacity: int, n_ranks: int) -> PartPlan:
    """Cut the output into parts that fit a buffer, whatever the keys are.

    Parameters
    ----------
    grid : ChunkGrid
    capacity : int
        Records that the buffer of a part holds.
    n_ranks : int
        Ranks that merge.

    Raises
    ------
    ConfigError
        Code "memory", if buffers are too small for this input.
    """
    n = grid.n_records
    samples = max(SAMPLES_A_RANK * n_ranks, -(-SLACK * n // max(1, capacity)))
    step = max(1, grid.chunk_records // samples)
    if grid.n_chunks * min(samples, grid.chunk_records) > MOST_SAMPLES:
        raise ConfigError(
            f"{n} records on {n_ranks} ranks need more than {MOST_SAMPLES} samples with buffers of {capacity} records; "
            "give more memory to each rank, or name more ranks",
            code="memory",
            context={"capacity": capacity, "n_records": n},
        )
    target = max(1, capacity - 2 * (grid.n_chunks + 1) * step)
    each = -(-n // (n_ranks * target))
    return PartPlan(min(n, n_ranks * max(1, each)), step)


@dataclass(frozen=True)
class RunSample:
    """Keys of a run at even steps.

    Attributes
    ----------
    chunk : int
        Whose run it is.
    step : int
        The keys are those of records 0, step, 2 step ... of the run.
    keys : tuple of bytes
        In the order of unsigned bytes.
    """

    chunk: int
    step: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, order=True)
class SortSplitter:
    """The first record of a part.

    Attributes
    ----------
    key : bytes
    chunk : int
    place : int
        In the run of the chunk.
    """

    key: bytes
    chunk: int
    place: int

    def cuts_behind_equal(self, chunk: int) -> bool:
        """Whether records of another chunk that are equal to it come before it."""
        return chunk < self.chunk


def choose_splitters(samples: Sequence[RunSample], grid: ChunkGrid, n_parts: int) -> list[SortSplitter]:
    """Choose the records that begin parts 1, 2 ... of as nearly equal sizes as the samples tell.

    Parameters
    ----------
    samples : sequence of RunSample
        One of each chunk.
    grid : ChunkGrid
    n_parts : int

    Returns
    -------
    list of SortSplitter
        ``n_parts - 1`` of them, in order; fewer where there are fewer samples.
    """
    steps = {sample.chunk: sample.step for sample in samples}
    entries = sorted(
        SortSplitter(key, sample.chunk, number * sample.step)
        for sample in samples
        for number, key in enumerate(sample.keys)
    )
    before, known, unsure = [], dict[int, int](), 0.0
    exact = 0
    for entry in entries:
        # Of its own run exactly ``place`` records come before; of each other run that has begun and not ended, those
        # up to its last sample for certain and half of a step more, on average.
        own = known.get(entry.chunk, 0)
        half = _half_open(entry.chunk, known, grid, steps)
        before.append(exact - own + entry.place + unsure - half)
        count = min(entry.place + 1, grid.count(entry.chunk))
        exact += count - own
        unsure -= half
        known[entry.chunk] = count
        unsure += _half_open(entry.chunk, known, grid, steps)
    chosen: list[SortSplitter] = []
    for part in range(1, n_parts):
        target = grid.n_records * part / n_parts
        place = min(bisect.bisect_left(before, target), len(entries) - 1)
        if place and target - before[place - 1] < before[place] - target:
            place -= 1
        if entries and (not chosen or entries[place] > chosen[-1]):
            chosen.append(entries[place])
    return chosen


def _half_open(chunk: int, known: dict[int, int], grid: ChunkGrid, steps: dict[int, int]) -> float:
    """Return how many records behind the last sample of a run are thought to come before the next sample of all."""
    if chunk not in known:
        return 0.0
    return min(steps[chunk] - 1, grid.count(chunk) - known[chunk]) / 2


def sizes_of(cuts: Sequence[Sequence[int]], grid: ChunkGrid) -> list[int]:
    """Return the records of each part.

    Parameters
    ----------
    cuts : sequence of sequence of int
        Of each chunk in order: how many of its records come before each splitter.
    grid : ChunkGrid
    """
    if not cuts:
        return []
    ends = [*map(sum, zip(*cuts, strict=True)), grid.n_records]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
