"""Creation, opening, committing, resuming, extending."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tartan.base.files import FileWriter
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.core.pairs.workload import Candidates
from tartan.errors import ConfigError, CorruptResultError, DiskFullError, InternalError, RunNotFoundError, StoreError
from tartan.result.run import Run
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.pairs import digest

from .kit import commit_chunk, commit_missing, describe, table, true_scores

ONE = {"scores": true_scores(10)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.tartan"


@pytest.fixture
def folder(path: Path) -> RunFolder:
    return RunFolder.create(path, describe(), table(10))


def chunk_file(path: Path, name: str, row: int, column: int) -> Path:
    return path / f"{name}.zarr" / "c" / str(row) / str(column)


def test_a_new_run_misses_all_pairs_and_a_finished_one_none(folder: RunFolder) -> None:
    missing = folder.missing()
    assert list(missing) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert sum(int(wanted.sum()) for wanted in missing.values()) == 45
    with folder.lock():
        commit_missing(folder, ONE)
    assert folder.missing() == {}
    assert folder.counts().tolist() == [0, 45, 0, 0]


def test_plain_zarr_reads_what_was_written(folder: RunFolder, path: Path) -> None:
    with folder.lock():
        commit_missing(folder, ONE)
    scores, status = zarr.open(path / "scores.zarr", mode="r"), zarr.open(path / "status.zarr", mode="r")
    upper = np.triu(np.ones((10, 10), bool), 1)
    np.testing.assert_array_equal(scores[:], np.where(upper, ONE["scores"], np.nan))
    np.testing.assert_array_equal(status[:], upper)
    assert scores.metadata.fill_value != scores.metadata.fill_value


def test_zarr_checks_our_checksum(folder: RunFolder, path: Path) -> None:
    with folder.lock():
        commit_missing(folder, ONE)
    damage(chunk_file(path, "scores", 0, 1))
    with pytest.raises(ValueError, match="checksum"):
        zarr.open(path / "scores.zarr", mode="r")[:]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "uint8", "int64", "bool", "complex64"])
def test_every_dtype_round_trips_through_our_reader_and_zarr(path: Path, dtype: str) -> None:
    folder = RunFolder.create(path, describe(5, 3, outputs={"scores": dtype}), None)
    truth = (true_scores(5) * 100).astype(dtype)
    with folder.lock():
        commit_missing(folder, {"scores": truth})
    np.testing.assert_array_equal(folder.read_chunk("scores", 0, 1), truth[:3, 3:])
    np.testing.assert_array_equal(zarr.open(path / "scores.zarr", mode="r")[:3, 3:], truth[:3, 3:])


def test_a_sample_decides_the_codec(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    for name, sample, expected in [("a", noise, False), ("b", np.round(noise), True), ("c", None, False)]:
        samples = {} if sample is None else {"scores": sample}
        folder = RunFolder.create(tmp_path / name, describe(), samples=samples)
        with folder.lock():
            commit_missing(folder, ONE)
        codecs = zarr.open(tmp_path / name / "scores.zarr", mode="r").metadata.codecs
        assert any("Zstd" in type(codec).__name__ for codec in codecs) == expected
        np.testing.assert_array_equal(folder.read_chunk("scores", 0, 1), ONE["scores"][:4, 4:8])


def test_scores_that_are_not_done_are_nan_whatever_was_committed(folder: RunFolder) -> None:
    status = np.full((4, 4), DONE, np.uint8)
    status[1, 2], status[3, 3] = FAILED_PAIR, FAILED_ITEM
    failures = [Failure(1, 6, "compare", "no"), Failure(7, None, "parse", "bad")]
    with folder.lock():
        folder.commit(0, 1, {"scores": np.zeros((4, 4), np.float32)}, status, failures)
    scores = folder.read_chunk("scores", 0, 1)
    assert scores is not None
    np.testing.assert_array_equal(np.isnan(scores), status != DONE)
    assert folder.counts().tolist() == [45 - 16, 14, 1, 1]
    assert [(f.i, f.j) for f in folder.failures()] == [(7, None), (1, 6)]


def test_a_second_commit_keeps_what_it_does_not_touch(folder: RunFolder) -> None:
    first, second = np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8)
    first[:2], first[1, 1], second[2:] = DONE, FAILED_PAIR, DONE
    with folder.lock():
        folder.commit(0, 1, {"scores": np.full((4, 4), 1, np.float32)}, first)
        folder.commit(0, 1, {"scores": np.full((4, 4), 2, np.float32)}, second)
    np.testing.assert_array_equal(folder.chunk_status(0, 1), np.maximum(first, second))
    expected = np.repeat([1, 1, 2, 2], 4).reshape(4, 4).astype(np.float32)
    expected[1, 1] = np.nan
    np.testing.assert_array_equal(folder.read_chunk("scores", 0, 1), expected)


def test_commits_from_threads(path: Path) -> None:
    n = 24
    truth = {"scores": true_scores(n)}
    folder = RunFolder.create(path, describe(n, 4))
    with folder.lock(), ThreadPoolExecutor(8) as pool:
        work = folder.missing().items()
        list(pool.map(lambda item: commit_chunk(folder, *item, truth), work))
        assert folder.flush() > len(work)
        assert folder.flush() == 0
    assert folder.missing() == {}
    np.testing.assert_array_equal(Run(path).matrix(diagonal=0), truth["scores"])


def damage(file: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:7])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("harm", [damage, truncate, empty, remove])
@pytest.mark.parametrize("name", ["scores", "extra", "status"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_damaged_file_makes_its_chunk_missing_and_only_that(
    path: Path, harm: Any, name: str, symmetric: bool
) -> None:
    truth = {"scores": true_scores(10, symmetric), "extra": (true_scores(10, symmetric) * 50).astype(np.int32)}
    manifest = describe(outputs={"scores": "float32", "extra": "int32"}, symmetric=symmetric)
    folder = RunFolder.create(path, manifest)
    with folder.lock():
        commit_missing(folder, truth)
        harm(chunk_file(path, name, 0, 1))
        assert list(folder.missing()) == [(0, 1)]
        assert commit_missing(folder, truth) == [(0, 1)]
    again = Run(path)
    assert again.folder.missing() == {}
    np.testing.assert_array_equal(again.matrix("scores", diagonal=0), truth["scores"])


def test_a_mirrored_chunk_that_is_damaged_counts(path: Path) -> None:
    truth = {"scores": true_scores(10, symmetric=False)}
    folder = RunFolder.create(path, describe(symmetric=False))
    with folder.lock():
        commit_missing(folder, truth)
        damage(chunk_file(path, "scores", 2, 1))
        assert commit_missing(folder, truth) == [(1, 2)]
    np.testing.assert_array_equal(Run(path).matrix(diagonal=0), truth["scores"])
    assert (Run(path).n_pairs, Run(path).n_pairs_done) == (90, 90)


def test_outputs_without_status_are_not_committed(folder: RunFolder, path: Path) -> None:
    with folder.lock():
        commit_missing(folder, ONE)
        chunk_file(path, "status", 0, 2).unlink()
        assert folder.read_chunk("scores", 0, 2) is None
        assert list(folder.missing()) == [(0, 2)]


def test_reading_a_damaged_chunk_raises(folder: RunFolder, path: Path) -> None:
    with folder.lock():
        commit_missing(folder, ONE)
    damage(chunk_file(path, "scores", 0, 1))
    with pytest.raises(CorruptResultError, match="checksum"):
        Run(path).matrix()
    assert list(RunFolder.open(path).missing()) == [(0, 1)]
    assert chunk_file(path, "status", 0, 1).exists(), "without the lock nothing is removed"


@pytest.mark.parametrize("folder_instead", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_chunk_that_is_gone_is_not_read_as_no_scores(path: Path, symmetric: bool, folder_instead: bool) -> None:
    folder = RunFolder.create(path, describe(symmetric=symmetric), table(10))
    with folder.lock():
        commit_missing(folder, {"scores": true_scores(10, symmetric)})
    gone = chunk_file(path, "scores", 0, 1)
    gone.unlink()
    if folder_instead:
        gone.mkdir()
    for read in (lambda run: run.matrix(), lambda run: run.neighbors(2), lambda run: list(run.pairs())):
        with pytest.raises(CorruptResultError, match=rf"{gone} is .*; `tartan resume` computes this chunk again"):
            read(Run(path))


def test_a_chunk_that_the_system_does_not_give_is_not_damaged(
    folder: RunFolder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder.lock():
        commit_missing(folder, ONE)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(np, "fromfile", refuse)
    with pytest.raises(StoreError, match=r"cannot be read: Input/output error"):
        Run(path).matrix()
    with pytest.raises(StoreError, match=r"cannot be read: Input/output error"):
        folder.missing()  # nothing is thrown away


def test_the_lock_holder_empties_tmp(folder: RunFolder, path: Path) -> None:
    left = path / "tmp" / "elsewhere.1.00000000-4"
    left.write_bytes(b"half a chunk")
    os.utime(left, (0, 0))
    (path / "tmp" / "thesis.tex").write_text("precious")
    with folder.lock():
        assert [one.name for one in (path / "tmp").iterdir()] == ["thesis.tex"]


def test_creation_starts_afresh_where_one_was_killed(folder: RunFolder, path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "tmp" / "elsewhere.1.00000000-1").touch()
    again = RunFolder.create(path, describe(6, 3), table(6))
    assert (again.manifest.n_items, sorted(p.name for p in path.glob("*.zarr"))) == (6, ["scores.zarr", "status.zarr"])
    assert list((path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "foreign", ["tmp/thesis.tex", "tmp/1-1", "scores.zarr/c/0", "precious.zarr/zarr.json", "cache"]
)
def test_what_a_killed_creation_cannot_have_left_is_never_removed(folder: RunFolder, path: Path, foreign: str) -> None:
    (path / "manifest.json").unlink()
    (path / foreign).parent.mkdir(parents=True, exist_ok=True)
    (path / foreign).write_text("precious")
    before = {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(StoreError, match="holds no run") as caught:
        RunFolder.create(path, describe(6, 3), table(6))
    assert caught.value.code == "foreign-folder"
    assert {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("names", [["notes.txt"], ["run.lock", "notes.txt"], ["tmp"], ["scores.zarr"]])
def test_a_foreign_folder_is_refused_and_left_alone(path: Path, names: list[str]) -> None:
    path.mkdir()
    for name in names:
        (path / name).touch()
    with pytest.raises(StoreError, match="holds no run") as caught:
        RunFolder.create(path, describe())
    assert caught.value.code == "foreign-folder"
    assert sorted(p.name for p in path.iterdir()) == sorted(names)


def test_a_run_is_not_created_over(folder: RunFolder, path: Path) -> None:
    with pytest.raises(StoreError, match="holds a run already"):
        RunFolder.create(path, describe())


def test_a_path_that_is_a_file_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError):
        RunFolder.create(path, describe())
    with pytest.raises(StoreError):
        RunFolder.create(path / "below", describe())
    with pytest.raises(RunNotFoundError):
        RunFolder.open(path)


def test_opening_what_is_not_there(path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="there is no folder"):
        RunFolder.open(path)


def test_a_run_without_its_arrays_is_corrupt(folder: RunFolder, path: Path) -> None:
    shutil.rmtree(path / "scores.zarr")
    with pytest.raises(CorruptResultError, match=r"zarr\.json cannot be read .*; restore it from a copy"):
        RunFolder.open(path)


def test_a_read_only_file_system_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    RunFolder.create(path, describe())
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(StoreError, match="Read-only") as caught:
        RunFolder.open(path, writable=True)
    assert caught.value.code == "read-only"
    with pytest.raises(StoreError, match="Read-only"):
        RunFolder.create(path.with_name("other"), describe())
    assert RunFolder.open(path).manifest.n_items == 10


def test_a_folder_opened_for_reading_cannot_be_written(folder: RunFolder, path: Path) -> None:
    reader = RunFolder.open(path)
    with pytest.raises(StoreError, match="for reading"), reader.lock():
        pass
    with pytest.raises(StoreError, match="for reading"):
        reader.write_stats({})


class FullDisk:
    """A write function that runs out of space after some bytes."""

    def __init__(self, space: int) -> None:
        self.space = space

    def __call__(self, descriptor: int, buffers: Sequence[Any]) -> int:
        size = sum(memoryview(b).nbytes for b in buffers)
        if self.space <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = b"".join(bytes(b) for b in buffers)[: self.space]
        self.space -= size
        return os.write(descriptor, data)


@pytest.mark.parametrize("space", [0, 30, 64 + 4, 64 + 20, 2 * (64 + 4) + 3])
def test_a_full_disk_commits_nothing_by_halves(folder: RunFolder, path: Path, space: int) -> None:
    disk = FullDisk(10**6)
    full = RunFolder.open(path, writable=True, writer=FileWriter(path, write=disk))
    with full.lock():
        disk.space = space
        with pytest.raises(DiskFullError, match="no space left"):
            commit_missing(full, ONE)
        assert list((path / "tmp").iterdir()) == []
        missing = full.missing()
        assert missing
        disk.space = 10**6
        commit_missing(full, ONE)
    np.testing.assert_array_equal(Run(path).matrix(diagonal=0), ONE["scores"])


def test_short_writes_are_continued(folder: RunFolder, path: Path) -> None:
    def some(descriptor: int, buffers: Sequence[Any]) -> int:
        return os.write(descriptor, memoryview(buffers[0]).cast("B")[:5])

    slow = RunFolder.open(path, writable=True, writer=FileWriter(path, write=some))
    with slow.lock():
        commit_missing(slow, ONE)
    np.testing.assert_array_equal(Run(path).matrix(diagonal=0), ONE["scores"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    point = tmp_path / "small"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(point)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"cannot mount: {error}")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_really_full_disk(small_disk: Path) -> None:
    truth = {"scores": true_scores(512)}
    folder = RunFolder.create(small_disk / "r", describe(512, 128))
    with pytest.raises(DiskFullError), folder.lock():
        commit_missing(folder, truth)
    again = Run(small_disk / "r")
    assert 0 < again.n_pairs_done < again.n_pairs
    values = again.matrix(diagonal=0)
    known = ~np.isnan(values)
    np.testing.assert_array_equal(values[known], truth["scores"][known])


def test_sync_forgets_nothing_when_it_fails(folder: RunFolder, path: Path) -> None:
    full = True

    def force(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owing = RunFolder.open(path, writable=True, writer=FileWriter(path, force=force, force_all=force))
    with owing.lock():
        commit_missing(owing, ONE)
        with pytest.raises(DiskFullError):
            owing.flush()
        full = False
        assert owing.flush() >= 12


def test_extension_keeps_old_pairs_and_asks_for_new_ones(folder: RunFolder, path: Path) -> None:
    truth = {"scores": true_scores(15)}
    with folder.lock():
        commit_missing(folder, truth)
        folder.extend(15, table(15))
        missing = folder.missing()
        assert sum(int(wanted.sum()) for wanted in missing.values()) == 15 * 14 // 2 - 45
        assert not any(
            wanted[: 10 - 4 * i, : 10 - 4 * j].any() for (i, j), wanted in missing.items() if (i, j) != (3, 3) and j < 3
        )
        for chunk, wanted in missing.items():  # new scores only: the old ones must come from the old file
            rect = folder.pairs.rect(*chunk)
            scores = np.where(wanted, truth["scores"][rect.r0 : rect.r1, rect.c0 : rect.c1], -1)
            folder.commit(*chunk, {"scores": scores}, wanted.astype(np.uint8))
    run = Run(path)
    assert run.manifest.generations == [10, 15]
    assert run.scores.shape == (15, 15)
    np.testing.assert_array_equal(run.matrix(diagonal=0), truth["scores"])
    assert run.keys[14] == "item-14"


def test_an_extension_killed_before_its_end_leaves_the_old_run(folder: RunFolder, path: Path) -> None:
    with folder.lock():
        commit_missing(folder, ONE)
    before = (path / "manifest.json").read_bytes()
    with folder.lock():
        folder.extend(15, table(15))
    (path / "manifest.json").write_bytes(before)
    run = Run(path)
    assert (run.n_items, len(run.keys), run.n_pairs_done) == (10, 10, 45)
    np.testing.assert_array_equal(run.matrix(diagonal=0), ONE["scores"])
    again = RunFolder.open(path, writable=True)
    with again.lock():
        assert again.missing() == {}
    assert Run(path).scores.shape == (10, 10)


@pytest.mark.parametrize(
    ("n", "items"),
    [(10, table(10)), (9, table(9)), (12, None), (12, table(11)), (11, ItemTable([f"x{i}" for i in range(11)]))],
)
def test_extensions_that_do_not_fit_are_refused(folder: RunFolder, n: int, items: ItemTable | None) -> None:
    with folder.lock(), pytest.raises(ConfigError):
        folder.extend(n, items)
    assert folder.manifest.n_items == 10


def test_wrong_shapes_and_mirrors_are_defects(folder: RunFolder) -> None:
    scores = {"scores": np.zeros((4, 4), np.float32)}
    with folder.lock():
        with pytest.raises(InternalError, match="codes were given"):
            folder.commit(0, 2, scores, np.ones((4, 4), np.uint8))
        with pytest.raises(InternalError, match="no mirrored"):
            folder.commit(0, 1, scores, np.ones((4, 4), np.uint8), mirrored=scores)
        with pytest.raises(InternalError, match="scores"):
            folder.commit(0, 1, {"scores": np.zeros((3, 4), np.float32)}, np.ones((4, 4), np.uint8))


def test_array_items_have_implicit_keys(path: Path) -> None:
    folder = RunFolder.create(path, describe(10**6, 1024, inputs={"kind": "array"}))
    assert folder.items is None
    assert (folder.keys[999_999], len(folder.keys), folder.keys[:2]) == ("999999", 10**6, ["0", "1"])
    assert not (path / "items.parquet").exists()


def test_damaged_items_are_named(folder: RunFolder, path: Path) -> None:
    truncate(path / "items.parquet")
    with pytest.raises(CorruptResultError, match=r"items\.parquet"):
        _ = RunFolder.open(path).keys
    (path / "items.parquet").unlink()  # numbers are not names of files
    with pytest.raises(CorruptResultError, match=r"items\.parquet, the names of the items, is gone; restore it"):
        _ = RunFolder.open(path).keys


@pytest.mark.parametrize("text", ["", "[1, 2]"])
def test_statistics_that_are_damaged_may_be_removed(folder: RunFolder, path: Path, text: str) -> None:
    (path / "stats.json").write_text(text)
    with pytest.raises(CorruptResultError, match=r"stats\.json cannot be read: .*; remove it"):
        _ = folder.stats
    (path / "stats.json").unlink()
    assert folder.stats == {}
    (path / "stats.json").mkdir()
    with pytest.raises(CorruptResultError, match=r"stats\.json cannot be read"):
        _ = folder.stats


def test_a_list_of_pairs_that_is_damaged_is_named(path: Path) -> None:
    manifest = describe(workload={"kind": "candidates", "file": "candidates.npy"})
    RunFolder.create(path, manifest, candidates=np.array([[0, 1]]))
    (path / "candidates.npy").write_bytes(b"")
    with pytest.raises(CorruptResultError, match=r"candidates\.npy, the list of pairs of this run.* restore it"):
        RunFolder.open(path).counts()


def test_a_list_of_pairs_that_is_another_one_is_refused(path: Path) -> None:
    pairs = np.array([[0, 1], [2, 5]])
    manifest = describe(
        workload={"kind": "candidates", "file": "candidates.npy", "digest": digest(Candidates(6, pairs))}
    )
    RunFolder.create(path, manifest, candidates=pairs[::-1])
    assert RunFolder.open(path).wanted.n_scores == 2
    np.save(path / "candidates.npy", pairs ^ 1)
    with pytest.raises(CorruptResultError, match=r"candidates\.npy, .* does not match its checksum; restore it"):
        RunFolder.open(path).counts()


def test_stats_round_trip(folder: RunFolder, path: Path) -> None:
    assert folder.stats == {}
    with folder.lock():
        folder.write_stats({"loads": np.int64(3), "bytes": {"host": 1.5}})
    assert RunFolder.open(path).stats == {"loads": 3, "bytes": {"host": 1.5}}


@pytest.mark.parametrize("name", ["status", "i", "../x", "a b"])
def test_output_names_that_cannot_be_files_are_refused(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="output"):
        RunFolder.create(path, describe(outputs={name: "float32"}))
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"codecs": [{"name": "bytes"}, {"name": "blosc"}, {"name": "crc32c"}]}, "codecs .*'blosc'"),
        ({"codecs": [{"name": "transpose"}, {"name": "bytes"}, {"name": "crc32c"}]}, "codecs .*'transpose'"),
        ({"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]}, "endian 'big'"),
        ({"zarr_format": 4}, "zarr_format 4"),
        ({"chunk_key_encoding": {"name": "v2"}}, "chunk_key_encoding .*'v2'"),
        ({"storage_transformers": [{"name": "sharding"}]}, "storage_transformers .*'sharding'"),
    ],
)
def test_an_array_that_is_stored_otherwise_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """Chunks would be taken for damaged, or for other scores, and computed again."""
    folder = RunFolder.create(tmp_path / "r", describe(6, 4), table(6))
    path = folder.path / "scores.zarr" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(StoreError, match=f"{words}.*, which this Tartan does not read; use a newer") as caught:
        RunFolder.open(folder.path)
    assert caught.value.code == "newer-format"


@pytest.mark.parametrize(
    "changes",
    [
        {"codecs": []},
        {"codecs": [{"name": ["x" * 10**6]}]},
        {"codecs": [{"name": "bytes", "configuration": 3}, {"name": "crc32c"}]},
        {"codecs": {"name": 1}},
        {"chunk_key_encoding": "x" * 10**6},
        {"zarr_format": None},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_garbage_in_the_description_of_an_array_is_refused_in_a_few_words(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = RunFolder.create(tmp_path / "r", describe(6, 4), table(6))
    path = folder.path / "scores.zarr" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(StoreError, match=r"scores.zarr/zarr.json (cannot be read|has)") as caught:
        RunFolder.open(folder.path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("codec", ["numcodecs.pickle", "evil"])
def test_an_array_whose_description_names_another_codec_is_not_decoded(tmp_path: Path, codec: str) -> None:
    folder = RunFolder.create(tmp_path / "r", describe(6, 4), table(6))
    path = folder.path / "scores.zarr" / "zarr.json"
    about = json.loads(path.read_text())
    about["codecs"] = [{"name": codec, "configuration": {}}, *about["codecs"]]
    path.write_text(json.dumps(about))
    with pytest.raises(Exception, match=codec):
        RunFolder.open(folder.path).array()
