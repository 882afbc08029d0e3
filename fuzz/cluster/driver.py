"""A simulated driver, from the look at who writes to the run to its end: the real driver, coordinator, locks and epoch.

What is done in which order is that of ``run/attach.py`` and ``run/cluster_run.py``, with every wait an event.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzz.cluster.host import ROOT, Process
from fuzz.cluster.ledger import SimulatedLedger, path_of, targets
from fuzz.cluster.network import Membership, SimulatedStation
from tartan.base.files import FileWriter
from tartan.base.lock import FolderLock, SharedLock, take_from_silent
from tartan.base.machine import AwakeClock
from tartan.cluster.driver import TICK_SECONDS, Driver, Summary, Watch
from tartan.cluster.engine import DRIVER
from tartan.cluster.rank import runs_of
from tartan.core.pairs.region import Region
from tartan.core.ranks.coordination import CoordinatorSetup, Run
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.succession import GRACE_SECONDS, Act
from tartan.errors import TartanError
from tartan.run.attach import POLL_SECONDS, look_at_writers
from tartan.run.cluster_run import DRIVES, ENDING_SECONDS, LEASE_SECONDS_NAME, Tenure
from tartan.store import writers
from tartan.store.claims import settle

if TYPE_CHECKING:
    from fuzz.cluster.world import World


class DriverProcess(Process):
    """One driver: it follows the run until it may go on with it, drives ranks, and ends.

    Parameters
    ----------
    world : World
    name, host : str
    """

    def __init__(self, world: World, name: str, host: str) -> None:
        super().__init__(world, name, host)
        self._folder = world.folder_of(self)
        self.ledger = SimulatedLedger(self._folder)
        self.run: Membership | None = None
        self.tenure: Tenure | None = None
        self.coordinator: Coordinator | None = None
        self._driver: Driver | None = None
        self._shared: SharedLock | None = None
        self._deadline = self._renewed_at = self.held_since = 0.0

    # -- until it may go on ----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Look who writes, again and again; lock the folder, or take it, when nobody does."""
        world = self.world
        judged = look_at_writers(ROOT)
        world.checks.on_judged(self, judged)
        if judged.judged.act is Act.TAKE:
            with contextlib.suppress(TartanError):
                epoch = take_from_silent(ROOT, judged.lease_seconds + GRACE_SECONDS, flock=world.flock)
                world.taken_over_at = world.now
                world.note(self.name, f"takes the folder, epoch {epoch}")
                judged = look_at_writers(ROOT)
        if judged.judged.act is Act.FREE and self._lock():
            return
        world.after(POLL_SECONDS, self, self.follow)

    def _lock(self) -> bool:
        """Hold the folder alone, take over what writers left, and begin; return whether that was possible."""
        world = self.world
        try:
            with FolderLock(ROOT, flock=world.flock):
                self.tenure = Tenure(ROOT)
                self.held_since = world.now
                writer = self._make_writer()
                self.take_over(writer)
                lacking = {
                    chunk: left for chunk in world.chunks if (left := self._find_lacking(writer, chunk)) is not None
                }
                writer.sync()
                world.checks.on_taken_over(self)
        except TartanError as error:
            world.note(self.name, f"cannot lock: {error}")
            return False
        if not lacking:
            world.finish(self)
            return True
        self._start(lacking)
        return True

    def _make_writer(self) -> FileWriter:
        folder, world = self._folder, self.world
        return FileWriter(ROOT, folder=folder, write=folder.write_buffers, force=world.force, force_all=world.force_all)

    def take_over(self, writer: FileWriter) -> None:
        """Publish what writers decided for, and remove what is left of them; this process holds the folder alone."""
        writers.fence(ROOT)
        settle(ROOT, ROOT / writers.GONE_NAME, writer, targets, self.ledger.state)
        writers.keep_statistics(ROOT)

    def _find_lacking(self, writer: FileWriter, chunk: tuple[int, int]) -> np.ndarray | None:
        """Return the cells that a chunk lacks; one whose scores are damaged lacks all."""
        if self.ledger.read(chunk)[1] is not None and not self.ledger.verify(chunk):
            writer.remove(path_of("status", chunk))
            self.world.checks.on_forgotten(chunk)
        return self.ledger.lacking(chunk)

    # -- the run ---------------------------------------------------------------------------------------------------

    def _start(self, lacking: dict[tuple[int, int], np.ndarray]) -> None:
        world = self.world
        self.run = Membership(world, f"run-{world.new_version():x}", self)
        world.runs.append(self.run)
        lease = {"what": "the driver", DRIVES: True, LEASE_SECONDS_NAME: world.rank_timeout_seconds}
        shared = SharedLock(ROOT, self.run.name, lease, flock=world.flock)
        try:
            shared.__enter__()
        except TartanError as error:
            world.note(self.name, f"cannot join: {error}")
            world.end_driver(self)
            return
        self._shared = shared
        pairs = np.zeros((world.n_lines, world.n_lines), np.int64)
        for chunk, left in lacking.items():
            pairs[chunk] = left.sum()
        setup = CoordinatorSetup(
            pairs,
            world.grid.chunk,
            n_expected=world.n_ranks,
            patience_seconds=3.0,
            rank_timeout_seconds=world.rank_timeout_seconds,
            ahead_seconds=world.rng.choice((1.0, 2.0, 4.0)),
        )
        assert self.tenure is not None
        self.coordinator = Coordinator(setup)
        station = SimulatedStation(world, self, self.run, DRIVER)
        watch = Watch(lambda report: None, self._find_committed, check=self.tenure.require, lost=self._say)
        self._driver = Driver(station, self.coordinator, b"", watch, Summary(), clock=AwakeClock(clock=self.clock))
        world.note(self.name, f"drives {self.run.name}, {len(lacking)} chunks lack something")
        self._driver.begin()
        station.on_served = self._on_served
        station.serve()
        world.start_ranks(self.run)
        world.after(TICK_SECONDS, self, self._tick)

    def _say(self, text: str) -> None:
        self.world.note(self.name, text)

    def _find_committed(self, regions: Sequence[Region]) -> tuple[Run, ...]:
        chunks = {chunk for region in regions for chunk in region.chunks()}
        return tuple(runs_of(chunk for chunk in chunks if self.ledger.lacking(chunk) is None))

    def _on_served(self) -> None:
        """Take in what has come."""
        driver = self._driver
        try:
            while driver is not None and driver.n_waiting and not driver.is_over():
                driver.step(0.0)
        except TartanError as error:
            self._leave(error)
            return
        self._leave_when_over()

    def _tick(self) -> None:
        if self._driver is None:
            return
        world = self.world
        world.after(TICK_SECONDS, self, self._tick)
        now = self.clock()
        if self._shared is not None and now - self._renewed_at > min(5.0, world.rank_timeout_seconds / 3):
            self._renewed_at = now
            self._shared.renew()
        try:
            self._driver.step(0.0)
        except TartanError as error:
            self._leave(error)
            return
        if self._driver.error is None:
            world.checks.on_driver_goes_on(self)
        self._on_served()

    def _leave_when_over(self) -> None:
        if self._driver is not None and self._driver.is_over():
            self._leave(self._driver.error)

    def _leave(self, error: BaseException | None) -> None:
        """End the run for all, then wait until its ranks have let go of the folder."""
        if self._driver is None:
            return
        world, self._driver = self.world, None
        world.note(self.name, f"the run ends: {error or 'complete'}")
        assert self.run is not None
        with contextlib.suppress(TartanError):
            self.run.remove(DRIVER, "the run has ended")
        if self._shared is not None:
            self._shared.__exit__(None, None, None)
        self._deadline = world.now + world.rank_timeout_seconds + ENDING_SECONDS
        self._collect(error)

    def _collect(self, error: BaseException | None) -> None:
        """Hold the folder alone when the last rank has ended, and look whether the run is complete."""
        world = self.world
        assert self.tenure is not None
        try:
            with FolderLock(ROOT, flock=world.flock):
                self.tenure.require()
                world.checks.on_driver_goes_on(self)
                writer = self._make_writer()
                self.take_over(writer)
                writer.sync()
                complete = all(self.ledger.lacking(chunk) is None for chunk in world.chunks)
        except TartanError as problem:
            if problem.code == "locked" and world.now < self._deadline:
                world.after(POLL_SECONDS, self, partial(self._collect, error))
                return
            world.note(self.name, f"gives up: {problem}")
            world.end_driver(self)
            return
        if complete and error is None:
            world.finish(self)
        else:
            world.end_driver(self)

    def on_heard(self) -> None:
        """Do nothing: a driver waits for no beat."""

    def kill(self, **_: Any) -> None:
        """End it as ``kill -9`` does."""
        self.alive = False
        self._driver = None
        self.world.disk.close_all(self)
