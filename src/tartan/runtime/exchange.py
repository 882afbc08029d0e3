"""The node's side of homes: spans come from other ranks, and go to them, beside its own storage.

``Homes`` decides; this carries its decisions out. Everything that happens (a load wanted or ended, a question, an
answer, other members) is handed to it under one lock, in which nothing waits, sends or copies. Questions to other ranks
are asked by threads of their own, one for each that is open; questions of others are answered in threads that the
fetcher brings. So a slow rank holds up neither the loop of the node, nor its reads, nor the thread of the engine.

A span goes to others from a kept slot, which stays pinned until it is sent, or from a copy of where the host level has
it: the slot there is wanted again soon, and is only held for as long as a copy takes. A span comes straight into its
slot. When its sender is given up in between, the rank loads the span itself, but not before nothing more can arrive.

What a device must preprocess is preprocessed once, by the rank that keeps it, before it is sent.

Spans with items that failed travel too, each with its reasons: what failed once is not tried again elsewhere.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tartan.base.daemon_pool import DaemonPool
from tartan.core.pairs.actions import Origin
from tartan.core.pairs.device_time import RANKS
from tartan.core.pairs.grid import Grid
from tartan.core.ranks.homes import Ask, Copy, GiveUp, HomeAction, Homes, Read, Respond, Send
from tartan.core.ranks.messages import Answer, Busy, Fetch, Member
from tartan.errors import ResourceError, TartanError
from tartan.runtime.codec import decode, encode, encode_parts, measure_encoded, nbytes_of
from tartan.runtime.events import NodeBroken, SpanFilled
from tartan.runtime.host import HOST_ARENA, Place, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.shipment import Failures, Fetcher, Shipment
from tartan.runtime.tasks import ItemPlan
from tartan.runtime.wiring import Wiring
from tartan.workers.arena import Arena

# By judgement: a rank holds some streaming spans at a time, and each question is a thread that sleeps. `tartan bench
# cluster_speed` holds what it costs.
ASKERS = 8
"""Questions to other ranks that are open at a time."""
# By contract: below ANSWER_SECONDS of cluster/fetching (60), so that the asked rank says "busy" before the asker takes
# it for dead.
PATIENCE_SECONDS = 50.0
"""How long an asker is left waiting: for a load, or for a rank that has not begun."""


class OwnLoads(Protocol):
    """What a rank loads without asking others; the exchange has ``filled`` called at the end of each load."""

    def read(self, place: Place) -> None:
        """Start to fill a place from disk or from storage."""

    def on_disk(self, span: int) -> bool:
        """Whether a span is known to be on the disk of this rank; waits for nothing."""


class _Question:
    """A question of another rank, and the answer once there is one."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self.answer: Send | Answer | None = None

    def settle(self, answer: Send | Answer) -> None:
        self.answer = answer
        self._answered.set()

    def wait(self, seconds: float) -> None:
        self._answered.wait(seconds)


@dataclass(frozen=True)
class KeptSlots:
    """What a rank keeps for others, in the host arena behind the slots of its tiles.

    Of items of unequal size an address is that of a window, which holds a span.

    Attributes
    ----------
    row_slots : int
        Slots before this address hold what stays.
    first : int
        Address of the first kept slot.
    n_spans : int
    span_slots : int
        Of the longest span.
    """

    row_slots: int
    first: int
    n_spans: int
    span_slots: int


