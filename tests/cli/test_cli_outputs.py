"""What exists is replaced on request only: one rule for all commands that write files, said before they compute."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors import Vectors
from tartan.base.outputs import holds_run, refuse_inside_run
from tartan.errors import ConfigError

# Command and the file that it is asked to write; {run} is a run, {matrix} a file.
FILES = {
    "report {run} -o FILE": "page.html",
    "tree {matrix} -o FILE": "tree.nwk",
    "tree {matrix} --picture FILE": "tree.svg",
    "cluster {matrix} -k 2 -o FILE": "table.tsv",
    "cluster {matrix} -k 2 --picture FILE": "picture.png",
    "cluster {matrix} --curve FILE": "curve.svg",
    "neighbors {matrix} -o FILE": "table.csv",
    "outliers {matrix} -o FILE": "table.txt",
    "embed {matrix} --no-keep -o map -q": "map.tsv",
    "embed {matrix} --no-keep -o map --svg -q": "map.svg",
    "embed {matrix} --no-keep -o map --pviz -q": "map.pviz",
    "embed {matrix} --no-keep -o map --density FILE -q": "density.png",
    "export {run} FILE": "matrix.npy",
    "export {run} FILE --format phylip-strict": "matrix.phy",
    "export {run} FILE --sorted": "pairs.parquet",
    "align {matrix} {matrix} -o FILE": "moved.tsv",
    "plan --chart FILE": "chart.svg",
    "sort numbers.npy FILE": "sorted.npy",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, a matrix and numbers to sort."""
    folder = tmp_path_factory.mktemp("inputs")
    points = np.random.default_rng(0).random((8, 3))
    tartan.allpairs(Vectors(), points, out=folder / "a.tartan", quiet=True)
    np.save(folder / "matrix.d.npy", np.abs(points[:, None] - points).sum(axis=2))
    np.save(folder / "numbers.npy", np.arange(5)[::-1])
    return folder


@pytest.fixture
def words(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return the words of a command in a folder of its own with a run, a matrix and numbers to sort."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    return lambda text: text.format(run="a.tartan", matrix="matrix.d.npy").split()


@pytest.mark.parametrize("text", FILES)
def test_a_file_that_exists_is_kept_and_nothing_is_computed(command: Any, words: Any, text: str) -> None:
    target = Path(FILES[text])
    target.write_text("precious")
    before = sorted(Path().iterdir())
    said = command(*words(text.replace("FILE", str(target))))
    assert (said.status, said.out) == (2, "")
    assert f"{target} exists; choose another name, or replace it with `--overwrite`" in said.err
    assert said.err.count("\n") == 1
    assert (target.read_text(), sorted(Path().iterdir())) == ("precious", before)


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text in FILES if "plan" not in text and "--curve" not in text])
def test_it_is_replaced_on_request(command: Any, words: Any, text: str) -> None:
    target = Path(FILES[text])
    target.write_text("precious")
    done = command(*words(text.replace("FILE", str(target))), "--overwrite")
    assert done.status == 0, done.err
    assert target.read_bytes() != b"precious"


@pytest.mark.parametrize("text", FILES)
def test_nothing_is_written_into_a_run(command: Any, words: Any, text: str) -> None:
    inside = Path("a.tartan") / FILES[text]
    text = text.replace("-o map", "-o a.tartan/map").replace("FILE", str(inside))
    said = command(*words(text), "--overwrite")
    assert (said.status, said.out) == (2, "")
    assert "lies in the run" in said.err
    assert not inside.exists()


def test_a_link_into_a_run_leads_nowhere(words: Any) -> None:
    Path("way").symlink_to(Path("a.tartan").resolve())
    with pytest.raises(ConfigError, match="lies in the run"):
        refuse_inside_run(Path("way/page.html"))


