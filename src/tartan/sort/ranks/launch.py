"""Start a sort on several ranks, and put its result in place."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan._native import sort_overhead
from tartan.base.confined import open_unfinished
from tartan.base.files import disk_errors
from tartan.base.logs import logger_of
from tartan.base.signals import cancel_on_signals
from tartan.cluster import wire
from tartan.cluster.driver import PATIENCE_SECONDS
from tartan.cluster.engine import ClusterEngine
from tartan.cluster.launch import ClusterTarget, open_engine
from tartan.errors import RunCancelledError
from tartan.sort.dtypes import describe_dtype
from tartan.sort.engine import Order, SortOptions
from tartan.sort.formats import Destination, SourceFile, refuse_changes
from tartan.sort.plan import EngineLayout
from tartan.sort.progress import SortProgress
from tartan.sort.ranks.driver import SortDriver, SortTally, SortWaits, SortWatch
from tartan.sort.ranks.keeping import sweep
from tartan.sort.ranks.memory import RecordShape, plan_ranks
from tartan.sort.ranks.messages import SortBegin, SortHello, SortJobText
from tartan.sort.ranks.rank import ENTRY
from tartan.sort.result import EDGES, Edge, SortResult
from tartan.sort.space import check_space, disks_of
from tartan.sort.work import WorkFolders

if TYPE_CHECKING:
    from distributed import Client

    from tartan.sort.recipes import RowsRecipe

_log = logger_of(__name__)
# By contract: as RETURN_SECONDS of run/cluster_run.
RETURN_SECONDS = 10.0
"""Within which a rank of this machine is started anew, where its Dask worker was killed with it."""
# By judgement: with a load average of 38 on two cores four ranks took more than a minute to start. No benchmark.
LOCAL_PATIENCE_SECONDS = 300.0
"""How long ranks are waited for that were started on this machine."""
# By format: 256 bits, which nothing else has behind the end of a file.
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class SortWays:
    """Where the ranks of a sort are.

    Attributes
    ----------
    target : ClusterTarget or distributed.Client
    insecure : bool
        Accept connections beyond this machine that anyone may read and forge.
    rank_timeout_seconds : float
        A rank that is silent for longer is lost.
    folders : tuple of str
        Temporary folders of each rank; none: its own temporary folder.
    """

    target: ClusterTarget | Client
    insecure: bool = False
    rank_timeout_seconds: float = 15.0
    folders: tuple[str, ...] = ()

    @property
    def n_local(self) -> int:
        """Ranks that are started on this machine; 0 where they run already."""
        return self.target.n_local if isinstance(self.target, ClusterTarget) else 0

    @property
    def return_seconds(self) -> float:
        """How long another rank is waited for when all have gone."""
        return RETURN_SECONDS if self.n_local else PATIENCE_SECONDS

    @property
    def patience_seconds(self) -> float:
        """How long ranks are waited for."""
        return LOCAL_PATIENCE_SECONDS if self.n_local else PATIENCE_SECONDS

    @property
    def n_expected(self) -> int:
        """Ranks that are waited for."""
        if isinstance(self.target, ClusterTarget):
            return self.target.n_local or 1
        return max(1, len(self.target.scheduler_info(n_workers=-1)["workers"]))

    def engine(self, run: str) -> contextlib.AbstractContextManager[ClusterEngine]:
        """Return the driver's engine, for as long as its context lasts."""
        patience = self.rank_timeout_seconds
        return open_engine(self.target, run, entry=ENTRY, insecure=self.insecure, patience_seconds=patience)


