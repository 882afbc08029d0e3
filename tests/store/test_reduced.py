"""Runs that keep less than the matrix: parts, merging, growing, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tartan
from tartan.core.pairs.ledger import FAILED_PAIR
from tartan.errors import ConfigError, StoreError
from tartan.result.run import Run
from tartan.store import grid_io
from tartan.store.folder import RunFolder
from tartan.store.tables import merge_parts

from .kit import commit_chunk, commit_missing, describe, table, true_scores

TOP3 = {"kind": "top-k", "k": 3, "largest": True}
ABOVE = {"kind": "threshold", "threshold": 0.5, "largest": True}
OUTPUTS = {"scores": "float32", "count": "int16"}


def truth_of(n: int, symmetric: bool = True) -> dict[str, np.ndarray]:
    scores = true_scores(n, symmetric)
    return {"scores": scores, "count": (scores * 100).astype(np.int16)}


def make(path: Path, n: int, rule: dict[str, Any], **changes: Any) -> RunFolder:
    return RunFolder.create(path, describe(n, 4, reduce=rule, outputs=OUTPUTS, **changes), table(n))


def best(truth: np.ndarray, k: int, largest: bool) -> dict[int, list[int]]:
    keys = np.where(np.eye(len(truth), dtype=bool), np.inf, -truth if largest else truth)
    return {i: np.argsort(row, kind="stable")[:k].tolist() for i, row in enumerate(keys)}


def rows_of(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.pairs().read_all().to_pylist()
    return rows


def grouped(run: Run) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows_of(run):
        found.setdefault(row["i"], []).append(row["j"])
    return found


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_top_k_keeps_the_best_of_each_item(tmp_path: Path, largest: bool, symmetric: bool, k: int) -> None:
    truth = truth_of(11, symmetric)
    folder = make(tmp_path / "r", 11, {"kind": "top-k", "k": k, "largest": largest}, symmetric=symmetric)
    with folder.lock():
        commit_missing(folder, truth)
    run = Run(tmp_path / "r")
    assert grouped(run) == best(truth["scores"], min(k, 10), largest)
    assert all(row["scores"] == truth["scores"][row["i"], row["j"]] for row in rows_of(run))
    assert all(row["count"] == truth["count"][row["i"], row["j"]] for row in rows_of(run))
    indices, scores = run.neighbors(k, largest=largest)
    assert {i: [j for j in row if j >= 0] for i, row in enumerate(indices.tolist())} == grouped(run)
    np.testing.assert_array_equal(np.isnan(scores), indices < 0)
    assert run.n_pairs_done == run.n_pairs == (55 if symmetric else 110)
    assert not (tmp_path / "r" / "scores.zarr").exists()


def test_codes_of_whole_chunks_are_told_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 x 5 chunks 10 are whole: of these one is decoded, for all that are equal to it."""
    folder = make(tmp_path / "r", 20, ABOVE)
    with folder.lock():
        commit_missing(folder, truth_of(20))
    run, decoded, whole = Run(tmp_path / "r"), [], grid_io.decompress
    monkeypatch.setattr(grid_io, "decompress", lambda *given: decoded.append(1) or whole(*given))
    scores = truth_of(20)["scores"]
    assert {(row["i"], row["j"]) for row in rows_of(run)} == set(
        zip(*np.nonzero(np.triu(scores >= 0.5, 1)), strict=True)
    )
    n_diagonal = 5
    assert len(decoded) <= 2 * n_diagonal + 1


@pytest.mark.parametrize("symmetric", [True, False])
def test_no_item_is_among_its_own_best(tmp_path: Path, symmetric: bool) -> None:
    """Also where the application compares items with themselves."""
    truth = truth_of(11, symmetric)
    np.fill_diagonal(truth["scores"], 9)
    folder = make(tmp_path / "r", 11, TOP3, symmetric=symmetric, diagonal=True)
    with folder.lock():
        commit_missing(folder, truth)
    assert grouped(Run(tmp_path / "r")) == best(truth["scores"], 3, largest=True)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_threshold_keeps_the_pairs_beyond_it(tmp_path: Path, largest: bool, symmetric: bool) -> None:
    truth = truth_of(11, symmetric)
    folder = make(tmp_path / "r", 11, {**ABOVE, "largest": largest}, symmetric=symmetric)
    with folder.lock():
        commit_missing(folder, truth)
    wanted = np.triu(np.ones((11, 11), bool), 1) if symmetric else ~np.eye(11, dtype=bool)
    beyond = truth["scores"] >= 0.5 if largest else truth["scores"] <= 0.5
    found = {(row["i"], row["j"]): row["scores"] for row in rows_of(Run(tmp_path / "r"))}
    assert found == {(i, j): truth["scores"][i, j] for i, j in np.argwhere(wanted & beyond).tolist()}


