"""What may be written where a user says: one rule for every command and every function that writes.

Nothing that is there is replaced unless overwriting was asked for, and nothing is written into the folder of a run.
That is said before the work is done.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tartan.errors import ConfigError

_RUN_MANIFEST = re.compile(rb'\{\s*"format":\s*\d+,')


def require_writable(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a file that cannot be written as asked, before its contents are made.

    Parameters
    ----------
    path : Path
        Files below /dev, such as ``/dev/stdout``, are written to, never replaced.
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    ConfigError
        With the name of the file and the way out; code "exists" where it is there.
    """
    if str(path).startswith("/dev/"):
        return
    _require_place(path)
    if path.is_dir():
        raise ConfigError(f"{path} cannot be written: it is a folder; name a file", context={"path": str(path)})
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"{path} is not a regular file and is not replaced; choose another name",
            code="exists",
            context={"path": str(path)},
        )
    if not overwrite and os.path.lexists(path):
        raise ConfigError(
            f"{path} exists; choose another name, or replace it with `overwrite=True`",
            code="exists",
            context={"path": str(path)},
        )


def require_writable_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a folder that holds something, before files are written into it.

    Parameters
    ----------
    folder : Path
        It may be absent.
    overwrite : bool
        Whether files in it may be replaced by those of the same names; others stay.

    Raises
    ------
    ConfigError
        With the name of the folder and the way out; code "exists" where it holds something.
    """
    refuse_inside_run(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigError(f"{folder} cannot be made a folder: it is a file; name another one", code="exists")
    if not overwrite and folder.is_dir() and list(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty; name another folder, or replace files of the same names in it with "
            "`overwrite=True`",
            code="exists",
            context={"path": str(folder)},
        )


def refuse_inside_run(path: Path) -> None:
    """Refuse a place in the folder of a run, which holds what Tartan puts there and nothing else.

    Raises
    ------
    ConfigError
    """
    place = path.resolve()
    for folder in (place, *place.parents):
        if holds_run(folder):
            raise ConfigError(
                f"{path} lies in the run {folder}, which is never written over; choose another place",
                code="inside-run",
                context={"path": str(path)},
            )


def holds_run(folder: Path) -> bool:
    """Whether a folder is that of a run, by how its manifest begins."""
    manifest = folder / "manifest.json"
    try:
        if not manifest.is_file():
            return False
        with manifest.open("rb") as file:
            return _RUN_MANIFEST.match(file.read(64)) is not None
    except OSError:
        return False


def _require_place(path: Path) -> None:
    """Refuse a file in a folder that is not there, or in a run."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: there is no folder {path.parent}; create it first",
            code="no-folder",
            context={"path": str(path)},
        )
    refuse_inside_run(path)
