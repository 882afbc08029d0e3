"""One compare call: operands in, scores and codes out, straight into the buffers of a chunk.

Runs on any worker. What the user's function returns is checked here; *cells*, pairs or triples, that fail one at a time
are reported here; a call that raises as a whole is reported to the node, which halves the tile. A tile of triples has
three operands in place of two, and leaves the call only as what is kept of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product, repeat
from typing import Any, NamedTuple

import numpy as np

from tartan import _native
from tartan.application import Application, block_comparison, compares_singly, defines, single_hook
from tartan.base.format import reason_of, traceback_of
from tartan.base.temporary import Scratch
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR
from tartan.core.pairs.verdict import PairCounts
from tartan.errors import CompareError, InternalError
from tartan.runtime.host import HostItems
from tartan.runtime.parts import CHUNK_ARENA, ChunkViews, Part
from tartan.runtime.writable import REFUSALS, comparison, way_out, writable_operand
from tartan.store.keeper import Chooser, Keeper, Rows
from tartan.workers.executor import WorkerContext
from tartan.workers.worker import When

Scores = dict[str, np.ndarray]
Places = tuple[np.ndarray, ...]

# By judgement: a function that fails for all pairs of a tile of 1,024 x 1,024 must not make a million lines. No
# benchmark.
MOST_LISTED = 100
"""Failed cells of one output and tile that are listed with a reason each; their codes are complete."""

CELLS = {2: "pairs", 3: "triples"}
"""What the cells of a tile are called, by the number of groups."""

# Measured: a pair of a tile of cosine costs 10 ns and a listed one 70; of Manhattan 35 and 95.
LISTED_SHARE = 16
"""A tile of which at most one pair in so many is wanted is scored by ``compare_listed``."""


@dataclass(frozen=True)
class CellFailure:
    """A failed pair or triple, by its position in the tile."""

    place: tuple[int, ...]
    reason: str
    traceback: str = ""


class Compared(NamedTuple):
    """What a compare call did: failed cells, how all ended, when, and what is kept where nothing else holds that."""

    failures: list[CellFailure]
    counts: PairCounts
    when: When
    rows: Rows | None = None


def compare_tile(context: WorkerContext, items: HostItems, part: Part, chooser: Chooser | None = None) -> Compared:
    """Compare a part of a tile; its scores go into the buffers of its chunk, or the chooser looks at them."""
    begin_ns = time.perf_counter_ns()
    app, codes = context.application, part.mask.codes(part.shape)
    host = context.state.setdefault("host", {}).setdefault(type(items), items)
    groups = [host.operand(context.arenas, places)[cut] for places, cut in zip(part.places, part.cuts, strict=True)]
    whole = None if part.chunk is None else part.chunk.views(context.arenas[CHUNK_ARENA])
    if whole is not None and (
        (chooser is None and _by_list(app, part, codes, whole, groups))
        or _by_rows(app, part, codes, whole, groups, chooser)
    ):
        counts = count_cells(codes, np.broadcast_to(np.uint8(DONE), part.shape), (), part.offset)
        return Compared([], counts, When.since(begin_ns))
    out, back, status = _targets(context, part, whole, chooser)
    if part.scout:
        out, back, status = _beside(out, back, status)
    dtypes = {name: block.dtype for name, block in out.items()}
    failures = score_tile(app, groups, dtypes, codes, out, status)
    if back is not None and app.directed:
        write_reversed(app, out, back, failures)
    elif back is not None:
        turned = codes if isinstance(codes, int) else codes.T
        filled = bool(failures) or not isinstance(codes, int)
        more = score_tile(app, groups[::-1], dtypes, turned, back, status.T, filled=filled)
        failures = merge_mirrored(failures, more, status)
    if part.scout:
        return Compared([], PairCounts(), When.since(begin_ns))
    rows = None
    if chooser is not None:
        rows = chooser.choose(part.corner, out, None if part.mask.plain and not failures else status, back, part.bars)
    counts = count_cells(codes, status, failures, part.offset)
    return Compared(failures, counts, When.since(begin_ns), rows)


def _by_rows(
    app: Application,
    part: Part,
    codes: np.ndarray | int,
    whole: ChunkViews,
    groups: Sequence[Any],
    chooser: Chooser | None,
) -> bool:
    """Score rows without the application, or let the keeper choose by them; return whether that was possible."""
    metric = "cosine" if app.unit_rows else "inner" if app.inner_rows else app.norm_rows
    counted = bool(app.bit_rows) and isinstance(chooser, Keeper)
    if not (counted or (metric and _native.HAS_PRODUCTS)) or part.scout or whole.mirrored is not None:
        return False
    listed, (left, right) = None if isinstance(codes, int) else codes, groups
    if app.bit_rows and isinstance(chooser, Keeper):
        scored = chooser.choose_bits(part.corner, left, right, listed, app.bit_rows)
    elif isinstance(chooser, Keeper):
        scored = chooser.choose_rows(part.corner, left, right, listed, metric)
    elif not (app.unit_rows or app.inner_rows) or left.dtype.kind != "f":  # sparse rows are words
        return False
    else:
        score = _native.cosine_tile if app.unit_rows else _native.inner_tile
        scored = score(left, right, next(iter(whole.scores.values()))[part.window], listed)
    if scored and listed is not None:
        whole.status[part.window] = listed
    return scored


def _by_list(app: Application, part: Part, codes: np.ndarray | int, whole: ChunkViews, groups: Sequence[Any]) -> bool:
    """Score the pairs that count one by one, where they are few; return whether that was possible."""
    if isinstance(codes, int) or part.scout or whole.mirrored is not None:
        return False
    if not defines(app, "compare_listed") or type(app).postprocess is not Application.postprocess:
        return False
    places = np.flatnonzero(codes == DONE)
    if len(places) * LISTED_SHARE > codes.size or len(groups) != 2:
        return False
    (left, right), (rows, columns) = groups, np.divmod(places, codes.shape[1])
    found = app.compare_listed(left, right, rows, columns)
    if found is None:
        return False
    dtypes = {name: block.dtype for name, block in whole.scores.items()}
    scores = check_scores(found, (len(places),), dtypes, "compare_listed")
    if any(bool(np.isnan(block).any()) for block in scores.values() if block.dtype.kind in "fc"):
        return False  # the tile as a whole says why
    for name, block in scores.items():
        whole.scores[name][part.window][rows, columns] = block
    whole.status[part.window] = codes
    return True


def _beside(out: Scores, back: Scores | None, status: np.ndarray) -> tuple[Scores, Scores | None, np.ndarray]:
    """Return memory of its own for a part that may write nothing into its chunk."""
    own, turned = (
        None if blocks is None else {name: np.zeros_like(block) for name, block in blocks.items()}
        for blocks in (out, back)
    )
    return own or {}, turned, np.zeros_like(status)


def _targets(
    context: WorkerContext, part: Part, whole: ChunkViews | None, chooser: Chooser | None
) -> tuple[Scores, Scores | None, np.ndarray]:
    """Return where the scores of a part go, both ways, and its codes.

    What is chosen from is scored in memory that each thread uses again and again, so that it stays in the cache.
    """
    window = part.window
    if chooser is not None:
        scratch = context.state.setdefault("scratch", Scratch())
        out = {name: scratch.block(f"{name} out", part.shape, dtype) for name, dtype in chooser.outputs.items()}
        if whole is None:
            return out, None, scratch.block("codes", part.shape, np.dtype(np.uint8))
        status = whole.status[window]
        if whole.mirrored is None:
            return out, None, status
        turned = part.shape[::-1]
        return out, {name: scratch.block(f"{name} back", turned, block.dtype) for name, block in out.items()}, status
    if whole is None:
        raise InternalError("a tile has no place for its scores")
    out, status = {name: block[window] for name, block in whole.scores.items()}, whole.status[window]
    if whole.mirrored is None:
        return out, None, status
    return out, {name: block[window[::-1]] for name, block in whole.mirrored.items()}, status


def compare_block(
    app: Application, groups: Sequence[Any], xp: Any, dtypes: Mapping[str, np.dtype[Any]], into: Scores | None
) -> dict[str, Any]:
    """Call the application on groups of m, k, ... items; return arrays (m, k, ...) of the device by output name.

    Parameters
    ----------
    into : dict of arrays or None
        Where an application that can write in place shall write: its only output, or the dict of several.
    """
    compare = block_comparison(app, len(groups))
    if app.writable_items:
        groups = [writable_operand(group) for group in groups]
    if into is not None and app.compare_into and len(groups) == 2:
        result = compare(*groups, xp, out=into[next(iter(dtypes))] if len(dtypes) == 1 else into)
    else:
        result = compare(*groups, xp)
    return check_scores(result, tuple(map(len, groups)), dtypes)


def check_scores(
    result: Any, shape: tuple[int, ...], dtypes: Mapping[str, np.dtype[Any]], hook: str = "compare"
) -> dict[str, Any]:
    """Check what compare returned.

    Raises
    ------
    CompareError
        If an output is missing or has another shape.
    """
    named = result if isinstance(result, Mapping) else {next(iter(dtypes)): result}
    if not isinstance(result, Mapping) and len(dtypes) > 1:
        raise CompareError(f"{hook} returned one array where a dict of {', '.join(dtypes)} is declared")
    checked = {}
    for name in dtypes:
        if name not in named:
            raise CompareError(f"{hook} returned no output {name!r}, only {', '.join(map(str, named))}")
        scores = named[name] if hasattr(named[name], "shape") else np.asarray(named[name])
        if isinstance(scores, np.ma.MaskedArray):
            scores = np.ma.filled(scores.astype(np.float64), np.nan)  # what is masked is not a score
        if tuple(scores.shape) != shape:
            raise CompareError(f"{hook} returned shape {tuple(scores.shape)} for output {name!r}; expected {shape}")
        checked[name] = scores
    return checked


def compare_cells(
    app: Application, groups: Sequence[Any], dtypes: Mapping[str, np.dtype[Any]], codes: np.ndarray | int
) -> tuple[Scores, list[CellFailure]]:
    """Call the application's compare_pair or compare_triple on the cells that count."""
    (*heads, last), hook = map(list, groups), single_hook(len(groups))
    compare = comparison(app, getattr(app, hook))
    scores = _wide_blocks(tuple(map(len, groups)), dtypes)
    alone = next(iter(scores.values())) if len(scores) == 1 else None
    failures: list[CellFailure] = []
    for row, items in zip(np.ndindex(*map(len, heads)), product(*heads), strict=True):
        columns = range(len(last)) if isinstance(codes, int) else np.flatnonzero(codes[row] == DONE).tolist()
        done = 0 if alone is None else _score_row(compare, items, last, columns, alone[row])
        for column in columns[done:]:
            place, cell = (*row, column), (*items, last[column])
            try:
                _put(scores, place, compare(*cell), hook)
            except Exception as error:
                if failures:
                    failures.append(CellFailure(place, reason_of(error)))
                    continue
                remedy = way_out(error, partial(_try_cell, compare, dtypes, hook), *cell)
                failures.append(CellFailure(place, reason_of(error) + remedy, traceback_of(error)))
    return {name: _narrow(block, dtypes[name], name, failures, hook) for name, block in scores.items()}, failures