class Exchange:
    """Finds the spans of a node at other ranks, and answers theirs.

    Parameters
    ----------
    fetcher : Fetcher
    kept : KeptSlots

    Attributes
    ----------
    unreached : dict of str to str
        Addresses that did not answer, each with the first reason.

    Notes
    -----
    ``open`` joins it to a node; ``welcomed`` and ``view`` may come before or after it.
    """

    def __init__(self, fetcher: Fetcher, kept: KeptSlots, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._fetcher = fetcher
        self._kept = kept
        self._patience = patience_seconds
        self._changed = threading.Condition()
        self._closed = False
        self._rank = -1
        self._members: tuple[Member, ...] = ()
        self._node: _NodeSide | None = None
        self._homes: Homes | None = None
        self._questions: dict[tuple[int, int], deque[_Question]] = defaultdict(deque)
        self._wanted: dict[int, Place] = {}
        self._asking: dict[int, str] = {}
        self._given_up: set[int] = set()
        self._resident: dict[int, Place] = {}
        self._parsed: set[int] = set()
        self._copying: dict[int, int] = defaultdict(int)
        self._failures: dict[int, Failures] = {}
        self._serials = itertools.count(1)
        self.bytes_received = 0
        self.unreached: dict[str, str] = {}
        fetcher.serve(self.provide)

    # -- the cluster's side ----------------------------------------------------------------------------------

    def on_welcomed(self, rank: int) -> None:
        """Take note of the own number."""
        with self._changed:
            self._rank = rank
            self._begin()

    def view(self, members: Sequence[Member]) -> None:
        """Take part with these ranks from now on; waits for nothing."""
        with self._changed:
            there = {member.address for member in members}
            lost = [member for member in self._members if member.address not in there]
            self._members = tuple(member for member in members if member.address and not member.storage)
            self._changed.notify_all()
            for key in list(self._questions):
                if key[0] in {member.rank for member in lost}:
                    self._settle_all(key)
            if self._homes is not None and self._members:
                self._carry_out(self._homes.view(self._members))
        for member in lost:
            self._fetcher.drop(member.address)

    def provide(self, rank: int, fetch: Fetch) -> Shipment | Answer:
        """Answer a question of another rank; may wait until a load has ended, or until this rank has begun."""
        question, span = _Question(), fetch.span
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._knows(rank), self._patience)
            if self._homes is None or not self._knows(rank):
                return Busy(span)
            self._questions[rank, span].append(question)
            self._carry_out(self._homes.on_fetched(rank, fetch))
        question.wait(self._patience)
        with self._changed:
            answer = question.answer
            if answer is None:
                self._questions[rank, span].remove(question)
                return Busy(span)
        return self._make_shipment(answer) if isinstance(answer, Send) else answer

    # -- the node's side -------------------------------------------------------------------------------------

    @property
    def guest_slots(self) -> int:
        """Slots that a device needs to prepare what is kept here for other ranks."""
        return self._kept.span_slots if self._kept.n_spans else 0

    def open(self, wiring: Wiring, grid: Grid, loads: OwnLoads, prepare: Callable[[Place], None] | None) -> None:
        """Begin to serve a node, whose ``prepare`` has a device prepare a kept span, if it has one that does."""
        with self._changed:
            self._node = _NodeSide(wiring, grid, loads, prepare)
            self._begin()

    def close(self) -> None:
        """Answer and ask nothing more."""
        with self._changed:
            node, self._node, self._homes, self._closed = self._node, None, None, True
            self._changed.notify_all()
            for key in list(self._questions):
                self._settle_all(key)
            asked = {address for address in self._asking.values() if address}
        for address in asked:
            self._fetcher.drop(address)
        if node is not None:
            node.askers.close()

    def want(self, place: Place) -> None:
        """Have a place of the host level filled, from wherever its span is found."""
        with self._changed:
            if self._homes is None:
                return
            self._wanted[place.span] = place
            if self._node is not None:
                self._node.wiring.device_time.begin(RANKS)
            self._carry_out(self._homes.source(place.span, stays=place.address < self._kept.row_slots))

    def on_filled(self, event: SpanFilled) -> None:
        """Take in that a place was filled from storage or from disk, one of the host level or a kept one."""
        with self._changed:
            if self._node is None or self._homes is None:
                return
            self._failures[event.place.span] = event.failures
            if event.place.address < self._kept.first:
                asked_for = event.place.span in self._wanted
                self._on_arrival(self._node, event)
                if not asked_for:
                    return  # the loader found it on disk at once
            elif self._node.prepare is not None and not event.origin.ready:
                self._node.prepare(event.place)  # once for all ranks that will ask
                return
            self._carry_out(self._homes.read(event.place.span))

    def on_prepared(self, place: Place, failures: Failures) -> None:
        """Take note that a device has prepared a kept span, with items that failed there."""
        with self._changed:
            if self._homes is not None:
                self._failures[place.span] = {**self._failures.get(place.span, {}), **failures}
                self._carry_out(self._homes.read(place.span))

    def find_failed(self, span: int) -> set[int]:
        """Return which items of a span failed, by position."""
        with self._changed:
            return set(self._failures.get(span, ()))

    def on_placed(self, place: Place) -> None:
        """Take note that a span lies elsewhere in the host level; its old place may be filled anew on return."""
        with self._changed:
            self._await_copies(place.span)
            if place.span in self._resident:
                self._resident[place.span] = place

    def on_preparing(self, span: int) -> None:
        """Take note that a device is about to preprocess a span; its place may be filled anew on return.

        Who asks for it from now on waits for the device, which waits for no rank.
        """
        with self._changed:
            self._await_copies(span)
            self._resident.pop(span, None)
            self._parsed.discard(span)
            if self._homes is not None:
                self._homes.on_preparing(span)

    def on_stored(self, place: Place, failures: Failures) -> None:
        """Take note that a device has given a span back ready, with items that failed there."""
        with self._changed:
            self._failures[place.span] = {**self._failures.get(place.span, {}), **failures}
            self._resident[place.span] = place
            if self._homes is not None:
                self._carry_out(self._homes.on_prepared(place.span))

    def on_evicted(self, span: int) -> None:
        """Take note that a span is no longer in the host level; its place may be filled anew on return."""
        with self._changed:
            self._await_copies(span)
            self._resident.pop(span, None)
            self._parsed.discard(span)

    # -- under the lock --------------------------------------------------------------------------------------

    def _knows(self, rank: int) -> bool:
        return self._homes is not None and any(member.rank == rank for member in self._members)

    def _begin(self) -> None:
        if self._rank >= 0 and self._node is not None and self._homes is None:
            self._changed.notify_all()
            on_disk = self._node.loads.on_disk
            self._homes = Homes(self._rank, self._kept.n_spans, self._resident.__contains__, on_disk=on_disk)
            if self._members:
                self._carry_out(self._homes.view(self._members))

    def _await_copies(self, span: int) -> None:
        while self._copying.get(span):
            self._changed.wait()

    def _on_arrival(self, node: _NodeSide, event: SpanFilled) -> None:
        """Let the node have a span, and others from there."""
        if self._wanted.pop(event.place.span, None) is not None:
            node.wiring.device_time.end(RANKS)
        self._resident[event.place.span] = event.place
        if not (node.transit.arrives_ready or event.origin.ready):
            self._parsed.add(event.place.span)
        node.wiring.post(event)

    def _carry_out(self, actions: Sequence[HomeAction]) -> None:
        assert self._node is not None
        for action in actions:
            match action:
                case Ask(rank, fetch):
                    self._submit_question(self._node, rank, fetch)
                case Respond(rank, answer):
                    self._settle(rank, answer.span, answer)
                case Send(rank, span):
                    self._settle(rank, span, action)
                case Copy(span, kept):
                    self._node.askers.submit(partial(self._guard, partial(self._copy, span, kept)))
                case Read(span, None) if span in self._asking:
                    self._given_up.add(span)
                    if self._asking[span]:
                        self._fetcher.drop(self._asking[span])
                case Read(span, None) | GiveUp(span):
                    self._node.loads.read(self._wanted[span])
                case Read(span, kept):
                    assert kept is not None
                    place = self._find_kept_place(self._node, span, kept)
                    self._node.transit.clear(place)
                    self._node.loads.read(place)

    def _submit_question(self, node: _NodeSide, rank: int, fetch: Fetch) -> None:
        address = next((member.address for member in self._members if member.rank == rank), "")
        self._asking[fetch.span] = address
        ask = partial(self._ask, node, rank, address, fetch, self._wanted[fetch.span])
        node.askers.submit(partial(self._guard, ask))

    def _settle(self, rank: int, span: int, answer: Send | Answer) -> None:
        questions = self._questions.get((rank, span))
        if questions:
            questions.popleft().settle(answer)
            if not questions:
                del self._questions[rank, span]
            if isinstance(answer, Send) and answer.kept is None:
                self._copying[span] += 1
        elif isinstance(answer, Send) and self._homes is not None:  # the asker has gone
            self._homes.on_sent(span, answer.kept)

    def _settle_all(self, key: tuple[int, int]) -> None:
        for question in self._questions.pop(key):
            question.settle(Busy(key[1]))

    def _find_kept_place(self, node: _NodeSide, span: int, kept: int) -> Place:
        items = node.grid.span_items(span)
        # Places of the scheduler count up: no two fills have the same number.
        serial = -next(self._serials)
        return Place(span, self._kept.first + kept * self._kept.span_slots, len(items), serial, items.start)

    # -- threads that copy, ask and answer ---------------------------------------------------------------------

    def _guard(self, call: Callable[[], None]) -> None:
        """Let no error of ours leave the node waiting for a span for ever."""
        node = self._node
        try:
            call()
        except BaseException as error:
            if node is not None:
                node.wiring.post(NodeBroken(error))

    def _copy(self, span: int, kept: int) -> None:
        """Copy a kept span to where the scheduler wants it."""
        with self._changed:
            node, place = self._node, self._wanted.get(span)
            if node is None or place is None:
                return
            source = self._find_kept_place(node, span, kept)
        n_bytes = node.transit.copy(source, place, ready=node.keeps_ready)
        origin = Origin.RANK if node.keeps_ready else Origin.RANK_PARSED
        with self._changed:
            if self._homes is not None:
                event = SpanFilled(place, n_bytes, self._failures.get(span, {}), origin)
                self._on_arrival(node, event)
                self._carry_out(self._homes.on_copied(span))

    def _ask(self, node: _NodeSide, rank: int, address: str, fetch: Fetch, place: Place) -> None:
        """Ask a rank for a span, and take in what comes of it."""
        answer: Failures | Answer | None
        arrival = _IncomingSpan(node.transit, place)
        try:
            answer = self._fetcher.fetch(address, self._rank, fetch, arrival.land) if address else Busy(fetch.span)
            if isinstance(answer, Mapping):
                arrival.end()
        except TartanError as error:
            answer = None
            self.unreached.setdefault(address, str(error))
        with self._changed:
            del self._asking[fetch.span]
            if self._homes is None:
                return
            if fetch.span in self._given_up:
                self._given_up.remove(fetch.span)
                node.loads.read(place)
            elif answer is None:
                self._carry_out(self._homes.on_silent(fetch.span))
            elif isinstance(answer, Mapping):
                self.bytes_received += arrival.n_bytes
                self._failures[fetch.span] = answer
                self._on_arrival(node, SpanFilled(place, arrival.n_bytes, answer, arrival.origin))
                self._carry_out(self._homes.on_received(fetch.span, rank))
            else:
                self._carry_out(self._homes.on_answered(rank, answer))

    def _make_shipment(self, answer: Send) -> Shipment | Answer:
        """Return what a rank asked for, to be sent from where it lies or from a copy."""
        span, kept = answer.span, answer.kept
        with self._changed:
            node, failures = self._node, self._failures.get(span, {})
        if node is None:
            return Busy(span)
        if kept is not None:
            return self._make_kept_shipment(node, span, kept, failures)
        ready = span not in self._parsed  # it stays as it is while it is copied
        try:
            copy = node.transit.bytes_of(self._resident[span], ready=ready).copy()
        finally:
            with self._changed:
                self._copying[span] -= 1
                self._changed.notify_all()
        return Shipment(copy.data, failures, ready=ready)

    def _make_kept_shipment(self, node: _NodeSide, span: int, kept: int, failures: Failures) -> Shipment:
        ready = node.keeps_ready
        try:
            items = node.transit.bytes_of(self._find_kept_place(node, span, kept), ready=ready).data
        except BaseException:  # an object that cannot travel: the asker loads it itself
            self._on_sent(span, kept)
            raise
        return Shipment(items, failures, partial(self._on_sent, span, kept), ready)

    def _on_sent(self, span: int, kept: int) -> None:
        with self._changed:
            if self._homes is not None:
                self._carry_out(self._homes.on_sent(span, kept))


