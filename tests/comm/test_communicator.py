"""The communicators pass one kit; ranks in threads end together, whatever one of them does."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tartan.comm.communicator import Alone, Communicator, partition
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, InternalError, RankLostError
from tartan.testing.communicator_kit import CommunicatorKit


class TestAlone(CommunicatorKit):
    sizes = (1,)

    def run(self, size, function):
        return [function(Alone())]


class TestLoopback(CommunicatorKit):
    sizes = (1, 2, 3, 7)

    def run(self, size, function):
        return run_ranks(size, function)


@pytest.mark.parametrize(("n", "size"), [(10, 1), (10, 3), (2, 5), (0, 2), (100_003, 7)])
def test_rows_are_divided_as_the_first_ranks_take_the_rest(n: int, size: int) -> None:
    parts = partition(n, size)
    rows = [stop - start for start, stop in parts]
    assert rows == [n // size + (rank < n % size) for rank in range(size)]
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(n))


@pytest.mark.parametrize(("n", "size"), [(-1, 2), (5, 0)])
def test_rows_that_cannot_be_divided_are_refused(n: int, size: int) -> None:
    with pytest.raises(ConfigError, match=f"{n} rows cannot be divided among {size} ranks"):
        partition(n, size)


def test_a_rank_that_fails_ends_all() -> None:
    ended: list[BaseException] = []

    def fail(ranks: Communicator) -> None:
        if ranks.rank == 1:
            raise ZeroDivisionError("on purpose")
        try:
            while True:
                ranks.all_reduce(np.ones(3))
        except RankLostError as error:
            ended.append(error)
            raise

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run_ranks(4, fail)
    assert len(ended) == 3


def test_a_rank_that_ends_early_ends_all() -> None:
    with pytest.raises(InternalError, match=r"the ranks call different functions: .*the end"):
        run_ranks(3, lambda ranks: None if ranks.rank == 2 else ranks.barrier())


def test_ranks_that_call_different_functions_are_told() -> None:
    def call(ranks: Communicator) -> None:
        ranks.all_reduce(np.ones(1), "max" if ranks.rank else "sum")

    with pytest.raises(InternalError, match="all_reduce sum, all_reduce max"):
        run_ranks(2, call)


def test_a_rank_that_never_comes_is_given_up() -> None:
    given_up = threading.Event()

    def call(ranks: Communicator) -> None:
        if ranks.rank == 1:
            assert given_up.wait(60)
        try:
            ranks.barrier()
        finally:
            given_up.set()

    with pytest.raises(RankLostError, match="waits for a rank"):
        run_ranks(2, call, patience_seconds=0.001)