def _wide_blocks(shape: tuple[int, ...], dtypes: Mapping[str, np.dtype[Any]]) -> Scores:
    """Return memory for the numbers of a function of Python, which have 64 bits: a whole tile is narrowed at once."""
    wide = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}
    return {name: np.zeros(shape, wide.get(dtype.kind, dtype)) for name, dtype in dtypes.items()}


def _narrow(wide: np.ndarray, dtype: np.dtype[Any], name: str, failures: list[CellFailure], hook: str) -> np.ndarray:
    """Return scores in the dtype of their output; list those that it cannot hold."""
    with np.errstate(all="ignore"):
        found = wide.astype(dtype, copy=False)
    wrong = misfits(wide, found)
    for place in map(tuple, np.argwhere(wrong).tolist()) if wrong is not None else ():
        failures.append(CellFailure(place, f"{hook} returned {no_score(wide[place], dtype, name)}"))
    return found


def _try_cell(compare: Callable[..., Any], dtypes: Mapping[str, np.dtype[Any]], hook: str, *items: Any) -> None:
    place = (0,) * len(items)
    _put(_wide_blocks((1,) * len(items), dtypes), place, compare(*items), hook)


def _score_row(
    compare: Callable[..., Any], items: Sequence[Any], last: list[Any], columns: Sequence[int], out: np.ndarray
) -> int:
    """Score items with those of the last group, without looking at each score; return how many columns are done.

    It ends at a cell that fails, and at scores that are not numbers or do not fit: those are looked at one by one.
    """
    values: list[Any] = []
    with contextlib.suppress(Exception):  # what came before an error stays in the list
        values.extend(map(compare, *map(repeat, items), map(last.__getitem__, columns)))
    try:
        if out.dtype.kind in "iu" and misfits(np.array(values), out) is not None:
            return 0
        out[columns[: len(values)]] = values
    except Exception:
        return 0
    return len(values)