def test_the_other_output_may_decide(tmp_path: Path) -> None:
    truth = truth_of(11)
    truth["count"] = 100 - truth["count"]
    folder = make(tmp_path / "r", 11, {**TOP3, "output": "count"})
    with folder.lock():
        commit_missing(folder, truth)
    assert grouped(Run(tmp_path / "r")) == best(truth["count"], 3, True)


def test_a_rectangle_keeps_the_best_of_its_left_side(tmp_path: Path) -> None:
    truth = truth_of(11)
    folder = make(tmp_path / "r", 11, TOP3, workload={"kind": "rectangle", "n_left": 5})
    with folder.lock():
        commit_missing(folder, truth)
    expected = np.argsort(-truth["scores"][:5, 5:], axis=1, kind="stable")[:, :3]
    assert grouped(Run(tmp_path / "r")) == {i: row.tolist() for i, row in enumerate(expected)}
    np.testing.assert_array_equal(Run(tmp_path / "r").neighbors(3, largest=True)[0], expected)


@pytest.mark.parametrize("rule", [TOP3, ABOVE])
@pytest.mark.parametrize("harm", ["truncate", "remove"])
def test_damage_is_found_and_mended(tmp_path: Path, rule: dict[str, Any], harm: str) -> None:
    truth = truth_of(11)
    folder = make(tmp_path / "r", 11, rule)
    with folder.lock():
        commit_missing(folder, truth)
        before = rows_of(Run(tmp_path / "r"))
        part = tmp_path / "r" / "parts" / "0-1.parquet"
        part.write_bytes(part.read_bytes()[:-9]) if harm == "truncate" else part.unlink()
        assert commit_missing(folder, truth) == [(0, 1)]
    assert rows_of(Run(tmp_path / "r")) == before


@pytest.mark.parametrize("rule", [TOP3, ABOVE])
@pytest.mark.parametrize("symmetric", [True, False])
def test_growing_equals_starting_large(tmp_path: Path, rule: dict[str, Any], symmetric: bool) -> None:
    truth = truth_of(15, symmetric)
    grown, large = (make(tmp_path / name, n, rule, symmetric=symmetric) for name, n in (("g", 10), ("l", 15)))
    with grown.lock(), large.lock():
        commit_missing(large, truth)
        commit_missing(grown, truth)
        grown.extend(15, table(15))
        missing = grown.missing()
        commit_missing(grown, truth)
        statuses = {chunk: grown.chunk_status(*chunk) for chunk in missing}
        for chunk, wanted in missing.items():  # a kill between part and status: the same pairs come again
            commit_chunk(grown, chunk, wanted, truth)
        assert all(np.array_equal(grown.chunk_status(*chunk), status) for chunk, status in statuses.items())
    assert rows_of(Run(tmp_path / "g")) == rows_of(Run(tmp_path / "l"))


