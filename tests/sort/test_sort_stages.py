"""The stages of a sort on their own, and put together again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_layouts import layouts, small_layout
from sort_oracle import as_rows, sort_rows

from tartan._native import SortFailure
from tartan.errors import ConfigError
from tartan.sort import BlockSorter, sort_blocks, sort_file
from tartan.sort.keys import parse_key


@pytest.fixture
def values() -> Any:
    values = np.zeros(30_000, [("score", "<f4"), ("number", "<i4")])
    values["score"] = np.random.default_rng(2).integers(-50, 50, len(values))
    values["number"] = np.arange(len(values))
    return values


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert [path.name for path in tmp_path.iterdir() if "tartan" in path.name] == []


def pieces(values: Any, size: int) -> Iterator[Any]:
    return (values[first : first + size] for first in range(0, len(values), size))


@pytest.mark.parametrize("size", [1, 777, 30_000])
def test_blocks_of_any_size_give_what_the_oracle_gives(values: Any, tmp_path: Path, size: int) -> None:
    values = values[: size * 500]
    with layouts(small_layout(8, word=False)):
        blocks = sort_blocks(pieces(values, size), dtype=values.dtype, key="score:desc", tmp=tmp_path, memory="8GB")
        found = np.concatenate(list(blocks))
    expected = sort_rows(as_rows(values), parse_key("score:desc", values.dtype))
    assert np.array_equal(as_rows(found), expected)


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    assert list(sort_blocks([], dtype="i8", tmp=tmp_path, memory="8GB")) == []
    assert list(sort_blocks([np.empty(0, "i8")], dtype="i8", tmp=tmp_path, memory="8GB")) == []


def test_blocks_may_be_kept_and_what_was_pushed_may_change(tmp_path: Path) -> None:
    block = np.arange(4096)[::-1].copy()
    with layouts(small_layout(8)), BlockSorter(dtype="i8", tmp=tmp_path, memory="8GB") as sorter:
        for shift in range(20):
            sorter.push(block)
            block += 1 if shift < 19 else 0
        found = list(sorter.yield_sorted(block_bytes=1000))
    assert {len(part) for part in found[:-1]} == {125}
    expected = np.sort(np.concatenate([np.arange(4096) + shift for shift in range(20)]))
    assert np.array_equal(np.concatenate(found), expected)


def test_views_are_pushed_as_they_look(tmp_path: Path) -> None:
    square = np.arange(100, dtype=">i4").reshape(10, 10)
    with BlockSorter(dtype=">i4", tmp=tmp_path, memory="8GB", n_bytes=400) as sorter:
        for column in square.T[::-1]:
            sorter.push(column)
        (found,) = sorter.yield_sorted()
    assert np.array_equal(found, np.arange(100))


@pytest.mark.parametrize("wrong", [np.zeros(3, "f4"), np.zeros((2, 2)), np.float64(1)])
def test_other_records_are_refused(tmp_path: Path, wrong: Any) -> None:
    with BlockSorter(dtype="f8", tmp=tmp_path, memory="8GB") as sorter, pytest.raises(ConfigError, match="were pushed"):
        sorter.push(wrong)


def test_leaving_early_removes_everything(values: Any, tmp_path: Path) -> None:
    with layouts(small_layout(8, word=False)):
        blocks = sort_blocks(pieces(values, 999), dtype=values.dtype, tmp=tmp_path, memory="8GB")
        next(blocks)
        assert list(tmp_path.glob("tartan-sort-*/run-*"))
        blocks.close()  # type: ignore[attr-defined]


def test_an_engine_that_cannot_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        failure = SortFailure("no")
        failure.kind, failure.path, failure.offset, failure.errno = "memory", None, None, None
        raise failure

    monkeypatch.setattr("tartan.sort.engine.SortJob", fail)
    with pytest.raises(Exception, match="memory cannot be allocated"):
        BlockSorter(dtype="i8", tmp=tmp_path, memory="8GB")


def test_blocks_are_sorted_as_files_are(values: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", values)
    with (
        layouts(small_layout(8, fan_in=8, word=False)),
        BlockSorter(dtype=values.dtype, key="score", tmp=tmp_path, memory="8GB") as sorter,
    ):
        for start in range(0, len(values), 700):
            sorter.push(values[start : start + 700])
        found = np.concatenate(list(sorter.yield_sorted()))
        edges = sorter.edges
    sort_file(tmp_path / "in.npy", tmp_path / "whole.npy", key="score")
    assert found.tobytes() == np.load(tmp_path / "whole.npy").tobytes()
    assert values.nbytes <= edges["run_write"].n_bytes < 1.5 * values.nbytes
    assert values.nbytes <= edges["run_read"].n_bytes < 1.5 * values.nbytes
