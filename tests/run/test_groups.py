"""Items that are made of several files: folders, tables, changes, losses, other processes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.base.bundle import MARK, pack_files, unpack_files
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError
from tartan.run.inspection import Inspector
from tartan.sources.groups import open_groups
from tartan.sources.items import open_source

VALUES = {"north": [1, 2], "south": [3], "west": [4, 5, 6]}


class Total(tartan.Application):
    """The product of sums of numbers."""

    releases_gil = True

    def parse(self, key: str, data: Any) -> np.ndarray:
        try:
            return np.array([float(data)])
        except ValueError as error:
            raise ItemError(f"{key}: no number") from error

    def group(self, key: str, files: Sequence[tuple[str, bytes]]) -> np.ndarray:
        return np.array([sum(float(self.parse(f"{key}: {name}", data)[0]) for name, data in files)])

    def compare_pair(self, a: Any, b: Any) -> float:
        return float(a[0] * b[0])


class TotalInThreads(Total):
    releases_gil = True


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a folder of files for each group, and single files; it is the working directory."""
    for name, values in VALUES.items():
        (tmp_path / "sites" / name).mkdir(parents=True)
        for at, value in enumerate(values):
            (tmp_path / "sites" / name / f"{at}.txt").write_text(str(value))
    (tmp_path / "others").mkdir()
    for value in (7, 8):
        (tmp_path / "others" / f"{value}.txt").write_text(str(value))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def app_file() -> str:
    """Return the name of ``Total``, as another process finds it."""
    return f"{__file__}:Total"


@pytest.mark.parametrize("app", [Total, TotalInThreads])
def test_folders_are_items(sites: Path, app: type[Total]) -> None:
    run = tartan.allpairs(app, ["sites/*"], group="folders", quiet=True)
    assert (list(run.keys), run.condensed().tolist()) == (["north", "south", "west"], [9.0, 45.0, 45.0])


def test_a_file_beside_folders_is_a_group_of_its_own(sites: Path) -> None:
    run = tartan.allpairs(Total, ["sites/west", "others/7.txt", "sites/north"], group="folders", quiet=True)
    assert (list(run.keys), run.condensed().tolist()) == (["west", "7.txt", "north"], [105, 45, 21])


def test_files_of_the_other_side_stay_single(sites: Path) -> None:
    run = tartan.allpairs(Total, ["sites/*"], against="others", group="folders", quiet=True)
    assert run.matrix().tolist() == [[21, 24], [21, 24], [105, 120]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_says_whose_a_file_is(sites: Path, separator: str) -> None:
    lines = [("Group", "File"), ("x", "north/0.txt"), ("y y", "sites/north/1.txt"), ("x", "south/0.txt")]
    lines += [("y y", "west/0.txt"), ("x", str(sites / "sites/west/1.txt")), ("y y", "west/2.txt")]
    Path("table").write_text("\ufeff" + "\r\n".join(map(separator.join, lines)) + "\r\n\r\n", encoding="utf-8")
    run = tartan.allpairs(Total, ["sites/*/*"], group="table", quiet=True)
    assert (list(run.keys), run.condensed().tolist()) == (["x", "y y"], [9.0 * 12.0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "file,group\nnorth/0.txt,a\nnorth/1.txt,b\nnorth/0.txt,b\n",
            "line 4.*'north/0.txt' is in two groups, 'a' and",
        ),
        ("file,group\nnorth/0.txt,a\nnorth/0.txt,a\n", "line 3.*is in the table twice"),
        ("file,group\n0.txt,a\n", "line 2: '0.txt' may be .*north/0.txt.*write its path"),
        ("file,group\nnone.txt,a\n", "line 2: 'none.txt' names no file"),
        ("file,group\n/north/0.txt,a\n", "line 2: '/north/0.txt' names no file"),
        ("file,group\n../north/0.txt,a\n", "line 2: '../north/0.txt' names no file"),
        (f'file,group\nnorth/0.txt,"{"a" * 200_000}\n', "line 2: this is not CSV .*field larger than field limit"),
        ("file,group\nnorth/0.txt,\n", "line 2: a file or a group is missing"),
        ("file,group\nnorth/0.txt\n", "line 2: a file or a group is missing"),
        ("file,group\nnorth/0.txt,a\n", "has no line for .*north/1.txt"),
        ("name,camera\n", "it must have file and group"),
        ("", "it must have file and group"),
    ],
)
def test_tables_that_do_not_fit_are_refused(sites: Path, text: str, said: str) -> None:
    Path("table.csv").write_text(text)
    with pytest.raises(ConfigError, match=said):
        tartan.allpairs(Total, ["sites/*/*"], group="table.csv", quiet=True)


def test_a_table_names_hidden_files(sites: Path) -> None:
    (sites / "others/.9.txt").write_text("9")
    Path("table.csv").write_text("file,group\n.9.txt,x\n./north/0.txt,y\n")
    given = ["others/.9.txt", "sites/north/0.txt"]
    run = tartan.allpairs(Total, given, group="table.csv", quiet=True)
    assert (list(run.keys), run.condensed().tolist()) == (["x", "y"], [9.0])


