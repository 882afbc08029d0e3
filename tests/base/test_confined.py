"""Below a confined folder everything works, and no link leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tartan.base.confined import ConfinedFolder, is_plain_name, make_private, remove_tree
from tartan.errors import ConfigError, StoreError

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    place = tmp_path / "victim"
    (place / "deep").mkdir(parents=True)
    (place / "thesis.tex").write_text("precious")
    (place / "deep" / "photo").write_text("precious")
    return place


@pytest.fixture
def folder(tmp_path: Path, victim: Path) -> ConfinedFolder:
    """Return a folder with a link to a folder, and one to a file."""
    top = tmp_path / "run"
    (top / "own").mkdir(parents=True)
    (top / "own" / "file").write_text("own")
    (top / "away").symlink_to(victim)
    (top / "file").symlink_to(victim / "thesis.tex")
    return ConfinedFolder(top)


def contents(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


THROUGH: dict[str, Callable[[ConfinedFolder, Path], object]] = {
    "open in a linked folder": lambda c, top: c.open(top / "away" / "new", NEW),
    "open a linked file": lambda c, top: c.open(top / "file", NEW),
    "append to a linked file": lambda c, top: c.open(top / "file", os.O_WRONLY | os.O_APPEND),
    "read a linked file": lambda c, top: c.read(top / "file"),
    "make a file": lambda c, top: c.new_file(top / "away" / "new"),
    "make a folder": lambda c, top: c.make_folder(top / "away" / "new"),
    "take a folder": lambda c, top: c.make_folder(top / "away", exist_ok=True),
    "make parents": lambda c, top: c.make_parents(top / "away" / "new" / "file"),
    "rename into": lambda c, top: c.move(top / "own" / "file", top / "away" / "thesis.tex"),
    "rename from": lambda c, top: c.move(top / "away" / "thesis.tex", top / "own" / "file"),
    "link into": lambda c, top: c.link(top / "own" / "file", top / "away" / "new"),
    "link from": lambda c, top: c.link(top / "away" / "thesis.tex", top / "own" / "new"),
    "renew": lambda c, top: c.renew(top / "away" / "thesis.tex"),
    "remove": lambda c, top: c.remove(top / "away" / "thesis.tex"),
    "remove a folder": lambda c, top: c.remove_folder(top / "away" / "deep"),
    "remove a tree": lambda c, top: c.remove_tree(top / "away" / "deep"),
    "list": lambda c, top: c.entries(top / "away"),
    "stat": lambda c, top: c.stat(top / "away" / "thesis.tex"),
    "require a file": lambda c, top: c.require_file(top / "file"),
    "refuse": lambda c, top: c.refuse_links(top),
}


@pytest.mark.parametrize("act", THROUGH.values(), ids=THROUGH)
def test_nothing_goes_through_a_link(
    folder: ConfinedFolder, victim: Path, act: Callable[[ConfinedFolder, Path], object]
) -> None:
    before, times = contents(victim), (victim / "thesis.tex").stat().st_mtime_ns
    with pytest.raises(StoreError, match=r"/run/(away|file) is a symbolic link, .*Remove the link") as caught:
        act(folder, folder.path)
    assert caught.value.code == "link"
    assert (contents(victim), (victim / "thesis.tex").stat().st_mtime_ns) == (before, times)
    assert (folder.path / "own" / "file").read_text() == "own"


def test_a_link_itself_may_be_removed_and_replaced(folder: ConfinedFolder, victim: Path) -> None:
    before, top = contents(victim), folder.path
    folder.move(top / "own" / "file", top / "file")
    assert (top / "file").read_text() == "own"
    (top / "own" / "inner").symlink_to(victim)
    folder.remove_tree(top / "own")
    folder.remove_tree(top / "away")
    assert [path.name for path in top.iterdir()] == ["file"]
    assert contents(victim) == before


def test_the_folder_itself_may_be_a_link_and_is_resolved_once(folder: ConfinedFolder, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder.path)
    through = ConfinedFolder(link)
    link.unlink()
    link.symlink_to(tmp_path / "victim")
    assert through.read(link / "own" / "file") == b"own"
    with through.new_file(link / "own" / "new") as file:
        file.write(b"x")
    assert (folder.path / "own" / "new").read_bytes() == b"x"


@pytest.mark.parametrize("place", ["..", "own/../../victim", "/etc/passwd"])
def test_nothing_lies_outside(folder: ConfinedFolder, place: str) -> None:
    with pytest.raises(StoreError, match="does not lie in") as caught:
        folder.read(folder.path / place)
    assert caught.value.code == "outside"


def test_what_is_written_is_a_regular_file(folder: ConfinedFolder) -> None:
    os.mkfifo(folder.path / "pipe")
    reader = os.open(folder.path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for act in (lambda place: folder.open(place, os.O_WRONLY), folder.read, folder.require_file):
        with pytest.raises(StoreError, match="is not a regular file"):
            act(folder.path / "pipe")
    os.close(reader)


def test_errors_name_the_whole_path(folder: ConfinedFolder) -> None:
    for place in (folder.path / "own" / "absent", folder.path / "absent" / "below"):
        with pytest.raises(FileNotFoundError) as caught:
            folder.read(place)
        assert str(caught.value.filename) in (str(place), str(place.parent))


def test_a_relative_path_stays_where_it_was(folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    here = ConfinedFolder(Path())
    monkeypatch.chdir("/")
    assert here.read(Path("own/file")) == b"own"
    assert [name for name, _ in here.entries(Path())] == ["away", "file", "own"]


def test_no_descriptor_stays_open(folder: ConfinedFolder) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for act in THROUGH.values():
        with pytest.raises(StoreError):
            act(folder, folder.path)
    folder.read(folder.path / "own" / "file")
    folder.entries(folder.path / "own")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_private_folder_is_of_this_user_alone(tmp_path: Path, victim: Path) -> None:
    make_private(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o755)
    make_private(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with pytest.raises(ConfigError, match=f"--tmp .*: {name} in it is not a folder of this user alone"):
            make_private(tmp_path / name, option="--tmp")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_private_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o777)
    os.chown(tmp_path / "theirs", 1002, 1002)
    with pytest.raises(ConfigError, match="theirs in it is not a folder of this user alone"):
        make_private(tmp_path / "theirs")


def test_a_tree_is_removed_without_what_it_links_to(folder: ConfinedFolder, victim: Path, tmp_path: Path) -> None:
    before = contents(victim)
    remove_tree(folder.path)
    remove_tree(folder.path)
    (tmp_path / "link").symlink_to(victim)
    remove_tree(tmp_path / "link")
    assert not folder.path.exists()
    assert contents(victim) == before


def test_names_from_a_file_stay_inside() -> None:
    assert is_plain_name("a", 2)
    assert is_plain_name("a/b", 2)
    for text in ("a/b/c", "", ".", "..", "/a", "../a", "a/..", "a\0"):
        assert not is_plain_name(text, 2), text
