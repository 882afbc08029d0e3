"""The k best of rows against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tartan._native import first_of_groups
from tartan.store.topk import TopK, select

SCORES = st.one_of(st.sampled_from([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]), st.floats(-(2.0**99), 2.0**99, width=32))
BLOCKS = st.tuples(st.integers(0, 6), st.integers(0, 9)).flatmap(
    lambda shape: st.tuples(arrays(np.float32, shape, elements=SCORES), arrays(bool, shape))
)


def oracle(row: np.ndarray, valid: np.ndarray, k: int, largest: bool) -> list[int]:
    usable = [j for j in range(len(row)) if valid[j] and not np.isnan(row[j])]
    return sorted(usable, key=lambda j: (-row[j] if largest else row[j], j))[:k]


@given(BLOCKS, st.integers(1, 12), st.booleans())
def test_select_is_a_sort(block: tuple[np.ndarray, np.ndarray], k: int, largest: bool) -> None:
    scores, valid = block
    chosen = select(scores, valid, k, largest=largest)
    assert chosen.shape == (len(scores), k)
    found = [[j for j in row if j >= 0] for row in chosen.tolist()]
    assert found == [oracle(*row, k, largest) for row in zip(scores, valid, strict=True)]


@given(BLOCKS, st.integers(1, 5), st.booleans(), st.permutations(range(3)))
def test_the_order_of_blocks_does_not_matter(
    block: tuple[np.ndarray, np.ndarray], k: int, largest: bool, order: list[int]
) -> None:
    scores, valid = block
    best = TopK(len(scores), k, np.dtype(np.float32), np.float32(np.nan), largest=largest)
    for part in order:
        at = slice(3 * part, 3 * part + 3)
        best.update(0, 3 * part, scores[:, at], valid[:, at])
    for i, row in enumerate(best.indices.tolist()):
        expected = oracle(scores[i], valid[i], k, largest)
        assert row == expected + [-1] * (k - len(expected))
        np.testing.assert_array_equal(best.scores[i, : len(expected)], scores[i, expected])


@pytest.mark.parametrize("k", [1, 2, 5])
def test_first_of_groups(k: int) -> None:
    groups, indices = np.array([5, 2, 5, 5, 2]), np.array([3, 1, 2, 9, 0])
    keys = np.array([1.0, 4.0, 1.0, 0.5, 4.0])
    order = first_of_groups(groups, indices, keys, k, False)
    assert order.tolist() == [4, 1][:k] + [3, 2, 0][:k]


def test_no_rows_are_no_groups() -> None:
    empty = np.empty(0, np.int64)
    assert first_of_groups(empty, empty, empty.astype(float), 3, False).tolist() == []
