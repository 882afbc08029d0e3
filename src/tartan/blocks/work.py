"""What the session and the nodes that compute for it say to each other: plain data, which travels as pickle.

A session sends subtasks as work orders, each with the places that its ranges come from, so that a node asks nobody
where something is. Nodes answer each order once, done or failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tartan.core.blocks.dispatcher import FailureKind
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.space import Box, shape_of

FROM_SOURCE = -1
"""In place of a rank: the source of a space, which every rank reads for itself."""

Access = Literal["read", "write", "update"]
SubtaskKey = tuple[int, int]
"""Names a subtask: the call of ``Session.run``, and which of its subtasks."""
Boundary = Literal["zero", "reflect", "nearest", "clip"]


class RangeKey(NamedTuple):
    """A range of a space as a function receives it.

    Attributes
    ----------
    space : int
    box : Box
        Within the space.
    padding : tuple of (int, int)
        Elements before and after in every dimension that lie outside the space; empty for none.
    boundary : str
        How they are made.
    """

    space: int
    box: Box
    padding: tuple[tuple[int, int], ...] = ()
    boundary: Boundary = "clip"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        inside = shape_of(self.box)
        if not self.padding:
            return inside
        return tuple(length + before + after for length, (before, after) in zip(inside, self.padding, strict=True))


class PartOrigin(NamedTuple):
    """Where a part of a range comes from.

    Attributes
    ----------
    box : Box
        The part.
    key : PieceKey
    piece_box : Box
        What the piece covers.
    rank : int
        That has the piece; ``FROM_SOURCE`` for none.
    """

    box: Box
    key: PieceKey
    piece_box: Box
    rank: int


class BlockArgument(NamedTuple):
    """One array of a function."""

    access: Access
    range: RangeKey


@dataclass(frozen=True)
class BlockFunction:
    """The function of a task, and how it is called.

    Attributes
    ----------
    call : callable, bytes or None
        As ``tartan.workers.shipping.dump`` packs it, where it travels; None where there is none for CPUs.
    name : str
        For messages.
    releases_gil : bool
        Whether it runs in threads.
    keywords : tuple of str
        Which of "xp" and "index" it takes.
    timeout_seconds : float or None
        Longest time that one call may take.
    debug : bool
        Whether calls are watched for elements that are not written, and on devices for changes of what is only read.
    gpu : callable, bytes or None
        What is called on a device; None where the function runs on CPUs only.
    gpu_keywords : tuple of str
        Which of "xp" and "index" that takes.
    """

    call: Any
    name: str
    releases_gil: bool
    keywords: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    debug: bool = False
    gpu: Any = None
    gpu_keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtask:
    """One call of the function of a task, as it is planned.

    Attributes
    ----------
    task, number : int
        Name what it writes: the call of ``Session.run``, from 1, and which of its subtasks.
    index : tuple of int
        Of the subtask in the grid of its task.
    arguments : tuple of BlockArgument
    function : int
        Number under which ranks know its function.
    """

    task: int
    number: int
    index: tuple[int, ...]
    arguments: tuple[BlockArgument, ...]
    function: int

    @property
    def key(self) -> SubtaskKey:
        """What names the subtask."""
        return self.task, self.number

    def reads(self) -> list[RangeKey]:
        """Return the different ranges that it reads or updates."""
        return [*dict.fromkeys(argument.range for argument in self.arguments if argument.access != "write")]

    def outputs(self) -> list[tuple[PieceKey, RangeKey]]:
        """Return the pieces that it writes."""
        return [
            (PieceKey(self.task, self.number, number), argument.range)
            for number, argument in enumerate(self.arguments)
            if argument.access != "read"
        ]


@dataclass(frozen=True)
class WorkOrder:
    """A subtask for a rank.

    Attributes
    ----------
    subtask : Subtask
    origins : mapping of RangeKey to tuple of PartOrigin
        For each range that is read or updated; on the way to a rank, for those that it was not told before.
    """

    subtask: Subtask
    origins: Mapping[RangeKey, tuple[PartOrigin, ...]]

    @property
    def key(self) -> SubtaskKey:
        """What names the order."""
        return self.subtask.key


@dataclass(frozen=True)
class AddSpace:
    """A space that orders may name."""

    number: int
    source: Any


@dataclass(frozen=True)
class AddFunction:
    """A function that orders may name."""

    number: int
    function: BlockFunction


@dataclass(frozen=True)
class DropFunctions:
    """Functions that no order names any more."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class DropPieces:
    """Pieces that no version needs any more, those of sources too; ranges that were made of them are old."""

    keys: tuple[PieceKey, ...]


@dataclass(frozen=True)
class CopyPieces:
    """Pieces that a node fetches from another rank, to have a second copy; answered as an order."""

    task: int
    subtask: int
    pieces: tuple[tuple[int, PartOrigin], ...]

    @property
    def key(self) -> SubtaskKey:
        """What names the answer."""
        return self.task, self.subtask


@dataclass(frozen=True)
class CancelOrders:
    """Drop the orders that have not begun; they are answered as failed."""


Command = AddSpace | AddFunction | DropFunctions | DropPieces | CopyPieces | CancelOrders | WorkOrder


@dataclass(frozen=True)
class NodeCounts:
    """What a node moved since its last answer.

    Attributes
    ----------
    bytes_from_ranks, bytes_from_source : int
        Received from other ranks; read from sources.
    bytes_spilled, bytes_restored : int
        Written to and read from the local folder.
    ranges, hits : int
        Ranges that orders read, and those of them that were there or on their way already.
    seconds_computing : float
        In functions.
    device_subtasks : int
        Calls of functions on a device.
    bytes_uploaded, bytes_downloaded : int
        To the memory of a device, and from there.
    device_ranges, device_hits : int
        Ranges that calls on a device read, and those of them that were in its memory already.
    seconds_device_waited : float
        For how long a device had calls to compute and computed none.
    """

    bytes_from_ranks: int = 0
    bytes_from_source: int = 0
    bytes_spilled: int = 0
    bytes_restored: int = 0
    ranges: int = 0
    hits: int = 0
    seconds_computing: float = 0.0
    device_subtasks: int = 0
    bytes_uploaded: int = 0
    bytes_downloaded: int = 0
    device_ranges: int = 0
    device_hits: int = 0
    seconds_device_waited: float = 0.0

    def __add__(self, other: NodeCounts) -> NodeCounts:
        return NodeCounts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class OrderDone:
    """An order was carried out; its pieces are there."""

    rank: int
    key: SubtaskKey
    counts: NodeCounts = field(default_factory=NodeCounts)


@dataclass(frozen=True)
class OrderFailed:
    """An order was not carried out.

    Attributes
    ----------
    kind : str
        "user" where the function is to blame, "input" where a range could not be fetched, "cancelled" where it did
        not begin, else "node".
    """

    rank: int
    key: SubtaskKey
    kind: FailureKind
    error: Exception
    traceback: str = ""
    counts: NodeCounts = field(default_factory=NodeCounts)


@dataclass(frozen=True)
class RankGone:
    """A rank is lost, with all that only it had."""

    rank: int
    reason: str


@dataclass(frozen=True)
class RankUnfit:
    """A rank cannot take part: its device is not there."""

    rank: int
    error: Exception


@dataclass(frozen=True)
class RankCame:
    """A rank is there, and has nothing yet."""

    rank: int


CrewEvent = OrderDone | OrderFailed | RankGone | RankCame | RankUnfit
