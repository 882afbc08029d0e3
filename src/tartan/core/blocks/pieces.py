"""What a space consists of at one time: pieces that never change, each named by what made it.

A *piece* is a box of values that one subtask wrote, or a data block of the source. Its key names it for ever: a subtask
that is executed again makes the same piece. A space at one version is a list of parts of pieces for every block. A task
reads the parts of the version at its beginning; what it wrote is put in when it has ended, all of it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tartan.core.blocks.space import BlockGrid, Box, common, without


class PieceKey(NamedTuple):
    """Names a piece.

    Attributes
    ----------
    task : int
        That wrote it, from 1; 0 where it comes from the source of a space.
    subtask : int
        That wrote it; the number of the space where it comes from a source.
    output : int
        Which of the subscriptions of the subtask; the number of the block where it comes from a source.
    """

    task: int
    subtask: int
    output: int

    @property
    def from_source(self) -> bool:
        """Whether it comes from the source of its space."""
        return self.task == 0


class PiecePart(NamedTuple):
    """Part of a piece that is part of a space: a box within one block, and where its values are from."""

    box: Box
    key: PieceKey


class PieceMap:
    """The pieces of one space.

    Parameters
    ----------
    space : int
        Its number.
    grid : BlockGrid
    """

    def __init__(self, space: int, grid: BlockGrid) -> None:
        self.space, self.grid = space, grid
        self.version = 0
        self._written: dict[int, list[PiecePart]] = {}
        self._uses: Counter[PieceKey] = Counter()

    def of_block(self, number: int) -> list[PiecePart]:
        """Return the parts of a block, which cover it once."""
        found = self._written.get(number)
        return [self._initial(number)] if found is None else found

    def keys_of(self, number: int) -> list[PieceKey]:
        """Return the pieces of the parts of a block; one alone covers all of it."""
        found = self._written.get(number)
        return [PieceKey(0, self.space, number)] if found is None else [part.key for part in found]

    def parts(self, box: Box) -> list[PiecePart]:
        """Return the parts of a box, which cover it once; each lies within one block."""
        found = []
        for number, inside in self.grid.parts(box):
            if number not in self._written:
                found.append(PiecePart(inside, PieceKey(0, self.space, number)))
                continue
            for part in self._written[number]:
                shared = part.box if part.box == inside else common(part.box, inside)
                if shared is not None:
                    found.append(PiecePart(shared, part.key))
        return found

    def keys(self) -> set[PieceKey]:
        """Return the keys of all pieces that a task has written and that are not overwritten."""
        return {key for key, count in self._uses.items() if count and not key.from_source}

    def replace(self, written: Iterable[tuple[PieceKey, Box]]) -> set[PieceKey]:
        """Make the next version: put pieces over what was there.

        Parameters
        ----------
        written : iterable of (key, box)
            Disjoint.

        Returns
        -------
        set of PieceKey
            Pieces of which nothing is left.
        """
        touched: set[PieceKey] = set()
        for key, box in written:
            for number, inside in self.grid.parts(box):
                touched |= self._put(number, PiecePart(inside, key))
        self.version += 1
        return {key for key in touched if not self._uses[key]}

    def _put(self, number: int, new: PiecePart) -> set[PieceKey]:
        before = self.of_block(number)
        after = [PiecePart(rest, part.key) for part in before for rest in without(part.box, new.box)]
        self._written[number] = [*after, new]
        if before == [self._initial(number)] and before[0].key not in self._uses:
            self._uses[before[0].key] = 1
        self._uses.subtract(part.key for part in before)
        self._uses.update(part.key for part in self._written[number])
        return {part.key for part in before}

    def _initial(self, number: int) -> PiecePart:
        return PiecePart(self.grid.box(number), PieceKey(0, self.space, number))
