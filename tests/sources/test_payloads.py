"""What workers get of items: local files as such, everything else read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tartan.errors import ItemError
from tartan.sources.files import ListedFile
from tartan.sources.items import Source, join_sources, open_source, payload_of


@contextmanager
def elsewhere(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def local(source: Source, index: int = 0) -> ListedFile:
    source.fingerprints()
    found = pickle.loads(pickle.dumps(payload_of(source, index, files=True)))
    assert isinstance(found, ListedFile)
    return found


def test_a_file_is_found_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one")
    file = local(open_source("a.txt"))
    with elsewhere(Path("/")):
        assert file.read() == b"one"
    assert (file.key, file.n_bytes) == ("a.txt", 3)


def test_files_of_several_inputs_are_found(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name * 2)
    joined = join_sources(open_source(tmp_path / "a"), open_source(tmp_path / "b"))
    assert [local(joined, index).read() for index in (0, 1)] == [b"aa", b"bb"]


def test_another_file_in_its_place_is_not_read(tmp_path: Path) -> None:
    """Of the same size and time, and moved there when the worker already had its name."""
    path, other = tmp_path / "a", tmp_path / "other"
    path.write_text("one")
    other.write_text("two")
    os.utime(other, ns=(0, path.stat().st_mtime_ns))
    file = local(open_source(path))
    other.replace(path)
    with pytest.raises(ItemError, match="a: cannot be read: the file has changed since the run began"):
        file.read()


def remote(folder: Path) -> Any:
    memory = fsspec.filesystem("memory")
    memory.pipe("/payloads/a.txt", b"far")
    return open_source("memory://payloads/a.txt")


def part(folder: Path) -> Any:
    (folder / "a.txt").write_text("far near")
    return open_source(folder / "a.txt", split=lambda key, data: data.split())


def element(folder: Path) -> Any:
    return open_source([b"far", b"near"])


@pytest.mark.parametrize("source", [remote, part, element])
def test_everything_else_is_read_before(source: Any, tmp_path: Path) -> None:
    assert payload_of(source(tmp_path), 0, files=True) == b"far"


def test_threads_get_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    assert payload_of(open_source(tmp_path / "a"), 0, files=False) == b"one"
