"""From application, facts of items and options to an execution: how much room there is, how pairs are cut."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

from tartan.application import Application, compares_pairs, defines, output_dtypes, preprocesses, stored_once
from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.setup import NodePlan, prepares_on_device
from tartan.core.pairs.sizing import LARGEST_TILE, Costs
from tartan.core.pairs.workload import Workload
from tartan.core.ranks.placement import StageNames
from tartan.core.ranks.run_sizing import RunSizing
from tartan.errors import ConfigError
from tartan.options import RunOptions, Size
from tartan.run.probing import ItemFacts
from tartan.run.rank import Rank
from tartan.runtime.host import HostItems, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.tasks import ItemPlan

# PAIR_TILE_SECONDS, PAIR_CALL_SECONDS and LARGEST_PAIR_TILE, held by `tartan bench pair_function` (2 us a pair): a tile
# costs 0.12 to 0.16 ms (`tartan bench overhead`), under 1 % of 20 ms; a call of Python costs 0.3 to 0.5 us there.
PAIR_TILE_SECONDS = 0.02
PAIR_CALL_SECONDS = 1e-6
LARGEST_PAIR_TILE = 128
# By judgement: the largest of a few probed items is exceeded by some others; one that does not fit at all is refused,
# one that does evicts. No benchmark.
SIZE_MARGIN = 1.25
# WINDOW_FACTOR by judgement: addresses cost nothing until they are touched, so 64 times the largest item seen.
# LARGEST_ADDRESSES by arithmetic: x86-64 has 2**47, of which a sixteenth is taken.
WINDOW_FACTOR = 64
# By arithmetic, see WINDOW_FACTOR.
LARGEST_ADDRESSES = 2**43


def describe_sizing(
    n_items: int, facts: ItemFacts, options: RunOptions, rank: Rank, app: Application, *, reduced: bool = False
) -> RunSizing:
    """Return in numbers what decides how a run is cut and how a rank divides its memory.

    Raises
    ------
    ConfigError
        If a cache cannot hold two items.
    """
    host_items, own = _host_items(n_items, facts, options, rank), _device_items(n_items, facts, options, rank)
    reduced = reduced and not rank.executor.in_processes and all(slots is None for slots in own)
    return RunSizing(
        host_items=host_items,
        device_items=own,
        uniform=facts.form is not None,
        pair_bytes=sum(d.itemsize for d in output_dtypes(app).values()) * (1 if stored_once(app) else 2) + 1,
        costs=_plan_costs(facts.costs, options, app),
        tile_side=_choose_side(facts.costs, options, app),
        wide_rows=bool(app.unit_rows or app.inner_rows or app.bit_rows) and not compares_pairs(app),
        reduced=reduced,
        chunk=options.tile,
        order=options.order,
    )


def prediction_facts(facts: ItemFacts, plan: NodePlan, app: Application, n_workers: int) -> dict[str, Any]:
    """Return what the prediction of another run must know beside what ``describe_sizing`` says, as plain values."""
    return {
        "item_bytes": float(facts.form.nbytes if facts.form else facts.item_bytes),
        "n_workers": n_workers,
        "prepare_on_device": plan.prepare_on_device,
        "whole_tiles": not compares_pairs(app),
    }


def _plan_costs(costs: Costs, options: RunOptions, app: Application) -> Costs:
    """Return the costs that cut a run: where the user chose the side of tiles, slow pairs make them no smaller."""
    return costs if options.tile is None or compares_pairs(app) else replace(costs, compare_seconds=0.0)


def _choose_side(costs: Costs, options: RunOptions, app: Application) -> int:
    """Return the width from which tiles are efficient, or which the user wants."""
    if compares_pairs(app):
        return _pair_tile_side(costs)
    return app.tile_side if options.tile is None else max(app.tile_side, min(options.tile, LARGEST_TILE))


def _pair_tile_side(costs: Costs) -> int:
    """Return the width of tiles of a function of two items: what a tile costs beside its pairs shall be little.

    Its scores do not depend on the tile, so quick functions get wide ones.
    """
    side = (PAIR_TILE_SECONDS / (costs.compare_seconds + PAIR_CALL_SECONDS)) ** 0.5
    return min(max(1, int(side)), LARGEST_PAIR_TILE)


def plan_run(
    grid: Grid,
    workload: Workload,
    facts: ItemFacts,
    options: RunOptions,
    rank: Rank,
    app: Application,
) -> NodePlan:
    """Divide the memory of one execution."""
    sizing = describe_sizing(grid.n_items, facts, options, rank, app)
    layout, rooms = sizing.layout(grid, workload), sizing.device_rooms(grid)
    prepares = facts.compact or preprocesses(app)
    on_device = prepares_on_device(rooms, preprocesses=prepares, parsed_fits=_fits_parsed(facts))
    plan = NodePlan(
        grid,
        workload,
        layout,
        tuple(rooms),
        rank.executor.n_workers,
        order=options.order,
        prepare_on_device=on_device,
        slots=sizing.host_slots(grid.n_items),
    )
    if facts.form is not None:
        return replace(plan, host_bytes=layout.room.total * facts.form.nbytes)
    return _plan_ragged(plan, facts, options, rank)


def plan_items(facts: ItemFacts, plan: NodePlan) -> ItemPlan:
    """Return how items lie in host memory, and in which form."""
    more: dict[str, Any] = {"ready_substitute": facts.substitute, "item_seconds": facts.item_seconds}
    if facts.form is None:
        items: HostItems = RaggedBlobs(plan.window_bytes) if plan.window_bytes else RaggedObjects()
        return ItemPlan(items, None, None, facts.substitute, **more)
    parsed, substitute = None, facts.substitute
    if plan.prepare_on_device:
        parsed, substitute = facts.parsed, facts.parsed_substitute
    return ItemPlan(UniformItems(facts.form), parsed, facts.form, substitute, facts.compact, **more)


def _plan_ragged(plan: NodePlan, facts: ItemFacts, options: RunOptions, rank: Rank) -> NodePlan:
    """Count bytes instead of slots (or items, where the user gave a number of items)."""
    grid, layout = plan.grid, plan.layout
    in_items = options.host_cache is not None and options.host_cache.in_items
    item_bytes = max(1, int(facts.item_bytes))
    host_bytes = _host_bytes(options, rank)
    total = plan.slots if in_items else max(host_bytes, 2 * facts.largest_bytes)
    _check_ragged(grid, total, 1 if in_items else item_bytes, in_items)
    room = Room(0, total, addressed=False, spares_latest=layout.room.spares_latest)

    def span_bytes(span: int) -> int:
        return grid.span_length(span) * (1 if in_items else item_bytes)

    window = 0
    if rank.executor.in_processes:
        # One item may be far larger than those that were looked at. Addresses cost nothing, if they are not rationed.
        window = max(1 << 20, grid.longest_span * facts.largest_bytes * WINDOW_FACTOR + (1 << 16))
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            window = max(window, host_bytes)
        window = min(window, LARGEST_ADDRESSES // grid.n_spans) // 4096 * 4096
    return replace(
        plan,
        layout=replace(layout, room=room),
        span_size=None if in_items else span_bytes,
        host_bytes=max(1, window * grid.n_spans),
        window_bytes=window,
    )


def _check_ragged(grid: Grid, capacity: int, item_size: int, in_items: bool) -> None:
    """Refuse a host cache that cannot hold the items of one tile."""
    least = grid.most_items * item_size
    if capacity < least:
        unit = "items" if in_items else ""
        raise ConfigError(
            f"--host-cache has room for {capacity:,} {unit or 'bytes'}; a tile of this run needs about {least:,}: "
            f"give --host-cache {least}{unit} or more",
            context={"option": "--host-cache", "least": least},
        )


def list_stages(app: Application, facts: ItemFacts | None = None, rank: Rank | None = None) -> StageNames:
    """Return which stages an application has that may run beside the data.

    Parameters
    ----------
    app : Application
    facts : ItemFacts, optional
        With ``rank``: whether devices preprocess. Default: it is not known, and not held against them.
    rank : Rank, optional
        One that computes.
    """
    names = [name for name in ("parse", "group") if defines(app, name)]
    names += ["preprocess"] if preprocesses(app) else []
    on_device = False
    if facts is not None and rank is not None and _fits_parsed(facts):
        on_device = preprocesses(app) and None not in rank.device_bytes
    return StageNames(type(app).__name__, tuple(names), on_device)


def _fits_parsed(facts: ItemFacts) -> bool:
    """Parsed items wait in the slots of the ready ones, if they are not larger; devices know plain numbers alone."""
    if facts.parsed is None or facts.form is None or facts.parsed.dtype.names is not None:
        return False
    return facts.parsed.nbytes <= facts.form.nbytes


def _host_bytes(options: RunOptions, rank: Rank) -> int:
    """Return the room of the host level in bytes: what was asked for, else what the rank has."""
    asked = options.host_cache
    return rank.host_bytes if asked is None or asked.in_items else asked.amount


def _host_items(n_items: int, facts: ItemFacts, options: RunOptions, rank: Rank) -> int:
    """Return the room of the host level in items, were there any number of them; refuse one that cannot hold two."""
    asked = options.host_cache
    item_bytes = max(1, facts.form.nbytes if facts.form else int(facts.item_bytes))
    slots = asked.amount if asked and asked.in_items else _host_bytes(options, rank) // item_bytes
    if slots < 2 and n_items > 1:
        least = Size(2 * item_bytes)
        raise ConfigError(
            f"--host-cache{f' {asked}' if asked else ''} holds {slots} items of {item_bytes:,} bytes; comparing needs "
            f"at least 2: give --host-cache {least} or more",
            context={"option": "--host-cache", "least_bytes": least.amount},
        )
    return slots


def _device_items(n_items: int, facts: ItemFacts, options: RunOptions, rank: Rank) -> tuple[int | None, ...]:
    """Return the same of each device; None where it uses the memory of the host."""
    asked = options.device_cache
    item_bytes = max(1, facts.form.nbytes if facts.form else int(facts.largest_bytes * SIZE_MARGIN))
    found: list[int | None] = []
    for device, free_bytes in zip(rank.devices, rank.device_bytes, strict=True):
        if free_bytes is None:
            found.append(None)
            continue
        slots = free_bytes // item_bytes
        if asked is not None:
            slots = asked.amount if asked.in_items else asked.amount // item_bytes
        if slots < 2 and n_items > 1:
            raise ConfigError(
                f"--device-cache{f' {asked}' if asked else ''} holds {slots} items on {device.name}; comparing needs "
                "at least 2: give --device-cache 2items or more",
                context={"option": "--device-cache"},
            )
        found.append(slots)
    return tuple(found)
