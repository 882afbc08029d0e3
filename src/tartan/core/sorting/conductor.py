"""Who sorts, keeps and merges what in a sort on several ranks: a state machine without a clock.

Every chunk of the input is sorted by one rank, which keeps its run. Every part of the output is merged by one rank from
the runs of all. When a rank is lost, the chunks whose runs it kept are sorted again by others, and the parts that it
had not written are merged by others; what others keep and have written stays. The run of a chunk is the same whoever
makes it, so cuts and parts that are known stay right.

Events are methods; each returns what ranks are to do next. Nothing is sent twice, and nothing is decided elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tartan.core.sorting.shares import ChunkGrid, divide_by_room, divide_evenly, sizes_of


class SortThese(NamedTuple):
    """A rank sorts chunks and keeps their runs."""

    rank: str
    chunks: tuple[int, ...]


class CutThese(NamedTuple):
    """A rank says where its runs of these chunks are cut by the splitters."""

    rank: str
    chunks: tuple[int, ...]


class SampleThese(NamedTuple):
    """A rank sends keys of its runs of these chunks."""

    rank: str
    chunks: tuple[int, ...]


class MergeThis(NamedTuple):
    """A rank merges a part and writes it.

    Attributes
    ----------
    rank : str
    part : int
    begin : int
        Number of its first record in the output.
    pieces : tuple of (int, str, int, int)
        Chunk, rank that keeps its run, first record of the run, and the one behind the last; in the order of chunks,
        without empty ones.
    """

    rank: str
    part: int
    begin: int
    pieces: tuple[tuple[int, str, int, int], ...]


class Stuck(NamedTuple):
    """No rank is left that could do what is missing."""

    what: str


class AllWritten(NamedTuple):
    """Every part is written."""


SortAction = SortThese | SampleThese | CutThese | MergeThis | Stuck | AllWritten


@dataclass(frozen=True)
class SortRank:
    """What a rank can do.

    Attributes
    ----------
    name : str
    reads, writes : bool
        Whether it sees all sources, and the destination.
    storage : bool
        Whether it lies beside the data: it reads and sorts, and merges only where no other rank can.
    room : int
        Most chunks whose runs its disk holds, those that it has already not counted.
    """

    name: str
    reads: bool = True
    writes: bool = True
    storage: bool = False
    room: int = 1 << 62


@dataclass
class _PartTable:
    sizes: list[int]
    begins: list[int]
    todo: dict[str, list[int]] = field(default_factory=dict)
    under_way: dict[int, str] = field(default_factory=dict)
    written: dict[int, str] = field(default_factory=dict)
    divided: bool = False


class SortConductor:
    """The table of chunks and parts.

    Parameters
    ----------
    grid : ChunkGrid
    ahead : int
        Parts that a rank has under way at a time.
    """

    def __init__(self, grid: ChunkGrid, *, ahead: int = 2) -> None:
        self.grid = grid
        self._ahead = ahead
        self._ranks: dict[str, SortRank] = {}
        self._keeper: dict[int, str] = {}
        self._sorting: dict[int, str] = {}
        self._found: set[int] = set()
        self._asked: set[tuple[str, int]] = set()
        self._sampled: set[int] = set()
        self._cuts: dict[int, tuple[int, ...]] = {}
        self._split = False
        self._parts: _PartTable | None = None
        self._over = False

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> tuple[SortRank, ...]:
        """The live ranks."""
        return tuple(self._ranks.values())

    @property
    def readers(self) -> list[str]:
        """The ranks that sort: those beside the data, where there are some."""
        able = [rank for rank in self._ranks.values() if rank.reads]
        return [rank.name for rank in able if rank.storage] or [rank.name for rank in able]

    @property
    def writers(self) -> list[str]:
        """The ranks that merge: not those beside the data, where others can."""
        able = [rank for rank in self._ranks.values() if rank.writes]
        return [rank.name for rank in able if not rank.storage] or [rank.name for rank in able]

    def keeper_of(self, chunk: int) -> str:
        """Return the rank that keeps the run of a chunk; empty if none does."""
        return self._keeper.get(chunk, "")

    @property
    def n_sorted(self) -> int:
        """Chunks whose runs are kept."""
        return len(self._keeper)

    @property
    def n_merging(self) -> int:
        """Parts under way."""
        return len(self._parts.under_way) if self._parts else 0

    @property
    def shares(self) -> dict[str, int]:
        """Records that each rank has written."""
        found: dict[str, int] = {}
        if self._parts is not None:
            for part, name in self._parts.written.items():
                found[name] = found.get(name, 0) + self._parts.sizes[part]
        return found

    @property
    def records_written(self) -> int:
        """Records of the parts that are written."""
        return sum(self.shares.values())

    @property
    def needs_splitters(self) -> bool:
        """Whether samples of all chunks are there, and splitters are to be chosen."""
        return not self._split and len(self._sampled) == self.grid.n_chunks

    # -- events -------------------------------------------------------------------------------------------------

    def join(self, rank: SortRank, held: Iterable[int] = ()) -> list[SortAction]:
        """Take a rank in, with the chunks whose runs it has already."""
        self._ranks[rank.name] = rank
        for chunk in held:
            if chunk not in self._keeper and chunk < self.grid.n_chunks:
                self._keeper[chunk] = rank.name
                self._found.add(chunk)
                self._sorting.pop(chunk, None)
        return []

    def lose(self, name: str) -> list[SortAction]:
        """Give up a rank: what it kept, and what it had not written."""
        if self._ranks.pop(name, None) is None:
            return []
        self._keeper = {chunk: keeper for chunk, keeper in self._keeper.items() if keeper != name}
        self._sorting = {chunk: sorter for chunk, sorter in self._sorting.items() if sorter != name}
        self._asked = {(rank, chunk) for rank, chunk in self._asked if rank != name}
        if self._parts is not None:
            orphans = self._parts.todo.pop(name, [])
            orphans += [part for part, rank in self._parts.under_way.items() if rank == name]
            self._parts.under_way = {part: rank for part, rank in self._parts.under_way.items() if rank != name}
            self._give(sorted(orphans))
        return self.next()

    def note_sorted(self, name: str, chunk: int) -> list[SortAction]:
        """Take note that a rank keeps the run of a chunk."""
        if name in self._ranks and self._sorting.get(chunk) == name:
            del self._sorting[chunk]
            self._keeper[chunk] = name
            self._found.discard(chunk)
        return self.next()

    def note_sampled(self, name: str, chunk: int) -> list[SortAction]:
        """Take note that the keys of a chunk are known."""
        self._sampled.add(chunk)
        return self.next()

    def set_splitters(self) -> list[SortAction]:
        """Take note that splitters are chosen and all ranks know them, or will before what follows."""
        self._split = True
        return self.next()

    def note_cut(self, chunk: int, cuts: Sequence[int]) -> list[SortAction]:
        """Take note of where the run of a chunk is cut."""
        self._cuts[chunk] = tuple(cuts)
        return self.next()

    def note_written(self, name: str, part: int) -> list[SortAction]:
        """Take note that a part is in its place."""
        if self._parts is not None and self._parts.under_way.get(part) == name:
            del self._parts.under_way[part]
            self._parts.written[part] = name
        return self.next()

    def take_back(self, name: str, part: int) -> None:
        """Take back a part for which a run could not be fetched; it goes to the same rank when ``next`` is called."""
        if self._parts is not None and self._parts.under_way.get(part) == name:
            del self._parts.under_way[part]
            self._parts.todo.setdefault(name, []).insert(0, part)

    def drop_run(self, name: str, chunk: int) -> list[SortAction]:
        """Give up the run of a chunk that is damaged; its chunk is sorted again."""
        if self._keeper.get(chunk) == name:
            del self._keeper[chunk]
            self._asked -= {(name, chunk), (name, chunk + self.grid.n_chunks)}
        return self.next()

    def next(self) -> list[SortAction]:
        """Return what ranks are to do now and have not been told."""
        if self._over or not self._ranks:
            return []
        missing = [n for n in range(self.grid.n_chunks) if n not in self._keeper and n not in self._sorting]
        actions = self._sort(missing)
        if missing or self._sorting:
            return actions
        if not self._split:
            return self._ask(SampleThese, [n for n in range(self.grid.n_chunks) if n not in self._sampled])
        uncut = [n for n in range(self.grid.n_chunks) if n not in self._cuts]
        if uncut:
            return self._ask(CutThese, uncut)
        return self._merge()

    # -- decisions ----------------------------------------------------------------------------------------------

    def _sort(self, missing: list[int]) -> list[SortAction]:
        if not missing:
            return []
        if not self.readers:
            return [Stuck("no rank that sees the sources is left")]
        shares, n_left = divide_by_room(missing, {name: self._room_left(name) for name in self.readers})
        if n_left:
            count = self.grid.chunk_records * n_left
            return [Stuck(f"the disks of the ranks have no room for the run files of {count} records")]
        for name, chunks in shares.items():
            self._sorting.update(dict.fromkeys(chunks, name))
        return [SortThese(name, chunks) for name, chunks in shares.items()]

    def _room_left(self, name: str) -> int:
        new = [chunk for chunk, keeper in self._keeper.items() if keeper == name and chunk not in self._found]
        return self._ranks[name].room - len(new) - sum(sorter == name for sorter in self._sorting.values())

    def _ask(self, kind: type[SampleThese] | type[CutThese], chunks: list[int]) -> list[SortAction]:
        """Ask keepers once about chunks; who takes a chunk over is asked anew."""
        by_rank: dict[str, list[int]] = {}
        number = 0 if kind is SampleThese else self.grid.n_chunks
        for chunk in chunks:
            asked = (self._keeper[chunk], chunk + number)
            if asked not in self._asked:
                self._asked.add(asked)
                by_rank.setdefault(self._keeper[chunk], []).append(chunk)
        return [kind(name, tuple(mine)) for name, mine in by_rank.items()]

    def _merge(self) -> list[SortAction]:
        if self._parts is None:
            sizes = sizes_of([self._cuts[chunk] for chunk in range(self.grid.n_chunks)], self.grid)
            self._parts = _PartTable(sizes, [0, *itertools.accumulate(sizes)][:-1])
        parts = self._parts
        if not parts.divided:
            if not self.writers:
                return [Stuck("no rank that sees the destination is left")]
            parts.divided = True
            self._give_all()
        self._adopt_orphans()
        if len(parts.written) == len(parts.sizes):
            self._over = True
            return [AllWritten()]
        if not self.writers:
            return [Stuck("no rank that sees the destination is left")]
        actions: list[SortAction] = []
        busy: dict[str, int] = {}
        for name in parts.under_way.values():
            busy[name] = busy.get(name, 0) + 1
        for name, todo in parts.todo.items():
            while todo and busy.get(name, 0) < self._ahead and name in self._ranks:
                part = todo.pop(0)
                busy[name] = busy.get(name, 0) + 1
                parts.under_way[part] = name
                actions.append(MergeThis(name, part, parts.begins[part], self._pieces(part)))
        return actions

    def _give_all(self) -> None:
        """Give every rank neighbouring parts of as many records: those of which it keeps the most itself."""
        assert self._parts is not None
        parts, writers = self._parts, self.writers
        total, place = max(1, sum(parts.sizes)), 0
        groups: list[list[int]] = [[] for _ in writers]
        for part, size in enumerate(parts.sizes):
            middle = parts.begins[part] + size / 2
            place = min(len(writers) - 1, max(place, int(middle * len(writers) / total)))
            groups[place].append(part)
        kept = {(number, name): 0 for number in range(len(groups)) for name in writers}
        for number, group in enumerate(groups):
            for part in group:
                for _, keeper, begin, end in self._pieces(part):
                    if (number, keeper) in kept:
                        kept[number, keeper] += end - begin
        # Of equal ones in the order of the ranks: then the first rank begins the output, as it begins the input.
        order = sorted(kept, key=lambda pair: (-kept[pair], pair[0], writers.index(pair[1])))
        free, open_groups = set(writers), set(range(len(groups)))
        for number, name in order:
            if name in free and number in open_groups:
                free.discard(name)
                open_groups.discard(number)
                parts.todo[name] = groups[number]

    def _give(self, orphans: list[int]) -> None:
        assert self._parts is not None
        writers = self.writers
        for name, mine in divide_evenly(orphans, writers).items():
            self._parts.todo.setdefault(name, []).extend(mine)
        if orphans and not writers:
            self._parts.todo.setdefault("", []).extend(orphans)

    def _adopt_orphans(self) -> None:
        """Give out parts that had no taker when their rank was lost."""
        assert self._parts is not None
        orphans = [
            part for name in list(self._parts.todo) if name not in self._ranks for part in self._parts.todo.pop(name)
        ]
        self._give(sorted(orphans))

    def _pieces(self, part: int) -> tuple[tuple[int, str, int, int], ...]:
        pieces = []
        for chunk in range(self.grid.n_chunks):
            cuts: Mapping[int, int] | tuple[int, ...] = self._cuts[chunk]
            begin = cuts[part - 1] if part else 0
            end = cuts[part] if part < len(cuts) else self.grid.count(chunk)
            if begin < end:
                pieces.append((chunk, self._keeper[chunk], begin, end))
        return tuple(pieces)
