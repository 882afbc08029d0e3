"""Files that hold several items."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from tartan.errors import ItemError
from tartan.sources.items import open_source


def lines(key: str, data: bytes) -> Sequence[bytes] | None:
    """Take the lines of a file as its items; one line is the file."""
    if b"?" in data:
        raise ItemError(f"{key}: a question")
    found = data.splitlines()
    return None if len(found) == 1 else found


def both(key: str, data: bytes, beside: bytes | None = None) -> Sequence[bytes]:
    """Take a file and the one beside it as two items."""
    return [data, beside or b"none"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"a": "1\n2\n3", "b": "4", "c": "?", "d": "5\n6"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    return tmp_path


def test_items_of_a_file_are_numbered(folder: Path) -> None:
    source = open_source(folder, split=lines)
    assert list(source.keys) == ["a.txt#0", "a.txt#1", "a.txt#2", "b.txt", "c.txt", "d.txt#0", "d.txt#1"]
    assert [source.read(index) for index in range(7)] == [b"1", b"2", b"3", b"4", b"?", b"5", b"6"]
    stamps = source.fingerprints()
    assert stamps is not None
    assert stamps[0].tolist() == [5, 5, 5, 1, 1, 3, 3]
    assert source.describe()["patterns"] == [str(folder)]


def test_a_copy_reads_the_same_items(folder: Path) -> None:
    source = open_source(folder, split=lines)
    copy = pickle.loads(pickle.dumps(source))
    assert [copy.read(index) for index in range(7)] == [source.read(index) for index in range(7)]


def test_files_are_read_once_for_all_their_items(folder: Path) -> None:
    split: list[str] = []

    def noted(key: str, data: bytes) -> Sequence[bytes] | None:
        split.append(key)
        return lines(key, data)

    source = open_source(folder / "a.txt", split=noted)
    for index in (0, 2, 1):
        source.read(index)
    assert split == ["a.txt"]


def test_a_file_that_has_changed_is_not_mixed_in(folder: Path) -> None:
    source = open_source(folder, split=lines)
    source.fingerprints()
    (folder / "a.txt").write_text("7\n8")
    with pytest.raises(ItemError, match=r"has changed since|does not hold this item any more"):
        source.read(2)
    with pytest.raises(ItemError, match="has changed since"):
        source.read(0)


def test_items_may_have_names(tmp_path: Path) -> None:
    def named(key: str, data: bytes) -> dict[str, bytes]:
        return {line[:1].decode(): line[2:] for line in data.splitlines()}

    (tmp_path / "a.txt").write_text("x=1\ny=2")
    source = open_source(tmp_path / "a.txt", split=named)
    assert list(source.keys) == ["a.txt#x", "a.txt#y"]
    assert [source.read(index) for index in (1, 0)] == [b"2", b"1"]
    (tmp_path / "a.txt").write_text("x=1\nz=2")
    with pytest.raises(ItemError, match="does not hold this item any more"):
        source.read(1)


def test_a_file_beside_another_is_read_with_it(tmp_path: Path) -> None:
    for name in ("a.dat", "a.txt", "b.dat", "c.log"):
        (tmp_path / name).write_text(name)
    source = open_source(tmp_path, suffixes=(".dat", ".log"), split=both, companions={".dat": ".txt"})
    assert list(source.keys) == ["a.dat#0", "a.dat#1", "b.dat#0", "b.dat#1", "c.log#0", "c.log#1"]
    copy = pickle.loads(pickle.dumps(source))
    assert [copy.read(index) for index in (1, 3, 5)] == [b"a.txt", b"none", b"none"]
    assert "left_out" not in source.describe()
    stamps = source.fingerprints()
    assert stamps is not None
    assert stamps[0].tolist() == [10, 10, 5, 5, 5, 5]
    (tmp_path / "a.txt").write_text("another")
    (tmp_path / "b.txt").write_text("new")
    assert source.read(5) == b"none"
    for changed in (0, 2):
        with pytest.raises(ItemError, match="has changed since"):
            source.read(changed)
