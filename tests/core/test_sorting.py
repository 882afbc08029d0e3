"""The policy of a sort on several ranks, in virtual time: no file, no thread, no key that is not made up here."""

from __future__ import annotations

import bisect
import heapq
import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from tartan.core.sorting.conductor import (
    AllWritten,
    CutThese,
    MergeThis,
    SampleThese,
    SortAction,
    SortConductor,
    SortRank,
    SortThese,
    Stuck,
)
from tartan.core.sorting.shares import (
    ChunkGrid,
    RunSample,
    SortSplitter,
    choose_splitters,
    cut_input,
    divide_by_room,
    divide_evenly,
    plan_parts,
    sizes_of,
)
from tartan.errors import ConfigError

KEYS: dict[str, Callable[[int, random.Random], list[int]]] = {
    "uniform": lambda n, chance: [chance.randrange(1 << 30) for _ in range(n)],
    "equal": lambda n, chance: [7] * n,
    "two": lambda n, chance: [chance.randrange(2) for _ in range(n)],
    "zipf": lambda n, chance: [min(1 << 30, int(1 / max(1e-9, chance.random()))) for _ in range(n)],
    "sorted": lambda n, chance: list(range(n)),
    "reversed": lambda n, chance: list(range(n, 0, -1)),
    "saw": lambda n, chance: [i % 97 for i in range(n)],
    "one rare": lambda n, chance: [0] * (n - 1) + [1],
}


class Runs:
    """Sorted runs of all chunks, and exact answers to what ranks are asked."""

    def __init__(self, keys: Sequence[int], grid: ChunkGrid) -> None:
        self.grid = grid
        self.runs = [sorted(keys[slice(*grid.range_of(chunk))]) for chunk in range(grid.n_chunks)]

    def sample(self, chunk: int, step: int) -> RunSample:
        return RunSample(chunk, step, tuple(key.to_bytes(8, "big") for key in self.runs[chunk][::step]))

    def cut(self, chunk: int, splitters: Sequence[SortSplitter]) -> list[int]:
        return [self._count(chunk, splitter) for splitter in splitters]

    def _count(self, chunk: int, splitter: SortSplitter) -> int:
        if chunk == splitter.chunk:
            return splitter.place
        find = bisect.bisect_right if splitter.cuts_behind_equal(chunk) else bisect.bisect_left
        return find(self.runs[chunk], int.from_bytes(splitter.key, "big"))


@pytest.mark.parametrize("name", list(KEYS))
@pytest.mark.parametrize(("n", "capacity", "n_ranks"), [(20_000, 1_500, 4), (5_000, 5_000, 3), (30_000, 4_000, 16)])
def test_parts_fit_and_shares_are_balanced(name: str, n: int, capacity: int, n_ranks: int) -> None:
    keys = KEYS[name](n, random.Random(2))
    grid = cut_input(n, capacity, n_ranks)
    runs, plan = Runs(keys, grid), plan_parts(grid, capacity, n_ranks)
    samples = [runs.sample(chunk, plan.sample_step) for chunk in range(grid.n_chunks)]
    splitters = choose_splitters(samples, grid, plan.n_parts)
    cuts = [runs.cut(chunk, splitters) for chunk in range(grid.n_chunks)]
    sizes = sizes_of(cuts, grid)
    assert sum(sizes) == n
    assert max(sizes) <= capacity
    conductor = ready(SortConductor(grid), [SortRank(f"r{i}") for i in range(n_ranks)], runs, splitters)
    assert max(conductor.shares.values()) <= 1.1 * n / n_ranks
    # The pieces of the parts, each sorted by itself, follow each other: that is the whole of a merge.
    ends = [[0, *cut, grid.count(chunk)] for chunk, cut in enumerate(cuts)]
    parts = [
        sorted(key for chunk, run in enumerate(runs.runs) for key in run[ends[chunk][p] : ends[chunk][p + 1]])
        for p in range(len(sizes))
    ]
    assert list(itertools.chain(*parts)) == sorted(keys)


def ready(
    conductor: SortConductor, ranks: Sequence[SortRank], runs: Runs, splitters: Sequence[SortSplitter]
) -> SortConductor:
    """Have ranks do at once all that they are told."""
    actions: list[SortAction] = []
    for each in ranks:
        actions += conductor.join(each)
    actions += conductor.next()
    while actions:
        match actions.pop(0):
            case SortThese(rank, chunks):
                for chunk in chunks:
                    actions += conductor.note_sorted(rank, chunk)
            case SampleThese(rank, chunks):
                for chunk in chunks:
                    actions += conductor.note_sampled(rank, chunk)
                if conductor.needs_splitters:
                    actions += conductor.set_splitters()
            case CutThese(_, chunks):
                for chunk in chunks:
                    actions += conductor.note_cut(chunk, runs.cut(chunk, splitters))
            case MergeThis(rank, part):
                actions += conductor.note_written(rank, part)
            case AllWritten():
                return conductor
            case Stuck(what):
                raise AssertionError(what)
    raise AssertionError("nothing is left to do, and not all is written")


