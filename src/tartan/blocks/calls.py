"""What a worker does with a subtask: make views of the arena, call the function, and check what it did with them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tartan.blocks.loans import hold
from tartan.blocks.work import BlockFunction
from tartan.errors import SubtaskError
from tartan.workers import shipping
from tartan.workers.arena import Arena
from tartan.workers.executor import WorkerContext

ARENA = "blocks"
"""Name of the arena in the context of a worker."""

# By contract: two patterns that differ in each byte, so that what a function leaves unwritten shows.
FILLS = (0, 255)
# By judgement: a program has a few functions; closures of a loop would grow without end. No benchmark.
_MOST_FUNCTIONS = 64


class ArrayPlace(NamedTuple):
    """An array, or a part of one, in the arena.

    Attributes
    ----------
    offset : int
    shape : tuple of int
    dtype : str
        Of the array that lies there.
    part : tuple of (int, int)
        What is wanted of it; empty for all.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: str
    part: tuple[tuple[int, int], ...] = ()

    def view(self, arena: Arena) -> np.ndarray:
        """Return it."""
        array = arena.view(self.offset, self.shape, self.dtype)
        return array[tuple(slice(*interval) for interval in self.part)] if self.part else array

    @property
    def n_bytes(self) -> int:
        """Bytes of what is wanted."""
        shape = [stop - start for start, stop in self.part] if self.part else self.shape
        return math.prod(shape) * np.dtype(self.dtype).itemsize


class ArrayHeld(NamedTuple):
    """An array that lies outside the arena: a part of the source of a space. For threads of this process."""

    array: np.ndarray

    def view(self, arena: Arena) -> np.ndarray:
        """Return it."""
        return self.array

    @property
    def n_bytes(self) -> int:
        """Bytes of it."""
        return self.array.nbytes


class CallArgument(NamedTuple):
    """One array of a call: where it comes from, where it goes; one of them for what is only read or only written.

    ``loan`` is that of the array which the function gets; None where its memory is not that of the arena.
    """

    before: ArrayPlace | ArrayHeld | None
    after: ArrayPlace | None
    loan: int | None = None

    def root(self, arena: Arena) -> np.ndarray:
        """Return what all that a function has of the array refers to, and hold its loan as long as that lives."""
        place = self.after or self.before
        assert place is not None
        root = place.view(arena)
        if self.loan is not None:
            hold(arena, root, self.loan)
        return root


def run_subtask(
    context: WorkerContext, function: BlockFunction, index: tuple[int, ...], arguments: Sequence[CallArgument]
) -> None:
    """Call the function of a task.

    Raises
    ------
    SubtaskError
        If it returned something, or left elements unwritten in a watched call.
    """
    arena = context.arenas[ARENA]
    roots = [argument.root(arena) for argument in arguments]
    called = load_function(context, function.call)
    writes = [argument.after is not None for argument in arguments]

    def call(fill: int) -> None:
        arrays = [_make_array(argument, root, arena, fill) for argument, root in zip(arguments, roots, strict=True)]
        call_function(called, function.name, function.keywords, index, arrays, writes, np)

    if function.debug:
        _require_written(function.name, call, arguments, arena)
    call(FILLS[0])


def call_function(
    function: Any,
    name: str,
    wanted: Sequence[str],
    index: tuple[int, ...],
    arrays: list[Any],
    writes: Sequence[bool],
    xp: Any,
) -> None:
    """Call a function with arrays.

    Parameters
    ----------
    function : callable
    name : str
        For messages.
    wanted : sequence of str
        Which of "xp" and "index" it takes.
    index : tuple of int
    arrays : list of array
    writes : sequence of bool
        Whether it may write to each array.
    xp : module

    Raises
    ------
    SubtaskError
        If it returned something, or wrote to an array that it only reads.
    """
    keywords: dict[str, Any] = {"xp": xp, "index": index}
    try:
        found = function(*arrays, **{keyword: keywords[keyword] for keyword in wanted})
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        read = [str(number) for number, written in enumerate(writes) if not written]
        raise SubtaskError(
            f"{name} writes to an array that it only reads ({error}); it reads number {' and '.join(read)}: "
            "subscribe with update or write to what it changes"
        ) from error
    if found is not None and not any(found is array and written for array, written in zip(arrays, writes, strict=True)):
        raise SubtaskError(
            f"{name} returned {type(found).__name__}; write into the arrays that it was given, and return nothing"
        )


def _make_array(argument: CallArgument, root: np.ndarray, arena: Arena, fill: int) -> np.ndarray:
    array = np.asarray(root.data)  # views of it keep the root alive, and not the arena alone
    if argument.after is None:
        array.flags.writeable = False
    elif argument.before is not None:
        array[...] = argument.before.view(arena)
    else:
        array.reshape(-1).view(np.uint8).fill(fill)
    return array


def _require_written(name: str, call: Callable[[int], None], arguments: Sequence[CallArgument], arena: Arena) -> None:
    """Call it twice on outputs that differ beforehand: what differs afterwards was not written."""
    found = []
    for fill in FILLS:
        call(fill)
        outputs = [one.after.view(arena) for one in arguments if one.after is not None and one.before is None]
        found.append([output.reshape(-1).view(np.uint8).copy() for output in outputs])
    require_filled(name, found[0], found[1], np)


def require_filled(name: str, zeros: Sequence[Any], ones: Sequence[Any], xp: Any) -> None:
    """Refuse outputs in which bytes that were 0 before a call are 0, and bytes that were 255 are 255.

    Parameters
    ----------
    name : str
        Of the function.
    zeros, ones : sequence of array of uint8
        The bytes of each output that began with 0, and with 255.
    xp : module

    Raises
    ------
    SubtaskError
        If there are such bytes: the function did not write them.
    """
    for number, (one, other) in enumerate(zip(zeros, ones, strict=True)):
        n_unwritten = int(xp.count_nonzero((one == FILLS[0]) & (other == FILLS[1])))
        if n_unwritten:
            raise SubtaskError(
                f"{name} left {n_unwritten:,} bytes of its output {number} unwritten; write all of a range that is "
                "subscribed to with write, or subscribe to less"
            )


def load_function(context: WorkerContext, function: Any) -> Any:
    """Return a function, unpacked where it travelled."""
    if not isinstance(function, bytes):
        return function
    known: dict[str, Any] = context.state.setdefault("functions", {})
    digest = hashlib.sha256(function).hexdigest()
    if digest not in known:
        while len(known) >= _MOST_FUNCTIONS:
            known.pop(next(iter(known)))
        known[digest] = shipping.load(function)
    return known[digest]
