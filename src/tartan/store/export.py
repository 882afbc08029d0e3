"""Export: the result of a run in a file that other programs read. Streams; never holds the whole matrix."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tartan.base.files import fsync, whole_file
from tartan.base.format import format_bytes
from tartan.base.outputs import require_writable
from tartan.base.shown_names import require_names, show_names
from tartan.base.text_table import cell_of
from tartan.errors import ConfigError, DiskFullError
from tartan.store.columns import to_arrow
from tartan.store.dense import free_bytes
from tartan.store.folder import RunFolder
from tartan.store.lacking import name_command_to_mend, say_way_on
from tartan.store.pair_files import SEPARATORS, write_pairs
from tartan.store.tables import row_reader
from tartan.store.view import BAND_BYTES, KeptItems, ResultView, require_holds, require_real

if TYPE_CHECKING:
    import pyarrow as pa

# Write the export formats. Each writer takes bands of rows and a binary stream, and holds one band.
#
# export.py handles files, names and overwriting.

# By format: the largest int16.
INT16_ONE = 32767
INT16_MISSING = -1
# By judgement: 1 << 20 numbers are some 30 MB as texts, beside a band of the matrix. No benchmark.
_TEXT_VALUES = 1 << 20  # numbers turned into text at a time
# By arithmetic: half of the smallest step, which rounding may add.
_HALF_STEP = 0.5 / INT16_ONE
# By format: names of strict PHYLIP have ten characters.
STRICT_WIDTH = 10
_UNREADABLE = re.compile(r"[^A-Za-z0-9._-]")
# Blanks end a name of PHYLIP; programs write the other ones as they are into trees, where they mean something else.
_MARKS = re.compile(r"""[\s()\[\]:;,'"]""")


@dataclass(frozen=True)
class ExportRequest:
    """Parameters of an export.

    Attributes
    ----------
    folder : RunFolder
    view : ResultView or KeptItems
        The output, with NaN where a score is missing.
    diagonal : float or None
        Value of a diagonal that was not computed; None: missing.
    missing : float or None
        Value of missing scores; None: as the format has it, if it does.
    clip : bool
        int16: values outside 0..1 become 0 or 1 instead of an error.
    names : sequence of str
        What the items are called.
    keys : sequence of str
        Their keys.
    distances : callable, optional
        Turns scores into distances, block by block; an item is then at distance 0 from itself.
    """

    folder: RunFolder
    view: ResultView | KeptItems
    diagonal: float | None
    missing: float | None
    clip: bool
    names: Sequence[str]
    keys: Sequence[str]
    distances: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values: that of the scores, float32 at least where they become distances."""
        stored = self.view.dtype
        return stored if self.distances is None else np.promote_types(stored, np.float32)

    def bands(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the matrix in bands of rows, with ``missing`` in place where it is given."""
        for start, band in self._bands():
            if self.missing is not None and band.dtype.kind in "fc":
                band[np.isnan(band)] = self.missing
            yield start, band

    def _bands(self) -> Iterator[tuple[int, np.ndarray]]:
        if self.distances is None:
            yield from self.view.bands(self.diagonal)
            return
        budget = BAND_BYTES // 4  # a band and what is made of it, in float64
        for start, band in self.view.bands(budget_bytes=budget):
            if self.view.square:
                at = np.arange(start, start + len(band))
                band[at - start, at] = np.nan
            made = narrow(self.distances(band.astype(np.float64)), self.dtype, "a distance")
            if self.view.square:
                made[at - start, at] = 0.0 if self.diagonal is None else self.diagonal
            yield start, made

    def require(self, *, symmetric: bool, what: str) -> None:
        """Refuse matrices that a format cannot hold."""
        if symmetric and not self.folder.manifest.symmetric_in(self.view.name):
            raise ConfigError(f"{what} holds symmetric matrices only; this run is not symmetric")


def narrow(values: np.ndarray, dtype: np.dtype[Any], what: str) -> np.ndarray:
    """Return values in a floating type that may be narrower.

    Raises
    ------
    ConfigError
        If one of them is finite and becomes infinite.
    """
    with np.errstate(over="ignore"):
        found = values.astype(dtype, copy=False)
    if dtype.kind == "f" and not np.can_cast(values.dtype, dtype):
        beyond = np.isinf(found) & np.isfinite(values)
        if beyond.any():
            raise ConfigError(
                f"{what} of {values[beyond][0]:g} is beyond what {dtype.name} holds; write npy or text, which keep the "
                "type of the scores, or smaller distances"
            )
    return found


def write_npy(request: ExportRequest, stream: BinaryIO) -> None:
    """NumPy's own format, the whole matrix, in the dtype of the output."""
    _npy_header(stream, request.view.shape, request.dtype)
    for _, band in request.bands():
        stream.write(_little(band).data)


def write_condensed(request: ExportRequest, stream: BinaryIO) -> None:
    """NumPy's own format, the pairs i < j row by row, as scipy's squareform reads them."""
    request.require(symmetric=True, what="the condensed form")
    n = request.view.shape[0]
    _npy_header(stream, (n * (n - 1) // 2,), request.dtype)
    for start, band in request.bands():
        for i, row in enumerate(_little(band), start):
            stream.write(row[i + 1 :].data)


def write_float32(request: ExportRequest, stream: BinaryIO) -> None:
    """Little-endian float32, row by row, nothing else; missing scores are NaN."""
    for _, band in request.bands():
        stream.write(np.ascontiguousarray(narrow(band, np.dtype("<f4"), "a score")).data)


def write_int16(request: ExportRequest, stream: BinaryIO, order: str) -> None:
    """16-bit integers, row by row, nothing else: 0..32767 for 0..1, -1 for missing scores.

    Raises
    ------
    ConfigError
        If a score lies outside 0..1 by more than half a step, unless ``clip``.
    """
    for start, band in request.bands():
        with np.errstate(invalid="ignore"):
            outside = (band < -_HALF_STEP) | (band > 1 + _HALF_STEP)
            if not request.clip and outside.any():
                i, j = np.argwhere(outside)[0]
                raise ConfigError(
                    f"score ({start + i}, {j}) is {band[i, j]}; int16 holds 0 to 1 only: export with `clip=True`, "
                    "or as float32"
                )
            scaled = np.rint(np.clip(band, 0, 1) * INT16_ONE)
        scaled[np.isnan(scaled)] = INT16_MISSING
        stream.write(np.ascontiguousarray(scaled, np.dtype(f"{order}i2")).data)


def write_phylip(request: ExportRequest, stream: BinaryIO, *, strict: bool = False) -> None:
    """PHYLIP distances, square, two blanks before the numbers.

    Names have any length and neither blanks nor marks of Newick; strict ones have exactly ten columns, as PHYLIP's own
    programs read them.

    Raises
    ------
    ConfigError
        If a score is missing, which the format cannot express.
    """
    request.require(symmetric=True, what="PHYLIP")
    if request.diagonal is None:
        request = replace(request, diagonal=0.0)
    names = phylip_names(request.names)
    starts = [f"{name:{STRICT_WIDTH}}" for name in strict_names(request.names)] if strict else names
    stream.write(f"{len(names)}\n".encode())
    for start, band in request.bands():
        if np.isnan(band).any():
            i, j = np.argwhere(np.isnan(band))[0]
            raise ConfigError(
                f"the score of {names[start + i]} and {names[j]} is missing, and PHYLIP cannot say so; "
                f"give missing scores a number (`missing=1.0`){_suggest_command(request.folder)}"
            )
        for row, text in enumerate(_lines(band, "  "), start):
            stream.write(f"{starts[row]}  {text}\n".encode())


def _suggest_command(folder: RunFolder) -> str:
    """Return what else can be done: the command that computes what a run lacks, if there is one."""
    if folder.missing():
        return f"; {say_way_on(folder, 'what is missing')}"
    return f"; once it is mended, {name_command_to_mend(folder)} compares what failed" if folder.failures() else ""


def write_table(request: ExportRequest, stream: BinaryIO, separator: str) -> None:
    """CSV or TSV: keys in the first row and column, shortest digits that read back exactly, nan if missing.

    Complex scores are written as 1.5-2j, missing ones as nan+nanj or nan+0j.
    """
    keys, left = request.names, request.view.shape[0]
    columns = keys if request.view.square else keys[left:]
    stream.write((separator.join(["", *(_quote(key, separator) for key in columns)]) + "\n").encode())
    for start, band in request.bands():
        for row, text in enumerate(_lines(band, separator), start):
            stream.write(f"{_quote(keys[row], separator)}{separator}{text}\n".encode())


def phylip_names(keys: Sequence[str]) -> list[str]:
    """Return names that PHYLIP programs read: no blanks, no marks of Newick, none empty or repeated."""
    names = [_MARKS.sub("_", key) or f"item_{index}" for index, key in enumerate(keys)]
    taken = set(keys)
    for index, (key, name) in enumerate(zip(keys, names, strict=True)):
        if name != key:
            while name in taken:
                name += f"_{index}"
            names[index] = name
            taken.add(name)
    return names


def strict_names(keys: Sequence[str]) -> list[str]:
    """Return names of at most ten characters that PHYLIP's own programs read, and tell apart.

    What follows the last slash counts; characters other than letters, digits, dot, hyphen and underscore become
    underscores. Names that would be equal end in the number of their item, counted from 1.
    """
    cut = [_UNREADABLE.sub("_", key.rpartition("/")[2])[:STRICT_WIDTH] for key in keys]
    counts = Counter(cut)
    taken = {name for name in cut if counts[name] == 1 and name}
    names = []
    for number, name in enumerate(cut, 1):
        if name not in taken:
            free = (f"{name[: STRICT_WIDTH - len(str(k))]}{k}" for k in itertools.count(number, len(keys)))
            name = next(candidate for candidate in free if candidate not in taken)
            taken.add(name)
        names.append(name)
    return names


def write_names(request: ExportRequest, stream: BinaryIO, *, strict: bool) -> None:
    """Write the table that says which item a name of a PHYLIP file stands for: name and key, separated by a tab."""
    stream.write(b"name\tkey\n")
    names = (strict_names if strict else phylip_names)(request.names)
    for name, key in zip(names, request.keys, strict=True):
        stream.write(f"{name}\t{_quote(key, chr(9))}\n".encode())


def _quote(key: str, separator: str) -> str:
    cell = cell_of(key)
    return '"' + cell.replace('"', '""') + '"' if separator in cell or '"' in cell else cell


def _lines(band: np.ndarray, separator: str) -> Iterator[str]:
    """Turn rows of numbers into text, about a million numbers at a time (Arrow writes the shortest digits)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    height = max(1, _TEXT_VALUES // max(1, band.shape[1]))
    for start in range(0, len(band), height):
        part = np.ascontiguousarray(band[start : start + height])
        if part.dtype == np.float16:
            part = part.astype(np.float32)
        texts = _texts(part.reshape(-1))
        offsets = to_arrow(np.arange(len(part) + 1, dtype=np.int32) * np.int32(part.shape[1]))
        rows = pa.ListArray.from_arrays(offsets, texts)
        yield from pc.binary_join(rows, separator).to_pylist()


def _texts(values: np.ndarray) -> pa.Array:
    """Return numbers as text, complex ones as Python and NumPy read them: 1.5-2j."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.dtype.kind != "c":
        return to_arrow(values).cast(pa.string())
    real, imaginary = (to_arrow(part).cast(pa.string()) for part in (values.real, values.imag))
    signs = pc.if_else(pc.starts_with(imaginary, "-"), "", "+")
    return pc.binary_join_element_wise(real, signs, imaginary, "j", "")


def _npy_header(stream: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype.newbyteorder("<")), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def _little(band: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(band, band.dtype.newbyteorder("<"))


Writer = Callable[[ExportRequest, BinaryIO], None]

_STREAMS: dict[str, Writer] = {
    "npy": write_npy,
    "npy-condensed": write_condensed,
    "phylip": write_phylip,
    "phylip-strict": partial(write_phylip, strict=True),
    "csv": partial(write_table, separator=","),
    "tsv": partial(write_table, separator="\t"),
    "int16": partial(write_int16, order="<"),
    "int16-be": partial(write_int16, order=">"),
    "float32": write_float32,
}
_VALUE_BYTES = {"float32": 4, "int16": 2, "int16-be": 2}
# By format.
_TEXT_BYTES = 2  # a number and what separates it, at least
_COMPLEX = ("npy", "npy-condensed", "csv", "tsv")
_SUFFIXES = {
    ".npy": "npy", ".phy": "phylip", ".phylip": "phylip", ".dist": "phylip", ".csv": "csv", ".tsv": "tsv",
    ".parquet": "parquet", ".i16": "int16", ".i16le": "int16", ".i16be": "int16-be", ".f32": "float32",
    ".raw": "float32",
}  # fmt: skip

FORMATS = (*_STREAMS, "parquet")
"""Names of all formats; ``parquet`` holds pairs, ``csv`` and ``tsv`` do if asked to, the others the matrix."""
DISTANCES = ("phylip", "phylip-strict", "npy-condensed", "int16", "int16-be")
"""Formats that hold distances: they mean 0 for an item and itself, and those who read them take small for near."""
GAPLESS = ("phylip", "phylip-strict")
"""Formats that need a number for every pair."""
_NAMED = ("phylip", "phylip-strict", "csv", "tsv", "parquet")


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
        Value of missing and failed scores. Default: NaN, or -1 in int16; PHYLIP has none.
    clip : bool
        int16 only: values outside 0..1 become 0 or 1 instead of an error.
    names : {"full", "stem"}, path or None
        Items by their keys, by their keys without suffixes, or as a table of keys and names (CSV, TSV) says. Default:
        the keys; text of pairs then has none.
    overwrite : bool
        Whether an existing file is replaced.
    pairs : bool
        A line for each pair instead of the matrix.
    distances : callable or None
        Turns an array of scores into distances.
    items : int64 array or None
        Which items the matrix has, in ascending order. Default: all.
    """

    output: str | None = None
    diagonal: float | None = None
    missing: float | None = None
    clip: bool = False
    names: str | None = None
    overwrite: bool = False
    pairs: bool = False
    distances: Callable[[np.ndarray], np.ndarray] | None = None
    items: np.ndarray | None = None


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
            _write_rows(folder, temporary, name, options)
        return path
    with contextlib.ExitStack() as files:
        shown = show_names(folder.keys, options.names) if name == "phylip" else ()
        renamed = name == "phylip-strict" or list(shown) != phylip_names(shown)
        table = names_table(path) if renamed else None
        targets = [path] if table is None else [path, table]
        opened = [files.enter_context(new_export(t, overwrite=options.overwrite)) for t in targets]
        _write_matrix(folder, opened, name, options)
    return path


def names_table(path: Path) -> Path:
    """Return where the table lies that says what the names of a PHYLIP file stand for."""
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
        raise ConfigError("tables of pairs hold the scores as they are; leave out `distance=`")
    if options.clip and (pairs or not name.startswith("int16")):
        raise ConfigError(f"clip is for int16; {name} holds the scores as they are")
    require_names(options.names)
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


def _view_exported(folder: RunFolder, options: ExportOptions) -> ResultView | KeptItems:
    """Return the output of a run that is exported, with the items that are.

    Raises
    ------
    ConfigError
        If none is left.
    """
    view = folder.view(options.output, np.nan)
    if options.items is None:
        return view
    kept = KeptItems(view, options.items)
    if not all(kept.shape):
        raise ConfigError(f"{folder.path}: all items of a side failed; there is nothing left without them")
    return kept


def _write_matrix(folder: RunFolder, files: Sequence[Path], name: str, options: ExportOptions) -> None:
    view = _view_exported(folder, options)
    if name not in _COMPLEX or options.distances is not None:
        require_real(view.name, view.dtype, f"{name} holds" if options.distances is None else "distances need")
    _refuse_too_large(files[0], _least_bytes(name, view, options))
    diagonal = folder.manifest.self_score if options.diagonal is None else options.diagonal
    names, keys = show_names(folder.keys, options.names), folder.keys
    if options.items is not None:
        names, keys = ([listed[item] for item in options.items.tolist()] for listed in (names, keys))
    request = ExportRequest(folder, view, diagonal, options.missing, options.clip, names, keys, options.distances)
    require_holds(request.dtype, options.missing, "the value of missing scores")
    require_holds(request.dtype, diagonal, "the value of the diagonal")
    writers: list[Writer] = [_STREAMS[name], partial(write_names, strict=name == "phylip-strict")]
    for path, write in zip(files, writers):
        with open(path, "wb") as stream:
            write(request, stream)
            stream.flush()
            fsync(stream.fileno())


def _least_bytes(name: str, view: ResultView | KeptItems, options: ExportOptions) -> int:
    """Return how many bytes a matrix takes, of text at least; known before a score is read."""
    n_values = math.prod(view.shape)
    if not name.startswith("npy"):
        return n_values * _VALUE_BYTES.get(name, _TEXT_BYTES)
    kept = view.dtype if options.distances is None else np.promote_types(view.dtype, np.float32)
    return (n_values if name == "npy" else (n_values - view.shape[0]) // 2) * kept.itemsize


def _refuse_too_large(path: Path, needed_bytes: int) -> None:
    """Refuse a file that cannot fit on the disk, before anything is written."""
    free = free_bytes(path.parent)
    if needed_bytes > free:
        raise DiskFullError(
            f"the matrix takes {format_bytes(needed_bytes)} at least, and {format_bytes(free)} are free on the file "
            f"system of {path.parent}; choose another place, free some space, or export the pairs, to a .parquet file",
            context={"path": str(path), "needed_bytes": needed_bytes, "free_bytes": free},
        )


def export_triples(
    folder: RunFolder,
    path: Path,
    kind: str | None,
    options: ExportOptions,
    *,
    ascending: bool | None = None,
    limit: int | None = None,
) -> Path:
    """Write the triples that a run keeps as Parquet, CSV or TSV, in the order of their scores if asked for.

    Raises
    ------
    ConfigError
        If another format, or an option of matrices, is asked for.
    """
    name = format_of(path, kind)
    if name != "parquet" and name not in SEPARATORS:
        raise ConfigError(f"triples are written as CSV, TSV or Parquet; format {name} holds a matrix")
    refuse_unused(name, options, pairs=True)
    with new_export(path, overwrite=options.overwrite) as temporary:
        _write_rows(folder, temporary, name, options, ascending=ascending, limit=limit)
    return path


def _write_rows(folder: RunFolder, path: Path, name: str, options: ExportOptions, **order: Any) -> None:
    """Write pairs, or triples in an order; see ``row_reader``."""
    names = None if options.names in (None, "full") else show_names(folder.keys, options.names)
    with row_reader(folder, options.output, names, **order) as reader:
        write_pairs(reader, path, name, keys=options.names is not None, compression="zstd")
