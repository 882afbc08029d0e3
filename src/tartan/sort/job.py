"""``sort_file``: from what the user asked for to a sorted file, through the engine.

The engine (native code, threads of its own) reads, sorts, packs, merges and writes. Here is decided what it gets, it
is watched while it works, and its result is put in place. The order of steps is what makes a job resumable: the
destination gets its name only when it is whole, and run files go only after that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tartan._native import SortFailure, SortJob
from tartan.base.checks import one_of
from tartan.base.signals import cancel_on_signals
from tartan.errors import ConfigError
from tartan.options import Size
from tartan.sort.dtypes import describe_dtype
from tartan.sort.engine import POLL_SECONDS, Direct, Nulls, Order, Pack, PathLike, SortOptions
from tartan.sort.failures import error_of
from tartan.sort.formats import Destination, Source, expand_sources, is_table, open_sources, refuse_changes
from tartan.sort.keys import parse_key
from tartan.sort.plan import SortPlan, expected_bits
from tartan.sort.progress import SortProgress
from tartan.sort.result import SortResult, edges_of
from tartan.sort.sampling import sampled_width_bits
from tartan.sort.space import check_space, disks_of, peak_rss_bytes
from tartan.sort.work import WorkFolders

__all__ = ["SortRun", "sort_file"]

RENEW_SECONDS = 5.0
DAMAGED_RUN_FILES = 8  # how many are sorted again before the disk is given up


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
    quiet: bool = True,
    columns: Sequence[str] | None = None,
    nulls: Nulls = "last",
    compression: str | None = None,
) -> SortResult:
    """Sort files of records into one file, with little memory, at the speed of the disk.

    Parameters
    ----------
    src : path, glob, or iterable of them
        Raw binary files, .npy files of one axis, or Parquet and Arrow files (by their suffix). Globs are expanded and
        sorted by name. Several files count as one.
    dst : path, optional
        The sorted file: .npy by its suffix, else raw binary; of tables Parquet or Arrow. Left away with ``in_place``.
    dtype : str, type or numpy.dtype, optional
        Of the records: ``"int64"``, ``">f4"``, ``"record:100"``, ``"key:u4,score:f8"``, a structured dtype. .npy files
        say it themselves.
    key : str or sequence of str, optional
        What is compared: fields (``"score:desc,key"``) or ranges of bytes (``"0:10"``, ``"8:<f8:desc"``). Default: the
        whole record, field by field, bytes as unsigned ones. Of tables: columns.
    descending : bool
        Direction of the parts of the key that do not name their own.
    memory : size, optional
        Most memory that the whole process may hold at any time, interpreter included: ``"1GB"``, 128 MB or more (of
        tables 300 MB or more, and two and a half times the largest row group on top of some 200 MB).
        Default: half of what the machine has available.
    tmp : path or iterable of paths, optional
        Folders for run files; as much as the input is needed. Default: the folder of ``dst``.
    pack : {"auto", "always", "never"}
        Whether run files are packed; "auto" decides by a sample and by the measured speeds of disk and processor.
    threads : int, optional
        Threads that sort; default: all cores. The result does not depend on them.
    in_place : bool
        The sorted file takes the place of the (only) source, when it is whole.
    overwrite : bool
        Whether ``dst`` may exist.
    resume : bool
        Whether whole run files of an earlier attempt at the same job are used. They are told by the sizes and times
        of change of the sources.
    direct : {"auto", "always", "never"}
        Whether the page cache is passed by (O_DIRECT); "auto" does where the file system lets us.
    quiet : bool
        No progress and no messages on stderr.
    columns : sequence of str, optional
        Of tables: which columns are carried along; default: all.
    nulls : {"last", "first"}
        Of tables: where rows without a value in a column of the key go, in either direction.
    compression : str, optional
        Of tables: codec of the destination, ``"none"`` for none; default: as the source.

    Returns
    -------
    SortResult

    Raises
    ------
    ConfigError
        If an option, a source, the destination or the key is wrong, or memory is too little; nothing was started.
    DiskFullError
        If there is too little room, before the start or in the middle.
    InputChangedError
        If a source was changed while it was read.
    SortError
        If a disk fails or a temporary folder vanishes.
    RunCancelledError
        After Ctrl-C or SIGTERM.

    Notes
    -----
    Floats have a total order: -0.0 before 0.0, every NaN last, also when descending. Records that compare equal keep
    their order (the sort is stable). After any stop, also kill -9, the same call goes on; what was sorted already is
    not sorted again. Two phases [1]_: sorted run files, then one merge of exact ranges.

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
    paths = expand_sources(src)
    target = _target(paths, dst, in_place=in_place)
    options = SortOptions.read(
        memory=memory, tmp=target.parent if tmp is None else tmp, pack=pack, threads=threads, direct=direct
    )
    where = {"in_place": in_place, "overwrite": overwrite}
    first = one_of("nulls", nulls, ("last", "first")) == "first"
    if any(is_table(path) for path in paths):
        from tartan.sort.table_job import TableRequest, parse_columns, table_run

        if dtype is not None:
            raise ConfigError("dtype: Parquet and Arrow files say their types themselves; leave it away")
        ways = {"descending": descending, "nulls_first": first}
        request = TableRequest(paths, target, parse_columns(key, **ways), columns, compression, **where, **ways)
        return table_run(request, options).run(resume=resume, quiet=quiet)
    if columns is not None or compression is not None or first:
        raise ConfigError("columns, nulls and compression are for Parquet and Arrow files; leave them away")
    sources, record = open_sources(paths, dtype)
    order = Order(record, parse_key(key, record, descending=descending))
    n_records = sum(source.n_bytes for source in sources) // record.itemsize
    destination = Destination(target, record, n_records, sources, **where)
    return SortRun(sources, destination, order, options).run(resume=resume, quiet=quiet)


