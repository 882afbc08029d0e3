"""A request and what this rank has to fulfil it: the folder locked, the node run to the end, statistics written.

A rank that runs out of device memory is opened again with half the slots.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from tartan.base.files import disk_errors
from tartan.base.progress import Progress
from tartan.base.signals import cancel_on_signals
from tartan.base.trace import NO_TRACER, Tracer
from tartan.core.grid import Grid
from tartan.core.ledger import DONE, NOT_COMPUTED
from tartan.core.rank_layout import divide_slots
from tartan.core.shares import Chunk
from tartan.core.verdict import FailureRules, Look, NodeReport
from tartan.errors import DeviceMemoryError, StoreError, TartanError
from tartan.options import Size
from tartan.run.disk_options import cache_key, digest_base, open_disk_cache
from tartan.run.healing import decide, failed_items
from tartan.run.identity import Noted
from tartan.run.meaning import declared
from tartan.run.oversight import Oversight
from tartan.run.plan import MemoryPlan, host_slots, plan_grid, plan_run, prediction_facts, sizing_of
from tartan.run.probing import ItemFacts, KnownForm, learn, try_some
from tartan.run.rank import Rank, open_rank
from tartan.run.reopen import refuse_other
from tartan.run.request import Request
from tartan.run.result import Run
from tartan.run.share import CREATION_SECONDS, JOIN_SECONDS, Share, Waiting, created, joined, say_if_uneven
from tartan.run.statistics import Statistics, collect_statistics
from tartan.runtime.committer import Committer, TripleCommitter
from tartan.runtime.exchange import Exchange
from tartan.runtime.execution import Execution, NodeStats, Wanted
from tartan.runtime.loader import RemoteStorage
from tartan.runtime.node import Node
from tartan.runtime.remaining import Remaining
from tartan.runtime.segments import SegmentSource
from tartan.runtime.sink import ChunkSink
from tartan.sources.checked import checksums_in_memory, noting
from tartan.store.dense import plain_bytes, refuse_too_large
from tartan.store.folder import RunFolder
from tartan.store.layout import refuse_occupied
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.removal import is_removable, remove_run, require_removable
from tartan.store.tables import mend_result, merge_parts, result_is_whole

DEVICE_MEMORY_TRIES = 4


@dataclass(frozen=True)
class Lead:
    """What stands above the node of an execution.

    Attributes
    ----------
    remaining : Wanted
    report : callable
        Adds up what the node reports.
    segments : SegmentSource or None
        Where its work comes from; None: the whole order.
    exchange : Exchange or None
        Where its items come from beside storage and disk.
    remote : RemoteStorage or None
        Ranks next to the data.
    counting : callable
        Receives what returns the statistics of the node so far, once there is one.
    """

    remaining: Wanted
    report: Callable[[NodeReport], None]
    segments: SegmentSource | None = None
    exchange: Exchange | None = None
    remote: RemoteStorage | None = None
    counting: Callable[[Callable[[], NodeStats]], None] = lambda statistics: None


class Ranks(Protocol):
    """Processes that compute a run together.

    Attributes
    ----------
    n_local : int
        How many of them share this machine; 0 where that is not known.
    n_expected : int
        How many there are when the run begins.
    """

    @property
    def n_local(self) -> int: ...

    @property
    def n_expected(self) -> int: ...

    def execute(self, session: RunSession, folder: RunFolder) -> None:
        """Compute what a folder lacks."""


class Left(Wanted, Protocol):
    """What is left of a run.

    Attributes
    ----------
    share : collection of chunks, or None
        Those to which the execution is restricted.
    """

    @property
    def share(self) -> Collection[Chunk] | None: ...

    def wanted_pairs(self) -> np.ndarray:
        """Count the pairs to compute in every chunk."""


class RunSession:
    """A request and what this rank has to fulfil it; a context manager.

    Parameters
    ----------
    asked : Request
    ranks : Ranks, optional
        Who computes what a folder lacks; default: this process.
    overwrite : bool
        Whether a new run takes the place of one that is there.
    """

    unit = "pairs"
    arity = 2
    compacts = True
    """Whether devices may keep items in a compact form: not where other ranks take them."""

    def __init__(self, asked: Request, ranks: Ranks | None = None, *, overwrite: bool = False) -> None:
        self.asked = asked
        self._overwrite = overwrite
        self._ranks = ranks
        self._options = asked.options
        self._opened = contextlib.ExitStack()
        self._rank: Rank | None = None
        self._facts: ItemFacts | None = None
        self._known: KnownForm | None = None

    @staticmethod
    def opened_folder(path: Path) -> RunFolder:
        """Open a run folder for writing."""
        return RunFolder.open(path, writable=True)

    @staticmethod
    def mend(folder: RunFolder, *, thorough: bool = True) -> None:
        """Take what is damaged out of a complete run; unless ``thorough``, only where its merged result is damaged."""
        if thorough or not result_is_whole(folder):
            mend_result(folder)

    @staticmethod
    def result(path: Path) -> Run:
        """Open a run as its user sees it."""
        return Run(path)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self) -> None:
        # Where others compute, a worker is only needed to learn what items are.
        options = self._options if self._ranks is None else replace(self._options, workers=1)
        self._rank = self._opened.enter_context(open_rank(self.asked.app, options, self._n_sharing))

    def release(self) -> None:
        """Close devices and workers: all is planned, and others compute."""
        self._opened.close()
        self._rank = None

    @property
    def _n_sharing(self) -> int:
        """Ranks that share this machine."""
        return 1 if self._ranks is None else max(1, self._ranks.n_local)

    @property
    def rank(self) -> Rank:
        """Open devices and workers."""
        assert self._rank is not None
        return self._rank

    @property
    def facts(self) -> ItemFacts:
        """What a few items show; learnt when first asked."""
        if self._facts is None:
            asked = self.asked
            n_pairs = self._n_probed
            self._facts = learn(asked.app, asked.source, self.rank.executor, self._options, n_pairs, self._known)
        return self._facts

    @property
    def _held(self) -> ItemFacts:
        """What a few items show, in the form in which this rank keeps items."""
        alone = self.compacts and self._ranks is None
        return self.facts.compacted(self.asked.app, self.rank.devices) if alone else self.facts

    @property
    def _n_probed(self) -> int | None:
        """Pairs of the run; None where it compares none."""
        return self.asked.pairs().n_pairs

    def expect(self, folder: RunFolder) -> None:
        """Take the form of items from a run that exists, instead of learning it."""
        self._known = KnownForm.of(folder.manifest)

    def folder(self, path: Path) -> RunFolder:
        """Create the run folder, or open the one that holds the run that is asked for.

        Raises
        ------
        ConfigError, StoreError
            If the folder holds anything else, or cannot be written.
        """
        with disk_errors(path):
            exists = (path / MANIFEST_NAME).exists()
        if exists and self._overwrite:
            require_removable(path)
            return self._create(path, replaces=True)
        if not exists:
            try:
                return self._create(path)
            except StoreError as error:
                if error.code != "exists":  # another process was faster; its run may be this one
                    raise
        return self._opened_again(path, alone=True)

    def _opened_again(self, path: Path, *, alone: bool = False) -> RunFolder:
        """Open the run; start afresh where it is another one without a computed pair and nobody else computes it."""
        folder = self.opened_folder(path)
        try:
            refuse_other(folder, self.asked, starts=True)
        except TartanError as error:
            if not alone or error.code != "other-run" or folder.counts()[DONE] or not is_removable(path):
                raise
            return self._create(path, replaces=True)
        return folder

    def _create(self, path: Path, *, held: bool = False, replaces: bool = False) -> RunFolder:
        """Create the run folder, after what can be known beforehand was checked."""
        asked, manifest = self.asked, self.asked.manifest()
        if not replaces:
            _refuse_unwritable(path, manifest.outputs)
        table = asked.items()
        form = self.facts.form
        if form is not None:
            manifest.application["item"] = {"dtype": form.dtype.str, "shape": list(form.shape)}
        manifest.application["meaning"] = declared(asked.app, manifest)
        manifest.grid = self._cut().parameters()
        refuse_too_large(path, plain_bytes(manifest, manifest.n_items))
        known = checksums_in_memory(asked.source)
        if replaces:
            remove_run(path)
        return self._created(path, manifest, table, candidates=asked.candidates, known=known, held=held)

    _created: Callable[..., RunFolder] = staticmethod(RunFolder.create)

    def _cut(self) -> Grid:
        """Cut what a new run compares."""
        return plan_grid(
            self.asked.pairs(),
            self._held,
            self._options,
            self.rank.capacity,
            self.asked.app,
            reduced=self.asked.reduce is not None,
            n_ranks=1 if self._ranks is None else self._ranks.n_expected,
        )

    def _grid(self, folder: RunFolder) -> Grid:
        return folder_grid(folder)

    def strips_stream(self, folder: RunFolder, n_ranks: int) -> bool:
        """Whether rows may stream past columns on ranks like this one."""
        self.expect(folder)
        grid = folder_grid(folder)
        slots = host_slots(grid.n_items, self.facts, self._options, self.rank.capacity)
        if self.facts.form is None:
            return slots >= grid.n_items
        return divide_slots(grid, slots, slots * n_ranks).strips_stream

    def heal(self, folder: RunFolder) -> None:
        """Try again what failed in a run folder, and take back what is to be computed for it.

        Raises
        ------
        TartanError
            As ``tartan.run.healing.decide``; nothing is changed then.
        """
        with folder.lock():
            refuse_other(folder, self.asked, mended=failed_items(folder))
            folder.heal(decide(folder, self.asked, self.rank.executor))

    def execute(self, folder: RunFolder) -> None:
        """Compute what is missing in a run folder.

        Raises
        ------
        TartanError
            As ``Node.run``; the folder can then be resumed.
        """
        if self._ranks is not None:
            self._ranks.execute(self, folder)
            return
        with folder.lock():
            collect_statistics(folder)
            self.compute(folder)
            if folder.manifest.reduce is not None:
                self._merge(folder)

    def _merge(self, folder: RunFolder) -> None:
        merge_parts(folder)

    def execute_share(self, path: Path, share: Share) -> bool:
        """Compute one part of a run, beside other processes that compute other parts; the first one creates the folder.

        Returns
        -------
        bool
            Whether the whole run was finished already.

        Raises
        ------
        ConfigError, StoreError
            If the folder holds another run, or is divided into another number of parts, or was not created in time, or
            is held by a process that is no part of the run.
        TartanError
            As ``Node.run``.
        """
        quiet = self._options.quiet
        with Waiting(share, CREATION_SECONDS, quiet=quiet) as waiting:
            folder = created(path, lambda: self._create(path, held=True), waiting)
        if folder is not None:
            say_if_uneven(folder, share.n_parts, quiet=quiet)
        folder = folder or self._opened_again(path)
        with Waiting(share, JOIN_SECONDS, quiet=quiet) as waiting, joined(folder, share, waiting):
            chunks = share.chunks(folder)
            if not folder.counts(chunks)[NOT_COMPUTED]:
                return folder.finished
            self.compute(folder, chunks)
        return False

    def compute(self, folder: RunFolder, share: Sequence[Chunk] | None = None) -> None:
        """Compute what a folder lacks, or what it lacks of some chunks; the caller may write to it."""
        self.expect(folder)
        grid = self._grid(folder)
        with self._progress(folder, share) as progress:
            for remaining_tries in reversed(range(DEVICE_MEMORY_TRIES)):
                remaining = self._remaining(folder, grid, share)
                plan = self._plan(grid, remaining)
                try:
                    self._run(folder, remaining, plan, progress)
                    return
                except DeviceMemoryError:
                    least = grid.longest_strip + grid.longest_span
                    if not remaining_tries or plan.device_slots <= least:
                        raise
                    self._open_again(max(least, plan.device_slots // 2))

    def _remaining(self, folder: RunFolder, grid: Grid, share: Sequence[Chunk] | None) -> Left:
        return Remaining(folder, grid, share)

    def _open_again(self, device_slots: int) -> None:
        """Open the rank with fewer slots on devices: what is committed stays, the rest is planned anew."""
        self._opened.close()
        self._options = replace(self._options, device_cache=Size(device_slots, in_items=True))
        self._open()

    def _plan(self, grid: Grid, remaining: Left) -> MemoryPlan:
        return plan_run(grid, remaining.workload, self._held, self._options, self.rank.capacity, self.asked.app)

    def _sizing(self, folder: RunFolder, plan: MemoryPlan) -> dict[str, Any]:
        reduced, rank = folder.manifest.reduce is not None, self.rank
        sizing = sizing_of(self._held, self._options, rank.capacity, self.asked.app, reduced=reduced)
        return {**sizing.as_dict(), **prediction_facts(self._held, plan, self.asked.app, rank.executor.n_workers)}

    def _progress(self, folder: RunFolder, share: Sequence[Chunk] | None) -> Progress:
        counts = folder.counts(share)
        total = int(counts.sum())
        done = total - int(counts[NOT_COMPUTED])
        return Progress(total, done, quiet=self._options.quiet, unit=self.unit)

    def _run(self, folder: RunFolder, remaining: Left, plan: MemoryPlan, progress: Progress) -> None:
        if folder.manifest.reduce is not None:
            folder.forget_result()
        tracer = Tracer() if self._options.trace else NO_TRACER
        noted = Noted(folder, self.asked.source)
        statistics = Statistics(folder, plan, self.rank.executor.n_workers, self._sizing(folder, plan))
        begun = time.perf_counter()

        def stats() -> NodeStats:
            return node.stats(time.perf_counter() - begun)

        def write_statistics() -> None:
            statistics.write(stats())

        lead = self._lead(folder, remaining, plan, progress)
        sink = self._sink(folder, tracer, write_statistics, noted.write)
        execution = self._execution(folder, plan, sink, lead, tracer)
        node = self._node(folder, replace(execution, source=noting(self.asked.source, noted)))
        lead.counting(stats)
        write_statistics()  # an execution counts, however it ends
        try:
            with cancel_on_signals(node.cancel), statistics.noting_why():
                node.run()
        finally:
            with contextlib.suppress(TartanError):
                noted.write()
            write_statistics()
            if self._options.trace:
                with contextlib.suppress(OSError, TartanError):
                    self._write_trace(folder, tracer)

    def _sink(
        self, folder: RunFolder, tracer: Tracer, flushed: Callable[[], None], prepare: Callable[[], None]
    ) -> ChunkSink | TripleCommitter:
        return Committer(folder, tracer, flushed, prepare)

    def _node(self, folder: RunFolder, execution: Execution) -> Node:
        return Node(execution)

    def _write_trace(self, folder: RunFolder, tracer: Tracer) -> None:
        folder.write_trace(tracer.lines())

    def _lead(self, folder: RunFolder, remaining: Left, plan: MemoryPlan, progress: Progress) -> Lead:
        """Return what stands above the node: here the whole order, and the verdict on what failed."""
        rules = FailureRules(self._options.on_error, self._options.max_failures, self.unit)
        return Lead(remaining, Oversight(folder, rules, progress, self.look, remaining.share).report)

    def look(self) -> Look:
        """Try pairs from all over the run, on a worker of their own."""
        asked = self.asked
        with open_rank(asked.app, replace(self._options, workers=1, device=("cpu",))) as rank:
            uniform = self.facts.form is not None
            return try_some(asked.app, asked.source, rank.executor, self._options, arity=self.arity, uniform=uniform)

    def _execution(
        self, folder: RunFolder, plan: MemoryPlan, sink: ChunkSink | TripleCommitter, lead: Lead, tracer: Tracer
    ) -> Execution:
        options, rank = self._options, self.rank
        return Execution(
            source=self.asked.source,
            app=self.asked.app,
            outputs=folder.manifest.outputs,
            both_ways=folder.pairs.both_ways,
            grid=self._grid(folder),
            remaining=lead.remaining,
            layout=plan.layout,
            item_plan=plan.item_plan,
            substitute=self._held.substitute,
            executor=rank.executor,
            devices=rank.devices,
            device_rooms=plan.device_rooms,
            host_bytes=plan.host_bytes,
            span_bytes=plan.span_bytes,
            order=options.order,
            sink=sink,
            report=lead.report,
            segments=lead.segments,
            exchange=lead.exchange,
            remote=lead.remote,
            timeout_seconds=options.tile_timeout_seconds,
            tracer=tracer,
            disk_cache=open_disk_cache(folder, options),
            digest_base=digest_base(folder, rank.devices),
            cache_key=cache_key(folder, options),
            item_seconds=self.facts.item_seconds,
        )


def folder_grid(folder: RunFolder) -> Grid:
    """Cut the pairs of a run as its manifest says."""
    manifest = folder.manifest
    borders = (*folder.pairs.workload.borders, *manifest.generations[:-1])
    cuts = {name: int(manifest.grid[name]) for name in ("chunk", "panel", "strip", "span")}
    return Grid(
        manifest.n_items,
        **cuts,
        borders=tuple(sorted(set(borders))),
        diagonal=folder.pairs.workload.has_diagonal,
    )


def _refuse_unwritable(path: Path, outputs: Iterable[str]) -> None:
    """Refuse a folder that cannot be used, before anything is computed for it."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    refuse_occupied(path, outputs)
