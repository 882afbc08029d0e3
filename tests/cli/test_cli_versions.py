"""`tartan remove`, `replace`, `rename` and `log`, and every command that reads a run, as a user calls them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.cli.main import main

pytestmark = pytest.mark.slow
APP = """
import numpy as np, tartan

class Rows(tartan.Application):
    outputs = {"scores": "float64"}
    item_suffixes = (".txt",)
    similarity = False
    releases_gil = True

    def parse(self, key, data):
        return np.array([float(word) for word in data.split()])

    def compare_pair(self, a, b):
        return float(np.sqrt(((a - b) ** 2).sum()))
"""
NAMES = [f"name{i:02}" for i in range(21)]
GONE = ["name00", "name07", "name08", "name20"]
KEPT = [name for name in NAMES if name not in GONE]
FILES = "out.npy out.csv out.tsv out.phy out.parquet out.svg"


def make(place: Path) -> None:
    """Write the inputs, and runs of all and of those that are kept: `dense` and `kept`, of threshold `t-dense` ..."""
    chance = np.random.default_rng(1)
    (place / "in").mkdir()
    (place / "app.py").write_text(APP)
    for name in NAMES:
        points = chance.normal(size=3) + 3 * int(chance.integers(2))
        (place / "in" / f"{name}.txt").write_text(" ".join(map(str, points.tolist())))
    for names, kind in ((NAMES, "all"), (KEPT, "kept")):
        files = [str(place / "in" / f"{name}.txt") for name in names]
        ways = ["--tile", "8", "--workers", "1", "-q"]
        assert main(["run", f"{place}/app.py:Rows", *files, "-o", str(place / kind / "r.tartan"), *ways]) == 0
        more = ["--threshold", "2.5", *ways]
        assert main(["run", f"{place}/app.py:Rows", *files, "-o", str(place / kind / "t.tartan"), *more]) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    make(folder)
    shutil.copytree(folder / "all", folder / "before")
    for run in ("r.tartan", "t.tartan"):
        assert main(["remove", str(folder / "all" / run), *(f"{name}.txt" for name in GONE), "-q"]) == 0
    return folder


DENSE = [
    "export r.tartan out.npy",
    "export r.tartan out.csv",
    "export r.tartan out.tsv --names stem",
    "export r.tartan out.csv --pairs",
    "export r.tartan out.parquet",
    "export r.tartan out.csv --sorted",
    "export r.tartan out.parquet --threshold-count 9",
    "export r.tartan out.phy",
    "export r.tartan out.svg",
    "export r.tartan out.npy --format npy-condensed",
    "export r.tartan out.bin --format float32",
    "cluster r.tartan --method average -k 3",
    "cluster r.tartan --method single --threshold 1.5 --json",
    "cluster r.tartan --method pwc -k 2",
    "cluster r.tartan --method hdbscan --min-size 2 --json",
    "tree r.tartan",
    "tree r.tartan --method average --json",
    "neighbors r.tartan -k 3",
    "neighbors r.tartan -k 3 --distance 2s",
    "outliers r.tartan --all",
    "embed r.tartan --dim 2 -o out --no-keep --json -q",
    "show r.tartan name01.txt name19.txt --json",
    "show r.tartan 1 3",
]
REDUCED = [
    "export t.tartan out.csv --pairs",
    "export t.tartan out.parquet",
    "export t.tartan out.csv --sorted",
    "cluster t.tartan",
    "cluster t.tartan --method hdbscan --min-size 2 --json",
    "show t.tartan name01.txt name19.txt --json",
]


def answer(command: Any, folder: Path, line: str, tmp_path: Path, *more: str) -> tuple[Any, ...]:
    """Return what a command says and writes, without the name of the folder."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    words = [str(tmp_path / w) if w.startswith("out.") or w == "out" else w for w in line.split()]
    words = [str(folder / w) if w.endswith(".tartan") else w for w in words]
    done = command(*words, *more)
    texts = (done.out.replace(str(folder), "RUN"), done.err.replace(str(folder), "RUN"))
    files = {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    return done.status, *(text.replace(str(tmp_path), "OUT") for text in texts), files


def without_times(said: tuple[Any, ...]) -> tuple[Any, ...]:
    out = re.sub(
        r'"memory_need": (null|\{[^}]*(\{[^}]*\}[^}]*)*\})', "", said[1]
    )  # what this process holds by now counts
    err = re.sub(r"^tartan: needs at most .*\n", "", said[2], flags=re.MULTILINE)
    return (said[0], out, re.sub(r"^ +[0-9.]+ s ", "", err, flags=re.MULTILINE), said[3])


def without_version(said: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*said[:2], re.sub(r"tartan: version .*\n", "", said[2]), said[3])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("line", [*DENSE, *REDUCED])
def test_what_was_removed_is_in_no_answer(command: Any, place: Path, tmp_path: Path, line: str) -> None:
    found = answer(command, place / "all", line, tmp_path / "x")
    shutil.rmtree(tmp_path / "x")
    expected = answer(command, place / "kept", line, tmp_path / "x")
    assert found[0] == 0, found[2]
    assert without_times(found) == without_times(expected)
    for name in GONE:
        assert name not in found[1] + found[2]
        assert not any(name.encode() in data for data in found[3].values())


@pytest.mark.parametrize("line", [*DENSE, *REDUCED])
def test_an_old_version_is_what_it_was(command: Any, place: Path, tmp_path: Path, line: str) -> None:
    found = answer(command, place / "all", line, tmp_path / "x", "--at", "1")
    shutil.rmtree(tmp_path / "x")
    expected = answer(command, place / "before", line, tmp_path / "x")
    assert without_times(without_version(found)) == without_times(expected)


def test_report_and_info(command: Any, place: Path, tmp_path: Path) -> None:
    for run in ("r.tartan", "t.tartan"):
        page = tmp_path / f"{run}.html"
        assert command("report", place / "all" / run, "-o", page, "-q").status == 0
        text = page.read_text()
        assert "name01" in text
        for name in GONE:
            assert name not in text
        assert command("report", place / "all" / run, "-o", page, "-q", "--at", "1", "--overwrite").status == 0
        assert all(name in page.read_text() for name in GONE)
        facts = json.loads(command("info", place / "all" / run, "--json").out)
        other = json.loads(command("info", place / "kept" / run, "--json").out)
        for name in ("n_items", "n_pairs", "n_pairs_done", "n_failed_items", "n_failed_pairs", "state", "map"):
            assert facts[name] == other[name], name
        assert facts["version"].startswith("2 of 2")
        assert json.loads(command("info", place / "all" / run, "--json", "--at", "1").out)["n_items"] == len(NAMES)
        assert "version" not in other


@pytest.mark.exhaustive
def test_on_several_ranks(command: Any, place: Path, tmp_path: Path) -> None:
    for line in ("cluster r.tartan --method pwc -k 2 --ranks 2", "embed r.tartan --dim 2 -o out --no-keep --ranks 2"):
        for more in ((), ("--at", "1")):
            found = answer(command, place / "all", line, tmp_path / "x", *more)
            shutil.rmtree(tmp_path / "x")
            expected = answer(command, place / ("before" if more else "kept"), line, tmp_path / "x")
            shutil.rmtree(tmp_path / "x")
            assert without_version(found)[3] == expected[3]
            assert without_version(found)[1] == expected[1]


def test_log(command: Any, place: Path, tmp_path: Path) -> None:
    run = tmp_path / "r.tartan"
    shutil.copytree(place / "before" / "r.tartan", run)
    assert [line.split()[0] for line in command("log", run).out.splitlines()] == ["1"]
    assert command("remove", run, "name03.txt").status == 0
    said = command("rename", run, "name04.txt", "four")
    assert "version 3, 20 items" in said.err
    assert (place / "in" / "new.txt").write_text("1 2 3")
    assert command("replace", run, "four", place / "in" / "new.txt", "-q").status == 0
    lines = command("log", run).out.splitlines()
    assert [line.split()[0] for line in lines] == ["4", "3", "2", "1"]
    assert [re.split(r" items  ", line)[1] for line in lines] == [
        "replace four", "rename name04.txt as four", "remove name03.txt", "run",
    ]  # fmt: skip
    versions = json.loads(command("log", run, "--json").out)["versions"]
    assert [v["n_items"] for v in versions] == [20, 20, 20, 21]
    assert command("log", place / "kept" / "r.tartan", "--at", "1").status == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["remove", "R", "name1"], "there is no item name1 among 17"),
        (["remove", "R"], "required"),
        (["rename", "R", "name01.txt", "name02.txt"], "has an item 'name02.txt' already"),
        (["info", "R", "--at", "9"], "no version 9; the run has versions 1 to 2"),
        (["export", "R", "x.npy", "--at", "0"], "0"),
        (["tree", "R", "--support", "3", "--at", "1"], "leave out --at"),
        (["embed", "R", "--extend", "--at", "1"], "leave out --at"),
        (["microscopy", "fuse", "R"], ""),
    ],
)
def test_wrong_use(command: Any, place: Path, words: list[str], said: str) -> None:
    run = str(place / "all" / "r.tartan")
    done = command(*(run if word == "R" else word for word in words))
    assert done.status == 2
    assert said in done.err
