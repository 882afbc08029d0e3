"""Manage the temporary folders of one job: lock, manifest, and the run files that a stopped attempt has left.

A job has a folder of its own in each of the temporary folders, named after its destination. The first one holds the
lock and ``manifest.json``, which says what the job is: sources with sizes and times of change, dtype, key. Each run
file carries the fingerprint of that description and checksums of its own, so that nothing needs to be recorded
when one becomes whole: a resumed job inspects what is there.

A run file that is incomplete, damaged, or of another job is reported and not used. The folders are removed when the
job is done, or when it stops before there is a run file; files of others in them stay.

The name of a folder can be foreseen, and a temporary folder is often shared: the folder must belong to this user, only
this user may enter it, and nothing in it may be a link (base/confined.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tartan._native import SortFailure, run_facts
from tartan.base.confined import ConfinedFolder, make_private
from tartan.base.files import disk_errors
from tartan.base.lock import FILE_NAME as LOCK_NAME
from tartan.base.lock import FolderLock
from tartan.errors import ConfigError, StoreError

MANIFEST_NAME = "manifest.json"
FORMAT = 1
_RUN_FILE = re.compile(r"run-[0-9a-f]+-[0-9a-f]+-\d+\.trun")
_UNFINISHED = re.compile(r"run-[0-9a-f]+-[0-9a-f]+-\d+\.trun\.part|manifest\.part")


def compute_fingerprint(job: Mapping[str, Any]) -> bytes:
    """Return 32 bytes that identify the description of a job."""
    return hashlib.sha256(json.dumps({"format": FORMAT, **job}, sort_keys=True).encode()).digest()


@dataclass
class WorkFolders:
    """Folders of one job; a context manager that holds their locks.

    Attributes
    ----------
    parents : sequence of Path
        The temporary folders that the user named; they must exist.
    destination : Path
        Path that names the job.
    job : mapping
        Description of the job, for the manifest.
    note : callable
        Called with a sentence for everything that is found and not used.
    """

    parents: Sequence[Path]
    destination: Path
    job: Mapping[str, Any]
    note: Callable[[str], None]
    _locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _held: list[FolderLock] = field(default_factory=list)

    @property
    def paths(self) -> list[Path]:
        """The job's folder in each temporary folder."""
        digest = hashlib.sha256(os.fsencode(self.destination.resolve())).hexdigest()[:8]
        return [parent / f"{self.destination.name}.tartan-sort-{digest}" for parent in self.parents]

    @property
    def fingerprint(self) -> bytes:
        """Bytes that identify run files of this job."""
        return compute_fingerprint(self.job)

    def __enter__(self) -> WorkFolders:
        with self._locks:
            for path in self.paths:
                with disk_errors(path):
                    make_private(path, option="--tmp")
                    ConfinedFolder(path).refuse_links(path)
                self._held.append(self._locks.enter_context(FolderLock(path)))
            self._locks = self._locks.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        nothing_is_lost = kind is None or not any(
            _list_named(path, name) for path in self.paths for name in (_RUN_FILE, _UNFINISHED)
        )
        self._locks.close()
        if nothing_is_lost:
            self._remove_folders()
        if kind is None:
            self._name_what_stays()

    def renew(self) -> None:
        """Renew the leases of the folders, where there are no kernel locks; call it every few seconds."""
        for lock in self._held:
            lock.renew()

    def run_files(self, *, resume: bool) -> list[Path]:
        """Return the whole run files of this job, after moving everything else out of the way.

        Parameters
        ----------
        resume : bool
            False starts anew and removes what is there.
        """
        earlier = self._earlier_fingerprint()
        whole = []
        for path in self.paths:
            for left in _list_named(path, _UNFINISHED):
                self.remove(left)
            for run in _list_named(path, _RUN_FILE):
                if self._is_ours(run, earlier, resume):
                    whole.append(run)
        self._write_manifest()
        return whole

    def remove(self, file: Path) -> None:
        """Remove a file in one of the folders."""
        ConfinedFolder(file.parent).remove(file, missing_ok=True)

    def _is_ours(self, run: Path, earlier: bytes | None, resume: bool) -> bool:
        try:
            found = bytes(run_facts(str(run))["fingerprint"])
        except SortFailure as failure:
            self.note(f"run file {run} is incomplete or damaged ({failure}); its records are sorted again")
            self.remove(run)
            return False
        if found == self.fingerprint and resume:
            return True
        if found in (self.fingerprint, earlier):
            if found != self.fingerprint:
                self.note(f"run file {run} is of other sources, another dtype or another key; it is sorted again")
            self.remove(run)
            return False
        aside = run.with_suffix(".foreign")
        ConfinedFolder(run.parent).move(run, aside)
        self.note(f"run file {run} is of another job; it is not used and has been renamed to {aside.name}")
        return False

    def _earlier_fingerprint(self) -> bytes | None:
        try:
            return compute_fingerprint(
                json.loads(ConfinedFolder(self.paths[0]).read(self.paths[0] / MANIFEST_NAME))["job"]
            )
        except (OSError, StoreError, ValueError, KeyError, TypeError):
            return None

    def _write_manifest(self) -> None:
        path = self.paths[0] / MANIFEST_NAME
        text = json.dumps({"format": FORMAT, "fingerprint": self.fingerprint.hex(), "job": self.job}, indent=1)
        temporary, folder = path.with_suffix(".part"), ConfinedFolder(path.parent)
        with disk_errors(path):
            folder.remove(temporary, missing_ok=True)
            with folder.new_file(temporary, 0o600) as file:
                file.write(f"{text}\n".encode())
            folder.move(temporary, path)

    def _remove_folders(self) -> None:
        for path in self.paths:
            folder = ConfinedFolder(path)
            with contextlib.suppress(OSError):  # not empty, or gone
                for name in (MANIFEST_NAME, LOCK_NAME):
                    folder.remove(path / name, missing_ok=True)
                ConfinedFolder(path.parent).remove_folder(path)

    def _name_what_stays(self) -> None:
        for path in self.paths:
            if path.exists():
                left = sorted(other.name for other in path.iterdir())
                self.note(f"{path} holds other files and is kept: {', '.join(left[:5])}")


def _list_named(folder: Path, name: re.Pattern[str]) -> list[Path]:
    return [folder / found for found, _ in ConfinedFolder(folder).entries(folder) if name.fullmatch(found)]


def check_folders(folders: Sequence[Path]) -> list[Path]:
    """Return temporary folders without repeats.

    Raises
    ------
    ConfigError
        If there is none, or one does not exist or is not writable.
    """
    if not folders:
        raise ConfigError("there is no temporary folder; name one, or omit `tmp=`", context={"option": "tmp"})
    found: dict[tuple[int, int], Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"the temporary folder {folder} does not exist; create it, or name another",
                context={"option": "tmp", "path": str(folder)},
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(
                f"the temporary folder {folder} is not writable; name another",
                context={"option": "tmp", "path": str(folder)},
            )
        status = folder.stat()
        found.setdefault((status.st_dev, status.st_ino), folder)
    return list(found.values())