def test_only_runs_that_take_items_are_said_to(sites: Path, app_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", app_file, "sites/north", "--group", "folders", "-o", "run", "-q", "--against", "others"]
    assert main(words) == 0
    assert main([*words, "sites/south"]) == 2
    said = capsys.readouterr().err
    assert "the run has 3, now there are 4" in said
    assert "tartan add" not in said


def test_groups_that_are_none_are_refused(sites: Path) -> None:
    (sites / "sites" / "empty").mkdir()
    (sites / "sites" / "same").symlink_to(sites / "sites" / "north")
    for given, how, said in [
        (["sites/empty"], "folders", "holds no file"),
        (["sites/north", "sites/north/0.txt"], "folders", "two groups, .*leave it in one: name its folder or itself"),
        (["sites"], "folders", "folder 'sites' holds no such file itself, but 4 folders of them.*'sites/\\*' does"),
        (["sites/north", "sites/same"], "folders", "is in two groups"),
        (["sites/north/0.txt", "sites/north/1.txt"], "folders", "no folder is named"),
        (["sites/nothing*"], "folders", "no file or folder matches"),
        (["sites/north"], "folder", "'folder' cannot be read.*'folders'"),
        ([1.0, 2.0], "folders", "only files are grouped"),
        (["sites/*"], {"a": ["sites/north"]}, "says no groups; give 'folders'"),
        (["sites/*"], True, "group: True says no groups"),
    ]:
        with pytest.raises(ConfigError, match=said):
            tartan.allpairs(Total, given, group=how, quiet=True)
    with pytest.raises(ConfigError, match="vectors makes items of single files"):
        tartan.allpairs(tartan.apps.Vectors(), ["sites/*"], group="folders", quiet=True)
    with pytest.raises(ConfigError, match="leave out `keys=`"):
        tartan.allpairs(Total, ["sites/*"], group="folders", keys=["a", "b", "c"], quiet=True)


def test_a_file_that_cannot_be_used_fails_its_group(sites: Path) -> None:
    (sites / "sites/west/1.txt").write_text("four")
    (sites / "sites/south/1.txt").symlink_to(sites / "nowhere")
    run = tartan.allpairs(Total, ["sites/*"], against="others", group="folders", quiet=True)
    failures = {failure.i: failure.reason for failure in run.failures if failure.j is None}
    assert set(failures) == {1, 2}
    assert "1.txt, a file of the group: No such file" in failures[1]
    assert failures[2] == "west: 1.txt: no number"


def test_what_changes_while_a_run_waits(sites: Path, app_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", app_file, "sites/*", "--group", "folders", "-o", "run", "-q"]
    assert main(words) == 0
    before = tartan.open("run").condensed()
    (sites / "sites/west/3.txt").write_text("9")  # belongs to no group of this run
    assert main(["resume", "run", "-q"]) == 0
    assert np.array_equal(tartan.open("run").condensed(), before)
    assert main(words) == 2  # which would be another west
    (sites / "sites/west/3.txt").unlink()
    assert main(words) == 0
    (sites / "sites/west/1.txt").write_text("6")
    assert main(words) == 2
    assert "content of items has changed: west" in capsys.readouterr().err


def test_items_are_added_and_found_elsewhere(sites: Path, app_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", app_file, "sites/n*", "sites/s*", "--group", "folders", "-o", "run", "-q"]) == 0
    assert main(["add", "run", "sites/west", "-q"]) == 0
    run = tartan.open("run")
    assert (list(run.keys), run.condensed().tolist()) == (["north", "south", "west"], [9.0, 45.0, 45.0])
    assert main(["add", "run", "sites/west", "-q"]) == 2
    facts = Inspector(run.folder, tartan.apps).portrait(2).facts
    assert facts["files"] == "3: 0.txt, 1.txt, 2.txt"
    shutil.move("sites", "moved")
    (sites / "more").mkdir()
    (sites / "more/1.txt").write_text("2")
    capsys.readouterr()
    assert main(["add", "run", "more", "-q"]) == 2
    assert "items that are gone: north, south; bring them back" in capsys.readouterr().err
    assert main(["add", "run", "more", "--inputs", "moved/*", "-q"]) == 0
    assert tartan.open("run").condensed().tolist() == [9.0, 45.0, 6.0, 45.0, 6.0, 30.0]


@pytest.mark.exhaustive
def test_ranks_read_groups(sites: Path, app_file: str) -> None:
    words = ["run", app_file, "sites/*", "--group", "folders", "-o", "run", "-q", "--on", "local:2"]
    assert main(words) == 0
    assert tartan.open("run").condensed().tolist() == [9.0, 45.0, 45.0]


def test_bundles_hold_names_and_contents() -> None:
    files = [("a", b""), ("ö/b", b"\x00" * 5), ("c", MARK)]
    assert unpack_files(pack_files(files)) == files


def test_a_file_that_begins_as_a_group_is_refused(sites: Path) -> None:
    (sites / "forged.txt").write_bytes(pack_files([("x", b"1"), ("y", b"2")]))
    with pytest.raises(ItemError, match="is no such file"):
        open_source(str(sites / "forged.txt")).read(0)
    shutil.copy(sites / "forged.txt", sites / "sites/north/9.txt")
    with pytest.raises(ItemError, match=r"9\.txt, a file of the group: it begins"):
        open_groups(["sites/north"], "folders").read(0)


def test_a_group_is_limited_as_a_whole(sites: Path) -> None:
    with pytest.raises(ItemError, match=r"2\.txt, a file of the group"):
        open_groups(["sites/west"], "folders", max_item_bytes=2).read(0)
