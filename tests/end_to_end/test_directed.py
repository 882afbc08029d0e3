"""Outputs with a direction: below the diagonal stands what ``reverse`` says, wherever a score is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, RunFailedError
from tartan.result.pair import inspect_pair
from tartan.view.overview import overview

N = 11


class Differences(tartan.Application):
    """Distances of numbers, and the way from one to the other."""

    outputs: Mapping[str, Any] = {"scores": np.float64, "way": np.float32}
    directed = ("way",)
    similarity = False
    ragged = False
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> dict[str, Any]:
        way = right[:, 0][None, :] - left[:, 0][:, None]
        return {"scores": abs(way), "way": way}

    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"way": -scores["way"]}


class Counted(Differences):
    """One pair at a time, some of which fail."""

    def compare_pair(self, a: Any, b: Any) -> dict[str, float]:
        if {float(a[0]), float(b[0])} == {2.0, 9.0}:
            raise ValueError("no way")
        return {"scores": abs(float(b[0] - a[0])), "way": float(b[0] - a[0])}


@pytest.fixture
def values() -> np.ndarray:
    return np.arange(N, dtype=np.float64)[:, None] ** 2 / 2


def ways(values: np.ndarray) -> np.ndarray:
    return values[:, 0][None, :] - values[:, 0][:, None]


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_matrices_hold_both_directions(device: str, values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values, tmp_path / "run", tile=4, device=device, quiet=True)
    np.testing.assert_array_equal(run.matrix(output="way", diagonal=0), ways(values))
    np.testing.assert_array_equal(run.matrix(), abs(ways(values)))
    assert inspect_pair(run.folder, 7, 3).scores["way"] == -inspect_pair(run.folder, 3, 7).scores["way"] != 0
    assert run.manifest.symmetric_in("scores")
    assert not run.manifest.symmetric_in("way")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pair_counts_once(workers: int, tmp_path: Path) -> None:
    values = np.arange(N, dtype=np.float64)[:, None]
    run = tartan.allpairs(Counted(), values, tmp_path / "run", tile=4, workers=workers, quiet=True)
    n_pairs = N * (N - 1) // 2
    assert (run.n_pairs, run.n_pairs_done, run.n_pairs_failed, run.n_pairs_left) == (n_pairs, n_pairs - 1, 1, 0)
    assert run.stats["pairs_computed"] == n_pairs
    assert sum(count for _, count in run.folder.commit_times()) == n_pairs
    rows = run.pairs().read_all()
    assert rows.num_rows == run.folder.n_known() == 2 * n_pairs
    assert run.pairs_sorted(limit=5).read_all().num_rows == 5
    assert run.pairs_sorted().read_all().num_rows == 2 * n_pairs


def test_figures_take_each_pair_once(values: np.ndarray, tmp_path: Path) -> None:
    for name, rule in (("whole", None), ("near", {"kind": "threshold", "threshold": 1e9})):
        run = tartan.allpairs(Differences(), values, tmp_path / name, tile=4, quiet=True, reduce=rule)
        assert overview(run, 100).n_scores == N * (N - 1) // 2


def test_items_with_themselves_count_once(values: np.ndarray, tmp_path: Path) -> None:
    class WithItself(Differences):
        diagonal = True

    run = tartan.allpairs(WithItself(), values, tmp_path / "run", tile=4, quiet=True)
    n_pairs = N * (N + 1) // 2
    assert (run.n_pairs, run.n_pairs_done, run.n_pairs_left) == (n_pairs, n_pairs, 0)
    assert run.stats["pairs_computed"] == n_pairs
    assert run.folder.n_known() == N * N


def test_both_comparisons_count_where_none_is_the_inverse(values: np.ndarray, tmp_path: Path) -> None:
    class BothWays(Differences):
        directed = ()
        symmetric = False

    run = tartan.allpairs(BothWays(), values, tmp_path / "run", tile=4, quiet=True)
    assert run.n_pairs == run.n_pairs_done == run.stats["pairs_computed"] == N * N - N
    assert sum(count for _, count in run.folder.commit_times()) == N * N - N


def test_what_is_not_directed_is_symmetric(values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values, tmp_path / "run", tile=4, quiet=True)
    upper = np.triu_indices(N, 1)
    np.testing.assert_array_equal(run.condensed(), abs(ways(values))[upper])
    np.testing.assert_array_equal(run.dissimilarities().block(0, N), abs(ways(values)))
    run.export(tmp_path / "scores.phy")
    with pytest.raises(ConfigError, match="not symmetric"):
        run.condensed("way")
    with pytest.raises(ConfigError, match="symmetric matrices only"):
        run.export(tmp_path / "way.phy", output="way")
    with pytest.raises(ConfigError, match="not symmetric"):
        run.dissimilarities("way")


@pytest.mark.parametrize(
    "rule", [{"kind": "top-k", "k": N - 1}, {"kind": "threshold", "threshold": 1e9}], ids=lambda rule: rule["kind"]
)
def test_reduced_runs_keep_both_directions(rule: dict[str, Any], values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values, tmp_path / "run", tile=4, reduce=rule, quiet=True)
    found = run.pairs("way").read_all()
    i, j = (found[name].to_numpy() for name in ("i", "j"))
    assert len(i) == N * N - N
    np.testing.assert_array_equal(found["score"].to_numpy(), ways(values)[i, j])


def test_chosen_pairs_have_both_directions(values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values, tmp_path / "run", pairs=[(7, 1), (2, 3)], quiet=True)
    found = run.matrix(output="way")
    assert (found[7, 1], found[1, 7]) == (ways(values)[7, 1], ways(values)[1, 7])
    assert np.isnan(found[1, 2])


def test_two_sets_have_one_direction(values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values, tmp_path / "run", against=values[:2] + 1, quiet=True)
    np.testing.assert_array_equal(run.matrix(output="way"), ways(np.concatenate([values, values[:2] + 1]))[:N, N:])
    assert inspect_pair(run.folder, 3, N).scores["way"] == ways(values)[3, 0] + 1
    with pytest.raises(ConfigError, match="in this direction only; name them in this order"):
        inspect_pair(run.folder, N, 3)


def test_failed_pairs_fail_both_ways(tmp_path: Path) -> None:
    values = np.arange(N, dtype=np.float64)[:, None]
    run = tartan.allpairs(Counted(), values, tmp_path / "run", tile=4, quiet=True)
    found = run.matrix(output="way", diagonal=0)
    expected = ways(values)
    expected[2, 9] = expected[9, 2] = np.nan
    np.testing.assert_array_equal(found, expected)
    assert [(failure.i, failure.j) for failure in run.failures] == [(2, 9)]


def test_resumed_and_grown_runs_keep_directions(values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Differences(), values[:6], tmp_path / "run", tile=4, quiet=True)
    grown = tartan.add(run.path, values[6:], app=Differences(), previous=values[:6], quiet=True)
    np.testing.assert_array_equal(grown.matrix(output="way", diagonal=0), ways(values))


class Lacking(Differences):
    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {}


class Shapeless(Differences):
    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"way": scores["way"][:1, :0]}


class Numberless(Differences):
    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"way": scores["way"] * np.nan}


class Silent(Differences):
    reverse = tartan.Application.reverse  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("app", "says"),
    [
        (Lacking(), "reverse returned no output 'way'"),
        (Shapeless(), "reverse returned shape"),
        (Numberless(), "reverse returned NaN for output 'way'"),
        (Silent(), "has directed outputs and defines no reverse"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reverse_that_does_not_work_is_named(app: Any, says: str, values: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=f"all 55 pairs failed; first: [0-9]+, [0-9]+: .*{says}"):
        tartan.allpairs(app, values, tmp_path / "run", quiet=True)


def test_directions_of_no_output_are_refused(values: np.ndarray, tmp_path: Path) -> None:
    app = Differences()
    app.directed = ("wey",)
    with pytest.raises(ConfigError, match="directed names 'wey', which is not an output"):
        tartan.allpairs(app, values, tmp_path / "run", quiet=True)
    app.directed, app.symmetric = ("way",), False
    with pytest.raises(ConfigError, match="is not symmetric: all its outputs are directed"):
        tartan.allpairs(app, values, tmp_path / "run", quiet=True)


class Analysed(Differences):
    """Differences of numbers, of which analyses take the second output."""

    outputs: Mapping[str, Any] = {"scores": np.float64, "near": np.float64}
    directed = ()
    analysed = "near"

    def compare(self, left: Any, right: Any, xp: Any) -> dict[str, Any]:
        way = abs(right[:, 0][None, :] - left[:, 0][:, None])
        return {"scores": 100 - way, "near": way}


def test_analyses_take_the_output_that_is_named(values: np.ndarray, tmp_path: Path) -> None:
    run = tartan.allpairs(Analysed(), values, tmp_path / "run", quiet=True)
    near = abs(ways(values))
    np.testing.assert_array_equal(run.matrix(diagonal=0)[0, 1:], 100 - near[0, 1:])
    np.testing.assert_array_equal(run.dissimilarities().block(0, N), near)
    assert run.neighbors(1)[0][0, 0] == 1
    assert run.neighbors(1, output="scores")[0][0, 0] == N - 1
    assert overview(run, 8).nearest[0][:2] == (0, 1)
    kept = tartan.allpairs(Analysed(), values, tmp_path / "kept", reduce={"kind": "top-k", "k": 2}, quiet=True)
    assert (kept.neighbors(1)[0][:, 0] == run.neighbors(1)[0][:, 0]).all()


@pytest.mark.parametrize(("name", "said"), [("far", "not an output"), ("way", "has a direction")])
def test_an_output_that_cannot_be_analysed_is_refused(name: str, said: str, values: np.ndarray, tmp_path: Path) -> None:
    app = Differences()
    app.analysed = name
    with pytest.raises(ConfigError, match=said):
        tartan.allpairs(app, values, tmp_path / "run", quiet=True)
