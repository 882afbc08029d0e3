"""Several writers of one run folder: who may write, whose version of a chunk counts, and what is taken over."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tartan.base import lock
from tartan.base.confined import ConfinedFolder
from tartan.base.files import FileWriter
from tartan.base.lock import FolderLock, SharedLock, is_held, list_living_writers
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED, Failure
from tartan.errors import DiskFullError, InternalError, StoreError
from tartan.result.run import Run
from tartan.store.claims import EncodedChunk
from tartan.store.folder import RunFolder
from tartan.store.keeper import concatenate
from tartan.store.writers import still_true

from .kit import commit_missing, describe, true_scores

TWO_OUTPUTS = {"outputs": {"scores": "float32", "more": "float64"}}
ITEM = Failure(0, None, "read", "item-0: gone")


class StopHere(BaseException):
    """Ends a writer between two steps, as a kill does: nothing is cleaned up."""


def refuse_flock(descriptor: int, operation: int) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.fixture(params=[None, refuse_flock], ids=["kernel", "lease"])
def ways(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {} if request.param is None else {"flock": request.param}


MEMBER = """
import sys
from pathlib import Path
from tartan.base.lock import SharedLock
with SharedLock(Path(sys.argv[1]), "g", {"what": "part 3/16"}):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def member(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that is one of several writers until it is killed."""
    command = [sys.executable, "-c", MEMBER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


# -- who may write ---------------------------------------------------------------------------------------------------


def test_writers_of_a_group_share_and_one_alone_is_kept_out(tmp_path: Path, ways: dict[str, Any]) -> None:
    with SharedLock(tmp_path, "g", **ways) as one, SharedLock(tmp_path, "g", **ways) as other:
        assert one.place != other.place
        assert len(list_living_writers(tmp_path)) == 2
        assert is_held(tmp_path)
        with pytest.raises(StoreError, match=f"process {os.getpid()} on .* wait for them") as caught:
            FolderLock(tmp_path, **ways).__enter__()
        assert (caught.value.code, caught.value.context["pid"]) == ("locked", os.getpid())
    assert not is_held(tmp_path)
    with FolderLock(tmp_path, **ways) as alone:
        assert alone.held
        with pytest.raises(StoreError, match="in use by process"):
            SharedLock(tmp_path, "g", **ways).__enter__()
        assert list_living_writers(tmp_path) == []


def test_writers_of_another_group_are_refused_by_name(tmp_path: Path, ways: dict[str, Any]) -> None:
    with SharedLock(tmp_path, "g", {"what": "part 1/4"}, **ways):
        with pytest.raises(StoreError, match=r"in use by process \d+ on \S+ \(part 1/4\); wait for it"):
            SharedLock(tmp_path, "h", **ways).__enter__()
        with SharedLock(tmp_path, "g", **ways):
            pass
    with SharedLock(tmp_path, "h", **ways) as held:
        assert not held.lost


def test_two_writers_of_one_name(tmp_path: Path, ways: dict[str, Any]) -> None:
    with SharedLock(tmp_path, "g", name="node.1.00000000", **ways):
        with pytest.raises(StoreError, match=r"a writer of the name node\.1\.00000000") as caught:
            SharedLock(tmp_path, "g", name="node.1.00000000", **ways).__enter__()
        assert caught.value.code == "name-taken"
        assert len(list_living_writers(tmp_path)) == 1


def test_a_straggler_is_named_and_a_killed_one_is_forgotten(tmp_path: Path) -> None:
    with member(tmp_path) as process:
        with pytest.raises(StoreError, match=rf"process {process.pid} on \S+ \(part 3/16\)"):
            FolderLock(tmp_path).__enter__()
        assert [holder["pid"] for holder in list_living_writers(tmp_path)] == [process.pid]
        process.kill()
        process.wait()
        assert list_living_writers(tmp_path) == []
        with FolderLock(tmp_path) as alone:
            assert alone.held


def silent_writer(folder: Path, seconds: float, **changes: object) -> Path:
    """Leave the lease of a writer of another machine that was renewed some time ago by the clock of the server."""
    place = folder / lock.WRITERS_NAME / "elsewhere.1.00000000"
    place.mkdir(parents=True)
    path = place / lock.WRITER_LEASE_NAME
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "group": "g", **changes}))
    now = path.stat().st_mtime
    os.utime(path, (now, now - seconds))
    return path


def test_a_lease_of_another_machine_keeps_others_out_for_a_minute(tmp_path: Path) -> None:
    path = silent_writer(tmp_path, lock.LEASE_SECONDS / 2)
    with pytest.raises(StoreError, match="process 1 on elsewhere"):
        FolderLock(tmp_path, flock=refuse_flock).__enter__()
    now = path.stat().st_mtime
    os.utime(path, (now, now - lock.LEASE_SECONDS))
    with FolderLock(tmp_path, flock=refuse_flock) as alone:
        assert alone.held


def test_a_clock_that_is_an_hour_wrong_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are differences of times of the file server; the clock of the machine is not asked."""
    silent_writer(tmp_path, lock.LEASE_SECONDS / 2)
    for wrong in (-3600.0, 3600.0):
        monkeypatch.setattr("time.time", lambda wrong=wrong: 1e9 + wrong)
        assert len(list_living_writers(tmp_path)) == 1


@pytest.mark.parametrize("pid", [None, "x", [1], {}, 2**70])
def test_a_lease_that_says_nonsense_is_void(tmp_path: Path, pid: object) -> None:
    silent_writer(tmp_path, 0, **lock.myself() | {"pid": pid})
    assert list_living_writers(tmp_path) == []


def test_the_kernel_names_a_silent_writer_of_another_machine(tmp_path: Path) -> None:
    silent_writer(tmp_path, 10 * lock.LEASE_SECONDS)

    def held_elsewhere(descriptor: int, operation: int) -> None:
        raise BlockingIOError

    with pytest.raises(StoreError, match="process 1 on elsewhere"):
        FolderLock(tmp_path, flock=held_elsewhere).__enter__()


def test_a_lease_is_renewed_without_being_asked(tmp_path: Path) -> None:
    held = lock.Lease(ConfinedFolder(tmp_path), tmp_path / "lease", every_seconds=0.001)
    held.write({"what": "x"})
    os.utime(held.path, (0, 0))
    while held.path.stat().st_mtime == 0:
        pass
    held.path.unlink()
    while not held.lost:
        pass
    (tmp_path / "lease").write_bytes(b"of another")
    held.close()
    assert (tmp_path / "lease").read_bytes() == b"of another"


# -- whose version of a chunk counts ---------------------------------------------------------------------------------


class Stage:
    """A run folder, and any number of writers of it that can be stopped between two steps."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.stack = ExitStack()
        self.created = RunFolder.create(path, describe(8, 4, **changes))
        self.path = path

    def writer(self, stop_at: int | None = None, **ways: Any) -> RunFolder:
        """Open a writer that is stopped at a step, counted from 0."""
        folder = RunFolder.open(self.path, writable=True)
        steps = itertools.count()

        def step(name: str) -> None:
            if next(steps) == stop_at:
                raise StopHere(name)

        self.stack.enter_context(folder.join("g", step=step, **ways))
        return folder

    def scores(self, value: float, folder: RunFolder) -> dict[str, np.ndarray]:
        return {name: np.full((4, 4), value, dtype) for name, dtype in folder.manifest.outputs.items()}

    def commit(self, folder: RunFolder, value: float, code: int = DONE) -> bool:
        """Commit chunk (0, 1), all scores of all outputs of one value, so that a mixture shows."""
        scores = self.scores(value, folder)
        mirrored = scores if folder.pairs.both_ways else None
        return folder.commit(0, 1, scores, np.full((4, 4), code, np.uint8), mirrored=mirrored)

    def values(self) -> set[float]:
        """Return the values that the chunk has, over all outputs and both directions."""
        folder = RunFolder.open(self.path)
        if folder.chunk_status(0, 1) is None:
            return set()
        ends = [(0, 1), (1, 0)] if folder.pairs.both_ways else [(0, 1)]
        blocks = [folder.read_chunk(name, *end) for name in folder.manifest.outputs for end in ends]
        assert all(block is not None for block in blocks)
        return {float(value) for block in blocks if block is not None for value in np.unique(block)}

    def names(self) -> set[str]:
        return {entry.name for entry in self.path.iterdir()}


def n_steps(tmp_path: Path, **changes: Any) -> int:
    """Count the steps of a commit."""
    stage, steps = Stage(tmp_path / "counted", **changes), []
    folder = RunFolder.open(stage.path, writable=True)
    with folder.join("g", step=steps.append):
        assert stage.commit(folder, 1.0)
    return len(steps)


@pytest.fixture(params=[True, False], ids=["symmetric", "both-ways"])
def changes(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**TWO_OUTPUTS, "symmetric": request.param}


@pytest.mark.slow
def test_a_writer_stopped_between_any_two_steps_leaves_one_version(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The first is frozen, another commits the chunk, and the first wakes: outputs are never of two writers."""
    for at in range(n_steps(tmp_path, **changes)):
        stage = Stage(tmp_path / f"run-{at}", **changes)
        frozen, other = stage.writer(at), stage.writer()
        with pytest.raises(StopHere):
            stage.commit(frozen, 1.0)
        won = stage.commit(other, 2.0)
        assert stage.values() == {2.0 if won else 1.0}
        stage.stack.close()
        with stage.created.lock():
            assert stage.created.missing(verify=True).keys() == {(0, 0), (1, 1)}
        assert stage.values() == {2.0 if won else 1.0}
        assert stage.names().isdisjoint({"writers", "writers-gone", "claims"})
        assert list((stage.path / "tmp").iterdir()) == []


def commit_while_others_do(stage: Stage, at: int) -> tuple[bool, list[bool]]:
    """Commit 1.0, frozen at a step while another writer commits 2.0 and then 3.0; return who won."""
    other, frozen = stage.writer(), RunFolder.open(stage.path, writable=True)
    others: list[bool] = []
    steps = itertools.count()

    def step(name: str) -> None:
        if next(steps) == at:
            others.extend(stage.commit(other, value) for value in (2.0, 3.0))

    stage.stack.enter_context(frozen.join("g", step=step))
    return stage.commit(frozen, 1.0), others


def test_a_frozen_writer_that_wakes_finds_nothing_to_do(tmp_path: Path, changes: dict[str, Any]) -> None:
    for at in range(n_steps(tmp_path, **changes)):
        stage = Stage(tmp_path / f"run-{at}", **changes)
        won, others = commit_while_others_do(stage, at)
        assert [won, *others].count(True) == 1
        assert stage.values() == {1.0 if won else 2.0}, "what is committed is not replaced"
        stage.stack.close()


@pytest.mark.slow
def test_two_frozen_writers_wake_one_after_the_other(tmp_path: Path) -> None:
    """One is frozen at each step, a second at some, while a third commits; in the end there is one version, whole."""
    n = n_steps(tmp_path, **TWO_OUTPUTS)
    for number, freezes in enumerate(itertools.product(range(n), (0, n // 2, n - 3))):
        stage = Stage(tmp_path / f"run-{number}", **TWO_OUTPUTS)
        won = commit_nested(stage, list(freezes), 1.0)
        assert won.count(True) == 1
        assert stage.values() == {1.0 + won.index(True)}
        stage.stack.close()


def commit_nested(stage: Stage, freezes: list[int], value: float) -> list[bool]:
    """Commit a value, frozen at the first of some steps while the next value is committed alike; return who won."""
    folder = RunFolder.open(stage.path, writable=True)
    steps, later = itertools.count(), list[bool]()

    def step(name: str) -> None:
        if freezes and next(steps) == freezes[0]:
            later.extend(commit_nested(stage, freezes[1:], value + 1))

    stage.stack.enter_context(folder.join("g", step=step))
    return [stage.commit(folder, value), *later]


def test_a_killed_writer_s_decision_is_carried_out_when_the_folder_is_held_alone(tmp_path: Path) -> None:
    stopped = 0
    for at in range(n_steps(tmp_path, **TWO_OUTPUTS)):
        stage = Stage(tmp_path / f"run-{at}", **TWO_OUTPUTS)
        with pytest.raises(StopHere) as caught:
            stage.commit(stage.writer(at), 1.0)
        stage.stack.close()
        with stage.created.lock():
            decided = str(caught.value).startswith(("publish", "discard"))
            assert ((0, 1) not in stage.created.missing()) == decided
            stopped += not decided
            commit_missing(stage.created, {name: true_scores(8) for name in TWO_OUTPUTS["outputs"]})
        assert stage.created.n_left == 0
    assert 0 < stopped < at


def test_what_a_killed_writer_committed_is_forced_by_who_holds_the_folder_alone(tmp_path: Path) -> None:
    """A writer that was killed forces nothing any more, and the run may be complete."""
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    forced: list[int] = []
    with pytest.raises(StopHere):
        stage.commit(stage.writer(n_steps(tmp_path, **TWO_OUTPUTS) - 1), 1.0)
    stage.stack.close()
    writer = FileWriter(stage.path, force=lambda descriptor: None, force_all=forced.append)
    with RunFolder.open(stage.path, writable=True, writer=writer).lock():
        assert len(forced) == 1


def commit_while_taken_over(stage: Stage, at: int) -> None:
    """Commit two chunks; at a step of the first the lease is lost, and another process holds the folder alone."""
    folder = RunFolder.open(stage.path, writable=True)
    steps = itertools.count()

    def step(name: str) -> None:
        if next(steps) == at:
            with stage.created.lock():
                pass

    with folder.join("g", step=step, flock=refuse_flock):
        (next((stage.path / "writers").iterdir()) / "lease").unlink()
        stage.commit(folder, 1.0)
        folder.commit(0, 0, stage.scores(1, folder), folder.pairs.mask(0, 0).astype(np.uint8))


@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_that_is_removed_meanwhile_is_said_to_be_gone(tmp_path: Path, whole: bool) -> None:
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    folder = RunFolder.open(stage.path, writable=True)

    def move_and_commit() -> None:
        with folder.join("g"):
            for number, path in enumerate([stage.path] if whole else list(stage.path.iterdir())):
                path.rename(tmp_path / f"moved-{number}")
            stage.commit(folder, 1.0)

    with pytest.raises(StoreError, match="is gone: it was removed or renamed") as caught:
        move_and_commit()
    assert caught.value.code == "gone"


def test_a_writer_that_was_taken_over_publishes_nothing(tmp_path: Path) -> None:
    """Without kernel locks a frozen machine loses its lease; when it wakes, its files are gone."""
    for at in range(n_steps(tmp_path, **TWO_OUTPUTS)):
        stage = Stage(tmp_path / f"run-{at}", **TWO_OUTPUTS)
        with pytest.raises(StoreError, match="another has taken over") as caught:
            commit_while_taken_over(stage, at)
        assert caught.value.code == "taken-over"
        assert stage.values() in (set(), {1.0})
        with stage.created.lock():
            assert stage.created.missing().keys() >= {(0, 0), (1, 1)}


def test_a_chunk_is_committed_again_where_pairs_were_left_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run")
    one, other = stage.writer(), stage.writer()
    half = np.zeros((4, 4), np.uint8)
    half[:2] = DONE
    assert one.commit(0, 1, stage.scores(1, one), half)
    assert other.commit(0, 1, stage.scores(2, other), DONE - half)
    block = RunFolder.open(stage.path).read_chunk("scores", 0, 1)
    assert block is not None
    np.testing.assert_array_equal(block, np.where(half, 1, 2))
    stage.stack.close()


def kept_of(folder: RunFolder) -> list[tuple[int, int, float]]:
    """Return what a top-k run keeps: item, other item, score."""
    rows = concatenate(list(folder.results.bands(folder.committed())))  # type: ignore[union-attr]
    return sorted(zip(rows["i"].tolist(), rows["j"].tolist(), rows["scores"].tolist(), strict=True))


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_chunk_displaces_nothing(tmp_path: Path, lost: bool) -> None:
    """A writer computes the best pairs of all items, loses them to one that could not, and commits worse ones."""
    stage = Stage(tmp_path / "run", reduce={"kind": "top-k", "k": 2, "largest": True})
    writer, rival = stage.writer(), stage.writer()
    for folder in (writer, rival):
        assert folder.new_keeper() is not None
    if lost:
        assert stage.commit(rival, 90.0, FAILED_ITEM)
    assert stage.commit(writer, 90.0) is not lost
    diagonal = writer.pairs.mask(0, 0)
    worse = np.where(diagonal, np.arange(16.0).reshape(4, 4), np.nan).astype(np.float32)
    assert writer.commit(0, 0, {"scores": worse}, diagonal.astype(np.uint8))
    part = writer.path / "parts" / "0-0.parquet"
    n_rows = pq.read_table(part).num_rows
    assert n_rows == (8 if lost else 0), "what committed pairs displace is not written"
    stage.stack.close()
    with stage.created.lock():
        kept = kept_of(stage.created)
    if lost:
        assert [score for i, _, score in kept if i == 3] == [7.0, 11.0]
    else:
        assert [score for _, _, score in kept] == [90.0] * 16


def test_a_full_disk_of_one_writer_stops_it_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    full = False

    def write(descriptor: int, buffers: Any) -> int:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.writev(descriptor, buffers)

    folder = RunFolder.open(stage.path, writable=True, writer=FileWriter(stage.path, write=write))
    stage.stack.enter_context(folder.join("g"))
    other = stage.writer()
    full = True
    with pytest.raises(DiskFullError):
        stage.commit(folder, 1.0)
    assert stage.values() == set()
    assert stage.commit(other, 2.0)
    full = False
    assert not stage.commit(folder, 1.0)
    assert [path.name for path in (stage.path / "writers").rglob("*") if path.is_file()] == ["lease", "lease"]
    stage.stack.close()


def test_two_outputs_of_a_lost_chunk_leave_no_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    one, other = stage.writer(), stage.writer()
    assert stage.commit(one, 1.0)
    assert not stage.commit(other, 2.0)
    late = other.encode(0, 1, stage.scores(2, other), np.full((4, 4), DONE, np.uint8))
    assert late.files == ()
    assert not other.commit_encoded(late)
    left = [path.name for path in (stage.path / "writers").rglob("*") if path.is_file()]
    assert left == ["lease", "lease"]
    stage.stack.close()


def test_the_bytes_of_a_chunk_may_be_committed_by_another_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    rank, driver = stage.writer(), stage.writer()
    status = np.full((4, 4), DONE, np.uint8)
    status[0] = FAILED_ITEM
    encoded = rank.encode(0, 1, stage.scores(5, rank), status, [ITEM])
    assert driver.commit_encoded(encoded)
    assert not driver.commit_encoded(encoded)
    with pytest.raises(InternalError, match="does not belong to this run"):
        driver.commit_encoded(EncodedChunk((7, 9), "0", encoded.files))
    with pytest.raises(InternalError, match="does not belong to this run"):
        driver.commit_encoded(EncodedChunk((0, 1), "0", encoded.files[:1]))
    stage.stack.close()
    with stage.created.lock():
        assert stage.created.failures() == [ITEM]
        assert stage.created.missing().keys() == {(0, 0), (1, 1)}
        commit_missing(stage.created, {name: true_scores(8) for name in TWO_OUTPUTS["outputs"]})
    assert (Run(stage.path).matrix()[1:4, 4:] == 5).all()


def test_a_plan_that_names_other_files_moves_nothing(tmp_path: Path) -> None:
    """A run folder may come from elsewhere: what lies in it can only move files of writers to their places."""
    stage = Stage(tmp_path / "run")
    secret = tmp_path / "secret"
    secret.write_text("x")
    claims = stage.path / "claims" / "0"
    claims.mkdir(parents=True)
    (claims / "1.0").write_text(json.dumps({"writer": "../..", "files": ["../../secret", "../../secret"]}))
    (claims / "3.0").write_bytes(b"{")
    (claims / "note.txt").write_text("x")
    with stage.created.lock():
        assert len(stage.created.missing()) == 3
    assert secret.read_text() == "x"
    assert [str(path.relative_to(stage.path)) for path in (stage.path / "claims").rglob("*")] == [
        "claims/0",
        "claims/0/note.txt",
    ]


# -- what is taken over ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_first", [True, False])
def test_an_item_that_fails_for_one_writer_only(tmp_path: Path, fails_first: bool) -> None:
    """The version that counts decides: a failure stays where the ledger has it, and is dropped where it has not."""
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    failing, good = stage.writer(), stage.writer()
    status = np.full((4, 4), DONE, np.uint8)
    status[0] = FAILED_ITEM
    if fails_first:
        assert failing.commit(0, 1, stage.scores(1, failing), status, [ITEM])
    assert stage.commit(good, 2.0) is not fails_first
    if not fails_first:
        assert not failing.commit(0, 1, stage.scores(1, failing), status, [ITEM])
    assert stage.created.failures() == [ITEM], "readers see what is known so far"
    stage.stack.close()
    with stage.created.lock():
        pass
    assert stage.created.failures() == ([ITEM] if fails_first else [])
    assert list((stage.path).glob("*.jsonl")) == []


def test_each_writer_has_a_log_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run")
    one, other = stage.writer(), stage.writer()
    pair = Failure(4, 5, "compare", "no")
    one.add_failures([ITEM])
    other.add_failures([ITEM, pair])
    logs = sorted((stage.path / "writers").glob("*/failures.jsonl"))
    assert [len(log.read_bytes().split()) > 0 for log in logs] == [True, True]
    assert RunFolder.open(stage.path).failures() == [ITEM, pair]
    stage.stack.close()


def test_failures_that_the_ledger_lacks_are_dropped() -> None:
    codes = np.full((4, 4), DONE, np.uint8)
    codes[1] = FAILED_ITEM
    codes[2, 3] = FAILED_PAIR
    items = {i: Failure(i, None, "read", "") for i in range(8)}
    pairs = [Failure(2, 7, "compare", ""), Failure(2, 6, "compare", "")]
    assert still_true([items[1], items[2], *pairs], [(0, 4, codes)]) == [items[1], pairs[0]]
    assert still_true([items[1], items[5]], [(0, 4, codes)]) == [items[1]], "item 5 is lacking only where item 1 is"
    assert still_true([items[4], items[5]], [(0, 4, codes[:, :2])]) == [items[4], items[5]]
    lone = np.array([[FAILED_ITEM]], np.uint8)
    assert still_true([items[1], items[5]], [(1, 5, lone)]) == [items[1], items[5]], "either may be the reason"
    assert still_true([], []) == []


def test_statistics_stay_until_they_are_added_up(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run")
    one, other = stage.writer(), stage.writer()
    one.write_stats({"loads": 3})
    other.write_stats({"loads": 4})
    assert not (stage.path / "stats.json").exists()
    stage.stack.close()
    for _ in range(2):
        with stage.created.lock():
            assert sorted(each["loads"] for each in stage.created.writers_stats().values()) == [3, 4]
    with stage.created.lock():
        stage.created.forget_writers_stats(stage.created.writers_stats())
    assert stage.names().isdisjoint({"writers", "writers-gone"})


def test_nothing_is_removed_by_one_of_several(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run")
    (stage.path / "tmp" / "elsewhere.1.00000000-4").write_bytes(b"half")
    folder = stage.writer()
    assert stage.commit(folder, 1.0)
    path = stage.path / "scores.zarr" / "c" / "0" / "1"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    folder.missing()
    assert folder.chunk_status(0, 1) is not None, "a damaged chunk waits for the process that holds the folder alone"
    stage.stack.close()
    assert (stage.path / "tmp" / "elsewhere.1.00000000-4").exists()


def test_none_joins_while_failures_are_taken_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run")
    folder = RunFolder.open(stage.path, writable=True)
    (stage.path / "healing.json").write_text("{}")
    with pytest.raises(StoreError, match="resume") as caught, folder.join("g"):
        pass
    assert caught.value.code == "healing"
    assert not is_held(stage.path)


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path / "run")
    folder = stage.writer()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match="no hard links") as caught:
        stage.commit(folder, 1.0)
    assert caught.value.code == "no-links"
    stage.stack.close()


def rows_of(stage: Stage, folder: RunFolder, value: float, rows: slice) -> EncodedChunk:
    """Encode some rows of chunk (0, 1)."""
    status = np.full((4, 4), NOT_COMPUTED, np.uint8)
    status[rows] = DONE
    return folder.encode(0, 1, stage.scores(value, folder), status)


def test_pieces_of_a_chunk_that_another_process_encoded_are_joined(tmp_path: Path) -> None:
    """That process does not see what was committed of it."""
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    rank, driver = stage.writer(), stage.writer()
    first, second = rows_of(stage, rank, 5.0, slice(0, 1)), rows_of(stage, rank, 6.0, slice(1, 3))
    third = rows_of(stage, rank, 7.0, slice(2, 4))
    assert first.state == second.state == third.state
    assert driver.commit_encoded(first)
    assert driver.commit_encoded(second)
    assert not driver.commit_encoded(third)  # not all of it counts
    scores = RunFolder.open(stage.path).read_chunk("scores", 0, 1)
    assert scores is not None
    assert scores[:, 0].tolist() == [5.0, 6.0, 6.0, 7.0]
    stage.stack.close()


def test_who_loses_a_chunk_to_a_piece_of_it_commits_the_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run", **TWO_OUTPUTS)
    slow, other = RunFolder.open(stage.path, writable=True), stage.writer()
    piece, whole = rows_of(stage, other, 5.0, slice(0, 1)), rows_of(stage, other, 6.0, slice(0, 4))
    steps = itertools.count()

    def step(name: str) -> None:
        if name == "claim" and next(steps) == 0:
            assert other.commit_encoded(piece)

    stage.stack.enter_context(slow.join("g", step=step))
    assert not slow.commit_encoded(whole)
    scores = RunFolder.open(stage.path).read_chunk("scores", 0, 1)
    assert scores is not None
    assert scores[:, 0].tolist() == [5.0, 6.0, 6.0, 6.0]
    stage.stack.close()
