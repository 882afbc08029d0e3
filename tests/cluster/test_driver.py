"""The loop of the driver: what it does between messages, and what it makes of them, on a clock that tests turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tartan.cluster import wire
from tartan.cluster.driver import Driver, Summary, Watch
from tartan.cluster.engine import DRIVER, Call, Capabilities, ClusterView, Credentials, Handler, OnView
from tartan.cluster.rank import RankEnd
from tartan.core.pairs.region import Region
from tartan.core.ranks.coordination import CoordinatorSetup, Run
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.messages import Done, FromRank, Grant, Hello, Report, Want
from tartan.errors import ClusterError, RunFailedError

MOST_MESSAGES = 2000


class Clock:
    """Seconds that pass as often as they are asked for."""

    def __init__(self, step: float = 0.01) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


class OneRank:
    """An engine with one rank, "a", that answers what is posted to it at once, in the loop of the driver."""

    me = DRIVER
    capabilities = Capabilities(elastic=True, survives_loss=True, encrypted=False)
    credentials = Credentials()
    host = ""
    resources: Mapping[str, float] = {}

    def __init__(self, answer: Callable[[OneRank, str, bytes], None], *opening: FromRank) -> None:
        self._answer = answer
        self._opening = (Hello((), band_items=4), *opening)
        self._handlers: Mapping[str, Handler] = {}
        self.posted: list[str] = []

    def say(self, message: FromRank | RankEnd) -> None:
        """Let a message of the rank arrive."""
        do = "ended" if isinstance(message, RankEnd) else type(message).__name__.lower()
        self._handlers[do](Call("a", do, 1, wire.encode(message)))

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        self._handlers = handlers
        on_view(self.view())
        for message in self._opening:
            self.say(message)

    def view(self) -> ClusterView:
        return ClusterView(1, (DRIVER, "a"))

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        self.posted.append(do)
        self._answer(self, do, body)

    def request(self, peer: str, do: str, body: bytes = b"", **_: Any) -> bytes:
        raise AssertionError("the driver asks nothing")

    def silence_seconds(self, peer: str) -> float:
        return 0.0

    def expel(self, peer: str, reason: str) -> None:
        raise AssertionError("no rank is silent")

    def leave(self, reason: str = "") -> None:
        self.posted.append("left")


def willing(engine: OneRank, do: str, body: bytes) -> None:
    """Want work when welcome, have it done when granted, end when told to."""
    if do == "welcome":
        engine.say(Want())
    elif do == "grant":
        chunks = [chunk for region in wire.decode(body, Grant).regions for chunk in region.chunks()]
        engine.say(Done(tuple((row, column, column + 1) for row, column in chunks)))
        engine.say(Want())
    elif do == "stop":
        engine.say(RankEnd())


def none_committed(regions: Sequence[Region]) -> tuple[Run, ...]:
    return ()


def driver_of(engine: OneRank, report: Callable[[Report], None], clock: Clock, **setup: Any) -> Driver:
    coordinator = Coordinator(CoordinatorSetup(np.triu(np.ones((4, 4), np.int64)), 1, **setup))
    watch = Watch(report, none_committed)
    return Driver(engine, coordinator, b"", watch, Summary(), patience_seconds=5.0, clock=clock)


def test_a_flood_of_messages_keeps_no_tick_from_the_coordinator() -> None:
    """Work for two ranks waits for the second one; that time is up is only seen at a tick."""
    engine = OneRank(willing, Report())
    reports = 0

    def flood(report: Report) -> None:
        nonlocal reports
        reports += 1
        assert reports < MOST_MESSAGES, "no tick came"
        if "grant" not in engine.posted:
            engine.say(Report())

    driver = driver_of(engine, flood, Clock(), n_expected=2, patience_seconds=3.0)
    driver.run()
    assert reports > 100
    assert engine.posted[-1] == "left"


class Beside(OneRank):
    """An engine with a storage rank, "s", beside the one that computes."""

    def view(self) -> ClusterView:
        return ClusterView(1, (DRIVER, "a", "s"))

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        super().start(handlers, on_view)
        handlers["hello"](Call("s", "hello", 2, wire.encode(Hello((), storage=True))))
        self._handlers["ended"](Call("s", "ended", 3, wire.encode(RankEnd())))


@pytest.mark.parametrize("kind", [OneRank, Beside])
def test_that_no_storage_rank_is_there_is_said_once_and_early(kind: type[OneRank]) -> None:
    engine, lines = kind(willing, Report()), list[str]()

    def wait(report: Report) -> None:
        if "grant" not in engine.posted:
            engine.say(Report())

    coordinator = Coordinator(CoordinatorSetup(np.triu(np.ones((4, 4), np.int64)), 1, n_expected=2, patience_seconds=9))
    watch = Watch(wait, none_committed, lost=lines.append)
    Driver(engine, coordinator, b"", watch, Summary(), unserved="no storage rank", clock=Clock(0.02)).run()
    assert lines == (["no storage rank"] if kind is OneRank else [])


@pytest.mark.parametrize("said", [RunFailedError("too much failed"), ClusterError("no room")])
def test_what_a_report_raises_stops_all_ranks_and_is_raised_at_the_end(said: Exception) -> None:
    engine = OneRank(lambda engine, do, body: engine.say(Report() if do == "welcome" else RankEnd()))

    def refuse(report: Report) -> None:
        raise said

    with pytest.raises(type(said), match=str(said)):
        driver_of(engine, refuse, Clock()).run()
    assert engine.posted[-2:] == ["stop", "left"]


class NoRank(OneRank):
    """An engine without a rank; ``gone`` are processes that could not become one."""

    def __init__(self, gone: Mapping[str, str]) -> None:
        super().__init__(lambda *_: None)
        self._opening = ()
        self._gone = gone

    def view(self) -> ClusterView:
        return ClusterView(1, (DRIVER,), self._gone)


def driver_alone(gone: Mapping[str, str], lines: list[str], seconds: float = 60.0) -> Driver:
    coordinator = Coordinator(CoordinatorSetup(np.triu(np.ones((4, 4), np.int64)), 1))
    watch = Watch(lambda report: None, none_committed, lost=lines.append)
    engine = NoRank(gone)
    return Driver(
        engine, coordinator, b"", watch, Summary(), patience_seconds=seconds, waited_for="a worker of node7",
        clock=Clock(0.5),
    )  # fmt: skip


def run_out(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a driver that no event reaches; return its error."""
    monkeypatch.setattr("tartan.cluster.driver.TICK_SECONDS", 0.001)
    with pytest.raises(ClusterError) as caught:
        driver.run()
    return str(caught.value)


def test_what_is_waited_for_is_said_once_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    error = run_out(driver_alone({}, lines), monkeypatch)
    assert len(lines) == 1
    assert "no rank is there; the run waits for a worker of node7, for 5" in lines[0]  # 54 s or so of 60
    assert "--wait" in lines[0]
    assert "none has joined for 60 s" in error
    assert "--wait TIME waits longer" in error


def test_a_short_wait_ends_before_anything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    assert "for 3 s" in run_out(driver_alone({}, lines, 3.0), monkeypatch)
    assert lines == []


def test_processes_that_cannot_become_ranks_are_named_once_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    error = run_out(driver_alone({"the Dask worker tcp://b:1": "it has version 1"}, lines), monkeypatch)
    assert lines[0] == "the Dask worker tcp://b:1 takes no part: it has version 1"
    assert [line for line in lines if "take part" in line] == ["0 ranks of 1 take part"]
    assert len(lines) == 3  # and what is waited for
    assert "the Dask worker tcp://b:1: it has version 1" in error


def test_of_very_many_only_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    run_out(driver_alone({f"worker {number}": "none" for number in range(100)}, lines), monkeypatch)
    assert sum("takes no part" in line for line in lines) == 20
    assert "0 ranks of 100 take part" in lines