def test_a_manifest_of_something_else_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert not holds_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tree {matrix} -o t.svg", "t.svg cannot be written: Newick is written as .nwk,"),
        ("tree {matrix} -o t.svg", "a picture is drawn with --picture"),
        (
            "cluster {matrix} -k 2 -o photo.jpg",
            "photo.jpg cannot be written: a table is written as .tsv, .csv",
        ),
        (
            "neighbors {matrix} -o x.parquet",
            "x.parquet cannot be written: a table is written as .tsv, .csv",
        ),
        ("outliers {matrix} -o x.npy", "x.npy cannot be written: a table is written as .tsv, .csv"),
        ("report {run} -o page.pdf", "page.pdf cannot be written: a page is written as .html"),
        ("report {run} -o page", "page cannot be written: a page is written as .html"),
        ("align {matrix} {matrix} -o m.pviz", "m.pviz cannot be written: a map is written as"),
        ("embed {matrix} --density d.svg", "d.svg cannot be written: this picture is written as .png"),
        ("tree {matrix} --picture t.gif", "t.gif"),
        ("cluster {matrix} --curve c.gif", "c.gif"),
        ("cluster {matrix} -k 2 --picture c.svg", "c.svg"),
        ("plan --chart c.txt", "c.txt"),
        ("export {run} m.docx", "m.docx"),
        ("embed {matrix} -o w.csv", "w.csv cannot be written: a map is a .tsv, a .png and a .html; --out w writes"),
        ("run vectors {matrix} -o r.csv", "r.csv cannot be written: a run is a folder; name it r.tartan"),
        ("blocks lu {matrix} -o w.npy", "w.npy cannot be written: the result is a Zarr array; name it w.zarr"),
        (
            "simulate vectors d.csv -n 3",
            "d.csv cannot be written: the files go into a folder; name the folder, such as d",
        ),
        ("microscopy fuse {run} -o f.png", "f.png cannot be written: the files go into a folder"),
        ("lcms cluster {matrix} -o f.tsv", "f.tsv cannot be written: the files go into a folder"),
        ("cluster {matrix} -k 2 -o x.csv --curve x.csv", "x.csv is named for two files"),
    ],
)
def test_a_suffix_of_another_format_is_refused_first(command: Any, words: Any, text: str, said: str) -> None:
    before = sorted(Path().iterdir())
    shown = command(*words(text))
    assert (shown.status, shown.out) == (2, "")
    assert said in shown.err
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("text", ["cluster {matrix} -k 2 -q -o -", "neighbors {matrix} -k 1 -q -o -"])
def test_a_table_named_csv_has_commas(command: Any, words: Any, text: str) -> None:
    shown = {
        suffix: (command(*words(text[:-1] + f"t.{suffix}")), Path(f"t.{suffix}").read_text())[1]
        for suffix in ("csv", "tsv")
    }
    assert shown["csv"] == shown["tsv"].replace("\t", ",")
    assert "\t" in shown["tsv"]


@pytest.mark.parametrize(
    "text",
    [
        "simulate vectors DIR -n 8",
        "simulate lcms DIR -n 50",
        "lcms cluster peaks.txt -o DIR",
        "microscopy fuse {run} -o DIR",
    ],
)
def test_a_folder_that_holds_something_is_left_alone(command: Any, words: Any, text: str) -> None:
    Path("mine").mkdir()
    Path("mine/truth.json").write_text("precious")
    said = command(*words(text.replace("DIR", "mine")))
    assert (said.status, said.out) == (2, "")
    assert (
        "mine is not empty; name another folder, or replace files of the same names in it with `--overwrite`"
        in said.err
    )
    assert [path.read_text() for path in Path("mine").iterdir()] == ["precious"]


def test_a_simulation_replaces_its_own_names_on_request(command: Any, words: Any) -> None:
    Path("mine").mkdir()
    for name in ("truth.json", "thesis.tex"):
        Path("mine", name).write_text("precious")
    assert command("simulate", "vectors", "mine", "-n", "8", "--overwrite").status == 0
    assert Path("mine/truth.json").read_text() != "precious"
    assert Path("mine/thesis.tex").read_text() == "precious"


def test_a_demonstration_leaves_other_folders_alone(command: Any, words: Any) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("precious")
    said = command("demo", "mine", "--photos", "4", "--cameras", "2")
    assert (said.status, said.out) == (2, "")
    assert "mine is not empty" in said.err
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.tex"]


