"""What comparing a few pairs both ways may cost, and which scores differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tartan.core.pairs.mirroring import allow_mirrored, first_difference


@pytest.mark.parametrize("n_workers", [1, 16])
@pytest.mark.parametrize("n_items", [200, 500, 100_000])
@pytest.mark.parametrize("seconds", [1e-6, 1e-3, 0.01, 0.3, 5.0, 300.0])
def test_at_most_a_hundredth_of_a_run_is_spent_or_next_to_nothing(n_workers: int, n_items: int, seconds: float) -> None:
    n_pairs = n_items * (n_items - 1) // 2
    allowed = allow_mirrored(n_pairs, seconds, n_items, 0.0, n_workers).compare_seconds
    share = 0.01 * n_pairs * seconds / n_workers
    assert allowed <= max(share, 0.1)
    assert allowed <= max(20.0, 2 * seconds)
    assert (allowed == 0) == (2 * seconds > max(share, 0.1))


def test_a_run_of_long_pairs_is_looked_at_once_where_it_is_large() -> None:
    assert allow_mirrored(124_750, 300.0, 500, 0.0, 16).compare_seconds == 600.0
    assert allow_mirrored(66, 300.0, 12, 0.0, 1).compare_seconds == 0.0


def test_one_timing_of_a_short_run_does_not_decide() -> None:
    """The first call may load a model; the second one shows."""
    assert allow_mirrored(66, 0.9, 12, 0.0, 2).compare_seconds == 0.1
    assert allow_mirrored(66, 1.1, 12, 0.0, 2).compare_seconds == 0.0
    assert allow_mirrored(780, 0.9, 40, 0.0, 8).compare_seconds == 0.0


def test_what_a_pair_takes_on_a_device_is_not_known() -> None:
    assert allow_mirrored(499_500, 0.01, 1000, 0.0, 1, elsewhere=True).compare_seconds == 0.1
    assert allow_mirrored(499_500, 0.1, 1000, 0.0, 1, elsewhere=True).compare_seconds == 0.0


def test_items_that_take_long_to_load_are_left_alone_where_they_are_few() -> None:
    assert allow_mirrored(190, 0.0, 20, 0.2, 2).load_seconds == 0.5
    assert allow_mirrored(190, 0.0, 20, 5.0, 2).load_seconds == 0.0
    assert allow_mirrored(499_500, 0.0, 1000, 5.0, 2).load_seconds == 20.0


@pytest.mark.parametrize("unit", [1e-75, 1e-18, 1.0, 1e75])
def test_scores_that_differ_are_found_in_any_unit(unit: float) -> None:
    same = [(unit, unit), (2 * unit, 2 * unit * (1 + 9e-6)), (1e-4 * unit, 1.005e-4 * unit)]
    assert first_difference(same, 0.0) is None
    assert first_difference([*same, (unit, unit * (1 + 2e-5))], 0.0) == 3


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([], None),
        ([(0.0, 0.0), (0, 0)], None),
        ([(math.inf, math.inf), (-math.inf, -math.inf)], None),
        ([(1.0, 1.0), (math.inf, 3.0)], 1),
        ([(math.inf, -math.inf)], 0),
        ([(3, 4)], 0),
        ([(True, False)], 0),
        ([(2**63, 2**63)], None),
        ([(1 + 2j, 1 - 2j)], 0),
        ([(1 + 2j, 1 + 2j)], None),
    ],
)
def test_numbers_of_all_kinds(scores: list[tuple[complex, complex]], found: int | None) -> None:
    assert first_difference(scores, 0.0) == found


def test_scores_of_half_precision_may_differ_by_their_rounding() -> None:
    one = np.float16(0.1)
    assert first_difference([(float(one), float(np.nextafter(one, np.float16(1))))], 2**-10) is None
