"""Where loaded items lie in host memory, as seen by a worker: from addresses to the operands of compare.

``UniformItems`` are slots of one form in an arena: consecutive slots are one array, without a copy. ``RaggedBlobs`` are
encoded spans in a shared arena (worker processes); ``RaggedObjects`` are the items themselves (threads).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from tartan.core.memory import REMEMBERED_BYTES
from tartan.errors import ResourceError
from tartan.runtime.codec import decode, encode, encode_parts, nbytes_of, object_bytes
from tartan.runtime.items import ItemForm
from tartan.runtime.writable import read_only
from tartan.workers.arena import Arena

HOST_ARENA = "host"
# By judgement: as REMEMBERED_BYTES, of small items. No benchmark.
REMEMBERED_SPANS = 64


class Place(NamedTuple):
    """Where a span lies.

    Attributes
    ----------
    span : int
    address : int
        Its first slot, or its window.
    length : int
        Number of items.
    serial : int
        Changes with every fill.
    first : int
        Index of its first item.
    begin : int
        Items of the span that lie before it, where it is a part of one.
    """

    span: int
    address: int
    length: int
    serial: int
    first: int
    begin: int = 0

    def part(self, begin: int, end: int) -> Place:
        """Return the place of some items of a span."""
        return self._replace(
            address=self.address + begin, length=end - begin, first=self.first + begin, begin=self.begin + begin
        )


class HostItems(Protocol):
    """Items in host memory; picklable, so that it can travel to workers, which bring their own arenas."""

    def operand(self, arenas: dict[str, Arena], places: Sequence[Place]) -> Any:
        """Return the items of consecutive places as compare wants them: an array, or a list."""

    def store(self, arenas: dict[str, Arena], place: Place, items: Sequence[Any]) -> int:
        """Fill a place; return the bytes it takes."""


@dataclass(frozen=True)
class UniformItems:
    """Slots of one form, one behind the other."""

    form: ItemForm

    def block(self, arenas: dict[str, Arena], address: int, count: int) -> np.ndarray:
        """Return slots as one array (count, *shape)."""
        return arenas[HOST_ARENA].view(address * self.form.nbytes, (count, *self.form.shape), self.form.dtype)

    def operand(self, arenas: dict[str, Arena], places: Sequence[Place]) -> np.ndarray:
        runs = [[places[0].address, places[0].length]]
        for place in places[1:]:
            if runs[-1][0] + runs[-1][1] == place.address:
                runs[-1][1] += place.length
            else:
                runs.append([place.address, place.length])
        blocks = [self.block(arenas, address, count) for address, count in runs]
        # Strips lie whole in panel order; other orders gather.
        operand = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        operand.flags.writeable = False
        return operand

    def store(self, arenas: dict[str, Arena], place: Place, items: Sequence[Any]) -> int:
        block = self.block(arenas, place.address, place.length)
        for slot, item in enumerate(items):
            block[slot] = item
        return int(block.nbytes)


@dataclass
class RaggedObjects:
    """Items of unequal size, held as they are, by address: for workers that are threads."""

    spans: dict[int, list[Any]] = field(default_factory=dict)

    def operand(self, arenas: dict[str, Arena], places: Sequence[Place]) -> list[Any]:
        return [item for place in places for item in self.spans[place.address]]

    def store(self, arenas: dict[str, Arena], place: Place, items: Sequence[Any]) -> int:
        self.spans[place.address] = [read_only(item) for item in items]
        return sum(nbytes_of(item) for item in items)


@dataclass
class RaggedBlobs:
    """Encoded spans in a shared, sparse arena: for workers that are processes.

    Attributes
    ----------
    window_bytes : int
        Address space of one span. Only pages that are written take memory.
    remembered_bytes : int
        How much of decoded spans each process keeps beside the arena: objects, not the arrays, which are views.
    """

    window_bytes: int
    remembered_bytes: int = REMEMBERED_BYTES
    _decoded: OrderedDict[tuple[int, int], tuple[list[Any], int]] = field(default_factory=OrderedDict, repr=False)
    _held_bytes: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return RaggedBlobs, (self.window_bytes, self.remembered_bytes)

    def _memory(self, arenas: dict[str, Arena], place: Place) -> np.ndarray:
        return arenas[HOST_ARENA].view(place.address * self.window_bytes, (self.window_bytes,), np.uint8)

    def operand(self, arenas: dict[str, Arena], places: Sequence[Place]) -> list[Any]:
        return [item for place in places for item in self._items(arenas, place)]

    def _items(self, arenas: dict[str, Arena], place: Place) -> list[Any]:
        key = (place.span, place.serial)
        with self._lock:
            found = self._decoded.pop(key, None)
            if found is None:
                memory = self._memory(arenas, place)
                found = decode(memory), object_bytes(memory)
                self._held_bytes += found[1]
            self._decoded[key] = found
            while len(self._decoded) > REMEMBERED_SPANS or (
                self._held_bytes > self.remembered_bytes and len(self._decoded) > 1
            ):
                _, (_, n_bytes) = self._decoded.popitem(last=False)
                self._held_bytes -= n_bytes
        return found[0]

    def store(self, arenas: dict[str, Arena], place: Place, items: Sequence[Any]) -> int:
        parts, n_bytes = encode_parts(list(items))
        if n_bytes > self.window_bytes:
            raise ResourceError(
                f"{place.length} items take {n_bytes:,} bytes, far more than the first ones did "
                f"({self.window_bytes:,} bytes of room); put one of the largest items first",
                code="host-memory",
            )
        encode(parts, self._memory(arenas, place))
        return n_bytes
