"""What workers do: small module-level functions that an executor calls with its context.

Arguments are small and picklable: addresses and shapes, never contents (but for items that are Python objects).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tartan.application import compares_pairs
from tartan.runtime.codec import decode, encode, encoded_parts, nbytes_of
from tartan.runtime.compare import PairFailure, TileMask, compare_block, compare_pairs, merge_mirrored, score_tile
from tartan.runtime.host import HOST_ARENA, HostItems, Place, UniformItems
from tartan.runtime.items import ItemFailure, ItemForm, check_rows, parse_item, prepare_item, prepare_rows
from tartan.workers.arena import Arena
from tartan.workers.executor import WorkerContext

__all__ = ["Loaded", "TileTask", "compare_tile", "load_items", "load_rows", "share_substitute"]

CHUNK_ARENA = "chunks"
SUBSTITUTE_ARENA = "substitute"


class When(NamedTuple):
    """Which worker did something, and from when to when (``time.perf_counter_ns``, one clock for all processes)."""

    worker: str
    start_ns: int
    end_ns: int

    @classmethod
    def since(cls, start_ns: int) -> When:
        thread = threading.current_thread()
        name = f"worker {os.getpid()}" if thread is threading.main_thread() else f"{thread.name}-{thread.native_id}"
        return cls(name, start_ns, time.perf_counter_ns())

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Loaded(NamedTuple):
    """What a load did: bytes of the place, failures by position, seconds."""

    n_bytes: int
    failures: dict[int, ItemFailure]
    parse_seconds: float
    preprocess_seconds: float
    when: When


@dataclass(frozen=True)
class LoadTask:
    """How items are to be loaded.

    Attributes
    ----------
    items : HostItems
        Where they go.
    parsed : ItemForm or None
        Form of parsed items that are kept for a device to preprocess; None: preprocess here.
    substitute : ndarray or object
        A good item that takes the place of failed ones, so that compare never sees rubbish. It may be large, so it
        does not travel with each task: worker processes find it in an arena of its own (``share_substitute``).
    """

    items: HostItems
    parsed: ItemForm | None
    form: ItemForm | None
    substitute: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "substitute": None}


def share_substitute(substitute: Any) -> Arena:
    """Return a shared arena with the item that takes the place of failed ones."""
    parts, n_bytes = encoded_parts(substitute)
    arena = Arena(n_bytes, shared=True)
    encode(parts, arena.view(0, (n_bytes,), np.uint8))
    return arena


def _substitute(context: WorkerContext, task: LoadTask) -> Any:
    arena = context.arenas.get(SUBSTITUTE_ARENA)
    if arena is None:
        return task.substitute
    if SUBSTITUTE_ARENA not in context.state:
        context.state[SUBSTITUTE_ARENA] = decode(arena.view(0, (arena.n_bytes,), np.uint8))
    return context.state[SUBSTITUTE_ARENA]


def load_items(
    context: WorkerContext, task: LoadTask, place: Place, keys: Sequence[str], payloads: Sequence[Any]
) -> Loaded:
    """Parse (and preprocess) consecutive items, one at a time, and store them."""
    app, failures, ready = context.application, {}, []
    begin_ns = time.perf_counter_ns()
    parse_seconds = preprocess_seconds = 0.0
    for position, (key, payload) in enumerate(zip(keys, payloads, strict=True)):
        start = time.perf_counter()
        item = payload if isinstance(payload, ItemFailure) else parse_item(app, key, payload)
        parsed_at = time.perf_counter()
        parse_seconds += parsed_at - start
        if task.parsed is None and not isinstance(item, ItemFailure):
            item = prepare_item(app, key, item, np, task.form is not None)
            preprocess_seconds += time.perf_counter() - parsed_at
        item = _checked(item, task.parsed or task.form, key, task.parsed is not None)
        if isinstance(item, ItemFailure):
            failures[position] = item
            item = _substitute(context, task)
        ready.append(item)
    n_bytes = _store(context, task, place, ready)
    return Loaded(n_bytes, failures, parse_seconds, preprocess_seconds, When.since(begin_ns))


def _checked(item: Any, form: ItemForm | None, key: str, parsed: bool) -> Any:
    if isinstance(item, ItemFailure) or form is None:
        return item
    item = item if isinstance(item, np.ndarray) else np.asarray(item)
    mismatch = form.mismatch(item)
    if mismatch is None:
        return item
    return ItemFailure("parse" if parsed else "preprocess", f"{key}: {mismatch}")


def _store(context: WorkerContext, task: LoadTask, place: Place, ready: Sequence[Any]) -> int:
    if task.parsed is None:
        return task.items.store(context.arenas, place, ready)
    assert isinstance(task.items, UniformItems)
    block = parsed_block(context.arenas, task, place)
    for slot, item in enumerate(ready):
        block[slot] = item
    return int(block.nbytes)


def parsed_block(arenas: dict[str, Arena], task: LoadTask, place: Place) -> np.ndarray:
    """Return the memory of a place as parsed items: they wait where the ready ones will lie."""
    assert task.parsed is not None
    assert isinstance(task.items, UniformItems)
    offset = place.address * task.items.form.nbytes
    return arenas[HOST_ARENA].view(offset, (place.length, *task.parsed.shape), task.parsed.dtype)


def load_rows(context: WorkerContext, task: LoadTask, place: Place, keys: Sequence[str], payload: Any) -> Loaded:
    """Check (and preprocess) a block of rows at once and store it."""
    begin_ns = time.perf_counter_ns()
    app, rows = context.application, np.asarray(payload)
    assert isinstance(task.items, UniformItems)
    failures = check_rows(app, rows, keys)
    if task.parsed is None:
        block = task.items.block(context.arenas, place.address, place.length)
        block[...] = prepare_rows(app, rows, np)
    else:
        block = parsed_block(context.arenas, task, place)
        block[...] = rows
    for row in failures:
        block[row] = _substitute(context, task)
    when = When.since(begin_ns)
    return Loaded(int(block.nbytes), failures, 0.0, when.seconds, when)


@dataclass(frozen=True)
class TileTask:
    """One compare call.

    Attributes
    ----------
    rows, columns : sequences of Place
        Consecutive places of the items.
    row_part, column_part : slice
        The part of these items to compare (a tile may start inside a span after a split).
    outputs : dict of str to (offset, dtype)
        Where in the chunk arena the buffers of the chunk begin.
    status_offset : int
    side : int
        Row length of the chunk's buffers.
    mirrored : dict of str to (offset, dtype) or None
        Likewise for the scores of (column, row), where the application is not symmetric.
    origin : (int, int)
        Position of the tile in the chunk.
    """

    items: HostItems
    rows: Sequence[Place]
    columns: Sequence[Place]
    row_part: slice
    column_part: slice
    outputs: dict[str, tuple[int, str]]
    mirrored: dict[str, tuple[int, str]] | None
    status_offset: int
    side: int
    origin: tuple[int, int]
    mask: TileMask


class Compared(NamedTuple):
    """What a compare call did: failed pairs, and when."""

    failures: list[PairFailure]
    when: When


def compare_tile(context: WorkerContext, task: TileTask) -> Compared:
    """Compare a tile and write its scores into the buffers of its chunk."""
    begin_ns = time.perf_counter_ns()
    host = context.state.setdefault("host", {}).setdefault(type(task.items), task.items)
    left = host.operand(context.arenas, task.rows)[task.row_part]
    right = host.operand(context.arenas, task.columns)[task.column_part]
    r, c = task.origin
    window = (slice(r, r + len(left)), slice(c, c + len(right)))
    buffers = chunk_views(context.arenas[CHUNK_ARENA], task.outputs, task.side)
    status = context.arenas[CHUNK_ARENA].view(task.status_offset, (task.side, task.side), np.uint8)
    dtypes = {name: np.dtype(dtype) for name, (_, dtype) in task.outputs.items()}
    out = {name: block[window] for name, block in buffers.items()}
    app = context.application
    failures = score_tile(app, left, right, np, dtypes, task.mask, out, status[window])
    if task.mirrored is not None:
        turned = TileMask(
            None if task.mask.wanted is None else task.mask.wanted.T, task.mask.failed_columns, task.mask.failed_rows
        )
        mirrored = chunk_views(context.arenas[CHUNK_ARENA], task.mirrored, task.side)
        back = {name: block[window[::-1]] for name, block in mirrored.items()}
        more = score_tile(app, right, left, np, dtypes, turned, back, status[window].T, mirrored=True)
        failures = merge_mirrored(failures, more, status[window])
    return Compared(failures, When.since(begin_ns))


def chunk_views(arena: Any, outputs: dict[str, tuple[int, str]], side: int) -> dict[str, np.ndarray]:
    """Return the buffers of a chunk, by output."""
    return {name: arena.view(offset, (side, side), dtype) for name, (offset, dtype) in outputs.items()}


class Probe(NamedTuple):
    """What one item of a run turned out to be.

    Attributes
    ----------
    parsed, ready : ItemForm or None
        None for anything that is no array.
    n_bytes : int
        Of the ready item.
    seconds : float
        Of parse and preprocess.
    item, parsed_item : object
        The item itself.
    position : int
        Which one it is.
    """

    parsed: ItemForm | None
    ready: ItemForm | None
    n_bytes: int
    parse_seconds: float
    preprocess_seconds: float
    item: Any
    parsed_item: Any
    position: int = 0


def probe_item(context: WorkerContext, key: str, payload: Any) -> Probe | ItemFailure:
    """Load one item to see what it is."""
    app = context.application
    start = time.perf_counter()
    parsed = payload if isinstance(payload, ItemFailure) else parse_item(app, key, payload)
    between = time.perf_counter()
    if isinstance(parsed, ItemFailure):
        return parsed
    ready = prepare_item(app, key, parsed, np, False)
    end = time.perf_counter()
    if isinstance(ready, ItemFailure):
        return ready
    if not compares_pairs(app):  # a function of two numbers gets them as they are, not as NumPy's
        parsed, ready = _plain_array(parsed), _plain_array(ready)
    return Probe(
        ItemForm.of(parsed) if isinstance(parsed, np.ndarray) else None,
        ItemForm.of(ready) if isinstance(ready, np.ndarray) else None,
        nbytes_of(ready),
        between - start,
        end - between,
        ready,
        parsed,
    )


def _plain_array(item: Any) -> Any:
    """Take numbers for arrays of no dimension; leave everything else."""
    if isinstance(item, bool | int | float | complex | np.generic):
        return np.asarray(item)
    return item


def probe_rows(context: WorkerContext, keys: Sequence[str], rows: np.ndarray) -> Probe | ItemFailure:
    """Prepare a few rows to see what they become."""
    app = context.application
    failures = check_rows(app, rows, keys)
    good = [row for row in range(len(rows)) if row not in failures]
    if not good:
        return next(iter(failures.values()))
    start = time.perf_counter()
    ready = np.asarray(prepare_rows(app, rows[good], np))
    seconds = (time.perf_counter() - start) / len(good)
    return Probe(
        ItemForm(rows.dtype, rows.shape[1:]),
        ItemForm(ready.dtype, ready.shape[1:]),
        int(ready[0].nbytes),
        0.0,
        seconds,
        ready[0].copy(),
        rows[good[0]].copy(),
    )


PROBE_SIDES = (1, 1, 2, 4, 8, 16, 64)
PROBE_SECONDS = 0.25
PROBE_BYTES = 64 << 20


def probe_compare(context: WorkerContext, item: Any, uniform: bool, dtypes: dict[str, str]) -> float:
    """Return the seconds that one more pair costs, measured on copies of one item.

    Calls grow until they take long enough to tell the cost of a pair from that of a call. The first call of anything is
    slow, so it is made twice.
    """
    shortest, seconds, measured = float("inf"), 0.0, 1
    start = time.perf_counter()
    for side in PROBE_SIDES:
        if side > 1 and side * nbytes_of(item) > PROBE_BYTES:
            break
        seconds = _time_compare(context.application, item, uniform, dtypes, side)
        if side == 1:
            shortest = seconds = min(shortest, seconds)
        measured = side
        if time.perf_counter() - start > PROBE_SECONDS:
            break
    return seconds if measured == 1 else max(0.0, seconds - shortest) / (measured**2 - 1)


def _time_compare(app: Any, item: Any, uniform: bool, dtypes: dict[str, str], side: int) -> float:
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    block = np.stack([item] * side) if uniform else [item] * side
    start = time.perf_counter()
    if hasattr(app, "compare_pair"):
        compare_pairs(app, block, block, kinds, 1)
    else:
        compare_block(app, block, block, np, kinds, None)
    return time.perf_counter() - start
