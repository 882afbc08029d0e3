"""Files of the user's: whole or absent, and a refusal of the system said in words."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tartan.base import files
from tartan.base.files import FileWriter, whole_file
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


@pytest.mark.parametrize(("n_files", "one_by_one"), [(files.MANY_FILES - 1, True), (files.MANY_FILES, False)])
def test_many_files_are_synced_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_files: int, one_by_one: bool
) -> None:
    synced: list[Path] = []
    whole: list[Path] = []
    monkeypatch.setattr(files, "_sync_path", synced.append)
    monkeypatch.setattr(files, "_sync_file_system", lambda path: whole.append(path) or True)
    writer = FileWriter(tmp_path)
    for number in range(n_files):
        writer.replace(tmp_path / str(number), [b"x"])
    assert writer.sync() == n_files
    assert len(synced) == (n_files + 1 if one_by_one else 0)  # the folder too
    assert len(whole) == (0 if one_by_one else 1)
    assert writer.sync() == 0


def test_where_a_file_system_cannot_be_synced_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "_sync_path", synced.append)
    monkeypatch.setattr(files, "MANY_FILES", 0)
    monkeypatch.setattr(files, "_sync_file_system", lambda path: False)
    writer = FileWriter(tmp_path)
    writer.replace(tmp_path / "a", [b"x"])
    writer.sync()
    assert synced == [tmp_path / "a", tmp_path]


def test_a_folder_that_vanished_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        files._sync_file_system(tmp_path / "none")


@pytest.mark.parametrize("code", [0, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EIO])
def test_what_the_system_says_of_syncing_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A system without the call is asked file by file; one that cannot write is believed."""

    class Library:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def syncfs(self, descriptor: int) -> int:
            ctypes.set_errno(code)
            return -1 if code else 0

    monkeypatch.setattr(ctypes, "CDLL", Library)
    if code in (errno.ENOSPC, errno.EIO):
        with pytest.raises(DiskFullError if code == errno.ENOSPC else StoreError):
            files._sync_file_system(tmp_path)
    else:
        assert files._sync_file_system(tmp_path) == (code == 0)
