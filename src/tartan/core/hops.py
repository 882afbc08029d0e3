"""The directory of the Rocket paper (section 4.1.3), as a baseline in replays: who asked for an item may have it.

Node ``i mod p`` is asked for item i first. It names the nodes that asked for the item last, at most ``n_hops`` of them,
one after the other, and notes who asks now. A node that has the item sends it; if none has, the asker loads it. Nothing
is kept for others, and nothing is loaded for them.

The interface is that of ``tartan.core.homes.Homes``; events in, actions out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from tartan.core.homes import Ask, HomeAction, Read, Respond, Send
from tartan.core.messages import Answer, Busy, Elsewhere, Fetch, Member, Yours


class HopsDirectory:
    """The part of one rank.

    Parameters
    ----------
    rank : int
        The own number.
    n_hops : int
        Nodes that are asked before the item is loaded.
    resident : callable
        Whether this rank has a span.

    Attributes
    ----------
    hits : Counter of int
        Own requests that were answered, by the number of the hop; 0 counts those that no node could answer.
    """

    def __init__(self, rank: int, n_hops: int, resident: Callable[[int], bool]) -> None:
        self.rank = rank
        self.hits: Counter[int] = Counter()
        self._n_hops = n_hops
        self._resident = resident
        self._members: list[int] = [rank]
        self._candidates: dict[int, deque[int]] = {}
        self._chains: dict[tuple[int, int], list[int]] = {}
        self._wishes: dict[int, tuple[int | None, tuple[int, ...]]] = {}

    def view(self, members: Sequence[Member]) -> list[HomeAction]:
        """Take part with these ranks from now on."""
        self._members = sorted(member.rank for member in members)
        lost = [s for s, (asked, _) in self._wishes.items() if asked is not None and asked not in self._members]
        return [action for span in lost for action in self._load(span)]

    def source(self, span: int, *, stays: bool) -> list[HomeAction]:
        """The own scheduler wants a span."""
        self._wishes[span] = None, ()
        return self._ask_contact(span)

    def fetched(self, rank: int, fetch: Fetch) -> list[HomeAction]:
        """A rank asks: for the items, or (as the point of contact) for who may have them."""
        if fetch.sent_on:
            return [Send(rank, fetch.span, None) if self._resident(fetch.span) else Respond(rank, Busy(fetch.span))]
        return [Respond(rank, self._named(rank, fetch.span, fetch.missed))]

    def answered(self, rank: int, answer: Answer) -> list[HomeAction]:
        """A rank answered without items."""
        span = answer.span
        wish = self._wishes.get(span)
        if wish is None or wish[0] != rank:
            return []
        if isinstance(answer, Busy):
            self._wishes[span] = None, (*wish[1], rank)
            return self._ask_contact(span)
        return self._follow(span, answer)

    def received(self, span: int, rank: int) -> list[HomeAction]:
        """Items of a span came from a rank."""
        _, missed = self._wishes.pop(span)
        self.hits[len(missed) + 1] += 1
        return []

    def expects(self, span: int, rank: int) -> bool:
        """Whether items of a span are still wanted from a rank."""
        return span in self._wishes and self._wishes[span][0] == rank

    def read(self, span: int) -> list[HomeAction]:
        """A load ended."""
        self._wishes.pop(span, None)
        return []

    def sent(self, span: int, kept: int | None) -> list[HomeAction]:
        """A ``Send`` ended."""
        return []

    def copied(self, span: int) -> list[HomeAction]:
        """Nothing is kept, so nothing is copied."""
        return []

    def _ask_contact(self, span: int) -> list[HomeAction]:
        contact, (_, missed) = self._members[span % len(self._members)], self._wishes[span]
        if contact == self.rank:
            return self._follow(span, self._named(self.rank, span, missed))
        self._wishes[span] = contact, missed
        return [Ask(contact, Fetch(span, missed=missed))]

    def _named(self, rank: int, span: int, missed: tuple[int, ...]) -> Answer:
        """Return the next rank that may have a span; note who asks."""
        known = self._candidates.setdefault(span, deque(maxlen=self._n_hops))
        if not missed:
            self._chains[rank, span] = [one for one in known if one != rank]
            if rank in known:
                known.remove(rank)
            known.appendleft(rank)
        rest = [one for one in self._chains[rank, span] if one not in missed and one in self._members]
        if rest:
            return Elsewhere(span, rest[0])
        del self._chains[rank, span]
        return Yours(span)

    def _follow(self, span: int, answer: Answer) -> list[HomeAction]:
        if not isinstance(answer, Elsewhere):
            return self._load(span)
        if answer.rank == self.rank:
            self._wishes[span] = None, (*self._wishes[span][1], self.rank)
            return self._ask_contact(span)
        self._wishes[span] = answer.rank, self._wishes[span][1]
        return [Ask(answer.rank, Fetch(span, sent_on=True))]

    def _load(self, span: int) -> list[HomeAction]:
        self.hits[0] += 1
        self._wishes[span] = None, self._wishes[span][1]
        return [Read(span, None)]
