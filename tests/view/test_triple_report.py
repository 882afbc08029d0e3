"""The report of a run of triples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tartan
from tartan.cli.main import main
from tartan.view.triple_report import write_triple_report

POINTS = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (5.0, 5.0), (6.0, 5.0), (9.0, 0.0), (2.0, 7.0)]


def area(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])) / 2


def run_of(folder: Path, keep: object | None = None) -> tartan.TripleRun:
    return tartan.alltuples(area, POINTS, folder / "t.tartan", keep=keep or tartan.top(2), workers=1, quiet=True)


@pytest.mark.slow
def test_a_run_of_triples_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path)
    assert main(["report", str(run.path)]) == 0
    page = (tmp_path / "t.html").read_text("utf-8")
    assert "All 35 triples of 7 items" in page
    assert "the 2 largest of each item" in page
    best = run.triples(limit=1).read_all().to_pylist()[0]
    row = page[page.index('<tr><td class="number">1</td>') :].partition("</tr>")[0]
    assert re.findall(r'<td class="key">(\d+)</td>', row) == [str(best[end]) for end in ("i", "j", "k")]
    assert f'<td class="number">{best["score"]:.4g}</td>' in row
    assert re.search(r">[\d.]+ best</text>", page)
    assert "report in" in capsys.readouterr().err


@pytest.mark.slow
def test_the_same_run_of_triples_gives_the_same_bytes(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    pages = [write_triple_report(run, tmp_path / f"{name}.html", title="x").read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_hostile_names_of_triples_stay_text(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.folder.items.keys[:] = [f"<script>alert({i})</script>\u202e" for i in range(len(POINTS))]  # type: ignore[union-attr]
    page = write_triple_report(run, tmp_path / "t.html", title="<script>x").read_text("utf-8")
    assert "<script>alert" not in page
    assert "<script>x" not in page
    assert "\u202e" not in page
    assert len(re.findall("<script", page)) == 2


@pytest.mark.slow
def test_nothing_kept_is_said(tmp_path: Path) -> None:
    page = write_triple_report(run_of(tmp_path, tartan.over(1e9)), tmp_path / "t.html").read_text("utf-8")
    assert "No triple is kept." in page
    assert "all that are 1e+09 or more" in page
