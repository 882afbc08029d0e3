"""The driver of a sort on several ranks: brings what ranks say to the conductor, and its decisions to the ranks."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tartan.base.format import format_bytes
from tartan.base.logs import logger_of
from tartan.base.machine import AwakeClock
from tartan.cluster import wire
from tartan.cluster.driver import FAREWELL_SECONDS, PATIENCE_SECONDS, TICK_SECONDS
from tartan.cluster.engine import DRIVER, PIECE_BYTES, Call, ClusterEngine, ClusterView, Handler, StaleEpoch
from tartan.core.sorting.conductor import (
    AllWritten,
    CutThese,
    MergeThis,
    SampleThese,
    SortAction,
    SortConductor,
    SortRank,
    SortThese,
    Stuck,
)
from tartan.core.sorting.shares import ChunkGrid, RunSample, SortSplitter, choose_splitters
from tartan.errors import (
    ClusterError,
    ConfigError,
    DiskFullError,
    InputChangedError,
    ItemError,
    SortError,
    TartanError,
)
from tartan.sort.ranks.messages import (
    MOST_KEY_BYTES,
    ChunkDone,
    ChunkList,
    CutText,
    GoneText,
    PartBack,
    PartDone,
    PartText,
    SampleText,
    SortBegin,
    SortEnd,
    SortHeld,
    SortHello,
    SortStop,
    SplitterText,
)

_log = logger_of(__name__)

_KINDS: dict[str, type[Any]] = {
    "hello": SortHello,
    "held": SortHeld,
    "sorted": ChunkDone,
    "sampled": SampleText,
    "cut": CutText,
    "merged": PartDone,
    "back": PartBack,
    "ended": SortEnd,
}
"""What ranks say, by the names of the messages."""

# By judgement: a part comes back while the loss of a rank is not yet known, which takes seconds; what comes back more
# often has another cause. No benchmark.
MOST_TRIES = 60
# By arithmetic: as the engine counts a run file of blocks of 32 KiB: 0.5 % for its index, and its header.
_RUN_FILE_SHARE = 1.005
_FATAL: dict[str, type[TartanError]] = {
    "input-changed": InputChangedError,
    "config": ConfigError,
    "item": ItemError,
}
"""What ends a sort, whichever rank meets it."""
_KNOWN: dict[str, type[TartanError]] = {**_FATAL, "disk-full": DiskFullError, "memory": ConfigError}


@dataclass
class SortTally:
    """What ranks told of a sort.

    Attributes
    ----------
    hellos : dict of str to SortHello
        Of all ranks that took part, by name.
    ends : dict of str to SortEnd
    lost : list of str
        Ranks that were lost, each with the reason.
    link_bytes, plain_bytes : int
        Bytes that crossed links in the exchange, and what they were without packing.
    stored_bytes : int
        Of all run files.
    shares : dict of str to int
        Records that each rank wrote.
    n_found : int
        Run files of an earlier attempt that were used.
    phase_seconds : dict of str to float
    """

    hellos: dict[str, SortHello] = field(default_factory=dict)
    ends: dict[str, SortEnd] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    link_bytes: int = 0
    plain_bytes: int = 0
    stored_bytes: dict[int, int] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)
    n_found: int = 0
    phase_seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SortWatch:
    """What the driver asks of its caller; all are called in its loop.

    Attributes
    ----------
    plan : callable
        Given the hellos of the first ranks, returns how they begin.
    finish : callable
        Puts the result in its place, once all of it is written.
    note : callable
        Receives one line for whatever the user should know.
    show : callable
        Receives the phase ("sort" or "write"), and the bytes of it that are done.
    beat : callable
        Called twice a second.
    """

    plan: Callable[[Sequence[SortHello]], SortBegin]
    finish: Callable[[], None]
    note: Callable[[str], None]
    show: Callable[[str, int], None] = lambda phase, n_bytes: None
    beat: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class SortWaits:
    """How long a driver waits.

    Attributes
    ----------
    rank_timeout_seconds : float
        A rank that is silent for longer is lost.
    patience_seconds : float
        For ranks that have not come.
    return_seconds : float
        For another one, when all have gone.
    """

    rank_timeout_seconds: float = 15.0
    patience_seconds: float = PATIENCE_SECONDS
    return_seconds: float = PATIENCE_SECONDS


class SortDriver:
    """Drives one sort on several ranks to its end.

    Parameters
    ----------
    engine : ClusterEngine
        Not started yet; the driver's.
    job : bytes
        What ranks must know to begin.
    record_bytes : int
    n_expected : int
        Ranks that are waited for.
    watch : SortWatch
    waits : SortWaits, optional
    clock : callable
        Seconds in which this process runs.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        job: bytes,
        record_bytes: int,
        n_expected: int,
        watch: SortWatch,
        *,
        waits: SortWaits | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._engine, self._job, self._watch = engine, job, watch
        self._record_bytes, self._n_expected = record_bytes, n_expected
        self._waits = waits or SortWaits()
        self._clock = clock or AwakeClock()
        self._inbox: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._present: set[str] = set()
        self._lost: set[str] = set()
        self._begin: SortBegin | None = None
        self._held: dict[str, SortHeld] = {}
        self._conductor: SortConductor | None = None
        self._samples: dict[int, list[bytes]] = {}
        self._steps: dict[int, int] = {}
        self._splitters: list[SortSplitter] | None = None
        self._tries: dict[int, int] = {}
        self._written = False
        self._alone_since: float | None = None
        self._phase_at: tuple[str, float] | None = None
        self._last_end = SortEnd()
        self.tally = SortTally()

    def run(self) -> SortTally:
        """Have the ranks sort.

        Raises
        ------
        TartanError
            What a rank met that stops the sort, ``cancel`` was given, or ClusterError if no rank is left.
        """
        self._engine.start(self._handlers(), lambda view: self._inbox.put(("view", "", view)))
        self._started = self._clock()
        tick_at = self._clock()
        try:
            while not self._written:
                if self._clock() >= tick_at:
                    tick_at = self._clock() + TICK_SECONDS
                    self._tick()
                try:
                    kind, peer, message = self._inbox.get(timeout=TICK_SECONDS)
                except queue.Empty:
                    continue
                self._take(kind, peer, message)
            self._phase("")
            self._watch.finish()
            self._send_home(SortStop(True))
        except BaseException as error:
            self._send_home(SortStop(False, str(error)))
            raise
        finally:
            self._engine.leave("the sort has ended")
        return self.tally

    def cancel(self, error: TartanError) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self._inbox.put(("stop", "", error))

    # -- what arrives -------------------------------------------------------------------------------------------

    def _handlers(self) -> Mapping[str, Handler]:
        def handler(name: str) -> Handler:
            def handle(call: Call) -> bytes:
                self._inbox.put((name, call.sender, wire.decode(call.body, _KINDS[name])))
                return b""

            return handle

        return {name: handler(name) for name in _KINDS} | {"job": self._take_job}

    def _take_job(self, call: Call) -> bytes:
        offset = wire.decode(call.body, int)
        return self._job[offset : offset + PIECE_BYTES]

    def _take(self, kind: str, peer: str, message: Any) -> None:
        if kind == "stop":
            raise message
        if kind == "view":
            self._take_view(message)
        elif kind == "ended":
            self._take_end(peer, message)
        elif peer not in self._lost:
            getattr(self, f"_take_{kind}")(peer, message)

    def _take_view(self, view: ClusterView) -> None:
        self._present = set(view.ranks)
        if view.epoch and DRIVER not in view.members:
            raise ClusterError(view.gone.get(DRIVER, "the cluster is gone"))
        for peer, reason in view.gone.items():
            self._lose(peer, reason)

    def _take_end(self, peer: str, end: SortEnd) -> None:
        self.tally.ends[peer] = end
        if not end.error:
            return
        if end.code in _FATAL:
            raise _FATAL[end.code](end.error, code=end.code, context=end.context)
        self._last_end = end
        self._lose(peer, end.error)

    def _take_hello(self, peer: str, hello: SortHello) -> None:
        self.tally.hellos[peer] = hello
        _log.info("rank %s has come: host %s, process %d, listens on %s", peer, hello.host, hello.pid, hello.address)
        if hello.blind:
            self._watch.note(f"rank {peer} does not see the sources, so it sorts nothing: {hello.blind}")
        if hello.walled:
            self._watch.note(f"rank {peer} does not see the destination, so it merges nothing: {hello.walled}")
        if hello.network:
            self._watch.note(
                f"the run files of rank {peer} go to {hello.tmp}, a network file system ({hello.network}), and cross "
                "the network twice more: name folders on disks of the ranks with --tmp"
            )
        if self._begin is not None:
            self._post(peer, "begin", self._begin)
        else:
            self._begin_when_all_came()

    def _begin_when_all_came(self) -> None:
        if self._begin is None and self._hellos() and len({*self.tally.hellos, *self._lost}) >= self._n_expected:
            self._begin_all()

    def _hellos(self) -> dict[str, SortHello]:
        return {peer: hello for peer, hello in self.tally.hellos.items() if peer not in self._lost}

    def _begin_all(self) -> None:
        hellos = self._hellos()
        if all(hello.blind for hello in hellos.values()):
            why = next(iter(hellos.values())).blind
            raise ConfigError(f"no rank sees the sources ({why}); put them where ranks read them, by the same path")
        if all(hello.walled for hello in hellos.values()):
            why = next(iter(hellos.values())).walled
            raise ConfigError(f"no rank sees the destination ({why}); name one in a folder that ranks share")
        self._begin = self._watch.plan(list(hellos.values()))
        for peer in hellos:
            self._post(peer, "begin", self._begin)
        self._phase("sort")

    def _take_held(self, peer: str, held: SortHeld) -> None:
        assert self._begin is not None
        self._held[peer] = held
        for note in held.notes:
            self._watch.note(note)
        if self._conductor is not None:
            self._join(peer)
            self._act(self._conductor.next())
        else:
            self._open_when_all_held()

    def _open_when_all_held(self) -> None:
        if self._conductor is not None or self._begin is None or not set(self._hellos()) <= set(self._held):
            return
        if not self._hellos():
            return
        grid = ChunkGrid(self._begin.n_records, self._begin.chunk_records)
        self._conductor = SortConductor(grid, ahead=self._begin.mergers + 1)
        for peer in self._hellos():
            self._join(peer)
        self.tally.n_found = self._conductor.n_sorted
        self._act(self._conductor.next())

    def _join(self, peer: str) -> None:
        assert self._conductor is not None
        assert self._begin is not None
        hello, held = self.tally.hellos[peer], self._held[peer]
        sharing = sum(other.disk == held.disk for name, other in self._held.items() if name not in self._lost)
        chunk_bytes = int(self._begin.chunk_records * self._record_bytes * _RUN_FILE_SHARE) + (1 << 16)
        room = held.free_bytes // sharing // chunk_bytes
        rank = SortRank(peer, not hello.blind, not hello.walled, hello.storage, room)
        self._conductor.join(rank, held.chunks)
        if self._splitters is not None:
            self._tell_splitters(peer, self._splitters)

    def _take_sorted(self, peer: str, done: ChunkDone) -> None:
        assert self._conductor is not None
        self.tally.stored_bytes[done.chunk] = done.stored_bytes
        self._act(self._conductor.note_sorted(peer, done.chunk))

    def _take_sampled(self, peer: str, text: SampleText) -> None:
        assert self._conductor is not None
        if self._splitters is not None:
            return
        keys = self._samples.setdefault(text.chunk, [])
        keys.extend(text.keys)
        self._steps[text.chunk] = text.step
        if text.last:
            self._act(self._conductor.note_sampled(peer, text.chunk))

    def _take_cut(self, peer: str, text: CutText) -> None:
        assert self._conductor is not None
        self._act(self._conductor.note_cut(text.chunk, text.cuts))

    def _take_merged(self, peer: str, done: PartDone) -> None:
        assert self._conductor is not None
        self.tally.link_bytes += done.link_bytes
        self.tally.plain_bytes += done.plain_bytes
        self._act(self._conductor.note_written(peer, done.part))

    def _take_back(self, peer: str, back: PartBack) -> None:
        assert self._conductor is not None
        _log.info("rank %s could not merge part %d: %s", peer, back.part, back.why)
        self._tries[back.part] = self._tries.get(back.part, 0) + 1
        if self._tries[back.part] > MOST_TRIES:
            raise SortError(f"part {back.part} of the result could not be merged {MOST_TRIES} times: {back.why}")
        if back.part >= 0:
            self._conductor.take_back(peer, back.part)  # the next tick sends it again
        if back.damaged >= 0:
            self._watch.note(f"the run file of chunk {back.damaged} is damaged ({back.why}); it is sorted again")
            keeper = self._conductor.keeper_of(back.damaged)
            self._act(self._conductor.drop_run(keeper, back.damaged))

    # -- what is decided ----------------------------------------------------------------------------------------

    def _act(self, actions: Sequence[SortAction]) -> None:
        assert self._conductor is not None
        for action in actions:
            match action:
                case SortThese(rank, chunks):
                    self._phase("sort")
                    self._post(rank, "sort", ChunkList(chunks))
                case SampleThese(rank, chunks):
                    for chunk in chunks:
                        self._samples.pop(chunk, None)
                    self._post(rank, "sample", ChunkList(chunks))
                case CutThese(rank, chunks):
                    self._post(rank, "cut", ChunkList(chunks))
                case MergeThis(rank, part, begin, pieces):
                    self._phase("merge")
                    places = tuple(
                        (chunk, self.tally.hellos[keeper].address, first, end) for chunk, keeper, first, end in pieces
                    )
                    self._post(rank, "merge", PartText(part, begin, places))
                case Stuck(what):
                    raise self._make_stuck_error(what)
                case AllWritten():
                    self.tally.shares = self._conductor.shares
                    self._written = True
        if self._conductor.needs_splitters:
            self._choose()

    def _choose(self) -> None:
        assert self._conductor is not None
        assert self._begin is not None
        samples = [RunSample(chunk, self._steps[chunk], tuple(keys)) for chunk, keys in self._samples.items()]
        self._splitters = choose_splitters(samples, self._conductor.grid, self._begin.n_parts)
        self._samples.clear()
        for rank in self._conductor.ranks:
            self._tell_splitters(rank.name, self._splitters)
        self._act(self._conductor.set_splitters())

    def _tell_splitters(self, peer: str, splitters: Sequence[SortSplitter]) -> None:
        width = len(splitters[0].key) if splitters else 1
        at_once = max(1, MOST_KEY_BYTES // (width + 24))
        for first in range(0, max(1, len(splitters)), at_once):
            some = splitters[first : first + at_once]
            keys, chunks = tuple(one.key for one in some), tuple(one.chunk for one in some)
            places, last = tuple(one.place for one in some), first + at_once >= len(splitters)
            self._post(peer, "splitters", SplitterText(keys, chunks, places, last))

    def _post(self, peer: str, name: str, message: object) -> None:
        try:
            self._engine.post(peer, name, wire.encode(message))
        except StaleEpoch as error:
            raise ClusterError(f"the cluster has given up its driver: {error}") from error

    # -- losses -------------------------------------------------------------------------------------------------

    def _lose(self, peer: str, reason: str) -> None:
        if peer in self._lost or (peer in self.tally.ends and not self.tally.ends[peer].error):
            return
        self._lost.add(peer)
        self._present.discard(peer)
        self.tally.lost.append(f"{peer}: {reason}")
        _log.warning("rank %s is lost: %s", peer, reason)
        self._watch.note(f"rank {peer} is lost: {reason}; others take over what it had")
        hello = self.tally.hellos.get(peer)
        for other in self._hellos() if hello is not None else ():
            self._post(other, "gone", GoneText((hello.address,)) if hello else GoneText(()))
        if self._conductor is not None:
            self._act(self._conductor.lose(peer))
        self._begin_when_all_came()
        self._open_when_all_held()

    def _tick(self) -> None:
        self._watch.beat()
        for peer in list(self._hellos()):
            if peer not in self.tally.ends and self._engine.silence_seconds(peer) > self._waits.rank_timeout_seconds:
                self._engine.expel(peer, "it was silent for too long")
                self._lose(peer, "it was silent for too long")
        if self._begin is None and self._hellos() and self._clock() - self._started > self._waits.patience_seconds:
            self._watch.note(
                f"{len(self._hellos())} of {self._n_expected} ranks have come; they begin without the rest"
            )
            self._begin_all()
        self._give_up_when_alone()
        if self._conductor is not None:
            self._act(self._conductor.next())
            self._show(self._conductor)

    def _show(self, conductor: SortConductor) -> None:
        if conductor.records_written or conductor.n_merging:
            self._watch.show("write", conductor.records_written * self._record_bytes)
        else:
            grid = conductor.grid
            done = min(grid.n_records, conductor.n_sorted * grid.chunk_records)
            self._watch.show("sort", done * self._record_bytes)

    def _give_up_when_alone(self) -> None:
        if self._hellos():
            self._alone_since = None
            return
        now = self._clock()
        self._alone_since = now if self._alone_since is None else self._alone_since
        # Ranks that have not come yet are waited for; where all have gone, a worker that is started anew brings one.
        patience = self._waits.return_seconds if self._lost else self._waits.patience_seconds
        if now - self._alone_since >= patience or (self._lost and not self._present and self._last_end.error):
            none_came = not self._lost and not self.tally.hellos
            raise self._make_stuck_error(f"no rank has come within {patience:g} s" if none_came else "no rank is left")

    def _make_stuck_error(self, what: str) -> TartanError:
        if self._last_end.error:
            kind = _KNOWN.get(self._last_end.code, ClusterError)
            again = "" if kind is ConfigError else "; run the same command again to resume"
            return kind(f"{what}; the last one ended: {self._last_end.error}{again}", retryable=True)
        if "room" in what:
            free = ", ".join(f"{name} {format_bytes(held.free_bytes)}" for name, held in self._held.items())
            return DiskFullError(f"{what} (free: {free}); free some, or name larger folders with --tmp", retryable=True)
        lost = f"; lost: {', '.join(self.tally.lost)}" if self.tally.lost else ""
        return ClusterError(f"{what}{lost}; run the same command again to resume", retryable=True)

    # -- the end ------------------------------------------------------------------------------------------------

    def _send_home(self, stop: SortStop) -> None:
        """Stop the ranks, and wait until they have tidied up."""
        waited = {peer for peer in self._present if peer not in self.tally.ends}
        for peer in waited:
            try:
                self._post(peer, "stop", stop)
            except TartanError:
                return
        until = self._clock() + FAREWELL_SECONDS
        while waited - set(self.tally.ends) and self._clock() < until:
            try:
                kind, peer, message = self._inbox.get(timeout=TICK_SECONDS)
            except queue.Empty:
                continue
            if kind == "ended":
                self.tally.ends[peer] = replace(message)
            elif kind == "view":
                waited &= set(message.ranks)

    def _phase(self, name: str) -> None:
        now = time.monotonic()
        if self._phase_at is not None:
            before, since = self._phase_at
            if before == name:
                return
            seconds = self.tally.phase_seconds
            seconds[before] = seconds.get(before, 0.0) + now - since
        self._phase_at = (name, now) if name else None
