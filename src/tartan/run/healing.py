"""Failed items and pairs tried again: which of the items are healed, and what is taken back for that.

Each failed item is loaded once. Only those that load are healed: their pairs, and no others, are computed then, as what
an unfinished run lacks. Items that fail again keep their pairs failed and get the reason of now.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tartan.base.checksum import NOT_KNOWN, NOT_TELLING
from tartan.base.format import name_some
from tartan.core.pairs.ledger import DONE, Failure
from tartan.core.pairs.verdict import FailureRules, NodeReport, RunTally
from tartan.errors import StoreError
from tartan.options import RunOptions
from tartan.run.probing import load_one, mismatch
from tartan.run.request import Request
from tartan.runtime.items import ItemFailure
from tartan.sources.checked import checksums_of
from tartan.store.folder import RunFolder
from tartan.store.healing import Fingerprint, Healing
from tartan.store.items import ItemTable
from tartan.workers.executor import Executor


def list_failed_items(folder: RunFolder) -> list[int]:
    """Return the items of a run that have failed, in order."""
    return sorted({failure.i for failure in folder.failures() if failure.j is None})


def decide(folder: RunFolder, asked: Request, executor: Executor) -> Healing:
    """Try all failed items again, and say what becomes of the failures.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing; nothing in it is changed.
    asked : Request
        The run, with the items as they are now.
    executor : Executor

    Raises
    ------
    RunFailedError
        If more fail again than the options tolerate.
    StoreError
        If a top-k run has compared a healed item as it was before.
    """
    failed = list_failed_items(folder)
    outcomes = _try_items(folder, asked, executor, failed)
    again = [
        Failure(item, None, outcome.stage, outcome.reason, outcome.traceback)
        for item, outcome in zip(failed, outcomes, strict=True)
        if outcome is not None
    ]
    _judge(asked.options, folder, again)
    now = _fingerprints(folder, asked, failed)
    changed = _find_changed(folder, now)
    compared = _find_compared(folder, changed)
    broken = {failure.i for failure in again}
    anew = [item for item in compared if item not in broken]
    if anew:
        _refuse_where_scores_are_gone(folder, anew)
    # An item that failed again after it had been compared keeps the fingerprint that its scores belong to.
    kept = {item: found for item, found in now.items() if item not in broken or item not in compared}
    return Healing(again, anew, kept)


def _try_items(folder: RunFolder, asked: Request, executor: Executor, items: Sequence[int]) -> list[ItemFailure | None]:
    """Load items on all workers; return why each failed, None where it did not."""

    def outcome(index: int) -> ItemFailure | None:
        found = load_one(asked.source, executor, index, asked.options)
        if isinstance(found, ItemFailure):
            return found
        why = mismatch(folder.manifest, found)
        return None if why is None else ItemFailure("preprocess", f"{asked.source.keys[index]}: {why}")

    pool = ThreadPoolExecutor(max(1, executor.n_workers), thread_name_prefix="tartan-retry")
    outcomes: list[ItemFailure | None] = []
    try:
        for found in pool.map(outcome, items):
            outcomes.append(found)
            folder.flush()  # keeps the lock alive where it is a lease
        return outcomes
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _judge(options: RunOptions, folder: RunFolder, again: Sequence[Failure]) -> None:
    tally = RunTally(FailureRules(options.on_error, options.max_failures), max(1, folder.wanted.n_scores))
    tally.add(NodeReport(failures=again))
    tally.judge()


def _fingerprints(folder: RunFolder, asked: Request, items: Sequence[int]) -> dict[int, Fingerprint]:
    """Return the fingerprints of items as they are now."""
    stamps, table = asked.source.fingerprints(), folder.items
    digests: Sequence[str | None] = [None] * len(items)
    if table is not None and table.contents is not None:
        digests = asked.digests(items)
    sums = checksums_of(asked.source, np.array(items, np.intp)).tolist()
    found = {}
    for item, digest, total in zip(items, digests, sums, strict=True):
        size, mtime, ctime, identity = (None,) * 4 if stamps is None else stamps.of(item)
        note = asked.app.recall_item(asked.source.keys[item])
        found[item] = Fingerprint(size, mtime, digest, ctime, identity, total if total != NOT_KNOWN else None, note)
    return found


def _find_changed(folder: RunFolder, now: dict[int, Fingerprint]) -> list[int]:
    """Return which items may differ from what they were when they were loaded."""
    known = folder.checksums.tolist()
    return [item for item, found in now.items() if _has_changed(folder.items, known[item], found, item)]


def _has_changed(table: ItemTable | None, known: int, now: Fingerprint, item: int) -> bool:
    if known not in (NOT_KNOWN, NOT_TELLING):
        return known != now.checksum
    if table is None or table.sizes is None or table.mtimes is None:
        return True
    same = (now.size, now.mtime) == (int(table.sizes[item]), int(table.mtimes[item]))
    return not same or (table.contents is not None and table.contents[item] != now.content)


def _find_compared(folder: RunFolder, items: Sequence[int]) -> list[int]:
    """Return which of some items have scores: they failed after they had been compared with others."""
    found: set[int] = set()
    side = folder.manifest.chunk
    for row, column in folder.committed() if len(items) else ():
        status = folder.chunk_status(row, column)
        if status is not None:
            done = status == DONE
            found.update((row * side + np.flatnonzero(done.any(axis=1))).tolist())
            found.update((column * side + np.flatnonzero(done.any(axis=0))).tolist())
    return [item for item in items if item in found]


def _refuse_where_scores_are_gone(folder: RunFolder, items: Sequence[int]) -> None:
    rule = folder.manifest.reduce
    if rule is None or rule["kind"] != "top-k":
        return
    keys = [folder.keys[item] for item in items]
    raise StoreError(
        f"{folder.path} keeps {folder.kept}, and has compared {name_some(keys)} before they failed and were changed: "
        "pairs that these put out of the best are not kept; start a new run in another folder",
        code="other-run",
        context={"path": str(folder.path), "items": keys},
    )


def take_chunks_back(folder: RunFolder, asked: Request) -> None:
    """Take all chunks of triples with failures back: they are computed again, with the items as they are now."""
    failed = list_failed_items(folder)
    folder.forget_failed(asked.items())
    items = np.array(failed, np.intp)
    folder.note_checksums(items, checksums_of(asked.source, items))
