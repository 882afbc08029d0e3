"""The picture of pairs over time: one strip for each rank of a run on several."""

from __future__ import annotations

import re

import pytest

from tartan.view.report_sections import draw_timeline

COMMITS = [(100.0 + k, 10) for k in range(11)]


def test_each_rank_has_a_strip_that_is_darkest_where_it_computed_most() -> None:
    work = {"begun": 100.0, "seconds": 5.0, "pairs": {"rank-10": [20, 30], "rank-2": [60, 0]}}
    drawn = draw_timeline(COMMITS, 100.0, 110, work)
    assert drawn is not None
    assert re.findall(r"<title>(rank-\d+): (\d+) pairs", drawn) == [("rank-2", "60"), ("rank-10", "50")]
    cells = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" height="10" fill-opacity="([\d.]+)"', drawn)
    assert cells == [
        ("48.0", "180", "331.0", "1.0"),
        ("48.0", "194", "331.0", "0.43"),
        ("379.0", "194", "331.0", "0.57"),
    ]
    assert 'viewBox="0 0 720 208"' in drawn


@pytest.mark.slow
def test_ranks_of_an_execution_that_is_not_known_are_left_out() -> None:
    plain = draw_timeline(COMMITS, 100.0, 110)
    assert plain == draw_timeline(COMMITS, 100.0, 110, {"begun": 0, "seconds": 0.5, "pairs": {}})
    assert plain is not None
    assert "rank" not in plain
