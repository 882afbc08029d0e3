"""The subtasks of one call of ``Session.run``, of all its tasks together; each becomes a job when it is to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from tartan.blocks.table import Column, SubtaskTable
from tartan.blocks.work import BlockArgument, BlockFunction, Boundary, RangeKey
from tartan.core.boxes import codes_of, sizes_of
from tartan.core.pieces import PieceKey, PiecePart

_BOUNDARIES = get_args(Boundary)
Parts = dict[RangeKey, tuple[PiecePart, ...]]
PartsOf = Callable[[RangeKey], tuple[PiecePart, ...]]
"""Returns what a range consists of now."""


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


class JobTable:
    """The jobs of one call of ``Session.run``, made when they are asked for.

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
        self._made: dict[int, SubtaskJob] = {}

    def __len__(self) -> int:
        """Return the number of jobs."""
        return int(self._firsts[-1])

    def __getitem__(self, subtask: int) -> SubtaskJob:
        """Return a job, the same one whenever it is asked for."""
        job = self._made.get(subtask)
        if job is None:
            job = self._made[subtask] = self._make(subtask)
        return job

    @property
    def functions(self) -> list[BlockFunction]:
        """The functions of the tasks that have subtasks."""
        return [function for table, function in self._tasks if len(table)]

    def __iter__(self) -> Iterator[SubtaskJob]:
        """Iterate over all jobs."""
        return map(self.__getitem__, range(len(self)))

    def _make(self, subtask: int) -> SubtaskJob:
        task = int(np.searchsorted(self._firsts, subtask, side="right")) - 1
        table, function = self._tasks[task]
        columns, rows = self._entries
        at = slice(*self._starts[subtask : subtask + 2].tolist())
        pairs = zip(columns[at].tolist(), rows[at].tolist(), strict=True)
        arguments = tuple(self.columns[column].argument(row) for column, row in pairs)
        parts = {one.range: self._parts_of_range(one.range) for one in arguments if one.access != "write"}
        index = table.index_of(subtask - int(self._firsts[task]))
        return SubtaskJob(self.number, subtask, function, index, arguments, parts)

    def _parts_of_range(self, wanted: RangeKey) -> tuple[PiecePart, ...]:
        if wanted not in self._parts:
            self._parts[wanted] = self._parts_of(wanted)
        return self._parts[wanted]

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
