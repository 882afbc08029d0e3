"""Runs of files that live: items are added, replaced and computed after others were removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, StoreError

pytestmark = pytest.mark.slow
THRESHOLD = {"kind": "threshold", "threshold": 3.0, "largest": False}


class Rows(tartan.Application):
    releases_gil = True
    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)

    def parse(self, key: str, data: bytes) -> Any:
        return np.array([float(word) for word in data.split()])

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float(np.abs(a - b).sum())


class World:
    """A folder of files, and runs of some of them."""

    def __init__(self, place: Path, reduce: Any = None) -> None:
        self.place, self.reduce = place, reduce
        self.chance = np.random.default_rng(3)
        (place / "in").mkdir()

    @property
    def run(self) -> Path:
        return self.place / "run.tartan"

    def write(self, name: str) -> Path:
        path = self.place / "in" / f"{name}.txt"
        path.write_text(" ".join(map(str, self.chance.normal(size=3).tolist())))
        return path

    def compute(self, names: list[str], out: str = "run.tartan") -> Any:
        files = [str(self.place / "in" / f"{name}.txt") for name in names]
        ways = {"reduce": self.reduce, "tile": 8, "workers": 1, "quiet": True}
        return tartan.allpairs(Rows(), files, out=self.place / out, **ways)

    def refuse_differences(self, run: Any, names: list[str]) -> None:
        expected = self.compute(names, "expected.tartan")
        assert list(run.keys) == list(expected.keys)
        assert run.finished
        assert run.n_pairs == run.n_pairs_done == expected.n_pairs
        rows, wanted = (one.pairs().read_all().to_pylist() for one in (run, expected))
        assert sorted(rows, key=repr) == sorted(wanted, key=repr)
        if self.reduce is None:
            np.testing.assert_equal(run.matrix(), expected.matrix())
        else:
            import pyarrow.parquet as pq

            merged, other = (pq.read_table(one.path / "result.parquet").to_pylist() for one in (run, expected))
            assert sorted(merged, key=repr) == sorted(other, key=repr)


@pytest.fixture(params=[None, THRESHOLD], ids=["dense", "threshold"])
def world(request: Any, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


WAYS: dict[str, Any] = {"app": Rows(), "workers": 1, "quiet": True}
NAMES = [f"f{i:02}" for i in range(13)]


def test_items_are_added_although_files_of_removed_ones_are_gone(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    tartan.remove(world.run, ["f02.txt", "f11.txt"])
    (world.place / "in" / "f02.txt").unlink()
    (world.place / "in" / "f11.txt").write_text("no numbers in here")
    run = tartan.add(world.run, [str(world.write("g00")), str(world.write("g01"))], **WAYS)
    assert [(v.number, v.change, v.n_new) for v in run.versions] == [(1, "run", 0), (2, "remove", 0), (3, "add", 2)]
    assert not run.folder.stored.failures()
    names = [name for name in NAMES if name not in ("f02", "f11")]
    world.refuse_differences(run, [*names, "g00", "g01"])
    world.write("f02")
    world.write("f11")  # what a run of today sees is not what was compared
    assert list(tartan.open(world.run, 2).keys) == [f"{name}.txt" for name in names]


def test_a_removed_file_comes_back_by_its_name_and_not_by_a_pattern(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    tartan.remove(world.run, ["f02.txt"])
    with pytest.raises(ConfigError, match="already"):
        tartan.add(world.run, str(world.place / "in"), **WAYS)
    world.write("f02")
    run = tartan.add(world.run, [str(world.place / "in" / "f02.txt")], **WAYS)
    world.refuse_differences(run, [*(name for name in NAMES if name != "f02"), "f02"])


def test_all_that_was_added_at_once_may_go(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES[:9])
    tartan.add(world.run, [str(world.place / "in" / f"{name}.txt") for name in NAMES[9:]], **WAYS)
    tartan.remove(world.run, [f"{name}.txt" for name in NAMES[9:]])
    for name in NAMES[9:]:
        (world.place / "in" / f"{name}.txt").unlink()
    run = tartan.add(world.run, [str(world.write("g00"))], **WAYS)
    world.refuse_differences(run, [*NAMES[:9], "g00"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_is_replaced(world: World, in_place: bool) -> None:
    for name in NAMES:
        world.write(name)
    old = world.compute(NAMES).pairs().read_all().to_pylist()
    other = world.write("f04" if in_place else "other")
    run = tartan.replace(world.run, "f04.txt", str(other), **WAYS)
    assert list(run.keys) == [f"{name}.txt" for name in NAMES]
    assert [(v.number, v.change, v.n_new) for v in run.versions] == [(1, "run", 0), (2, "replace", 1)]
    assert run.stats["pairs_computed"] in (12, 12 + 78)  # of the replacement, or of all executions
    (world.place / "in" / "f04.txt").write_bytes(other.read_bytes())
    world.refuse_differences(run, NAMES)
    assert tartan.open(world.run, 1).pairs().read_all().to_pylist() == old


def test_changes_follow_each_other(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    tartan.replace(world.run, "f12.txt", str(world.write("f12")), **WAYS)
    tartan.replace(world.run, "f12.txt", str(world.write("f12")), **WAYS)
    tartan.remove(world.run, ["f00.txt"])
    tartan.replace(world.run, "f01.txt", str(world.write("f01")), **WAYS)
    tartan.add(world.run, [str(world.write("g00"))], **WAYS)
    tartan.remove(world.run, ["f05.txt"])
    run = tartan.rename(world.run, "f06.txt", "six")
    tartan.rename(world.run, "six", "f06.txt")
    assert run.keys[run.keys.index("six") - 1] == "f04.txt"
    world.refuse_differences(tartan.open(world.run), [*(n for n in NAMES if n not in ("f00", "f05")), "g00"])


def test_a_run_goes_on_without_what_was_removed(world: World) -> None:
    from tartan.store.folder import RunFolder

    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    with (folder := RunFolder.open(world.run, writable=True)).lock():
        for chunk in list(folder.committed()):
            folder.take_back(*chunk, folder.chunk_status(*chunk) == 1)
        folder.forget_result()
    run = tartan.remove(world.run, ["f03.txt", "f07.txt"])
    assert run.n_pairs_left == run.n_pairs == 55
    (world.place / "in" / "f03.txt").unlink()
    world.refuse_differences(tartan.resume(world.run, **WAYS), [n for n in NAMES if n not in ("f03", "f07")])
    assert tartan.open(world.run, 1).n_pairs_left == 78 - 55


def test_what_is_gone_and_was_not_removed_is_named(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    tartan.remove(world.run, ["f03.txt"])
    (world.place / "in" / "f03.txt").unlink()
    (world.place / "in" / "f05.txt").unlink()
    with pytest.raises(StoreError, match=r"items that are gone: f05\.txt;"):
        tartan.add(world.run, [str(world.write("g00"))], **WAYS)
    assert tartan.open(world.run).version == 2


def test_what_cannot_take_a_place_is_refused(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    with pytest.raises(ConfigError, match=r"no item f99\.txt"):
        tartan.replace(world.run, "f99.txt", str(world.write("g")), **WAYS)
    with pytest.raises(ConfigError):
        tartan.replace(world.run, "f01.txt", str(world.place / "nowhere.txt"), **WAYS)
    with pytest.raises(ConfigError, match="holds 14 items"):
        tartan.replace(world.run, "f01.txt", str(world.place / "in"), **WAYS)
    with pytest.raises(ConfigError, match="already an item"):
        tartan.replace(world.run, "f01.txt", str(world.place / "in" / "f02.txt"), **WAYS)
    assert tartan.open(world.run).version == 1


def test_a_name_that_another_item_took_is_refused(world: World) -> None:
    for name in NAMES:
        world.write(name)
    world.compute(NAMES)
    tartan.rename(world.run, "f00.txt", "g00.txt")
    with pytest.raises(ConfigError, match=r"has an item 'g00\.txt' already"):
        tartan.add(world.run, [str(world.write("g00"))], **WAYS)
    assert tartan.open(world.run).version == 2


def test_a_replaced_item_finds_its_place_on_the_map(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in NAMES:
        world.write(name)
    run = world.compute(NAMES)
    run.embed(n_components=2, keep=True)
    before = run.map.points
    tartan.remove(world.run, ["f02.txt"])
    kept = tartan.open(world.run).map
    np.testing.assert_equal(kept.points, np.delete(before, 2, axis=0))
    assert (kept.n_fitted, len(kept)) == (12, 12)
    run = tartan.replace(world.run, "f04.txt", str(world.write("f04")), **WAYS)
    made = run.map
    assert np.isfinite(made.points).all()
    others = np.arange(12) != 3
    np.testing.assert_equal(made.points[others], np.delete(before, 2, axis=0)[others])
    assert made.is_fitted.tolist() == others.tolist()
    run = tartan.add(world.run, [str(world.write("g00"))], **WAYS)
    np.testing.assert_equal(run.map.points[:12], made.points)
    np.testing.assert_equal(tartan.open(world.run, 1).map.points, before)
    assert run.map.n_fitted == 11
    assert np.isfinite(run.map.points).all()
