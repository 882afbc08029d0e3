"""What a rank asks its driver before it commits."""

from __future__ import annotations

import pytest

from tartan.cluster.engine import DRIVER, Call, ClusterError
from tartan.cluster.rank import RankLink
from tartan.cluster.thread_engine import ThreadHub


class AskedDriver:
    """A driver that counts how often a rank asks for its clock."""

    def __init__(self) -> None:
        self.n_asked, self.now = 0, 0.0
        self.hub = ThreadHub()
        self.engine = self.hub.engine(DRIVER)
        self.engine.start({"clock": self._asked, "leave": lambda call: b""}, lambda view: None)
        self.link = RankLink(self.hub.engine("rank-0"), clock=lambda: self.now)
        self.link.start()

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
