"""Threads for calls that may never return."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tartan.base.daemon_pool import DaemonPool


def test_calls_are_made_in_order() -> None:
    made: list[int] = []
    ended = threading.Event()
    pool = DaemonPool(1, "test")
    for number in range(5):
        pool.submit(lambda number=number: made.append(number))  # type: ignore[misc]
    pool.submit(ended.set)
    assert ended.wait(60)
    pool.close()
    assert made == [0, 1, 2, 3, 4]


def test_what_has_not_begun_is_forgotten() -> None:
    begun, go, made = threading.Event(), threading.Event(), list[str]()
    pool = DaemonPool(1, "test")
    pool.submit(lambda: (begun.set(), go.wait(60)))
    pool.submit(lambda: made.append("second"))
    assert begun.wait(60)
    pool.close(grace_seconds=0.0)
    pool.submit(lambda: made.append("third"))
    go.set()
    pool.close(grace_seconds=60.0)
    assert made == []


@pytest.mark.slow
def test_the_program_ends_though_a_call_never_returns() -> None:
    script = (
        "import threading\n"
        "from tartan.base.daemon_pool import DaemonPool\n"
        "begun, never = threading.Event(), threading.Event()\n"
        "pool = DaemonPool(2, 'test')\n"
        "pool.submit(lambda: (begun.set(), never.wait()))\n"
        "begun.wait()\n"
        "pool.close(grace_seconds=0.0)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0
