"""One call of ``run``, ``resume`` or ``add``: open what is needed, run the node under the lock, write statistics."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tartan.application import Application
from tartan.base.machine import usable_cores
from tartan.base.progress import Progress
from tartan.base.signals import cancel_on_signals
from tartan.base.trace import NO_TRACER, Tracer
from tartan.core.bound import workload_bound
from tartan.core.grid import Grid
from tartan.core.ledger import NOT_COMPUTED
from tartan.core.model import StageTimes, system_efficiency
from tartan.devices import open_device
from tartan.devices.protocol import Device
from tartan.errors import ConfigError, DeviceMemoryError, TartanError
from tartan.options import RunOptions, Size
from tartan.run.plan import Facts, KnownForm, Plan, learn, plan_run
from tartan.runtime.execution import Execution, NodeStats
from tartan.runtime.node import Node
from tartan.runtime.remaining import Remaining
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.workers.executor import Executor
from tartan.workers.start import open_executor

__all__ = ["Session", "open_devices"]

DEVICE_MEMORY_TRIES = 4


def open_devices(options: RunOptions) -> list[Device]:
    """Open the devices of a run; closes them again when one cannot be opened."""
    devices: list[Device] = []
    try:
        for name in options.device:
            devices.append(open_device(name))
    except BaseException:
        for device in devices:
            device.close()
        raise
    return devices


class Session:
    """Devices and workers of one call; a context manager.

    Parameters
    ----------
    app : Application
    source : Source
    options : RunOptions
    """

    def __init__(self, app: Application, source: Source, options: RunOptions) -> None:
        self.app = app
        self.source = source
        self.options = options
        self.devices: list[Device] = []
        self._executor: Executor | None = None
        self._facts: Facts | None = None
        self._known: KnownForm | None = None
        self._device_slots = 0

    def __enter__(self) -> Session:
        self.devices = open_devices(self.options)
        workers = self.options.workers or usable_cores()
        try:
            self._executor = open_executor(self.app, workers)
        except BaseException:
            self._close_devices()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.close(kill=True)
        self._close_devices()

    def _close_devices(self) -> None:
        for device in self.devices:
            device.close()

    @property
    def executor(self) -> Executor:
        assert self._executor is not None
        return self._executor

    @property
    def facts(self) -> Facts:
        """What a few items told; learnt when first asked."""
        if self._facts is None:
            self._facts = learn(self.app, self.source, self.executor, self.options, self._known)
        return self._facts

    def expect(self, manifest: Manifest) -> None:
        """Take the form of items from a run that exists, instead of learning it."""
        self._known = KnownForm.of(manifest)

    def execute(self, folder: RunFolder) -> None:
        """Compute what is missing in a run folder.

        Raises
        ------
        TartanError
            As ``Node.run``; the folder can then be resumed.
        """
        with folder.lock():
            self.expect(folder.manifest)
            grid = folder_grid(folder)
            with self._progress(folder) as progress:
                for remaining_tries in reversed(range(DEVICE_MEMORY_TRIES)):
                    try:
                        self._run_once(folder, grid, progress)
                        return
                    except DeviceMemoryError:
                        least = grid.longest_strip + grid.longest_span
                        if not remaining_tries or self._device_slots <= least:
                            raise
                        self._shrink_device_cache(least)

    def _shrink_device_cache(self, least: int) -> None:
        """Go on with half the slots on devices, if a tile fits: what is committed stays, the rest is planned anew."""
        slots = max(least, self._device_slots // 2)
        self.options = replace(self.options, device_cache=Size(slots, in_items=True))
        self._reopen()

    def _reopen(self) -> None:
        """Open devices and workers again, after an execution has closed them."""
        self._close_devices()
        self.devices = open_devices(self.options)
        self.executor.close(kill=True)
        self._executor = open_executor(self.app, self.options.workers or usable_cores())

    def _run_once(self, folder: RunFolder, grid: Grid, progress: Progress) -> None:
        remaining = Remaining(folder, grid)
        plan = plan_run(
            grid, remaining.workload, self.facts, self.options, self.devices, self.app, self.executor.in_processes
        )
        self._device_slots = min((room.total for room in plan.device_rooms if room is not None), default=0)
        self._run(folder, remaining, grid, plan, progress)

    def _progress(self, folder: RunFolder) -> Progress:
        total = folder.pairs.n_pairs
        return Progress(total, total - int(folder.counts()[NOT_COMPUTED]), quiet=self.options.quiet)

    def _run(self, folder: RunFolder, remaining: Remaining, grid: Grid, plan: Plan, progress: Progress) -> None:
        if folder.manifest.reduce is not None:
            folder.forget_result()
        tracer = Tracer() if self.options.trace else NO_TRACER
        before = _stats_before(folder)
        start = time.perf_counter()

        def write_stats() -> None:
            self._write(folder, grid, plan, node.stats(time.perf_counter() - start), before)

        execution = self._execution(folder, remaining, grid, plan, progress, tracer)
        node = Node(replace(execution, flushed=write_stats))
        write_stats()  # an execution counts, however it ends
        try:
            with cancel_on_signals(node.cancel):
                node.run()
        finally:
            write_stats()
            if self.options.trace:
                with contextlib.suppress(OSError, TartanError):
                    tracer.write(folder.path / "trace.json")
        if folder.manifest.reduce is not None:
            folder.merge_parts()

    def _execution(
        self, folder: RunFolder, remaining: Remaining, grid: Grid, plan: Plan, progress: Progress, tracer: Tracer
    ) -> Execution:
        options = self.options
        cache = None
        if options.disk_cache is not None:
            if options.disk_cache.in_items:
                raise ConfigError(
                    "--disk-cache takes a size in bytes, such as 10GB", context={"option": "--disk-cache"}
                )
            cache = DiskCache(folder.path / "cache", options.disk_cache.amount)
        return Execution(
            folder=folder,
            source=self.source,
            app=self.app,
            grid=grid,
            remaining=remaining,
            layout=plan.layout,
            task=plan.task,
            substitute=self.facts.substitute,
            executor=self.executor,
            devices=self.devices,
            device_rooms=plan.device_rooms,
            host_bytes=plan.host_bytes,
            span_bytes=plan.span_bytes,
            order=options.order,
            on_error=options.on_error,
            max_failures=options.max_failures,
            timeout_seconds=options.tile_timeout_seconds,
            tracer=tracer,
            progress=progress,
            disk_cache=cache,
            digest_base=_digest_base(folder, self.devices),
            item_seconds=self.facts.item_seconds,
        )

    def _write(self, folder: RunFolder, grid: Grid, plan: Plan, new: NodeStats, before: dict[str, Any]) -> None:
        """Add what this execution did to what earlier ones did."""
        lanes = sum(1 if room is not None else self.executor.n_workers for room in plan.device_rooms)
        stats = _merge(before, new, folder, plan, lanes)
        with contextlib.suppress(TartanError):
            folder.write_stats(stats)


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


def _digest_base(folder: RunFolder, devices: Sequence[Device]) -> bytes:
    """Return what preprocessed items depend on, besides themselves."""
    about = folder.manifest.application
    kinds = sorted({device.name.split(":")[0] for device in devices})
    text = json.dumps([about["source"], about["source_hash"], about["parameters"], kinds], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()


def _stats_before(folder: RunFolder) -> dict[str, Any]:
    try:
        return folder.stats
    except TartanError:
        return {}


def _merge(before: dict[str, Any], new: NodeStats, folder: RunFolder, plan: Plan, lanes: int) -> dict[str, Any]:
    def total(name: str) -> dict[str, Any]:
        old = before.get(name) or {}
        return {key: old.get(key, 0) + value for key, value in getattr(new, name).items()}

    counts = {
        name: before.get(name, 0) + getattr(new, name)
        for name in ("loads", "parses", "disk_hits", "host_hits", "uploads", "pairs_computed", "wall_seconds")
    }
    seconds = total("seconds_per_stage")
    n, slots = folder.manifest.n_items, max(plan.slots, before.get("host_slots", 0))
    measured = max(counts["wall_seconds"], 1e-9)
    return {
        **counts,
        "n_items": n,
        "load_factor": counts["loads"] / n,
        # Of the largest room that any execution had: with less, more loads would be needed.
        "load_factor_bound": workload_bound(folder.pairs.workload, slots),
        "host_slots": slots,
        "host_peak": new.host_peak,
        "result_buffer_bytes": new.result_buffer_bytes,
        "bytes_per_level": total("bytes_per_level"),
        "seconds_per_stage": seconds,
        "system_efficiency": system_efficiency(
            n, counts["pairs_computed"], _stage_times(counts, seconds, plan), measured, lanes
        ),
        "executions": before.get("executions", 0) + 1,
    }


def _stage_times(counts: dict[str, Any], seconds: dict[str, Any], plan: Plan) -> StageTimes:
    """Return what an item and a pair cost on what compares: a device with memory of its own parses nothing."""
    on_host = any(room is None for room in plan.device_rooms)
    item_seconds = seconds["preprocess"] if on_host or plan.task.parsed is not None else 0.0
    item_seconds += seconds["parse"] if on_host else 0.0
    return StageTimes(
        preprocess=item_seconds / max(1, counts["parses"]),
        compare=seconds["compare"] / max(1, counts["pairs_computed"]),
    )
