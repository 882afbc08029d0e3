"""When failures stop a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tartan.core.ledger import Failure
from tartan.errors import RunFailedError
from tartan.runtime.compare import PairFailure
from tartan.runtime.faults import HOPELESS_PAIRS, MOST_LISTED, FailureBook
from tartan.runtime.items import ItemFailure


class Folder:
    """What the book asks of a run folder."""

    def __init__(self, n_pairs: int = 10_000, done: int = 0, failures: tuple[Failure, ...] = ()) -> None:
        self.pairs = SimpleNamespace(n_pairs=n_pairs)
        self.added = list(failures)
        self._counts = np.array([n_pairs - done, done, 0, 0])

    def counts(self) -> np.ndarray:
        return self._counts

    def failures(self) -> list[Failure]:
        return list(self.added)

    def add_failures(self, failures: list[Failure]) -> None:
        self.added += failures


def book(folder: Folder | None = None, on_error: str = "skip", max_failures: int | None = None) -> FailureBook:
    source: Any = SimpleNamespace(keys=["a", "b", "c"])
    return FailureBook(folder or Folder(), source, on_error, max_failures)  # type: ignore[arg-type]


def failed_pairs(count: int) -> list[Failure]:
    return [Failure(0, 1, "compare", "boom", "trace")] * count


def test_the_first_hundred_pairs_that_all_fail_stop_the_run() -> None:
    found = book()
    found.pairs_ended(0, 0, HOPELESS_PAIRS - 1, failed_pairs(HOPELESS_PAIRS - 1))
    assert found.verdict() is None
    found.pairs_ended(0, 0, 1, failed_pairs(1))
    verdict = found.verdict()
    assert isinstance(verdict, RunFailedError)
    assert verdict.context["traceback"] == "trace"
    assert "first: boom" in str(verdict)


def test_one_good_pair_is_hope() -> None:
    found = book()
    found.pairs_ended(1, 0, 5000, failed_pairs(5000))
    assert found.verdict() is None


def test_a_small_run_is_hopeless_when_all_of_it_failed() -> None:
    found = book(Folder(n_pairs=3))
    found.pairs_ended(0, 1, 2, failed_pairs(2))
    assert found.verdict() is not None


def test_good_pairs_of_earlier_executions_count() -> None:
    found = book(Folder(done=1))
    found.pairs_ended(0, 0, 500, failed_pairs(500))
    assert found.verdict() is None


@pytest.mark.parametrize("most", [0, 2])
def test_more_than_max_failures_stop_the_run(most: int) -> None:
    found = book(max_failures=most)
    found.pairs_ended(10, 0, most, failed_pairs(most))
    assert found.verdict() is None
    found.item_failed(0, ItemFailure("parse", "a: bad"))
    assert "--max-failures" in str(found.verdict())


def test_the_first_failure_stops_a_run_that_shall_not_skip() -> None:
    found = book(on_error="raise")
    assert found.verdict() is None
    found.item_failed(1, ItemFailure("parse", "b: bad", "trace"))
    verdict = found.verdict()
    assert verdict is not None
    assert verdict.context == {"traceback": "trace", "reason": "b: bad"}


def test_a_failed_item_is_recorded_once_however_often_it_is_loaded() -> None:
    folder = Folder(failures=(Failure(2, None, "parse", "c: bad"),))
    found = book(folder)
    for index in (0, 0, 2):
        found.item_failed(index, ItemFailure("parse", "bad"))
    assert [f.i for f in folder.added] == [2, 0]
    assert found.n_failed == 2


def test_pairs_are_named_by_their_keys() -> None:
    assert book().name_pair(0, 2, "boom") == "a, c: boom"


def test_of_very_many_failed_pairs_one_a_tile_is_listed() -> None:
    found, tile = book(), [PairFailure(0, column, "bad") for column in range(MOST_LISTED - 1)]
    assert found.listed(tile) == tile
    assert found.listed(tile[:2]) == tile[:2]
    assert found.listed(tile) == tile[:1]
    assert found.listed([]) == []