class TestRun:
    """``run --overwrite``: a run takes the place of a run, of nothing else."""

    def test_another_run_takes_its_place(self, command: Any, words: Any) -> None:
        np.save("points.npy", np.random.default_rng(1).random((6, 2)))
        again = ("run", "vectors", "points.npy", "-o", "a.tartan", "--quiet")
        refused = command(*again)
        assert refused.status == 2
        assert "or compute afresh in its place with `--overwrite`" in refused.err
        assert tartan.open("a.tartan").n_items == 8
        assert command(*again, "--overwrite").status == 0
        assert tartan.open("a.tartan").n_items == 6

    def test_the_same_run_is_computed_afresh(self, words: Any) -> None:
        points = np.random.default_rng(0).random((8, 3))
        first = tartan.open("a.tartan").condensed()
        again = tartan.allpairs(Vectors(), points, out="a.tartan", overwrite=True, quiet=True)
        assert not again.found_finished
        np.testing.assert_array_equal(again.condensed(), first)

    @pytest.mark.slow
    @pytest.mark.parametrize("kept", [None, pytest.param({"kind": "top-k", "k": 2}, marks=pytest.mark.exhaustive)])
    def test_triples_take_the_place_of_pairs(self, words: Any, kept: Any) -> None:
        points = [1.0, 2.0, 4.0, 9.0]
        tartan.allpairs(lambda a, b: abs(a - b), points, "b.tartan", reduce=kept, workers=1, quiet=True)
        ways = {"keep": tartan.top(1), "workers": 1, "quiet": True}
        run = tartan.alltuples(lambda a, b, c: a + b + c, points, "b.tartan", overwrite=True, **ways)
        assert run.n_triples == 4
        assert tartan.allpairs(
            lambda a, b: abs(a - b), points, "b.tartan", overwrite=True, workers=1, quiet=True
        ).finished

    def test_what_is_besides_a_run_is_kept_and_named(self, command: Any, words: Any) -> None:
        Path("a.tartan/thesis.tex").write_text("precious")
        np.save("points.npy", np.eye(3))
        said = command("run", "vectors", "points.npy", "-o", "a.tartan", "--overwrite")
        assert said.status == 2
        assert "besides a run it holds thesis.tex; move that away" in said.err
        assert tartan.open("a.tartan").finished

    def test_a_folder_of_something_else_is_kept(self, command: Any, words: Any) -> None:
        Path("mine").mkdir()
        Path("mine/thesis.tex").write_text("precious")
        said = command("run", "vectors", "matrix.d.npy", "-o", "mine", "--overwrite")
        assert said.status == 2
        assert "mine is not empty and holds no run" in said.err
        assert Path("mine/thesis.tex").read_text() == "precious"

    def test_links_are_removed_and_not_followed(self, words: Any) -> None:
        Path("mine").mkdir()
        Path("mine/thesis.tex").write_text("precious")
        shutil.rmtree("a.tartan/cache", ignore_errors=True)
        Path("a.tartan/cache").symlink_to(Path("mine").resolve())
        tartan.allpairs(Vectors(), np.eye(3), out="a.tartan", overwrite=True, quiet=True)
        assert Path("mine/thesis.tex").read_text() == "precious"
        assert not Path("a.tartan/cache").exists()

    def test_what_is_wrong_is_said_before_the_old_run_goes(self, command: Any, words: Any) -> None:
        said = command("run", "vectors", "nothing-*.npy", "-o", "a.tartan", "--overwrite")
        assert said.status == 2
        assert tartan.open("a.tartan").finished

    def test_a_part_replaces_nothing(self, command: Any, words: Any) -> None:
        said = command("run", "vectors", "matrix.d.npy", "-o", "a.tartan", "--overwrite", "--part", "1/2")
        assert said.status == 2
        assert "leave out `--overwrite` or `--part`" in said.err


def test_a_finished_list_of_pairs_is_not_said_to_be_unfinished(tmp_path: Path, command: Any) -> None:
    rows = np.eye(4, 3, dtype="f4") + 1
    tartan.allpairs(Vectors(), rows, pairs=np.array([[0, 1], [1, 2]]), out=tmp_path / "run", quiet=True)
    said = command("tree", str(tmp_path / "run"))
    assert said.status == 2
    assert "give the missing pairs a value X" in said.err
    assert "tartan resume" not in said.err


def test_a_dash_is_no_file_to_export_to(tmp_path: Path, command: Any) -> None:
    tartan.allpairs(Vectors(), np.eye(3, dtype="f4"), out=tmp_path / "run", quiet=True)
    said = command("export", str(tmp_path / "run"), "-", "--format", "csv")
    assert (said.status, "name it" in said.err) == (2, True)
