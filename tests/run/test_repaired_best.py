"""Top-k runs from which items go, and in which items are replaced: the best of each item, against all pairs."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, StoreError

pytestmark = pytest.mark.slow
K = 3
N = 21


class Steps(tartan.Application):
    """Whole numbers, of which many are equal."""

    releases_gil = True
    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)

    def parse(self, key: str, data: bytes) -> Any:
        return np.array([float(word) for word in data.split()])

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float(np.abs(a - b).sum())


class OneWay(Steps):
    symmetric = False

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float(np.abs(2 * a - b).sum())


class Failing(Steps):
    """Fails on command: with the items, or with the pairs of the items, that the environment names."""

    def parse(self, key: str, data: bytes) -> Any:
        if key in os.environ.get("FAILING_ITEMS", "").split():
            raise ValueError("no such item today")
        return key, super().parse(key, data)

    def compare_pair(self, a: Any, b: Any) -> Any:
        if {a[0], b[0]} <= {*os.environ.get("FAILING_PAIRS", "").split()}:
            raise ValueError("no such pair today")
        return float(np.abs(a[1] - b[1]).sum())


class Twice(Steps):
    outputs: ClassVar = {"other": "int32", "scores": "float32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return {"other": int((a * b).sum()), "scores": float(np.abs(a - b).sum())}


class World:
    """Files, a run of them, and what each version is to say: worked out from the numbers alone."""

    def __init__(self, place: Path, app: Any = Steps, seed: int = 1, largest: bool = False, steps: int = 4) -> None:
        self.place, self.app, self.largest, self.steps = place, app, largest, steps
        self.chance = np.random.default_rng(seed)
        self.numbers: dict[str, Any] = {}
        self.said: dict[int, Any] = {}
        (place / "in").mkdir()
        names = [f"f{at:02}" for at in range(N)]
        for name in names:
            self.write(name)
        self.now = [(f"{name}.txt", self.numbers[name]) for name in names]
        self.ways: dict[str, Any] = {"app": app(), "workers": 1, "quiet": True}
        rule = {"kind": "top-k", "k": K, "largest": largest, "output": "scores"}
        files = [str(place / "in" / f"{name}.txt") for name in names]
        tartan.allpairs(app(), files, out=self.run, reduce=rule, tile=8, workers=1, quiet=True)

    @property
    def run(self) -> Path:
        return self.place / "run.tartan"

    def write(self, name: str) -> str:
        self.numbers[name] = self.chance.integers(0, self.steps, size=3).astype(float)
        path = self.place / "in" / f"{name}.txt"
        path.write_text(" ".join(map(str, self.numbers[name].tolist())))
        return str(path)

    def best(self) -> list[tuple[Any, ...]]:
        """Return what the newest version keeps, from all pairs of its items."""
        rows = []
        for i, (key, a) in enumerate(self.now):
            found = []
            for j, (other, b) in enumerate(self.now):
                if i != j:
                    scores = self.app().compare_pair(a, b)
                    scores = list(scores.values()) if isinstance(scores, dict) else [scores]
                    found.append((scores[-1] * (-1 if self.largest else 1), j, (i, j, key, other, *scores)))
            rows += [row for _, _, row in sorted(found)[:K]]
        return rows

    def check(self, run: Any) -> None:
        """Compare the newest version with the list of all pairs, and older ones with what they were."""
        run = tartan.open(self.run)
        assert run.finished
        self.said[run.version] = self.best()
        import pyarrow.parquet as pq

        merged = pq.read_table(self.run / "result.parquet")
        assert list(zip(*(column.to_pylist() for column in merged.columns), strict=True)) == self.said[run.version]
        self.check_all()

    def check_all(self) -> None:
        for number, said in self.said.items():
            old = tartan.open(self.run, number)
            table = old.pairs().read_all()
            assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == said
            assert (old.finished, old.n_pairs_left) == (True, 0)
            indices, _ = old.neighbors(K, output="scores", largest=self.largest)
            assert indices[:, 0].tolist() == [row[1] for row in said[::K]]

    def n_needed(self, gone: set[str]) -> int:
        """Return how many pairs of what is left have an item that loses one of its best, and are kept for no such."""
        rows = self.best()
        opened = {row[2] for row in rows if row[3] in gone} - gone
        kept = {(row[2], row[3]) for row in rows}
        left = [key for key, _ in self.now if key not in gone]
        return sum(
            any(end in opened and (end, other) not in kept for end, other in ((a, b), (b, a)))
            for a, b in itertools.combinations(left, 2)
        )

    def remove(self, *keys: str) -> Any:
        ways = 1 if self.app.symmetric else 2  # a pair has two scores
        needed = ways * self.n_needed(set(keys)) + tartan.open(self.run).n_pairs_left
        run = tartan.remove(self.run, list(keys))
        assert run.n_pairs_left <= needed  # parts keep some more
        self.now = [one for one in self.now if one[0] not in keys]
        self.check_all()
        return run

    def replace(self, key: str, name: str) -> Any:
        file = self.write(name)
        run = tartan.replace(self.run, key, file, **self.ways)
        self.now = [(key, self.numbers[name]) if one[0] == key else one for one in self.now]
        return run

    def add(self, name: str) -> Any:
        run = tartan.add(self.run, [self.write(name)], **self.ways)
        self.now.append((f"{name}.txt", self.numbers[name]))
        return run


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("app", "largest"), [(Steps, False), (Steps, True), (OneWay, False), (Twice, False)])
def test_what_a_removal_opens_is_compared_again(app: Any, largest: bool, tmp_path: Path) -> None:
    world = World(tmp_path, app, largest=largest)
    world.check(tartan.open(world.run))
    reader = tartan.open(world.run)
    before = reader.stats["pairs_computed"]
    run = world.remove("f03.txt", "f09.txt", "f20.txt")
    assert 0 < run.n_pairs_left < run.n_pairs
    assert not run.finished
    left = run.n_pairs_left
    run = tartan.resume(world.run, **world.ways)
    assert run.stats["pairs_computed"] - before in (left, left - before)
    world.check(run)
    rows = reader.pairs().read_all()  # it was opened before the log was there
    assert list(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == world.said[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_changes_follow_each_other(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path, seed=seed, steps=2)
    world.check(tartan.open(world.run))
    world.remove("f05.txt")
    world.check(tartan.resume(world.run, **world.ways))
    world.check(world.replace("f00.txt", "other"))
    world.check(world.add("g00"))
    world.remove("f17.txt", "f00.txt")
    world.check(tartan.resume(world.run, **world.ways))
    world.check(world.replace("f01.txt", "again"))
    world.remove("f02.txt")
    world.remove("f04.txt")  # before what the first one opened was compared
    world.check(tartan.resume(world.run, **world.ways))
    tartan.rename(world.run, "f06.txt", "six")
    world.now = [("six" if key == "f06.txt" else key, value) for key, value in world.now]
    world.check(tartan.open(world.run))
    assert len(world.said) == 8
    tartan.expire(world.run, keep=3)
    world.said = {number: said for number, said in world.said.items() if number > max(world.said) - 3}
    world.check_all()
    tartan.expire(world.run, now=True)
    world.said = {max(world.said): world.said[max(world.said)]}
    world.check_all()
    world.remove("f07.txt")
    world.check(tartan.resume(world.run, **world.ways))


def test_an_unfinished_version_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.check(tartan.open(world.run))
    world.remove("f03.txt")
    with pytest.raises(ConfigError, match=r"lacks \d+ pairs.*first run `tartan resume"):
        world.add("g00")
    left = tartan.open(world.run).n_pairs_left
    world.remove("f09.txt")
    assert left > 0
    assert not tartan.open(world.run, 2).finished
    world.check(tartan.resume(world.run, **world.ways))
    assert not tartan.open(world.run, 2).finished


@pytest.mark.sampled(2)
@pytest.mark.parametrize("app", [Steps, OneWay])
def test_a_file_that_was_overwritten_meanwhile_is_replaced(app: Any, tmp_path: Path) -> None:
    """Nobody can compare the old file any more, so neither resume nor add goes on; replace does."""
    world = World(tmp_path, app)
    world.check(tartan.open(world.run))
    world.remove("f03.txt", "f09.txt")
    assert tartan.open(world.run).n_pairs_left > 0
    world.numbers["f05"] = np.array([0.0, 1.0, 25.0])
    (tmp_path / "in" / "f05.txt").write_text("0 1 25")
    for act in (lambda: tartan.resume(world.run, **world.ways), lambda: world.add("g00")):
        with pytest.raises(StoreError, match="`tartan replace RUN KEY FILE` compares it"):
            act()
    tartan.replace(world.run, "f05.txt", str(tmp_path / "in" / "f05.txt"), **world.ways)
    world.now = [(key, world.numbers[key[:3]]) for key, _ in world.now]
    world.check(tartan.open(world.run))
    before = tartan.open(world.run, 2)
    assert before.finished == (before.n_pairs_left == 0)
    world.check(world.add("g01"))
    tartan.expire(world.run, now=True)
    world.said = {max(world.said): world.best()}
    world.check_all()


def test_no_command_is_advised_that_has_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a version that was changed before its pairs were compared, nothing computes them."""
    from tartan.cli.main import main

    world = World(tmp_path)
    world.remove("f03.txt")
    assert main(["info", str(world.run)]) == 0
    assert f"`tartan resume {world.run}` computes the rest" in capsys.readouterr().out
    world.remove("f09.txt")
    tartan.resume(world.run, **world.ways)
    for words in (["info"], ["neighbors", "-k", "3", "-o", str(tmp_path / "near.csv")]):
        assert main([words[0], str(world.run), *words[1:], "--at", "2"]) == 0
        out, err = capsys.readouterr()
        assert "tartan resume" not in out + err
        assert "leave out --at" in out + err


