"""What leaders do when the link between nodes fails: a lost node ends all, and late messages harm nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from support.comm_threads import ThreadWorld
from support.failing_link import FailingLink, failing_links
from tartan.comm.rank import RankCommunicator
from tartan.errors import RankLostError


def ended(ranks: RankCommunicator, turns: int, at: int, act: Callable[[], None]) -> str:
    """Exchange in turns, on rank 0 with an act before one of them; return the error that ended it, or the sum."""
    try:
        total = np.zeros(3)
        for turn in range(turns):
            if ranks.rank == 0 and turn == at:
                act()
            total += ranks.all_reduce(np.full(3, ranks.rank + turn, np.float64))
            ranks.sendrecv(total, (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size)
    except RankLostError as error:
        return str(error)
    return str(total[0])


def apart(links: list[FailingLink], lost: int) -> None:
    """Cut a node off from all others."""
    for node, link in enumerate(links):
        for other in range(len(links)):
            if (node == lost) != (other == lost):
                link.cut(other)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2, 2)])
def test_a_node_that_is_cut_off_ends_all_and_is_named(sizes) -> None:
    links: list[FailingLink] = []
    world = ThreadWorld(sizes, link=failing_links(links))
    found = world.run(lambda ranks: ended(ranks, 10**9, 2, lambda: apart(links, len(sizes) - 1)))
    lost = len(sizes) - 1
    for rank, text in enumerate(found):
        if world.nodes[rank] != lost:
            assert f"node process {lost} is lost" in text
        else:
            assert any(f"node process {other} is lost" in text for other in range(lost))


@pytest.mark.slow
def test_lost_messages_are_no_deadlock_and_the_lost_node_is_named() -> None:
    """What was sent and never came is under way for ever: nothing may say that all wait."""
    links: list[FailingLink] = []
    world = ThreadWorld((1, 2), link=failing_links(links))
    met = []

    def end_after_some() -> None:
        met.append(links[0].wait_met(8))
        apart(links, 1)

    watcher = threading.Thread(target=end_after_some)
    watcher.start()
    found = world.run(lambda ranks: ended(ranks, 10**9, 1, links[0].drop))
    watcher.join()
    assert met == [True]
    assert "node process 1 is lost" in found[0]
    assert all("node process 0 is lost" in text for text in found[1:])


@pytest.mark.slow
def test_messages_that_come_late_change_no_result() -> None:
    links: list[FailingLink] = []
    world = ThreadWorld((2, 2), link=failing_links(links))
    met = []

    def release_after_some() -> None:
        met.append(links[0].wait_met(6))
        links[0].release()

    watcher = threading.Thread(target=release_after_some)
    watcher.start()
    found = world.run(lambda ranks: ended(ranks, 6, 3, links[0].hold))
    watcher.join()
    assert met == [True]
    assert found == [str(float(sum(6 + 4 * turn for turn in range(6))))] * 4
