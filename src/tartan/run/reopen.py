"""A run opened again: its application, and the items that it has, whatever other files its folders hold by now.

The manifest knows patterns, the table of items knows keys. Where a pattern finds more files than before, those that the
table names are taken. What has changed is found by comparing the tables (store/manifest.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.application import Application, as_application, output_dtypes
from tartan.base.format import name_some, show_value
from tartan.base.keys import are_numbers, row_keys
from tartan.base.notices import RunNotice
from tartan.base.urls import is_url
from tartan.core.pairs.ledger import DONE
from tartan.errors import ConfigError, ItemError, StoreError, TartanError
from tartan.options import RunOptions
from tartan.run.identity import cannot_tell, changes
from tartan.run.inputs import Texts, open_items
from tartan.run.request import Request
from tartan.run.trust import require_consent
from tartan.runtime.items import parse_data
from tartan.sources.arrays import ArraySource, choose_again
from tartan.sources.files import FileSource
from tartan.sources.groups import GroupSource, files_of_groups, reopen_groups
from tartan.sources.items import Source, join_sources, rows_of_run, with_keys
from tartan.sources.paths import Location, has_magic
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.manifest import (
    Difference,
    Manifest,
    code_differences,
    compare,
    ends_of_leaves,
    leaves,
    refuse_differences,
)
from tartan.workers.shipping import (
    Registry,
    describe_application,
    known_parameters,
    load_application,
    names_builtin,
    source_hash,
)

Reopen = Callable[[RunFolder], Request]
"""Asks for the run of a folder again: ``reopen_request`` with everything but the folder."""


def reopen_request(
    folder: RunFolder,
    options: RunOptions,
    registry: Registry,
    *,
    app: Any = None,
    items: Any = None,
    trust: bool = False,
    only_reads: bool = False,
) -> Request:
    """Ask for a run again, with the application and the inputs that its manifest names.

    Parameters
    ----------
    folder : RunFolder
    options : RunOptions
    registry : Registry
        The built-in applications.
    app, items : optional
        The application and the items that the run has, where they were objects of a program.
    trust : bool
        Whether the code that the folder names may be run and its inputs be opened, although the folder was not made by
        this user here.
    only_reads : bool
        Whether items are read and nothing is compared: parameters that the application has no more are then left out.

    Raises
    ------
    ConfigError
        If the application or the items were objects of a program and are not given.
    StoreError
        If the code of the application has changed, or the folder is not trusted: then none of its code has been run,
        and none of its inputs opened.
    """
    if folder.version is not None:
        raise ConfigError(
            f"items of {folder.path} were removed, replaced or renamed, and its inputs are not opened for that any "
            "more; start a new run of the items that you want",
            code="changed-items",
            context={"path": str(folder.path)},
        )
    manifest = folder.manifest
    about = manifest.application
    if app is None and about["kind"] == "object":
        raise ConfigError(
            f"{folder.path} was computed by {about['name']}, which exists only in the program that defined it; call "
            "tartan.allpairs there again, or give the application as file.py:NAME"
        )
    _require_trust(folder, app=app, items=items, trust=trust)
    if app is None:
        parameters = known_parameters(about["source"], about["parameters"], registry)
        if not only_reads:
            _require_parameters(folder, parameters)
        application, described = load_application(about["source"], parameters, registry, manifest.arity)
        _keep_outputs(application, manifest)
        if only_reads:
            described = described | {"parameters": about["parameters"]}
    else:
        application = as_application(app, manifest.arity)
        described = describe_application(application, registry)
    if items is not None:
        texts: Texts = "items" if manifest.inputs.get("kind") == "sequence" else "files"
        grouping = next((leaf["grouping"] for leaf in leaves(manifest.inputs) if leaf.get("groups")), None)
        opened = open_items(application, items, texts=texts, group=grouping)
        rows = next((leaf["rows"] for leaf in leaves(manifest.inputs) if leaf.get("rows")), None)
        if rows is not None and isinstance(opened, ArraySource) and opened.n_items != manifest.n_items:
            opened = _choose_rows(folder.path, opened, rows)
        source = _find_again(opened, folder)
    else:
        source = open_inputs(folder.path, manifest, folder.items, application, folder.live)
    return Request(application, described, source, options, manifest.workload, reduce=manifest.reduce)


def _keep_outputs(application: Application, manifest: Manifest) -> None:
    """Let a built-in application that has more outputs now make those that a run was begun with."""
    known, begun = output_dtypes(application), manifest.outputs
    if names_builtin(str(manifest.application["source"])) and begun.items() < known.items():
        application.outputs = begun
        application.analysed = manifest.application.get("analysed")


def _require_parameters(folder: RunFolder, known: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that was begun with a parameter that its built-in application has no more."""
    about = folder.manifest.application
    gone = [name for name in about["parameters"] if name not in known]
    if gone:
        version = folder.manifest.versions.get("tartan", "of before")
        raise ConfigError(
            f"{folder.path} was begun by Tartan {version} with the parameter {gone[0]!r}, which {about['name']} has no "
            "more: what is computed now would differ from what it holds. What it holds can be read and analysed; to "
            "compare more, start a new run in another folder",
            context={"parameter": gone[0]},
        )


