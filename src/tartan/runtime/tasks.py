"""What workers do with items: small module-level functions that an executor calls with its context.

Arguments are small and picklable: addresses and shapes, never contents (but for items that are Python objects).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tartan.application import compares_pairs, compares_singly
from tartan.base.checksum import checksum_of_bytes
from tartan.core.pairs.ledger import DONE
from tartan.errors import ItemError
from tartan.runtime.codec import decode, encode, encode_parts, nbytes_of
from tartan.runtime.compare import (
    compare_block,
    compare_cells,
    score_one,
)
from tartan.runtime.host import HOST_ARENA, HostItems, Place, UniformItems
from tartan.runtime.items import (
    ItemFailure,
    ItemForm,
    ParsedItem,
    check_rows,
    parse_item,
    prepare_item,
    prepare_rows,
    ready_item,
)
from tartan.runtime.writable import read_only, writable
from tartan.sources.files import ListedFile
from tartan.workers.arena import Arena
from tartan.workers.executor import WorkerContext
from tartan.workers.worker import When

SUBSTITUTE_ARENA = "substitute"


@dataclass
class Reads:
    """What a worker has read of the files it was given: their checksums by position, bytes, seconds."""

    sums: dict[int, int] = field(default_factory=dict)
    n_bytes: int = 0
    seconds: float = 0.0

    def content(self, position: int, payload: Any) -> Any:
        """Return what was read of a file, or why it cannot be; anything else as it is."""
        if not isinstance(payload, ListedFile):
            return payload
        start = time.perf_counter()
        try:
            data = payload.read()
        except ItemError as error:
            return ItemFailure("read", str(error))
        self.sums[position] = checksum_of_bytes(data)
        self.n_bytes += len(data)
        self.seconds += time.perf_counter() - start
        return data


class ParsedBatch(NamedTuple):
    """What parsing a batch did: bytes of its place, failures by position, seconds, what was read before."""

    n_bytes: int
    failures: dict[int, ItemFailure]
    parse_seconds: float
    preprocess_seconds: float
    when: When
    reads: Reads


@dataclass(frozen=True)
class ItemPlan:
    """How items lie in host memory, and in which form.

    Attributes
    ----------
    items : HostItems
        Where they go.
    parsed : ItemForm or None
        Form of parsed items that are kept for a device to preprocess; None: preprocess here.
    form : ItemForm or None
        Form of ready items; None where they differ.
    substitute : ndarray or object
        A good item that takes the place of failed ones, so that compare never sees rubbish.
    compact : bool
        Whether ready items have the form of ``Application.compact_form``, which devices alone can write.
    ready_substitute : ndarray or object
        The same item, ready to compare: what takes the place of failed ones on a device.
    item_seconds : float
        Expected time to load one item.
    """

    items: HostItems
    parsed: ItemForm | None
    form: ItemForm | None
    substitute: Any
    compact: bool = False
    ready_substitute: Any = None
    item_seconds: float = 0.0

    def store(self, arenas: dict[str, Arena], place: Place, items: Sequence[Any]) -> int:
        """Fill a place with parsed items; return the bytes it takes."""
        block = self.block(arenas, place)
        for slot, item in enumerate(items):
            block[slot] = item
        return int(block.nbytes)

    def block(self, arenas: dict[str, Arena], place: Place, *, ready: bool = False) -> np.ndarray:
        """Return the memory of a place of uniform items: parsed spans wait where the ready ones will lie."""
        assert isinstance(self.items, UniformItems)
        if ready or self.parsed is None:
            return self.items.block(arenas, place.address, place.length)
        offset = (place.address - place.begin) * self.items.form.nbytes + place.begin * self.parsed.nbytes
        return arenas[HOST_ARENA].view(offset, (place.length, *self.parsed.shape), self.parsed.dtype)

    def without_substitute(self) -> ItemPlan:
        """Return what travels to worker processes; they find the substitute in an arena of its own."""
        return replace(self, substitute=None, ready_substitute=None)


def share_substitute(substitute: Any) -> Arena:
    """Return a shared arena with the item that takes the place of failed ones: it may be too large for every call."""
    parts, n_bytes = encode_parts(substitute)
    arena = Arena(n_bytes, shared=True)
    encode(parts, arena.view(0, (n_bytes,), np.uint8))
    return arena


def _substitute(context: WorkerContext, plan: ItemPlan) -> Any:
    arena = context.arenas.get(SUBSTITUTE_ARENA)
    if arena is None:
        return plan.substitute
    if SUBSTITUTE_ARENA not in context.state:
        context.state[SUBSTITUTE_ARENA] = decode(arena.view(0, (arena.n_bytes,), np.uint8))
    return context.state[SUBSTITUTE_ARENA]


def _hand_over(context: WorkerContext, payload: Any) -> Any:
    """Return what was read as the application gets it: nothing that it writes reaches the program that gave it."""
    if isinstance(payload, ParsedItem):  # it came from elsewhere in read-only memory, and is nobody else's
        return ParsedItem(writable(payload.item))
    if context.application.writable_items:
        return writable(payload)
    return read_only(payload) if context.shares_arguments else payload


def parse_batch(
    context: WorkerContext, plan: ItemPlan, place: Place, keys: Sequence[str], payloads: Sequence[Any]
) -> ParsedBatch:
    """Read (where that is left to workers), parse (and preprocess) consecutive items one at a time, and store them."""
    begin_ns = time.perf_counter_ns()
    failures: dict[int, ItemFailure] = {}
    reads = Reads()
    ready, parse_seconds, preprocess_seconds = [], 0.0, 0.0
    for position, (key, payload) in enumerate(zip(keys, payloads, strict=True)):
        data = _hand_over(context, reads.content(position, payload))
        item, parsing, preparing = ready_item(context.application, key, data, plan.form, plan.parsed)
        parse_seconds += parsing
        preprocess_seconds += preparing
        if isinstance(item, ItemFailure):
            failures[position] = item
            item = _substitute(context, plan)
        ready.append(item)
    n_bytes = (plan.items if plan.parsed is None else plan).store(context.arenas, place, ready)
    when = When.since(begin_ns)
    return ParsedBatch(n_bytes, failures, parse_seconds, preprocess_seconds, when, reads)


def parse_rows(context: WorkerContext, plan: ItemPlan, place: Place, keys: Sequence[str], payload: Any) -> ParsedBatch:
    """Check (and preprocess) a block of rows at once and store it."""
    begin_ns = time.perf_counter_ns()
    app, rows = context.application, _hand_over(context, np.asarray(payload))
    failures = check_rows(app, rows, keys)
    block = plan.block(context.arenas, place)
    block[...] = rows if plan.parsed is not None else prepare_rows(app, rows, np)
    for row in failures:
        block[row] = _substitute(context, plan)
    when = When.since(begin_ns)
    return ParsedBatch(int(block.nbytes), failures, 0.0, when.seconds, when, Reads())


class ParsedSpan(NamedTuple):
    """Items as they travel to another rank: bytes, how many failed, seconds."""

    data: bytes
    n_failed: int
    parse_seconds: float
    preprocess_seconds: float


def parse_for_transit(
    context: WorkerContext,
    form: ItemForm | None,
    parsed_form: ItemForm | None,
    keys: Sequence[str],
    payloads: Sequence[Any],
) -> ParsedSpan:
    """Parse (and preprocess) items for another rank; where one fails there are no bytes."""
    items, parse_seconds, preprocess_seconds = [], 0.0, 0.0
    for key, payload in zip(keys, payloads, strict=True):
        data = _hand_over(context, payload)
        item, parsing, preparing = ready_item(context.application, key, data, form, parsed_form)
        parse_seconds += parsing
        preprocess_seconds += preparing
        items.append(item)
    return _span_of(items, form is not None, parse_seconds, preprocess_seconds)


def parse_alone(context: WorkerContext, keys: Sequence[str], payloads: Sequence[Any]) -> ParsedSpan:
    """Parse items that another rank preprocesses, each in whatever form it has; where one fails there are no bytes."""
    start = time.perf_counter()
    items = [
        parse_item(context.application, key, _hand_over(context, payload))
        for key, payload in zip(keys, payloads, strict=True)
    ]
    return _span_of(items, False, time.perf_counter() - start, 0.0)


def _span_of(items: list[Any], uniform: bool, parse_seconds: float, preprocess_seconds: float) -> ParsedSpan:
    n_failed = sum(isinstance(item, ItemFailure) for item in items)
    data = b"" if n_failed else _make_portable(items, uniform=uniform)
    return ParsedSpan(data, n_failed, parse_seconds, preprocess_seconds)


def _make_portable(items: list[Any], *, uniform: bool) -> bytes:
    if uniform:
        return np.stack(items).tobytes()
    parts, n_bytes = encode_parts(items)
    memory = np.zeros(n_bytes, np.uint8)
    encode(parts, memory)
    return memory.tobytes()


class Probe(NamedTuple):
    """What one item of a run turned out to be.

    Attributes
    ----------
    parsed, ready : ItemForm or None
        None for anything that is not an array.
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
    payload = Reads().content(0, payload)
    parsed = parse_item(app, key, _hand_over(context, payload))
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
    app, rows = context.application, _hand_over(context, rows)
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


