"""``--log-level`` and ``--log-file``: what a command says of itself, where, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tartan.errors import StoreError

RUN = ("run", "vectors", "x.npy", "-o", "r", "-q")


def said(text: str) -> list[str]:
    """Return the lines of a log without their times."""
    return [re.sub(r"^\S+ \S+Z ", "", line) for line in text.splitlines()]


def test_nothing_is_said_without_the_options(command: Callable[..., Any], api: Any) -> None:
    assert command(*RUN).err == ""


def test_a_level_alone_goes_to_stderr(command: Callable[..., Any], api: Any) -> None:
    begins, ends = said(command(*RUN, "--log-level", "INFO").err)
    assert re.fullmatch(r"INFO driver tartan\.cli: run begins: Tartan \S+ on \S+, process \d+", begins)
    assert re.fullmatch(r"INFO driver tartan\.cli: run has ended after .* s", ends)


@pytest.mark.parametrize("words", [(), ("--log-level", "debug")])
def test_a_file_takes_it_all(command: Callable[..., Any], api: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "log"
    assert command(*RUN, "--log-file", file, *words).err == ""
    assert command(*RUN, "--log-file", file, *words).err == ""
    assert [line.split()[4] for line in said(file.read_text())] == ["begins:", "has", "begins:", "has"]


def test_the_reason_of_a_failure_is_there(command: Callable[..., Any], api: Any, tmp_path: Path) -> None:
    api.raises = StoreError("x\x1b[31m is broken")
    shown = command(*RUN, "--log-file", tmp_path / "log", "--log-level", "warning")
    assert shown.status == 1
    assert said((tmp_path / "log").read_text()) == [
        "ERROR driver tartan.cli: run ends: StoreError: x\\x1b[31m is broken"
    ]


@pytest.mark.parametrize(
    ("name", "reason"), [("folder", "directory"), ("none/log", "No such file"), ("a.jpg", "not a log")]
)
def test_what_is_no_file_for_it_is_wrong_use(
    command: Callable[..., Any], api: Any, tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    shown = command(*RUN, "--log-file", tmp_path / name)
    assert shown.status == 2
    assert shown.err.startswith(f"tartan: error: --log-file {tmp_path / name} cannot be written: ")
    assert reason in shown.err
    assert api.calls == []


def test_other_levels_are_refused(command: Callable[..., Any], api: Any) -> None:
    shown = command(*RUN, "--log-level", "loud")
    assert shown.status == 2
    assert "invalid choice: 'loud'" in shown.err
