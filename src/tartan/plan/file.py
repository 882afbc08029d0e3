"""Read plans in TOML, with clear errors. docs/plan-file.md describes the format.

The structures list what a file may hold, with the type of every value; msgspec checks one value after the other, so
that an error names the key and says, with the description of its type, what it must be.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from tartan.core.affinity import Steal
from tartan.core.blocks.assignment import AFFINITIES, Affinity
from tartan.core.blocks.placement import Place
from tartan.core.pairs.grid import MAX_ITEMS
from tartan.core.pairs.triples import LEAST_ITEMS
from tartan.core.replay.node import Cost, Machine, WorkloadCosts
from tartan.errors import ConfigError
from tartan.options import parse_bytes
from tartan.plan.blocks import BlockPlan, Computation, Kind, PublishedBlocks
from tartan.plan.cluster import ClusterPlan, PublishedCluster
from tartan.plan.report import Plan, Published, PublishedCache
from tartan.plan.sorting import NodeSortPlan, PublishedSort
from tartan.plan.triples import TriplePlan

_FINITE = sys.float_info.max
# By judgement: a slip beyond.
_MOST_WORKERS = 1_000_000
#: A pair that takes longer than thirty years, or a device that much slower, is a slip.
#: _MOST_SECONDS and _SPEEDS, by judgement, as said.
_MOST_SECONDS = 1e9
# By judgement: see _MOST_SECONDS.
_SPEEDS = (1e-6, 1e6)


class ByteCount(float):
    """A number of bytes, read from a number or from a size such as "38.1MB"."""


class Rate(ByteCount):
    """Bytes a second, above zero."""


Text = Annotated[str, Meta(min_length=1, description="text")]
Flag = Annotated[bool, Meta(description="true or false")]
Whole = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Items = Annotated[int, Meta(ge=2, le=MAX_ITEMS, description=f"a whole number from 2 to {MAX_ITEMS}")]
Slots = Annotated[int, Meta(ge=2, description="a whole number, 2 or more")]
Workers = Annotated[int, Meta(ge=1, le=_MOST_WORKERS, description=f"a whole number from 1 to {_MOST_WORKERS}")]
Number = Annotated[float, Meta(ge=0, le=_FINITE, description="a number, zero or more")]
Speed = Annotated[
    float,
    Meta(
        ge=_SPEEDS[0],
        le=_SPEEDS[1],
        description="a number above zero (1e-6 to 1e6): 1 is the device that the costs were measured on",
    ),
]
Bytes = Annotated[ByteCount, Meta(description="a number of bytes, or a size such as '38.1MB'")]
BytesPerSecond = Annotated[Rate, Meta(description="a number or a size, more than zero bytes a second")]
Table = Annotated[dict[str, Any], Meta(description="a table")]


Time = Annotated[float, Meta(ge=0, le=_MOST_SECONDS, description="seconds, zero or more")]


class Spread(Struct, forbid_unknown_fields=True):
    """Mean and standard deviation of a time, in seconds."""

    mean: Time
    std: Time = 0.0

    def __post_init__(self) -> None:
        if self.std and not self.mean:
            raise ValueError


Seconds = Annotated[
    Time | Spread,
    Meta(
        description="seconds, zero or more (at most 1e9), or { mean = seconds, std = seconds } with a mean above zero"
    ),
]


class PlanTable(Struct):
    """The whole file."""

    workload: Table
    machine: Table
    name: Text | None = None
    published: Table | None = None
    cluster: Table | None = None


class WorkloadTable(Struct):
    """``[workload]``: how many items, what one item and one pair cost."""

    n_items: Items
    compare: Seconds
    arity: Annotated[int, Meta(ge=2, le=3, description="2 or 3")] = 2
    n_left: Whole | None = None
    diagonal: Flag = False
    file_bytes: Bytes = ByteCount()
    item_bytes: Bytes = ByteCount()
    parse: Seconds = 0.0
    preprocess: Seconds = 0.0
    postprocess: Seconds = 0.0
    tile_seconds: Number = 0.0


class MachineTable(Struct):
    """``[machine]``: how much fits where, how fast bytes move."""

    host_slots: Slots | None = None
    host_cache: Bytes | None = None
    cpu_workers: Workers = 1
    storage_bytes_per_second: BytesPerSecond = Rate("inf")
    copy_bytes_per_second: BytesPerSecond = Rate("inf")
    disk_bytes_per_second: BytesPerSecond = Rate(1e9)
    devices: Annotated[list[Any], Meta(description="a list of tables, each begun by [[machine.devices]]")] = []


class DeviceTable(Struct):
    """``[[machine.devices]]``: one device."""

    slots: Slots | None = None
    cache: Bytes | None = None
    speed: Speed = 1.0


class PublishedTable(Struct):
    """``[published]``: measured figures."""

    source: Text
    load_factor: Number | None = None
    system_efficiency: Number | None = None
    seconds: Number | None = None
    caches: Annotated[list[Any], Meta(description="a list of tables, each begun by [[published.caches]]")] = []


class CacheTable(Struct):
    """``[[published.caches]]``: measured figures with another number of cache slots."""

    slots: Whole
    load_factor: Number | None = None
    system_efficiency: Number | None = None


class ClusterTable(Struct):
    """``[cluster]``: several nodes, each as ``[machine]``."""

    nodes: Annotated[list[Whole], Meta(min_length=1, description="a list of whole numbers, each 1 or more")]
    speeds: Annotated[list[Speed], Meta(description="a list of numbers above zero")] = []
    link_bytes_per_second: BytesPerSecond = Rate("inf")
    latency_seconds: Number = 1e-4
    without_homes: Flag = False
    hops: Annotated[int, Meta(ge=0, description="a whole number, 0 or more")] = 0
    each_alone: Flag = False
    published: Annotated[list[Any], Meta(description="a list of tables, each begun by [[cluster.published]]")] = []


class PublishedNodes(Struct):
    """``[[cluster.published]]``: measured figures for a number of nodes."""

    nodes: Whole
    homes: Flag = True
    hops: Annotated[int, Meta(ge=0, description="a whole number, 0 or more")] = 0
    storage_bytes_per_second: BytesPerSecond | None = None
    hop_shares: Annotated[list[str], Meta(description="a list of texts")] = []
    load_factor: Number | None = None
    system_efficiency: Number | None = None
    seconds: Number | None = None


AffinityName = Annotated[Affinity, Meta(description=f"one of {', '.join(AFFINITIES)}")]
PlacementName = Annotated[Place, Meta(description=f"one of {', '.join(get_args(Place))}")]
Affinities = Annotated[tuple[AffinityName, ...], Meta(min_length=1, description=f"a list of {', '.join(AFFINITIES)}")]
Placements = Annotated[
    tuple[PlacementName, ...], Meta(min_length=1, description=f"a list of {', '.join(get_args(Place))}")
]
ShareNumber = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]


class BlockPlanTable(Struct):
    """The whole file, where it describes block tasks."""

    blocks: Table
    name: Text | None = None


class BlocksTable(Struct):
    """``[blocks]``: nodes, and what is compared."""

    nodes: Annotated[tuple[Whole, ...], Meta(min_length=1, description="a list of whole numbers, each 1 or more")]
    computations: Annotated[list[Any], Meta(min_length=1, description="a list of tables, at least one")]
    affinities: Affinities = ("none", "auto")
    placements: Placements = ("random",)
    compare_at: Annotated[int, Meta(ge=0, description="a whole number, 0 or more")] = 0
    evaluate: Annotated[tuple[ShareNumber, ...], Meta(description="a list of numbers from 0 to 1")] = ()
    evaluate_with: Affinities = ("local", "auto")
    operations_per_second: Annotated[float, Meta(gt=0, le=_FINITE, description="a number above zero")] = 1e12
    lanes: Whole = 1
    link_bytes_per_second: BytesPerSecond = Rate("inf")
    storage_bytes_per_second: BytesPerSecond = Rate("inf")
    latency_seconds: Number = 1e-4
    steal: Annotated[Steal, Meta(description="difference or plain")] = "difference"
    published: Annotated[list[Any], Meta(description="a list of tables, each begun by [[blocks.published]]")] = []


class ComputationTable(Struct):
    """``[[blocks.computations]]``: one sequence of tasks."""

    name: Text
    kind: Annotated[Kind, Meta(description="product, lu or stencil")]
    blocks: Annotated[list[Whole], Meta(min_length=2, max_length=2, description="two whole numbers, each 1 or more")]
    side: Whole
    item_bytes: Bytes = ByteCount(4)
    halo: Whole = 1
    repeats: Whole = 1
    operations: Number = 1.0
    placements: Placements | None = None


class PublishedBlocksTable(Struct):
    """``[[blocks.published]]``: measured figures for one variant."""

    computation: Text
    nodes: Whole
    affinity: AffinityName
    placement: PlacementName = "random"
    evaluate: ShareNumber = 1.0
    moved_bytes: Bytes | None = None
    moved_share: Number | None = None
    time_share: Number | None = None
    slower: Annotated[float, Meta(le=_FINITE, description="a number")] | None = None


class SortPlanTable(Struct):
    """The whole file, where it describes a sort."""

    sort: Table
    name: Text | None = None


class SortTable(Struct):
    """``[sort]``: what is sorted, and the nodes."""

    n_bytes: Bytes
    nodes: Annotated[tuple[Whole, ...], Meta(min_length=1, description="a list of whole numbers, each 1 or more")]
    memory_bytes: Bytes
    record_bytes: Whole = 8
    value_bits: Annotated[float, Meta(gt=0, le=64, description="a number above zero, 64 or less")] | None = None
    storage_nodes: Annotated[int, Meta(ge=0, description="a whole number, 0 or more")] = 0
    disk_bytes_per_second: BytesPerSecond = Rate("inf")
    source_bytes_per_second: BytesPerSecond = Rate("inf")
    target_bytes_per_second: BytesPerSecond = Rate("inf")
    link_bytes_per_second: BytesPerSecond = Rate("inf")
    sort_bytes_per_second: BytesPerSecond = Rate(3e8)
    merge_bytes_per_second: BytesPerSecond = Rate(1e9)
    published: Annotated[list[Any], Meta(description="a list of tables, each begun by [[sort.published]]")] = []


class PublishedSortTable(Struct):
    """``[[sort.published]]``: measured figures for a number of nodes."""

    nodes: Whole
    storage_nodes: Annotated[int, Meta(ge=0, description="a whole number, 0 or more")] = 0
    seconds: Number | None = None
    moved_share: Number | None = None
    times_faster: Number | None = None


T = TypeVar("T", bound=Struct)


def read_plan(path: Path) -> Plan | BlockPlan | TriplePlan | NodeSortPlan:
    """Read a plan.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not TOML, or has an unknown, a missing or a wrong key; names file and key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", context={"file": str(path)}) from error
    return parse_plan(text, str(path))