def try_cell(context: WorkerContext, items: Sequence[Any], uniform: bool, dtypes: dict[str, str]) -> bool:
    """Compare two or three items; return whether that gives scores."""
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    return score_one(context.application, _groups_of_one(items, uniform), kinds) is not None


def _groups_of_one(items: Sequence[Any], uniform: bool) -> list[Any]:
    return [np.stack([item]) if uniform else [item] for item in items]


class BothWays(NamedTuple):
    """The two scores of each output of a pair, none where a comparison failed; the seconds that it took."""

    scores: dict[str, tuple[Any, Any]]
    seconds: float


def score_both_ways(
    context: WorkerContext, left: Any, right: Any, uniform: bool, dtypes: dict[str, str], most_seconds: float
) -> BothWays:
    """Compare two items one way, and the other if the first took no longer than it may."""
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    found: list[dict[str, np.ndarray]] = []
    start = time.perf_counter()
    for pair in ((left, right), (right, left)):
        if found and time.perf_counter() - start > most_seconds:
            return BothWays({}, time.perf_counter() - start)
        scores = score_one(context.application, _groups_of_one(pair, uniform), kinds)
        if scores is None:
            return BothWays({}, time.perf_counter() - start)
        found.append(scores)
    both = {name: (found[0][name].item(), found[1][name].item()) for name in kinds}
    return BothWays(both, time.perf_counter() - start)


