"""A run folder that this process does not see: what another process sent of it, and where finished chunks go instead.

The other process holds the folder. It sends an *excerpt*, every file that is needed to compute a chunk and none that
only says how chunks came out. This process unpacks it into a folder of its own, works on it as on any run folder, and
hands over each finished chunk and its statistics. Nothing that counts is ever in the excerpt alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tartan.base.confined import is_plain_name
from tartan.base.files import FileWriter, disk_errors
from tartan.core.pairs.ledger import Failure
from tartan.errors import StoreError
from tartan.store import items, manifest
from tartan.store.checksums import FILE_NAME as CHECKSUMS_NAME
from tartan.store.checksums import NOTED, encode_checksums
from tartan.store.claims import EncodedChunk
from tartan.store.folder import RunFolder
from tartan.store.reduced import Parts
from tartan.store.versions import FILE_NAME as VERSIONS_NAME

# By format.
_DEEPEST = 4  # names of the path of a chunk: scores.zarr/c/I/J


class Keeping(Protocol):
    """What has the run folder."""

    def commit(self, chunk: EncodedChunk) -> bool:
        """Commit a chunk; return as ``Ledger.commit_encoded``."""

    def keep_statistics(self, statistics: bytes) -> None:
        """Keep the statistics of this writer in place of those before."""


class RemoteFolder(RunFolder):
    """The excerpt of a run folder; chunks and statistics go to the process that has the folder."""

    _keeping: Keeping
    _noted: bytes = b""

    @classmethod
    def unpack(cls, path: Path, files: Mapping[str, bytes], keeping: Keeping) -> RemoteFolder:
        """Write an excerpt to a folder of this process and open it.

        Raises
        ------
        StoreError
            If it names a file outside.
        DiskFullError
            If the disk is full.
        """
        for name in files:
            if not is_plain_name(name, _DEEPEST):
                raise StoreError(f"an excerpt of a run folder names {name!r}, which is not in it", code="foreign-file")
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        writer = FileWriter(path)
        for name, data in files.items():
            writer.replace(path / name, [data])
        folder = cls.open(path, writable=True, writer=writer)
        assert isinstance(folder, RemoteFolder)
        folder._keeping = keeping
        return folder

    def commit(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        failures: Sequence[Failure] = (),
        mirrored: Mapping[str, np.ndarray] | None = None,
        *,
        last: bool = True,
    ) -> bool:
        """Hand a chunk over; see ``Ledger.commit``."""
        counts = self._keeping.commit(self.encode(row, column, outputs, status, failures, mirrored))
        if isinstance(self.results, Parts):
            self.results.on_published((row, column), counts=counts, last=last)
        return counts

    def note_checksums(self, items: np.ndarray, sums: np.ndarray) -> None:
        """Keep checksums, to be handed over with the statistics."""
        self._noted += encode_checksums(items, sums)

    def write_stats(self, stats: Mapping[str, Any], counted: Iterable[str] = ()) -> None:
        """Hand the statistics of this writer over, and the checksums that it has noted."""
        about = {**stats, NOTED: base64.b64encode(self._noted).decode()} if self._noted else stats
        self._keeping.keep_statistics(json.dumps(about, default=manifest.plain).encode())


def excerpt(folder: RunFolder) -> dict[str, bytes]:
    """Return the files of a run folder that are needed to compute what it lacks, by their paths in it.

    Of finished chunks that is their status, of those that lack some pairs their scores too.
    """
    names = [manifest.FILE_NAME, items.FILE_NAME, CHECKSUMS_NAME, VERSIONS_NAME]
    names += [str(folder.manifest.workload.get("file", manifest.FILE_NAME))]
    paths = [folder.path / name for name in names]
    paths += folder.path.glob("*.zarr/zarr.json")
    for chunk in folder.committed():
        files = folder.targets(chunk)[::-1]  # the status first: what is committed meanwhile is not said to be there
        paths += files if folder.missing([chunk], verify=False) else files[:1]
    with disk_errors(folder.path):
        there = [path for path in paths if path.exists()]
        return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in there}
