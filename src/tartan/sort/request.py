"""``sort_file``: reads and checks what the user asks for, and starts the sort of records or of tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.checks import check_one_of, path_of, whole
from tartan.base.confined import open_unfinished
from tartan.base.files import disk_errors
from tartan.base.progress import is_watched
from tartan.errors import ConfigError, InputChangedError
from tartan.options import Size
from tartan.sort.engine import Direct, Nulls, Order, Pack, PathLike, SortOptions
from tartan.sort.formats import Destination, SourceFile, expand_sources, is_table, open_sources
from tartan.sort.job import SortRun
from tartan.sort.keys import KeyPart, parse_key
from tartan.sort.names import refuse_raw_name
from tartan.sort.pushed import PushedRun
from tartan.sort.result import SortResult
from tartan.sort.selection import Selection
from tartan.sort.text_form import PIPE, is_text, read_separator, text_form

if TYPE_CHECKING:
    from tartan._native import SortJob
    from tartan.sort.progress import SortProgress
    from tartan.sort.table_job import TableRun
    from tartan.sort.work import WorkFolders


# Public, for a call without a dictionary of options: hence more than eight parameters.
def sort_file(
    src: PathLike | Iterable[PathLike],
    dst: PathLike | None = None,
    *,
    dtype: Any = None,
    key: str | Sequence[str] | None = None,
    descending: bool = False,
    memory: str | int | Size | None = None,
    tmp: PathLike | Iterable[PathLike] | None = None,
    pack: Pack = "auto",
    threads: int | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    resume: bool = True,
    direct: Direct = "auto",
    quiet: bool | None = None,
    columns: Sequence[str] | None = None,
    nulls: Nulls = "last",
    compression: str | None = None,
    format: str | None = None,  # noqa: A002
    quote: str | None = None,
    total_order: bool = False,
    separator: str | None = None,
    header: bool = True,
    unique: bool = False,
    top: int | None = None,
    on: Any = None,
    insecure: bool = False,
    rank_timeout: float | None = None,
) -> SortResult:
    """Sort files of records into one file, with little memory, at the speed of the disk.

    Parameters
    ----------
    src : path, glob, or iterable of them
        Raw binary files, .npy files of one axis, Parquet and Arrow files, or text: .csv, .tsv and lines (.txt), plain,
        .gz or .zst; "-" is standard input. Globs, and folders of parts, are expanded and sorted by name. Several files
        count as one.
    dst : path, optional
        The sorted file: .npy by its suffix, else raw binary; of tables and text Parquet, Arrow, CSV or TSV by its
        suffix: columns of text get a type that prints every value as it stood. Omitted with ``in_place``.
    dtype : str, type or numpy.dtype, optional
        Of the records: ``"int64"``, ``">f4"``, ``"record:100"``, ``"key:u4,score:f8"``, a structured dtype. .npy files
        hold it themselves.
    key : str or sequence of str, optional
        What is compared: fields (``"score:desc,key"``) or ranges of bytes (``"0:10"``, ``"8:<f8:desc"``). Default: the
        whole record, field by field, bytes as unsigned ones. Of tables and CSV: columns; of CSV with ``:number`` or
        ``:text``, else numbers where all values are numbers; ``"2"`` is the second column, if none is called so. Of
        lines: the whole line, ``0:10``, or ``line:number``.
    descending : bool
        Direction of the parts of the key that do not name one.
    memory : size, optional
        Most memory that the whole process may hold at any time, interpreter included: ``"1GB"``, 128 MB or more (of
        tables and text 300 MB or more).
        Default: half of what the machine has available.
    tmp : path or iterable of paths, optional
        Folders for run files, with as much free space as the input takes. Default: the folder of ``dst``.
    pack : {"auto", "always", "never"}
        Whether run files are packed; "auto" decides by a sample and by the measured speeds of disk and processor.
    threads : int, optional
        Threads that sort; default: all cores. The result does not depend on them.
    in_place : bool
        The sorted file replaces the (only) source, when it is whole.
    overwrite : bool
        Whether ``dst`` may exist.
    resume : bool
        Whether whole run files of an earlier attempt at the same job are used. A job is the same if the sizes and times
        of change of its sources are.
    direct : {"auto", "always", "never"}
        Whether the page cache is bypassed (O_DIRECT); "auto" does so where the file system allows it.
    quiet : bool, optional
        No progress and no messages on stderr. Default: both where stderr is a terminal or belongs to a notebook.
    columns : sequence of str, optional
        Of tables: which columns are carried along; default: all.
    nulls : {"last", "first"}
        Of tables and CSV: where rows without a value in a column of the key go, in either direction.
    compression : str, optional
        Of tables: codec of the destination, ``"none"`` for none; default: as the source, of text snappy in Parquet.
    format : {"lines", "csv", "tsv"}, optional
        Of text whose name does not say what it is, such as a pipe.
    quote : {"double", "none"}, optional
        Of CSV and TSV: whether values that begin with a quote end with one and double their own, or quotes are plain
        characters. Default: "double" in CSV, "none" in TSV.
    separator : str, optional
        What stands between the values of CSV, one character: ``";"``, ``"|"``, ``"tab"``. Default: a comma.
    header : bool
        Whether CSV and TSV begin with a line of names; it is written, too. Without one columns are called
        ``column_1`` and on, and named by their numbers.
    unique : bool
        Of tables and text: of rows with equal keys write only the one that comes first in the input.
    top : int, optional
        Of tables and text: write only that many rows, the first of the order. Where they fit an eighth of the memory,
        no run files are needed.
    total_order : bool
        Whether -0.0 comes before 0.0. Default: they are equal.
    on : str or distributed.Client, optional
        Sort on several ranks: ``"local:4"`` starts four on this machine, ``"tls://host:port"`` names a Dask scheduler.
        ``memory``, ``tmp`` and ``threads`` are those of each rank. Rows of tables and text are read and written here.
    insecure : bool
        Accept a cluster whose connections are not encrypted.
    rank_timeout : float, optional
        A rank that is silent for longer, in seconds, is lost. Default: 15.

    Returns
    -------
    SortResult

    Raises
    ------
    ConfigError
        If an option, a source, the destination or the key is wrong, or memory is too little; nothing was started.
    DiskFullError
        If there is too little disk space, at the start or later.
    InputChangedError
        If a source was changed while it was read.
    SortError
        If a disk fails or a temporary folder vanishes.
    KeyboardInterrupt, RunCancelledError
        After Ctrl-C, after SIGTERM.

    Notes
    -----
    Every NaN comes last, also when descending. Records that compare equal keep their order (the sort is stable); of
    lone floats, which nothing else tells apart, -0.0 comes before 0.0 even where the two are equal. After any stop,
    even kill -9, the same call resumes; run files that are whole are not sorted again. Two phases [1]_: sorted run
    files, then one merge of exact ranges.

    References
    ----------
    .. [1] D. E. Knuth, The Art of Computer Programming, volume 3, section 5.4.

    Examples
    --------
    >>> import numpy as np
    >>> np.save("numbers.npy", np.random.default_rng(0).integers(0, 1000, 5000))  # doctest: +SKIP
    >>> sort_file("numbers.npy", "sorted.npy", memory="128MB").n_records  # doctest: +SKIP
    5000
    """
    quiet = not is_watched() if quiet is None else quiet
    paths = expand_sources(src)
    target = _target(paths, dst, in_place=in_place)
    ranks = None
    if on is not None:
        from tartan.sort.ranks.request import read_ways, refuse_minus_zero

        ranks = read_ways(on, insecure=insecure, rank_timeout=rank_timeout, tmp=tmp, target=target)
        tmp = None
    options = SortOptions.read(
        memory=memory, tmp=_folder_for(target) if tmp is None else tmp, pack=pack, threads=threads, direct=direct
    )
    # What is not said is for each rank to find out.
    of_ranks = replace(options, memory_bytes=0 if memory is None else options.memory_bytes, threads=threads or 0)

    def execute(rows: TableRun) -> SortResult:
        if ranks is None:
            return rows.run(resume=resume, quiet=quiet)
        from tartan.sort.ranks.rows import RankedRows

        return RankedRows(rows, of_ranks, ranks).run(resume=resume, quiet=quiet)

    selection = Selection(unique=unique, top=None if top is None else whole("top", top, 1))
    where: Any = {"in_place": in_place, "overwrite": overwrite}
    separator = read_separator(separator)
    first = check_one_of("nulls", nulls, ("last", "first")) == "first"
    if any(is_table(path) for path in paths):
        from tartan.sort.table_job import TableRequest, parse_columns, table_run

        of_text = quote is not None or separator is not None or not header
        if format is not None or (of_text and text_form(target) is None):
            raise ConfigError(
                "`format=`, `quote=`, `separator=` and `header=` are for text; Parquet and Arrow say what they are"
            )
        if dtype is not None:
            raise ConfigError("Parquet and Arrow files hold their types themselves; omit `dtype=`")
        ways: Any = {"descending": descending, "nulls_first": first}
        request = TableRequest(paths, target, parse_columns(key, **ways), columns, compression, **where, **ways)
        request = replace(request, total_order=total_order, quote=quote, separator=separator, header=header)
        request = replace(request, selection=selection, marked=ranks is not None)
        return execute(table_run(request, options))
    if is_text(paths, format) and dtype is None:
        from tartan.sort.text_job import TextRequest, sort_text

        ways = {"descending": descending, "nulls_first": first, "total_order": total_order}
        ask = TextRequest(paths, target, format, quote, key, columns, compression, **ways, **where)
        ask = replace(ask, separator=separator, header=header, selection=selection, marked=ranks is not None)
        return sort_text(ask, options, execute, quiet=quiet)
    if format is not None or quote is not None or separator is not None or not header:
        raise ConfigError(
            "`format=`, `quote=`, `separator=` and `header=` are for text; `dtype=` is for raw files: omit one of them"
        )
    if columns is not None or compression is not None or first:
        raise ConfigError("`columns=`, `nulls=` and `compression=` are for Parquet and Arrow files; omit them")
    if unique or top is not None:
        raise ConfigError(
            "`unique=` and `top=` are for tables and text; omit them (the first records of the sorted file are the "
            "top), or write the records as Parquet",
            context={"option": "unique" if unique else "top"},
        )
    refuse_raw_name(target, paths)
    sources, record = open_sources(paths, dtype)
    order = Order(record, parse_key(key, record, descending=descending))
    n_records = sum(source.n_bytes for source in sources) // record.itemsize
    destination = Destination(target, record, n_records, sources, **where)
    signs = not total_order and has_minus_zero(sources, order)
    if ranks is not None:
        if signs:
            refuse_minus_zero(paths[0])
        from tartan.sort.ranks.launch import RankedSort

        return RankedSort(sources, destination, order, of_ranks, ranks).run(resume=resume, quiet=quiet)
    if signs:
        return zero_run(sources, destination, order, options).run(resume=resume, quiet=quiet)
    return SortRun(sources, destination, order, options).run(resume=resume, quiet=quiet)


def _folder_for(target: Path) -> Path | str:
    """Return where run files go: beside the destination; for standard output to the folder of the system."""
    return tempfile.gettempdir() if target == PIPE else target.parent


def _target(paths: Sequence[Path], dst: PathLike | None, *, in_place: bool) -> Path:
    if in_place and (len(paths) != 1 or dst is not None):
        raise ConfigError("`in_place=True` takes one source and no destination; omit one of them")
    if dst is None and not in_place:
        raise ConfigError("there is no destination; name one, or sort with `in_place=True`")
    return paths[0] if dst is None else path_of("dst", dst)


# Sort records with -0.0 in their keys, which equals 0.0: where there are some, their signs are kept apart.
#
# The engine compares the bits of floats and tells the two zeros apart. A -0.0 in a key is rare, so files are looked
# through first; only if there is one do records get a byte for each float of the key that says which zero it is.

# By judgement: from some MiB a call on, reading runs at the speed of the disk (_DIRECT_BYTES of base/files). `tartan
# bench sort` measures raw input.
READ_BYTES = 4 << 20


def float_parts(order: Order) -> list[KeyPart]:
    """Return the floats of a key that are not all of a record: of lone numbers nothing else tells equal ones apart."""
    parts = [part for part in order.parts if np.dtype(part.kind).kind == "f"]
    alone = len(order.parts) == 1 and order.parts[0].width_bytes == order.dtype.itemsize
    return [] if alone else parts


def has_minus_zero(sources: Sequence[SourceFile], order: Order) -> bool:
    """Whether a float of a key is -0.0 anywhere; reads the files once, unless no key has a float."""
    parts = float_parts(order)
    if not parts:
        return False
    width = order.dtype.itemsize
    return any(
        _minus_zeros(_view_field(block, part)).any()
        for source in sources
        for block in _blocks(source, width, 0, source.n_bytes // width)
        for part in parts
    )


def zero_run(sources: Sequence[SourceFile], destination: Destination, order: Order, options: SortOptions) -> ZeroRun:
    """Prepare a sort in which -0.0 equals 0.0."""
    parts = float_parts(order)
    dtype = np.dtype([("record", f"V{order.dtype.itemsize}"), ("minus", "u1", (len(parts),))])
    return ZeroRun(sources, destination, Order(dtype, order.parts), options)


class ZeroRun(PushedRun):
    """A sort of records in which -0.0 equals 0.0."""

    @property
    def n_bytes(self) -> int:
        """Bytes of the records as they are sorted."""
        return self._n_records * self.order.dtype.itemsize

    @property
    def _width(self) -> int:
        return int(self.order.dtype["record"].itemsize)

    @property
    def _n_records(self) -> int:
        return sum(source.n_bytes for source in self.sources) // self._width

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        result = super().run(resume=resume, quiet=quiet)
        return replace(result, n_bytes=self._n_records * self._width, record_bytes=self._width)

    def _count_kept_bytes(self) -> int:
        return 8 * READ_BYTES

    def _records(self, first: int, count: int) -> Iterator[np.ndarray]:
        left = count if count >= 0 else self._n_records - first
        for source in self.sources:
            n = source.n_bytes // self._width
            if first >= n:
                first -= n
                continue
            for block in _blocks(source, self._width, first, min(left, n - first)):
                left -= len(block)
                yield self._without_signs(block)
            first = 0

    def _without_signs(self, block: np.ndarray) -> np.ndarray:
        records = np.zeros(len(block), self.order.dtype)
        for place, part in enumerate(float_parts(self.order)):
            values = _view_field(block, part)
            minus = _minus_zeros(values)
            records["minus"][:, place] = minus
            values[minus] = 0.0
        records["record"] = block
        return records

    def _write(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        self.destination.begin()
        part = self.destination.part
        with self._time_phase("merge"), disk_errors(part), open(open_unfinished(part, os.O_RDWR), "wb") as file:
            file.seek(self.destination.offset)
            for records in self._yield_sorted(engine, work, progress):
                block = np.ascontiguousarray(records["record"])
                for place, key in enumerate(float_parts(self.order)):
                    _view_field(block, key)[records["minus"][:, place] > 0] = -0.0
                file.write(block.view(np.uint8).data)


def _blocks(source: SourceFile, width: int, first: int, count: int) -> Iterator[np.ndarray]:
    """Yield records of a file as opaque bytes, from record ``first`` on."""
    height = max(1, READ_BYTES // width)
    with source.path.open("rb") as file:
        file.seek(source.offset + first * width)
        while count > 0:
            block = np.fromfile(file, np.dtype(f"V{width}"), min(height, count))
            if not len(block):
                raise InputChangedError(
                    f"{source.path} was changed while it was read; keep it unchanged and sort it again",
                    context={"path": str(source.path)},
                )
            count -= len(block)
            yield block


def _view_field(block: np.ndarray, part: KeyPart) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a float of every record, as a view."""
    width = block.dtype.itemsize
    flat = block.view(np.uint8)
    return np.ndarray((len(block),), np.dtype(part.kind), flat, part.offset, (width,))


def _minus_zeros(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = (values == 0) & np.signbit(values)
    return found
