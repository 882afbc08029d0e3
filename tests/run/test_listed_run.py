"""Runs of a list of pairs whose scores lie in a list: the bits of the whole matrix, resumed, damaged, of any size."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors.app import Vectors
from tartan.errors import ConfigError, CorruptResultError, RunFailedError, StoreError
from tartan.store import listed
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest

N = 500
ROWS = np.random.default_rng(0).standard_normal((N, 40)).astype(np.float32)


def load_plain_reader() -> Any:
    return runpy.run_path(str(Path(__file__).parents[2] / "docs" / "spec" / "read_run.py"), run_name="read_run")


def draw(n_pairs: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N, (n_pairs, 2))


def table_of(run: Any) -> dict[tuple[int, int], float]:
    return {
        (i, j): score
        for batch in run.pairs()
        for i, j, score in zip(*(batch.column(name).to_pylist() for name in ("i", "j", "score")), strict=True)
    }


def mark(pairs: np.ndarray) -> np.ndarray:
    wanted = np.zeros((N, N), bool)
    wanted[pairs[:, 0], pairs[:, 1]] = wanted[pairs[:, 1], pairs[:, 0]] = True
    return wanted


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "BLOCK_PAIRS", 128)
    monkeypatch.setattr("tartan.store.ledger.BLOCK_PAIRS", 128)


@pytest.mark.parametrize("metric", ["cosine", "correlation", "euclidean", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize("host_cache", [None, "20KB"])
def test_a_list_has_the_bits_of_the_matrix(metric: str, host_cache: str | None, tmp_path: Path) -> None:
    pairs = draw(3000)
    app = Vectors(metric=metric)
    whole = tartan.allpairs(app, ROWS, out=tmp_path / "whole").matrix()
    ways = {} if host_cache is None else {"host_cache": host_cache}
    run = tartan.allpairs(app, ROWS, pairs=pairs, out=tmp_path / "some", **ways)
    assert (tmp_path / "some" / "listed" / "0").exists()
    assert not (tmp_path / "some" / "scores.zarr").exists()
    found, wanted = run.matrix(diagonal=np.nan), mark(pairs)
    off = wanted & ~np.eye(N, dtype=bool)
    np.testing.assert_array_equal(found[off], whole[off])
    assert np.isnan(found[~wanted]).all()
    assert (np.diagonal(found)[np.diagonal(wanted)] == 0).all()
    table = table_of(run)
    assert list(table) == sorted({tuple(sorted(pair)) for pair in pairs.tolist()})
    assert all(score == found[pair] for pair, score in table.items())


def test_a_threshold_keeps_what_that_of_the_matrix_keeps(tmp_path: Path) -> None:
    pairs = draw(4000)
    rule = {"kind": "threshold", "threshold": 0.9}
    whole = tartan.allpairs(Vectors(), ROWS, out=tmp_path / "whole", reduce=rule)
    run = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=tmp_path / "some", reduce=rule)
    wanted = {tuple(sorted(pair)) for pair in pairs.tolist()}
    found = {pair: score for pair, score in table_of(run).items() if pair[0] != pair[1]}
    assert found == {pair: score for pair, score in table_of(whole).items() if pair in wanted}
    assert run.folder.finished


def test_many_pairs_of_one_row_and_repeated_ones_count_once(tmp_path: Path) -> None:
    others = np.tile(np.arange(N), 40)
    pairs = np.column_stack([np.full(len(others), 7), others])
    pairs[::2] = pairs[::2, ::-1]
    run = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=tmp_path / "row")
    assert len(table_of(run)) == N


def test_a_bad_row_fails_with_its_pairs_and_its_reason(tmp_path: Path) -> None:
    rows, pairs = ROWS.copy(), draw(900)
    rows[11] = np.nan
    rows[12] = 0
    run = tartan.allpairs(Vectors(), rows, pairs=pairs, out=tmp_path / "bad")
    wanted = mark(pairs)
    wanted[[11, 12]] = wanted[:, [11, 12]] = False
    np.testing.assert_array_equal(np.isfinite(run.matrix(diagonal=np.nan)), wanted)
    assert [failure.i for failure in run.folder.failures()] == [11, 12]
    with pytest.raises(RunFailedError, match="value nan at position 0"):
        tartan.allpairs(Vectors(), rows, pairs=pairs, out=tmp_path / "stop", on_error="raise")


@pytest.mark.usefixtures("small_blocks")
def test_a_run_that_lost_blocks_computes_these_alone(tmp_path: Path) -> None:
    pairs, out = draw(2000), tmp_path / "run"
    before = table_of(tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out))
    (out / "listed" / "3").unlink()
    damaged = out / "listed" / "5"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    kept = (out / "listed" / "4").stat().st_mtime_ns
    folder = RunFolder.open(out)
    assert folder.n_left == 256
    with pytest.raises(CorruptResultError, match="listed/5 does not match its checksum"):
        table_of(tartan.open(out))
    run = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out)
    assert table_of(run) == before
    assert (out / "listed" / "4").stat().st_mtime_ns == kept


def test_other_rows_in_the_place_of_the_run_are_refused(tmp_path: Path) -> None:
    pairs, out = draw(100), tmp_path / "run"
    tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out)
    with pytest.raises(StoreError, match="content of rows has changed"):
        tartan.allpairs(Vectors(), ROWS + 1, pairs=pairs, out=out)


def test_what_a_list_cannot_do_is_refused_with_the_way_out(tmp_path: Path) -> None:
    pairs, out = draw(100), tmp_path / "run"
    run = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out)
    with pytest.raises(ConfigError, match=r"keeps the scores of its pairs in a list.*matrix\(\)"):
        run.folder.array()
    (out / "listed" / "0").unlink()
    with pytest.raises(ConfigError, match="leave --part out"):
        tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out, part="1/2")


def test_older_versions_refuse_a_list_by_name(tmp_path: Path) -> None:
    out = tmp_path / "run"
    tartan.allpairs(Vectors(), ROWS, pairs=draw(100), out=out)
    body = json.loads((out / "manifest.json").read_text())
    assert body["features"] == ["listed-scores"]
    assert Manifest.load(out).is_listed


def test_best_pairs_and_shares_of_a_list_lie_in_chunks(tmp_path: Path) -> None:
    pairs = draw(500)
    best = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=tmp_path / "best", reduce={"kind": "top-k", "k": 3})
    assert not best.folder.manifest.is_listed
    for part in ("1/2", "2/2"):
        tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=tmp_path / "parts", part=part)
    whole = tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=tmp_path / "list")
    assert table_of(tartan.open(tmp_path / "parts")) == table_of(whole)


def test_removed_items_take_their_pairs_with_them_and_bytes_are_erased(tmp_path: Path) -> None:
    pairs, out = draw(3000), tmp_path / "run"
    whole = table_of(tartan.allpairs(Vectors(), ROWS, pairs=pairs, out=out, keys=[f"k{i}" for i in range(N)]))
    tartan.remove(out, ["k3"])
    expected = {(i - (i > 3), j - (j > 3)): s for (i, j), s in whole.items() if 3 not in (i, j)}
    assert table_of(tartan.open(out)) == pytest.approx(expected, abs=0)
    tartan.expire(out, keep=1, now=True)
    assert table_of(tartan.open(out)) == pytest.approx(expected, abs=0)
    codes = RunFolder.open(out, slots=True).pair_list.codes  # type: ignore[union-attr]
    own = RunFolder.open(out, slots=True).pair_list.pairs  # type: ignore[union-attr]
    assert not codes[(own == 3).any(axis=1)].any()


def test_what_failed_is_not_tried_again_after_a_removal_with_a_way_out_that_works(tmp_path: Path) -> None:
    rows, out = ROWS.copy(), tmp_path / "run"
    rows[11] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    tartan.allpairs(Vectors(), str(tmp_path / "rows.npy"), pairs=np.array([[11, 12], [3, 4], [5, 6]]), out=out)
    tartan.remove(out, ["3"])
    with pytest.raises(ConfigError, match="start a new run of the items"):
        tartan.resume(out, retry_failed=True)


@pytest.mark.parametrize("rule", [None, {"kind": "threshold", "threshold": 0.9}])
def test_the_reader_of_the_specification_reads_lists(rule: dict[str, Any] | None, tmp_path: Path) -> None:
    run = tartan.allpairs(Vectors(), ROWS, pairs=draw(300), out=tmp_path / "run", reduce=rule)
    plain = load_plain_reader()["PlainRun"](run.path)
    expected = [(*pair, score) for pair, score in table_of(run).items()]
    assert [tuple(row.values()) for row in plain.pairs()] == expected
    (run.path / "result.parquet").unlink(missing_ok=True)
    assert [tuple(row.values()) for row in plain.pairs()] == expected
    i, j, score = expected[5]
    assert plain.score(j, i) == score
