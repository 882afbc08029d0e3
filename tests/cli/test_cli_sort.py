"""``tartan sort``: what it hands over, what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(3).integers(-1000, 1000, 5000)
    values[:2000].tofile("a.bin")
    values[2000:].tofile("b.bin")
    return values


def test_raw_files_by_a_glob(command: Any, values: Any) -> None:
    shown = command("sort", "?.bin", "out.npy", "--dtype", "int64", "--memory", "8GB", "--threads", "1")
    assert (shown.status, shown.out) == (0, "")
    assert "5 k records, 40 kB in" in shown.err
    assert shown.err.endswith("result in out.npy\n")
    assert np.array_equal(np.load("out.npy"), np.sort(values))


def test_json_is_all_that_reaches_stdout(command: Any, values: Any) -> None:
    shown = command("sort", "a.bin", "b.bin", "out", "--dtype", "i8", "--descending", "--quiet", "--json")
    assert (shown.status, shown.err) == (0, "")
    about = json.loads(shown.out)
    assert (about["n_records"], about["n_bytes"], about["path"]) == (5000, 40_000, "out")
    assert np.array_equal(np.fromfile("out", "i8"), np.sort(values)[::-1])


def test_records_by_fields(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.zeros(500, [("key", "<u4"), ("score", "<f8"), ("tag", "S4")])
    generator = np.random.default_rng(1)
    rows["key"], rows["score"], rows["tag"] = generator.integers(0, 9, 500), generator.integers(0, 5, 500), b"abc"
    rows.tofile("rows")
    shown = command("sort", "rows", "out", "--dtype", "key:u4,score:f8,tag:S4", "--key", "score:desc,key", "--quiet")
    assert (shown.status, shown.err) == (0, "")
    expected = rows[np.lexsort([rows["key"], -rows["score"]])]
    assert np.array_equal(np.fromfile("out", rows.dtype), expected)


def test_in_place_and_overwrite(command: Any, values: Any) -> None:
    assert command("sort", "a.bin", "--dtype", "i8", "--in-place", "--quiet").status == 0
    assert np.array_equal(np.fromfile("a.bin", "i8"), np.sort(values[:2000]))
    refused = command("sort", "b.bin", "a.bin", "--dtype", "i8", "--quiet")
    assert refused.status == 2
    assert "a.bin exists" in refused.err
    assert command("sort", "b.bin", "a.bin", "--dtype", "i8", "--quiet", "--overwrite").status == 0
    assert np.array_equal(np.fromfile("a.bin", "i8"), np.sort(values[2000:]))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["none", "out", "--dtype", "i8"], 2, "cannot read none: No such file"),
        (["a.bin", "out"], 2, "a.bin does not say what its records are"),
        (["a.bin", "out", "--dtype", "int65"], 2, "dtype int65 cannot be sorted; known are"),
        (["a.bin", "out", "--dtype", "record:999"], 2, "not a multiple of the record of 999 bytes"),
        (["a.bin", "out", "--dtype", "i8", "--memory", "64MB"], 2, "128 MB is the least"),
        (["a.bin", "a.bin", "--dtype", "i8"], 2, "--in-place"),
        (["a.bin", "b.bin", "--in-place", "--dtype", "i8"], 2, "one source"),
    ],
)
def test_what_is_refused(command: Any, values: Any, words: list[str], status: int, said: str) -> None:
    shown = command("sort", *words)
    assert shown.status == status
    assert said in shown.err
    assert not Path("out").exists()
