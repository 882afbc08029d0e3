"""Spans from rank to rank over bulk transfer: the questions of an exchange, and their answers, as bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.cluster import wire
from tartan.cluster.bulk import HEAD_LIMIT, BulkClient, BulkServer, Parcel, end_of
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import Credentials
from tartan.cluster.packing import LinkSpeeds, pack_if_faster, unpack
from tartan.core.ranks.messages import Answer, Busy, Elsewhere, Failed, Fetch, Member, Yours
from tartan.errors import TransportError
from tartan.runtime.items import ItemFailure
from tartan.runtime.shipment import Failures, Landing, Provide

# By contract: above PATIENCE_SECONDS of runtime/exchange (50), after which the asked rank says that it is busy.
ANSWER_SECONDS = 60.0
"""Longest wait for the answer to a question, and for any pause in it."""

_ANSWERS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Elsewhere, Yours, Busy, Failed)}
_ITEMS = "items"


@dataclass(frozen=True)
class _Asked:
    """A question, who asks it, and the bytes a second that came from here of late (0: unknown)."""

    rank: int
    fetch: Fetch
    link: float = 0.0


@dataclass(frozen=True)
class _ShippedFailures:
    """Which items of a span failed, by position; whether the others are ready; their bytes if they are compressed."""

    failures: tuple[tuple[int, ItemFailure], ...]
    ready: bool = True
    plain_bytes: int = 0


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
    throttle : Throttle, optional
        Bounds the speed of answers, for tests.

    Attributes
    ----------
    address : str
        Where others ask.
    """

    def __init__(
        self, credentials: Credentials, host: str, log: Callable[[str], None], throttle: Throttle | None = None
    ) -> None:
        self._provide: Provide | None = None
        self._speeds = LinkSpeeds()
        self._client = BulkClient(credentials)
        self._server = BulkServer(self._answer, credentials, host=host, log=log, throttle=throttle)
        self.address = "{}:{}".format(*self._server.address)

    def serve(self, provide: Provide) -> None:
        """Let questions be answered; before, every answer is that this rank is busy."""
        self._provide = provide

    def fetch(self, address: str, rank: int, fetch: Fetch, landing: Landing) -> Failures | Answer:
        """Ask the rank at an address; see ``Fetcher``."""

        arrival = _PackedArrival(landing)
        request = wire.encode(_Asked(rank, fetch, self._speeds.of(address)))
        answer = self._client.fetch(end_of(address), request, arrival.place, timeout_seconds=ANSWER_SECONDS)
        head = wire.decode(answer, _AnswerHead)
        if head.kind == _ITEMS:
            self._speeds.note(address, arrival.n_bytes, time.perf_counter() - arrival.begun)
            return arrival.end()
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
        small = pack_if_faster(found.items, asked.link)
        plain_bytes = 0 if small is None else found.items.nbytes
        failures = wire.encode(_ShippedFailures(tuple(found.failures.items()), found.ready, plain_bytes))
        head = wire.encode(_AnswerHead(_ITEMS, failures))
        if len(head) > HEAD_LIMIT:
            found.release()
            return _parcel(Busy(asked.fetch.span))
        if small is None:
            return Parcel(head, [found.items], found.release)
        found.release()
        return Parcel(head, [small])


class _PackedArrival:
    """Items on their way in, straight into their place where they are not compressed."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._about = _ShippedFailures(())
        self._packed: np.ndarray | None = None
        self._target = memoryview(b"")
        self.n_bytes = 0
        self.begun = 0.0

    def place(self, answer: bytes, sizes: tuple[int, ...]) -> Sequence[memoryview]:
        """Return where the buffers of an answer may come."""
        self.begun = time.perf_counter()
        head = wire.decode(answer, _AnswerHead)
        if head.kind != _ITEMS or len(sizes) != 1:
            return []
        self._about = wire.decode(head.body, _ShippedFailures)
        (self.n_bytes,) = sizes
        self._target = self._landing(self._about.plain_bytes or self.n_bytes, self._about.ready)
        if not self._about.plain_bytes:
            return [self._target]
        self._packed = np.empty(self.n_bytes, np.uint8)
        return [self._packed.data]

    def end(self) -> Failures:
        """Have the items where they belong; return which failed."""
        if self._packed is not None:
            try:
                unpack(self._packed, self._target)
            except (ValueError, RuntimeError) as error:
                raise TransportError(f"items were damaged on their way: {error}") from None
        return dict(self._about.failures)


# By judgement: a rank that was killed is known to be lost within two seconds, and is then not called unreachable. No
# benchmark.
GRACE_SECONDS = 5.0


class UnreachedRanks:
    """Which members do not answer this rank although they live, to be told once for each.

    Parameters
    ----------
    me : str
        Name of this rank.
    unreached : dict of str to str
        Addresses that did not answer, each with the reason; may change meanwhile, and loses those of no member.
    clock : callable
        Seconds.
    """

    def __init__(self, me: str, unreached: dict[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._me, self._unreached, self._clock = me, unreached, clock
        self._members: dict[str, Member] = {}
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def view(self, members: Sequence[Member]) -> None:
        """Take note of the live ranks."""
        self._members = {member.address: member for member in members if member.address}

    def take_lines(self) -> list[str]:
        """Return what is to be told now: names this rank and the other one, the reason and what it costs."""
        members, now, lines = self._members, self._clock(), []
        for address, reason in list(self._unreached.items()):
            since = self._since.setdefault(address, now)
            if address not in members:
                self._unreached.pop(address, None)
                self._since.pop(address, None)
            elif now - since >= GRACE_SECONDS and address not in self._told:
                self._told.add(address)
                other = members[address]
                lines.append(
                    f"rank {self._me} cannot reach rank number {other.rank} on {other.host} at {address} ({reason}); "
                    "it loads for itself what that one holds: R rises, the scores stay the same"
                )
        return lines


def _parcel(answer: Answer) -> Parcel:
    return Parcel(wire.encode(_AnswerHead(type(answer).__name__, wire.encode(answer))))
