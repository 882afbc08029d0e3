"""Plans of several nodes: what they print, and what the shipped ones come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tartan.errors import ConfigError
from tartan.plan import plan_report
from tartan.plan.cluster import variants
from tartan.plan.file import parse_plan
from tartan.plan.report import PlanReport, predict_nodes

TEXT = """
[workload]
n_items = 60
file_bytes = 10
item_bytes = 100
parse = 0.001
preprocess = 0.001
compare = 0.01
[machine]
cpu_workers = 2
host_slots = 30
[[machine.devices]]
slots = 10
[cluster]
nodes = [1, 3]
speeds = [1, 2, 1]
link_bytes_per_second = "1MB"
without_homes = true
[[cluster.published]]
nodes = 3
load_factor = 1.7
system_efficiency = 0.9
seconds = 12
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "several.toml"
    file.write_text(TEXT)
    return file


@pytest.fixture(scope="module")
def report(path: Path) -> PlanReport:
    return plan_report([path], processes=1)


def test_each_number_of_nodes_is_predicted_with_and_without_homes(report: PlanReport) -> None:
    assert [(row.nodes, row.homes) for row in report.rows] == [(1, True), (3, True), (1, False), (3, False)]
    _, three, _, alone = report.rows
    assert three.storage_load_factor < alone.storage_load_factor == alone.load_factor
    assert three.load_factor >= three.load_factor_bound > 1
    assert three.bytes_between_ranks_per_second > 0 == alone.bytes_between_ranks_per_second


def test_throughput_adds_up_to_all_pairs(report: PlanReport) -> None:
    for row in report.rows:
        rates = [sum(node) / len(node) for node in row.throughput]
        assert sum(rates) * row.seconds == pytest.approx(60 * 59 / 2)


def test_the_text_holds_predictions_and_published_figures(report: PlanReport) -> None:
    title, head, *lines = report.as_text().splitlines()
    lines = [line for line in lines if line.split()[1] in ("yes", "no")]
    assert title.startswith("several: 60 items, 1,770 pairs")
    assert head.split()[:6] == ["nodes", "homes", "R", "R_min", "F", "F_min"]
    assert len(lines) == 4
    assert lines[1].split()[-3:] == ["1.7", "90.0%", "0:00:12"]
    assert report.as_dict()["plans"][0]["predictions"][1]["nodes"] == 3


def test_the_directory_of_the_paper_stands_beside_homes() -> None:
    text = TEXT.replace("without_homes = true", "hops = 2").replace(
        "load_factor = 1.7", 'hops = 2\nhop_shares = ["80%"]'
    )
    plan = parse_plan(text)
    assert plan.cluster is not None
    rows = [predict_nodes(plan, variant) for variant in variants(plan.cluster)]
    assert [(row.nodes, row.hops) for row in rows] == [(1, 0), (3, 0), (3, 2)]
    homes, hops = rows[1:]
    assert homes.hop_shares == ()
    assert len(hops.hop_shares) == 3
    assert sum(hops.hop_shares) == pytest.approx(1)
    assert hops.storage_load_factor >= hops.storage_load_factor_bound
    assert hops.bytes_between_ranks_per_second > 0
    assert "80%" in PlanReport([plan], (), rows).as_text()


def test_nodes_can_be_lost(path: Path) -> None:
    found = plan_report([path], processes=1, fail=5).rows
    assert [row.ranks_lost for row in found] == [0, 2, 0, 2]


def test_only_clusters_lose_nodes(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(TEXT[: TEXT.index("[cluster]")])
    with pytest.raises(ConfigError, match="has one node, so none can be lost"):
        plan_report([file], processes=1, fail=1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes = [1, 3]", "nodes = []", "cluster.nodes is .*a list of whole numbers"),
        ("nodes = [1, 3]", "nodes = [0]", "cluster.nodes is .*a list of whole numbers"),
        ("speeds = [1, 2, 1]", "speeds = [0]", "cluster.speeds"),
        ("load_factor", "loads", r"cluster.published\[0\].loads is unknown"),
    ],
)
def test_wrong_entries_are_named(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_plan(TEXT.replace(old, new))


@pytest.mark.slow
def test_unlike_nodes_end_together() -> None:
    report = plan_report([Path("rocket-unlike")], processes=1)
    *alone, row = report.rows
    assert [one.alone for one in alone] == [1, 2, 3, 4]
    assert row.pairs_per_second >= 0.95 * sum(one.pairs_per_second for one in alone)
    assert report.as_text().splitlines()[-4].split()[0] == "1", "the throughput of each node"
    assert row.storage_load_factor == 1
    assert row.idle_share <= 0.03
    assert row.system_efficiency >= 0.97
