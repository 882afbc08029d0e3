"""A sort on several nodes: what decides its phases, what packing saves, and files that describe no sort."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tartan.errors import ConfigError
from tartan.plan import plan_report
from tartan.plan.file import parse_plan
from tartan.plan.sorting import NodeSortPlan, predict_sort, sort_variants
from tartan.sort.plan import estimate_bits

PLAN = NodeSortPlan("p", 8e10, (4,), 4e9, value_bits=64.0, link_bytes_per_second=1e8)


def test_packing_saves_what_links_carry() -> None:
    packed, plain = (predict_sort(PLAN, *variant) for variant in sort_variants(PLAN))
    values = int(PLAN.n_bytes) // 8 // packed.run_files
    assert packed.bits_per_value == pytest.approx(estimate_bits(64.0, values), rel=1e-6), "the rule of a real sort"
    assert plain.link_bytes == plain.plain_link_bytes == 6e10, "a quarter of the parts lies where it is merged"
    assert packed.link_bytes / plain.link_bytes == pytest.approx(packed.bits_per_value / 64)
    assert packed.limits[1] == plain.limits[1] == "links"
    assert packed.merge_seconds / plain.merge_seconds == pytest.approx(packed.bits_per_value / 64)


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"source_bytes_per_second": 1e8}, ("source", "links")),
        ({"disk_bytes_per_second": 1e7}, ("disks", "disks")),
        ({"target_bytes_per_second": 1e7}, ("sorting", "target")),
        ({"link_bytes_per_second": math.inf}, ("sorting", "merging")),
    ],
)
def test_the_slowest_decides(changes: dict[str, float], limits: tuple[str, str]) -> None:
    row = predict_sort(replace(PLAN, **changes), 4, True)
    assert row.limits == limits
    assert row.seconds == row.sort_seconds + row.merge_seconds


def test_nodes_beside_the_data_send_everything() -> None:
    row = predict_sort(replace(PLAN, storage_nodes=2), 4, False)
    assert (row.storage_nodes, row.link_bytes) == (2, 8e10)
    assert predict_sort(replace(PLAN, storage_nodes=9), 4, False).storage_nodes == 3, "one merges"
    assert predict_sort(PLAN, 1, True).link_bytes == 0


def test_runs_in_the_file_system_of_the_input_cost_a_second_pass() -> None:
    shared = replace(PLAN, source_bytes_per_second=1e8, target_bytes_per_second=1e8, link_bytes_per_second=math.inf)
    row = predict_sort(shared, 4, True)
    assert (row.limits, row.times_faster) == (("source", "target"), 2.0)
    assert predict_sort(PLAN, 4, True).times_faster is None, "a file system without a limit"


def test_the_published_sort() -> None:
    report = plan_report(["depsort"], processes=1)  # type: ignore[list-item]
    rows = {(row["nodes"], row["packed"]): row for row in report.as_dict()["plans"][0]["predictions"]}
    assert rows[16, True]["seconds"] == pytest.approx(556.7, rel=0.01)
    assert 0.25 <= rows[16, True]["link_bytes"] / rows[16, True]["plain_link_bytes"] <= 0.32
    assert rows[16, True]["times_faster"] == pytest.approx(2.0, rel=0.01), "of 2.45: BigSort reads and writes twice"
    assert "0:09:17" in report.as_text()
    assert "2.45" in report.as_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes = []", "nodes"),
        ("nodes = [0]", "nodes"),
        ("nodes = [2]\nvalue_bits = 65", "value_bits"),
        ("nodes = [2]\nrecord_bytes = 4\nvalue_bits = 40", r"value_bits.*at most the bits of a record \(32\)"),
        ("nodes = [2]\nrecord_bytes = 100\nvalue_bits = 40", "records of 4 and 8 bytes alone are packed"),
        ("nodes = [2]\nranks = 3", "ranks"),
        ("nodes = [2]\n[[sort.published]]\nseconds = 3", "nodes"),
    ],
)
def test_what_describes_no_sort_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_plan(f'[sort]\nn_bytes = "1GB"\nmemory_bytes = "1GB"\n{text}\n')


def test_nothing_is_lost_of_a_sort() -> None:
    with pytest.raises(ConfigError, match="depsort is a sort: --fail is for plans"):
        plan_report(["depsort"], processes=1, fail=1)  # type: ignore[list-item]
