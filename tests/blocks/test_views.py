"""Functions that keep views of their arrays: the memory is not given to others before the last view is gone."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tartan import blocks
from tartan.blocks.crew import open_workers
from tartan.blocks.loans import LOAN_BYTES, LoanTable, hold
from tartan.blocks.node import BlockNode, LentArrays
from tartan.blocks.sources import source_of
from tartan.blocks.store import BlockStore
from tartan.blocks.work import (
    FROM_SOURCE,
    AddFunction,
    AddSpace,
    BlockArgument,
    BlockFunction,
    OrderDone,
    OrderFailed,
    PartOrigin,
    RangeKey,
    Subtask,
    WorkOrder,
)
from tartan.core.blocks.pieces import PieceKey
from tartan.errors import ResourceError, SubtaskError
from tartan.workers.arena import Arena

Array = NDArray[Any]
BLOCK = 4096
"""Elements of a block, one byte each: a block is a page."""
PATIENCE = 30.0


def as_memoryview(a: Array) -> Any:
    return memoryview(a)[5:]


def as_generator(a: Array) -> Iterator[Any]:
    def walk(a: Array) -> Iterator[Any]:
        yield 0
        yield from a

    found = walk(a)
    next(found)  # now its frame has the array
    return found


def as_traceback(a: Array) -> Any:
    try:
        raise ValueError(a.size)
    except ValueError:
        return sys.exc_info()[2]


def in_a_cycle(a: Array) -> list[Any]:
    found: list[Any] = [a]
    found.append(found)
    return found


HOLDERS: list[Callable[[Array], Any]] = [
    lambda a: a,
    lambda a: a[1:],
    lambda a: a.reshape(64, 64).T[3:, ::2],
    lambda a: a.view("u2"),
    lambda a: np.frombuffer(a, np.uint8)[7:],
    lambda a: np.lib.stride_tricks.as_strided(a, (3,), (1,)),
    lambda a: a.ctypes,
    lambda a: a.flat,
    lambda a: np.nditer(a),
    lambda a: np.ma.masked_array(a),
    as_memoryview,
    as_generator,
    as_traceback,
    in_a_cycle,
    lambda a: threading.local().__dict__.setdefault("a", a),
    lambda a: partial(np.add, a),
]


@pytest.mark.parametrize("number", range(len(HOLDERS)))
def test_a_loan_is_held_until_the_last_view_is_gone(number: int) -> None:
    with Arena(BLOCK + LOAN_BYTES, shared=True) as arena:
        table = LoanTable(arena)
        loan = table.take()
        assert loan is not None
        root = arena.view(0, (BLOCK,), "u1")
        hold(arena, root, loan)
        array = np.asarray(root.data)
        array[...] = 1
        kept = [HOLDERS[number](array)]
        del root, array
        assert table.holder(loan) == os.getpid()
        kept.clear()
        gc.collect()
        assert table.holder(loan) == 0


def test_a_fork_does_not_let_go_of_what_its_parent_holds() -> None:
    with Arena(BLOCK + LOAN_BYTES, shared=True) as arena:
        table = LoanTable(arena)
        loan = table.take()
        assert loan is not None
        root = arena.view(0, (BLOCK,), "u1")
        hold(arena, root, loan)
        child = os.fork()
        if child == 0:
            del root
            os._exit(0)
        os.waitpid(child, 0)
        assert table.holder(loan) == os.getpid()


def test_loans_are_used_again(tmp_path: Path) -> None:
    with Arena(LOAN_BYTES, shared=False) as arena:
        table = LoanTable(arena)
        first, second = table.take(), table.take()
        assert first is not None
        table.give(first)
        assert table.take() == first != second


def test_memory_that_is_lent_is_no_room_for_others(tmp_path: Path) -> None:
    store = BlockStore(2 * BLOCK, tmp_path)
    add = partial(store.add, shape=(BLOCK,), dtype=np.dtype("u1"), forgettable=False)
    assert add("a")
    lent = store.lend("a")
    view = store.array("a")
    view[...] = 7
    store.unpin("a")
    store.drop(["a"])
    assert "a" not in store
    assert add("a")  # under its old name, another array
    store.array("a")[...] = 8
    assert not add("b")
    assert (view == 7).all()
    store.take_back(lent)
    assert add("b")
    store.close()


# -- sessions --------------------------------------------------------------------------------------------------


def use_all_memory(s: blocks.Session, n_blocks: int = 64) -> None:
    """Write into far more memory than there is."""
    C = s.space(shape=n_blocks * BLOCK, dtype="u1", block=BLOCK)
    for value in (1, 2):

        def fills(c: Array, value: int = value) -> None:
            c[...] = value

        s.run(blocks.Task(fills, C.grid, lambda i: C.write[C.block(i)], releases_gil=True))
        assert (C.array() == value).all()


def test_kept_views_keep_their_values() -> None:
    kept: list[tuple[int, Array, Array]] = []

    def keeps(a: Array, b: Array, index: tuple[int, ...]) -> None:
        b[...] = a + 100
        kept.append((index[0], a[1:], b[:-1]))

    with blocks.Session(workers=2, host_cache=16 * BLOCK) as s:
        A = s.space(np.repeat(np.arange(3, dtype="u1"), BLOCK), block=BLOCK)
        B = s.space(shape=3 * BLOCK, dtype="u1", block=BLOCK)
        wants = lambda i: (A.read[A.block(i)], B.write[B.block(i)])  # noqa: E731
        s.run(blocks.Task(keeps, A.grid, wants, releases_gil=True))
        C = s.space(shape=3 * BLOCK, dtype="u1", block=BLOCK)
        s.run(blocks.Task(lambda b: b.fill(9), B.grid, lambda i: B.write[B.block(i)], releases_gil=True))
        use_all_memory(s)
        assert len(C.grid) == len(kept) == 3
        for i, a, b in kept:
            assert (a == i).all()
            assert (b == i + 100).all()
    assert all((a == i).all() for i, a, _ in kept)


def test_a_thread_that_goes_on_after_its_function_is_no_fault() -> None:
    """As Zarr's threads do: they have the array still when the function has ended."""
    may_end = threading.Event()
    seen: list[bool] = []

    def goes_on(a: Array, b: Array) -> None:
        b[...] = a

        def look(a: Array) -> None:
            may_end.wait(PATIENCE)
            seen.append(bool((a == 5).all()))

        thread = threading.Thread(target=look, args=(a,))
        threads.append(thread)
        thread.start()

    threads: list[threading.Thread] = []
    with blocks.Session(workers=2, host_cache=16 * BLOCK) as s:
        A, B = (s.space(np.full(8 * BLOCK, 5, "u1"), block=BLOCK) for _ in range(2))
        s.run(blocks.Task(double, A.grid, lambda i: (A.read[A.block(i)], B.write[B.block(i)]), releases_gil=True))
        wants = lambda i: (B.read[B.block(i)], A.write[A.block(i)])  # noqa: E731
        report = s.run(blocks.Task(goes_on, A.grid, wants, releases_gil=True))
        assert report.repeated == 0
        use_all_memory(s)
        may_end.set()
        for thread in threads:
            thread.join()
    assert seen == [True] * 8


