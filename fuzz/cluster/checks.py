"""What must hold in a simulated run after every step; what does not is a ``Violation`` with the reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzz.cluster.ledger import Chunk, SimulatedLedger, key_of
from tartan.core.pairs.ledger import DONE
from tartan.core.ranks.succession import Act

if TYPE_CHECKING:
    from fuzz.cluster.disk import Node
    from fuzz.cluster.driver import DriverProcess
    from fuzz.cluster.network import Membership
    from fuzz.cluster.rank import RankProcess
    from fuzz.cluster.world import World


class Violation(AssertionError):  # noqa: N818
    """Something does not hold that must."""


class Checks:
    """The checkers of one world.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[Chunk, np.ndarray] = {}
        self._published: dict[RankProcess, dict[str, None]] = {}
        self._last: dict[RankProcess, str] = {}
        self._looked: dict[Chunk, tuple[Node | None, Node | None]] = {}
        self._ledger = SimulatedLedger(world.folder_of(world.observer))

    # -- chunks ----------------------------------------------------------------------------------------------------

    def look_at(self, chunk: Chunk) -> np.ndarray | None:
        """Read a chunk: a number that was committed stays what it was. Return the codes."""
        known = self._known.get(chunk)
        files = self._world.disk.files
        nodes = files.get(key_of("scores", chunk)), files.get(key_of("status", chunk))
        if known is not None and self._looked.get(chunk) == nodes:
            return self._ledger.read(chunk)[1]  # a file that has its name is not written any more
        self._looked[chunk] = nodes
        codes = self._ledger.read(chunk)[1]
        if codes is None:
            if known is not None:
                raise Violation(f"chunk {chunk} was committed and is lost")
            return None
        scores = self._ledger.scores(chunk)
        if scores is None:
            raise Violation(f"chunk {chunk} is in the ledger, and its scores are damaged")
        done = codes == DONE
        if (scores[done] == 0).any():
            raise Violation(f"chunk {chunk} is in the ledger, and has no scores: {scores}")
        if known is not None:
            before = known != 0
            if (before & ~done).any():
                raise Violation(f"chunk {chunk} was committed, and pairs of it are lost: {known}, now {codes}")
            if (scores[before] != known[before]).any():
                raise Violation(f"chunk {chunk} was committed twice: first {known}, now {scores}")
        self._known[chunk] = np.where(done, scores, 0)
        return codes

    def look_at_all(self) -> None:
        """Read every chunk."""
        for chunk in self._world.chunks:
            self.look_at(chunk)

    def on_commit(self, rank: RankProcess, chunk: Chunk) -> None:
        """A rank takes a chunk for committed."""
        if self.look_at(chunk) is None:
            raise Violation(f"{rank.name} takes chunk {chunk} for committed, and it is not")

    def on_flush(self, rank: RankProcess) -> None:
        """A rank takes all that it has committed for safe."""
        for key in self._published.pop(rank, ()):
            if key in self._world.disk.files and not self._world.disk.is_safe(key):
                raise Violation(f"{rank.name} has forced {key} to the disk, and a power cut would lose it")

    def on_power_cut(self) -> None:
        """The power was cut: what was not forced may be lost or torn; that is counted from now on."""
        self._published.clear()
        self._known, self._looked = {}, {}

    def on_forgotten(self, chunk: Chunk) -> None:
        """A chunk whose scores are damaged was taken out of the ledger: right after a power cut alone."""
        if chunk in self._known:
            raise Violation(f"chunk {chunk} was whole, and was taken out of the ledger")

    def on_taken_over(self, driver: DriverProcess) -> None:
        """A driver has taken over the folder."""
        self.look_at_all()

    # -- leases and epochs -----------------------------------------------------------------------------------------

    def on_step_allowed(self, rank: RankProcess, step: str, chunk: Chunk) -> None:
        """A rank takes a step: none towards a claim where it was given up while it was frozen."""
        if step.startswith("publish"):
            scores, status = key_of("scores", chunk), key_of("status", chunk)
            key = status if self._last.get(rank) == scores else scores  # a commit publishes both in this order
            self._last[rank] = key
            self._published.setdefault(rank, {})[key] = None
        expelled = rank.run.expelled_at.get(rank.name)
        if step == "claim" and expelled is not None and rank.thawed_at >= expelled:
            raise Violation(f"{rank.name} was given up while it was frozen, and claims a chunk after it woke up")

    def on_judged(self, driver: DriverProcess, looked: Any) -> None:
        """A process has judged who writes to the run."""
        if looked.judged.act is Act.FREE:
            for one in looked.seen:
                if one.fate in ("runs", "stopped"):
                    raise Violation(f"{driver.name} takes the folder for free, and {one.name} writes to it")

    def on_driver_goes_on(self, driver: DriverProcess) -> None:
        """A driver goes on, or writes to the folder: no other may have taken it over since it has it."""
        taken = self._world.taken_over_at
        if taken is not None and driver.held_since < taken < self._world.now:
            raise Violation(
                f"{driver.name} has the folder since {driver.held_since:.3f} s and goes on, "
                f"and it was taken over at {taken:.3f} s"
            )

    def on_handled(self, run: Membership, sender: str, do: str) -> None:
        """The driver handles a message: of no rank that it has given up."""
        if sender in run.roll.view.gone:
            raise Violation(f"the driver takes {do!r} of {sender}, which it has given up: {run.roll.view.gone[sender]}")

    def on_left_waiting(self, rank: RankProcess, asker: int, line: int) -> None:
        """A rank lets another wait for a line: it waits for none itself."""
        assert rank.homes is not None
        others = [other for other in self._world.ranks_of(rank.run) if other.number is not None]
        for other in others:
            if other.number is not None and rank.homes.expects(line, other.number):
                raise Violation(f"{rank.name} lets rank {asker} wait for line {line}, and waits for {other.name}")

    # -- grants, slots, progress -----------------------------------------------------------------------------------

    def on_released(self, rank: RankProcess) -> None:
        """A kept slot was released: as many are pinned as sends and copies go on."""
        assert rank.homes is not None
        if rank.homes.n_pinned != rank.pins:
            raise Violation(f"{rank.name}: {rank.homes.n_pinned} pins on kept slots, {rank.pins} reads of them go on")
        if rank.homes.n_taken > rank.homes.n_kept:
            raise Violation(f"{rank.name} keeps {rank.homes.n_taken} spans in {rank.homes.n_kept} slots")

    def on_granted(self, rank: RankProcess) -> None:
        """A rank has new work: no chunk of it is held by another member."""
        run = rank.run
        owners: Counter[Chunk] = Counter()
        for other in self._world.ranks_of(run):
            if other.alive and other.name in run.roll.view.members:
                owners.update(other.uncommitted())
        twice = sorted(chunk for chunk, count in owners.items() if count > 1)
        if twice:
            raise Violation(f"chunks {twice[:5]} are granted to two ranks at a time, {rank.name} among them")

    def on_finished(self) -> None:
        """A driver says that the run is complete: all is there, and stays there when the power is cut."""
        world = self._world
        for chunk in world.chunks:
            codes = self.look_at(chunk)
            if codes is None or self._ledger.lacking(chunk) is not None:
                raise Violation(f"the run is said to be complete, and chunk {chunk} is not")
            for key in (key_of("scores", chunk), key_of("status", chunk)):
                if not world.disk.is_safe(key):
                    raise Violation(f"the run is said to be complete, and a power cut would lose {key}")