PROBE_SIDES = {2: (2, 4, 8, 16, 64), 3: (2, 4, 8, 16)}
PROBE_BYTES = {2: 64 << 20, 3: 16 << 20}
"""Of each group, by the number of groups."""

# By judgement: a sum that the clock and a busy machine disturb by a few per cent only, and less than a start takes. No
# benchmark.
PROBE_SECONDS = 0.25
"""Calls of a quick function grow until they have taken as long in sum."""

# By judgement: as long as four calls of 3 s; a user sees no line of progress before. No benchmark.
LONGEST_PROBE_SECONDS = 12.0
"""Calls that take as long for many pairs as for one grow no more after that."""

# By judgement: fifteen pairs of 10 s are two and a half minutes in one call, which a stop waits for. No benchmark.
SLOW_CALL_SECONDS = 10.0
"""From here on the first larger call has one pair more, not fifteen: it may be the pair that takes so long."""

# By judgement: less may be the clock and other work on the machine; more would make calls of four pairs, of which each
# costs as much as the call, look like one. No benchmark.
PAIRS_COUNT = 1.5
"""A larger call that takes as many times as long as one of a single pair shows what pairs cost."""


class ProbedCost(NamedTuple):
    """What one more pair or triple costs, in seconds, what a call costs beside them, and how many were compared."""

    seconds: float
    n_compared: int
    call_seconds: float = 0.0


