"""Tasks that subscribe once for all, with arrays of indices, are the tasks that subscribe index by index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tartan import blocks
from tartan.blocks import Session
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import RunTable
from tartan.blocks.schedule import BlockSchedule, schedule_subtasks
from tartan.blocks.task import Task, refuse_conflicts
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.placement import place_blocks
from tartan.core.blocks.task_divider import TaskDivider
from tartan.errors import ConfigError

Subscribe = Callable[..., Any]
N_RANKS = 3


def nothing(*arrays: Any) -> None:
    """Do nothing."""


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(workers=1) as found:
        yield found


def jobs_of(task: Task, directory: BlockDirectory) -> RunTable:
    return RunTable(1, [(task.table, task.function)], directory.parts_of)


def spread(session: Session) -> BlockDirectory:
    """Return a directory of the spaces of a session, their blocks spread over ranks at random."""
    directory = BlockDirectory()
    for space in session.spaces.values():
        directory.add(space, place_blocks(space.counts, "random", N_RANKS, space.number).tolist())
    return directory


def schedule(jobs: RunTable, directory: BlockDirectory) -> BlockSchedule:
    return schedule_subtasks(jobs, directory, TaskDivider(), range(N_RANKS), 1e9)


def product(session: Session) -> tuple[Any, Subscribe, Subscribe]:
    a, b = (session.space(np.ones(shape), block=4) for shape in ((18, 11), (11, 22)))
    c = session.space(shape=(18, 22), block=4)

    def wants(i: Any, j: Any) -> Any:
        rows, columns = c.block(i, j)
        return a.read[rows, :], b.read[..., columns], c.write[rows, columns]

    return c.grid, wants, wants


def stencil(boundary: Any) -> Callable[[Session], tuple[Any, Subscribe, Subscribe]]:
    def of(session: Session) -> tuple[Any, Subscribe, Subscribe]:
        old, new = (session.space(np.ones((17, 20, 3)), block=(5, 5, 3)) for _ in "ab")

        def wants(*index: Any) -> Any:
            where = new.block(*index)
            return old.read[blocks.halo(where, (2, 1, 0), boundary)], new.write[where]

        return new.grid, wants, wants

    return of


def trailing(session: Session) -> tuple[Any, Subscribe, Subscribe]:
    a = session.space(np.ones((20, 20)), block=4)

    def wants(i: Any, j: Any) -> Any:
        return a.read[a.block(i, 1)], a.read[a.block(1, j)], a.update[a.block(i, j)]

    return [(i, j) for i in range(2, 5) for j in range(2, 5)], wants, wants


def bands(session: Session) -> tuple[Any, Subscribe, Subscribe]:
    """As in page rank: every subtask reads blocks of its own number, some of them none."""
    old, new = (session.space(np.ones(30), block=6) for _ in "ab")
    links = np.array([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0]], bool)

    def each(i: int) -> Any:
        return [new.write[new.block(i)], *(old.read[old.block(k)] for k in range(5) if links[i, k])]

    def at_once(i: Any) -> Any:
        return [new.write[new.block(i)], *(old.read[old.block(k)].only(links[i, k]) for k in range(5))]

    return range(5), each, at_once


FORMS = {
    "product": product,
    "stencil": stencil("reflect"),
    "clipped": stencil("clip"),
    "LU": trailing,
    "page rank": bands,
}


@pytest.mark.parametrize("name", FORMS)
def test_both_forms_are_the_same_jobs_and_the_same_schedule(name: str, session: Session) -> None:
    grid, each, at_once = FORMS[name](session)
    directory = spread(session)
    one, other = (
        jobs_of(task, directory) for task in (Task(nothing, grid, each), Task(nothing, grid, at_once, at_once=True))
    )
    assert len(one) == len(other) == len(list(grid))
    for k in range(len(one)):
        assert one[k] == other[k]
        assert one.parts_of(one[k]) == other.parts_of(other[k])
    assert schedule(one, directory) == schedule(other, directory)
    assert set(schedule(one, directory).ranks) == set(range(N_RANKS))


@pytest.mark.parametrize("name", FORMS)
def test_needs_and_what_ranks_hold_are_those_of_single_subtasks(name: str, session: Session) -> None:
    grid, each, _ = FORMS[name](session)
    directory = spread(session)
    directory.make_assignment(jobs_of(Task(nothing, grid, each), directory), range(N_RANKS))
    for number, space in directory.spaces.items():  # a piece across blocks, with two copies, and one on a lost rank
        box = tuple((length // 3, 2 * length // 3) for length in space.shape)
        piece = PieceKey(1, number, 0)
        for rank in range(number % 2 + 1):
            directory.note(piece, box, rank)
        assert directory.commit(1, {number: [(piece, box)]}) <= {PieceKey(0, number, k) for k in range(99)}
    directory.note(PieceKey(1, 0, 0), directory.boxes[PieceKey(1, 0, 0)], 2)
    directory.lose(1)
    jobs = jobs_of(Task(nothing, grid, each), directory)
    task = directory.make_assignment(jobs, range(N_RANKS))
    for k in range(len(jobs)):
        units = task.demand.units[task.demand.starts[k] : task.demand.starts[k + 1]]
        reads = jobs.parts_of(jobs[k])
        assert len(units) == len(reads)
        needs = directory.needs(reads)
        sizes = [sum(size for (key, _), size in needs.items() if key == wanted) for wanted in reads]
        assert sorted(task.demand.sizes[units].tolist()) == sorted(sizes)
        for rank in range(N_RANKS):
            held = sum(size for (_, part), size in needs.items() if directory.has(rank, part))
            assert task.held[rank, units].sum() == held


def test_owners_are_those_of_the_newest_pieces(session: Session) -> None:
    a = session.space(np.ones(12), block=3)
    directory = BlockDirectory()
    directory.add(a, [0, 1, 2, 0])
    assert directory.owners(a).tolist() == [0, 1, 2, 0]
    key, box = PieceKey(1, 0, 0), ((2, 6),)
    directory.note(key, box, 2)
    assert directory.owners(a).tolist() == [0, 1, 2, 0]
    assert directory.commit(1, {0: [(key, box)]}) == {PieceKey(0, 0, 1)}
    assert directory.owners(a).tolist() == [2, 2, 2, 0]
    directory.lose(2)
    assert directory.owners(a).tolist() == [-1, -1, -1, 0]
    directory.note(key, box, 1)
    assert directory.owners(a).tolist() == [1, 1, -1, 0]


@pytest.mark.parametrize("at_once", [False, True])
def test_results_are_the_same_bits(at_once: bool, session: Session) -> None:
    values = np.random.default_rng(0).standard_normal((23, 17))
    old, new = session.space(values, block=5), session.space(like=values, block=5)

    def smooth(window: Any, out: Any, index: tuple[int, int]) -> None:
        out[...] = (window[:-2, 1:-1] + window[2:, 1:-1]) / 3 + sum(index)

    def wants(i: Any, j: Any) -> Any:
        block = new.block(i, j)
        return old.read[blocks.halo(block, 1, "reflect")], new.write[block]

    session.run(Task(smooth, new.grid, wants, releases_gil=True, at_once=at_once))
    padded = np.pad(values, 1, mode="symmetric")
    places = np.add.outer(np.arange(23) // 5, np.arange(17) // 5)
    np.testing.assert_array_equal(new.array(), (padded[:-2, 1:-1] + padded[2:, 1:-1]) / 3 + places)


@pytest.mark.parametrize(
    "wants",
    [
        lambda a, i: a.read[i + 8],
        lambda a, i: a.read[-11 * (i + 1)],
        lambda a, i: a.read[slice(i, i)],
        lambda a, i: a.read[slice(i, i + 5, 2)],
        lambda a, i: a.read[slice(i, i + 9)],
        lambda a, i: a.read[a.block(i + 2)],
        lambda a, i: (a.write[a.block(i)], a.write[0:1]),
        lambda a, i: a.write[slice(0 * i, i + 1)],
        lambda a, i: (),
        lambda a, i: [3],
        lambda a, i: a.read[i, i],
        lambda a, i: a.read[1.5 * i],
    ],
)
def test_both_forms_refuse_the_same(wants: Subscribe, session: Session) -> None:
    a = session.space(np.ones(10), block=3)
    for at_once in (False, True):
        with pytest.raises(ConfigError):
            refuse_conflicts([Task(nothing, range(3), lambda i: wants(a, i), at_once=at_once)])


def test_messages_name_the_same_subtasks(session: Session) -> None:
    a, b = session.space(np.ones(12), block=3), session.space(np.ones(12), block=3)
    messages = []
    for at_once in (False, True):
        writes = Task(nothing, range(4), lambda i: (b.read[a.block(i)], a.write[a.block(i // 2)]), at_once=at_once)
        reads = Task(nothing, range(2), lambda i: (a.read[a.block(i + 2)], b.write[b.block(i)]), at_once=at_once)
        apart = Task(nothing, range(4), lambda i: a.update[a.block(i)], at_once=at_once)
        for tasks in ([writes], [apart, reads]):
            with pytest.raises(ConfigError) as refused:
                refuse_conflicts(tasks)
            messages.append(str(refused.value))
    assert messages[:2] == messages[2:]
    assert "subtask (0,) of nothing and subtask (1,) of nothing both write [0:3] of space 0" in messages[0]
    assert "subtask (0,) of nothing reads [6:9] of space 0, which subtask (2,)" in messages[1]


def test_arrays_of_the_wrong_length_are_refused(session: Session) -> None:
    a = session.space(np.ones(12), block=3)
    two = np.arange(2)
    cases: list[Subscribe] = [
        lambda i: a.read[a.block(two)],
        lambda i: a.read[a.block(i)].only(two > 0),
        lambda i: a.read[a.block(i)].only(i),
        lambda i: a.read[slice(i, two + 1)],
    ]
    for wants in cases:
        with pytest.raises(ConfigError, match=r"subtasks|truth|elements"):
            Task(nothing, range(3), wants, at_once=True)
    with pytest.raises(ConfigError, match="same length"):
        Task(nothing, [(1,), (1, 2)], lambda *index: a.read[0:1], at_once=True)
    with pytest.raises(ConfigError, match=r"subtask \(1,\) subscribes to nothing"):
        Task(nothing, range(3), lambda i: a.read[a.block(i)].only(i != 1), at_once=True)
    assert len(Task(nothing, [], lambda *index: a.read[0:1], at_once=True).table) == 0