def _put(scores: Scores, place: tuple[int, ...], value: Any, hook: str) -> None:
    if isinstance(value, Mapping):
        missing = [name for name in scores if name not in value]
        if missing:
            there = ", ".join(map(str, value)) or "nothing"
            raise CompareError(f"{hook} returned no output {missing[0]!r}, only {there}")
        for name, block in scores.items():
            _put_number(block, place, value[name], name, hook)
        return
    if len(scores) > 1:
        what = "one number" if np.ndim(value) == 0 else f"a {type(value).__name__}"
        raise CompareError(f"{hook} returned {what} where a dict of {', '.join(scores)} is declared")
    name, block = next(iter(scores.items()))
    _put_number(block, place, value, name, hook)


def _put_number(block: np.ndarray, place: tuple[int, ...], value: Any, name: str, hook: str) -> None:
    if block.dtype.kind in "iu" and misfits(np.asarray(value), block) is not None:
        raise CompareError(f"{hook} returned {value!r}{cannot_hold(block.dtype, name)}")
    if block.dtype.kind != "c" and np.iscomplexobj(value):
        raise CompareError(
            f"{hook} returned {value!r} for output {name!r}, which is {block.dtype}{_keep_complex(name)}"
        )
    block[place] = value


def score_tile(
    app: Application,
    groups: Sequence[Any],
    dtypes: Mapping[str, np.dtype[Any]],
    codes: np.ndarray | int,
    out: Scores,
    status: np.ndarray,
    *,
    filled: bool = False,
) -> list[CellFailure]:
    """Score a tile on the CPU and write scores and codes.

    Parameters
    ----------
    groups : sequence of operands
        The m, k, ... items of each group.
    codes : uint8 array (m, k, ...), or int
        Codes if every comparison succeeds, or the one code of all cells.
    out : dict of arrays (m, k, ...)
        Views of the chunk's buffers.
    status : uint8 array (m, k, ...)
        View of the chunk's codes; transposed for the mirrored half. Not touched where all cells have one code and none
        fails: what all pairs of a chunk have in common need not be written.
    filled : bool
        Whether the codes are there already, from the comparison the other way round.

    Returns
    -------
    list of CellFailure
        Of many only some; the codes are complete.
    """
    failures: list[CellFailure] = []
    scores: Mapping[str, Any]
    if compares_singly(app, len(groups)):
        scores, failures = compare_cells(app, groups, dtypes, codes)
    else:
        scores = _compare_block_saying_why(app, groups, dtypes, out)
    return write_block(app, scores, codes, failures, out, status, filled=filled)


