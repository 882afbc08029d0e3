"""Reads a plan from TOML and says plainly what is wrong with it. docs/plan.md describes the format."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tartan.core.replay import Cost, Machine, WorkloadCosts
from tartan.errors import ConfigError
from tartan.options import parse_size
from tartan.plan.report import Plan, Published

__all__ = ["parse_plan", "read_plan"]

T = TypeVar("T")
_ABSENT: Any = object()


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises
    ------
    ConfigError
        If the file cannot be read, is no TOML, or has an unknown, a missing or a wrong key; names file and key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", context={"file": str(path)}) from error
    return parse_plan(text, str(path))


def parse_plan(text: str, file: str = "plan") -> Plan:
    """Read a plan from its text; ``file`` names it in messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: this is no TOML: {error}", context={"file": file}) from error
    top = _Table(data, file, "")
    name = top.get("name", _text, Path(file).stem)
    workload, machine = top.table("workload"), top.table("machine")
    published = top.table("published", required=False)
    top.finish()
    costs, left, diagonal = _workload(workload)
    return Plan(name, costs, _machine(machine, costs.item_bytes), left, diagonal, _published(published))


def _workload(table: _Table) -> tuple[WorkloadCosts, int | None, bool]:
    n_items = table.get("n_items", _whole(1))
    n_left = table.get("n_left", _whole(1), None)
    diagonal = table.get("diagonal", _truth, False)
    costs = WorkloadCosts(
        n_items=n_items,
        file_bytes=table.get("file_bytes", _bytes, 0.0),
        item_bytes=table.get("item_bytes", _bytes, 0.0),
        parse=table.get("parse", _cost, Cost(0.0)),
        preprocess=table.get("preprocess", _cost, Cost(0.0)),
        compare=table.get("compare", _cost),
        postprocess=table.get("postprocess", _cost, Cost(0.0)),
        tile_seconds=table.get("tile_seconds", _number, 0.0),
    )
    if n_left is not None and n_left >= n_items:
        raise table.wrong("n_left", n_left, f"less than n_items ({n_items})")
    if n_left is not None and diagonal:
        raise table.wrong("diagonal", True, "false where n_left is given: A x B has no diagonal")
    table.finish()
    return costs, n_left, diagonal


def _machine(table: _Table, item_bytes: float) -> Machine:
    host_slots = _slots(table, "host_slots", "host_cache", item_bytes)
    if host_slots is None:
        raise table.missing("host_slots (or host_cache)")
    devices = table.tables("devices")
    slots = tuple(_slots(device, "slots", "cache", item_bytes) for device in devices)
    speeds = tuple(device.get("speed", _speed, 1.0) for device in devices)
    machine = Machine(
        host_slots=host_slots,
        device_slots=slots or (None,),
        device_speed=speeds,
        cpu_workers=table.get("cpu_workers", _whole(1), 1),
        storage_bytes_per_second=table.get("storage_bytes_per_second", _rate, math.inf),
        copy_bytes_per_second=table.get("copy_bytes_per_second", _rate, math.inf),
        disk_bytes_per_second=table.get("disk_bytes_per_second", _rate, 1e9),
    )
    for finished in (table, *devices):
        finished.finish()
    return machine


def _published(table: _Table | None) -> Published | None:
    if table is None:
        return None
    published = Published(
        source=table.get("source", _text),
        load_factor=table.get("load_factor", _number, None),
        system_efficiency=table.get("system_efficiency", _number, None),
        seconds=table.get("seconds", _number, None),
    )
    table.finish()
    return published


def _slots(table: _Table, slots: str, cache: str, item_bytes: float) -> int | None:
    """Return the room of a level in items: given as such, or as a size."""
    count: int | None = table.get(slots, _whole(1), None)
    size = table.get(cache, _bytes, None)
    if size is None:
        return count
    if count is not None:
        raise table.wrong(cache, size, f"absent where {slots} is given")
    if not item_bytes:
        raise table.wrong(cache, size, f"given as {slots}, or workload.item_bytes must be given")
    return int(size // item_bytes)


class _Table:
    """A TOML table that remembers where it is and which of its keys were asked for."""

    def __init__(self, data: dict[str, Any], file: str, name: str) -> None:
        self._data = data
        self._file = file
        self._name = name
        self._known: set[str] = set()

    def get(self, key: str, read: Callable[[Any], T], default: Any = _ABSENT) -> Any:
        """Return a value; ``read`` turns it into what it is, or raises ValueError saying what it must be."""
        self._known.add(key)
        if key not in self._data:
            if default is _ABSENT:
                raise self.missing(key)
            return default
        try:
            return read(self._data[key])
        except ValueError as error:
            raise self.wrong(key, self._data[key], str(error)) from error

    def table(self, key: str, *, required: bool = True) -> Any:
        """Return a table inside this one."""
        if not required and key not in self._data:
            self._known.add(key)
            return None
        return _Table(self.get(key, _dictionary), self._file, self._path(key))

    def tables(self, key: str) -> list[_Table]:
        """Return a list of tables inside this one; empty when absent."""
        listed = self.get(key, _dictionaries, [])
        return [_Table(entry, self._file, f"{self._path(key)}[{number}]") for number, entry in enumerate(listed)]

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self._data:
            if key not in self._known:
                known = ", ".join(sorted(self._known))
                raise self._error(key, f"{self._file}: {self._path(key)} is unknown; known here: {known}")

    def missing(self, key: str) -> ConfigError:
        return self._error(key, f"{self._file}: {self._path(key)} is missing")

    def wrong(self, key: str, value: object, must_be: str) -> ConfigError:
        return self._error(key, f"{self._file}: {self._path(key)} is {value!r}; it must be {must_be}")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def _error(self, key: str, message: str) -> ConfigError:
        return ConfigError(message, context={"file": self._file, "key": self._path(key)})


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("a number, zero or more")
    return float(value)


def _speed(value: Any) -> float:
    if _number(value) == 0:
        raise ValueError("a number above zero: 1 is the device that the costs were measured on")
    return float(value)


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number, {least} or more")
        return value

    return read


def _bytes(value: Any) -> float:
    if isinstance(value, str):
        try:
            size = parse_size(value)
        except ConfigError as error:
            raise ValueError("a number of bytes or a size such as '38.1MB'") from error
        if size.in_items:
            raise ValueError("a size in bytes")
        return float(size.amount)
    return _number(value)


def _rate(value: Any) -> float:
    if _bytes(value) == 0:
        raise ValueError("more than zero bytes a second")
    return _bytes(value)


def _cost(value: Any) -> Cost:
    """Read seconds: a number, or a table with mean and std."""
    if not isinstance(value, dict):
        return Cost(_seconds(value))
    if unknown := set(value) - {"mean", "std"}:
        raise ValueError(f"seconds, or {{ mean = seconds, std = seconds }} without {sorted(unknown)[0]}")
    if "mean" not in value:
        raise ValueError("seconds, or { mean = seconds, std = seconds }; mean is missing")
    cost = Cost(_seconds(value["mean"]), _seconds(value.get("std", 0)))
    if cost.std and not cost.mean:
        raise ValueError("a mean above zero where there is a std")
    return cost


def _seconds(value: Any) -> float:
    try:
        return _number(value)
    except ValueError as error:
        raise ValueError("seconds, zero or more, or { mean = seconds, std = seconds }") from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _dictionary(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table")
    return value


def _dictionaries(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("a list of tables, each begun by [[machine.devices]]")
    return value
