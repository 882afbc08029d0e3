"""A world of simulated processes: one seed says what happens, when, and what goes wrong.

``simulate(seed)`` makes one run on four ranks or more, of 210 chunks or more, with three faults or more, and lets it
come to its end. It raises ``Violation`` with the last things that happened where a checker finds that something does
not hold. Time is that of the events alone; nothing waits, no thread runs, and no random number but those of the seed
decides anything.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from fuzz.cluster.checks import Checks, Violation
from fuzz.cluster.disk import Disk, SimulatedFolder
from fuzz.cluster.driver import DriverProcess
from fuzz.cluster.host import ROOT, Killed, Process, inhabit
from fuzz.cluster.ledger import SIDE, Chunk
from fuzz.cluster.network import Membership, Network, Weather
from fuzz.cluster.rank import RankProcess
from tartan.core.pairs.grid import Grid
from tartan.errors import TartanError
from tartan.store.claims import Steps

N_LINES = 20
MOST_SECONDS = 300.0
"""After the last fault; a run without faults takes a tenth of it."""
TRACE_LINES = 40
LEAST_FAULTS, MOST_FAULTS = 3, 8
LONGEST_FAULT_SECONDS = 70.0


@dataclass
class Outcome:
    """How a simulated run went.

    Attributes
    ----------
    events : int
    seconds : float
        Of virtual time.
    faults : list of str
    n_ranks, n_drivers, n_chunks : int
    digest : int
        Of all events in their order: equal for equal seeds.
    """

    events: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    n_ranks: int = 0
    n_drivers: int = 0
    n_chunks: int = 0
    digest: int = 0


class World:
    """All processes, their disk and their network.

    Parameters
    ----------
    rng : random.Random
        Decides everything.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.pids = itertools.count(1000)
        self.processes: list[Process] = []
        self.runs: list[Membership] = []
        self.by_number: dict[tuple[str, int], RankProcess] = {}
        self.outcome = Outcome()
        self.steps: list[Steps] = []
        self._versions = itertools.count(1)
        self._events: list[tuple[float, int, Process | None, Callable[[], object]]] = []
        self._serial = itertools.count()
        self._trace: deque[tuple[float, str, str]] = deque(maxlen=TRACE_LINES)
        self._server_skew = 0.0
        self.taken_over_at: float | None = None
        self._boots: dict[str, int] = {}
        self._finished = False
        self._healthy_since: float | None = None
        self.n_ranks = self.rng.randrange(4, 7)
        self.n_lines = N_LINES
        self.grid = Grid(N_LINES * SIDE, SIDE, 0, SIDE, SIDE)
        self.chunks: list[Chunk] = [(i, j) for i in range(N_LINES) for j in range(i, N_LINES)]
        self.rank_timeout_seconds = self.rng.choice((4.0, 6.0, 15.0))
        self.tile_seconds = self.rng.choice((0.5, 1.0))
        self.step_seconds = self.rng.choice((0.002, 0.05, 0.3))
        self.has_locks = self.rng.random() < 0.7
        self.disk = Disk(self.rng, self.server_now)
        self.network = Network(self)
        self.observer = Process(self, "observer", "nowhere")
        self.current: Process = self.observer
        self._folders: dict[Process, SimulatedFolder] = {}
        for name in ("", "tmp", "scores", "status"):
            if name:
                self.disk.make_folder(name)
        node = self.disk.make_file("manifest.json")
        self.disk.write(node, b"{}")
        self.disk.force_all()
        self.checks = Checks(self)

    # -- what processes ask ----------------------------------------------------------------------------------------

    def server_now(self) -> float:
        """Return the time by the clock of the file server."""
        return 1e9 + self.now + self._server_skew

    def boot_of(self, host: str) -> str:
        """Return what names the time since a machine was started."""
        return f"{host}-{self._boots.get(host, 0)}"

    def folder_of(self, process: Process) -> SimulatedFolder:
        """Return the run folder as a process reaches it."""
        if process not in self._folders:
            self._folders[process] = SimulatedFolder(self.disk, process, ROOT)
        return self._folders[process]

    def current_folder(self) -> SimulatedFolder:
        """Return the run folder as the process that runs now reaches it."""
        return self.folder_of(self.current)

    def flock(self, descriptor: int, operation: int) -> None:
        """Lock a file, where the file system can."""
        if not self.has_locks:
            raise OSError(95, "not supported")
        self.disk.flock(descriptor, operation)

    def force(self, descriptor: int) -> None:
        """Force a file to the disk."""
        self.disk.force_descriptor(descriptor)

    def force_all(self, descriptor: int) -> None:
        """Force all to the disk."""
        self.disk.force_all()

    def new_version(self) -> int:
        """Return a number that was not used."""
        return next(self._versions)

    def note(self, who: str, what: str) -> None:
        """Remember what happened, for the trace of a failure."""
        self._trace.append((self.now, who, what))

    def ranks_of(self, run: Membership) -> list[RankProcess]:
        """Return the ranks of an execution, in the order in which they came."""
        return [one for one in self.processes if isinstance(one, RankProcess) and one.run is run]

    # -- time ------------------------------------------------------------------------------------------------------

    def after(self, seconds: float, process: Process | None, act: Callable[[], object]) -> None:
        """Let something happen in a process later; it does not where the process is dead then."""
        heapq.heappush(self._events, (self.now + seconds, next(self._serial), process, act))

    @contextlib.contextmanager
    def running(self, process: Process) -> Iterator[None]:
        """Let a process run for a while within the event of another."""
        before, self.current = self.current, process
        try:
            yield
        except Killed as error:
            if error.process is not process:
                raise
            self._end_killed(error)
        finally:
            self.current = before

    def _end_killed(self, error: Killed) -> None:
        assert error.process is not None
        if error.process.alive:
            self.note(error.process.name, "is killed in the middle of a call")
            self.kill(error.process)

    def run(self) -> Outcome:
        """Let everything happen; raises Violation."""
        with inhabit(self):
            self.start_driver(0.0)
            self._plan_faults()
            try:
                self._loop()
            except Violation as error:
                raise Violation(f"{error}\n{self.describe()}") from None
            except (TartanError, AssertionError, LookupError, TypeError, ValueError, AttributeError, OSError) as error:
                error.add_note(self.describe())
                raise
            finally:
                self._end_steps()
        return self.outcome

    def _end_steps(self) -> None:
        """End commits that were not carried through as their processes ended: without another step."""
        for one in self.processes:
            one.alive = False
        for steps in self.steps:
            for _ in range(2):  # the second time before it discards what is staged
                with contextlib.suppress(Killed, StopIteration, TartanError):
                    steps.throw(Killed())

    def _loop(self) -> None:
        outcome, events, pop = self.outcome, self._events, heapq.heappop
        digest = 0
        while events and not self._finished:
            when, serial, process, act = pop(events)
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen_until > when:
                    heapq.heappush(events, (process.frozen_until, serial, process, act))
                    continue
                self.current = process
            self.now = when
            outcome.events += 1
            digest = (digest * 1000003 ^ hash(when) ^ (0 if process is None else process.pid)) & 0xFFFFFFFFFFFF
            try:
                act()
            except Killed as error:
                self._end_killed(error)
            self.current = self.observer
            if self._healthy_since is not None and when - self._healthy_since > MOST_SECONDS:
                raise Violation(f"no end {MOST_SECONDS:g} s after the last fault: all wait, or work is lost")
        if not self._finished:
            raise Violation("nothing happens any more, and the run is not complete")
        outcome.seconds, outcome.digest = self.now, digest
        outcome.n_chunks = len(self.chunks)

    def describe(self) -> str:
        """Return the faults and the last things that happened, a line each."""
        lines = [f"  {when:9.3f} s  {who:10} {what[:300]}" for when, who, what in self._trace]
        return "\n".join(["faults: " + "; ".join(self.outcome.faults), *lines])

    # -- processes -------------------------------------------------------------------------------------------------

    def start_driver(self, seconds: float) -> None:
        """Let another process go on with the run after some seconds."""
        self.outcome.n_drivers += 1
        driver = DriverProcess(self, f"driver-{self.outcome.n_drivers}", f"host-{self.rng.randrange(2)}")
        self.after(seconds, driver, driver.follow)

    def start_ranks(self, run: Membership) -> None:
        """Start the ranks of an execution, some a little later."""
        for _ in range(self.n_ranks):
            self._start_rank(run, self.rng.random())

    def _start_rank(self, run: Membership, seconds: float) -> None:
        self.outcome.n_ranks += 1
        name = f"rank-{self.outcome.n_ranks}"
        rank = RankProcess(self, run, name, f"host-{self.rng.randrange(3)}")
        self.after(seconds, rank, rank.begin)

    def say_gone(self, rank: RankProcess, reason: str) -> None:
        """Let the relay of a rank that has ended say so until the driver knows it; then another rank may come."""
        rank.alive = False
        self.disk.close_all(rank)
        self.after(0.1, None, partial(self._say_gone, rank, reason))

    def _say_gone(self, rank: RankProcess, reason: str) -> None:
        run = rank.run
        driver = run.driver
        if not driver.alive or self._over(run):
            return
        if driver.frozen or not self._reaches_driver(rank):
            self.after(0.5, None, partial(self._say_gone, rank, reason))
            return
        with self.running(driver):
            run.remove(rank.name, reason)
        self._start_rank(run, 1.0 + self.rng.random() * 2.0)

    def _reaches_driver(self, rank: RankProcess) -> bool:
        cut = self.network.weather.cut
        return not cut or (rank.name in cut) == (rank.run.driver.name in cut)

    def _over(self, run: Membership) -> bool:
        return not run.roll.view.members

    def kill(self, process: Process) -> None:
        """End a process as ``kill -9`` does."""
        if isinstance(process, RankProcess):
            told = self.rng.random() < 0.6
            process.kill(told=told)
            if not told:
                self.after(2.0 + self.rng.random() * 5.0, None, partial(self._start_again, process.run))
        elif isinstance(process, DriverProcess):
            process.kill()
            self.start_driver(0.3 + self.rng.random() * 5.0)

    def _start_again(self, run: Membership) -> None:
        if run.driver.alive and not self._over(run):
            self._start_rank(run, 0.0)

    def end_driver(self, driver: DriverProcess) -> None:
        """A driver has ended, and the run is not complete: somebody resumes it."""
        driver.alive = False
        self.disk.close_all(driver)
        self.start_driver(1.0 + self.rng.random() * 3.0)

    def finish(self, driver: DriverProcess) -> None:
        """A driver says that the run is complete."""
        self.note(driver.name, "says that the run is complete")
        self.checks.on_finished()
        self._finished = True

    # -- faults ----------------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        rng = self.rng
        kinds: list[Callable[[], str]] = [
            self._freeze_rank, self._freeze_in_commit, self._freeze_in_commit, self._kill_rank,
            self._kill_in_call, self._part, self._storm,
            self._jump, self._kill_driver, self._freeze_driver, self._cut_power, self._fill_disk, self._jump_server,
        ]  # fmt: skip
        work = len(self.chunks) * self.tile_seconds / self.n_ranks
        for number in range(rng.randrange(LEAST_FAULTS, MOST_FAULTS + 1)):
            share = 0.6 if number < LEAST_FAULTS else 1.5  # the first come before the run can be complete
            self.after(1.0 + rng.random() * share * work, None, partial(self._fault, rng.choice(kinds)))
        self.after(1.5 * work + LONGEST_FAULT_SECONDS, None, self._heal)

    def _fault(self, kind: Callable[[], str]) -> None:
        text = kind()
        self.outcome.faults.append(f"{self.now:.2f} s: {text}")
        self.note("world", text)

    def _heal(self) -> None:
        """End what lasts: from now on the run must come to its end."""
        self.network.weather = Weather()
        self.disk.is_full = False
        for one in self.processes:
            one.calls_left = None
            if isinstance(one, RankProcess):
                one.freezes_at = None
        self._healthy_since = self.now

    def _pick(self, kind: type[Process]) -> Process | None:
        found = [one for one in self.processes if isinstance(one, kind) and one.alive]
        return self.rng.choice(found) if found else None

    def _freeze(self, process: Process | None, seconds: float) -> str:
        if process is None:
            return "nobody to freeze"
        process.frozen_until = process.thawed_at = self.now + seconds
        return f"{process.name} is frozen for {seconds:.1f} s"

    def _freeze_rank(self) -> str:
        return self._freeze(
            self._pick(RankProcess), self.rng.choice((1.0, 5.0, 20.0, 45.0)) * (0.5 + self.rng.random())
        )

    def _freeze_driver(self) -> str:
        """Stop a driver; somebody may see that, and want to go on with the run."""
        if self.rng.random() < 0.7:
            self.start_driver(1.0 + self.rng.random() * 5.0)
        return self._freeze(self._pick(DriverProcess), self.rng.choice((2.0, 20.0, 50.0)) * (0.5 + self.rng.random()))

    def _freeze_in_commit(self) -> str:
        rank = self._pick(RankProcess)
        if not isinstance(rank, RankProcess):
            return "nobody to freeze"
        rank.freezes_at = self.rng.choice(("claim", "claim", "publish", "plan", "discard"))
        return f"{rank.name} is to be frozen before it takes the step {rank.freezes_at}"

    def on_step_announced(self, rank: RankProcess, step: str) -> None:
        """Stop a rank between two steps of a commit, where that is its fate."""
        if rank.freezes_at is not None and step.startswith(rank.freezes_at):
            rank.freezes_at = None
            self.note("world", self._freeze(rank, self.rng.choice((2.0, 20.0, 40.0)) * (0.5 + self.rng.random())))

    def _kill_rank(self) -> str:
        return self._kill(self._pick(RankProcess))

    def _kill_driver(self) -> str:
        return self._kill(self._pick(DriverProcess))

    def _kill(self, process: Process | None) -> str:
        if process is None:
            return "nobody to kill"
        self.kill(process)
        return f"{process.name} is killed"

    def _kill_in_call(self) -> str:
        process = self._pick(self.rng.choice((RankProcess, RankProcess, DriverProcess)))
        if process is None:
            return "nobody to kill"
        process.calls_left = self.rng.randrange(1, 60)
        return f"{process.name} is killed after {process.calls_left} calls to the file system"

    def _part(self) -> str:
        names = [one.name for one in self.processes if one.alive and one is not self.observer]
        cut = {name for name in names if self.rng.random() < 0.4}
        seconds = self.rng.choice((3.0, 10.0, 30.0)) * (0.5 + self.rng.random())
        self.network.weather.cut = cut
        self.after(seconds, None, partial(self._join_again, cut))
        return f"{', '.join(sorted(cut)) or 'nobody'} cut off for {seconds:.1f} s"

    def _join_again(self, cut: set[str]) -> None:
        if self.network.weather.cut is cut:
            self.network.weather.cut = set()

    def _storm(self) -> str:
        weather, rng = self.network.weather, self.rng
        weather.loss, weather.twin, weather.late = rng.random() * 0.4, rng.random() * 0.4, rng.random() * 0.4
        seconds = 5.0 + rng.random() * 25.0
        self.after(seconds, None, self._calm)
        return f"messages are lost ({weather.loss:.0%}), doubled ({weather.twin:.0%}) and late ({weather.late:.0%})"

    def _calm(self) -> None:
        weather = self.network.weather
        weather.loss = weather.twin = weather.late = 0.0

    def _jump(self) -> str:
        process = self._pick(Process)
        if process is None:
            return "no clock"
        process.skew += (seconds := self.rng.choice((1.0, 10.0, 100.0)) * self.rng.random())
        return f"the clock of {process.name} goes on by {seconds:.1f} s"

    def _jump_server(self) -> str:
        self._server_skew += (seconds := self.rng.uniform(-100.0, 100.0))
        return f"the clock of the file server goes by {seconds:.1f} s"

    def _fill_disk(self) -> str:
        self.disk.is_full = True
        seconds = 1.0 + self.rng.random() * 15.0
        self.after(seconds, None, partial(setattr, self.disk, "is_full", False))
        return f"the disk is full for {seconds:.1f} s"

    def _cut_power(self) -> str:
        for one in self.processes:
            if one is not self.observer and one.alive:
                one.alive = False
                if isinstance(one, DriverProcess):
                    one.kill()
        for host in range(3):
            name = f"host-{host}"
            self._boots[name] = self._boots.get(name, 0) + 1
        self.disk.cut_power()
        self.checks.on_power_cut()
        self.start_driver(1.0 + self.rng.random() * 5.0)
        return "the power is cut"


def simulate(seed: int) -> Outcome:
    """Simulate the run of one seed; raises Violation where something does not hold."""
    return simulate_with(random.Random(seed))


def simulate_with(rng: random.Random) -> Outcome:
    """Simulate a run; raises as ``simulate``."""
    collects = gc.isenabled()
    gc.disable()  # a world is full of circles, and is dropped as a whole
    try:
        return World(rng).run()
    finally:
        if collects:
            gc.enable()
