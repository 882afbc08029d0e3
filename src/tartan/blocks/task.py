"""Tasks: a function, the indices of its subtasks, and what each subscribes to; checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.base.checks import POSITIVE
from tartan.base.checks import number as checked_number
from tartan.base.format import pluralize
from tartan.blocks.table import table_of_arrays, table_of_each
from tartan.blocks.work import Access, BlockFunction
from tartan.core.blocks.boxes import box_of, codes_of, first_overlap
from tartan.core.blocks.space import common, describe
from tartan.errors import ConfigError

_KEYWORDS = ("xp", "index")


class Task:
    """Independent subtasks of one function.

    Parameters
    ----------
    function : callable, optional
        Gets one array for each subscription of a subtask, in their order; writes into those of ``write`` and
        ``update``, and returns nothing. Where it has parameters of that name, ``xp`` is the array module and ``index``
        the index of the subtask. A function that takes ``xp`` runs on the device of its rank, with arrays of the
        device; others run on the CPU.
    grid : iterable of tuple of int, or of int
        Indices of the subtasks. A tuple of integers, which looks like a shape, is refused.
    subscribe : callable
        Called in ``Task`` with each index: ``subscribe(*index)`` returns a subscription or several.
    cpu, gpu : callable, optional
        In place of ``function``: what is called on a CPU, and what is called on a device. With ``cpu`` alone the task
        runs on CPUs wherever it is, with ``gpu`` alone on devices only.
    at_once : bool
        Call ``subscribe`` once for the whole task instead, with an array for each index: bounds of slices, and
        integers, may then be arrays with an element for each subtask, as ``space.block`` of arrays returns them, and
        ``.only(where)`` leaves an argument to some of the subtasks. All indices must have the same length.
    releases_gil : bool
        Whether the function spends its time outside the interpreter lock, as NumPy's products do: it then runs in
        threads. Otherwise it runs in worker processes.
    timeout : float, optional
        Seconds after which a call counts as failed.
    debug : bool
        Call the function twice for each subtask, and refuse elements of ``write`` that it leaves unwritten, and on a
        device changes of arrays that it only reads, which are lost otherwise.

    Raises
    ------
    ConfigError
        If a subtask subscribes to nothing or to what does not exist, or the function does not take its arrays.

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
        function: Callable[..., None] | None = None,
        grid: Iterable[Any] = (),
        subscribe: Callable[..., Any] | None = None,
        *,
        cpu: Callable[..., None] | None = None,
        gpu: Callable[..., None] | None = None,
        at_once: bool = False,
        releases_gil: bool = False,
        timeout: float | None = None,
        debug: bool = False,
    ) -> None:
        calls = [one for one in (function, cpu, gpu) if one is not None]
        if not calls or not all(map(callable, [*calls, subscribe])):
            raise ConfigError("a task has a function, the indices of its subtasks, and a function that subscribes")
        if function is not None and len(calls) > 1:
            raise ConfigError("a task has one function, or one for CPUs and one for devices: cpu=..., gpu=...")
        if isinstance(grid, tuple) and grid and all(isinstance(one, int) for one in grid):
            raise ConfigError(
                f"the indices of the subtasks are {grid}; of a shape they are np.ndindex{grid}, else give a list: "
                f"{list(grid)}"
            )
        if timeout is not None:
            checked_number("timeout", timeout, POSITIVE)
        assert subscribe is not None
        self.table = table_of_arrays(grid, subscribe) if at_once else table_of_each(grid, subscribe)
        if function is not None:
            cpu, gpu = function, function if "xp" in keywords_of(function) else None
        self.function = BlockFunction(
            cpu,
            getattr(calls[0], "__qualname__", type(calls[0]).__name__),
            releases_gil,
            keywords_of(cpu),
            None if timeout is None else float(timeout),
            debug,
            gpu,
            keywords_of(gpu),
        )
        for count in np.unique(self.table.counts).tolist():
            for call in calls:
                _require_takes(call, self.function.name, count)


