"""What the creation of a run folder writes, and which folders it refuses."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tartan.base import lock
from tartan.base.confined import ConfinedFolder
from tartan.base.files import FileWriter, disk_errors
from tartan.base.temporary import is_writers_name
from tartan.errors import ConfigError, InternalError, StoreError
from tartan.store import checksums, items, manifest, seal
from tartan.store.dense import Dense
from tartan.store.grid_io import ChunkArray
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest

STATUS = "status"
CANDIDATES_NAME = "candidates.npy"
TRACE_NAME = "trace.json"
_LOCKS = (lock.FILE_NAME, lock.LEASE_NAME, lock.EPOCH_NAME)
_BEFORE_MANIFEST = (*_LOCKS, CANDIDATES_NAME, items.FILE_NAME, seal.FILE_NAME, checksums.FILE_NAME)
_RESERVED = {STATUS, "i", "j", "key_i", "key_j"}
_RESERVED_OF_TRIPLES = {*_RESERVED, "k", "key_k"}


def lay_out(
    path: Path,
    description: Manifest,
    table: ItemTable | None,
    candidates: np.ndarray | None,
    samples: Mapping[str, np.ndarray],
    known: np.ndarray | None,
    writer: FileWriter,
) -> None:
    """Write the files of a new run, the manifest last."""
    if known is not None and len(which := np.flatnonzero(known)):
        writer.replace(path / checksums.FILE_NAME, [checksums.encode_checksums(which, known[which])])
    if table is not None:
        table.write(path, writer)
    if candidates is not None:
        with writer.new_file(path / CANDIDATES_NAME) as stream:
            np.save(stream, np.ascontiguousarray(candidates, np.int64))
    if description.reduce is None and not description.is_listed:
        Dense.create(path, description, writer, samples)
    if description.arity == 2 and not description.is_listed:
        status = ChunkArray(path / f"{STATUS}.zarr", np.dtype(np.uint8), description.chunk, compressed=True)
        status.describe(writer, description.n_items)
    text = description.to_json().encode()
    seal.write_seal(path, text, writer)
    writer.sync()
    writer.replace(path / manifest.FILE_NAME, [text])


def check_request(description: Manifest, table: ItemTable | None) -> None:
    """Refuse a request that cannot become a folder."""
    if table is not None and len(table) != description.n_items:
        raise InternalError(f"{description.n_items} items, {len(table)} keys")
    manifest.refuse_too_many(description.n_items, description.arity)
    reserved = _RESERVED if description.arity == 2 else _RESERVED_OF_TRIPLES
    for name in description.outputs:
        if name in reserved or not name.replace("_", "").replace("-", "").isalnum():
            raise ConfigError(f"output {name!r} cannot be a file name here; use letters, digits, _ and -")


@dataclass(frozen=True)
class _Leftovers:
    """What lies in a folder without a manifest: what a killed creation of a run left, and what it cannot have left."""

    files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def refuse_unwritable(path: Path, outputs: Iterable[str]) -> None:
    """Refuse a folder that cannot be used, before anything is computed for it; see ``refuse_occupied``."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    refuse_occupied(path, outputs)


def refuse_occupied(path: Path, outputs: Iterable[str]) -> None:
    """Refuse a folder that holds a run, or anything that a killed creation cannot have left.

    Parameters
    ----------
    path : Path
    outputs : iterable of str
        Names of the outputs of the run that is to be created.
    """
    found = sorted(entry.name for entry in os.scandir(path))
    if manifest.FILE_NAME in found:
        raise StoreError(
            f"{path} holds a run already; resume it, choose another folder, or replace it with `overwrite=True`",
            code="exists",
        )
    foreign = _leftovers(path, outputs).foreign
    if foreign or (found and lock.FILE_NAME not in found):
        raise StoreError(
            f"{path} is not empty and holds no run ({', '.join((foreign or found)[:3])}); choose another folder",
            code="foreign-folder",
            context={"path": str(path)},
        )


def remove_leftovers(path: Path, outputs: Iterable[str]) -> None:
    """Remove what a killed creation left, and nothing else; the caller holds the lock."""
    confined, left = ConfinedFolder(path), _leftovers(path, outputs)
    for file in left.files:
        if file.name not in _LOCKS:
            confined.remove(file)
    for folder in left.folders:
        confined.remove_folder(folder)


def _leftovers(path: Path, outputs: Iterable[str]) -> _Leftovers:
    confined, found = ConfinedFolder(path), _Leftovers()
    arrays = {f"{name}.zarr" for name in (*outputs, STATUS)}
    for name, state in confined.entries(path):
        if stat.S_ISDIR(state.st_mode) and (name == "tmp" or name in arrays):
            found.folders.append(path / name)
            for inner, its_state in confined.entries(path / name):
                ours = is_writers_name(inner) if name == "tmp" else inner == "zarr.json"
                if ours and stat.S_ISREG(its_state.st_mode):
                    found.files.append(path / name / inner)
                else:
                    found.foreign.append(f"{name}/{inner}")
        elif stat.S_ISREG(state.st_mode) and name in _BEFORE_MANIFEST:
            found.files.append(path / name)
        else:
            found.foreign.append(name)
    return found
