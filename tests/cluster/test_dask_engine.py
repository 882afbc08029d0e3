"""Ranks on Dask workers: one short test with real processes, and the whole kit among the exhaustive ones."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_crew import dask_crew

from tartan.cluster.engine import ClusterView, Timeout
from tartan.testing.engine_kit import Crew, EngineKit, is_heard, lock_held


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
        assert driver.request(first, "echo", b"ping", timeout_seconds=30) == b"ping"
        for name in (first, second):
            crew.meet(name)
        known = len(outcomes)
        with lock_held(driver, first, 30):
            with pytest.raises(Timeout):
                driver.request(first, "echo", timeout_seconds=0.1)
            assert is_heard(driver, first, 30)
        wait(lambda: len(outcomes) > known)
        assert driver.request(first, "echo", b"here again", timeout_seconds=30) == b"here again"
        assert driver.view().ranks == (first, second)
        os.kill(crew.rank_pids[second], signal.SIGKILL)
        wait(lambda: second in driver.view().gone)
        assert driver.view().gone[second] == "its process ended: killed by SIGKILL"
        driver.leave()
        assert crew.wait_ended(first, 30)


GARBAGE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # half of a greeting of TLS
    struct.pack("<QQ", 1, 10 * 10**9) + b"half",  # a frame of 10 GB, as Dask begins one
    b"\xff" * 100_000,
]


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.exhaustive
def test_garbage_on_every_port_does_no_harm() -> None:
    with dask_crew(2) as crew:
        views: queue.SimpleQueue[ClusterView] = queue.SimpleQueue()
        crew.driver.start({"echo": lambda call: call.body}, views.put)
        while len(views.get(timeout=30).ranks) < 2:
            pass
        before, ranks = memory_bytes(), crew.driver.view().ranks
        ports = crew.ports()
        assert len(set(ports)) == 6
        for port in ports:
            for data in GARBAGE:
                with socket.create_connection(("127.0.0.1", port)) as scanner, contextlib.suppress(OSError):
                    scanner.sendall(data)
                    scanner.shutdown(socket.SHUT_WR)
                    scanner.settimeout(10)
                    while scanner.recv(4096):
                        pass
        for rank in ranks:
            assert crew.driver.request(rank, "echo", b"still there", timeout_seconds=10) == b"still there"
        assert crew.driver.view().ranks == ranks
        assert memory_bytes() - before < 50e6


@pytest.mark.exhaustive
class TestDaskEngine(EngineKit):
    """The kit on Dask."""

    patience_seconds = 30.0
    short_seconds = 0.5

    @contextlib.contextmanager
    def crew(self) -> Iterator[Crew]:
        with dask_crew() as crew:
            yield crew
