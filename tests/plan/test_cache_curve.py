"""Efficiency by cache size: of plans with published figures, as text and as plain values."""

from __future__ import annotations

import pytest

from tartan.plan.cache_curve import cache_curves, cache_sizes
from tartan.plan.file import parse_plan
from tartan.plan.report import Plan

SMALL = """
name = "small"

[workload]
n_items = 40
file_bytes = 1000
item_bytes = 2000
parse = 0.01
compare = 0.1

[machine]
cpu_workers = 2
host_slots = 20

[[machine.devices]]
slots = 10

[published]
source = "Somebody"
system_efficiency = 0.9
load_factor = 3.5

[[published.caches]]
slots = 10
load_factor = 6.25
"""


@pytest.mark.slow
def test_a_plan_stands_beside_what_was_published() -> None:
    plan = parse_plan(SMALL)
    assert isinstance(plan, Plan)
    (curve,) = cache_curves([plan], processes=1)
    assert [point.slots for point in curve.points] == cache_sizes(40)
    factors = [point.load_factor for point in curve.points]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == 1.0
    assert [(point.slots, point.load_factor, point.system_efficiency) for point in curve.known] == [
        (20, 3.5, 0.9),
        (10, 6.25, None),
    ]
    lines = [line.split() for line in curve.as_text().splitlines()]
    assert ["20", "items", "50.0%", "4e-05", "GB", "3.50", "90.0%", "Somebody"] in lines
    assert curve.as_dict()["points"][-1]["share"] == 1.0
