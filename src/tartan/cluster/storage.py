"""Items from a rank next to the data: it reads files, and parses them where that makes less to send.

A storage rank has no devices and computes no pairs. The ranks that do ask it for spans, in place of reading storage
themselves; among each other they remain homes as ever, so that a span leaves the storage rank about once. An answer
holds the bytes of the files, or the parsed items as they travel between ranks. Where the ranks ask for "auto", the
storage rank chooses what takes fewer bytes on the link: it knows the sizes of the files, those of the items that the
driver has parsed to learn their form, and how much a sample of either shrinks where the link is slower than the codec.

What cannot be read or parsed is not answered: the rank that asks loads it itself, and says what is wrong with it.

Deadlocks: a storage rank asks nothing of other ranks.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from tartan.base.checks import check_one_of
from tartan.cluster import wire
from tartan.cluster.bulk import BulkClient, BulkServer, Parcel, end_of
from tartan.cluster.engine import Credentials
from tartan.cluster.packing import CodecSample, LinkSpeeds, pack_if_faster, unpack
from tartan.core.ranks.homes import home_of
from tartan.core.ranks.messages import Member
from tartan.errors import TartanError, TransportError
from tartan.runtime.exchange import Transit
from tartan.runtime.host import Place

ParseAt = Literal["storage", "compute", "auto"]
PARSE_AT: tuple[ParseAt, ...] = ("storage", "compute", "auto")

# By judgement: twice that of fetching, which has no parse before the answer.
ANSWER_SECONDS = 120.0
"""Longest wait for an answer to begin: items are read and parsed before."""
# By judgement: ranks of one launch come within seconds of each other; then each reads for itself. No benchmark.
JOIN_SECONDS = 20.0
"""How long the first load waits for a storage rank that is expected."""


def parse_place(text: str) -> ParseAt:
    """Return where items are parsed, from what a user wrote; raises ConfigError."""
    check_one_of("parse_at", text, PARSE_AT)
    return cast("ParseAt", text)


@dataclass(frozen=True)
class _StorageQuestion:
    """A span that a rank needs.

    Attributes
    ----------
    first, length : int
        Its items.
    ready : bool
        Whether parsed items are wanted preprocessed, too.
    parse_at : str
    link : float
        Bytes a second that came from here of late; 0 where unknown.
    """

    first: int
    length: int
    ready: bool
    parse_at: str
    link: float


@dataclass(frozen=True)
class _StorageHead:
    """What an answer holds.

    Attributes
    ----------
    parsed : bool
        Parsed items; else the bytes of files.
    lengths : tuple of int
        Of each file.
    plain_bytes : int
        Of the buffer, decompressed; 0 where it is not compressed.
    there : bool
        Whether there is an answer; else the asker loads for itself.
    """

    parsed: bool = False
    lengths: tuple[int, ...] = ()
    plain_bytes: int = 0
    there: bool = True


class StoredSpan(NamedTuple):
    """A span as bytes: of its files, one after the other, each of some length, or of parsed items."""

    data: memoryview
    lengths: tuple[int, ...] = ()


class SpanReader:
    """What a storage rank does with a span; ``tartan.run.storage_rank`` implements it with an executor."""

    def read(self, first: int, length: int) -> StoredSpan | None:
        """Return the bytes of files; None where one cannot be read."""
        raise NotImplementedError

    def parse(self, first: int, files: StoredSpan, *, ready: bool) -> StoredSpan | None:
        """Return the parsed items of files, preprocessed if ``ready``; None where one fails."""
        raise NotImplementedError


@dataclass(frozen=True)
class SizeSample:
    """What some items take, as files and parsed.

    Attributes
    ----------
    file_bytes : float
        Mean of all files; 0 where it is not known.
    parsed_bytes, ready_bytes : float
        Of an item that is parsed, and of one that is preprocessed, too.
    codec : CodecSample
        Of parsed items.
    """

    file_bytes: float = 0.0
    parsed_bytes: float = 0.0
    ready_bytes: float = 0.0
    codec: CodecSample = field(default_factory=CodecSample)


class StorageServer:
    """Answers ranks that ask for spans.

    Parameters
    ----------
    reader : SpanReader
    credentials : Credentials
    host : str
        Interface on which to be asked.
    options : ServerOptions

    Attributes
    ----------
    address : str
        Where others ask.
    """

    def __init__(self, reader: SpanReader, credentials: Credentials, host: str, options: ServerOptions) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._under_way = threading.BoundedSemaphore(options.n_at_once)
        self._kept = _KeptAnswers(options.keep_bytes)
        self._sizes = options.sizes
        self._files: CodecSample | None = None
        self._server = BulkServer(self._answer, credentials, host=host, log=options.log, throttle=options.throttle)
        self.address = "{}:{}".format(*self._server.address)

    def close(self) -> None:
        """Answer nothing more."""
        self._server.close()

    def _answer(self, request: bytes) -> Parcel:
        asked = wire.decode(request, _StorageQuestion)
        with self._under_way:
            parsed = self._parses(asked)
            found = self._find_span(asked, parsed=parsed)
        if found is None:
            return Parcel(wire.encode(_StorageHead(there=False)))
        return self._parcel(asked, parsed, found)

    def _parcel(self, asked: _StorageQuestion, parsed: bool, found: StoredSpan) -> Parcel:
        small = pack_if_faster(found.data, asked.link)
        data, plain_bytes = (found.data, 0) if small is None else (small, found.data.nbytes)
        return Parcel(wire.encode(_StorageHead(parsed, found.lengths, plain_bytes)), [data])

    def _parses(self, asked: _StorageQuestion) -> bool:
        """Whether to parse a span here: where that was asked for, or makes less to send."""
        if asked.parse_at != "auto":
            return asked.parse_at == "storage"
        sizes = self._sizes
        parsed = sizes.ready_bytes if asked.ready else sizes.parsed_bytes
        as_files = self._file_codec(asked).link_bytes(sizes.file_bytes, asked.link)
        return 0 < sizes.codec.link_bytes(parsed, asked.link) < as_files

    def _file_codec(self, asked: _StorageQuestion) -> CodecSample:
        """Return what a sample says of compressing files; it is taken from the first span that is asked for."""
        if self._files is None:
            found = self._find_span(asked, parsed=False)
            if found is None:
                return CodecSample()
            self._files = CodecSample.of(np.frombuffer(found.data, np.uint8))
        return self._files

    def _find_span(self, asked: _StorageQuestion, *, parsed: bool) -> StoredSpan | None:
        """Return a span in one form: kept, on its way for another rank, or made now."""
        key = (asked.first, asked.length, parsed, parsed and asked.ready)
        with self._lock:
            future, mine = self._kept.future(key)
        if not mine:
            return future.result()
        try:
            made = self._make_span(asked, parsed=parsed)
        except BaseException as error:
            with self._lock:
                self._kept.forget(key)
            future.set_exception(error)
            raise
        with self._lock:
            self._kept.keep(key, made)
        future.set_result(made)
        return made

    def _make_span(self, asked: _StorageQuestion, *, parsed: bool) -> StoredSpan | None:
        if not parsed:
            return self._reader.read(asked.first, asked.length)
        files = self._find_span(asked, parsed=False)
        return None if files is None else self._reader.parse(asked.first, files, ready=asked.ready)


@dataclass(frozen=True)
class ServerOptions:
    """How a storage rank serves.

    Attributes
    ----------
    keep_bytes : int
        Room for spans that were read or parsed: they are sent again from there.
    n_at_once : int
        Spans that are read or parsed at a time.
    log : callable
        Receives one line for every connection that does not keep to the protocol.
    sizes : SizeSample
        By which "auto" is decided.
    throttle : Throttle or None
    """

    keep_bytes: int
    n_at_once: int
    log: Any
    sizes: SizeSample = field(default_factory=SizeSample)
    throttle: Any = None


class _KeptAnswers:
    """Spans by what was asked, bounded by their bytes; the one used longest ago goes first."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._held_bytes = 0
        self._futures: OrderedDict[Any, tuple[Future[StoredSpan | None], int]] = OrderedDict()

    def future(self, key: Any) -> tuple[Future[StoredSpan | None], bool]:
        """Return what holds or will hold an answer, and whether the caller must make it."""
        found = self._futures.get(key)
        if found is None:
            future: Future[StoredSpan | None] = Future()
            self._futures[key] = future, 0
            return future, True
        self._futures.move_to_end(key)
        return found[0], False

    def forget(self, key: Any) -> None:
        """Let the next one who asks make it."""
        _, n_bytes = self._futures.pop(key)
        self._held_bytes -= n_bytes

    def keep(self, key: Any, made: StoredSpan | None) -> None:
        """Keep an answer, as far as there is room; what cannot be loaded is not kept."""
        n_bytes = made.data.nbytes if made is not None else 0
        self._futures[key] = self._futures[key][0], n_bytes
        self._held_bytes += n_bytes
        if made is None or n_bytes > self._keep_bytes:
            self.forget(key)
        while self._held_bytes > self._keep_bytes:
            self.forget(next(k for k, (_, size) in self._futures.items() if size))


