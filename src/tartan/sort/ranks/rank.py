"""One rank of a sort: sorts chunks and keeps their runs, serves pieces of them, and merges parts of the result.

Four kinds of threads: the engine's puts messages into the inbox; the main loop takes them out and hands work on; one
*sorter* sorts, samples and cuts, one task after the other; *mergers* fetch, merge and write parts. The servers of the
bulk transfer answer other ranks meanwhile, and never wait for anything but the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan._native import SortFailure, SortJob, SortRange
from tartan.base.files import disk_errors
from tartan.base.logs import logger_of
from tartan.base.machine import held_bytes, memory, peak_bytes, usable_cores
from tartan.cluster import wire
from tartan.cluster.bulk import BulkClient, BulkServer, end_of
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.driver import fetch_job
from tartan.cluster.engine import DRIVER, Call, ClusterEngine, ClusterView, StaleEpoch
from tartan.core.sorting.shares import ChunkGrid, SortSplitter, join_neighbours
from tartan.errors import (
    InputChangedError,
    TartanError,
    TransportError,
)
from tartan.sort.engine import POLL_SECONDS
from tartan.sort.failures import error_of
from tartan.sort.plan import EngineLayout
from tartan.sort.ranks.disks import network_of
from tartan.sort.ranks.keeping import PieceHead, RankFolders, RunShelf, cut_requests, find_chunk_records
from tartan.sort.ranks.messages import (
    MOST_KEY_BYTES,
    ChunkDone,
    ChunkList,
    CutText,
    GoneText,
    PartBack,
    PartDone,
    PartText,
    SampleText,
    SortBegin,
    SortEnd,
    SortHeld,
    SortHello,
    SortJobText,
    SortStop,
    SplitterText,
)
from tartan.sort.space import LEAST_MEMORY_BYTES
from tartan.sort.work import check_folders

if TYPE_CHECKING:
    from tartan.sort.ranks.reading import RowReader

ENTRY = f"{__name__}:main"
STORAGE_RESOURCE = "storage"
"""The resource with which a worker is started that lies next to the data."""

# By judgement: as FETCH_SECONDS of cluster/depot; a rank that is lost is known to the driver long before.
FETCH_SECONDS = 60.0
_log = logger_of(__name__)

_KINDS: dict[str, type[Any]] = {
    "begin": SortBegin,
    "sort": ChunkList,
    "sample": ChunkList,
    "splitters": SplitterText,
    "cut": ChunkList,
    "merge": PartText,
    "gone": GoneText,
    "stop": SortStop,
}
"""What a rank is told, by the names of the messages."""


class _DamagedRunError(Exception):
    """The run of a chunk does not match its checksums."""

    def __init__(self, chunk: int, why: str) -> None:
        super().__init__(why)
        self.chunk = chunk


def main(engine: ClusterEngine, *, locate: Callable[[str], Path] = Path, throttle: Throttle | None = None) -> None:
    """Be a rank of a sort until it is over, or this rank cannot continue; the driver learns why.

    Parameters
    ----------
    engine : ClusterEngine
    locate : callable
        Returns where this rank looks for a file, given where the driver has it.
    throttle : Throttle, optional
        Of the link of this rank, for measurements.
    """
    rank = RankOfSort(engine, locate, throttle)
    rank.start()
    try:
        rank.serve()
        end = SortEnd()
    except TartanError as error:
        end = SortEnd(str(error), error.code, context={name: str(value) for name, value in error.context.items()})
    except Exception as error:
        end = SortEnd(f"{type(error).__name__}: {error}\n{traceback.format_exc()}", "internal")
    except BaseException:
        rank.abandon()
        raise
    rank.close(end)


class RankOfSort:
    """See the module.

    Parameters
    ----------
    engine : ClusterEngine
        Not started yet.
    locate : callable
    throttle : Throttle or None
    """

    def __init__(self, engine: ClusterEngine, locate: Callable[[str], Path], throttle: Throttle | None) -> None:
        self._engine, self._locate, self._throttle = engine, locate, throttle
        self._inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._parts: queue.SimpleQueue[PartText | None] = queue.SimpleQueue()
        self._opened = contextlib.ExitStack()
        self._sorter: threading.Thread | None = None
        self._mergers: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._splitters: list[SortSplitter] = []
        self._coming: list[SortSplitter] = []
        self._counts: dict[str, float] = {}
        self._running: SortJob | None = None
        self._client: BulkClient | None = None
        self._folders: RankFolders | None = None
        self._rows: RowReader | None = None
        self._whole = self._given_up = False

    # -- the main loop ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Become a member."""

        def handler(name: str) -> Callable[[Call], bytes]:
            def handle(call: Call) -> bytes:
                self._inbox.put((name, wire.decode(call.body, _KINDS[name])))
                return b""

            return handle

        self._engine.start({name: handler(name) for name in _KINDS}, self._on_view)

    def _on_view(self, view: ClusterView) -> None:
        if view.epoch and DRIVER not in view.members:
            self._inbox.put(("stop", SortStop(False, "the driver has gone")))
        elif view.epoch and self._engine.me not in view.members:
            self._given_up = True  # others make its runs again
            self._inbox.put(("stop", SortStop(False, "the driver has given this rank up")))

    def serve(self) -> None:
        """Do what the driver says until it says stop."""
        self._job = wire.decode(fetch_job(self._engine), SortJobText)
        self._shelf = RunShelf(self._job.dtype_bytes, self._job.key)
        credentials, host = self._engine.credentials, self._engine.host
        server = BulkServer(self._shelf.serve, credentials, host=host, log=_log.info, throttle=self._throttle)
        self._opened.callback(server.close)
        self._address = "{}:{}".format(*server.address)
        self._client = BulkClient(credentials)
        self._post("hello", self._hello())
        while True:
            name, message = self._inbox.get()
            if name == "failed":
                raise message
            if name == "stop":
                self._whole = message.whole
                return
            getattr(self, f"_take_{name}")(message)

    def abandon(self) -> None:
        """Stop all threads, and let go of everything as it is; nobody is told."""
        self._stopping.set()
        if self._running is not None:
            self._running.cancel()
        if self._client is not None:
            self._client.close()
        self._tasks.put(None)
        if self._sorter is not None:
            self._sorter.join()
        self._dismiss_mergers()
        self._opened.close()
        if self._folders is not None:
            self._folders.__exit__()

    def close(self, end: SortEnd) -> None:
        """Stop all threads, tidy up, and say how it went."""
        folders, self._folders = self._folders, None
        self.abandon()
        if folders is not None:
            if self._whole:
                folders.remove_all()
            elif self._given_up:
                folders.remove_own()
            else:
                folders.remove_empty()
            folders.__exit__()
        counts, peak = {**self._counts, "processor_seconds": time.process_time()}, peak_bytes()
        with contextlib.suppress(TartanError):
            body = wire.encode(SortEnd(end.error, end.code, peak, counts, end.context))
            self._engine.request(DRIVER, "ended", body, timeout_seconds=FETCH_SECONDS)
        self._engine.leave("the rank has ended")

    def _post(self, name: str, message: object) -> None:
        with contextlib.suppress(StaleEpoch):  # the view says stop
            self._engine.post(DRIVER, name, wire.encode(message))

    def _dismiss_mergers(self) -> None:
        """Have the mergers end what they have, and give their memory back."""
        for _ in self._mergers:
            self._parts.put(None)
        for thread in self._mergers:
            thread.join()
        self._mergers = []

    def _spawn(self, work: Callable[[], None], name: str) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except SortFailure as failure:
                self._inbox.put(("failed", error_of(failure)))
            except BaseException as error:
                self._inbox.put(("failed", error))

        thread = threading.Thread(target=run, name=f"tartan-sort-{name}", daemon=True)
        thread.start()
        return thread

    @property
    def _fingerprint(self) -> bytes:
        return hashlib.sha256(self._job.job.encode()).digest()

    # -- what the rank sees -------------------------------------------------------------------------------------

    def _hello(self) -> SortHello:
        job, blind = self._job, self._look_at_sources()
        kept_bytes = 0 if blind else self._open_rows()
        tmp = check_folders([self._locate(name) for name in job.folders] or [Path(tempfile.gettempdir())])
        self._tmp = tmp
        return SortHello(
            self._address,
            socket.gethostname(),
            os.getpid(),
            memory_bytes=job.memory_bytes or max(LEAST_MEMORY_BYTES, memory().available_bytes // 2 // job.n_sharing),
            held_bytes=held_bytes() + kept_bytes,
            threads=job.threads or max(1, usable_cores() // job.n_sharing),
            blind=blind,
            walled=self._look_at_destination(),
            storage=self._engine.resources.get(STORAGE_RESOURCE, 0) > 0,
            chunk_records=0 if job.fresh else find_chunk_records(tmp, job.name, self._fingerprint),
            tmp=", ".join(map(str, tmp)),
            network=next((found for folder in tmp if (found := network_of(folder))), ""),
        )

    def _open_rows(self) -> int:
        """Learn how rows become records, if the sources hold rows; return the memory that reading them takes."""
        if not self._job.rows:
            return 0
        from tartan.sort.ranks.reading import RowReader
        from tartan.sort.recipes import RowsRecipe

        recipe = wire.decode(self._job.rows, RowsRecipe)
        paths = [self._locate(path) for path, *_ in self._job.sources]
        self._rows = RowReader(recipe, paths, self._job.threads or max(1, usable_cores() // self._job.n_sharing))
        return recipe.kept_bytes

    def _look_at_sources(self) -> str:
        """Return why a source cannot be read here; empty if all can."""
        for path, _, _, size, mtime_ns in self._job.sources:
            place = self._locate(path)
            try:
                status = place.stat()
                with place.open("rb"):
                    pass
            except OSError as error:
                return f"{place}: {error.strerror}"
            if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
                return f"{place} has another size or time of change than for the driver"
        return ""

    def _look_at_destination(self) -> str:
        """Open the file that becomes the destination; return why it cannot be written here."""
        place = self._locate(self._job.part)
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return f"{place}: {error.strerror}"
        self._opened.callback(os.close, descriptor)
        if os.pread(descriptor, len(self._job.token), self._job.end) != self._job.token:
            return f"{place} is another file than that of the driver"
        self._destination, self._place = descriptor, place
        return ""

    # -- messages -----------------------------------------------------------------------------------------------

    def _take_begin(self, begin: SortBegin) -> None:
        self._begin, self._grid = begin, ChunkGrid(begin.n_records, begin.chunk_records)
        notes: list[str] = []
        self._folders = RankFolders(self._tmp, self._job.name, self._job.job, self._fingerprint, notes.append)
        self._folders.__enter__()
        self._folders.take_left()
        found = self._folders.find_runs(self._grid)
        if self._job.fresh:
            for path in found.values():
                self._folders.remove(path)
            found = {}
        for chunk, path in found.items():
            self._shelf.put(chunk, path)
        free = {folder.stat().st_dev: os.statvfs(folder) for folder in self._tmp}
        free_bytes = sum(facts.f_bavail * facts.f_frsize for facts in free.values())
        disk = f"{socket.gethostname()} {sorted(free)}"
        self._sorter = self._spawn(self._work, "sorter")
        self._post("held", SortHeld(tuple(sorted(found)), tuple(notes), free_bytes, disk))

    def _take_sort(self, wanted: ChunkList) -> None:
        self._tasks.put(lambda: self._sort(wanted.chunks))

    def _take_sample(self, wanted: ChunkList) -> None:
        self._tasks.put(lambda: self._sample(wanted.chunks))

    def _take_cut(self, wanted: ChunkList) -> None:
        self._tasks.put(lambda: self._cut(wanted.chunks))

    def _take_splitters(self, some: SplitterText) -> None:
        new = zip(some.keys, some.chunks, some.places, strict=True)
        self._coming += [SortSplitter(*splitter) for splitter in new]
        if some.last:
            self._splitters, self._coming = self._coming, []

    def _take_merge(self, part: PartText) -> None:
        if not self._mergers:
            self._mergers = [self._spawn(self._merge_parts, "merger") for _ in range(self._begin.mergers)]
        self._parts.put(part)

    def _take_gone(self, gone: GoneText) -> None:
        assert self._client is not None
        for address in gone.addresses:
            self._client.drop(end_of(address))

    # -- the sorter ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopping.is_set():
            task()

    def _sort(self, chunks: Sequence[int]) -> None:
        """Sort chunks; tell of each as soon as its run is whole."""
        job, grid = self._job, self._grid
        assert self._folders is not None
        self._dismiss_mergers()  # their memory is the engine's now
        for chunk in chunks:  # those that are made again
            path = self._shelf.drop(chunk)
            if path is not None:
                self._folders.remove(path)
        self._refuse_changes()
        with SortJob(
            record_bytes=job.dtype_bytes,
            key=list(job.key),
            fingerprint=self._folders.fingerprint,
            folders=[str(path) for path in self._folders.paths[: len(self._tmp)]],
            threads=self._begin.threads,
            pack=job.pack,
            direct=job.direct,
            **vars(EngineLayout(**self._begin.layout)),
        ) as engine:
            self._running = engine
            if self._stopping.is_set():
                engine.cancel()
            try:
                told: set[str] = set()
                if self._rows is None:
                    sources = [
                        (str(self._locate(path)), offset, n_bytes) for path, offset, n_bytes, _, _ in job.sources
                    ]
                    engine.make_runs(sources, [(grid.range_of(chunk)[0], grid.count(chunk)) for chunk in chunks])
                else:
                    self._push(engine, self._rows, chunks, told)
                while not engine.wait(POLL_SECONDS):
                    self._keep_new(engine, told)
                self._keep_new(engine, told)
            except SortFailure:
                if self._stopping.is_set():
                    return
                raise
            finally:
                self._running = None
                self._count(engine.statistics())
                engine.close(keep_runs=True)

    def _push(self, engine: SortJob, rows: RowReader, chunks: Sequence[int], told: set[str]) -> None:
        """Make the records of chunks and have them sorted; neighbours are read in one go."""
        engine.push_runs()
        for begin, end in join_neighbours(chunks):
            first, stop = self._grid.range_of(begin)[0], self._grid.range_of(end - 1)[1]
            made = rows.records(first, stop - first)
            with contextlib.closing(made):
                self._push_chunks(engine, made, range(begin, end), told)
        self._refuse_changes()
        engine.finish_push()

    def _push_chunks(self, engine: SortJob, made: Iterator[NDArray[Any]], chunks: range, told: set[str]) -> None:
        at, _ = self._grid.range_of(chunks[0])
        ends = iter([self._grid.range_of(chunk)[1] for chunk in chunks])
        end = next(ends)
        engine.seek(at)
        for records in made:
            while len(records):
                part, records = records[: end - at], records[end - at :]
                engine.push(part.view(np.uint8))
                at += len(part)
                if at == end:
                    engine.seek(at)  # what was pushed is a run
                    end = next(ends, end)
            self._keep_new(engine, told)

    def _refuse_changes(self) -> None:
        blind = self._look_at_sources()
        if blind:
            raise InputChangedError(f"{blind}: it was changed while it was sorted; keep it unchanged and sort it again")

    def _keep_new(self, engine: SortJob, told: set[str]) -> None:
        """Keep the runs that were not there before."""
        for run in engine.runs():
            if run["path"] not in told:
                told.add(run["path"])
                self._keep(run)

    def _keep(self, run: dict[str, Any]) -> None:
        chunk = int(run["first_record"]) // self._grid.chunk_records
        stored = self._shelf.put(chunk, Path(run["path"]))
        self._post("sorted", ChunkDone(chunk, stored))

    def _count(self, statistics: dict[str, Any]) -> None:
        for name in ("runs", "packed_runs"):
            self._counts[name] = self._counts.get(name, 0) + statistics[name]
        for name in ("source_read", "run_write"):
            edge = statistics["edges"][name]
            for what in ("bytes", "busy_seconds", "wait_seconds"):
                self._counts[f"{name} {what}"] = self._counts.get(f"{name} {what}", 0) + edge[what]

    def _sample(self, chunks: Sequence[int]) -> None:
        for chunk in chunks:
            with self._telling_damage(chunk):
                pieces = self._shelf.pieces(chunk)
                width = pieces.facts()["key_bytes"]
                step, keys = pieces.sample(self._begin.sample_step)
                text, at_once = keys.tobytes(), max(1, MOST_KEY_BYTES // width)
                all_keys = [text[at : at + width] for at in range(0, len(text), width)]
                for first in range(0, len(all_keys), at_once):
                    some = tuple(all_keys[first : first + at_once])
                    self._post("sampled", SampleText(chunk, step, some, first + at_once >= len(all_keys)))

    def _cut(self, chunks: Sequence[int]) -> None:
        keys = np.frombuffer(b"".join(splitter.key for splitter in self._splitters), np.uint8)
        for chunk in chunks:
            with self._telling_damage(chunk):
                equal = [splitter.cuts_behind_equal(chunk) for splitter in self._splitters]
                found = self._shelf.pieces(chunk).cut(keys, equal).tolist() if equal else []
                own = [splitter.place if splitter.chunk == chunk else None for splitter in self._splitters]
                cuts = [count if place is None else place for count, place in zip(found, own, strict=True)]
                self._post("cut", CutText(chunk, tuple(cuts)))

    @contextlib.contextmanager
    def _telling_damage(self, chunk: int) -> Iterator[None]:
        """Tell the driver if the run of a chunk is damaged, and go on."""
        try:
            yield
        except SortFailure as failure:
            if failure.kind != "corrupt_run":
                raise
            self._post("back", PartBack(-1, str(failure), chunk))

    # -- mergers ------------------------------------------------------------------------------------------------

    def _merge_parts(self) -> None:
        begin, job = self._begin, self._job
        held = SortRange(begin.range_bytes, record_bytes=job.dtype_bytes, key=list(job.key))
        while (part := self._parts.get()) is not None and not self._stopping.is_set():
            try:
                self._post("merged", self._merge(held, part))
            except _DamagedRunError as damage:
                self._post("back", PartBack(part.part, str(damage), damage.chunk))
            except TransportError as error:
                if not self._stopping.is_set():
                    self._post("back", PartBack(part.part, str(error)))

    def _merge(self, held: SortRange, part: PartText) -> PartDone:
        job = self._job
        held.clear()
        link_bytes = plain_bytes = 0
        block_records = max(1, self._begin.layout["block_bytes"] // job.dtype_bytes)
        for where, wanted in cut_requests(part.pieces, block_records, job.dtype_bytes):
            if where == self._address:
                heads, stored = self._read(wanted)
            else:
                heads, stored = self._fetch(where, wanted)
                link_bytes += len(stored)
                plain_bytes += sum(end - begin for _, begin, end in wanted) * job.dtype_bytes
            self._add(held, heads, stored)
        held.sort()
        place = job.offset + part.begin * job.dtype_bytes
        held.write(self._destination, str(self._place), place)
        with disk_errors(self._place):
            os.fdatasync(self._destination)
        return PartDone(part.part, held.records, link_bytes, plain_bytes)

    def _read(self, wanted: list[tuple[int, int, int]]) -> tuple[list[PieceHead], NDArray[np.uint8]]:
        try:
            return self._shelf.read(wanted)
        except SortFailure as failure:
            if failure.kind != "corrupt_run":
                raise
            raise _DamagedRunError(wanted[0][0], str(failure)) from failure

    def _fetch(self, where: str, wanted: list[tuple[int, int, int]]) -> tuple[list[PieceHead], NDArray[np.uint8]]:
        found: list[NDArray[np.uint8]] = []

        def place(head: bytes, sizes: tuple[int, ...]) -> list[memoryview]:
            records = sum(end - begin for _, begin, end in wanted)
            most = (records + 2 * len(wanted) * self._block_records) * self._job.dtype_bytes
            if len(sizes) != 1 or sizes[0] > most:
                raise TransportError(f"an answer of {sum(sizes):,} bytes where {most:,} at most were asked for")
            found.append(np.empty(sizes[0], np.uint8))
            return [memoryview(found[0].data)]

        assert self._client is not None
        head = self._client.fetch(end_of(where), wire.encode(wanted), place, timeout_seconds=FETCH_SECONDS)
        return wire.decode(head, list[PieceHead]), found[0]

    @property
    def _block_records(self) -> int:
        return max(1, self._begin.layout["block_bytes"] // self._job.dtype_bytes)

    def _add(self, held: SortRange, heads: list[PieceHead], stored: NDArray[np.uint8]) -> None:
        at = 0
        for head in heads:
            sizes, checksums = (np.frombuffer(text, "<u4").astype(np.uint32) for text in (head.sizes, head.checksums))
            n_bytes = int(sizes.sum(dtype=np.int64))
            try:
                held.add(
                    stored[at : at + n_bytes],
                    sizes,
                    checksums,
                    block_records=head.block_records,
                    records=head.records,
                    first=head.first,
                    wanted=(head.begin, head.end),
                )
            except SortFailure as failure:
                raise _DamagedRunError(head.chunk, str(failure)) from failure
            held.end_piece()
            at += n_bytes
