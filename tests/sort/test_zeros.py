"""-0.0 equals 0.0 in keys, and comes out as it went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_layouts import layouts, small_layout

from tartan.sort import sort_file

RECORD = np.dtype([("i", "<u4"), ("x", ">f8"), ("y", "<f4")])


def records(n: int = 4000, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = np.zeros(n, RECORD)
    found["i"] = np.arange(n)
    found["x"] = random.choice([-1.5, -0.0, 0.0, 2.0, np.nan], n)
    found["y"] = random.choice([-0.0, 0.0, 1.0], n)
    return found


def expected(given: np.ndarray, *, x_down: bool = False) -> np.ndarray:
    x = np.where(np.isnan(given["x"]), np.inf, -given["x"] if x_down else given["x"]) + 0.0
    return given[np.lexsort((given["y"] + np.float32(0), x))]


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
@pytest.mark.parametrize(("key", "down"), [("x,y", False), ("x:desc,y", True)])
def test_equal_zeros_keep_their_order(tmp_path: Path, suffix: str, key: str, down: bool) -> None:
    given = records()
    source, target = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    if suffix == ".npy":
        np.save(source, given)
    else:
        given.tofile(source)
    ways: dict[str, Any] = {} if suffix == ".npy" else {"dtype": RECORD}
    result = sort_file(source, target, key=key, memory="4GB", **ways)
    found = np.load(target) if suffix == ".npy" else np.fromfile(target, RECORD)
    assert bits(found) == bits(expected(given, x_down=down))
    assert (result.n_records, result.n_bytes, result.record_bytes) == (4000, given.nbytes, RECORD.itemsize)
    assert sorted(path.name for path in tmp_path.iterdir()) == [source.name, target.name]


def test_a_total_order_puts_minus_zero_first(tmp_path: Path) -> None:
    given = records()
    np.save(tmp_path / "a.npy", given)
    sort_file(tmp_path / "a.npy", tmp_path / "b.npy", key="x", memory="4GB", total_order=True)
    found = np.load(tmp_path / "b.npy")["x"]
    zeros = np.signbit(found[found == 0])
    assert zeros.any()
    assert (np.diff(zeros.astype(int)) <= 0).all()


@pytest.mark.slow
def test_several_files_and_run_files(tmp_path: Path) -> None:
    parts = [records(300_000, seed) for seed in range(3)]
    for number, part in enumerate(parts):
        part["i"] += number * 300_000
        np.save(tmp_path / f"{number}.npy", part)
    with layouts(small_layout(RECORD.itemsize + 2, word=False)):
        result = sort_file(str(tmp_path / "[0-9].npy"), tmp_path / "s.npy", key="x,y", memory="4GB")
    assert result.run_files > 1
    assert bits(np.load(tmp_path / "s.npy")) == bits(expected(np.concatenate(parts).astype(RECORD)))


def test_without_minus_zeros_nothing_changes(tmp_path: Path) -> None:
    given = records()
    given["x"] += 0.0
    given["y"] += np.float32(0)
    np.save(tmp_path / "a.npy", given)
    sort_file(tmp_path / "a.npy", tmp_path / "b.npy", key="x,y", memory="4GB")
    sort_file(tmp_path / "a.npy", tmp_path / "c.npy", key="x,y", memory="4GB", total_order=True)
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "c.npy").read_bytes()


def test_lone_numbers(tmp_path: Path) -> None:
    given = np.array([0.0, -0.0, 1.0, -0.0, -2.0])
    np.save(tmp_path / "a.npy", given)
    sort_file(tmp_path / "a.npy", tmp_path / "b.npy", memory="4GB")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), np.sort(given))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    given = records()
    x = np.ascontiguousarray(given["x"]).astype("<f8")
    columns = {"i": given["i"], "x": pa.array(x, mask=np.isnan(x)), "y": given["y"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    target = tmp_path / f"b{suffix}"
    sort_file(tmp_path / "a.parquet", target, key="x,y", memory="4GB")
    found = pq.read_table(target) if suffix == ".parquet" else pa.ipc.open_file(str(target)).read_all()
    truth = expected(given)
    assert found["i"].to_pylist() == truth["i"].tolist()
    assert bits(np.signbit(found["y"].to_numpy())) == bits(np.signbit(truth["y"]))
    sort_file(tmp_path / "a.parquet", target, key="x,y", memory="4GB", total_order=True, overwrite=True)
    total = pq.read_table(target) if suffix == ".parquet" else pa.ipc.open_file(str(target)).read_all()
    assert total["i"].to_pylist() != truth["i"].tolist()
