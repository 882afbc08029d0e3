"""Pairs of ranks by parts of the time: nothing is lost when parts become longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.ranks.work_over_time import MOST_PARTS, RankWork


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e5), st.integers(0, 1000)), max_size=50))
def test_all_pairs_are_counted_in_few_parts(added: list[tuple[str, float, int]]) -> None:
    work = RankWork()
    for rank, at, n_pairs in added:
        work.add(rank, at, n_pairs)
    found = work.as_dict()
    for rank in {rank for rank, _, _ in added}:
        parts = found["pairs"][rank]
        assert sum(parts) == sum(n for name, _, n in added if name == rank)
        assert len(parts) <= MOST_PARTS
        last = max(at for name, at, _ in added if name == rank)
        assert (len(parts) - 1) * found["seconds"] <= last < len(parts) * found["seconds"]
