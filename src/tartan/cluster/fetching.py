"""Spans from rank to rank over bulk transfer: the questions of an exchange, and their answers, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tartan.cluster import wire
from tartan.cluster.bulk import HEAD_LIMIT, BulkClient, BulkServer, Parcel, end_of
from tartan.cluster.engine import Credentials
from tartan.core.messages import Answer, Busy, Elsewhere, Failed, Fetch, Yours
from tartan.errors import TransportError
from tartan.runtime.exchange import Failures, Landing, Provide
from tartan.runtime.items import ItemFailure

ANSWER_SECONDS = 60.0
"""Longest wait for the answer to a question, and for any pause in it."""

_ANSWERS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Elsewhere, Yours, Busy, Failed)}
_ITEMS = "items"


@dataclass(frozen=True)
class _Asked:
    """A question and who asks it."""

    rank: int
    fetch: Fetch


@dataclass(frozen=True)
class _ShippedFailures:
    """Which items of a span failed, by position; whether the others are ready."""

    failures: tuple[tuple[int, ItemFailure], ...]
    ready: bool = True


@dataclass(frozen=True)
class _AnswerHead:
    """An answer: its kind, and the fields of that."""

    kind: str
    body: bytes


class BulkFetcher:
    """Asks other ranks, and answers them, over bulk transfer; a ``Fetcher``.

    Parameters
    ----------
    credentials : Credentials
    host : str
        Interface on which to be asked.
    log : callable
        Receives one line for every connection that does not keep to the protocol.

    Attributes
    ----------
    address : str
        Where others ask.
    """

    def __init__(self, credentials: Credentials, host: str, log: Callable[[str], None]) -> None:
        self._provide: Provide | None = None
        self._client = BulkClient(credentials)
        self._server = BulkServer(self._answer, credentials, host=host, log=log)
        self.address = "{}:{}".format(*self._server.address)

    def serve(self, provide: Provide) -> None:
        """Let questions be answered; before, every answer is that this rank is busy."""
        self._provide = provide

    def fetch(self, address: str, rank: int, fetch: Fetch, landing: Landing) -> Failures | Answer:
        """Ask the rank at an address; see ``Fetcher``."""

        def place(answer: bytes, sizes: tuple[int, ...]) -> Sequence[memoryview]:
            head = wire.decode(answer, _AnswerHead)
            if head.kind != _ITEMS or len(sizes) != 1:
                return []
            return [landing(sizes[0], wire.decode(head.body, _ShippedFailures).ready)]

        request = wire.encode(_Asked(rank, fetch))
        answer = self._client.fetch(end_of(address), request, place, timeout_seconds=ANSWER_SECONDS)
        head = wire.decode(answer, _AnswerHead)
        if head.kind == _ITEMS:
            return dict(wire.decode(head.body, _ShippedFailures).failures)
        if head.kind not in _ANSWERS:
            raise TransportError(f"the rank at {address} answers {head.kind[:100]!r}")
        found: Answer = wire.decode(head.body, _ANSWERS[head.kind])
        return found

    def drop(self, address: str) -> None:
        """Break the connections to a rank."""
        self._client.drop(end_of(address))

    def close(self) -> None:
        """Ask and answer nothing more."""
        self._server.close()
        self._client.close()

    def _answer(self, request: bytes) -> Parcel:
        asked = wire.decode(request, _Asked)
        found = Busy(asked.fetch.span) if self._provide is None else self._provide(asked.rank, asked.fetch)
        if isinstance(found, Elsewhere | Yours | Busy | Failed):
            return _parcel(found)
        failures = wire.encode(_ShippedFailures(tuple(found.failures.items()), found.ready))
        head = wire.encode(_AnswerHead(_ITEMS, failures))
        if len(head) > HEAD_LIMIT:
            found.release()
            return _parcel(Busy(asked.fetch.span))
        return Parcel(head, [found.items], found.release)


def _parcel(answer: Answer) -> Parcel:
    return Parcel(wire.encode(_AnswerHead(type(answer).__name__, wire.encode(answer))))
