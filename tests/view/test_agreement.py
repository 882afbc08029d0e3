from __future__ import annotations

import pytest

from tartan.errors import ConfigError
from tartan.view.agreement import compare_groups


def test_perfect_match_whatever_the_names():
    match = compare_groups([2, 2, 1, 1, 0], ["a", "a", "b", "b", "c"])
    assert match.perfect
    assert match.n_right == 5
    assert (match.n_same_found, match.n_same) == (2, 2)
    assert (match.n_different_found, match.n_different) == (8, 8)


def test_one_item_astray():
    match = compare_groups([1, 1, 1, 2, 2, 1], ["a", "a", "a", "b", "b", "b"])
    assert not match.perfect
    assert match.n_right == 5
    assert (match.n_same_found, match.n_same) == (3 + 1, 3 + 3)
    assert (match.n_different_found, match.n_different) == (9 - 3, 9)


def test_a_split_group_is_not_right_twice():
    match = compare_groups([1, 1, 2, 2], ["a", "a", "a", "a"])
    assert match.n_right == 2
    assert match.matched.count(-1) == 1


def test_everything_in_one_cluster():
    match = compare_groups([0] * 6, ["a", "b", "c"] * 2)
    assert match.n_right == 2
    assert (match.n_same_found, match.n_different_found) == (3, 0)


def test_nothing():
    assert compare_groups([], []).perfect


@pytest.mark.slow
def test_lengths_must_agree():
    with pytest.raises(ConfigError, match="each item needs one of both"):
        compare_groups([1], [])
