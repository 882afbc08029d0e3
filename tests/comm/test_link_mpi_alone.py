"""The link over MPI and its node process without MPI: how messages are cut, compared, ended, by an MPI of a test."""

from __future__ import annotations

import os
import threading

import cloudpickle
import numpy as np
import pytest

from support.fake_mpi import Aborted, FakeJob, FakeWorld
from tartan._native import CommArena
from tartan.comm.launch import script_program
from tartan.comm.link_mpi import MpiLink, MpiPlace
from tartan.comm.mpi_node import run_on_mpi
from tartan.comm.program import Program
from tartan.errors import ConfigError

ONE_PART = (1 << 16) - 16


def room(message: bytes, n_bytes: int) -> tuple[memoryview, bytearray]:
    made = bytearray(n_bytes)
    return memoryview(made), made


def joined(patch: pytest.MonkeyPatch, job: FakeJob, *, patience_seconds: float = 60.0) -> list[MpiLink]:
    links = []
    for node in range(job.size):
        job.become(node, patch)
        links.append(MpiLink(MpiPlace(node, job.size), {"the version": "1"}, patience_seconds=patience_seconds))
        links[-1].open(room)
    return links


@pytest.fixture
def wake():
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("n_bytes", [0, 1, ONE_PART - 1, ONE_PART, ONE_PART + 1, 1_000_000])
def test_messages_of_any_length_arrive_in_order(monkeypatch, wake, n_bytes) -> None:
    one, other, third = joined(monkeypatch, FakeJob(3))
    message = np.random.default_rng(n_bytes).bytes(n_bytes)
    for sent in (message, b"after", message[::-1]):
        one.send(1, sent)
    third.send(1, b"third")
    found = [arrived for _ in range(6) for arrived in other.receive(wake, 0.0)]
    assert [arrived for node, arrived, _ in found if node == 0] == [message, b"after", message[::-1]]
    assert [arrived for node, arrived, _ in found if node == 2] == [b"third"]


@pytest.mark.parametrize("n_bytes", [1, ONE_PART - 5, ONE_PART - 4, ONE_PART, 300_000])
@pytest.mark.parametrize("length", [0, 4, ONE_PART + 9])
def test_a_bulk_comes_to_where_there_is_room_and_is_free_when_it_was_sent(monkeypatch, wake, length, n_bytes) -> None:
    one, other = joined(monkeypatch, FakeJob(2))
    bulk, freed = np.random.default_rng(n_bytes).bytes(n_bytes), []
    one.send(1, bytes(length), memoryview(bulk), lambda: freed.append(1))
    one.send(1, b"after")
    found = [arrived for _ in range(9) for arrived in other.receive(wake, 0.0)]
    assert [message for _, message, _ in found] == [bytes(length), b"after"]
    assert [None if token is None else bytes(token) for _, _, token in found] == [bulk, None]
    one.receive(wake, 0.0)
    assert freed == [1]


def test_a_wait_ends_when_it_is_woken(monkeypatch, wake) -> None:
    one, _ = joined(monkeypatch, FakeJob(2))
    os.eventfd_write(wake, 1)
    assert one.receive(wake, 60.0) == []
    with pytest.raises(BlockingIOError):
        os.eventfd_read(wake)


def test_nodes_end_together_and_give_each_other_a_parting(monkeypatch) -> None:
    job = FakeJob(2)
    links = joined(monkeypatch, job)
    links[0].send(1, bytes(200_000))
    threads = [threading.Thread(target=link.close, args=(f"of {node}".encode(),)) for node, link in enumerate(links)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [link.partings for link in links] == [{1: b"of 1"}, {0: b"of 0"}]
    assert sorted(job.finalized) == [0, 1]


@pytest.mark.parametrize("reads", [True, False])
def test_nodes_are_near_that_read_each_other(monkeypatch, reads) -> None:
    job = FakeJob(2)
    job.become(0, monkeypatch)
    arena = CommArena(1, 2, 1 << 20, 1 << 20)
    descriptor, n_bytes, token = arena.share()
    link = MpiLink(MpiPlace(0, 2), {"the version": "1"}, patience_seconds=60.0)
    link.share = f"/proc/self/fd/{descriptor}", n_bytes, token
    answers = iter([[{"the version": "1"}] * 2, [link.share] * 2, [{1}, {0} if reads else set()]])
    monkeypatch.setattr(FakeWorld, "allgather", lambda self, mine: next(answers))
    link.open(room)
    assert link.near == ({1: link.share} if reads else {})


def test_a_node_that_does_not_end_is_not_waited_for(monkeypatch) -> None:
    job = FakeJob(2)
    one, _ = joined(monkeypatch, job, patience_seconds=0.0)
    with pytest.raises(Aborted):
        one.close(b"")
    assert job.finalized == []


def test_the_library_of_another_mpiexec_is_refused(monkeypatch) -> None:
    FakeJob(1).become(0, monkeypatch)
    with pytest.raises(ConfigError, match=r"started 2 processes, .* number 1, .*\(MPICH of a test\) is not Open MPI"):
        MpiLink(MpiPlace(1, 2, "Open MPI"), {}, patience_seconds=1.0).open(room)
    with pytest.raises(ConfigError, match=r"\(MPICH of a test\) knows of 1; use the mpiexec of that library"):
        MpiLink(MpiPlace(1, 2), {}, patience_seconds=1.0).open(room)


def test_mpi_ends_where_nodes_differ(monkeypatch) -> None:
    job = FakeJob(2)
    job.gathered = [{"the version": "1"}, {"the version": "2"}]
    with pytest.raises(ConfigError, match="the version is 1 on node 0 and 2 on node 1"):
        joined(monkeypatch, job)
    assert job.finalized == [0]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    """Be the only process of an ``mpiexec``."""
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "1")
    job = FakeJob(1)
    job.become(0, monkeypatch)
    return job


@pytest.mark.slow
def test_a_process_of_mpiexec_is_a_node_of_several_ranks(alone: FakeJob) -> None:
    call = cloudpickle.dumps(lambda ranks: float(ranks.all_reduce(np.array([ranks.rank + 1.0]))[0]))
    outcome = run_on_mpi(Program(call), cpus=2, command=["a command"])
    assert (outcome.node, outcome.signal, alone.finalized) == (0, None, [0])
    assert [(report.rank, report.failure, report.lost) for report in outcome.reports] == [(0, None, ""), (1, None, "")]
    assert [cloudpickle.loads(report.result) for report in outcome.reports] == [3.0, 3.0]


@pytest.mark.slow
def test_a_rank_that_fails_is_reported_by_its_node(alone: FakeJob, tmp_path, capfd) -> None:
    script = tmp_path / "script.py"
    script.write_text("from tartan import comm\nimport sys\nsys.exit(7 if comm.world().rank else 0)")
    outcome = run_on_mpi(script_program(str(script), []), cpus=2, command=["a command"])
    assert "exit status 7" in str(outcome.reports[1].failure)
    assert outcome.reports[1].exit_status == 7


def test_a_node_that_differs_leaves_the_word_to_the_first(alone: FakeJob, monkeypatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    job = FakeJob(2)
    job.become(1, monkeypatch)
    job.gathered = [{"the command": "one"}, {"the command": "another"}]
    call = cloudpickle.dumps(lambda ranks: None)
    with pytest.raises(SystemExit) as stop:
        run_on_mpi(Program(call), cpus=1, command=["another"])
    assert stop.value.code == ConfigError("").exit_status