def _find_again(source: Source, folder: RunFolder) -> Source:
    """Return the items of a run among those that are given again: files by their names, others by their order."""
    items = folder.items
    if items is None:
        return source
    if isinstance(source, FileSource):
        stamped = None if items.sizes is None or items.mtimes is None else (items.sizes, items.mtimes)
        live = _live_of(folder.live, slice(None), len(items))
        found = source.only_live(items.keys, stamped, live)
        if found.n_items < len(items.keys):
            # Where they were is not looked at: folders are opened by name only with consent.
            where = "say where these are, too, also if they have not moved"
            _refuse_gone(folder.path, source.lacks(_some_of(items.keys, live)), where)
        return found
    return with_keys(source, folder.keys) if are_numbers(source.keys) and source.n_items == len(items) else source


def _require_trust(folder: RunFolder, *, app: Any, items: Any, trust: bool) -> None:
    """Refuse changed code, and what a folder from elsewhere names, before any of it is run or opened."""
    about, acts = folder.manifest.application, []
    source = str(about["source"])
    if app is None and not names_builtin(source):
        found = source_hash(source)
        if found is not None:
            differs = code_differences(about, about | {"source_hash": found})
            refuse_differences(differs, folder.path, empty=bool(differs) and not folder.counts()[DONE])
        acts.append(f"the code of its application would be run: {source}")
    names = [name for leaf in leaves(folder.manifest.inputs) for name in [*_names_of(leaf), *files_of_groups(leaf)]]
    if items is None and names:
        acts.append(f"the inputs that it names would be opened: {_name_inputs(names)}")
    if acts:
        require_consent(folder, "; ".join(acts), trust=trust)


def _name_inputs(names: list[str]) -> str:
    """Name the first inputs, and say how many there are and how many of them are fetched over a network."""
    n_urls = sum(is_url(name) for name in names)
    urls = f" ({n_urls:,} of {len(names):,} are URLs)" if n_urls else ""
    return name_some([show_value(name) for name in names]) + urls


def _names_of(inputs: Mapping[str, Any]) -> list[str]:
    """Return what a leaf of the inputs names: patterns, or the path that older versions wrote; nothing for objects."""
    path = inputs.get("path")
    return inputs.get("patterns") or ([path] if path else [])


def refuse_other(folder: RunFolder, asked: Request, *, mended: Sequence[int] = (), starts: bool = False) -> None:
    """Refuse a run folder that was started with another application, other parameters or other inputs.

    Parameters
    ----------
    mended : sequence of int
        Items that may have changed, because they failed.
    starts : bool
        Whether a run was to be started there.

    Raises
    ------
    ConfigError, StoreError
        With everything that differs.
    """
    found = compare(folder.manifest, asked.manifest(), folder.items, asked.items())
    if not any(difference.kind == "input" for difference in found):
        found += _list_changed_items(folder, asked, mended)
    refuse_differences(found, folder.path, starts=starts)
    if cannot_tell(folder, asked):
        warnings.warn(
            f"{folder.path} was begun by a Tartan that kept no checksums: whether its items are those that are given "
            "now cannot be told",
            RunNotice,
            stacklevel=2,
        )


