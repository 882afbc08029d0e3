"""Reports of plans: the numbers are those of the replay, in this process or in others."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tartan.errors import ConfigError
from tartan.plan import plan_report, read_plan
from tartan.plan.report import VARIANTS, PlanReport, predict
from tartan.plan.side_by_side import predict_all

TEXT = """
[workload]
n_items = 30
item_bytes = "1MB"
parse = { mean = 0.01, std = 0.002 }
preprocess = 0.002
compare = 0.0001
[machine]
cpu_workers = 2
host_slots = 12
[[machine.devices]]
slots = 8
[[machine.devices]]
slots = 8
[published]
source = "elsewhere"
load_factor = 3.14
system_efficiency = 0.9
seconds = 3601
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "tiny.toml"
    file.write_text(TEXT)
    return file


@pytest.fixture(scope="module")
def report(path: Path) -> PlanReport:
    return plan_report([path], processes=1)


@pytest.mark.slow
def test_a_report_holds_every_variant(report: PlanReport) -> None:
    assert [(p.order, p.disk_level) for p in report.predictions] == list(VARIANTS)
    panel, with_disk, quadrant, _ = report.predictions
    assert panel.n_pairs == 435
    assert panel.load_factor == panel.loads / 30
    assert quadrant.loads > panel.loads
    assert with_disk.disk_hits == with_disk.loads - 30
    assert 0 < panel.busy["compute"] <= 1
    assert panel.modelled_seconds <= panel.seconds


@pytest.mark.slow
def test_the_text_shows_predictions_beside_published_figures(report: PlanReport) -> None:
    title, head, *rows = report.as_text().splitlines()
    assert title == (
        "tiny: 30 items, 435 pairs; 2 CPU workers, 12 host slots, 2 devices of 8 slots; needs at most 230 MB of "
        "memory: 200 MB interpreter and libraries, 12 MB items, 10 MB parsing"
    )
    assert head.split()[:6] == ["order", "disk", "level", "R", "R_min", "R/R_min"]
    assert [row.split()[0] for row in rows] == ["panel", "panel", "quadrant", "quadrant", "elsewhere"]
    assert rows[4].split() == ["elsewhere", "3.14", "1:00:01", "90.0%"]
    assert f"{report.predictions[0].load_factor:.2f}" in rows[0]
    assert max(map(len, [head, *rows])) <= 130


@pytest.mark.slow
def test_the_dictionary_is_json(report: PlanReport) -> None:
    (entry,) = json.loads(json.dumps(report.as_dict()))["plans"]
    assert entry["name"] == "tiny"
    assert entry["published"]["load_factor"] == 3.14
    assert [p["order"] for p in entry["predictions"]] == ["panel", "panel", "quadrant", "quadrant"]
    assert entry["predictions"][0]["system_efficiency"] == report.predictions[0].system_efficiency


@pytest.mark.exhaustive
def test_other_processes_predict_the_same(path: Path, report: PlanReport) -> None:
    assert plan_report([path], processes=2) == report


@pytest.mark.slow
def test_errors_come_back_from_other_processes(path: Path) -> None:
    plan = read_plan(path)
    too_small = replace(plan, machine=replace(plan.machine, host_slots=1))
    with pytest.raises(ConfigError, match="--host-cache"):
        predict_all([partial(predict, too_small, "panel", False)], 2)


@pytest.mark.slow
def test_a_seed_decides_the_stage_times(path: Path) -> None:
    plan = read_plan(path)
    assert predict(plan, "panel", False, seed=1) == predict(plan, "panel", False, seed=1)
    assert predict(plan, "panel", False, seed=1) != predict(plan, "panel", False, seed=2)
