"""What sets of hashes share, against sets of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tartan
from tartan.base import shared_counts as module
from tartan.base.machine import Memory
from tartan.base.shared_counts import shared_counts, sort_hashes
from tartan.errors import ConfigError, ItemError


def hashes(*numbers: int) -> np.ndarray:
    return np.array(sorted(numbers), np.uint64)


def random_sets(n: int, seed: int) -> list[np.ndarray]:
    """Return sets of all sizes, with hashes that all hold and hashes of one."""
    rng = np.random.default_rng(seed)
    common = rng.integers(0, 2**64, 200, np.uint64)
    drawn = [
        np.concatenate([
            common[rng.random(200) < rng.random()],
            rng.integers(0, 400, int(rng.integers(0, 300)), np.uint64),
            rng.integers(0, 2**64, int(rng.integers(0, 4000)), np.uint64),
        ])
        for _ in range(n)
    ]  # fmt: skip
    return [np.unique(one) for one in drawn]


@pytest.mark.slow
def test_counts_are_those_of_sets() -> None:
    rows, columns = random_sets(70, 1), random_sets(90, 2)
    columns[4] = rows[8]
    columns[5] = hashes()
    found = tartan.shared_counts(rows, columns)
    expected = [[len({*a.tolist()} & {*b.tolist()}) for b in columns] for a in rows]
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_weights_are_added_as_products() -> None:
    rows, columns = random_sets(20, 1), random_sets(30, 2)
    rng = np.random.default_rng(3)
    weights = [[rng.random(len(one)) for one in side] for side in (rows, columns)]
    found = shared_counts(rows, columns, (weights[0], weights[1]))
    for i, (a, own) in enumerate(zip(rows, weights[0], strict=True)):
        for j, (b, other) in enumerate(zip(columns, weights[1], strict=True)):
            _, left, right = np.intersect1d(a, b, return_indices=True)
            assert found[i, j] == pytest.approx(own[left] @ other[right], rel=1e-12)


def test_arrays_of_any_layout_are_taken() -> None:
    wide = np.zeros((5, 2), np.uint64)
    wide[:, 0] = range(5)
    fixed = hashes(1, 2)
    fixed.flags.writeable = False
    assert shared_counts([wide[:, 0], fixed, np.array([])], [hashes(2, 4)]).tolist() == [[2], [1], [0]]
    assert shared_counts([], [fixed]).shape == (0, 1)
    assert shared_counts([fixed], []).shape == (1, 0)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([hashes(1), np.array([2, 1], np.uint64)], "item 1 of rows is not a set: its hashes must ascend"),
        ([np.array([1, 1], np.uint64)], "item 0 of rows is not a set"),
        ([np.array([1, 2])], "item 0 of rows is int64 of shape"),
        ([np.zeros((2, 2), np.uint64)], r"shape \(2, 2\); give uint64 of one dimension"),
        ([[1, 2]], "item 0 of rows is int64"),
    ],
)
def test_what_is_no_set_is_named(rows: list[Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        shared_counts(rows, [hashes(1)])


def test_weights_must_be_as_many() -> None:
    with pytest.raises(ConfigError, match="item 0 of columns is not a set"):
        shared_counts([hashes(1)], [hashes(1)], ([np.ones(1)], [np.ones(2)]))
    with pytest.raises(ConfigError, match="every item needs an array of weights"):
        shared_counts([hashes(1)], [hashes(1)], ([], [np.ones(1)]))


@pytest.mark.slow
def test_more_hashes_than_memory_can_sort_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 10^9 of them where 8 GB are free: the system would end the run without a word."""
    monkeypatch.setattr(module, "memory", lambda: Memory(2 * 10**8, 10**8))
    many = np.zeros(10**7, np.uint64)
    with pytest.raises(
        ItemError, match=r"10,000,000 hashes.* 180,000,000 bytes .* 100,000,000 are free; take a sample"
    ):
        sort_hashes(many)
    monkeypatch.setattr(module, "memory", lambda: Memory(2 * 10**8, 2 * 10**8))
    assert sort_hashes(many).tolist() == [0]