def double(a: Array, b: Array) -> None:
    b[...] = a


def test_a_subtask_waits_until_views_are_gone() -> None:
    """There is room for four blocks; the first subtasks keep them until the last of them has ended."""
    kept: list[Array] = []

    def keeps(b: Array) -> None:
        b[...] = 3
        kept.append(b)
        if len(kept) == 4:
            threading.Timer(0.05, kept.clear).start()

    with blocks.Session(workers=1, host_cache=4 * BLOCK) as s:
        B = s.space(shape=7 * BLOCK, dtype="u1", block=BLOCK)
        s.run(blocks.Task(keeps, B.grid, lambda i: B.write[B.block(i)], releases_gil=True))
        assert (B.array() == 3).all()
        kept.clear()


def test_what_only_cycles_refer_to_is_given_back() -> None:
    def keeps(b: Array) -> None:
        b[...] = 3
        in_a_cycle(b)

    gc.collect()
    gc.disable()
    try:
        with blocks.Session(workers=1, host_cache=4 * BLOCK) as s:
            B = s.space(shape=32 * BLOCK, dtype="u1", block=BLOCK)
            s.run(blocks.Task(keeps, B.grid, lambda i: B.write[B.block(i)], releases_gil=True))
            assert (B.array() == 3).all()
    finally:
        gc.enable()


