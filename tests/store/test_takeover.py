"""A folder is taken from writers that are silent: its epoch rises, and what they held is void."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tartan.base import lock
from tartan.base.confined import ConfinedFolder
from tartan.base.lock import (
    EPOCH_NAME,
    FILE_NAME,
    FolderLock,
    SharedLock,
    find_fate,
    find_writers,
    myself,
    read_epoch,
    take_from_silent,
)
from tartan.errors import DiskFullError, StoreError


def refuse_flock(descriptor: int, operation: int) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.fixture(params=[fcntl.flock, refuse_flock], ids=["kernel", "leases"])
def flock(request: pytest.FixtureRequest) -> Callable[[int, int], None]:
    found: Callable[[int, int], None] = request.param
    return found


@pytest.fixture
def writer(tmp_path: Path, flock: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedLock]:
    """One of several writers, whose lease says that it is of another machine, silent for 30 s."""
    monkeypatch.setattr(lock, "RENEWAL_SECONDS", 1e6)
    with SharedLock(tmp_path, "run", {"host": "elsewhere"}, flock=flock) as held:
        age(held, 30.0)
        yield held


def age(held: SharedLock, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(held.place / "lease", (then, then))


def test_what_silent_writers_held_is_free_and_they_learn_it(
    tmp_path: Path, writer: SharedLock, flock: Callable[[int, int], None]
) -> None:
    with pytest.raises(StoreError, match="in use by"), FolderLock(tmp_path, flock=flock):
        pass
    assert take_from_silent(tmp_path, 20.0, flock=flock) == read_epoch(tmp_path) == 1
    with FolderLock(tmp_path, flock=flock), pytest.raises(StoreError, match="in use by"):
        FolderLock(tmp_path, flock=flock).__enter__()
    writer.renew()
    assert writer.lost
    with SharedLock(tmp_path, "another run", flock=flock) as other:
        assert other.place != writer.place


def test_one_that_is_not_silent_keeps_its_folder(tmp_path: Path, writer: SharedLock) -> None:
    with pytest.raises(StoreError, match="on elsewhere") as caught:
        take_from_silent(tmp_path, 40.0)
    assert caught.value.code == "locked"
    assert read_epoch(tmp_path) == 0
    age(writer, 41.0)
    assert take_from_silent(tmp_path, 40.0) == 1


def test_a_lease_that_a_full_disk_refuses_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ConfinedFolder.new_file

    class Stream:
        """A new file on a full disk."""

        def __init__(self, folder: ConfinedFolder, place: Path) -> None:
            self._file = real(folder, place)
            self.fileno = self._file.fileno

        def __enter__(self) -> Stream:
            return self

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __exit__(self, *_: object) -> None:
            self._file.close()

    with monkeypatch.context() as full:
        full.setattr(ConfinedFolder, "new_file", lambda folder, place: Stream(folder, place))
        with pytest.raises(DiskFullError):
            FolderLock(tmp_path, flock=refuse_flock).__enter__()
    with FolderLock(tmp_path, flock=refuse_flock):
        assert (tmp_path / "run.lease").exists()


def test_one_silent_writer_is_not_enough(tmp_path: Path, writer: SharedLock) -> None:
    with SharedLock(tmp_path, "run", name="host.1.00000001"), pytest.raises(StoreError):
        take_from_silent(tmp_path, 20.0)
    assert not writer.lost


def test_a_folder_without_writers_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        take_from_silent(tmp_path, 0.0)
    with FolderLock(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        take_from_silent(tmp_path, 0.0)
    assert read_epoch(tmp_path) == 0


def test_the_name_of_a_dead_process_of_another_machine_keeps_no_folder(tmp_path: Path, writer: SharedLock) -> None:
    """One that held the folder alone and was killed leaves its name in the lock."""
    stale = {"pid": 1, "host": "elsewhere", "boot": "b", "started": "1"}
    (tmp_path / FILE_NAME).write_text(json.dumps(stale))
    assert take_from_silent(tmp_path, 20.0) == 1


@pytest.mark.parametrize("said", [{"pid": 1, "host": "elsewhere"}, {}])
def test_a_process_of_another_machine_that_holds_the_lock_keeps_its_folder(
    tmp_path: Path, said: dict[str, object]
) -> None:
    with FolderLock(tmp_path):
        (tmp_path / FILE_NAME).write_text(json.dumps(said))
        place = tmp_path / "writers" / "elsewhere.1.00000000"
        place.mkdir(parents=True)
        (place / "lease").write_text(json.dumps({"pid": 2, "host": "elsewhere"}))
        then = time.time() - 100.0
        os.utime(place / "lease", (then, then))
        with pytest.raises(StoreError, match="in use by"):
            take_from_silent(tmp_path, 20.0)
    assert read_epoch(tmp_path) == 0


def test_of_several_that_take_at_once_one_does(tmp_path: Path, writer: SharedLock) -> None:
    ready = threading.Barrier(4)

    def take(_: int) -> object:
        ready.wait(30)
        try:
            return take_from_silent(tmp_path, 20.0)
        except StoreError as error:
            return error.code

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(take, range(4)))
    assert sorted(found, key=str) == [1, "locked", "locked", "locked"]


def test_epochs_count_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEWAL_SECONDS", 1e6)
    for epoch in (1, 2, 3):
        with SharedLock(tmp_path, "run") as held:
            age(held, 30.0)
            assert take_from_silent(tmp_path, 20.0) == epoch
    assert json.loads((tmp_path / EPOCH_NAME).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"epoch": "7"}', '{"epoch": null}', "\x00" * 100])
def test_a_damaged_epoch_counts_as_none(tmp_path: Path, damaged: str) -> None:
    (tmp_path / EPOCH_NAME).write_text(damaged)
    assert read_epoch(tmp_path) == 0


def test_a_lock_whose_file_is_replaced_while_it_is_taken_is_taken_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def replacing(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:  # another process takes the folder over between the opening and the lock
            (tmp_path / "new").touch()
            (tmp_path / "new").replace(tmp_path / FILE_NAME)
        fcntl.flock(descriptor, operation)

    with FolderLock(tmp_path, flock=replacing), pytest.raises(StoreError, match="in use by"):
        FolderLock(tmp_path).__enter__()
    assert len(calls) == 2


def test_the_fate_of_processes() -> None:
    me = myself()
    assert find_fate(me) == "runs"
    assert find_fate(me | {"started": "1"}) == "gone"  # its number was given to another process
    assert find_fate(me | {"boot": "another"}) == "gone"
    assert find_fate(me | {"host": "elsewhere"}) == "elsewhere"
    assert find_fate(me | {"pid": "x"}) == "gone"


def test_leases_that_say_nothing_are_found_all_the_same(tmp_path: Path) -> None:
    place = tmp_path / "writers" / "host.1.00000000"
    place.mkdir(parents=True)
    (place / "lease").write_text("[")
    (found,) = find_writers(tmp_path)
    assert (found.name, found.holder) == ("host.1.00000000", {})
