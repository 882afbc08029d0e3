"""A request and what this rank has to fulfil it: the folder locked, the node run to the end, statistics written.

A rank that runs out of device memory is opened again with half the slots.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from tartan.application import output_dtypes, wraps_function
from tartan.base.confined import make_private
from tartan.base.files import disk_errors
from tartan.base.format import format_duration, format_memory
from tartan.base.freed_memory import set_freed_memory
from tartan.base.keys import user_key
from tartan.base.logs import logger_of
from tartan.base.machine import memory
from tartan.base.progress import Progress
from tartan.base.signals import cancel_on_signals
from tartan.base.trace import NO_TRACER, Tracer
from tartan.core.memory import MemoryNeed
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.core.pairs.mirroring import MOST_MIRRORED, MirrorLimits, allow_mirrored, first_difference
from tartan.core.pairs.saves import SavePolicy
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.shares import Chunk
from tartan.core.pairs.triples import TripleGrid
from tartan.core.pairs.verdict import FailureRules, Look, NodeReport
from tartan.core.ranks.layout import divide_slots
from tartan.core.ranks.run_sizing import RunSizing
from tartan.devices.protocol import Device
from tartan.errors import ConfigError, DeviceMemoryError, RunCancelledError, StoreError, TartanError
from tartan.options import RunOptions, Size, parse_bytes
from tartan.run.healing import decide, list_failed_items, take_chunks_back
from tartan.run.identity import Noted
from tartan.run.keeping import KeptWatch, make_watch
from tartan.run.listed import ListRun, refuse_for_list, takes_list
from tartan.run.meaning import declare_meaning
from tartan.run.memory import need_of_listed, need_of_run
from tartan.run.oversight import Oversight
from tartan.run.plan import (
    describe_sizing,
    plan_items,
    plan_run,
    prediction_facts,
)
from tartan.run.probing import ItemFacts, ask, learn, load_one, spread, triple_seconds, try_some
from tartan.run.rank import Rank, open_rank
from tartan.run.reopen import refuse_other
from tartan.run.request import Request
from tartan.run.share import CREATION_SECONDS, JOIN_SECONDS, Share, Waiting, create_or_wait, join_as_part, say_if_uneven
from tartan.run.statistics import Statistics, collect_statistics
from tartan.run.versions import open_to_write
from tartan.runtime.committer import ChunkSink, Committer
from tartan.runtime.execution import Left, NodeInputs, NodeStats
from tartan.runtime.items import ItemFailure
from tartan.runtime.node import Node
from tartan.runtime.remaining import Remaining, RemainingTriples
from tartan.runtime.tasks import BothWays, Probe, score_both_ways
from tartan.sources.checked import checksums_in_memory, note_checksums
from tartan.sources.items import without_removed
from tartan.store.cubes import WantedTriples
from tartan.store.dense import free_bytes, plain_bytes, refuse_too_large
from tartan.store.disk_cache import DiskCache
from tartan.store.folder import RunFolder
from tartan.store.layout import refuse_unwritable
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.manifest import Manifest
from tartan.store.removal import is_removable, remove_run, require_removable
from tartan.store.tables import merge_parts
from tartan.workers.executor import Completed
from tartan.workers.shipping import names_builtin

_log = logger_of(__name__)

# By judgement: each try halves the cache, so the last has an eighth; a device without that has no use. No benchmark.
DEVICE_MEMORY_TRIES = 4
# Measured with 250 sets of 8 MB and a cache of 400 MB: 0.73 GB in all in place of 1.07. Smaller items leave holes that
# others of their kind fill.
_LARGE_ITEM_BYTES = 2 << 20


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

    def refuse_unfit(self, asked: Request) -> None:
        """Refuse a request that these processes cannot fulfil; raises ConfigError."""

    def execute(self, session: RunSession, folder: RunFolder) -> None:
        """Compute what a folder lacks."""


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

    compacts = True
    """Whether devices may keep items in a compact form: not where other ranks take them."""
    free_bytes: Callable[[Path], int] = staticmethod(free_bytes)
    of_several = False  # whether other ranks wait for the calls of this one

    def __init__(self, asked: Request, ranks: Ranks | None = None, *, overwrite: bool = False) -> None:
        self.asked = asked
        self._overwrite = overwrite
        self._ranks = ranks
        self._options = asked.options
        self._opened = contextlib.ExitStack()
        self._rank: Rank | None = None
        self._facts: ItemFacts | None = None
        self._known: Manifest | None = None
        self.need: MemoryNeed | None = None

    def __enter__(self) -> Self:
        if self._ranks is not None:
            self._ranks.refuse_unfit(self.asked)
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
    def _n_ranks(self) -> int:
        return 1 if self._ranks is None else self._ranks.n_expected

    @property
    def _unit(self) -> str:
        return "pairs" if self.asked.arity == 2 else "triples"

    @property
    def rank(self) -> Rank:
        """Open devices and workers."""
        assert self._rank is not None
        return self._rank

    @property
    def facts(self) -> ItemFacts:
        """What a few items show; learnt when first asked."""
        if self._facts is None:
            ways = self._options, self._n_probed, self._known
            self._facts = learn(self.asked.app, self.asked.source, self.rank.executor, *ways)
        return self._facts

    @property
    def _held(self) -> ItemFacts:
        """What a few items show, in the form in which this rank keeps items."""
        alone = self.compacts and self._ranks is None and self.asked.arity == 2
        return self.facts.make_compact(self.asked.app, self.rank.devices) if alone else self.facts

    @property
    def _n_probed(self) -> int | None:
        """Pairs of the run; None where it compares none."""
        return self.asked.pairs().n_pairs if self.asked.arity == 2 else None

    def expect(self, folder: RunFolder) -> None:
        """Take the form of items from a run that exists, instead of learning it."""
        self._known = folder.manifest

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
        return self._reopen(path, alone=True)

    def _reopen(self, path: Path, *, alone: bool = False) -> RunFolder:
        """Open the run; start afresh where it is another one without a computed pair and nobody else computes it."""
        folder = open_to_write(path, self.asked.arity)
        try:
            refuse_other(folder, self.asked, starts=True)
        except TartanError as error:
            if not alone or error.code != "other-run" or folder.counts()[DONE] or not is_removable(path):
                raise
            return self._create(path, replaces=True)
        if folder.live is not None:
            self.asked = replace(self.asked, source=without_removed(self.asked.source, folder.live))
        return folder

    def _create(self, path: Path, *, held: bool = False, replaces: bool = False) -> RunFolder:
        """Create the run folder, after what can be known beforehand was checked."""
        asked, manifest = self.asked, self.asked.manifest()
        if not replaces:
            refuse_unwritable(path, manifest.outputs)
        table = asked.items()
        refuse_asymmetric(asked, self.rank, self.facts, self._n_ranks)
        if (form := self.facts.form) is not None:
            manifest.application["item"] = {"dtype": form.dtype.str, "shape": list(form.shape)}
        manifest.application["meaning"] = declare_meaning(asked.app, manifest)
        manifest.grid = self._cut().parameters()
        if takes_list(asked, self.facts, alone=self._is_alone and not held):
            manifest.workload = {**manifest.workload, "scores": "list"}
        refuse_too_large(path, plain_bytes(manifest, manifest.n_items))
        known = checksums_in_memory(asked.source)
        listed = None if asked.candidates is None else asked.candidates.pairs
        if replaces:
            remove_run(path)
        return RunFolder.create(path, manifest, table, candidates=listed, known=known, held=held)

    def _size(self, n_items: int, facts: ItemFacts, *, reduced: bool = False) -> RunSizing:
        return describe_sizing(n_items, facts, self._options, self.rank, self.asked.app, reduced=reduced)

    def _cut(self) -> Grid:
        """Cut what a new run compares; a reduced run keeps less than the matrix, several ranks need finer chunks."""
        asked, n = self.asked, self.asked.source.n_items
        if asked.arity == 3:
            sizing = self._size(n, self.facts)
            seconds = triple_seconds(asked.app, n, self.facts, self.rank.executor, self._options)
            return sizing.triple_grid(n, seconds)
        return self._size(n, self._held, reduced=asked.reduce is not None).grid(asked.pairs(), self._n_ranks)

    @property
    def _is_alone(self) -> bool:
        """Whether this process computes all, in its own memory."""
        return self._ranks is None and all(device.shares_host_memory for device in self.rank.devices)

    def strips_stream(self, folder: RunFolder, n_ranks: int) -> bool:
        """Whether rows may stream past columns on ranks like this one."""
        self.expect(folder)
        grid = folder_grid(folder)
        slots = self._size(grid.n_items, self.facts).host_slots(grid.n_items)
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
        _log.info("%s: what failed is tried again", folder.path)
        with folder.lock():
            refuse_other(folder, self.asked, mended=list_failed_items(folder))
            if folder.cubes is None:
                folder.heal(decide(folder, self.asked, self.rank.executor))
            else:
                take_chunks_back(folder, self.asked)

    def execute(self, folder: RunFolder) -> None:
        """Compute what is missing in a run folder.

        Raises
        ------
        TartanError
            As ``Node.run``; the folder can then be resumed.
        """
        if self._ranks is not None:
            if folder.pair_list is not None:
                refuse_for_list("--on", folder.path)
            self._ranks.execute(self, folder)
            return
        with folder.lock():
            collect_statistics(folder)
            self.compute(folder)
            if folder.manifest.reduce is not None:
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
            folder = create_or_wait(path, lambda: self._create(path, held=True), waiting)
        if folder is not None:
            say_if_uneven(folder, share.n_parts, quiet=quiet)
        folder = folder or self._reopen(path)
        if folder.pair_list is not None:
            refuse_for_list("--part", path)
        with Waiting(share, JOIN_SECONDS, quiet=quiet) as waiting, join_as_part(folder, share, waiting):
            chunks = share.chunks(folder)
            if not folder.counts(chunks)[NOT_COMPUTED]:
                return folder.finished
            self.compute(folder, chunks)
        return False

    def compute(self, folder: RunFolder, share: Sequence[Chunk] | None = None) -> None:
        """Compute what a folder lacks, or what it lacks of some chunks; the caller may write to it."""
        self.expect(folder)
        log_state(folder, share)
        grid = folder_grid(folder)
        if folder.pair_list is not None:
            self._compute_list(folder, grid)
            return
        with self._progress(folder, share) as progress:
            for remaining_tries in reversed(range(DEVICE_MEMORY_TRIES)):
                remaining = self._remaining(folder, grid, share)
                plan = self._plan(grid, remaining)
                self._say_memory(folder, plan, progress)
                try:
                    self._run(folder, remaining, plan, progress)
                    return
                except DeviceMemoryError:
                    least = grid.longest_strip + grid.longest_span
                    if not remaining_tries or plan.device_slots <= least:
                        raise
                    _log.warning("the device is out of memory; what is left begins again with fewer slots")
                    self._open_again(max(least, plan.device_slots // 2))

    def _say_memory(self, folder: RunFolder, plan: NodePlan, progress: Progress) -> None:
        """Say what the execution needs, once: with fewer slots on a device it is no more."""
        if self.need is not None:
            return
        if (listed := folder.pair_list) is not None:
            self.need = need_of_listed(folder.manifest, self._held, plan.slots, len(listed.pairs))
        else:
            ways = self._held, plan, self.rank.executor, folder.manifest
            self.need = need_of_run(self.asked.app, self.asked.source, *ways)
        progress.say(f"tartan: {format_memory(self.need.total_bytes, self.need.parts, memory().available_bytes)}")

    def _compute_list(self, folder: RunFolder, grid: Grid) -> None:
        """Compute what a folder lacks of a list of pairs."""
        if folder.manifest.reduce is not None:
            folder.forget_result()
        with self._progress(folder, None) as progress:
            workload = folder.pairs.workload
            plan = plan_run(grid, workload, self._held, self._options, self.rank, self.asked.app)
            self._say_memory(folder, plan, progress)
            statistics = Statistics(folder, plan, self.rank.executor.n_workers, self._describe_sizing(folder, plan))
            rules = FailureRules(self._options.on_error, self._options.max_failures, self._unit)
            report = Oversight(folder, rules, progress, self.look).report
            run = ListRun(self.asked, folder, self.facts, plan.slots, self.rank.executor.n_workers, report)
            self._count(run.stats)
            statistics.write(run.stats())  # an execution counts, however it ends
            try:
                with statistics.note_why():
                    run.run()
            finally:
                statistics.write(run.stats())

    @property
    def _rank_name(self) -> str:
        """Name of the rank that this is one of several; empty where it is alone."""
        return ""

    def _remaining(self, folder: RunFolder, grid: Grid, share: Sequence[Chunk] | None) -> Left:
        return RemainingTriples(folder, grid) if isinstance(grid, TripleGrid) else Remaining(folder, grid, share)

    def _open_again(self, device_slots: int) -> None:
        """Open the rank with fewer slots on devices: what is committed stays, the rest is planned anew."""
        self._opened.close()
        self._options = replace(self._options, device_cache=Size(device_slots, in_items=True))
        self._open()

    def _plan(self, grid: Grid, remaining: Left) -> NodePlan:
        self._return_evicted_items(grid)
        return plan_run(grid, remaining.workload, self._held, self._options, self.rank, self.asked.app)

    def _return_evicted_items(self, grid: Grid) -> None:
        """Let large items go back to the system when they leave the cache, or memory grows beyond it."""
        largest, n = int(self._held.largest_bytes), grid.n_items
        if self._held.form is not None or largest < _LARGE_ITEM_BYTES:
            return
        if self._size(n, self._held).host_slots(n) < n:
            set_freed_memory(largest // 2)

    def _describe_sizing(self, folder: RunFolder, plan: NodePlan) -> dict[str, Any]:
        sizing = self._size(plan.grid.n_items, self._held, reduced=folder.manifest.reduce is not None)
        return {**sizing.as_dict(), **prediction_facts(self._held, plan, self.asked.app, self.rank.executor.n_workers)}

    def _progress(self, folder: RunFolder, share: Sequence[Chunk] | None) -> Progress:
        counts = folder.counts(share)
        total, left = int(counts.sum()), int(counts[NOT_COMPUTED])
        options, n_items = self._options, folder.manifest.n_items
        return Progress(
            total, total - left, quiet=options.quiet, unit=self._unit, verbose=options.verbose, n_items=n_items
        )

    def _run(self, folder: RunFolder, remaining: Left, plan: NodePlan, progress: Progress) -> None:
        if folder.manifest.reduce is not None:
            folder.forget_result()
        tracer = Tracer() if self._options.trace else NO_TRACER
        noted = Noted(folder, self.asked.source)
        sizing = self._describe_sizing(folder, plan)
        statistics = Statistics(folder, plan, self.rank.executor.n_workers, sizing, rank=self._rank_name)
        begun = time.perf_counter()

        def stats() -> NodeStats:
            return node.stats(time.perf_counter() - begun)

        def write_statistics() -> None:
            statistics.write(stats())

        sink = partial(Committer, folder, tracer, write_statistics, noted.write)
        inputs = self._inputs(folder, remaining, plan, progress, tracer, sink)
        node = Node(replace(inputs, source=note_checksums(self.asked.source, noted), say=progress.say))
        self._count(stats)
        write_statistics()  # an execution counts, however it ends
        try:
            with cancel_on_signals(node.cancel), statistics.note_why():
                node.run()
        finally:
            with contextlib.suppress(TartanError):
                noted.write()
            write_statistics()
            done = stats()
            _log.info(
                "%d %s computed in %s: %d items loaded from storage, %d from the disk cache, %d found in memory",
                *(done.pairs_computed, self._unit, format_duration(done.wall_seconds)),
                *(done.parses, done.disk_hits, done.host_hits),
            )
            if self._options.trace:
                with contextlib.suppress(OSError, TartanError):
                    self._write_trace(folder, tracer)

    def _write_trace(self, folder: RunFolder, tracer: Tracer) -> None:
        folder.write_trace(tracer.lines())

    def _count(self, statistics: Callable[[], NodeStats]) -> None:
        """Take note of what returns the statistics of the node so far."""

    def _judge(self, folder: RunFolder, remaining: Left, progress: Progress) -> Callable[[NodeReport], None]:
        """Return what adds up what the node reports: here the verdict on what failed."""
        rules = FailureRules(self._options.on_error, self._options.max_failures, self._unit)
        kept = self.watch(folder)
        return Oversight(folder, rules, progress, self.look, remaining.share, kept).report

    def watch(self, folder: RunFolder) -> KeptWatch | None:
        """Return what watches how much is kept, where that may be too much."""
        return make_watch(folder, self.asked, lambda: self.facts, self.free_bytes)

    def look(self) -> Look:
        """Try pairs from all over the run, on a worker of their own."""
        asked = self.asked
        with open_rank(asked.app, replace(self._options, workers=1, device=("cpu",))) as rank:
            uniform = self.facts.form is not None
            return try_some(
                asked.app, asked.source, rank.executor, self._options, arity=self.asked.arity, uniform=uniform
            )

    def _inputs(
        self,
        folder: RunFolder,
        remaining: Left,
        plan: NodePlan,
        progress: Progress,
        tracer: Tracer,
        sink: Callable[[], ChunkSink],
    ) -> NodeInputs:
        """Return what the node is given: here the whole order, and nobody else to take items from."""
        options, rank = self._options, self.rank
        return NodeInputs(
            source=self.asked.source,
            app=self.asked.app,
            outputs=folder.manifest.outputs,
            both_ways=folder.wanted.both_ways,
            plan=plan,
            items=plan_items(self._held, plan),
            remaining=remaining,
            executor=rank.executor,
            devices=rank.devices,
            report=self._judge(folder, remaining, progress),
            sink=sink(),
            call_limit=CallLimit.of(options.tile_timeout, grows=self.of_several and rank.executor.in_processes),
            tracer=tracer,
            disk_cache=open_disk_cache(folder, options),
            digest_base=digest_base(folder, rank.devices),
            cache_key=cache_key(folder, options),
            saves=SavePolicy(rank.executor.n_workers),
        )


def log_state(folder: RunFolder, share: Sequence[Chunk] | None = None) -> None:
    """Log how far a run is when its execution begins."""
    if _log.isEnabledFor(logging.INFO):
        counts, n_items = folder.counts(share), folder.manifest.n_items
        total, left = int(counts.sum()), int(counts[NOT_COMPUTED])
        verb = "computes" if left == total else "resumes"
        _log.info("%s %s: %d items, %d of %d scores are there", verb, folder.path, n_items, total - left, total)


def folder_grid(folder: RunFolder) -> Grid:
    """Cut the pairs or triples of a run as its manifest says."""
    manifest = folder.manifest
    if isinstance(folder.wanted, WantedTriples):
        return folder.wanted.grid
    borders = (*folder.pairs.workload.borders, *manifest.generations[:-1])
    cuts = {name: int(manifest.grid[name]) for name in ("chunk", "panel", "strip", "span")}
    return Grid(
        manifest.n_items,
        **cuts,
        borders=tuple(sorted(set(borders))),
        diagonal=folder.pairs.workload.has_diagonal,
    )


# The disk level of an execution: where it is, how large it is, and what its items depend on.

# By judgement: the other half is for the result and for others. No benchmark.
FREE_SHARE = 0.5
"""Part of the free disk that ``--cache-at`` may fill where no size is given."""


def open_disk_cache(folder: RunFolder, options: RunOptions) -> DiskCache | None:
    """Open the disk cache that the options ask for: in the run folder, or on the local disk that they name.

    Processes of one user share what lies there, also those of other runs: an item is found by all that it depends on.

    Raises
    ------
    ConfigError
        If the place cannot be used, or belongs to another user.
    StoreError
        If the place in the run folder is a link.
    """
    if options.cache_at is None:
        if options.disk_cache is None:
            return None
        capacity = parse_bytes(options.disk_cache, option="--disk-cache")
        return DiskCache(folder.path / "cache", capacity, root=folder.path)
    place = _create_own_folder(Path(options.cache_at))
    if options.disk_cache is not None:
        return DiskCache(place, parse_bytes(options.disk_cache, option="--disk-cache"))
    return DiskCache(place, max(1, int(shutil.disk_usage(place).free * FREE_SHARE)))


def _create_own_folder(parent: Path) -> Path:
    """Create a folder of this user alone in one that may be shared; nothing else in there is ever touched."""
    place = parent / f"tartan-cache-{os.getuid()}"
    try:
        if not parent.exists():
            parent.mkdir(parents=True, exist_ok=True)
        make_private(place, option="--cache-at")
    except OSError as error:
        message = f"--cache-at {parent}: {error.strerror}; name a folder on a local disk that can be written"
        raise ConfigError(message, context={"option": "--cache-at"}) from None
    return place


def cache_key(folder: RunFolder, options: RunOptions) -> bytes | None:
    """Return what seals pickled items in the disk cache; the items of built-in applications need no pickle."""
    builtin = names_builtin(str(folder.manifest.application["source"]))
    without = options.disk_cache is None and options.cache_at is None
    return None if builtin or without else user_key()


def digest_base(folder: RunFolder, devices: Sequence[Device]) -> bytes:
    """Return what preprocessed items depend on, besides themselves."""
    about = folder.manifest.application
    kinds = sorted({device.name.split(":")[0] for device in devices})
    text = json.dumps([about["source"], about["source_hash"], about["parameters"], kinds], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()


# Compare a few pairs both ways, where the score of one way is to stand for both.

# By arithmetic: 7 items have 21 pairs, six would have 15, fewer than MOST_MIRRORED.
MOST_ITEMS = 7
"""Of which pairs are made: as many give 16 and more."""

Scored = tuple[tuple[int, int], BothWays]


def refuse_asymmetric(asked: Request, rank: Rank, facts: ItemFacts, n_ranks: int = 1) -> None:
    """Refuse an application that says it is symmetric, or says nothing, and is not.

    Built-in applications are known to be symmetric. Pairs and items that fail are left to the run.

    Parameters
    ----------
    asked : Request
        A new run.
    rank : Rank
    facts : ItemFacts
        Of its items.
    n_ranks : int
        Ranks like this one that will compute it.

    Raises
    ------
    ConfigError
        If two scores of a pair differ by more than rounding.
    RunCancelledError, KeyboardInterrupt
        After a signal.
    """
    own = asked.described.get("kind", "builtin") != "builtin"
    if not own or not asked.app.symmetric or asked.workload["kind"] not in ("all", "candidates"):
        return
    elsewhere = not all(device.shares_host_memory for device in rank.devices)
    costs, n_workers = facts.costs, n_ranks * rank.executor.n_workers
    allowed = allow_mirrored(
        asked.pairs().n_pairs,
        costs.compare_seconds,
        asked.source.n_items,
        facts.item_seconds,
        n_workers,
        elsewhere=elsewhere,
    )
    with cancel_on_signals(_stop):
        scored = list(_score_pairs(asked, rank, facts, allowed))
    for name, dtype in output_dtypes(asked.app).items():
        if name in asked.app.directed:
            continue
        epsilon = float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0
        found = first_difference([both.scores[name] for _, both in scored], epsilon)
        if found is not None:
            _refuse(asked, scored[found], name)


def _stop(signal_number: int) -> None:
    """End the wait for a worker: nothing is made yet, so there is nothing to end cleanly."""
    raise RunCancelledError("stopped before the run began; run it again", context={"signal": signal_number})


def _pairs(asked: Request) -> list[tuple[int, int]]:
    """Return up to 16 pairs from all over the run, of few items; those of the first items come first."""
    if asked.candidates is not None:
        given = asked.candidates.pairs
        listed = [(int(i), int(j)) for i, j in given[spread(len(given), MOST_MIRRORED)]]
        return [pair for pair in listed if pair[0] != pair[1]][:MOST_MIRRORED]
    items = spread(asked.source.n_items, MOST_ITEMS)
    pairs = [(min(a, b), max(a, b)) for number, b in enumerate(items) for a in items[:number]]
    return pairs[:MOST_MIRRORED]


def _score_pairs(asked: Request, rank: Rank, facts: ItemFacts, allowed: MirrorLimits) -> Iterator[Scored]:
    """Yield pairs with the scores of both ways, until that has taken as long as it may."""
    loading = comparing = longest = 0.0
    items: dict[int, Any] = {}
    for pair in _pairs(asked) if allowed.compare_seconds and allowed.load_seconds else ():
        if comparing + longest > allowed.compare_seconds or loading > allowed.load_seconds:
            return
        begun = time.monotonic()
        for index in set(pair) - set(items):
            items[index] = _load(asked, rank, facts, index)
        two, both = [items[index] for index in pair], BothWays({}, 0.0)
        if not any(isinstance(item, ItemFailure) for item in two):
            both = _compare(asked, rank, facts, two, allowed)
        comparing, longest = comparing + both.seconds, max(longest, both.seconds)
        loading += time.monotonic() - begun - both.seconds
        if both.scores:
            yield pair, both


def _compare(asked: Request, rank: Rank, facts: ItemFacts, pair: list[Any], allowed: MirrorLimits) -> BothWays:
    """Compare two items both ways on a worker; without scores where that fails."""
    dtypes = {name: dtype.str for name, dtype in output_dtypes(asked.app).items()}
    limit = asked.options.tile_timeout
    args = (*pair, facts.form is not None, dtypes, allowed.compare_seconds)
    begun = time.monotonic()
    outcome = ask(rank.executor, score_both_ways, *args, timeout=None if limit is None else 2 * limit)
    if not isinstance(outcome, Completed):
        return BothWays({}, time.monotonic() - begun)
    both: BothWays = outcome.value
    return both


def _load(asked: Request, rank: Rank, facts: ItemFacts, index: int) -> Any:
    """Return an item, or why it cannot be compared."""
    found = load_one(asked.source, rank.executor, index, asked.options)
    if isinstance(found, Probe) and (facts.form is None or found.ready == facts.form):
        return found.item
    return ItemFailure("parse", "it is left to the run")


def _refuse(asked: Request, scored: Scored, output: str) -> None:
    (i, j), both = scored
    a, b = asked.source.keys[i], asked.source.keys[j]
    one, other = both.scores[output]
    raise ConfigError(
        f"{asked.described['name']} is not symmetric: {output} of ({a}, {b}) is {one:.8g}, of ({b}, {a}) {other:.8g}, "
        f"and pairs would be compared one way only. To keep both ways, {_way_out(asked)}; to keep one, make both "
        "equal, for instance by their mean",
        code="not-symmetric",
        context={"keys": [a, b], "output": output, "scores": [f"{one:.8g}", f"{other:.8g}"]},
    )


def _way_out(asked: Request) -> str:
    """Say how an application declares that it is not symmetric."""
    name = asked.described["name"]
    if not wraps_function(asked.app):
        return f"set symmetric = False in {name}"
    function = name if name.isidentifier() else "FUNCTION"
    return f"compare by `class Both(tartan.Application): symmetric = False; compare_pair = staticmethod({function})`"