def _parameters(function: Callable[..., None]) -> Sequence[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # of compiled code


def keywords_of(function: Callable[..., None] | None) -> tuple[str, ...]:
    """Return which of "xp" and "index" a function takes."""
    names = {parameter.name for parameter in (_parameters(function) if function else None) or ()}
    return tuple(name for name in _KEYWORDS if name in names)


def _require_takes(function: Callable[..., None], name: str, count: int) -> None:
    parameters = _parameters(function)
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(*range(count), **dict.fromkeys(keywords_of(function)))
    except TypeError as error:
        raise ConfigError(
            f"{name} does not take the {pluralize(count, 'array')} that its subtasks subscribe to: {error}"
        ) from None


def require_devices(tasks: Sequence[Task], *, on_cpu: bool, on_device: bool) -> None:
    """Refuse tasks that cannot run where the ranks compute.

    Parameters
    ----------
    tasks : sequence of Task
    on_cpu, on_device : bool
        Whether a rank calls functions on its CPU only, and whether one has a device.

    Raises
    ------
    ConfigError
        If a function runs on devices only and a rank has none, or a space holds what no device computes with.
    """
    for task in tasks:
        if task.function.call is None and on_cpu:
            raise ConfigError(
                f"{task.function.name} runs on devices only, and the session computes on the CPU; open it with "
                "device='cuda', or give the task a function for CPUs: cpu=...",
                code="no-device",
            )
        if task.function.gpu is None or not on_device:
            continue
        for space in task.table.spaces:
            if not space.dtype.isnative or space.dtype.itemsize > (16 if space.dtype.kind == "c" else 8):
                raise ConfigError(
                    f"space {space.number} holds {space.dtype.str}, with which no device computes; convert it, or give "
                    f"{task.function.name} as cpu=..., so that it runs on the CPU",
                    code="device-dtype",
                )


def refuse_conflicts(tasks: Sequence[Task]) -> None:
    """Refuse tasks that run together where the order in which subtasks end would matter.

    Raises
    ------
    ConfigError
        If two subtasks write one element, or one task reads what another writes; both subtasks and the range are named.
    """
    spaces = {space.number: space for task in tasks for space in task.table.spaces}
    for number in spaces:
        written = _Ranges.of(tasks, number, "read")
        if written is not None:
            _refuse_overlap(tasks, number, written)
            read = _Ranges.of(tasks, number, "write") if len(tasks) > 1 else None
            if read is not None:
                _refuse_read(tasks, number, written, read)


@dataclass(frozen=True, eq=False)
class _Ranges:
    """What subtasks of several tasks do with a space: boxes in the order of tasks, subtasks, and arguments."""

    tasks: np.ndarray
    subtasks: np.ndarray
    boxes: np.ndarray

    @classmethod
    def of(cls, tasks: Sequence[Task], space: int, without: Access) -> _Ranges | None:
        """Collect the subscriptions of a space but those of one access; None if there are none."""
        columns = [
            (number, column)
            for number, task in enumerate(tasks)
            for column in task.table.columns
            if column.space.number == space and column.access != without
        ]
        if not columns:
            return None
        numbers = np.concatenate([np.full(len(column.subtasks), number) for number, column in columns])
        subtasks = np.concatenate([column.subtasks for _, column in columns])
        boxes = np.concatenate([column.boxes for _, column in columns])
        if len(columns) == 1:
            return cls(numbers, subtasks, boxes)
        order = np.lexsort((subtasks, numbers))
        return cls(numbers[order], subtasks[order], boxes[order])

    def name(self, tasks: Sequence[Task], row: int) -> str:
        """Name the subtask of a row for a message."""
        task = tasks[int(self.tasks[row])]
        return f"subtask {task.table.index_of(int(self.subtasks[row]))} of {task.function.name}"


def _refuse_overlap(tasks: Sequence[Task], space: int, written: _Ranges) -> None:
    pair = first_overlap(written.boxes)
    if pair is None:
        return
    a, b = pair
    raise ConfigError(
        f"{written.name(tasks, a)} and {written.name(tasks, b)} both write "
        f"{_share(written.boxes[a], written.boxes[b])} of space {space}; every element is written by one subtask",
        code="conflict",
    )


def _refuse_read(tasks: Sequence[Task], space: int, written: _Ranges, read: _Ranges) -> None:
    codes = codes_of(np.column_stack([read.tasks, read.boxes.reshape(len(read.boxes), -1)]))
    for row in np.sort(np.unique(codes, return_index=True)[1]).tolist():
        box = read.boxes[row]
        meets = (written.boxes[:, :, 0] < box[:, 1]) & (box[:, 0] < written.boxes[:, :, 1])
        found = meets.all(axis=1) & (written.tasks != read.tasks[row])
        if found.any():
            other = int(np.argmax(found))
            raise ConfigError(
                f"{read.name(tasks, row)} reads {_share(box, written.boxes[other])} of space {space}, which "
                f"{written.name(tasks, other)} writes at the same time; run the tasks one after the other",
                code="conflict",
            )


def _share(one: np.ndarray, other: np.ndarray) -> str:
    found = common(box_of(one), box_of(other))
    assert found is not None
    return describe(found)
