"""Joules from RAPL counters, in folders as Linux makes them, on machines that we invent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tartan
from tartan.base.energy import EnergyMeter, counted_zones, microjoules_between
from tartan.cli.main import main
from tartan.result.statistics import joules_per_million
from tartan.run.statistics import add_energy

RANGE = 262_143_328_850
MACHINE = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:0:2": "uncore",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
    "dtpm": "dtpm",
}
COUNTED = ("intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for zone, name in MACHINE.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
        (tmp_path / zone / "energy_uj").write_text("1000000\n")
    (tmp_path / "intel-rapl").mkdir()  # the control type
    return tmp_path


def advance(root: Path, joules: dict[str, int]) -> None:
    for zone, more in joules.items():
        counter = root / zone / "energy_uj"
        counter.write_text(f"{(int(counter.read_text()) + more * 1_000_000) % (RANGE + 1)}\n")


def test_packages_and_memory_count_and_nothing_counts_twice(root: Path) -> None:
    assert [zone.name for zone in counted_zones(root)] == list(COUNTED)
    meter = EnergyMeter(root)
    advance(root, dict(zip(MACHINE, (10, 7, 2, 1, 20, 3, 40, 10, 99))))
    assert meter.joules() == pytest.approx(10 + 2 + 20 + 3)
    assert meter.problem == ""


def test_packages_of_amd_have_the_same_folders(root: Path) -> None:
    for zone in MACHINE.keys() - {"intel-rapl:0", "intel-rapl:0:0"}:
        (root / zone).rename(root / f"gone-{zone}")
    meter = EnergyMeter(root)
    advance(root, {"intel-rapl:0": 5, "intel-rapl:0:0": 4})
    assert meter.joules() == pytest.approx(5)


def test_counters_begin_again(root: Path) -> None:
    meter, step = EnergyMeter(root), RANGE // 1_000_000 - 10
    for times in range(1, 6):
        advance(root, {"intel-rapl:0": step})
        assert meter.joules() == pytest.approx(times * step)
    assert microjoules_between(5, 5, 9) == 0
    assert microjoules_between(9, 0, 9) == 1
    assert microjoules_between(7, 2, 9) == 5


def test_a_counter_that_may_not_be_read_says_the_way_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text

    def refuse(path: Path, *words: str) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *words)

    monkeypatch.setattr(Path, "read_text", refuse)
    meter = EnergyMeter(root)
    assert meter.joules() is None
    assert "intel-rapl:0/energy_uj may not be read; as root: chmod" in meter.problem


@pytest.mark.parametrize("damage", ["gone", "no number"])
def test_a_counter_that_is_lost_leaves_nothing_half_counted(damage: str, root: Path) -> None:
    meter, counter = EnergyMeter(root), root / "intel-rapl:1" / "energy_uj"
    if damage == "gone":
        counter.unlink()
    else:
        counter.write_text("?")
    assert meter.joules() is None
    assert "cannot be read" in meter.problem


@pytest.mark.parametrize("there", [True, False])
def test_a_machine_without_counters(there: bool, tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path if there else tmp_path / "none")
    assert meter.joules() is None
    assert "shows no RAPL counters" in meter.problem


def test_executions_add_up_and_those_without_counters_say_why(root: Path) -> None:
    meter = EnergyMeter(root)
    advance(root, {"intel-rapl:0": 30, "intel-rapl:1": 20})
    first = add_energy({}, meter, 1_000)
    assert first == {"joules": pytest.approx(50), "pairs": 1_000}
    assert joules_per_million({"energy": first}) == pytest.approx(50_000)
    again = EnergyMeter(root)
    advance(root, {"intel-rapl:1": 10})
    both = add_energy(first, again, 500)
    assert both == {"joules": pytest.approx(60), "pairs": 1_500}
    blind = add_energy(both, EnergyMeter(root / "none"), 10_000)  # its pairs count as little as its joules
    assert joules_per_million({"energy": blind}) == pytest.approx(40_000)
    assert "shows no RAPL counters" in blind["unknown"]


@pytest.mark.parametrize("stats", [{}, {"energy": None}, {"energy": {"joules": 0.0, "pairs": 0}}])
def test_old_runs_have_no_energy(stats: dict[str, Any]) -> None:
    assert joules_per_million(stats) is None


@pytest.mark.slow
def test_info_says_what_a_million_pairs_took_or_why_not(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    class Lit(EnergyMeter):
        def __init__(self) -> None:
            super().__init__(root)
            advance(root, {"intel-rapl:0": 9})

    for n, meter in enumerate((Lit, lambda: EnergyMeter(root / "none"))):
        monkeypatch.setattr("tartan.run.statistics.EnergyMeter", meter)
        run = tmp_path_factory.mktemp("runs") / f"run{n}"
        tartan.allpairs(lambda a, b: abs(a - b), [1, 2, 4], run, workers=1)
        assert main(["info", str(run), "--json"]) == 0
        about = json.loads(capfd.readouterr().out)
        if n == 0:
            assert about["joules_per_million_pairs"] == pytest.approx(9 / 3 * 1e6)
            assert about["energy_unknown"] is None
        else:
            assert about["joules_per_million_pairs"] is None
            assert "shows no RAPL counters" in about["energy_unknown"]
