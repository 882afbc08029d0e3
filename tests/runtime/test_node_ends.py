"""How executions end: what they leave behind, and what a failure costs."""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.base.signals import WAKE_SECONDS
from tartan.base.trace import NO_TRACER
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import DONE
from tartan.core.pairs.verdict import PairCounts
from tartan.errors import InternalError, RunFailedError
from tartan.runtime.chunk_desk import ChunkBuffers
from tartan.runtime.compare import CellFailure, Compared
from tartan.runtime.cpu_lane import CpuLane
from tartan.runtime.events import Event, NodeBroken, PartCompared, PartDropped, PartFailed
from tartan.runtime.host import Place, UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.parts import Part, TileMask, halves, scouts
from tartan.runtime.tasks import ItemPlan
from tartan.runtime.wiring import Wiring
from tartan.sources.items import open_source
from tartan.workers.executor import Cancelled, Completed, Died, Outcome, Raised, TimedOut
from tartan.workers.worker import When

ROWS = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)
FORM = ItemForm(np.dtype(np.float32), (3,))


class Counted(tartan.Application):
    """Counts compare calls; ``fails`` says which raise."""

    releases_gil = True

    def __init__(self, fails: Any = None) -> None:
        self._fails = fails
        self.calls = 0

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.calls += 1
        if self._fails is not None and self._fails(left, right):
            raise NameError("name 'lefty' is not defined")
        return left @ right.T


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("tartan")}


def memory_files() -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            links.append(str(entry.readlink()))
    return [link for link in links if "memfd" in link]


@pytest.mark.slow
def test_a_compare_with_a_typo_stops_after_few_calls() -> None:
    app = Counted(lambda left, right: True)
    with pytest.raises(RunFailedError, match="lefty"):
        tartan.allpairs(app, np.zeros((3000, 2), np.float32), workers=1)
    # A path of twenty halvings for each tile and part under way, and two calls for each of a hundred pairs.
    assert app.calls < 1000


def test_one_guilty_pair_costs_two_calls_a_halving() -> None:
    items = np.zeros((64, 2), np.float32)
    items[[10, 50], 0] = 1
    app = Counted(lambda left, right: bool(left[:, 0].any() and right[:, 0].any() and len(left) * len(right) > 0))
    run = tartan.allpairs(app, items, workers=1)
    assert [(failure.i, failure.j) for failure in run.failures] == [(10, 50)]
    clean = Counted()
    tartan.allpairs(clean, items, workers=1)
    assert app.calls <= clean.calls + 2 * 2 * 12


class Interrupted(queue.SimpleQueue[Any]):
    """A queue whose first waits end with nothing: then handlers of signals run that came right before them."""

    n_waits = 0

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if timeout == WAKE_SECONDS:
            type(self).n_waits += 1
            if self.n_waits < 3:
                raise queue.Empty
        return super().get(block, timeout)


def test_no_wait_outlasts_a_signal_that_came_right_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dot(tartan.Application):
        releases_gil = True

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return left @ right.T

    monkeypatch.setattr(queue, "SimpleQueue", Interrupted)
    assert tartan.allpairs(Dot(), ROWS, workers=1).finished
    assert Interrupted.n_waits > 3


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_no_descriptor_and_no_thread_stays_behind(fails: bool) -> None:
    class Process(tartan.Application):
        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return left @ (right.T if not fails else right.missing)

    before, threads = memory_files(), own_threads()
    for _ in range(2):
        if fails:
            with pytest.raises(RunFailedError):
                tartan.allpairs(Process(), ROWS, workers=1)
        else:
            tartan.allpairs(Process(), ROWS, workers=1)
    assert memory_files() == before
    assert own_threads() <= threads


# -- parts of tiles ----------------------------------------------------------------------------------------------


def part() -> Part:
    buffers = ChunkBuffers(8, {"scores": np.dtype(np.float32)}, 1, mirrored=False, shared=False)
    mask = TileMask(np.random.default_rng(0).random((4, 6)) < 0.8, failed=((1,), ()))
    places = [Place(0, 0, 4, 1, 1)], [Place(1, 4, 6, 2, 2)]
    return Part(Tile(0, 1), places, (4, 6), (0, 0), (1, 2), (1, 2), mask, buffers.open((0, 0)))


def part_of_triples() -> Part:
    """Return a part of a tile of triples, with a bar for each of its items."""
    mask = TileMask(np.random.default_rng(1).random((3, 4, 5)) < 0.8, failed=((2,), (), (0, 3)))
    bars = tuple(np.arange(start, start + length) * 0.5 for start, length in zip((7, 20, 40), (3, 4, 5), strict=True))
    return Part(Tile(0, 1), ([], [], []), (3, 4, 5), (0, 0, 0), (7, 20, 40), (7, 0, 0), mask, None, bars)


