"""Long calls report, end when they are cancelled, and resume from their own checkpoint only."""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checksum import checksum_of_array
from tartan.errors import ConfigError, RunCancelledError


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def monitor_of(path, clock=None, stream=None, **parameters) -> Monitor:
    monitor = Monitor(checkpoint=path, every_seconds=60, clock=clock or Clock(), stream=stream)
    monitor.identify("DAMDS", lambda: "input 1", lambda: parameters or {"alpha": 0.95})
    return monitor


def test_nothing_is_said_and_kept_unless_asked_for(tmp_path, capsys) -> None:
    monitor = as_monitor()
    monitor.report("anneal", stress=1.0)
    monitor.save({"X": np.ones(3)})
    monitor.check()
    assert monitor.load() is None
    monitor.finish()
    assert capsys.readouterr() == ("", "")


def test_the_monitor_that_is_given_is_the_one() -> None:
    mine = Monitor()
    assert as_monitor(mine, verbose=2) is mine
    assert as_monitor(None, 2, "a.npz").verbose == 2


def test_plain_lines_come_now_and_then() -> None:
    clock, stream = Clock(), io.StringIO()
    monitor = Monitor(1, stream=stream, clock=clock)
    for second in range(12):
        clock.now = float(second)
        monitor.report("anneal", temperature=0.5, K=second)
    lines = stream.getvalue().splitlines()
    assert lines == ["annealing  2 clusters", "annealing  7 clusters"]


def test_a_line_says_how_much_is_done_and_how_long_the_rest_takes() -> None:
    clock, stream = Clock(), io.StringIO()
    monitor = Monitor(1, stream=stream, clock=clock)
    for second in (0, 1, 2, 3, 4, 5, 6, 7):
        clock.now = float(second)
        monitor.report("neighbour joining", joined=1000 * second, of=10_000)
    assert stream.getvalue().splitlines() == [
        "neighbour joining  20 %  2,000 of 10,000  8 s left",
        "neighbour joining  70 %  7,000 of 10,000  3 s left",
    ]


def test_the_time_left_is_that_of_a_phase_which_may_come_again() -> None:
    clock, stream = Clock(), io.StringIO()
    monitor = Monitor(1, stream=stream, clock=clock)
    for second, done in ((0, 0), (1, 99), (10, 10), (15, 60)):
        clock.now = float(second)
        monitor.report("rows", rows=done, of=100)
    clock.now = 20.0
    monitor.report("anneal", share=0.25, stress=0.123456, temperature=3.0)
    assert stream.getvalue().splitlines() == [
        "copying the distances to disk  10 %  10 of 100",
        "copying the distances to disk  60 %  60 of 100  4 s left",
        "annealing  25 %  stress 0.123",
    ]  # fmt: skip


def test_a_time_left_waits_until_it_is_known_well() -> None:
    clock, stream = Clock(), io.StringIO()
    monitor = Monitor(1, stream=stream, clock=clock)
    for second, done in ((0, 0), (5, 10), (20, 40)):
        clock.now = float(second)
        monitor.report("materialize", rows=done, of=1000)
    assert stream.getvalue().splitlines() == [
        "reading the distances  1 %  10 of 1,000",
        "reading the distances  4 %  40 of 1,000  8 min left",
    ]


def test_a_short_call_says_nothing() -> None:
    clock, stream = Clock(), io.StringIO()
    monitor = Monitor(1, stream=stream, clock=clock)
    for phase in ("check", "check", "anneal", "final"):
        clock.now += 0.4
        monitor.report(phase)
    assert stream.getvalue() == ""


def test_every_report_is_a_line_when_asked_for() -> None:
    stream = Terminal()
    monitor = Monitor(2, stream=stream, clock=Clock())
    for step in range(5):
        monitor.report("anneal", step=step)
    assert len(stream.getvalue().splitlines()) == 5


