"""The door to execution: a run started, resumed or extended."""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from tartan.base.checks import path_of
from tartan.base.files import disk_errors
from tartan.errors import ConfigError
from tartan.options import RunOptions
from tartan.run.healing import failed_items
from tartan.run.inputs import open_items
from tartan.run.meaning import declared_run
from tartan.run.reopen import Given, refuse_other, reopened
from tartan.run.request import Request
from tartan.run.result import Run
from tartan.run.session import Ranks, RunSession
from tartan.run.share import Share
from tartan.run.statistics import collect_statistics
from tartan.sources.items import join_sources, rows_of_run
from tartan.store.dense import plain_bytes, refuse_too_large
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.workers.shipping import Registry


def start(
    asked: Request,
    out: str | Path | None,
    share: Share | None = None,
    ranks: Ranks | None = None,
    kind: type[RunSession] | None = None,
    *,
    overwrite: bool = False,
) -> Run:
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
        Default: of pairs.
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
            raise ConfigError("--part and --cluster exclude each other: parts do not talk to anyone")
        if overwrite:
            raise ConfigError("one part of a run replaces nothing: leave out `overwrite=True` or `part=`")
    with contextlib.ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tartan-"))) / "run.tartan"
        with disk_errors(path):
            new = overwrite or not (path / MANIFEST_NAME).exists()
        if new:
            asked.check_files()
        with kind(asked, ranks, overwrite=overwrite) as session:
            if share is not None:
                finished = session.execute_share(path, share)
            else:
                folder = session.folder(path)
                if folder.finished:
                    kind.mend(folder, thorough=False)
                finished = folder.finished
                if not finished:
                    session.execute(folder)
        run = kind.result(path)
        run.found_finished = finished
        # Readers of the result hold the folder, even after the run itself is gone.
        weakref.finalize(run.folder, stack.pop_all().close)
    return run


def _refuse_for_share(options: RunOptions, out: str | Path | None) -> None:
    """Refuse what one part of a run cannot do."""
    if out is None:
        raise ConfigError("part: parts meet in a run folder; name one (out)", context={"option": "--out"})
    if options.trace:
        raise ConfigError("--trace: parts have no clock in common; leave it out", context={"option": "--trace"})


def resume(
    path: str | Path,
    options: RunOptions,
    registry: Registry,
    given: Given,
    ranks: Ranks | None = None,
    kind: type[RunSession] | None = None,
) -> Run:
    """Compute what a run lacks, and what failed if that is asked for; see ``tartan.resume`` and ``start``."""
    kind = kind or RunSession
    folder = kind.opened_folder(Path(path))
    if folder.has_leftovers:
        with folder.lock():
            collect_statistics(folder)
    if folder.n_left == 0 and not folder.healing:
        kind.mend(folder)
    retried = failed_items(folder) if given.retry_failed else []
    retry = bool(retried) or (given.retry_failed and folder.has_failures)
    if retry or not folder.finished:
        asked = reopened(folder, options, registry, given)
        refuse_other(folder, asked, mended=retried)
        with kind(asked, ranks) as session:
            if retry:
                session.heal(folder)
            if not folder.finished:
                session.execute(folder)
    return declared_run(path, registry) if kind is RunSession else kind.result(Path(path))


def extend(
    path: str | Path,
    items: Any,
    options: RunOptions,
    registry: Registry,
    given: Given,
    ranks: Ranks | None = None,
) -> Run:
    """Add items to a run and compute their pairs; see ``tartan.add``."""
    folder = RunFolder.open(path, writable=True)
    if folder.manifest.workload["kind"] != "all":
        raise ConfigError(f"{path} compares {folder.manifest.workload['kind']}; only runs of all pairs take new items")
    old = reopened(folder, options, registry, given)
    refuse_other(folder, old)
    new = open_items(old.app, items)
    asked = replace(old, source=join_sources(old.source, new, dtype=rows_of_run(old.source)))
    _check_added_files(asked, folder.path)
    with RunSession(asked, ranks) as session:
        session.expect(folder)
        session.facts  # noqa: B018 - nothing is extended before an item of the run could be loaded
        after, before = (plain_bytes(folder.manifest, n) for n in (asked.source.n_items, folder.manifest.n_items))
        refuse_too_large(folder.path, after - before)
        with folder.lock():
            folder.extend(asked.source.n_items, asked.items(), asked.inputs())
        session.execute(folder)
    return declared_run(path, registry)


def _check_added_files(asked: Request, path: Path) -> None:
    """Refuse new files that cannot be compared with those of the run, before one of them is taken in."""
    try:
        asked.check_files()
    except ConfigError as error:
        raise ConfigError(
            f"{path} stays as it is, because with the new items its files do not fit together: {error}. The parameters "
            "of a run are fixed: others take a new run",
            context=error.context,
        ) from error
