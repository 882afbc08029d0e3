"""What a session knows of its spaces: their versions, and which ranks hold which piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tartan.blocks.jobs import Parts, RunTable
from tartan.blocks.space import Space
from tartan.blocks.work import FROM_SOURCE, PartOrigin, RangeKey
from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.assignment import Assignment
from tartan.core.blocks.boxes import block_parts, box_of, boxes_of, sizes_of
from tartan.core.blocks.pieces import PieceKey, PieceMap, PiecePart
from tartan.core.blocks.space import Box, common, size_of
from tartan.core.blocks.task_divider import UpdatedBlocks

NOWHERE = -1
"""In place of a rank: no rank has a block, it is read from the source."""
_IN_PARTS = -2
"""In place of a rank: a block consists of several pieces, or several ranks have it."""


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
    saved : dict of PieceKey to int
        Pieces that the newest checkpoint has, and the number under which ranks know its file.
    """

    spaces: dict[int, Space] = field(default_factory=dict)
    maps: dict[int, PieceMap] = field(default_factory=dict)
    holders: dict[PieceKey, list[int]] = field(default_factory=dict)
    boxes: dict[PieceKey, Box] = field(default_factory=dict)
    saved: dict[PieceKey, int] = field(default_factory=dict)
    _lies: dict[int, np.ndarray] = field(default_factory=dict)
    _newest: int = 0

    def add(self, space: Space, owners: Sequence[int] | None) -> None:
        """Add a space; ``owners`` says which rank has each block, None that all are read from the source."""
        self.spaces[space.number] = space
        self.maps[space.number] = PieceMap(space.number, space.blocks)
        self._lies[space.number] = np.full(space.blocks.n_blocks, NOWHERE)
        for block, rank in enumerate(owners or ()):
            self.holders[PieceKey(0, space.number, block)] = [rank]
        if owners:
            self._lies[space.number][:] = owners

    def parts_of(self, wanted: RangeKey) -> tuple[PiecePart, ...]:
        """Return what a range consists of now."""
        return tuple(self.maps[wanted.space].parts(wanted.box))

    def commit(self, task: int, written: Mapping[int, Sequence[tuple[PieceKey, Box]]]) -> set[PieceKey]:
        """Make the next versions of spaces, all at once, from what a task wrote.

        Parameters
        ----------
        task : int
            Its number.
        written : mapping of int to sequence of (PieceKey, Box)
            The new pieces of each space.

        Returns
        -------
        set of PieceKey
            Pieces of which nothing is left.
        """
        old: set[PieceKey] = set()
        for number, pieces in written.items():
            old |= self.maps[number].replace(pieces)
            touched = block_parts(self.maps[number].grid, boxes_of([box for _, box in pieces])).blocks
            if number in self._lies:
                for block in np.unique(touched).tolist():
                    self._lies[number][block] = self._rank_of(number, block)
        self._newest = task
        return old

    def _rank_of(self, space: int, block: int) -> int:
        """Return the one rank that has a block which is one piece; else ``NOWHERE`` or ``_IN_PARTS``."""
        keys = self.maps[space].keys_of(block)
        holders = self.holders.get(keys[0], ())
        if len(keys) > 1 or len(holders) > 1:
            return _IN_PARTS
        return holders[0] if holders else NOWHERE

    def _ranks_of(self, space: int) -> np.ndarray:
        """Return ``_rank_of`` of all blocks of a space."""
        if space not in self._lies:
            n_blocks = self.maps[space].grid.n_blocks
            self._lies[space] = np.array([self._rank_of(space, block) for block in range(n_blocks)])
        return self._lies[space]

    def piece_box(self, key: PieceKey) -> Box:
        """Return what a piece covers."""
        return self.maps[key.subtask].grid.box(key.output) if key.from_source else self.boxes[key]

    def origins(self, parts: Sequence[PiecePart], rank: int) -> tuple[PartOrigin, ...]:
        """Return where a rank gets the parts of a range; they must be somewhere."""
        return tuple(self._origin(box, key, rank) for box, key in parts)

    def _origin(self, box: Box, key: PieceKey, rank: int) -> PartOrigin:
        if key in self.saved and not self.holders.get(key):
            return PartOrigin(box, PieceKey(0, self.saved[key], 0), box, FROM_SOURCE)
        return PartOrigin(box, key, self.piece_box(key), self._source_for(key, rank))

    def _source_for(self, key: PieceKey, rank: int) -> int:
        holders = self.holders.get(key, ())
        if not holders:
            return FROM_SOURCE
        return rank if rank in holders else holders[rank % len(holders)]

    def find_missing(self, keys: Iterable[PieceKey]) -> set[PieceKey]:
        """Return the pieces that no rank has, no source and no checkpoint."""
        return {key for key in keys if not key.from_source and not self.holders.get(key) and key not in self.saved}

    def save(self, files: Mapping[int, int]) -> None:
        """Note that a checkpoint has all that the spaces hold; ``files`` are its numbers by those of the spaces."""
        self.saved = {key: number for space, number in files.items() for key in self.maps[space].keys()}  # noqa: SIM118

    def note(self, key: PieceKey, box: Box, rank: int) -> None:
        """Note that a rank has a piece."""
        self.boxes[key] = box
        holders = self.holders.setdefault(key, [])
        if rank not in holders:
            holders.append(rank)
            if key.task <= self._newest:
                self._lies.clear()

    def lose(self, rank: int) -> None:
        """Note that a rank has nothing any more; blocks of sources are read again."""
        self._lies.clear()
        for key in [key for key, holders in self.holders.items() if rank in holders]:
            self.holders[key].remove(rank)
            if key.from_source and not self.holders[key]:
                del self.holders[key]

    def forget(self, keys: Iterable[PieceKey]) -> None:
        """Forget pieces of which no version needs anything."""
        for key in keys:
            self.holders.pop(key, None)
            self.boxes.pop(key, None)

    def needs(self, reads: Parts) -> dict[tuple[RangeKey, PiecePart], float]:
        """Return the parts of the ranges that a subtask reads, with their bytes."""
        parts = [(key, part) for key, found in reads.items() for part in found]
        return {(key, part): float(self.spaces[key.space].dtype.itemsize * size_of(part.box)) for key, part in parts}

    def has(self, rank: int, part: PiecePart) -> bool:
        """Return whether a rank has what a part of a range comes from."""
        return rank in self.holders.get(part.key, ())

    def owners(self, space: Space) -> np.ndarray:
        """Return the rank that has each block of a space, -1 where none has."""
        found = self._ranks_of(space.number).copy()
        for block in np.flatnonzero(found == _IN_PARTS).tolist():
            found[block] = next(iter(self._holders_of_last(space.number, block)), NOWHERE)
        return found.reshape(space.counts)

    def _holders_of_last(self, space: int, block: int) -> Sequence[int]:
        """Return the ranks that have what was written last of a block."""
        return self.holders.get(self.maps[space].keys_of(block)[-1], ())

    def bytes_of(self, jobs: RunTable) -> float:
        """Return the bytes of all that jobs read, and of the spaces that they write."""
        written = {column.space.number for column in jobs.columns if column.access != "read"}
        return float(jobs.ranges.sizes.sum()) + sum(self.spaces[space].nbytes for space in written)

    def most_written(self, jobs: RunTable) -> float:
        """Return the most bytes that a job takes for what it writes; an update takes the old values as well."""
        found = np.zeros(len(jobs))
        for column in jobs.columns:
            times = {"read": 0, "write": 1, "update": 2}[column.access]
            found[column.subtasks] += times * sizes_of(column.boxes) * column.space.dtype.itemsize
        return float(found.max(initial=0.0))

    def make_assignment(self, jobs: RunTable, ranks: Sequence[int]) -> Assignment:
        """Return jobs with their needs, and what of these ranks hold, as the policy wants them."""
        demand = TaskNeeds(*jobs.needs, jobs.ranges.sizes)
        held = np.zeros((len(ranks), demand.n_units))
        for space in np.unique(jobs.ranges.spaces).tolist():
            ranges = np.flatnonzero(jobs.ranges.spaces == space)
            held[:, ranges] = self._count_held(space, jobs.boxes(ranges), ranks)
        return Assignment(demand, held, np.ones(len(ranks)), jobs.index)

    def _count_held(self, space: int, boxes: np.ndarray, ranks: Sequence[int]) -> np.ndarray:
        """Return the bytes that each rank has of each box of a space."""
        parts = block_parts(self.maps[space].grid, boxes)
        lies = self._ranks_of(space)[parts.blocks]
        place = _place(lies, ranks)
        simple = place >= 0
        held = np.bincount(
            place[simple] * len(boxes) + parts.boxes[simple], parts.sizes[simple], minlength=len(ranks) * len(boxes)
        ).reshape(len(ranks), len(boxes))
        number_of = {rank: k for k, rank in enumerate(ranks)}
        for part in np.flatnonzero(lies == _IN_PARTS).tolist():
            box = box_of(boxes[parts.boxes[part]])
            for piece in self.maps[space].of_block(int(parts.blocks[part])):
                shared = common(piece.box, box)
                size = 0 if shared is None else size_of(shared)
                for rank in self.holders.get(piece.key, ()):
                    if rank in number_of:
                        held[number_of[rank], parts.boxes[part]] += size
        return held * float(self.spaces[space].dtype.itemsize)

    def find_updated(self, jobs: RunTable, ranks: Sequence[int]) -> UpdatedBlocks | None:
        """Return the blocks that jobs update in place; None where each does not update one whole block of a space."""
        outputs = [column for column in jobs.columns if column.access != "read"]
        if len({column.space.number for column in outputs}) != 1 or {one.access for one in outputs} != {"update"}:
            return None
        subtasks = np.concatenate([column.subtasks for column in outputs])
        order = np.argsort(subtasks, kind="stable")
        if not np.array_equal(subtasks[order], np.arange(len(jobs))):
            return None
        space, boxes = outputs[0].space, np.concatenate([column.boxes for column in outputs])[order]
        steps = np.array(space.blocks.block)
        index = boxes[:, :, 0] // steps
        starts = index * steps
        whole = boxes == np.stack([starts, np.minimum(starts + steps, space.shape)], axis=2)
        if not whole.all():
            return None
        blocks = np.ravel_multi_index(tuple(index.T), space.counts)
        sizes = sizes_of(boxes) * float(space.dtype.itemsize)
        return UpdatedBlocks(space.number, index, sizes, self._first_holders(space.number, blocks, ranks))

    def _first_holders(self, space: int, blocks: np.ndarray, ranks: Sequence[int]) -> np.ndarray:
        """Return the place among ranks of the first one that has each block, -1 where none of them has."""
        lies = self._ranks_of(space)[blocks]
        found = _place(lies, ranks)
        for k in np.flatnonzero(lies == _IN_PARTS).tolist():
            holders = self._holders_of_last(space, int(blocks[k]))
            found[k] = next((ranks.index(rank) for rank in holders if rank in ranks), -1)
        return found


def _place(holders: np.ndarray, ranks: Sequence[int]) -> np.ndarray:
    """Return the place of each holder among ranks; -1 where there is none, or it is not among them."""
    places = np.full(max(int(holders.max(initial=0)), *ranks) + 1, -1)
    places[list(ranks)] = np.arange(len(ranks))
    return np.where(holders >= 0, places[np.maximum(holders, 0)], -1)