def score_one(
    app: Application, groups: Sequence[Any], dtypes: Mapping[str, np.dtype[Any]]
) -> dict[str, np.ndarray] | None:
    """Compare groups of one item each; return the scores as arrays of one cell, None where one is missing."""
    shape = (1,) * len(groups)
    out, status = {name: np.zeros(shape, dtype) for name, dtype in dtypes.items()}, np.zeros(shape, np.uint8)
    return None if score_tile(app, groups, dtypes, DONE, out, status) else out


def _compare_block_saying_why(
    app: Application, groups: Sequence[Any], dtypes: Mapping[str, np.dtype[Any]], out: Scores
) -> dict[str, Any]:
    """Compare a block; of a single cell that fails because its items are read-only, the error has the way out."""
    try:
        return compare_block(app, groups, np, dtypes, out)
    except REFUSALS as error:
        if max(map(len, groups)) > 1:
            raise  # smaller parts are tried next
        remedy = way_out(error, lambda *copies: compare_block(app, copies, np, dtypes, None), *groups)
        if not remedy:
            raise
        raise CompareError(reason_of(error) + remedy) from error


def write_reversed(app: Application, out: Scores, back: Scores, failures: Sequence[CellFailure]) -> None:
    """Write the scores of (b, a) that those of (a, b) say, for applications with directed outputs.

    Parameters
    ----------
    out : dict of arrays (m, k)
        Finished scores.
    back : dict of arrays (k, m)
        Where the others go.
    failures : sequence of CellFailure
        Of the tile; NaN is expected if there are some.

    Raises
    ------
    CompareError
        If an output is missing, has another shape, or is NaN where no pair has failed.
    """
    with np.errstate(all="ignore"):
        found = app.reverse(out)
    for name, block in out.items():
        turned = np.asarray(found[name]) if name in app.directed and name in found else block
        if turned is block and name in app.directed:
            raise CompareError(f"reverse returned no output {name!r}, only {', '.join(map(str, found))}")
        if turned.shape != block.shape:
            raise CompareError(f"reverse returned shape {turned.shape} for output {name!r}; expected {block.shape}")
        if not failures and turned.dtype.kind in "fc" and not np.array_equal(np.isnan(turned), np.isnan(block)):
            raise CompareError(f"reverse returned NaN for output {name!r} of a pair that has a score")
        with np.errstate(all="ignore"):
            back[name][...] = turned.T
        if (wrong := misfits(turned.T, back[name])) is not None:
            raise CompareError(f"reverse returned {no_score(turned.T[wrong][0], block.dtype, name)}")


