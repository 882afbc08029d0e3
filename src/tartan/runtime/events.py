"""What workers, lanes, I/O threads and the sink tell the loop of a node: one type for each thing that can happen.

They are made on any thread and handled on the thread of the loop. The loop chooses what handles an event by its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tartan.core.pairs.actions import Origin
from tartan.core.pairs.order import Segment
from tartan.core.pairs.verdict import PairCounts
from tartan.runtime.compare import CellFailure
from tartan.runtime.host import Place
from tartan.runtime.items import ItemFailure
from tartan.runtime.parts import Part
from tartan.store.keeper import Rows


class SpanFilled(NamedTuple):
    """A host place is filled: parsed, and preprocessed unless a device does that.

    Attributes
    ----------
    n_bytes : int
        What the place takes.
    failures : mapping of int to ItemFailure
        Items that failed, by position in the place.
    origin : Origin
        Where it came from.
    """

    place: Place
    n_bytes: int
    failures: Mapping[int, ItemFailure]
    origin: Origin = Origin.STORAGE


class SpanMoved(NamedTuple):
    """A span lies where its strip lies in the host level."""

    span: int


class SpanUploaded(NamedTuple):
    """A ready span lies in its device slots."""

    device: int
    place: Place


class SpanPrepared(NamedTuple):
    """A parsed span was preprocessed on a device, and lies in its device slots."""

    device: int
    place: Place
    failures: Mapping[int, ItemFailure]


class SpanStored(NamedTuple):
    """A prepared span lies in its host place too."""

    place: Place


class KeptPrepared(NamedTuple):
    """A span that is kept for other ranks is prepared in its place; ``failures`` are the items that failed on it."""

    place: Place
    failures: Mapping[int, ItemFailure]


class PartCompared(NamedTuple):
    """A part was compared: its scores and codes lie in the buffers of its chunk, or ``rows`` are what is kept of them.

    ``failures`` are cells that failed alone.
    """

    part: Part
    device: int
    failures: list[CellFailure]
    counts: PairCounts
    seconds: float
    rows: Rows | None = None


class PartFailed(NamedTuple):
    """A part failed as a whole.

    Attributes
    ----------
    error : CellFailure
        Its reason; the place is that of the first cell.
    kind : {"raised", "died", "late", "memory"}
    """

    part: Part
    device: int
    error: CellFailure
    kind: str


class PartDropped(NamedTuple):
    """A part was not compared, because its executor closes."""

    part: Part


class ItemsLate(NamedTuple):
    """Items took too long to load, and are tried one by one; ``line`` names them."""

    line: str


class ChunkCommitted(NamedTuple):
    """A chunk is committed; its buffers may be used again."""

    chunk: tuple[int, int]


class ChunkSaved(NamedTuple):
    """What was finished of a chunk is committed; its buffers stay open for the rest.

    Attributes
    ----------
    seconds : float
        What the commit took.
    """

    chunk: tuple[int, int]
    seconds: float


class StopAsked(NamedTuple):
    """The node is to stop: calls under way may end, for a while, and nothing new begins."""

    error: BaseException


class SegmentsGranted(NamedTuple):
    """More of the order may be computed; none: there is nothing at present, or, with ``last``, nothing to come."""

    segments: Sequence[Segment]
    last: bool


class NodeBroken(NamedTuple):
    """The node cannot continue."""

    error: BaseException


Event = (
    SpanFilled
    | SpanMoved
    | SpanUploaded
    | SpanPrepared
    | SpanStored
    | KeptPrepared
    | PartCompared
    | PartFailed
    | PartDropped
    | ItemsLate
    | ChunkCommitted
    | ChunkSaved
    | StopAsked
    | SegmentsGranted
    | NodeBroken
)
