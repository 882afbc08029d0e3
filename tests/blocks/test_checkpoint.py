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


def test_checkpoints_that_cannot_be(tmp_path: Path) -> None:
    with blocks.Session(workers=1) as session, pytest.raises(ConfigError, match="no folder"):
        session.checkpoint()
    with blocks.Session(workers=1, folder=tmp_path) as session, pytest.raises(ConfigError, match="plain values"):
        session.checkpoint(what=np.zeros(3))
    with pytest.raises(StoreError, match="no checkpoint"):
        blocks.resume(tmp_path)
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(StoreError, match="no checkpoint that can be read"):
        blocks.resume(tmp_path)
    (tmp_path / "checkpoint.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(StoreError, match="format 99"):
        blocks.resume(tmp_path)
