"""What folders leave out is counted by suffix and by subfolder, within bounds, and said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tartan.sources import left_out as module
from tartan.sources.items import open_source
from tartan.sources.left_out import count_left_out, describe_left_out


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def test_suffixes_and_subfolders_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "in/a.fa", "in/b.TXT", "in/c.txt", "in/README", "in/.d", "in/s/e.fa", "in/s/t/f.fa", "in/u/g.txt")
    (tmp_path / "in" / "s" / "loop").symlink_to(tmp_path / "in")
    found = count_left_out([f"{tmp_path}/in"], (".fa",))
    assert found == {"suffixes": {".txt": 2, "no suffix": 1}, "folders": {"in/s": 2}}
    assert describe_left_out([{"left_out": found}, {}]) == (
        "3 files of other suffixes (2 .txt, 1 no suffix) and 2 files in subfolders (2 in/s), which a glob such as "
        "'in/**/*' takes"
    )
    assert count_left_out([f"{tmp_path}/in"], ()) == {"folders": {"in/s": 2, "in/u": 1}}
    assert count_left_out([f"{tmp_path}/in/*.fa", f"{tmp_path}/in/u/g.txt", "https://x.org/in/"], (".fa",)) == {}
    assert describe_left_out([{}]) == ""


def test_many_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(f"in/a.s{number}" for number in range(15)), *(f"in/s/{number}" for number in range(30)))
    found = count_left_out([f"{tmp_path}/in"], (".fa",))
    assert len(found["suffixes"]) == module.MOST_NAMED + 1
    assert found["suffixes"][module.OTHERS] == 5
    monkeypatch.setattr(module, "MOST_ENTRIES", 1)
    write(tmp_path, "in/s/t/deep")
    assert count_left_out([f"{tmp_path}/in"], ())["folders"] == {"in/s": 30}


def test_a_source_of_files_describes_it(tmp_path: Path) -> None:
    write(tmp_path, "in/a.fa", "in/b.fa", "in/c.txt")
    source = open_source(f"{tmp_path}/in", suffixes=(".fa",))
    assert source.describe()["left_out"] == {"suffixes": {".txt": 1}}
    assert "left_out" not in open_source(f"{tmp_path}/in/*.fa").describe()
