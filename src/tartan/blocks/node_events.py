"""What happens on a node, and what it knows of the orders that it has begun."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tartan.base.format import format_bytes
from tartan.base.reasons import line_of
from tartan.blocks.work import BlockFunction, CopyPieces, FailureKind, PartOrigin, RangeKey, WorkOrder
from tartan.core.pieces import PieceKey
from tartan.core.space import Box
from tartan.errors import DeviceError, DeviceMemoryError, DiskFullError, ResourceError, StoreError, SubtaskError
from tartan.workers.executor import Cancelled, Died, Outcome, Raised, TimedOut


class GatheredRange(NamedTuple):
    """Names an array that was gathered: a range, and the parts of pieces that it was made of, whatever the version."""

    range: RangeKey
    parts: tuple[tuple[Box, PieceKey], ...]

    @classmethod
    def of(cls, key: RangeKey, origins: tuple[PartOrigin, ...]) -> GatheredRange:
        """Return the name of a range with these parts."""
        return cls(key, tuple((origin.box, origin.key) for origin in origins))


class Filled(NamedTuple):
    """A range was gathered, or could not be."""

    key: GatheredRange
    error: Exception | None


class CallEnded(NamedTuple):
    """A call of a function has ended."""

    order: WorkOrder
    outcome: Outcome


class Copied(NamedTuple):
    """Pieces were copied, or could not be."""

    command: CopyPieces
    error: Exception | None


class Halt(NamedTuple):
    """The node ends."""


@dataclass(eq=False)
class BegunOrder:
    """An order whose arrays have their places.

    Attributes
    ----------
    pinned : list
        Keys in the store of what it reads.
    waits : set of GatheredRange
        Ranges that are not there yet.
    """

    order: WorkOrder
    pinned: list[Hashable] = field(default_factory=list)
    outputs: list[PieceKey] = field(default_factory=list)
    waits: set[GatheredRange] = field(default_factory=set)
    error: Exception | None = None


def error_of(outcome: Outcome, function: BlockFunction, order: WorkOrder) -> tuple[FailureKind, Exception, str]:
    """Return who is to blame for a call that failed, an error that names the subtask, and the user's traceback."""
    where = f"subtask {order.index} of {function.name}"
    context: Mapping[str, Any] = {"index": order.index}
    match outcome:
        case Raised(error=DeviceMemoryError() as error):
            what = str(error).partition(";")[0]
            text = (
                f"{where}: {what}; choose smaller blocks, or a smaller --device-cache, which leaves more memory to "
                "the function"
            )
            return "node", DeviceMemoryError(text, context=dict(context)), ""
        case Raised(error=DeviceError() as error):
            return "node", DeviceError(f"{where}: {error}", code=error.code, context=dict(context)), ""
        case Raised(error=DiskFullError() | StoreError() as error):  # no fault of the function, and the same elsewhere
            return "node", error, ""
        case Raised(error=SubtaskError() as error):  # its message says all
            return "user", SubtaskError(f"{where}: {error}", context=dict(context)), ""
        case Raised(name=name, message=message, traceback=traceback):
            return "user", SubtaskError(f"{where} failed: {line_of(name, message)}", context=dict(context)), traceback
        case Died(how=how, traceback=traceback):
            text = f"{where} ended its worker process: {how}"
            return "user", SubtaskError(text, code="died", context=dict(context)), traceback
        case TimedOut(seconds=seconds):
            text = f"{where} ran for {seconds:.3g} s, longer than its limit"
            return "user", SubtaskError(text, code="timeout", context=dict(context)), ""
        case Cancelled() | _:
            return "user", SubtaskError(f"{where} was cancelled", code="cancelled", context=dict(context)), ""


def too_small(order: WorkOrder, needed_bytes: int, room_bytes: int) -> ResourceError:
    """Return the error for an order that can never fit into the memory of a rank."""
    needed = format_bytes(needed_bytes)
    return ResourceError(
        f"subtask {order.index} needs {needed} at once, the host cache has {format_bytes(room_bytes)}; choose smaller "
        f"blocks, or --host-cache of at least {needed}",
        code="host-memory",
        context={"needed_bytes": needed_bytes},
    )
