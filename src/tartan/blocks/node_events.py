"""What happens on a node, and the calls that its orders become."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tartan.base.format import format_bytes, make_line
from tartan.blocks.calls import CallArgument
from tartan.blocks.work import BlockFunction, CopyPieces, PartOrigin, RangeKey, WorkOrder
from tartan.core.blocks.device_queue import UploadArrays
from tartan.core.blocks.dispatcher import FailureKind
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.space import Box
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


class RangeNames(NamedTuple):
    """What an array of a subtask is called on a device: the range that it has before, and what is written of it."""

    before: Hashable | None
    after: Hashable | None

    @classmethod
    def of(cls, order: WorkOrder) -> list[RangeNames]:
        """Return what the arrays of an order are called: what one subtask wrote, others read later."""
        pieces = iter(order.subtask.outputs())
        names = []
        for argument in order.subtask.arguments:
            before = after = None
            if argument.access != "write":
                before = GatheredRange.of(argument.range, order.origins[argument.range])
            if argument.access != "read":
                piece, wanted = next(pieces)
                after = GatheredRange(wanted, ((wanted.box, piece),))
            names.append(cls(before, after))
        return names


class Copied(NamedTuple):
    """Pieces were copied, or could not be."""

    command: CopyPieces
    error: Exception | None


class Halt(NamedTuple):
    """The node ends."""


@dataclass(eq=False)
class SubtaskCall:
    """An order that a rank carries out, from when its arrays have their places until its function has ended.

    The loop of the node has it, then the device where it computes there, then the loop again.

    Attributes
    ----------
    order : WorkOrder
    function : BlockFunction
    pinned : list
        Keys in the store of what it reads.
    outputs : list of PieceKey
        What it writes, as far as that has its place.
    waits : set of GatheredRange
        Ranges that are not there yet.
    error : Exception or None
        Why one of them cannot come.
    arguments : tuple of CallArgument
        Once all ranges are there.
    began : float
        When a worker or the device had it, by the clock of the process.
    number : int
        Of the calls that the device has had.
    names : list of RangeNames
        Of its arrays on the device.
    upload : UploadArrays
        Where they are there.
    n_calls : int
        How often its function was called there.
    is_repeated : bool
        Whether the memory of the device ran out, and it computes once more, alone.
    seconds : float
        How long its function ran there.
    """

    order: WorkOrder
    function: BlockFunction
    pinned: list[Hashable] = field(default_factory=list)
    outputs: list[PieceKey] = field(default_factory=list)
    waits: set[GatheredRange] = field(default_factory=set)
    error: Exception | None = None
    arguments: tuple[CallArgument, ...] = ()
    began: float = 0.0
    number: int = 0
    names: list[RangeNames] = field(default_factory=list)
    upload: UploadArrays = field(default_factory=lambda: UploadArrays(0, [], {}, {}, []))
    n_calls: int = 0
    is_repeated: bool = False
    seconds: float = 0.0

    @property
    def lends_ranges(self) -> bool:
        """Whether a function on a device gets ranges that it must not change, and not copies of them."""
        only_read = (name for name in self.names if name.before is not None and name.after is None)
        return any(name.before not in self.upload.copies for name in only_read)

    @property
    def where(self) -> str:
        """Return the words that name the subtask."""
        return f"subtask {self.order.subtask.index} of {self.function.name}"


class CallEnded(NamedTuple):
    """A call of a function has ended."""

    call: SubtaskCall
    outcome: Outcome


def error_of(outcome: Outcome, call: SubtaskCall) -> tuple[FailureKind, Exception, str]:
    """Return who is to blame for a call that failed, an error that names the subtask, and the user's traceback."""
    where = call.where
    context: Mapping[str, Any] = {"index": call.order.subtask.index}
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
            return "user", SubtaskError(f"{where} failed: {make_line(name, message)}", context=dict(context)), traceback
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
        f"subtask {order.subtask.index} needs {needed} at once, the host cache has {format_bytes(room_bytes)}; choose "
        f"smaller blocks, or --host-cache of at least {needed}",
        code="host-memory",
        context={"needed_bytes": needed_bytes},
    )
