"""Linkage whose rows lie on disk: equal to SciPy's, resumed however it ended, and what is refused."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

import tartan
from tartan.analytics import Monitor, as_dissimilarities, cluster, clusters_at, linkage
from tartan.analytics.trees import joined_rows, note_on_ward
from tartan.analytics.trees.workplace import LOG_START, Workplace
from tartan.base import machine
from tartan.errors import ConfigError, DiskFullError, RunCancelledError, StoreError

METHODS = ("average", "complete", "weighted", "ward")
#: Less than any rows take.
LITTLE = 1


def distances(n: int = 60, seed: int = 0) -> np.ndarray:
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))


def link_like_scipy(D: np.ndarray, method: str = "average") -> np.ndarray:
    return hierarchy.linkage(squareform(D.astype(np.float64), checks=False), method)


def many_ties(n: int) -> np.ndarray:
    """Return distances of which nine of ten are 0.5."""
    rng = np.random.default_rng(1)
    pairs = pdist(rng.normal(size=(n, 4))).astype(np.float32)
    pairs[rng.random(len(pairs)) < 0.9] = 0.5
    return squareform(pairs)


def whole_numbers(n: int) -> np.ndarray:
    """Return int16 distances with few values."""
    D = distances(n)
    return np.rint(D / D.max() * 200).astype(np.int16)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [LITTLE, None])
@pytest.mark.parametrize("method", [*METHODS, "single"])
@pytest.mark.parametrize("make", [many_ties, whole_numbers])
def test_ties_are_those_of_scipy(make: Callable[[int], np.ndarray], method: str, memory: int | None) -> None:
    D = make(3000)
    found = linkage(D, method, memory=memory, maximum=32767)
    expected = link_like_scipy(D.astype(float) * (32767 / 32767), method)
    if method != "single":
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(hierarchy.cophenet(found), hierarchy.cophenet(expected))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["float64", "float32", "int16", ">i2", "condensed", "columns", "file"])
def test_all_forms_of_a_matrix(form: str, method: str, tmp_path: Path) -> None:
    D = distances(50) / 10
    dtype = form if form in ("float64", "float32", "int16", ">i2") else "float64"
    stored = np.rint(D * 32767).astype(dtype) if "i" in dtype else D.astype(dtype)
    np.save(tmp_path / "D.npy", stored)
    given: Any = {"condensed": squareform(D), "columns": np.asfortranarray(D), "file": tmp_path / "D.npy"}
    expected = link_like_scipy(stored * (1 / 32767) if "i" in dtype else stored.astype(float), method)
    for memory in (LITTLE, None):
        np.testing.assert_array_equal(linkage(given.get(form, stored), method, memory=memory), expected)


def test_directions_that_differ_by_rounding_count_as_above_the_diagonal() -> None:
    D = distances()
    noisy = D * (1 + 1e-7 * np.tril(np.random.default_rng(0).random(D.shape)))
    for memory in (LITTLE, None):
        np.testing.assert_array_equal(linkage(noisy, memory=memory), link_like_scipy(D))


def test_a_file_is_read_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "D.npy", distances())
    monkeypatch.setattr(Workplace, "write_rows", None)
    np.testing.assert_array_equal(linkage(tmp_path / "D.npy", memory=LITTLE), link_like_scipy(distances()))


ITEMS = np.random.default_rng(5).random((40, 1))


def compare(a: np.ndarray, b: np.ndarray) -> float:
    return float(abs(a[0] - b[0]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tartan.allpairs(compare, ITEMS, out=tmp_path_factory.mktemp("run") / "run", workers=1, quiet=True).path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Any:
    return tartan.open(shutil.copytree(finished, tmp_path / "run"))


def of_run(run: Any) -> np.ndarray:
    return squareform(run.condensed().astype(np.float64))


def keep_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what a linkage has on disk, as a kill would."""
    monkeypatch.setattr(Workplace, "finish", lambda place: None)


@pytest.mark.slow
def test_a_run_keeps_its_rows_in_its_folder_until_the_end(run: Any) -> None:
    seen: list[list[str]] = []

    class Looking(Monitor):
        def report(self, phase: str, **numbers: object) -> None:
            if "joined" in numbers:
                seen.append(sorted(path.name for path in (run.path / "linkage").iterdir()))

    expected = link_like_scipy(of_run(run))
    np.testing.assert_array_equal(linkage(run, memory=LITTLE, monitor=Looking()), expected)
    assert seen[0] == ["joined.bin", "joins.log", "rows.bin", "run.lock"]
    assert not (run.path / "linkage").exists()
    labels = clusters_at(run, 0.1, "average", memory=LITTLE)
    np.testing.assert_array_equal(labels, cluster(run, method="average", threshold=0.1).labels)
    np.testing.assert_array_equal(labels, cluster(run, method="average", threshold=0.1, memory=LITTLE).labels)
    assert len(np.unique(labels)) == len(np.unique(hierarchy.fcluster(expected, 0.1, "distance")))


