"""Export: the result of a run in a file that other programs read. Streams; never holds the whole matrix."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tartan.base.files import whole_file
from tartan.base.sync import fsync
from tartan.errors import ConfigError, StoreError
from tartan.store import formats
from tartan.store.folder import RunFolder
from tartan.store.formats import ExportRequest
from tartan.store.parquet import write_batches
from tartan.store.tables import pair_reader
from tartan.store.view import require_real

Writer = Callable[[ExportRequest, BinaryIO], None]

_STREAMS: dict[str, Writer] = {
    "npy": formats.write_npy,
    "npy-condensed": formats.write_condensed,
    "phylip": formats.write_phylip,
    "csv": partial(formats.write_table, separator=","),
    "tsv": partial(formats.write_table, separator="\t"),
    "int16": partial(formats.write_int16, order="<"),
    "int16-be": partial(formats.write_int16, order=">"),
    "float32": formats.write_float32,
}
_COMPLEX = ("npy", "npy-condensed")
_SUFFIXES = {
    ".npy": "npy", ".phy": "phylip", ".phylip": "phylip", ".dist": "phylip", ".csv": "csv", ".tsv": "tsv",
    ".parquet": "parquet", ".i16": "int16", ".i16le": "int16", ".i16be": "int16-be", ".f32": "float32",
    ".raw": "float32",
}  # fmt: skip

FORMATS = (*_STREAMS, "parquet")
"""Names of all formats; ``parquet`` holds pairs, the others the matrix."""


def export(
    folder: RunFolder,
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    output: str | None = None,
    diagonal: float | None = None,
    missing: float | None = None,
    clip: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write the result of a run, finished or not, to a file.

    Parameters
    ----------
    folder : RunFolder
    path : path
        The file; written under a temporary name beside it and renamed when complete.
    format : str, optional
        One of ``FORMATS``; default: by the suffix of the path.
    output : str, optional
        Default: the first; Parquet then has a column for each.
    diagonal : number, optional
        Value of a diagonal that was not computed. Default: 0 for declared distances and PHYLIP, else missing.
    missing : number, optional
        Value of missing and failed scores. Default: NaN, or -1 in int16; PHYLIP needs one.
    clip : bool
        int16 only: scores outside 0..1 become 0 or 1 instead of an error.
    overwrite : bool
        Whether an existing file is replaced.

    Returns
    -------
    Path

    Raises
    ------
    ConfigError
        If the format is unknown, cannot hold this result, or has no use for an option.
    StoreError
        If the file exists, or cannot be written.
    DiskFullError
        If the disk is full; no partial file remains.
    """
    path = Path(path)
    name = format_of(path, format)
    _refuse_unused(name, diagonal is not None or missing is not None, clip)
    with new_export(path, folder.path, overwrite=overwrite) as temporary:
        if name == "parquet":
            write_batches(temporary, pair_reader(folder, output), compression="zstd")
        else:
            _write_matrix(folder, temporary, name, output, (diagonal, missing, clip))
    return path


def _refuse_unused(name: str, fills: bool, clip: bool) -> None:
    if name == "parquet" and fills:
        raise ConfigError("diagonal and missing are for matrices; Parquet holds pairs, and null for failed ones")
    if clip and not name.startswith("int16"):
        raise ConfigError(f"clip is for int16; {name} holds the scores as they are")


def format_of(path: Path, name: str | None = None) -> str:
    """Return the named format, or that of the suffix of a path.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if name is None:
        name = _SUFFIXES.get(path.suffix.lower())
        if name is None:
            raise ConfigError(f"no format is known for {path.name!r}; name one: {', '.join(FORMATS)}")
    if name not in FORMATS:
        raise ConfigError(f"format {name!r} is unknown; there are {', '.join(FORMATS)}")
    return name


@contextlib.contextmanager
def new_export(path: Path, run: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary name beside the target: renamed to it on success, else removed.

    Parameters
    ----------
    path : Path
        The target.
    run : Path
        The folder of the run, nothing of which is replaced.
    overwrite : bool

    Raises
    ------
    StoreError
        If the file exists and may not be replaced, or there is no folder for it.
    DiskFullError
        If the disk is full.
    """
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is not a regular file and is not replaced; choose another name", code="exists")
    if path.exists() and not overwrite:
        raise StoreError(
            f"{path} exists; choose another name, or overwrite it (overwrite=True, --overwrite)", code="exists"
        )
    if path.exists() and run.resolve() in path.resolve().parents:
        raise StoreError(f"{path} lies in the run itself, which is never written over; choose another name")
    if not path.parent.is_dir():
        raise StoreError(f"cannot write {path}: there is no folder {path.parent}; create it first", code="no-folder")
    with whole_file(path) as temporary:
        yield temporary


def _write_matrix(
    folder: RunFolder, path: Path, name: str, output: str | None, options: tuple[float | None, float | None, bool]
) -> None:
    diagonal, missing, clip = options
    view = folder.view(output, np.nan)
    if name not in _COMPLEX:
        require_real(view.name, view.dtype, f"{name} holds")
    request = ExportRequest(folder, view, folder.manifest.self_score if diagonal is None else diagonal, missing, clip)
    with open(path, "wb") as stream:
        _STREAMS[name](request, stream)
        stream.flush()
        fsync(stream.fileno())
