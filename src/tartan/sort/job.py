"""Drives the engine through one sort: from open sources to a sorted file.

The engine (native code, threads of its own) reads, sorts, packs, merges and writes. This module decides what it gets,
watches it while it works, and puts its result in place. The order of steps makes a job resumable: the destination gets
its name only when it is whole, and run files are removed only after that.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan._native import SortFailure, SortJob, run_facts
from tartan.base.format import format_memory
from tartan.base.logs import logger_of
from tartan.base.machine import held_bytes, memory, peak_bytes
from tartan.base.signals import cancel_on_signals
from tartan.core.memory import MemoryNeed, need_of_sort
from tartan.sort.dtypes import DType, describe_dtype
from tartan.sort.engine import POLL_SECONDS, Order, SortOptions
from tartan.sort.failures import error_of
from tartan.sort.formats import Destination, SourceFile, refuse_changes
from tartan.sort.plan import SortPlan, estimate_bits
from tartan.sort.progress import SortProgress
from tartan.sort.result import SortResult, edges_of
from tartan.sort.space import check_space, disks_of
from tartan.sort.work import WorkFolders

_log = logger_of(__name__)

# By contract: RENEWAL_SECONDS of base/lock.
RENEW_SECONDS = 5.0
# By judgement: one is chance, eight are a disk that loses what it is given. No benchmark.
DAMAGED_RUN_FILES = 8  # sorted again at most, before the disk counts as broken


@dataclass
class SortRun:
    """A sort of records; call ``run`` once."""

    sources: Sequence[SourceFile]
    destination: Destination
    order: Order
    options: SortOptions
    _notes: list[str] = field(default_factory=list)
    _phase_seconds: dict[str, float] = field(default_factory=dict)
    _renewed: float = 0.0
    _adopted_bytes: int = 0
    _signal: int | None = None
    _engine: SortJob | None = None
    _need: MemoryNeed = field(default_factory=lambda: MemoryNeed(()))

    @property
    def n_bytes(self) -> int:
        return sum(source.n_bytes for source in self.sources)

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        start = time.perf_counter()
        # Python takes what it needs before the engine is given what is left.
        with SortProgress(quiet=quiet) as progress:
            width_bits = self._width_bits()
            kept = self._count_kept_bytes()
            plan = self.order.plan(self.n_bytes, self.options, kept_bytes=kept)
            self._need = need_of_sort(
                held_bytes(), self._expect_kept_bytes(kept), plan.memory_bytes, self.options.memory_bytes
            )
            progress.say(f"tartan: {format_memory(self._need.total_bytes, self._need.parts, memory().available_bytes)}")
            progress.expect(self.n_bytes, levels=plan.levels)
            work = WorkFolders(self.options.folders, self.destination.path, self._description(), self._noter(progress))
            with work, cancel_on_signals(self._cancel):
                run_files = work.run_files(resume=resume)
                about = self.n_bytes, self.destination.path, ", ".join(map(str, work.paths)), len(run_files)
                _log.info("sorts %d bytes into %s by way of %s, where %d run files are there", *about)
                self._check_space(self._temporary_bytes(plan, width_bits), run_files)
                statistics = self._sort(plan, work, run_files, progress)
        return self._result(statistics, plan, width_bits, time.perf_counter() - start)

    def _width_bits(self) -> float | None:
        return sample_width_bits(self.sources, self.order.dtype)

    def _count_kept_bytes(self) -> int:
        """Return the memory that will be held besides that of the engine."""
        return 0

    def _expect_kept_bytes(self, kept_bytes: int) -> int:
        """Return what of that will be held, at most; the plan allows for more where the first reading shows it."""
        return kept_bytes

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
            _log.info("%s", text)
            progress.say(f"tartan: {text}")

        return note

    def _temporary_bytes(self, plan: SortPlan, width_bits: float | None) -> int:
        """Return the disk space that run files need; trust the sample if the user has decided to pack."""
        if self.options.pack != "always" or width_bits is None:
            return plan.temporary_bytes
        return plan.estimate_packed_bytes(width_bits, 8 * self.order.dtype.itemsize)

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
        """Drive the engine; sort the records of damaged run files again."""
        try:
            for left in reversed(range(DAMAGED_RUN_FILES)):
                try:
                    return self._attempt(plan, work, run_files, progress)
                except SortFailure as failure:
                    damaged = Path(failure.path) if failure.kind == "corrupt_run" and failure.path else None
                    if damaged is None or not left:
                        raise error_of(failure, signal=self._signal) from failure
                    self._noter(progress)(f"run file {damaged} is damaged ({failure}); its records are sorted again")
                    work.remove(damaged)
                    run_files = work.run_files(resume=True)
        except BaseException:
            self.destination.remove_part()
            raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self, plan: SortPlan, work: WorkFolders, run_files: Sequence[Path], progress: SortProgress
    ) -> dict[str, Any]:
        width = self.order.dtype.itemsize
        self._adopted_bytes = min(self.n_bytes, sum(width * run_facts(str(path))["records"] for path in run_files))
        progress.adopt(self._adopted_bytes)
        with self.order.open_engine(plan, self.options, work.paths, work.fingerprint) as engine:
            self._engine = engine
            if self._signal is not None:  # it came while there was no engine to cancel
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
        with self._time_phase(phase):
            while not engine.wait(POLL_SECONDS):
                self._beat(engine, work, progress)

    def _beat(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        """Show the progress, and renew the lease of the folders."""
        progress.update(self._facts(engine))
        if time.perf_counter() - self._renewed >= RENEW_SECONDS:
            work.renew()
            self._renewed = time.perf_counter()

    def _facts(self, engine: SortJob) -> Mapping[str, Any]:
        """Return the phase, and how much of it is done."""
        facts: Mapping[str, Any] = engine.progress()
        return facts

    @contextlib.contextmanager
    def _time_phase(self, phase: str) -> Iterator[None]:
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
            adopted_bytes=self._adopted_bytes if statistics["runs_adopted"] else 0,
            levels=statistics["levels"] + (1 if merged else 0),  # the last one is not counted there
            ranges=statistics["ranges"],
            packed=packed,
            pack_reason=statistics["pack_reason"] or "there were no run files to pack",
            bits_per_value=statistics["bits_per_value"],
            expected_bits_per_value=(
                estimate_bits(width_bits, plan.values_in_run_file) if packed and width_bits is not None else None
            ),
            edges=edges_of(statistics),
            busy_seconds={name: stage["busy_seconds"] for name, stage in statistics["edges"].items()},
            phase_seconds=dict(self._phase_seconds),
            wall_seconds=wall_seconds,
            direct={name: statistics[f"direct_{name}"] for name in ("read", "runs", "write")},
            io=statistics["io"],
            memory_bytes=self.options.memory_bytes,
            peak_rss_bytes=peak_bytes(),
            needed_bytes=self._need.total_bytes,
            notes=tuple(self._notes),
        )


# Estimate the range of the values of a file from a sample: it tells how well its run files can be packed.

# PLACES and VALUES_A_PLACE, by judgement: 32,768 values from all over a file, in at most 64 reads. `tartan bench sort`
# prints the bits a value that came out.
PLACES = 64
VALUES_A_PLACE = 512


def sample_width_bits(sources: Sequence[SourceFile], dtype: DType) -> float | None:
    """Return the logarithm of the range of the values, None if they are not numbers of at least 4 bytes.

    Reads some ten thousand values, spread evenly.
    """
    if dtype.kind not in "iuf" or dtype.itemsize < 4:
        return None
    values = np.concatenate([_map_to_order(values) for values in _samples(sources, dtype)] or [np.empty(0, np.int64)])
    if not len(values):
        return None
    return math.log2(int(values.max()) - int(values.min()) + 1)


def _samples(sources: Sequence[SourceFile], dtype: DType) -> list[NDArray[Any]]:
    whole = sum(source.n_bytes for source in sources)
    found = []
    for source in sources:
        n_values = source.n_bytes // dtype.itemsize
        places = max(1, PLACES * source.n_bytes // max(whole, 1))
        for first in sorted({n_values * number // places for number in range(places)}):
            at = source.offset + first * dtype.itemsize
            found.append(np.fromfile(source.path, dtype, min(VALUES_A_PLACE, n_values - first), offset=at))
    return found


def _map_to_order(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers in the order of the values, with the same differences as their sort keys."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind != "f":
        return native
    bits: NDArray[Any] = native.view(np.int64 if native.itemsize == 8 else np.int32)
    ordered: NDArray[Any] = bits ^ ((bits >> (8 * native.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return ordered
