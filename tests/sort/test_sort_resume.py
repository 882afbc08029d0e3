"""A sort that was killed goes on from its whole run files; what is damaged or foreign is named and sorted again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_layouts import layouts, small_layout

from tartan._native import SortJob, run_facts
from tartan.errors import RunCancelledError, SortError
from tartan.sort import SortResult, job, sort_file
from tartan.sort import engine as engine_room

LAYOUT = small_layout(8)
N = 40_000
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
from small_layouts import aborting, layouts, small_layout
from tartan.cli.main import main
with layouts(small_layout(8)), aborting(**json.loads(sys.argv.pop(1))):
    sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.bin"
    np.random.default_rng(9).integers(-(2**63), 2**63 - 1, N).tofile(path)
    return path


@pytest.fixture
def target(source: Path) -> Path:
    return source.with_name("out.bin")


def killed(source: Path, target: Path, **after: int) -> list[Path]:
    """Sort in a process that dies once that many run files or ranges are done; return the run files left."""
    words = ["sort", str(source), str(target), "--dtype", "i8", "--quiet", "--threads", "1"]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), json.dumps(after), *words], capture_output=True
    )
    assert ended.returncode in (-signal.SIGABRT, -signal.SIGKILL), ended.stderr
    assert not target.exists()
    return run_files(target)


def run_files(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f"{target.name}.tartan-sort-*/run-*.trun"))


def finish(source: Path, target: Path, **options: Any) -> SortResult:
    with layouts(LAYOUT):
        result = sort_file(source, target, dtype="i8", **options)
    assert np.array_equal(np.fromfile(target, "i8"), np.sort(np.fromfile(source, "i8")))
    return result


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("after", [{"runs": 1}, {"runs": 4}, {"ranges": 1}, {"ranges": 3}])
def test_after_a_kill_no_whole_run_file_is_sorted_again(source: Path, target: Path, after: dict[str, int]) -> None:
    left = killed(source, target, **after)
    assert len(left) >= after.get("runs", 1)
    whole = sum(run_facts(str(path))["records"] for path in left)
    result = finish(source, target)
    assert result.run_files_adopted == len(left)
    read_again = result.edges["source_read"].n_bytes
    if "ranges" in after:
        assert read_again == 0
    else:
        assert read_again == 8 * (N - whole) > 0
    assert result.notes == ()
    assert left_in(target.parent) == {"in.bin", "out.bin"}


@pytest.mark.slow
def test_several_kills_in_a_row(source: Path, target: Path) -> None:
    counts = [len(killed(source, target, runs=2)) for _ in range(3)]
    assert counts == sorted(set(counts))  # each one leaves more
    assert finish(source, target).run_files_adopted == counts[-1]


class TestWhatIsLeft:
    """Of a job that was stopped between its phases, so that nothing needs a process."""

    @pytest.fixture
    def left(self, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        with monkeypatch.context() as patch:
            patch.setattr(job.Destination, "begin", stop)
            with layouts(small_layout(8, fan_in=32)), pytest.raises(RunCancelledError):
                sort_file(source, target, dtype="i8")
        files = run_files(target)
        assert len(files) > 1
        return files

    def test_is_used(self, source: Path, target: Path, left: list[Path]) -> None:
        assert finish(source, target).run_files_adopted == len(left)

    def test_can_be_read_by_this_user_alone(self, source: Path, target: Path, left: list[Path]) -> None:
        source.with_name("plain").touch()
        assert {path.stat().st_mode & 0o777 for path in left} == {0o600}
        finish(source, target)
        assert target.stat().st_mode == source.with_name("plain").stat().st_mode

    def test_is_not_used_when_asked_so(self, source: Path, target: Path, left: list[Path]) -> None:
        result = finish(source, target, resume=False)
        assert (result.run_files_adopted, result.notes) == (0, ())

    @pytest.mark.parametrize("place", ["begin", "end", "cut off", "empty"])
    def test_damage_that_shows_at_once(self, source: Path, target: Path, left: list[Path], place: str) -> None:
        content = bytearray(left[0].read_bytes())
        at = {"begin": 9, "end": len(content) - 9}.get(place)
        if at is None:
            content = content[: len(content) // 2 if place == "cut off" else 0]
        else:
            content[at] ^= 0x10
        left[0].write_bytes(content)
        result = finish(source, target)
        assert result.run_files_adopted == len(left) - 1
        assert any(str(left[0]) in note and "sorted again" in note for note in result.notes)

    def test_damage_that_shows_while_merging(self, source: Path, target: Path, left: list[Path]) -> None:
        content = bytearray(left[1].read_bytes())
        content[5000] ^= 0x10
        left[1].write_bytes(content)
        result = finish(source, target)
        assert any(str(left[1]) in note and "sorted again" in note for note in result.notes)
        assert left_in(target.parent) == {"in.bin", "out.bin"}

    def test_a_changed_source_makes_it_worthless(self, source: Path, target: Path, left: list[Path]) -> None:
        np.random.default_rng(10).integers(-9, 9, N).tofile(source)
        result = finish(source, target)
        assert result.run_files_adopted == 0
        assert len(result.notes) == len(left)
        assert all("other sources" in note for note in result.notes)

    def test_another_key_makes_it_worthless(self, source: Path, target: Path, left: list[Path]) -> None:
        with layouts(LAYOUT):
            result = sort_file(source, target, dtype="i8", descending=True)
        assert result.run_files_adopted == 0
        assert np.array_equal(np.fromfile(target, "i8"), np.sort(np.fromfile(source, "i8"))[::-1])

    def test_foreign_run_files_are_set_aside(self, source: Path, target: Path, left: list[Path]) -> None:
        other = source.with_name("other.bin")
        shutil.copy(source, other)
        strangers = killed_between(other, other.with_name("other.out"))
        stranger = left[0].with_name(strangers[0].name)
        left[0].unlink()
        shutil.copy(strangers[0], stranger)
        result = finish(source, target)
        assert result.run_files_adopted == len(left) - 1
        assert "is of another job; it is not used" in result.notes[0]
        aside = stranger.with_suffix(".foreign")
        assert aside.read_bytes() == strangers[0].read_bytes()
        assert "holds other files and is kept" in result.notes[1]

    def test_unfinished_files_and_a_lost_manifest_do_no_harm(
        self, source: Path, target: Path, left: list[Path]
    ) -> None:
        (left[0].parent / "manifest.json").write_text("{")
        (left[0].parent / "run-0000000000000000-0000000000000001-0.trun.part").write_bytes(b"half")
        result = finish(source, target)
        assert (result.run_files_adopted, result.notes) == (len(left), ())
        assert left_in(target.parent) == {"in.bin", "out.bin"}


def stop(*_: object) -> None:
    raise RunCancelledError("stopped between the phases")


def killed_between(source: Path, target: Path) -> list[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Destination, "begin", stop)
        with layouts(small_layout(8, fan_in=32)), pytest.raises(RunCancelledError):
            sort_file(source, target, dtype="i8")
    return run_files(target)


class Watched:
    """Makes real engines; ``first`` is called before their first wait after ``call``."""

    def __init__(self, call: str, first: Callable[[], None]) -> None:
        self._call, self._first = call, first
        self._called: list[str] = []
        self._engine: Any = None

    def __call__(self, **options: Any) -> Watched:
        self._engine = SortJob(**options)
        return self

    def wait(self, timeout_seconds: float) -> bool:
        if self._call in self._called:
            first, self._first = self._first, lambda: None
            first()
        return bool(self._engine.wait(timeout_seconds))

    def __getattr__(self, name: str) -> Any:
        self._called.append(name)
        return getattr(self._engine, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close(keep_runs=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", ["sort_files", "write_file"])
def test_a_signal_stops_cleanly(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, call: str
) -> None:
    np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 400_000).tofile(source)
    monkeypatch.setattr(engine_room, "SortJob", Watched(call, lambda: os.kill(os.getpid(), number)))
    expected = KeyboardInterrupt if number == signal.SIGINT else RunCancelledError
    with layouts(LAYOUT), pytest.raises(expected, match="run the same command again"):
        sort_file(source, target, dtype="i8", direct="never")
    assert not target.exists()
    assert not list(target.parent.glob(".*part"))
    left = len(run_files(target))
    monkeypatch.undo()
    assert finish(source, target, direct="never").run_files_adopted == left


def test_a_temporary_folder_that_vanishes(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = job.Destination.begin

    def begin(destination: Any) -> None:
        shutil.rmtree(run_files(target)[0].parent)
        real(destination)

    monkeypatch.setattr(job.Destination, "begin", begin)
    with layouts(LAYOUT), pytest.raises(SortError, match=r"temporary folder is gone|cannot read"):
        sort_file(source, target, dtype="i8")
    assert not target.exists()
    monkeypatch.undo()
    finish(source, target)
