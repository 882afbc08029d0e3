"""What a linkage takes, before it begins."""

from __future__ import annotations

import pytest

from tartan.core.linkage import plan_linkage

N = 30_000


@pytest.mark.parametrize(
    ("memory", "there", "on_disk", "item_bytes"),
    [
        (8 * 10**9, False, False, 0),  # 3.6 GB of float32 and up to 2.7 GB of joined rows
        (6 * 10**9, False, True, 3_600_000_000),
        (3 * 10**9, True, False, 0),
        (2 * 10**9, True, True, 0),
        (0, True, True, 0),
    ],
)
def test_rows_lie_in_memory_where_they_fit(memory: int, there: bool, on_disk: bool, item_bytes: int) -> None:
    plan = plan_linkage(N, 4, memory, there=there, free_bytes=10**12)
    assert (plan.on_disk, plan.item_bytes) == (on_disk, item_bytes)
    assert plan.disk_bytes == (item_bytes + 3 * N * N if on_disk else 0)
    assert plan.on_disk or plan.memory_bytes <= memory


def test_the_bound_of_joined_rows_holds_where_pairs_are_joined_first() -> None:
    n = 1000
    lengths = [n - joins for joins in range(1, n // 2 + 1)]
    assert 0.99 * 3 * n * n < 8 * sum(lengths) <= 3 * n * n


def test_a_disk_takes_longer_than_a_cache_of_files() -> None:
    cached, read = (plan_linkage(N, 4, 0, there=True, free_bytes=free).seconds for free in (10**12, 0))
    assert read > cached
    assert cached == pytest.approx(8, rel=0.5)
    assert plan_linkage(2 * N, 4, 0, there=True, free_bytes=10**12).seconds == pytest.approx(4 * cached)
