"""Lists of inputs: in files and on standard input."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tartan.cli.main import main
from tartan.cli.shared.inputs import read_inputs
from tartan.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.fna", "b c.fna", "lists/beside.fna"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(">1\n" + "GATTACATTGCA" * 9)
    return tmp_path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n \n"])
def test_a_list_has_a_name_a_line(folder: Path, end: str) -> None:
    (folder / "list.txt").write_bytes(("\ufeff" + end.join(["a.fna", "b c.fna", "*.fna", "s3://bucket/x"])).encode())
    assert read_inputs(["x.fna", "@list.txt"]) == ["x.fna", "a.fna", "b c.fna", "*.fna", "s3://bucket/x"]


def test_names_come_on_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.fna\nb c.fna")))
    assert read_inputs(["-"]) == ["a.fna", "b c.fna"]


def test_a_name_may_lie_beside_the_list(folder: Path) -> None:
    (folder / "lists/list").write_text("a.fna\nbeside.fna\n")
    assert read_inputs(["@lists/list"]) == ["a.fna", "lists/beside.fna"]


def test_a_file_may_be_called_as_a_list(folder: Path) -> None:
    (folder / "@a").write_text("a.fna")
    assert read_inputs(["@a", "@", "./@a"]) == ["@a", "@", "./@a"]


def test_names_need_not_be_utf8(folder: Path) -> None:
    name = os.fsdecode(b"\xe4.fna")
    (folder / name).write_text(">1\nA")
    (folder / "list").write_bytes(b"\xe4.fna\n")
    assert read_inputs(["@list"]) == [name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a.fna\n\nmissing.fna\n", r"list, line 3: 'missing.fna': No such file"),
        (b"\n \r\n", "list names no inputs; write one name a line"),
        (b"a\0b\n", "list, line 1: it holds a zero byte"),
    ],
)
def test_a_bad_list_says_where(folder: Path, text: bytes, reason: str) -> None:
    (folder / "list").write_bytes(text)
    with pytest.raises(ConfigError, match=reason):
        read_inputs(["@list"])


def test_a_missing_list_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"list 'none.txt': No such file or directory; @FILE stands for a list"):
        read_inputs(["@none.txt"])


def test_runs_take_lists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "old").write_text("a.fna\nb c.fna\n")
    (folder / "new").write_text("lists/beside.fna\n")
    settings = ["--set", "scaled=1", "--set", "k=7"]
    assert main(["run", "genomes", "@old", "-o", "r.tartan", "-q", *settings]) == 0
    assert main(["add", "r.tartan", "@new", "-q"]) == 0
    assert main(["run", "genomes", "@old", "--against", "@new", "-o", "s.tartan", "-q", *settings]) == 0
    capsys.readouterr()
    assert main(["neighbors", "r.tartan", "-k", "1"]) == 0
    assert "beside.fna\t1\ta.fna\t1" in capsys.readouterr().out
