"""Where the items of a rank come from, when there are several: its own storage, or another rank.

Every span has a *home*: the rank that a hash chooses among the live ones. The home is asked first, and it knows who
else has the span, because every rank that wants it asks there. It sends the span from its kept slots; or names the rank
with which it stays; or, when no rank has it, loads it into a kept slot and sends it, or tells an asker with which it
will stay to load it. The outcome: an item is loaded once, as long as some rank keeps it.

**Why no wait crosses ranks in a circle.** A question is answered at once, or when a load from the storage of the rank
that was asked has ended, or its device has preprocessed the span. Both wait for no rank: a device is only waited for
once it has room for the span, and has slots of its own for what is kept. A question that was sent on is never sent on
again; a rank that waits for a span from elsewhere does not let others wait for it, it is ``Busy``. Kept slots are not
part of the rooms that tiles reserve, so a load into one never waits for a tile; when none is free, the home is busy. A
rank that gets no items (busy, lost, silent, sent from one rank to the next more than ``MOST_QUESTIONS`` times) loads
for itself.

Nothing here sends, reads or waits: events in, actions out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from tartan.core.pairs.ledger import Failure
from tartan.core.ranks.messages import Answer, Busy, Elsewhere, Failed, Fetch, Member, Yours
from tartan.errors import InternalError

#: Questions that a rank asks for one span, until it loads for itself.
#: By judgement: home, holder, last asker, and one that moved meanwhile; a fifth answer takes longer than a load. No
#: benchmark.
MOST_QUESTIONS = 4


class Ask(NamedTuple):
    """Send a question to a rank; ``answered``, ``received`` or ``silent`` end it."""

    rank: int
    fetch: Fetch


class Respond(NamedTuple):
    """Answer a question without items."""

    rank: int
    answer: Answer


class Read(NamedTuple):
    """Load a span from storage: into a kept slot, or (None) where the scheduler wants it; ``read`` ends it."""

    span: int
    kept: int | None


class Copy(NamedTuple):
    """Copy a span from a kept slot to where the scheduler wants it; ``copied`` ends it."""

    span: int
    kept: int


class Send(NamedTuple):
    """Send a span from a kept slot, or (None) from where the host level has it, which pins it; ``sent`` ends it."""

    rank: int
    span: int
    kept: int | None


class GiveUp(NamedTuple):
    """A span that the scheduler wants cannot be loaded at its home."""

    span: int
    failures: tuple[Failure, ...]


HomeAction = Ask | Respond | Read | Copy | Send | GiveUp


def _mix(values: np.ndarray) -> np.ndarray:
    """Mix 64 bits (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def home_of(span: int, ranks: Sequence[int] | np.ndarray) -> int:
    """Return the home of a span by rendezvous hashing: when a rank comes or goes, only its own spans move.

    Deterministic: all ranks with the same view agree.
    """
    numbers = np.asarray(ranks, dtype=np.uint64)
    seed = _mix(np.array([span], dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return int(numbers[np.argmax(_mix(seed ^ (numbers + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)))])


@dataclass
class _Kept:
    """A span in a kept slot, or on its way there."""

    slot: int
    ready: bool = False
    pins: int = 0
    given: set[int] = field(default_factory=set)


@dataclass
class _Wish:
    """A span that the own scheduler waits for."""

    stays: bool
    asked: int | None = None
    n_questions: int = 0
    missed: tuple[int, ...] = ()


@dataclass
class HomeCounts:
    """What happened so far, in spans, except where items are named."""

    storage_loads: int = 0
    from_ranks: int = 0
    sent: int = 0
    busy: int = 0
    sent_on: int = 0


def _nowhere(span: int) -> bool:
    """Say that there is no disk level."""
    return False


@dataclass
class Homes:
    """The part of one rank in finding items.

    Parameters
    ----------
    rank : int
        The own number.
    n_kept : int
        Kept slots, each for one span.
    resident : callable
        Whether the host level of this rank has a span that can be sent.
    holders_load : bool
        Whether a rank with which a span will stay loads it when no rank has it; otherwise its home does (where only
        homes reach storage).
    on_disk : callable
        Whether the disk level of this rank has a span: then a load of it needs no storage, and waits for no other rank.

    Notes
    -----
    The host level must have a span before ``read`` and ``received`` are reported for it, because others may be sent the
    span from there.
    """

    rank: int
    n_kept: int
    resident: Callable[[int], bool]
    holders_load: bool = True
    counts: HomeCounts = field(default_factory=HomeCounts)
    on_disk: Callable[[int], bool] = _nowhere

    def __post_init__(self) -> None:
        self._members = frozenset({self.rank})
        self._keepers = np.array([self.rank], dtype=np.uint64)
        self._home = cache(lambda span: home_of(span, self._keepers))
        self._free = list(range(self.n_kept))[::-1]
        # In the order of their last use.
        self._kept: dict[int, _Kept] = {}
        self._holders: dict[int, list[int]] = {}
        self._wishes: dict[int, _Wish] = {}
        self._reading: set[int] = set()
        self._waiters: dict[int, list[int]] = {}

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def n_taken(self) -> int:
        """Kept slots that hold a span, or will."""
        return len(self._kept)

    @property
    def n_pinned(self) -> int:
        """Sends and copies from kept slots that have not ended."""
        return sum(kept.pins for kept in self._kept.values())

    # -- events: members -------------------------------------------------------------------------------------

    def view(self, members: Sequence[Member]) -> list[HomeAction]:
        """Take part with these ranks from now on; what lost ones were asked for is loaded from storage."""
        self._members = frozenset(member.rank for member in members)
        keeping = [member.rank for member in members if member.kept_items]
        self._keepers = np.array(keeping or [member.rank for member in members], dtype=np.uint64)
        self._home.cache_clear()
        alive = self._members
        self._waiters = {s: [r for r in ranks if r in alive] for s, ranks in self._waiters.items()}
        self._holders = {s: left for s, ranks in self._holders.items() if (left := [r for r in ranks if r in alive])}
        lost = [span for span, wish in self._wishes.items() if wish.asked is not None and wish.asked not in alive]
        return [action for span in lost for action in self._read_own(span)]

    # -- events: what the own scheduler wants ----------------------------------------------------------------

    def source(self, span: int, *, stays: bool) -> list[HomeAction]:
        """The own scheduler wants a span.

        Parameters
        ----------
        span : int
        stays : bool
            Whether it is part of the side of a region that stays.
        """
        if span in self._wishes:
            raise InternalError(f"span {span} is wanted twice")
        self._wishes[span] = _Wish(stays)
        return self._seek(span)

    def on_answered(self, rank: int, answer: Answer) -> list[HomeAction]:
        """A rank answered without items; late answers are ignored."""
        wish = self._wishes.get(answer.span)
        if wish is None or wish.asked != rank:
            return []
        match answer:
            case Elsewhere(span, holder) if holder in self._members and holder != self.rank:
                return self._ask(span, holder, sent_on=True)
            case Failed(span, failures):
                del self._wishes[span]
                return [GiveUp(span, failures)]
            case Busy(span) if rank != self._home(span):
                wish.missed += (rank,)
                return self._seek(span)
            case _:
                return self._read_own(answer.span)

    def on_silent(self, span: int) -> list[HomeAction]:
        """No answer came in time."""
        wish = self._wishes.get(span)
        return self._read_own(span) if wish is not None and wish.asked is not None else []

    def on_received(self, span: int, rank: int) -> list[HomeAction]:
        """Items of a span came from a rank, and lie where the scheduler wants them."""
        wish = self._wishes.get(span)
        if wish is None or wish.asked != rank:
            return []
        del self._wishes[span]
        self.counts.from_ranks += 1
        if wish.stays and self._home(span) == self.rank:
            self._note_holder(span, self.rank)
        return []

    def expects(self, span: int, rank: int) -> bool:
        """Whether items of a span are still wanted from a rank: an asker that gave up must not let them in."""
        wish = self._wishes.get(span)
        return wish is not None and wish.asked == rank

    def on_copied(self, span: int) -> list[HomeAction]:
        """A ``Copy`` ended."""
        self._unpin(span)
        return []

    # -- events: what others want ----------------------------------------------------------------------------

    def on_fetched(self, rank: int, fetch: Fetch) -> list[HomeAction]:
        """A rank asks for a span."""
        span = fetch.span
        if rank not in self._members:
            return self._busy(rank, span)  # it came or went a moment ago: let it not wait
        there = self._send_what_is_there(rank, span)
        if there or span in self._reading:
            if fetch.stays and not fetch.sent_on:
                self._note_holder(span, rank)
            if not there:
                self._waiters.setdefault(span, []).append(rank)
            return there
        if not fetch.sent_on:
            return self._provide(rank, fetch)
        if self.on_disk(span) and span not in self._wishes:
            return self._load_for(rank, span)
        return self._busy(rank, span)

    def on_sent(self, span: int, kept: int | None) -> list[HomeAction]:
        """A ``Send`` ended, well or not."""
        if kept is not None:
            self._unpin(span)
        return []

    def read(self, span: int, failures: tuple[Failure, ...] = ()) -> list[HomeAction]:
        """A ``Read`` ended; with failures, the span cannot be loaded."""
        self._reading.discard(span)
        self.counts.storage_loads += not failures
        waiters = self._waiters.pop(span, [])
        if failures:
            return self._on_failure(span, waiters, failures)
        kept = self._kept.get(span)
        if kept is not None:
            kept.ready = True
        actions: list[HomeAction] = []
        if span in self._wishes:
            del self._wishes[span]
            if kept is not None:
                actions.append(self._copy(span, kept))
        return [*actions, *self._answer_waiters(span, waiters)]

    def on_preparing(self, span: int) -> None:
        """A device begins to preprocess a span of the host level, which cannot be sent until ``prepared``."""
        self._reading.add(span)

    def on_prepared(self, span: int) -> list[HomeAction]:
        """A device has preprocessed a span of the host level."""
        self._reading.discard(span)
        return self._answer_waiters(span, self._waiters.pop(span, []))

    # -- inside ----------------------------------------------------------------------------------------------

    def _seek(self, span: int) -> list[HomeAction]:
        """Find a source for a span that the own scheduler wants."""
        wish, home = self._wishes[span], self._home(span)
        wish.asked = None
        kept = self._kept.get(span)
        if kept is not None:
            if not kept.ready:
                return []  # on its way from storage
            del self._wishes[span]
            return [self._copy(span, kept)]
        if home != self.rank:
            return self._ask(span, home)
        holder = self._holder(span, self.rank, wish.missed)
        if holder is not None:
            return self._ask(span, holder, sent_on=True)
        if wish.stays:
            self._note_holder(span, self.rank)
        slot = None if wish.stays and self.holders_load else self._take_kept(span)
        return self._read_own(span) if slot is None else [self._begin_read(span, slot)]

    def _ask(self, span: int, rank: int, *, sent_on: bool = False) -> list[HomeAction]:
        wish = self._wishes[span]
        wish.n_questions += 1
        if wish.n_questions > MOST_QUESTIONS:
            return self._read_own(span)
        wish.asked = rank
        return [Ask(rank, Fetch(span, wish.stays, sent_on, () if sent_on else wish.missed))]

    def _read_own(self, span: int) -> list[HomeAction]:
        self._wishes[span].asked = None
        return [self._begin_read(span, None)]

    def _begin_read(self, span: int, slot: int | None) -> Read:
        self._reading.add(span)
        return Read(span, slot)

    def _provide(self, rank: int, fetch: Fetch) -> list[HomeAction]:
        """Answer for a span that is not here, as its home."""
        span = fetch.span
        holder = self._holder(span, rank, fetch.missed)
        if holder is not None:
            if fetch.stays:
                self._note_holder(span, rank)
            self.counts.sent_on += 1
            return [Respond(rank, Elsewhere(span, holder))]
        if span in self._wishes:
            return self._busy(rank, span)
        if fetch.stays:
            self._note_holder(span, rank)
            if self.holders_load and not self.on_disk(span):
                return [Respond(rank, Yours(span))]
        return self._load_for(rank, span)

    def _load_for(self, rank: int, span: int) -> list[HomeAction]:
        """Load a span into a kept slot for a rank that asks, if one is free."""
        slot = self._take_kept(span)
        if slot is None:
            return self._busy(rank, span)
        self._waiters.setdefault(span, []).append(rank)
        return [self._begin_read(span, slot)]

    def _answer_waiters(self, span: int, waiters: Sequence[int]) -> list[HomeAction]:
        found = (self._send_what_is_there(rank, span) or self._busy(rank, span) for rank in waiters)
        return [action for actions in found for action in actions]

    def _send_what_is_there(self, rank: int, span: int) -> list[HomeAction]:
        kept = self._kept.get(span)
        if kept is not None and kept.ready:
            self._pin(span, kept)
            kept.given.add(rank)
            self.counts.sent += 1
            return [Send(rank, span, kept.slot)]
        if self.resident(span):
            self.counts.sent += 1
            return [Send(rank, span, None)]
        return []

    def _busy(self, rank: int, span: int) -> list[HomeAction]:
        self.counts.busy += 1
        return [Respond(rank, Busy(span))]

    def _on_failure(self, span: int, waiters: list[int], failures: tuple[Failure, ...]) -> list[HomeAction]:
        kept = self._kept.pop(span, None)
        if kept is not None:
            self._free.append(kept.slot)
        actions: list[HomeAction] = [Respond(rank, Failed(span, failures)) for rank in waiters]
        if self._wishes.pop(span, None) is not None:
            actions.append(GiveUp(span, failures))
        return actions

    def _holder(self, span: int, asker: int, missed: tuple[int, ...]) -> int | None:
        """Return a rank that has a span, as far as known.

        In turn one of the first half, which have had it longest; for one that was sent in vain before, the first. If
        that one did not have it, it is forgotten.
        """
        holders = self._holders.get(span, [])
        while holders and holders[0] in missed:
            holders.pop(0)
        others = [rank for rank in holders if rank not in (asker, self.rank, *missed)]
        if not others:
            return None
        return others[0 if missed else self.counts.sent_on % ((len(others) + 1) // 2)]

    def _note_holder(self, span: int, rank: int) -> None:
        holders = self._holders.setdefault(span, [])
        if rank not in holders:
            holders.append(rank)

    def _copy(self, span: int, kept: _Kept) -> Copy:
        self._pin(span, kept)  # until the copy is made: its slot is not taken meanwhile
        kept.given.add(self.rank)  # this rank streams it as others do, see _take_kept
        return Copy(span, kept.slot)

    def _take_kept(self, span: int) -> int | None:
        """Take a kept slot: a free one, or one which nothing reads or fills, of a span that no rank waits for.

        Where ranks stream the same spans, one that all have been given is wanted last; of several, the one that was
        used longest ago goes.
        """
        if not self._free:
            idle = [s for s, kept in self._kept.items() if kept.ready and not kept.pins]
            victim = next((s for s in idle if self._members <= self._kept[s].given), next(iter(idle), None))
            if victim is None:
                return None
            self._free.append(self._kept.pop(victim).slot)
        self._kept[span] = _Kept(self._free.pop())
        return self._kept[span].slot

    def _pin(self, span: int, kept: _Kept) -> None:
        kept.pins += 1
        self._kept[span] = self._kept.pop(span)

    def _unpin(self, span: int) -> None:
        kept = self._kept[span]
        if kept.pins <= 0:
            raise InternalError(f"kept span {span} is released more often than pinned")
        kept.pins -= 1