def _target(paths: Sequence[Path], dst: PathLike | None, *, in_place: bool) -> Path:
    if in_place and (len(paths) != 1 or dst is not None):
        raise ConfigError("in place takes one source and no destination; leave one of them away")
    if dst is None and not in_place:
        raise ConfigError("there is no destination; name one, or sort in place")
    return paths[0] if dst is None else Path(dst)


@dataclass
class SortRun:
    """One sort; ``run`` is called once."""

    sources: Sequence[Source]
    destination: Destination
    order: Order
    options: SortOptions
    _notes: list[str] = field(default_factory=list)
    _phase_seconds: dict[str, float] = field(default_factory=dict)
    _renewed: float = 0.0
    _signal: int | None = None
    _engine: SortJob | None = None

    @property
    def n_bytes(self) -> int:
        return sum(source.n_bytes for source in self.sources)

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        start = time.perf_counter()
        # Everything that Python itself takes comes before the question how much is left for the engine.
        with SortProgress(quiet=quiet) as progress:
            width_bits = self._width_bits()
            plan = self.order.plan(self.n_bytes, self.options, kept_bytes=self._kept_bytes())
            progress.expect(self.n_bytes, levels=plan.levels)
            work = WorkFolders(self.options.folders, self.destination.path, self._description(), self._noter(progress))
            with work, cancel_on_signals(self._cancel):
                run_files = work.run_files(resume=resume)
                self._check_space(self._temporary_bytes(plan, width_bits), run_files)
                statistics = self._sort(plan, work, run_files, progress)
        return self._result(statistics, plan, width_bits, time.perf_counter() - start)

    def _width_bits(self) -> float | None:
        return sampled_width_bits(self.sources, self.order.dtype)

    def _kept_bytes(self) -> int:
        """Return what is going to be held besides the engine."""
        return 0

    def _description(self) -> dict[str, Any]:
        return {
            "sources": [source.fingerprint() for source in self.sources],
            "record_bytes": self.order.dtype.itemsize,
            "dtype": describe_dtype(self.order.dtype),
            "key": self.order.key,
        }

    def _noter(self, progress: SortProgress) -> Callable[[str], None]:
        def note(text: str) -> None:
            self._notes.append(text)
            progress.say(f"tartan: {text}")

        return note

    def _temporary_bytes(self, plan: SortPlan, width_bits: float | None) -> int:
        """Return the room that run files need; a sample is trusted where the user has decided to pack."""
        if self.options.pack != "always" or width_bits is None:
            return plan.temporary_bytes
        return plan.packed_bytes(width_bits, 8 * self.order.dtype.itemsize)

    def _check_space(self, temporary_bytes: int, run_files: Sequence[Path]) -> None:
        kept = sum(path.stat().st_size for path in run_files)
        check_space(
            disks_of(self.options.folders),
            max(temporary_bytes - kept, 0),
            disks_of([self.destination.path.parent])[0],
            self.destination.n_bytes,
        )

    def _cancel(self, number: int) -> None:
        self._signal = number
        if self._engine is not None:
            self._engine.cancel()

    def _sort(self, plan: SortPlan, work: WorkFolders, run_files: list[Path], progress: SortProgress) -> dict[str, Any]:
        """Drive the engine; a run file that turns out to be damaged is sorted again."""
        try:
            for left in reversed(range(DAMAGED_RUN_FILES)):
                try:
                    return self._attempt(plan, work, run_files, progress)
                except SortFailure as failure:
                    damaged = Path(failure.path) if failure.kind == "corrupt_run" and failure.path else None
                    if damaged is None or not left:
                        raise error_of(failure, signal=self._signal) from failure
                    self._noter(progress)(f"run file {damaged} is damaged ({failure}); what it held is sorted again")
                    damaged.unlink(missing_ok=True)
                    run_files = work.run_files(resume=True)
        except BaseException:
            self.destination.remove_part()
            raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self, plan: SortPlan, work: WorkFolders, run_files: Sequence[Path], progress: SortProgress
    ) -> dict[str, Any]:
        with self.order.open_engine(plan, self.options, work.paths, work.fingerprint) as engine:
            self._engine = engine
            if self._signal is not None:
                engine.cancel()
            try:
                self._phases(engine, work, run_files, progress)
            finally:
                self._engine = None
            self.destination.finish()
            statistics: dict[str, Any] = engine.statistics()
            engine.close(keep_runs=False)
            return statistics

    def _phases(self, engine: SortJob, work: WorkFolders, run_files: Sequence[Path], progress: SortProgress) -> None:
        places = [(str(source.path), source.offset, source.n_bytes) for source in self.sources]
        engine.sort_files(places, [str(path) for path in run_files])
        self._watch("sort", engine, work, progress)
        refuse_changes(self.sources)
        self.destination.begin()
        engine.write_file(str(self.destination.part), self.destination.offset)
        self._watch("merge", engine, work, progress)

    def _watch(self, phase: str, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        with self._timed(phase):
            while not engine.wait(POLL_SECONDS):
                self._beat(engine, work, progress)

    def _beat(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        """Show how far it is, and keep the lease of the folders."""
        progress.update(engine.progress())
        if time.perf_counter() - self._renewed >= RENEW_SECONDS:
            work.renew()
            self._renewed = time.perf_counter()

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = self._renewed = time.perf_counter()
        yield
        self._phase_seconds[phase] = self._phase_seconds.get(phase, 0.0) + time.perf_counter() - start

    def _result(
        self, statistics: dict[str, Any], plan: SortPlan, width_bits: float | None, wall_seconds: float
    ) -> SortResult:
        packed = statistics["packed_runs"] > 0
        merged = statistics["runs"] + statistics["runs_adopted"] > 0
        return SortResult(
            path=self.destination.path,
            n_records=statistics["records"],
            n_bytes=self.n_bytes,
            record_bytes=self.order.dtype.itemsize,
            run_files=statistics["runs"],
            run_files_adopted=statistics["runs_adopted"],
            levels=statistics["levels"] + (1 if merged else 0),  # the last one is not counted there
            ranges=statistics["ranges"],
            packed=packed,
            pack_reason=statistics["pack_reason"] or "there were no run files to pack",
            bits_per_value=statistics["bits_per_value"],
            expected_bits_per_value=(
                expected_bits(width_bits, plan.values_in_run_file) if packed and width_bits is not None else None
            ),
            edges=edges_of(statistics),
            busy_seconds={name: stage["busy_seconds"] for name, stage in statistics["edges"].items()},
            phase_seconds=dict(self._phase_seconds),
            wall_seconds=wall_seconds,
            direct={name: statistics[f"direct_{name}"] for name in ("read", "runs", "write")},
            io=statistics["io"],
            memory_bytes=self.options.memory_bytes,
            peak_rss_bytes=peak_rss_bytes(),
            notes=tuple(self._notes),
        )
