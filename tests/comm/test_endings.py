"""Ranks end as Python programs do; see also ``tests/cases/ranks``."""

from __future__ import annotations

import atexit
import os
import threading

import numpy as np
import pytest

from tartan import comm
from tartan.base.logs import LogSettings, host_name, logging_to
from tartan.errors import RankLostError

pytestmark = pytest.mark.slow


def test_a_function_is_followed_by_its_threads_and_exit_handlers(tmp_path) -> None:
    def work(ranks):
        def late() -> None:
            threading.main_thread().join()
            (tmp_path / f"thread-{ranks.rank}").write_text("x")

        threading.Thread(target=late).start()
        atexit.register(lambda: (ranks.barrier(), (tmp_path / f"atexit-{ranks.rank}").write_text("x")))
        return ranks.rank

    assert comm.run(work, cpus=2) == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["atexit-0", "atexit-1", "thread-0", "thread-1"]


def test_a_rank_that_fails_writes_what_it_has_left(tmp_path) -> None:
    kept = []

    def work(ranks):
        kept.append((tmp_path / str(ranks.rank)).open("w"))
        kept[-1].write("x")
        ranks.barrier()
        if ranks.rank:
            raise ZeroDivisionError
        ranks.recv()

    with pytest.raises(ZeroDivisionError):
        comm.run(work, cpus=2, grace_seconds=60)  # a busy machine needs more than the 0.6 s that are the rule
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["x", "x"]


def test_threads_of_a_rank_that_fails_hold_nobody_up() -> None:
    def work(ranks):
        threading.Thread(target=threading.Event().wait).start()
        ranks.barrier()
        if ranks.rank:
            raise ZeroDivisionError
        ranks.recv()

    with pytest.raises(ZeroDivisionError):
        comm.run(work, cpus=2)


def test_what_fails_at_the_end_is_a_failure_of_the_rank() -> None:
    def work(ranks):
        atexit.register(lambda: ranks.rank and os._exit(5))

    with pytest.raises(RankLostError, match="rank 1 ended: exit status 5"):
        comm.run(work, cpus=2)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_message_that_nobody_receives_is_named_and_results_are_kept(groups, capfd) -> None:
    def work(ranks):
        if ranks.rank == 0:
            ranks.isend(np.arange(5), 1, 7)
        return ranks.rank

    assert comm.run(work, cpus=2, groups=groups) == [0, 1]
    assert "rank 0 has ended, and rank 1 never received its isend of 40 bytes with tag 7;" in capfd.readouterr().err


def test_a_message_that_is_received_after_its_sender_has_nothing_left_to_do_is_no_loss(capfd) -> None:
    def work(ranks):
        if ranks.rank == 0:
            ranks.isend(np.arange(5), 1)
            return 0
        while ranks.probe(0, wait=False) is None:
            pass
        return int(ranks.recv(0).sum())

    assert comm.run(work, cpus=2) == [0, 10]
    assert capfd.readouterr().err == ""


def test_each_rank_logs_how_it_began_and_ended(tmp_path) -> None:
    def work(ranks):
        ranks.barrier()
        if ranks.rank:
            raise ZeroDivisionError("by rank 1")
        ranks.recv()

    with logging_to(LogSettings("info", str(tmp_path / "log")), "driver"), pytest.raises(ZeroDivisionError):
        comm.run(work, cpus=2)
    host = host_name()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", f"log.rank-0.{host}", f"log.rank-1.{host}"]
    driver = (tmp_path / "log").read_text()
    assert " INFO driver tartan.comm: node 0 is started: process " in driver
    assert " WARNING driver tartan.comm: rank 1 has failed: ZeroDivisionError: by rank 1\n" in driver
    begins, ends = (tmp_path / f"log.rank-1.{host}").read_text().splitlines()
    assert " INFO rank-1 tartan.comm: rank 1 begins: process " in begins
    assert ends.endswith(" WARNING rank-1 tartan.comm: rank 1 has failed: ZeroDivisionError: by rank 1")


def test_a_rank_says_how_it_ended_after_its_exit_handlers(tmp_path) -> None:
    with logging_to(LogSettings("info", str(tmp_path / "log")), "driver"):
        comm.run(lambda ranks: atexit.register(print), cpus=1)
    (own,) = tmp_path.glob("log.rank-0.*")
    assert own.read_text().endswith(" INFO rank-0 tartan.comm: rank 0 has ended\n")
