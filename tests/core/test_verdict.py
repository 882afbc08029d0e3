"""What nodes report, added up, and when failures stop a run."""

from __future__ import annotations

from typing import Any

import pytest

from tartan.core.pairs.ledger import Failure
from tartan.core.pairs.verdict import (
    HOPELESS_DEATHS,
    HOPELESS_PAIRS,
    Death,
    FailureRules,
    Look,
    NodeReport,
    PairCounts,
    RunTally,
)
from tartan.errors import RunFailedError


def tally(on_error: str = "skip", max_failures: int | None = None, n_pairs: int = 10_000, **before: Any) -> RunTally:
    return RunTally(FailureRules(on_error, max_failures), n_pairs, **before)


def pairs(good: int = 0, without_item: int = 0, failed: int = 0) -> NodeReport:
    n_pairs = good + without_item + failed
    reasons = [Failure(0, 1, "compare", "boom", "trace")] if failed else []
    return NodeReport(pairs=PairCounts(good, without_item, failed, n_pairs, without_item), failures=reasons)


def item(index: int, reason: str = "bad") -> NodeReport:
    return NodeReport(n_loads=1, failures=[Failure(index, None, "parse", reason, "trace")])


def test_a_hundred_failed_pairs_and_some_from_all_over_the_run_stop_it() -> None:
    found = tally()
    found.add(pairs(failed=HOPELESS_PAIRS - 1))
    assert not found.wants_look
    found.add(pairs(failed=1))
    assert found.wants_look
    found.judge()
    found.see(Look(120, 0))
    assert not found.wants_look
    with pytest.raises(RunFailedError, match=r"first 100 pairs .* failed, and so did 120 .*first: boom") as caught:
        found.judge()
    assert caught.value.context["traceback"] == "trace"


def test_one_pair_that_succeeds_elsewhere_is_hope() -> None:
    """Bad items lie at the front: the run continues, however many pairs they spoil."""
    found = tally(n_pairs=10**6)
    found.add(pairs(failed=HOPELESS_PAIRS))
    found.see(Look(1, 1))
    found.add(pairs(failed=500_000))
    assert not found.wants_look
    found.judge()


def test_pairs_that_lack_an_item_say_nothing_of_the_others() -> None:
    found = tally(n_pairs=10**6)
    found.add(pairs(without_item=999_000, failed=HOPELESS_PAIRS - 1))
    assert not found.wants_look
    found.judge()


def test_no_look_is_wanted_where_the_user_tolerates_failures() -> None:
    found = tally(max_failures=10**9)
    found.add(pairs(failed=5 * HOPELESS_PAIRS))
    assert not found.wants_look
    found.judge()


@pytest.mark.parametrize("look", [Look(0, 0), Look(3, 0), Look(2, 1)])
def test_calls_that_end_their_workers_want_a_look(look: Look) -> None:
    found = tally()
    for row in range(HOPELESS_DEATHS):
        assert not found.wants_look
        found.add(NodeReport(death=Death((2 * row, 2 * row + 1), "killed")))
    assert found.wants_look
    found.see(look)
    if look.n_good:
        found.judge()
        return
    with pytest.raises(RunFailedError, match="ended its worker process 4 times"):
        found.judge()


def test_a_worker_that_outlived_another_pair_is_hope() -> None:
    """Whatever ends workers from then on, it is not a fault of every pair: the run continues without a look."""
    found = tally()
    found.add(NodeReport(survived=True))
    for row in range(2 * HOPELESS_DEATHS):
        found.add(NodeReport(death=Death((2 * row, 2 * row + 1), "killed")))
    assert not found.wants_look
    found.judge()


def test_no_node_alone_needs_to_reach_a_limit() -> None:
    """Two nodes that fail half as often each stop the run as one would."""
    one, both = tally(max_failures=5), tally(max_failures=5)
    one.add(pairs(good=1, failed=6))
    for _ in range(2):
        both.judge()
        both.add(pairs(good=1, failed=3))
    for found in (one, both):
        with pytest.raises(RunFailedError, match=r"^6 items and pairs failed, more than --max-failures 5"):
            found.judge()


def test_one_good_pair_is_hope() -> None:
    found = tally()
    found.add(pairs(good=1, failed=5000))
    found.judge()


def test_a_small_run_is_hopeless_when_all_of_it_failed() -> None:
    found = tally(n_pairs=3)
    found.add(pairs(without_item=1, failed=2))
    with pytest.raises(RunFailedError, match="all 3 pairs failed"):
        found.judge()


def test_good_pairs_of_earlier_executions_count() -> None:
    found = tally(n_good=1, n_ended=1)
    found.add(pairs(failed=500))
    found.judge()
    assert found.n_scores == 501


@pytest.mark.parametrize("most", [0, 2])
def test_more_than_max_failures_stop_the_run(most: int) -> None:
    found = tally(max_failures=most)
    found.add(pairs(good=10, failed=most))
    found.judge()
    found.add(item(0))
    with pytest.raises(RunFailedError, match="--max-failures"):
        found.judge()


def test_the_first_failure_stops_a_run_that_shall_not_skip() -> None:
    found = tally(on_error="raise")
    found.judge()
    found.add(item(1, "b: bad"))
    found.add(item(2, "c: worse"))
    with pytest.raises(RunFailedError) as caught:
        found.judge()
    assert caught.value.context == {"traceback": "trace", "reason": "b: bad"}


@pytest.mark.slow
def test_a_failed_item_is_new_once_however_often_it_is_loaded() -> None:
    found = tally(failed_items=[2])
    new = [failure.i for index in (0, 0, 2) for failure in found.add(item(index))]
    assert new == [0]
    assert found.n_failed == 2
    assert found.n_loads == 3
