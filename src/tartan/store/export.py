"""Export: the result of a run in a file that other programs read. Streams; never holds the whole matrix."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tartan.base.files import whole_file
from tartan.base.keys import stems
from tartan.base.outputs import require_writable
from tartan.base.sync import fsync
from tartan.errors import ConfigError
from tartan.store import formats
from tartan.store.folder import RunFolder
from tartan.store.formats import ExportRequest
from tartan.store.pair_files import SEPARATORS, write_pairs
from tartan.store.tables import pair_reader
from tartan.store.view import require_real

Writer = Callable[[ExportRequest, BinaryIO], None]

_STREAMS: dict[str, Writer] = {
    "npy": formats.write_npy,
    "npy-condensed": formats.write_condensed,
    "phylip": formats.write_phylip,
    "phylip-strict": partial(formats.write_phylip, strict=True),
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
"""Names of all formats; ``parquet`` holds pairs, ``csv`` and ``tsv`` do if asked to, the others the matrix."""
DISTANCES = ("phylip", "phylip-strict", "npy-condensed", "int16", "int16-be")
"""Formats that hold distances: they mean 0 for an item and itself, and those who read them take small for near."""
_NAMED = ("phylip", "phylip-strict", "csv", "tsv", "parquet")
NAMES = ("full", "stem")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; None stands for the default.

    Attributes
    ----------
    output : str or None
        Default: the first; tables of pairs then have a column for each.
    diagonal : number or None
        Value of a diagonal that was not computed. Default: 0 for distances and PHYLIP, else missing.
    missing : number or None
        Value of missing and failed scores. Default: NaN, or -1 in int16; PHYLIP needs one.
    clip : bool
        int16 only: values outside 0..1 become 0 or 1 instead of an error.
    names : {"full", "stem"} or None
        Items by their keys, or by their keys without suffixes. Default: the keys; text of pairs then has none.
    overwrite : bool
        Whether an existing file is replaced.
    pairs : bool
        A line for each pair instead of the matrix.
    distances : callable or None
        Turns an array of scores into distances.
    """

    output: str | None = None
    diagonal: float | None = None
    missing: float | None = None
    clip: bool = False
    names: str | None = None
    overwrite: bool = False
    pairs: bool = False
    distances: Callable[[np.ndarray], np.ndarray] | None = None


def export(
    folder: RunFolder,
    path: str | Path,
    format: str | None = None,  # noqa: A002
    options: ExportOptions | None = None,
) -> Path:
    """Write the result of a run, finished or not, to a file.

    Parameters
    ----------
    folder : RunFolder
    path : path
        The file; written under a temporary name beside it and renamed when complete. ``phylip-strict`` writes a second
        one, ``FILE.names.tsv``, which says what the short names stand for.
    format : str, optional
        One of ``FORMATS``; default: by the suffix of the path.
    options : ExportOptions, optional

    Returns
    -------
    Path

    Raises
    ------
    ConfigError
        If the format is unknown, cannot hold this result, or has no use for an option, or the file exists.
    StoreError
        If the file cannot be written.
    DiskFullError
        If the disk is full; no partial file remains.
    """
    path, options = Path(path), options or ExportOptions()
    name = format_of(path, format)
    pairs = holds_pairs(name, pairs=options.pairs)
    refuse_unused(name, options, pairs=pairs)
    if pairs:
        with new_export(path, overwrite=options.overwrite) as temporary:
            _write_pairs(folder, temporary, name, options)
        return path
    with contextlib.ExitStack() as files:
        table = names_table(path) if name == "phylip-strict" else None
        targets = [path] if table is None else [path, table]
        opened = [files.enter_context(new_export(t, overwrite=options.overwrite)) for t in targets]
        _write_matrix(folder, opened, name, options)
    return path


def names_table(path: Path) -> Path:
    """Return where the table of names of a strict PHYLIP file lies."""
    return path.with_name(path.name + ".names.tsv")


def holds_pairs(name: str, *, pairs: bool) -> bool:
    """Whether a format holds pairs, where these are asked for or not.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    if pairs and name != "parquet" and name not in SEPARATORS:
        raise ConfigError(f"pairs are written as CSV, TSV or Parquet; format {name} holds the matrix")
    return pairs or name == "parquet"


def refuse_unused(name: str, options: ExportOptions, *, pairs: bool) -> None:
    """Refuse options that would have no effect.

    Raises
    ------
    ConfigError
    """
    if pairs and (options.diagonal is not None or options.missing is not None):
        holder = "Parquet" if name == "parquet" else name.upper()
        raise ConfigError(f"diagonal and missing are for matrices; {holder} holds pairs, and null for failed ones")
    if pairs and options.distances is not None:
        raise ConfigError("tables of pairs hold the scores as they are; leave out `similarity=`")
    if options.clip and (pairs or not name.startswith("int16")):
        raise ConfigError(f"clip is for int16; {name} holds the scores as they are")
    if options.names is not None and options.names not in NAMES:
        raise ConfigError(f"names: {options.names!r} is none of {', '.join(NAMES)}")
    if options.names is not None and name not in _NAMED:
        raise ConfigError(f"names are for text and Parquet; {name} holds numbers only")


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
def new_export(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary name beside the target: renamed to it on success, else removed.

    Parameters
    ----------
    path : Path
        The target.
    overwrite : bool

    Raises
    ------
    ConfigError
        If the file exists and may not be replaced, there is no folder for it, or it lies in a run.
    DiskFullError
        If the disk is full.
    """
    require_writable(path, overwrite=overwrite)
    with whole_file(path) as temporary:
        yield temporary


def item_names(folder: RunFolder, names: str | None) -> Sequence[str]:
    """Return the keys of a run, or its keys without suffixes."""
    return stems(folder.keys) if names == "stem" else folder.keys


def _write_matrix(folder: RunFolder, files: Sequence[Path], name: str, options: ExportOptions) -> None:
    view = folder.view(options.output, np.nan)
    if name not in _COMPLEX or options.distances is not None:
        require_real(view.name, view.dtype, f"{name} holds" if options.distances is None else "distances need")
    diagonal = folder.manifest.self_score if options.diagonal is None else options.diagonal
    names = item_names(folder, options.names)
    request = ExportRequest(folder, view, diagonal, options.missing, options.clip, names, options.distances)
    writers: list[Writer] = [_STREAMS[name], formats.write_names]
    for path, write in zip(files, writers):
        with open(path, "wb") as stream:
            write(request, stream)
            stream.flush()
            fsync(stream.fileno())


def _write_pairs(folder: RunFolder, path: Path, name: str, options: ExportOptions) -> None:
    names = item_names(folder, "stem") if options.names == "stem" else None
    with pair_reader(folder, options.output, names) as reader:
        write_pairs(reader, path, name, keys=options.names is not None, compression="zstd")
