"""Where the work of a node comes from: the whole order where one rank computes all of it, else a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tartan.core.order import Segment
from tartan.core.setup import next_segments
from tartan.runtime.events import Event, SegmentsGranted


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
