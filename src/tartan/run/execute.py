"""The door to execution: a run started, resumed or extended."""

from __future__ import annotations

import contextlib
import copy
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from tartan.application import defines
from tartan.base.checks import path_of
from tartan.base.files import disk_errors
from tartan.base.keys import distinct
from tartan.core.memory import MemoryNeed
from tartan.errors import ConfigError, StoreError
from tartan.options import RunOptions
from tartan.result.run import Run
from tartan.result.triple_result import TripleRun, open_result
from tartan.run.healing import list_failed_items
from tartan.run.inputs import Texts, leave_out_old, open_items
from tartan.run.meaning import open_run
from tartan.run.probing import form_in
from tartan.run.reopen import Reopen, refuse_other
from tartan.run.request import Request
from tartan.run.session import Ranks, RunSession
from tartan.run.share import Share
from tartan.run.statistics import collect_statistics
from tartan.run.versions import (
    find_slots,
    keep_rows,
    list_removed,
    make_record,
    name_new_items,
    open_lists,
    open_to_write,
)
from tartan.sources.groups import FOLDERS
from tartan.sources.items import join_sources, rows_of_run
from tartan.store.changing import refuse_change
from tartan.store.dense import plain_bytes, refuse_too_large
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.manifest import leaves
from tartan.store.opening import mark_opened
from tartan.store.tables import mend_result, result_is_whole
from tartan.store.versions import Record
from tartan.workers.shipping import Registry


def start(
    asked: Request,
    out: str | Path | None,
    share: Share | None = None,
    ranks: Ranks | None = None,
    kind: type[RunSession] | None = None,
    *,
    overwrite: bool = False,
) -> Run | TripleRun:
    """Compute what is asked for, in a new run folder or in one that holds this very run.

    Parameters
    ----------
    asked : Request
    out : path or None
        None keeps the result in a temporary folder for as long as the returned object and what reads from it.
    share : Share, optional
        Compute this part of the run alone.
    ranks : Ranks, optional
        Compute on these; default: in this process.
    kind : type of RunSession, optional
        What computes it in place of a plain session.
    overwrite : bool
        Whether a new run takes the place of one that is there.

    Raises
    ------
    TartanError
        As ``tartan.allpairs``.
    """
    kind = kind or RunSession
    path = None if out is None else path_of("out", out, option="--out")
    if share is not None:
        _refuse_for_share(asked.options, out)
        if ranks is not None:
            raise ConfigError("--part and --on exclude each other: parts do not talk to anyone")
        if overwrite:
            raise ConfigError("one part of a run replaces nothing: leave out `overwrite=True` or `part=`")
    with contextlib.ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tartan-"))) / "run.tartan"
        with disk_errors(path):
            new = overwrite or not (path / MANIFEST_NAME).exists()
        if new:
            asked.check_files()
        else:
            asked.look_at_files()
        with kind(asked, ranks, overwrite=overwrite) as session:
            if share is not None:
                finished = session.execute_share(path, share)
            else:
                folder = session.folder(path)
                if folder.finished:
                    _take_over(folder, alone=False)
                    if not result_is_whole(folder):
                        mend_result(folder)
                finished = folder.finished
                if not finished:
                    session.execute(folder)
        run = open_result(path)
        run.found_finished, run.memory_need = finished, session.need
        # Readers of the result hold the folder, even after the run itself is gone.
        weakref.finalize(run.folder, stack.pop_all().close)
    return run


def _take_over(folder: RunFolder, *, alone: bool = True) -> None:
    """Take over what several writers left; unless ``alone``, only where none of them is at work."""
    if not folder.has_leftovers:
        return
    try:
        with folder.lock():
            collect_statistics(folder)
    except StoreError as error:
        if alone or error.code != "locked":
            raise


def _refuse_for_share(options: RunOptions, out: str | Path | None) -> None:
    """Refuse what one part of a run cannot do."""
    if out is None:
        raise ConfigError("part: parts meet in a run folder; name one (out)", context={"option": "--out"})
    if options.trace:
        raise ConfigError("--trace: parts have no clock in common; leave it out", context={"option": "--trace"})


def resume(
    path: str | Path,
    reopen: Reopen,
    registry: Registry,
    ranks: Ranks | None = None,
    kind: type[RunSession] | None = None,
    *,
    retry_failed: bool = False,
) -> Run | TripleRun:
    """Compute what a run lacks, and what failed if that is asked for; see ``tartan.resume`` and ``start``."""
    kind = kind or RunSession
    folder, need = open_to_write(path), None
    _take_over(folder)
    if folder.n_left == 0 and not folder.healing:
        mend_result(folder)
    if retry_failed and folder.live is not None and folder.has_failures:
        replaces = folder.manifest.workload["kind"] == "all" and folder.manifest.inputs.get("kind") == "files"
        way = "`tartan replace RUN KEY FILE` compares a mended file in place of one that failed"
        raise ConfigError(
            f"items of {path} were removed or replaced, and what failed is not tried again then; "
            + (way if replaces else "start a new run of the items that you want, in another folder"),
            code="changed-items",
            context={"option": "--retry-failed"},
        )
    retried = list_failed_items(folder) if retry_failed else []
    retry = bool(retried) or (retry_failed and folder.has_failures)
    if retry or not folder.finished:
        asked = reopen(folder)
        refuse_other(folder, asked, mended=retried)
        with kind(asked, ranks) as session:
            if retry:
                session.heal(folder)
            if not folder.finished:
                session.execute(folder)
            need = session.need
    run = open_run(path, registry)
    run.memory_need = need
    return run


