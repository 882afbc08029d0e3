"""An engine that fails on command: transparent without faults, and each fault as it says."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

import pytest
from test_thread_engine import ThreadCrew

from support.failing_engine import FailingEngine, MessageFault
from tartan.cluster.engine import DRIVER, Call, PeerLost, Timeout
from tartan.cluster.thread_engine import ThreadHub
from tartan.testing.engine_kit import Crew, EngineKit

WAIT_SECONDS = 10.0


class TestWithoutFaults(EngineKit):
    """The kit on a driver whose engine could fail."""

    @contextlib.contextmanager
    def crew(self) -> Iterator[Crew]:
        crew = ThreadCrew()
        crew.driver = FailingEngine(crew.driver)
        yield crew


class Pair:
    """A driver that keeps what it receives, and a rank whose engine fails."""

    def __init__(self, *faults: MessageFault, seed: int = 0) -> None:
        hub = ThreadHub()
        self.received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.driver = hub.engine(DRIVER)
        self.driver.start({"note": self._note, "done": self._note}, lambda view: None)
        self.rank = FailingEngine(hub.engine("rank-0"), faults, seed=seed)
        self.rank.start({"echo": lambda call: call.body}, lambda view: None)

    def _note(self, call: Call) -> bytes:
        self.received.put(call.body)
        return b"noted " + call.body

    def post(self, *bodies: bytes, do: str = "note") -> None:
        for body in bodies:
            self.rank.post(DRIVER, do, body)

    def ask(self, body: bytes, seconds: float = WAIT_SECONDS) -> bytes:
        return self.rank.request(DRIVER, "note", body, timeout_seconds=seconds)

    def seen(self, n: int) -> list[bytes]:
        return [self.received.get(timeout=WAIT_SECONDS) for _ in range(n)]


@pytest.fixture
def ended() -> Iterator[list[Pair]]:
    pairs: list[Pair] = []
    yield pairs
    for pair in pairs:
        pair.driver.leave()


def test_dropped_messages_do_not_arrive(ended: list[Pair]) -> None:
    ended.append(pair := Pair(MessageFault("drop", do="note", skip=1, times=2)))
    pair.post(b"1", b"2")
    with pytest.raises(Timeout, match="was dropped"):
        pair.ask(b"3")
    pair.post(b"4")
    assert pair.ask(b"5") == b"noted 5"
    assert pair.seen(3) == [b"1", b"4", b"5"]


def test_faults_meet_the_messages_that_they_name(ended: list[Pair]) -> None:
    ended.append(pair := Pair(MessageFault("drop", do="done"), MessageFault("drop", peer="rank-9")))
    pair.post(b"lost", do="done")
    pair.post(b"kept")
    assert pair.seen(1) == [b"kept"]
    pair.rank.heal()
    pair.post(b"kept as well", do="done")
    assert pair.seen(1) == [b"kept as well"]


def test_doubled_messages_arrive_twice(ended: list[Pair]) -> None:
    ended.append(pair := Pair(MessageFault("duplicate")))
    pair.post(b"1")
    assert pair.ask(b"2") == b"noted 2"
    assert pair.seen(4) == [b"1", b"1", b"2", b"2"]


def test_held_messages_are_overtaken(ended: list[Pair]) -> None:
    ended.append(pair := Pair(MessageFault("hold", times=2)))
    pair.post(b"1", b"2", b"3")
    assert pair.seen(1) == [b"3"]
    pair.rank.release()
    assert pair.seen(2) == [b"1", b"2"]


def test_a_held_request_times_out(ended: list[Pair]) -> None:
    ended.append(pair := Pair(MessageFault("hold", times=1)))
    with pytest.raises(Timeout, match=r"within 0\.01 s"):
        pair.ask(b"1", seconds=0.01)


def test_a_cut_member_cannot_be_reached(ended: list[Pair]) -> None:
    ended.append(pair := Pair())
    pair.rank.cut(DRIVER)
    pair.post(b"lost")
    with pytest.raises(PeerLost, match="the connection is cut"):
        pair.ask(b"lost")
    pair.rank.heal()
    assert pair.ask(b"1") == b"noted 1"
    assert pair.seen(1) == [b"1"]


def test_a_frozen_member_neither_answers_nor_asks(ended: list[Pair]) -> None:
    ended.append(pair := Pair())
    pair.rank.freeze()
    with pytest.raises(Timeout):
        pair.driver.request("rank-0", "echo", timeout_seconds=0.02)
    with pytest.raises(Timeout):
        pair.ask(b"1", seconds=0.01)
    pair.rank.thaw()
    assert pair.driver.request("rank-0", "echo", b"awake", timeout_seconds=WAIT_SECONDS) == b"awake"


def test_the_same_seed_meets_the_same_messages(ended: list[Pair]) -> None:
    def kept(seed: int) -> list[bytes]:
        ended.append(pair := Pair(MessageFault("drop", do="note", share=0.5), seed=seed))
        pair.post(*(b"%d" % number for number in range(40)))
        pair.post(b"end", do="done")
        return list(iter(lambda: pair.received.get(timeout=WAIT_SECONDS), b"end"))

    first = kept(1)
    assert first == kept(1) != kept(2)
    assert 5 < len(first) < 35