class _NodeSide:
    """What an exchange uses of its node."""

    def __init__(self, wiring: Wiring, grid: Grid, loads: OwnLoads, prepare: Callable[[Place], None] | None) -> None:
        self.wiring = wiring
        self.grid = grid
        self.loads = loads
        self.prepare = prepare
        self.transit = Transit(wiring.item_plan, wiring.arenas)
        self.keeps_ready = self.transit.arrives_ready or prepare is not None
        self.askers = DaemonPool(ASKERS, "tartan-exchange")


class _IncomingSpan:
    """A span on its way into its place."""

    def __init__(self, transit: Transit, place: Place) -> None:
        self._transit = transit
        self._place = place
        self._memory = np.empty(0, np.uint8)
        self.origin = Origin.RANK

    @property
    def n_bytes(self) -> int:
        return len(self._memory)

    def land(self, n_bytes: int, ready: bool) -> memoryview:
        """Return where that many bytes may come."""
        self.origin = Origin.RANK if ready else Origin.RANK_PARSED
        self._memory = self._transit.take_memory(self._place, n_bytes, ready=ready)
        return self._memory.data

    def end(self) -> None:
        """Have the span in its place."""
        self._transit.on_landed(self._place, self._memory)


# How spans travel between ranks: as bytes out of the host places of one, and into those of another.
#
# Items of one form travel as they lie in their slots: no byte is copied on the way. Where a device preprocesses, a span
# travels parsed, or ready once the device has given it back; ``ready`` says which. Items of unequal size travel in the
# encoding in which worker processes share them, a pickle with the arrays beside it. Ranks of a run accept it from each
# other as they accept their job from the driver: behind the token of the run.