def cells_of(piece: Part) -> dict[tuple[int, ...], int]:
    codes = piece.mask.codes(piece.shape)
    assert isinstance(codes, np.ndarray)
    places = (tuple(np.add(piece.origin, place).tolist()) for place in np.ndindex(piece.shape))
    return dict(zip(places, codes.ravel().tolist(), strict=True))


@pytest.mark.parametrize("made", [part, part_of_triples])
def test_halves_cover_a_part_once_with_its_codes(made: Callable[[], Part]) -> None:
    whole, waiting = made(), [made()]
    found: dict[tuple[int, ...], int] = {}
    while waiting:
        piece = waiting.pop()
        if piece.alone:
            assert found.keys().isdisjoint(cells_of(piece))
            found |= cells_of(piece)
            if piece.bars is not None:
                assert [bar.tolist() for bar in piece.bars] == [[item * 0.5] for item in piece.corner]
        else:
            waiting += halves(piece)
    assert found == cells_of(whole)


@pytest.mark.parametrize("made", [part, part_of_triples])
def test_single_cells_that_are_tried_first_count_and_have_other_items(made: Callable[[], Part]) -> None:
    whole = made()
    chosen = scouts(whole, 2)
    assert len({cell.corner[-1] for cell in chosen}) == len(chosen) == 2
    for cell in chosen:
        assert (cell.alone, cell.scout, cell.counts_any) == (True, True, True)
        assert cells_of(whole)[cell.origin] == DONE


def test_parts_of_halved_tiles_go_before_whole_tiles() -> None:
    assert all(half.priority < part().priority for half in halves(part()))


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Raised(ValueError("bad"), "ValueError", "bad", "trace"), "raised"),
        (Raised(MemoryError(), "MemoryError", "", "trace"), "memory"),
        (Died("killed by SIGSEGV", 0.1, "trace"), "died"),
        (TimedOut(3.0), "late"),
    ],
)
def test_what_a_lane_says_of_a_call_that_failed(outcome: Outcome, kind: str) -> None:
    event = posted(outcome)
    assert isinstance(event, PartFailed)
    assert event.kind == kind


def test_a_lane_reports_single_pairs() -> None:
    failed, counts = [CellFailure((1, 2), "bad")], PairCounts(22, 1, 1, 24, 1)
    event = posted(Completed(Compared(failed, counts, When("1", 0, 2 * 10**9))))
    assert isinstance(event, PartCompared)
    assert (event.failures, event.counts, event.seconds) == (failed, counts, 2.0)


def test_a_call_that_was_dropped_fails_nothing() -> None:
    assert isinstance(posted(Cancelled()), PartDropped)


@pytest.mark.parametrize("error", [InternalError("defect"), RunFailedError("no worker can be started")])
def test_what_is_not_the_applications_fault_fails_no_pair(error: Exception) -> None:
    assert posted(Raised(error, type(error).__name__, str(error), "")) == NodeBroken(error)


def posted(outcome: Outcome) -> Event:
    class Answers:
        def submit(self, function: Any, args: Any, done: Any, **_: Any) -> None:
            done(outcome)

    events: list[Event] = []
    executor: Any = Answers()
    task = ItemPlan(UniformItems(FORM), None, FORM, None)
    lane = CpuLane(0, Wiring(Counted(), open_source(ROWS), executor, task, {}, events.append, NO_TRACER))
    lane.compare(part())
    return events[0]


def test_the_item_that_takes_the_place_of_others_travels_with_no_task() -> None:
    task = ItemPlan(UniformItems(FORM), None, FORM, np.zeros(1_000_000)).without_substitute()
    assert len(pickle.dumps(task)) < 1000
    assert pickle.loads(pickle.dumps(task)).form == FORM


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [False, True])
def test_processes_find_the_item_that_takes_the_place_of_others(ragged: bool) -> None:
    class Picky(tartan.Application):
        def parse(self, key: str, data: Any) -> Any:
            if key == "3":
                raise ValueError("no number")
            return np.full(3, float(key)) if not ragged else [np.full(int(key) + 1, 1.0)]

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            first, second = ([x[0].sum() if ragged else x[0] for x in side] for side in (left, right))
            return np.abs(np.subtract.outer(np.array(first), np.array(second)))

    run = tartan.allpairs(Picky(), list(range(6)), workers=1)
    assert [(failure.i, failure.j) for failure in run.failures] == [(3, None)]
    assert run.n_pairs_failed == 5
    assert run.matrix()[0, [1, 2, 4, 5]].tolist() == [1, 2, 4, 5]
