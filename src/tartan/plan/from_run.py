"""Predict runs from a finished one: its costs and bandwidths, for another number of items or devices or other caches.

The grid and the division of memory of the other run are decided as a run decides them, so its loads are exact where all
items have one size; times are means of what was measured. What a run takes once and no replay knows, such as the start
of its workers, is the time by which the finished run exceeds its own replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tartan.core.memory import MemoryNeed, need_of_plan
from tartan.core.pairs.bound import workload_bound
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.setup import NodePlan, make_segments
from tartan.core.pairs.workload import AllPairs, Rectangle, Workload
from tartan.core.ranks.run_sizing import RunSizing
from tartan.core.replay.model import system_efficiency
from tartan.core.replay.node import Cost, Machine, Replay, ReplayResult, WorkloadCosts
from tartan.errors import ConfigError
from tartan.options import Size
from tartan.plan.report import Prediction, as_prediction


@dataclass(frozen=True)
class OtherRun:
    """How the predicted run differs from the one that is finished; None where it does not."""

    n_items: int | None = None
    n_devices: int | None = None
    host_cache: Size | None = None
    device_cache: Size | None = None


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run in numbers.

    Attributes
    ----------
    name : str
    grid : Grid
    workload : Workload
    stats : mapping
        As in the run folder.
    sizing : RunSizing
    item_bytes : float
    n_workers : int
    prepare_on_device : bool
    whole_tiles : bool
        Whether a compare call computes all cells of its tile, wanted or not.
    """

    name: str
    grid: Grid
    workload: Workload
    stats: Mapping[str, Any]
    sizing: RunSizing
    item_bytes: float
    n_workers: int
    prepare_on_device: bool
    whole_tiles: bool

    @cached_property
    def costs(self) -> WorkloadCosts:
        """What an item and a pair cost in the mean."""
        seconds, n_bytes = self.stats["seconds_per_stage"], self.stats["bytes_per_level"]
        parses = max(1, int(self.stats["parses"]))
        compared = self._n_compared() * self.stats["pairs_computed"] / max(1, self.stats["n_pairs"])
        return WorkloadCosts(
            self.workload.n_items,
            file_bytes=n_bytes["storage"] / parses,
            item_bytes=self.item_bytes,
            parse=Cost(seconds["parse"] / parses),
            preprocess=Cost(seconds["preprocess"] / parses),
            compare=Cost(seconds["compare"] / max(1.0, compared)),
            whole_tiles=self.whole_tiles,
        )

    def machine(self, sizing: RunSizing, n_items: int) -> Machine:
        """Return the machine of the run with the room of another one."""
        seconds, n_bytes = self.stats["seconds_per_stage"], self.stats["bytes_per_level"]
        reading = min(seconds["read"], self.stats["wall_seconds"])  # files are read side by side
        copied = n_bytes["upload"] + n_bytes["download"]
        return Machine(
            host_slots=sizing.host_slots(n_items),
            device_slots=tuple(sizing.device_slots(n_items)),
            cpu_workers=self.n_workers,
            storage_bytes_per_second=_rate(n_bytes["storage"], reading),
            copy_bytes_per_second=_rate(copied, seconds["upload"] + seconds["download"]),
        )

    def measured(self) -> dict[str, Any]:
        """Return what the run itself did, with the names of a prediction."""
        stats, machine = self.stats, self.machine(self.sizing, self.workload.n_items)
        speed = sum(machine.servers(d) for d in range(len(machine.device_slots)))
        times = replace(self.costs.stage_times(), compare=stats["seconds_per_stage"]["compare"] / self.workload.n_pairs)
        on_cpu = times.parse if machine.compares_on_cpu else 0.0
        return {
            "n_items": self.workload.n_items,
            "n_pairs": self.workload.n_pairs,
            "seconds": stats["wall_seconds"],
            "loads": stats["loads"],
            "load_factor": stats["loads"] / self.workload.n_items,
            "load_factor_bound": workload_bound(self.workload, machine.host_slots),
            "system_efficiency": system_efficiency(
                self.workload.n_items,
                self.workload.n_pairs,
                replace(times, preprocess=times.preprocess + on_cpu),
                stats["wall_seconds"],
                speed,
            ),
        }

    def predict(self, other: OtherRun | None = None) -> Prediction:
        """Replay the run, or another one, which takes as much longer than its replay as this run did.

        Raises
        ------
        ConfigError
            If there is no such run.
        """
        other = other or OtherRun()
        sizing, workload = self._resize(other), self._workload(other.n_items)
        same = sizing == self.sizing and workload.n_items == self.workload.n_items
        setup = self._setup(self.grid if same else sizing.grid(workload), workload, sizing)
        machine = self.machine(sizing, workload.n_items)
        found = Replay(setup, replace(self.costs, n_items=workload.n_items), machine).run()
        if other != OtherRun():
            found = _longer(found, self.rest_seconds)
        return as_prediction(found, machine, self.name, sizing.order)

    def need(self, other: OtherRun | None = None) -> MemoryNeed:
        """Return what the run, or another one like it, needs of memory at most."""
        other = other or OtherRun()
        sizing, workload = self._resize(other), self._workload(other.n_items)
        grid = self.grid if workload.n_items == self.workload.n_items else sizing.grid(workload)
        n_chunks = min(sizing.layout(grid, workload).open_chunks, grid.n_chunks * (grid.n_chunks + 1) // 2)
        slots = sizing.host_slots(workload.n_items)
        pair_bytes = 1 if sizing.reduced else sizing.pair_bytes
        chunk_bytes = pair_bytes * grid.chunk**2
        return need_of_plan(workload.n_items, slots, self.item_bytes, self.n_workers, chunk_bytes, n_chunks)

    @cached_property
    def rest_seconds(self) -> float:
        """Time of the run beyond its replay, which leaves out the start of workers and the last commit."""
        return max(0.0, float(self.stats["wall_seconds"]) - self.predict().seconds)

    def _n_compared(self) -> int:
        """Return how many cells the compare calls of the whole run computed."""
        if not self.whole_tiles:
            return self.workload.n_pairs
        tiles = (tile for segment in make_segments(self._setup(self.grid, self.workload, self.sizing))
                 for tile in segment.tiles)  # fmt: skip
        return sum(math.prod(self.grid.rect(tile).shape) for tile in tiles)

    def _setup(self, grid: Grid, workload: Workload, sizing: RunSizing) -> NodePlan:
        return NodePlan(
            grid,
            workload,
            sizing.mean_layout(grid, workload),
            tuple(sizing.device_rooms(grid)),
            self.n_workers,
            order=sizing.order,
            prepare_on_device=self.prepare_on_device,
        )

    def _workload(self, n_items: int | None) -> Workload:
        if n_items is None or n_items == self.workload.n_items:
            return self.workload
        if n_items < 2:
            raise ConfigError(f"--items {n_items}: a run compares 2 or more", context={"option": "--items"})
        if isinstance(self.workload, Rectangle):
            share = self.workload.n_left / self.workload.n_items
            return Rectangle(min(n_items - 1, max(1, round(share * n_items))), n_items)
        return AllPairs(n_items, self.workload.has_diagonal)

    def _resize(self, other: OtherRun) -> RunSizing:
        """Return the room of another run."""
        devices = self.sizing.device_items
        if other.n_devices is not None or other.device_cache is not None:
            if None in devices:
                option = "--devices" if other.n_devices is not None else "--device-cache"
                raise ConfigError(
                    f"{option}: {self.name} compared in host memory, on the workers of the CPU; take a run on a device",
                    context={"option": option},
                )
            cache = other.device_cache
            room = min(d for d in devices if d is not None) if cache is None else self._items(cache, "--device-cache")
            devices = (room,) * (other.n_devices or len(devices)) if cache or other.n_devices else devices
        host = self.sizing.host_items if other.host_cache is None else self._items(other.host_cache, "--host-cache")
        return replace(self.sizing, host_items=host, device_items=devices)

    def _items(self, size: Size, option: str) -> int:
        items = size.amount if size.in_items else int(size.amount // max(1.0, self.item_bytes))
        if items < 2:
            raise ConfigError(
                f"{option} {size}: it has room for {items} items of {self.item_bytes:,.0f} bytes; comparing needs 2",
                context={"option": option},
            )
        return items


def measure_run(name: str, grid: Grid, workload: Workload, n_pairs: int, stats: Mapping[str, Any]) -> MeasuredRun:
    """Read a finished run from its grid, its pairs and its statistics.

    Parameters
    ----------
    n_pairs : int
        As the run counts them.

    Raises
    ------
    ConfigError
        If its statistics do not suffice: it has none, an older version wrote them, several ranks computed it, or it
        compares a list of pairs.
    """
    again = "compute a run like it again and take that"
    if stats.get("n_ranks"):
        raise ConfigError(f"{name} was computed by several ranks; only runs of one are predicted from: {again}")
    if not isinstance(workload, AllPairs | Rectangle):
        raise ConfigError(f"{name} compares a list of pairs; only runs of all pairs, or of A x B, are predicted from")
    if not stats.get("sizing") or not stats.get("pairs_computed"):
        raise ConfigError(f"{name} keeps no figures to predict from; an older version of Tartan computed it: {again}")
    try:
        sizing, kept = RunSizing.of(stats["sizing"]), {field: stats["sizing"][field] for field in _KEPT}
        run = MeasuredRun(name, grid, workload, {**stats, "n_pairs": n_pairs}, sizing, **kept)
        run.measured()  # reads all of them
        return run
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{name}: its statistics are damaged ({error}); {again}") from error


_KEPT = ("item_bytes", "n_workers", "prepare_on_device", "whole_tiles")


def _longer(found: ReplayResult, seconds: float) -> ReplayResult:
    """Add seconds in which nothing was compared."""
    whole = found.seconds + seconds
    return replace(found, seconds=whole, system_efficiency=found.system_efficiency * found.seconds / max(whole, 1e-12))


def _rate(n_bytes: float, seconds: float) -> float:
    return n_bytes / seconds if n_bytes and seconds > 0 else math.inf
