"""The driver of a run on several ranks: brings messages and losses to the coordinator, and its answers to the ranks.

One loop, in the thread that calls ``run``; the engine's thread only puts events into its inbox.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tartan.base.format import format_duration, pluralize
from tartan.base.logs import logger_of
from tartan.base.machine import AwakeClock
from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, PIECE_BYTES, Call, ClusterEngine, ClusterView, Handler, StaleEpoch
from tartan.cluster.rank import RankEnd
from tartan.core.pairs.region import Region
from tartan.core.pairs.verdict import PairCounts
from tartan.core.ranks.coordination import Lost, Outgoing, Received, Run, Tick
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.messages import (
    Done,
    FromRank,
    GivenUp,
    Grant,
    Hello,
    Leave,
    PassedOn,
    Refused,
    Report,
    Stop,
    ToRank,
    Want,
)
from tartan.core.ranks.work_over_time import RankWork
from tartan.errors import ClusterError, TartanError

_log = logger_of(__name__)

# By contract: as BEAT_SECONDS of ranks; losses are seen half a second late at most.
TICK_SECONDS = 0.5
# By contract: twice FAREWELL_SECONDS of cluster/rank (10), so that a rank that waits for the driver is not cut off by
# it.
FAREWELL_SECONDS = 20.0
# By judgement: schedulers of clusters start ranks within a minute of each other as a rule. No benchmark.
PATIENCE_SECONDS = 60.0
# By contract: who waits for ranks learns within five seconds what the run waits for.
SAID_SECONDS = 5.0
# By judgement: as WELCOME_SECONDS of cluster/rank.
JOB_SECONDS = 60.0
# By judgement: packed events of a rank of MAX_EVENTS are below a tenth of it; a bound on what a rank can make the
# driver hold. No benchmark.
MOST_TRACE_BYTES = 256 << 20
"""Of one rank."""

# By judgement: a screen; the rest stands in the log.
MOST_NAMED = 20
"""Processes that could not become ranks, by name."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Hello, Want, GivenUp, PassedOn, Done, Report, Leave)
}


class Ended(NamedTuple):
    """A rank said its last."""

    peer: str
    end: RankEnd


class Viewed(NamedTuple):
    """The members have changed."""

    view: ClusterView


class Stopped(NamedTuple):
    """The run must end before it is complete."""

    error: BaseException


DriverEvent = Received | Ended | Viewed | Stopped


@dataclass(frozen=True)
class RankRecord:
    """A rank as the driver knows it.

    Attributes
    ----------
    name : str
        As the engine calls it.
    hello : Hello or None
        None before it came.
    end : RankEnd or None
        None while it works, and where it was lost.
    """

    name: str
    hello: Hello | None = None
    end: RankEnd | None = None


@dataclass
class Watch:
    """What the driver tells of a run while it goes on; all are called in its loop.

    Attributes
    ----------
    report : callable
        Adds up what a rank did; raises RunFailedError if the run must stop.
    committed : callable
        Returns which chunks of regions the ledger has.
    ranks : callable
        Receives the live ranks whenever they change.
    check : callable
        Called twice a second; raises TartanError if the run must stop.
    lost : callable
        Receives one line for each rank that is lost or takes no part, and what the run waits for.
    """

    report: Callable[[Report], None]
    committed: Callable[[Sequence[Region]], tuple[Run, ...]]
    ranks: Callable[[Sequence[RankRecord]], None] = lambda ranks: None
    lost: Callable[[str], None] = lambda text: None
    check: Callable[[], None] = lambda: None


@dataclass
class Summary:
    """How a run on several ranks went.

    Attributes
    ----------
    ends : list of RankEnd
        What the ranks did that said so.
    lost : list of str
        Ranks that were lost, each with the reason.
    seconds : float
        From the first rank that was ready to the last chunk.
    begun : float
        When the first rank was ready, in seconds since 1970; 0 where none was.
    work : RankWork
        Pairs that each rank ended, over time.
    traces : dict of str to bytearray
        What ranks that trace have recorded, by name; as ``Tracer.absorb`` takes it.
    """

    ends: list[RankEnd] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0
    begun: float = 0.0
    work: RankWork = field(default_factory=RankWork)
    traces: dict[str, bytearray] = field(default_factory=dict)


