"""What a worker does with a subtask: make views of the arena, call the function, and check what it did with them."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tartan.blocks.work import BlockFunction
from tartan.errors import SubtaskError
from tartan.workers import shipping
from tartan.workers.arena import Arena
from tartan.workers.executor import WorkerContext

ARENA = "blocks"
"""Name of the arena in the context of a worker."""

_FILLS = (0, 255)
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


class CallArgument(NamedTuple):
    """One array of a call: where it comes from, where it goes; one of them for what is only read or only written."""

    before: ArrayPlace | None
    after: ArrayPlace | None


@dataclass(frozen=True)
class SubtaskCall:
    """One call of a function of a task."""

    function: BlockFunction
    index: tuple[int, ...]
    arguments: tuple[CallArgument, ...]


def run_subtask(context: WorkerContext, call: SubtaskCall) -> None:
    """Call the function of a task.

    Raises
    ------
    SubtaskError
        If it returned something, kept an array, or left elements unwritten in a watched call.
    """
    function = _loaded(context, call.function)
    arena = context.arenas[ARENA]
    if call.function.debug:
        _require_written(function, call, arena)
    _call(function, call, arena, _FILLS[0])


def _call(function: Any, call: SubtaskCall, arena: Arena, fill: int) -> None:
    arrays = [_array(argument, arena, fill) for argument in call.arguments]
    keywords: dict[str, Any] = {"xp": np, "index": call.index}
    found = function(*arrays, **{name: keywords[name] for name in call.function.keywords})
    if found is not None and not any(
        found is array and argument.after is not None for array, argument in zip(arrays, call.arguments, strict=True)
    ):
        raise SubtaskError(
            f"{call.function.name} returned {type(found).__name__}; write into the arrays that it was given, and "
            "return nothing"
        )
    del found
    for number in range(len(arrays)):
        if sys.getrefcount(arrays[number]) > 2:  # the list, and the argument of getrefcount
            raise SubtaskError(
                f"{call.function.name} keeps array {number} after its end; the memory is used again, so copy what is "
                "needed later"
            )


def _array(argument: CallArgument, arena: Arena, fill: int) -> np.ndarray:
    if argument.after is None:
        assert argument.before is not None
        source = argument.before.view(arena)
        array = np.asarray(source.data)  # views of it keep it alive, and not the arena alone
        array.flags.writeable = False
        return array
    array = np.asarray(argument.after.view(arena).data)
    if argument.before is not None:
        array[...] = argument.before.view(arena)
    else:
        array.reshape(-1).view(np.uint8).fill(fill)
    return array


def _require_written(function: Any, call: SubtaskCall, arena: Arena) -> None:
    """Call it twice on outputs that differ beforehand: what differs afterwards was not written."""
    found = []
    for fill in _FILLS:
        _call(function, call, arena, fill)
        outputs = [one.after.view(arena) for one in call.arguments if one.after is not None and one.before is None]
        found.append([output.reshape(-1).view(np.uint8).copy() for output in outputs])
    for number, (one, other) in enumerate(zip(*found, strict=True)):
        n_unwritten = np.count_nonzero((one == _FILLS[0]) & (other == _FILLS[1]))
        if n_unwritten:
            raise SubtaskError(
                f"{call.function.name} left {n_unwritten:,} bytes of its output {number} unwritten; write all of a "
                "range that is subscribed to with write, or subscribe to less"
            )


def _loaded(context: WorkerContext, function: BlockFunction) -> Any:
    if not isinstance(function.call, bytes):
        return function.call
    known: dict[str, Any] = context.state.setdefault("functions", {})
    digest = hashlib.sha256(function.call).hexdigest()
    if digest not in known:
        while len(known) >= _MOST_FUNCTIONS:
            known.pop(next(iter(known)))
        known[digest] = shipping.load(function.call)
    return known[digest]
