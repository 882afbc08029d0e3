"""Change which items a run has: each change is one version, decided by one rename of ``versions.jsonl``.

The caller holds the run lock. Killed before the rename nothing has changed; killed after it, everything has: what is
derived from the items (the merged result of a reduced run) is then older than the version, and is made again by the
next writer.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import name_some
from tartan.errors import ConfigError
from tartan.store.manifest import Manifest
from tartan.store.opening import find_opened, mark_opened
from tartan.store.versions import Record, RunVersion, VersionLog, as_spans

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder


def tell_time() -> str:
    """Return the time as records have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def refuse_change(manifest: Manifest, path: object) -> None:
    """Refuse runs whose items cannot be changed: a wrong answer would follow.

    Raises
    ------
    ConfigError
        Of triples.
    """
    if manifest.arity > 2:
        raise ConfigError(
            f"{path} compares three items at a time, and its items cannot be changed; start a new run of the items "
            "that you want, in another folder: `tartan run APP INPUT... --arity 3 -o RUN`",
            code="fixed-items",
            context={"path": str(path)},
        )


def places_of(keys: Sequence[str], named: Sequence[str], n_left: int | None = None) -> list[int]:
    """Return the numbers of the items that are named, in that order, each once.

    Parameters
    ----------
    keys : sequence of str
        Of all items.
    named : sequence of str
        Whole names: what changes a run is not guessed.
    n_left : int, optional
        How many items are of the first of two sets. What both have is named with ``A:`` or ``B:`` before it.

    Raises
    ------
    ConfigError
        If there is no such item, or two have that name.
    """
    places: dict[str, int] = {}
    repeated = set()
    for place, key in enumerate(keys):
        if key in places:
            repeated.add(key)
        places[key] = place
    if n_left is not None:
        for place, key in enumerate(keys):
            places.setdefault(f"{'A' if place < n_left else 'B'}:{key}", place)
    unknown = [name for name in dict.fromkeys(named) if name not in places]
    if unknown:
        raise ConfigError(
            f"there is no item {name_some(unknown)} among {len(keys):,}; give whole names, as `tartan export` and "
            f"`tartan show` write them: the first is called {keys[0]!r}",
            code="no-item",
            context={"items": unknown},
        )
    twice = [name for name in named if name in repeated]
    if twice:
        way_out = "" if n_left is None else f"; write A:{twice[0]} for that of the first set, B:{twice[0]} else"
        raise ConfigError(
            f"two items are called {twice[0]!r}, and it is not known which one is meant{way_out}", code="same-name"
        )
    return [places[name] for name in dict.fromkeys(named)]


def remove_slots(folder: RunFolder, slots: Sequence[int], now: RunFolder) -> RunVersion:
    """Make a version without some items; return it. ``now`` is the newest version, for reading.

    Raises
    ------
    ConfigError
        If fewer than one item would be left, or the run is of a kind whose items are fixed.
    """
    refuse_change(folder.manifest, folder.path)
    log = log_of(folder)
    left = len(log.at().slots) - len(slots)
    if left < 1:
        raise ConfigError(
            f"{folder.path} would have no items; remove the folder if the run is of no use any more", code="no-items"
        )
    gone = np.unique(np.asarray(slots, np.int64))
    n_left = folder.manifest.workload.get("n_left")
    if n_left is not None and not (_is_of_both(np.setdiff1d(log.at().slots, gone), int(n_left))):
        raise ConfigError(
            f"{folder.path} compares two sets, and one of them would have no items; remove fewer, or remove the folder "
            "if the run is of no use any more",
            code="no-items",
        )
    opened, whole = as_spans(find_opened(now, gone)), is_whole(folder)
    record = Record("remove", tell_time(), len(log.generations), gone=as_spans(gone), opened=opened, whole=whole)
    return _append(folder, log, record)


def rename_slots(folder: RunFolder, names: Mapping[int, str]) -> RunVersion:
    """Make a version in which some items have other names; return it, or the newest where they have these already.

    Raises
    ------
    ConfigError
        If a name is empty, has control characters or belongs to another item, or the run is of a kind whose items are
        fixed.
    """
    refuse_change(folder.manifest, folder.path)
    log = log_of(folder)
    now = log.at()
    if all(folder.name_of(slot, now) == name for slot, name in names.items()):
        return now  # it is called that already
    _refuse_names(folder, now, names)
    said = {str(slot): name for slot, name in names.items()}
    record = Record("rename", tell_time(), len(log.generations), names=said, whole=is_whole(folder))
    return _append(folder, log, record)


def is_whole(folder: RunFolder) -> bool:
    """Whether a top-k run lacks nothing of its newest version; others are not asked."""
    return folder.opens and folder.is_whole


def _is_of_both(slots: NDArray[np.int64], n_left: int) -> bool:
    return bool((slots < n_left).any() and (slots >= n_left).any())


def _refuse_names(folder: RunFolder, version: RunVersion, names: Mapping[int, str]) -> None:
    keys = folder.keys
    n_left = folder.manifest.workload.get("n_left", 0)  # each of two sets has names of its own
    first = {slot < n_left for slot in names}
    others = {
        version.names.get(slot, keys[slot])
        for slot in version.slots.tolist()
        if slot not in names and (slot < n_left) in first
    }
    for name in names.values():
        if not name.strip() or not name.isprintable():
            raise ConfigError(f"{name!r} is not a name: it is empty, or has characters that cannot be printed")
        if name in others:
            raise ConfigError(f"{folder.path} has an item {name!r} already; give another name", code="name-taken")
        others.add(name)


def log_of(folder: RunFolder) -> VersionLog:
    """Return the log of a folder that is open for writing."""
    assert folder.versions is not None
    return folder.versions


def _append(folder: RunFolder, log: VersionLog, record: Record) -> RunVersion:
    """Append a change: first the manifest says that there is a log, then the log has it."""
    changed = log.with_record(record)
    folder.write_versions(changed)
    mark_opened(folder)
    return changed.at()