class StorageLink:
    """Asks storage ranks for spans, in place of reading storage here; the ``RemoteStorage`` of a loader.

    Parameters
    ----------
    credentials : Credentials
    parse_at : {"storage", "compute", "auto"} or None
        None is "auto", and that no storage rank is expected: none is waited for.
    """

    def __init__(self, credentials: Credentials, parse_at: ParseAt | None) -> None:
        self._client = BulkClient(credentials)
        self._parse_at = parse_at or "auto"
        self._speeds = LinkSpeeds()
        self._members: dict[int, str] = {}
        self._there = threading.Event()
        self._patience = 0.0 if parse_at is None else JOIN_SECONDS
        self._lock = threading.Lock()
        self.bytes_received = 0

    def view(self, members: Sequence[Member]) -> None:
        """Ask these storage ranks from now on; waits for nothing."""
        found = {member.rank: member.address for member in members if member.storage}
        lost = set(self._members.values()) - set(found.values())
        self._members = found
        if found:
            self._there.set()
        for address in lost:
            self._client.drop(end_of(address))

    def close(self) -> None:
        """Ask nothing more."""
        self._there.set()
        self._client.close()

    def load(self, place: Place, transit: Transit) -> int | list[bytes] | None:
        """Load a span: see ``RemoteStorage``."""
        if not self._there.wait(self._patience):
            self._patience = 0.0
        members = self._members
        if not members:
            return None
        address = members[home_of(place.first, sorted(members))]
        try:
            return self._ask(address, place, transit)
        except (TartanError, ValueError, RuntimeError):  # lost, or not what was asked for
            return None

    def _ask(self, address: str, place: Place, transit: Transit) -> int | list[bytes] | None:
        ready = transit.arrives_ready
        question = _StorageQuestion(place.first, place.length, ready, self._parse_at, self._speeds.of(address))
        arrival = _StorageArrival(place, transit)
        where = end_of(address)
        self._client.fetch(where, wire.encode(question), arrival.land, timeout_seconds=ANSWER_SECONDS)
        seconds = time.perf_counter() - arrival.begun
        if arrival.head is None or not arrival.head.there:
            return None
        self._speeds.note(address, arrival.n_bytes, seconds)
        with self._lock:
            self.bytes_received += arrival.n_bytes
        return arrival.end()


