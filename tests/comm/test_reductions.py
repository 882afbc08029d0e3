"""Reductions, groups that end, waits for any of several requests, and objects: over the real arena and leaders."""

from __future__ import annotations

import operator
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest

from support.comm_threads import ThreadWorld
from tartan.comm import wait_any
from tartan.comm.communicator import Alone
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, DeadlockError, ResourceError

SIZES = [(4,), (2, 2), (1, 2, 1)]
both = pytest.mark.parametrize("sizes", SIZES, ids=str)
# mpi4py over MPICH returns the same for these arrays (Allreduce with SUM, PROD, MIN, MAX) where it takes their dtype:
# it refuses booleans, and the least and the largest of complex numbers.
FOLDS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def run(sizes: tuple[int, ...], call: Any) -> list[Any]:
    return ThreadWorld(sizes).run(call)


@both
@pytest.mark.parametrize("n", [1, 7, 20_000])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u8", "c16", "?"])
def test_elements_are_folded_as_numpy_folds_them(sizes, n, dtype) -> None:
    values = np.random.default_rng(n).integers(-9, 9, (4, n)).astype(dtype)

    def call(ranks):
        for op, fold in FOLDS.items():
            expected = reduce(fold, values)
            assert expected.dtype == values.dtype
            np.testing.assert_array_equal(ranks.all_reduce(values[ranks.rank], op), expected, strict=True)
            on_one = ranks.reduce(values[ranks.rank], op, root=2)
            assert (on_one is None) == (ranks.rank != 2)
            if on_one is not None:
                np.testing.assert_array_equal(on_one, expected, strict=True)

    run(sizes, call)


def test_dates_have_a_first_and_a_last_and_no_product() -> None:
    days = np.array(["2020-01-03", "2020-01-01", "NaT", "2020-01-02"], "M8[D]")

    def call(ranks):
        with pytest.raises(ConfigError, match="have no prod"):
            ranks.all_reduce(days[ranks.rank : ranks.rank + 1], "prod")
        with pytest.raises(ConfigError, match="'sum', 'prod', 'min', 'max' or a function"):
            ranks.all_reduce(days[:1], "mean")
        return [str(ranks.all_reduce(days[[2 * (ranks.rank % 2), 3]], op)[1]) for op in ("min", "max")]

    assert run((2, 2), call) == [["2020-01-02"] * 2] * 4


