"""Parts of tiles of triples: what one compare call compares, and what a worker makes of it.

A part is the whole box of a tile unless something failed as a whole; then it is halved until the guilty triple is
alone. Scores never leave the worker: it returns the triples that may be kept, and how all of them ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tartan.application import Application, triple_comparison
from tartan.base.reasons import reason_of, traceback_of
from tartan.core.grid import Tile
from tartan.core.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED
from tartan.core.triples import Box
from tartan.errors import CompareError
from tartan.runtime.codec import nbytes_of
from tartan.runtime.compare import MOST_LISTED, check_scores, copy_scores
from tartan.runtime.host import HostItems, Place
from tartan.runtime.parts import WHOLE_TILE
from tartan.runtime.tasks import ProbedCost, cost_of_one_more
from tartan.store.keeper import Rows
from tartan.store.triple_keeper import Bars, TripleRule
from tartan.workers.executor import WorkerContext
from tartan.workers.worker import When

Triple = tuple[int, int, int]
Scores = dict[str, np.ndarray]


class TripleFailure(NamedTuple):
    """A failed triple."""

    triple: Triple
    reason: str
    traceback: str = ""


class BoxCounts(NamedTuple):
    """How the triples of a part ended: with a score, without one because an item failed, or failed themselves."""

    good: int = 0
    without_item: int = 0
    failed: int = 0


@dataclass(frozen=True)
class BoxPart:
    """A part of a tile of triples.

    Attributes
    ----------
    tile : Tile
    box : Box
        Its items.
    places : three sequences of Place
        Host places of the tile's items.
    failed : frozenset of int
        Items of the tile that failed.
    bars : three arrays or None
        Of the items of the part, when it was handed out.
    depth : int
        How often the tile was halved to get it.
    again : bool
        Whether it has ended a worker before; it is tried after all others.
    """

    tile: Tile
    box: Box
    places: tuple[Sequence[Place], Sequence[Place], Sequence[Place]]
    failed: frozenset[int]
    bars: Bars | None
    depth: int = 0
    again: bool = False

    @property
    def triple(self) -> Triple | None:
        """The items of a part of one triple."""
        if self.box.shape != (1, 1, 1):
            return None
        first, second, third = self.box
        return first.start, second.start, third.start

    @property
    def priority(self) -> int:
        """Lower goes first: parts of halved tiles before whole ones."""
        return 0 if self.depth and not self.again else WHOLE_TILE

    @property
    def wanted(self) -> bool:
        """Whether it holds a triple i < j < k whose items are good."""
        codes = self.codes()
        return codes is None or bool((codes == DONE).any())

    def codes(self) -> np.ndarray | None:
        """Return the codes of the ledger if every comparison succeeds (0 where nothing is wanted); None: all DONE."""
        mask = self.box.mask()
        if mask is None and not self.failed:
            return None
        codes = np.full(self.box.shape, DONE, np.uint8)
        for axis, part in enumerate(self.box):
            bad = [item - part.start for item in part if item in self.failed]
            np.moveaxis(codes, axis, 0)[bad] = FAILED_ITEM
        if mask is not None:
            codes[~mask] = NOT_COMPUTED
        return codes

    def halves(self) -> list[BoxPart]:
        """Cut the part in two across its longest side; halves without a triple that counts stay for its counts."""
        axis = int(np.argmax(self.box.shape))
        part = self.box[axis]
        middle = part.start + len(part) // 2
        return [self._cut(axis, range(a, b)) for a, b in ((part.start, middle), (middle, part.stop))]

    def _cut(self, axis: int, part: range) -> BoxPart:
        box = Box(*(part if number == axis else whole for number, whole in enumerate(self.box)))
        bars = self.bars
        if bars is not None:
            start = part.start - self.box[axis].start
            cut = bars[axis][start : start + len(part)]
            first, second, third = (cut if number == axis else bar for number, bar in enumerate(bars))
            bars = first, second, third
        return replace(self, box=box, bars=bars, depth=self.depth + 1)

    def failure(self, reason: str, traceback: str = "") -> TripleFailure:
        """Return the failure of the part's first triple."""
        first, second, third = self.box
        return TripleFailure((first.start, second.start, third.start), reason, traceback)


