"""One compare call: operands in, scores and codes out, straight into the buffers of a chunk.

Runs on any worker. What the user's function returns is checked here; pairs that fail one at a time are reported here;
a call that raises as a whole is reported to the node, which halves the tile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tartan import _native
from tartan.application import Application, compares_pairs
from tartan.base.reasons import reason_of, traceback_of
from tartan.base.scratch import Scratch
from tartan.core.ledger import DONE, FAILED_ITEM, FAILED_PAIR
from tartan.core.verdict import PairCounts
from tartan.errors import CompareError
from tartan.runtime.host import HostItems
from tartan.runtime.parts import CHUNK_ARENA, ChunkViews, Part
from tartan.store.keeper import Keeper
from tartan.workers.executor import WorkerContext
from tartan.workers.worker import When

Scores = dict[str, np.ndarray]
Places = tuple[np.ndarray, np.ndarray]

MOST_LISTED = 100
"""Failed pairs of one output and tile that are listed with a reason each; their codes are complete."""


@dataclass(frozen=True)
class PairFailure:
    """A failed pair, by its position in the tile."""

    row: int
    column: int
    reason: str
    traceback: str = ""


class Compared(NamedTuple):
    """What a compare call did: failed pairs, how all pairs ended, and when."""

    failures: list[PairFailure]
    counts: PairCounts
    when: When


def compare_tile(context: WorkerContext, items: HostItems, part: Part, keeper: Keeper | None = None) -> Compared:
    """Compare a part of a tile; its scores go into the buffers of its chunk, or the keeper chooses from them."""
    begin_ns = time.perf_counter_ns()
    app, codes, whole = context.application, part.mask.codes(part.shape), part.chunk.views(context.arenas[CHUNK_ARENA])
    host = context.state.setdefault("host", {}).setdefault(type(items), items)
    left = host.operand(context.arenas, part.rows)[part.row_part]
    right = host.operand(context.arenas, part.columns)[part.column_part]
    if _by_rows(app, part, codes, whole, left, right, keeper):
        counts = count_pairs(codes, np.broadcast_to(np.uint8(DONE), part.shape), (), part.offset)
        return Compared([], counts, When.since(begin_ns))
    out, back, status = _targets(context, part, whole, keeper)
    if part.scout:
        out, back, status = _beside(out, back, status)
    dtypes = {name: block.dtype for name, block in out.items()}
    failures = score_tile(app, left, right, dtypes, codes, out, status)
    if back is not None and app.directed:
        write_reversed(app, out, back, failures)
    elif back is not None:
        turned = codes if isinstance(codes, int) else codes.T
        filled = bool(failures) or not isinstance(codes, int)
        more = score_tile(app, right, left, dtypes, turned, back, status.T, filled=filled)
        failures = merge_mirrored(failures, more, status)
    if part.scout:
        return Compared([], PairCounts(), When.since(begin_ns))
    if keeper is not None:
        keeper.choose(part.corner, out, None if part.mask.plain and not failures else status, back)
    counts = count_pairs(codes, status, failures, part.offset)
    return Compared(failures, counts, When.since(begin_ns))


def _by_rows(
    app: Application,
    part: Part,
    codes: np.ndarray | int,
    whole: ChunkViews,
    left: Any,
    right: Any,
    keeper: Keeper | None,
) -> bool:
    """Score unit rows without the application, or let the keeper choose by them; return whether that was possible."""
    if not app.unit_rows or not _native.HAS_PRODUCTS or part.scout or whole.mirrored is not None:
        return False
    listed = None if isinstance(codes, int) else codes
    if keeper is not None:
        scored = keeper.choose_rows(part.corner, left, right, listed)
    else:
        scored = _native.cosine_tile(left, right, next(iter(whole.scores.values()))[part.window], listed)
    if scored and listed is not None:
        whole.status[part.window] = listed
    return scored


def _beside(out: Scores, back: Scores | None, status: np.ndarray) -> tuple[Scores, Scores | None, np.ndarray]:
    """Return memory of its own for a part that may write nothing into its chunk."""
    own, turned = (
        None if blocks is None else {name: np.zeros_like(block) for name, block in blocks.items()}
        for blocks in (out, back)
    )
    return own or {}, turned, np.zeros_like(status)


def _targets(
    context: WorkerContext, part: Part, whole: ChunkViews, keeper: Keeper | None
) -> tuple[Scores, Scores | None, np.ndarray]:
    """Return where the scores of a part go, both ways, and its codes.

    What a keeper chooses from is scored in memory that each thread uses again and again, so that it stays in the cache.
    """
    window = part.window
    status = whole.status[window]
    if keeper is not None:
        scratch = context.state.setdefault("scratch", Scratch())
        out = {name: scratch.block(f"{name} out", part.shape, dtype) for name, dtype in keeper.outputs.items()}
        if whole.mirrored is None:
            return out, None, status
        turned = part.shape[::-1]
        return out, {name: scratch.block(f"{name} back", turned, block.dtype) for name, block in out.items()}, status
    out = {name: block[window] for name, block in whole.scores.items()}
    if whole.mirrored is None:
        return out, None, status
    return out, {name: block[window[::-1]] for name, block in whole.mirrored.items()}, status


def compare_block(
    app: Application, left: Any, right: Any, xp: Any, dtypes: Mapping[str, np.dtype[Any]], into: Scores | None
) -> dict[str, Any]:
    """Call the application's compare on m x k items; return arrays (m, k) of the device by output name.

    Parameters
    ----------
    into : dict of arrays or None
        Where an application that can write in place shall write (its only output).
    """
    if into is not None and app.compare_into and len(dtypes) == 1:
        name = next(iter(dtypes))
        result = app.compare(left, right, xp, out=into[name])  # type: ignore[call-arg]
    else:
        result = app.compare(left, right, xp)
    return check_scores(result, (len(left), len(right)), dtypes)


def check_scores(result: Any, shape: tuple[int, ...], dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, Any]:
    """Check what compare returned.

    Raises
    ------
    CompareError
        If an output is missing or has another shape.
    """
    named = result if isinstance(result, Mapping) else {next(iter(dtypes)): result}
    if not isinstance(result, Mapping) and len(dtypes) > 1:
        raise CompareError(f"compare returned one array where a dict of {', '.join(dtypes)} is declared")
    checked = {}
    for name in dtypes:
        if name not in named:
            raise CompareError(f"compare returned no output {name!r}, only {', '.join(map(str, named))}")
        scores = named[name] if hasattr(named[name], "shape") else np.asarray(named[name])
        if isinstance(scores, np.ma.MaskedArray):
            scores = np.ma.filled(scores.astype(np.float64), np.nan)  # what is masked is no score
        if tuple(scores.shape) != shape:
            raise CompareError(f"compare returned shape {tuple(scores.shape)} for output {name!r}; expected {shape}")
        checked[name] = scores
    return checked


def compare_pairs(
    app: Application, left: Any, right: Any, dtypes: Mapping[str, np.dtype[Any]], codes: np.ndarray | int
) -> tuple[Scores, list[PairFailure]]:
    """Call the application's compare_pair on the pairs that count."""
    shape = (len(left), len(right))
    scores = {name: np.zeros(shape, dtype) for name, dtype in dtypes.items()}
    lefts, rights = list(left), list(right)
    alone = next(iter(scores.values())) if len(scores) == 1 else None
    failures: list[PairFailure] = []
    for row, a in enumerate(lefts):
        columns = range(len(rights)) if isinstance(codes, int) else np.flatnonzero(codes[row] == DONE).tolist()
        done = 0 if alone is None else _score_row(app, a, rights, columns, alone[row])
        for column in columns[done:]:
            try:
                _put(scores, row, column, app.compare_pair(a, rights[column]))
            except Exception as error:
                failures.append(PairFailure(row, column, reason_of(error), "" if failures else traceback_of(error)))
    return scores, failures


