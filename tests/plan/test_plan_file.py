"""Plan files: what they say, and what is said of wrong ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tartan.core.pairs.workload import AllPairs, Rectangle
from tartan.core.replay.node import Cost
from tartan.errors import ConfigError
from tartan.plan import list_shipped_plans, read_plan
from tartan.plan.file import parse_plan

SMALL = """
[workload]
n_items = 60
compare = 0.001
[machine]
host_slots = 20
"""

FULL = """
name = "mine"
[workload]
n_items = 100
n_left = 30
file_bytes = "3.5MB"
item_bytes = 40e6
parse = { mean = 0.1, std = 0.02 }
preprocess = 0.02
compare = { mean = 0.001 }
postprocess = 0
tile_seconds = 1e-4
[machine]
cpu_workers = 8
host_cache = "2GB"
storage_bytes_per_second = "500MB"
copy_bytes_per_second = 1e10
disk_bytes_per_second = "1GB"
[[machine.devices]]
slots = 12
[[machine.devices]]
cache = "1GB"
speed = 2.5
[[machine.devices]]
[published]
source = "my notebook"
seconds = 12.5
"""


def test_a_short_plan_has_defaults() -> None:
    plan = parse_plan(SMALL, "folder/short.toml")
    assert plan.name == "short"
    assert plan.workload == AllPairs(60)
    assert plan.machine.device_slots == (None,)
    assert plan.machine.cpu_workers == 1
    assert math.isinf(plan.machine.storage_bytes_per_second)
    assert plan.published is None


def test_a_full_plan_says_everything() -> None:
    plan = parse_plan(FULL)
    assert plan.name == "mine"
    assert plan.workload == Rectangle(30, 100)
    assert plan.costs.file_bytes == 3.5e6
    assert plan.costs.parse == Cost(0.1, 0.02)
    assert plan.costs.compare == Cost(0.001)
    assert plan.machine.host_slots == 50
    assert plan.machine.device_slots == (12, 25, None)
    assert plan.machine.device_speed == (1.0, 2.5, 1.0)
    assert plan.machine.storage_bytes_per_second == 5e8
    assert plan.published is not None
    assert plan.published.seconds == 12.5
    assert plan.published.load_factor is None


def test_pairs_with_themselves() -> None:
    plan = parse_plan(SMALL.replace("n_items = 60", "n_items = 60\ndiagonal = true"))
    assert plan.workload.n_pairs == 1830


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("n_items = 60", "", "workload.n_items", "is missing"),
        ("compare = 0.001", "", "workload.compare", "is missing"),
        ("host_slots = 20", "", "machine.host_slots (or host_cache)", "is missing"),
        ("[machine]", "[machines]", "machine", "is missing"),
        ("n_items = 60", "n_items = 60\nn_itmes = 3", "workload.n_itmes", "unknown; known here: arity, compare"),
        ("host_slots = 20", "host_slots = 20\nslots = 3", "machine.slots", "unknown"),
        ("[workload]", "[extra]\n[workload]", "extra", "unknown"),
        ("n_items = 60", 'n_items = "many"', "workload.n_items", "must be a whole number from 2 to"),
        ("n_items = 60", "n_items = true", "workload.n_items", "must be a whole number"),
        ("n_items = 60", "n_items = 0", "workload.n_items", "a whole number from 2 to 2147483648"),
        ("n_items = 60", "n_items = 3_000_000_000", "workload.n_items", "a whole number from 2 to 2147483648"),
        ("host_slots = 20", "host_slots = 1", "machine.host_slots", "a whole number, 2 or more"),
        (
            "host_slots = 20",
            "host_slots = 20\ncpu_workers = 1_000_000_000_000",
            "machine.cpu_workers",
            "from 1 to 1000000",
        ),
        ("compare = 0.001", "compare = 1e300", "workload.compare", "at most 1e9"),
        ("n_items = 60", "n_items = 60\nn_left = 60", "workload.n_left", "less than n_items"),
        ("n_items = 60", "n_items = 60\nn_left = 6\ndiagonal = true", "workload.diagonal", "no diagonal"),
        ("compare = 0.001", "compare = -1", "workload.compare", "seconds, zero or more"),
        ("compare = 0.001", "compare = nan", "workload.compare", "seconds, zero or more"),
        ("compare = 0.001", "compare = {std = 1}", "workload.compare", "or { mean = seconds"),
        ("compare = 0.001", "compare = {mean = 0, std = 1}", "workload.compare", "mean above zero"),
        (
            "compare = 0.001",
            "compare = {mean = 1, sdt = 1}",
            "workload.compare",
            "or { mean = seconds, std = seconds }",
        ),
        ("n_items = 60", 'n_items = 60\nitem_bytes = "3 apples"', "workload.item_bytes", "a size such as"),
        ("n_items = 60", 'n_items = 60\nitem_bytes = "3items"', "workload.item_bytes", "a number of bytes, or"),
        ("host_slots = 20", 'host_cache = "1GB"', "machine.host_cache", "workload.item_bytes must be given"),
        ("host_slots = 20", 'host_slots = 2\nhost_cache = "1GB"', "machine.host_cache", "absent where host_slots"),
        ("host_slots = 20", "host_slots = 2\ncopy_bytes_per_second = 0", "machine.copy_bytes_per_second", "more than"),
        ("host_slots = 20", "host_slots = 2\ndevices = 3", "machine.devices", "a list of tables"),
        ("host_slots = 20", "host_slots = 2\n[[machine.devices]]\nspeed = 0", "machine.devices[0].speed", "above zero"),
        ("host_slots = 20", "host_slots = 2\n[[machine.devices]]\nram = 1", "machine.devices[0].ram", "unknown"),
        ("[workload]", "machine = 3\n[workload]", None, "not TOML"),
        ("[workload]", "name = 3\n[workload]", "name", "must be text"),
        ("host_slots = 20", "host_slots = 20\n[published]\nload_factor = 2", "published.source", "is missing"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, key: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_plan(SMALL.replace(old, new), "my.toml")
    assert str(caught.value).startswith("my.toml")
    assert message in str(caught.value)
    assert caught.value.context["file"] == "my.toml"
    if key is not None:
        assert key in str(caught.value)
        assert key.startswith(str(caught.value.context["key"]).partition(" ")[0])


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "no.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"no\.toml: cannot be read"):
        read_plan(path)


def test_the_shipped_plans_are_those_of_the_paper() -> None:
    plans = {plan.name: plan for plan in map(read_plan, list_shipped_plans())}
    assert {name: plan.costs.n_items for name, plan in plans.items()} == {
        "forensics": 4980,
        "bioinformatics": 2500,
        "microscopy": 256,
    }
    assert [plan.machine.host_slots for plan in plans.values()] == [1050, 280, 256]
    assert [plan.machine.device_slots for plan in plans.values()] == [(291,), (81,), (256,)]
    published = [plan.published.system_efficiency for plan in plans.values() if plan.published]
    assert published == [0.946, 0.885, 0.992]
    assert plans["forensics"].workload.n_pairs == 12_397_710
    assert plans["bioinformatics"].workload.n_pairs == 3_123_750
