"""Runs with failed items are analysed: these are left out and named, or the run is refused by name."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from applications import Distances
from whole_program import Command

import tartan
from tartan.analytics import (
    as_dissimilarities,
    cluster,
    clusters_at,
    embed,
    linkage,
    minimum_spanning_tree,
    neighbor_joining,
    neighbors,
    outliers,
    upgma,
)
from tartan.analytics.clusters import label_clusters
from tartan.errors import ConfigError
from tartan.view.groups import groups_of
from tartan.view.matrix_svg import save_matrix_svg

VALUES = [1.0, 2.0, None, 50.0, 51.0, 52.5, None, 100.0, 101.0]
GOOD = [0, 1, 3, 4, 5, 7, 8]
BAD = [2, 6]
GROUPS = [0, 0, -1, 1, 1, 1, -1, 2, 2]
NAMES = "2 failed items are left out: 2.txt, 6.txt"


class OnePairFails(tartan.Application):
    """The pair of 50 and 51 has no score."""

    releases_gil = True

    def parse(self, key: str, data: Any) -> float:
        return float(data)

    def compare_pair(self, a: float, b: float) -> float:
        if {a, b} == {50.0, 51.0}:
            raise ValueError("no overlap")
        return abs(a - b)


def folder_of(place: Path, values: list[float | None]) -> str:
    place.mkdir()
    for index, value in enumerate(values):
        (place / f"{index}.txt").write_text("none" if value is None else str(value))
    return str(place)


@pytest.fixture
def run(tmp_path: Path) -> tartan.Run:
    """Return a run of nine files, two of which failed."""
    return tartan.allpairs(Distances(), folder_of(tmp_path / "items", VALUES), tmp_path / "run", workers=1)


@pytest.fixture
def good(run: tartan.Run) -> np.ndarray:
    """Return the matrix of the others alone."""
    return run.matrix(diagonal=0.0)[np.ix_(GOOD, GOOD)]


@pytest.fixture
def kept(tmp_path: Path) -> tartan.Run:
    """Return a run of the same files that keeps the near pairs only."""
    items, rule = folder_of(tmp_path / "items", VALUES), {"kind": "threshold", "threshold": 10.0, "largest": False}
    return tartan.allpairs(Distances(), items, tmp_path / "kept", reduce=rule, workers=1)


def same_groups(labels: list[int]) -> bool:
    """Whether labels are those of the groups, whatever their numbers."""
    pairs = set(zip(labels, GROUPS, strict=True))
    return len(pairs) == len(set(GROUPS)) == len(set(labels)) and (-1, -1) in pairs


COMMANDS = [
    "cluster",
    "cluster -k 3",
    "cluster --threshold 5 --method average",
    "cluster -k 3 --method average --picture p.png",
    "tree",
    "tree --method upgma",
    "tree --clusters 3 --picture t.svg",
    "embed --method smacof --dim 2 -o map",
    "neighbors -k 2",
    "neighbors -k 2 --transform sqrt",
    "outliers -k 2 --all",
]


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_names_what_it_leaves_out_or_refuses_it(
    command: Command, run: tartan.Run, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *more = words.split()
    refused = command(name, run.path, *more, "--failed", "error")
    assert refused.status == 2
    for part in ("2 items failed: 2.txt, 6.txt", "`--failed drop`", f"tartan resume {run.path} --retry-failed"):
        assert part in refused.err
    for followed in ((), ("--failed", "drop", "--overwrite")):
        done = command(name, run.path, *more, *followed)
        assert done.status == 0, done.err
        assert NAMES in done.err
        assert "RuntimeWarning" not in done.err


@pytest.mark.slow
def test_what_a_run_without_the_matrix_says(command: Command, kept: tartan.Run, tmp_path: Path) -> None:
    rule = {"kind": "top-k", "k": 2, "largest": False}
    nearest = tartan.allpairs(Distances(), str(tmp_path / "items"), tmp_path / "nearest", reduce=rule, workers=1)
    embed_words = ["--dim", 2, "-o", tmp_path / "map"]
    for name, path, *words in (
        ("cluster", kept.path),
        ("embed", kept.path, *embed_words),
        ("neighbors", nearest.path, "-k", 1),
    ):
        refused = command(name, path, *words, "--failed", "error")
        assert refused.status == 2
        assert "2 items failed: 2.txt, 6.txt" in refused.err
        done = command(name, path, *words)
        assert done.status == 0, done.err
        assert NAMES in done.err
    with pytest.warns(RuntimeWarning, match=NAMES):
        assert kept.cluster().tolist() == GROUPS
    with pytest.raises(ConfigError, match=r"2\.txt, 6\.txt"):
        kept.cluster(failed="error")


def test_the_old_option_is_unknown(command: Command, run: tartan.Run) -> None:
    refused = command("cluster", run.path, "-k", 3, "--drop-failed")
    assert refused.status == 2
    assert "unrecognized arguments: --drop-failed" in refused.err


ANALYSES: dict[str, Callable[..., Any]] = {
    "Run.tree": lambda run, **ways: run.tree(**ways),
    "Run.cluster": lambda run, **ways: run.cluster(3, **ways),
    "Run.clusters_at": lambda run, **ways: run.clusters_at(5.0, **ways),
    "Run.outliers": lambda run, **ways: run.outliers(2, **ways),
    "Run.embed": lambda run, **ways: run.embed("smacof", 2, random_state=0, **ways),
    "cluster": lambda run, **ways: cluster(run, **ways),
    "embed": lambda run, **ways: embed(run.path, "smacof", 1, random_state=0, **ways),
    "linkage": linkage,
    "neighbor_joining": neighbor_joining,
    "neighbors": lambda run, **ways: neighbors(run, 2, **ways),
    "outliers": outliers,
    "upgma": upgma,
}


@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_warns_of_what_it_leaves_out_or_refuses_it(run: tartan.Run, name: str) -> None:
    analysis = ANALYSES[name]
    with pytest.warns(RuntimeWarning, match=NAMES) as seen:
        analysis(run)
    assert len(seen) == 1
    analysis(run, failed="drop")
    with pytest.raises(
        ConfigError, match=r"2 items failed: 2\.txt, 6\.txt\. Leave out what failed with `failed='drop'`"
    ):
        analysis(run, failed="error")
    with pytest.raises(ConfigError, match="failed is 'keep'"):
        analysis(run, failed="keep")


@pytest.mark.parametrize("method", ["pwc", "average", "single", "hdbscan"])
def test_clusters_of_the_others_with_minus_one_for_the_dropped(run: tartan.Run, method: str) -> None:
    wanted = {"min_size": 2} if method == "hdbscan" else {"n_clusters": 3}
    found = cluster(run, method=method, failed="drop", **wanted)
    assert same_groups(found.labels.tolist())
    assert NAMES in found.notes


def test_cluster_prints_every_item(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    shown = command("cluster", run.path, "-k", 3, "--json", "--centres", 1, "--picture", tmp_path / "p.png")
    assert shown.status == 0
    found = json.loads(shown.out)
    assert same_groups(found["labels"])
    assert found["n_clusters"] == 3
    assert sorted(found["sizes"]) == [2, 2, 3]
    assert NAMES in found["notes"]
    assert "2.txt\t-1" in command("cluster", run.path, "-k", 3).out


def test_trees_have_the_other_leaves(command: Command, run: tartan.Run, good: np.ndarray) -> None:
    leaves = [f"{item}.txt" for item in GOOD]
    assert sorted(filter(None, run.tree("upgma", failed="drop").names)) == leaves
    shown = command("tree", run.path)
    assert shown.status == 0
    assert "2.txt" not in shown.out
    np.testing.assert_array_equal(linkage(run, failed="drop"), linkage(good))
    named = neighbor_joining(run, list("abcdefghi"), failed="drop")
    assert sorted(filter(None, named.names)) == [list("abcdefghi")[item] for item in GOOD]
    assert sorted(filter(None, upgma(run, list("abcdefghi"), failed="drop").names)) == list("abdefhi")


def test_a_table_of_clusters_of_all_items_colours_a_tree(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("".join(f"{label}\n" for label in GROUPS))
    shown = command("tree", run.path, "--clusters", tmp_path / "labels", "--picture", tmp_path / "t.svg")
    assert shown.status == 0, shown.err


def test_results_of_items_are_in_the_places_of_the_run(run: tartan.Run, good: np.ndarray) -> None:
    assert clusters_at(run, 5.0, failed="drop").tolist() == GROUPS
    assert clusters_at(run, 5.0, "complete", failed="drop").tolist() == GROUPS
    indices, distances = neighbors(run, 2, failed="drop")
    there, values = neighbors(good, 2)
    assert indices[GOOD].tolist() == np.array(GOOD)[there].tolist()
    np.testing.assert_array_equal(distances[GOOD], values)
    assert (indices[BAD] == -1).all()
    assert np.isnan(distances[BAD]).all()
    found = run.outliers(2, failed="drop")
    assert np.isnan(found.scores).nonzero()[0].tolist() == BAD
    dropped = minimum_spanning_tree(run, failed="drop")
    default = minimum_spanning_tree(run)  # they have no edge, and a place all the same
    assert (dropped.n, dropped.i.tolist(), dropped.j.tolist()) == (9, default.i.tolist(), default.j.tolist())


def test_what_was_opened_without_them_keeps_its_own_places(run: tartan.Run) -> None:
    matrix = as_dissimilarities(run, failed="drop")
    assert cluster(matrix, 3).labels.shape == clusters_at(matrix, 5.0).shape == (7,)
    with pytest.warns(RuntimeWarning, match=NAMES):
        assert same_groups(label_clusters(run, 3, "average").tolist())
    assert neighbors(matrix, 2)[0].shape == (7, 2)
    assert embed(matrix, "smacof", 1, random_state=0).points.shape == (7, 1)
    assert minimum_spanning_tree(matrix).n == 7


@pytest.mark.slow
def test_maps_give_dropped_items_no_place(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    found = run.embed("smacof", 2, failed="drop", keep=True, random_state=0)
    assert np.isnan(found.points).any(axis=1).nonzero()[0].tolist() == BAD
    assert found.keys == tuple(run.keys)
    assert run.map is not None
    shown = command("embed", run.path, "-o", tmp_path / "map", "--quiet", "--density", tmp_path / "d.png")
    assert shown.status == 0
    assert len((tmp_path / "map.tsv").read_text().splitlines()) >= 9
    assert command("embed", run.path, "--extend", "--failed", "drop").status == 2


def test_options_of_each_item_lose_those_that_failed(run: tartan.Run) -> None:
    weights = np.arange(1.0, 10.0)
    ways: dict[str, Any] = {"random_state": 0, "failed": "drop"}
    for options in ({"weights": weights}, {"weights": np.outer(weights, weights)}):
        places = embed(run, "smacof", 1, **options, **ways).points
        assert np.isnan(places).nonzero()[0].tolist() == BAD
    start = np.array([[0.0 if value is None else value] for value in VALUES])
    for fixed in ([0, 2, 8], np.isin(np.arange(9), [0, 2, 8])):
        places = embed(run, "smacof", 1, fixed=fixed, start=start, **ways).points
        np.testing.assert_allclose(places[GOOD], start[GOOD], atol=1e-4)
    for wrong in ([-1], [9]):
        with pytest.raises(ConfigError, match="fixed"):
            embed(run, "smacof", 1, fixed=wrong, start=start, **ways)


@pytest.mark.slow
def test_reports_and_pictures_leave_them_out(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    found = groups_of(run)
    assert found is not None
    assert found.labels is not None
    assert NAMES in found.said
    shown = command("report", run.path, "-o", tmp_path / "report.html")
    assert shown.status == 0, shown.err
    page = (tmp_path / "report.html").read_text()
    assert "have no place on it" in page
    assert NAMES in page
    for method in ("average", "single"):
        picture = save_matrix_svg(run, tmp_path / f"{method}.svg", method=method, failed="drop").read_text()
        assert "8.txt" in picture
        assert "6.txt" not in picture
    with pytest.raises(ConfigError, match=r"2 items failed: 2\.txt, 6\.txt"):
        save_matrix_svg(run, tmp_path / "none.svg", failed="error")


@pytest.fixture
def gaps(good: np.ndarray, tmp_path: Path) -> Path:
    """Return a file: item 1 has no pair, that of 3 and 6 is missing."""
    good[1, :] = good[:, 1] = good[3, 6] = good[6, 3] = np.nan
    names = list("abcdefg")
    rows = [",".join(["", *names]), *(",".join([name, *map(str, row)]) for name, row in zip(names, good.tolist()))]
    (tmp_path / "gaps.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "gaps.csv"


WITHOUT_GAPS = "2 items of missing pairs are left out: b, g"


@pytest.mark.parametrize("words", [*COMMANDS, pytest.param("cluster -k 2 --ranks 2", marks=pytest.mark.exhaustive)])
def test_of_a_file_items_of_missing_pairs_are_left_out(
    command: Command, gaps: Path, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *more = words.split()
    refused = command(name, gaps, *more)
    assert refused.status == 2
    assert "`--missing nan`, or leave out the items of such pairs with `--failed drop`" in refused.err
    refused = command(name, gaps, *more, "--failed", "error")
    assert "`--failed drop` leaves out 2 items, and no pair is missing: b, g" in refused.err
    done = command(name, gaps, *more, "--failed", "drop")
    assert done.status == 0, done.err
    assert done.err.count(WITHOUT_GAPS) == 1
    assert "RuntimeWarning" not in done.err
    if name == "cluster":
        assert "b\t-1" in done.out
        assert done.out.count("\n") == 8


def test_the_advice_on_missing_pairs_of_a_file_works(command: Command, gaps: Path, tmp_path: Path) -> None:
    for words in (["tree"], ["cluster", "--method", "average", "-k", 2], ["cluster"]):
        refused = command(words[0], gaps, *words[1:], "--missing", "nan")
        assert refused.status == 2
        assert "leave out items of missing pairs with `--failed drop`" in refused.err
        done = command(words[0], gaps, *words[1:], "--missing", "nan", "--failed", "drop")
        assert done.status == 0, done.err
    (tmp_path / "inf.csv").write_text("0,inf,1\ninf,0,1\n1,1,0\n")
    assert "`--missing inf`" in command("tree", tmp_path / "inf.csv").err
    assert command("tree", tmp_path / "inf.csv", "--missing", "inf", "--failed", "drop").status == 0


def test_items_of_missing_pairs_of_arrays(good: np.ndarray, gaps: Path) -> None:
    stored = np.where(np.isnan(good), -1, good).astype(np.int16)
    for given in (good, good.astype(np.float32), np.ma.masked_invalid(good), stored):
        whole = as_dissimilarities(given, failed="drop")
        assert whole.left_out == "2 items of missing pairs are left out: 1, 6"
        assert (whole.names, whole.check().n_missing) == (("0", "2", "3", "4", "5"), 0)
        nearest = neighbors(given, 1, failed="drop")[0][:, 0]
        assert (nearest == -1).nonzero()[0].tolist() == [1, 6]
        assert nearest[[0, 2]].tolist() == [2, 3]
    assert cluster(gaps, 2, failed="drop").labels[[1, 6]].tolist() == [-1, -1]
    with pytest.raises(ConfigError, match="give it where the matrix is opened"):
        linkage(as_dissimilarities(good, missing="nan"), failed="drop")


def test_failed_items_stay_known_through_conversions(run: tartan.Run) -> None:
    matrix = as_dissimilarities(run, transform="sqrt").materialized()
    assert matrix.failed.tolist() == BAD
    with pytest.raises(ConfigError, match=r"2 \(2\.txt\), 6 \(6\.txt\)\) with `failed='drop'`"):
        linkage(matrix)
    dropped = as_dissimilarities(run, transform="sqrt", failed="drop").materialized()
    assert (dropped.failed.tolist(), dropped.dropped is not None and dropped.dropped.tolist()) == ([], BAD)
    assert dropped.left_out == NAMES
    assert dropped.over_all(np.arange(7), -1).tolist() == [0, 1, -1, 2, 3, 4, -1, 5, 6]
    assert dropped.check().n_missing == 0


def test_many_names_are_shortened(tmp_path: Path) -> None:
    run = tartan.allpairs(Distances(), folder_of(tmp_path / "items", [1.0, 2.0, *[None] * 5]), tmp_path / "run")
    with pytest.warns(RuntimeWarning, match=r"5 failed items are left out: 2\.txt, 3\.txt, 4\.txt and 2 more;"):
        linkage(run)


def test_a_failed_pair_costs_one_item_where_all_pairs_are_needed(command: Command, tmp_path: Path) -> None:
    items = folder_of(tmp_path / "items", VALUES)
    run = tartan.allpairs(OnePairFails(), items, tmp_path / "run", workers=1)
    both = "2 failed items are left out: 2.txt, 6.txt; 1 item of failed pairs is left out: 4.txt"
    for words in (["tree"], ["cluster", "-k", 3, "--method", "average"], ["cluster", "--method", "average"]):
        done = command(words[0], run.path, *words[1:])
        assert done.status == 0, done.err
        assert both in done.err
    for words in (["cluster", "-k", 3], ["cluster", "--threshold", 5], ["neighbors", "-k", 2], ["outliers", "-k", 2]):
        done = command(words[0], run.path, *words[1:])
        assert done.status == 0, done.err
        assert NAMES in done.err
        assert "4.txt" not in done.err
    assert same_groups(run.cluster(3, "single", failed="drop").tolist())
    with pytest.raises(ConfigError, match=r"6\.txt; 1 pair failed: 3\.txt with 4\.txt\."):
        run.cluster(3, failed="error")


def test_a_run_without_failures_and_one_without_anything_else(tmp_path: Path) -> None:
    whole = tartan.allpairs(Distances(), [b"1", b"2", b"9"], tmp_path / "whole", workers=1)
    for way in (None, "drop", "error"):
        assert whole.cluster(2, "single", failed=way).tolist() == [0, 0, 1]
    (tmp_path / "whole" / "failures.jsonl").write_text(
        "".join(json.dumps({"i": i, "j": None, "stage": "parse", "reason": "x"}) + "\n" for i in range(3))
    )
    for analysis in (lambda run: run.cluster(2), lambda run: run.embed("smacof", 1)):
        with pytest.raises(ConfigError, match="all 3 items failed"), warnings.catch_warnings():
            analysis(tartan.open(tmp_path / "whole"))
