"""What carries spans from rank to rank, and what it carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tartan.core.messages import Answer, Fetch
from tartan.runtime.items import ItemFailure

Failures = Mapping[int, ItemFailure]


def _nothing() -> None:
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
    release: Callable[[], None] = _nothing
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
