"""Matrices of runs in which something failed: gaps where the format has them, else left out and named, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from applications import Distances
from whole_program import Command

import tartan
from tartan.analytics import read_matrix
from tartan.errors import ConfigError

VALUES = [1.0, 2.0, None, 50.0, 51.0, 52.5, None, 100.0, 101.0]
GOOD = [0, 1, 3, 4, 5, 7, 8]
NAMES = "2 failed items are left out: 2, 6"
KEYS = [str(item) for item in range(9)]
MATRICES = ["phylip", "phylip-strict", "npy", "npy-condensed", "csv", "tsv", "float32", "int16"]


class OnePairFails(tartan.Application):
    """The pair of 50 and 51 has no score, and pairs are similar by how near they are."""

    releases_gil = True
    larger_is_nearer = True

    def parse(self, key: str, data: Any) -> float:
        return float(data)

    def compare_pair(self, a: float, b: float) -> float:
        if {a, b} == {50.0, 51.0}:
            raise ValueError("no overlap")
        return 200.0 - abs(a - b)


def items(values: list[float | None]) -> list[bytes]:
    return [b"none" if value is None else str(value).encode() for value in values]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tartan.Run:
    """Return a run of nine items, two of which failed."""
    place = tmp_path_factory.mktemp("exports")
    return tartan.allpairs(Distances(), items(VALUES), place / "run", keys=KEYS, workers=1)


@pytest.fixture
def good(run: tartan.Run) -> np.ndarray:
    return run.matrix(diagonal=0.0)[np.ix_(GOOD, GOOD)]


@pytest.mark.parametrize("kind", ["phylip", "phylip-strict"])
def test_phylip_leaves_out_what_failed(
    command: Command, run: tartan.Run, good: np.ndarray, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "m.phy"
    done = command("export", run.path, file, "--format", kind)
    assert done.status == 0, done.err
    assert f"tartan: warning: {NAMES}" in done.err
    assert "RuntimeWarning" not in done.err
    matrix = read_matrix(file, "phylip")
    np.testing.assert_array_equal(matrix.block(0, 7), good)
    assert matrix.names == tuple(KEYS[item] for item in GOOD)
    if kind == "phylip-strict":
        assert len((tmp_path / "m.phy.names.tsv").read_text().splitlines()) == 8
    with pytest.warns(RuntimeWarning, match=NAMES):
        run.export(tmp_path / "python.phy", kind)
    run.export(tmp_path / "silent.phy", kind, failed="drop")


def test_a_number_for_missing_scores_keeps_every_item(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    done = command("export", run.path, tmp_path / "m.phy", "--missing", 1000)
    assert done.status == 0, done.err
    assert "left out" not in done.err
    assert read_matrix(tmp_path / "m.phy").block(0, 9)[2, 0] == 1000
    assert command("export", run.path, tmp_path / "d.phy", "--missing", 1000, "--failed", "drop").status == 0
    assert read_matrix(tmp_path / "d.phy").n == 7


@pytest.mark.parametrize("kind", MATRICES)
def test_every_matrix_leaves_out_what_failed_if_asked_to(
    command: Command, run: tartan.Run, good: np.ndarray, tmp_path: Path, kind: str
) -> None:
    words = ["--format", kind, "--diagonal", "0", *(["--clip"] if kind == "int16" else [])]
    done = command("export", run.path, tmp_path / "m", *words, "--failed", "drop")
    assert done.status == 0, done.err
    assert NAMES in done.err
    layout = {"npy-condensed": "npy", "phylip-strict": "phylip"}.get(kind, kind)
    found = read_matrix(tmp_path / "m", layout, **({"byteorder": "little"} if kind in ("int16", "float32") else {}))
    wanted = np.clip(good, 0, 1) * 32767 if kind == "int16" else good
    np.testing.assert_array_equal(found.block(0, 7), wanted)
    refused = command("export", run.path, tmp_path / "none", *words, "--failed", "error")
    assert refused.status == 2
    assert "2 items failed: 2, 6" in refused.err
    assert "`--failed drop`" in refused.err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["npy", "npy-condensed", "csv", "float32", "int16"])
def test_formats_with_gaps_have_them_by_default(command: Command, run: tartan.Run, tmp_path: Path, kind: str) -> None:
    done = command("export", run.path, tmp_path / "m", "--format", kind, *(["--clip"] if kind == "int16" else []))
    assert done.status == 0, done.err
    assert "left out" not in done.err
    layout = "npy" if kind == "npy-condensed" else kind
    ways = {"byteorder": "little"} if kind in ("int16", "float32") else {}
    found = read_matrix(tmp_path / "m", layout, missing="negative" if kind == "int16" else "nan", **ways)
    assert found.n == 9
    assert found.check().n_missing == 8 + 7


def test_pairs_have_null_for_what_failed(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    for words in (["p.csv", "--pairs"], ["p.parquet"], ["s.csv", "--sorted"]):
        refused = command("export", run.path, tmp_path / words[0], *words[1:], "--failed", "drop")
        assert refused.status == 2
        assert "`--failed drop` is for matrices, leave it out" in refused.err
        refused = command("export", run.path, tmp_path / words[0], *words[1:], "--failed", "error")
        assert "2 items failed" in refused.err
        assert command("export", run.path, tmp_path / words[0], *words[1:]).status == 0


def test_a_picture_obeys(command: Command, run: tartan.Run, tmp_path: Path) -> None:
    assert "2 items failed" in command("export", run.path, tmp_path / "p.svg", "--failed", "error").err
    assert NAMES in command("export", run.path, tmp_path / "p.svg", "--failed", "drop").err


def test_failed_pairs_cost_one_item_where_the_format_has_no_gaps(command: Command, tmp_path: Path) -> None:
    run = tartan.allpairs(OnePairFails(), items(VALUES), tmp_path / "run", keys=KEYS, workers=1)
    done = command("export", run.path, tmp_path / "m.phy", "--distance", "max-s")
    assert done.status == 0, done.err
    assert f"{NAMES}; 1 item of failed pairs is left out: 4" in done.err
    others = [0, 1, 3, 5, 7, 8]
    scores = run.matrix()[np.ix_(others, others)]
    wanted = np.nanmax(scores[~np.eye(6, dtype=bool)]) - scores
    np.fill_diagonal(wanted, 0)
    np.testing.assert_allclose(read_matrix(tmp_path / "m.phy").block(0, 6), wanted)
    run.export(tmp_path / "m.csv", failed="drop")
    found = read_matrix(tmp_path / "m.csv", missing="nan")
    assert found.names == tuple(KEYS[item] for item in GOOD)
    assert np.isnan(found.block(0, 7)).sum() == 7 + 2  # the diagonal, and the pair that failed


def test_sides_lose_their_own_items(tmp_path: Path) -> None:
    left, right = items([1.0, None, 3.0]), items([None, 5.0, 6.0, None])
    run = tartan.allpairs(Distances(), left, tmp_path / "run", against=right, workers=1)
    run.export(tmp_path / "m.npy", failed="drop")
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), [[4, 5], [2, 3]])
    run.export(tmp_path / "m.csv", failed="drop")
    assert (tmp_path / "m.csv").read_text().splitlines() == [",1,2", "0,4,5", "2,2,3"]


def test_nothing_left(tmp_path: Path) -> None:
    tartan.allpairs(Distances(), items([1.0, 2.0]), tmp_path / "run", against=items([3.0, 4.0]), workers=1)
    lost = (
        '{"i": 2, "j": null, "stage": "parse", "reason": "x"}\n{"i": 3, "j": null, "stage": "parse", "reason": "x"}\n'
    )
    (tmp_path / "run" / "failures.jsonl").write_text(lost)
    with pytest.raises(ConfigError, match="all items of a side failed"):
        tartan.open(tmp_path / "run").export(tmp_path / "m.npy", failed="drop")


def test_the_advice_on_missing_pairs_works(command: Command, tmp_path: Path) -> None:
    run = tartan.allpairs(Distances(), items(VALUES), tmp_path / "run", keys=KEYS, workers=1)
    next(path for path in (run.path / "status.zarr" / "c").rglob("*") if path.is_file()).unlink()  # as if not computed
    refused = command("export", run.path, tmp_path / "m.phy")
    assert refused.status == 2
    assert f"(`--missing 1.0`); `tartan resume {run.path}` computes what is missing" in refused.err
    assert command("export", run.path, tmp_path / "m.phy", "--missing", "1.0").status == 0
    tartan.resume(run.path, app=Distances(), previous=items(VALUES), trust=True)
    assert command("export", run.path, tmp_path / "whole.phy").status == 0
