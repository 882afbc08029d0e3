"""The loader against workers that answer on command."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan.application import Application
from tartan.base.trace import NO_TRACER
from tartan.errors import ItemError, RunFailedError
from tartan.runtime import loader as loader_module
from tartan.runtime.host import HOST_ARENA, Place, RaggedObjects, UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.loader import LoadDone, Loader
from tartan.runtime.tasks import LoadTask, load_items, probe_item
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
    """A loader, and what it reported."""

    def __init__(
        self,
        source: Source,
        *,
        ends: Callable[[Any, tuple[Any, ...]], Outcome | None] = lambda function, args: None,
        ragged: bool = False,
        **options: Any,
    ) -> None:
        self.arenas = {HOST_ARENA: Arena(1 << 16, shared=False)}
        items = RaggedObjects() if ragged else UniformItems(ROW)
        form = None if ragged else ROW
        self.task = LoadTask(items, None, form, np.zeros(3, np.float32))
        app = Compared()
        self.workers = Workers(app, self.arenas, ends)
        self.reports: queue.Queue[LoadDone | BaseException] = queue.Queue()
        self.loader = Loader(
            source,
            app,
            self.workers,  # type: ignore[arg-type]
            self.task,
            self.reports.put,
            self.reports.put,
            arenas=self.arenas,
            tracer=NO_TRACER,
            **options,
        )

    def load(self, length: int) -> LoadDone | BaseException:
        self.loader.load(Place(0, 0, length, 1), 0)
        return self.reports.get(timeout=DEADLINE_SECONDS)


class BrokenRows:
    """An array whose rows cannot be read."""

    shape = (4, 3)
    dtype = np.dtype(np.float32)

    def __getitem__(self, rows: Any) -> np.ndarray:
        raise OSError(5, "Input/output error")


def test_rows_that_cannot_be_read_fail_one_by_one_and_the_load_ends() -> None:
    done = Rig(open_source(BrokenRows())).load(4)
    assert isinstance(done, LoadDone)
    assert sorted(done.failures) == [0, 1, 2, 3]
    assert all("Input/output error" in failure.reason for failure in done.failures.values())


def test_an_item_that_cannot_be_read_fails_alone() -> None:
    class OneMissing(SequenceSource):
        def read(self, index: int) -> Any:
            if index == 1:
                raise ItemError("b: cannot be read: gone")
            return np.ones(3, np.float32)

    done = Rig(OneMissing([0, 0, 0], ["a", "b", "c"])).load(3)
    assert isinstance(done, LoadDone)
    assert {position: failure.stage for position, failure in done.failures.items()} == {1: "read"}


def die_once(function: Any, args: tuple[Any, ...], seen: list[Any]) -> Outcome | None:
    seen.append(function)
    return Died("killed by SIGSEGV", 0.1, "") if seen.count(load_items) == 1 and function is load_items else None


def test_a_batch_whose_worker_died_is_loaded_again_while_no_room_is_left_to_read_ahead() -> None:
    seen: list[Any] = []
    rig = Rig(SequenceSource([b"abc", b"de"]), ends=lambda f, a: die_once(f, a, seen), ragged=True)
    other = loader_module._Budget(4)
    rig.loader._ahead = other
    ended = threading.Thread(target=lambda: rig.load(2), daemon=True)
    original = rig.loader._try_alone

    def try_alone(load: Any, begin: int, end: int) -> None:
        other.take(4)  # another I/O thread was faster
        original(load, begin, end)

    rig.loader._try_alone = try_alone  # type: ignore[method-assign]
    ended.start()
    ended.join(DEADLINE_SECONDS)
    assert not ended.is_alive()
    assert seen == [load_items, probe_item, probe_item, load_items]


def test_a_batch_that_only_dies_as_a_whole_ends_the_run() -> None:
    rig = Rig(
        SequenceSource([b"abc", b"de"]),
        ends=lambda function, args: Died("killed by SIGKILL", 0.1, "") if function is load_items else None,
        ragged=True,
    )
    error = rig.load(2)
    assert isinstance(error, RunFailedError)
    assert "0 to 1" in str(error)


def test_an_item_that_takes_too_long_twice_fails() -> None:
    def ends(function: Any, args: tuple[Any, ...]) -> Outcome | None:
        slow = function is probe_item and args[0] == "1"
        late = function is load_items and isinstance(args[3][1], bytes)
        return TimedOut(2.0) if slow or late else None

    rig = Rig(SequenceSource([b"abc", b"de"]), ends=ends, ragged=True, timeout_seconds=2.0)
    done = rig.load(2)
    assert isinstance(done, LoadDone)
    assert "it took too long" in done.failures[1].reason


def test_every_item_of_a_batch_has_its_time() -> None:
    rig = Rig(SequenceSource([b"a", b"b", b"c"]), ragged=True, timeout_seconds=2.0)
    rig.load(3)
    assert rig.workers.timeouts == [(load_items, 6.0)]


def test_an_error_in_a_callback_ends_the_run_instead_of_hanging_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(SequenceSource([b"a"]), ragged=True)

    def broken(*_: object) -> None:
        raise ArithmeticError("defect")

    monkeypatch.setattr(rig.loader, "_items_loaded", broken)
    assert isinstance(rig.load(1), ArithmeticError)


def test_a_disk_level_that_is_too_far_behind_is_passed_by(tmp_path: Any) -> None:
    rig = Rig(SequenceSource([b"a"]), ragged=True, cache=DiskCache(tmp_path, 1 << 20))
    rig.loader._behind = loader_module._Budget(10)
    rig.loader._behind.take(1)
    copies: list[str] = []

    def ready() -> list[Any]:
        copies.append("copied")
        return [np.zeros(3, np.float32)]

    assert not rig.loader.keep(0, ready, set(), n_bytes=10)
    assert copies == []
    assert rig.loader.keep(0, ready, set(), n_bytes=9)
    assert copies == ["copied"]
    rig.loader._io.finish(DEADLINE_SECONDS)
    assert rig.loader._behind.offer(9)


def test_what_is_no_item_in_the_disk_level_is_read_anew(tmp_path: Any) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    rig = Rig(SequenceSource([b"abc"]), ragged=True, cache=cache)
    cache.put(rig.loader._digest(0), [np.arange(7, dtype=np.uint8)])
    done = rig.load(1)
    assert isinstance(done, LoadDone)
    assert not done.from_disk


def test_what_is_on_its_way_to_the_disk_level_is_not_read_anew(tmp_path: Any) -> None:
    class Slow(DiskCache):
        """Writes nothing before it may."""

        allowed = threading.Event()

        def put(self, digest: str, arrays: Any) -> None:
            assert self.allowed.wait(DEADLINE_SECONDS)
            super().put(digest, arrays)

    cache = Slow(tmp_path, 1 << 20)
    rig = Rig(SequenceSource([b"abc", b"de"]), ragged=True, cache=cache)
    kept = [np.zeros(3, np.float32), np.ones(2, np.float32)]
    assert rig.loader.keep(0, lambda: kept, set(), n_bytes=20)
    done = rig.load(2)
    assert isinstance(done, LoadDone)
    assert done.from_disk
    assert rig.loader.counts.parses == 0
    cache.allowed.set()
    rig.loader._io.finish(DEADLINE_SECONDS)
    assert rig.loader._on_the_way == {}
    assert cache.get(rig.loader._digest(1)) is not None
