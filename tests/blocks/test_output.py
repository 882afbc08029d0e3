"""Outputs are whole or absent, whenever the command is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tartan import blocks
from tartan.blocks.spill import spill_folder
from tartan.cli.main import main
from tartan.errors import StoreError


def test_overwriting_replaces_what_is_there_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old.txt").write_text("x")
    (tmp_path / "C.zarr").symlink_to("real")
    with blocks.Session(workers=1) as s:
        A = s.space(np.arange(8.0), block=2)
        with pytest.raises(StoreError, match=r"C\.zarr exists already"):
            A.to_zarr(tmp_path / "C.zarr")
        assert (tmp_path / "real" / "old.txt").exists()
        A.to_zarr(tmp_path / "C.zarr", overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "real")[:], np.arange(8.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["C.zarr", "real"]


def test_a_folder_in_which_something_stays_is_removed_by_the_next(tmp_path: Path) -> None:
    with spill_folder(tmp_path) as folder:
        late = folder / "late"
        late.mkdir()
        held = os.open(late, os.O_RDONLY)
    os.close(held)
    assert not folder.exists()
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "late").mkdir()
    with spill_folder(tmp_path):
        assert not folder.exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [[], ["--on", "local:2"]], ids=["one", "several"])
@pytest.mark.parametrize("n_chunks", [0, 1, 20, 60])
def test_a_killed_command_leaves_nothing_under_the_name_and_works_again(
    tmp_path: Path, n_chunks: int, more: list[str]
) -> None:
    a = np.random.default_rng(0).random((1000, 1000))
    np.save(tmp_path / "A.npy", a)
    words = ["blocks", "matmul", "A.npy", "A.npy", "-o", "C.zarr", "--block", "100", *more]
    command = [sys.executable, "-m", "tartan", *words]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list(tmp_path.glob(".C.zarr.unfinished/*/C.zarr/c/*/*"))) < n_chunks:
            threading.Event().wait(0.001)
        with contextlib.suppress(ProcessLookupError):  # it has ended before
            os.killpg(running.pid, signal.SIGKILL)
    if not (tmp_path / "C.zarr").exists():
        assert running.returncode == -signal.SIGKILL
        subprocess.run(command, cwd=tmp_path, check=True, stderr=subprocess.DEVNULL)
    np.testing.assert_allclose(zarr.open_array(tmp_path / "C.zarr")[:], a @ a)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A.npy", "C.zarr"]


WORDS = ["blocks", "matmul", "A.npy", "A.npy", "-o", "m/C.zarr", "--block", "100"]


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The product of ``A.npy`` with itself, in a folder with a folder ``m`` for it."""
    a = np.random.default_rng(0).random((700, 700))
    np.save(tmp_path / "A.npy", a)
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    return a @ a


@pytest.mark.slow
def test_a_full_disk_is_an_error_after_which_the_same_command_works(
    product: np.ndarray, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[int] = []
    write = zarr.Array.__setitem__

    def full_soon(self: Any, where: Any, values: Any) -> None:
        written.append(1)
        if len(written) > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, where, values)

    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "__setitem__", full_soon)
        assert main(WORDS) == 1
    said = capsys.readouterr().err
    assert "no space left on the file system of m/C.zarr; free some space and run the same command again" in said
    assert "Traceback" not in said
    assert [path.name for path in Path("m").iterdir()] == [".C.zarr.unfinished"]
    assert main(WORDS) == 0
    assert "resumed: 9 of 49 output blocks were there" in capsys.readouterr().err
    np.testing.assert_allclose(zarr.open_array("m/C.zarr")[:], product)
    assert main(WORDS) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [[], ["--on", "local:2"]], ids=["one", "several"])
def test_a_disk_that_is_full_indeed(product: np.ndarray, more: list[str]) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", "m"]
    if os.getuid() or subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        command = [sys.executable, "-m", "tartan", *WORDS, *more]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "no space left on the file system of" in done.stderr
        assert "Traceback" not in done.stderr
        assert not Path("m/C.zarr").exists()
        subprocess.run(["mount", "-o", "remount,size=20m", "m"], check=True)
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        np.testing.assert_allclose(zarr.open_array("m/C.zarr")[:], product)
    finally:
        subprocess.run(["umount", "m"], check=True)