def test_it_says_beforehand_what_it_takes(run: Any) -> None:
    stream = io.StringIO()
    linkage(run, memory=LITTLE, monitor=Monitor(2, stream=stream))
    said = stream.getvalue()
    assert f"rows on disk in {run.path}/linkage  disk up to" in said
    assert "about" in said
    assert said.index("disk up to") < said.index("joined 0")


def test_it_goes_on_after_a_cancel(run: Any) -> None:
    monitor = Monitor()

    class Stopping(Monitor):
        def report(self, phase: str, **numbers: object) -> None:
            if "joined" in numbers:
                self.cancel()

    with pytest.raises(RunCancelledError):
        linkage(run, memory=LITTLE, monitor=Stopping())
    assert (run.path / "linkage" / "joins.log").exists()
    np.testing.assert_array_equal(linkage(run, memory=LITTLE, monitor=monitor), link_like_scipy(of_run(run)))


@pytest.mark.parametrize("left", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("rows", ["whole", "lost", "cut"])
def test_a_log_that_was_cut_off_is_gone_on_with(
    left: float, rows: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = link_like_scipy(of_run(run))
    with monkeypatch.context() as patch:
        keep_folder(patch)
        linkage(run, memory=LITTLE)
    folder = run.path / "linkage"
    length = (folder / "joins.log").stat().st_size
    os.truncate(folder / "joins.log", LOG_START + int(left * (length - LOG_START)))
    if rows != "whole":
        os.truncate(folder / "joined.bin", 0 if rows == "lost" else (folder / "joined.bin").stat().st_size // 2)
    monkeypatch.setattr(Workplace, "write_rows", None)  # they are there
    np.testing.assert_array_equal(linkage(run, memory=LITTLE), expected)


KILLED = """
import os, signal, sys
import numpy as np
from tartan.analytics import Monitor, linkage

class Killing(Monitor):
    def report(self, phase, **numbers):
        if numbers.get("joined"):
            os.kill(os.getpid(), signal.SIGKILL)

linkage(sys.argv[1], memory=1, monitor=Killing(0, sys.argv[2]))
"""


@pytest.mark.slow
def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    n = 5000
    D = squareform(pdist(np.random.default_rng(2).normal(size=(n, 3)).astype(np.float32))).astype(np.float32)
    np.save(tmp_path / "D.npy", D)
    words = [sys.executable, "-c", KILLED, str(tmp_path / "D.npy"), str(tmp_path / "rows")]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    first: list[int] = []

    class Looking(Monitor):
        def report(self, phase: str, **numbers: Any) -> None:
            if "joined" in numbers:
                first.append(numbers["joined"])

    found = linkage(tmp_path / "D.npy", memory=LITTLE, monitor=Looking(0, tmp_path / "rows"))
    assert first[0] > 0
    np.testing.assert_array_equal(found, link_like_scipy(D))
    assert not (tmp_path / "rows").exists()


def leave_log(D: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, method: str = "average") -> None:
    with monkeypatch.context() as patch:
        keep_folder(patch)
        linkage(D, method, memory=LITTLE, monitor=Monitor(0, folder))


def test_the_log_of_another_linkage_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rows"
    leave_log(distances(), folder, monkeypatch)
    way_out = rf"remove the folder to begin anew \(rm -r {folder}\)"
    for given, method, problem in [
        (distances(seed=1), "average", "its matrix had other values"),
        (distances(59), "average", "it is of 60 items, not of 59"),
        (distances(), "ward", "it is of average linkage, not of ward"),
    ]:
        with pytest.raises(StoreError, match=f"joins.log is the log of another linkage: {problem}; {way_out}"):
            linkage(given, method, memory=LITTLE, monitor=Monitor(0, folder))


def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rows"
    leave_log(distances(), folder, monkeypatch)
    log = (folder / "joins.log").read_bytes()
    joins = [log[at : at + 20] for at in range(LOG_START, len(log), 20)]
    for damaged, problem in [
        (b"x" + log[1:], "its first line is not a description of a linkage"),
        (log[:20], "its first line is not a description of a linkage"),
        (log[:LOG_START] + joins[-1] + joins[-1], "records that no linkage of this matrix makes"),
        (log.replace(b'"format": 1', b'"format": 9'), "of another version of Tartan"),
    ]:
        (folder / "joins.log").write_bytes(damaged)
        with pytest.raises(StoreError, match=f"{problem}.*; .*remove the folder"):
            linkage(distances(), memory=LITTLE, monitor=Monitor(0, folder))


def test_two_processes_at_once_are_refused(run: Any) -> None:
    with Workplace(run.path / "linkage"), pytest.raises(StoreError, match=f"process {os.getpid()}.*; wait") as found:
        linkage(run, memory=LITTLE)
    assert found.value.code == "locked"
    np.testing.assert_array_equal(linkage(run, memory=LITTLE), link_like_scipy(of_run(run)))


def test_a_disk_that_fills_is_a_stop(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(machine, "disk_space", lambda path: (10, 10))
        with pytest.raises(DiskFullError, match=r"10 B are free in .*linkage; free some space, .*`--memory`"):
            linkage(run, memory=LITTLE)
    with monkeypatch.context() as patch:
        full = os.open("/dev/full", os.O_RDWR)
        patch.setattr(Workplace, "joined", lambda place: full)
        with pytest.raises(DiskFullError, match=r"no space left .*linkage; free some space and run the same command"):
            linkage(run, memory=LITTLE)
        os.close(full)
    assert (run.path / "linkage" / "joins.log").stat().st_size > LOG_START
    np.testing.assert_array_equal(linkage(run, memory=LITTLE), link_like_scipy(of_run(run)))


@pytest.mark.slow
@pytest.mark.parametrize("memory", [LITTLE, None])
def test_a_run_that_grows_meanwhile_is_refused(memory: int | None, run: Any) -> None:
    class Adding(Monitor):
        def report(self, phase: str, **numbers: object) -> None:
            if numbers.get("joined") == 0:
                tartan.add(run.path, ITEMS[:2] / 2, app=compare, previous=ITEMS, workers=1, quiet=True)

    with pytest.raises(StoreError, match=r"was changed while it was clustered.*cluster it again"):
        linkage(run, memory=memory, monitor=Adding())
    grown = tartan.open(run.path)
    assert len(linkage(grown, memory=memory)) == 41


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "D.npy"
    np.save(path, distances())

    def changing(value: float) -> Monitor:
        class Changing(Monitor):
            def report(self, phase: str, **numbers: object) -> None:
                if numbers.get("joined") == 0:
                    np.lib.format.open_memmap(path, "r+")[:] = value

        return Changing()

    with pytest.raises(StoreError, match=r"changed while it was clustered: 0 has a pair without a distance now"):
        linkage(path, memory=LITTLE, monitor=changing(np.nan))
    np.save(path, distances())
    with pytest.raises(StoreError, match=r"changed while it was clustered"):
        linkage(path, memory=LITTLE, monitor=changing(3.0))


def test_scores_that_are_no_numbers_are_refused() -> None:
    D = distances()
    D[3, 7] = D[7, 3] = np.nan
    with pytest.raises(ConfigError, match=r"NaN|missing"):
        linkage(D, memory=LITTLE)
    with pytest.raises(ConfigError, match="1 pairs are missing, and ward linkage needs all of them; use"):
        linkage(D, "ward", memory=LITTLE, missing="nan")


@pytest.mark.parametrize("memory", ["much", "4items", -1])
def test_a_memory_that_is_no_size_is_refused(memory: Any) -> None:
    with pytest.raises(ConfigError, match="memory"):
        linkage(distances(), memory=memory)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*nowhere/rows"):
        linkage(distances(), memory=LITTLE, monitor=Monitor(0, tmp_path / "nowhere" / "rows"))


def test_distances_that_are_not_euclidean_are_said() -> None:
    assert note_on_ward(as_dissimilarities(distances(400))) is None
    assert note_on_ward(as_dissimilarities(np.rint(distances(300) * 3000).astype(np.int16))) is None
    assert note_on_ward(as_dissimilarities(np.zeros((5, 5)))) is None
    paths = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    around = np.minimum(paths, 12 - paths).astype(float)  # of a circle
    note = note_on_ward(as_dissimilarities(around))
    assert note is not None
    assert note.startswith("the distances are not Euclidean, as Ward's method wants them (of 12 items")
    for options in ({"n_clusters": 3}, {"threshold": 2.0}):
        assert note in cluster(around, method="ward", **options).notes
    assert note not in cluster(around, method="average", threshold=2.0).notes
    np.testing.assert_array_equal(linkage(around, "ward"), link_like_scipy(around, "ward"))


def test_the_native_module_is_called_with_a_level() -> None:
    D = as_dissimilarities(distances())
    D.check()
    found = joined_rows.join_rows(D, "complete", Monitor(), level=0.5)
    expected = link_like_scipy(np.maximum(distances() - 0.5, 0.0), "complete")
    np.testing.assert_array_equal(found, expected)
