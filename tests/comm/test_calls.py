"""Ranks over the real arena, proxy and leaders, in threads: the kit, messages, collectives, groups, deadlocks."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.comm_threads import ThreadWorld
from tartan import comm
from tartan.comm.communicator import partition
from tartan.errors import ConfigError, DeadlockError, RankLostError, ResourceError
from tartan.testing.communicator_kit import CommunicatorKit

ONE, TWO = (3,), (2, 1)


def run(sizes, function):
    return ThreadWorld(sizes).run(function)


class TestOneNode(CommunicatorKit):
    sizes = (1, 2, 3, 7)

    def run(self, size, function):
        return run((size,), function)


class TestSeveralNodes(CommunicatorKit):
    sizes = (2, 5)

    def run(self, size, function):
        return run(tuple(stop - start for start, stop in partition(size, 2)), function)


both = pytest.mark.parametrize("sizes", [ONE, TWO, (1, 1, 1)], ids=str)


@both
@pytest.mark.parametrize(
    "array",
    [
        np.arange(3.0),
        np.float32(7),
        np.zeros(0, np.int16),
        np.arange(6).reshape(2, 3),
        np.arange(30_000, dtype=">i4").reshape(3, -1),
        np.array(["text", "more"]),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        np.array([True, False]),
        np.arange(20)[::3],
        memoryview(np.arange(6, dtype=np.uint8))[::2],
    ],
    ids=lambda array: f"{np.asarray(array).dtype.kind}{array.shape}",
)
def test_arrays_arrive_as_they_were(sizes, array) -> None:
    def call(ranks):
        if ranks.rank == 0:
            ranks.send(array, to=2, tag=4)
        elif ranks.rank == 2:
            return ranks.recv(source=0, tag=4)
        return None

    found = run(sizes, call)[2]
    np.testing.assert_array_equal(found, array, strict=True)


@both
def test_a_buffer_receives_less_than_it_holds_and_the_status_says_how_much(sizes) -> None:
    def call(ranks):
        if ranks.rank == 2:
            ranks.send(b"abcde", to=0, tag=9)
        if ranks.rank == 0:
            out, status = np.zeros(100, np.uint8), comm.Status()
            assert ranks.recv(out, status=status) is out
            return bytes(out[:6]), status.source, status.tag, status.n_bytes
        return None

    assert run(sizes, call)[0] == (b"abcde\0", 2, 9, 5)


@both
@pytest.mark.parametrize("n", [4, 4000])
def test_both_ranks_are_told_that_a_message_is_too_long(sizes, n) -> None:
    def call(ranks):
        if ranks.rank == 1:
            return
        out = np.zeros(n - 1)
        begin = (lambda: ranks.send(np.ones(n), to=2)) if ranks.rank == 0 else (lambda: ranks.recv(out, source=0))
        with pytest.raises(ConfigError, match=f"{8 * n} bytes .*longer than the buffer.*nothing was written"):
            begin()
        assert not out.any()

    run(sizes, call)


@both
def test_messages_keep_their_order_and_tags_choose(sizes) -> None:
    def call(ranks):
        if ranks.rank:
            comm.wait_all([ranks.isend(np.arange(k), to=0, tag=k % 2) for k in range(60)])
            return
        for source in (2, 1):
            odd = [len(ranks.recv(source=source, tag=1)) for _ in range(30)]
            even = [len(ranks.recv(source, 0)) for _ in range(30)]
            assert (odd, even) == (list(range(1, 60, 2)), list(range(0, 60, 2)))

    run(sizes, call)


@both
def test_requests_are_tested_and_waited_for_once(sizes) -> None:
    def call(ranks):
        to, source = (ranks.rank + 1) % 3, (ranks.rank + 2) % 3
        receiving = ranks.irecv(source=source)
        assert not receiving.test()
        ranks.barrier()
        sending = ranks.isend(np.array([ranks.rank]), to)
        while not receiving.test():
            pass
        assert receiving.wait() == [source]
        assert sending.wait() is None
        for request in (sending, receiving):
            with pytest.raises(ConfigError, match="waited for already"):
                request.wait()

    run(sizes, call)


@both
def test_neighbours_exchange_in_place(sizes) -> None:
    def call(ranks):
        array = np.full(5000, ranks.rank)
        ranks.sendrecv_replace(array, (ranks.rank + 1) % 3, (ranks.rank + 2) % 3)
        return int(array[0]), ranks.sendrecv(np.array([7]), 0 if ranks.rank == 0 else ranks.rank)[0]

    assert run(sizes, call) == [(2, 7), (0, 7), (1, 7)]


@both
def test_a_probe_says_what_comes_and_leaves_it(sizes) -> None:
    def call(ranks):
        if ranks.rank == 1:
            assert ranks.probe(wait=False) is None
        ranks.barrier()
        if ranks.rank == 0:
            ranks.send(np.zeros(3), to=1, tag=5)
        if ranks.rank == 1:
            seen = ranks.probe(tag=5)
            assert (seen.source, seen.tag, seen.n_bytes) == (0, 5, 24)
            assert len(ranks.recv(seen.source, seen.tag)) == 3

    run(sizes, call)


@both
@pytest.mark.parametrize("n", [2, 9000])
def test_collectives_with_large_and_small_arrays(sizes, n) -> None:
    def call(ranks):
        me = ranks.rank
        rows = np.full((n, 2), float(me))
        view = ranks.all_gather(rows, shared=True)
        assert not view.flags.writeable
        assert view[:, 0].tolist() == [0.0] * n + [1.0] * n + [2.0] * n
        out = np.empty((3 * n, 2))
        assert ranks.all_gather(rows, out) is out
        assert (out == view).all()
        gathered = ranks.gather(rows[: me * n // 2], root=1)
        assert (gathered is None) == (me != 1)
        assert gathered is None or len(gathered) == n // 2 + n
        parts = [np.full(k * n, k, np.int16) for k in range(3)]
        assert ranks.scatter(parts if me == 2 else None, root=2).tolist() == [me] * (me * n)
        even = ranks.scatter(np.arange(7) if me == 0 else None)
        assert even.tolist() == [[0, 1, 2], [3, 4], [5, 6]][me]
        sent = [np.full((me + to) * n, 10 * me + to) for to in range(3)]
        received = ranks.all_to_all(sent)
        assert [set(part.tolist()) for part in received] == [{10 * k + me} if k + me else set() for k in range(3)]
        assert [len(part) for part in received] == [(k + me) * n for k in range(3)]
        total = ranks.reduce(rows, root=1)
        assert (total is None) if me != 1 else (total == 3.0).all()
        shared = ranks.all_reduce(rows, "max", shared=True)
        assert (shared == 2.0).all()
        into = np.empty((n, 2))
        assert ranks.all_reduce(rows, out=into) is into
        assert (into == 3.0).all()
        assert (ranks.broadcast(rows, 2, out=into) == 2.0).all()
        assert (ranks.broadcast(rows, 1, shared=True) == 1.0).all()

    run(sizes, call)


@both
@pytest.mark.parametrize("n", [2, 70_000])
def test_shared_messages_hold_until_the_next_collective_and_then_are_free(sizes, n) -> None:
    def call(ranks):
        for turn in range(40):  # more than there is memory for at once
            if ranks.rank == 0:
                ranks.send(np.full(n, 10 * turn), to=1)
                ranks.send(np.full((2, n), 10.0 * turn + 1), to=1)
            if ranks.rank == 1:
                begun = ranks.irecv(source=0, shared=True)
                first, second = begun.wait(), ranks.recv(source=0, shared=True)
                assert not first.flags.writeable | second.flags.writeable
                assert (first == 10 * turn).all()
                assert first.shape == (n,)
                assert (second == 10.0 * turn + 1).all()
                assert second.shape == (2, n)
            ranks.barrier()

    run(sizes, call)


@both
@pytest.mark.parametrize("n", [2, 9000])
def test_what_is_shared_is_read_only_until_the_next_collective(sizes, n) -> None:
    def call(ranks):
        me, mine = ranks.rank, np.full(n, float(ranks.rank))
        parts = [np.full((me + to) * n, 10.0 * me + to) for to in range(3)]
        calls = [
            (lambda **ways: ranks.all_gather(mine, **ways), np.repeat([0.0, 1.0, 2.0], n)),
            (lambda **ways: ranks.gather(mine, 2, **ways), np.repeat([0.0, 1.0, 2.0], n) if me == 2 else None),
            (lambda **ways: ranks.broadcast(mine, 1, **ways), np.ones(n)),
            (lambda **ways: ranks.all_reduce(mine, **ways), np.full(n, 3.0)),
            (lambda **ways: ranks.reduce(mine, "max", 1, **ways), np.full(n, 2.0) if me == 1 else None),
            (lambda **ways: ranks.scatter(parts if me == 1 else None, 1, **ways), np.full((1 + me) * n, 10.0 + me)),
            (lambda **ways: ranks.all_to_all(parts, **ways)[2], np.full((2 + me) * n, 20.0 + me)),
            (lambda **ways: ranks.sendrecv(mine, (me + 1) % 3, (me - 1) % 3, **ways), np.full(n, (me - 1.0) % 3)),
        ]
        for one, expected in calls:
            view = one(shared=True)
            if expected is None:
                assert view is None
                continue
            assert not view.flags.writeable
            assert view.flags.aligned
            assert view.tolist() == expected.tolist()
        for one, expected in calls:
            own = one()
            assert expected is None or (own.flags.writeable, own.tolist()) == (True, expected.tolist())

    run(sizes, call)


@both
def test_parts_are_received_where_the_caller_says(sizes) -> None:
    def call(ranks):
        me = ranks.rank
        parts, into = [np.full(me + 1, 10 * me + to) for to in range(3)], [np.empty(k + 1, int) for k in range(3)]
        assert all(got is place for got, place in zip(ranks.all_to_all(parts, out=into), into))
        assert [place.tolist() for place in into] == [[10 * k + me] * (k + 1) for k in range(3)]
        assert ranks.scatter(np.arange(3), out=into[0]) is into[0]
        assert into[0] == [me]

    run(sizes, call)


@both
def test_rows_without_bytes_are_counted(sizes) -> None:
    def call(ranks):
        rows, out = np.empty((ranks.rank, 0)), np.empty((3, 0))
        assert ranks.all_gather(rows, out) is out
        with pytest.raises(ConfigError, match="the result is"):
            ranks.all_gather(rows, out[:2])
        gathered = ranks.gather(rows, root=1)
        return ranks.all_gather(rows).shape, None if gathered is None else gathered.shape

    assert run(sizes, call) == [((3, 0), None), ((3, 0), (3, 0)), ((3, 0), None)]


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 2, 2)], ids=str)
def test_groups_have_ranks_messages_and_collectives_of_their_own(sizes) -> None:
    def call(ranks):
        half = ranks.split(ranks.rank % 2, key=-ranks.rank)
        old = half.all_gather(np.array([ranks.rank])).tolist()
        again = half.split(0 if half.rank < 2 else None)
        if again is not None:
            other = 1 - again.rank
            got = again.sendrecv(np.array([ranks.rank]), other, other)
            assert got == [old[other]]
        large = half.all_reduce(np.full(9000, float(ranks.rank)))
        return half.rank, half.size, old, float(large[0]), again is None

    assert run(sizes, call) == [
        (2, 3, [4, 2, 0], 6.0, True),
        (1, 2, [3, 1], 4.0, False),
        (1, 3, [4, 2, 0], 6.0, False),
        (0, 2, [3, 1], 4.0, False),
        (0, 3, [4, 2, 0], 6.0, False),
    ]


def test_messages_between_nodes_do_not_depend_on_the_ranks_of_a_node() -> None:
    def call(ranks):
        ranks.barrier()
        ranks.all_gather(np.ones(3))
        ranks.all_reduce(np.ones(10_000))

    counts = []
    for sizes in [(1, 1), (4, 4), (6, 1)]:
        world = ThreadWorld(sizes)
        world.run(call)
        counts.append(world.messages)
    assert counts == [2 + 2 + 4] * 3


@pytest.mark.parametrize("n", [50, 20_000])
def test_sums_have_the_same_bits_however_ranks_are_spread(n: int) -> None:
    values = np.random.default_rng(1).standard_normal((4, n)) * 10.0 ** np.arange(-8, 8, 16 / n)[:n]
    found = [
        run(sizes, lambda ranks: ranks.all_reduce(values[ranks.rank]))[-1].tobytes()
        for sizes in [(4,), (2, 2), (1, 3), (1, 1, 2)]
    ]
    assert set(found) == {(((values[0] + values[1]) + values[2]) + values[3]).tobytes()}


@both
@pytest.mark.parametrize(
    ("one", "others", "match"),
    [
        (lambda r: r.barrier(), lambda r: r.all_reduce(np.ones(2)), "rank 1 calls barrier; rank 2 calls all_reduce"),
        (lambda r: r.broadcast(np.ones(1), 1), lambda r: r.broadcast(np.ones(1), 2), "broadcast from 1"),
        (lambda r: r.all_reduce(np.ones(2)), lambda r: r.all_reduce(np.ones(2, "f4")), "float32"),
        (lambda r: r.all_reduce(np.ones(2)), lambda r: r.all_reduce(np.ones(3)), r"\(3,\)"),
        (lambda r: r.recv(source=0), lambda r: r.barrier(), "rank [02]: barrier"),
        (lambda r: r.recv(source=0, tag=3), lambda r: None, "all ranks wait and nothing is under way"),
        (lambda r: r.send(np.ones(1), to=1), lambda r: None, "all ranks wait and nothing is under way"),
    ],
)
def test_a_deadlock_is_found(sizes, one, others, match) -> None:
    with pytest.raises(DeadlockError, match=match):
        run(sizes, lambda ranks: one(ranks) if ranks.rank == 1 else others(ranks))


@both
def test_a_rank_that_fails_ends_all(sizes) -> None:
    ended = []

    def call(ranks):
        if ranks.rank == 1:
            raise ZeroDivisionError("on purpose")
        try:
            ranks.recv() if ranks.rank else ranks.barrier()
        except RankLostError as error:
            ended.append(str(error))
            raise

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run(sizes, call)
    assert ended == ["rank 1 has failed: ZeroDivisionError: on purpose"] * 2


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda r: r.send(np.ones(1), to=3), "rank 3 does not exist; there are 3"),
        (lambda r: r.recv(source=-2), "rank -2 does not exist"),
        (lambda r: r.send(np.ones(1), to=0, tag=-3), "tag -3"),
        (lambda r: r.send(np.ones(1), to=0, tag=2**31), "tag 2147483648"),
        (lambda r: r.broadcast(np.ones(1), 3), "rank 3 does not exist"),
        (lambda r: r.reduce(np.ones(1), root=-1), "rank -1 does not exist"),
        (lambda r: r.broadcast(np.ones(1) if r.rank == 1 else None, 1), "gives None to broadcast"),
        (lambda r: r.send(np.array([object()]), to=0), "Python objects"),
        (lambda r: r.all_gather(np.array([None])), "Python objects"),
        (lambda r: r.recv(np.empty(2, object)), "Python objects"),
        (lambda r: r.recv([1, 2]), "it must be an array"),
        (lambda r: r.recv(np.empty((4, 4))[:, 0]), "not contiguous"),
        (lambda r: r.recv(np.frombuffer(b"abc", np.uint8)), "read-only"),
        (lambda r: r.all_gather(np.float64(1)), "a single number has none"),
        (lambda r: r.all_reduce(np.ones(2), out=np.ones(3)), r"the result is float64 \(2,\)"),
        (lambda r: r.all_to_all([np.ones(1)]), "1 parts for 3 ranks"),
        (lambda r: r.all_to_all(np.ones(3), out=[np.ones(1)]), "out has 1 array for 3 ranks"),
        (lambda r: r.scatter(np.ones(3), out=np.ones(2)), r"the result is float64 \(1,\)"),
        (lambda r: r.scatter(np.float64(1), root=r.rank), "cannot be divided"),
        (lambda r: r.gather(np.ones(1), root=0.5), "rank 0.5 does not exist"),
        (lambda r: r.broadcast(np.ones(1), "0"), "rank 0 does not exist"),
        (lambda r: r.split("red"), "color"),
        (lambda r: r.split(1.5), "color"),
        (lambda r: r.split(0, key=2**63), "key"),
        (lambda r: r.recv(0, 7, 5), "one source and one tag"),
        (lambda r: r.recv(status={}), "status is {}; give a comm.Status"),
        (lambda r: comm.wait_all([r.isend(np.ones(1), to=r.rank), 5]), "5 is not a request"),
        (lambda r: r.recv(source=np.array([0, 1])), "does not exist"),
        (lambda r: r.recv(tag=np.array([0, 1])), "is not a whole number"),
        (lambda r: r.recv(memoryview(bytearray(6))[::2]), "not contiguous"),
        (lambda r: r.send([[1], [2, 3]], to=0), "is not an array"),
        (lambda r: r.all_gather([1, 2, "x"]), "send texts and numbers apart"),
        (lambda r: r.all_reduce(np.ma.array([1.0, 2.0], mask=[0, 1])), "would lose its mask"),
        (lambda r: r.all_reduce(np.array(["a"])), "have no sum"),
        (lambda r: r.reduce(np.zeros(2, [("a", "i4")]), "max"), "have no max"),
    ],
)
def test_bad_input_is_refused(call, match) -> None:
    with pytest.raises(ConfigError, match=match):
        run(ONE, call)


class DeviceArray:
    """A stand-in for an array of CuPy."""

    __cuda_array_interface__ = ()

    def __init__(self, values):
        self._values = values

    def get(self):
        return self._values.copy()

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit copies to the host are refused")


class ForeignDeviceArray(DeviceArray):
    get = property(lambda self: self.missing)


def test_arrays_of_a_gpu_are_copied_to_the_host() -> None:
    def work(ranks):
        total = ranks.all_reduce(DeviceArray(np.arange(3.0)))
        if ranks.rank == 0:
            return ranks.recv(source=1).sum()
        ranks.send(DeviceArray(np.arange(4) + ranks.rank), to=0)
        return total.sum()

    assert run((2,), work) == [10, 6.0]
    for call in (lambda ranks, at: ranks.recv(at), lambda ranks, at: ranks.all_reduce(np.ones(2), out=at)):
        with pytest.raises(ConfigError, match="out is a DeviceArray on a GPU; receive on the host"):
            run((1,), lambda ranks, call=call: call(ranks, DeviceArray(np.zeros(2))))
    with pytest.raises(ConfigError, match="is not an array: implicit copies"):
        run((1,), lambda ranks: ranks.all_reduce(ForeignDeviceArray(np.zeros(2))))


def test_a_message_of_another_dtype_is_refused_by_its_receiver() -> None:
    for n in (2, 2000):
        refused = []

        def call(ranks, n=n, refused=refused):
            if ranks.rank == 0:
                ranks.send(np.ones(n), to=1)
            if ranks.rank == 1:
                try:
                    ranks.recv(np.empty(n, np.int64))
                except ConfigError as error:
                    refused.append(str(error))

        run(ONE, call)
        assert "is of float64, the buffer of int64" in refused[0]


def test_two_threads_of_a_rank_cannot_communicate_at_once() -> None:
    def call(ranks):
        if ranks.rank != 1:
            return ranks.barrier()
        failures: list[Exception] = []

        def try_it() -> None:
            try:
                while not failures:
                    ranks.probe(wait=False)
            except ConfigError as error:
                failures.append(error)

        other = threading.Thread(target=try_it)
        other.start()
        try:
            while not failures:
                ranks.probe(wait=False)
        except ConfigError as error:
            failures.append(error)
        other.join()
        ranks.barrier()
        return str(failures[0])

    assert "two threads of rank 1 communicate at once" in run(ONE, call)[1]


def test_what_does_not_fit_is_refused_on_all_ranks() -> None:
    def call(ranks):
        with pytest.raises(ResourceError, match="do not fit"):
            ranks.all_gather(np.zeros(1 << 23, np.uint8))
        with pytest.raises(ResourceError, match="do not fit"):
            ranks.send(np.zeros(1 << 24, np.uint8), to=ranks.rank)
        return ranks.all_reduce(np.array([1]))[0]

    assert run(ONE, call) == [3] * 3


def test_the_world_of_a_plain_process_has_one_rank() -> None:
    world = comm.world()
    assert (world.rank, world.size, comm.world() is world) == (0, 1, True)
    sending = world.isend(np.arange(3), to=0)
    assert world.recv().tolist() == [0, 1, 2]
    assert sending.wait() is None
    assert world.all_reduce(np.array([4.0]), "max") == [4.0]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_is_no_rank() -> None:
    assert is_refused_in_a_fork(comm.world())
    assert comm.run(lambda ranks: is_refused_in_a_fork(ranks, ranks.barrier), cpus=2) == [True, True]


def is_refused_in_a_fork(ranks, then=lambda: None) -> bool:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            ranks.barrier()
        except ConfigError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    told = os.read(read, 1000)
    os.close(read)
    then()
    return f"is a fork of rank {ranks.rank}".encode() in told


@st.composite
def programs(draw):
    """Draw for each step what all ranks do: messages between pairs of them, or a collective."""
    size = draw(st.integers(2, 4))
    peers = st.tuples(
        st.integers(0, size - 1), st.integers(0, size - 1), st.integers(0, 2), st.sampled_from([0, 2, 900])
    )
    step = st.one_of(st.lists(peers, min_size=1, max_size=5), st.sampled_from(["barrier", "gather", "reduce", "split"]))
    return size, draw(st.integers(1, min(size, 2))), draw(st.lists(step, min_size=1, max_size=6)), draw(st.booleans())


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(programs())
def test_random_programs_give_what_they_must(program) -> None:
    size, n_nodes, steps, any_source = program

    def call(ranks):
        team = ranks
        for number, step in enumerate(steps):
            if step == "barrier":
                team.barrier()
            elif step == "gather":
                assert team.all_gather(np.full(3, team.rank)).tolist() == [k for k in range(team.size) for _ in "abc"]
            elif step == "reduce":
                assert team.all_reduce(np.full(2500, 1))[-1] == team.size
            elif step == "split":
                team = ranks.split(0, ranks.rank)
            else:
                messages(team, step, number)

    def messages(team, step, number):
        tag = 10 * number
        sends = [
            team.isend(np.full(n, place), to, tag + t) for place, (a, to, t, n) in enumerate(step) if a == team.rank
        ]
        mine = [(place, *message) for place, message in enumerate(step) if message[1] == team.rank]
        left = list(mine)
        for place, source, _, t, n in mine:
            status = comm.Status()
            if any_source:
                got = team.recv(tag=tag + t, status=status)
                first = next(m for m in left if m[1] == status.source and m[3] == t)
                left.remove(first)
                assert got.tolist() == [first[0]] * first[4]
            else:
                assert team.recv(source=source, tag=tag + t).tolist() == [place] * n
        comm.wait_all(sends)
        team.barrier()

    run(tuple(stop - start for start, stop in partition(size, n_nodes)), call)
