"""What a user sees of a run: matrix, condensed form, pairs, neighbours, numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import ConfigError
from tartan.result.run import Run
from tartan.store.folder import RunFolder

from .kit import commit_chunk, commit_missing, describe, table, true_scores

Finished = Callable[..., tuple[Run, np.ndarray]]
CASES = [(1, 4), (2, 1), (10, 4), (12, 4), (9, 100)]


@pytest.mark.parametrize(("n", "chunk"), CASES)
def test_the_matrix_is_symmetric_and_true(finished: Finished, n: int, chunk: int) -> None:
    run, truth = finished(n, chunk, similarity=False)
    np.testing.assert_array_equal(run.matrix(), truth)
    assert (run.n_pairs, run.n_pairs_done, run.n_pairs_failed) == (n * (n - 1) // 2, n * (n - 1) // 2, 0)


def test_an_uncomputed_diagonal_is_zero_for_declared_distances_only(finished: Finished) -> None:
    run, truth = finished()
    assert np.isnan(np.diag(run.matrix())).all()
    assert (np.diag(run.matrix(diagonal=1)) == 1).all()
    np.testing.assert_array_equal(run.matrix(diagonal=0), truth)


def test_a_computed_diagonal_is_kept(finished: Finished) -> None:
    run, truth = finished(diagonal=True)
    np.testing.assert_array_equal(run.matrix(diagonal=5), truth)
    assert run.n_pairs == run.n_pairs_done == 55


def test_a_run_that_is_not_symmetric_has_both_halves(finished: Finished) -> None:
    run, truth = finished(symmetric=False)
    assert not np.array_equal(truth, truth.T)
    np.testing.assert_array_equal(run.matrix(diagonal=0), truth)
    assert run.n_pairs == run.n_pairs_done == 90
    with pytest.raises(ConfigError, match="condensed"):
        run.condensed()


def test_a_rectangle(finished: Finished) -> None:
    run, truth = finished(workload={"kind": "rectangle", "n_left": 6})
    np.testing.assert_array_equal(run.matrix(), truth[:6, 6:])
    assert (run.shape, run.n_pairs, run.n_pairs_done) == ((6, 4), 24, 24)
    indices, scores = run.neighbors(2)
    np.testing.assert_array_equal(indices, np.argsort(truth[:6, 6:], axis=1)[:, :2])
    np.testing.assert_array_equal(scores, np.sort(truth[:6, 6:], axis=1)[:, :2])


def test_candidates_only(finished: Finished) -> None:
    pairs = [(0, 1), (9, 3), (2, 8), (3, 9)]
    run, truth = finished(workload={"kind": "candidates", "file": "candidates.npy"}, candidates=pairs)
    expected = np.full((10, 10), np.nan, np.float32)
    for i, j in pairs:
        expected[i, j] = expected[j, i] = truth[i, j]
    np.testing.assert_array_equal(run.matrix(), expected)
    assert (run.n_pairs, run.n_pairs_done) == (3, 3)
    assert run.neighbors(2)[0][[0, 4]].tolist() == [[1, -1], [-1, -1]]


def test_a_list_of_few_pairs_takes_little_room(finished: Finished) -> None:
    """Of a chunk that holds a few scores among a million, the disk gets the scores."""
    workload = {"kind": "candidates", "file": "candidates.npy"}
    run, truth = finished(1000, 1000, workload=workload, candidates=[(0, 1), (500, 999)])
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    assert size < 100_000
    assert run.matrix()[500, 999] == truth[500, 999]


def test_candidates_on_the_diagonal_keep_their_scores(finished: Finished) -> None:
    """Where the list names (3, 3), its score stands there, which is 0 here."""
    workload = {"kind": "candidates", "file": "candidates.npy"}
    run, _ = finished(workload=workload, candidates=[(0, 1), (3, 3), (9, 9)])
    expected = np.where(np.isin(np.arange(10), [3, 9]), 0, 5)
    np.testing.assert_array_equal(np.diag(run.matrix(diagonal=5)), expected)
    np.testing.assert_array_equal(np.diag(np.concatenate([band for _, band in run.view().bands(5)])), expected)
    np.testing.assert_array_equal(np.diag(run.view().window(slice(2, 6), slice(2, 6), 5)), expected[2:6])
    assert run.n_pairs_done == run.n_pairs == 3


@pytest.mark.parametrize(("n", "chunk"), CASES)
def test_condensed_is_what_squareform_reads(finished: Finished, n: int, chunk: int) -> None:
    from scipy.spatial.distance import squareform

    run, truth = finished(n, chunk)
    condensed = run.condensed()
    np.testing.assert_array_equal(condensed, truth[np.triu_indices(n, 1)])
    if n > 1:
        np.testing.assert_array_equal(squareform(condensed), truth)


def test_integers_become_floats_only_where_something_must_be_missing(finished: Finished) -> None:
    run, truth = finished(outputs={"scores": "float32", "count": "int16"})
    counts = (truth * 20).astype(np.int16)
    np.testing.assert_array_equal(run.matrix("count", diagonal=0), counts)
    assert run.matrix("count").dtype == np.float32
    filled = run.matrix("count", fill=-1)
    assert filled.dtype == np.int16
    np.testing.assert_array_equal(filled, np.where(np.eye(10, dtype=bool), -1, counts))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_neighbors_are_those_of_a_sort(finished: Finished, largest: bool, symmetric: bool, k: int) -> None:
    run, truth = finished(symmetric=symmetric)
    keyed = np.where(np.eye(10, dtype=bool), np.inf, -truth if largest else truth)
    order = np.argsort(keyed, axis=1, kind="stable")[:, : min(k, 9)]
    indices, scores = run.neighbors(k, largest=largest)
    assert indices.shape == scores.shape == (10, k)
    np.testing.assert_array_equal(indices[:, :9], order)
    np.testing.assert_array_equal(scores[:, :9], np.take_along_axis(truth, order, axis=1))
    assert (indices[:, 9:] == -1).all()
    assert np.isnan(scores[:, 9:]).all()


def test_neighbors_follow_what_the_application_says(finished: Finished) -> None:
    run, _ = finished(similarity=True, diagonal=True)
    np.testing.assert_array_equal(run.neighbors(2)[0], run.neighbors(2, largest=True)[0])
    assert not (run.neighbors(9)[0] == np.arange(10)[:, None]).any(), "no item is its own neighbour"


@pytest.mark.parametrize("k", [0, -1])
def test_no_neighbours_is_no_question(finished: Finished, k: int) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        finished()[0].neighbors(k)


def test_pairs_stream_all_of_them(finished: Finished) -> None:
    run, truth = finished()
    rows = run.pairs().read_all().to_pylist()
    assert [row["i"] for row in rows[:5]] == [0, 0, 0, 1, 1]
    assert {(row["i"], row["j"]): row["score"] for row in rows} == {
        (i, j): float(truth[i, j]) for i in range(10) for j in range(i + 1, 10)
    }
    assert all((row["key_i"], row["key_j"]) == (f"item-{row['i']}", f"item-{row['j']}") for row in rows)


def test_pairs_of_several_outputs_and_both_ways(finished: Finished) -> None:
    run, truth = finished(symmetric=False, outputs={"scores": "float32", "count": "int16"})
    table_of_pairs = run.pairs().read_all()
    assert table_of_pairs.column_names == ["i", "j", "key_i", "key_j", "scores", "count"]
    assert table_of_pairs.num_rows == 90
    assert all(row["scores"] == truth[row["i"], row["j"]] for row in table_of_pairs.to_pylist())
    assert run.pairs("count").schema.names[-1] == "score"


@pytest.fixture
def unfinished(tmp_path: Path) -> Run:
    """A run of which one chunk is missing, item 5 and pair (0, 1) have failed."""
    truth = {"scores": true_scores(10)}
    folder = RunFolder.create(tmp_path / "u.tartan", describe(similarity=False), table(10))
    with folder.lock():
        for chunk, wanted in folder.missing().items():
            if chunk == (1, 2):
                continue
            rect = folder.pairs.rect(*chunk)
            status = wanted.astype(np.uint8) * DONE
            i, j = np.mgrid[rect.r0 : rect.r1, rect.c0 : rect.c1]
            status[wanted & ((i == 5) | (j == 5))] = FAILED_ITEM
            status[(i == 0) & (j == 1)] = FAILED_PAIR
            block = truth["scores"][rect.r0 : rect.r1, rect.c0 : rect.c1]
            failures = [Failure(5, None, "parse", "item-5: no")] + [Failure(0, 1, "compare", "no")] * (chunk == (0, 0))
            folder.commit(*chunk, {"scores": block}, status, failures)
    return Run(folder.path)


def test_an_unfinished_run_shows_what_it_has(unfinished: Run) -> None:
    matrix, truth = unfinished.matrix(), true_scores(10)
    known = np.ones((10, 10), bool)
    known[5], known[:, 5], known[0, 1], known[1, 0] = False, False, False, False
    known[4:8, 8:], known[8:, 4:8] = False, False
    np.fill_diagonal(known, True)
    np.testing.assert_array_equal(matrix, np.where(known, truth, np.nan))
    assert unfinished.n_pairs_done == np.count_nonzero(np.triu(known, 1))
    assert [(f.i, f.j) for f in unfinished.failures] == [(5, None), (0, 1)]
    assert 5 not in unfinished.neighbors(9)[0]
    scores = unfinished.pairs().read_all()["score"]
    assert (len(scores), scores.null_count) == (45 - 8, unfinished.n_pairs_failed)


def test_neighbors_of_a_failed_item_are_none(unfinished: Run) -> None:
    indices, scores = unfinished.neighbors(3)
    assert (indices[5] == -1).all()
    assert np.isnan(scores[5]).all()


def test_a_run_describes_itself_in_a_line(unfinished: Run) -> None:
    assert repr(unfinished) == "<Run u.tartan: test, 10 items, 29 of 45 (64.4 %) pairs>"
    assert "29 of 45" in unfinished._repr_html_()
    assert unfinished.status[0, 1] == FAILED_PAIR
    assert unfinished.scores.shape == (10, 10)


def test_an_output_that_is_not_there(unfinished: Run) -> None:
    for call in (
        unfinished.matrix,
        unfinished.array,
        unfinished.pairs,
        lambda name: unfinished.neighbors(1, output=name),
    ):
        with pytest.raises(ConfigError, match="no output 'nothing'"):
            call("nothing")


def test_a_run_that_grows_is_seen_growing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "g", describe())
    run, truth = Run(tmp_path / "g"), {"scores": true_scores(10)}
    with folder.lock():
        counts = [run.n_pairs_done]
        for chunk, wanted in folder.missing().items():
            commit_chunk(folder, chunk, wanted, truth)
            counts.append(run.n_pairs_done)
        assert commit_missing(folder, truth) == []
    assert counts == [0, 6, 22, 30, 36, 44, 45]


@pytest.mark.parametrize("budget_bytes", [1, 90, 10**6])
@pytest.mark.parametrize("changes", [{}, {"symmetric": False}, {"workload": {"kind": "rectangle", "n_left": 6}}])
def test_bands_are_the_matrix_whatever_their_height(
    finished: Finished, budget_bytes: int, changes: dict[str, Any]
) -> None:
    run, _ = finished(**changes)
    bands = list(run.view().bands(None, budget_bytes))
    np.testing.assert_array_equal(np.concatenate([band for _, band in bands]), run.matrix())
    assert [start for start, _ in bands] == np.cumsum([0, *(len(band) for _, band in bands)])[:-1].tolist()
    assert all(len(band) == 1 or band.nbytes <= budget_bytes for _, band in bands)
