"""One rank of a run on several: takes work from the coordinator, and tells it what became of it.

The engine's thread and the threads of the node meet here, under one lock; what is done is told twice a second, by a
thread that does nothing else: that is the sign of life, too.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace

from tartan.base.logs import logger_of
from tartan.base.trace import ClockPair
from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, PIECE_BYTES, Call, ClusterEngine, ClusterView, Credentials
from tartan.core.pairs.region import Chunk, Region
from tartan.core.pairs.verdict import NodeReport, PairCounts
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.messages import (
    Done,
    FromRank,
    Grant,
    Hello,
    Leave,
    Member,
    PassedOn,
    Refused,
    Report,
    Shed,
    Stop,
    View,
    Want,
    Welcome,
)
from tartan.errors import ClusterError, RunCancelledError
from tartan.runtime.events import Event, NodeBroken, SegmentsGranted
from tartan.runtime.execution import NodeStats

_log = logger_of(__name__)

# By judgement: a thirtieth of the silence after which a rank is lost (15 s); 48 ranks are a hundred messages of
# 500 bytes a second for the driver. `tartan bench cluster_speed` holds what it costs.
BEAT_SECONDS = 0.5
# By judgement: the driver welcomes when it has looked at the run folder; with 10**6 chunks that takes seconds. No
# benchmark.
WELCOME_SECONDS = 60.0
# By judgement: an answer of a driver that commits the last chunks. No benchmark.
FAREWELL_SECONDS = 10.0
# By judgement: one and a half beats; asking costs one round trip before a commit. It was 2 s before ranks asked ahead
# of claims. bench cluster_kill freezes ranks.
DOUBT_SECONDS = 0.75
"""Where two signs of life of its own lie further apart, a rank may have been given up; below every useful limit."""
# By judgement: the quickest of nine round trips (0.5 ms each) is close to one without a wait; as NTP takes the best of
# eight.
CLOCK_TRIPS = 9
# By arithmetic: 500 failures with reasons of up to LONGEST_LINE (1,000 characters) stay below LIMIT_BYTES (1 MiB).
MOST_TOLD = 500
"""Failures, or runs of chunks, in one message."""


def _ignore(members: Sequence[Member] | Sequence[Region]) -> None:
    """Take part without knowing the others."""


@dataclass(frozen=True)
class RankEnd:
    """Last message of a rank.

    Attributes
    ----------
    error, code : str
        Why it could not continue; empty where all went well.
    """

    error: str = ""
    code: str = ""


class RankLink:
    """The connection of a rank to the coordinator; the ``SegmentSource`` of its node.

    Parameters
    ----------
    engine : ClusterEngine
        Not started yet.
    clock : callable
        Seconds.
    """

    def __init__(self, engine: ClusterEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._welcomed: Future[int] = Future()
        self._telling = threading.Lock()
        self._offered: Allotment | None = None
        self._allotment: Allotment | None = None  # from the welcome on: what was granted before is of another number
        self._post: Callable[[Event], None] | None = None
        self._most = 1
        self._wanting = False
        self._idle = True
        self._stopped: Stop | None = None
        self._viewer: Callable[[Sequence[Member]], None] = _ignore
        self._look_again: Callable[[Sequence[Region]], None] = _ignore
        self._n_others = 0
        self._numbers: set[int] = set()
        self._any_gone = False
        self._last_tries: set[Chunk] = set()
        self._done: set[Chunk] = set()
        self._reports: list[NodeReport] = []
        self._notes: Callable[[], Sequence[str]] = tuple
        self._statistics: Callable[[], NodeStats] | None = None
        self._counted = NodeStats()
        self._meter = SpeedMeter(clock)
        self._clock = clock
        self._told_at = clock()
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="tartan-beat", daemon=True)

    @property
    def name(self) -> str:
        """Name of this rank among the members."""
        return self._engine.me

    def start(self) -> None:
        """Become a member of the cluster."""
        kinds = {"welcome": Welcome, "refused": Refused, "view": View, "grant": Grant, "shed": Shed, "stop": Stop}
        takers = {name: getattr(self, f"_take_{name}") for name in kinds}

        def handler(name: str) -> Callable[[Call], bytes]:
            def handle(call: Call) -> bytes:
                takers[name](wire.decode(call.body, kinds[name]))
                return b""

            return handle

        self._engine.start({name: handler(name) for name in kinds}, self._on_view)

    @property
    def credentials(self) -> Credentials:
        """What ranks of this run know each other by."""
        return self._engine.credentials

    @property
    def host(self) -> str:
        """Interface under which other ranks reach this process."""
        return self._engine.host

    def join(
        self,
        hello: Hello,
        allotment: Allotment | None = None,
        viewer: Callable[[Sequence[Member]], None] = _ignore,
        look_again: Callable[[Sequence[Region]], None] = _ignore,
    ) -> int:
        """Offer what the rank has, and begin to report; return its number.

        Parameters
        ----------
        hello : Hello
        allotment : Allotment, optional
            None where the rank computes nothing.
        viewer : callable
            Receives the live ranks whenever they change, in the engine's thread.
        look_again : callable
            Receives regions that another rank may have had, before they are computed: some of it may be committed.

        Raises
        ------
        ClusterError
            If the coordinator refuses this rank, or does not answer.
        """
        self.offer(hello, allotment, viewer, look_again)
        try:
            number = self._welcomed.result(WELCOME_SECONDS)
        except FutureTimeoutError:
            raise ClusterError(f"the coordinator did not answer {self._engine.me}") from None
        if not self._beats.is_alive():
            self._beats.start()
        _log.info("this rank has number %d, and listens on %s", number, hello.address or "no address")
        return number

    def offer(
        self,
        hello: Hello,
        allotment: Allotment | None = None,
        viewer: Callable[[Sequence[Member]], None] = _ignore,
        look_again: Callable[[Sequence[Region]], None] = _ignore,
    ) -> None:
        """Offer what the rank has, and wait for nothing: ``number`` is known once the coordinator has answered."""
        self._offered, self._viewer, self._look_again = allotment, viewer, look_again
        self._send(hello)

    @property
    def number(self) -> int | None:
        """Number of this rank; None before its welcome, and where it was refused."""
        done = self._welcomed.done() and self._welcomed.exception() is None
        return self._welcomed.result() if done else None

    @property
    def stopped(self) -> Stop | None:
        """Why this rank must end; None while it goes on."""
        return self._stopped

    def leave(self, reason: str) -> None:
        """Hand back what was granted and is not committed; ``join`` may follow, under another number.

        Raises
        ------
        ClusterError
            If this rank is no longer a member.
        """
        _log.warning("this rank hands back its work: %s", reason)
        with self._telling:
            self._tell_all()
            with self._lock:
                self._allotment = self._offered = self._post = None
                self._wanting, self._idle = False, True
                self._welcomed = Future()
            self._send(Leave(reason))

    def clock(self) -> ClockPair:
        """Return one moment on the clock of this process and on that of the driver, by the quickest of round trips.

        Raises
        ------
        ClusterError
            If the driver does not answer.
        """
        trips = [self._trip() for _ in range(CLOCK_TRIPS)]
        seconds, own, driver = min(trips)
        return own + seconds // 2, driver

    def _trip(self) -> tuple[int, int, int]:
        begin = time.perf_counter_ns()
        answer = self._engine.request(DRIVER, "clock", timeout_seconds=FAREWELL_SECONDS)
        return time.perf_counter_ns() - begin, begin, wire.decode(answer, int)

    def send_trace(self, packed: bytes) -> None:
        """Send the driver what was recorded here, in pieces.

        Raises
        ------
        ClusterError
            If the driver does not answer.
        """
        for begin in range(0, len(packed), PIECE_BYTES):
            piece = wire.encode(packed[begin : begin + PIECE_BYTES])
            self._engine.request(DRIVER, "trace", piece, timeout_seconds=FAREWELL_SECONDS)

    def before_step(self, step: str) -> None:
        """Refuse to commit a chunk where this rank was given up while it was frozen; a hook of ``Claims``.

        Raises
        ------
        ClusterError
            If it is no longer a member, or the driver does not answer.
        """
        if step == "claim" and self._in_doubt():
            self._trip()
            self._told_at = self._clock()

    def wait_stopped(self) -> None:
        """Wait until the run is complete.

        Raises
        ------
        RunCancelledError
            If it ends before that.
        """
        self._over.wait()
        if self._stopped is not None and self._stopped.reason:
            raise RunCancelledError(self._stopped.reason)

    def end(self, end: RankEnd) -> None:
        """Tell everything that is not told yet, and how the rank ended."""
        _log.log(logging.WARNING if end.error else logging.INFO, "this rank ends: %s", end.error or "all is done")
        self._ended.set()
        self._hurry.set()
        if self._beats.is_alive():
            self._beats.join()
        self.tell()
        with contextlib.suppress(ClusterError):  # the driver is gone, or has given this rank up
            self._engine.request(DRIVER, "ended", wire.encode(end), timeout_seconds=FAREWELL_SECONDS)

    # -- the node's side -------------------------------------------------------------------------------------

    def ask(self, most: int, post: Callable[[Event], None]) -> None:
        """Post what may be computed; what comes later is posted then. See ``SegmentSource``."""
        with self._lock:
            self._post, self._most = post, most
            event = self._next()
        post(event)

    def on_committed(self, chunks: Iterable[Chunk]) -> None:
        """Take note of chunks that are in the ledger."""
        with self._lock:
            self._note(chunks)
            self._note_whether_busy()
            if self._wanting:  # the coordinator may wait for this before it grants more
                self._hurry.set()

    def can_try(self, chunk: Chunk) -> bool:
        """Whether another rank may try what is late in a chunk; see ``OtherRanks``."""
        with self._lock:
            return self._n_others > 0 and chunk not in self._last_tries

    def pass_on(self, chunk: Chunk, why: str) -> None:
        """Leave what a chunk lacks to another rank; see ``OtherRanks``."""
        with self._lock:
            if self._allotment is not None:
                self._allotment.on_committed(chunk)
            self._note_whether_busy()
            self._send(PassedOn(chunk, why))
        _log.info("chunk %d,%d is passed on to another rank: %s", *chunk, why)

    def report_from(self, statistics: Callable[[], NodeStats]) -> None:
        """Report from now on what the node says of itself; see ``NodeInputs``."""
        with self._lock:
            self._statistics, self._counted = statistics, NodeStats()

    def tell_notes(self, notes: Callable[[], Sequence[str]]) -> None:
        """Tell the user from now on the lines that a function returns when it is asked, twice a second."""
        self._notes = notes

    def report(self, report: NodeReport) -> None:
        """Take note of what happened; see ``NodeInputs.report``."""
        with self._lock:
            self._reports.append(report)
            ended = report.pairs
            self._meter.add(ended.good + ended.without_item + ended.failed)

    # -- the coordinator's side (the engine's thread) ----------------------------------------------------------

    def _take_welcome(self, message: Welcome) -> None:
        with self._lock:
            self._allotment = self._offered
            if not self._welcomed.done():  # it may be refused, or the run be over, meanwhile
                self._welcomed.set_result(message.rank)

    def _take_refused(self, message: Refused) -> None:
        if not self._welcomed.done():
            self._welcomed.set_exception(ClusterError(f"{self._engine.me} is refused: {message.reason}"))

    def _take_view(self, message: View) -> None:
        numbers = {member.rank for member in message.members}
        with self._lock:
            self._n_others = sum(not member.storage for member in message.members) - 1
            self._any_gone, self._numbers = self._any_gone or not self._numbers <= numbers, numbers
        self._viewer(message.members)

    def _take_grant(self, message: Grant) -> None:
        with self._lock:
            if self._allotment is None:
                return
            if message.passed_on or self._any_gone:  # who has gone may have saved pieces of what is granted again
                self._look_again(message.regions)
            if message.passed_on:
                self._last_tries.update(chunk for region in message.regions for chunk in region.chunks())
                self._reports.append(NodeReport(late=[f"{message.passed_on}; rank {self.name} tries"]))
            self._allotment.on_granted(message.regions, passed_on=bool(message.passed_on))
            self._wanting = False
            self._serve_if_idle()

    def _take_shed(self, message: Shed) -> None:
        with self._lock:
            if self._allotment is not None:
                self._send(self._allotment.give_back(message))

    def _take_stop(self, message: Stop) -> None:
        with self._lock:
            if self._stopped is not None:
                return
            _log.info("this rank must end: %s", message.reason or "the run is complete")
            self._stopped = message
            self._over.set()
            if not self._welcomed.done():
                self._welcomed.set_exception(ClusterError(message.reason or "the run is complete"))
            if message.reason and self._post is not None:
                self._post(NodeBroken(RunCancelledError(message.reason)))
            self._serve_if_idle()

    def _on_view(self, view: ClusterView) -> None:
        if view.epoch and self._engine.me in view.gone:
            self._take_stop(Stop(f"this rank was given up: {view.gone[self._engine.me]}"))
        elif view.epoch and DRIVER not in view.members:
            self._take_stop(Stop("the driver of the run is gone"))

    # -- under the lock ----------------------------------------------------------------------------------------

    def _next(self) -> SegmentsGranted:
        """Return what there is for the node, and ask for more where that is the last."""
        if self._stopped is not None:
            return SegmentsGranted([], last=not self._stopped.reason)
        assert self._allotment is not None
        found = self._allotment.segments(self._most)
        self._note(self._allotment.without_work())
        self._idle = not found
        self._note_whether_busy()
        if self._allotment.low and not self._wanting:
            self._wanting = True
            self._send(Want(self._allotment.left_pairs, self._meter.speed))
        return SegmentsGranted(found, last=False)

    def _serve_if_idle(self) -> None:
        if self._idle and self._post is not None:
            event = self._next()
            if event.segments or event.last:
                self._post(event)

    def _note_whether_busy(self) -> None:
        """Measure the speed while there is work: also while nothing more is granted than was begun."""
        self._meter.busy(not self._idle or (self._allotment is not None and self._allotment.left_pairs > 0))

    def _note(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if self._allotment is not None:
                self._allotment.on_committed(chunk)
            self._done.add(chunk)

    def _send(self, message: FromRank) -> None:
        self._engine.post(DRIVER, type(message).__name__.lower(), wire.encode(message))

    # -- the thread that tells -----------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._ended.is_set():
            self._hurry.wait(BEAT_SECONDS)
            self._hurry.clear()
            if not self._ended.is_set():
                self.tell()

    def tell(self) -> None:
        """Send what was done since the last call; an engine that carries nothing any more has said so elsewhere."""
        try:
            with self._telling:
                if self._welcomed.done():
                    self._tell_all()
        except ClusterError as error:
            self._take_stop(Stop(f"this rank cannot reach the driver of the run: {error}"))
            self._ended.set()

    def _tell_all(self) -> None:
        notes = self._notes()
        with self._lock:
            if notes:
                self._reports.append(NodeReport(late=list(notes)))
            done, self._done = self._done, set()
            reports, self._reports = self._reports, []
            speed = self._meter.speed
            counts = self._new_counts()
        for runs in _cut(list(runs_of(done))):
            self._send(Done(runs))
        for report in merge_reports(reports):
            self._send(replace(counts, node=report, speed=speed))
            counts = Report()
        if not self._in_doubt():  # what was sent says nothing about whether the driver still takes it
            self._told_at = self._clock()

    def _in_doubt(self) -> bool:
        return self._clock() - self._told_at > DOUBT_SECONDS

    def _new_counts(self) -> Report:
        """Return what the node did since the last call."""
        if self._statistics is None:
            return Report()
        before, now = self._counted, self._statistics()
        self._counted = now
        return Report(
            storage_loads=now.parses - before.parses,
            fills=now.loads - before.loads,
        )


def runs_of(chunks: Iterable[Chunk]) -> Iterator[tuple[int, int, int]]:
    """Return chunks as runs in rows: (row, first column, end)."""
    run: tuple[int, int, int] | None = None
    for row, column in sorted(chunks):
        if run is not None and (row, column) == (run[0], run[2]):
            run = (row, run[1], column + 1)
            continue
        if run is not None:
            yield run
        run = (row, column, column + 1)
    if run is not None:
        yield run


def merge_reports(reports: Iterable[NodeReport]) -> list[NodeReport]:
    """Add reports up, to as few as have one death and not too many failures each; at least one, a sign of life."""
    found = [NodeReport()]
    for report in reports:
        last = found[-1]
        if (last.death and report.death) or len(last.failures) + len(report.failures) > MOST_TOLD:
            found.append(report)
            continue
        found[-1] = NodeReport(
            last.n_loads + report.n_loads,
            PairCounts(*(a + b for a, b in zip(last.pairs, report.pairs, strict=True))),
            [*last.failures, *report.failures],
            last.death or report.death,
            last.survived or report.survived,
            [*last.late, *report.late],
        )
    return found


def _cut(runs: list[tuple[int, int, int]]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    for begin in range(0, len(runs), MOST_TOLD):
        yield tuple(runs[begin : begin + MOST_TOLD])


# How fast a rank is: pairs a second while there is work.

# FADING_SECONDS and FADING, by arithmetic: a beat is half a second and 0.9 a beat halves what is known in 3.3 s, so a
# rank that slows down is believed before much is granted to it. `tartan bench cluster_uneven` holds it.
FADING_SECONDS = 0.5
FADING = 0.9
"""How much of a measured speed is left after these seconds: it follows what the rank does now."""


class SpeedMeter:
    """Pairs a second while there is work, fading."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        self._seconds = 0.0
        self._pairs = 0.0

    def busy(self, busy: bool) -> None:
        self._settle()
        self._since = self._clock() if busy else None

    def add(self, pairs: int) -> None:
        self._settle()
        self._pairs += pairs

    @property
    def speed(self) -> float:
        """Pairs a second; 0 while that is not known."""
        self._settle()
        if self._seconds < FADING_SECONDS or not self._pairs:
            return 0.0
        return self._pairs / self._seconds

    def _settle(self) -> None:
        if self._since is None:
            return
        now = self._clock()
        fading = FADING ** ((now - self._since) / FADING_SECONDS)
        self._seconds = self._seconds * fading + now - self._since
        self._pairs *= fading
        self._since = now