def test_on_a_terminal_there_is_one_live_line_which_stays(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock, stream = Clock(), Terminal()
    monitor = Monitor(1, stream=stream, clock=clock)
    monitor.report("a long phase", stress=0.123456789)
    clock.now = 1.0
    monitor.report("short")
    monitor.finish()
    shown = stream.getvalue()
    assert "stress 0.123" in shown.partition("short")[0]
    assert "short\n" in shown
    assert shown.count("\n") == 1


def test_the_next_check_ends_a_cancelled_call() -> None:
    monitor = Monitor()
    monitor.check()
    threading.Thread(target=monitor.cancel).run()
    assert monitor.cancelled
    with pytest.raises(RunCancelledError, match=r"stopped on request$"):
        monitor.check()


def test_a_stop_says_which_signal_asked_for_it() -> None:
    monitor = Monitor()
    monitor.cancel(signal.SIGTERM)
    with pytest.raises(RunCancelledError) as caught:
        monitor.check()
    assert caught.value.context == {"signal": signal.SIGTERM}


def test_a_stopped_call_goes_on_where_it_was(tmp_path) -> None:
    path = tmp_path / "map.npz"
    monitor, X = monitor_of(path), np.arange(6.0).reshape(3, 2)
    assert monitor.load() is None
    monitor.save({"X": X, "loop": 7, "temperature": 0.25, "phase": "anneal"})
    X[:] = -1
    assert not path.exists()
    monitor.cancel()
    with pytest.raises(RunCancelledError, match=r"resumes from .*map\.npz"):
        monitor.check()
    again = monitor_of(path)
    state = again.load()
    np.testing.assert_array_equal(state.pop("X"), np.arange(6.0).reshape(3, 2), strict=True)
    assert state == {"loop": 7, "temperature": 0.25, "phase": "anneal"}
    again.finish()
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_are_written_now_and_then(tmp_path) -> None:
    clock, path, seen = Clock(), tmp_path / "c.npz", []
    monitor = monitor_of(path, clock)
    for second in range(0, 150, 10):
        clock.now = float(second)
        monitor.save({"second": second})
        seen.append(monitor_of(path).load() if path.exists() else None)
    assert [state and state["second"] for state in seen] == [None] * 6 + [60] * 6 + [120] * 3


def test_a_stop_before_the_first_state_leaves_no_file(tmp_path) -> None:
    monitor = monitor_of(tmp_path / "c.npz")
    monitor.cancel()
    with pytest.raises(RunCancelledError, match=r"stopped on request$"):
        monitor.check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("algorithm", "fingerprint", "parameters", "reason"),
    [
        ("DAPWC", "input 1", {"alpha": 0.95, "init": np.ones(3)}, "it is of DAMDS, not of DAPWC"),
        ("DAMDS", "input 2", {"alpha": 0.95, "init": np.ones(3)}, "its input is not this input"),
        ("DAMDS", "input 1", {"alpha": 0.9, "init": np.ones(3)}, "alpha was 0.95 and is now 0.9"),
        ("DAMDS", "input 1", {"alpha": 0.95, "init": np.zeros(3)}, "init was array"),
        ("DAMDS", "input 1", {"alpha": 0.95}, "is now not there"),
    ],
)
def test_a_checkpoint_of_another_call_is_refused(tmp_path, algorithm, fingerprint, parameters, reason) -> None:
    path = tmp_path / "c.npz"
    clock = Clock()
    monitor = monitor_of(path, clock, alpha=0.95, init=np.ones(3))
    clock.now = 61.0
    monitor.save({"X": np.ones(2)})
    other = Monitor(checkpoint=path)
    other.identify(algorithm, lambda: fingerprint, lambda: parameters)
    with pytest.raises(ConfigError, match=f"of another call: .*{reason}"):
        other.load()
    assert path.exists()


def test_functions_and_generators_are_the_same_in_another_process(tmp_path) -> None:
    path, clock = tmp_path / "c.npz", Clock()
    # Functions of one name and equal generators, at other addresses.
    monitor = monitor_of(path, clock, transform=lambda d: d, random_state=np.random.RandomState(3))
    clock.now = 61.0
    monitor.save({"step": 1})
    assert monitor_of(path, transform=lambda d: d, random_state=np.random.RandomState(3)).load() == {"step": 1}
    with pytest.raises(ConfigError, match="random_state was RandomState"):
        monitor_of(path, transform=lambda d: d, random_state=np.random.RandomState(4)).load()


def test_large_arrays_are_told_apart_by_every_value() -> None:
    def checksum(array: np.ndarray) -> str:
        return checksum_of_array(array, block_bytes=100)

    given = np.arange(60.0).reshape(20, 3)
    before = checksum(given)
    assert before == checksum(given.copy())
    for row in range(20):
        other = given.copy()
        other[row, 1] += 1
        assert checksum(other) != before
    assert checksum(given[::-1]) != before
    assert checksum(given.reshape(3, 20)) != before


def test_the_input_is_read_for_a_checkpoint_only(tmp_path: Path) -> None:
    called: list[str] = []

    def fingerprint() -> str:
        called.append("input")
        return "0"

    def parameters() -> dict[str, int]:
        called.append("parameters")
        return {}

    Monitor().identify("DAMDS", fingerprint, parameters)
    assert called == []
    Monitor(checkpoint=tmp_path / "c.npz").identify("DAMDS", fingerprint, parameters)
    assert called == ["input", "parameters"]


def test_what_a_kill_left_of_a_checkpoint_is_taken_away(tmp_path) -> None:
    monitor = monitor_of(tmp_path / "c.npz")
    (tmp_path / ".c.npz.unfinished").write_bytes(b"half")
    monitor.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said_before_anything_is_computed(tmp_path) -> None:
    monitor = Monitor(checkpoint=tmp_path / "no" / "c.npz")
    with pytest.raises(ConfigError, match=r"checkpoint: there is no folder .*no; create it"):
        monitor.load()


def test_what_is_no_checkpoint_is_refused(tmp_path) -> None:
    for name, content in [("text.npz", b"hello"), ("empty.npz", b"")]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"cannot be read as a checkpoint .*; remove it to start afresh"):
            monitor_of(path).load()
    np.savez(tmp_path / "other.npz", X=np.ones(3))
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint"):
        monitor_of(tmp_path / "other.npz").load()


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path) -> None:
    path, clock, stream = tmp_path / "c.npz", Clock(), io.StringIO()
    monitor = monitor_of(path, clock, stream)
    clock.now = 61.0
    monitor.save({"step": 1})
    in_the_way = tmp_path / ".c.npz.unfinished"
    in_the_way.mkdir()
    clock.now = 200.0
    monitor.save({"step": 2})
    assert "c.npz could not be written: Is a directory" in stream.getvalue()
    in_the_way.rmdir()
    assert monitor_of(path).load() == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
