"""One rank of a run on several, in a process of its own: what it is told, what it opens, and how it ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tartan.base.format import printable
from tartan.base.lock import WRITERS_NAME, list_living_writers
from tartan.base.machine import package_version, tartan_version
from tartan.base.progress import Progress
from tartan.base.trace import ClockPair, Tracer
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.depot import BorrowedFiles, DepotLink
from tartan.cluster.driver import fetch_job
from tartan.cluster.engine import ClusterEngine
from tartan.cluster.fetching import BulkFetcher, UnreachedRanks
from tartan.cluster.rank import RankEnd, RankLink
from tartan.cluster.storage import JOIN_SECONDS, ServerOptions, SizeSample, StorageLink
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.region import Region
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.verdict import NodeReport
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.layout import divide_slots, spans_kept_of_unequal_items
from tartan.core.ranks.messages import Hello, Member
from tartan.errors import TartanError
from tartan.run.request import Request
from tartan.run.session import RunSession
from tartan.run.storage_rank import serve_storage
from tartan.runtime.committer import ChunkSink
from tartan.runtime.exchange import Exchange, KeptSlots
from tartan.runtime.execution import Left, NodeInputs, NodeStats
from tartan.runtime.remaining import Remaining
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.remote import RemoteFolder
from tartan.workers.shipping import load

ENTRY = f"{__name__}:main"
STORAGE_RESOURCE = "storage"
"""The resource with which a worker is started that lies next to the data: ``--resources storage=1``."""


@dataclass(frozen=True)
class RankJob:
    """What a rank must know to begin; travels as the application to worker processes does.

    Attributes
    ----------
    path : str
        The run folder.
    group : str
        Under which the ranks of this execution write to it.
    asked : Request
    n_sharing : int
        Ranks on this machine.
    n_expected : int
        Ranks of the run.
    depot : str
        Where the driver serves ranks that do not see the run folder, or the input.
    depth : int or None
        How many stages run beside the data; see ``StorageLink``.
    storage_seconds : float
        How long the first load waits for a rank beside the data that is expected.
    sizes : SizeSample
        What some items take, for storage ranks.
    lease_seconds : float
        Silence after which a rank is lost.
    """

    path: str
    group: str
    asked: Request
    n_sharing: int
    n_expected: int = 1
    depot: str = ""
    depth: int | None = None
    storage_seconds: float = JOIN_SECONDS
    sizes: SizeSample = field(default_factory=SizeSample)
    lease_seconds: float = 15.0


def main(engine: ClusterEngine, *, locate: Callable[[str], Path] = Path, throttle: Throttle | None = None) -> None:
    """Be a rank until the run is complete, or this rank cannot continue; the driver learns why.

    Parameters
    ----------
    engine : ClusterEngine
    locate : callable
        Returns where this rank looks for the run folder, given where the driver has it.
    throttle : Throttle, optional
        Of the link of a rank next to the data, for measurements.
    """
    link = RankLink(engine)
    link.start()
    try:
        job: RankJob = load(fetch_job(engine))
        if engine.resources.get(STORAGE_RESOURCE, 0) > 0:
            _serve_storage(job, link, locate(job.path), throttle)
        else:
            _serve(job, link, locate(job.path))
        link.end(RankEnd())
    except TartanError as error:
        link.end(RankEnd(str(error), error.code))
    except Exception as error:
        link.end(RankEnd(f"{type(error).__name__}: {error}\n{traceback.format_exc()}", "internal"))


def _serve(job: RankJob, link: RankLink, place: Path) -> None:
    about = {"what": f"rank {link.name}", "lease_seconds": job.lease_seconds}
    with contextlib.ExitStack() as stack:
        depot = DepotLink(job.depot, link.name, link.credentials, link.host, _say)
        stack.callback(depot.close)
        folder = _open(job, place, depot, stack)
        asked = job.asked
        if asked.source.kind == "files":
            asked = replace(asked, source=BorrowedFiles(asked.source, depot.item))
        session = stack.enter_context(RankSession(replace(job, asked=asked), link))
        stack.enter_context(folder.join(job.group, about, step=link.before_step))
        session.compute(folder)


def _serve_storage(job: RankJob, link: RankLink, place: Path, throttle: Throttle | None) -> None:
    """Be a rank next to the data."""
    with contextlib.ExitStack() as stack:
        depot = DepotLink(job.depot, link.name, link.credentials, link.host, _say)
        stack.callback(depot.close)
        folder = _open(job, place, depot, stack)
        how = ServerOptions(0, 1, _say, job.sizes, throttle)
        about = {"what": f"storage rank {link.name}", "lease_seconds": job.lease_seconds}
        stack.enter_context(folder.join(job.group, about))
        serve_storage(job.asked, folder, link, identity_of(folder), n_sharing=job.n_sharing, how=how)


def _open(job: RankJob, place: Path, depot: DepotLink, stack: contextlib.ExitStack) -> RunFolder:
    """Open the run folder; where this rank does not see that of the driver, an excerpt of it."""
    if _is_shared(place, job.group):
        return RunFolder.open(place, writable=True)
    own = stack.enter_context(tempfile.TemporaryDirectory(prefix="tartan-rank-"))
    return RemoteFolder.unpack(Path(own), depot.folder(), depot)


def _is_shared(place: Path, group: str) -> bool:
    """Whether a folder is the one that the driver has joined under this group, and can be written here."""
    try:
        writers = list_living_writers(place)
    except OSError:
        return False
    return any(one.get("group") == group for one in writers) and os.access(place / WRITERS_NAME, os.W_OK)


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)


def identity_of(folder: RunFolder) -> tuple[tuple[str, str], ...]:
    """Return what must be the same on all ranks of a run."""
    manifest = hashlib.sha256((folder.path / MANIFEST_NAME).read_bytes()).hexdigest()
    return (
        ("Tartan", tartan_version()),
        ("numpy", str(package_version("numpy"))),
        ("the manifest", manifest),
    )


class RankSession(RunSession):
    """A session whose work comes from the coordinator.

    Parameters
    ----------
    job : RankJob
    link : RankLink

    """

    compacts = False
    of_several = True

    def __init__(self, job: RankJob, link: RankLink) -> None:
        super().__init__(job.asked)
        self._job = job
        self._link = link
        self._kept: KeptSlots | None = None
        self._strips_stream = False
        self._clocks: list[ClockPair] = []

    @property
    def _n_sharing(self) -> int:
        return self._job.n_sharing

    @property
    def _rank_name(self) -> str:
        return self._link.name

    def _open_again(self, device_slots: int) -> None:
        """Hand back what was granted, and offer less room on devices."""
        self._link.leave("its device is out of memory")
        super()._open_again(device_slots)

    @property
    def _borrows(self) -> bool:
        """Whether the driver had to read items for this rank."""
        source = self.asked.source
        return isinstance(source, BorrowedFiles) and source.n_borrowed > 0

    def _plan(self, grid: Grid, remaining: Left) -> NodePlan:
        """Divide the memory of this rank: for its tiles, and for what it keeps for others."""
        plan = super()._plan(grid, remaining)
        self._kept, self._strips_stream = None, plan.slots >= grid.n_items
        all_slots = plan.slots * self._job.n_expected
        form = self._held.form
        if form is None:
            n_kept = spans_kept_of_unequal_items(grid, plan.slots, all_slots)
            self._kept = KeptSlots(grid.n_spans, grid.n_spans, n_kept, 1)
            return plan.keeping(n_kept)
        divided = divide_slots(grid, plan.slots, all_slots)
        if divided.layout is None:
            return plan
        self._strips_stream = divided.strips_stream
        room = divided.layout.room
        n_kept = 0 if self._borrows else divided.n_kept  # others had better ask a rank that reads for itself
        self._kept = KeptSlots(room.rows, room.total, n_kept, grid.longest_span)
        slots = room.total + n_kept * grid.longest_span
        return replace(plan, layout=divided.layout, host_bytes=slots * form.nbytes)

    def _open_exchange(self) -> tuple[Exchange | None, str]:
        """Begin to be asked for items, where this rank has some to give; return also under which address."""
        if self._kept is None:
            return None, ""
        fetcher = BulkFetcher(self._link.credentials, self._link.host, _say)
        self._opened.callback(fetcher.close)
        return Exchange(fetcher, self._kept), fetcher.address

    def _open_storage(self) -> StorageLink | None:
        """Begin to ask ranks next to the data for files, where there are some."""
        if self.asked.source.kind != "files":
            return None
        storage = StorageLink(
            self._link.credentials, self._job.depth, self.rank.executor.n_workers, self._job.storage_seconds
        )
        self._opened.callback(storage.close)
        return storage

    def _write_trace(self, folder: RunFolder, tracer: Tracer) -> None:
        """Send what this rank recorded to the driver, which merges the traces of all."""
        self._link.send_trace(tracer.pack([*self._clocks, self._link.clock()]))

    def _count(self, statistics: Callable[[], NodeStats]) -> None:
        self._link.report_from(statistics)

    def _judge(self, folder: RunFolder, remaining: Left, progress: Progress) -> Callable[[NodeReport], None]:
        return self._link.report

    def _inputs(
        self,
        folder: RunFolder,
        remaining: Left,
        plan: NodePlan,
        progress: Progress,
        tracer: Tracer,
        sink: Callable[[], ChunkSink],
    ) -> NodeInputs:
        """Join the run: its coordinator hands out the work, and other ranks have items, too."""
        exchange, storage = self._join(folder, remaining, plan)
        inputs = super()._inputs(folder, remaining, plan, progress, tracer, sink)
        link = self._link
        return replace(inputs, segments=link, exchange=exchange, remote=storage, others=link)

    def _join(self, folder: RunFolder, remaining: Left, plan: NodePlan) -> tuple[Exchange | None, StorageLink | None]:
        """Say hello to the coordinator, which learns what is committed; return who else has items."""
        assert isinstance(remaining, Remaining)
        allotment = Allotment(
            plan.grid,
            remaining.count_wanted(),
            plan.layout.panel_items,
            remaining.needs,
            strips_stream=self._strips_stream,
        )
        if self._options.trace:
            self._clocks = [self._link.clock()]
        exchange, address = self._open_exchange()
        storage = self._open_storage()
        unreached = UnreachedRanks(self._link.name, {} if exchange is None else exchange.unreached)
        self._link.tell_notes(unreached.take_lines)
        viewers = [one.view for one in (exchange, storage, unreached) if one is not None]

        def view(members: Sequence[Member]) -> None:
            for viewer in viewers:
                viewer(members)

        hello = Hello(
            identity_of(folder),
            devices=tuple(device.name for device in self.rank.devices),
            band_items=plan.layout.panel_items,
            cores=self.rank.executor.n_workers,
            host=socket.gethostname(),
            pid=os.getpid(),
            kept_items=self._kept.n_spans * self._kept.span_slots if self._kept is not None else 0,
            address=address,
        )

        def look_again(regions: Sequence[Region]) -> None:
            for region in regions:
                for chunk in region.chunks():
                    remaining.look_again(chunk)

        remaining.tell = lambda chunk: self._link.on_committed([chunk])
        number = self._link.join(hello, allotment, view, look_again)
        if exchange is not None:
            exchange.on_welcomed(number)
        return exchange, storage
