"""Spans over bulk transfer: what arrives is what was sent, compressed where the link is slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import Credentials
from tartan.cluster.fetching import GRACE_SECONDS, BulkFetcher, UnreachedRanks
from tartan.core.ranks.messages import Fetch, Member
from tartan.runtime.items import ItemFailure
from tartan.runtime.shipment import Shipment

CREDENTIALS = Credentials(b"token")
TEXT = np.frombuffer(b"0.125 0.250 " * 20_000, np.uint8)


class Counting(Throttle):
    """Lets everything pass slowly enough to be worth compressing, and counts it."""

    def __init__(self) -> None:
        super().__init__(5e6)
        self.n_bytes = 0

    def pass_bytes(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        super().pass_bytes(n_bytes)


@pytest.fixture
def asker() -> Iterator[BulkFetcher]:
    with closing(BulkFetcher(CREDENTIALS, "127.0.0.1", print)) as fetcher:
        yield fetcher


def test_what_goes_over_a_slow_link_is_compressed_from_the_second_span_on(asker: BulkFetcher) -> None:
    throttle, released = Counting(), []
    with closing(BulkFetcher(CREDENTIALS, "127.0.0.1", print, throttle)) as server:
        failures = {1: ItemFailure("parse", "bad")}
        server.serve(lambda rank, fetch: Shipment(TEXT.data, failures, lambda: released.append(fetch.span), False))
        passed = []
        for span in range(3):
            target = np.zeros(len(TEXT), np.uint8)
            seen: list[tuple[int, bool]] = []

            def landing(n_bytes: int, ready: bool, seen=seen, target=target) -> memoryview:  # type: ignore[no-untyped-def]
                seen.append((n_bytes, ready))
                return memoryview(target)

            before = throttle.n_bytes
            assert asker.fetch(server.address, 0, Fetch(span), landing) == failures
            np.testing.assert_array_equal(target, TEXT)
            assert seen == [(len(TEXT), False)]
            passed.append(throttle.n_bytes - before)
    assert released == [0, 1, 2]
    assert passed[0] >= len(TEXT)
    assert max(passed[1:]) < len(TEXT) / 4


def test_a_rank_that_lives_and_cannot_be_reached_is_named_once_with_what_it_costs() -> None:
    now, unreached = [0.0], {"tcp://b:1": "connection refused"}
    told = UnreachedRanks("a", unreached, lambda: now[0])
    members = [Member(number, name, f"tcp://{name}:1", 1.0, 0) for number, name in enumerate("abc")]
    told.view(members)
    assert told.take_lines() == []  # perhaps it is only being lost
    now[0] = GRACE_SECONDS
    (line,) = told.take_lines()
    assert line.startswith("rank a cannot reach rank number 1 on b at tcp://b:1 (connection refused)")
    assert "R rises, the scores stay the same" in line
    assert told.take_lines() == []
    unreached["tcp://c:1"] = "timed out"
    assert told.take_lines() == []
    told.view(members[:2])  # it is lost, and no member any more
    now[0] += 2 * GRACE_SECONDS
    assert told.take_lines() == []
    assert "tcp://c:1" not in unreached
