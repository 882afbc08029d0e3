"""The pairs of a run in the order of their scores, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tartan
from tartan._native import decode_pairs, encode_pairs
from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.result import sorted_pairs as sorted_pairs_module

MEMORY = "8GB"  # of the whole process, which holds what other tests have left


class Scores(tartan.Application):
    """Differences of rounded numbers, so that many are equal; NaN where both items are in ``bad``."""

    releases_gil = True

    def __init__(self, dtype: str = "<f4", bad: tuple[float, ...] = (), *, symmetric: bool = True) -> None:
        self.outputs = {"scores": dtype}
        self.bad = bad
        self.symmetric = symmetric

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        rounded = np.round(left - 1.5 * right.T if not self.symmetric else np.abs(left - right.T), 1) + 0.0
        guilty = np.isin(left, self.bad) & np.isin(right.T, self.bad)
        return np.where(guilty, np.nan, rounded * 10 if self.outputs["scores"][1] in "iu" else rounded)


def numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 1))


def read(run: tartan.Run, **options: Any) -> list[tuple[Any, ...]]:
    """Return i, j, score of all pairs; None for no score."""
    with run.pairs_sorted(memory=MEMORY, **options) as reader:
        table = reader.read_all()
    assert table["key_i"].to_pylist() == [run.keys[i] for i in table["i"].to_pylist()]
    first = run.manifest.workload.get("n_left", 0)  # of two sets, the second is counted from 0
    assert table["key_j"].to_pylist() == [run.keys[first + j] for j in table["j"].to_pylist()]
    return list(zip(*(table[name].to_pylist() for name in ("i", "j", "score")), strict=True))


def expected(run: tartan.Run, *, ascending: bool = True) -> list[tuple[Any, ...]]:
    with run.pairs() as reader:
        table = reader.read_all()
    rows = zip(*(table[name].to_pylist() for name in ("i", "j", "score")), strict=True)
    sign = 1 if ascending else -1
    return sorted(rows, key=lambda row: (row[2] is None, sign * (row[2] or 0), row[0], row[1]))


@pytest.mark.slow
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i2", "<f2"])
@pytest.mark.parametrize("ascending", [True, False])
def test_all_pairs(dtype: str, ascending: bool, words: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not words:
        monkeypatch.setattr(sorted_pairs_module, "WORD_ITEMS", 0)
    rows = numbers(40)
    bad = () if dtype[1] == "i" else (float(rows[3, 0]), float(rows[20, 0]))
    run = tartan.allpairs(Scores(dtype, bad), rows, tile=16)
    found = read(run, ascending=ascending)
    assert found == expected(run, ascending=ascending)
    assert len(found) == 780
    assert (found[-1][2] is None) == bool(bad)


@pytest.mark.parametrize("limit", [0, 1, 7, 100, 779, 780, 5000])
@pytest.mark.parametrize("ascending", [True, False])
def test_the_best(limit: int, ascending: bool) -> None:
    rows = numbers(40)
    run = tartan.allpairs(Scores(bad=(float(rows[3, 0]), float(rows[20, 0]))), rows, tile=16)
    scored = [row for row in expected(run, ascending=ascending) if row[2] is not None]
    assert read(run, limit=limit, ascending=ascending) == scored[:limit]


def test_equal_scores_and_the_best() -> None:
    run = tartan.allpairs(Scores(), np.zeros((30, 1)), tile=8)
    assert read(run, limit=10) == [(0, j, 0.0) for j in range(1, 11)]


@pytest.mark.parametrize("limit", [None, 5])
def test_two_sets_and_both_directions(limit: int | None) -> None:
    rows = numbers(12)
    two = tartan.allpairs(Scores(), rows[:5], against=rows[5:], tile=4)
    both = tartan.allpairs(Scores(symmetric=False), rows, tile=4)
    for run in (two, both):
        assert read(run, limit=limit) == expected(run)[:limit]


def test_runs_that_keep_less() -> None:
    rows = numbers(30)
    for rule in ({"kind": "top-k", "k": 3}, {"kind": "threshold", "threshold": 0.5}):
        run = tartan.allpairs(Scores(), rows, tile=8, reduce=rule)
        assert read(run) == expected(run)
        assert read(run, limit=4) == expected(run)[:4]


def test_the_nearest_of_similarities_are_the_largest() -> None:
    class Similar(Scores):
        similarity = True

    run = tartan.allpairs(Similar(), numbers(10))
    assert read(run) == expected(run, ascending=False)


@pytest.mark.slow
def test_more_pairs_than_the_engine_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run files are written, and nothing of them is left."""
    monkeypatch.setattr("tartan.sort.engine.held_bytes", lambda: 250 * 10**6)
    monkeypatch.setattr(sorted_pairs_module, "BATCH_PAIRS", 1 << 12)
    rows = numbers(3300)
    run = tartan.allpairs(Scores(), rows, tile=256)
    with run.pairs_sorted(memory="400MB", tmp=tmp_path) as reader:
        scores = np.concatenate([batch["score"].to_numpy() for batch in reader])
    np.testing.assert_array_equal(scores, np.sort(run.condensed()))
    assert list(tmp_path.iterdir()) == []