@dataclass
class _StorageArrival:
    """An answer on its way in."""

    place: Place
    transit: Transit
    head: _StorageHead | None = None
    n_bytes: int = 0
    begun: float = 0.0
    target: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    memory: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    def land(self, head: bytes, sizes: tuple[int, ...]) -> list[memoryview]:
        """Return where the buffer of an answer may come: its place at once, where it is parsed and not compressed."""
        self.begun = time.perf_counter()
        self.head = wire.decode(head, _StorageHead)
        if not self.head.there:
            return []
        if len(sizes) != 1:
            raise TransportError(f"an answer of {len(sizes)} buffers")
        (self.n_bytes,) = sizes
        plain_bytes = self.head.plain_bytes or self.n_bytes
        if self.head.parsed:
            self.target = self.transit.take_memory(self.place, plain_bytes, ready=self.transit.arrives_ready)
        elif sum(self.head.lengths) != plain_bytes or len(self.head.lengths) != self.place.length:
            raise TransportError("an answer with other files than were asked for")
        else:
            self.target = np.empty(plain_bytes, np.uint8)
        self.memory = np.empty(self.n_bytes, np.uint8) if self.head.plain_bytes else self.target
        return [self.memory.data]

    def end(self) -> int | list[bytes]:
        """Take in what has come: parsed items lie in their place then."""
        assert self.head is not None
        if self.head.plain_bytes:
            unpack(self.memory, self.target)
        if self.head.parsed:
            self.transit.on_landed(self.place, self.target)
            return len(self.target)
        ends = np.cumsum(self.head.lengths).tolist()
        return [self.target[end - length : end].tobytes() for end, length in zip(ends, self.head.lengths, strict=True)]