def probe_compare(
    context: WorkerContext, item: Any, uniform: bool, dtypes: dict[str, str], arity: int, most: int
) -> ProbedCost:
    """Measure what one more pair or triple costs, on copies of one item; see ``cost_of_one_more``."""
    most_side = max(1, PROBE_BYTES[arity] // max(1, nbytes_of(item)))
    sides = [side for side in PROBE_SIDES[arity] if side <= most_side]

    def call(last: int, others: int) -> float:
        return _time_compare(context.application, item, uniform, dtypes, (*[others] * (arity - 1), last))

    return cost_of_one_more(call, sides, arity, most)


def cost_of_one_more(call: Callable[[int, int], float], sides: Sequence[int], arity: int, most: int) -> ProbedCost:
    """Measure what one more pair or triple costs, and what a call costs beside them.

    The first call loads models and compiles kernels: it counts only where no other is allowed. No single timing
    decides: a call of one pair is followed by larger ones until these take longer, for then pairs are what costs.

    Parameters
    ----------
    call : callable
        Compares every item of one group with every item of the others; gets the number of items of the last group
        and of each other one, returns seconds.
    sides : sequence of int
        Items of a group, call after call, above 1.
    arity : int
        Groups.
    most : int
        Pairs or triples that may be compared.
    """
    first = call(1, 1)
    if most < 2:
        return ProbedCost(first, 1)
    one = call(1, 1)
    shapes = [(side, side) for side in sides]
    if one > SLOW_CALL_SECONDS:
        shapes.insert(0, (2, 1))
    elif one > PROBE_SECONDS and 2 + 4**arity <= most:
        shapes = [shape for shape in shapes if shape[0] >= 4]
    seconds, n_more, n_compared, spent = one, 0, 2, one
    for last, others in shapes:
        size = last * others ** (arity - 1)
        longest = max(LONGEST_PROBE_SECONDS, 4 * one)
        known = spent > PROBE_SECONDS and (seconds > PAIRS_COUNT * one or spent >= longest)
        if n_compared + size > most or (n_more and known):
            break
        seconds = call(last, others)
        if seconds < one:  # the call of one pair was disturbed, or was still a first one of some kind
            one = seconds
        n_more, n_compared, spent = size - 1, n_compared + size, spent + seconds
    more = (seconds - one) / n_more if n_more else one
    return ProbedCost(more, n_compared, max(0.0, one - more))


def _time_compare(app: Any, item: Any, uniform: bool, dtypes: dict[str, str], shape: tuple[int, ...]) -> float:
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    groups = [np.stack([item] * side) if uniform else [item] * side for side in shape]
    start = time.perf_counter()
    if compares_singly(app, len(shape)):
        compare_cells(app, groups, kinds, DONE)
    else:
        compare_block(app, groups, np, kinds, None)
    return time.perf_counter() - start


def score_groups(
    context: WorkerContext,
    items: Mapping[int, Any],
    groups: Sequence[tuple[int, ...]],
    uniform: bool,
    dtypes: Mapping[str, str],
    output: str,
    seconds: float,
) -> list[float]:
    """Return an output of some pairs or triples, NaN where it fails or lacks an item; of fewer when the time is up."""
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    deadline = time.monotonic() + seconds
    found: list[float] = []
    for group in groups:
        if found and time.monotonic() > deadline:
            break
        found.append(_score_group(context, items, group, kinds, output, uniform))
    return found


def _score_group(
    context: WorkerContext,
    items: Mapping[int, Any],
    group: tuple[int, ...],
    kinds: Mapping[str, np.dtype[Any]],
    output: str,
    uniform: bool,
) -> float:
    if any(index not in items for index in group):
        return float("nan")
    try:
        operands = [np.stack([items[index]]) if uniform else [items[index]] for index in group]
        scores = score_one(context.application, operands, kinds)
        return float("nan") if scores is None else float(scores[output].item())
    except Exception:  # the run itself says what failed
        return float("nan")
