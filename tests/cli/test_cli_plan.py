"""``tartan plan``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PLAN = """
name = "tiny"
[workload]
n_items = 30
compare = 0.001
[machine]
host_slots = 10
"""


@pytest.mark.slow
def test_a_plan_is_printed_as_a_table(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PLAN)
    outcome = command("plan", tmp_path / "a.toml", "--workers", 1)
    assert outcome.status == 0
    assert outcome.out.startswith(
        "tiny: 30 items, 435 pairs; 1 CPU worker, 10 host slots, 1 device in host memory; needs at most "
    )
    assert outcome.err == ""


@pytest.mark.slow
def test_a_plan_is_printed_as_json(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PLAN)
    outcome = command("plan", "--json", "--workers", 1, tmp_path / "a.toml")
    (entry,) = json.loads(outcome.out)["plans"]
    assert len(entry["predictions"]) == 4


def test_a_wrong_plan_is_wrong_use(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PLAN.replace("host_slots", "host_slot"))
    outcome = command("plan", tmp_path / "a.toml")
    assert outcome.status == 2
    assert "a.toml: machine.host_slot is unknown; k" in outcome.err
    assert outcome.out == ""


def test_a_missing_file_is_wrong_use(command: Callable[..., Any], tmp_path: Path) -> None:
    outcome = command("plan", tmp_path / "absent.toml")
    assert outcome.status == 2
    assert "there is no plan " in outcome.err
    assert "absent.toml" in outcome.err