def write_block(
    app: Application,
    scores: Mapping[str, Any],
    codes: np.ndarray | int,
    failures: list[CellFailure],
    out: Scores,
    status: np.ndarray,
    *,
    filled: bool = False,
) -> list[CellFailure]:
    """Postprocess scores, find NaN, and write scores and codes into the chunk's buffers; see ``score_tile``."""
    failed = {failure.place for failure in failures}
    if not filled and (failed or not isinstance(codes, int)):
        status[...], filled = codes, True
    for place in failed:
        status[place] = FAILED_PAIR
    changed = type(app).postprocess is not Application.postprocess
    for name, block in scores.items():
        finished = app.postprocess(block) if changed else block
        unusable = no_scores(out[name]) if finished is out[name] else copy_scores(finished, out[name], name)
        bad = None if unusable is None else _find_counted(unusable, codes)
        if bad is None:
            continue
        if not filled:
            status[...], filled = codes, True
        status[bad] = FAILED_PAIR
        new = [place for place in zip(*(ends.tolist() for ends in bad), strict=True) if place not in failed]
        for place in new[:MOST_LISTED]:
            what = f"compare returned {no_score(finished[place], out[name].dtype, name)}"
            failures.append(CellFailure(place, what))
        if len(new) > MOST_LISTED:
            last, cells = failures[-1], CELLS[status.ndim]
            reason = f"{last.reason}, and so for {len(new) - MOST_LISTED:,} more {cells} of this tile"
            failures[-1] = CellFailure(last.place, reason)
        failed.update(new[:MOST_LISTED])
    return failures


def merge_mirrored(failures: list[CellFailure], mirrored: list[CellFailure], status: np.ndarray) -> list[CellFailure]:
    """Let a pair fail when either of its two comparisons does."""
    known = {failure.place for failure in failures}
    for failure in mirrored:
        place = failure.place[::-1]
        status[place] = FAILED_PAIR
        if place not in known:
            known.add(place)
            failures.append(CellFailure(place, f"{failure.reason} (second before first)", failure.traceback))
    return failures


def count_cells(
    codes: np.ndarray | int, status: np.ndarray, failures: Sequence[CellFailure], offset: int | None
) -> PairCounts:
    """Count how the cells of a part ended.

    Parameters
    ----------
    codes : uint8 array (m, k, ...), or int
        Codes if every comparison had succeeded, or the one code of all cells.
    status : uint8 array (m, k, ...)
        Codes as they are.
    failures : sequence of CellFailure
        Empty if none failed; of many only some.
    offset : int or None
        Row minus column of the first pair, where (i, j) and (j, i) count as two; None where they are one.
    """
    plain = isinstance(codes, int)
    n_pairs = status.size if plain else int(np.count_nonzero(codes))
    without_item = 0 if plain else int(np.count_nonzero(codes == FAILED_ITEM))
    failed = int(np.count_nonzero((status == FAILED_PAIR) & (codes == DONE))) if failures else 0
    scores, bad_scores = n_pairs, without_item
    if offset is not None:
        itself = _diagonal(np.broadcast_to(np.uint8(codes), status.shape), offset)
        scores = 2 * n_pairs - int(np.count_nonzero(itself))
        bad_scores = 2 * without_item - int(np.count_nonzero(itself == FAILED_ITEM))
    return PairCounts(n_pairs - without_item - failed, without_item, failed, scores, bad_scores)


