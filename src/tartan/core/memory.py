"""How much memory a command needs at most, before it starts: the sum of what is known of it, part by part.

Every function takes sizes and returns a ``MemoryNeed``; none looks at the machine. What is promised is the memory of
the process and of all that it starts, libraries and memory that they share counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10


@dataclass(frozen=True)
class MemoryNeed:
    """The most memory that a command will hold.

    Attributes
    ----------
    parts : tuple of (str, int)
        What it is for, and bytes; those of 0 bytes are left out.
    limit_bytes : int or None
        What a user allows, which is kept whatever the parts are.
    """

    parts: tuple[tuple[str, int], ...]
    limit_bytes: int | None = None

    @classmethod
    def of(cls, **parts: float) -> MemoryNeed:
        """Return the sum of named parts; an underscore in a name stands for a space."""
        return cls(tuple((name.replace("_", " "), int(n)) for name, n in parts.items() if n >= 1))

    @property
    def total_bytes(self) -> int:
        """What is promised, in bytes: the sum, with two digits that count, never below it."""
        needed = round_up(sum(n for _, n in self.parts))
        return needed if self.limit_bytes is None else min(needed, self.limit_bytes)

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {"bytes": self.total_bytes, "parts": dict(self.parts)}


def round_up(n_bytes: float) -> int:
    """Return the least number with two digits that count which is not below ``n_bytes``.

    >>> round_up(123_400_000), round_up(99)
    (130000000, 99)
    """
    if n_bytes < 1:
        return 0
    unit = 10 ** max(0, floor(log10(n_bytes)) - 1)
    return int(-(-int(n_bytes) // unit) * unit)


# Measured: what is imported, and what the allocator keeps, from the first plan of a run to its end: 5 to 10 MB.
LATE_BYTES = 10 * 10**6
# Measured: PyArrow, which writes what a reduced run keeps, 45 MB where nothing has imported it before.
TABLES_BYTES = 45 * 10**6
# Measured: a worker process with NumPy and an application, 18 to 22 MB of its own; and what its calls import.
WORKER_BYTES = 30 * 10**6
#: Most bytes of decoded objects that a worker process keeps beside the items, which all workers share.
#: By judgement: a worker meets the spans of a strip in turn, tile after tile; beyond that objects would be a second
#: cache of all items in each process. No benchmark.
REMEMBERED_BYTES = 32 << 20
# By arithmetic: a product of float32 and one of float64 that is made of it; or codes, a mask and scores.
CELL_BYTES = 12
# By arithmetic: three buffers of chunks beside the open ones are being written, packed meanwhile into others.
PACKED_CHUNKS = 3


@dataclass(frozen=True)
class RunMemory:
    """What decides how much memory one rank of a run holds.

    Attributes
    ----------
    held_bytes : int
        What the process holds before the first item.
    n_workers : int
    in_processes : bool
        Whether workers are processes.
    arena_bytes : int
        Of slots of equal items; 0 where they differ in size.
    items_bytes : float
        Of all items, where they differ in size.
    room_bytes : float
        Of the cache of items that differ in size.
    item_bytes : int
        Of the largest item.
    ahead_bytes : int
        Of files that threads read for the workers, those that are being parsed among them.
    parse_bytes : int
        What parsing files takes beside them, on all workers.
    parse_memory : float
        Bytes that parsing takes for each byte of the item, where that is more.
    chunk_bytes : int
        Of the buffers of a chunk.
    n_chunks : int
        That are open or being written at a time.
    tile_cells : int
        Pairs of one compare call.
    called_bytes : float
        Of the objects of one compare call, which a worker process makes anew; none of arrays.
    reduced : bool
        Whether chunks hold no scores, and a table is written at the end.
    kept_bytes : int
        Of the pairs that a reduced run keeps in memory.
    """

    held_bytes: int
    n_workers: int
    in_processes: bool = False
    arena_bytes: int = 0
    items_bytes: float = 0.0
    room_bytes: float = 0.0
    item_bytes: int = 0
    ahead_bytes: int = 0
    parse_bytes: int = 0
    parse_memory: float = 4.0
    chunk_bytes: int = 0
    n_chunks: int = 0
    tile_cells: int = 0
    called_bytes: float = 0.0
    reduced: bool = False
    kept_bytes: int = 0

    def need(self) -> MemoryNeed:
        """Return what it will hold at most, and what for."""
        lanes = self.n_workers
        parsing = max(self.parse_bytes, lanes * self.item_bytes * self.parse_memory) + lanes * self.item_bytes
        ragged = min(self.items_bytes, self.room_bytes + lanes * self.item_bytes)
        objects = min(ragged, self.called_bytes + REMEMBERED_BYTES) if self.called_bytes else 0
        late = LATE_BYTES + (TABLES_BYTES if self.reduced else 0)
        return MemoryNeed.of(
            interpreter_and_libraries=self.held_bytes + late,
            worker_processes=lanes * (WORKER_BYTES + objects) if self.in_processes else 0,
            items=self.arena_bytes + ragged,
            files_read_ahead=self.ahead_bytes,
            parsing=parsing,
            comparing=lanes * self.tile_cells * CELL_BYTES,
            results=(self.n_chunks + PACKED_CHUNKS) * self.chunk_bytes + self.kept_bytes,
        )


# Measured: what a sort of 1 GB takes beside its plan, threads and their stacks included, 4 to 9 MB.
SORT_BYTES = 10 * 10**6
# Measured: what the allocator keeps beside buffers of the engine, up to 4 % of them (2,000,000 lines).
SORT_SHARE = 1.06


def need_of_sort(held_bytes: int, kept_bytes: int, engine_bytes: int, memory_bytes: int) -> MemoryNeed:
    """Return what a sort will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now.
    kept_bytes : int
        Of rows as they are read and written.
    engine_bytes : int
        Of the plan of the engine.
    memory_bytes : int
        Limit of the whole process, by which the plan was made.
    """
    parts = MemoryNeed.of(
        interpreter_and_libraries=held_bytes + SORT_BYTES,
        reading_and_writing=kept_bytes,
        sorting=SORT_SHARE * engine_bytes,
    ).parts
    return MemoryNeed(parts, memory_bytes)


# What an analysis takes: bytes for each pair of items (n^2 of them) beside the matrix, measured at 3,000 items with a
# file of float32 and with a run; of linkages 3 by arithmetic (core/linkage.py), where mostly a third is taken.
PAIR_BYTES = {
    "single": 2.0, "complete": 3.0, "average": 3.0, "weighted": 3.0, "ward": 3.0, "pwc": 8.0, "hdbscan": 28.0,
    "greedy": 0.0, "nj": 4.5, "nj in float64": 8.5, "map": 9.0, "neighbors": 0.0, "outliers": 0.0,
}  # fmt: skip
#: Analyses that read their input by blocks of rows, and hold no matrix that does not lie in memory.
STREAMED = ("neighbors", "outliers", "greedy", "nj", "nj in float64")
_BLOCKWISE = STREAMED[:3]
# Measured: blocks of 16 MiB of float64 (analytics/neighbours.py) that a pass holds at a time, 2 to 2.4 of them at 3,000
# to 10,000 items; and while a function makes distances of scores, 4 more at 6,000 items.
PASS_BLOCKS, MADE_BLOCKS, BLOCK_BYTES = 2.5, 4.0, 16 << 20
# By arithmetic: a neighbour in two arrays, and as two objects of Python in two lists while a table is written.
NEIGHBOR_BYTES = 16 + 72
# Measured: late imports of SciPy (hierarchy, sparse graphs), and blocks of rows while they are checked: 9 to 20 MB.
ANALYSIS_BYTES = 20 * 10**6
# Measured: a picture of 1,200 x 900 points is drawn three times as wide and high, 3 bytes a point, and made smaller:
# what a map of 16 items takes beyond what is held before.
PICTURE_BYTES = 55 * 10**6
# Measured: of greedy, two items and a distance both ways, and their sorted copies: 126 bytes a pair of 4,500,000.
NEAR_BYTES = 130
# Measured: 17 to 20 bytes a pair while the number of clusters is sought (2,000 to 6,000 items, of which 5,000 are
# drawn): distances, those from their level, and what finds the nearest of each item; a tenth more for what is linked.
NUMBER_BYTES = 22


def need_of_analysis(
    held_bytes: int,
    method: str,
    n: int,
    matrix_bytes: int,
    *,
    memory_bytes: int | None = None,
    n_near: int = 0,
    n_drawn: int = 0,
    is_made: bool = False,
) -> MemoryNeed:
    """Return what an analysis of a matrix will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now.
    method : str
        One of ``PAIR_BYTES``.
    n : int
        Number of items.
    matrix_bytes : int
        Of the values of the matrix, which are in memory or mapped while it is read.
    memory_bytes : int, optional
        Most memory for rows, beyond which they lie on disk, as ``core.linkage.plan_linkage`` decides.
    n_near : int
        Of greedy: pairs within the bound, which are all held. Of neighbours: all that are found.
    n_drawn : int
        Items by which the number of clusters is sought before; 0 where it is given.
    is_made : bool
        Whether a function makes the distances while they are read.
    """
    blocks = (PASS_BLOCKS if method in _BLOCKWISE else 0) + (MADE_BLOCKS if is_made else 0)
    near = NEAR_BYTES if method == "greedy" else NEIGHBOR_BYTES
    working = PAIR_BYTES[method] * n * n + near * n_near + blocks * min(8 * n * n, BLOCK_BYTES)
    if memory_bytes is not None and working + matrix_bytes > memory_bytes:
        working, matrix_bytes = min(working, memory_bytes), min(matrix_bytes, memory_bytes)
    sought = NUMBER_BYTES * n_drawn * n_drawn
    return MemoryNeed.of(
        interpreter_and_libraries=held_bytes + ANALYSIS_BYTES,
        matrix=matrix_bytes,
        # It is drawn when what the map took is free again.
        picture=max(PICTURE_BYTES - working, 0) if method == "map" else 0,
        **{method: working} if working >= sought else {"number_of_clusters": sought},
    )


# Measured at 200,000 and 3,000,000 pairs: both ends of each, its code twice, and numbers of those that are being
# scored; beside its scores.
LISTED_PAIR_BYTES = 40


def need_of_list(held_bytes: int, n_pairs: int, score_bytes: int, items_bytes: int) -> MemoryNeed:
    """Return what computing a list of pairs into a list of scores will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now.
    n_pairs : int
    score_bytes : int
        Of the scores of a pair.
    items_bytes : int
        Of the prepared rows that are held at a time.
    """
    return MemoryNeed.of(
        interpreter_and_libraries=held_bytes + LATE_BYTES,
        items=items_bytes,
        results=(LISTED_PAIR_BYTES + 2 * score_bytes) * n_pairs,
    )


# Measured at 2,000,000 pairs: nearest items, or groups, of pairs that are in memory: their ends both ways, and sorted.
KEPT_PAIR_BYTES = {"neighbors": 130, "clusters": 120}
# By arithmetic: a chunk as it is read, unpacked, turned, and while the best of its rows are chosen, in float64 or less.
READ_CHUNKS = 4
# By arithmetic: two indices and a score, as a table and as arrays.
ROW_BYTES = 2 * 24


def need_of_pairs(held_bytes: int, use: str, n_pairs: int, n_found: int = 0) -> MemoryNeed:
    """Return what an analysis of kept pairs, which are in memory, will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now, the pairs among it.
    use : str
        One of ``KEPT_PAIR_BYTES``.
    n_pairs, n_found : int
        Pairs that are kept, and neighbours that are found among them.
    """
    working = KEPT_PAIR_BYTES[use] * n_pairs + NEIGHBOR_BYTES * n_found
    return MemoryNeed.of(interpreter_and_libraries=held_bytes + ANALYSIS_BYTES, **{use: working})


def need_of_nearest(held_bytes: int, n_found: int, chunk_bytes: int, n_rows: int, *, in_table: bool) -> MemoryNeed:
    """Return what reading the nearest items of a run will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now.
    n_found : int
        Neighbours of all items.
    chunk_bytes : int
        Of the scores of a chunk; 0 where there are none.
    n_rows : int
        Rows of the table that the run keeps instead; 0 where there is none.
    in_table : bool
        Whether there is such a table.
    """
    return MemoryNeed.of(
        interpreter_and_libraries=held_bytes + ANALYSIS_BYTES + (TABLES_BYTES if in_table else 0),
        neighbors=NEIGHBOR_BYTES * n_found,
        results=READ_CHUNKS * chunk_bytes + ROW_BYTES * n_rows,
    )


# Measured: what a join of 500 rows takes beside what is held when both tables are on disk, 11 MB: the kernels of
# PyArrow, and the writer of a table; and what batches of larger ones leave behind.
JOIN_BYTES = 20 * 10**6
# By arithmetic: the number of a key, its row in the order of the keys, and copies of both while they are ordered.
KEYED_BYTES = 56


def need_of_join(
    held_bytes: int,
    peak_bytes: int,
    row_bytes: int,
    pair_bytes: int,
    result_bytes: int,
    mapped_bytes: int,
    key_bytes: int,
    *,
    memory_bytes: int,
) -> MemoryNeed:
    """Return what a nearest join will hold at most.

    Parameters
    ----------
    held_bytes, peak_bytes : int
        What the process holds now, the tables on disk, and the most that it has held.
    row_bytes : int
        Of the rows of both tables that are in memory at a time, with their 8-bit copies.
    pair_bytes : int
        Of what is near to these rows.
    result_bytes : int
        Of the other columns of a batch of results.
    mapped_bytes : int
        Of the files of other columns, while rows are taken from them.
    key_bytes : int
        Of keys and their order.
    memory_bytes : int
        Limit of the whole process, by which the work was cut.
    """
    parts = MemoryNeed.of(
        interpreter_and_libraries=held_bytes + JOIN_BYTES,
        rows=row_bytes,
        neighbors=pair_bytes,
        results=2 * result_bytes,
        mapped_files=mapped_bytes,
        keys=key_bytes,
    ).parts
    read = peak_bytes - sum(n for _, n in parts)
    parts += (("tables as they were read", read),) if read > 0 else ()
    return MemoryNeed(parts, max(memory_bytes, peak_bytes))


# Measured at 512 items a side: Zarr, which writes the result; of LU scipy.linalg, of convolutions ndimage and signal.
BLOCKS_BYTES = {"matmul": 20 * 10**6, "lu": 30 * 10**6, "convolve": 90 * 10**6, "pagerank": 20 * 10**6}
# By arithmetic: arrays of the size of the result that an application has beside it, and of a block that a call makes.
BLOCK_ARRAYS = {"matmul": (0.0, 1), "lu": (1.0, 2), "convolve": (1.0, 4), "pagerank": (3.0, 4)}


def need_of_blocks(
    held_bytes: int,
    application: str,
    input_bytes: int,
    result_bytes: int,
    *,
    mapped_bytes: int,
    block_bytes: int,
    room_bytes: float,
    n_workers: int,
) -> MemoryNeed:
    """Return what block tasks on one rank, this process, will hold at most.

    Parameters
    ----------
    held_bytes : int
        What the process holds now, the session open.
    application : str
        One of ``BLOCK_ARRAYS``.
    input_bytes, result_bytes : int
        Of the arrays that are read and written.
    mapped_bytes : int
        Of inputs that are mapped while they are read.
    block_bytes : int
        Of a block of the result.
    room_bytes : float
        Most bytes of arrays.
    n_workers : int
        Calls at a time.
    """
    arrays, temporary = BLOCK_ARRAYS[application]
    needed = input_bytes + (1 + arrays) * result_bytes
    return MemoryNeed.of(
        interpreter_and_libraries=held_bytes + BLOCKS_BYTES[application],
        arrays=min(room_bytes, needed),
        mapped_files=mapped_bytes,
        calls=n_workers * temporary * block_bytes,
    )


# Measured: NumPy, SciPy, Pillow or PyArrow and the application, before the first item, 60 MB (vectors) to 190 MB
# (forensics), and what is imported later.
PLANNED_BYTES = 200 * 10**6


def need_of_plan(
    n_items: int, host_slots: int, item_bytes: float, n_workers: int, chunk_bytes: float = 0, n_chunks: int = 0
) -> MemoryNeed:
    """Return what one node of a run that is only described will hold at most.

    Parameters
    ----------
    n_items, host_slots : int
    item_bytes : float
        Of an item, in the mean.
    n_workers : int
        Threads.
    chunk_bytes : float
        Of a chunk of the result.
    n_chunks : int
        That are open at a time; 0 where that is not known.
    """
    held = min(n_items, host_slots) * item_bytes
    results = (n_chunks + PACKED_CHUNKS) * chunk_bytes
    return MemoryNeed.of(
        interpreter_and_libraries=PLANNED_BYTES, items=held, parsing=n_workers * 5 * item_bytes, results=results
    )
