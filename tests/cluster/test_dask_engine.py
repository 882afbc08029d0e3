"""Ranks on Dask workers: one short test with real processes, and the whole kit among the exhaustive ones."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from dask_crew import dask_crew

from tartan.cluster import wire
from tartan.cluster.engine import Timeout
from tartan.testing.engine_kit import Crew, EngineKit


@pytest.mark.slow
def test_ranks_answer_hold_their_lock_and_are_missed() -> None:
    """Two ranks, each the child of a Dask worker: answers, a held interpreter lock, a kill, the end."""
    changed = threading.Condition()
    outcomes: list[bytes] = []

    def wake(*_: object) -> bytes:
        with changed:
            outcomes.append(b"")
            changed.notify_all()
        return b""

    with dask_crew(2) as crew:
        driver = crew.driver

        def wait(happened: object) -> None:
            with changed:
                assert changed.wait_for(happened, 30)  # type: ignore[arg-type]

        driver.start({"outcome": wake}, wake)
        wait(lambda: len(driver.view().ranks) == 2)
        first, second = driver.view().ranks
        assert driver.capabilities.encrypted
        assert driver.request(first, "echo", b"ping", timeout_seconds=10) == b"ping"
        for name in (first, second):
            crew.meet(name)
        known = len(outcomes)
        driver.request(first, "hold", wire.encode(1.2), timeout_seconds=10)
        with pytest.raises(Timeout):
            driver.request(first, "echo", timeout_seconds=0.1)
        wait(lambda: len(outcomes) > known)
        assert driver.silence_seconds(first) < 1.1
        assert driver.view().ranks == (first, second)
        os.kill(crew.rank_pids[second], signal.SIGKILL)
        wait(lambda: second in driver.view().gone)
        assert driver.view().gone[second] == "its process ended: killed by SIGKILL"
        driver.leave()
        assert crew.wait_ended(first, 10)


@pytest.mark.exhaustive
class TestDaskEngine(EngineKit):
    """The kit on Dask."""

    patience_seconds = 30.0
    short_seconds = 0.5

    @contextlib.contextmanager
    def crew(self) -> Iterator[Crew]:
        with dask_crew() as crew:
            yield crew
