"""Loads: read by I/O threads, parsed (and preprocessed) by the workers, stored in host slots.

Reading runs ahead of parsing by a bounded number of bytes. A worker that dies takes no item with it unproven: each
item of its batch is then tried alone, and fails when it kills a worker twice.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tartan.base.daemon_pool import DaemonPool
from tartan.base.trace import Tracer
from tartan.errors import RunFailedError, TartanError
from tartan.runtime.codec import from_arrays, to_arrays
from tartan.runtime.host import Place, UniformItems
from tartan.runtime.items import ItemFailure, takes_rows
from tartan.runtime.tasks import Loaded, LoadTask, load_items, load_rows, probe_item
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache
from tartan.workers.executor import Cancelled, Completed, Died, Executor, Outcome, Raised, TimedOut

__all__ = ["LoadDone", "Loader"]

BATCH_BYTES = 1 << 20
BATCH_SECONDS = 0.002
AHEAD_BYTES = 256 << 20
BEHIND_BYTES = 256 << 20
TRIES_ALONE = 2
MOST_DEATHS = 3


@dataclass
class LoadDone:
    """The end of a load."""

    place: Place
    n_bytes: int
    failures: dict[int, ItemFailure]
    from_disk: bool = False


@dataclass
class LoadCounts:
    """What the loader did; read by the node when it is idle or has ended."""

    parses: int = 0
    disk_hits: int = 0
    read_bytes: int = 0
    disk_bytes: int = 0
    read_seconds: float = 0.0
    parse_seconds: float = 0.0
    preprocess_seconds: float = 0.0


@dataclass
class _Load:
    """One span under way."""

    place: Place
    keys: Sequence[str]
    payloads: list[Any] = field(default_factory=list)
    missing: int = 0
    n_bytes: int = 0
    failures: dict[int, ItemFailure] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Loader:
    """Fills host places.

    Parameters
    ----------
    source : Source
    executor : Executor
        Its workers parse.
    task : LoadTask
    done : callable
        Gets a LoadDone, on any thread.
    fatal : callable
        Gets an exception that ends the run, on any thread.
    cache : DiskCache or None
    digest_base : bytes
        What the digest of an item depends on, besides the item.
    io_threads : int
    timeout_seconds : float or None
        Longest time that one item may take.
    item_seconds : float
        Expected time to parse an item: slow ones go to the workers one by one, quick ones in batches.
    """

    def __init__(
        self,
        source: Source,
        app: Any,
        executor: Executor,
        task: LoadTask,
        done: Callable[[LoadDone], None],
        fatal: Callable[[BaseException], None],
        *,
        arenas: dict[str, Any],
        tracer: Tracer,
        cache: DiskCache | None = None,
        digest_base: bytes = b"",
        io_threads: int = 4,
        timeout_seconds: float | None = None,
        item_seconds: float = 0.0,
    ) -> None:
        self.counts = LoadCounts()
        self._source = source
        self._executor = executor
        self._task = task
        self._done = done
        self._fatal = fatal
        self._arenas = arenas
        self._tracer = tracer
        self._cache = cache
        self._digest_base = digest_base
        self._timeout = timeout_seconds
        self._batch_items = max(1, int(BATCH_SECONDS / item_seconds)) if item_seconds > 0 else 1 << 30
        self._rows = source.kind == "array" and isinstance(task.items, UniformItems) and takes_rows(app)
        self._io = DaemonPool(io_threads, "tartan-io")
        self._ahead = _Budget(AHEAD_BYTES)
        self._behind = _Budget(BEHIND_BYTES)
        self._on_the_way: dict[int, Any] = {}  # to the disk level, by index
        self._closed = False
        self._lock = threading.Lock()
        self._fingerprints = source.fingerprints() if cache is not None else None

    def load(self, place: Place, first: int) -> None:
        """Start to fill a place with the items from ``first`` on."""
        self._io.submit(partial(self._read, place, first))

    def close(self) -> None:
        """Let no further read begin; one that hangs is left alone."""
        self._closed = True
        self._ahead.close()
        self._io.close()

    # -- reading (I/O threads) -------------------------------------------------------------------------------

    def _read(self, place: Place, first: int) -> None:
        try:
            if self._cache is not None and self._from_disk(place, first):
                return
            if self._rows:
                self._read_rows(place, first)
            else:
                self._read_items(place, first)
        except BaseException as error:
            self._fatal(error)

    def _read_rows(self, place: Place, first: int) -> None:
        keys = self._source.keys[first : first + place.length]
        start = self._tracer.now()
        try:
            rows: Any = self._source.read_block(first, first + place.length)
        except (OSError, TartanError, ValueError) as error:
            failure = ItemFailure("read", f"rows {first} to {first + place.length - 1}: {error}")
            self._submit_items(_Load(place, keys, [failure] * place.length), 0, place.length)
            return
        if self._executor.in_processes:
            rows = np.ascontiguousarray(rows)
        n_bytes = int(rows.nbytes)
        self._note_read(first, place.length, start, n_bytes)
        load = _Load(place, keys, [rows], missing=1)
        self._ahead.take(n_bytes)

        def loaded(outcome: Outcome) -> None:
            self._ahead.give(n_bytes)
            self._rows_loaded(load, outcome)

        self._submit(load_rows, (self._task, place, keys, rows), loaded, place.length)

    def _read_items(self, place: Place, first: int) -> None:
        """Read items one by one and hand them to the workers in batches; spans of unequal items go whole."""
        keys = self._source.keys[first : first + place.length]
        load = _Load(place, list(keys), missing=1)
        whole = not isinstance(self._task.items, UniformItems)
        begin, batch_bytes = 0, 0
        for position in range(place.length):
            start = self._tracer.now()
            payload = self._read_one(first + position)
            size = len(payload) if isinstance(payload, bytes) else 0
            self._note_read(first + position, 1, start, size)
            load.payloads.append(payload)
            batch_bytes += size
            full = batch_bytes >= BATCH_BYTES or position + 1 - begin >= self._batch_items
            if full and not whole:
                self._submit_items(load, begin, position + 1)
                begin, batch_bytes = position + 1, 0
        if begin < place.length:
            self._submit_items(load, begin, place.length)
        self._part_done(load)

    def _read_one(self, index: int) -> Any:
        try:
            return self._source.read(index)
        except TartanError as error:
            return ItemFailure("read", str(error))

    def _note_read(self, first: int, length: int, start: int, n_bytes: int) -> None:
        end = self._tracer.now()
        with self._lock:
            self.counts.read_bytes += n_bytes
            self.counts.read_seconds += (end - start) / 1e9
        self._tracer.record(f"read {first}+{length}", "read", f"host/{threading.current_thread().name}", start, end)

    # -- parsing (workers) -----------------------------------------------------------------------------------

    def _submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], ended: Callable[[Outcome], None], n_items: int
    ) -> None:
        def heard(outcome: Outcome) -> None:
            # An error here would leave the span unfinished for ever, and the node waiting for it.
            try:
                ended(outcome)
            except BaseException as error:
                self._fatal(error)

        timeout = None if self._timeout is None else self._timeout * n_items
        self._executor.submit(function, args, heard, timeout_seconds=timeout)

    def _submit_items(self, load: _Load, begin: int, end: int, *, wait: bool = True) -> None:
        """Hand items to a worker; whoever runs on a thread of the executor must not ``wait`` for it."""
        place = load.place
        part = Place(place.span, place.address + begin, end - begin, place.serial)
        payloads = load.payloads[begin:end]
        n_bytes = sum(len(p) for p in payloads if isinstance(p, bytes))
        self._ahead.take(n_bytes, wait=wait)
        with load.lock:
            load.missing += 1

        def loaded(outcome: Outcome) -> None:
            self._ahead.give(n_bytes)
            self._items_loaded(load, begin, end, outcome)

        self._submit(load_items, (self._task, part, load.keys[begin:end], payloads), loaded, end - begin)

    def _items_loaded(self, load: _Load, begin: int, end: int, outcome: Outcome) -> None:
        match outcome:
            case Completed(value):
                self._count(value, load.place.span, end - begin)
                with load.lock:
                    load.n_bytes += value.n_bytes
                    load.failures.update({begin + p: failure for p, failure in value.failures.items()})
                load.payloads[begin:end] = [None] * (end - begin)
                self._part_done(load)
            case Died() | TimedOut():
                self._try_alone(load, begin, end)
            case Raised():
                self._fatal(outcome.error)
            case Cancelled():
                pass

    def _try_alone(self, load: _Load, begin: int, end: int) -> None:
        """Find the items of a batch that end their worker; give up where they only do so together."""
        load.deaths[begin] = load.deaths.get(begin, 0) + 1
        if load.deaths[begin] < MOST_DEATHS:
            _Alone(self, load, begin, end).next()
            return
        names = f"{load.keys[begin]} to {load.keys[end - 1]}"
        self._fatal(
            RunFailedError(
                f"workers die again and again while they load {names}, though each item alone loads; is there enough "
                "memory? What is done is kept; run it again to resume"
            )
        )

    def _rows_loaded(self, load: _Load, outcome: Outcome) -> None:
        match outcome:
            case Completed(value):
                self._count(value, load.place.span, load.place.length)
                load.n_bytes, load.failures = value.n_bytes, value.failures
                self._part_done(load)
            case Died() | TimedOut():
                rows = load.payloads[0]
                load.payloads = [np.array(row) for row in rows]
                self._try_alone(load, 0, load.place.length)
            case Raised():
                self._fatal(outcome.error)
            case Cancelled():
                pass

    def _count(self, value: Loaded, span: int, n_items: int) -> None:
        when = value.when
        self._tracer.record(f"load {span}", "parse", f"cpu/{when.worker}", when.start_ns, when.end_ns)
        with self._lock:
            self.counts.parses += n_items
            self.counts.parse_seconds += value.parse_seconds
            self.counts.preprocess_seconds += value.preprocess_seconds

    def _part_done(self, load: _Load) -> None:
        with load.lock:
            load.missing -= 1
            ended = load.missing == 0
        if ended:
            self._done(LoadDone(load.place, load.n_bytes, load.failures))

    # -- the disk level --------------------------------------------------------------------------------------

    def _digest(self, index: int) -> str:
        digest = hashlib.sha256(self._digest_base)
        digest.update(self._source.keys[index].encode(errors="surrogatepass"))
        if self._fingerprints is not None:
            digest.update(f"{self._fingerprints[0][index]} {self._fingerprints[1][index]}".encode())
        return digest.hexdigest()

    def _from_disk(self, place: Place, first: int) -> bool:
        """Fill a place from the disk level if all its items are there."""
        start = self._tracer.now()
        found = []
        for index in range(first, first + place.length):
            item = self._cached_item(index)
            if item is None:
                return False
            found.append(item)
        n_bytes = self._task.items.store(self._arenas, place, found)
        end = self._tracer.now()
        with self._lock:
            self.counts.disk_hits += place.length
            self.counts.disk_bytes += n_bytes
            self.counts.read_seconds += (end - start) / 1e9
        self._tracer.record(f"disk {first}+{place.length}", "read", "host/disk", start, end)
        self._done(LoadDone(place, n_bytes, {}, from_disk=True))
        return True

    def _cached_item(self, index: int) -> Any:
        """Return a ready item from the disk level or on its way there, or None."""
        assert self._cache is not None
        with self._lock:
            if index in self._on_the_way:
                return self._on_the_way[index]
        arrays = self._cache.get(self._digest(index))
        if arrays is None:
            return None
        if isinstance(self._task.items, UniformItems):
            sound = len(arrays) == 1 and self._task.items.form.mismatch(arrays[0]) is None
            return arrays[0] if sound else None
        try:
            return from_arrays(arrays)
        except Exception:  # whatever it holds, it is no item that this run put there
            return None

    def keep(self, first: int, ready: Callable[[], Sequence[Any]], failed: set[int], n_bytes: int) -> bool:
        """Store ready items in the disk level, or leave it where the disk is too far behind: it may forget.

        Parameters
        ----------
        ready : callable
            Returns the items, which nobody may change afterwards; called at once, or not at all.
        n_bytes : int
            About what they take.
        """
        if self._cache is None or self._closed or not self._behind.offer(n_bytes):
            return False
        items = {first + position: item for position, item in enumerate(ready()) if first + position not in failed}
        with self._lock:
            # Whoever wants them before they are written must not parse them again.
            self._on_the_way.update(items)
        self._io.submit(partial(self._keep, items, n_bytes))
        return True

    def _keep(self, items: dict[int, Any], n_bytes: int) -> None:
        assert self._cache is not None
        uniform = isinstance(self._task.items, UniformItems)
        try:
            for index, item in items.items():
                self._cache.put(self._digest(index), [item] if uniform else to_arrays(item))
        finally:
            with self._lock:
                for index in items:
                    self._on_the_way.pop(index, None)
            self._behind.give(n_bytes)


class _Alone:
    """Tries the items of a batch that killed a worker one after the other, then loads those that live."""

    def __init__(self, loader: Loader, load: _Load, begin: int, end: int) -> None:
        self._loader = loader
        self._load = load
        self._begin = begin
        self._end = end
        self._position = begin
        self._tries = 0

    def next(self) -> None:
        load = self._load
        while self._position < self._end and isinstance(load.payloads[self._position], ItemFailure):
            self._position += 1
        if self._position == self._end:
            self._loader._submit_items(load, self._begin, self._end, wait=False)
            self._loader._part_done(load)
            return
        self._tries += 1
        self._loader._submit(probe_item, (load.keys[self._position], load.payloads[self._position]), self._tried, 1)

    def _tried(self, outcome: Outcome) -> None:
        match outcome:
            case Cancelled():
                return
            case Raised():
                self._loader._fatal(outcome.error)
                return
            case Completed():
                self._advance()
            case Died() | TimedOut() if self._tries >= TRIES_ALONE:
                key = self._load.keys[self._position]
                how = f"the worker ended ({outcome.how})" if isinstance(outcome, Died) else "it took too long"
                trace = outcome.traceback if isinstance(outcome, Died) else ""
                reason = f"{key}: {how} each of the {TRIES_ALONE} times it was parsed"
                self._load.payloads[self._position] = ItemFailure("parse", reason, trace)
                self._advance()
            case _:
                pass
        self.next()

    def _advance(self) -> None:
        self._position += 1
        self._tries = 0


class _Budget:
    """Bytes that may be in memory between two stages; one request always passes."""

    def __init__(self, n_bytes: int) -> None:
        self._limit = n_bytes
        self._used = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, n_bytes: int, *, wait: bool = True) -> None:
        with self._changed:
            while wait and not self._closed and not self._has_room(n_bytes):
                self._changed.wait()
            self._used += n_bytes

    def offer(self, n_bytes: int) -> bool:
        """Take, if there is room at once."""
        with self._changed:
            room = self._has_room(n_bytes)
            self._used += n_bytes if room else 0
            return room

    def _has_room(self, n_bytes: int) -> bool:
        return not self._used or self._used + n_bytes <= self._limit

    def give(self, n_bytes: int) -> None:
        with self._changed:
            self._used -= n_bytes
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
