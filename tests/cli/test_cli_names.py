"""Hostile names of items: they break no line, control no terminal, are not formulas, and are read back."""

from __future__ import annotations

import ast
import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.analytics import as_dissimilarities

NAMES = ["two\nlines", "a\ttab", "\x1b[31mred", "\u202egpj.exe", "=1+1", "@x", "C:\\new", 'a "b", c', "plain", "-3"]
WRITTEN = [
    "two\\nlines", "a\\ttab", "\\x1b[31mred", "\\u202egpj.exe", "'=1+1", "'@x", "C:\\\\new", 'a "b", c', "plain", "-3",
]  # fmt: skip
COMMANDS = Path(tartan.__file__).with_name("cli")
FORBIDDEN = "\x1b\u202e\r"


class Named(tartan.Application):
    """Distances of numbers in files."""

    releases_gil = True
    similarity = False

    def parse(self, key: str, data: bytes) -> np.ndarray:
        return np.array([float(data)])

    def compare_pair(self, a: np.ndarray, b: np.ndarray) -> float:
        return float(abs(a[0] - b[0]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "items").mkdir()
    for place, name in enumerate(NAMES):
        (folder / "items" / name).write_text(str(place * place % 7 + place / 10))
    tartan.allpairs(Named, folder / "items", out=folder / "run.tartan", workers=1, quiet=True)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tartan.Run:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tartan.open("run.tartan")


@pytest.mark.parametrize(
    "words",
    [
        "neighbors run.tartan -k 3",
        "cluster run.tartan -k 2",
        "outliers run.tartan --all",
        "tree run.tartan",
        "tree run.tartan --draw",
        "info run.tartan",
        "show run.tartan plain @x --trust",
    ],
)
def test_nothing_that_is_printed_controls_a_terminal(command: Any, run: tartan.Run, words: str) -> None:
    done = command(*words.split())
    assert done.status == 0, done.err
    assert not set(FORBIDDEN) & set(done.out + done.err)


@pytest.mark.parametrize(("words", "per_item"), [("neighbors run.tartan -k 3", 3), ("cluster run.tartan -k 2", 1)])
@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_a_row_is_a_line(command: Any, run: tartan.Run, words: str, per_item: int, suffix: str) -> None:
    assert command(*words.split(), "-o", f"t.{suffix}").status == 0
    lines = Path(f"t.{suffix}").read_text().splitlines()
    assert len(lines) == 1 + per_item * len(NAMES)
    rows = list(csv.reader(lines, delimiter="\t" if suffix == "tsv" else ","))
    assert {row[0] for row in rows[1:]} == set(WRITTEN)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_tables_of_clusters_are_read_back(command: Any, run: tartan.Run, suffix: str) -> None:
    assert command("cluster", "run.tartan", "-k", "2", "-o", f"t.{suffix}").status == 0
    again = command("cluster", "run.tartan", "-k", "2", "--truth", f"t.{suffix}", "-q")
    assert "adjusted rand: 1.0000" in again.err
    mapped = command("embed", "run.tartan", "--labels", f"t.{suffix}", "-o", "map", "-q", "--no-keep")
    assert mapped.status == 0, mapped.err
    assert len(Path("map.tsv").read_text().splitlines()) == 1 + len(NAMES)


def test_coordinates_are_read_back(command: Any, run: tartan.Run) -> None:
    from tartan.view.coordinates import read_coordinates

    assert command("embed", "run.tartan", "-o", "map", "-q", "--no-keep").status == 0
    assert set(read_coordinates("map.tsv").keys or ()) == set(run.keys)
    moved = command("align", "map.tsv", "map.tsv", "-o", "moved.csv", "--json")
    assert json.loads(moved.out)["n_points"] == len(NAMES)
    assert set(read_coordinates("moved.csv").keys or ()) == set(run.keys)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_matrices_are_read_back(run: tartan.Run, suffix: str) -> None:
    run.export(f"m.{suffix}", diagonal=0.0)
    found = as_dissimilarities(f"m.{suffix}")
    assert list(found.names) == list(run.keys)
    assert "'=1+1" in Path(f"m.{suffix}").read_text()


@pytest.mark.parametrize("ways", [{"pairs": True, "names": "full"}, {"sort": True, "names": "full"}])
def test_pairs_are_lines_and_read_back(command: Any, run: tartan.Run, ways: Any) -> None:
    run.export("p.csv", **ways)
    lines = Path("p.csv").read_text().splitlines()
    assert len(lines) == 1 + run.n_pairs
    head, *rows = csv.reader(lines)
    columns = [head.index("key_i"), head.index("key_j")]
    assert {row[column] for row in rows for column in columns} <= set(WRITTEN)
    Path("pairs.csv").write_text("\n".join(["key_i,key_j", *(_two(row, columns) for row in rows[:20])]) + "\n")
    from tartan.cli.shared.pairs_file import read_pairs

    assert len(read_pairs(Path("pairs.csv"), run.keys)) == 20


def _two(row: list[str], columns: list[int]) -> str:
    return ",".join('"' + row[column].replace('"', '""') + '"' for column in columns)


def test_what_argparse_says_is_escaped(command: Any) -> None:
    said = command("info", "run.tartan", "--\x1b[31m")
    assert said.status == 2
    assert "\\x1b[31m" in said.err
    assert "\x1b" not in said.err


def test_failures_are_one_line_each(command: Any, run: tartan.Run) -> None:
    Path("items", "bad\n\x1b[2J").write_text("no number")
    said = command("run", f"{__file__}:Named", "items", "-o", "other.tartan", "-q")
    assert said.status == 3
    assert "item bad\\n\\x1b[2J [" in said.err


def test_long_messages_lose_their_middle(command: Any, api: Any) -> None:
    from tartan.errors import StoreError

    api.opened = StoreError("the cause " + "x" * 100_000 + " the way out")
    said = command("info", "r")
    assert len(said.err) < 5000
    assert "the cause x" in said.err
    assert said.err.endswith("x the way out\n")


@pytest.mark.parametrize(
    "path", sorted(Path(tartan.__file__).with_name("cli").rglob("*.py")), ids=lambda path: path.stem
)
def test_commands_print_by_what_escapes(path: Path) -> None:
    """``say`` and ``put`` escape what names hold; ``print`` does not."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert len(prints) == (2 if path.name == "output.py" else 0)
