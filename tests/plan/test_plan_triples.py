"""Plans of runs of triples: their loads, the bound, and what they cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tartan.core.pairs.planned import count_loads
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import choose_triple_grid, choose_triple_layout
from tartan.core.pairs.workload import AllPairs
from tartan.errors import ConfigError
from tartan.plan import plan_report
from tartan.plan.file import parse_plan

PLAN = """
[workload]
n_items = 60
arity = 3
compare = 0.001
parse = 0.5
file_bytes = "1MB"

[machine]
host_slots = 21
cpu_workers = 2
storage_bytes_per_second = "1MB"
"""


@pytest.mark.slow
def test_loads_and_the_bound_are_printed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PLAN)
    report = plan_report([file], processes=1)
    (found,) = report.as_dict()["plans"][0]["predictions"]
    grid = choose_triple_grid(60, 21, 4)
    loads = count_loads(NodePlan(grid, AllPairs(60), choose_triple_layout(grid, 21)))
    assert (found["loads"], found["loads_bound"], found["n_triples"]) == (loads, 60**3 / (3 * 21**2), 34220)
    assert found["least_seconds"] == max(loads * 0.25 + 34220 * 0.0005, loads)
    title, head, line = report.as_text().splitlines()
    assert title == "mine: 60 items, 34,220 triples; 2 CPU workers, 21 host slots"
    assert head.split()[:3] == ["loads", "bound", "loads/bound"]
    assert line.split()[:2] == [f"{loads:,}", "163"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("arity = 3", "arity = 4", "workload.arity is 4; it must be 2 or 3"),
        ("arity = 3", "arity = 3\nn_left = 5", "workload.n_left is 5; it must be absent where workload.arity is 3"),
        ("arity = 3", "arity = 3\ndiagonal = true", "workload.diagonal is True; it must be absent"),
        ("n_items = 60", "n_items = 2", "workload.n_items is 2; it must be 3 or more"),
        ("host_slots = 21", "host_slots = 2", "machine.host_slots is 2; it must be 3 or more"),
        ("[machine]", "[cluster]\nnodes = [2]\n[machine]", "absent where workload.arity is 3"),
        ("host_slots = 21", "host_slots = 21\ndevices = [{slots = 9}]", "triples are compared on the CPU"),
    ],
)
def test_what_triples_cannot_have_is_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_plan(PLAN.replace(before, after))


def test_triples_lose_no_nodes(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PLAN)
    with pytest.raises(ConfigError, match="mine has one node, so none can be lost"):
        plan_report([file], fail=1)
