"""A command that was killed, stopped or failed goes on where it was, and its output has the same bytes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tartan.base.lock import FolderLock
from tartan.blocks.applications.matmul import Multiply
from tartan.blocks.unfinished import AsideFolder
from tartan.blocks.zarr_output import WriteChunk
from tartan.cli.main import main
from tartan.core.blocks.output_record import chunks_in
from tartan.errors import StoreError

ASIDE = ".C.zarr.unfinished"
RANKS = ["--on", "local:2"]
COMMANDS = {
    "matmul": ["matmul", "A.npy", "B.npy", "--block", "16"],
    "parts": ["matmul", "A.npy", "B.npy", "--block", "16", "--host-cache", "45kB"],
    "convolve": ["convolve", "A.npy", "K.npy", "K.npy", "K.npy", "--block", "16", "--boundary", "reflect"],
    "lu": ["lu", "A.npy", "--block", "16"],
    "pagerank": ["pagerank", "edges.npy", "--block", "8"],
}


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays in the current folder."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "A.npy", rng.standard_normal((100, 100)) + 100 * np.eye(100))
    np.save(tmp_path / "B.npy", rng.standard_normal((100, 70)) * (np.arange(70) < 40))  # some chunks are zeros
    np.save(tmp_path / "K.npy", np.ones((3, 3)) / 9)
    np.save(tmp_path / "edges.npy", rng.integers(0, 60, (200, 2)))
    monkeypatch.chdir(tmp_path)


def run(name: str, out: str = "C.zarr", *more: str) -> int:
    return main(["blocks", *COMMANDS[name], "-o", out, "--workers", "1", *more])


def contents(folder: str) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def stop_after(n_chunks: int, patch: pytest.MonkeyPatch, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Have the writing of chunks fail from one on."""
    written: list[int] = []
    write = zarr.Array.__setitem__

    def stopping(self: Any, where: Any, values: Any) -> None:
        written.append(1)
        if len(written) > n_chunks:
            raise error
        write(self, where, values)

    patch.setattr(zarr.Array, "__setitem__", stopping)


def left_by(name: str, n_chunks: int = 9) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(n_chunks, patch, RuntimeError)
        assert run(name) != 0