class BoxFound(NamedTuple):
    """What a compare call found: triples that may be kept, failed triples (of many only some), counts, and when."""

    rows: Rows
    failures: list[TripleFailure]
    counts: BoxCounts
    when: When


def compare_box(context: WorkerContext, items: HostItems, part: BoxPart, rule: TripleRule) -> BoxFound:
    """Compare a part of a tile of triples and choose from it."""
    begin_ns = time.perf_counter_ns()
    host = context.state.setdefault("host", {}).setdefault(type(items), items)
    groups = [_operand(host, context, places, part_of) for places, part_of in zip(part.places, part.box, strict=True)]
    scores, found = score_box(context.application, groups, np, part, rule.dtypes)
    rows, failures, counts = finish_box(context.application, part, rule, scores, found)
    return BoxFound(rows, failures, counts, When.since(begin_ns))


def _operand(host: HostItems, context: WorkerContext, places: Sequence[Place], items: range) -> Any:
    whole = host.operand(context.arenas, places)
    return whole[items.start - places[0].first : items.stop - places[0].first]


def score_box(
    app: Application, groups: Sequence[Any], xp: Any, part: BoxPart, dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[dict[str, Any], list[TripleFailure]]:
    """Call the application on three groups of items; return arrays (m, k, l) of the device by output name.

    Raises
    ------
    CompareError
        If an output is missing or has another shape.
    """
    compare = triple_comparison(app)
    if compare is None:
        return _score_singly(app, groups, part, dtypes)
    first, second, third = groups
    return check_scores(compare(first, second, third, xp), part.box.shape, dtypes), []


def _score_singly(
    app: Application, groups: Sequence[Any], part: BoxPart, dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[dict[str, Any], list[TripleFailure]]:
    """Call the application's compare_triple on the triples that count."""
    scores = {name: np.zeros(part.box.shape, dtype) for name, dtype in dtypes.items()}
    codes, failures = part.codes(), list[TripleFailure]()
    first, second, third = (list(group) for group in groups)
    places = np.ndindex(*part.box.shape) if codes is None else map(tuple, np.argwhere(codes == DONE).tolist())
    for place in places:
        i, j, k = place
        try:
            _put(scores, place, app.compare_triple(first[i], second[j], third[k]))
        except Exception as error:
            trace = "" if failures else traceback_of(error)
            failures.append(TripleFailure(_triple_at(part, place), reason_of(error), trace))
    return scores, failures


def _put(scores: Scores, place: tuple[int, ...], value: Any) -> None:
    named = value if isinstance(value, Mapping) else dict.fromkeys(list(scores)[:1], value)
    missing = [name for name in scores if name not in named]
    if missing:
        raise CompareError(f"compare_triple returned no output {missing[0]!r}, only {', '.join(map(str, named))}")
    for name, block in scores.items():
        one = np.asarray(named[name])
        if one.shape != () or one.dtype.kind not in "biuf":
            raise CompareError(f"compare_triple returned {named[name]!r} for output {name!r}, which is no real number")
        if copy_scores(one.reshape(1), block[place].reshape(1), name) is not None:
            raise CompareError(f"compare_triple returned {named[name]!r}, which {block.dtype} cannot hold")
        block[place] = one


def finish_box(
    app: Application, part: BoxPart, rule: TripleRule, scores: Mapping[str, Any], failures: list[TripleFailure]
) -> tuple[Rows, list[TripleFailure], BoxCounts]:
    """Postprocess scores on the CPU, find those that are missing, and choose what may be kept."""
    codes = part.codes()
    failed = np.zeros(part.box.shape, bool)
    for failure in failures:
        place = tuple(item - items.start for item, items in zip(failure.triple, part.box, strict=True))
        failed[place] = True
    out: Scores = {}
    for name, dtype in rule.dtypes.items():
        out[name] = np.zeros(part.box.shape, dtype)
        bad, what = _finished(app, scores[name], out[name], name)
        if bad is None:
            continue
        if codes is not None:
            bad &= codes == DONE
        failures += _listed(part, bad & ~failed, what, name)
        failed |= bad
    good = None if codes is None else codes == DONE
    n_wanted = failed.size if codes is None else int(np.count_nonzero(codes))
    without_item = 0 if codes is None else int(np.count_nonzero(codes == FAILED_ITEM))
    n_failed = int(np.count_nonzero(failed))
    if n_failed:
        good = ~failed if good is None else good & ~failed
    rows = rule.select(part.box, out, good, part.bars)
    return rows, failures, BoxCounts(n_wanted - without_item - n_failed, without_item, n_failed)


def _finished(app: Application, scores: Any, out: np.ndarray, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """Write finished scores; return which of them are missing (None: none), and the scores as they came."""
    changed = type(app).postprocess is not Application.postprocess
    finished = np.asarray(app.postprocess(scores) if changed else scores)
    bad = copy_scores(finished, out, name)
    if out.dtype.kind == "f":
        missing = np.isnan(out)
        bad = missing if missing.any() else None
    return bad, finished


def _listed(part: BoxPart, bad: np.ndarray, scores: np.ndarray, name: str) -> list[TripleFailure]:
    """Return the failures of missing scores, of many only some."""
    places = np.argwhere(bad)
    found = []
    for place in places[:MOST_LISTED].tolist():
        value = scores[tuple(place)]
        what = "NaN" if value != value else f"{value}, which the dtype of the output cannot hold"
        found.append(TripleFailure(_triple_at(part, place), f"compare returned {what} for output {name!r}"))
    if len(places) > MOST_LISTED:
        last, more = found[-1], len(places) - MOST_LISTED
        found[-1] = last._replace(reason=f"{last.reason}, and so for {more:,} more triples of this tile")
    return found


def _triple_at(part: BoxPart, place: Sequence[int]) -> Triple:
    i, j, k = (items.start + at for items, at in zip(part.box, place, strict=True))
    return i, j, k


PROBE_SIDES = (2, 4, 8, 16)
PROBE_BYTES = 16 << 20


def probe_triples(
    context: WorkerContext, item: Any, uniform: bool, dtypes: dict[str, str], most_triples: int
) -> ProbedCost:
    """Measure what one more triple costs, on copies of one item; see ``cost_of_one_more``."""
    most_side = max(1, PROBE_BYTES // max(1, nbytes_of(item)))
    sides = [side for side in PROBE_SIDES if side <= most_side]
    call = partial(_time_box, context.application, item, uniform, dtypes)
    return cost_of_one_more(call, sides, 3, most_triples)


def try_triple(
    context: WorkerContext, first: Any, second: Any, third: Any, uniform: bool, dtypes: dict[str, str]
) -> bool:
    """Compare three items; return whether that gives scores."""
    app, kinds = context.application, {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    groups = [np.stack([item]) if uniform else [item] for item in (first, second, third)]
    part = BoxPart(Tile(0, 0), Box(range(1), range(1, 2), range(2, 3)), ((), (), ()), frozenset(), None)
    scores, failures = score_box(app, groups, np, part, kinds)
    found = [_finished(app, scores[name], np.zeros((1, 1, 1), kind), name)[0] for name, kind in kinds.items()]
    return not failures and all(bad is None or not bad.any() for bad in found)


def _time_box(app: Application, item: Any, uniform: bool, dtypes: dict[str, str], last: int, others: int) -> float:
    sides = (others, others, last)
    groups = [np.stack([item] * side) if uniform else [item] * side for side in sides]
    box = Box(range(others), range(others, 2 * others), range(2 * others, 2 * others + last))
    part = BoxPart(Tile(0, 0), box, ((), (), ()), frozenset(), None)
    start = time.perf_counter()
    score_box(app, groups, np, part, {name: np.dtype(dtype) for name, dtype in dtypes.items()})
    return time.perf_counter() - start


FAILED_TRIPLE = FAILED_PAIR
"""The code of a triple that failed itself."""