class Driver:
    """Drives one run on several ranks to its end.

    Parameters
    ----------
    engine : ClusterEngine
        Not started yet; the driver's.
    coordinator : Coordinator
    job : bytes
        What ranks must know to begin; they fetch it in pieces.
    watch : Watch
    summary : Summary
        Filled in as the run goes on.
    patience_seconds : float
        How long the run waits for the first rank.
    return_seconds : float
        How long it waits for another when all have gone; no longer than for the first.
    waited_for : str
        What is waited for where no rank is there, in words.
    unserved : str
        What is said early in the run if no storage rank has come; "" where none is expected.
    clock : callable
        Seconds, by which silence is measured; default: those in which this process runs, since who is stopped hears
        nothing.
    """

    # Each is something else that a test replaces or a caller knows.
    def __init__(
        self,
        engine: ClusterEngine,
        coordinator: Coordinator,
        job: bytes,
        watch: Watch,
        summary: Summary,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        return_seconds: float = PATIENCE_SECONDS,
        waited_for: str = "a rank",
        unserved: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._engine = engine
        self._coordinator = coordinator
        self._job = job
        self._watch = watch
        self._patience = patience_seconds
        self._return = min(patience_seconds, return_seconds)
        self._waited_for = waited_for
        self._unserved = unserved
        self._clock = clock or AwakeClock()
        self._alone_since: float | None = None
        self._said_alone = self._said_gone = False
        self._unfit: dict[str, str] = {}
        self._unfit_since: float | None = None
        self._begun: float | None = None
        self._began_at: float | None = None
        self._inbox: queue.SimpleQueue[DriverEvent] = queue.SimpleQueue()
        self._ranks: dict[str, RankRecord] = {}
        self._present: set[str] = set()
        self._ended: set[str] = set()
        self._gone: set[str] = set()
        self._error: BaseException | None = None
        self._farewell: float | None = None
        self._tick_at = self._clock()
        self.summary = summary

    @property
    def n_waiting(self) -> int:
        """Events that have come and were not taken in."""
        return self._inbox.qsize()

    @property
    def error(self) -> BaseException | None:
        """Why the run ends before it is complete."""
        return self._error

    def run(self) -> None:
        """Let the ranks compute what is missing.

        Raises
        ------
        RunFailedError
            If too much failed.
        RunCancelledError
            If ``cancel`` was called.
        ClusterError
            If no rank is left.
        """
        self.begin()
        try:
            while not self.is_over():
                self.step()
        finally:
            self._engine.leave("the run has ended")
        if self._error is not None:
            raise self._error

    def begin(self) -> None:
        """Become a member, from now on called by ranks; ``run`` begins with it."""
        self._engine.start(self._handlers(), lambda view: self._inbox.put(Viewed(view)))

    def cancel(self, error: BaseException) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self._inbox.put(Stopped(error))

    # -- the loop ------------------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether the run is complete or has failed, and the ranks have ended or had the time to."""
        ending = self._coordinator.finished or self._error is not None
        if not ending:
            return False
        if self._farewell is None:
            now = self._clock()
            self._farewell = now + FAREWELL_SECONDS
            self._say_how_many()
            self.summary.seconds = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        self._send_home()
        return self._present <= self._ended or self._clock() > self._farewell

    def _send_home(self) -> None:
        """Stop ranks that came too late to be known to the coordinator: they may be writers already."""
        late = self._present - self._ended - self._ranks.keys()
        self._deliver([Outgoing(peer, Stop("" if self._error is None else str(self._error))) for peer in sorted(late)])

    def _alive(self) -> list[RankRecord]:
        return [rank for rank in self._ranks.values() if rank.end is None]

    def _list_computing(self) -> list[RankRecord]:
        """Return the live ranks that compute, without those that only read."""
        return [rank for rank in self._alive() if rank.hello is None or not rank.hello.storage]

    def step(self, wait_seconds: float = TICK_SECONDS) -> None:
        """Take in what came next; where nothing comes in some seconds, look for what no event tells."""
        if self._clock() >= self._tick_at:
            self._tick()
        try:
            event = self._inbox.get(timeout=wait_seconds)
        except queue.Empty:
            self._tick()
            return
        try:
            self._take(event)
        except TartanError as error:
            self._stop(error)

    def _tick(self) -> None:
        """Look for what no event tells; the reports of live ranks must not put it off."""
        self._tick_at = self._clock() + TICK_SECONDS
        if self._error is None:
            try:
                self._watch.check()
            except TartanError as error:
                self._stop(error)
        self._cut_off_silent()
        self._give_up_when_alone()
        self._say_unserved()
        if self._ranks and self._unfit_since is not None and self._clock() - self._unfit_since >= SAID_SECONDS:
            self._say_how_many()
        self._deliver(self._coordinator.handle(Tick(), self._clock()))

    def _take(self, event: DriverEvent) -> None:
        match event:
            case Received(peer, message):
                self._receive(peer, message)
            case Ended(peer, end):
                self._note_end(peer, end)
            case Viewed(view):
                self._present = set(view.ranks)
                for peer, reason in view.gone.items():
                    self._lose(peer, reason)
                    if DRIVER in view.members:
                        self._note_unfit(peer, reason)
                if DRIVER not in view.members and view.epoch:
                    raise ClusterError(self._describe_gone(view))
            case Stopped(error):
                self._stop(error)

    def _describe_gone(self, view: ClusterView) -> str:
        """Return why the driver is not a member any more; say so at once, as its ranks may take a while to end."""
        reason = view.gone.get(DRIVER, "the cluster is gone")
        if self._error is None and not self._said_gone:
            self._said_gone = True
            self._watch.lost(f"{reason}; the run stops")
        return reason

    def _receive(self, peer: str, message: FromRank) -> None:
        _note_received(peer, message)
        if isinstance(message, Hello):
            if self._begun is None:
                self._begun, self._began_at, self.summary.begun = self._clock(), time.monotonic(), time.time()
            self._ranks[peer] = RankRecord(peer, message)
            self._watch.ranks(self._alive())
        self._deliver(self._coordinator.handle(Received(peer, message), self._clock()))
        if isinstance(message, Report) and self._error is None:
            self._watch.report(message)
            self._note_work(peer, message.node.pairs)

    def _note_work(self, peer: str, counts: PairCounts) -> None:
        ended = counts.good + counts.without_item + counts.failed
        if ended and self._begun is not None:
            self.summary.work.add(peer, max(0.0, self._clock() - self._begun), ended)

    def _note_end(self, peer: str, end: RankEnd) -> None:
        self._ended.add(peer)
        rank = self._ranks.get(peer)
        if not end.error:
            _log.info("rank %s has ended", peer)
        if rank is None:
            if self._error is None and end.error and not self._coordinator.finished:
                self._note_lost(peer, end.error)
                self._give_up_without_ranks(end)
            return
        self._ranks[peer] = RankRecord(peer, rank.hello, end)
        self.summary.ends.append(end)
        if end.error and self._error is None:
            self._lose(peer, end.error)
            self._give_up_without_ranks(end)
        self._watch.ranks(self._alive())

    def _give_up_when_alone(self) -> None:
        if self._list_computing() or self._error is not None:
            self._alone_since, self._said_alone = None, False
            return
        now = self._clock()
        self._alone_since = now if self._alone_since is None else self._alone_since
        patience = self._return if self._ranks else self._patience
        alone = now - self._alone_since
        if alone >= patience:
            last = f"; lost: {', '.join(self.summary.lost)}" if self.summary.lost else ""
            unfit = "".join(f"; {peer}: {reason}" for peer, reason in [*self._unfit.items()][:MOST_NAMED])
            longer = "" if self._ranks else "; --wait TIME waits longer"
            self._stop(ClusterError(f"no rank is left, and none has joined for {patience:g} s{last}{unfit}{longer}"))
        elif alone >= SAID_SECONDS and not self._said_alone:
            self._said_alone = True
            given_up = format_duration(patience - alone)
            longer = "" if self._ranks else " (--wait)"
            self._watch.lost(f"no rank is there; the run waits for {self._waited_for}, for {given_up} more{longer}")

    def _say_unserved(self) -> None:
        """Say that a storage rank is expected, once, if ranks have begun and none has come for some seconds."""
        if not self._unserved or self._begun is None or self._error is not None:
            return
        if any(rank.hello is not None and rank.hello.storage for rank in self._ranks.values()):
            self._unserved = ""
        elif self._clock() - self._begun >= SAID_SECONDS:
            _log.warning("%s", self._unserved)
            self._watch.lost(self._unserved)
            self._unserved = ""

    def _give_up_without_ranks(self, end: RankEnd) -> None:
        if not self._list_computing() and not self._coordinator.finished:
            self._stop(ClusterError(f"no rank is left; the last one ended: {end.error}", code=end.code or None))

    def _lose(self, peer: str, reason: str) -> None:
        """Take back what a rank was granted, less what the ledger has."""
        if peer in self._gone:
            return
        self._gone.add(peer)
        rank = self._ranks.get(peer)
        if rank is None or (rank.end is not None and not rank.end.error):
            return
        if rank.end is None:
            self._ranks[peer] = RankRecord(peer, rank.hello, RankEnd(reason))
        self._note_lost(peer, reason)
        committed = self._watch.committed(self._coordinator.list_granted(peer))
        self._deliver(self._coordinator.handle(Lost(peer, committed), self._clock()))
        self._watch.ranks(self._alive())

    def _note_unfit(self, peer: str, reason: str) -> None:
        """Say of a process that it could not become a rank, once and at once."""
        over = self._error is not None or self._coordinator.finished
        if peer in self._ranks or peer in self._ended or peer in self._unfit or over:
            return
        self._unfit[peer] = reason
        self._unfit_since = self._clock() if self._unfit_since is None else self._unfit_since
        _log.warning("%s takes no part: %s", peer, reason)
        if len(self._unfit) <= MOST_NAMED:
            self._watch.lost(f"{peer} takes no part: {reason}")

    def _say_how_many(self) -> None:
        """Say how many ranks take part, where some that came could not."""
        if self._unfit_since is None:
            return
        self._unfit_since = None
        came, unfit = len(self._list_computing()), len(self._unfit)
        self._watch.lost(f"{pluralize(came, 'rank')} of {came + unfit} {'takes' if came == 1 else 'take'} part")

    def _note_lost(self, peer: str, reason: str) -> None:
        self.summary.lost.append(f"{peer}: {reason}")
        _log.warning("rank %s is lost: %s", peer, reason)
        if self._error is None and not self._coordinator.finished:
            self._watch.lost(f"rank {peer} is lost: {reason}; the others compute its part")

    def _cut_off_silent(self) -> None:
        limit = self._coordinator.rank_timeout_seconds
        for peer in self._coordinator.find_silent(self._clock()):
            if self._engine.silence_seconds(peer) <= limit:
                continue  # it lives: its code holds the interpreter lock
            self._engine.expel(peer, "it was silent for too long")
            self._lose(peer, "it was silent for too long")

    def _stop(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            _log.warning("the ranks are stopped: %s", error)
            self._deliver(self._coordinator.stop(str(error)))

    def _deliver(self, messages: Sequence[Outgoing]) -> None:
        for peer, message in messages:
            _note_sent(peer, message)
            try:
                self._engine.post(peer, type(message).__name__.lower(), wire.encode(message))
            except StaleEpoch as error:
                raise ClusterError(self._describe_gone(self._engine.view())) from error

    # -- what arrives (the engine's thread) ------------------------------------------------------------------------

    def _handlers(self) -> Mapping[str, Handler]:
        handlers: dict[str, Handler] = {name: self._receiver(kind) for name, kind in _KINDS.items()}
        others = {"ended": self._take_end, "job": self._take_job, "clock": _tell_clock, "trace": self._take_trace}
        return handlers | others

    def _receiver(self, kind: type[Any]) -> Handler:
        def handle(call: Call) -> bytes:
            self._inbox.put(Received(call.sender, wire.decode(call.body, kind)))
            return b""

        return handle

    def _take_end(self, call: Call) -> bytes:
        self._inbox.put(Ended(call.sender, wire.decode(call.body, RankEnd)))
        return b""

    def _take_trace(self, call: Call) -> bytes:
        """Take a piece of what a rank has recorded."""
        trace = self.summary.traces.setdefault(call.sender, bytearray())
        if len(trace) + len(call.body) <= MOST_TRACE_BYTES:
            trace += wire.decode(call.body, bytes)
        return b""

    def _take_job(self, call: Call) -> bytes:
        """Return a piece of the job, from an offset on; nothing at its end."""
        offset = wire.decode(call.body, int)
        return self._job[offset : offset + PIECE_BYTES]


def _note_received(peer: str, message: FromRank) -> None:
    """Log what an operator must know of what ranks say."""
    match message:
        case Hello():
            kind, devices = "storage rank" if message.storage else "rank", ", ".join(message.devices) or "none"
            about = message.host, message.pid, message.cores, devices, message.address or "no address"
            _log.info("%s %s has come: host %s, process %d, %d workers, devices %s, listens on %s", kind, peer, *about)
        case PassedOn():
            _log.info("rank %s passes chunk %d,%d on: %s", peer, *message.chunk, message.why)
        case Leave():
            _log.info("rank %s hands back its work: %s", peer, message.reason)
        case GivenUp():
            _log.debug("rank %s gives %d regions up to rank number %d", peer, len(message.regions), message.thief)


def _note_sent(peer: str, message: ToRank) -> None:
    """Log what an operator must know of what ranks are told."""
    match message:
        case Refused():
            _log.warning("rank %s is refused: %s", peer, message.reason)
        case Grant() if message.passed_on:
            _log.info("rank %s tries what was passed on: %s", peer, message.passed_on)
        case Stop() if message.reason:
            _log.info("rank %s must end: %s", peer, message.reason)


def _tell_clock(call: Call) -> bytes:
    """Say what the clock of this process shows, for a rank that aligns its own."""
    return wire.encode(time.perf_counter_ns())


def fetch_job(engine: ClusterEngine) -> bytes:
    """Fetch what a rank must know to begin."""
    job = bytearray()
    while True:
        piece = engine.request(DRIVER, "job", wire.encode(len(job)), timeout_seconds=JOB_SECONDS)
        job += piece
        if len(piece) < PIECE_BYTES:
            return bytes(job)