def test_what_failed_calls_and_late_threads_have_is_not_used_again() -> None:
    """A call that ran into its limit cannot be stopped: its thread writes on, into memory that nobody else gets."""
    over, ended = threading.Event(), threading.Barrier(3)
    tracebacks: list[Any] = []

    def late(a: Array, b: Array, index: tuple[int, ...]) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            tracebacks.append(sys.exc_info()[2])
        over.wait(PATIENCE)
        b[...] = 77
        ended.wait(PATIENCE)

    with blocks.Session(workers=2, host_cache=16 * BLOCK) as s:
        A = s.space(np.full(BLOCK, 5, "u1"), block=BLOCK)
        wants = lambda i: (A.read[A.block(i)], A.write[A.block(i)])  # noqa: E731
        with pytest.raises(SubtaskError, match="longer than its limit"):
            s.run(blocks.Task(late, A.grid, wants, releases_gil=True, timeout=0.02))
        C = s.space(shape=8 * BLOCK, dtype="u1", block=BLOCK)
        s.run(blocks.Task(lambda c: c.fill(1), C.grid, lambda i: C.write[C.block(i)], releases_gil=True))
        over.set()
        ended.wait(PATIENCE)
        assert (C.array() == 1).all()
        use_all_memory(s)


# -- worker processes --------------------------------------------------------------------------------------------


def keeps_in_its_process(a: Array, b: Array, index: tuple[int, ...], kept: list[Any] = []) -> None:  # noqa: B006
    """Keep views; the last element of what is written says whether all that was kept is as it was."""
    kept.append((a[0], a, b[:-1]))
    b[...] = a[0]
    b[-1] = all((one == value).all() and (other == value).all() for value, one, other in kept)


def ends_its_process(a: Array) -> None:
    os._exit(3)


@pytest.mark.exhaustive
def test_views_in_worker_processes_keep_their_values_and_end_with_the_process() -> None:
    with blocks.Session(workers=1, host_cache=12 * BLOCK) as s:
        A = s.space(np.repeat(np.arange(4, dtype="u1"), BLOCK), block=BLOCK)
        B = s.space(shape=4 * BLOCK, dtype="u1", block=BLOCK)
        wants = lambda i: (A.read[A.block(i)], B.write[B.block(i)])  # noqa: E731
        keeping = blocks.Task(keeps_in_its_process, A.grid, wants)
        s.run(keeping)
        use_all_memory(s, 24)
        ends = [A.block(i)[0].stop - 1 for i in range(4)]
        assert [int(B[end : end + 1][0]) for end in ends] == [1, 1, 1, 1]
        with pytest.raises(SubtaskError, match="ended its worker process"):  # and with it all that it has kept
            s.run(blocks.Task(ends_its_process, [0], lambda i: A.read[A.block(i)]))
        for _ in range(2):
            with contextlib.suppress(SubtaskError):
                s.run(blocks.Task(ends_its_process, [0], lambda i: A.read[A.block(i)]))
            s.run(keeping)


# -- memory that runs out ------------------------------------------------------------------------------------------


class Node:
    """A node with room for four blocks, on which a function is called for one block after the other."""

    def __init__(self, folder: Path, function: Any) -> None:
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        store = BlockStore(4 * BLOCK, folder)
        lent = LentArrays(store, patience_seconds=0.0)
        self.node = BlockNode(0, store, partial(open_workers, 1), None, self.answers.put, lent=lent)  # type: ignore[arg-type]
        self.node.post(AddSpace(0, source_of(None, 99 * BLOCK, "u1")))
        self.node.post(AddFunction(1, BlockFunction(function, "keeps", releases_gil=True)))
        self.n = 0

    def call(self) -> Any:
        box = ((self.n * BLOCK, (self.n + 1) * BLOCK),)
        self.n += 1
        key = RangeKey(0, box)
        arguments = (BlockArgument("read", key), BlockArgument("write", key))
        origins = {key: (PartOrigin(box, PieceKey(0, 0, 0), box, FROM_SOURCE),)}
        self.node.post(WorkOrder(Subtask(1, self.n, (self.n,), arguments, 1), origins))
        return self.answers.get(timeout=PATIENCE)


def test_views_that_are_kept_for_ever_are_named_once_memory_is_needed(tmp_path: Path) -> None:
    kept: list[Array] = []
    here = Node(tmp_path, lambda a, b: kept.append(b))
    try:
        assert isinstance(here.call(), OrderDone)
        assert isinstance(here.call(), OrderDone)
        found = [here.call() for _ in range(3)]
        failed = next(one for one in found if isinstance(one, OrderFailed))
        assert isinstance(failed.error, ResourceError)
        message = r"held by views that functions have kept after their end: keeps \(\d arrays\); let them copy"
        with pytest.raises(ResourceError, match=message):
            raise failed.error
        kept.clear()
        assert isinstance(here.call(), OrderDone)
    finally:
        here.node.close()
