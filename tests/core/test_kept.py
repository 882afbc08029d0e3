"""What a run would keep, from what it has kept and from pairs all over it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tartan.core.pairs.kept import KeptLimits, KeptSoFar, sample_groups
from tartan.core.pairs.workload import AllPairs, Candidates, Rectangle

N_PAIRS = 10**12
MATRIX = 4 * N_PAIRS
TERA = 10**12
BEGUN = KeptSoFar(10**7, 10**7, 5 * 10**7)  # all of the first pairs are kept
NEAR = KeptLimits(N_PAIRS, 0.5, largest=False, matrix_bytes=MATRIX)
EVEN = np.linspace(0, 1, 8001)


def test_all_pairs_are_more_than_the_matrix_or_the_disk() -> None:
    for free in (TERA, 100 * TERA):
        assert NEAR.is_doubtful(BEGUN, free)
        found = NEAR.judge(BEGUN, free, np.zeros(8000))
        assert found is not None
        assert found.n_rows == N_PAIRS
        assert found.n_bytes == 2.25 * 5 * N_PAIRS


def test_the_sample_decides_not_the_first_pairs() -> None:
    few = np.where(np.arange(8000) < 80, 0.1, 0.9)  # 1 %, 112 GB
    assert NEAR.judge(BEGUN, TERA, few) is None
    found = NEAR.judge(BEGUN, TERA // 20, few)
    assert found is not None
    assert found.share == pytest.approx(0.01, rel=0.01)


def test_what_the_sample_cannot_tell_a_tenth_of_the_run_does() -> None:
    none = np.ones(8000)
    tenth = KeptSoFar(N_PAIRS // 10, 10**9, 5 * 10**9)
    assert NEAR.judge(BEGUN, TERA // 20, none) is None, "shares of 0.1 % and more do not fit, and it is far from that"
    free = 10**10  # room for 0.09 % of the pairs; 10 times as much as a tenth has kept is 112 GB
    assert NEAR.judge(BEGUN, free, none) is None
    found = NEAR.judge(tenth, free, none)
    assert found is not None
    assert (found.n_rows, found.bound) == (10**10, None)
    assert NEAR.judge(tenth, TERA, none) is None


def test_small_results_are_never_refused() -> None:
    limits = KeptLimits(10**7, 0.5, largest=False, matrix_bytes=4 * 10**7)
    kept = KeptSoFar(10**6, 10**6, 5 * 10**6)
    assert limits.always_fits(20, 10**11)
    assert not limits.always_fits(20, 10**9), "450 MB are not a small part of 1 GB"
    assert limits.judge(kept, 2 * 10**9, np.zeros(8000)) is None, "113 MB are one"
    assert limits.judge(kept, 10**9, np.zeros(8000)) is not None


def test_nothing_kept_or_nothing_left_is_no_reason_for_doubt() -> None:
    assert NEAR.most_share(KeptSoFar(), 0) == math.inf
    assert not NEAR.is_doubtful(KeptSoFar(N_PAIRS // 2, 0, 10**6), 0)
    assert not NEAR.is_doubtful(KeptSoFar(N_PAIRS, N_PAIRS, 5 * N_PAIRS), 0)


def test_a_run_that_is_nearly_done_may_end() -> None:
    kept = KeptSoFar(N_PAIRS * 99 // 100, N_PAIRS * 99 // 100, 5 * N_PAIRS * 99 // 100)
    limits = KeptLimits(N_PAIRS, 0.5, largest=False)
    assert limits.judge(kept, 7 * TERA, np.zeros(8000)) is None
    assert limits.judge(kept, 6 * TERA, np.zeros(8000)) is not None, "its result takes 6.3 TB"


@pytest.mark.parametrize("largest", [True, False])
def test_a_stricter_threshold_keeps_half_of_what_fits(largest: bool) -> None:
    limits = KeptLimits(N_PAIRS, 0.5, largest=largest)
    most = limits.most_share(BEGUN, TERA)
    found = limits.judge(BEGUN, TERA, EVEN)
    assert found is not None
    assert found.bound is not None
    assert found.bound_share == pytest.approx(most / 2, rel=0.05)
    beyond = np.greater_equal(EVEN, found.bound) if largest else np.less_equal(EVEN, found.bound)
    assert beyond.mean() == found.bound_share


def test_scores_that_are_all_alike_have_no_stricter_threshold() -> None:
    found = NEAR.judge(BEGUN, TERA, np.full(8000, 0.25))
    assert found is not None
    assert found.bound is None
    missing = NEAR.judge(BEGUN, TERA, np.full(8000, np.nan))
    assert missing is None, "failed pairs are not kept"


def test_two_scores_a_pair_count_twice() -> None:
    directed = KeptLimits(N_PAIRS, 0.5, largest=False, matrix_bytes=2 * MATRIX, scores_a_pair=2)
    kept = KeptSoFar(10**7, 2 * 10**7, 10**8)
    found = directed.judge(kept, 100 * TERA, np.zeros(8000))
    assert found is not None
    assert (found.n_rows, found.share) == (2 * N_PAIRS, 1.0)


def test_samples_come_from_all_over_a_run() -> None:
    pairs = sample_groups(AllPairs(10**6), 128)
    assert len(pairs) == len(set(pairs)) == 128 * 127 // 2
    assert all(i < j for i, j in pairs)
    assert pairs == sample_groups(AllPairs(10**6), 128), "the same ones every time"
    assert {i % 4 for i, _ in pairs} == {0, 1, 2, 3}
    assert len({i // 10**5 for i, _ in pairs}) >= 9
    triples = sample_groups(AllPairs(1000), 12, 3)
    assert all(i < j < k for i, j, k in triples)


def test_samples_hold_wanted_pairs_only() -> None:
    assert all(i < 30 <= j < 1000 for i, j in sample_groups(Rectangle(30, 1000), 128))
    listed = {(3, 8), (1, 9), (4, 4), (2, 7)}
    found = sample_groups(Candidates(10, np.array([[8, 3], [1, 9], [4, 4], [2, 7]])), 128)
    assert set(found) == listed
    assert sample_groups(AllPairs(2), 128) == [(0, 1)]
