"""One writer at a time: kernel lock, lease, death of the holder."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tartan.base import lock
from tartan.base.lock import FolderLock
from tartan.errors import StoreError
from tartan.store.folder import RunFolder

from .kit import describe

HOLDER = """
import sys
from pathlib import Path
from tartan.base.lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the lock until it reads a line or dies."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert readline(process.stdout) == "held\n"
        try:
            yield process
        finally:
            process.kill()


def readline(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def refuse_flock(descriptor: int, operation: int) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", describe())
    with holder(folder.path) as process:
        with pytest.raises(StoreError, match=f"process {process.pid} ") as caught, folder.lock():
            pass
        assert (caught.value.code, caught.value.context["pid"]) == ("locked", process.pid)
        with pytest.raises(StoreError, match="holds a run already"):
            RunFolder.create(folder.path, describe())
        assert RunFolder.open(folder.path).manifest.n_items == 10, "readers need no lock"


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        with FolderLock(tmp_path) as held:
            assert held.held


def test_creation_is_refused_while_another_process_creates(tmp_path: Path) -> None:
    with holder(tmp_path), pytest.raises(StoreError, match="in use"):
        RunFolder.create(tmp_path, describe())


def test_two_locks_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()} "), FolderLock(tmp_path):
        pass
    with FolderLock(tmp_path):
        pass


def test_the_lock_is_not_inherited(tmp_path: Path) -> None:
    child = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.readline()"]
    with FolderLock(tmp_path):
        worker = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=False)
        assert readline(worker.stdout) == "up\n"
    with worker:
        try:
            with FolderLock(tmp_path) as held:
                assert held.held
        finally:
            worker.kill()


@pytest.mark.parametrize("flock", [None, refuse_flock])
def test_the_lock_is_free_after_an_error(tmp_path: Path, flock: None) -> None:
    options = {} if flock is None else {"flock": flock}
    with pytest.raises(KeyError), FolderLock(tmp_path, **options):
        raise KeyError
    with FolderLock(tmp_path, **options) as held:
        assert held.held
    assert not held.held


def test_a_lease_takes_the_place_of_a_lock(tmp_path: Path) -> None:
    with FolderLock(tmp_path, flock=refuse_flock) as held:
        os.utime(tmp_path / lock.LEASE_NAME, (0, 0))
        held.renew()
        assert (tmp_path / lock.LEASE_NAME).stat().st_mtime > 0
        with pytest.raises(StoreError, match="in use"), FolderLock(tmp_path, flock=refuse_flock):
            pass
    assert not (tmp_path / lock.LEASE_NAME).exists()


def write_lease(folder: Path, **changes: object) -> Path:
    with FolderLock(folder, flock=refuse_flock):
        own = json.loads((folder / lock.LEASE_NAME).read_text())
    path = folder / lock.LEASE_NAME
    path.write_text(json.dumps({**own, **changes}))
    return path


@pytest.mark.parametrize("changes", [{"started": "1"}, {"boot": "another"}, {"pid": 2**22 + 1}])
def test_the_lease_of_a_dead_process_is_taken_over(tmp_path: Path, changes: dict[str, object]) -> None:
    write_lease(tmp_path, **changes)
    with FolderLock(tmp_path, flock=refuse_flock) as held:
        assert held.held
    assert [p.name for p in tmp_path.iterdir()] == [lock.FILE_NAME]


def test_the_lease_of_another_machine_lasts_a_minute(tmp_path: Path) -> None:
    path = write_lease(tmp_path, host="elsewhere", pid=1)
    with pytest.raises(StoreError, match="process 1 on elsewhere"), FolderLock(tmp_path, flock=refuse_flock):
        pass
    now = path.stat().st_mtime
    os.utime(path, (now, now - lock.LEASE_SECONDS - 1))
    with FolderLock(tmp_path, flock=refuse_flock) as held:
        assert held.held


def test_a_lease_that_says_nothing_counts_as_fresh(tmp_path: Path) -> None:
    (tmp_path / lock.LEASE_NAME).write_bytes(b"")
    with pytest.raises(StoreError, match="in use"), FolderLock(tmp_path, flock=refuse_flock):
        pass
