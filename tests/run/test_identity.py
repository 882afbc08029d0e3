"""A run folder takes the items that it has scores of, whatever their stamps say, and no others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors.app import Vectors
from tartan.base.checksum import checksums_of_rows
from tartan.base.lock import FolderLock
from tartan.errors import ConfigError, RunFailedError, StoreError
from tartan.store.checksums import FILE_NAME

APP = Vectors(metric="euclidean")
Make = Callable[[Path, np.ndarray], Any]


def rows(seed: int = 0, n: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 5)).astype("f4")


def distances(values: np.ndarray) -> np.ndarray:
    return np.sqrt(((values[:, None].astype("f8") - values) ** 2).sum(axis=2))


class Differences(tartan.Application):
    """|a - b| of numbers in any form."""

    releases_gil = True
    diagonal = False

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array([float(data["x"] if isinstance(data, dict) else data)])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return abs(left - right.T)


def in_memory(_: Path, values: np.ndarray) -> Any:
    return values


def as_npy(folder: Path, values: np.ndarray) -> Any:
    np.save(folder / "a.npy", values)
    return str(folder / "a.npy")


def as_memmap(folder: Path, values: np.ndarray) -> Any:
    return np.load(as_npy(folder, values), mmap_mode="r")


def as_zarr(folder: Path, values: np.ndarray) -> Any:
    import zarr

    shutil.rmtree(folder / "a.zarr", ignore_errors=True)
    array = zarr.create_array(folder / "a.zarr", shape=values.shape, chunks=(4, 5), dtype=values.dtype)
    array[:] = values
    return str(folder / "a.zarr")


ARRAYS = [in_memory, as_npy, as_memmap, as_zarr]


@pytest.mark.parametrize("make", ARRAYS)
def test_a_finished_run_is_no_run_of_another_array(tmp_path: Path, make: Make) -> None:
    run = tmp_path / "run"
    tartan.allpairs(APP, make(tmp_path, rows(0)), run, workers=1)
    assert tartan.allpairs(APP, make(tmp_path, rows(0)), run, workers=1).finished  # written anew: the same bytes
    other = rows(0)
    other[7, 2] += 1
    with pytest.raises(StoreError, match="content of rows has changed: 7\n"):
        tartan.allpairs(APP, make(tmp_path, other), run, workers=1)
    with pytest.raises(StoreError, match="content of rows has changed: 0, 1, 2 and 9 more"):
        tartan.allpairs(APP, make(tmp_path, rows(1)), run, workers=1)


@pytest.mark.parametrize("make", ARRAYS)
def test_the_rest_of_a_run_is_not_computed_from_another_array(tmp_path: Path, make: Make) -> None:
    run = tmp_path / "run"
    tartan.allpairs(APP, make(tmp_path, rows(0)), run, part="1/2", tile=3, workers=1)
    with pytest.raises(StoreError, match="content of rows has changed"):
        tartan.allpairs(APP, make(tmp_path, rows(1)), run, tile=3, workers=1)
    with pytest.raises(StoreError, match="content of rows has changed"):
        tartan.allpairs(APP, make(tmp_path, rows(1)), run, part="2/2", tile=3, workers=1)
    done = tartan.allpairs(APP, make(tmp_path, rows(0)), run, tile=3, workers=1)
    np.testing.assert_allclose(done.matrix(diagonal=0.0), distances(rows(0)), atol=1e-5)
    np.testing.assert_array_equal(done.folder.checksums, checksums_of_rows(rows(0)))


@pytest.mark.parametrize("make", ARRAYS)
def test_rows_are_added_to_those_of_the_run_alone(tmp_path: Path, make: Make) -> None:
    run, new = tmp_path / "run", rows(3, 2)
    tartan.allpairs(APP, make(tmp_path, rows(0)), run, workers=1)
    with pytest.raises(StoreError, match="content of rows has changed"):
        tartan.add(run, new, previous=make(tmp_path, rows(1)), workers=1)
    grown = tartan.add(run, new, previous=make(tmp_path, rows(0)), workers=1)
    np.testing.assert_allclose(grown.matrix(diagonal=0.0), distances(np.concatenate([rows(0), new])), atol=1e-5)
    with pytest.raises(StoreError, match="content of rows has changed: 12, 13\n"):
        tartan.add(run, rows(4, 1), previous=np.concatenate([rows(0), new + 1]), workers=1)


@pytest.mark.parametrize(
    ("before", "same", "other"),
    [
        ([1.0, 2.0, 5.0], [1.0, 2.0, 5.0], [1.0, 2.5, 5.0]),
        ([{"x": 1, "s": {"a", "b"}}, {"x": 2}, {"x": 3}], [{"x": 1, "s": {"b", "a"}}, {"x": 2}, {"x": 3}],
         [{"x": 1, "s": {"a", "b"}}, {"x": 4}, {"x": 3}]),
        ({"a": "1", "b": "2", "c": "4"}, {"a": "1", "b": "".join("2"), "c": "4"}, {"a": "1", "b": "3", "c": "4"}),
    ],
)  # fmt: skip
def test_lists_of_objects_are_told_by_their_pickles(tmp_path: Path, before: Any, same: Any, other: Any) -> None:
    run, key = tmp_path / "run", "b" if isinstance(before, dict) else "1"
    tartan.allpairs(Differences(), before, run, workers=1)
    assert tartan.allpairs(Differences(), same, run, workers=1).finished
    for verify in (False, True):
        with pytest.raises(StoreError, match=f"content of items has changed: {key}\n"):
            tartan.allpairs(Differences(), other, run, workers=1, verify=verify)


def test_objects_that_cannot_be_pickled_are_not_told_apart(tmp_path: Path) -> None:
    """Nothing describes them wholly; docs/resume.md says so."""

    class Number(float):
        pass

    run = tmp_path / "run"
    for first in (1, 2):
        assert tartan.allpairs(Differences(), [Number(first), Number(3)], run, workers=1).finished


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "items"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(str(number))
    return folder


def written_over(path: Path, text: str) -> None:
    """Write other bytes of the same length, and set the time of change back."""
    status = path.stat()
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_files_written_over_with_their_time_set_back_are_refused(tmp_path: Path, files: Path) -> None:
    run = tmp_path / "run"
    tartan.allpairs(Differences(), files, run, workers=1)
    written_over(files / "3.txt", "9")
    with pytest.raises(StoreError, match=r"content of items has changed: 3\.txt"):
        tartan.allpairs(Differences(), files, run, workers=1)


@pytest.mark.parametrize("big", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_one_value_of_a_large_array_with_its_time_set_back(tmp_path: Path, big: bool) -> None:
    """The last value of 4 GB of zeros that take no disk."""
    path, run = tmp_path / "a.npy", tmp_path / "run"
    shape = (40, 25_000_000) if big else (40, 250)
    np.lib.format.open_memmap(path, "w+", np.float32, shape).flush()
    if big:
        assert path.stat().st_blocks < 1000
    how = {"pairs": [(0, 39), (38, 39)], "workers": 1, "tile": 40}
    tartan.allpairs(Differences2(), str(path), run, **how)
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(1).tobytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    with pytest.raises(StoreError, match="content of rows has changed: 39\n"):
        tartan.allpairs(Differences2(), str(path), run, **how)


class Differences2(tartan.Application):
    """Of the last values of rows."""

    releases_gil = True

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array(data[-1:])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return abs(left - right.T)


def test_touched_moved_and_copied_files_are_the_same_ones(tmp_path: Path, files: Path) -> None:
    run = tmp_path / "run"
    tartan.allpairs(Differences(), files, run, workers=1)
    for path in files.iterdir():
        os.utime(path, ns=(5, 5))
    assert tartan.allpairs(Differences(), files, run, workers=1).finished
    shutil.copytree(files, tmp_path / "copied")
    shutil.rmtree(files)
    assert tartan.allpairs(Differences(), tmp_path / "copied", run, workers=1).finished
    (tmp_path / "copied").rename(files)
    (tmp_path / "new.txt").write_text("77")
    grown = tartan.add(run, tmp_path / "new.txt", app=Differences(), workers=1)
    assert grown.matrix()[6, :2].tolist() == [77, 76]


def test_an_item_of_a_folder_without_checksums_is_told_by_its_time(tmp_path: Path, files: Path) -> None:
    run = tmp_path / "run"
    tartan.allpairs(Differences(), files, run, workers=1)
    (run / FILE_NAME).unlink()
    assert tartan.allpairs(Differences(), files, run, workers=1).finished
    os.utime(files / "2.txt", ns=(5, 5))
    with pytest.raises(StoreError, match=r"time of change of items has changed: 2\.txt"):
        tartan.allpairs(Differences(), files, run, workers=1)


def test_arrays_of_a_folder_without_checksums_are_taken_with_a_warning(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tartan.allpairs(APP, rows(), run, workers=1)
    (run / FILE_NAME).unlink()
    with pytest.warns(RuntimeWarning, match="kept no checksums: whether its items are those that are given now"):
        tartan.allpairs(APP, rows(1), run, workers=1)


def test_damaged_records_count_as_absent(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tartan.allpairs(APP, rows(), run, workers=1)
    log = run / FILE_NAME
    data = bytearray(log.read_bytes())
    data[8] ^= 1  # the sum of row 0
    log.write_bytes(data[:-1])
    known = tartan.open(run).folder.checksums
    assert np.flatnonzero(known == 0).tolist() == [0, 11]
    np.testing.assert_array_equal(known[1:11], checksums_of_rows(rows())[1:11])


@pytest.mark.parametrize("make", [as_npy, as_zarr])
def test_a_cache_of_two_runs_mixes_no_arrays(tmp_path: Path, make: Make) -> None:
    for seed in (0, 1):
        given = make(tmp_path, rows(seed))
        run = tartan.allpairs(APP, given, tmp_path / f"run{seed}", cache_at=tmp_path / "cache", workers=1)
        np.testing.assert_allclose(run.matrix(diagonal=0.0), distances(rows(seed)), atol=1e-5)


def test_a_cache_of_two_runs_mixes_no_objects(tmp_path: Path) -> None:
    for items in ([1.0, 2.0, 4.0], [1.0, 5.0, 9.0]):
        run = tartan.allpairs(Differences(), items, cache_at=tmp_path / "cache", workers=1)
        assert run.condensed().tolist() == [abs(a - b) for i, a in enumerate(items) for b in items[i + 1 :]]


def test_mended_rows_are_taken_and_no_others(tmp_path: Path) -> None:
    """`resume --retry-failed` of rows of one array: only rows that failed may be others."""
    run, values = tmp_path / "run", rows(0)
    values[4] = np.nan
    tartan.allpairs(APP, as_npy(tmp_path, values), run, workers=1)
    mended = rows(0)
    as_npy(tmp_path, mended)
    with pytest.raises(StoreError, match="only items that failed: `tartan resume RUN --retry-failed`"):
        tartan.allpairs(APP, str(tmp_path / "a.npy"), run, workers=1)
    wrong = mended.copy()
    wrong[9, 0] += 1
    as_npy(tmp_path, wrong)
    with pytest.raises(StoreError, match="content of rows has changed: 9\n"):
        tartan.resume(run, retry_failed=True, workers=1)
    as_npy(tmp_path, mended)
    whole = tartan.resume(run, retry_failed=True, workers=1)
    np.testing.assert_allclose(whole.matrix(diagonal=0.0), distances(mended), atol=1e-5)
    assert whole.stats["pairs_computed"] == 66
    assert tartan.allpairs(APP, str(tmp_path / "a.npy"), run, workers=1).finished


def test_mended_rows_in_memory_are_taken(tmp_path: Path) -> None:
    run, values = tmp_path / "run", rows(0)
    values[4] = np.nan
    tartan.allpairs(APP, values, run, workers=1)
    whole = tartan.resume(run, retry_failed=True, app=APP, previous=rows(0), workers=1)
    np.testing.assert_allclose(whole.matrix(diagonal=0.0), distances(rows(0)), atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ranks_of_a_cluster_note_what_they_load(tmp_path: Path, files: Path) -> None:
    pytest.importorskip("distributed")
    run = tartan.allpairs(Differences(), files, tmp_path / "run", on="local:2", workers=1)
    assert (run.folder.checksums != 0).all()
    written_over(files / "3.txt", "9")
    with pytest.raises(StoreError, match=r"content of items has changed: 3\.txt"):
        tartan.allpairs(Differences(), files, tmp_path / "run", workers=1)


def _broken(a: float, b: float) -> float:
    raise ValueError("not yet")


def _mended(a: float, b: float) -> float:
    return abs(a - b)


@pytest.mark.slow
def test_a_folder_without_a_computed_pair_is_started_afresh(tmp_path: Path) -> None:
    run, items = tmp_path / "run", [1.0, 2.0, 4.0]
    with pytest.raises(RunFailedError):
        tartan.allpairs(_broken, items, run, workers=1, on_error="raise")
    assert "not yet" in tartan.open(run).stats["stopped"]
    with pytest.raises(ConfigError, match="holds another run"):
        tartan.allpairs(_mended, items, run, part="1/2", workers=1)  # others may be about to begin
    (run / "mine.txt").write_text("not part of a run")
    with pytest.raises(ConfigError, match="holds another run"):
        tartan.allpairs(_mended, items, run, workers=1)
    (run / "mine.txt").unlink()
    done = tartan.allpairs(_mended, items, run, workers=1)
    assert done.condensed().tolist() == [1, 3, 2]
    assert "stopped" not in done.stats


@pytest.mark.slow
def test_a_folder_that_another_process_holds_is_not_started_afresh(tmp_path: Path) -> None:
    run, items = tmp_path / "run", [1.0, 2.0, 4.0]
    with pytest.raises(RunFailedError):
        tartan.allpairs(_broken, items, run, workers=1, on_error="raise")
    with FolderLock(run), pytest.raises(StoreError) as caught:
        tartan.allpairs(_mended, items, run, workers=1)
    assert caught.value.code == "locked"
    assert (run / "manifest.json").exists()
