"""What a rank asks its driver before it commits."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, Call, ClusterError
from tartan.cluster.rank import RankLink
from tartan.cluster.thread_engine import ThreadHub
from tartan.core.allotment import Allotment
from tartan.core.division import chunk_pairs
from tartan.core.grid import Grid
from tartan.core.messages import Grant, Hello, Report, Welcome
from tartan.core.region import Region
from tartan.core.verdict import NodeReport, PairCounts
from tartan.core.workload import AllPairs
from tartan.runtime.events import SegmentsGranted

WAIT_SECONDS = 60


class AskedDriver:
    """A driver that counts how often a rank asks for its clock, and notes the speeds that it reports."""

    def __init__(self) -> None:
        self.n_asked, self.now = 0, 0.0
        self.speeds: SimpleQueue[float] = SimpleQueue()
        self.hub = ThreadHub()
        self.engine = self.hub.engine(DRIVER)
        takers = {"clock": self._asked, "hello": self._hello, "report": self._reported}
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
        self.speeds.put(wire.decode(call.body, Report).speed)
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
    driver.link.committed([(0, 1)])
    driver.link.leave("the test is over")
    while not (speed := driver.speeds.get(timeout=WAIT_SECONDS)):
        pass  # told before anything was measured
    assert speed == pytest.approx(50)