def _score_row(app: Application, a: Any, rights: list[Any], columns: Sequence[int], out: np.ndarray) -> int:
    """Score one item with others, without looking at each score; return how many of the columns are done.

    It ends at a pair that fails, and at scores that are no numbers or do not fit: those are looked at one by one.
    """
    compare = app.compare_pair
    values: list[Any] = []
    try:
        for column in columns:
            values.append(compare(a, rights[column]))
    except Exception:
        pass
    try:
        if out.dtype.kind in "iu" and _misfits(np.array(values), out.dtype) is not None:
            return 0
        out[columns[: len(values)]] = values
    except Exception:
        return 0
    return len(values)


def _put(scores: Scores, row: int, column: int, value: Any) -> None:
    if isinstance(value, Mapping):
        missing = [name for name in scores if name not in value]
        if missing:
            there = ", ".join(map(str, value)) or "nothing"
            raise CompareError(f"compare_pair returned no output {missing[0]!r}, only {there}")
        for name, block in scores.items():
            _put_number(block, row, column, value[name])
        return
    if len(scores) > 1:
        what = "one number" if np.ndim(value) == 0 else f"a {type(value).__name__}"
        raise CompareError(f"compare_pair returned {what} where a dict of {', '.join(scores)} is declared")
    _put_number(next(iter(scores.values())), row, column, value)


