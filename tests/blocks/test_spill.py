"""Folders for what does not fit into memory: those of dead processes go, those of living ones stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tartan.blocks.spill import remove_abandoned, spill_folder


def test_a_folder_lasts_as_long_as_it_is_used(tmp_path: Path) -> None:
    with spill_folder(tmp_path) as one, spill_folder(tmp_path) as other:
        (one / "values").write_bytes(b"1")
        remove_abandoned(tmp_path)
        assert one != other
        assert (one / "values").read_bytes() == b"1"
        assert other.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_folder_of_a_killed_process_goes(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from tartan.blocks.spill import spill_folder
        with spill_folder({str(tmp_path)!r}) as folder:
            (folder / "values").write_bytes(b"1")
            print("there", flush=True)
            sys.stdin.read()
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.glob("*/values"))) == 1
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_such_folder_stays(tmp_path: Path) -> None:
    for name in ("other", "tartan-blocks-old", "tartan-blocks-examples"):
        (tmp_path / name).mkdir()
    (tmp_path / "tartan-blocks-examples" / "lock").touch()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "lock").touch()
    link = tmp_path / "tartan-blocks-elsewhere.1.00000000-0"
    link.symlink_to(tmp_path / "target")
    before = {path.name for path in tmp_path.rglob("*")}
    with spill_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in tmp_path.rglob("*")} == before
    assert link.is_symlink()
