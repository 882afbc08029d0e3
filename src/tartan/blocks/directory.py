"""What a session knows of its spaces: their versions, and which ranks hold which piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tartan.blocks.space import Space
from tartan.blocks.task import Subtask, ranges_read
from tartan.blocks.work import FROM_SOURCE, BlockArgument, BlockFunction, PartOrigin, RangeKey
from tartan.core.affinity import TaskNeeds
from tartan.core.assignment import Assignment
from tartan.core.pieces import PieceKey, PieceMap, PiecePart
from tartan.core.space import Box, size_of
from tartan.core.task_divider import UpdatedBlocks

Parts = dict[RangeKey, tuple[PiecePart, ...]]


@dataclass(frozen=True)
class SubtaskJob:
    """A subtask as it was when its task began: enough to run it, and to run it again later.

    Attributes
    ----------
    task, subtask : int
    function : BlockFunction
    index : tuple of int
    arguments : tuple of BlockArgument
    parts : mapping of RangeKey to tuple of PiecePart
        What it reads, at the version of that time.
    """

    task: int
    subtask: int
    function: BlockFunction
    index: tuple[int, ...]
    arguments: tuple[BlockArgument, ...]
    parts: Parts

    @property
    def key(self) -> tuple[int, int]:
        """What names it."""
        return self.task, self.subtask

    def outputs(self) -> list[tuple[PieceKey, RangeKey]]:
        """Return the pieces that it writes."""
        return [
            (PieceKey(self.task, self.subtask, number), argument.range)
            for number, argument in enumerate(self.arguments)
            if argument.access != "read"
        ]

    def inputs(self) -> set[PieceKey]:
        """Return the pieces that it needs and that another subtask wrote."""
        return {part.key for parts in self.parts.values() for part in parts if not part.key.from_source}


@dataclass
class BlockDirectory:
    """Spaces and the places of their pieces.

    Attributes
    ----------
    spaces : dict of int to Space
    maps : dict of int to PieceMap
    holders : dict of PieceKey to list of int
        Ranks that have a piece; a piece of a source that is on no list is read from the source.
    boxes : dict of PieceKey to Box
        What pieces cover, those of sources left out.
    """

    spaces: dict[int, Space] = field(default_factory=dict)
    maps: dict[int, PieceMap] = field(default_factory=dict)
    holders: dict[PieceKey, list[int]] = field(default_factory=dict)
    boxes: dict[PieceKey, Box] = field(default_factory=dict)

    def add(self, space: Space, owners: Sequence[int] | None) -> None:
        """Add a space; ``owners`` says which rank has each block, None that all are read from the source."""
        self.spaces[space.number] = space
        self.maps[space.number] = PieceMap(space.number, space.blocks)
        for block, rank in enumerate(owners or ()):
            self.holders[PieceKey(0, space.number, block)] = [rank]

    def parts_of(self, subtasks: Iterable[Subtask]) -> Parts:
        """Return what all ranges consist of now that subtasks read."""
        found: Parts = {}
        for subtask in subtasks:
            for key in ranges_read(subtask):
                if key not in found:
                    found[key] = tuple(self.maps[key.space].parts(key.box))
        return found

    def piece_box(self, key: PieceKey) -> Box:
        """Return what a piece covers."""
        return self.maps[key.subtask].grid.box(key.output) if key.from_source else self.boxes[key]

    def origins(self, parts: Sequence[PiecePart], rank: int) -> tuple[PartOrigin, ...]:
        """Return where a rank gets the parts of a range; they must be somewhere."""
        return tuple(PartOrigin(box, key, self.piece_box(key), self._source_for(key, rank)) for box, key in parts)

    def _source_for(self, key: PieceKey, rank: int) -> int:
        holders = self.holders.get(key, ())
        if not holders:
            return FROM_SOURCE
        return rank if rank in holders else holders[rank % len(holders)]

    def missing(self, keys: Iterable[PieceKey]) -> set[PieceKey]:
        """Return the pieces that no rank has and no source."""
        return {key for key in keys if not key.from_source and not self.holders.get(key)}

    def note(self, key: PieceKey, box: Box, rank: int) -> None:
        """Note that a rank has a piece."""
        self.boxes[key] = box
        holders = self.holders.setdefault(key, [])
        if rank not in holders:
            holders.append(rank)

    def lose(self, rank: int) -> None:
        """Note that a rank has nothing any more; blocks of sources are read again."""
        for key in [key for key, holders in self.holders.items() if rank in holders]:
            self.holders[key].remove(rank)
            if key.from_source and not self.holders[key]:
                del self.holders[key]

    def forget(self, keys: Iterable[PieceKey]) -> None:
        """Forget pieces of which no version needs anything."""
        for key in keys:
            self.holders.pop(key, None)
            self.boxes.pop(key, None)

    def needs(self, job: SubtaskJob) -> dict[RangeKey, float]:
        """Return the ranges that a subtask reads, with their bytes."""
        return {key: float(self.spaces[key.space].dtype.itemsize * size_of(key.box)) for key in job.parts}

    def owners(self, space: Space) -> np.ndarray:
        """Return the rank that has each block of a space, -1 where none has."""
        last = [self.maps[space.number].of_block(block)[-1].key for block in range(space.blocks.n_blocks)]
        return np.array([(self.holders.get(key) or [-1])[0] for key in last]).reshape(space.counts)

    def bytes_of(self, jobs: Sequence[SubtaskJob]) -> float:
        """Return the bytes of all that jobs read, and of the spaces that they write."""
        read = {key: size for job in jobs for key, size in self.needs(job).items()}
        written = {wanted.space for job in jobs for _, wanted in job.outputs()}
        return sum(read.values()) + sum(self.spaces[space].nbytes for space in written)

    def assignment(self, jobs: Sequence[SubtaskJob], ranks: Sequence[int]) -> Assignment:
        """Return jobs with their needs, and what of these ranks hold, as the policy wants them."""
        items = {space: self.spaces[space].dtype.itemsize for space in self.spaces}
        demand, units = TaskNeeds.of(jobs, self.needs)
        parts = {key: found for job in jobs for key, found in job.parts.items()}
        place = {rank: k for k, rank in enumerate(ranks)}
        held = np.zeros((len(ranks), len(units)))
        for number, unit in enumerate(units):
            assert isinstance(unit, RangeKey)
            for box, key in parts[unit]:
                for rank in self.holders.get(key, ()):
                    if rank in place:
                        held[place[rank], number] += items[unit.space] * size_of(box)
        index = np.array([job.index for job in jobs]) if len({len(job.index) for job in jobs}) == 1 else None
        return Assignment(demand, held, np.ones(len(ranks)), index)

    def updated(self, jobs: Sequence[SubtaskJob], ranks: Sequence[int]) -> UpdatedBlocks | None:
        """Return the blocks that jobs update in place; None where each does not update one whole block of a space."""
        boxes = [wanted for job in jobs for _, wanted in job.outputs()]
        updates = {(job.key, a.range) for job in jobs for a in job.arguments if a.access == "update"}
        spaces = {wanted.space for wanted in boxes}
        if len(spaces) != 1 or not len(boxes) == len(updates) == len(jobs) == len({key for key, _ in updates}):
            return None
        space = self.spaces[spaces.pop()]
        index = [[start // step for (start, _), step in zip(w.box, space.blocks.block, strict=True)] for w in boxes]
        if any(space.blocks.box_at(at) != wanted.box for at, wanted in zip(index, boxes, strict=True)):
            return None
        place = {rank: k for k, rank in enumerate(ranks)}
        keys = [self.maps[space.number].of_block(space.blocks.number(at))[-1].key for at in index]
        holders = [next((place[rank] for rank in self.holders.get(key, ()) if rank in place), -1) for key in keys]
        sizes = [float(space.dtype.itemsize * size_of(wanted.box)) for wanted in boxes]
        return UpdatedBlocks(space.number, np.array(index), np.array(sizes), np.array(holders))
