"""Runs that keep the best pairs or those beyond a threshold, against the same from the whole matrix."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_program import Command

import tartan
from tartan.apps.vectors import Vectors
from tartan.run.session import RunSession

N = 48


def bits() -> np.ndarray:
    """Return vectors of few bits: nearly all distances are equal to others, and exact in every shape of tile."""
    return np.random.default_rng(5).random((N, 6)) < 0.5


def with_bad_rows() -> np.ndarray:
    """Return whole numbers, whose distances are exact, and rows that cannot be compared."""
    rows = np.random.default_rng(6).integers(0, 3, (N, 4)).astype(np.float32)
    rows[[3, 30, N - 1], 1] = [np.nan, np.inf, -np.inf]
    return rows


class OneWay(tartan.Application):
    """The first number less half of the second: (j, i) has another score than (i, j)."""

    symmetric = False
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left[:, None] - 0.5 * right[None, :]


class Undefined(OneWay):
    """NaN where the two are equal."""

    symmetric = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        difference = xp.abs(left[:, None] - right[None, :])
        return xp.where(difference == 0, xp.nan, difference)


CASES = {
    "ties": (Vectors(metric="hamming"), bits()),
    "failed items": (Vectors(metric="manhattan"), with_bad_rows()),
    "one way": (OneWay(), np.random.default_rng(7).integers(0, 30, N).astype(np.float32)),
    "failed pairs": (Undefined(), np.random.default_rng(8).integers(0, 30, N).astype(np.float32)),
}
WAYS: dict[str, dict[str, Any]] = {
    "threads": {"workers": 2},
    "small cache": {"workers": 1, "host_cache": "20items"},
    "device": {"device": "sim"},
    "quadrants": {"order": "quadrant", "tile": 10},
}


@cache
def whole(case: str) -> Any:
    """Return the run that keeps the whole matrix, made once for all that is compared with it."""
    return tartan.allpairs(*CASES[case], workers=1)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("largest", [True, False])
def test_the_best_of_each_item(case: str, way: str, largest: bool) -> None:
    app, items = CASES[case]
    dense = whole(case)
    kept = tartan.allpairs(app, items, reduce={"kind": "top-k", "k": 4, "largest": largest}, **WAYS[way])
    for found, expected in zip(kept.neighbors(4, largest=largest), dense.neighbors(4, largest=largest), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [failure.reason for failure in kept.failures] == [failure.reason for failure in dense.failures]
    assert (kept.n_pairs_done, kept.n_pairs_failed) == (dense.n_pairs_done, dense.n_pairs_failed)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_pairs_beyond_a_threshold(case: str, way: str) -> None:
    app, items = CASES[case]
    everything = whole(case).pairs().read_all()
    limit = float(np.nanmedian(everything["score"].to_numpy()))
    rule = {"kind": "threshold", "threshold": limit}
    kept = tartan.allpairs(app, items, reduce=rule, **WAYS[way]).pairs().read_all()
    expected = {(row["i"], row["j"], row["score"]) for row in everything.to_pylist() if _reaches(row["score"], limit)}
    assert {(row["i"], row["j"], row["score"]) for row in kept.to_pylist()} == expected
    assert kept.num_rows == len(expected)


def _reaches(score: float | None, limit: float) -> bool:
    return score is not None and score <= limit


@pytest.mark.slow
def test_growing_finds_what_starting_with_all_finds(tmp_path: Path) -> None:
    app, items = CASES["ties"]
    np.save(tmp_path / "all.npy", items)
    np.save(tmp_path / "old.npy", items[:30])
    np.save(tmp_path / "new.npy", items[30:])
    rule = {"kind": "top-k", "k": 4}
    tartan.allpairs(app, str(tmp_path / "old.npy"), tmp_path / "run", reduce=rule)
    grown = tartan.add(tmp_path / "run", str(tmp_path / "new.npy"), app=app)
    at_once = tartan.allpairs(app, str(tmp_path / "all.npy"), reduce=rule)
    for found, expected in zip(grown.neighbors(4), at_once.neighbors(4), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_neighbours_of_a_finished_run_come_from_the_merged_result(tmp_path: Path) -> None:
    app, items = CASES["ties"]
    run = tartan.allpairs(app, items, tmp_path / "run", reduce={"kind": "top-k", "k": 4})
    before = run.neighbors(3)
    merged = tmp_path / "run" / "result.parquet"
    part = tmp_path / "run" / "parts" / "0-0.parquet"
    kept = part.read_bytes()
    part.write_bytes(b"not read")
    for found, expected in zip(tartan.open(tmp_path / "run").neighbors(3), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    part.write_bytes(kept)
    merged.write_bytes(merged.read_bytes()[:-20])  # damaged: the parts still tell
    for found, expected in zip(tartan.open(tmp_path / "run").neighbors(3), before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_the_command_that_is_refused_for_keeping_too_much_says_how_to_go_on(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk of 600 kB; what the message names is followed."""
    monkeypatch.setattr(RunSession, "free_bytes", staticmethod(lambda path: 600_000))
    np.save(tmp_path / "rows.npy", np.random.default_rng(9).random((600, 3)))
    words = ["run", "vectors", tmp_path / "rows.npy", "--tile", "100", "--set", "metric=euclidean", "-q"]
    kept = command(*words, "--threshold", "9", "-o", tmp_path / "run")
    assert (kept.status, kept.out) == (2, "")
    assert "--threshold 9 keeps about 100 % of 179,700 pairs" in kept.err
    stricter = re.findall(r"--threshold ([0-9.]+) about", kept.err)
    assert command(*words, "--threshold", *stricter, "-o", tmp_path / "stricter").status == 0
    assert command(*words, "--top-k", "3", "-o", tmp_path / "best").status == 0
    assert command("resume", tmp_path / "run", "-q").status == 2
    assert command("resume", tmp_path / "run", "--keep-all", "-q").status == 0
    assert tartan.open(tmp_path / "run").pairs().read_all().num_rows == 179_700
    more = tmp_path / "more.npy"
    np.save(more, np.random.default_rng(10).random((200, 3)))
    assert command("add", tmp_path / "run", more, "-q").status == 2
    assert command("resume", tmp_path / "run", "--keep-all", "-q").status == 0
