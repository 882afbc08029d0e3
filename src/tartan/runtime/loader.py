"""Fills host places: items are parsed (and preprocessed) by the workers, in batches.

Worker processes read local files themselves, after I/O threads have had the system begin to; all else is read by the
I/O threads. Reading runs ahead of parsing by a bounded number of bytes. When a worker dies, or is late, each item of
its batch is tried alone, and fails if it ends a worker twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from tartan.base.daemon_pool import ByteBudget, DaemonPool
from tartan.base.format import format_duration
from tartan.core.pairs.actions import Origin
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.device_time import PARSE, STORAGE
from tartan.errors import RunFailedError, TartanError
from tartan.runtime.codec import nbytes_of
from tartan.runtime.disk_level import DiskLevel
from tartan.runtime.events import ItemsLate, NodeBroken, SpanFilled
from tartan.runtime.exchange import Exchange, Transit
from tartan.runtime.host import Place, UniformItems
from tartan.runtime.items import ItemFailure, ParsedItem, takes_rows
from tartan.runtime.tasks import ParsedBatch, Probe, parse_batch, parse_rows, probe_item
from tartan.runtime.wiring import Wiring
from tartan.sources.checked import is_as_noted
from tartan.sources.files import ListedFile
from tartan.sources.items import payload_of
from tartan.workers.executor import Cancelled, Completed, Died, Outcome, Raised, TimedOut

# BATCH_BYTES and BATCH_SECONDS, by arithmetic: a call to a worker costs about 0.1 ms (see _SEND_AHEAD_BELOW_SECONDS),
# so 2 ms of items lose a twentieth to it; a megabyte bounds what lies in the socket. `tartan bench overhead` and
# `tartan bench reads` measure it.
BATCH_BYTES = 1 << 20
BATCH_SECONDS = 0.002
# By judgement: payloads read ahead of workers, memory beside the caches; four files of 64 MiB. `tartan bench reads`
# measures the path. At half of it two large files are not read at once.
AHEAD_BYTES = 256 << 20
# By judgement: 5 GB of a local disk; what is left then is loaded again by the next run. No benchmark.
WRITE_OUT_SECONDS = 20.0  # at the end of a run, for what its disk is still to take
# By judgement: once may be the killer of a machine out of memory; twice alone is the item. No benchmark.
TRIES_ALONE = 2
# By judgement: items that end their worker only together point to memory, which more tries do not change. No benchmark.
MOST_DEATHS = 3


@dataclass
class LoaderCounts:
    """What the loader did; read by the node when it is idle or has ended."""

    parses: int = 0
    disk_hits: int = 0
    read_bytes: int = 0
    disk_bytes: int = 0
    preprocessed: int = 0
    """Items that the workers here preprocessed, those included that were parsed beside the data."""
    read_seconds: float = 0.0
    read_by_workers_seconds: float = 0.0
    """Those of them in which workers read, which parse meanwhile nothing."""
    parse_seconds: float = 0.0
    preprocess_seconds: float = 0.0


class RemoteStorage(Protocol):
    """Ranks next to the data, which are asked in place of storage.

    Attributes
    ----------
    bytes_received : int
    n_arrived : list of int
        Items that came as files, parsed, and ready to be compared.
    """

    bytes_received: int
    n_arrived: list[int]

    def load(self, place: Place, transit: Transit) -> int | list[Any] | None:
        """Load a span; may wait.

        Returns
        -------
        int, list or None
            The bytes that its items take, which lie in their place, as ``Transit.arrives_ready`` says; or the bytes of
            its files, to be parsed here, or a ``ParsedItem`` each, to be preprocessed here; or None: it must be read
            here.
        """

    def note_stages(self, parse_seconds: float, preprocess_seconds: float, n_parsed: int, n_items: int) -> None:
        """Take note of what stages took here: parse of some of the items, preprocess of all."""


@dataclass
class _PendingSpan:
    """A span that is being read and parsed, in batches."""

    place: Place
    keys: Sequence[str]
    payloads: list[Any] = field(default_factory=list)
    n_parsed: int = 0
    n_bytes: int = 0
    failures: dict[int, ItemFailure] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class _Batch:
    """Consecutive items of a span that one call parses."""

    span: _PendingSpan
    begin: int
    end: int
    n_bytes: int
    rows: np.ndarray | None = None

    @property
    def length(self) -> int:
        return self.end - self.begin


class Loader:
    """Fills host places, and posts SpanFilled for each.

    Parameters
    ----------
    wiring : Wiring
    io : DaemonPool
        Its threads read.
    disk : DiskLevel or None
        Where ready items may be.
    exchange : Exchange or None
        Where spans may be that are not on disk: with other ranks.
    remote : RemoteStorage or None
        Asked before storage is read.
    item_seconds : float
        Expected time to parse an item: slow ones go to the workers one by one, quick ones in batches.
    ahead_bytes : int
        Most bytes that are read and not yet parsed.
    """

    def __init__(
        self,
        wiring: Wiring,
        io: DaemonPool,
        disk: DiskLevel | None = None,
        exchange: Exchange | None = None,
        remote: RemoteStorage | None = None,
        *,
        item_seconds: float = 0.0,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self.counts = LoaderCounts()
        self._wiring = wiring
        self._source = wiring.source
        self._tracer = wiring.tracer
        self._io = io
        self._disk = disk
        self._exchange = exchange
        self._remote = remote
        self._transit = Transit(wiring.item_plan, wiring.arenas)
        self._filled: Callable[[SpanFilled], None] = wiring.post if exchange is None else exchange.on_filled
        self._batch_items = max(1, int(BATCH_SECONDS / item_seconds)) if item_seconds > 0 else 1 << 30
        self._uniform = isinstance(wiring.item_plan.items, UniformItems)
        self._rows = wiring.source.kind == "array" and self._uniform and takes_rows(wiring.app)
        self._by_workers = wiring.executor.in_processes  # threads parse while others read
        self._ahead = ByteBudget(ahead_bytes)
        self._lock = threading.Lock()
        self._limit = None if wiring.call_limit is None else CallLimit(wiring.call_limit.given)

    def load(self, place: Place) -> None:
        """Start to fill a place from the nearest level that has its span."""
        self._submit_read(partial(self._fill, place))

    def read(self, place: Place) -> None:
        """Start to fill a place without asking other ranks: from disk where it is known to be there, or storage."""
        self._submit_read(partial(self._read, place))

    def on_disk(self, span: int) -> bool:
        """Whether the disk level is known to have a span; waits for nothing."""
        return self._disk is not None and self._disk.has(span)

    def close(self, *, broken: bool = False) -> None:
        """Let no further read begin; one that hangs is abandoned, and what is kept on disk is written unless broken."""
        self._ahead.close()
        if self._disk is not None and not broken:
            self._disk.finish(WRITE_OUT_SECONDS)
        self._io.close()

    def _submit_read(self, call: Callable[[], None]) -> None:
        self._wiring.device_time.begin(STORAGE)
        self._io.submit(partial(self._guard, call, STORAGE))

    # -- reading (I/O threads) -------------------------------------------------------------------------------

    def _fill(self, place: Place) -> None:
        if self._disk is not None and self._fill_from_disk(self._disk, place):
            return
        if self._exchange is not None:
            self._exchange.want(place)
        else:
            self._fill_from_storage(place)

    def _read(self, place: Place) -> None:
        if self._disk is None or not self._disk.has(place.span) or not self._fill_from_disk(self._disk, place):
            self._fill_from_storage(place)

    def _fill_from_storage(self, place: Place) -> None:
        found = None if self._remote is None else self._fill_from_remote(self._remote, place)
        if isinstance(found, int):
            self._complete(_PendingSpan(place, (), n_bytes=found))
        elif self._rows:
            self._read_rows(place)
        else:
            self._read_items(place, found)

    def _fill_from_remote(self, remote: RemoteStorage, place: Place) -> int | list[Any] | None:
        start = self._tracer.now()
        found = remote.load(place, self._transit)
        if found is not None:
            end = self._tracer.now()
            with self._lock:
                self.counts.read_seconds += (end - start) / 1e9
            row = f"host/{threading.current_thread().name}"
            self._tracer.record(f"storage {place.first}+{place.length}", "read", row, start, end)
        return found

    def _fill_from_disk(self, disk: DiskLevel, place: Place) -> bool:
        """Fill a place from the disk level if all its items are there."""
        start = self._tracer.now()
        found = disk.find(place)
        if found is None:
            return False
        n_bytes = self._wiring.item_plan.items.store(self._wiring.arenas, place, found)
        end = self._tracer.now()
        with self._lock:
            self.counts.disk_hits += place.length
            self.counts.disk_bytes += n_bytes
            self.counts.read_seconds += (end - start) / 1e9
        self._tracer.record(f"disk {place.first}+{place.length}", "read", "host/disk", start, end)
        self._filled(SpanFilled(place, n_bytes, {}, Origin.DISK))
        return True

    def _read_rows(self, place: Place) -> None:
        first, end = place.first, place.first + place.length
        span = _PendingSpan(place, self._source.keys[first:end])
        start = self._tracer.now()
        try:
            rows: Any = self._source.read_block(first, end)
        except TartanError:
            self._read_items(place)  # one by one: some of them may be good
        else:
            if self._wiring.executor.in_processes:
                rows = np.ascontiguousarray(rows)
            self._note_read(first, place.length, start, int(rows.nbytes))
            self._submit(_Batch(span, 0, place.length, int(rows.nbytes), rows))

    def _read_items(self, place: Place, found: Sequence[Any] | None = None) -> None:
        """Read items one by one and hand them to the workers in batches; spans of unequal items go whole.

        What was ``found`` at a storage rank need not be read.
        """
        span = _PendingSpan(place, list(self._source.keys[place.first : place.first + place.length]))
        begin, batch_bytes = 0, 0
        for position in range(place.length):
            start = self._tracer.now()
            payload = found[position] if found is not None else self._read_one(place.first + position, self._by_workers)
            size = _bytes_of(payload)
            if found is None and not isinstance(payload, ListedFile):
                self._note_read(place.first + position, 1, start, size)
            span.payloads.append(payload)
            batch_bytes += size
            full = batch_bytes >= BATCH_BYTES or position + 1 - begin >= self._batch_items
            if position + 1 == place.length or (full and self._uniform):
                self._submit(_Batch(span, begin, position + 1, batch_bytes))
                begin, batch_bytes = position + 1, 0

    def _read_one(self, index: int, by_workers: bool = False) -> Any:
        try:
            return payload_of(self._source, index, files=by_workers)
        except TartanError as error:
            return ItemFailure("read", str(error))

    def _note_read(self, first: int, length: int, start: int, n_bytes: int) -> None:
        end = self._tracer.now()
        with self._lock:
            self.counts.read_bytes += n_bytes
            self.counts.read_seconds += (end - start) / 1e9
        self._tracer.record(f"read {first}+{length}", "read", f"host/{threading.current_thread().name}", start, end)

    # -- parsing (workers) -----------------------------------------------------------------------------------

    def _submit(self, batch: _Batch, *, wait: bool = True) -> None:
        """Hand a batch to a worker; on a thread of the executor, which must not be blocked, do not ``wait``."""
        span, wiring = batch.span, self._wiring
        keys = span.keys[batch.begin : batch.end]
        function: Callable[..., ParsedBatch] = parse_batch if batch.rows is None else parse_rows
        read = span.payloads[batch.begin : batch.end] if batch.rows is None else batch.rows
        timeout = None if self._limit is None else self._limit.seconds(batch.length)
        done = partial(self._end_call, partial(self._batch_parsed, batch))
        args = (wiring.item_plan, span.place.part(batch.begin, batch.end), keys, read)
        self._ahead.take(batch.n_bytes, wait=wait)
        wiring.device_time.begin(PARSE)
        wiring.executor.submit(function, args, done, timeout_seconds=timeout)

    def _end_call(self, ended: Callable[[Outcome], None], outcome: Outcome) -> None:
        self._guard(partial(ended, outcome))

    def _guard(self, call: Callable[[], None], stage: str = "") -> None:
        """Let no error of ours leave a span unfinished for ever, and the node waiting for it; a stage ends with it."""
        try:
            call()
        except BaseException as error:
            self._wiring.post(NodeBroken(error))
        finally:
            if stage:
                self._wiring.device_time.end(stage)

    def _batch_parsed(self, batch: _Batch, outcome: Outcome) -> None:
        self._ahead.give(batch.n_bytes)
        self._wiring.device_time.end(PARSE)
        span = batch.span
        match outcome:
            case Completed(value):
                if doubtful := self._doubtful(batch, value):
                    self._submit_read(partial(self._read_again, batch, doubtful))
                    return
                self._count(value, batch)
                with span.lock:
                    span.n_bytes += value.n_bytes
                    span.failures.update({batch.begin + p: failure for p, failure in value.failures.items()})
                    span.n_parsed += batch.length
                    complete = span.n_parsed == span.place.length
                span.payloads[batch.begin : batch.end] = [None] * batch.length
                if complete:
                    self._complete(span)
            case Died() | TimedOut():
                if isinstance(outcome, TimedOut):
                    self._tell_late(batch, outcome.seconds)
                self._try_alone(batch)
            case Raised():
                self._wiring.post(NodeBroken(outcome.error))
            case Cancelled():
                pass

    def _doubtful(self, batch: _Batch, value: ParsedBatch) -> list[int]:
        """Return the positions of files that a worker could not read, or that are not as others have read them."""
        span, first = batch.span, batch.span.place.first + batch.begin
        unlike = {at for at, total in value.reads.sums.items() if not is_as_noted(self._source, first + at, total)}
        unread = {at for at, failure in value.failures.items() if failure.stage == "read"}
        given = (batch.begin + at for at in sorted(unlike | unread))
        return [at for at in given if isinstance(span.payloads[at], ListedFile)]

    def _read_again(self, batch: _Batch, positions: Sequence[int]) -> None:
        """Read files here, which says what is wrong with them, and have their batch parsed again."""
        span = batch.span
        for at in positions:
            span.payloads[at] = self._read_one(span.place.first + at)
        self._retry(span, batch.begin, batch.end, wait=True)

    def _complete(self, span: _PendingSpan) -> None:
        """Keep a span in the disk level if it is ready, and hand it on."""
        place = span.place
        if self._disk is not None and self._wiring.item_plan.parsed is None:
            self._disk.keep(place, partial(self._wiring.copy_of, place), set(span.failures), span.n_bytes)
        self._filled(SpanFilled(place, span.n_bytes, span.failures))

    def _tell_late(self, batch: _Batch, seconds: float) -> None:
        keys = batch.span.keys[batch.begin : batch.end]
        names = keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"
        late = f"loading did not end within {format_duration(seconds)} (--tile-timeout sets the limit, 0 none)"
        self._wiring.post(ItemsLate(f"{names}: {late}; each item is tried alone, by another worker"))

    def _try_alone(self, batch: _Batch) -> None:
        """Find the items of a batch that end their worker; give up where they only do so together."""
        span = batch.span
        if batch.rows is not None:
            span.payloads = [np.array(row) for row in batch.rows]
        span.deaths[batch.begin] = span.deaths.get(batch.begin, 0) + 1
        if span.deaths[batch.begin] < MOST_DEATHS:
            _Suspects(span, batch.begin, batch.end, self._probe, self._retry).next()
            return
        names = f"{span.keys[batch.begin]} to {span.keys[batch.end - 1]}"
        raise RunFailedError(
            f"workers die again and again while they load {names}, though each item alone loads; is there enough "
            "memory? What is done is kept; run it again to resume"
        )

    def _probe(self, key: str, payload: Any, ended: Callable[[Outcome], None]) -> None:
        done = partial(self._end_call, partial(self._on_probed, ended))
        timeout = None if self._limit is None else self._limit.of_last_try
        self._wiring.executor.submit(probe_item, (key, payload), done, timeout_seconds=timeout)

    def _on_probed(self, ended: Callable[[Outcome], None], outcome: Outcome) -> None:
        if isinstance(outcome, Completed) and isinstance(outcome.value, Probe):
            self._note_seconds(outcome.value.parse_seconds + outcome.value.preprocess_seconds, 1)
        ended(outcome)

    def _note_seconds(self, seconds: float, n_items: int) -> None:
        if self._limit is not None:
            self._limit.on_ended(seconds, n_items)

    def _retry(self, span: _PendingSpan, begin: int, end: int, *, wait: bool = False) -> None:
        """Parse a batch again whose guilty items have been replaced by their failures."""
        self._submit(_Batch(span, begin, end, sum(map(_bytes_of, span.payloads[begin:end]))), wait=wait)

    def _count(self, value: ParsedBatch, batch: _Batch) -> None:
        when, n_items, span = value.when, batch.length, batch.span
        self._tracer.record(f"load {span.place.span}", "parse", f"cpu/{when.worker}", when.start_ns, when.end_ns)
        there = 0 if batch.rows is not None else sum(map(_is_parsed, span.payloads[batch.begin : batch.end]))
        if self._remote is not None:
            self._remote.note_stages(value.parse_seconds, value.preprocess_seconds, n_items - there, n_items)
        with self._lock:
            self._note_seconds(when.seconds, n_items)
            self.counts.parses += n_items - there
            self.counts.preprocessed += n_items
            self.counts.parse_seconds += value.parse_seconds
            self.counts.preprocess_seconds += value.preprocess_seconds
            self.counts.read_bytes += value.reads.n_bytes
            self.counts.read_seconds += value.reads.seconds
            self.counts.read_by_workers_seconds += value.reads.seconds


def _bytes_of(payload: Any) -> int:
    """Return the bytes that were read of an item, or that the system reads ahead."""
    if isinstance(payload, ListedFile):
        return payload.n_bytes
    if isinstance(payload, ParsedItem):
        return nbytes_of(payload.item)
    return len(payload) if isinstance(payload, bytes) else 0


def _is_parsed(payload: Any) -> bool:
    return isinstance(payload, ParsedItem)


class _Suspects:
    """Tries the items of a batch that ended a worker one after the other, then has those loaded that pass."""

    def __init__(
        self,
        span: _PendingSpan,
        begin: int,
        end: int,
        probe: Callable[[str, Any, Callable[[Outcome], None]], None],
        retry: Callable[[_PendingSpan, int, int], None],
    ) -> None:
        self._span = span
        self._begin = begin
        self._end = end
        self._probe = probe
        self._retry = retry
        self._position = begin
        self._tries = 0

    def next(self) -> None:
        """Try the next item that has not failed yet."""
        payloads = self._span.payloads
        while self._position < self._end and isinstance(payloads[self._position], ItemFailure):
            self._position += 1
        if self._position == self._end:
            self._retry(self._span, self._begin, self._end)
            return
        self._tries += 1
        self._probe(self._span.keys[self._position], payloads[self._position], self._try)

    def _try(self, outcome: Outcome) -> None:
        match outcome:
            case Cancelled():
                return
            case Raised():
                raise outcome.error
            case Completed():
                self._advance()
            case Died() | TimedOut() if self._tries >= TRIES_ALONE:
                self._condemn(outcome)
                self._advance()
            case _:
                pass
        self.next()

    def _condemn(self, outcome: Died | TimedOut) -> None:
        key = self._span.keys[self._position]
        how, trace = f"it took more than {format_duration(outcome.seconds)} (--tile-timeout sets the limit, 0 none)", ""
        if isinstance(outcome, Died):
            how, trace = f"the worker ended ({outcome.how})", outcome.traceback
        reason = f"{key}: {how} each of the {TRIES_ALONE} times it was parsed"
        self._span.payloads[self._position] = ItemFailure("parse", reason, trace)

    def _advance(self) -> None:
        self._position += 1
        self._tries = 0
