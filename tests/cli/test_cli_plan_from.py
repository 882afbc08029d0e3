"""``tartan plan --from`` and ``--chart``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors import Vectors


@pytest.fixture
def run(tmp_path: Path) -> Any:
    rows = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    return tartan.allpairs(Vectors(), rows, tmp_path / "run", quiet=True, host_cache="12items")


@pytest.mark.slow
def test_the_command_prints_what_was_measured_and_predicted(run: Any, command: Callable[..., Any]) -> None:
    outcome = command("plan", "--from", run.path, "--items", 160)
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"{run.path}; needs at most ")
    assert [line.split()[0] for line in lines[2:]] == ["measured", "replayed", "predicted"]
    assert [line.split()[2] for line in lines[2:]] == ["780", "780", "12,720"]
    found = json.loads(command("plan", "--from", run.path, "--host-cache", "20items", "--json").out)
    assert found["measured"]["loads"] == found["replayed"]["loads"] == run.stats["loads"]
    assert found["predicted"]["loads"] < found["replayed"]["loads"]
    assert found["memory_need"]["bytes"] > 0
    assert json.loads(command("plan", "--from", run.path, "--json").out)["predicted"] is None


@pytest.mark.slow
def test_the_command_draws_efficiency(run: Any, command: Callable[..., Any], tmp_path: Path) -> None:
    outcome = command("plan", "--from", run.path, "--chart", tmp_path / "c.svg", "--workers", 1)
    assert outcome.status == 0
    assert "efficiency by cache size" in outcome.out
    assert (tmp_path / "c.svg").read_text().count("<circle") == 1
    assert command("plan", "--from", run.path, "--chart", tmp_path / "c.pdf").status == 2
    assert not (tmp_path / "c.pdf").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--items", "9"], "change a finished run: give --from RUN"),
        (["forensics", "--from", "RUN"], "takes one run and no plans"),
        (["--from", "RUN", "--chart", "c.svg", "--items", "9"], "--chart varies the cache"),
        (["--from", "RUN", "--host-cache", "few"], "--host-cache: 'few' is not a size"),
        (["--from", "RUN", "--host-cache", "1items"], "it has room for 1 items"),
        (["--from", "absent"], "absent"),
        (["million", "--chart", "c.svg"], "has several nodes; --chart is for plans of one"),
    ],
)
def test_words_that_do_not_fit_are_named(words: list[str], says: str, run: Any, command: Callable[..., Any]) -> None:
    outcome = command("plan", *[str(run.path) if word == "RUN" else word for word in words])
    assert outcome.status != 0
    assert says in outcome.err
