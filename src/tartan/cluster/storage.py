"""Items from a rank next to the data: it reads files, and runs those stages on them that belong beside the data.

A storage rank has no devices and computes no pairs. The ranks that do ask it for spans, in place of reading storage
themselves; among each other they remain homes as ever, so that a span leaves the storage rank about once. An answer
holds the bytes of the files, parsed items, or items that are ready to be compared: that is its depth. Where the ranks
ask for "auto", the storage rank chooses by ``core/ranks/placement.py``: it knows the sizes of the files, those of the
items that the driver has loaded to learn their form, how much a sample of either shrinks where the link is slower than
the codec, what each stage takes here, and, from the question, what it takes there and how fast the link is.

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
from typing import Any, Literal, NamedTuple

import numpy as np

from tartan.cluster import wire
from tartan.cluster.bulk import BulkClient, BulkServer, Parcel, end_of
from tartan.cluster.engine import Credentials
from tartan.cluster.packing import CodecSample, LinkSpeeds, TotalSpeed, pack_if_faster, unpack
from tartan.core.ranks.homes import home_of
from tartan.core.ranks.messages import Member
from tartan.core.ranks.placement import AUTO, FILES, PARSED, READY, Means, PlacementCosts, choose_depth
from tartan.errors import TartanError, TransportError
from tartan.runtime.codec import decode
from tartan.runtime.exchange import Transit
from tartan.runtime.host import Place
from tartan.runtime.items import ParsedItem

# By contract: the words of --parse-at, which is older than --stages: all stages beside the data, none, or by cost.
ParseAt = Literal["storage", "compute", "auto"]
PARSE_AT: dict[str, int] = {"storage": READY, "compute": FILES, "auto": AUTO}

# By judgement: twice that of fetching, which has no parse before the answer.
ANSWER_SECONDS = 120.0
"""Longest wait for an answer to begin: items are read and parsed before."""
# By judgement: ranks of one launch come within seconds of each other; then each reads for itself. No benchmark.
JOIN_SECONDS = 20.0
"""How long the first load waits for a storage rank that is expected."""
_STAGES, _FORMS = ("parse", "preprocess"), ("files", "parsed", "ready")


@dataclass(frozen=True)
class _StorageQuestion:
    """A span that a rank needs.

    Attributes
    ----------
    first, length : int
        Its items.
    ready : bool
        Whether items are to be preprocessed before they lie in host memory; else a device does it.
    depth : int
        How many stages are to run beside the data, or ``AUTO``.
    link : float
        Bytes a second that came from here of late, in one transfer; 0 where unknown.
    total : float
        The same of all transfers to this rank together.
    n_workers : int
        Of this rank.
    n_storage : int
        Ranks beside the data that it knows.
    seconds : tuple of float
        What parse and preprocess took of late, of an item on one worker of this rank; 0 where unknown.
    """

    first: int
    length: int
    ready: bool
    depth: int
    link: float
    total: float = 0.0
    n_workers: int = 1
    n_storage: int = 1
    seconds: tuple[float, ...] = (0.0, 0.0)


@dataclass(frozen=True)
class _StorageHead:
    """What an answer holds.

    Attributes
    ----------
    depth : int
        How many stages have run: 0 for the bytes of files.
    lengths : tuple of int
        Of each file.
    plain_bytes : int
        Of the buffer, decompressed; 0 where it is not compressed.
    there : bool
        Whether there is an answer; else the asker loads for itself.
    """

    depth: int = FILES
    lengths: tuple[int, ...] = ()
    plain_bytes: int = 0
    there: bool = True


class StoredSpan(NamedTuple):
    """A span as bytes: of its files, one after the other, each of some length, or of items; what its stages took."""

    data: memoryview
    lengths: tuple[int, ...] = ()
    seconds: tuple[float, float] | None = None


class SpanReader:
    """What a storage rank does with a span; ``tartan.run.storage_rank`` implements it with an executor."""

    def read(self, first: int, length: int) -> StoredSpan | None:
        """Return the bytes of files; None where one cannot be read."""
        raise NotImplementedError

    def parse(self, first: int, files: StoredSpan, *, depth: int, ready: bool) -> StoredSpan | None:
        """Return the items of files after some stages; None where one fails.

        Parameters
        ----------
        depth : int
            ``PARSED`` or ``READY``.
        ready : bool
            Whether items of depth ``PARSED`` still have to be preprocessed by the workers of the rank that asks, so
            that they have any form; else they are in the form that its devices preprocess.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SizeSample:
    """What some items take, as files, parsed and ready, and what a run has besides.

    Attributes
    ----------
    file_bytes : float
        Mean of all files; 0 where it is not known.
    parsed_bytes, ready_bytes : float
        Of an item that is parsed, and of one that is preprocessed, too.
    codec, ready_codec : CodecSample
        Of parsed items, and of ready ones.
    seconds : tuple of float
        Of parse and of preprocess, of an item on one worker.
    compare_seconds : float
        Of the comparisons of an item, its share of the whole run.
    on_workers : bool
        Whether workers compare; else devices with memory of their own.
    n_items, n_ranks : int
        Items of the run, and ranks that compute.
    depths : tuple of int
        Those that are possible: each has a form in which it can travel.
    """

    file_bytes: float = 0.0
    parsed_bytes: float = 0.0
    ready_bytes: float = 0.0
    codec: CodecSample = field(default_factory=CodecSample)
    ready_codec: CodecSample = field(default_factory=CodecSample)
    seconds: tuple[float, float] = (0.0, 0.0)
    compare_seconds: float = 0.0
    on_workers: bool = True
    n_items: int = 1
    n_ranks: int = 1
    depths: tuple[int, ...] = (FILES, PARSED, READY)


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
        self._n_workers = options.n_workers
        self._measured = Means()
        self._files: CodecSample | None = None
        self._server = BulkServer(self._answer, credentials, host=host, log=options.log, throttle=options.throttle)
        self.address = "{}:{}".format(*self._server.address)

    def close(self) -> None:
        """Answer nothing more."""
        self._server.close()

    def _answer(self, request: bytes) -> Parcel:
        asked = wire.decode(request, _StorageQuestion)
        with self._under_way:
            depth = self._depth_of(asked)
            found = self._find_span(asked, depth)
        if found is None:
            return Parcel(wire.encode(_StorageHead(there=False)))
        return self._parcel(asked, depth, found)

    def _parcel(self, asked: _StorageQuestion, depth: int, found: StoredSpan) -> Parcel:
        small = pack_if_faster(found.data, asked.link)
        data, plain_bytes = (found.data, 0) if small is None else (small, found.data.nbytes)
        return Parcel(wire.encode(_StorageHead(depth, found.lengths, plain_bytes)), [data])

    def _depth_of(self, asked: _StorageQuestion) -> int:
        """Return how many stages run here: as many as were asked for, or those that make the run fastest."""
        most = READY if asked.ready else PARSED
        if asked.depth != AUTO:
            return min(asked.depth, most)
        codec = self._file_codec(asked)
        return choose_depth(self._costs(asked, codec), sorted({min(depth, most) for depth in self._sizes.depths}))

    def _costs(self, asked: _StorageQuestion, files: CodecSample) -> PlacementCosts:
        """Return what an item costs, as measured here and there; before that, as the driver has seen it."""
        sizes, measured, link = self._sizes, self._measured, asked.link
        with self._lock:
            plain = [
                measured.of("files", sizes.file_bytes),
                measured.of("parsed", sizes.parsed_bytes),
                measured.of("ready", sizes.ready_bytes),
            ]
            beside = [measured.of(name, known) for name, known in zip(_STAGES, sizes.seconds, strict=True)]
        codecs = (files, sizes.codec, sizes.ready_codec)
        there = [there or known for there, known in zip(asked.seconds, beside, strict=True)]
        if not asked.ready:  # a device preprocesses there
            there[1] = 0.0
        compare = sizes.compare_seconds
        return PlacementCosts(
            [codec.link_bytes(n_bytes, link) for codec, n_bytes in zip(codecs, plain, strict=True)],
            beside,
            there,
            n_beside=self._n_workers * max(1, asked.n_storage),
            n_there=asked.n_workers * sizes.n_ranks,
            compare_seconds=compare if sizes.on_workers else 0.0,
            device_seconds=0.0 if sizes.on_workers else compare / max(1, sizes.n_ranks),
            link_bytes_per_second=asked.total * sizes.n_ranks,
            n_items=sizes.n_items,
        )

    def _file_codec(self, asked: _StorageQuestion) -> CodecSample:
        """Return what a sample says of compressing files; it is taken from the first span that is asked for."""
        if self._files is None:
            found = self._find_span(asked, FILES)
            if found is None:
                return CodecSample()
            self._files = CodecSample.of(np.frombuffer(found.data, np.uint8))
        return self._files

    def _find_span(self, asked: _StorageQuestion, depth: int) -> StoredSpan | None:
        """Return a span at one depth: kept, on its way for another rank, or made now."""
        key = (asked.first, asked.length, depth, depth == PARSED and asked.ready)
        with self._lock:
            future, mine = self._kept.future(key)
        if not mine:
            return future.result()
        try:
            made = self._make_span(asked, depth)
        except BaseException as error:
            with self._lock:
                self._kept.forget(key)
            future.set_exception(error)
            raise
        with self._lock:
            self._kept.keep(key, made)
        future.set_result(made)
        return made

    def _make_span(self, asked: _StorageQuestion, depth: int) -> StoredSpan | None:
        if depth == FILES:
            found = self._reader.read(asked.first, asked.length)
        else:
            files = self._find_span(asked, FILES)
            found = None if files is None else self._reader.parse(asked.first, files, depth=depth, ready=asked.ready)
        if found is not None:
            self._note(asked.length, depth, found)
        return found

    def _note(self, n_items: int, depth: int, found: StoredSpan) -> None:
        """Measure what was made."""
        with self._lock:
            self._measured.note(_FORMS[depth], found.data.nbytes, n_items)
            if depth != FILES and found.seconds is not None:
                for name, seconds in zip(_STAGES[:depth], found.seconds, strict=False):
                    self._measured.note(name, seconds, n_items, warms_up=True)  # it may load modules


