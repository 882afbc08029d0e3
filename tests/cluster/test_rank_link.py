"""What a rank asks its driver before it commits."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

import pytest

from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, Call, ClusterError
from tartan.cluster.rank import RankLink
from tartan.cluster.thread_engine import ThreadHub
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.region import Region
from tartan.core.pairs.verdict import NodeReport, PairCounts
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.division import chunk_pairs
from tartan.core.ranks.messages import Grant, Hello, Member, PassedOn, Report, View, Welcome
from tartan.runtime.events import SegmentsGranted

WAIT_SECONDS = 60


class AskedDriver:
    """A driver that counts how often a rank asks for its clock, and notes the speeds that it reports."""

    def __init__(self) -> None:
        self.n_asked, self.now = 0, 0.0
        self.speeds: SimpleQueue[float] = SimpleQueue()
        self.late: SimpleQueue[Sequence[str]] = SimpleQueue()
        self.passed: SimpleQueue[PassedOn] = SimpleQueue()
        self.hub = ThreadHub()
        self.engine = self.hub.engine(DRIVER)
        takers = {"clock": self._asked, "hello": self._hello, "report": self._reported, "passedon": self._passed}
        others = dict.fromkeys(("leave", "want", "done"), lambda call: b"")
        self.engine.start({**takers, **others}, lambda view: None)
        self.link = RankLink(self.hub.engine("rank-0"), clock=lambda: self.now)
        self.link.start()

    def grant(self, region: Region) -> None:
        self.engine.post("rank-0", "grant", wire.encode(Grant((region,))))

    def _hello(self, call: Call) -> bytes:
        self.engine.post("rank-0", "welcome", wire.encode(Welcome(0)))
        return b""

    def _reported(self, call: Call) -> bytes:
        report = wire.decode(call.body, Report)
        self.speeds.put(report.speed)
        if report.node.late:
            self.late.put(list(report.node.late))
        return b""

    def _passed(self, call: Call) -> bytes:
        self.passed.put(wire.decode(call.body, PassedOn))
        return b""

    def _asked(self, call: Call) -> bytes:
        self.n_asked += 1
        return b"0"


def test_a_rank_in_step_commits_without_a_question() -> None:
    driver = AskedDriver()
    driver.now = 0.5
    driver.link.before_step("claim")
    assert driver.n_asked == 0


def test_a_rank_that_was_frozen_asks_before_it_claims_although_it_has_told_since() -> None:
    driver = AskedDriver()
    driver.now = 1.0
    driver.link.leave("has been awake for a moment")  # all that was done is told first
    driver.link.before_step("stage")
    assert driver.n_asked == 0
    driver.link.before_step("claim")
    assert driver.n_asked == 1
    driver.link.before_step("claim")
    assert driver.n_asked == 1


def test_a_rank_that_was_given_up_while_it_was_frozen_claims_nothing() -> None:
    driver = AskedDriver()
    driver.engine.expel("rank-0", "it was silent for too long")
    driver.now = 1.0
    with pytest.raises(ClusterError):
        driver.link.before_step("claim")


def test_the_speed_of_a_rank_counts_the_time_of_what_it_has_begun() -> None:
    """A rank that is granted no more for now still computes."""
    driver = AskedDriver()
    grid, pairs = Grid(40, 10, 0, 10, 10), chunk_pairs(Grid(40, 10, 0, 10, 10), AllPairs(40))
    posted: SimpleQueue[SegmentsGranted] = SimpleQueue()
    driver.link.join(Hello(()), Allotment(grid, pairs, 40, lambda tile: True))
    driver.link.ask(9, posted.put)  # type: ignore[arg-type]
    assert not posted.get().segments
    driver.grant(Region(0, 1, 1, 3))
    assert len(posted.get(timeout=WAIT_SECONDS).segments) == 2
    driver.link.ask(9, posted.put)  # type: ignore[arg-type]
    assert not posted.get().segments
    driver.now = 2.0
    driver.link.report(NodeReport(pairs=PairCounts(good=100)))
    driver.link.on_committed([(0, 1)])
    driver.link.leave("the test is over")
    while not (speed := driver.speeds.get(timeout=WAIT_SECONDS)):
        pass  # told before anything was measured
    assert speed == pytest.approx(50)


def members(*storage: bool) -> View:
    return View(1, tuple(Member(number, "", "", 1.0, 0, one) for number, one in enumerate(storage)))


def test_what_another_rank_passes_on_is_looked_at_first_told_and_passed_on_no_more() -> None:
    driver = AskedDriver()
    grid, pairs = Grid(40, 10, 0, 10, 10), chunk_pairs(Grid(40, 10, 0, 10, 10), AllPairs(40))
    looked: SimpleQueue[Sequence[Region]] = SimpleQueue()
    allotment = Allotment(grid, pairs, 40, lambda tile: True)
    driver.link.join(Hello(()), allotment, look_again=looked.put)
    assert not driver.link.can_try((0, 1))  # it knows of no other
    driver.engine.post("rank-0", "view", wire.encode(members(False, True)))
    driver.engine.post("rank-0", "grant", wire.encode(Grant((Region(2, 3, 2, 3),))))
    passed = Region(0, 1, 1, 2)
    driver.engine.post("rank-0", "grant", wire.encode(Grant((passed,), "3, 17: late on rank rank-1")))
    assert looked.get(timeout=WAIT_SECONDS) == (passed,)
    assert driver.late.get(timeout=WAIT_SECONDS) == ["3, 17: late on rank rank-1; rank rank-0 tries"]
    assert not driver.link.can_try((2, 2))  # the other one only reads
    driver.engine.post("rank-0", "view", wire.encode(members(False, True, False)))
    driver.engine.post("rank-0", "grant", wire.encode(Grant((Region(3, 4, 3, 4),), "a mark of the end")))
    looked.get(timeout=WAIT_SECONDS)
    assert driver.link.can_try((2, 2))
    assert not driver.link.can_try((0, 1))
    left = allotment.left_pairs
    driver.link.pass_on((2, 2), "21, 22: late")
    assert driver.passed.get(timeout=WAIT_SECONDS) == PassedOn((2, 2), "21, 22: late")
    assert allotment.left_pairs == left - pairs[2, 2]
    driver.link.leave("the test is over")


def test_what_is_granted_after_a_rank_has_gone_is_looked_at_first() -> None:
    """It may have saved pieces of that."""
    driver = AskedDriver()
    grid, pairs = Grid(40, 10, 0, 10, 10), chunk_pairs(Grid(40, 10, 0, 10, 10), AllPairs(40))
    looked: SimpleQueue[Sequence[Region]] = SimpleQueue()
    driver.link.join(Hello(()), Allotment(grid, pairs, 40, lambda tile: True), look_again=looked.put)
    driver.engine.post("rank-0", "view", wire.encode(members(False, False)))
    driver.grant(Region(0, 1, 0, 1))
    driver.engine.post("rank-0", "view", wire.encode(members(False)))
    again = Region(0, 1, 1, 2)
    driver.grant(again)
    assert looked.get(timeout=WAIT_SECONDS) == (again,)
    driver.link.leave("the test is over")
