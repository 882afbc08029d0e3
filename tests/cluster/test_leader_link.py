"""Ranks whose leaders talk over the engine of a cluster: long messages, members that are lost or never come."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest

from tartan.cluster.engine import DRIVER
from tartan.cluster.leader_link import EngineLink
from tartan.cluster.thread_engine import ThreadHub
from tartan.errors import RankLostError, TransportError
from tartan.testing.comm_threads import ThreadWorld

NAMES = (DRIVER, "rank-1", "rank-2")


def world(hub: ThreadHub, sizes: tuple[int, ...]) -> ThreadWorld:
    """Return ranks on nodes that are members of a hub, the driver first."""
    left = iter(NAMES)

    def link(sockets: dict[int, socket.socket]) -> EngineLink:
        for one in sockets.values():
            one.close()
        engine = hub.engine(next(left))
        made = EngineLink(engine, NAMES[: len(sizes)])
        engine.start(made.handlers, made.on_view)
        return made

    return ThreadWorld(sizes, link=link)


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2, 2)], ids=str)
def test_an_engine_carries_messages_of_any_length(sizes) -> None:
    def call(ranks):
        mine = np.full(200_000, float(ranks.rank))  # more than an engine carries at once
        whole = ranks.all_gather(mine)
        after = ranks.sendrecv(mine, (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size)
        small = ranks.all_reduce(np.array([0.1 * ranks.rank]))
        return whole[::200_000].tolist(), float(after[-1]), float(small[0])

    size = sum(sizes)
    expected = ThreadWorld(sizes).run(call)
    assert world(ThreadHub(), sizes).run(call) == expected
    assert [row[0] for row in expected] == [list(range(size))] * size


def test_a_member_that_is_lost_is_named() -> None:
    hub, told = ThreadHub(), []

    def call(ranks):
        ranks.barrier()
        if ranks.rank == 0:
            hub.kill("rank-1")
        try:
            while True:
                ranks.all_reduce(np.ones(3))
        except RankLostError as error:
            told.append((ranks.nodes[ranks.rank], str(error)))
            raise

    with pytest.raises(RankLostError):
        world(hub, (2, 1, 1)).run(call)
    assert {text for node, text in told if node != 1} == {"node process 1 is lost: it was killed"}


def test_a_member_that_never_comes_is_named() -> None:
    engine = ThreadHub().engine(DRIVER)
    link = EngineLink(engine, NAMES[:2], join_seconds=0)
    engine.start(link.handlers, link.on_view)
    with pytest.raises(TransportError, match="rank-1 did not join"):
        link.open()
    link.close(b"")


def test_a_part_that_comes_twice_is_taken_once() -> None:
    hub = ThreadHub()
    engine = hub.engine(DRIVER)
    link = EngineLink(engine, NAMES[:2])
    engine.start(link.handlers, link.on_view)
    other = hub.engine("rank-1")
    other.start({}, lambda view: None)
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    for _ in range(2):
        other.request(DRIVER, "leader", bytes(8) + b"\1once", timeout_seconds=5)
    assert link.receive(wake, 5) == [(1, b"once")]
    assert link.receive(wake, 0) == []
    link.forget(1)
    other.leave()
    assert link.receive(wake, 0) == []
    link.close(b"")
    engine.leave()
    os.close(wake)
