"""The scheduler of one rank, made from a description of the run and of what the rank has.

A real run and its replay make their scheduler here, of the same description, so they decide the same. All constants
that decide how much is under way at a time are in this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.order import Needed, Segment
from tartan.core.pairs.schedule import AdmissionLimits, DeviceSlots, Scheduler
from tartan.core.pairs.sizing import Layout, make_order, tile_filter
from tartan.core.pairs.triples import TripleGrid, triple_order
from tartan.core.pairs.workload import Workload

# Tiles that a device holds, waiting and running: small ones end faster than new ones are handed out.
# By judgement: handing out takes 0.2 ms a tile (`tartan bench overhead`, simulated device), so 16 in hand hide it where
# a tile takes more than 14 us; what a device holds cannot go to another one, so not more.
DEVICE_DEPTH = 16
# Tiles of a worker of the CPU pool: one runs while the next is handed out.
# By construction: with one a worker waits 0.1 ms after each tile (`tartan bench overhead`); a third would only lie
# there and could not go to another worker.
TILES_A_WORKER = 2
# Parts of halved tiles that a worker has under way: likewise.
# By construction, as TILES_A_WORKER.
HALVES_A_WORKER = 2


@dataclass(frozen=True)
class NodePlan:
    """How a rank cuts its work and uses its memory: what decides everything that its scheduler does.

    Attributes
    ----------
    grid : Grid
        A ``TripleGrid`` where triples are compared.
    workload : Workload
        Which pairs are wanted; of triples all are.
    layout : Layout
        How the host slots are divided.
    device_rooms : tuple of (Room or None)
        Slots of each device; None for the CPU, which works in host memory.
    n_workers : int
        Workers of the CPU.
    order : {"panel", "quadrant"}
    prepare_on_device : bool
        As ``prepares_on_device`` decides.
    needed : callable, optional
        Whether a tile is still to be computed; default whether it holds a wanted pair.
    span_size : callable, optional
        Size of a span where slots are unequal; default its number of items.
    slots : int
        Room of the host level in items (a mean where items differ in size).
    host_bytes : int
        Size of the host arena.
    window_bytes : int
        Addresses in it of a span of items of unequal size; 0 where the arena holds none of these.
    """

    grid: Grid
    workload: Workload
    layout: Layout
    device_rooms: tuple[Room | None, ...] = (None,)
    n_workers: int = 1
    order: str = "panel"
    prepare_on_device: bool = False
    needed: Needed | None = None
    span_size: Callable[[int], int] | None = None
    slots: int = 0
    host_bytes: int = 0
    window_bytes: int = 0

    def keeping(self, n_spans: int) -> NodePlan:
        """Return a plan for items of unequal size that leaves room for a number of spans beside those of tiles."""
        room = self.layout.room
        taken = n_spans * self.grid.longest_span * room.total // max(1, self.slots)
        layout = replace(self.layout, room=replace(room, columns=room.columns - taken))
        return replace(self, layout=layout, host_bytes=self.host_bytes + n_spans * self.window_bytes)

    @property
    def device_slots(self) -> int:
        """Least room of a device with memory of its own, in items; 0 where there is none."""
        return min((room.total for room in self.device_rooms if room is not None), default=0)


def prepares_on_device(device_rooms: Sequence[Room | None], *, preprocesses: bool, parsed_fits: bool = True) -> bool:
    """Return whether devices preprocess items; otherwise loads include it.

    Parameters
    ----------
    device_rooms : sequence of (Room or None)
        Slots of each device. The CPU preprocesses as part of a load, and so it does for all where there is a CPU among
        the devices.
    preprocesses : bool
        Whether the application has anything to preprocess.
    parsed_fits : bool
        Whether items that are parsed only fit the slots of those that are ready.
    """
    return preprocesses and parsed_fits and all(room is not None for room in device_rooms)


def _compute_needed(plan: NodePlan) -> Needed:
    if plan.needed is not None:
        return plan.needed
    grid = plan.grid
    if isinstance(grid, TripleGrid):
        return lambda tile: grid.count(tile) > 0
    return tile_filter(grid, plan.workload)


def make_segments(plan: NodePlan) -> Iterator[Segment]:
    """Return the whole order, where one rank computes all of it."""
    if isinstance(plan.grid, TripleGrid):
        return triple_order(plan.grid, plan.layout.panel_items, _compute_needed(plan))
    return make_order(plan.grid, plan.workload, plan.layout, _compute_needed(plan), plan.order)


def next_segments(segments: Iterator[Segment], most: int) -> tuple[list[Segment], bool]:
    """Return the answer to ``AskSegments`` of a rank that computes all: what comes next, and whether it is the end."""
    found = list(islice(segments, most))
    return found, len(found) < most


def make_scheduler(plan: NodePlan) -> Scheduler:
    """Make the scheduler of a rank."""
    needed = _compute_needed(plan)
    depths = [TILES_A_WORKER * plan.n_workers if room is None else DEVICE_DEPTH for room in plan.device_rooms]
    return Scheduler(
        plan.grid,
        needed,
        plan.layout.room,
        [DeviceSlots(room, depth) for room, depth in zip(plan.device_rooms, depths, strict=True)],
        span_size=plan.span_size,
        policy="lru" if plan.order == "quadrant" else "planned",
        limits=AdmissionLimits(open_chunks=plan.layout.open_chunks),
        prepare_on_device=plan.prepare_on_device,
    )