@dataclass(frozen=True)
class ServerOptions:
    """How a storage rank serves.

    Attributes
    ----------
    keep_bytes : int
        Room for spans that were read or parsed: they are sent again from there.
    n_at_once : int
        Spans that are read or parsed at a time.
    n_workers : int
        Workers that parse.
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
    n_workers: int = 1


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
    depth : int or None
        How many stages run beside the data, or ``AUTO``. None is ``AUTO``, and that no storage rank is expected: none
        is waited for.
    n_workers : int
        Of this rank.
    join_seconds : float
        How long the first load waits for a storage rank that is expected.
    """

    def __init__(
        self, credentials: Credentials, depth: int | None, n_workers: int = 1, join_seconds: float = JOIN_SECONDS
    ) -> None:
        self._client = BulkClient(credentials)
        self._depth = AUTO if depth is None else depth
        self._n_workers = n_workers
        self._speeds = LinkSpeeds()
        self._total = TotalSpeed()
        self._measured = Means()
        self._members: dict[int, str] = {}
        self._there = threading.Event()
        self._patience = 0.0 if depth is None else join_seconds
        self._lock = threading.Lock()
        self.bytes_received = 0
        self.n_arrived = [0, 0, 0]

    def note_stages(self, parse_seconds: float, preprocess_seconds: float, n_parsed: int, n_items: int) -> None:
        """Take note of what stages took here: parse of some of the items, preprocess of all."""
        with self._lock:
            if n_parsed:
                self._measured.note("parse", parse_seconds, n_parsed, warms_up=True)
            self._measured.note("preprocess", preprocess_seconds, n_items, warms_up=True)

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

    def load(self, place: Place, transit: Transit) -> int | list[Any] | None:
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

    def _question(self, address: str, place: Place, ready: bool) -> _StorageQuestion:
        with self._lock:
            seconds = tuple(self._measured.of(name) for name in _STAGES)
        return _StorageQuestion(
            place.first,
            place.length,
            ready,
            self._depth,
            self._speeds.of(address),
            self._total.bytes_per_second,
            self._n_workers,
            len(self._members),
            seconds,
        )

    def _ask(self, address: str, place: Place, transit: Transit) -> int | list[Any] | None:
        question = self._question(address, place, transit.arrives_ready)
        arrival = _StorageArrival(place, transit, self._total)
        where = end_of(address)
        try:
            self._client.fetch(where, wire.encode(question), arrival.land, timeout_seconds=ANSWER_SECONDS)
        finally:
            arrival.stop()
        seconds = time.perf_counter() - arrival.begun
        if arrival.head is None or not arrival.head.there:
            return None
        self._speeds.note(address, arrival.n_bytes, seconds)
        with self._lock:
            self.bytes_received += arrival.n_bytes
            self.n_arrived[arrival.head.depth] += place.length
        return arrival.end()


