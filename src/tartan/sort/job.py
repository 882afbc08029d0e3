"""Drives the engine through one sort: from open sources to a sorted file.

The engine (native code, threads of its own) reads, sorts, packs, merges and writes. This module decides what it gets,
watches it while it works, and puts its result in place. The order of steps makes a job resumable: the destination gets
its name only when it is whole, and run files are removed only after that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tartan._native import SortFailure, SortJob
from tartan.base.signals import cancel_on_signals
from tartan.sort.dtypes import describe_dtype
from tartan.sort.engine import POLL_SECONDS, Order, SortOptions
from tartan.sort.failures import error_of
from tartan.sort.formats import Destination, SourceFile, refuse_changes
from tartan.sort.plan import SortPlan, expected_bits
from tartan.sort.progress import SortProgress
from tartan.sort.result import SortResult, edges_of
from tartan.sort.sampling import sampled_width_bits
from tartan.sort.space import check_space, disks_of, peak_rss_bytes
from tartan.sort.work import WorkFolders

RENEW_SECONDS = 5.0
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
    _signal: int | None = None
    _engine: SortJob | None = None

    @property
    def n_bytes(self) -> int:
        return sum(source.n_bytes for source in self.sources)

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        start = time.perf_counter()
        # Python takes what it needs before the engine is given what is left.
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
        """Return the memory that will be held besides that of the engine."""
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
        """Return the disk space that run files need; trust the sample if the user has decided to pack."""
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
        """Show the progress, and renew the lease of the folders."""
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
