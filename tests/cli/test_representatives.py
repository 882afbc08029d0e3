"""Which item stands for each cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two species: strains of one differ by their length, those of the other by their contigs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    a, b = ("".join(rng.choice(list("ACGT"), 9000)) for _ in range(2))
    files = {
        "a1.fna": [a[:8000]], "a2.fna": [a], "a3.fna": [a[500:]],
        "b1.fna": [b[:3000], b[3000:6000], b[6000:]], "b2.fna": [b[:1000], b[1000:]], "b3.fna": [b[:5000], b[5000:]],
        "bad.fna": ["N" * 50],
    }  # fmt: skip
    for name, contigs in files.items():
        (tmp_path / name).write_text("".join(f">{number}\n{contig}\n" for number, contig in enumerate(contigs)))
    assert main(["run", "genomes", "*.fna", "-o", "r.tartan", "-q", "--set", "scaled=5"]) == 3
    return tmp_path


def chosen(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["cluster", "r.tartan", "--json", "-q", "--failed", "drop", *words]) == 0
    about: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert about["sizes"] == [3, 3]
    names: list[str] = about["representatives"]
    return names


def test_representatives_are_chosen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen(capsys, "--representative", "first") == ["a1.fna", "b1.fna"]
    assert chosen(capsys, "--representative", "longest") == ["a2.fna", "b1.fna"]
    assert chosen(capsys, "--representative", "n50") == ["a2.fna", "b2.fna"]


def test_the_central_item_is_the_nearest_to_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    central = chosen(capsys, "--representative", "central")
    run = tartan.open(folder / "r.tartan")
    distances = 1 - run.matrix("ani", fill=1)
    np.fill_diagonal(distances, 0)
    for number, name in enumerate(central):
        there = slice(3 * number, 3 * number + 3)
        assert np.argmin(distances[there, there].sum(axis=1)) + 3 * number == list(run.keys).index(name)


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_table_decides(folder: Path, capsys: pytest.CaptureFixture[str], separator: str) -> None:
    rows = [["Bin Id", "Completeness", "note"], ["a1", "50", ""], ["a3", "99.5", ""], ["b3.fna", "", ""], ["b2", "7"]]
    (folder / "q.tsv").write_text("\n".join(separator.join(row) for row in rows))
    assert chosen(capsys, "--representative", "q.tsv:Completeness") == ["a3.fna", "b2.fna"]
    assert main(["cluster", "r.tartan", "-q", "--failed", "drop", "--representative", "q.tsv:Completeness"]) == 0
    assert "a1.fna\t0\ta3.fna" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("best", "'best' is none of first, central, longest, n50 or TABLE:COLUMN"),
        ("none.tsv:x", "none.tsv: No such file or directory"),
        ("q.tsv:x", "q.tsv has no column 'x'; it has n, text"),
        ("q.tsv:text", "q.tsv, line 2: 'old' in the column 'text' is not a number"),
        ("q.tsv:n", "no item of the cluster of 'b1.fna' has a number there"),
    ],
)
def test_what_cannot_decide_is_named(folder: Path, capsys: pytest.CaptureFixture[str], way: str, reason: str) -> None:
    (folder / "q.tsv").write_text("item\tn\ttext\na1\t1\told\n")
    assert main(["cluster", "r.tartan", "-q", "--failed", "drop", "--representative", way]) == 2
    assert reason in capsys.readouterr().err


def test_items_without_lengths_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("rows.npy", np.random.default_rng(1).random((6, 3)))
    assert main(["run", "vectors", "rows.npy", "-o", "v.tartan", "-q"]) == 0
    assert main(["cluster", "v.tartan", "-k", "2", "-q", "--representative", "longest"]) == 2
    assert "'0' has no letters or amino acids or members or shingles or length" in capsys.readouterr().err
    np.save("m.npy", np.zeros((3, 3)))
    assert main(["cluster", "m.npy", "-k", "2", "-q", "--representative", "n50"]) == 2
    assert "a matrix has none; use central" in capsys.readouterr().err


def greedy(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    capsys.readouterr()
    assert main(["cluster", "r.tartan", "-q", "--failed", "drop", "--method", "greedy", *words]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split("\t") == ["item", "cluster", "representative", "distance"]
    return [row.split("\t") for row in rows]


@pytest.mark.parametrize(
    ("way", "names"),
    [
        ("first", ["a1.fna", "b1.fna"]),
        ("longest", ["a2.fna", "b1.fna"]),
        ("n50", ["a2.fna", "b2.fna"]),
        ("q.tsv:size", ["a3.fna", "b3.fna"]),
    ],
)
def test_greedy_takes_representatives_in_that_order(
    folder: Path, capsys: pytest.CaptureFixture[str], way: str, names: list[str]
) -> None:
    (folder / "q.tsv").write_text("item\tsize\na1\t1\na2\t2\na3\t3\nb1\t4\nb2\t5\nb3\t6\n")
    rows = greedy(capsys, "--threshold", "0.1", "--representative", way)
    assert sorted({row[2] for row in rows if row[1]}) == sorted([*names, ""])
    run = tartan.open(folder / "r.tartan")
    distances = 1 - run.matrix("ani", fill=1)
    place = {key: item for item, key in enumerate(run.keys)}
    for item, label, representative, distance in rows:
        if item == "bad.fna":
            assert (label, representative, distance) == ("-1", "", "")
        elif item == representative:
            assert float(distance) == 0
        else:
            assert float(distance) == pytest.approx(distances[place[item], place[representative]], abs=1e-7)
            assert float(distance) <= 0.1


def test_greedy_needs_a_number_of_what_represents(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.tsv").write_text("item\tn\na1\t1\n")
    words = ["--method", "greedy", "--threshold", "0.1", "--representative", "q.tsv:n"]
    assert main(["cluster", "r.tartan", "-q", "--failed", "drop", *words]) == 2
    assert "no item of the cluster of 'b1.fna' has a number there" in capsys.readouterr().err


def test_greedy_of_a_matrix_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(6.0)
    np.save("d.npy", np.abs(x[:, None] - x))
    words = ["cluster", "d.npy", "-q", "--method", "greedy", "--threshold", "1"]
    assert main(words) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[2], float(row[3])) for row in rows] == [
        ("1", 1.0), ("1", 0.0), ("1", 1.0), ("3", 0.0), ("3", 1.0), ("5", 0.0)
    ]  # fmt: skip
    assert main([*words, "--representative", "longest"]) == 2
    assert "a matrix has none; use central" in capsys.readouterr().err
    assert main(["cluster", "d.npy", "-q", "--method", "greedy"]) == 2
    assert "greedy needs to know what is near" in capsys.readouterr().err
