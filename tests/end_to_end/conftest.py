"""The whole program, from the outside: its Python interface, its command line in this process, and real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_program import Command, Numbers, Outcome, Start, Started, start_process

from tartan.cli.main import main


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run one command inside this process."""

    def run(*words: object) -> Outcome:
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    """Make a folder of files 000.txt, 001.txt, .. that hold the numbers 0, 1, .."""

    def make(n: int, name: str = "items", first: int = 0) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for number in range(first, first + n):
            (folder / f"{number:03}.txt").write_text(str(number))
        return folder

    return make


@pytest.fixture
def start() -> Iterator[Start]:
    """Start commands as processes; whatever is left of them at the end is killed."""
    started: list[Started] = []

    def run(*words: object, **options: Any) -> Started:
        started.append(start_process(*words, **options))
        return started[-1]

    yield run
    for one in started:
        one.end()
