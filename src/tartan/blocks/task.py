"""Tasks: a function, the indices of its subtasks, and what each subscribes to; checked before anything runs."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.blocks.space import Subscription
from tartan.blocks.work import BlockArgument, BlockFunction, RangeKey
from tartan.core.space import Box, common, describe, first_overlap
from tartan.errors import ConfigError

_KEYWORDS = ("xp", "index")


@dataclass(frozen=True)
class Subtask:
    """One call of a function: its index in the grid, and its arrays."""

    index: tuple[int, ...]
    subscriptions: tuple[Subscription, ...]

    @property
    def arguments(self) -> tuple[BlockArgument, ...]:
        """The subscriptions without the spaces as objects."""
        return tuple(BlockArgument(one.access, one.range) for one in self.subscriptions)


class Task:
    """Independent subtasks of one function.

    Parameters
    ----------
    function : callable
        Gets one array for each subscription of a subtask, in their order; writes into those of ``write`` and
        ``update``, and returns nothing. Where it has parameters of that name, ``xp`` is the array module and ``index``
        the index of the subtask.
    grid : iterable of tuple of int, or of int
        Indices of the subtasks.
    subscribe : callable
        Called at once with each index: ``subscribe(*index)`` returns a subscription or several.
    releases_gil : bool
        Whether the function spends its time outside the interpreter lock, as NumPy's products do: it then runs in
        threads. Otherwise it runs in worker processes.
    timeout : float, optional
        Seconds after which a call counts as failed.
    debug : bool
        Call the function twice for each subtask, and refuse elements of ``write`` that it leaves unwritten.

    Raises
    ------
    ConfigError
        If a subtask subscribes to nothing, or the function does not take its arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from tartan import blocks
    >>> def double(a, b):
    ...     b[...] = 2 * a
    >>> with blocks.Session(workers=1) as session:
    ...     A = session.space(np.arange(4.0), block=2)
    ...     B = session.space(shape=4, block=2)
    ...     task = blocks.Task(double, B.grid, lambda i: (A.read[A.block(i)], B.write[B.block(i)]), releases_gil=True)
    ...     report = session.run(task)
    ...     B.array().tolist()
    [0.0, 2.0, 4.0, 6.0]
    """

    def __init__(
        self,
        function: Callable[..., None],
        grid: Iterable[Any],
        subscribe: Callable[..., Any],
        *,
        releases_gil: bool = False,
        timeout: float | None = None,
        debug: bool = False,
    ) -> None:
        if not callable(function) or not callable(subscribe):
            raise ConfigError("a task has a function, the indices of its subtasks, and a function that subscribes")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout={timeout!r}: give seconds, more than 0")
        self.subtasks = [_subtask(_index(one), subscribe) for one in grid]
        name = getattr(function, "__qualname__", type(function).__name__)
        self.function = BlockFunction(
            function, name, releases_gil, _keywords(function), None if timeout is None else float(timeout), debug
        )
        for count in {len(subtask.subscriptions) for subtask in self.subtasks}:
            _require_takes(self.function, count)


def _index(given: Any) -> tuple[int, ...]:
    return tuple(int(k) for k in given) if isinstance(given, Iterable) else (int(given),)


def _subtask(index: tuple[int, ...], subscribe: Callable[..., Any]) -> Subtask:
    found = subscribe(*index)
    several = isinstance(found, tuple | list) and not isinstance(found, Subscription)
    subscriptions = tuple(found) if several else (found,)
    if not subscriptions or not all(isinstance(one, Subscription) for one in subscriptions):
        raise ConfigError(
            f"subtask {index} subscribes to {found!r}; return subscriptions: space.read[...], space.write[...]"
        )
    return Subtask(index, subscriptions)


def _parameters(function: Callable[..., None]) -> Sequence[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # of compiled code


def _keywords(function: Callable[..., None]) -> tuple[str, ...]:
    names = {parameter.name for parameter in _parameters(function) or ()}
    return tuple(name for name in _KEYWORDS if name in names)


def _require_takes(function: BlockFunction, count: int) -> None:
    parameters = _parameters(function.call)
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(*range(count), **dict.fromkeys(function.keywords))
    except TypeError as error:
        raise ConfigError(
            f"{function.name} does not take the {count} arrays that its subtasks subscribe to: {error}"
        ) from None


def refuse_conflicts(tasks: Sequence[Task]) -> None:
    """Refuse tasks that run together where the order in which subtasks end would matter.

    Raises
    ------
    ConfigError
        If two subtasks write one element, or one task reads what another writes; both subtasks and the range are named.
    """
    written: dict[int, list[tuple[int, Subtask, Box]]] = defaultdict(list)
    read: dict[int, dict[tuple[int, Box], Subtask]] = defaultdict(dict)
    for number, task in enumerate(tasks):
        for subtask in task.subtasks:
            for subscription in subtask.subscriptions:
                wanted = subscription.range
                if subscription.access != "read":
                    written[wanted.space].append((number, subtask, wanted.box))
                if subscription.access != "write":
                    read[wanted.space].setdefault((number, wanted.box), subtask)
    for space, found in written.items():
        _refuse_overlap(tasks, space, found)
        if len(tasks) > 1 and space in read:
            _refuse_read(tasks, space, found, read[space])


def _refuse_overlap(tasks: Sequence[Task], space: int, written: list[tuple[int, Subtask, Box]]) -> None:
    pair = first_overlap(np.array([box for _, _, box in written]))
    if pair is None:
        return
    (a, one, box), (b, other, other_box) = written[pair[0]], written[pair[1]]
    raise ConfigError(
        f"{_named(tasks, a, one)} and {_named(tasks, b, other)} both write {describe(_shared(box, other_box))} of "
        f"space {space}; every element is written by one subtask",
        code="conflict",
    )


def _refuse_read(
    tasks: Sequence[Task], space: int, written: list[tuple[int, Subtask, Box]], read: dict[tuple[int, Box], Subtask]
) -> None:
    boxes = np.array([box for _, _, box in written])
    writers = np.array([number for number, _, _ in written])
    for (number, box), subtask in read.items():
        limits = np.array(box)
        meets = ((boxes[:, :, 0] < limits[:, 1]) & (limits[:, 0] < boxes[:, :, 1])).all(axis=1) & (writers != number)
        if meets.any():
            writer, other, other_box = written[int(np.argmax(meets))]
            raise ConfigError(
                f"{_named(tasks, number, subtask)} reads {describe(_shared(box, other_box))} of space {space}, which "
                f"{_named(tasks, writer, other)} writes at the same time; run the tasks one after the other",
                code="conflict",
            )


def _shared(one: Box, other: Box) -> Box:
    found = common(one, other)
    assert found is not None
    return found


def _named(tasks: Sequence[Task], number: int, subtask: Subtask) -> str:
    return f"subtask {subtask.index} of {tasks[number].function.name}"


def ranges_read(subtask: Subtask) -> set[RangeKey]:
    """Return the ranges whose values a subtask gets."""
    return {one.range for one in subtask.subscriptions if one.access != "write"}