def extend(
    path: str | Path,
    items: Any,
    reopen: Reopen,
    registry: Registry,
    ranks: Ranks | None = None,
    keys: Any = None,
) -> Run:
    """Add items to a run and compute their pairs; see ``tartan.add``."""
    folder = open_to_write(path)
    kind = folder.manifest.workload["kind"]
    if folder.manifest.arity != 2 or kind != "all":
        what = f"compares {kind}" if folder.manifest.arity == 2 else "is a run of triples"
        raise ConfigError(
            f"{path} {what}; only runs of all pairs take new items: compare the old and the new ones together in a "
            "new run, in another folder"
        )
    old = reopen(folder)
    refuse_other(folder, old)
    grouped = any(leaf.get("groups") for leaf in leaves(folder.manifest.inputs))
    items = items if grouped else leave_out_old(old.app, items, old.source, list_removed(folder, old.app))
    texts: Texts = "items" if old.source.kind == "sequence" else "files"
    new = open_items(old.app, items, keys, texts=texts, group=FOLDERS if grouped else None)
    if keys is not None:
        distinct([*old.source.keys, *new.keys])
    asked = replace(old, source=join_sources(old.source, new, dtype=rows_of_run(old.source)))
    names = name_new_items(folder, asked.source.keys, new.keys)
    change = make_record(folder, "add", names=names)
    need = _extend(folder, _check_added_files(asked, folder), ranks, change)
    extended = open_run(path, registry)
    assert isinstance(extended, Run)
    extended.memory_need = need
    return extended


def replace_item(
    path: str | Path,
    key: str,
    item: Any,
    reopen: Reopen,
    registry: Registry,
    ranks: Ranks | None = None,
) -> Run:
    """Put another item in the place of one, and compute its pairs; see ``tartan.replace``."""
    folder = open_to_write(path)
    refuse_change(folder.manifest, path)
    if folder.manifest.workload["kind"] != "all":
        raise ConfigError(
            f"{path} compares {folder.manifest.workload['kind']}, and the pairs of a new item are not among them; "
            "start a new run of the items that you want",
            code="fixed-items",
        )
    slot, name = find_slots(folder, [key])[0]
    folder.disregard(slot)
    old = reopen(folder)
    refuse_other(folder, old)
    if old.source.kind != "files":
        raise ConfigError(
            f"the items of {path} are not files, and only these are replaced: remove the item and add another"
        )
    grouped = any(leaf.get("groups") for leaf in leaves(folder.manifest.inputs))
    new = open_items(old.app, [item], group=FOLDERS if grouped else None)
    if new.n_items != 1:
        raise ConfigError(f"{item} holds {new.n_items:,} items; name one file that is one item")
    asked = _check_added_files(replace(old, source=join_sources(old.source, new)), folder)
    if folder.opens and folder.n_left:
        _compare_without_the_old(folder, old)
    placed = folder.manifest.n_items
    change = make_record(folder, "replace", names={placed: name}, placed=[(placed, slot)])
    need = _extend(folder, asked, ranks, change)
    replaced = open_run(path, registry)
    assert isinstance(replaced, Run)
    replaced.memory_need = need
    return replaced


def _compare_without_the_old(folder: RunFolder, old: Request) -> None:
    """Compare what a top-k run lacks, but for the pairs of the item that is to be replaced: its file may be gone.

    In this process: ranks elsewhere would look for all items of the folder.
    """
    with RunSession(old) as session:
        session.expect(folder)
        session.execute(folder)


def _extend(folder: RunFolder, asked: Request, ranks: Ranks | None, change: Record | None) -> MemoryNeed | None:
    """Start a generation with the items that are asked for, and compute its pairs; return what this process needs."""
    with RunSession(asked, ranks) as session:
        session.expect(folder)
        session.facts  # noqa: B018 - nothing is extended before an item of the run could be loaded
        after, before = (plain_bytes(folder.manifest, n) for n in (asked.source.n_items, folder.manifest.n_items))
        refuse_too_large(folder.path, after - before)
        with folder.lock():
            change = None if change is None else open_lists(folder, change)
            if asked.notes:
                folder.manifest.application["notes"] = list(asked.notes)
            folder.extend(asked.source.n_items, keep_rows(folder, asked.items()), asked.inputs(), change)
            mark_opened(folder)
        session.execute(folder)
        return session.need


def _check_added_files(asked: Request, folder: RunFolder) -> Request:
    """Refuse new files that cannot be compared with those of the run, before one of them is taken in."""
    if defines(asked.app, "check_files"):  # it is told what the run is, in a copy: the object is the user's
        asked = replace(asked, app=copy.copy(asked.app))
        asked.app.ragged = form_in(folder.manifest) is None
    try:
        asked.check_files()
        return asked
    except ConfigError as error:
        raise ConfigError(
            f"{folder.path} stays as it is, because with the new items its files do not fit together: {error}. The "
            "parameters of a run are fixed: others take a new run",
            context=error.context,
        ) from error
