"""What the scheduler wants done next, one type for each thing.

Actions are carried out in the order of their list: an eviction comes before the fill of the same slots.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tartan.core.pairs.grid import Tile

Chunk = tuple[int, int]


class Origin(Enum):
    """Where a span comes from when it is loaded."""

    STORAGE = "storage"
    DISK = "disk"
    RANK = "rank"
    RANK_PARSED = "rank, parsed"

    @property
    def ready(self) -> bool:
        """Whether items come preprocessed from there: the disk level keeps no others."""
        return self in (Origin.DISK, Origin.RANK)


class Evict(NamedTuple):
    """Drop a span: from the host level, or from a device with memory of its own.

    It comes before the action that fills its slots anew.
    """

    span: int
    device: int | None = None


class Load(NamedTuple):
    """Fill a host slot from outside the host level; where slots have no addresses, a window.

    ``origin`` is the nearest place that is known to have the span. It may come from another one; ``loaded`` says which.
    """

    span: int
    address: int
    origin: Origin


class Move(NamedTuple):
    """Copy a span within the host level, to where its strip lies."""

    span: int
    address: int
    source: int


class Prepare(NamedTuple):
    """Upload a parsed span, preprocess it on a device, and store the outcome in its host slot."""

    device: int
    span: int
    address: int


class Upload(NamedTuple):
    """Copy a ready span from its host slot to a device slot."""

    device: int
    span: int
    address: int


class Compare(NamedTuple):
    """Compare a tile on a device; all its items are there."""

    device: int
    tile: Tile


class AskSegments(NamedTuple):
    """Answer with ``granted``: at most this number of segments. It is the last action of a list."""

    most: int


class Commit(NamedTuple):
    """All tiles of a chunk are compared."""

    chunk: Chunk


Action = AskSegments | Evict | Load | Move | Prepare | Upload | Compare | Commit
