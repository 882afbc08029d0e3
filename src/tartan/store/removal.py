"""Removing a run from its folder, and nothing else: names that no run has are refused, links are never followed."""

from __future__ import annotations

from pathlib import Path

from tartan.base import lock
from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.temporary import is_writers_name
from tartan.errors import ConfigError
from tartan.store import layout, links, manifest, maps, versions
from tartan.store.manifest import Manifest

_KEPT = {lock.FILE_NAME, lock.LEASE_NAME, lock.EPOCH_NAME, "tmp"}
# The creation of the next run wants the first, and clears the last; a driver that comes back finds its epoch passed.


def require_removable(path: Path) -> None:
    """Refuse a folder that is not a run, or holds more than a run.

    Raises
    ------
    ConfigError
        With what else it holds.
    StoreError
        As ``Manifest.load``.
    """
    if foreign := foreign_names(path):
        raise ConfigError(
            f"{path} is not replaced: besides a run it holds {', '.join(foreign[:3])}"
            f"{' and more' if len(foreign) > 3 else ''}; move that away, or name another folder",
            code="foreign-folder",
            context={"path": str(path)},
        )


def is_removable(path: Path) -> bool:
    """Whether a folder holds a run and nothing else."""
    return not foreign_names(path)


def remove_run(path: Path) -> None:
    """Remove a run, its manifest last: killed on the way, this leaves a run that can be removed.

    Raises
    ------
    ConfigError, StoreError
        As ``require_removable``, or if another process holds the folder.
    """
    require_removable(path)
    names, confined = _names(path) - _KEPT, ConfinedFolder(path)
    with disk_errors(path), lock.FolderLock(path):
        there = [name for name, _ in confined.entries(path) if name in names]
        last = (versions.FILE_NAME, manifest.FILE_NAME)  # in this order
        for name in sorted(there, key=lambda name: last.index(name) if name in last else -1):
            confined.remove_tree(path / name)


def _names(path: Path) -> set[str]:
    arrays = {f"{name}.zarr" for name in (*Manifest.load(path).outputs, layout.STATUS)}
    return {*links.NAMES, *arrays, maps.FILE_NAME, "cache"}


def foreign_names(path: Path) -> list[str]:
    """Return what a folder holds besides its run."""
    confined, known = ConfinedFolder(path), _names(path)
    unfinished = [f"tmp/{name}" for name, _ in confined.entries(path / "tmp") if not is_writers_name(name)]
    return [name for name, _ in confined.entries(path) if name not in known] + unfinished
