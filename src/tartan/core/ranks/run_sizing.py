"""What decides how a run is cut and how one rank divides its memory, in numbers: for a run, and for its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.sizing import Costs, Layout, choose_grid, choose_layout, device_room
from tartan.core.pairs.triples import TripleGrid, choose_triple_grid, choose_triple_layout, triple_side
from tartan.core.pairs.workload import Workload
from tartan.core.ranks.layout import choose_cluster_grid

# LARGEST_ROW_TILE and ROW_TILES_A_SIDE, measured: tiles of 2,048 columns multiply 20 % faster than those of 512
# (docs/benchmarks.md, vectors); 24 tiles a side keep two workers busy to the end (24 * 25 / 2 tiles).
LARGEST_ROW_TILE = 2048
ROW_TILES_A_SIDE = 24
# By judgement: items that differ by 5 % in the mean of a span fit; those that do not are evicted early, which costs
# loads, no failure. No benchmark.
EVEN_SHARE = 0.95


@dataclass(frozen=True)
class RunSizing:
    """The facts of a run and a rank that fix its grid, its layout and so its loads.

    Attributes
    ----------
    host_items : int
        Room of the host level, were there any number of items.
    device_items : tuple of (int or None)
        Likewise of each device; None where it works in host memory.
    uniform : bool
        Whether all items have one size.
    pair_bytes : int
        Bytes that one pair takes in an open chunk, over all outputs.
    costs : Costs
        As measured before the run began.
    tile_side : int
        Width from which tiles are efficient for the application.
    wide_rows : bool
        Whether rows of one length are compared and no matrix is written: the wider the tiles, the better.
    reduced : bool
        Whether chunks hold no scores.
    chunk : int or None
        Side of a chunk that was asked for.
    order : {"panel", "quadrant"}
    """

    host_items: int
    device_items: tuple[int | None, ...] = (None,)
    uniform: bool = True
    pair_bytes: int = 5
    costs: Costs = field(default_factory=Costs)
    tile_side: int = 1
    wide_rows: bool = False
    reduced: bool = False
    chunk: int | None = None
    order: str = "panel"

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> RunSizing:
        """Read what ``as_dict`` returned; other entries do not matter."""
        own = {one.name: plain[one.name] for one in fields(cls)}
        return cls(**{**own, "device_items": tuple(own["device_items"]), "costs": Costs(**own["costs"])})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"device_items": list(self.device_items)}

    def host_slots(self, n_items: int) -> int:
        """Return the room of the host level in items, at most all of them."""
        return min(self.host_items, max(n_items, 2))

    def device_slots(self, n_items: int) -> list[int | None]:
        """Return the room of each device, at most all items."""
        return [None if room is None else min(room, max(n_items, 2)) for room in self.device_items]

    def grid(self, workload: Workload, n_ranks: int = 1) -> Grid:
        """Cut the pairs of a new run; several ranks need finer chunks."""
        n = workload.n_items
        own = [slots for slots in self.device_slots(n) if slots is not None]
        cut = partial(
            choose_grid, workload, self._plan_slots(n), chunk=None if self.chunk is None else min(self.chunk, n)
        )
        if n_ranks > 1 and self.chunk is None:
            cut = partial(choose_cluster_grid, workload, self._plan_slots(n), n_ranks, streams=self.uniform)
        return cut(
            device_slots=min(own) if own else None,
            order=self.order,
            costs=self.costs,
            tile_side=self._tile_side(n),
            reduced=self.reduced and not own,
        )

    def triple_grid(self, n_items: int, triple_seconds: float = 0.0) -> TripleGrid:
        """Cut the triples of a new run; ``triple_seconds`` is what one costs, 0 where that is little."""
        side = triple_side(n_items, self.tile_side, triple_seconds)
        chunk = None if self.chunk is None else min(self.chunk, n_items)
        return choose_triple_grid(n_items, self._plan_slots(n_items), side, chunk)

    def layout(self, grid: Grid, workload: Workload) -> Layout:
        """Divide the host slots of one execution, as if items had one size."""
        if isinstance(grid, TripleGrid):
            return choose_triple_layout(grid, self._plan_slots(grid.n_items))
        return choose_layout(grid, workload, self._plan_slots(grid.n_items), self.order, self.pair_bytes)

    def mean_layout(self, grid: Grid, workload: Workload) -> Layout:
        """Divide the host slots of one execution; items of unequal size share all of them, by their mean size."""
        layout = self.layout(grid, workload)
        if self.uniform:
            return layout
        return replace(layout, room=Room(0, self.host_slots(grid.n_items), addressed=False))

    def device_rooms(self, grid: Grid) -> list[Room | None]:
        """Divide the slots of each device."""
        slots = self.device_slots(grid.n_items)
        return [None if device is None else device_room(grid, device) for device in slots]

    def _plan_slots(self, n_items: int) -> int:
        """Return the host slots to plan with: where items differ in size, some are larger than expected."""
        slots = self.host_slots(n_items)
        return max(2, int(slots * EVEN_SHARE)) if not self.uniform and slots < n_items else slots

    def _tile_side(self, n_items: int) -> int:
        """Return the width of tiles; wide ones, but some hundred of them, for all workers to have some."""
        if not (self.reduced and self.wide_rows):
            return self.tile_side
        return max(self.tile_side, min(n_items // ROW_TILES_A_SIDE, LARGEST_ROW_TILE))
