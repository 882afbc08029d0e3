"""What carries spans from rank to rank, and what it carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tartan.core.pairs.order import Segment
from tartan.core.pairs.setup import next_segments
from tartan.core.ranks.messages import Answer, Fetch
from tartan.runtime.events import Event, SegmentsGranted
from tartan.runtime.items import ItemFailure

Failures = Mapping[int, ItemFailure]


def _release_nothing() -> None:
    """Release nothing."""


@dataclass(frozen=True)
class Shipment:
    """A span on its way to another rank.

    Attributes
    ----------
    items : memoryview
        Its slots.
    failures : mapping of int to ItemFailure
        Items that failed, by position.
    release : callable
        Called once it is sent, or cannot be.
    ready : bool
        Whether its items are ready to be compared; else they are only parsed.
    """

    items: memoryview
    failures: Failures
    release: Callable[[], None] = _release_nothing
    ready: bool = True


Landing = Callable[[int, bool], memoryview]
"""Returns memory for that many bytes of a span that is ready, or only parsed; raises ResourceError where none fits."""

Provide = Callable[[int, Fetch], Shipment | Answer]


class Fetcher(Protocol):
    """What carries spans from rank to rank."""

    def serve(self, provide: Provide) -> None:
        """Let ``provide``, which may wait, answer the questions of other ranks; before, all answers are ``Busy``."""

    def fetch(self, address: str, rank: int, fetch: Fetch, landing: Landing) -> Failures | Answer:
        """Ask the rank at an address, as this rank; items come where ``landing`` says, none after the return.

        Raises
        ------
        TartanError
            If no answer came, or its items fit nowhere; what ``landing`` returned then holds rubbish.
        """

    def drop(self, address: str) -> None:
        """End what is under way with a rank; waits for nothing."""


# Where the work of a node comes from: the whole order where one rank computes all of it, else a coordinator.


class SegmentSource(Protocol):
    """Grants a node segments of the order."""

    def ask(self, most: int, post: Callable[[Event], None]) -> None:
        """Post SegmentsGranted, of at most this number of segments; again when there are more after there were none."""


class WholeOrder:
    """All segments, one after the other; a ``SegmentSource``."""

    def __init__(self, segments: Iterator[Segment]) -> None:
        self._segments = segments

    def ask(self, most: int, post: Callable[[Event], None]) -> None:
        """Post the next segments of the order, to be handled after what is under way."""
        post(SegmentsGranted(*next_segments(self._segments, most)))
