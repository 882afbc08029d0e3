"""The loader against workers that answer on command."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.application import Application
from tartan.base.checksum import checksum_of_bytes
from tartan.base.daemon_pool import DaemonPool
from tartan.base.trace import NO_TRACER
from tartan.cluster.depot import BorrowedFiles
from tartan.core.pairs.actions import Origin
from tartan.core.pairs.call_limit import CallLimit
from tartan.errors import ItemError, RunFailedError
from tartan.runtime.disk_level import DiskLevel
from tartan.runtime.events import Event, ItemsLate, NodeBroken, SpanFilled
from tartan.runtime.host import HOST_ARENA, Place, RaggedObjects, UniformItems
from tartan.runtime.items import ItemFailure, ItemForm
from tartan.runtime.loader import Loader
from tartan.runtime.tasks import ItemPlan, parse_batch, probe_item
from tartan.runtime.wiring import Wiring
from tartan.sources.checked import note_checksums
from tartan.sources.files import FileSource, ListedFile
from tartan.sources.items import SequenceSource, Source, open_source
from tartan.sources.paths import Location
from tartan.store.disk_cache import DiskCache
from tartan.workers.arena import Arena
from tartan.workers.executor import Completed, Died, Outcome, TimedOut, WorkerContext

DEADLINE_SECONDS = 20
ROW = ItemForm(np.dtype(np.float32), (3,))


class Compared(Application):
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


class Workers:
    """Runs calls where they are submitted; ``ends`` may turn the outcome of one into another."""

    n_workers = 1

    def __init__(
        self,
        app: Application,
        arenas: dict[str, Arena],
        ends: Callable[[Any, tuple[Any, ...]], Outcome | None],
        in_processes: bool,
    ):
        self.in_processes = in_processes
        self.context = WorkerContext(app, arenas)
        self.ends = ends
        self.timeouts: list[tuple[Any, float | None]] = []

    def submit(self, function: Any, args: Any, done: Any, *, priority: int = 0, timeout_seconds: Any = None) -> None:
        self.timeouts.append((function, timeout_seconds))
        done(self.ends(function, args) or Completed(function(self.context, *args)))


class Rig:
    """A loader, and what it posted."""

    def __init__(
        self,
        source: Source,
        *,
        ends: Callable[[Any, tuple[Any, ...]], Outcome | None] = lambda function, args: None,
        ragged: bool = False,
        call_limit: CallLimit | None = None,
        cache: DiskCache | None = None,
        behind_bytes: int = 1 << 20,
        parsed: ItemForm | None = None,
        in_processes: bool = False,
        **options: Any,
    ) -> None:
        self.arenas = arenas = {HOST_ARENA: Arena(1 << 16, shared=False)}
        form = None if ragged else ROW
        items = RaggedObjects() if ragged else UniformItems(ROW)
        self.plan = task = ItemPlan(items, parsed, form, np.zeros(3, np.float32))
        app = Compared()
        self.workers = Workers(app, arenas, ends, in_processes)
        self.events: queue.Queue[Event] = queue.Queue()
        executor: Any = self.workers
        wiring = Wiring(app, source, executor, task, arenas, self.events.put, NO_TRACER, call_limit)
        self.io = DaemonPool(2, "tartan-test")
        self.disk = None
        if cache is not None:
            self.disk = DiskLevel(cache, source, task.items, b"", self.io, behind_bytes=behind_bytes)
        self.loader = Loader(wiring, self.io, self.disk, **options)

    def read(self) -> list[Any]:
        """Return the items that lie in the place."""
        found: list[Any] = self.plan.items.operand(self.arenas, [place(0)])
        return found

    def load(self, length: int) -> SpanFilled:
        self.loader.load(Place(0, 0, length, 1, 0))
        return self.filled()

    def filled(self) -> SpanFilled:
        event = self.events.get(timeout=DEADLINE_SECONDS)
        assert isinstance(event, SpanFilled)
        return event

    def told(self) -> str:
        event = self.events.get(timeout=DEADLINE_SECONDS)
        assert isinstance(event, ItemsLate)
        return event.line

    def broken(self) -> BaseException:
        event = self.events.get(timeout=DEADLINE_SECONDS)
        assert isinstance(event, NodeBroken)
        return event.error


def place(length: int) -> Place:
    return Place(0, 0, length, 1, 0)


class Slow(DiskCache):
    """Writes nothing before it may."""

    def __init__(self, folder: Path, allowed: threading.Event) -> None:
        super().__init__(folder, 1 << 20)
        self.allowed = allowed

    def put(self, digest: str, arrays: Any) -> bool:
        assert self.allowed.wait(DEADLINE_SECONDS)
        return super().put(digest, arrays)


class BrokenRows:
    """An array whose rows cannot be read."""

    shape = (4, 3)
    dtype = np.dtype(np.float32)

    def __getitem__(self, rows: Any) -> np.ndarray:
        raise OSError(5, "Input/output error")


def test_rows_that_cannot_be_read_fail_one_by_one_and_the_load_ends() -> None:
    done = Rig(open_source(BrokenRows())).load(4)
    assert sorted(done.failures) == [0, 1, 2, 3]
    assert all("Input/output error" in failure.reason for failure in done.failures.values())


def test_an_item_that_cannot_be_read_fails_alone() -> None:
    class OneMissing(SequenceSource):
        def read(self, index: int) -> Any:
            if index == 1:
                raise ItemError("b: cannot be read: gone")
            return np.ones(3, np.float32)

    done = Rig(OneMissing([0, 0, 0], ["a", "b", "c"])).load(3)
    assert {position: failure.stage for position, failure in done.failures.items()} == {1: "read"}


def files(folder: Path, *contents: bytes) -> FileSource:
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_bytes(content)
    source = open_source(str(folder / "*.txt"))
    assert isinstance(source, FileSource)
    source.fingerprints()
    return source


def test_worker_processes_read_local_files_themselves(tmp_path: Path) -> None:
    seen: list[Any] = []
    noted: dict[int, int] = {}

    def note(first: int, sums: Any) -> Any:
        noted[first] = int(sums[0])
        return np.empty(0, np.intp)

    source = files(tmp_path, b"abc", b"de")
    rig = Rig(
        note_checksums(source, note), ends=lambda function, args: seen.extend(args[3]), ragged=True, in_processes=True
    )
    assert not rig.load(2).failures
    assert [type(payload) for payload in seen] == [ListedFile] * 2
    assert rig.read() == [b"abc", b"de"]
    assert noted == {0: checksum_of_bytes(b"abc"), 1: checksum_of_bytes(b"de")}
    assert (rig.loader.counts.read_bytes, rig.loader.counts.parses) == (5, 2)


def test_what_workers_are_to_read_counts_as_read_ahead(tmp_path: Path) -> None:
    first_there, release = threading.Event(), threading.Event()
    calls: list[int] = []

    def ends(function: Any, args: tuple[Any, ...]) -> None:
        calls.append(args[1].span)
        first_there.set()
        assert release.wait(DEADLINE_SECONDS)

    rig = Rig(files(tmp_path, b"abc", b"de"), ends=ends, ragged=True, in_processes=True, ahead_bytes=4)
    rig.loader.load(Place(0, 0, 1, 1, 0))
    assert first_there.wait(DEADLINE_SECONDS)
    rig.loader.load(Place(1, 1, 1, 2, 1))
    assert calls == [0]
    release.set()
    assert {rig.filled().place.span for _ in range(2)} == {0, 1}


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_file_that_cannot_be_read_is_named_whoever_reads(tmp_path: Path, in_processes: bool) -> None:
    listed = files(tmp_path, b"abc", b"gone", b"changed", b"pipe", b"folder", b"too large")
    source = FileSource([Location(path) for path in listed.paths], max_item_bytes=8)
    source.fingerprints()
    (tmp_path / "1.txt").unlink()
    (tmp_path / "2.txt").write_bytes(b"other!!")
    (tmp_path / "3.txt").unlink()
    os.mkfifo(tmp_path / "3.txt")
    (tmp_path / "4.txt").unlink()
    (tmp_path / "4.txt").mkdir()
    done = Rig(source, ragged=True, in_processes=in_processes).load(6)
    assert {at: (failure.stage, failure.reason) for at, failure in done.failures.items()} == {
        1: ("read", "1.txt: cannot be read: No such file or directory (ENOENT)"),
        2: ("read", "2.txt: cannot be read: the file has changed since the run began"),
        3: ("read", "3.txt: cannot be read: not a regular file"),
        4: ("read", "4.txt: cannot be read: Is a directory (EISDIR)"),
        5: (
            "read",
            "5.txt: cannot be read: 9 bytes or more, above the limit of 8 bytes for one item; give it compressed if "
            "its application reads that, or use a machine with more memory",
        ),
    }


def test_a_file_that_a_worker_does_not_find_any_more_is_named_as_ever(tmp_path: Path) -> None:
    calls: list[Any] = []

    def ends(function: Any, args: tuple[Any, ...]) -> None:
        (tmp_path / "1.txt").unlink(missing_ok=True)
        calls.append([type(payload) for payload in args[3]])

    rig = Rig(files(tmp_path, b"abc", b"de"), ends=ends, ragged=True, in_processes=True)
    done = rig.load(2)
    assert calls == [[ListedFile, ListedFile], [ListedFile, ItemFailure]]
    assert done.failures[1].reason == "1.txt: cannot be read: No such file or directory (ENOENT)"
    assert rig.read()[0] == b"abc"


def test_a_file_that_only_this_process_can_read_is_sent(tmp_path: Path) -> None:
    """Such as one that a rank of a cluster does not see, and asks the driver for."""
    source = files(tmp_path, b"abc", b"de")

    def ends(function: Any, args: tuple[Any, ...]) -> None:
        (tmp_path / "1.txt").unlink(missing_ok=True)

    rig = Rig(BorrowedFiles(source, lambda index, reason: b"lent"), ends=ends, ragged=True, in_processes=True)
    assert not rig.load(2).failures
    assert rig.read() == [b"abc", b"lent"]


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_file_with_other_bytes_than_were_compared_is_no_item(tmp_path: Path, in_processes: bool) -> None:
    def note(first: int, sums: Any) -> Any:
        return np.flatnonzero(sums != checksum_of_bytes([b"abc", b"xy"][first]))

    rig = Rig(note_checksums(files(tmp_path, b"abc", b"de"), note), ragged=True, in_processes=in_processes)
    done = rig.load(2)
    assert {at: failure.stage for at, failure in done.failures.items()} == {1: "read"}
    assert "the file has changed since it was compared with others" in done.failures[1].reason
    assert rig.read()[0] == b"abc"
    assert isinstance(rig.read()[1], np.ndarray)  # a good item in its place


def test_batches_of_parsed_items_lie_one_behind_the_other() -> None:
    """A device takes the parsed items of a span as one array, however they were parsed."""
    rows = np.arange(12, dtype=np.uint16).reshape(4, 3)
    rig = Rig(SequenceSource(list(rows)), parsed=ItemForm(rows.dtype, (3,)), item_seconds=1.0)
    for at in (0, 5):
        rig.loader.load(Place(0, at, 4, 1, 0))
        assert np.array_equal(rig.plan.block(rig.arenas, rig.filled().place), rows)
    assert [function for function, _ in rig.workers.timeouts] == [parse_batch] * 8


def die_once(function: Any, args: tuple[Any, ...], seen: list[Any]) -> Outcome | None:
    seen.append(function)
    return Died("killed by SIGSEGV", 0.1, "") if seen.count(parse_batch) == 1 and function is parse_batch else None


def test_a_batch_whose_worker_died_is_loaded_again_while_no_room_is_left_to_read_ahead() -> None:
    """The thread that reports the death may not wait for room: it would be the one to make it."""
    seen: list[Any] = []
    other_is_there, release = threading.Event(), threading.Event()

    def ends(function: Any, args: tuple[Any, ...]) -> Outcome | None:
        if function is parse_batch and args[1].span == 1:  # holds all the room until the test ends
            other_is_there.set()
            assert release.wait(DEADLINE_SECONDS)
            return None
        if function is probe_item and not other_is_there.is_set():
            rig.loader.load(Place(1, 0, 1, 2, 2))
            assert other_is_there.wait(DEADLINE_SECONDS)
        return die_once(function, args, seen)

    rig = Rig(SequenceSource([b"abc", b"de", b"fghij"]), ends=ends, ragged=True, ahead_bytes=4)
    done = rig.load(2)
    release.set()
    assert done.place.span == 0
    assert rig.filled().place.span == 1
    assert seen == [parse_batch, probe_item, probe_item, parse_batch]


def test_a_batch_that_only_dies_as_a_whole_ends_the_run() -> None:
    rig = Rig(
        SequenceSource([b"abc", b"de"]),
        ends=lambda function, args: Died("killed by SIGKILL", 0.1, "") if function is parse_batch else None,
        ragged=True,
    )
    rig.loader.load(place(2))
    error = rig.broken()
    assert isinstance(error, RunFailedError)
    assert "0 to 1" in str(error)


def test_an_item_that_takes_too_long_twice_fails() -> None:
    def ends(function: Any, args: tuple[Any, ...]) -> Outcome | None:
        slow = function is probe_item and args[0] == "1"
        late = function is parse_batch and isinstance(args[3][1], bytes)
        return TimedOut(2.0) if slow or late else None

    rig = Rig(SequenceSource([b"abc", b"de"]), ends=ends, ragged=True, call_limit=CallLimit(2.0))
    rig.loader.load(place(2))
    assert rig.told().startswith("0 to 1: loading did not end within 2 s (--tile-timeout sets the limit, 0 none); ")
    done = rig.filled()
    assert (
        "1: it took more than 2 s (--tile-timeout sets the limit, 0 none) each of the 2 times"
        in done.failures[1].reason
    )


def test_every_item_of_a_batch_has_its_time() -> None:
    rig = Rig(SequenceSource([b"a", b"b", b"c"]), ragged=True, call_limit=CallLimit(2.0))
    rig.load(3)
    assert rig.workers.timeouts == [(parse_batch, 6.0)]


def test_items_that_are_slow_but_right_have_longer_after_they_were_tried_alone() -> None:
    def ends(function: Any, args: tuple[Any, ...]) -> Outcome | None:
        if function is probe_item:  # each takes ten minutes
            return Completed(probe_item(rig.workers.context, *args)._replace(parse_seconds=600.0))
        return TimedOut(900.0) if len(rig.workers.timeouts) == 1 else None

    rig = Rig(SequenceSource([b"a", b"b", b"c"]), ends=ends, ragged=True, call_limit=CallLimit())
    rig.loader.load(place(3))
    assert rig.told().startswith("0 to 2: loading did not end within 15 min ")
    assert not rig.filled().failures
    limits = [(function, round(seconds, -2)) for function, seconds in rig.workers.timeouts if seconds is not None]
    assert limits == [
        (parse_batch, 900.0),  # nothing is known
        (probe_item, 9000.0),
        *[(probe_item, 60_000.0)] * 2,
        (parse_batch, 18_000.0),
    ]


def test_an_answer_that_is_none_ends_the_run_instead_of_hanging_it() -> None:
    rig = Rig(SequenceSource([b"a"]), ends=lambda function, args: Completed("no batch"), ragged=True)
    rig.loader.load(place(1))
    assert isinstance(rig.broken(), AttributeError)


def test_a_disk_level_that_is_too_far_behind_is_passed_by(tmp_path: Path) -> None:
    allowed = threading.Event()
    rig = Rig(SequenceSource([b"a"]), ragged=True, cache=Slow(tmp_path, allowed), behind_bytes=10)
    assert rig.disk is not None
    copies: list[str] = []

    def ready() -> list[Any]:
        copies.append("copied")
        return [np.zeros(3, np.float32)]

    assert rig.disk.keep(place(1), ready, set(), n_bytes=1)
    assert not rig.disk.keep(place(1), ready, set(), n_bytes=10)
    assert copies == ["copied"]
    assert rig.disk.keep(place(1), ready, set(), n_bytes=9)
    allowed.set()
    rig.io.finish(DEADLINE_SECONDS)
    assert rig.disk.keep(place(1), ready, set(), n_bytes=10)


class SlowRig(Rig):
    """One whose disk has yet to take more items than it has threads, and takes none before it may."""

    N_ITEMS = 5

    def __init__(self, folder: Path) -> None:
        self.allowed = threading.Event()
        source = SequenceSource([bytes([number]) for number in range(self.N_ITEMS)])
        super().__init__(source, ragged=True, cache=Slow(folder, self.allowed))
        assert self.disk is not None
        self.level = self.disk
        for number in range(self.N_ITEMS):
            at = Place(number, number, 1, 1, number)
            assert self.level.keep(at, lambda: [np.zeros(3, np.float32)], set(), n_bytes=1)


def test_the_end_of_a_run_waits_for_what_its_disk_is_still_to_take(tmp_path: Path) -> None:
    rig = SlowRig(tmp_path)
    closing = threading.Thread(target=rig.loader.close)
    closing.start()
    assert rig.level.n_unwritten == rig.N_ITEMS
    rig.allowed.set()
    closing.join(DEADLINE_SECONDS)
    entries = [rig.level.digest(number) for number in range(rig.N_ITEMS)]
    assert all(DiskCache(tmp_path, 1 << 20).get(entry) is not None for entry in entries)


def test_a_broken_run_does_not_wait_for_its_disk(tmp_path: Path) -> None:
    rig = SlowRig(tmp_path)
    rig.loader.close(broken=True)
    assert rig.level.n_unwritten == rig.N_ITEMS
    rig.allowed.set()


def test_what_is_no_item_in_the_disk_level_is_read_anew(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    rig = Rig(SequenceSource([b"abc"]), ragged=True, cache=cache)
    assert rig.disk is not None
    cache.put(rig.disk.digest(0), [np.arange(7, dtype=np.uint8)])
    assert rig.load(1).origin is Origin.STORAGE


def test_what_is_on_its_way_to_the_disk_level_is_not_read_anew(tmp_path: Path) -> None:
    allowed = threading.Event()
    cache = Slow(tmp_path, allowed)
    rig = Rig(SequenceSource([b"abc", b"de"]), ragged=True, cache=cache)
    assert rig.disk is not None
    kept = [np.zeros(3, np.float32), np.ones(2, np.float32)]
    assert rig.disk.keep(place(2), lambda: kept, set(), n_bytes=20)
    assert rig.load(2).origin is Origin.DISK
    assert rig.loader.counts.parses == 0
    allowed.set()
    rig.io.finish(DEADLINE_SECONDS)
    assert rig.disk.n_unwritten == 0
    assert cache.get(rig.disk.digest(1)) is not None
