"""The subtasks of one call of ``Session.run``, of all its tasks together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from tartan.blocks.table import Column, SubtaskTable
from tartan.blocks.work import BlockFunction, Boundary, RangeKey, Subtask
from tartan.core.blocks.boxes import codes_of, sizes_of
from tartan.core.blocks.pieces import PieceKey, PiecePart

_BOUNDARIES = get_args(Boundary)
Parts = dict[RangeKey, tuple[PiecePart, ...]]
PartsOf = Callable[[RangeKey], tuple[PiecePart, ...]]
"""Returns what a range consists of now."""


# By arithmetic: functions are numbered by their call and their task, and no program makes so many tasks for one call.
_MOST_TASKS = 1 << 20


@dataclass(frozen=True, eq=False)
class ReadRanges:
    """The different ranges that the subtasks of a call read, all of them: the units of what subtasks need.

    Attributes
    ----------
    spaces : ndarray of int64, shape (n_ranges,)
        Ascending.
    columns, rows : ndarray of int64, shape (n_ranges,)
        Where each range stands first.
    sizes : ndarray of float64, shape (n_ranges,)
        Bytes within the space.
    of_column : list of ndarray of int64
        The number of the range in each row of a column; -1 in columns that are not read.
    """

    spaces: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray
    of_column: list[np.ndarray]


class RunTable:
    """The subtasks of one call of ``Session.run``, made when they are asked for, and what they read.

    That is enough to run them, and to run them again later: what ranges consist of is kept from when a subtask is made,
    while the versions that it reads are the newest.

    Parameters
    ----------
    number : int
        Of the call, from 1.
    tasks : sequence of (SubtaskTable, BlockFunction)
    parts_of : callable

    Attributes
    ----------
    columns : list of Column
        Of all tasks; subtasks are numbered through.
    """

    def __init__(self, number: int, tasks: Sequence[tuple[SubtaskTable, BlockFunction]], parts_of: PartsOf) -> None:
        self.number, self._tasks, self._parts_of = number, tasks, parts_of
        self._firsts = np.cumsum([0, *(len(table) for table, _ in tasks)])
        self.columns = [
            Column(c.space, c.access, c.subtasks + first, c.boxes, c.padding, c.boundary)
            for first, (table, _) in zip(self._firsts.tolist(), tasks, strict=False)
            for c in table.columns
        ]
        self._parts: Parts = {}
        self._made: dict[int, Subtask] = {}

    def __len__(self) -> int:
        """Return the number of subtasks."""
        return int(self._firsts[-1])

    def __getitem__(self, number: int) -> Subtask:
        """Return a subtask, the same one whenever it is asked for."""
        subtask = self._made.get(number)
        if subtask is None:
            subtask = self._made[number] = self._make(number)
        return subtask

    def function_of(self, subtask: Subtask) -> BlockFunction:
        """Return the function that a subtask calls."""
        return self._tasks[subtask.function % _MOST_TASKS][1]

    def parts_of(self, subtask: Subtask) -> Parts:
        """Return what the ranges that a subtask reads consisted of when the call began."""
        return {wanted: self._parts[wanted] for wanted in subtask.reads()}

    def inputs_of(self, subtask: Subtask) -> set[PieceKey]:
        """Return the pieces that a subtask needs and that another one wrote."""
        return {part.key for parts in self.parts_of(subtask).values() for part in parts if not part.key.from_source}

    @property
    def functions(self) -> list[BlockFunction]:
        """The functions of the tasks that have subtasks."""
        return [function for table, function in self._tasks if len(table)]

    def __iter__(self) -> Iterator[Subtask]:
        """Iterate over all subtasks."""
        return map(self.__getitem__, range(len(self)))

    def _make(self, number: int) -> Subtask:
        task = int(np.searchsorted(self._firsts, number, side="right")) - 1
        columns, rows = self._entries
        at = slice(*self._starts[number : number + 2].tolist())
        pairs = zip(columns[at].tolist(), rows[at].tolist(), strict=True)
        arguments = tuple(self.columns[column].argument(row) for column, row in pairs)
        index = self._tasks[task][0].index_of(number - int(self._firsts[task]))
        subtask = Subtask(self.number, number, index, arguments, self.number * _MOST_TASKS + task)
        for wanted in subtask.reads():
            if wanted not in self._parts:
                self._parts[wanted] = self._parts_of(wanted)
        return subtask

    @cached_property
    def index(self) -> np.ndarray | None:
        """Indices of all subtasks; None where they are of different lengths."""
        found = [table.index for table, _ in self._tasks if len(table)]
        arrays = [one for one in found if isinstance(one, np.ndarray)]
        same = len(arrays) == len(found) and len({one.shape[1] for one in arrays}) == 1
        return np.concatenate(arrays) if same else None

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """All arguments by subtask, in their order: the column, and the row in it."""
        columns = np.repeat(np.arange(len(self.columns)), [len(column.subtasks) for column in self.columns])
        rows = np.concatenate([np.arange(len(column.subtasks)) for column in self.columns])
        return columns[self._order], rows[self._order]

    @cached_property
    def _order(self) -> np.ndarray:
        """Arguments of the columns, one column after the other, in the order of subtasks."""
        return np.argsort(np.concatenate([column.subtasks for column in self.columns]), kind="stable")

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where the arguments of each subtask begin, shape (n + 1,)."""
        return np.concatenate([[0], np.cumsum(np.concatenate([table.counts for table, _ in self._tasks]))])

    @cached_property
    def ranges(self) -> ReadRanges:
        """The different ranges that are read, by space and then by place."""
        of_column = [np.full(len(column.subtasks), -1) for column in self.columns]
        found: list[tuple[np.ndarray, ...]] = []
        n_ranges = 0
        for space in sorted({column.space.number for column in self.columns if column.access != "write"}):
            which = [k for k, c in enumerate(self.columns) if c.space.number == space and c.access != "write"]
            codes = codes_of(np.concatenate([_rows_of(self.columns[k]) for k in which]))
            firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)[1:]
            edges = np.cumsum([0, *(len(of_column[k]) for k in which)])
            for k, start, stop in zip(which, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                of_column[k] = numbers[start:stop] + n_ranges
            n_ranges += len(firsts)
            place = np.searchsorted(edges, firsts, side="right") - 1
            boxes = np.concatenate([self.columns[k].boxes for k in which])[firsts]
            sizes = sizes_of(boxes) * float(self.columns[which[0]].space.dtype.itemsize)
            found.append((np.full(len(firsts), space), np.array(which)[place], firsts - edges[place], sizes))
        if not found:
            nothing = np.zeros(0, dtype=np.int64)
            return ReadRanges(nothing, nothing, nothing, np.zeros(0), of_column)
        spaces, columns, rows, sizes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return ReadRanges(spaces, columns, rows, sizes, of_column)

    def boxes(self, ranges: np.ndarray) -> np.ndarray:
        """Return the boxes of ranges of one space, by their numbers."""
        columns, rows = self.ranges.columns[ranges], self.ranges.rows[ranges]
        found = np.empty((len(ranges), *self.columns[int(columns[0])].boxes.shape[1:]), dtype=np.int64)
        for column in np.unique(columns).tolist():
            found[columns == column] = self.columns[column].boxes[rows[columns == column]]
        return found

    @cached_property
    def needs(self) -> tuple[np.ndarray, np.ndarray]:
        """What subtasks need in compressed rows, as in ``TaskNeeds``: where each begins, and the ranges."""
        ranges = self.ranges
        all_ranges = np.concatenate(ranges.of_column)[self._order]
        reads = all_ranges >= 0
        subtasks = np.repeat(np.arange(len(self)), np.diff(self._starts))[reads]
        units = all_ranges[reads]
        readers = [column.space.number for column in self.columns if column.access != "write"]
        if len(readers) > len(set(readers)):
            firsts = np.sort(np.unique(subtasks * max(1, len(ranges.sizes)) + units, return_index=True)[1])
            subtasks, units = subtasks[firsts], units[firsts]
        counts = np.bincount(subtasks, minlength=len(self))
        return np.concatenate([[0], np.cumsum(counts)]), units


def _rows_of(column: Column) -> np.ndarray:
    """Return what tells the ranges of a column apart, as rows of numbers."""
    boxes = column.boxes.reshape(len(column.boxes), -1)
    padding = np.zeros_like(boxes) if column.padding is None else column.padding.reshape(boxes.shape)
    kind = _BOUNDARIES.index(column.boundary) * padding.any(axis=1)
    return np.column_stack([boxes, padding, kind])
