"""The subtasks of a task in columns: what all of them read and write, as arrays.

A task has up to millions of subtasks. What is asked of all of them (whether they conflict, what they need, where that
lies) is answered from arrays; an object for a subtask is made when it is about to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tartan.base.format import show_value
from tartan.blocks.space import Space, Subscription, Subscriptions
from tartan.blocks.work import Access, BlockArgument, Boundary, RangeKey
from tartan.core.blocks.boxes import box_of
from tartan.errors import ConfigError

_INDEX, _SEVERAL = (tuple, Iterable), (tuple, list)
_ADVICE = "return subscriptions: space.read[...], space.write[...]"


@dataclass(frozen=True, eq=False)
class Column:
    """One argument of some of the subtasks of a task.

    Attributes
    ----------
    space : Space
    access : {"read", "write", "update"}
    subtasks : ndarray of int64, shape (n,)
        Those that have this argument, ascending.
    boxes : ndarray of int64, shape (n, n_dimensions, 2)
    padding : ndarray of int64 of that shape, optional
        Elements outside the space; None where there are none.
    boundary : str
    """

    space: Space
    access: Access
    subtasks: np.ndarray
    boxes: np.ndarray
    padding: np.ndarray | None = None
    boundary: Boundary = "clip"

    def argument(self, row: int) -> BlockArgument:
        """Return the argument of the subtask in one row."""
        return BlockArgument(self.access, self.range(row))

    def range(self, row: int) -> RangeKey:
        """Return the range of the subtask in one row."""
        box = box_of(self.boxes[row])
        if self.padding is None or not self.padding[row].any():
            return RangeKey(self.space.number, box)
        return RangeKey(self.space.number, box, box_of(self.padding[row]), self.boundary)


@dataclass(frozen=True, eq=False)
class SubtaskTable:
    """All subtasks of a task.

    Attributes
    ----------
    index : ndarray of int64, shape (n_subtasks, n_indices), or list of tuple of int
        Indices of the subtasks; a list where they fill no array.
    columns : tuple of Column
        The arguments, in the order in which a subtask has them.
    """

    index: np.ndarray | list[tuple[int, ...]]
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        """Return the number of subtasks."""
        return len(self.index)

    def index_of(self, subtask: int) -> tuple[int, ...]:
        """Return the index of a subtask."""
        found = self.index[subtask]
        return tuple(found.tolist()) if isinstance(found, np.ndarray) else found

    @property
    def spaces(self) -> list[Space]:
        """The spaces that subtasks read or write, each once."""
        return list({id(column.space): column.space for column in self.columns}.values())

    @cached_property
    def counts(self) -> np.ndarray:
        """Arguments of each subtask, shape (n_subtasks,)."""
        found = np.zeros(len(self), dtype=np.int64)
        for column in self.columns:
            found[slice(None) if len(column.subtasks) == len(self) else column.subtasks] += 1
        return found


def table_of_each(grid: Iterable[Any], subscriptions: Any) -> SubtaskTable:
    """Make a table by asking for the subscriptions of one subtask after the other.

    Parameters
    ----------
    grid : iterable of tuple of int, or of int
    subscriptions : callable
        Returns the subscription, or the subscriptions, of an index.

    Raises
    ------
    ConfigError
        If it returns something else, or asks for what does not exist.
    """
    index: list[tuple[int, ...]] = []
    found: dict[Any, tuple[list[int], list[int]]] = {}
    for number, given in enumerate(grid):
        at = tuple(map(int, given)) if isinstance(given, _INDEX) else (int(given),)
        index.append(at)
        try:
            subscribed = subscriptions(*at)
        except ConfigError as error:
            raise ConfigError(f"subtask {at}: {error}", code=error.code, context=error.context) from None
        for place, (space, access, wanted) in enumerate(_several(at, subscribed)):
            _, box, padding, boundary = wanted
            kind = place, space, access, boundary, not padding
            column = found.get(kind)
            if column is None:
                column = found[kind] = [], []
            rows, bounds = column
            rows.append(number)
            # Plain numbers, not boxes: many small objects that live keep the garbage collector busy.
            for interval in box:
                bounds += interval
            for interval in padding:
                bounds += interval
    columns = tuple(_column(kind, found[kind]) for kind in sorted(found, key=lambda kind: kind[0]))
    return SubtaskTable(_as_array(index), columns)


def _as_array(index: list[tuple[int, ...]]) -> np.ndarray | list[tuple[int, ...]]:
    """Return indices as an array, where they have one length and fit into it."""
    if len(set(map(len, index))) != 1:
        return index
    try:
        return np.array(index, dtype=np.int64)
    except OverflowError:
        return index


def _several(index: tuple[int, ...], found: Any) -> Sequence[Subscription]:
    if type(found) is Subscription:
        return (found,)
    if isinstance(found, _SEVERAL) and found:
        for one in found:
            if type(one) is not Subscription:
                break
        else:
            return found
    raise ConfigError(f"subtask {index} subscribes to {show_value(found)}; {_ADVICE}")


def _column(kind: Any, found: tuple[list[int], list[int]]) -> Column:
    """Return the column of all subscriptions of one kind: place, space, access, boundary, without padding."""
    _, space, access, boundary, plain = kind
    subtasks, bounds = (np.array(values, dtype=np.int64) for values in found)
    boxes = bounds.reshape(len(subtasks), -1, 2)
    n_dimensions = len(space.shape)
    padding = None if plain else boxes[:, n_dimensions:]
    return Column(space, access, subtasks, boxes[:, :n_dimensions], padding, boundary)


def table_of_arrays(grid: Iterable[Any], subscribe: Any) -> SubtaskTable:
    """Make a table by asking once, with an array for each index.

    Parameters
    ----------
    grid : iterable of tuple of int or of int, or ndarray
    subscribe : callable
        Returns subscriptions of arrays; what is the same for all subtasks may be a subscription of one.

    Raises
    ------
    ConfigError
        If it returns something else, arrays have not one element for each subtask, or a subtask subscribes to nothing.
    """
    index = _index_array(grid)
    if not len(index):
        return SubtaskTable(index, ())
    found = subscribe(*index.T)
    several = found if isinstance(found, tuple | list) and not isinstance(found, Subscription) else (found,)
    everyone = np.ones(len(index), dtype=bool)
    given = [one.only(everyone) if isinstance(one, Subscription) else one for one in several]
    if not given or not all(isinstance(one, Subscriptions) for one in given):
        raise ConfigError(f"the task subscribes to {show_value(found)}; {_ADVICE}")
    table = SubtaskTable(index, tuple(_column_of(one, len(index)) for one in given))
    if not table.counts.all():
        at = table.index_of(int(np.argmin(table.counts)))
        raise ConfigError(f"subtask {at} subscribes to nothing; {_ADVICE}")
    return table


def _index_array(grid: Iterable[Any]) -> np.ndarray:
    given = grid if isinstance(grid, np.ndarray) else list(grid)
    try:
        index = np.asarray(given)
    except ValueError:
        raise ConfigError("the indices of a task that subscribes at once have the same length") from None
    if index.size == 0:
        return np.zeros((0, 1), dtype=np.int64)
    if index.dtype.kind not in "iu" or index.ndim > 2:
        raise ConfigError(f"indices of dtype {index.dtype} and {index.ndim} dimensions: give tuples of whole numbers")
    return index.astype(np.int64, copy=False).reshape(len(index), -1)


def _column_of(given: Subscriptions, n_subtasks: int) -> Column:
    if len(given.boxes) not in (1, n_subtasks):
        raise ConfigError(f"a subscription of {len(given.boxes)} ranges in a task of {n_subtasks} subtasks")
    if given.where is not None and len(given.where) != n_subtasks:
        raise ConfigError(f"only(...) has {len(given.where)} values in a task of {n_subtasks} subtasks")
    if given.where is None and len(given.boxes) == n_subtasks:
        return Column(given.space, given.access, np.arange(n_subtasks), given.boxes, given.padding, given.boundary)
    subtasks = np.arange(n_subtasks) if given.where is None else np.flatnonzero(given.where)
    rows = subtasks if len(given.boxes) == n_subtasks else np.zeros_like(subtasks)
    padding = None if given.padding is None else given.padding[rows]
    return Column(given.space, given.access, subtasks, given.boxes[rows], padding, given.boundary)