def test_failed_pairs_are_not_kept(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", 4, {**ABOVE, "threshold": 0.0})
    with folder.lock():
        wanted = folder.missing()[0, 0]
        commit_chunk(folder, (0, 0), wanted, truth_of(4), FAILED_PAIR)
    assert rows_of(Run(tmp_path / "r")) == []
    assert (Run(tmp_path / "r").n_pairs_failed, folder.missing()) == (6, {})


@pytest.mark.parametrize("kept", [{}, {"symmetric": False}, {"workload": {"kind": "rectangle", "n_left": 5}}])
@pytest.mark.parametrize("largest", [True, False])
def test_what_one_execution_holds_is_what_its_parts_hold(tmp_path: Path, largest: bool, kept: dict[str, Any]) -> None:
    """Also after items came, old chunks were completed, and a chunk was written that the execution has not seen."""
    rule = {"kind": "top-k", "k": 3, "largest": largest}
    outputs = {"scores": "float32"}
    truth = {"scores": np.round(truth_of(15, kept.get("symmetric", True))["scores"], 1)}  # some are equal
    folder = RunFolder.create(tmp_path / "r", describe(11, 4, reduce=rule, outputs=outputs, **kept), table(11))
    with folder.lock():
        commit_missing(folder, truth)
        n_left = kept.get("workload", {}).get("n_left", 0)  # from which j counts where people see it
        merged = pq.read_table(merge_parts(folder)).to_pylist()
        assert [row | {"j": row["j"] - n_left} for row in merged] == rows_of(Run(tmp_path / "r"))
        if "workload" not in kept:
            folder.extend(15, table(15))
            commit_missing(folder, truth)
            assert pq.read_table(merge_parts(folder)).to_pylist() == rows_of(Run(tmp_path / "r"))
    again = RunFolder.open(tmp_path / "r", writable=True)
    with again.lock():
        commit_chunk(again, (0, 0), folder.pairs.mask(0, 0), truth)
        merged = pq.read_table(merge_parts(again)).to_pylist()
        assert [row | {"j": row["j"] - n_left} for row in merged] == rows_of(Run(tmp_path / "r"))


@pytest.mark.parametrize("rule", [TOP3, ABOVE])
def test_the_merged_file_is_what_the_run_streams(tmp_path: Path, rule: dict[str, Any]) -> None:
    folder = make(tmp_path / "r", 11, rule)
    with folder.lock():
        commit_missing(folder, truth_of(11))
        path = merge_parts(folder)
        assert merge_parts(folder) == path, "merging again is merging once"
    run = Run(tmp_path / "r")
    assert pq.read_table(path).to_pylist() == rows_of(run)
    assert pq.read_table(run.export(tmp_path / "e.parquet")).to_pylist() == rows_of(run)


def test_what_a_reduced_run_cannot_tell(tmp_path: Path) -> None:
    top, above = make(tmp_path / "t", 11, TOP3), make(tmp_path / "a", 11, ABOVE)
    for folder in (top, above):
        run = Run(folder.path)
        for call in (run.matrix, run.condensed, run.array, lambda r=run: r.export(tmp_path / "x.npy")):
            with pytest.raises(ConfigError, match="no matrix"):
                call()
        with pytest.raises(ConfigError, match="cannot tell"):
            run.neighbors(4, largest=True)
        with pytest.raises(StoreError, match="no matrix"):
            folder.read_chunk("scores", 0, 0)
    with pytest.raises(ConfigError, match="cannot tell"):
        Run(top.path).neighbors(2, largest=False)
    with pytest.raises(ConfigError, match="no parts"):
        merge_parts(RunFolder.create(tmp_path / "d", describe()))
    assert "the 3 largest scores of each item" in Run(top.path)._repr_html_()


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("rule", [{"kind": "top-k", "k": 2}, {"kind": "threshold", "threshold": 2.0}])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut off", "overwritten", "one bit", "another schema", "a folder"])
@pytest.mark.parametrize("command", ["resume", "the same run"])
def test_a_damaged_result_is_merged_again(tmp_path: Path, rule: dict[str, Any], damage: str, command: str) -> None:
    def apart(a: float, b: float) -> float:
        return abs(a - b)

    items = [float(i * i % 17) for i in range(40)]
    run = tartan.allpairs(apart, items, tmp_path / "run", reduce=rule, tile=16, workers=1)
    path = tmp_path / "run" / "result.parquet"
    whole = pq.read_table(path)
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "one bit":
        data[len(data) // 3] ^= 4
    if damage == "another schema":
        pq.write_table(whole.drop_columns(["score"]), path)
    elif damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut off": data[:-3], "overwritten": bytes(len(data))}.get(damage, data))
    if damage not in ("one bit", "another schema"):  # these are seen by reading it to its end
        assert not tartan.open(tmp_path / "run").finished
    if damage == "a folder":
        return
    if command == "resume":
        run = tartan.resume(tmp_path / "run", workers=1)  # without the application: nothing is compared
    else:
        run = tartan.allpairs(apart, items, tmp_path / "run", reduce=rule, workers=1)
    assert run.finished
    assert pq.read_table(path).equals(whole)