def n_multiplied(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each product of blocks."""
    calls: list[int] = []
    multiply = Multiply.__call__

    def counting(self: Multiply, a: np.ndarray, b: np.ndarray, c: np.ndarray, xp: Any) -> None:
        calls.append(1)
        multiply(self, a, b, c, xp)

    patch.setattr(Multiply, "__call__", counting)
    return calls


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_written_is_not_computed_again_and_the_bytes_are_the_same(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "whole.zarr") == 0
    left_by(name, 5)
    assert re.search(r"keeps 5 of \d+ output blocks; the same command goes on with them", capsys.readouterr().err)
    assert not Path("C.zarr").exists()
    assert run(name) == 0
    assert re.search(r"resumed: 5 of \d+ output blocks were there", capsys.readouterr().err)
    assert contents("C.zarr") == contents("whole.zarr")
    assert not Path(ASIDE).exists()


def test_blocks_that_are_there_are_not_computed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left_by("matmul", 9)
    calls = n_multiplied(monkeypatch)
    seen = ["--json", "--report", "page.html"]
    capsys.readouterr()
    assert run("matmul", "C.zarr", *seen) == 0
    assert len(calls) == 7 * 5 - 9
    assert '"blocks_resumed": 9' in capsys.readouterr().out
    assert "rank 0: 26 blocks" in Path("page.html").read_text()


def test_of_filters_only_what_is_left_needs_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    left_by("convolve", 47)  # of 49: the last block of the second but last row, and the last one, need few others
    capsys.readouterr()
    assert run("convolve", "C.zarr", "--json") == 0
    subtasks = int(re.findall(r'"subtasks": (\d+)', capsys.readouterr().out)[0])
    assert 3 * 2 <= subtasks < 3 * 12


def test_of_a_device_blocks_are_written_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(9, patch, RuntimeError)
        assert run("matmul", "C.zarr", "--device", "sim") != 0
    capsys.readouterr()
    assert run("matmul", "C.zarr", "--device", "sim") == 0
    assert "resumed: 9 of 35 output blocks were there" in capsys.readouterr().err
    np.testing.assert_allclose(zarr.open_array("C.zarr")[:], np.load("A.npy") @ np.load("B.npy"))


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["torn", "changed", "gone", "line"])
def test_what_is_not_whole_is_computed_again(harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    left_by("matmul", 9)
    (record,) = Path(ASIDE).glob("*/chunks")
    # Which ones were written depends on the threads, and zeros are written as no file.
    places = (record.parent.joinpath("C.zarr", "c", *map(str, index)) for index in chunks_in(record.read_bytes()))
    chunk = next(place for place in places if place.is_file())
    (chunk.parent / "0.abc.partial").write_bytes(b"x")
    if harm == "torn":
        chunk.write_bytes(chunk.read_bytes()[:-1])
    elif harm == "changed":
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    elif harm == "gone":
        chunk.unlink()
    else:
        record.write_bytes(record.read_bytes()[:-3])
    capsys.readouterr()
    assert run("matmul") == 0
    assert "resumed: 8 of 35 output blocks were there" in capsys.readouterr().err
    assert run("matmul", "whole.zarr") == 0
    assert contents("C.zarr") == contents("whole.zarr")


def change_block() -> list[str]:
    return ["--block", "20"]


def change_bytes() -> list[str]:
    before = Path("A.npy").stat()
    np.save("A.npy", np.load("A.npy") + 1)
    os.utime("A.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    return []


def change_device() -> list[str]:
    return ["--device", "cpu"]


def change_record() -> list[str]:
    (Path(ASIDE) / "about.json").write_text("{")
    return []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (change_block, "block was 16, not 20"),
        (change_bytes, "A.npy has changed"),
        (change_device, "device has changed"),
        (change_record, "its record cannot be read"),
    ],
)
def test_another_command_begins_anew_and_says_so(change: Any, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    left_by("matmul", 9)
    more = change()
    capsys.readouterr()
    assert run("matmul", "C.zarr", *more) == 0
    said = capsys.readouterr().err
    assert "begun anew" in said
    assert why in said
    np.testing.assert_allclose(zarr.open_array("C.zarr")[:], np.load("A.npy") @ np.load("B.npy"))
    assert sorted(path.name for path in Path().iterdir()) == ["A.npy", "B.npy", "C.zarr", "K.npy", "edges.npy"]


@pytest.mark.slow
def test_a_rank_of_another_command_writes_nothing_into_this_one() -> None:
    left_by("matmul", 9)
    (record,) = Path(ASIDE).glob("*/chunks")
    late = WriteChunk(record.parent.absolute() / "C.zarr", (16, 16), Path("C.zarr"), record.absolute())
    left_by_other = main(["blocks", *COMMANDS["lu"], "-o", "C.zarr"])
    assert left_by_other == 0
    with pytest.raises(Exception, match=r"C\.zarr"):
        late(np.ones((16, 16)), (0, 0))
    assert not Path(ASIDE).exists()


def test_two_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    left_by("matmul", 9)
    with (Path(ASIDE) / "run.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        capsys.readouterr()
        assert run("matmul") == 1
        assert f"{ASIDE} is in use by process" in capsys.readouterr().err
    assert run("matmul") == 0


def test_two_at_once_are_refused_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("tartan.blocks.unfinished.FolderLock", partial(FolderLock, flock=refuse))
    one, other = AsideFolder(tmp_path / "C.zarr"), AsideFolder(tmp_path / "C.zarr")
    one.lock()
    one.open({})
    one.begin({}, {})
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        other.lock()
    one.remove()
    one.unlock()
    assert not one.path.exists()
    other.lock()
    other.unlock()


def test_links_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_by("matmul", 9)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "0").write_text("of the user")
    rows = min(Path(ASIDE).glob("*/C.zarr/c/*"))  # which block comes first is for the threads to choose
    rows.rename(tmp_path / "elsewhere")
    rows.symlink_to(mine)
    assert run("matmul") != 0
    assert "is a symbolic link" in capsys.readouterr().err
    assert [path.name for path in mine.iterdir()] == ["0"]
    Path(ASIDE).rename("other")
    Path(ASIDE).symlink_to("other")
    assert run("matmul") != 0
    assert "is not a folder of this user alone; remove it" in capsys.readouterr().err


def test_what_fails_before_its_first_block_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blocks", "matmul", "A.npy", "edges.npy", "-o", "C.zarr"]) == 2
    assert "keeps" not in capsys.readouterr().err
    assert not Path(ASIDE).exists()


def test_replaced_at_the_end_and_given_back_after_a_kill_between_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("C.zarr").mkdir()
    (Path("C.zarr") / "zarr.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(9, patch, RuntimeError)
        assert run("matmul", "C.zarr", "--overwrite") != 0
    assert (Path("C.zarr") / "zarr.json").read_text() == "{}"
    Path("C.zarr").rename(Path(ASIDE) / "before")
    assert run("lu") != 0  # what was there is there again, and this command does not replace it
    assert (Path("C.zarr") / "zarr.json").read_text() == "{}"
    assert run("matmul", "C.zarr", "--overwrite") == 0
    assert zarr.open_array("C.zarr").shape == (100, 70)
    assert not Path(ASIDE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lu", "pagerank", "parts"])
def test_programs_of_steps_go_on_after_the_last_one_that_was_saved(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "whole.zarr") == 0
    monkeypatch.setattr("tartan.blocks.unfinished.is_due", lambda since, cost: True)
    left_by(name, 0)
    (step,) = re.findall(r"keeps the values after step (\d+); the same command", capsys.readouterr().err)
    assert int(step) > 1
    assert len(list(Path(ASIDE).glob("*/step-*.npy"))) == 1
    left_by(name, 3)
    assert f"resumed: the values after step {step} were there" in capsys.readouterr().err
    assert run(name) == 0
    said = capsys.readouterr().err
    assert re.search(r"resumed: 3 of \d+ output blocks and the values after step \d+ were there", said)
    assert contents("C.zarr") == contents("whole.zarr")


@pytest.mark.slow
def test_no_space_for_a_step_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tartan.blocks.unfinished.is_due", lambda since, cost: cost < 1e9)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert run("lu") == 0
    assert not Path(ASIDE).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "n_chunks", "more"),
    [
        (signal.SIGKILL, 7, []),
        *(pytest.param(signal.SIGKILL, n, [], marks=pytest.mark.exhaustive) for n in (0, 1, 15, 20)),
        *(pytest.param(signal.SIGKILL, n, RANKS, marks=pytest.mark.exhaustive) for n in (1, 9, 19)),
        *(pytest.param(how, 7, [], marks=pytest.mark.exhaustive) for how in (signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_killed_at_any_moment(how: signal.Signals, n_chunks: int, more: list[str]) -> None:
    assert run("matmul", "whole.zarr") == 0
    words = [sys.executable, "-m", "tartan", "blocks", *COMMANDS["matmul"], *more, "-o", "C.zarr"]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list(Path(ASIDE).glob("*/C.zarr/c/*/*"))) < n_chunks:
            threading.Event().wait(0.0005)
        with contextlib.suppress(ProcessLookupError):  # it has ended before
            os.killpg(running.pid, how)
    if running.returncode:
        assert not Path("C.zarr").exists()
        done = subprocess.run(words, check=True, stderr=subprocess.PIPE, text=True)
        assert n_chunks < 2 or "resumed" in done.stderr
    assert contents("C.zarr") == contents("whole.zarr")
    assert not Path(ASIDE).exists()
