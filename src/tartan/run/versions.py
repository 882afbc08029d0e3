"""Change which items a run has: remove and rename them. Nothing is computed, and nothing that a folder names is opened.

Items that are added or replaced are compared: see execute.py. What a change does to a folder: store/changing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tartan.errors import ConfigError
from tartan.result.run import Run
from tartan.store import changing
from tartan.store.folder import RunFolder
from tartan.store.tables import merge_parts
from tartan.store.versions import Version


def remove(path: str | Path, keys: Sequence[str]) -> Run:
    """Remove items; see ``tartan.remove``."""
    if isinstance(keys, str) or not keys:
        raise ConfigError(f"keys is {keys!r}; it is a list of names of items")
    named = list(keys)
    return _change(path, lambda folder, now: changing.remove_slots(folder, _find(now, named)))


def rename(path: str | Path, old: str, new: str) -> Run:
    """Give an item another name; see ``tartan.rename``."""
    return _change(path, lambda folder, now: changing.rename_slots(folder, {_find(now, [old])[0]: new}), renames=True)


def _find(now: RunFolder, named: Sequence[str]) -> list[int]:
    """Return the slots of named items of the newest version."""
    version = now.version
    found = changing.places_of(now.keys, named)
    return found if version is None else [int(version.slots[place]) for place in found]


def _change(path: str | Path, change: Callable[[RunFolder, RunFolder], Version], *, renames: bool = False) -> Run:
    """Make a version, and again what is derived from the items of a run that is finished."""
    folder = RunFolder.open(path, writable=True, arity=None)
    changing.refuse_change(folder.manifest, path, renames=renames)
    with folder.lock():
        change(folder, RunFolder.open(path))
        if folder.manifest.reduce is not None and folder.n_left == 0:
            merge_parts(folder)
    return Run(path)
