"""What expires cannot be read any more, and what was removed leaves no byte behind."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.base.files import FileWriter
from tartan.errors import ConfigError, DiskFullError, StoreError

pytestmark = pytest.mark.slow
THRESHOLD = {"kind": "threshold", "threshold": 1e9, "largest": False}
N = 21
GONE = (*range(8, 16), 17, 20)
KEPT = [item for item in range(N) if item not in GONE]
# A distance that is found again in the bytes of a folder: no two items have another one that begins like it.
MARK = 123456789.0


class Marked(tartan.Application):
    releases_gil = True
    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)

    def parse(self, key: str, data: bytes) -> Any:
        if b"broken" in data:
            raise ValueError(f"{key} is SECRET-broken")
        return float(data.split()[0])

    def compare_pair(self, a: Any, b: Any) -> Any:
        return abs(a - b)


WAYS: dict[str, Any] = {"workers": 1, "quiet": True}


def name(item: int) -> str:
    return f"{'SECRET' if item in GONE else 'open'}{item:02}.txt"


def make(place: Path, reduce: Any, *, one_by_one: bool = True) -> Path:
    """Compute a run in which scores with a removed item, and no other, are MARK and more; one item is broken."""
    (place / "in").mkdir(parents=True)
    for item in range(N):
        value = MARK * (item + 1) if item in GONE else item
        text = "broken" if item == GONE[0] else f"{value}"
        (place / "in" / name(item)).write_text(text)
    files: Any = [str(place / "in" / name(item)) for item in range(N)] if one_by_one else str(place / "in")
    ways = {"reduce": reduce, "disk_cache": "10MB", "trace": True, "tile": 8, **WAYS}
    run = tartan.allpairs(Marked(), files, out=place / "run.tartan", **ways)
    assert run.n_pairs_failed == N - 1
    return place / "run.tartan"


def scores_in(path: Path) -> set[float]:
    """Return all numbers of eight bytes in the files of a folder that are not compressed."""
    found: set[float] = set()
    for file in path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            numbers = np.frombuffer(data[: len(data) // 8 * 8], "<f8")
            found |= set(numbers[np.isfinite(numbers) & (np.abs(numbers) > 1e6) & (np.abs(numbers) < 1e11)].tolist())
    return found


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


@pytest.mark.parametrize("reduce", [None, THRESHOLD], ids=["dense", "threshold"])
def test_no_byte_is_left(reduce: Any, tmp_path: Path) -> None:
    path = make(tmp_path, reduce)
    if reduce is None:
        tartan.open(path).embed(n_components=2, keep=True, failed="drop")
        assert scores_in(path / "scores.zarr")
    assert b"SECRET" in bytes_of(path)
    run = tartan.remove(path, [name(item) for item in GONE])
    rows = run.pairs().read_all().to_pylist()
    assert b"SECRET" in bytes_of(path)
    assert tartan.expire(path, now=True) > 0
    assert b"SECRET" not in bytes_of(path)
    assert not scores_in(path / "scores.zarr")
    again = tartan.open(path)
    assert again.pairs().read_all().to_pylist() == rows
    assert again.finished
    assert list(again.keys) == [name(item) for item in KEPT]
    if reduce is None:
        kept = again.map
        assert kept is not None
        assert len(kept) == len(KEPT)
    else:
        import pyarrow.parquet as pq

        table = pq.read_table(path / "parts" / "0-0.parquet").to_pylist()
        assert table
        assert not [row for row in table if row["i"] in GONE or row["j"] in GONE or row["scores"] > 100]
    # it lives on
    (tmp_path / "in" / "new.txt").write_text("1000")
    more = tartan.add(path, [str(tmp_path / "in" / "new.txt")], app=Marked(), **WAYS)
    assert (more.n_items, more.finished, more.version) == (len(KEPT) + 1, True, 3)
    assert [version.number for version in more.versions] == [2, 3]


def test_a_pattern_that_names_a_folder_stays(tmp_path: Path) -> None:
    path = make(tmp_path, None, one_by_one=False)
    tartan.remove(path, [name(item) for item in GONE])
    tartan.expire(path, now=True)
    assert b"SECRET" not in bytes_of(path)
    (tmp_path / "in" / "x.txt").write_text("1000")
    run = tartan.add(path, [str(tmp_path / "in" / "x.txt")], app=Marked(), **WAYS)
    assert run.finished


def test_old_versions_expire_and_free_what_they_alone_needed(tmp_path: Path) -> None:
    path = make(tmp_path, None)
    tartan.remove(path, [name(item) for item in GONE[:4]])
    tartan.remove(path, [name(item) for item in GONE[4:8]])
    tartan.remove(path, [name(item) for item in GONE[8:]])
    matrices = {number: tartan.open(path, number).matrix() for number in range(1, 5)}
    old, newest = tartan.open(path, 1), tartan.open(path)
    before = {str(chunk) for chunk in (path / "scores.zarr").rglob("c/*/*")}
    assert tartan.expire(path, 2) > 0  # the chunks of 8 .. 15
    after = {str(chunk) for chunk in (path / "scores.zarr").rglob("c/*/*")}
    assert len(after) == len(before) - 3
    assert [version.number for version in newest.versions] == [3, 4]
    for number in (3, 4):
        np.testing.assert_equal(tartan.open(path, number).matrix(), matrices[number])
    for number in (1, 2):
        with pytest.raises(ConfigError, match=f"version {number} has expired; the oldest that is kept is 3"):
            tartan.open(path, number)
    with pytest.raises(StoreError, match=r"version 1 of .* has expired while it was read"):
        old.matrix()
    np.testing.assert_equal(newest.matrix(), matrices[4])


def test_whole_chunks_are_freed(tmp_path: Path) -> None:
    path = make(tmp_path, None)
    tartan.remove(path, [name(item) for item in range(8, 16)])
    matrix = tartan.open(path).matrix()
    assert tartan.expire(path) >= 3 * 8 * 8 * 8
    left = sorted(str(chunk.relative_to(path / "scores.zarr" / "c")) for chunk in (path / "scores.zarr").rglob("c/*/*"))
    assert left == ["0/0", "0/2", "2/2"]
    np.testing.assert_equal(tartan.open(path).matrix(), matrix)
    assert tartan.expire(path) == 0


class Killed(BaseException):
    """Stands for kill -9: nothing that is open is put in order."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Let the process die at one of the moments at which a folder changes."""
    moments = itertools.count()

    def guarded(act: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if next(moments) == moment:
                raise Killed
            return act(*args, **options)

        return call

    for act in ("replace", "rename", "remove", "unlink"):
        monkeypatch.setattr(os, act, guarded(getattr(os, act)))


def described(path: Path) -> tuple[Any, ...]:
    run = tartan.open(path)
    return run.version, tuple(run.keys), run.matrix().tobytes(), tuple(v.number for v in run.versions)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("act", ["remove", "rename", "expire", "now"])
def test_a_kill_leaves_the_version_before_or_after(
    act: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    start = make(tmp_path, None)
    tartan.remove(start, [name(GONE[-1])])
    acts: dict[str, Any] = {
        "remove": lambda path: tartan.remove(path, [name(item) for item in GONE[:-1]]),
        "rename": lambda path: tartan.rename(path, name(0), "other"),
        "expire": tartan.expire,
        "now": lambda path: tartan.expire(path, now=True),
    }
    if act in ("expire", "now"):
        tartan.remove(start, [name(item) for item in GONE[:-1]])
    before = described(start)
    shutil.copytree(start, tmp_path / "after")
    acts[act](tmp_path / "after")
    after = described(tmp_path / "after")
    assert after != before
    seen = set()
    for moment in range(0, 200, step):
        path = tmp_path / "killed"
        shutil.copytree(start, path)
        with monkeypatch.context() as patched:
            kill_at(patched, moment)
            try:
                acts[act](path)
                done = True
            except Killed:
                done = False
        found = described(path)
        assert found in (before, after)
        seen.add(found == after)
        tartan.expire(path, 1000)  # the next writer, who has nothing to do of its own
        assert described(path) == found
        if act == "now" and found == after:
            assert b"SECRET" not in bytes_of(path)
        if not done:  # the same again goes on
            with_luck = acts[act] if found == before else tartan.open
            with_luck(path)
            assert described(path) == after
        shutil.rmtree(path)
        if done:
            break
    assert done
    assert seen == {True, False}
    assert moment > 2


def test_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, None)
    before = described(path)

    def full(*_: Any) -> Any:
        raise DiskFullError("no space left")

    monkeypatch.setattr(FileWriter, "replace", full)
    with pytest.raises(DiskFullError):
        tartan.remove(path, [name(0)])
    monkeypatch.undo()
    assert described(path) == before
    assert tartan.remove(path, [name(0)]).version == 2


def test_expiry_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path, None)
    for options in ({"keep": 0}, {"keep": 2, "now": True}):
        with pytest.raises(ConfigError, match="versions are kept"):
            tartan.expire(path, **options)
    assert tartan.expire(path) == tartan.expire(path, now=True) == 0
    assert tartan.open(path).version == 1
    assert not (path / "versions.jsonl").exists()