def stored_rows(run: Path, version: int) -> list[tuple[Any, ...]]:
    table = tartan.open(run, version).pairs().read_all()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(("what", "n_failing", "parts"), [("ITEMS", 1, 2), ("PAIRS", N, 0)])
def test_what_fails_when_it_is_compared_again_stays_in_older_versions(
    what: str, n_failing: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = " ".join(f"f{at:02}.txt" for at in range(n_failing))
    world = World(tmp_path, Failing)
    first = stored_rows(world.run, 1)
    left = tartan.remove(world.run, ["f03.txt", "f09.txt", "f20.txt"]).n_pairs_left
    failed = failed_of(world, left, what, names, parts, monkeypatch)
    run = tartan.open(world.run)
    assert (run.finished, run.n_pairs_left, run.n_pairs_failed) == (True, 0, failed)
    assert stored_rows(world.run, 1) == first
    assert (tartan.open(world.run, 1).n_pairs_failed, tartan.open(world.run, 1).finished) == (0, True)
    second = stored_rows(world.run, 2)
    tartan.remove(world.run, ["f18.txt"])
    assert stored_rows(world.run, 1) == first
    assert stored_rows(world.run, 2) == second
    assert not tartan.open(world.run, 2).finished  # it never had what failed
    if what == "ITEMS":
        run = tartan.replace(world.run, "f00.txt", str(tmp_path / "in" / "f00.txt"), **world.ways)
        assert (run.finished, run.n_pairs_failed, run.failures) == (True, 0, [])
        assert stored_rows(world.run, 1) == first


def failed_of(world: World, left: int, what: str, names: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compute what is left, with failures; return how many pairs failed."""
    rule = {"kind": "top-k", "k": K, "largest": False, "output": "scores"}
    files = [str(world.place / "in" / f"f{at:02}.txt") for at in range(N)]
    ways = {"app": Failing(), "max_failures": 1000, "workers": 1, "quiet": True}
    with monkeypatch.context() as patched:
        patched.setenv(f"FAILING_{what}", names)
        for part in range(1, parts + 1):
            options = ways | {"tile": 8, "part": f"{part}/{parts}"}
            tartan.allpairs(options.pop("app"), files, out=world.run, reduce=rule, **options)
        run = tartan.resume(world.run, **ways)
    assert what == "ITEMS" or run.n_pairs_failed == left
    assert 0 < run.n_pairs_failed <= left
    return int(run.n_pairs_failed)


class Killed(BaseException):
    """Stands for kill -9: nothing that is open is put in order."""


def test_a_kill_leaves_the_version_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.check(tartan.open(world.run))
    start = tmp_path / "start"
    shutil.copytree(world.run, start)
    seen = set()
    for moment in range(100):
        shutil.rmtree(world.run)
        shutil.copytree(start, world.run)
        moments, done = itertools.count(), True

        def die(act: Any, moments: Any = moments, moment: int = moment) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                if next(moments) == moment:
                    raise Killed
                return act(*args, **options)

            return call

        with monkeypatch.context() as patched:
            for act in ("replace", "rename", "remove", "unlink"):
                patched.setattr(os, act, die(getattr(os, act)))
            try:
                tartan.remove(world.run, ["f03.txt"])
            except Killed:
                done = False
        world.check_all()  # version 1
        found = tartan.open(world.run)
        seen.add(found.version)
        assert found.finished == (found.version == 1)
        tartan.expire(world.run, keep=100)  # the next writer
        again = tartan.open(world.run)
        assert (again.version, again.finished) == (found.version, found.version == 1)
        world.check_all()
        if done:
            break
    assert seen == {1, 2}
    assert moment > 4
    world.now = [one for one in world.now if one[0] != "f03.txt"]
    world.check(tartan.resume(world.run, **world.ways))


def test_ranks_that_share_a_folder_repair_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.check(tartan.open(world.run))
    world.remove("f03.txt", "f09.txt")
    files = [str(tmp_path / "in" / f"f{at:02}.txt") for at in range(N)]
    rule = {"kind": "top-k", "k": K, "largest": False, "output": "scores"}
    for part in (1, 2):
        tartan.allpairs(Steps(), files, out=world.run, reduce=rule, part=f"{part}/2", tile=8, workers=1, quiet=True)
        world.check_all()
    world.check(tartan.resume(world.run, **world.ways))