class Cluster:
    """Ranks in virtual time, some of which are lost at chosen moments."""

    def __init__(self, n_ranks: int, losses: dict[str, float], seed: int) -> None:
        self.chance = random.Random(seed)
        n = 3_000
        self.grid = cut_input(n, 200, n_ranks)
        self.runs = Runs(KEYS["uniform"](n, self.chance), self.grid)
        self.plan = plan_parts(self.grid, 500, n_ranks)
        self.conductor = SortConductor(self.grid)
        self.names = [f"r{i}" for i in range(n_ranks)]
        self.dead: set[str] = set()
        self.samples: dict[int, RunSample] = {}
        self.splitters: list[SortSplitter] = []
        self.sorted: list[tuple[str, int]] = []
        self.written: dict[int, str] = {}
        self.stuck = ""
        self.over = False
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], list[SortAction]]]] = []
        self.numbers = itertools.count()
        for name, moment in losses.items():
            self.later(moment, lambda name=name: self.lose(name))  # type: ignore[misc]

    def later(self, delay: float, act: Callable[[], list[SortAction]]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.numbers), act))

    def lose(self, name: str) -> list[SortAction]:
        self.dead.add(name)
        return self.conductor.lose(name)

    def run(self) -> None:
        for name in self.names:
            self.take(self.conductor.join(SortRank(name)))
        self.take(self.conductor.next())
        while self.events and not self.over and not self.stuck:
            self.now, _, act = heapq.heappop(self.events)
            self.take(act())
            self.take(self.conductor.next())

    def take(self, actions: Sequence[SortAction]) -> None:
        for action in actions:
            self.start(action)

    def start(self, action: SortAction) -> None:
        match action:
            case SortThese(rank, chunks):
                for number, chunk in enumerate(chunks):
                    self.by(rank, 1.0 + number, lambda r=rank, c=chunk: self.end_sort(r, c))  # type: ignore[misc]
            case SampleThese(rank, chunks):
                for chunk in chunks:
                    self.by(rank, 0.1, lambda r=rank, c=chunk: self.end_sample(r, c))  # type: ignore[misc]
            case CutThese(rank, chunks):
                for chunk in chunks:
                    self.by(rank, 0.1, lambda c=chunk: self.end_cut(c))  # type: ignore[misc]
            case MergeThis():
                self.by(action.rank, 1.0, lambda a=action: self.end_merge(a))  # type: ignore[misc]
            case Stuck(what):
                self.stuck = what
            case AllWritten():
                self.over = True

    def by(self, rank: str, seconds: float, act: Callable[[], list[SortAction]]) -> None:
        """Do something unless the rank is lost meanwhile."""
        self.later(seconds * self.chance.uniform(0.5, 1.5), lambda: [] if rank in self.dead else act())

    def end_sort(self, rank: str, chunk: int) -> list[SortAction]:
        self.sorted.append((rank, chunk))
        return self.conductor.note_sorted(rank, chunk)

    def end_sample(self, rank: str, chunk: int) -> list[SortAction]:
        self.samples[chunk] = self.runs.sample(chunk, self.plan.sample_step)
        actions = self.conductor.note_sampled(rank, chunk)
        if self.conductor.needs_splitters:
            self.splitters = choose_splitters([*self.samples.values()], self.grid, self.plan.n_parts)
            actions += self.conductor.set_splitters()
        return actions

    def end_cut(self, chunk: int) -> list[SortAction]:
        return self.conductor.note_cut(chunk, self.runs.cut(chunk, self.splitters))

    def end_merge(self, action: MergeThis) -> list[SortAction]:
        if any(keeper in self.dead for _, keeper, _, _ in action.pieces):
            self.conductor.take_back(action.rank, action.part)
            return []
        assert action.part not in self.written, "a part that is written is not merged again"
        self.written[action.part] = action.rank
        return self.conductor.note_written(action.rank, action.part)


@pytest.mark.parametrize("seed", range(40))
def test_whoever_is_lost_at_any_moment_all_is_written_once(seed: int) -> None:
    chance = random.Random(seed)
    losses = {f"r{i}": chance.uniform(0, 12) for i in chance.sample(range(4), chance.choice([1, 2, 3]))}
    cluster = Cluster(4, losses, seed)
    cluster.run()
    assert cluster.over, cluster.stuck
    sizes = sizes_of([cluster.runs.cut(c, cluster.splitters) for c in range(cluster.grid.n_chunks)], cluster.grid)
    assert sorted(cluster.written) == list(range(len(sizes)))
    # Runs of ranks that live are made once.
    made = [chunk for rank, chunk in cluster.sorted if rank not in cluster.dead]
    assert len(made) == len(set(made))