@dataclass
class _StorageArrival:
    """An answer on its way in."""

    place: Place
    transit: Transit
    total: TotalSpeed
    head: _StorageHead | None = None
    n_bytes: int = 0
    begun: float = 0.0
    counts: bool = False
    target: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    memory: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    @property
    def lands(self) -> bool:
        """Whether items need nothing more, and come straight into their place."""
        assert self.head is not None
        return self.head.depth == (READY if self.transit.arrives_ready else PARSED)

    def land(self, head: bytes, sizes: tuple[int, ...]) -> list[memoryview]:
        """Return where the buffer of an answer may come: its place at once, where it is parsed and not compressed."""
        self.begun = time.perf_counter()
        self.head = wire.decode(head, _StorageHead)
        if not self.head.there:
            return []
        if not FILES <= self.head.depth <= READY or (self.head.depth == READY and not self.lands):
            raise TransportError(f"an answer of depth {self.head.depth}")
        if len(sizes) != 1:
            raise TransportError(f"an answer of {len(sizes)} buffers")
        (self.n_bytes,) = sizes
        plain_bytes = self.head.plain_bytes or self.n_bytes
        if self.lands:
            self.target = self.transit.take_memory(self.place, plain_bytes, ready=self.transit.arrives_ready)
        elif self.head.depth == PARSED:
            self.target = np.empty(plain_bytes, np.uint8)
        elif sum(self.head.lengths) != plain_bytes or len(self.head.lengths) != self.place.length:
            raise TransportError("an answer with other files than were asked for")
        else:
            self.target = np.empty(plain_bytes, np.uint8)
        self.memory = np.empty(self.n_bytes, np.uint8) if self.head.plain_bytes else self.target
        self.total.begin(self.begun)
        self.counts = True
        return [self.memory.data]

    def stop(self) -> None:
        """Note that nothing more comes."""
        if self.counts:
            self.total.end(self.n_bytes, time.perf_counter())

    def end(self) -> int | list[Any]:
        """Take in what has come: items that need nothing more lie in their place then."""
        assert self.head is not None
        if self.head.plain_bytes:
            unpack(self.memory, self.target)
        if self.lands:
            self.transit.on_landed(self.place, self.target)
            return len(self.target)
        if self.head.depth == PARSED:
            items = decode(self.target)
            if len(items) != self.place.length:
                raise TransportError(f"an answer of {len(items)} items where {self.place.length} were asked for")
            return [ParsedItem(item) for item in items]
        ends = np.cumsum(self.head.lengths).tolist()
        return [self.target[end - length : end].tobytes() for end, length in zip(ends, self.head.lengths, strict=True)]