def _put_number(block: np.ndarray, row: int, column: int, value: Any) -> None:
    if block.dtype.kind in "iu" and _misfits(np.asarray(value), block.dtype) is not None:
        raise CompareError(f"compare_pair returned {value!r}, which {block.dtype} cannot hold")
    block[row, column] = value


def score_tile(
    app: Application,
    left: Any,
    right: Any,
    dtypes: Mapping[str, np.dtype[Any]],
    codes: np.ndarray | int,
    out: Scores,
    status: np.ndarray,
    *,
    filled: bool = False,
) -> list[PairFailure]:
    """Score a tile on the CPU and write scores and codes.

    Parameters
    ----------
    codes : uint8 array (m, k), or int
        Codes if every comparison succeeds, or the one code of all pairs.
    out : dict of arrays (m, k)
        Views of the chunk's buffers.
    status : uint8 array (m, k)
        View of the chunk's codes; transposed for the mirrored half. Not touched where all pairs have one code and none
        fails: what all pairs of a chunk have in common need not be written.
    filled : bool
        Whether the codes are there already, from the comparison the other way round.

    Returns
    -------
    list of PairFailure
        Of many only some; the codes are complete.
    """
    failures: list[PairFailure] = []
    scores: Mapping[str, Any]
    if compares_pairs(app):
        scores, failures = compare_pairs(app, left, right, dtypes, codes)
    else:
        scores = compare_block(app, left, right, np, dtypes, out)
    return write_block(app, scores, codes, failures, out, status, filled=filled)


