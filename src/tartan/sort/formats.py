"""Describe files of records, raw binary and .npy, without touching the records.

Of a source this module finds out where its records begin, how many bytes they take, and how a later change can be
noticed. A destination is written under a temporary name in the same folder and renamed when it is whole.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checks import path_of
from tartan.base.confined import open_unfinished
from tartan.base.files import disk_errors, fsync
from tartan.base.outputs import require_writable
from tartan.errors import ConfigError, InputChangedError
from tartan.sort.dtypes import DType, describe_dtype, parse_dtype

# Headers of .npy files that we write: as long as a disk block, so that data begin where direct writes can.
# By arithmetic: 4,096 is the largest block of ordinary disks, which O_DIRECT asks for.
HEADER_BYTES = 4096
_MAGIC = b"\x93NUMPY"
TABLE_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
_GLOB = frozenset("*?[")
_OF_A_SORT = re.compile(r"\.tartan-sort-[0-9a-f]{8}$")


@dataclass(frozen=True)
class SourceFile:
    """One file of records.

    Attributes
    ----------
    path : Path
    offset : int
        Where the first record begins.
    n_bytes : int
        Bytes of records.
    size, mtime_ns, inode : int
        Compared later to notice a change.
    """

    path: Path
    offset: int
    n_bytes: int
    size: int
    mtime_ns: int
    inode: int

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be unchanged for a job to resume."""
        return {"path": str(self.path.resolve()), "offset": self.offset, "size": self.size, "mtime_ns": self.mtime_ns}