@dataclass
class RankedSort:
    """A sort of records, or of rows as records, on several ranks; call ``run`` once.

    Attributes
    ----------
    sources : sequence of SourceFile
    destination : Destination
    order : Order
    options : SortOptions
        Of each rank; ``folders`` is that of the driver.
    ways : SortWays
    rows : RowsRecipe, optional
        How rows of the sources become records, as many as the destination has; default: they hold records.
    job : mapping
        What tells this sort from others besides sources and key.
    """

    sources: Sequence[SourceFile]
    destination: Destination
    order: Order
    options: SortOptions
    ways: SortWays
    rows: RowsRecipe | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return self.n_records * self.order.dtype.itemsize

    @property
    def n_records(self) -> int:
        return self.destination.n_records

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        start = time.perf_counter()
        with SortProgress(quiet=quiet) as progress:
            progress.expect(self.n_bytes, levels=1)

            def note(text: str) -> None:
                self._notes.append(text)
                _log.info("%s", text)
                progress.say(f"tartan: {text}")

            # The lock of the job, as of a sort on this machine; run files lie in the folders of the ranks.
            work = WorkFolders([self.destination.path.parent], self.destination.path, self._description(), note)
            with work:
                check_space((), 0, disks_of([self.destination.path.parent])[0], self.destination.n_bytes)
                token = secrets.token_bytes(_TOKEN_BYTES)
                self._begin_part(token)
                try:
                    job = self._job(work.paths[0].name, token, fresh=not resume)
                    tally = self._drive(job, progress, work, note)
                    if self.ways.n_local:  # a rank that was frozen has left its folders
                        sweep([Path(folder) for folder in self.ways.folders], job.name)
                except BaseException:
                    self.destination.remove_part()
                    raise
        return self._result(tally, time.perf_counter() - start)

    def _description(self) -> dict[str, Any]:
        return {
            "sources": [source.fingerprint() for source in self.sources],
            "record_bytes": self.order.dtype.itemsize,
            "dtype": describe_dtype(self.order.dtype),
            "key": self.order.key,
            **self.job,
        }

    def _begin_part(self, token: bytes) -> None:
        """Make the file that becomes the destination, with a mark by which ranks know it."""
        self.destination.begin()
        with disk_errors(self.destination.part), open(open_unfinished(self.destination.part, os.O_RDWR), "r+b") as file:
            os.pwrite(file.fileno(), token, self.destination.n_bytes)

    def _finish_part(self) -> None:
        refuse_changes(self.sources)
        with disk_errors(self.destination.part), open(open_unfinished(self.destination.part, os.O_RDWR), "r+b") as file:
            file.truncate(self.destination.n_bytes)
        self.destination.finish()

    def _job(self, name: str, token: bytes, *, fresh: bool) -> SortJobText:
        options, destination = self.options, self.destination
        sources = tuple(
            (str(source.path.resolve()), source.offset, source.n_bytes, source.size, source.mtime_ns)
            for source in self.sources
        )
        # What crosses links is packed wherever that shrinks it: lone numbers, at gigabytes a second.
        pack = "always" if options.pack == "auto" and self.order.is_word else options.pack
        return SortJobText(
            sources,
            str(destination.part.resolve()),
            token,
            destination.n_bytes,
            destination.offset,
            name=f"{name}-rank",
            folders=self.ways.folders,
            dtype_bytes=self.order.dtype.itemsize,
            key=tuple(self.order.key),
            job=json.dumps(self._description(), sort_keys=True),
            memory_bytes=options.memory_bytes,
            threads=options.threads,
            n_sharing=max(1, self.ways.n_local),
            pack=pack,
            direct=options.direct,
            fresh=fresh,
            rows=b"" if self.rows is None else wire.encode(self.rows),
        )

    def _plan(self, hellos: Sequence[SortHello]) -> SortBegin:
        order = self.order

        def overhead(layout: EngineLayout, threads: int) -> int:
            return sort_overhead(record_bytes=order.dtype.itemsize, key=order.key, threads=threads, **vars(layout))

        return plan_ranks(RecordShape(self.n_records, order.dtype.itemsize, order.is_word), hellos, overhead)

    def _drive(self, job: SortJobText, progress: SortProgress, work: WorkFolders, note: Any) -> SortTally:
        def show(phase: str, n_bytes: int) -> None:
            progress.update({"phase": phase, "bytes_done": n_bytes, "bytes_total": self.n_bytes})

        with self.ways.engine(f"sort-{secrets.token_hex(4)}") as engine:
            driver = SortDriver(
                engine,
                wire.encode(job),
                self.order.dtype.itemsize,
                self.ways.n_expected,
                SortWatch(self._plan, self._finish_part, note, show, work.renew),
                waits=SortWaits(
                    self.ways.rank_timeout_seconds, self.ways.patience_seconds, return_seconds=self.ways.return_seconds
                ),
            )

            def cancel(number: int) -> None:
                message = "the sort was stopped; run the same command again to resume from the run files that are whole"
                driver.cancel(RunCancelledError(message, context={"signal": number}, retryable=True))

            with cancel_on_signals(cancel):
                return driver.run()

    def _result(self, tally: SortTally, wall_seconds: float) -> SortResult:
        ends = list(tally.ends.values())

        def total(name: str) -> float:
            return sum(end.counts.get(name, 0.0) for end in ends)

        stored = sum(tally.stored_bytes.values())
        runs, packed = int(total("runs")), total("packed_runs") > 0
        written = self.n_bytes
        moved = {"source_read": self.n_bytes, "run_write": stored, "run_read": stored, "output_write": written}
        edges = {
            name: Edge(source, target, moved[name], total(f"{name} busy_seconds"), total(f"{name} wait_seconds"))
            for name, (source, target) in EDGES.items()
        }
        largest = max(tally.shares.values(), default=0)
        mean = self.n_records / max(1, len(tally.shares))
        return SortResult(
            path=self.destination.path,
            n_records=self.n_records,
            n_bytes=self.n_bytes,
            record_bytes=self.order.dtype.itemsize,
            run_files=runs,
            run_files_adopted=tally.n_found,
            levels=1,
            ranges=len(tally.shares),
            packed=packed,
            pack_reason="packed runs cross links"
            if packed
            else "records of this kind are not packed, or packing is off",
            bits_per_value=8 * stored / max(1, self.n_records) if packed and not tally.n_found else None,
            expected_bits_per_value=None,
            edges=edges,
            busy_seconds={name: edge.busy_seconds for name, edge in edges.items()},
            phase_seconds=dict(tally.phase_seconds),
            wall_seconds=wall_seconds,
            direct={"read": None, "runs": None, "write": False},
            io=None,
            memory_bytes=max(hello.memory_bytes for hello in tally.hellos.values()),
            peak_rss_bytes=max((end.peak_bytes for end in ends), default=0),
            notes=tuple(self._notes),
            ranks={
                "n_ranks": len(tally.hellos),
                "lost": list(tally.lost),
                "link_bytes": tally.link_bytes,
                "plain_link_bytes": tally.plain_bytes,
                "shares": dict(tally.shares),
                "processor_seconds": total("processor_seconds"),
                "largest_share": largest / mean if mean else 1.0,
            },
        )
