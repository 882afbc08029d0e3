"""The key of a user: made once, private, and no key where others could have had it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tartan.base.keys import KEY_BYTES, key_path, same_seal, seal, user_key


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the key of a new user will lie."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = key_path()
    assert path is not None
    return path


def test_a_key_is_made_once_and_is_private(place: Path) -> None:
    assert user_key(create=False) is None
    assert not place.exists()
    key = user_key()
    assert key is not None
    assert len(key) == KEY_BYTES
    assert user_key() == key == user_key(create=False)
    assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [entry.name for entry in place.parent.iterdir()] == ["key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_key_that_others_can_reach_is_none(place: Path, mode: int) -> None:
    user_key()
    place.chmod(mode)
    assert user_key() is None


def test_a_link_a_pipe_and_a_torn_file_are_no_key(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(KEY_BYTES))
    other.chmod(0o600)
    place.parent.mkdir(parents=True)
    place.symlink_to(other)
    assert user_key() is None
    place.unlink()
    os.mkfifo(place, 0o600)
    assert user_key() is None
    place.unlink()
    for size in (0, KEY_BYTES - 1, KEY_BYTES + 1):
        place.write_bytes(bytes(size))
        place.chmod(0o600)
        assert user_key() is None
        place.unlink()


def test_a_home_that_cannot_hold_a_key_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert user_key() is None
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # to be ignored, says its specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_path() == tmp_path / ".local/state/tartan/key"


@pytest.mark.slow
def test_processes_that_start_together_agree(place: Path) -> None:
    program = "from tartan.base.keys import user_key; import sys; sys.stdin.read(); print(user_key().hex())"
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    found = set()
    for child in children:
        assert child.stdout is not None
        with child.stdout:
            found.add(child.stdout.read().strip())
        child.wait()
    key = user_key()
    assert key is not None
    assert found == {key.hex()}


def test_a_seal_tells_keys_purposes_and_parts_apart() -> None:
    seals = {
        seal(key, purpose, parts)
        for key in (b"a" * 32, b"b" * 32)
        for purpose in ("one", "two")
        for parts in ([b"xy"], [b"x", b"y"], [b"xy", b""], [])
    }
    assert len(seals) == 16
    assert same_seal(next(iter(seals)), next(iter(seals)))
    for other in (None, 3, "", "é", b"x"):
        assert not same_seal(other, next(iter(seals)))


def test_a_user_without_a_home_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "somewhere")
    assert key_path() is None
    assert user_key() is None


def test_a_file_system_without_links_keeps_a_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    key = user_key()
    assert key is not None
    assert user_key(create=False) == key
    assert [entry.name for entry in place.parent.iterdir()] == ["key"]
