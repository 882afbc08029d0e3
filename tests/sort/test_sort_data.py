"""The data of the sort benchmark: known contents, and a check that sees what is wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data() -> Any:
    path = Path(__file__).parents[2] / "benches" / "sort" / "_sort_data.py"
    spec = importlib.util.spec_from_file_location("_sort_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["_sort_data"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["_sort_data"]


@pytest.fixture(autouse=True)
def small_blocks(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "BLOCK_VALUES", 1024)
    monkeypatch.setattr(data, "BLOCK_RECORDS", 1024)


KINDS = ["random", "narrow", "equal", "two", "sorted", "reversed", "zipf", "extremes"]


def test_every_kind_is_tested(data: Any) -> None:
    assert list(data.KINDS) == KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 1024, 5000])
def test_integers(data: Any, tmp_path: Path, kind: str, n: int) -> None:
    path = tmp_path / "values"
    told = data.write_integers(path, kind, n)
    values = np.fromfile(path, np.int64)
    assert (len(values), told.count) == (n, n)
    assert told.sum == int(values.view(np.uint64).sum(dtype=np.uint64))
    assert told.xor == int(np.bitwise_xor.reduce(values.view(np.uint64), initial=np.uint64(0)))
    seen = data.check(path)
    assert seen.same_contents(told)
    assert seen.ordered == bool(np.all(values[1:] >= values[:-1]))
    assert seen.duplicates == int((values[1:] == values[:-1]).sum())


def test_kinds_are_what_they_say(data: Any, tmp_path: Path) -> None:
    def values(kind: str) -> Any:
        data.write_integers(tmp_path / kind, kind, 20_000)
        return np.fromfile(tmp_path / kind, np.int64)

    assert values("narrow").min() >= 0
    assert values("narrow").max() < 2**32
    assert values("random").min() < -(2**62) < 2**62 < values("random").max()
    assert len(set(values("equal"))) == 1
    assert len(set(values("two"))) == 2
    assert np.all(np.diff(values("sorted")) > 0)
    assert np.all(np.diff(values("reversed")) < 0)
    assert {np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0} <= set(values("extremes"))
    _, counts = np.unique(values("zipf"), return_counts=True)
    assert counts.max() > 200
    assert len(counts) > 2000


def test_same_seed_same_file(data: Any, tmp_path: Path) -> None:
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        data.write_integers(tmp_path / name, "random", 3000, seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


def test_records(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "records"
    told = data.write_records(path, 3000)
    rows = np.fromfile(path, "S100")
    assert told.count == len(rows) == 3000
    assert bytes(rows[2999])[12:44] == b"%032X" % 2999
    assert bytes(rows[7])[10:12] + bytes(rows[7])[44:48] + bytes(rows[7])[96:] == bytes.fromhex(
        "0011 8899AABB CCDDEEFF"
    )
    assert not data.check(path, records=True).ordered
    keys = [bytes(row)[:10].ljust(10, b"\0") for row in np.fromfile(path, "V100")]
    order = sorted(range(3000), key=keys.__getitem__)
    np.fromfile(path, "V100")[order].tofile(tmp_path / "sorted")
    seen = data.check(tmp_path / "sorted", records=True)
    assert seen.ordered
    assert seen.same_contents(told)


@pytest.mark.parametrize("offset", [0, 128, 4096])
def test_data_may_begin_later(data: Any, tmp_path: Path, offset: int) -> None:
    path = tmp_path / "values"
    told = data.write_integers(path, "sorted", 3000)
    path.write_bytes(bytes(offset) + path.read_bytes())
    seen = data.check(path, offset=offset)
    assert seen.same_contents(told)
    assert seen.ordered


@pytest.mark.parametrize("place", [1, 99, 50_000, 102_399, 102_401, 299_999])
def test_a_changed_byte_of_a_record_is_seen(data: Any, tmp_path: Path, place: int) -> None:
    path = tmp_path / "records"
    told = data.write_records(path, 3000)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert not data.check(path, records=True).same_contents(told)


@pytest.mark.parametrize("first", [0, 1023, 1024, 2998])
def test_two_neighbours_out_of_order_are_seen(data: Any, tmp_path: Path, first: int) -> None:
    """Also where one ends a block and the other begins the next."""
    path = tmp_path / "values"
    told = data.write_integers(path, "sorted", 3000)
    values = np.fromfile(path, np.int64)
    values[[first, first + 1]] = values[[first + 1, first]]
    values.tofile(path)
    seen = data.check(path)
    assert not seen.ordered
    assert seen.same_contents(told)


def test_equal_keys_are_counted(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "records"
    data.write_records(path, 10)
    one = path.read_bytes()[:100]
    path.write_bytes(one * 2500)
    seen = data.check(path, records=True)
    assert (seen.ordered, seen.duplicates) == (True, 2499)
