"""The loader against workers that answer on command."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tartan.application import Application
from tartan.base.daemon_pool import DaemonPool
from tartan.base.trace import NO_TRACER
from tartan.core.actions import Origin
from tartan.errors import ItemError, RunFailedError
from tartan.runtime.disk_level import DiskLevel
from tartan.runtime.events import Event, NodeBroken, SpanFilled
from tartan.runtime.host import HOST_ARENA, Place, RaggedObjects, UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.loader import Loader
from tartan.runtime.tasks import ItemPlan, parse_batch, probe_item
from tartan.runtime.wiring import Wiring
from tartan.sources.items import SequenceSource, Source, open_source
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
    in_processes = False

    def __init__(
        self, app: Application, arenas: dict[str, Arena], ends: Callable[[Any, tuple[Any, ...]], Outcome | None]
    ):
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
        timeout_seconds: float | None = None,
        cache: DiskCache | None = None,
        behind_bytes: int = 1 << 20,
        parsed: ItemForm | None = None,
        **options: Any,
    ) -> None:
        self.arenas = arenas = {HOST_ARENA: Arena(1 << 16, shared=False)}
        form = None if ragged else ROW
        items = RaggedObjects() if ragged else UniformItems(ROW)
        self.plan = task = ItemPlan(items, parsed, form, np.zeros(3, np.float32))
        app = Compared()
        self.workers = Workers(app, arenas, ends)
        self.events: queue.Queue[Event] = queue.Queue()
        executor: Any = self.workers
        wiring = Wiring(app, source, executor, task, arenas, self.events.put, NO_TRACER, timeout_seconds)
        self.io = DaemonPool(2, "tartan-test")
        self.disk = None
        if cache is not None:
            self.disk = DiskLevel(cache, source, task.items, b"", self.io, behind_bytes=behind_bytes)
        self.loader = Loader(wiring, self.io, self.disk, **options)

    def load(self, length: int) -> SpanFilled:
        self.loader.load(Place(0, 0, length, 1, 0))
        return self.filled()

    def filled(self) -> SpanFilled:
        event = self.events.get(timeout=DEADLINE_SECONDS)
        assert isinstance(event, SpanFilled)
        return event

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

    rig = Rig(SequenceSource([b"abc", b"de"]), ends=ends, ragged=True, timeout_seconds=2.0)
    done = rig.load(2)
    assert "it took too long" in done.failures[1].reason


def test_every_item_of_a_batch_has_its_time() -> None:
    rig = Rig(SequenceSource([b"a", b"b", b"c"]), ragged=True, timeout_seconds=2.0)
    rig.load(3)
    assert rig.workers.timeouts == [(parse_batch, 6.0)]


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