def write_reversed(app: Application, out: Scores, back: Scores, failures: Sequence[PairFailure]) -> None:
    """Write the scores of (b, a) that those of (a, b) say, for applications with directed outputs.

    Parameters
    ----------
    out : dict of arrays (m, k)
        Finished scores.
    back : dict of arrays (k, m)
        Where the others go.
    failures : sequence of PairFailure
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
        back[name][...] = turned.T


def write_block(
    app: Application,
    scores: Mapping[str, Any],
    codes: np.ndarray | int,
    failures: list[PairFailure],
    out: Scores,
    status: np.ndarray,
    *,
    filled: bool = False,
) -> list[PairFailure]:
    """Postprocess scores, find NaN, and write scores and codes into the chunk's buffers; see ``score_tile``."""
    failed = {(f.row, f.column) for f in failures}
    if not filled and (failed or not isinstance(codes, int)):
        status[...], filled = codes, True
    for row, column in failed:
        status[row, column] = FAILED_PAIR
    changed = type(app).postprocess is not Application.postprocess
    for name, block in scores.items():
        finished = app.postprocess(block) if changed else block
        misfits = None if finished is out[name] else copy_scores(finished, out[name], name)
        bad = _nan_pairs(out[name], codes) if misfits is None else _counted(misfits, codes)
        if bad is None:
            continue
        if not filled:
            status[...], filled = codes, True
        status[bad] = FAILED_PAIR
        new = [place for place in zip(*(ends.tolist() for ends in bad), strict=True) if place not in failed]
        for row, column in new[:MOST_LISTED]:
            what = "NaN" if misfits is None else str(finished[row, column])
            cannot = "" if misfits is None else f", which {out[name].dtype} cannot hold"
            failures.append(PairFailure(row, column, f"compare returned {what} for output {name!r}{cannot}"))
        if len(new) > MOST_LISTED:
            last = failures[-1]
            reason = f"{last.reason}, and so for {len(new) - MOST_LISTED:,} more pairs of this tile"
            failures[-1] = PairFailure(last.row, last.column, reason)
        failed.update(new[:MOST_LISTED])
    return failures


def merge_mirrored(failures: list[PairFailure], mirrored: list[PairFailure], status: np.ndarray) -> list[PairFailure]:
    """Let a pair fail when either of its two comparisons does."""
    known = {(f.row, f.column) for f in failures}
    for failure in mirrored:
        row, column = failure.column, failure.row
        status[row, column] = FAILED_PAIR
        if (row, column) not in known:
            known.add((row, column))
            failures.append(PairFailure(row, column, f"{failure.reason} (second before first)", failure.traceback))
    return failures


def count_pairs(
    codes: np.ndarray | int, status: np.ndarray, failures: Sequence[PairFailure], offset: int | None
) -> PairCounts:
    """Count how the pairs of a part ended.

    Parameters
    ----------
    codes : uint8 array (m, k), or int
        Codes if every comparison had succeeded, or the one code of all pairs.
    status : uint8 array (m, k)
        Codes as they are.
    failures : sequence of PairFailure
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


def copy_scores(finished: Any, target: np.ndarray, name: str) -> np.ndarray | None:
    """Copy scores into a buffer; return which of them its dtype cannot hold, None when it holds all."""
    values = np.asarray(finished)
    if values.shape != target.shape:
        raise CompareError(f"postprocess returned shape {values.shape} for output {name!r}; expected {target.shape}")
    if values.dtype.kind == "c" != target.dtype.kind:
        raise CompareError(f"compare returned {values.dtype} for output {name!r}, which is {target.dtype}")
    with np.errstate(all="ignore"):
        target[...] = values
    return _misfits(values, target.dtype) if target.dtype.kind in "iu" else None


def _misfits(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray | None:
    """Return which values an integer dtype cannot hold, None when it holds all; fractions are cut off."""
    if np.can_cast(values.dtype, dtype):
        return None
    numbers = values if values.dtype.kind in "biuf" else values.astype(np.float64)
    limits = np.iinfo(dtype)
    misfits = ~((numbers >= limits.min) & (numbers < limits.max + 1))
    return misfits if misfits.any() else None


def _counted(found: np.ndarray, codes: np.ndarray | int) -> Places | None:
    """Return the rows and columns of those pairs that count, None if there are none."""
    if not isinstance(codes, int):
        found = found & (codes == DONE)
    rows, columns = np.nonzero(found)
    return (rows, columns) if len(rows) else None


def _nan_pairs(block: np.ndarray, codes: np.ndarray | int) -> Places | None:
    if block.dtype.kind not in "fc":
        return None
    # One pass without a temporary array: a sum is NaN if anything in it is (or if infinities of both signs are).
    with np.errstate(all="ignore"):
        suspicious = np.isnan(block.sum())
    if not suspicious:
        return None
    return _counted(np.isnan(block), codes)