def _list_changed_items(folder: RunFolder, asked: Request, mended: Sequence[int]) -> list[Difference]:
    """List what has changed; with the way out where those are items that failed."""
    gone = [] if folder.live is None else np.flatnonzero(~folder.live).tolist()
    but_for = [*mended, *gone]
    found = [change for change in (change.but_for(but_for) for change in changes(folder, asked)) if len(change.items)]
    said = [change.describe(folder) for change in found]
    if found and not len(mended):
        failed = [failure.i for failure in folder.failures() if failure.j is None]
        if not any(len(change.but_for(failed).items) for change in found):
            way_out = "only items that failed: `tartan resume RUN --retry-failed` takes them as they are now"
            said.append(Difference("input", way_out))
    manifest = folder.manifest
    if found and manifest.inputs.get("kind") == "files" and manifest.arity == 2 and manifest.workload["kind"] == "all":
        way_out = "a file that is to take the place of what was compared: `tartan replace RUN KEY FILE` compares it"
        said.append(Difference("input", way_out))
    return said


def open_inputs(
    path: Path, manifest: Manifest, items: ItemTable | None, app: Application, live: NDArray[np.bool_] | None = None
) -> Source:
    """Open the inputs of a run as its manifest names them.

    Parameters
    ----------
    path : Path
        The run folder, for messages.
    manifest : Manifest
    items : ItemTable or None
        The items that the run has; None where they are the rows of an array.
    app : Application
        Says which files are items, and which hold several.
    live : bool array (n,), optional
        Items that were removed are false: their files may be gone, and others stand in for them.

    Raises
    ------
    ConfigError
        If the items were objects of a program, or nothing is found under their names.
    StoreError
        If some of the files are gone.
    """
    given = list(leaves(manifest.inputs))
    ends = ends_of_leaves(manifest)
    sources: list[Source | None] = []
    for index, inputs in enumerate(given):
        if _is_vacant(inputs, ends, index, live):
            sources.append(None)
            continue
        if not (named := _names_of(inputs)):
            raise ConfigError(
                f"{path} was computed from objects in memory; give them again, in Python as `previous=` of what was "
                "called (tartan.resume, tartan.add, tartan.fuse)"
            )
        source = (
            reopen_groups(inputs, named) if inputs.get("groups") else _open_named(path, app, list_there(named, live))
        )
        if inputs.get("rows"):
            source = _choose_rows(path, source, inputs["rows"])
        if isinstance(source, FileSource) and items is not None and len(ends) == len(given) + 1:
            of_leaf = slice(ends[index], ends[index + 1])
            stamped = None
            if items.sizes is not None and items.mtimes is not None:
                stamped = items.sizes[of_leaf], items.mtimes[of_leaf]
            alive = _live_of(live, of_leaf, len(items.keys[of_leaf]))
            found = source.only_live(items.keys[of_leaf], stamped, alive, named)
            if found.n_items < len(items.keys[of_leaf]):
                _refuse_gone(path, source.lacks(_some_of(items.keys[of_leaf], alive)))
            source = found
        sources.append(source)
    there = _fill_vacant(sources, given, ends, items)
    dtype = rows_of_run(there[0]) if len(manifest.generations) > 1 else None
    joined = join_sources(*there, allow_repeats=True, sides=manifest.workload["kind"] == "rectangle", dtype=dtype)
    if not isinstance(joined, FileSource) and items is not None and len(items) == joined.n_items:
        with_keys(joined, items.keys)  # by which each was found, whatever the names would be chosen today
    elif items is None and joined.kind == "array":
        n_left = int(manifest.workload["n_left"]) if manifest.workload["kind"] == "rectangle" else None
        with_keys(joined, row_keys(joined.n_items, n_left))
    return joined


def _live_of(live: NDArray[np.bool_] | None, which: slice, n: int) -> NDArray[np.bool_]:
    return np.ones(n, bool) if live is None else live[which]


def _some_of(keys: Sequence[str], which: NDArray[np.bool_]) -> list[str]:
    return [key for key, chosen in zip(keys, which.tolist(), strict=True) if chosen]


def _is_vacant(inputs: Mapping[str, Any], ends: list[int], index: int, live: NDArray[np.bool_] | None) -> bool:
    """Whether all files that were given at once have been removed: then they are not looked for."""
    if live is None or inputs.get("kind") != "files" or index + 1 >= len(ends):
        return False
    return not live[ends[index] : ends[index + 1]].any()


def _fill_vacant(
    sources: Sequence[Source | None], given: Sequence[Mapping[str, Any]], ends: list[int], items: ItemTable | None
) -> list[Source]:
    """Return all sources, with stand-ins for those of which no item is left."""
    first = next(source for source in sources if source is not None)
    found: list[Source] = []
    for index, source in enumerate(sources):
        if source is None:
            assert isinstance(first, FileSource)
            assert items is not None
            source = first.standing_for(items.keys[ends[index] : ends[index + 1]], _names_of(given[index]))
            if isinstance(source, GroupSource):
                source.recorded = given[index].get("groups") or {}
        found.append(source)
    return found