def compose(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Neither commutes nor works by element."""
    return first @ second


@both
@pytest.mark.parametrize("n", [2, 60])
def test_a_function_folds_whole_arrays_in_the_order_of_the_ranks(sizes, n) -> None:
    values = np.random.default_rng(3).integers(-3, 4, (4, n, n)).astype(float)
    expected = ((values[0] @ values[1]) @ values[2]) @ values[3]

    def call(ranks):
        return ranks.all_reduce(values[ranks.rank], compose)

    for found in run(sizes, call):
        np.testing.assert_array_equal(found, expected, strict=True)
    for found in run_ranks(4, call):
        np.testing.assert_array_equal(found, expected, strict=True)
    assert Alone().all_reduce(values[0], compose).tolist() == values[0].tolist()


@both
def test_a_function_that_spoils_its_arguments_spoils_nothing(sizes) -> None:
    def into_first(one, two):
        with pytest.raises(ValueError, match="read-only"):
            two += 1
        one += two
        return one

    def call(ranks):
        mine = np.full(5000, ranks.rank + 1.0)
        assert ranks.all_reduce(mine, into_first).tolist() == [10.0] * 5000
        assert mine.tolist() == [ranks.rank + 1.0] * 5000
        for wrong in (lambda one, two: one[:1], lambda one, two: one * 1j, lambda one, two: None):
            with pytest.raises(ConfigError, match="return an array like them"):
                ranks.all_reduce(mine, wrong)
        return float(ranks.all_reduce(mine, np.subtract)[0])

    assert run(sizes, call) == [((1.0 - 2) - 3) - 4] * 4


@both
def test_other_functions_are_a_mismatch_and_errors_are_those_of_the_user(sizes) -> None:
    def fails(one, two):
        raise KeyError("mine")

    def call(ranks):
        with pytest.raises(KeyError, match="mine"):
            ranks.all_reduce(np.ones(2), fails)
        try:
            ranks.all_reduce(np.ones(2), operator.add if ranks.rank else np.multiply)
        except DeadlockError as error:
            return "all_reduce by add" in str(error)
        return False

    assert run(sizes, call) == [True] * 4


@pytest.mark.parametrize(
    ("sizes", "turns"),
    [((2, 2), 40), ((1, 2, 1), 40), pytest.param((4,), 1100, marks=pytest.mark.slow)],  # room is for 1,023 at a time
    ids=str,
)
def test_groups_that_are_freed_make_room_for_others(sizes, turns) -> None:
    def call(ranks):
        kept = ranks.split(ranks.rank % 2)
        total = 0.0
        for turn in range(turns):
            group = ranks.split(turn % 2 if ranks.rank % 2 else 0, key=-ranks.rank)
            total += float(group.all_reduce(np.array([1.0]))[0])
            if turn % 20 == 0:  # large results, which take memory
                assert group.all_reduce(np.full(9000, 2.0), "min").tolist() == [2.0] * 9000
            group.free()
        assert kept.all_reduce(np.array([ranks.rank]), "max").tolist() == [2 + ranks.rank % 2]
        return total

    assert run(sizes, call) == [turns / 2 * 4 + turns / 2 * 2] * 4


def test_a_group_that_was_freed_is_refused_and_that_of_all_cannot_be() -> None:
    def call(ranks):
        group = ranks.split(0)
        begun = group.irecv(source=1 - group.rank)
        group.isend(np.array([group.rank]), 1 - group.rank).wait() if group.rank else None
        if not group.rank:
            assert begun.wait().tolist() == [1]
            group.isend(np.array([7]), 1)
        group.free()
        if ranks.rank:
            assert begun.wait().tolist() == [7]  # what was begun is ended
        for one in (group.barrier, group.free, lambda: group.send(1, 0), lambda: group.recv(), lambda: group.split(0)):
            with pytest.raises(ConfigError, match="was freed"):
                one()
        with pytest.raises(ConfigError, match="all ranks cannot be freed"):
            ranks.free()
        ranks.barrier()

    run((2,), call)
    run((1, 1), call)


def test_a_free_that_not_all_call_is_named() -> None:
    def call(ranks):
        group = ranks.split(0)
        try:
            group.free() if ranks.rank else group.barrier()
        except DeadlockError as error:
            return "calls free" in str(error)

    assert run((2,), call) == [True, True]


@both
def test_a_wait_for_any_returns_what_has_come_first(sizes) -> None:
    def call(ranks):
        if ranks.rank:
            for turn in range(3):
                ranks.recv(source=0, tag=9)
                ranks.send(np.array([10 * ranks.rank + turn]), 0, tag=turn)
            return None
        found = []
        open_ones = {source: ranks.irecv(source=source) for source in (1, 2, 3)}
        for source in (2, 1, 3, 3, 1, 1, 2, 2, 3):  # the order in which they may send
            ranks.send(0, source, tag=9)
            names = sorted(open_ones)
            place, got = wait_any([open_ones[name] for name in names])
            assert names[place] == source
            found.append(int(got[0]))
            open_ones[source] = ranks.irecv(source=source)
        assert not any(one.test() for one in open_ones.values())
        for source in (1, 2, 3):
            ranks.isend(0, 0)
            assert open_ones[source].test() is False
        return found

    assert run(sizes, call)[0] == [20, 10, 30, 31, 11, 12, 21, 22, 32]


@both
def test_many_requests_are_waited_for_one_after_the_other(sizes) -> None:
    def call(ranks):
        n, me = 40, ranks.rank
        if me:
            sends = [ranks.isend(np.array([me, k]), 0, tag=k) for k in range(n)]
            while sends:
                del sends[wait_any(sends)[0]]
            return None
        receives, found = [ranks.irecv() for _ in range(3 * n)], set()
        while receives:
            place, got = wait_any(receives)
            with pytest.raises(ConfigError, match="waited for already"):
                wait_any([receives[place]])
            del receives[place]
            found.add(tuple(map(int, got)))
        return len(found)

    assert run(sizes, call)[0] == 120


def test_waits_for_any_that_cannot_end_are_named_and_wrong_ones_refused() -> None:
    def call(ranks):
        with pytest.raises(ConfigError, match="one request or more"):
            wait_any([])
        with pytest.raises(ConfigError, match="is not a request"):
            wait_any([3])
        ranks.barrier()
        with pytest.raises(DeadlockError, match="all ranks wait and nothing is under way"):
            wait_any([ranks.irecv(source=1 - ranks.rank, tag=tag) for tag in range(9)])

    run((2,), call)
    run((1, 1), call)


@both
def test_objects_arrive_as_they_were(sizes) -> None:
    things = [None, {"a": [1, 2.5]}, Fraction(1, 3), "text", b"", np.arange(30_000), (ValueError("x"),), 10**40, {3, 4}]

    def call(ranks):
        to, source = (ranks.rank + 1) % 4, (ranks.rank - 1) % 4
        for thing in things:
            if ranks.rank % 2:
                got = ranks.receive_object(source)
                ranks.send_object(thing, to, tag=4)
            else:
                ranks.send_object(thing, to)
                got = ranks.receive_object(tag=4)
            assert type(got) is type(thing)
            assert repr(got) == repr(thing)

    run(sizes, call)


def test_arrays_are_no_objects_and_what_has_no_pickle_is_refused() -> None:
    def call(ranks):
        if ranks.rank:
            with pytest.raises(ConfigError, match="cannot be sent as a pickle"):
                ranks.send_object(iter(lambda: 1, 2) and (x for x in ()), 0)
            for wrong in (np.arange(3), np.zeros(0, np.uint8), np.frombuffer(b"\x80\x05N.", np.uint8)):
                ranks.send(wrong, 0, tag=5)
            return
        for _ in range(3):
            with pytest.raises(ConfigError, match=r"rank 1 with tag 5 is an array .* no object; receive it with recv"):
                ranks.receive_object(1)

    run((2,), call)


@both
def test_large_messages_between_nodes_arrive_whole_and_their_memory_is_free_again(sizes) -> None:
    values = np.random.default_rng(9).integers(0, 255, 3 << 20, dtype=np.uint8)

    def call(ranks):
        to, source = (ranks.rank + 1) % 4, (ranks.rank - 1) % 4
        for turn, n in enumerate([70_000, 65_400, 65_536 - 96, 3 << 20, 3 << 20, 3 << 20, 1]):
            got = ranks.sendrecv(values[:n] + np.uint8(ranks.rank), to, source, tag=turn)
            np.testing.assert_array_equal(got, values[:n] + np.uint8(source))

    try:
        run(sizes, call)
    except ResourceError as error:  # blocks that were not given back would fill the memory of a small world
        pytest.fail(str(error))
