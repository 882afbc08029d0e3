"""Files of the user's: whole or absent, and a refusal of the system said in words."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.base.files import MANY_FILES, FileWriter, Force, fsync, syncfs, whole_file
from tartan.errors import DiskFullError, StoreError


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_pipes_are_written_to_and_links_stay(tmp_path: Path) -> None:
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / "real"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with whole_file(pipe) as place:
        place.write_text("through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    link.symlink_to(real)
    with whole_file(link) as place:
        place.write_text("behind")
    assert link.is_symlink()
    assert real.read_text() == "behind"
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link", "real"}


def test_a_file_that_is_not_finished_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")

    def fail() -> None:
        with whole_file(target) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.EROFS, StoreError),
        (errno.EACCES, StoreError),
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EFBIG, StoreError),
        (errno.EIO, StoreError),
    ],
)
def test_what_the_system_refuses_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    """A read-only file system also refuses to remove what was never there."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(expected, match=str(tmp_path / "result.txt")), whole_file(tmp_path / "result.txt"):
        refuse()


class Disk:
    """Notes what is forced to it; for a whole file system it answers with an error number."""

    def __init__(self, answer: int = 0) -> None:
        self.answer = answer
        self.forced: list[Path] = []
        self.n_forced_whole = 0

    def force(self, descriptor: int) -> None:
        self.forced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    def force_all(self, descriptor: int) -> None:
        self.n_forced_whole += 1
        if self.answer:
            raise OSError(self.answer, os.strerror(self.answer))


def written(folder: Path, disk: Disk, n_files: int) -> FileWriter:
    """Return a writer that owes files to a disk."""
    writer = FileWriter(folder, force=disk.force, force_all=disk.force_all)
    for number in range(n_files):
        writer.replace(folder / str(number), [b"x"])
    return writer


@pytest.mark.parametrize(("n_files", "one_by_one"), [(MANY_FILES - 1, True), (MANY_FILES, False)])
def test_many_files_are_synced_by_one_call(tmp_path: Path, n_files: int, one_by_one: bool) -> None:
    disk = Disk()
    writer = written(tmp_path, disk, n_files)
    assert writer.sync() == n_files
    names = sorted(str(number) for number in range(n_files))
    assert disk.forced == ([*(tmp_path / name for name in names), tmp_path] if one_by_one else [])
    assert disk.n_forced_whole == (not one_by_one)
    assert writer.sync() == 0


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_where_a_file_system_cannot_be_synced_files_are(tmp_path: Path, code: int) -> None:
    disk = Disk(code)
    assert written(tmp_path, disk, MANY_FILES).sync() == MANY_FILES
    assert (disk.n_forced_whole, len(disk.forced)) == (1, MANY_FILES + 1)


@pytest.mark.parametrize(("code", "expected"), [(errno.ENOSPC, DiskFullError), (errno.EIO, StoreError)])
def test_a_file_system_that_cannot_write_is_believed(tmp_path: Path, code: int, expected: type[Exception]) -> None:
    disk = Disk(code)
    writer = written(tmp_path, disk, MANY_FILES)
    with pytest.raises(expected):
        writer.sync()
    assert disk.forced == []
    disk.answer = 0
    assert writer.sync() == MANY_FILES


def test_what_a_dead_writer_left_is_forced_with_all_else(tmp_path: Path) -> None:
    written(tmp_path, Disk(), 2)
    disk = Disk()
    FileWriter(tmp_path, force=disk.force, force_all=disk.force_all).sync_all()
    assert (disk.n_forced_whole, disk.forced) == (1, [])


def test_all_that_cannot_be_forced_is_tried_again(tmp_path: Path) -> None:
    disk = Disk(errno.EIO)
    writer = written(tmp_path, disk, 2)
    with pytest.raises(StoreError):
        writer.sync_all()
    assert writer.sync() == 2


def test_files_that_are_gone_need_no_sync(tmp_path: Path) -> None:
    disk = Disk()
    writer = written(tmp_path, disk, 3)
    writer.remove(tmp_path / "1")
    assert writer.sync() == 3
    assert disk.forced == [tmp_path / "0", tmp_path / "2", tmp_path]


def test_a_folder_that_vanished_cannot_be_synced(tmp_path: Path) -> None:
    writer = written(tmp_path, Disk(), MANY_FILES)
    (tmp_path / "tmp").rmdir()
    with pytest.raises(StoreError, match="No such file"):
        writer.sync()


@pytest.mark.parametrize("force", [fsync, syncfs])
def test_files_are_forced_unless_the_environment_says_otherwise(
    force: Force, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_file = 1 << 20
    monkeypatch.setenv("TARTAN_FSYNC", "0")
    force(no_file)
    monkeypatch.delenv("TARTAN_FSYNC")
    with pytest.raises(OSError, match="Bad file descriptor"):
        force(no_file)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x")
        force(file.fileno())


def pages(n_bytes: int) -> memoryview:
    """Return memory that begins on a page, of random bytes."""
    memory = mmap.mmap(-1, n_bytes)
    memory[:] = np.random.default_rng(0).bytes(n_bytes)
    return memoryview(memory)


@pytest.mark.parametrize("n_bytes", [(4 << 20) - 4096, 4 << 20, (4 << 20) + 4097])
def test_large_buffers_are_whole_past_the_page_cache(tmp_path: Path, n_bytes: int) -> None:
    body = pages(n_bytes)
    FileWriter(tmp_path).replace(tmp_path / "large", [body, b"tail"])
    assert (tmp_path / "large").read_bytes() == bytes(body) + b"tail"


@pytest.mark.parametrize("most", [1 << 20, 4096 * 3 + 5])
def test_short_writes_are_continued(tmp_path: Path, most: int) -> None:
    body = pages((4 << 20) + 100)

    def short(descriptor: int, buffers: Sequence[Any]) -> int:
        return os.write(descriptor, buffers[0][:most])

    FileWriter(tmp_path, write=short).replace(tmp_path / "large", [body, b"tail"])
    assert (tmp_path / "large").read_bytes() == bytes(body) + b"tail"


def test_where_the_cache_cannot_be_passed_it_is_used(tmp_path: Path) -> None:
    body, refused = pages(4 << 20), list[int]()

    def refuse_once(descriptor: int, buffers: Sequence[Any]) -> int:
        if not refused:
            refused.append(descriptor)
            raise OSError(errno.EINVAL, "no such writes here")
        return os.writev(descriptor, buffers)

    FileWriter(tmp_path, write=refuse_once).replace(tmp_path / "large", [body])
    assert (tmp_path / "large").read_bytes() == bytes(body)


def test_a_disk_that_is_full_past_the_cache_leaves_nothing(tmp_path: Path) -> None:
    def full(descriptor: int, buffers: Sequence[Any]) -> int:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(DiskFullError):
        FileWriter(tmp_path, write=full).replace(tmp_path / "large", [pages(4 << 20)])
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


def test_a_root_that_has_gone_is_not_made_again(tmp_path: Path) -> None:
    """Where a mount has gone, a folder of its name would take what others never see."""
    root = tmp_path / "mount"
    root.mkdir()
    writer = FileWriter(root)
    writer.replace(root / "deep" / "er" / "file", [b"text"])
    assert (root / "deep" / "er" / "file").read_bytes() == b"text"
    root.rename(tmp_path / "gone")
    with pytest.raises(StoreError):
        writer.replace(root / "deep" / "er" / "file", [b"text"])
    assert not root.exists()
