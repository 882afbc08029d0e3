"""Files of the user's: whole or absent, and a refusal of the system said in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tartan.errors import DiskFullError, StoreError
from tartan.store.files import whole_file


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


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
