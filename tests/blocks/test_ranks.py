"""Sessions of several ranks: the same bits as one rank, few bytes, and losses. Ranks are threads of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan import blocks
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.applications.pagerank import pagerank
from tartan.blocks.cluster_crew import ClusterCrew, RankOptions, main
from tartan.cluster.thread_engine import ThreadHub
from tartan.errors import ClusterError, ConfigError, StoreError, SubtaskError

OPTIONS = RankOptions(host_cache=1 << 24, workers=1, folder="", n_sharing=1)
WAYS = [(1, "random"), (2, "grid"), (2, "row cyclic"), (3, "source"), (3, "column cyclic"), (4, "centralized")]


class Ranks:
    """Ranks in threads, which can be killed; ``kills`` says which one goes when a subtask begins."""

    def __init__(self) -> None:
        self.hub = ThreadHub()
        self.crew: ClusterCrew | None = None
        self.n_begun = 0
        self.kills: dict[int, list[str]] = {}
        self.lock = threading.Lock()
        self.end = self.hub.kill

    def start(self, name: str) -> None:
        threading.Thread(target=main, args=(self.hub.engine(name),), name=name, daemon=True).start()

    def begin(self) -> None:
        """Count a subtask."""
        with self.lock:
            self.n_begun += 1
            names = self.kills.pop(self.n_begun, [])
        for name in names:
            self.end(name)


RANKS = Ranks()


@contextlib.contextmanager
def session(
    n_ranks: int, rank_timeout: float = 60.0, open_crew: Callable[..., ClusterCrew] = ClusterCrew, **options: Any
) -> Iterator[blocks.Session]:
    global RANKS
    RANKS = ranks = Ranks()
    engine = ranks.hub.engine("driver")

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        ranks_to_start.start()
        yield engine
        engine.leave()

    def start_when_joined() -> None:
        while not engine.view().epoch:
            joined.wait(0.01)
        for number in range(n_ranks):
            ranks.start(f"rank-{number}")

    joined = threading.Event()
    ranks_to_start = threading.Thread(target=start_when_joined, daemon=True)
    crew = ranks.crew = open_crew(opened(), n_ranks, OPTIONS, rank_timeout_seconds=rank_timeout)
    with blocks.Session(crew, **options) as found:
        yield found


def one_rank() -> blocks.Session:
    return blocks.Session(workers=1)


RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((50, 33)), RNG.standard_normal((33, 41))
DOMINANT = RNG.uniform(-1, 1, (45, 45)) + 45 * np.eye(45)
EDGES = RNG.integers(0, 60, (300, 2))
KERNELS = [RNG.standard_normal((5, 5)), RNG.standard_normal((3, 7))]


def results(found: blocks.Session, place: Any) -> list[np.ndarray]:
    return [
        matmul(found, A, B, block=12, place=place)[0].array(),
        lu(found, DOMINANT, block=10, place=place)[0].array(),
        convolve(found, A, KERNELS, block=13, boundary="reflect", place=place)[0].array(),
        pagerank(found, EDGES, block=16, tolerance=0.01)[0].array(),
    ]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(("n_ranks", "place"), WAYS)
def test_every_number_of_ranks_gives_the_same_bits(n_ranks: int, place: str) -> None:
    with one_rank() as alone:
        expected = results(alone, "source")
    with session(n_ranks) as several:
        for one, other in zip(results(several, place), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def double(a: np.ndarray, b: np.ndarray) -> None:
    b[...] = 2 * a


def counted_add(around: np.ndarray, own: np.ndarray) -> None:
    RANKS.begin()
    own += around.sum()


def test_halos_alone_travel() -> None:
    """Blocks stay where they are; each of two ranks gets the rows of the other beside its own."""
    values = np.arange(16.0 * 8).reshape(16, 8)
    with session(2, steal=False) as s:
        old = s.space(values, block=(8, 8), place="row cyclic")
        new = s.space(like=values, block=(8, 8))
        wants = lambda i, j: (old.read[blocks.halo(old.block(i, j), 1, "clip")], new.write[new.block(i, j)])  # noqa: E731
        report = s.run(blocks.Task(middle, old.grid, wants, releases_gil=True))
        assert report.bytes_moved == 2 * 8 * 8
        assert report.per_rank == {0: 1, 1: 1}
        np.testing.assert_array_equal(new[:8], values[:8])


def middle(window: np.ndarray, out: np.ndarray) -> None:
    out[...] = window[: len(out)] if window[0, 0] == 0 else window[-len(out) :]


def test_a_range_that_many_subtasks_read_travels_once() -> None:
    values = RNG.standard_normal((4, 64))
    with session(2, steal=False) as s:
        A = s.space(values, block=(1, 64), place="centralized")
        C = s.space(shape=(4, 8), block=(1, 1))
        wants = lambda i, j: (A.read[i, :], C.write[i, j])  # noqa: E731
        report = s.run(blocks.Task(total, C.grid, wants, releases_gil=True))
        np.testing.assert_allclose(C.array(), np.repeat(values.sum(axis=1), 8).reshape(4, 8))
        assert report.bytes_moved == 2 * 64 * 8


@pytest.mark.slow
def test_ranks_write_their_blocks_themselves(tmp_path: Path) -> None:
    import zarr

    with session(3) as s:
        product = matmul(s, A, B, block=8, place="random")[0]
        before = s.total
        product.to_zarr(tmp_path / "c.zarr")
        stored = zarr.open_array(tmp_path / "c.zarr")
        assert stored.chunks == (8, 8)
        np.testing.assert_array_equal(stored[:], product.array())
        assert s.total == before
        with pytest.raises(StoreError, match="exists already"):
            product.to_zarr(tmp_path / "c.zarr")
        product.to_zarr(tmp_path / "c.zarr", overwrite=True)


@pytest.mark.slow
def test_a_rank_that_goes_while_results_are_written_is_made_up_for(tmp_path: Path) -> None:
    import zarr

    with session(3) as s:
        product = matmul(s, A, B, block=8, place="random")[0]
        RANKS.end("rank-1")
        product.to_zarr(tmp_path / "c.zarr")
        np.testing.assert_allclose(zarr.open_array(tmp_path / "c.zarr")[:], A @ B)


def test_owners_are_the_ranks_that_wrote() -> None:
    with session(2, steal=False) as s:
        A = s.space(np.ones((4, 4)), block=2, place="row cyclic")
        C = s.space(shape=(4, 4), block=2)
        assert s.owners(A).tolist() == [[0, 0], [1, 1]]
        assert s.owners(C).tolist() == [[-1, -1], [-1, -1]]
        wants = lambda i, j: (A.read[A.block(i, j)], C.write[C.block(i, j)])  # noqa: E731
        report = s.run(blocks.Task(copied, C.grid, wants, releases_gil=True))
        assert s.owners(C).tolist() == [[0, 0], [1, 1]]
        assert (report.ranges, report.hits) == (4, 0)
        D = s.space(shape=(4, 4), block=2, place=A)
        assert s.owners(D).tolist() == [[0, 0], [1, 1]]


def copied(a: np.ndarray, out: np.ndarray) -> None:
    out[...] = a


def total(row: np.ndarray, out: np.ndarray) -> None:
    out[...] = row.sum()


def steps(s: blocks.Session, n_steps: int = 4) -> np.ndarray:
    """Change a space in place some times; every step needs neighbours."""
    space = s.space(np.arange(24.0), block=3, place="random")
    for _ in range(n_steps):
        wants = lambda i: (space.read[blocks.halo(space.block(i), 2, "clip")], space.update[space.block(i)])  # noqa: E731
        s.run(blocks.Task(counted_add, space.grid, wants, releases_gil=True))
    return space.array()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(
    "kills", [{1: ["rank-0"]}, {13: ["rank-1"]}, {20: ["rank-0", "rank-2"]}, {9: ["rank-2"], 30: ["rank-1"]}]
)
def test_lost_ranks_change_nothing(kills: dict[int, list[str]], copies: int) -> None:
    with one_rank() as alone:
        expected = steps(alone)
    with session(3, copies=copies) as s:
        RANKS.kills = dict(kills)
        np.testing.assert_array_equal(steps(s), expected)
        assert s.total.ranks_lost == sum(map(len, kills.values()))
        assert s.total.per_rank


@pytest.mark.slow
def test_frozen_ranks_are_given_up() -> None:
    with one_rank() as alone:
        expected = steps(alone)
    with session(3, rank_timeout=0.5) as s:
        RANKS.end, RANKS.kills = RANKS.hub.freeze, {11: ["rank-1"]}
        np.testing.assert_array_equal(steps(s), expected)
        assert s.total.ranks_lost == 1
        RANKS.hub.thaw("rank-1")
        np.testing.assert_array_equal(s.spaces[0].array(), expected)


@pytest.mark.slow
def test_an_operator_learns_of_ranks_and_losses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tartan.blocks")
    with session(3) as s:
        RANKS.kills = {9: ["rank-1"]}
        steps(s)
    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "tartan.blocks"]
    assert len([text for _, text in told if " has come as number " in text]) == 3
    assert [text for level, text in told if level == "WARNING"] == ["rank rank-1 is lost: it was killed"]
    assert len([text for _, text in told if text.startswith("what lost rank ")]) == 1  # its number is drawn
    assert any(text.endswith(", 1 ranks lost") for _, text in told)
    assert len(told) < 30  # no line a subtask


def test_a_second_copy_saves_what_was_there() -> None:
    """With two copies the loss of a rank between tasks lets nothing be computed again."""
    with session(3, copies=2) as s:
        space = s.space(np.arange(24.0), block=3)
        wants = lambda i: (space.read[space.block(i)], space.write[space.block(i)])  # noqa: E731
        for name in ("rank-0", None):
            if name is not None:
                s.run(blocks.Task(double, space.grid, wants, releases_gil=True))
                RANKS.hub.kill(name)
        np.testing.assert_array_equal(space.array(), 2 * np.arange(24.0))
        assert s.total.repeated == 0


def test_values_are_computed_again_after_a_loss_between_tasks() -> None:
    with session(2) as s:
        space = s.space(np.arange(24.0), block=3)
        wants = lambda i: (space.read[space.block(i)], space.write[space.block(i)])  # noqa: E731
        for _ in range(3):
            s.run(blocks.Task(double, space.grid, wants, releases_gil=True))
        RANKS.hub.kill("rank-1")
        np.testing.assert_array_equal(space.array(), 8 * np.arange(24.0))


def test_what_is_lost_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    """No subtask of a time before the checkpoint runs again; the newest checkpoint counts, and new ranks know it."""
    with session(2, folder=tmp_path) as s:
        space = s.space(np.arange(24.0), block=3)
        wants = lambda i: (space.read[blocks.halo(space.block(i), 2, "clip")], space.update[space.block(i)])  # noqa: E731

        def step() -> None:
            s.run(blocks.Task(counted_add, space.grid, wants, releases_gil=True))

        with one_rank() as alone:
            expected = steps(alone, 5)
        RANKS.n_begun = 0
        step()
        s.checkpoint()
        step()
        s.checkpoint()
        RANKS.hub.kill("rank-1")
        while len(s.ranks) > 1:
            space.array()
        before = space.array()
        assert RANKS.n_begun == 16
        RANKS.start("late")
        while len(s.ranks) < 2:
            space.array()
        step()
        step()
        assert RANKS.n_begun == 32
        RANKS.hub.kill("rank-0")
        step()
        assert 40 < RANKS.n_begun <= 56
        np.testing.assert_array_equal(space.array(), expected)
        assert not np.array_equal(before, expected)


def test_a_rank_that_joins_gets_work() -> None:
    with session(1) as s:
        RANKS.start("late")
        assert RANKS.crew is not None
        while len(s.ranks) < 2:
            RANKS.crew.next_event(0.01)
        space = s.space(np.arange(64.0), block=1)
        wants = lambda i: (space.read[space.block(i)], space.write[space.block(i)])  # noqa: E731
        report = s.run(blocks.Task(double, space.grid, wants, releases_gil=True))
        assert sorted(report.per_rank or {}) == [0, 1]
        np.testing.assert_array_equal(space.array(), 2 * np.arange(64.0))


def fails(a: np.ndarray, b: np.ndarray) -> None:
    raise ValueError("never")


def test_errors_travel_and_the_session_stays_usable() -> None:
    with session(2) as s:
        space = s.space(np.ones(8), block=2)
        wants = lambda i: (space.read[space.block(i)], space.write[space.block(i)])  # noqa: E731
        with pytest.raises(SubtaskError, match="ValueError: never") as caught:
            s.run(blocks.Task(fails, space.grid, wants, releases_gil=True))
        assert "raise ValueError" in caught.value.context["traceback"]
        s.run(blocks.Task(double, space.grid, wants, releases_gil=True))
        np.testing.assert_array_equal(space.array(), 2.0)


def test_all_ranks_are_lost() -> None:
    with session(2) as s:
        space = s.space(np.arange(24.0), block=3)
        RANKS.kills = {3: ["rank-0", "rank-1"]}
        wants = lambda i: (space.read[space.block(i)], space.update[space.block(i)])  # noqa: E731
        with pytest.raises(ClusterError, match="no rank is left"):
            s.run(blocks.Task(counted_add, space.grid, wants, releases_gil=True))


def test_more_copies_than_ranks() -> None:
    with pytest.raises(ConfigError, match="there are 2 ranks"), session(2, copies=3):
        pass
