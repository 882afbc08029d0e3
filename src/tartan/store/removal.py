"""Removing a run from its folder, and nothing else: names that no run has are refused, links are never followed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tartan.base import lock
from tartan.base.files import disk_errors
from tartan.errors import ConfigError
from tartan.store import checksums, claims, failures, healing, items, manifest, maps, reduced, seal, shares, writers
from tartan.store.layout import CANDIDATES_NAME, STATUS
from tartan.store.manifest import Manifest

_KEPT = {lock.FILE_NAME, lock.LEASE_NAME, "tmp"}  # the creation of the next run wants the first, and clears the last
_OF_A_RUN = {
    manifest.FILE_NAME, seal.FILE_NAME, items.FILE_NAME, maps.FILE_NAME, shares.FILE_NAME, healing.FILE_NAME,
    failures.FILE_NAME, failures.LOG_NAME, reduced.RESULT_NAME, writers.STATISTICS_NAME, writers.RANKS_NAME,
    writers.GONE_NAME, lock.WRITERS_NAME, claims.NAME, checksums.FILE_NAME, CANDIDATES_NAME, f"{STATUS}.zarr",
    "trace.json", "parts", "cache",
}  # fmt: skip


def require_removable(path: Path) -> None:
    """Refuse a folder that is no run, or holds more than a run.

    Raises
    ------
    ConfigError
        With what else it holds.
    StoreError
        As ``Manifest.load``.
    """
    if foreign := _foreign(path):
        raise ConfigError(
            f"{path} is not replaced: besides a run it holds {', '.join(foreign[:3])}"
            f"{' and more' if len(foreign) > 3 else ''}; move that away, or name another folder",
            code="foreign-folder",
            context={"path": str(path)},
        )


def is_removable(path: Path) -> bool:
    """Whether a folder holds a run and nothing else."""
    return not _foreign(path)


def remove_run(path: Path) -> None:
    """Remove a run, its manifest first: killed on the way, this leaves what the creation of a run clears away.

    Raises
    ------
    ConfigError, StoreError
        As ``require_removable``, or if another process holds the folder.
    """
    require_removable(path)
    names = _names(path)
    with disk_errors(path), lock.FolderLock(path):
        for name in sorted(names, key=lambda name: name != manifest.FILE_NAME):
            place = path / name
            if place.is_symlink() or not place.is_dir():
                place.unlink(missing_ok=True)
            else:
                shutil.rmtree(place)


def _names(path: Path) -> set[str]:
    return _OF_A_RUN | {f"{name}.zarr" for name in Manifest.load(path).outputs}


def _foreign(path: Path) -> list[str]:
    known = _names(path) | _KEPT
    return sorted(entry.name for entry in os.scandir(path) if entry.name not in known)
