"""Arrays that ranks of a node pass on in parts: whoever waits for whom, they arrive whole, in order, or not at all."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from support.comm_threads import ThreadWorld
from tartan import comm
from tartan._native import CommArena
from tartan.comm.link import SocketLink
from tartan.errors import ConfigError, RankLostError

N_BYTES = 3_000_001  # more than the ring of 2 MiB
RING = 3


def payload(rank: int, n_bytes: int = N_BYTES) -> np.ndarray:
    return np.random.default_rng(rank).integers(0, 256, n_bytes, np.uint8)


@pytest.fixture(params=[(RING,), (2, 1), (1, 1, 1)], ids=["one node", "two near nodes", "three near nodes"])
def run(request):
    return ThreadWorld(request.param, near=True).run


def is_of(found: np.ndarray, rank: int, n_bytes: int = N_BYTES) -> bool:
    return np.array_equal(found, payload(rank, n_bytes))


@pytest.mark.parametrize("n_bytes", [(1 << 19) - 1, 1 << 19, (1 << 21) + 1, N_BYTES])
@pytest.mark.parametrize("how", ["out", "new", "shared"])
def test_large_arrays_arrive_whole_and_in_order(run, how, n_bytes) -> None:
    def call(ranks):
        if ranks.rank == 0:
            for seed in (5, 6):
                ranks.send(payload(seed, n_bytes), to=1, tag=2)
            ranks.send(b"small", to=1, tag=2)
        elif ranks.rank == 1:
            more = {"out": np.zeros(n_bytes + 9, np.uint8)} if how == "out" else {"shared": how == "shared"}
            for seed in (5, 6):
                assert is_of(ranks.recv(source=0, tag=2, **more)[:n_bytes], seed, n_bytes)
            assert bytes(ranks.recv(source=0, tag=2)) == b"small"

    run(call)


@pytest.mark.parametrize("into", [False, True])
def test_a_ring_of_sendrecv_moves_large_arrays_on(run, into) -> None:
    def call(ranks):
        mine, out = payload(ranks.rank), np.zeros(N_BYTES, np.uint8) if into else None
        to, source = (ranks.rank + 1) % RING, (ranks.rank - 1) % RING
        for _ in range(3):
            assert is_of(ranks.sendrecv(mine, to, source, out=out), source)
        assert is_of(ranks.sendrecv_replace(mine, to, source), source)
        assert is_of(mine, source)

    run(call)


def test_receives_that_were_begun_and_sends_that_wait_do_not_wait_for_each_other(run) -> None:
    def call(ranks):
        others = [rank for rank in range(RING) if rank != ranks.rank]
        begun = [ranks.irecv(np.zeros(N_BYTES, np.uint8), source=other) for other in others]
        for other in others:
            ranks.send(payload(ranks.rank), to=other)
        return all(is_of(one.wait(), other) for one, other in zip(begun, others))

    assert run(call) == [True] * RING


def test_a_rank_that_answers_only_what_it_has_whole_does_not_stop_a_sendrecv(run) -> None:
    def call(ranks):
        if ranks.rank == 0:
            assert is_of(ranks.sendrecv(payload(0), 1, 1), 1)
        elif ranks.rank == 1:
            assert is_of(ranks.recv(source=0), 0)
            ranks.send(payload(1), to=0)

    run(call)


def test_a_rank_sends_a_large_array_to_itself(run) -> None:
    def call(ranks):
        begun = ranks.irecv(source=ranks.rank)
        ranks.send(payload(ranks.rank), to=ranks.rank)
        return is_of(begun.wait(), ranks.rank) and is_of(ranks.sendrecv(payload(7), ranks.rank, ranks.rank), 7)

    assert run(call) == [True] * RING


def test_a_large_array_that_its_receiver_refuses_leaves_both_able_to_go_on(run) -> None:
    def call(ranks):
        if ranks.rank == 0:
            ranks.send(payload(0), to=1)
            with pytest.raises(ConfigError, match=r"3,?000,?001 bytes .*longer than the buffer"):
                ranks.send(payload(0), to=1)
            ranks.sendrecv(payload(1), 1, 1)
        elif ranks.rank == 1:
            with pytest.raises(ConfigError, match="is of uint8, the buffer of float64"):
                ranks.recv(np.zeros(N_BYTES))
            with pytest.raises(ConfigError, match="longer than the buffer"):
                ranks.recv(np.zeros(N_BYTES - 1, np.uint8))
            with pytest.raises(ConfigError, match="of uint8, the buffer of int8"):
                ranks.sendrecv(payload(1), 0, 0, out=np.zeros(N_BYTES, np.int8))
        return ranks.all_reduce(np.array([1]))[0]

    assert run(call) == [RING] * RING


def test_large_arrays_do_not_pass_the_link_of_near_nodes() -> None:
    carried: list[int] = []

    class CountingLink(SocketLink):
        def send(self, node, message, bulk=None, sent=None) -> None:
            carried.append(0 if bulk is None else len(bulk))
            super().send(node, message, bulk, sent)

    def call(ranks):
        for send in (ranks.send, lambda *words: ranks.isend(*words).wait()):
            if ranks.rank == 0:
                send(payload(0), 1)
            else:
                assert is_of(ranks.recv(), 0)

    ThreadWorld((1, 1), link=CountingLink, near=True).run(call)
    assert sum(carried) == 0
    ThreadWorld((1, 1), link=CountingLink).run(call)
    assert sum(carried) > 2 * N_BYTES


def test_memory_that_is_not_that_of_the_other_node_is_not_mapped(tmp_path) -> None:
    one, other = CommArena(1, 2, 1 << 20, 1 << 20), CommArena(1, 2, 1 << 20, 1 << 20)
    (descriptor, n_bytes, token), (_, _, its) = one.share(), other.share()
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    assert CommArena.reads(path, n_bytes, token)
    assert not CommArena.reads(path, n_bytes, its)
    assert not CommArena.reads(path, 1 << 60, token)
    (tmp_path / "file").write_bytes(bytes(n_bytes))
    with open(tmp_path / "file") as file:
        assert not CommArena.reads(f"/proc/self/fd/{file.fileno()}", n_bytes, bytes(32))
    assert not CommArena.reads("", 0, b"")
    assert not CommArena.reads("/proc/self/fd/99999", n_bytes, token)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_a_rank_that_is_killed_amid_a_large_array_is_named(dies) -> None:
    def work(ranks):
        array = np.zeros(20_000_000, np.uint8)
        if ranks.rank == dies:
            signal.setitimer(signal.ITIMER_PROF, 0.05)  # of its own time: in the midst of what it copies
            signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        while True:
            if ranks.rank == 0:
                ranks.send(array, to=1)
            else:
                ranks.recv(array, source=0)

    with pytest.raises(RankLostError, match=f"rank {dies} ended: killed by SIGKILL"):
        comm.run(work, cpus=2)
