"""A simulated rank: the real link, allotment, homes and claims, around a node that takes time and computes nothing."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzz.cluster.host import ROOT, Process
from fuzz.cluster.ledger import CELLS, Chunk, SimulatedLedger, targets, wanted_cells
from fuzz.cluster.network import Membership, SimulatedStation
from tartan.base.files import FileWriter
from tartan.base.lock import SharedLock
from tartan.cluster.engine import DRIVER, ClusterView
from tartan.cluster.rank import BEAT_SECONDS, RankEnd, RankLink
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.core.pairs.region import Region
from tartan.core.pairs.verdict import NodeReport, PairCounts
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.homes import Ask, Copy, HomeAction, Homes, Read, Respond, Send
from tartan.core.ranks.messages import Answer, Fetch, Hello, Member
from tartan.errors import DiskFullError, StoreError, TartanError
from tartan.runtime.events import SegmentsGranted
from tartan.store.claims import Claims, contend

if TYPE_CHECKING:
    from fuzz.cluster.world import World

SEGMENTS = 2
COMMITS = 2
FLUSH_SECONDS = 5.0
ANSWER_SECONDS = 20.0
BAND_LINES, STREAM_LINES, KEPT_LINES = 5, 2, 2


class RankProcess(Process):
    """One rank from its start to its end.

    Parameters
    ----------
    world : World
    run : Membership
    name, host : str
    """

    def __init__(self, world: World, run: Membership, name: str, host: str) -> None:
        super().__init__(world, name, host)
        self.run = run
        self.station = SimulatedStation(world, self, run, name)
        self.link = RankLink(self.station, clock=self.clock)
        self.homes: Homes | None = None
        self.number: int | None = None
        self.pins = 0  # sends and copies from kept slots that have not ended
        self.freezes_at: str | None = None  # the step before which it is to be stopped
        self._folder = world.folder_of(self)
        self.ledger = SimulatedLedger(self._folder)
        self._writer: FileWriter | None = None
        self._shared: SharedLock | None = None
        self._claims: Claims | None = None
        self._lacking: dict[Chunk, np.ndarray] = {}
        self._members: Sequence[Member] = ()
        self._allotment: Allotment | None = None
        self._n_held = 0
        self._tiles: deque[tuple[Tile, range]] = deque()
        self._asked = self._over = self._computing = self._ending = False
        self._level: dict[int, bool] = {}
        self._used: set[int] = set()
        self._commits: deque[Any] = deque()
        self._n_committing = 0
        self._questions: dict[int, tuple[int, int]] = {}
        self._serials = 0
        self._heard_at = self._beat_at = self.clock()
        self._flushed_at = self._renewed_at = self.clock()
        self._speed = world.rng.choice((0.7, 1.0, 1.0, 1.4))

    # -- a beginning -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Become a member; where the driver cannot be reached, this process ends."""
        try:
            self.link.start()
        except TartanError as error:
            self.world.note(self.name, f"cannot join: {error}")
            self.exit()
            return
        self.station.on_served = self._on_served
        self.station.serve()
        self.world.after(0.05, self, self._open)
        self.world.after(BEAT_SECONDS, self, self._beat)

    def _open(self) -> None:
        """Join the run folder, look what is missing, and say hello."""
        world = self.world
        about = {"what": f"rank {self.name}", "lease_seconds": world.rank_timeout_seconds}
        shared = SharedLock(ROOT, self.run.name, about, flock=world.flock)
        try:
            shared.__enter__()
            self._shared = shared
            folder = self._folder
            ways: dict[str, Any] = {"write": folder.write_buffers, "force": world.force, "force_all": world.force_all}
            self._writer = FileWriter(ROOT, temporary=shared.place, folder=folder, **ways)
        except TartanError as error:
            self.fail(error)
            return
        self._claims = Claims(ROOT, self._writer, shared.place, targets)
        self._lacking = {chunk: left for chunk in world.chunks if (left := self.ledger.lacking(chunk)) is not None}
        pairs = np.zeros((world.n_lines, world.n_lines), np.int64)
        for chunk, left in self._lacking.items():
            pairs[chunk] = left.sum()
        band = BAND_LINES * world.grid.chunk
        allotment = Allotment(world.grid, pairs, band, self._needs)
        self._allotment = allotment
        hello = Hello((), band_items=band, kept_items=KEPT_LINES * world.grid.chunk, host=self.host, address=self.name)
        try:
            self.link.offer(hello, allotment, self._view, self._look_again)
        except TartanError as error:
            self.fail(error)

    def _needs(self, tile: Tile) -> bool:
        return (tile.strip, tile.span) in self._lacking

    def _look_again(self, regions: Sequence[Region]) -> None:
        for region in regions:
            for chunk in region.chunks():
                if chunk in self._lacking:
                    left = self.ledger.lacking(chunk)
                    if left is not None:
                        self._lacking[chunk] = left
                    else:
                        del self._lacking[chunk]

    def uncommitted(self) -> Set[Chunk]:
        """Return the chunks that it was granted and has not committed."""
        return self._allotment.uncommitted if self._allotment is not None else set()

    # -- signs of life ---------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._over:
            return
        world, now = self.world, self.clock()
        world.after(BEAT_SECONDS, self, self._beat)
        if now - self._beat_at > 2 * BEAT_SECONDS:  # it was stopped: that says nothing about the driver
            self._heard_at = now
        self._beat_at = now
        if now - self._heard_at > world.rank_timeout_seconds or not self.run.driver.alive:
            self.station.adopt(
                ClusterView(self.station.view().epoch + 1, (self.name,), {DRIVER: "the driver is silent"})
            )
            self.station.serve()
            return
        beat = partial(self.run.beat, self.name, self.station.view().epoch)
        world.network.send(self, self.run.driver, beat)
        if self._shared is not None and now - self._renewed_at > min(5.0, world.rank_timeout_seconds / 3):
            self._renewed_at = now
            self._shared.renew()
        self.link.tell()
        self._on_served()

    def on_heard(self) -> None:
        """Take note that the driver has answered."""
        self._heard_at = self.clock()

    def _on_served(self) -> None:
        """Go on after messages were handled."""
        if self.number is None and self.link.number is not None:
            self.number = self.link.number
            self.world.by_number[self.run.name, self.number] = self
            self.homes = Homes(self.number, KEPT_LINES, self._is_resident)
            self._act(self.homes.view(self._members) if self._members else [])
            self._ask()
        if self._allotment is not None and len(self._allotment.uncommitted) != self._n_held:
            granted = len(self._allotment.uncommitted) > self._n_held
            self._n_held = len(self._allotment.uncommitted)
            if granted:
                self.world.checks.on_granted(self)
        stopped = self.link.stopped
        if stopped is not None and not self._ending and (stopped.reason or self.number is None):
            self.finish(RankEnd(stopped.reason))

    # -- work ------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if not self._asked and not self._over and not self._ending:
            self._asked = True
            self.link.ask(SEGMENTS, self._post)

    def _post(self, event: Any) -> None:
        """Take what the link has for the node; it comes under the lock of the link, so it is done next."""
        self.world.after(0.0, self, partial(self._take, event))

    def _take(self, event: Any) -> None:
        if not isinstance(event, SegmentsGranted):
            return
        if event.last:
            self._ending = True
            if not (self._n_committing or self._computing or self._commits):
                self.finish(RankEnd())
            return
        if event.segments:
            self._asked = False
            for segment in event.segments:
                self._tiles.extend((tile, segment.rows) for tile in segment.tiles)
            self._advance()

    def _advance(self) -> None:
        """Begin the next tile when its lines are there; ask for more when there is none."""
        if self._over or self._computing:
            return
        while self._tiles and not self._needs(self._tiles[0][0]):
            chunk = self._tiles.popleft()[0]
            self.link.on_committed([(chunk.strip, chunk.span)])
        if not self._tiles:
            self._ask()
            return
        tile, rows = self._tiles[0]
        self._used = {tile.strip, tile.span}
        for line in sorted(self._used):
            self._want(line, line in rows)
        if len(self._tiles) > 1:
            following = self._tiles[1][0]
            for line in (following.strip, following.span):
                self._want(line, line in rows)
        if all(self._level.get(line) for line in self._used) and len(self._commits) < COMMITS:
            self._tiles.popleft()
            self._computing = True
            seconds = self.world.tile_seconds * self._speed * (0.5 + self.world.rng.random())
            self.world.after(seconds, self, partial(self._on_computed, (tile.strip, tile.span)))

    def _on_computed(self, chunk: Chunk) -> None:
        self._computing = False
        if self._over:
            return
        codes = np.where(self._lacking.get(chunk, wanted_cells(chunk)), DONE, NOT_COMPUTED).astype(np.uint8)
        if self.world.rng.random() < 0.1 and codes.sum() > 1:  # a piece of it first, as of a chunk that takes long
            piece = codes.copy()
            piece[CELLS // 2 :] = NOT_COMPUTED
            if piece.any():
                self._commits.append((chunk, piece, False))
        self._commits.append((chunk, codes, True))
        self._begin_commit()
        self._advance()

    def _begin_commit(self) -> None:
        if not self._commits or self._n_committing:
            return
        chunk, codes, last = self._commits.popleft()
        self._n_committing += 1
        steps = contend(codes, partial(self.ledger.read, chunk), partial(self._publishing, chunk))
        self.world.steps.append(steps)
        self._step(steps, None, chunk, codes, last)

    def _publishing(self, chunk: Chunk, state: str, lacking: np.ndarray, before: np.ndarray | None) -> Any:
        assert self._claims is not None
        files = self.ledger.files(chunk, lacking, before, self.world.new_version())
        return self._claims.publishing(chunk, state, files)

    def _step(self, steps: Any, name: str | None, chunk: Chunk, codes: np.ndarray, last: bool) -> None:
        """Take the step that was announced, and announce the next one."""
        if self._over:
            return
        try:
            if name is None:
                name = next(steps)
            else:
                try:
                    self.link.before_step(name)
                    self.world.checks.on_step_allowed(self, name, chunk)
                except TartanError as error:
                    name = steps.throw(error)
                else:
                    name = next(steps)
        except StopIteration:
            self._on_committed(chunk, codes, last)
            return
        except TartanError as error:
            self.fail(error)
            return
        self.world.on_step_announced(self, name)
        delay = self.world.step_seconds * self.world.rng.random()
        self.world.after(delay, self, partial(self._step, steps, name, chunk, codes, last))

    def _on_committed(self, chunk: Chunk, codes: np.ndarray, last: bool) -> None:
        self._n_committing -= 1
        self.world.checks.on_commit(self, chunk)
        if last:
            self._lacking.pop(chunk, None)
            self.link.report(NodeReport(pairs=PairCounts(good=int(codes.astype(bool).sum()))))
            self.link.on_committed([chunk])
        if self.clock() - self._flushed_at > FLUSH_SECONDS:
            self.flush()
        self._begin_commit()
        if self._ending and not (self._n_committing or self._computing or self._commits):
            self.finish(RankEnd())
        else:
            self._advance()

    def flush(self) -> None:
        """Force what was committed to the disk."""
        assert self._writer is not None
        self._flushed_at = self.clock()
        self._writer.sync()
        self.world.checks.on_flush(self)

    # -- items -----------------------------------------------------------------------------------------------------

    def _is_resident(self, line: int) -> bool:
        return self._level.get(line, False)

    def _want(self, line: int, stays: bool) -> None:
        """Bring a line in, in place of the one that was used longest ago."""
        if line in self._level:
            self._level[line] = self._level.pop(line)
            return
        if len(self._level) >= BAND_LINES + STREAM_LINES:
            idle = [one for one, ready in self._level.items() if ready and one not in self._used]
            if not idle:
                return
            del self._level[idle[0]]
        self._level[line] = False
        assert self.homes is not None
        self._act(self.homes.source(line, stays=stays))

    def _view(self, members: Sequence[Member]) -> None:
        self._members = members
        if self.homes is not None:
            self._act(self.homes.view(members))

    def _act(self, actions: Iterable[HomeAction]) -> None:
        for action in actions:
            match action:
                case Ask(rank, fetch):
                    self._ask_rank(rank, fetch)
                case Respond(rank, answer):
                    self._answer(rank, partial(RankProcess.on_answered, answerer=self.number, answer=answer))
                case Send(rank, line, kept):
                    self.pins += kept is not None
                    self._answer(rank, partial(RankProcess.on_received, sender=self.number, line=line))
                    self.world.after(0.01, self, partial(self._on_sent, line, kept))
                case Read(line, kept):
                    self._questions.pop(line, None)
                    self.world.after(0.05, self, partial(self._on_read, line, kept))
                case Copy(line, _):
                    self.pins += 1
                    self.world.after(0.002, self, partial(self._on_copied, line))

    def _rank(self, number: int) -> RankProcess | None:
        return self.world.by_number.get((self.run.name, number))

    def _ask_rank(self, rank: int, fetch: Fetch) -> None:
        self._serials += 1
        self._questions[fetch.span] = rank, self._serials
        other = self._rank(rank)
        if other is not None:
            self.world.network.send(self, other, partial(other.on_fetched, self.number, fetch))
        silence = partial(self._on_silence, fetch.span, self._serials)
        self.world.after(ANSWER_SECONDS, self, silence)

    def _answer(self, rank: int, act: Callable[..., None]) -> None:
        other = self._rank(rank)
        if other is not None:
            self.world.network.send(self, other, partial(act, other))

    def _on_silence(self, line: int, serial: int) -> None:
        question = self._questions.get(line)
        if question is not None and question[1] == serial and self.homes is not None:
            del self._questions[line]
            self._act(self.homes.on_silent(line))

    def on_fetched(self, asker: int, fetch: Fetch) -> None:
        """Answer another rank, unless this one has ended."""
        if self.homes is not None and not self._over:
            actions = self.homes.on_fetched(asker, fetch)
            if not any(isinstance(action, Respond | Send) for action in actions):
                self.world.checks.on_left_waiting(self, asker, fetch.span)
            self._act(actions)

    def on_answered(self, answerer: int, answer: Answer) -> None:
        """Take an answer without items; one that is not waited for any more is ignored."""
        question = self._questions.get(answer.span)
        if question is not None and question[0] == answerer and self.homes is not None:
            del self._questions[answer.span]
            self._act(self.homes.on_answered(answerer, answer))

    def on_received(self, sender: int, line: int) -> None:
        """Take items that were asked for."""
        question = self._questions.get(line)
        if question is None or question[0] != sender or self.homes is None or not self.homes.expects(line, sender):
            return
        del self._questions[line]
        self._level[line] = True
        self._act(self.homes.on_received(line, sender))
        self._advance()

    def _on_sent(self, line: int, kept: int | None) -> None:
        assert self.homes is not None
        self.pins -= kept is not None
        self._act(self.homes.on_sent(line, kept))
        self.world.checks.on_released(self)

    def _on_read(self, line: int, kept: int | None) -> None:
        assert self.homes is not None
        if kept is None:
            self._level[line] = True
        self._act(self.homes.read(line))
        self._advance()

    def _on_copied(self, line: int) -> None:
        assert self.homes is not None
        self.pins -= 1
        self._level[line] = True
        self._act(self.homes.on_copied(line))
        self.world.checks.on_released(self)
        self._advance()

    # -- an end ----------------------------------------------------------------------------------------------------

    def fail(self, error: TartanError) -> None:
        """End because this rank cannot go on."""
        if isinstance(error, DiskFullError | StoreError):
            self.world.note(self.name, f"cannot go on: {error}")
        self.finish(RankEnd(str(error), error.code))

    def finish(self, end: RankEnd) -> None:
        """Leave the folder, tell the driver, and be gone."""
        if self._over:
            return
        self._over = True
        self.world.note(self.name, f"ends: {end.error or 'all is done'}")
        with contextlib.suppress(TartanError):
            if self._writer is not None:
                self.flush()
        if self._shared is not None:
            self._shared.__exit__(None, None, None)
        self.link.end(end)
        self.exit()

    def exit(self) -> None:
        """Be gone; the relay says so to the driver."""
        self._over = True
        self.world.say_gone(self, "the rank has ended")

    def kill(self, *, told: bool) -> None:
        """End it as ``kill -9`` does; ``told``: its relay says so, otherwise it goes with its machine."""
        self.alive = False
        self._over = True
        self.world.disk.close_all(self)
        if told:
            self.world.say_gone(self, "it was killed")
