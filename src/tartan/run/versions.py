"""Change which items a run has: remove and rename them. Nothing is computed, and nothing that a folder names is opened.

Items that are added or replaced are compared: see execute.py. What a change does to a folder: store/changing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from tartan.application import Application
from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError
from tartan.result.run import Run
from tartan.run.reopen import locate_items
from tartan.sources.paths import absolute
from tartan.store import changing
from tartan.store.expiry import expire_versions, free
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.opening import find_opened, mark_opened
from tartan.store.tables import merge_parts
from tartan.store.version_view import open_version
from tartan.store.versions import Record, RunVersion, as_spans


def remove(path: str | Path, keys: Sequence[str]) -> Run:
    """Remove items; see ``tartan.remove``."""
    if isinstance(keys, str) or not keys:
        raise ConfigError(f"keys is {keys!r}; it must be a list of names of items")
    named = list(keys)
    return _change(path, lambda folder, now: changing.remove_slots(folder, _find(now, named), now))


def rename(path: str | Path, old: str, new: str) -> Run:
    """Give an item another name; see ``tartan.rename``."""
    return _change(path, lambda folder, now: changing.rename_slots(folder, {_find(now, [old])[0]: new}))


def expire(path: str | Path, keep: int, *, now: bool) -> int:
    """Forget old versions; see ``tartan.expire``."""
    folder = open_to_write(path)
    with folder.lock():
        freed = expire_versions(folder, keep, erase=now)
        if folder.manifest.reduce is not None and folder.n_left == 0 and not folder.has_result:
            merge_parts(folder)
        return freed


def open_to_write(path: str | Path, arity: int | None = None) -> RunFolder:
    """Open the slots of a run for writing; first go on marking and erasing, where that was killed."""
    folder = RunFolder.open(path, writable=True, arity=arity)
    if folder.versions is not None and (folder.versions.erase or folder.versions.unmarked):
        with folder.lock():
            mark_opened(folder)
            free(folder)
    return folder


def find_slots(folder: RunFolder, named: Sequence[str]) -> list[tuple[int, str]]:
    """Return slot and name of named items of the newest version."""
    return list(zip(_find(open_version(folder.path), named), named, strict=True))


def make_record(
    folder: RunFolder, change: str, *, names: Mapping[int, str], placed: Sequence[tuple[int, int]] = ()
) -> Record | None:
    """Return what the log says of the next generation; None where there is no log and none is needed."""
    assert folder.versions is not None
    if change == "add" and not folder.versions.there:
        return None
    said = {str(slot): name for slot, name in names.items()}
    n = len(folder.manifest.generations) + 1
    whole = changing.is_whole(folder)
    return Record(change, changing.tell_time(), n, placed=list(placed), names=said, extends=True, whole=whole)


def open_lists(folder: RunFolder, record: Record) -> Record:
    """Return the record of a change with what it opens, in a top-k run; the caller holds the lock.

    Raises
    ------
    ConfigError
        If such a run lacks pairs: what is computed for other items then would displace some of this version.
    """
    if not folder.opens:
        return record
    if folder.n_left:  # of a replacement all but the pairs of the old item, which nobody can compare any more
        raise ConfigError(
            f"{folder.path} lacks {folder.n_left:,} pairs, and keeps the best of each item, which new ones would "
            f"displace before they are known; first run `tartan resume {folder.path}`",
            code="unfinished",
            context={"path": str(folder.path)},
        )
    opened = find_opened(open_version(folder.path), np.array([old for _, old in record.placed], np.int64))
    return msgspec.structs.replace(record, opened=as_spans(opened), whole=changing.is_whole(folder))


def name_new_items(folder: RunFolder, keys: Sequence[str], wanted: Sequence[str]) -> dict[int, str]:
    """Return names of new slots where these are not their keys: the names of items that were removed are free again.

    Parameters
    ----------
    folder : RunFolder
    keys : sequence of str
        Of all slots, the new ones last.
    wanted : sequence of str
        Of the new items, by themselves.

    Raises
    ------
    ConfigError
        If an item has such a name.
    """
    assert folder.versions is not None
    if not folder.versions.there or isinstance(keys, IndexKeys):
        return {}
    taken, first, found = set(open_version(folder.path).keys), folder.manifest.n_items, {}
    for slot, name in enumerate(wanted, start=first):
        chosen = keys[slot] if isinstance(wanted, IndexKeys) or name in taken else name
        if chosen in taken:
            raise ConfigError(
                f"{folder.path} has an item {chosen!r} already; give one of the two another name (tartan rename)",
                code="name-taken",
            )
        taken.add(chosen)
        if chosen != keys[slot]:
            found[slot] = chosen
    return found


def keep_rows(folder: RunFolder, table: ItemTable | None) -> ItemTable | None:
    """Return a table of items with the old rows of those that were removed: others stand in for them."""
    before = folder.items
    if folder.live is None or table is None or before is None:
        return table
    gone = np.flatnonzero(~folder.live)
    columns = {name: getattr(table, name) for name in ("sizes", "mtimes", "ctimes", "identities")}
    for name, now in columns.items():
        old = getattr(before, name)
        if now is not None:
            columns[name] = now = np.array(now)
            now[gone] = -1 if old is None else old[gone]
    return replace(table, **columns)


def list_removed(folder: RunFolder, app: Application) -> set[str]:
    """Return where the files are, as absolute names, of items that were removed."""
    if folder.live is None or folder.items is None or folder.manifest.inputs.get("kind") != "files":
        return set()
    places = locate_items(folder.manifest, folder.items, app, lenient=True)
    return {absolute(place.name) for place, live in zip(places, folder.live, strict=True) if place and not live}


def _find(now: RunFolder, named: Sequence[str]) -> list[int]:
    """Return the slots of named items of the newest version."""
    version = now.version
    found = changing.places_of(now.keys, named, now.manifest.workload.get("n_left"))
    return found if version is None else [int(version.slots[place]) for place in found]


def _change(path: str | Path, change: Callable[[RunFolder, RunFolder], RunVersion]) -> Run:
    """Make a version, and again what is derived from the items of a run that is finished."""
    folder = open_to_write(path)
    changing.refuse_change(folder.manifest, path)
    with folder.lock():
        change(folder, open_version(path))
        if folder.manifest.reduce is not None and folder.n_left == 0:
            merge_parts(folder)
    return Run(path)