class Transit:
    """Takes spans out of the host places of a rank, and puts others in.

    Parameters
    ----------
    plan : ItemPlan
    arenas : dict of str to Arena

    Notes
    -----
    May be called from any thread; what a place holds must not change meanwhile.
    """

    def __init__(self, plan: ItemPlan, arenas: dict[str, Arena]) -> None:
        self._plan = plan
        self._items = plan.items
        self._arenas = arenas

    @property
    def arrives_ready(self) -> bool:
        """Whether spans that come from storage need nothing more."""
        return self._plan.parsed is None

    def bytes_of(self, place: Place, *, ready: bool) -> np.ndarray:
        """Return a span as bytes; a view where it can be."""
        if isinstance(self._items, UniformItems):
            return self._block(place, ready=ready)
        if isinstance(self._items, RaggedObjects):
            parts, n_bytes = encode_parts(self._items.spans[place.address])
            memory = np.empty(n_bytes, np.uint8)
            encode(parts, memory)
            return memory
        window = self._window(place)
        return window[: measure_encoded(window)]

    def take_memory(self, place: Place, n_bytes: int, *, ready: bool) -> np.ndarray:
        """Return memory into which a span can come; ``landed`` then has it in its place.

        Raises
        ------
        ResourceError
            If it does not fit.
        """
        if isinstance(self._items, RaggedObjects):
            return np.empty(n_bytes, np.uint8)
        room = self._block(place, ready=ready) if isinstance(self._items, UniformItems) else self._window(place)
        fits = n_bytes == len(room) if isinstance(self._items, UniformItems) else n_bytes <= len(room)
        if not fits:
            raise ResourceError(f"a span of {n_bytes:,} bytes came where {len(room):,} are expected")
        return room[:n_bytes]

    def on_landed(self, place: Place, memory: np.ndarray) -> None:
        """Take in a span that has come into ``memory``."""
        if isinstance(self._items, RaggedObjects):
            self._items.spans[place.address] = decode(memory)

    def copy(self, source: Place, target: Place, *, ready: bool) -> int:
        """Copy a span from one place to another; return its bytes."""
        if isinstance(self._items, RaggedObjects):
            items = self._items.spans[target.address] = self._items.spans[source.address]
            return sum(map(nbytes_of, items))
        there = self.bytes_of(source, ready=ready)
        self.take_memory(target, len(there), ready=ready)[...] = there
        return len(there)

    def clear(self, place: Place) -> None:
        """Give the memory of a place back that no slot fixes."""
        if isinstance(self._items, RaggedObjects):
            self._items.spans.pop(place.address, None)
        elif isinstance(self._items, RaggedBlobs):
            window_bytes = self._items.window_bytes
            self._arenas[HOST_ARENA].punch(place.address * window_bytes, window_bytes)

    def _block(self, place: Place, *, ready: bool) -> np.ndarray:
        found: np.ndarray = self._plan.block(self._arenas, place, ready=ready).reshape(-1).view(np.uint8)
        return found

    def _window(self, place: Place) -> np.ndarray:
        assert isinstance(self._items, RaggedBlobs)
        n_bytes = self._items.window_bytes
        return self._arenas[HOST_ARENA].view(place.address * n_bytes, (n_bytes,), np.uint8)
