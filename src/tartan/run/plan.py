"""From application, items and options to an execution: what items are, how much room there is, how pairs are cut.

A few items are loaded first. They tell the form and size of items, what a load and a pair cost, and one of them later
takes the place of items that fail.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tartan.application import Application, compares_pairs, output_dtypes, stored_once
from tartan.base.machine import memory
from tartan.core.cache import Room
from tartan.core.grid import Grid
from tartan.core.run_sizing import RunSizing, rooms_of
from tartan.core.setup import prepares_on_device
from tartan.core.sizing import Costs, Layout
from tartan.core.workload import Workload
from tartan.devices.protocol import Device
from tartan.errors import ConfigError, RunCancelledError, RunFailedError
from tartan.options import RunOptions, Size
from tartan.run.rank import Capacity
from tartan.runtime.host import HostItems, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.items import ItemFailure, ItemForm, takes_rows
from tartan.runtime.tasks import ItemPlan, Probe, probe_compare, probe_item, probe_rows
from tartan.sources.items import Source
from tartan.store.manifest import Manifest
from tartan.workers.executor import Cancelled, Completed, Died, Executor, Outcome, Raised, TimedOut

PROBES = 3
MOST_PROBES = 16
SLOW_PAIR_SECONDS = 0.01
SLOW_FIRST_SECONDS = 1.0
PROBE_SHARE = 0.01
PAIR_TILE_SECONDS = 0.02
PAIR_CALL_SECONDS = 1e-6
LARGEST_PAIR_TILE = 128
SIZE_MARGIN = 1.25
WINDOW_FACTOR = 64
LARGEST_ADDRESSES = 2**43


@dataclass(frozen=True)
class ItemFacts:
    """What a few items of a run show.

    Attributes
    ----------
    form, parsed : ItemForm or None
        Of ready and of parsed items; None when items differ in size or are no arrays.
    item_bytes : float
        Mean size of a ready item.
    largest_bytes : int
    substitute : object
        A good ready item.
    parsed_substitute : object
        The same, parsed.
    costs : Costs
        Of a new run; what fixes its grid.
    item_seconds : float
        Time to parse and preprocess an item.
    compact : bool
        Whether ``form`` is that of ``Application.compact_form``; the substitute is a parsed item then.
    """

    form: ItemForm | None
    parsed: ItemForm | None
    item_bytes: float
    largest_bytes: int
    substitute: Any
    parsed_substitute: Any
    costs: Costs
    item_seconds: float
    compact: bool = False

    def compacted(self, app: Application, devices: Sequence[Device]) -> ItemFacts:
        """Return the facts of items in their compact form, where all devices can have it."""
        if self.form is None or self.parsed is None or any(device.shares_host_memory for device in devices):
            return self
        found = [app.compact_form(self.form.dtype, self.form.shape, device.xp) for device in devices]
        forms = {None if one is None else ItemForm(np.dtype(one[0]), tuple(one[1])) for one in found}
        form = forms.pop()
        if forms or form is None or self.parsed.nbytes > form.nbytes:
            return self
        return replace(self, form=form, item_bytes=form.nbytes, substitute=self.parsed_substitute, compact=True)


@dataclass(frozen=True)
class KnownForm:
    """What the manifest of a run says of its items: their form, or None where each has its own."""

    form: ItemForm | None

    @classmethod
    def of(cls, manifest: Manifest) -> KnownForm:
        item = manifest.application["item"]
        return cls(None if item is None else ItemForm(np.dtype(item["dtype"]), tuple(item["shape"])))

    def mismatch(self, probe: Probe) -> str | None:
        """Say why an item does not belong to the run, or None."""
        if self.form is None or probe.ready == self.form:
            return None
        return f"it is {probe.ready}, where the items of this run are {self.form}"


def ask(executor: Executor, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Outcome:
    """Run one function on a worker and wait for it."""
    ended = threading.Event()
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    executor.submit(function, args, done, timeout_seconds=timeout)
    ended.wait()
    return outcomes[0]


def learn(
    app: Application,
    source: Source,
    executor: Executor,
    options: RunOptions,
    n_pairs: int | None,
    known: KnownForm | None = None,
) -> ItemFacts:
    """Load a few items and compare one with itself.

    Parameters
    ----------
    n_pairs : int or None
        Pairs of the run: at most a hundredth as many, and at least one, are compared to learn what a pair costs. None:
        no pair is compared.
    known : KnownForm, optional
        Of a run that exists: its items keep their form, whatever new ones look like.

    Raises
    ------
    RunFailedError
        If none of the first items can be loaded.
    """
    probes = _probe_rows(app, source, executor, known) or _probe_items(app, source, executor, options, known)
    form, parsed = _common_form(app, probes, known)
    costs = Costs()
    if known is None and n_pairs is not None:
        costs = _costs(app, executor, _smallest(probes), form is not None, options, n_pairs)
    mean_bytes, largest_bytes = _sizes(probes, source if form is None else None)
    return ItemFacts(
        form,
        parsed,
        mean_bytes,
        largest_bytes,
        _smallest(probes).item,
        _smallest(probes).parsed_item,
        costs,
        float(np.mean([p.parse_seconds + p.preprocess_seconds for p in probes])),
    )


def _probe_rows(app: Application, source: Source, executor: Executor, known: KnownForm | None) -> list[Probe]:
    """Look at the first rows of an array that goes to the application a block at a time."""
    if source.kind != "array" or not takes_rows(app) or app.ragged:
        return []
    for start in range(0, min(source.n_items, 4096), 64):
        stop = min(source.n_items, start + 64)
        rows = np.array(source.read_block(start, stop))
        found = _value(ask(executor, probe_rows, source.keys[start:stop], rows))
        if isinstance(found, Probe) and (known is None or known.mismatch(found) is None):
            return [found]
    return []


def _probe_items(
    app: Application, source: Source, executor: Executor, options: RunOptions, known: KnownForm | None
) -> list[Probe]:
    wanted = 1 if app.ragged is False or (known is not None and known.form is not None) else PROBES
    probes: list[Probe] = []
    failures: list[ItemFailure] = []
    for index in _spread(source.n_items, MOST_PROBES):
        found = load_one(source, executor, index, options)
        if isinstance(found, ItemFailure):
            failures.append(found)
        elif known is not None and (mismatch := known.mismatch(found)) is not None:
            failures.append(ItemFailure("preprocess", f"{source.keys[index]}: {mismatch}"))
        else:
            probes = _with_smallest([*probes, found._replace(position=index)])
        if len(probes) == min(wanted, source.n_items):
            break
    if not probes:
        first = failures[0]
        raise RunFailedError(
            f"none of the {len(failures)} items that were tried can be loaded; first: {first.reason}",
            code="no-good-item",
            context={"traceback": first.traceback, "reason": first.reason},
        )
    return probes


def _with_smallest(probes: list[Probe]) -> list[Probe]:
    """Keep only the smallest of the items that were loaded, as the substitute: others may be large."""
    smallest = _smallest(probes)
    return [probe if probe is smallest else probe._replace(item=None, parsed_item=None) for probe in probes]


def _smallest(probes: Sequence[Probe]) -> Probe:
    return min(probes, key=lambda probe: probe.n_bytes)


def _sizes(probes: Sequence[Probe], source: Source | None) -> tuple[float, int]:
    """Return the mean and the largest size of items; of files of unequal size, as their lengths make expect."""
    known = np.array([probe.n_bytes for probe in probes], np.float64)
    stamps = None if source is None else source.fingerprints()
    if stamps is not None:
        lengths = np.maximum(stamps[0], 0).astype(np.float64)
        # A file beyond all memory fails when it is read: nothing is planned for it.
        lengths[lengths > memory().total_bytes] = 0
        looked_at = lengths[[probe.position for probe in probes]].sum()
        if looked_at > 0:
            growth = known.sum() / looked_at
            return float(growth * lengths.mean()), int(max(known.max(), growth * lengths.max()))
    return float(known.mean()), int(known.max())


def _spread(n: int, most: int) -> list[int]:
    """Return up to ``most`` indices, far apart and the ends first."""
    return list(dict.fromkeys([0, n - 1, n // 2, *np.linspace(0, n - 1, min(n, most)).astype(int).tolist()]))


def load_one(source: Source, executor: Executor, index: int, options: RunOptions) -> Probe | ItemFailure:
    """Load one item on a worker to see what it is; wait for it."""
    key = source.keys[index]
    try:
        payload = source.read(index)
    except Exception as error:
        return ItemFailure("read", str(error))
    outcome = ask(executor, probe_item, key, payload, timeout=options.tile_timeout_seconds)
    if isinstance(outcome, Died):
        return ItemFailure("parse", f"{key}: the worker ended ({outcome.how}) while it was parsed", outcome.traceback)
    if isinstance(outcome, TimedOut):
        return ItemFailure("parse", f"{key}: it took more than {outcome.seconds:g} s to parse")
    value = _value(outcome)
    assert isinstance(value, Probe | ItemFailure)
    return value


def _value(outcome: Outcome) -> Any:
    if isinstance(outcome, Completed):
        return outcome.value
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Cancelled):
        raise RunCancelledError("the run was stopped before it began")
    return ItemFailure("parse", str(outcome))


def _common_form(
    app: Application, probes: Sequence[Probe], known: KnownForm | None
) -> tuple[ItemForm | None, ItemForm | None]:
    """Return the form that all items have, ready and parsed, if they have one."""
    if app.ragged or (known is not None and known.form is None):
        return None, None
    forms = {probe.ready for probe in probes}
    if None in forms or probes[0].ready is None or probes[0].ready.dtype.hasobject:
        if app.ragged is False:
            raise ConfigError(f"{type(app).__name__} declares ragged = False, but its items are no plain arrays")
        return None, None
    if len(forms) > 1:
        if app.ragged is False:
            first, second = list(forms)[:2]
            raise ConfigError(f"items differ ({first} and {second}); bring them to one size")
        return None, None
    parsed = {probe.parsed for probe in probes}
    return probes[0].ready, probes[0].parsed if len(parsed) == 1 else None


def _costs(
    app: Application, executor: Executor, probe: Probe, uniform: bool, options: RunOptions, n_pairs: int
) -> Costs:
    """Measure what a pair costs, for the size of tiles.

    The shapes of tiles decide the last bits of scores, so two runs of the same input must choose the same: of
    applications that take a tile at a time only the order of magnitude of very slow pairs counts.
    """
    dtypes = {name: dtype.str for name, dtype in output_dtypes(app).items()}
    most = max(1, int(n_pairs * PROBE_SHARE))
    timeout = options.tile_timeout_seconds
    outcome = ask(executor, probe_compare, probe.item, uniform, dtypes, most, timeout=timeout)
    seconds, n_compared = outcome.value if isinstance(outcome, Completed) else (0.0, 0)
    if compares_pairs(app):
        return Costs(compare_seconds=2.0 ** round(np.log2(seconds)) if seconds > 1e-6 else 0.0)
    # One call says little: it is the first.
    slow = SLOW_PAIR_SECONDS if n_compared > 1 else SLOW_FIRST_SECONDS
    return Costs(compare_seconds=10.0 ** round(np.log10(seconds)) if seconds > slow else 0.0)


@dataclass(frozen=True)
class MemoryPlan:
    """How one execution uses the memory it has.

    Attributes
    ----------
    slots : int
        Room of the host level in items (a mean where items differ in size).
    layout : Layout
    host_bytes : int
        Size of the host arena.
    device_rooms : list of Room or None
    span_bytes : callable or None
    item_plan : ItemPlan
    """

    slots: int
    layout: Layout
    host_bytes: int
    device_rooms: list[Room | None]
    span_bytes: Callable[[int], int] | None
    item_plan: ItemPlan

    def keeping(self, grid: Grid, n_spans: int) -> MemoryPlan:
        """Return a plan for items of unequal size that leaves room for a number of spans beside those of tiles."""
        room = self.layout.room
        taken = n_spans * grid.longest_span * room.total // max(1, self.slots)
        layout = replace(self.layout, room=replace(room, columns=room.columns - taken))
        items = self.item_plan.items
        window = items.window_bytes if isinstance(items, RaggedBlobs) else 0
        return replace(self, layout=layout, host_bytes=self.host_bytes + n_spans * window)

    @property
    def device_slots(self) -> int:
        """Least room of a device with memory of its own, in items; 0 where there is none."""
        return min((room.total for room in self.device_rooms if room is not None), default=0)


def sizing_of(
    facts: ItemFacts, options: RunOptions, capacity: Capacity, app: Application, *, reduced: bool = False
) -> RunSizing:
    """Return in numbers what decides how a run is cut and how a rank divides its memory."""
    own = [room if room is None else room[0] for room in _device_rooms(facts, options, capacity)]
    reduced = reduced and not capacity.in_processes and all(slots is None for slots in own)
    return RunSizing(
        host_items=_host_room(facts, options, capacity)[0],
        device_items=tuple(own),
        uniform=facts.form is not None,
        pair_bytes=sum(d.itemsize for d in output_dtypes(app).values()) * (1 if stored_once(app) else 2) + 1,
        costs=facts.costs,
        tile_side=_pair_tile_side(facts.costs) if compares_pairs(app) else app.tile_side,
        wide_rows=app.unit_rows and not compares_pairs(app),
        reduced=reduced,
        chunk=options.tile,
        order=options.order,
    )


def prediction_facts(facts: ItemFacts, plan: MemoryPlan, app: Application, n_workers: int) -> dict[str, Any]:
    """Return what the prediction of another run must know beside what ``sizing_of`` says, as plain values."""
    return {
        "item_bytes": float(facts.form.nbytes if facts.form else facts.item_bytes),
        "n_workers": n_workers,
        "prepare_on_device": plan.item_plan.parsed is not None,
        "whole_tiles": not compares_pairs(app),
    }


def plan_grid(
    workload: Workload,
    facts: ItemFacts,
    options: RunOptions,
    capacity: Capacity,
    app: Application,
    *,
    reduced: bool = False,
    n_ranks: int = 1,
) -> Grid:
    """Cut the pairs of a new run; a reduced one keeps less than the matrix, and several ranks need finer chunks.

    Raises
    ------
    ConfigError
        If a cache cannot hold two items.
    """
    host_slots(workload.n_items, facts, options, capacity)
    device_slots(workload.n_items, facts, options, capacity)
    return sizing_of(facts, options, capacity, app, reduced=reduced).grid(workload, n_ranks)


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
    capacity: Capacity,
    app: Application,
) -> MemoryPlan:
    """Divide the memory of one execution."""
    n = grid.n_items
    slots = host_slots(n, facts, options, capacity)
    layout = sizing_of(facts, options, capacity, app).layout(grid, workload)
    rooms = rooms_of(grid, device_slots(n, facts, options, capacity))
    preprocesses = facts.compact or _preprocesses(app)
    on_device = prepares_on_device(rooms, preprocesses=preprocesses, parsed_fits=_parsed_fits(facts))
    parsed = facts.parsed if on_device else None
    substitute = facts.parsed_substitute if parsed is not None else facts.substitute
    if facts.form is not None:
        items: HostItems = UniformItems(facts.form)
        host_bytes = layout.room.total * facts.form.nbytes
        item_plan = ItemPlan(items, parsed, facts.form, substitute, facts.compact)
        return MemoryPlan(slots, layout, host_bytes, rooms, None, item_plan)
    return _plan_ragged(grid, facts, options, capacity, layout, slots, rooms)


def _plan_ragged(
    grid: Grid,
    facts: ItemFacts,
    options: RunOptions,
    capacity: Capacity,
    layout: Layout,
    slots: int,
    rooms: list[Room | None],
) -> MemoryPlan:
    """Count bytes instead of slots (or items, where the user gave a number of items)."""
    in_items = options.host_cache is not None and options.host_cache.in_items
    item_bytes = max(1, int(facts.item_bytes))
    host_bytes = _host_bytes(options, capacity)
    total = slots if in_items else max(host_bytes, 2 * facts.largest_bytes)
    _check_ragged(grid, total, 1 if in_items else item_bytes, in_items)
    room = Room(0, total, addressed=False, spares_latest=layout.room.spares_latest)
    ragged = Layout(room, layout.panel_items, layout.column_window, layout.open_chunks)

    def span_bytes(span: int) -> int:
        return grid.span_length(span) * (1 if in_items else item_bytes)

    items: HostItems = RaggedObjects()
    arena_bytes = 1
    if capacity.in_processes:
        # One item may be far larger than those that were looked at. Addresses cost nothing, if they are not rationed.
        window = max(1 << 20, grid.longest_span * facts.largest_bytes * WINDOW_FACTOR + (1 << 16))
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            window = max(window, host_bytes)
        window = min(window, LARGEST_ADDRESSES // grid.n_spans) // 4096 * 4096
        items, arena_bytes = RaggedBlobs(window), window * grid.n_spans
    item_plan = ItemPlan(items, None, None, facts.substitute)
    return MemoryPlan(slots, ragged, arena_bytes, rooms, None if in_items else span_bytes, item_plan)


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


def _preprocesses(app: Application) -> bool:
    return type(app).preprocess is not Application.preprocess or callable(getattr(app, "preprocess_block", None))


def _parsed_fits(facts: ItemFacts) -> bool:
    """Parsed items wait in the slots of the ready ones, if they are no larger."""
    return facts.parsed is not None and facts.form is not None and facts.parsed.nbytes <= facts.form.nbytes


def _host_bytes(options: RunOptions, capacity: Capacity) -> int:
    """Return the room of the host level in bytes: what was asked for, else what the rank has."""
    asked = options.host_cache
    return capacity.host_bytes if asked is None or asked.in_items else asked.amount


def _host_room(facts: ItemFacts, options: RunOptions, capacity: Capacity) -> tuple[int, int]:
    """Return the room of the host level in items, were there any number of them, and the bytes of one."""
    asked = options.host_cache
    item_bytes = max(1, facts.form.nbytes if facts.form else int(facts.item_bytes))
    in_items = asked is not None and asked.in_items
    return (asked.amount if asked and in_items else _host_bytes(options, capacity) // item_bytes), item_bytes


def host_slots(n_items: int, facts: ItemFacts, options: RunOptions, capacity: Capacity) -> int:
    """Return the room of the host level in items, at most all of them.

    Raises
    ------
    ConfigError
        If it cannot hold two items.
    """
    asked = options.host_cache
    slots, item_bytes = _host_room(facts, options, capacity)
    if slots < 2 and n_items > 1:
        least = Size(2 * item_bytes)
        raise ConfigError(
            f"--host-cache{f' {asked}' if asked else ''} holds {slots} items of {item_bytes:,} bytes; comparing needs "
            f"at least 2: give --host-cache {least} or more",
            context={"option": "--host-cache", "least_bytes": least.amount},
        )
    return int(min(slots, max(n_items, 2)))


def _device_rooms(facts: ItemFacts, options: RunOptions, capacity: Capacity) -> list[tuple[int, str] | None]:
    """Return the room of each device in items, were there any number of them, and its name; None: that of the host."""
    asked = options.device_cache
    item_bytes = max(1, facts.form.nbytes if facts.form else int(facts.largest_bytes * SIZE_MARGIN))
    found: list[tuple[int, str] | None] = []
    for name, free_bytes in zip(capacity.devices, capacity.device_bytes, strict=True):
        if free_bytes is None:
            found.append(None)
            continue
        slots = free_bytes // item_bytes
        if asked is not None:
            slots = asked.amount if asked.in_items else asked.amount // item_bytes
        found.append((int(slots), name))
    return found


def device_slots(n_items: int, facts: ItemFacts, options: RunOptions, capacity: Capacity) -> list[int | None]:
    """Return the room of each device in items, at most all of them; None where it uses the memory of the host.

    Raises
    ------
    ConfigError
        If one cannot hold two items.
    """
    asked = options.device_cache
    rooms = _device_rooms(facts, options, capacity)
    for slots, name in filter(None, rooms):
        if slots < 2 and n_items > 1:
            raise ConfigError(
                f"--device-cache{f' {asked}' if asked else ''} holds {slots} items on {name}; comparing needs at "
                "least 2: give --device-cache 2items or more",
                context={"option": "--device-cache"},
            )
    return [None if room is None else min(room[0], max(n_items, 2)) for room in rooms]