def list_there(named: list[str], some: object) -> list[str]:
    """Return the files that were named one by one and are there, with all else that was named.

    ``some`` says whether items were removed, so that files may be; else all that was named is there, or is missed.
    """
    if some is None or some is False:
        return named
    return [name for name in named if is_url(name) or has_magic(name) or Path(name).exists()] or named


def _open_named(path: Path, app: Application, named: list[str]) -> Source:
    """Open what a leaf of the inputs names; where it is not there any more, say how to say where it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunNotice)  # said when the run was begun
            return open_items(app, named)
    except ConfigError as error:
        if any(is_url(name) or Path(name).exists() for name in named):
            raise
        raise StoreError(
            f"{path}: its inputs are not where they were: {name_some([show_value(name) for name in named])}; bring "
            "them back, or say where they are now: `previous=FOLDER`",
            code="other-run",
            context={"path": str(path), "inputs": named},
        ) from error


def _choose_rows(path: Path, source: Source, rows: Sequence[Sequence[int]]) -> Source:
    """Return the rows of an array that a run took, where it did not take all."""
    found = choose_again(source, rows) if isinstance(source, ArraySource) else None
    if found is None:
        raise StoreError(
            f"{path}: rows {rows[0][0]} to {rows[-1][1] - 1} were compared, and its input has {source.n_items} now; "
            "bring it back, say where it is now: `previous=FILE`, or start a new run in another folder",
            code="other-run",
            context={"path": str(path)},
        )
    return found


def locate_items(
    manifest: Manifest, items: ItemTable, app: Application, *, lenient: bool = False
) -> list[Location | None]:
    """Find the file of each item of a run; None for one that is gone.

    Parameters
    ----------
    manifest, items, app
        As of ``open_inputs``; the items are files.
    lenient : bool
        Whether names of the inputs under which nothing is found are passed over.

    Raises
    ------
    ConfigError
        If nothing is found under a name of the inputs, or they are not files.
    """
    given, ends = list(leaves(manifest.inputs)), ends_of_leaves(manifest)
    found: list[Location | None] = []
    for index, inputs in enumerate(given):
        named = _names_of(inputs)
        of_leaf = slice(ends[index], ends[index + 1]) if len(ends) == len(given) + 1 else slice(None)
        try:
            there = list_there(named, lenient)
            source = reopen_groups(inputs, named) if inputs.get("groups") else open_items(app, there)
        except ConfigError:
            if not lenient:
                raise
            found += [None] * len(items.keys[of_leaf])
            continue
        if not isinstance(source, FileSource):
            raise ConfigError("the items of this run are not files")
        stamped = None
        if items.sizes is not None and items.mtimes is not None:
            stamped = items.sizes[of_leaf], items.mtimes[of_leaf]
        found += source.find_locations(items.keys[of_leaf], stamped)
    return found


def _refuse_gone(path: Path, keys: list[str], where: str = "say where they are now") -> None:
    """Name items that are gone here: later the keys of those that are left may be others."""
    raise StoreError(
        f"{path}: items that are gone: {name_some(keys)}; bring them back, {where}: `previous=FOLDER`, "
        "or start a new run in another folder",
        code="other-run",
        context={"path": str(path), "items": keys},
    )


def parse_items(folder: RunFolder, registry: Registry, given: Any = None, *, trust: bool) -> list[Any]:
    """Return all items of a run of a built-in application, parsed; None for one that failed.

    Parameters
    ----------
    folder : RunFolder
    registry : Registry
        The built-in applications.
    given : optional
        The items, where they were objects in memory.
    trust : bool
        Whether the inputs may be opened although the folder was not made by this user on this machine.

    Raises
    ------
    ConfigError, StoreError
        If the inputs are gone or are not those of the run, or the folder is not trusted.
    """
    asked = reopen_request(folder, RunOptions(), registry, items=given, trust=trust, only_reads=True)
    refuse_other(folder, asked)
    failed = {failure.i for failure in folder.failures() if failure.j is None}
    items: list[Any] = []
    for index, key in enumerate(asked.source.keys):
        if index in failed:
            items.append(None)
            continue
        try:
            items.append(parse_data(asked.app, key, asked.source.read(index)))
        except TartanError as error:
            raise ItemError(f"{key}, an item of {folder.path}, cannot be read again: {error}") from error
    return items