def _diagonal(cells: np.ndarray, offset: int) -> np.ndarray:
    inside = -cells.shape[0] < offset < cells.shape[1]
    return np.diagonal(cells, offset) if inside else cells[:0, 0]


def _find_counted(found: np.ndarray, codes: np.ndarray | int) -> Places | None:
    """Return the places of those cells that count, axis by axis, None if there are none."""
    if not isinstance(codes, int):
        found = found & (codes == DONE)
    places = np.nonzero(found)
    return places if len(places[0]) else None


# Scores in the dtype of their output: what it cannot hold is found, and said with the way out.


def copy_scores(finished: Any, target: np.ndarray, name: str) -> np.ndarray | None:
    """Copy scores into a buffer; return which are NaN or do not fit its dtype, None when all are there."""
    values = np.asarray(finished)
    if values.shape != target.shape:
        raise CompareError(f"postprocess returned shape {values.shape} for output {name!r}; expected {target.shape}")
    if values.dtype.kind == "c" != target.dtype.kind:
        raise CompareError(
            f"compare returned {values.dtype} for output {name!r}, which is {target.dtype}{_keep_complex(name)}"
        )
    with np.errstate(all="ignore"):
        target[...] = values
    if target.dtype.kind in "fc" and _is_finite(target):
        return None
    missing, wrong = no_scores(target), misfits(values, target)
    if missing is None or wrong is None:
        return wrong if missing is None else missing
    both: np.ndarray = missing | wrong
    return both


def misfits(values: np.ndarray, stored: Any) -> np.ndarray | None:
    """Return which values the dtype that they were stored in cannot hold, None when it holds all.

    Fractions of whole numbers are cut off, and numbers too small for a float become 0: no more is lost than in any sum.
    """
    dtype = stored.dtype
    if np.can_cast(values.dtype, dtype) or dtype.kind not in "fciu":
        return None
    if dtype.kind in "fc":
        if _is_finite(stored):
            return None
        numbers = values if values.dtype.kind in "biufc" else values.astype(np.float64)
        wrong = np.isinf(stored) & np.isfinite(numbers)
    else:
        numbers = values if values.dtype.kind in "biuf" else values.astype(np.float64)
        limits = np.iinfo(dtype)
        wrong = ~((numbers >= limits.min) & (numbers < limits.max + 1))
    return wrong if wrong.any() else None


def no_score(value: Any, dtype: np.dtype[Any], name: str) -> str:
    """Say what was returned in place of a score of a dtype."""
    missing = value != value and dtype.kind in "fc"
    return f"NaN for output {name!r}" if missing else f"{value} for output {name!r}{cannot_hold(dtype, name)}"


def cannot_hold(dtype: np.dtype[Any], name: str) -> str:
    """Say that a score does not fit, and the way out where there is one."""
    wider = "complex128" if dtype.kind == "c" else "float64"
    declared = f"; declare outputs = {{{name!r}: {wider!r}}} in a class (tartan.Application), or scale it"
    way_out = "; scale it" if dtype == np.dtype(wider) else declared
    return f", which {dtype} cannot hold{way_out}"


def _keep_complex(name: str) -> str:
    return (
        f"; declare outputs = {{{name!r}: 'complex64'}} in a class (tartan.Application), or 'complex128', to keep "
        "complex scores, or return a real number, such as the magnitude"
    )


def no_scores(block: np.ndarray) -> np.ndarray | None:
    """Return which scores are NaN, None where none is."""
    if block.dtype.kind not in "fc" or _is_finite(block):
        return None
    missing = np.isnan(block)
    return missing if missing.any() else None


def _is_finite(block: Any) -> bool:
    """Whether all scores are finite for certain, in one pass without a temporary array."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(block.sum()))
