"""Progress of a sort, with a clock that we turn; and what a sort imports."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

from tartan.base.progress import Snapshot
from tartan.sort.progress import SortProgress, format_state


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def facts(phase: str, done: int, total: int = 1000) -> dict[str, Any]:
    return {"phase": phase, "bytes_done": done, "bytes_total": total}


@pytest.mark.parametrize(
    ("phase", "state", "text"),
    [
        ("sort", Snapshot(0, 8 * 10**9), "sorting  0.0 %"),
        ("sort", Snapshot(2 * 10**9, 8 * 10**9, 4e8), "sorting  25.0 %  400 MB/s  15 s left"),
        ("merge", Snapshot(7 * 10**9, 8 * 10**9, 4e8), "merging  87.5 %  400 MB/s  2.5 s left"),
        ("write", Snapshot(8 * 10**9, 8 * 10**9, 4e8), "merging  100.0 %  400 MB/s"),
        ("sort", Snapshot(0, 0), "sorting  100.0 %"),
    ],
)
def test_lines(phase: str, state: Snapshot, text: str) -> None:
    assert format_state(phase, state) == text


def test_plain_lines_come_now_and_then_and_span_all_phases() -> None:
    clock, stream = Clock(), io.StringIO()
    with SortProgress(quiet=False, stream=stream, clock=clock) as progress:
        progress.expect(1000, levels=2)
        for phase, done in [("sort", 0), ("sort", 100), ("sort", 800), ("sort", 810), ("merge", 500), ("write", 500)]:
            progress.update(facts(phase, done))
            progress.update(facts(phase, done))  # at the same time: nothing new
            clock.now += 2
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[:2] for line in lines] == [
        ["sorting", "26.6 %"],
        ["merging", "50.0 %"],
        ["merging", "83.3 %"],
    ]
    assert lines[-1].endswith("s left")


def test_speed_does_not_count_what_an_earlier_attempt_did() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = SortProgress(quiet=False, stream=stream, clock=clock)
    progress.expect(1000, levels=1)
    progress.update(facts("sort", 900))
    for done in (100, 200, 300):
        clock.now += 10
        progress.update(facts("write", done))
    assert stream.getvalue().splitlines() == [
        "merging  55.0 %",
        "merging  60.0 %",
        "merging  65.0 %  10 B/s  1 min 10 s left",
    ]


def test_run_files_from_before_are_no_speed() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = SortProgress(quiet=False, stream=stream, clock=clock)
    progress.expect(1000, levels=1)
    progress.adopt(900)
    progress.update(facts("idle", 0, 0))
    clock.now += 10
    progress.update(facts("sort", 50, 100))
    clock.now += 10
    progress.update(facts("write", 0))
    clock.now += 10
    progress.update(facts("write", 500))
    assert stream.getvalue().splitlines() == [
        "sorting  47.5 %",
        "merging  50.0 %",
        "merging  75.0 %  27.5 B/s  18 s left",
    ]


def test_a_terminal_gets_one_live_line() -> None:
    clock, stream = Clock(), Terminal()
    with SortProgress(quiet=False, stream=stream, clock=clock) as progress:
        progress.expect(1000, levels=1)
        progress.update(facts("sort", 500))
        clock.now += 1
        progress.update(facts("sort", 600))
    assert "30.0 %" in stream.getvalue()


def test_quiet_prints_nothing() -> None:
    stream = Terminal()
    with SortProgress(quiet=True, stream=stream) as progress:
        progress.update(facts("sort", 1))
        progress.say("something")
    assert stream.getvalue() == ""


def test_a_reader_that_goes_away_does_not_matter() -> None:
    stream = io.StringIO()
    progress = SortProgress(quiet=False, stream=stream)
    stream.close()
    progress.say("the sort continues")


@pytest.mark.slow
def test_a_sort_imports_little() -> None:
    """Its promise counts every byte of the process; nothing that knows of runs is loaded."""
    code = "import sys, tartan.sort; print(*sorted(name for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"rich", "pyarrow", "scipy", "zarr", "fsspec"}.isdisjoint(loaded)
    packages = {name.split(".")[1] for name in loaded if name.startswith("tartan.")}
    assert packages == {"_native", "base", "core", "errors", "options", "sort"}