def test_the_spanning_tree_of_a_run() -> None:
    rows = numbers(25)
    run = tartan.allpairs(Scores(), rows)
    tree = run.spanning_tree(memory=MEMORY)
    steps = np.diff(np.sort(np.round(rows[:, 0], 12)))
    assert tree.scores.sum() == pytest.approx(steps.sum(), abs=25 * 0.05)
    with pytest.raises(ConfigError, match="two sets"):
        tartan.allpairs(Scores(), rows[:5], against=rows[5:]).spanning_tree()


def test_export(tmp_path: Path) -> None:
    run = tartan.allpairs(Scores(), numbers(20), tmp_path / "run")
    words = ["export", str(run.path), str(tmp_path / "pairs.parquet"), "--memory", MEMORY]
    assert main([*words, "--sorted"]) == 0
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert table["score"].to_pylist() == [row[2] for row in expected(run)]
    assert main([*words, "--threshold-count", "9", "--descending", "--overwrite"]) == 0
    best = pq.read_table(tmp_path / "pairs.parquet")
    assert best["i"].to_pylist() == [row[0] for row in expected(run, ascending=False)[:9]]


def test_wrong_use(tmp_path: Path) -> None:
    run = tartan.allpairs(Scores(), numbers(4))
    with pytest.raises(ConfigError, match=r"Parquet.*format npy"):
        run.export(tmp_path / "pairs.npy", sort=True)
    with pytest.raises(ConfigError, match="clip is for int16"):
        run.export(tmp_path / "pairs.parquet", sort=True, clip=True)
    (tmp_path / "pairs.parquet").touch()
    with pytest.raises(ConfigError, match="exists"):
        run.export(tmp_path / "pairs.parquet", sort=True)
    with pytest.raises(ConfigError, match="400MB is the least"):
        run.pairs_sorted(memory="100MB")
    with pytest.raises(ConfigError, match="negative"):
        run.pairs_sorted(limit=-1)
    with pytest.raises(ConfigError, match="no output 'other'"):
        run.pairs_sorted(output="other")
    with pytest.raises(ConfigError, match="nowhere"):
        run.pairs_sorted(tmp=tmp_path / "nowhere")


def test_indices_that_do_not_fit_a_word_are_refused() -> None:
    block = np.zeros((1, 2), np.float32), np.ones((1, 2), np.uint8)
    with pytest.raises(ValueError, match="16 bits"):
        encode_pairs(*block, 0, 65535, False, 2**32 - 1)
    words = encode_pairs(*block, 65535, 65534, False, 2**32 - 1)
    i, j, _ = decode_pairs(words, False)
    assert (i.tolist(), j.tolist()) == ([65535, 65535], [65534, 65535])
