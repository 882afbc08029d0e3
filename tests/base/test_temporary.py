"""Unfinished files: every writer has names of its own, and what a dead one left is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tartan.base.files import FileWriter, remove_abandoned, whole_file
from tartan.base.temporary import SILENT_SECONDS, is_abandoned, temporary_names


def writer_of(name: str) -> str:
    return name.rpartition("-")[0]


def name_of(*, host: str | None = None, pid: int | None = None) -> str:
    """Return a name as another writer would give it."""
    its_host, its_pid, token = writer_of(next(temporary_names())).rsplit(".", 2)
    return f"{host or its_host}.{its_pid if pid is None else pid}.{token}-0"


@pytest.fixture(scope="module")
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_two_writers_of_one_process_never_share_a_name() -> None:
    one, other = temporary_names(), temporary_names()
    names = [next(names) for names in (one, other) for _ in range(3)]
    assert len(set(names)) == 6
    assert len({writer_of(name) for name in names}) == 2
    assert f".{os.getpid()}." in names[0]


@pytest.mark.parametrize("name", ["123-4", "1-1", "tmp-1-1", "anything"])
def test_what_has_another_name_is_never_abandoned(name: str) -> None:
    assert not is_abandoned(name, 1e9)


def test_the_process_of_this_host_is_asked(dead_pid: int) -> None:
    assert is_abandoned(name_of(pid=dead_pid), 0.0)
    assert not is_abandoned(name_of(pid=os.getppid()), 1e9)


@pytest.mark.parametrize("name", [name_of(host="elsewhere"), name_of()], ids=["other host", "this process"])
def test_who_cannot_be_asked_is_gone_after_a_while(name: str) -> None:
    assert not is_abandoned(name, SILENT_SECONDS / 2)
    assert is_abandoned(name, SILENT_SECONDS)


def test_a_folder_keeps_the_files_of_writers_that_live(tmp_path: Path, dead_pid: int) -> None:
    writer = FileWriter(tmp_path)
    living, silent = name_of(host="elsewhere"), name_of(host="elsewhere")
    left = tmp_path / "tmp"
    others = ["123-4", "thesis.tex", f".{silent}", f"{silent}.tex"]
    for name in (living, silent, name_of(pid=dead_pid), *others):
        (left / name).write_bytes(b"half")
        os.utime(left / name, (0, 0))
    (left / "folder").mkdir()
    os.utime(left / living)
    writer.clear_temporary()
    assert {path.name for path in left.iterdir()} == {living, "folder", *others}


def test_clearing_while_another_writes_loses_nothing(tmp_path: Path) -> None:
    one, other = FileWriter(tmp_path), FileWriter(tmp_path)
    with one.new_file(tmp_path / "result") as unfinished:
        unfinished.write(b"who")
        unfinished.flush()
        other.clear_temporary()
        unfinished.write(b"le")
    assert (tmp_path / "result").read_bytes() == b"whole"


def test_what_killed_processes_left_beside_a_file_is_removed_by_the_next(tmp_path: Path, dead_pid: int) -> None:
    dead, folder = f".old.csv.{name_of(pid=dead_pid)}.tmp", f".f.{name_of(pid=dead_pid)}.tmp"
    living = [f".a.csv.{name_of(pid=os.getppid())}.tmp", f".a.csv.{name_of(host='elsewhere')}.tmp"]
    others = [".bashrc", ".notes.tmp", f"{name_of(pid=dead_pid)}.tmp", f".a.{name_of(pid=dead_pid)}", f"{dead}.txt"]
    for name in (dead, *living, *others):
        (tmp_path / name).write_text("x")
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "file").write_text("x")
    with whole_file(tmp_path / "new.csv") as temporary:
        temporary.write_text("whole")
        assert {path.name for path in tmp_path.iterdir()} == {*living, *others, temporary.name}
    assert {path.name for path in tmp_path.iterdir()} == {*living, *others, "new.csv"}
    os.utime(tmp_path / living[1], (1, 1))
    remove_abandoned(tmp_path, ".", ".tmp")
    assert {path.name for path in tmp_path.iterdir()} == {living[0], *others, "new.csv"}
    remove_abandoned(tmp_path / "absent", ".")
