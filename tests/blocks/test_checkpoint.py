"""Checkpoints: a session that begins where another one was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan import blocks
from tartan.errors import ConfigError, StoreError


def add(own: np.ndarray) -> None:
    own += 1


def step(session: blocks.Session, space: blocks.Space, function: Any = add) -> None:
    session.run(blocks.Task(function, space.grid, lambda *k: space.update[space.block(*k)], releases_gil=True))


def test_a_session_begins_where_another_one_was(tmp_path: Path) -> None:
    tmp_path /= "new"
    with blocks.Session(workers=1, folder=tmp_path) as session:
        A = session.space(np.arange(12.0).reshape(3, 4), block=2)
        session.space(shape=5, dtype="i4", block=3)
        for done in range(3):
            step(session, A)
            session.checkpoint(done=done)
        step(session, A)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
    with blocks.resume(tmp_path, workers=1) as session:
        A, B = session.spaces[0], session.spaces[1]
        assert session.notes == {"done": 2}
        np.testing.assert_array_equal(A.array(), np.arange(12.0).reshape(3, 4) + 3)
        assert (A.blocks.block, B.dtype, B.shape) == ((2, 2), np.dtype("i4"), (5,))
        step(session, A)
        session.checkpoint(done=3)
    with blocks.resume(tmp_path, workers=1) as session:
        np.testing.assert_array_equal(session.spaces[0].array(), np.arange(12.0).reshape(3, 4) + 4)


def test_a_resumed_session_continues_after_its_own_checkpoints(tmp_path: Path) -> None:
    with blocks.Session(workers=1, folder=tmp_path) as session:
        A, _ = session.space(np.zeros((3, 4)), block=2), session.space(np.ones(5), block=2)
        step(session, A)
        session.checkpoint()
    with blocks.resume(tmp_path, workers=1) as session:
        for done in range(2):
            session.checkpoint(done=done)
            step(session, session.spaces[0])
            step(session, session.spaces[1])
        np.testing.assert_array_equal(session.spaces[1].array(), np.full(5, 3.0))
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
    with blocks.resume(tmp_path, workers=1) as session:
        np.testing.assert_array_equal(session.spaces[0].array(), np.full((3, 4), 2.0))


@pytest.mark.slow
def test_code_is_the_same_in_every_process() -> None:
    program = (
        "from tartan.blocks.checkpoint import code_of\n"
        "print(code_of(lambda name: name in {'alpha', 'beta', 'gamma', 'delta', 'epsilon'}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1


def test_a_checkpoint_of_other_code(tmp_path: Path) -> None:
    with blocks.Session(workers=1, folder=tmp_path) as session:
        A = session.space(np.zeros(4), block=2)
        step(session, A)
        session.checkpoint()

    def other(own: np.ndarray) -> None:
        own += 2

    other.__qualname__ = add.__qualname__
    with blocks.resume(tmp_path, workers=1) as session:
        with pytest.raises(ConfigError, match="not what it was"):
            step(session, session.spaces[0], other)
        step(session, session.spaces[0])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a folder with a checkpoint, beside files of the user."""
    folder = tmp_path / "session"
    with blocks.Session(workers=1, folder=folder) as session:
        session.space(np.zeros(4), block=2)
        session.checkpoint()
    np.save(tmp_path / "private.npy", np.full(4, 42.0))
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "0.npy").write_text("precious")
    (tmp_path / "victim.txt").write_text("precious")
    return folder


@pytest.mark.parametrize(
    "name",
    ["PRIVATE", "../private.npy", "checkpoint-1/../../private.npy", "checkpoint-1/x.npy", "checkpoint-1", "", "/"],
)
def test_a_checkpoint_names_only_its_own_files(written: Path, name: str) -> None:
    about = json.loads((written / "checkpoint.json").read_text())
    about["spaces"][0]["file"] = str(written.with_name("private.npy")) if name == "PRIVATE" else name
    (written / "checkpoint.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match="not a checkpoint that can be read: it names") as caught:
        blocks.resume(written, workers=1)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("name", ["checkpoint.json", "checkpoint-1", "checkpoint-1/0.npy"])
def test_a_checkpoint_is_not_read_through_links(written: Path, name: str) -> None:
    away = written.with_name("away")
    (written / name).rename(away)
    (written / name).symlink_to(away)
    with pytest.raises(StoreError, match=f"{name} is a symbolic link") as caught:
        blocks.resume(written, workers=1)
    assert caught.value.code == "link"


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("checkpoint.json", "victim.txt"),
        ("checkpoint.json.new", "victim.txt"),
        ("checkpoint-2", "victim"),
        ("checkpoint-7", "victim"),
    ],
)
def test_a_checkpoint_is_not_written_through_links(written: Path, name: str, behind: str) -> None:
    (written / name).unlink(missing_ok=True)
    (written / name).symlink_to(written.with_name(behind))
    with blocks.Session(workers=1, folder=written) as session:
        session.space(np.zeros(4), block=2)
        with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
            session.checkpoint()
        (written / name).unlink()
        session.checkpoint()
    assert (written.with_name("victim") / "0.npy").read_text() == "precious"
    assert written.with_name("victim.txt").read_text() == "precious"


def test_only_checkpoints_are_removed(written: Path) -> None:
    (written / "checkpoint-notes").mkdir()
    (written / "checkpoint-1" / "thesis.tex").write_text("precious")
    with blocks.Session(workers=1, folder=written) as session:
        session.space(np.zeros(4), block=2)
        session.checkpoint()
    assert sorted(str(path.relative_to(written)) for path in written.rglob("*")) == [
        "checkpoint-1",
        "checkpoint-1/thesis.tex",
        "checkpoint-2",
        "checkpoint-2/0.npy",
        "checkpoint-notes",
        "checkpoint.json",
    ]


def test_checkpoints_that_cannot_be(tmp_path: Path) -> None:
    with blocks.Session(workers=1) as session, pytest.raises(ConfigError, match="no folder"):
        session.checkpoint()
    with blocks.Session(workers=1, folder=tmp_path) as session, pytest.raises(ConfigError, match="plain values"):
        session.checkpoint(what=np.zeros(3))
    with pytest.raises(StoreError, match="no checkpoint"):
        blocks.resume(tmp_path)
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(StoreError, match="not a checkpoint that can be read"):
        blocks.resume(tmp_path)
    (tmp_path / "checkpoint.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(StoreError, match="format 99"):
        blocks.resume(tmp_path)
