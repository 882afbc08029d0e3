"""Drive division, coordinator and homes in virtual time, in chunks: what a cluster would do, before it does it.

A *line* is the items of one chunk row or column; it is fetched whole, or in equal *pieces*. A rank computes its
regions line by line, piece by piece: what stays and the piece that streams must be in its slots; the next piece is
fetched meanwhile. The coordinator, the ranks' ``Homes`` and the choice of what is stolen are those of a real run; only
the scheduler is simpler, because it knows no tiles. So a million items on a thousand nodes take minutes. Loads, fills,
traffic, steals and time are predicted; the outcome is a function of the arguments.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tartan.core.pairs.bound import cluster_fills_bound, cluster_loads_bound
from tartan.core.pairs.region import Region
from tartan.core.ranks.coordination import CoordinatorEvent, CoordinatorSetup, Lost, Received
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.homes import Ask, Copy, HomeAction, Homes, Read, Respond, Send
from tartan.core.ranks.messages import (
    Answer,
    Busy,
    Done,
    Elsewhere,
    Fetch,
    FromRank,
    GivenUp,
    Grant,
    Hello,
    Member,
    Report,
    Shed,
    ToRank,
    View,
    Want,
    Welcome,
    Yours,
)
from tartan.core.ranks.stealing import split_off
from tartan.core.replay.described import (
    ClusterNetwork,
    ClusterOptions,
    ClusterPrediction,
    RankLines,
    ReplayedRank,
    divide_lines,
)
from tartan.errors import ConfigError, InternalError


@dataclass
class _LineStep:
    """A piece of a line that passes what stays; the last one of a line ends its chunks."""

    region: Region
    needs: tuple[int, ...]
    held: frozenset[int]
    pairs: int
    ends: bool


@dataclass(eq=False)
class _Replayed:
    """The state of one rank."""

    index: int
    about: ReplayedRank
    lines: RankLines
    number: int = -1
    homes: Homes | HopsDirectory | None = None
    queue: deque[Region] = field(default_factory=deque)
    pieces: deque[_LineStep] = field(default_factory=deque)
    step: _LineStep | None = None
    following: _LineStep | None = None
    computing: bool = False
    wanted: bool = False
    alive: bool = True
    there: dict[int, bool] = field(default_factory=dict)
    """Lines in the slots, in the order of their last use, and whether they are ready."""
    held: set[int] = field(default_factory=set)
    """Those of them that stay."""
    pins: dict[int, int] = field(default_factory=dict)
    up_free: float = 0.0
    down_free: float = 0.0
    device_free: float = 0.0
    loader_free: float = 0.0
    busy: float = 0.0
    n_pairs: int = 0
    ended: float = 0.0

    @property
    def measured(self) -> float:
        """Pairs a second so far; 0 where it has computed nothing."""
        return self.n_pairs / self.busy if self.busy else 0.0

    @property
    def peer(self) -> str:
        return f"rank {self.index}"


class ClusterReplay:
    """One replay; ``run`` returns the prediction.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n_chunks, n_chunks)
        Wanted pairs of every chunk.
    chunk, n_items : int
    ranks : sequence of ReplayedRank
    network : ClusterNetwork
    options : ClusterOptions
    """

    def __init__(
        self,
        pairs: np.ndarray,
        chunk: int,
        n_items: int,
        ranks: Sequence[ReplayedRank],
        network: ClusterNetwork,
        options: ClusterOptions,
    ) -> None:
        self._pairs = pairs
        self._chunk = chunk
        self._n_items = n_items
        self._network = network
        self._options = options
        all_slots, keeps = sum(rank.slots for rank in ranks), options.homes and not options.hops
        divisions = [
            rank.division or divide_lines(rank.slots, chunk, n_items, all_slots if keeps else rank.slots)
            for rank in ranks
        ]
        self._ranks = [
            _Replayed(index, rank, lines) for index, (rank, lines) in enumerate(zip(ranks, divisions, strict=True))
        ]
        self._by_peer = {rank.peer: rank for rank in self._ranks}
        self._by_number: dict[int, _Replayed] = {}
        self._coordinator = Coordinator(
            CoordinatorSetup(
                pairs,
                chunk,
                n_expected=len(ranks),
                ahead_seconds=options.ahead_seconds,
                circle=options.circle,
                affinity=options.affinity,
            )
        )
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._now = 0.0
        self._storage_free = 0.0
        self._n_loaded = self._n_moved = 0
        self._committed = np.zeros(pairs.shape, dtype=bool)
        self._steps: list[tuple[int, float, float, int]] = []

    def run(self) -> ClusterPrediction:
        """Replay to the end.

        Raises
        ------
        InternalError
            If all wait for each other.
        """
        for rank in self._ranks:
            if rank.lines.band < 1:
                raise ConfigError(f"a rank has {rank.about.slots} slots, too few for two lines of {self._chunk} items")
            kept = rank.lines.kept * self._chunk // self._options.pieces
            hello = Hello((), band_items=rank.lines.band * self._chunk, kept_items=kept, speed=rank.about.guess)
            self._send(rank, hello)
        for when, index in self._options.losses:
            self._at(when, partial(self._lose, self._ranks[index]))
        while self._events:
            self._now, _, end = heapq.heappop(self._events)
            end()
        if not self._coordinator.finished:
            raise InternalError("the replay came to a stop before its end")
        return self._prediction()

    # -- messages --------------------------------------------------------------------------------------------

    def _at(self, when: float, end: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, end))

    def _later(self, end: Callable[[], None]) -> None:
        self._at(self._now + self._network.latency_seconds, end)

    def _send(self, rank: _Replayed, message: FromRank) -> None:
        self._later(partial(self._coordinate, Received(rank.peer, message)))

    def _coordinate(self, event: CoordinatorEvent) -> None:
        for outgoing in self._coordinator.handle(event, self._now):
            self._later(partial(self._receive, self._by_peer[outgoing.peer], outgoing.message))

    def _receive(self, rank: _Replayed, message: ToRank) -> None:
        if not rank.alive:
            return
        match message:
            case Welcome(number):
                rank.number = number
                there = partial(self._is_there, rank)
                hops = self._options.hops
                rank.homes = HopsDirectory(number, hops, there) if hops else Homes(number, rank.lines.kept, there)
                self._by_number[number] = rank
                self._want(rank)
            case View() if self._options.homes and rank.homes is not None:
                self._act(rank, rank.homes.view(message.members))
            case Grant(regions):
                rank.wanted = False
                rank.queue.extend(part for region in regions for part in _cut(region, rank.lines.band))
                self._advance(rank)
            case Shed(thief, amount, lines):
                band = frozenset(rank.step.region.band) if rank.step else frozenset()
                kept, given = split_off(rank.queue, amount, self._pairs, thief=frozenset(lines), victim=band)
                rank.queue = deque(kept)
                self._send(rank, GivenUp(thief, tuple(given)))

    def _lose(self, rank: _Replayed) -> None:
        """End a rank; the coordinator gets to know what it has committed, and the others that it has gone."""
        if not rank.alive or self._coordinator.finished:
            return
        rank.alive = False
        had = [chunk for region in self._coordinator.list_granted(rank.peer) for chunk in region.chunks()]
        self._coordinate(Lost(rank.peer, tuple((i, j, j + 1) for i, j in had if self._committed[i, j])))

    def _want(self, rank: _Replayed) -> None:
        if not rank.wanted:
            rank.wanted = True
            self._send(rank, Want(0, rank.measured))

    # -- computing -------------------------------------------------------------------------------------------

    def _advance(self, rank: _Replayed) -> None:
        """Begin what can be begun: the next step, and the loads of the one after it."""
        if not rank.alive:
            return
        if rank.step is None:
            rank.step, rank.following = rank.following or self._next_step(rank), None
        if rank.step is None:
            rank.ended = self._now
            self._want(rank)
            return
        if rank.following is None:
            rank.following = self._next_step(rank)
        self._fetch(rank, rank.step)
        if rank.following is not None:
            self._fetch(rank, rank.following)
        if not rank.computing and all(rank.there.get(line) for line in rank.step.needs):
            rank.computing = True
            start = max(self._now, rank.device_free)
            seconds = rank.step.pairs / rank.about.speed
            rank.device_free = start + seconds
            rank.busy += seconds
            self._at(rank.device_free, partial(self._on_computed, rank, start))

    def _next_step(self, rank: _Replayed) -> _LineStep | None:
        """Take the next piece of the stream from what was granted."""
        if len(rank.queue) <= 1:
            self._want(rank)
        if not rank.pieces and rank.queue:
            region, rest = rank.queue[0].cut_stream(1)
            rank.queue.popleft()
            if rest.stream:
                rank.queue.appendleft(rest)
            rank.pieces.extend(self._steps_of(region))
        return rank.pieces.popleft() if rank.pieces else None

    def _steps_of(self, region: Region) -> Iterator[_LineStep]:
        """Yield the steps of one line of the stream; each computes an equal part of its pairs."""
        counts = self._pairs[region.area].ravel()
        band = [piece for still in np.flatnonzero(counts) for piece in self._pieces_of(region.band[int(still)])]
        line, total = self._pieces_of(region.stream[0]), int(counts.sum())
        for number, piece in enumerate(reversed(line) if region.backwards else line):
            pairs = total * (number + 1) // len(line) - total * number // len(line)
            needs = tuple(dict.fromkeys([piece, *band]))
            yield _LineStep(region, needs, frozenset(band), pairs, number + 1 == len(line))

    def _pieces_of(self, line: int) -> range:
        return range(line * self._options.pieces, (line + 1) * self._options.pieces)

    def _on_computed(self, rank: _Replayed, start: float) -> None:
        step = rank.step
        if not rank.alive or step is None:
            return
        rank.n_pairs += step.pairs
        self._steps.append((rank.index, start, self._now, step.pairs))
        if step.ends:
            self._committed[step.region.area] = True
            self._send(rank, Done(_runs_of(step.region)))
            if rank.wanted:
                self._send(rank, Report(speed=rank.measured))
        rank.step, rank.computing = None, False
        self._advance(rank)

    # -- slots -----------------------------------------------------------------------------------------------

    def _is_there(self, rank: _Replayed, line: int) -> bool:
        return rank.there.get(line, False)

    def _fetch(self, rank: _Replayed, step: _LineStep) -> None:
        """Bring in what a step needs, as far as there is room."""
        for line in step.needs:
            stays = line in step.held
            if line in rank.there:
                rank.there[line] = rank.there.pop(line)
            elif self._make_room(rank, step, stays):
                rank.there[line] = False
                assert rank.homes is not None
                self._act(rank, rank.homes.source(line, stays=stays))
            else:
                return
            (rank.held.add if stays else rank.held.discard)(line)

    def _make_room(self, rank: _Replayed, step: _LineStep, stays: bool) -> bool:
        """Evict a line that no step needs, used longest ago: what streams makes room for what streams, if it can."""
        n_held = len(rank.held)
        full = len(rank.there) >= rank.lines.band * self._options.pieces + rank.lines.stream
        if not full and (stays or len(rank.there) - n_held < rank.lines.stream):
            return True
        used: set[int] = set(step.needs)
        if rank.step is not None:
            used |= {*rank.step.needs, *rank.step.held}
        idle = [x for x, ready in rank.there.items() if ready and x not in used and not rank.pins.get(x)]
        if not idle:
            return not full and step is rank.step
        victim = min(idle, key=lambda x: (x in rank.held) != stays)
        del rank.there[victim]
        rank.held.discard(victim)
        return True

    # -- items -----------------------------------------------------------------------------------------------

    def _act(self, rank: _Replayed, actions: Iterable[HomeAction]) -> None:
        for action in actions:
            match action:
                case Ask(other, fetch):
                    self._later(partial(self._on_fetched, rank.number, other, fetch))
                case Respond(other, answer):
                    self._later(partial(self._on_answered, rank.number, other, answer))
                case Read(line, kept):
                    self._at(self._load_end(rank, line), partial(self._read, rank, line, kept))
                case Copy(line, _):
                    self._later(partial(self._on_copied, rank, line))
                case Send(other, line, kept):
                    if kept is None:
                        rank.pins[line] = rank.pins.get(line, 0) + 1
                    self._at(self._compute_sent_end(rank, other, line), partial(self._on_sent, rank, other, line, kept))

    def _on_fetched(self, asker: int, number: int, fetch: Fetch) -> None:
        rank = self._by_number[number]
        if rank.alive and rank.homes is not None:
            self._act(rank, rank.homes.on_fetched(asker, fetch))

    def _on_answered(self, answering: int, number: int, answer: Answer) -> None:
        rank = self._by_number[number]
        if rank.alive and rank.homes is not None:
            self._act(rank, rank.homes.on_answered(answering, answer))

    def _length(self, piece: int) -> int:
        """Return the items of a piece; those of a shorter last line are spread over all of its pieces."""
        line, number = divmod(piece, self._options.pieces)
        items, pieces = min(self._chunk, self._n_items - line * self._chunk), self._options.pieces
        return items * (number + 1) // pieces - items * number // pieces

    def _load_end(self, rank: _Replayed, line: int) -> float:
        """Return when a line is read, parsed and preprocessed."""
        length = self._length(line)
        self._n_loaded += length
        n_bytes = length * self._network.file_bytes
        self._storage_free = max(self._now, self._storage_free) + n_bytes / self._network.storage_bytes_per_second
        rank.loader_free = max(self._storage_free, rank.loader_free) + length * rank.about.load_seconds
        prepare = length * rank.about.prepare_seconds
        rank.device_free = max(self._now, rank.device_free) + prepare
        rank.busy += prepare
        return rank.loader_free + prepare

    def _compute_sent_end(self, rank: _Replayed, other: int, line: int) -> float:
        """Return when a line has gone over the links of two ranks."""
        seconds = self._length(line) * self._network.item_bytes / self._network.link_bytes_per_second
        there = self._by_number[other]
        rank.up_free = there.down_free = max(self._now, rank.up_free, there.down_free) + seconds
        return rank.up_free + self._network.latency_seconds

    def _read(self, rank: _Replayed, line: int, kept: int | None) -> None:
        if rank.alive and rank.homes is not None:
            if kept is None:
                rank.there[line] = True
            self._act(rank, rank.homes.read(line))
            self._advance(rank)

    def _on_copied(self, rank: _Replayed, line: int) -> None:
        if rank.alive and rank.homes is not None:
            rank.there[line] = True
            self._act(rank, rank.homes.on_copied(line))
            self._advance(rank)

    def _on_sent(self, rank: _Replayed, other: int, line: int, kept: int | None) -> None:
        if not rank.alive or rank.homes is None:
            return
        if kept is None:
            rank.pins[line] -= 1
        there = self._by_number[other]
        self._act(rank, rank.homes.on_sent(line, kept))
        if there.alive and there.homes is not None and there.homes.expects(line, rank.number):
            self._n_moved += self._length(line)
            there.there[line] = True
            self._act(there, there.homes.on_received(line, rank.number))
            self._advance(there)
        self._advance(rank)

    # -- the outcome -----------------------------------------------------------------------------------------

    def _prediction(self) -> ClusterPrediction:
        n, slots = self._n_items, [float(rank.about.slots) for rank in self._ranks]
        computed = [(rank.n_pairs, room) for rank, room in zip(self._ranks, slots, strict=True)]
        n_pairs = int(self._pairs.sum())
        end = max((step[2] for step in self._steps), default=0.0)
        return ClusterPrediction(
            seconds=end,
            load_factor=(self._n_loaded + self._n_moved) / n,
            load_factor_bound=cluster_fills_bound(n, computed) / n,
            storage_load_factor=self._n_loaded / n,
            storage_load_factor_bound=cluster_loads_bound(n, n_pairs, slots) / n,
            pairs=tuple(rank.n_pairs for rank in self._ranks),
            ends=tuple(max((s[2] for s in self._steps if s[0] == rank.index), default=0.0) for rank in self._ranks),
            busy_seconds=tuple(rank.busy for rank in self._ranks),
            steals=self._coordinator.counts.steals,
            lost=self._coordinator.counts.lost,
            bytes_between_ranks=self._n_moved * self._network.item_bytes,
            bytes_from_storage=self._n_loaded * self._network.file_bytes,
            hops=self._hop_shares(),
            steps=tuple(self._steps),
        )

    def _hop_shares(self) -> tuple[float, ...]:
        found: Counter[int] = Counter()
        for rank in self._ranks:
            if isinstance(rank.homes, HopsDirectory):
                found += rank.homes.hits
        total = max(1, found.total())
        order = (*range(1, self._options.hops + 1), 0)
        return tuple(found[hop] / total for hop in order) if found else ()


def _cut(region: Region, band: int) -> list[Region]:
    """Cut a region whose band is higher than a rank can hold."""
    if len(region.band) <= band:
        return [region]
    first, rest = region.cut_band(band)
    return [first, *_cut(rest, band)]


def _runs_of(region: Region) -> tuple[tuple[int, int, int], ...]:
    runs = ((row, max(row, region.c0), region.c1) for row in range(region.r0, region.r1))
    return tuple(run for run in runs if run[1] < run[2])


# The directory of the Rocket paper (section 4.1.3), as a baseline in replays: who asked for an item may have it.
#
# Node ``i mod p`` is asked for item i first. It names the nodes that asked for the item last, at most ``n_hops`` of
# them, one after the other, and notes who asks now. A node that has the item sends it; if none has, the asker loads it.
# Nothing is kept for others, and nothing is loaded for them.
#
# The interface is that of ``tartan.core.ranks.homes.Homes``; events in, actions out.


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

    def on_fetched(self, rank: int, fetch: Fetch) -> list[HomeAction]:
        """A rank asks: for the items, or (as the point of contact) for who may have them."""
        if fetch.sent_on:
            return [Send(rank, fetch.span, None) if self._resident(fetch.span) else Respond(rank, Busy(fetch.span))]
        return [Respond(rank, self._name_next(rank, fetch.span, fetch.missed))]

    def on_answered(self, rank: int, answer: Answer) -> list[HomeAction]:
        """A rank answered without items."""
        span = answer.span
        wish = self._wishes.get(span)
        if wish is None or wish[0] != rank:
            return []
        if isinstance(answer, Busy):
            self._wishes[span] = None, (*wish[1], rank)
            return self._ask_contact(span)
        return self._follow(span, answer)

    def on_received(self, span: int, rank: int) -> list[HomeAction]:
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

    def on_sent(self, span: int, kept: int | None) -> list[HomeAction]:
        """A ``Send`` ended."""
        return []

    def on_copied(self, span: int) -> list[HomeAction]:
        """Nothing is kept, so nothing is copied."""
        return []

    def _ask_contact(self, span: int) -> list[HomeAction]:
        contact, (_, missed) = self._members[span % len(self._members)], self._wishes[span]
        if contact == self.rank:
            return self._follow(span, self._name_next(self.rank, span, missed))
        self._wishes[span] = contact, missed
        return [Ask(contact, Fetch(span, missed=missed))]

    def _name_next(self, rank: int, span: int, missed: tuple[int, ...]) -> Answer:
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
