"""Members in threads: the conformance kit, and what the hub promises to tests."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from tartan.cluster.engine import DRIVER, ClusterEngine, ClusterView
from tartan.cluster.thread_engine import ThreadHub
from tartan.errors import ClusterError, InternalError
from tartan.testing.engine_kit import Crew, EngineKit, RankProgram


class ThreadCrew:
    """Ranks that are threads of this process."""

    def __init__(self) -> None:
        self.hub = ThreadHub()
        self.own_processes = False
        self.driver: ClusterEngine = self.hub.engine(DRIVER)
        self.programs: dict[str, threading.Thread] = {}

    def join(self) -> None:
        name = f"rank-{len(self.programs)}"
        program = RankProgram(self.hub.engine(name))
        self.programs[name] = threading.Thread(target=program.run, name=name, daemon=True)
        self.programs[name].start()

    def meet(self, name: str) -> None:
        assert name in self.programs

    def kill(self, name: str) -> None:
        self.hub.kill(name)

    def freeze(self, name: str) -> None:
        self.hub.freeze(name)

    def thaw(self, name: str) -> None:
        self.hub.thaw(name)

    def wait_ended(self, name: str, timeout_seconds: float) -> bool:
        self.programs[name].join(timeout_seconds)
        return not self.programs[name].is_alive()


class TestThreadEngine(EngineKit):
    """The kit on threads."""

    @contextlib.contextmanager
    def crew(self) -> Iterator[Crew]:
        yield ThreadCrew()


def test_who_leaves_while_a_view_is_handled_may_still_send_to_nobody() -> None:
    """The crew of block tasks does so at its end; what a thread does not catch fails a test."""
    hub, seen = ThreadHub(), queue.SimpleQueue[threading.Thread]()
    driver, rank = hub.engine(DRIVER), hub.engine("rank-0")

    def on_view(view: ClusterView) -> None:
        if rank.me in view.members:
            seen.put(threading.current_thread())
            driver.leave()
            driver.post(rank.me, "echo", b"")

    driver.start({}, on_view)
    rank.start({}, lambda view: None)
    seen.get(timeout=60).join(60)
    rank.leave()


def test_names_are_used_once() -> None:
    hub = ThreadHub()
    driver = hub.engine(DRIVER)
    driver.start({}, lambda view: None)
    hub.engine("rank-0").start({}, lambda view: None)
    with pytest.raises(ClusterError, match="every rank needs a name of its own"):
        hub.engine("rank-0").start({}, lambda view: None)
    hub.kill("rank-0")
    with pytest.raises(ClusterError, match="or was"):
        hub.engine("rank-0").start({}, lambda view: None)


def test_the_driver_comes_first() -> None:
    with pytest.raises(ClusterError, match="no driver"):
        ThreadHub().engine("rank-0").start({}, lambda view: None)


def test_only_the_driver_expels_and_measures_silence() -> None:
    times = iter([10.0, 25.0])
    hub = ThreadHub(clock=lambda: next(times))
    driver, rank = hub.engine(DRIVER), hub.engine("rank-0")
    driver.start({}, lambda view: None)
    rank.start({}, lambda view: None)
    hub.freeze("rank-0")
    assert driver.silence_seconds("rank-0") == 15.0
    with pytest.raises(InternalError, match="only the driver"):
        rank.expel(DRIVER, "it is slow")
    with pytest.raises(InternalError, match="only the driver"):
        rank.silence_seconds(DRIVER)
    driver.leave()