def parse_plan(text: str, file: str = "plan") -> Plan | BlockPlan | TriplePlan | NodeSortPlan:
    """Read a plan from its text; ``file`` names it in messages."""
    return _PlanReader(file).plan(text)


class _PlanReader:
    """Turn the tables of one file into the arguments of a replay; errors name the file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def plan(self, text: str) -> Plan | BlockPlan | TriplePlan | NodeSortPlan:
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self._file}: this is not TOML: {error}", context={"file": self._file}) from error
        if "blocks" in data:
            return self._blocks(self._table(BlockPlanTable, data))
        if "sort" in data:
            return self._sort(self._table(SortPlanTable, data))
        top = self._table(PlanTable, data)
        work = self._table(WorkloadTable, top.workload, "workload")
        machine = self._read_machine(self._table(MachineTable, top.machine, "machine"), work.item_bytes)
        published = None if top.published is None else self._table(PublishedTable, top.published, "published")
        if work.n_left is not None and work.n_left >= work.n_items:
            raise self._wrong("workload.n_left", work.n_left, f"less than n_items ({work.n_items})")
        if work.n_left is not None and work.diagonal:
            raise self._wrong("workload.diagonal", True, "false where n_left is given: A x B has no diagonal")
        if work.arity == 3:
            return self._triples(top, work, machine)
        return Plan(
            name=Path(self._file).stem if top.name is None else top.name,
            costs=_costs(work),
            machine=machine,
            n_left=work.n_left,
            diagonal=work.diagonal,
            published=None if published is None else self._read_published(published),
            cluster=None if top.cluster is None else self._cluster(self._table(ClusterTable, top.cluster, "cluster")),
        )

    def _triples(self, top: PlanTable, work: WorkloadTable, machine: Machine) -> TriplePlan:
        """Return a plan of triples; refuse what these cannot have."""
        given = {"cluster": top.cluster, "published": top.published, "workload.n_left": work.n_left}
        for key, value in (given | {"workload.diagonal": work.diagonal or None}).items():
            if value is not None:
                raise self._wrong(key, value, "absent where workload.arity is 3")
        if work.n_items < LEAST_ITEMS:
            raise self._wrong("workload.n_items", work.n_items, "3 or more where workload.arity is 3")
        if machine.host_slots < LEAST_ITEMS:
            raise self._wrong("machine.host_slots", machine.host_slots, "3 or more where workload.arity is 3")
        if machine.device_slots != (None,):
            raise self._wrong("machine.devices", list(machine.device_slots), "absent: triples are compared on the CPU")
        return TriplePlan(Path(self._file).stem if top.name is None else top.name, _costs(work), machine)

    def _read_published(self, table: PublishedTable) -> Published:
        names = [f"published.caches[{number}]" for number in range(len(table.caches))]
        caches = [self._table(CacheTable, data, name) for name, data in zip(names, table.caches)]
        found = asdict(table)
        found["caches"] = tuple(PublishedCache(**asdict(one)) for one in caches)
        return Published(**found)

    def _sort(self, top: SortPlanTable) -> NodeSortPlan:
        table = self._table(SortTable, top.sort, "sort")
        if table.value_bits is not None and table.value_bits > 8 * table.record_bytes:
            raise self._wrong(
                "sort.value_bits", table.value_bits, f"at most the bits of a record ({8 * table.record_bytes})"
            )
        if table.value_bits is not None and table.record_bytes not in (4, 8):
            raise self._wrong("sort.value_bits", table.value_bits, "absent: records of 4 and 8 bytes alone are packed")
        known = [
            self._table(PublishedSortTable, *one) for one in self._number_entries(table.published, "sort.published")
        ]
        values: dict[str, Any] = asdict(table)
        values["published"] = tuple(PublishedSort(**asdict(one)) for one in known)
        return NodeSortPlan(name=Path(self._file).stem if top.name is None else top.name, **values)

    def _blocks(self, top: BlockPlanTable) -> BlockPlan:
        table = self._table(BlocksTable, top.blocks, "blocks")
        computations = [self._computation(*one) for one in enumerate(table.computations)]
        names = [one.name for one in computations]
        if len({*names}) < len(names):
            raise self._wrong("blocks.computations", names, "a list of tables with names that differ")
        known = [
            self._table(PublishedBlocksTable, *one) for one in self._number_entries(table.published, "blocks.published")
        ]
        values: dict[str, Any] = asdict(table)
        values["computations"] = tuple(computations)
        values["published"] = tuple(PublishedBlocks(**asdict(one)) for one in known)
        return BlockPlan(name=Path(self._file).stem if top.name is None else top.name, **values)

    def _computation(self, number: int, data: object) -> Computation:
        name = f"blocks.computations[{number}]"
        table = self._table(ComputationTable, data, name)
        if table.kind != "stencil" and table.blocks[0] != table.blocks[1]:
            raise self._wrong(f"{name}.blocks", table.blocks, f"two equal numbers where kind is {table.kind}")
        if table.kind == "stencil" and 2 * table.halo >= table.side:
            raise self._wrong(f"{name}.halo", table.halo, f"less than half of side ({table.side})")
        return Computation(**{**asdict(table), "blocks": tuple(table.blocks), "placements": table.placements or ()})

    def _number_entries(self, tables: list[Any], name: str) -> list[tuple[object, str]]:
        return [(data, f"{name}[{number}]") for number, data in enumerate(tables)]

    def _cluster(self, table: ClusterTable) -> ClusterPlan:
        names = [f"cluster.published[{number}]" for number in range(len(table.published))]
        known = [self._table(PublishedNodes, data, name) for name, data in zip(names, table.published)]
        return ClusterPlan(
            nodes=tuple(table.nodes),
            speeds=tuple(table.speeds) or (1.0,),
            link_bytes_per_second=table.link_bytes_per_second,
            latency_seconds=table.latency_seconds,
            without_homes=table.without_homes,
            hops=table.hops,
            each_alone=table.each_alone,
            published=tuple(_read_published_nodes(one) for one in known),
        )

    def _read_machine(self, table: MachineTable, item_bytes: float) -> Machine:
        host_slots = self._slots("machine.host_", table.host_slots, table.host_cache, item_bytes)
        if host_slots is None:
            raise self._make_missing_error("machine.host_slots (or host_cache)")
        names = [f"machine.devices[{number}]" for number in range(len(table.devices))]
        devices = [self._table(DeviceTable, data, name) for name, data in zip(names, table.devices)]
        slots = (self._slots(f"{n}.", d.slots, d.cache, item_bytes) for n, d in zip(names, devices))
        return Machine(
            host_slots=host_slots,
            device_slots=(*slots,) or (None,),
            device_speed=tuple(device.speed for device in devices),
            cpu_workers=table.cpu_workers,
            storage_bytes_per_second=table.storage_bytes_per_second,
            copy_bytes_per_second=table.copy_bytes_per_second,
            disk_bytes_per_second=table.disk_bytes_per_second,
        )

    def _slots(self, name: str, count: int | None, size: float | None, item_bytes: float) -> int | None:
        """Return the room of a level in items, given as such or as a size."""
        if size is None:
            return count
        if count is not None:
            raise self._wrong(f"{name}cache", size, f"absent where {name.rpartition('.')[2]}slots is given")
        if not item_bytes:
            raise self._wrong(f"{name}cache", size, "given as a number of slots, or workload.item_bytes must be given")
        if size // item_bytes < 2:
            raise self._wrong(f"{name}cache", size, f"room for 2 items of {item_bytes:,.0f} bytes or more")
        return int(min(size // item_bytes, MAX_ITEMS))

    def _table(self, kind: type[T], data: object, name: str = "") -> T:
        """Return a table whose keys are known, none missing, every value of its type."""
        prefix = f"{name}." if name else ""
        if not isinstance(data, dict):
            raise self._wrong(name, data, "a table")
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        for field in fields.values():
            if field.required and field.name not in data:
                raise self._make_missing_error(prefix + field.name)
        for key in data:
            if key not in fields:
                known = ", ".join(sorted(fields))
                raise self._error(prefix + key, f"{prefix}{key} is unknown; known here: {known}")
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{key: self._value(prefix + key, value, hints[key]) for key, value in data.items()})

    def _value(self, name: str, value: object, hint: Any) -> Any:
        try:
            return msgspec.convert(value, hint, dec_hook=_read_bytes)
        except msgspec.ValidationError as error:
            raise self._wrong(name, value, _description(hint)) from error

    def _make_missing_error(self, name: str) -> ConfigError:
        return self._error(name, f"{name} is missing")

    def _wrong(self, name: str, value: object, must_be: str) -> ConfigError:
        return self._error(name, f"{name} is {value!r}; it must be {must_be}")

    def _error(self, name: str, message: str) -> ConfigError:
        return ConfigError(f"{self._file}: {message}", context={"file": self._file, "key": name})


def _read_published_nodes(one: PublishedNodes) -> PublishedCluster:
    return PublishedCluster(**{**asdict(one), "hop_shares": tuple(one.hop_shares)})


def _description(hint: Any) -> str:
    """Return the description of a type, or of the type that may be None."""
    hints = (hint, *getattr(hint, "__args__", ()))
    metas: Iterator[Meta] = (meta for one in hints for meta in getattr(one, "__metadata__", ()))
    return next(meta.description for meta in metas if meta.description)


def _read_bytes(kind: type[ByteCount], value: object) -> ByteCount:
    """Read an amount for msgspec; raise ValueError if it is none."""
    amount = parse_bytes(value) if isinstance(value, str) else msgspec.convert(value, Number)
    if kind is Rate and amount == 0:
        raise ValueError
    return kind(amount)


def _costs(table: WorkloadTable) -> WorkloadCosts:
    return WorkloadCosts(
        n_items=table.n_items,
        file_bytes=table.file_bytes,
        item_bytes=table.item_bytes,
        parse=_cost(table.parse),
        preprocess=_cost(table.preprocess),
        compare=_cost(table.compare),
        postprocess=_cost(table.postprocess),
        tile_seconds=table.tile_seconds,
    )


def _cost(seconds: float | Spread) -> Cost:
    return Cost(seconds.mean, seconds.std) if isinstance(seconds, Spread) else Cost(seconds)
