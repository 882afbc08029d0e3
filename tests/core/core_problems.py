"""Strategies: workloads, machines and options of small runs."""

from __future__ import annotations

import numpy as np
from core_world import Problem
from hypothesis import strategies as st

from tartan.core.pairs.sizing import Costs
from tartan.core.pairs.workload import AllPairs, Candidates, NewAgainstOld, Rectangle, Workload

MOST_ITEMS = 40
SEEDS = st.integers(0, 2**16)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n = draw(st.integers(2, MOST_ITEMS))
    kind = draw(st.sampled_from(["all", "diagonal", "rectangle", "candidates", "new"]))
    if kind == "rectangle":
        return Rectangle(draw(st.integers(1, n - 1)), n)
    if kind == "new":
        return NewAgainstOld(AllPairs(n), draw(st.integers(1, n - 1)))
    if kind == "candidates":
        item = st.integers(0, n - 1)
        pairs = draw(st.lists(st.tuples(item, item), min_size=1, max_size=2 * n))
        return Candidates(n, np.array(pairs))
    return AllPairs(n, diagonal=kind == "diagonal")


@st.composite
def problems(draw: st.DrawFn, workload: st.SearchStrategy[Workload] | None = None) -> Problem:
    wanted = draw(workloads() if workload is None else workload)
    slots = st.integers(2, wanted.n_items + 3)
    return Problem(
        workload=wanted,
        slots=draw(slots),
        device_slots=tuple(draw(st.lists(st.none() | slots, min_size=1, max_size=3))),
        chunk=draw(st.none() | st.integers(1, wanted.n_items + 2)),
        order=draw(st.sampled_from(["panel", "quadrant"])),
        max_admitted=draw(st.sampled_from([1, 2, 5, 256])),
        prepare_on_device=draw(st.booleans()),
        costs=Costs(compare_seconds=draw(st.sampled_from([0.0, 0.05, 2.0]))),
        depth=draw(st.sampled_from([1, 2, 4])),
        # So large that open chunks do not fit their budget: panels are then visited in windows of columns.
        pair_bytes=draw(st.sampled_from([5, 2**28])),
    )
