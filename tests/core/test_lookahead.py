"""Owners of blocks that a sequence of tasks updates in place."""

from __future__ import annotations

import numpy as np

from tartan.core.blocks.task_divider import Lookahead

BLOCKS = np.array(list(np.ndindex(6, 6)))
SIZES = np.full(36, 8.0)


def test_the_second_task_of_a_space_has_owners() -> None:
    ahead = Lookahead(6)
    holders = np.random.default_rng(0).integers(0, 6, 36)
    assert ahead.extra("L", BLOCKS, SIZES, holders) is None
    assert ahead.extra("M", BLOCKS, SIZES, holders) is None
    extra = ahead.extra("L", BLOCKS, SIZES, holders)
    assert extra is not None
    owners = extra.argmin(axis=1).reshape(6, 6)
    assert np.bincount(owners.ravel()).tolist() == [6] * 6
    assert sorted({len(set(row)) for row in owners.tolist()}) == [3]
    assert sorted({len(set(column)) for column in owners.T.tolist()}) == [2]
    assert sorted(np.unique(extra)) == [0.0, 8.0]
    rest = BLOCKS[(BLOCKS > 1).all(axis=1)]
    later = ahead.extra("L", rest, np.ones(16), np.zeros(16, dtype=int))
    assert later is not None
    np.testing.assert_array_equal(later.argmin(axis=1).reshape(4, 4), owners[2:, 2:])


def test_owners_hold_what_they_can() -> None:
    ahead = Lookahead(4)
    pattern = np.array([[2, 0], [3, 1]])
    holders = pattern[BLOCKS[:, 0] % 2, BLOCKS[:, 1] % 2]
    ahead.extra("L", BLOCKS, SIZES, holders)
    extra = ahead.extra("L", BLOCKS, SIZES, holders)
    assert extra is not None
    np.testing.assert_array_equal(extra.argmin(axis=1), holders)


def test_nothing_is_known_of_lines_and_of_prime_numbers_of_ranks() -> None:
    line = BLOCKS[:6]
    for ahead, blocks in ((Lookahead(6), line), (Lookahead(7), BLOCKS), (Lookahead(1), BLOCKS)):
        for _ in range(3):
            assert ahead.extra("L", blocks, SIZES[: len(blocks)], np.zeros(len(blocks), dtype=int)) is None
