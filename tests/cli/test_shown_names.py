"""``--names`` where a run is looked at: info, show, view, report, fuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tartan
from tartan import apps
from tartan.result.shown_run import show_run
from tartan.run.inspection import Inspector
from tartan.view.live import LiveRun

# Two species of three, and a file that cannot be read.
SPECIES = {f"GCF_{k}.fna": f"Escherichia strain {k}" for k in range(6)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("genomes")
    rng = np.random.default_rng(1)
    bases = rng.integers(0, 4, (2, 20_000))
    for k, name in enumerate(SPECIES):
        letters = np.where(rng.random(20_000) < 0.02, rng.integers(0, 4, 20_000), bases[k // 3])
        (place / name).write_text(">c\n" + "".join("ACGT"[letter] for letter in letters) + "\n")
    (place / "bad.fna").write_text(">c\nNNNN\n")
    (place / "names.tsv").write_text("".join(f"{key}\t{name}\n" for key, name in SPECIES.items()))
    tartan.allpairs(apps.Genomes(scaled=20), str(place / "*.fna"), out=place / "r.tartan", workers=1, on_error="skip")
    return place


def test_info_lists_failures_by_their_names(command: Any, folder: Path) -> None:
    run = folder / "r.tartan"
    assert re.search(r"item bad +\[parse\]", command("info", run, "--names", "stem").out)
    found = json.loads(command("info", run, "--names", "stem", "--json").out)
    assert [failure["items"] for failure in found["failures"]] == [["bad"]]
    assert re.search(r"item bad\.fna +\[parse\]", command("info", run, "--names", "full").out)


def test_show_calls_items_by_their_names_and_finds_them_by_both(command: Any, folder: Path) -> None:
    words = ("--names", folder / "names.tsv")
    for a, b in (("GCF_0", "GCF_1"), ("strain 0", "strain 1"), ("GCF_0.fna", "Escherichia strain 1")):
        shown = command("show", folder / "r.tartan", a, b, *words)
        assert shown.status == 0
        assert "Escherichia strain 1 is number" in shown.out
        assert "GCF" not in shown.out
    found = json.loads(command("show", folder / "r.tartan", "strain 4", "bad", "--json", *words).out)
    assert (found["a"]["key"], found["a"]["item"]) == ("Escherichia strain 4", 4)
    assert found["b"]["key"] == "bad.fna"  # not in the table
    assert command("show", folder / "r.tartan", "strain 0", "1").status == 2


def test_a_report_has_no_other_names(command: Any, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = command("report", folder / "r.tartan", "-o", page, "--names", folder / "names.tsv")
    assert done.status == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in SPECIES.values())
    assert "GCF_" not in text
    # In the list of groups, in the drawing of the matrix and its tree, and in the table of items.
    assert text.count("Escherichia strain 5") >= 4


def test_a_page_calls_items_by_their_names(folder: Path) -> None:
    live = LiveRun(
        lambda: show_run(tartan.open(folder / "r.tartan"), str(folder / "names.tsv")),
        lambda found: Inspector(found, apps),
    )
    assert live.find("strain 3") == live.find("GCF_3") == [{"item": 3, "key": "Escherichia strain 3"}]
    assert live.item(3)["key"] == "Escherichia strain 3"
    assert {near["key"] for near in live.item(0)["neighbours"]} <= set(SPECIES.values())
    assert "GCF_" not in live.body()
    assert "Escherichia strain 2" in live.body()


@pytest.mark.slow
def test_fused_particles_are_called_by_their_names(command: Any, tmp_path: Path) -> None:
    place = tmp_path / "particles"
    assert command("simulate", "microscopy", place, "-n", "8").status == 0
    run = tmp_path / "r.tartan"
    assert command("run", "microscopy", place, "-o", run, "-q").status == 0
    keys = tartan.open(run).keys
    (tmp_path / "names.tsv").write_text("".join(f"{key}\tpore {at}\n" for at, key in enumerate(keys)))
    # Its status says whether a structure is found.
    command("microscopy", "fuse", run, "-o", tmp_path / "fused", "--names", tmp_path / "names.tsv")
    names = pq.read_table(tmp_path / "fused" / "fused.parquet").column("particle").to_pylist()
    assert names
    assert all(re.fullmatch("pore [0-7]", name) for name in names)
    table = (tmp_path / "fused" / "particles.csv").read_text().splitlines()[1:]
    assert all(line.startswith("pore ") for line in table)


def test_names_that_would_be_shared_are_refused(command: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("GCF_0,same\nGCF_1,same\n")
    for words in (("info",), ("report", "-o", tmp_path / "p.html"), ("view",)):
        done = command(words[0], folder / "r.tartan", *words[1:], "--names", tmp_path / "one.csv")
        assert done.status == 2
        assert "GCF_0.fna, GCF_1.fna would all be called 'same'" in done.err


def test_one_item_on_both_sides_has_one_name(command: Any, folder: Path, tmp_path: Path) -> None:
    run, files = tmp_path / "r.tartan", [folder / "GCF_0.fna", folder / "GCF_1.fna"]
    made = command("run", "genomes", *files, "--against", *files, "-o", run, "-q", "--set", "scaled=20")
    assert made.status == 0, made.err
    found = command("neighbors", run, "-k", "1", "-q", "--names", folder / "names.tsv")
    assert found.status == 0, found.err
    assert "Escherichia strain 0\t1\tEscherichia strain 0\t1" in found.out