def expand_sources(sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the files to sort: expand folders and globs, sorted by name, and take everything else as it is.

    Raises
    ------
    ConfigError
        If nothing is named, a glob matches no file, or a folder has none, or several kinds.
    """
    listed = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not listed:
        raise ConfigError("there is nothing to sort; name at least one file")
    return [path for one in listed for path in _expand(os.fspath(one))]


def _expand(text: str) -> list[Path]:
    if not _GLOB & set(text) or os.path.lexists(text):
        path = path_of("src", text)
        return _list_parts(path) if path.is_dir() else [path]
    names = glob.glob(text, recursive=True)  # noqa: PTH207 (Path.glob wants the folder apart from the pattern)
    found = sorted(path for path in map(Path, names) if path.is_file())
    if not found:
        raise ConfigError(f"no file matches {text!r}; check the pattern and the folder", context={"path": text})
    return found


def _list_parts(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it, sorted by name, but for those that begin with . or _.

    Such names are those of markers (``_SUCCESS``) and checksums of Spark and others, and of unfinished files; the
    folder of a stopped sort is passed over as well.

    Raises
    ------
    ConfigError
        If there is no file, files of several kinds, or a folder whose name holds the value of a column.
    """
    found = sorted(_walk(folder))
    if not found:
        raise ConfigError(f"the folder {folder} has no files to sort; name another", context={"path": str(folder)})
    kinds = {_suffixes(path): path for path in found}
    if len(kinds) > 1:
        (one, first), (other, second) = sorted(kinds.items())[:2]
        raise ConfigError(
            f"the folder {folder} has files of several kinds, {first.name} and {second.name}; name those to sort by a "
            f"pattern, {str(folder / '**' / f'*{other or one}')!r}",
            context={"path": str(folder)},
        )
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith((".", "_")) or _OF_A_SORT.search(path.name):
            continue
        if not path.is_dir():
            yield path
        elif "=" in path.name:
            raise ConfigError(
                f"the folder {path} has the value of a column in its name, which its files do not hold and which would "
                f"be lost; to sort them without it name them, {str(folder / '**' / '*.*')!r}",
                context={"path": str(path)},
            )
        elif not path.is_symlink():  # it could lead back
            yield from _walk(path)


def _suffixes(path: Path) -> str:
    """Return what the name of a file says of its kind: .csv, .csv.gz; Parquet and Arrow alike in all spellings."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        return "".join(suffixes[-2:])
    return TABLE_SUFFIXES.get(suffixes[-1], suffixes[-1]) if suffixes else ""


def is_table(path: Path) -> bool:
    """Tell whether a file has the suffix of a Parquet or Arrow file."""
    return path.suffix.lower() in TABLE_SUFFIXES


def open_sources(paths: Sequence[Path], dtype: Any) -> tuple[list[SourceFile], DType]:
    """Inspect the files to sort.

    Parameters
    ----------
    paths : sequence of Path
        .npy files by their suffix; everything else is raw binary.
    dtype : optional
        As ``parse_dtype`` takes it; needed unless there is an .npy file.

    Returns
    -------
    sources : list of SourceFile
    dtype : numpy.dtype

    Raises
    ------
    ConfigError
        If a file is missing, unreadable, not a regular file, not a whole number of records, or of a different type
        from the rest.
    """
    wanted = None if dtype is None else parse_dtype(dtype)
    carriers: Path | None = None
    sources = []
    for path in paths:
        status, header = _look(path)
        offset = 0
        if header is not None:
            offset, carried, n_values = header
            if wanted is not None and carried != wanted:
                raise _other_type(path, carried, wanted, carriers)
            wanted, carriers = carried, path
            _check_length(path, status.st_size - offset, n_values, carried)
        sources.append(
            SourceFile(path, offset, status.st_size - offset, status.st_size, status.st_mtime_ns, status.st_ino)
        )
    if wanted is None:
        raise ConfigError(
            f"{paths[0]} does not say what its records are; say `dtype=`, for example int64 or record:100, "
            "or `format=` if it is text",
            context={"option": "dtype", "path": str(paths[0])},
        )
    for source in sources:
        _check_records(source, wanted)
    return sources, wanted


def _look(path: Path) -> tuple[os.stat_result, tuple[int, DType, int] | None]:
    """Return the status of a file and, for an .npy file, the offset, type and number of its values."""
    try:
        refuse_streams(path)
        with path.open("rb", buffering=0) as stream:
            status = os.fstat(stream.fileno())
            return status, _read_header(path) if path.suffix.lower() == ".npy" else None
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; name a file that exists and is readable",
            code="unreadable",
            context={"path": str(path)},
        ) from error


def refuse_streams(path: Path) -> None:
    """Refuse pipes and devices before they are opened: a pipe would wait for its writer.

    Raises
    ------
    ConfigError
    OSError
        If there is no such file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder gives the right error
        raise ConfigError(
            f"{path} is not a regular file; a sort reads its input in several places: write it to a file",
            context={"path": str(path)},
        )


def _read_header(path: Path) -> tuple[int, DType, int]:
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")  # nothing but the header is read
    except ValueError as error:
        raise ConfigError(
            f"{path} is not a whole .npy file of fixed-size values ({error}); write it again, or rename it "
            "to sort it as raw bytes",
            context={"path": str(path)},
        ) from error
    if mapped.ndim != 1:
        order = " in Fortran order" if mapped.flags.fnc else ""
        raise ConfigError(
            f"{path} has the shape {mapped.shape}{order}; only one axis can be sorted: save reshape(-1) for its "
            "values, or a structured array for its rows",
            context={"path": str(path), "shape": list(mapped.shape)},
        )
    return mapped.offset, parse_dtype(mapped.dtype), mapped.shape[0]


def _check_length(path: Path, n_bytes: int, n_values: int, dtype: DType) -> None:
    if n_bytes != n_values * dtype.itemsize:
        raise ConfigError(
            f"{path} holds {n_bytes} bytes behind its header, but the header says {n_values} x {dtype.itemsize}; "
            "it is cut off or damaged: write it again",
            context={"path": str(path)},
        )


def _check_records(source: SourceFile, dtype: DType) -> None:
    rest = source.n_bytes % dtype.itemsize
    if rest:
        raise ConfigError(
            f"{source.path} has {source.n_bytes} bytes, not a multiple of the record of {dtype.itemsize} bytes "
            f"({describe_dtype(dtype)}): {rest} are left over; check `dtype=`, or whether the file is whole",
            context={"path": str(source.path), "n_bytes": source.n_bytes, "record_bytes": dtype.itemsize},
        )


def _other_type(path: Path, carried: DType, wanted: DType, carrier: Path | None) -> ConfigError:
    who = f"of {carrier}" if carrier else "asked for"
    return ConfigError(
        f"{path} holds {describe_dtype(carried)}, not the {describe_dtype(wanted)} {who}; "
        "an .npy file holds its own type: omit `dtype=`, and sort files of one type together",
        context={"path": str(path), "dtype": describe_dtype(carried)},
    )


def refuse_changes(sources: Iterable[SourceFile]) -> None:
    """Raise if a source is no longer the file that was inspected.

    Raises
    ------
    InputChangedError
    """
    for source in sources:
        try:
            now = source.path.stat()
        except OSError:
            now = None
        if now is None or (now.st_size, now.st_mtime_ns, now.st_ino) != (source.size, source.mtime_ns, source.inode):
            raise InputChangedError(
                f"{source.path} was changed while it was read; keep it unchanged and sort it again",
                context={"path": str(source.path)},
            )


class Destination:
    """A file that becomes visible when it is whole.

    Parameters
    ----------
    path : Path
        An .npy file by its suffix, else raw binary.
    dtype : numpy.dtype
    n_records : int
    sources : sequence of SourceFile
        The destination must be none of them, unless ``in_place``.
    in_place : bool
        Whether the destination replaces the only source.
    overwrite : bool
        Whether the destination may replace another file.

    Raises
    ------
    ConfigError
        If it exists, is a source, or its folder is not writable.
    """

    def __init__(
        self,
        path: Path,
        dtype: DType,
        n_records: int,
        sources: Sequence[SourceFile],
        *,
        in_place: bool,
        overwrite: bool,
    ) -> None:
        self.path = path.resolve() if in_place else path  # a link stays; its target is replaced
        self.n_records = n_records
        self._in_place = in_place
        self._overwrite = overwrite
        self._header = _header(dtype, n_records) if path.suffix.lower() == ".npy" else b""
        self._n_bytes = len(self._header) + n_records * dtype.itemsize
        self._check(sources)

    @property
    def part(self) -> Path:
        """Path of the file until it is whole."""
        return self.path.with_name(f".{self.path.name}.tartan-part")

    @property
    def offset(self) -> int:
        """Offset of the data."""
        return len(self._header)

    @property
    def n_bytes(self) -> int:
        """Size, header included."""
        return self._n_bytes

    def _check(self, sources: Sequence[SourceFile]) -> None:
        context = {"path": str(self.path)}
        if not self.path.parent.is_dir():
            raise ConfigError(f"there is no folder {self.path.parent} for {self.path.name}; create it", context=context)
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise ConfigError(f"the folder {self.path.parent} is not writable; choose another", context=context)
        if self._in_place:
            return
        if any(self.path.exists() and self.path.samefile(source.path) for source in sources):
            raise ConfigError(
                f"{self.path} is source and destination; name another destination, or sort it with `in_place=True`",
                context=context,
            )
        require_writable(self.path, overwrite=self._overwrite)

    def begin(self) -> None:
        """Create the temporary file with its header; keep what an earlier attempt wrote there."""
        with disk_errors(self.part), open(open_unfinished(self.part, os.O_RDWR), "wb") as stream:
            stream.write(self._header)
            stream.truncate(self._n_bytes)

    def finish(self) -> None:
        """Sync the temporary file and rename it to its place."""
        if self._in_place:
            shutil.copymode(self.path, self.part)
        else:
            require_writable(self.path, overwrite=self._overwrite)
        with disk_errors(self.path):
            with self.part.open("rb") as stream:
                fsync(stream.fileno())
            self.part.rename(self.path)
        with contextlib.suppress(OSError):  # not every file system can sync a folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                fsync(folder)
            finally:
                os.close(folder)

    def remove_part(self) -> None:
        """Remove the file that is not whole."""
        self.part.unlink(missing_ok=True)


def _header(dtype: DType, n_records: int) -> bytes:
    """Write the header of an .npy file of one axis, padded to a multiple of ``HEADER_BYTES``.

    NumPy pads it to a multiple of 64 bytes, so that records would straddle disk blocks.
    """
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n_records,)}
    text = repr(about)
    if text.isascii():
        version, length_bytes, encoded = (1, 0), 2, text.encode("ascii")
    else:
        version, length_bytes, encoded = (3, 0), 4, text.encode("utf-8")
    before = len(_MAGIC) + 2 + length_bytes
    whole = -(-(before + len(encoded) + 1) // HEADER_BYTES) * HEADER_BYTES
    if whole >= 1 << 16 and length_bytes == 2:
        raise ConfigError(
            f"{len(dtype.names or ())} fields do not fit into the header of an .npy file; write raw binary"
        )
    length = (whole - before).to_bytes(length_bytes, "little")
    return _MAGIC + bytes(version) + length + encoded.ljust(whole - before - 1) + b"\n"