def test_without_ranks_there_is_nothing_to_do() -> None:
    cluster = Cluster(2, {"r0": 1.0, "r1": 2.0}, 0)
    cluster.run()
    assert not cluster.over
    assert cluster.conductor.next() == []


def test_ranks_beside_the_data_sort_and_others_merge() -> None:
    conductor = SortConductor(ChunkGrid(100, 10))
    for rank in (SortRank("near", storage=True, writes=False), SortRank("far", reads=False), SortRank("both")):
        conductor.join(rank)
    (action,) = conductor.next()
    assert action == SortThese("near", tuple(range(10)))
    assert (conductor.readers, conductor.writers) == (["near"], ["far", "both"])
    assert conductor.lose("near") == [SortThese("both", tuple(range(10)))]
    assert conductor.lose("both") == [Stuck("no rank that sees the sources is left")]


@pytest.mark.parametrize("name", ["sorted", "reversed"])
def test_what_is_in_order_is_merged_where_it_lies(name: str) -> None:
    grid = cut_input(8_000, 500, 4)
    runs, plan = Runs(KEYS[name](8_000, random.Random(1)), grid), plan_parts(grid, 1_000, 4)
    splitters = choose_splitters(
        [runs.sample(chunk, plan.sample_step) for chunk in range(grid.n_chunks)], grid, plan.n_parts
    )
    conductor = SortConductor(grid, ahead=100)
    actions: list[SortAction] = []
    for i in range(4):
        conductor.join(SortRank(f"r{i}"))
    for action in conductor.next():
        assert isinstance(action, SortThese)
        for chunk in action.chunks:
            conductor.note_sorted(action.rank, chunk)
    for chunk in range(grid.n_chunks):
        conductor.note_sampled("", chunk)
    conductor.set_splitters()
    for chunk in range(grid.n_chunks):
        actions += conductor.note_cut(chunk, runs.cut(chunk, splitters))
    merges = [action for action in actions if isinstance(action, MergeThis)]
    crossing = sum(end - begin for merge in merges for _, keeper, begin, end in merge.pieces if keeper != merge.rank)
    assert sorted(merge.part for merge in merges) == list(range(plan.n_parts))
    assert crossing <= 0.05 * grid.n_records


def test_runs_that_are_there_are_not_made_again() -> None:
    conductor = SortConductor(ChunkGrid(60, 10))
    conductor.join(SortRank("a"), [0, 1, 4])
    conductor.join(SortRank("b"), [1, 2])
    assert conductor.next() == [SortThese("a", (3,)), SortThese("b", (5,))]
    assert conductor.n_sorted == 4


def test_a_disk_that_is_too_small_gets_less_and_none_is_said() -> None:
    conductor = SortConductor(ChunkGrid(60, 10))
    for rank in (SortRank("a", room=1), SortRank("b")):
        conductor.join(rank)
    assert conductor.next() == [SortThese("a", (0,)), SortThese("b", (1, 2, 3, 4, 5))]
    (stuck,) = conductor.lose("b")
    assert isinstance(stuck, Stuck)
    assert "no room" in stuck.what


@pytest.mark.parametrize(
    "rooms", [{"a": 0, "b": 5, "c": 5}, {"a": 9, "b": 9, "c": 9}, {"a": 1, "b": 2, "c": 3}, {"a": -2}]
)
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7])
def test_rooms_are_kept(rooms: dict[str, int], n: int) -> None:
    shares, left = divide_by_room(range(n), rooms)
    given = [number for share in shares.values() for number in share]
    assert given == list(range(n - left))
    assert left == max(0, n - sum(max(0, room) for room in rooms.values()))
    assert all(len(share) <= rooms[name] for name, share in shares.items())
    if left == 0 and min(rooms.values()) >= n:
        assert max(map(len, shares.values()), default=0) <= -(-n // len(rooms))


def test_even_shares_are_neighbours() -> None:
    assert divide_evenly([3, 4, 8], ["a", "b", "c", "d"]) == {"b": (3,), "c": (4,), "d": (8,)}
    assert divide_evenly([], ["a"]) == {}


@pytest.mark.slow
def test_buffers_that_are_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match="give more memory") as caught:
        plan_parts(ChunkGrid(10**10, 10_000), 10_000, 4)
    assert caught.value.code == "memory"
