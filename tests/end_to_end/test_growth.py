"""Runs that grow and go on: new items, the disk level, inputs that have changed meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from applications import Distances, Logged, compared_pairs, parsed_keys
from whole_program import APPLICATIONS, Command, Numbers

import tartan
from tartan.application import Application
from tartan.errors import ConfigError, StoreError
from tartan.run.reopen import open_inputs


def distances(n: int) -> np.ndarray:
    values = np.arange(n, dtype=np.float64)
    return np.abs(values[:, None] - values)


def chunk_files(run: Path) -> dict[str, tuple[int, bytes]]:
    """Return the files of the scores: when they were written, and what they hold."""
    files = [path for path in (run / "scores.zarr" / "c").rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.slow
def test_no_old_pair_is_computed_again(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """Items are added three times; old chunks that are whole stay as they are on the disk."""
    log, run = tmp_path / "log", tmp_path / "run"
    words = ("run", f"{APPLICATIONS}:Logged", numbers(10), "-o", run, "--set", f"log={log}", "--tile", 4)
    assert command(*words, "--host-cache", "5items").status == 0
    # Some pairs are tried both ways before.
    assert set(compared_pairs(log)) == {(i, j) for i in range(10) for j in range(i + 1, 10)}
    assert tartan.open(run).stats["pairs_computed"] == 45
    whole = {name: file for name, file in chunk_files(run).items() if name[-3:] in ("0/0", "0/1", "1/1")}
    for first, count in ((10, 5), (15, 1), (16, 6)):
        log.unlink()
        assert command("add", run, numbers(count, f"items{first}", first), "--host-cache", "5items").status == 0
        new = [(i, j) for i in range(first + count) for j in range(max(i + 1, first), first + count)]
        assert sorted(compared_pairs(log)) == new
    grown = tartan.open(run)
    np.testing.assert_array_equal(grown.matrix(diagonal=0.0), distances(22))
    assert grown.manifest.generations == [10, 15, 16, 22]
    assert whole.items() <= chunk_files(run).items()


def test_what_a_grown_run_says(numbers: Numbers, tmp_path: Path) -> None:
    app, run = Distances(), tmp_path / "run"
    old, new = numbers(6), numbers(3, "new", 6)
    tartan.allpairs(app, old, run)
    with pytest.raises(ConfigError, match=r"000\.txt' is already an item of this run"):
        tartan.add(run, old / "000.txt", app=app)
    tartan.add(run, new, app=app)
    with pytest.raises(
        StoreError, match="the run has 9, now there are 6; it has grown by `tartan add`: use `tartan resume`"
    ):
        tartan.allpairs(app, old, run)
    assert tartan.resume(run).n_pairs_done == 36
    assert list(tartan.open(run).keys)[5:7] == ["005.txt", "006.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("n_first", [2, 4, 8, 9])
def test_a_grown_run_is_like_one_from_scratch(n_first: int, tmp_path: Path) -> None:
    """Old scores keep every bit; in exact arithmetic the whole matrix is that of one run."""

    class Products(tartan.Application):
        releases_gil = True

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return left @ right.T

    rows = np.random.default_rng(5).standard_normal((13, 40), np.float32)
    options: dict[str, Any] = {"tile": 4, "host_cache": "5items"}
    before = tartan.allpairs(Products(), rows[:n_first], tmp_path / "run", **options).matrix()
    grown = tartan.add(tmp_path / "run", rows[n_first:], app=Products(), previous=rows[:n_first]).matrix()
    np.testing.assert_array_equal(grown[:n_first, :n_first], before)
    scratch = tartan.allpairs(Products(), rows, **options).matrix()
    np.testing.assert_allclose(grown, scratch, rtol=1e-5, atol=1e-5)

    whole = np.rint(rows * 8)
    tartan.allpairs(Products(), whole[:n_first], tmp_path / "whole", **options)
    grown = tartan.add(tmp_path / "whole", whole[n_first:], app=Products(), previous=whole[:n_first]).matrix()
    np.testing.assert_array_equal(grown, tartan.allpairs(Products(), whole, **options).matrix())


@pytest.mark.slow
def test_the_disk_level_outlives_a_run(numbers: Numbers, tmp_path: Path) -> None:
    log, run = tmp_path / "log", tmp_path / "run"
    app = Logged(str(log))
    first = tartan.allpairs(app, numbers(12), run, host_cache="4items", disk_cache="1MB")
    assert first.stats["parses"] == 12
    assert first.stats["disk_hits"] == first.stats["loads"] - 12
    log.unlink()
    second = tartan.add(run, numbers(2, "new", 12), app=app, host_cache="4items", disk_cache="1MB")
    assert second.stats["parses"] == 14
    assert second.stats["disk_hits"] == second.stats["loads"] - 14
    assert set(parsed_keys(log)) <= {"000.txt", "012.txt", "013.txt"}  # the first one shows what items are like
    np.testing.assert_array_equal(second.matrix(diagonal=0.0), distances(14))


@pytest.mark.slow
def test_damage_in_the_disk_level_costs_a_load(numbers: Numbers, tmp_path: Path) -> None:
    run, folder = tmp_path / "run", numbers(8)
    tartan.allpairs(Distances(), folder, run, host_cache="3items", disk_cache="1MB")
    entries = [path for path in (run / "cache").rglob("*") if path.is_file()]
    for number, path in enumerate(entries):
        path.write_bytes((b"", b"garbage" * 100, path.read_bytes()[:-3])[number % 3])
    grown = tartan.add(run, numbers(2, "new", 8), app=Distances(), host_cache="3items", disk_cache="1MB")
    assert not grown.failures
    np.testing.assert_array_equal(grown.matrix(diagonal=0.0), distances(10))


@pytest.mark.slow
@pytest.mark.parametrize("reduced", [(), ("--top-k", 2)])
def test_damage_in_a_finished_run_is_mended_by_resume(
    command: Command, numbers: Numbers, tmp_path: Path, reduced: tuple[Any, ...]
) -> None:
    log, run = tmp_path / "log", tmp_path / "run"
    words = ("run", f"{APPLICATIONS}:Logged", numbers(10), "-o", run, "--set", f"log={log}", "--tile", 4, *reduced)
    assert command(*words).status == 0
    before = tartan.open(run).pairs().read_all()
    log.unlink()
    assert "nothing to do" in command("resume", run).err
    (run / ("parts/0-2.parquet" if reduced else "scores.zarr/c/0/2")).write_bytes(b"garbage")
    refused = command("export", run, tmp_path / "pairs.parquet")
    assert (refused.status, "`tartan resume` computes this chunk again" in refused.err) == (1, True)
    mended = command("resume", run)
    assert (mended.status, "nothing to do" in mended.err) == (0, False)
    assert sorted(compared_pairs(log)) == [(i, j) for i in range(4) for j in (8, 9)]
    assert tartan.open(run).pairs().read_all() == before


@pytest.mark.slow
def test_damage_in_a_run_of_objects_is_mended_where_they_are(tmp_path: Path) -> None:
    def gap(a: float, b: float) -> float:
        return abs(a - b)

    numbers, run = [0.0, 1.0, 5.0, 7.0], tmp_path / "run"
    before = tartan.allpairs(gap, numbers, run).matrix()
    (run / "scores.zarr/c/0/0").unlink()
    with pytest.raises(ConfigError, match=r"call tartan\.allpairs there again"):
        tartan.resume(run)
    np.testing.assert_array_equal(tartan.allpairs(gap, numbers, run).matrix(), before)


@pytest.mark.slow
def test_new_files_may_lie_beside_the_old_ones(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """Folders of input grow: a run knows its items, whatever else its patterns find now."""
    log, run, folder = tmp_path / "log", tmp_path / "run", numbers(6)
    words = ("-o", run, "--set", f"log={log}", "--tile", 2)
    assert command("run", f"{APPLICATIONS}:Logged", folder, *words).status == 0
    (folder / "0000.txt").write_text("6")  # before the others by name
    (folder / "more").mkdir()
    (folder / "more" / "003.txt").write_text("7")
    assert command("add", run, folder / "0000.txt").status == 0
    assert command("add", run, folder / "more").status == 0
    (run / "status.zarr/c/0/0").unlink()
    log.unlink()
    assert command("resume", run).status == 0
    assert compared_pairs(log) == [(0, 1)]
    grown = tartan.open(run)
    assert list(grown.keys) == [*(f"00{i}.txt" for i in range(6)), "0000.txt", str(folder / "more" / "003.txt")]
    np.testing.assert_array_equal(grown.matrix(diagonal=0.0), distances(8))
    (folder / "002.txt").unlink()
    refused = command("add", run, numbers(1, "other", 8))
    assert (refused.status, "items that are gone: 002.txt" in refused.err) == (2, True)


def test_moved_items_are_found_where_they_are_said_to_be(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """Months later files lie on another disk, beside others."""
    log, run, folder = tmp_path / "log", tmp_path / "run", numbers(4)
    words = ("-o", run, "--set", f"log={log}", "--tile", 2)
    assert command("run", f"{APPLICATIONS}:Logged", folder, *words).status == 0
    moved, new = folder.rename(tmp_path / "moved"), numbers(2, "new", 6)
    (moved / "0000.txt").write_text("9")
    refused = command("add", run, new / "000.txt")
    assert refused.status == 2
    assert "its inputs are not where they were: " in refused.err
    assert "bring them back, or say where they are now: `--inputs FOLDER`" in refused.err
    (new / "004.txt").write_text("4")
    assert command("add", run, new / "004.txt", "--inputs", moved).status == 0
    np.testing.assert_array_equal(tartan.open(run).matrix(diagonal=0.0), distances(5))
    moved, new = moved.rename(tmp_path / "again"), new.rename(tmp_path / "more")
    (run / "status.zarr/c/0/0").unlink()
    assert command("resume", run).status == 2
    assert command("resume", run, "--inputs", moved, new / "004.txt").status == 0
    np.testing.assert_array_equal(tartan.open(run).matrix(diagonal=0.0), distances(5))
    (run / "status.zarr/c/0/0").unlink()
    refused = command("resume", run, "--inputs", moved)
    assert (refused.status, "gone: 004.txt; bring them back, say where these are, too, also if" in refused.err) == (
        2,
        True,
    )
    (moved / "001.txt").unlink()
    refused = command("resume", run, "--inputs", moved, new / "004.txt")
    assert (refused.status, "items that are gone: 001.txt; bring them back, say where" in refused.err) == (2, True)
    (moved / "001.txt").write_text("17")
    refused = command("resume", run, "--inputs", moved, new / "004.txt")
    assert refused.status == 2
    assert "001.txt" in refused.err


def test_an_item_that_is_gone_is_named_on_its_own_side(numbers: Numbers, tmp_path: Path) -> None:
    """Both sides have a file of that name; the one that is left takes the shorter key."""
    left, right, run = numbers(3, "left"), numbers(3, "right", 5), tmp_path / "run"
    tartan.allpairs(Distances(), left, run, against=right)
    (left / "001.txt").unlink()
    with pytest.raises(StoreError, match=r"items that are gone: 001\.txt; bring them back"):
        open_inputs(run, tartan.open(run).manifest, tartan.open(run).folder.items, Application())


@pytest.mark.slow
def test_an_array_that_is_another_one_is_refused(command: Command, tmp_path: Path) -> None:
    """Old scores are not mixed with those of other rows."""
    first, more, run = tmp_path / "first.npy", tmp_path / "more.npy", tmp_path / "run"
    rng = np.random.default_rng(1)
    for path in (first, more):
        np.save(path, rng.random((6, 4)))
    assert command("run", "vectors", first, "-o", run, "--tile", 3).status == 0
    assert command("add", run, more).status == 0
    (run / "status.zarr/c/0/0").unlink()
    np.save(first, rng.random((6, 4)))
    os.utime(first, ns=(0, 1))
    new = tmp_path / "new.npy"
    np.save(new, rng.random((2, 4)))
    for words in (("resume", run), ("add", run, new)):
        refused = command(*words)
        assert (refused.status, "content of rows has changed: 0, 1, 2 and 3" in refused.err) == (2, True)


def test_changed_inputs_are_named(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    folder = numbers(5)
    words = ("run", f"{APPLICATIONS}:Distances", folder, "-o", tmp_path / "run")
    assert command(*words).status == 0
    assert "is finished already; nothing to do" in command(*words).err
    (folder / "002.txt").write_text("2222")
    changed = command(*words)
    assert changed.status == 2
    assert "size of items has changed: 002.txt" in changed.err
    assert command("resume", tmp_path / "run").status == 0  # it is finished: nothing is read
    (folder / "002.txt").unlink()
    gone = command(*words)
    assert gone.status == 2
    assert "number of items: the run has 5, now there are 4" in gone.err


def test_changed_contents_are_seen_when_asked_for(numbers: Numbers, tmp_path: Path) -> None:
    """Whatever the stamps say, --verify reads all bytes."""
    folder, app = numbers(5), Distances()
    tartan.allpairs(app, folder, tmp_path / "run", verify=True)
    status = (folder / "002.txt").stat()
    (folder / "002.txt").write_text("9")
    os.utime(folder / "002.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "002.txt").write_text("9")
    os.utime(folder / "002.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(StoreError, match=r"content of items has changed: 002\.txt"):
        tartan.allpairs(app, folder, tmp_path / "run", verify=True)


def test_other_options_are_another_run(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """What changes results is refused with status 2; what only changes how is not."""
    words = ("run", f"{APPLICATIONS}:Distances", numbers(5), "-o", tmp_path / "run")
    assert command(*words, "--tile", 3).status == 0
    assert command(*words, "--workers", 1, "--order", "quadrant", "--host-cache", "3items").status == 0
    for more in (("--tile", 2), ("--top-k", 2), ("--against", numbers(2, "others"))):
        refused = command(*words, *more)
        assert refused.status == 2
        assert "holds another run" in refused.err


class ChangesItsInput(Distances):
    """Somebody writes to an input while the run goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.path.write_text("1000")
        return super().compare(left, right, xp)


def test_an_input_that_changes_meanwhile_fails_when_it_is_read_again(numbers: Numbers, tmp_path: Path) -> None:
    """No matrix holds scores of two versions of a file without saying so."""
    folder = numbers(12)
    run = tartan.allpairs(ChangesItsInput(folder / "011.txt"), folder, tmp_path / "run", host_cache="3items", workers=1)
    assert [(f.i, f.j, f.stage) for f in run.failures] == [(11, None, "read")]
    assert "the file has changed since the run began" in run.failures[0].reason
    scores = run.matrix(diagonal=0.0)
    right = np.isnan(scores) | (scores == distances(12))
    assert right.all()
    with pytest.raises(StoreError, match=r"size of items has changed: 011\.txt"):
        tartan.allpairs(ChangesItsInput(folder / "011.txt"), folder, tmp_path / "run")
