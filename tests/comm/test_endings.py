"""Ranks end as Python programs do; see also ``tests/cases/ranks``."""

from __future__ import annotations

import atexit
import os
import threading

import pytest

from tartan import comm
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
        comm.run(work, cpus=2)
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

    with pytest.raises(RankLostError, match="rank 1 ended with exit status 5"):
        comm.run(work, cpus=2)
