"""Plans of block tasks: what they predict and print, and the shipped ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.plan import plan_report, read_plan
from tartan.plan.blocks import BlockPlan, BlockRow, block_cells, block_variants, predict_blocks
from tartan.plan.file import parse_plan
from tartan.plan.report import PlanReport

TEXT = """
name = "small"
[blocks]
nodes = [2, 4]
compare_at = 4
affinities = ["none", "local", "auto"]
placements = ["random", "row cyclic"]
evaluate = [0.5]
operations_per_second = 1e9
link_bytes_per_second = "10MB"
[[blocks.computations]]
name = "product"
kind = "product"
blocks = [5, 5]
side = 64
[[blocks.computations]]
name = "blur"
kind = "stencil"
blocks = [3, 4]
side = 64
halo = 3
repeats = 2
operations = 49
placements = ["grid"]
[[blocks.computations]]
name = "LU"
kind = "lu"
blocks = [4, 4]
side = 64
[[blocks.published]]
computation = "product"
nodes = 4
affinity = "local"
moved_bytes = "1GB"
moved_share = 0.7
time_share = 0.8
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "small.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> PlanReport:
    return plan_report([file], processes=1)


def rows_of(report: PlanReport) -> list[BlockRow]:
    return [row for row in report.rows if isinstance(row, BlockRow)]


@pytest.mark.slow
def test_every_variant_is_predicted(report: PlanReport) -> None:
    plan = parse_plan(TEXT)
    assert isinstance(plan, BlockPlan)
    assert [row.variant for row in rows_of(report)] == block_variants(plan)
    of_product = [row for row in rows_of(report) if row.computation == "product"]
    assert len(of_product) == 2 * 3 + 3 + 2
    assert len([row for row in rows_of(report) if row.computation == "blur"]) == 2 * 3 + 2
    assert {(row.nodes, row.placement, row.affinity) for row in of_product if row.evaluate == 0.5} == {
        (4, "random", "local"),
        (4, "random", "auto"),
    }


@pytest.mark.slow
def test_predictions_are_those_of_the_replay(report: PlanReport) -> None:
    rows = {row.variant: row for row in rows_of(report)}
    for variant, row in rows.items():
        none = rows.get(replace(variant, affinity="none", evaluate=1.0))
        assert none is not None
        if variant.affinity == "auto" and variant.evaluate == 1:
            assert row.bytes_moved <= none.bytes_moved
        if row.computation == "product":
            assert row.bytes_bound is not None
            assert row.bytes_moved >= row.bytes_bound * (1 - 1e-9)
        if row.computation == "LU":
            assert row.bytes_bound is None


@pytest.mark.slow
def test_figures_stand_beside_published_ones(report: PlanReport) -> None:
    text = report.as_text()
    assert text.startswith("small: product of 5 x 5 blocks, blur of 3 x 4 blocks, LU of 4 x 4 blocks\n")
    line = next(line for line in text.splitlines() if " random " in line and " local " in line and " 4 " in line)
    assert line.split()[-4:] == ["0.93", "GiB", "0.700", "0.800"]
    plan = parse_plan(TEXT)
    assert isinstance(plan, BlockPlan)
    cells = block_cells(rows_of(report), plan)
    half = next(row for row in cells if row[4] == "50%")
    assert half[10].endswith("%")
    entry = report.as_dict()["plans"][0]
    assert entry["blocks"]["nodes"] == (2, 4)
    assert entry["predictions"][0]["bytes_moved"] > 0


@pytest.mark.slow
def test_nodes_may_be_lost(file: Path) -> None:
    plan = read_plan(file)
    assert isinstance(plan, BlockPlan)
    variant = next(one for one in block_variants(plan) if one.computation == "LU" and one.nodes == 4)
    calm, found = predict_blocks(plan, variant), predict_blocks(plan, variant, fail=2)
    assert (calm.nodes_lost, found.nodes_lost) == (0, 2)
    assert found.bytes_from_storage > 0 == calm.bytes_from_storage


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nodes = [2, 4]", "nodes = []", r"blocks\.nodes is \[\]"),
        ('"local", "auto"', '"near"', r"blocks\.affinities is .*one of auto, marginal|a list of auto, marginal"),
        ('"row cyclic"', '"diagonal"', r"blocks\.placements is .*source, centralized"),
        ("evaluate = [0.5]", "evaluate = [2]", r"blocks\.evaluate is \[2\]"),
        ("blocks = [5, 5]", "blocks = [5, 6]", r"blocks\.computations\[0\]\.blocks .*two equal numbers"),
        ("halo = 3", "halo = 32", r"blocks\.computations\[1\]\.halo is 32.*less than half of side \(64\)"),
        ('kind = "lu"', 'kind = "qr"', r"kind is 'qr'; it must be product, lu or stencil"),
        ('name = "blur"', 'name = "product"', "names that differ"),
        ("side = 64\nhalo", "halo", r"blocks\.computations\[1\]\.side is missing"),
        ("moved_share = 0.7", "moved = 0.7", r"blocks\.published\[0\]\.moved is unknown"),
    ],
)
def test_wrong_entries_are_named(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError, match=said):
        parse_plan(TEXT.replace(old, new), "mine.toml")


def test_shipped_plans_are_read() -> None:
    folder = Path(plan_report.__code__.co_filename).parent
    unicorn, thousand = (read_plan(folder / f"{name}.toml") for name in ("unicorn", "thousand"))
    assert isinstance(unicorn, BlockPlan)
    assert isinstance(thousand, BlockPlan)
    variants = block_variants(unicorn)
    assert {known.computation for known in unicorn.published} == {"convolution", "product", "LU"}
    for known in unicorn.published:
        assert any(
            (one.computation, one.nodes, one.affinity, one.evaluate)
            == (known.computation, known.nodes, known.affinity, known.evaluate)
            for one in variants
        )
    assert thousand.computations[0].blocks[0] ** 2 == 10**6
    assert thousand.nodes == (1000,)


def test_the_command_prints_a_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = file.with_name("one.toml")
    head = TEXT[: TEXT.index('[[blocks.computations]]\nname = "blur"')]
    small.write_text(head.replace("[2, 4]", "[2]").replace("compare_at = 4", "").replace('"local", ', ""))
    assert main(["plan", str(small), "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["computation", "nodes", "placement", "affinity", "evaluated"]
    assert [line.split()[3] for line in lines[2:]] == ["none", "auto"]


def test_charts_are_for_pairs_of_items(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(file), "--chart", str(file.with_name("chart.svg"))]) == 2
    assert "small describes block tasks" in capsys.readouterr().err
