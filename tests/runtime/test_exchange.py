"""Spans that go from node to node: what arrives, what fails, who is lost, over fetchers that the tests hold."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tartan.base.trace import NO_TRACER
from tartan.core.pairs.actions import Origin
from tartan.core.pairs.grid import Grid
from tartan.core.ranks.homes import home_of
from tartan.core.ranks.messages import Answer, Busy, Fetch, Member
from tartan.errors import TransportError
from tartan.runtime.events import SpanFilled
from tartan.runtime.exchange import Exchange, KeptSlots
from tartan.runtime.host import HOST_ARENA, Place, UniformItems
from tartan.runtime.items import ItemFailure, ItemForm
from tartan.runtime.shipment import Failures, Landing, Provide, Shipment
from tartan.runtime.tasks import ItemPlan
from tartan.runtime.wiring import Wiring
from tartan.workers.arena import Arena

N, SPAN, ROOM = 24, 2, 8
FORM = ItemForm(np.dtype(np.float64), (3,))
DEADLINE_SECONDS = 30.0
BAD = {5: ItemFailure("parse", "item 5: bad")}


@dataclass
class Net:
    """Fetchers in one process; ``before`` is called with every question, and may raise."""

    before: Callable[[str, Fetch], None] = lambda address, fetch: None
    provide: dict[str, Provide] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


@dataclass
class Link:
    """The fetcher of one rank."""

    net: Net
    address: str

    def serve(self, provide: Provide) -> None:
        self.net.provide[self.address] = provide

    def fetch(self, address: str, rank: int, fetch: Fetch, landing: Landing) -> Failures | Answer:
        self.net.before(address, fetch)
        if address not in self.net.provide:
            raise TransportError(f"{address} is gone")
        found = self.net.provide[address](rank, fetch)
        if not isinstance(found, Shipment):
            return found
        landing(found.items.nbytes, found.ready)[:] = found.items
        found.release()
        return found.failures

    def drop(self, address: str) -> None:
        self.net.dropped.append(address)


class Node:
    """What an exchange sees of a node: places that it wants, reads from storage, and what was posted."""

    def __init__(
        self,
        net: Net,
        rank: int,
        *,
        n_kept: int = 2,
        patience_seconds: float = DEADLINE_SECONDS,
        begun: bool = True,
        parsed: bool = False,
        prepares: bool = False,
    ) -> None:
        self.hangs = False
        self.prepared = queue.Queue[Place]()
        self.prepare = self.prepared.put if prepares else None
        self.rank = rank
        self.reads: Counter[int] = Counter()
        self.origin = Origin.STORAGE
        self.disk: set[int] = set()
        self.posted: queue.Queue[Any] = queue.Queue()
        self.grid = Grid(N, 4, 0, SPAN, SPAN)
        self.items = UniformItems(FORM)
        arenas = {HOST_ARENA: Arena((ROOM + n_kept * SPAN) * FORM.nbytes, shared=False)}
        plan = ItemPlan(self.items, FORM if parsed else None, FORM, np.zeros(3))
        anything: Any = None
        self.wiring = Wiring(anything, anything, anything, plan, arenas, self.posted.put, NO_TRACER)
        link = Link(net, f"rank {rank}:1")
        self.exchange = Exchange(link, KeptSlots(4, ROOM, n_kept, SPAN), patience_seconds)
        if begun:
            self.begin()

    def begin(self) -> None:
        self.exchange.open(self.wiring, self.grid, self, self.prepare)
        self.exchange.on_welcomed(self.rank)

    def on_disk(self, span: int) -> bool:
        return span in self.disk

    def read(self, place: Place) -> None:
        self.reads[place.span] += 1
        if not self.hangs:
            threading.Thread(target=self._read, args=(place,), daemon=True).start()

    def _read(self, place: Place) -> None:
        block = self.items.block(self.wiring.arenas, place.address, place.length)
        block[...] = np.arange(place.first, place.first + place.length)[:, None]
        failures = {item - place.first: why for item, why in BAD.items() if 0 <= item - place.first < place.length}
        self.exchange.on_filled(SpanFilled(place, int(block.nbytes), failures, self.origin))

    def get(self, span: int, address: int = 0) -> SpanFilled:
        items = self.grid.span_items(span)
        self.exchange.want(Place(span, address, len(items), 1, items.start))
        return self.filled()

    def filled(self) -> SpanFilled:
        event = self.posted.get(timeout=DEADLINE_SECONDS)
        assert isinstance(event, SpanFilled), event
        place = event.place
        block = self.items.block(self.wiring.arenas, place.address, place.length)
        np.testing.assert_array_equal(block, np.arange(place.first, place.first + place.length)[:, None] * np.ones(3))
        return event


def nodes(net: Net, n: int = 2, **ways: Any) -> list[Node]:
    found = [Node(net, rank, **ways) for rank in range(n)]
    view(found, *range(n))
    return found


def view(of: list[Node], *ranks: int) -> None:
    for node in of:
        node.exchange.view([Member(rank, "host", f"rank {rank}:1", 1.0, SPAN) for rank in ranks])


def spans_at_home(rank: int, n: int = 2) -> list[int]:
    return [span for span in range(N // SPAN) if home_of(span, range(n)) == rank]


def test_a_span_is_read_by_one_rank_and_sent_to_the_other() -> None:
    one, other = nodes(Net())
    span = spans_at_home(1)[0]
    assert one.get(span, address=4).origin is Origin.RANK
    assert other.get(span).origin is Origin.RANK, "it lies in a kept slot there"
    assert (one.reads[span], other.reads[span]) == (0, 1)
    assert one.exchange.bytes_received == SPAN * FORM.nbytes


def test_what_stays_with_a_rank_is_sent_from_its_host_level() -> None:
    one, other = nodes(Net())
    span = spans_at_home(1)[0]
    assert one.get(span, address=0).origin is Origin.STORAGE
    assert other.get(span).origin is Origin.RANK
    assert other.reads[span] == 0


def test_a_span_is_sent_parsed_until_a_device_takes_it_and_ready_when_that_has_ended() -> None:
    one, other = nodes(Net(), parsed=True)
    span = spans_at_home(1)[0]
    place = one.get(span, address=0).place
    assert other.get(span).origin is Origin.RANK_PARSED
    other.exchange.on_evicted(span)
    one.exchange.on_preparing(span)
    other.exchange.want(place)
    assert other.posted.empty()
    one.exchange.on_stored(place, {})
    assert other.filled().origin is Origin.RANK
    assert (one.reads[span], other.reads[span]) == (1, 0)


def test_what_is_kept_is_prepared_at_home_once_for_all() -> None:
    one, other, third = nodes(Net(), 3, parsed=True, prepares=True)
    span = next(span for span in spans_at_home(1, 3) if span != 1)
    items = one.grid.span_items(span)
    for node in (one, third):
        node.exchange.want(Place(span, 4, len(items), 1, items.start))
    place = other.prepared.get(timeout=DEADLINE_SECONDS)
    assert place.first == items.start
    assert one.posted.empty(), "it waits for the device of its home"
    assert third.posted.empty()
    why = ItemFailure("preprocess", "bad on the device")
    other.exchange.on_prepared(place, {1: why})
    for event in (one.filled(), third.filled(), other.get(span, address=4)):
        assert (event.origin, event.failures) == (Origin.RANK, {1: why})
    assert other.prepared.empty()
    assert (one.reads[span], other.reads[span], third.reads[span]) == (0, 1, 0)


def test_what_the_disk_has_ready_is_not_prepared_again() -> None:
    one, other = nodes(Net(), parsed=True, prepares=True)
    span = spans_at_home(1)[0]
    other.origin = Origin.DISK
    assert one.get(span, address=4).origin is Origin.RANK
    assert other.prepared.empty()


def test_what_was_evicted_is_asked_for_in_vain_and_loaded() -> None:
    one, other = nodes(Net())
    span = spans_at_home(1)[0]
    one.get(span, address=0)
    one.exchange.on_evicted(span)
    other.get(span)
    assert one.reads[span] + other.reads[span] == 2


def test_what_was_evicted_is_sent_from_the_disk_of_the_rank_that_had_it() -> None:
    one, other = nodes(Net())
    span = spans_at_home(1)[0]
    one.get(span, address=0)
    one.disk.add(span)
    one.exchange.on_evicted(span)
    assert other.get(span).origin is Origin.RANK
    assert (one.reads[span], other.reads[span]) == (2, 0)


def test_what_was_moved_is_sent_from_its_new_place() -> None:
    one, other = nodes(Net())
    span = spans_at_home(1)[0]
    place = one.get(span, address=0).place
    block = one.items.block(one.wiring.arenas, 6, SPAN)
    block[...] = one.items.block(one.wiring.arenas, 0, SPAN)
    one.exchange.on_placed(place._replace(address=6))
    one.items.block(one.wiring.arenas, 0, SPAN)[...] = -1
    other.get(span)
    assert other.reads[span] == 0


def test_a_failed_item_travels_with_its_reason_and_is_tried_once() -> None:
    one, other = nodes(Net())
    found = [node.get(2, address=4) for node in (one, other)]
    assert [event.failures for event in found] == [{1: BAD[5]}] * 2
    assert one.reads[2] + other.reads[2] == 1


@pytest.mark.parametrize("n_kept", [0, 1])
def test_ranks_that_want_the_same_at_once_do_not_wait_for_each_other(n_kept: int) -> None:
    found = nodes(Net(), 3, n_kept=n_kept)
    for span in [*range(N // SPAN)] * 3:
        items = found[0].grid.span_items(span)
        for node in found:
            node.exchange.want(Place(span, 4, SPAN, 1, items.start))
        for node in found:
            assert node.filled().place.span == span
            node.exchange.on_evicted(span)


def test_a_rank_that_cannot_be_reached_costs_a_load() -> None:
    net = Net()
    one, _ = nodes(net)
    del net.provide["rank 1:1"]
    span = spans_at_home(1)[0]
    assert one.get(span).origin is Origin.STORAGE


def test_a_lost_rank_is_not_waited_for_and_nothing_is_read_before_its_connection_has_ended() -> None:
    asked, ended = threading.Event(), threading.Event()

    def hang(address: str, fetch: Fetch) -> None:
        asked.set()
        assert ended.wait(DEADLINE_SECONDS)
        raise TransportError("the connection is broken")

    net = Net(before=hang)
    one, _ = nodes(net)
    span = spans_at_home(1)[0]
    one.exchange.want(Place(span, 0, SPAN, 1, span * SPAN))
    assert asked.wait(DEADLINE_SECONDS)
    view([one], 0)
    assert net.dropped
    assert not one.reads, "its slots may still be written to"
    ended.set()
    assert one.filled().origin is Origin.STORAGE


def test_a_question_waits_for_a_rank_that_has_not_begun() -> None:
    net = Net()
    one, late = Node(net, 0), Node(net, 1, begun=False)
    view([one, late], 0, 1)
    span = spans_at_home(1)[0]
    one.exchange.want(Place(span, 4, SPAN, 1, span * SPAN))
    late.begin()
    assert one.filled().origin is Origin.RANK
    assert (one.reads[span], late.reads[span]) == (0, 1)


def test_a_stranger_is_not_left_waiting() -> None:
    one, _ = nodes(Net(), patience_seconds=0.01)
    assert one.exchange.provide(7, Fetch(3)) == Busy(3)


def test_nothing_is_given_after_the_end() -> None:
    one, _ = nodes(Net())
    one.exchange.close()
    assert one.exchange.provide(1, Fetch(3)) == Busy(3)


def test_an_asker_is_not_left_waiting_for_a_read_that_hangs() -> None:
    one = Node(Net(), 0, patience_seconds=0.01)
    view([one], 0, 1)
    one.hangs = True
    span = spans_at_home(0)[0]
    assert one.exchange.provide(1, Fetch(span)) == Busy(span)
