"""Runs with failed items are analysed: the error names the ways out, and dropped items are marked in every answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from applications import Distances
from whole_program import Command

import tartan
from tartan.analytics import as_dissimilarities, clusters_at, linkage, neighbors
from tartan.errors import ConfigError

VALUES = [1.0, 2.0, None, 50.0, 51.0, 52.5, None, 100.0, 101.0]
GOOD = [0, 1, 3, 4, 5, 7, 8]
BAD = [2, 6]
GROUPS = [0, 0, -1, 1, 1, 1, -1, 2, 2]


@pytest.fixture
def run(tmp_path: Path) -> tartan.Run:
    """Return a run of nine files, two of which failed."""
    folder = tmp_path / "items"
    folder.mkdir()
    for index, value in enumerate(VALUES):
        (folder / f"{index}.txt").write_text("none" if value is None else str(value))
    return tartan.allpairs(Distances(), str(folder), tmp_path / "run", workers=1)


@pytest.fixture
def good(run: tartan.Run) -> np.ndarray:
    """Return the matrix of the others alone."""
    return run.matrix(diagonal=0.0)[np.ix_(GOOD, GOOD)]


def same_groups(labels: list[int]) -> bool:
    """Whether labels are those of the groups, whatever their numbers."""
    pairs = set(zip(labels, GROUPS, strict=True))
    return len(pairs) == len(set(GROUPS)) == len(set(labels)) and (-1, -1) in pairs


WORDS = ["cluster -k 3", "cluster --threshold 5 --method average", "tree", "tree --method upgma"]


@pytest.mark.parametrize("words", WORDS)
def test_the_error_names_the_items_and_the_ways_out(command: Command, run: tartan.Run, words: str) -> None:
    name, *more = words.split()
    refused = command(name, run.path, *more)
    assert refused.status == 2
    for part in ("2 (2.txt), 6 (6.txt)", "`--drop-failed`", "tartan resume RUN --retry-failed"):
        assert part in refused.err


@pytest.mark.parametrize("method", ["pwc", "average", "single"])
def test_clusters_of_the_others_with_minus_one_for_the_dropped(run: tartan.Run, method: str) -> None:
    assert same_groups(run.cluster(3, method, drop_failed=True).tolist())


def test_cluster_prints_every_item(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    shown = command("cluster", run.path, "-k", 3, "--drop-failed", "--json", "--picture", tmp_path / "p.png")
    assert shown.status == 0
    found = json.loads(shown.out)
    labels = found["labels"]
    assert same_groups(list(labels.values()) if isinstance(labels, dict) else labels)
    assert found["n_clusters"] == 3
    assert sorted(found["sizes"]) == [2, 2, 3]
    table = command("cluster", run.path, "-k", 3, "--drop-failed")
    assert "2.txt\t-1" in table.out
    assert "2 items failed and are in no cluster" in table.err


def test_trees_have_the_other_leaves(command: Command, run: tartan.Run, good: np.ndarray) -> None:
    tree = run.tree("upgma", drop_failed=True)
    assert sorted(filter(None, tree.names)) == [f"{item}.txt" for item in GOOD]
    shown = command("tree", run.path, "--drop-failed")
    assert shown.status == 0
    assert "2.txt" not in shown.out
    np.testing.assert_array_equal(linkage(run, drop_failed=True), linkage(good))


def test_results_of_items_are_in_the_places_of_the_run(run: tartan.Run, good: np.ndarray) -> None:
    assert clusters_at(run, 5.0, drop_failed=True).tolist() == GROUPS
    assert clusters_at(run, 5.0, "complete", drop_failed=True).tolist() == GROUPS
    indices, distances = neighbors(run, 2, drop_failed=True)
    there, values = neighbors(good, 2)
    assert indices[GOOD].tolist() == np.array(GOOD)[there].tolist()
    np.testing.assert_array_equal(distances[GOOD], values)
    assert (indices[BAD] == -1).all()
    assert np.isnan(distances[BAD]).all()
    found = run.outliers(2, drop_failed=True)
    assert np.isnan(found.scores).nonzero()[0].tolist() == BAD


@pytest.mark.slow
def test_maps_give_dropped_items_no_place(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    found = run.embed("smacof", 2, drop_failed=True, keep=True, random_state=0)
    assert np.isnan(found.points).any(axis=1).nonzero()[0].tolist() == BAD
    assert run.map is not None
    shown = command("embed", run.path, "--drop-failed", "-o", tmp_path / "map", "--quiet")
    assert shown.status == 0
    assert len((tmp_path / "map.tsv").read_text().splitlines()) >= 9


def test_every_command_that_reads_a_matrix_takes_the_option(command: Command, run: tartan.Run) -> None:
    for words in (("outliers", "-k", 2, "--all"), ("neighbors", "-k", 2)):
        shown = command(words[0], run.path, *words[1:], "--drop-failed")
        assert shown.status == 0
        assert not any(line.startswith(("2.txt", "6.txt")) for line in shown.out.splitlines())


def test_a_matrix_that_is_no_run_refuses_the_option(run: tartan.Run, good: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", good)
    for given in (good, tmp_path / "d.npy", as_dissimilarities(run)):
        with pytest.raises(ConfigError, match="`drop_failed=True` is for runs"):
            as_dissimilarities(given, drop_failed=True)


def test_failed_items_stay_known_through_conversions(run: tartan.Run) -> None:
    matrix = as_dissimilarities(run, transform="sqrt").materialized()
    assert matrix.failed.tolist() == BAD
    dropped = as_dissimilarities(run, transform="sqrt", drop_failed=True).materialized()
    assert (dropped.failed.tolist(), dropped.dropped is not None and dropped.dropped.tolist()) == ([], BAD)
    assert dropped.over_all(np.arange(7), -1).tolist() == [0, 1, -1, 2, 3, 4, -1, 5, 6]
    assert dropped.check().n_missing == 0


def test_a_run_without_failures_and_one_without_anything_else(tmp_path: Path) -> None:
    whole = tartan.allpairs(Distances(), [b"1", b"2", b"9"], tmp_path / "whole", workers=1)
    assert whole.cluster(2, "single", drop_failed=True).tolist() == [0, 0, 1]
    (tmp_path / "whole" / "failures.jsonl").write_text(
        "".join(json.dumps({"i": i, "j": None, "stage": "parse", "reason": "x"}) + "\n" for i in range(3))
    )
    with pytest.raises(ConfigError, match="all 3 items failed"):
        tartan.open(tmp_path / "whole").cluster(2, drop_failed=True)
