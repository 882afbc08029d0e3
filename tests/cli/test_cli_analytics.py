"""tree, neighbors and outliers on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.analytics import read_newick

NAMES = ("a", "b", "c", "d", "a tab\there")
POINTS = np.array([0.0, 1.0, 3.0, 7.0, 40.0])


class Closeness(tartan.Application):
    """Similarities of numbers on a line."""

    releases_gil = True
    similarity = True
    outputs = {"scores": np.float64}  # noqa: RUF012 - as applications declare them

    def parse(self, key: str, data: Any) -> Any:
        return np.array([float(data)])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.exp(-xp.abs(left - right.T))


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "line.csv"
    distances = np.abs(POINTS[:, None] - POINTS)
    lines = ["," + ",".join(NAMES)]
    lines += [name + "," + ",".join(map(str, row)) for name, row in zip(NAMES, distances.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def five(tmp_path: Path) -> Path:
    path = tmp_path / "five.npy"
    np.save(path, np.abs(POINTS[:, None] - POINTS))
    return path


class TestTree:
    def test_newick_goes_to_stdout(self, command: Any, five: Path) -> None:
        shown = command("tree", five, "--quiet")
        assert (shown.status, shown.err) == (0, "")
        assert sorted(read_newick(shown.out).leaf_names) == ["0", "1", "2", "3", "4"]

    def test_methods_and_transforms_change_it(self, command: Any, five: Path) -> None:
        methods = ("nj", "upgma", "single", "complete", "weighted")
        trees = {command("tree", five, "--method", name).out for name in methods}
        assert len(trees) == len(methods)
        assert command("tree", five, "--method", "average").out == command("tree", five, "--method", "upgma").out
        assert command("tree", five, "--transform", "0.5").out == command("tree", five, "--transform=sqrt").out

    def test_to_a_file_and_as_text(self, command: Any, matrix: Path, tmp_path: Path) -> None:
        shown = command("tree", matrix, "-o", tmp_path / "t.nwk", "--draw")
        assert set(read_newick((tmp_path / "t.nwk").read_text()).leaf_names) == set(NAMES)
        assert len(shown.out.splitlines()) == 5
        assert f"items in {tmp_path / 't.nwk'}" in shown.err

    def test_json(self, command: Any, five: Path) -> None:
        found = json.loads(command("tree", five, "--draw", "--json").out)
        assert found == {"method": "nj", "newick": command("tree", five).out.strip()}

    def test_options_without_effect_are_refused(self, command: Any, five: Path, tmp_path: Path) -> None:
        for words, said in [
            (["--layout", "radial"], "--layout changes the picture only"),
            (["--clusters", "2"], "--clusters changes the picture only"),
            (["--seed", "1"], "give --support N too"),
            (["--support", "3"], "is not a run; --support resamples"),
        ]:
            shown = command("tree", five, *words)
            assert (shown.status, shown.out) == (2, "")
            assert said in shown.err

    def test_leaves_without_suffixes(self, command: Any, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        path.write_text(",a.fa,b.fa,c.fa\na.fa,0,1,2\nb.fa,1,0,3\nc.fa,2,3,0\n")
        assert sorted(read_newick(command("tree", path, "--names", "stem").out).leaf_names) == ["a", "b", "c"]

    def test_compared_with_itself_and_with_another(self, command: Any, five: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.nwk"
        command("tree", five, "-o", other)
        assert command("tree", five, "--compare", other).out == "Robinson-Foulds distance: 0 of 4 splits (0.000)\n"
        other.write_text("((0,4),(1,3),2);")
        found = json.loads(command("tree", five, "--compare", other, "--json").out)
        assert (found["robinson_foulds"], found["n_splits"], found["normalized"]) == (4, 4, 1)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("((0,4),1", "is missing"),
            ("(x,1,2,3,4);", "the trees have different leaves, such as '0'"),
            ("(0,0,1,2,3);", "5 leaves have 4 names"),
            (None, "No such file"),
        ],
    )
    def test_no_tree_to_compare_with(self, command: Any, five: Path, tmp_path: Path, text: str, said: str) -> None:
        other = tmp_path / "other.nwk"
        if text is not None:
            other.write_text(text)
        shown = command("tree", five, "--compare", other)
        assert (shown.status, shown.out) == (2, "")
        assert said in shown.err

    def test_missing_pairs(self, command: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "m.npy", np.array([[0, 1, np.nan], [1, 0, 2], [np.nan, 2, 0]]))
        shown = command("tree", tmp_path / "m.npy", "--missing", "nan")
        assert shown.status == 2
        assert "1 pair of" in shown.err
        assert "has no distance" in shown.err
        assert command("tree", tmp_path / "m.npy").status == 2


@pytest.mark.parametrize("words", ["tree", "neighbors", "outliers", "cluster -k 2", "embed"])
def test_folder_that_is_not_there_is_said_before_the_matrix_is_read(command: Any, tmp_path: Path, words: str) -> None:
    name, *rest = words.split()
    shown = command(name, tmp_path / "none.npy", *rest, "-o", tmp_path / "no" / "x")
    assert (shown.status, shown.out) == (2, "")
    assert f"there is no folder {tmp_path / 'no'}; create it first" in shown.err


@pytest.mark.parametrize("words", ["tree", "neighbors", "outliers", "cluster -k 2"])
def test_a_folder_is_no_file_to_write_to(command: Any, tmp_path: Path, words: str) -> None:
    name, *rest = words.split()
    shown = command(name, tmp_path / "none.npy", *rest, "-o", tmp_path)
    assert (shown.status, shown.out) == (2, "")
    assert f"{tmp_path} cannot be written: it is a folder" in shown.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("words", ["tree", "neighbors", "outliers", "cluster -k 2"])
def test_a_full_disk_is_said(command: Any, five: Path, words: str) -> None:
    name, *rest = words.split()
    shown = command(name, five, *rest, "-o", "/dev/full", "--quiet")
    assert (shown.status, shown.out) == (1, "")
    assert "no space left on the file system of /dev/full" in shown.err


class TestAlike:
    """What all commands that read a matrix have in common."""

    TABLES = ("neighbors -k 2", "outliers", "cluster -k 2", "cluster --threshold 2")

    @pytest.mark.parametrize("words", TABLES)
    def test_tables_begin_with_names(self, command: Any, five: Path, words: str) -> None:
        name, *rest = words.split()
        shown = command(name, five, *rest, "--quiet")
        assert shown.status == 0
        head, *rows = [line.split("\t") for line in shown.out.splitlines()]
        assert head[0] == "item"
        assert all(len(row) == len(head) for row in rows)

    @pytest.mark.parametrize("words", [*TABLES, "tree", "embed --dim 2 -o map"])
    def test_json_is_one_object_and_quiet_is_quiet(
        self, command: Any, five: Path, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        name, *rest = words.split()
        shown = command(name, five, *rest, "--quiet", "--json")
        assert (shown.status, shown.err) == (0, "")
        assert isinstance(json.loads(shown.out), dict)

    @pytest.mark.parametrize("words", [*TABLES, "tree", "embed --dim 2 -o map"])
    def test_a_matrix_that_is_wrong_is_status_2_and_one_line(self, command: Any, tmp_path: Path, words: str) -> None:
        name, *rest = words.split()
        np.save(tmp_path / "bad.npy", np.array([[0, 1.0], [2.0, 0]]))
        shown = command(name, tmp_path / "bad.npy", *rest, "--quiet", "--json")
        assert shown.status == 2
        assert "bad.npy is not symmetric: d(0, 1) is 1, d(1, 0) is 2" in shown.err
        assert json.loads(shown.out)["error"]["code"] == "config"


def test_embed_says_before_the_work_what_it_could_not_write_or_read(command: Any, five: Path, tmp_path: Path) -> None:
    for words in (["--density", tmp_path / "no" / "d.png"], ["--labels", tmp_path / "none.tsv"]):
        shown = command("embed", five, "-o", tmp_path / "map", *words)
        assert shown.status == 2
        assert not (tmp_path / "map.tsv").exists()


class TestNeighbors:
    def test_table(self, command: Any, matrix: Path) -> None:
        shown = command("neighbors", matrix, "-k", "2", "--quiet")
        assert (shown.status, shown.err) == (0, "")
        lines = shown.out.splitlines()
        assert lines[:3] == ["item\trank\tneighbor\tdistance", "a\t1\tb\t1", "a\t2\tc\t3"]
        assert lines[-1] == "a tab\\there\t2\tc\t37"
        assert len(lines) == 11

    def test_json_and_more_than_there_are(self, command: Any, five: Path, tmp_path: Path) -> None:
        shown = command("neighbors", five, "-k", "1000000000000", "--json", "-o", tmp_path / "t.tsv")
        found = json.loads(shown.out)
        assert found["n"] == 5
        assert found["neighbors"][0] == {"item": "0", "neighbors": list("1234"), "distances": [1, 3, 7, 40]}
        assert len((tmp_path / "t.tsv").read_text().splitlines()) == 21
        assert f"table in {tmp_path / 't.tsv'}" in shown.err

    @pytest.mark.slow
    def test_scores_of_a_run_as_they_are_or_as_distances(self, command: Any, tmp_path: Path) -> None:
        tartan.allpairs(Closeness(), POINTS.tolist(), out=tmp_path / "r")
        lines = command("neighbors", tmp_path / "r", "-k", "1").out.splitlines()
        assert lines[:2] == ["item\trank\tneighbor\tscore", "0\t1\t1\t0.367879441"]
        lines = command("neighbors", tmp_path / "r", "-k", "1", "--distance=-log(s)").out.splitlines()
        assert lines[:2] == ["item\trank\tneighbor\tdistance", "0\t1\t1\t1"]

    @pytest.mark.slow
    def test_runs_that_keep_the_best_and_runs_of_two_sets(self, command: Any, tmp_path: Path) -> None:
        tartan.allpairs(
            Closeness(), POINTS.tolist(), out=tmp_path / "k", reduce={"kind": "top-k", "k": 2, "largest": True}
        )
        assert len(command("neighbors", tmp_path / "k", "-k", "1").out.splitlines()) == 6
        tartan.allpairs(Closeness(), POINTS.tolist(), against=[2.9, 39.0], out=tmp_path / "ab")
        lines = command("neighbors", tmp_path / "ab", "-k", "1").out.splitlines()
        assert len(lines) == 6

    def test_wrong_matrix(self, command: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "m.npy", np.array([[0, np.nan], [np.nan, 0]]))
        shown = command("neighbors", tmp_path / "m.npy")
        assert (shown.status, shown.out) == (2, "")
        assert "NaN" in shown.err or "nan" in shown.err


class TestOutliers:
    def test_only_those(self, command: Any, matrix: Path) -> None:
        shown = command("outliers", matrix, "-k", "2", "--threshold", "3")
        assert shown.out.splitlines()[0] == "item\tscore\tz"
        assert [line.split("\t")[0] for line in shown.out.splitlines()[1:]] == ["a tab\\there"]
        assert "1 of 5 items are outliers: their mean distance to the nearest " in shown.err

    def test_all_of_them_as_json(self, command: Any, five: Path) -> None:
        found = json.loads(command("outliers", five, "-k", "2", "--all", "--json", "--quiet").out)
        assert found["items"][0]["item"] == "4"
        assert [item["z"] for item in found["items"]] == sorted((item["z"] for item in found["items"]), reverse=True)
        assert len(found["items"]) == 5

    def test_one_item(self, command: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "one.npy", np.zeros((1, 1)))
        shown = command("outliers", tmp_path / "one.npy", "--all")
        assert shown.status == 2
        assert "has 1 item; 2 or more are needed" in shown.err


class TestPicture:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["png", "svg"])
    def test_is_written(self, command: Any, matrix: Path, tmp_path: Path, kind: str) -> None:
        pytest.importorskip("matplotlib")
        target = tmp_path / f"t.{kind}"
        shown = command("tree", matrix, "--picture", target)
        assert (shown.status, shown.out) == (0, "")
        assert f"picture in {target}" in shown.err
        first = target.read_bytes()
        assert first.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
        if kind == "svg":
            assert b">a tab here</text>" in first
        command("tree", matrix, "--picture", target)
        assert target.read_bytes() == first

    @pytest.mark.slow
    @pytest.mark.parametrize("from_table", [False, True])
    def test_leaves_have_the_colours_of_their_clusters(
        self, command: Any, matrix: Path, tmp_path: Path, from_table: bool
    ) -> None:
        pytest.importorskip("matplotlib")
        plain, coloured, clusters = tmp_path / "plain.svg", tmp_path / "coloured.svg", "2"
        if from_table:
            clusters = str(tmp_path / "clusters.tsv")
            Path(clusters).write_text(command("cluster", matrix, "-k", "2", "--method", "average").out)
        command("tree", matrix, "--picture", plain)
        shown = command("tree", matrix, "--picture", coloured, "--clusters", clusters)
        assert (shown.status, shown.out) == (0, "")
        assert coloured.read_bytes() != plain.read_bytes()

    def test_clusters_of_items_that_share_names_are_refused(self, command: Any, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        path = tmp_path / "m.csv"
        path.write_text(",a,a,c\na,0,1,2\na,1,0,3\nc,2,3,0\n")
        shown = command("tree", path, "--picture", tmp_path / "t.svg", "--clusters", "2")
        assert shown.status == 2
        assert "share names" in shown.err

    def test_without_the_library(self, command: Any, five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        shown = command("tree", five, "--picture", "t.png")
        assert shown.status == 2
        assert "pip install 'tartan-allpairs[plots]'" in shown.err

    def test_of_another_format(self, command: Any, five: Path) -> None:
        shown = command("tree", five, "--picture", "t.gif")
        assert shown.status == 2
        assert "t.gif: pictures of trees end with .png, .svg, .pdf" in shown.err


class TestClustersAtADistance:
    def test_single_linkage_unless_told_otherwise(self, command: Any, five: Path) -> None:
        assert command("cluster", five, "--threshold", "2").out == "item\tcluster\n0\t0\n1\t0\n2\t0\n3\t1\n4\t2\n"
        complete = command("cluster", five, "--threshold", "2", "--method", "complete").out
        assert complete == "item\tcluster\n0\t0\n1\t0\n2\t1\n3\t2\n4\t3\n"

    def test_annealing_has_no_threshold(self, command: Any, five: Path) -> None:
        shown = command("cluster", five, "--threshold", "2", "--method", "pwc")
        assert (shown.status, shown.out) == (2, "")
        assert "--method pwc takes a number of clusters" in shown.err
