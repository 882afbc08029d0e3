"""The trace: what is kept, what is dropped, and that the viewer can read it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tartan.base.trace import NO_TRACER, Tracer


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


class Ticks:
    """A clock that counts microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def test_intervals_become_complete_events(tmp_path: Path) -> None:
    tracer = Tracer(clock=lambda: 5_000)
    tracer.record("read a.fa", "read", "host/read-1", 6_000, 9_500)
    tracer.write(tmp_path / "trace.json")
    (event,) = [event for event in read(tmp_path / "trace.json")["traceEvents"] if event["ph"] == "X"]
    assert event == {"name": "read a.fa", "cat": "read", "ph": "X", "ts": 1.0, "dur": 3.5, "pid": 1, "tid": 1}


def test_rows_are_named_and_grouped_by_process() -> None:
    tracer = Tracer()
    for row in ("host/read-1", "cpu/compare", "host/read-2", "host/read-1", "main"):
        tracer.record("x", "x", row, 0, 1)
    names = [event for event in tracer.events() if event["ph"] == "M"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in names if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
    assert processes == {1: "host", 2: "cpu", 3: "main"}
    assert threads == {(1, 1): "read-1", (2, 2): "compare", (1, 3): "read-2", (3, 4): "main"}
    intervals = [(e["pid"], e["tid"]) for e in tracer.events() if e["ph"] == "X"]
    assert intervals == [(1, 1), (2, 2), (1, 3), (1, 1), (3, 4)]


def test_intervals_of_other_processes_lie_on_the_own_clock(tmp_path: Path) -> None:
    """The other clock shows 10,000 where this one shows 1,000, and gains a thousandth."""
    other = Tracer(limit=2, clock=lambda: 10_000)
    other.record("read", "read", "host/io", 10_000, 10_000 + 1_001_000)
    other.record("late", "read", "cpu", 10_000 + 2_002_000, 10_000 + 2_003_001)
    other.record("dropped", "read", "cpu", 0, 1)
    packed = other.pack([(10_000, 1_000), (10_000 + 1_001_000, 1_001_000)])
    tracer = Tracer(clock=lambda: 1_000)
    tracer.record("mine", "rank", "driver", 1_000, 2_000)
    tracer.absorb("rank-1", packed)
    events = list(tracer.events())
    assert [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("mine", 0.0, 1.0),
        ("read", 0.0, 1000.0),
        ("late", 2000.0, 1.0),
    ]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["driver", "rank-1 host", "rank-1 cpu"]
    assert tracer.n_dropped == 1


@pytest.mark.parametrize("packed", [b"", b"garbage", Tracer().pack([])])
def test_a_damaged_trace_of_another_process_is_refused_whole(packed: bytes) -> None:
    tracer = Tracer()
    with pytest.raises(ValueError, match="rank-1 is damaged"):
        tracer.absorb("rank-1", packed)
    assert list(tracer.events()) == []


def test_what_comes_after_the_limit_is_counted(tmp_path: Path) -> None:
    tracer = Tracer(limit=3)
    for index in range(5):
        tracer.record(str(index), "read", "host/1", index, index + 1)
    assert tracer.n_dropped == 2
    assert [event["name"] for event in tracer.events() if event["ph"] == "X"] == ["0", "1", "2"]
    tracer.write(tmp_path / "t.json")
    assert read(tmp_path / "t.json")["otherData"] == {"format_version": 1, "dropped_events": 2}


def test_many_threads_lose_nothing() -> None:
    tracer = Tracer(limit=3000)
    barrier = threading.Barrier(4)

    def work(row: int) -> None:
        barrier.wait()
        for index in range(1000):
            tracer.record(str(index), "read", f"host/{row}", index, index)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Counter(event["name"] for event in tracer.events() if event["ph"] == "X")
    assert kept.total() + tracer.n_dropped == 4000
    assert 3000 <= kept.total() <= 3003  # each thread may pass the limit once
    assert max(kept.values()) <= 4


def test_empty_trace_is_valid(tmp_path: Path) -> None:
    Tracer().write(tmp_path / "t.json")
    assert read(tmp_path / "t.json")["traceEvents"] == []


def test_failed_write_leaves_the_old_trace_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.json"
    target.write_text("old")
    tracer = Tracer()

    def broken() -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(tracer, "events", broken)
    with pytest.raises(RuntimeError):
        tracer.write(target)
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    assert target.read_text() == "old"


def test_no_tracer_keeps_nothing() -> None:
    NO_TRACER.record("x", "x", "a/b", 0, 1)
    assert (list(NO_TRACER.events()), NO_TRACER.n_dropped) == ([], 0)
