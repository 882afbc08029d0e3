"""Sorts whose records are made and taken apart here, and not read and written by the engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan._native import SortJob
from tartan.sort.formats import refuse_changes
from tartan.sort.job import SortRun

if TYPE_CHECKING:
    from tartan.sort.progress import SortProgress
    from tartan.sort.work import WorkFolders


# By judgement: records that are handed on at a time, so that calls of Python cost nothing beside the sort (1 GB/s). No
# benchmark.
BLOCK_BYTES = 16 << 20


class PushedRun(SortRun):
    """A sort of records that are pushed to the engine and pulled from it; all else is as in ``SortRun``."""

    _block_bytes = BLOCK_BYTES
    """How much is pulled at a time."""
    _pushed_bytes = 0

    @abstractmethod
    def _records(self, first: int, count: int) -> Iterator[np.ndarray]:
        """Yield ``count`` records, from record ``first`` on; -1 means all the rest."""

    @abstractmethod
    def _write(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        """Write what the engine has sorted to the destination."""

    def _width_bits(self) -> float | None:
        return None

    def _phases(self, engine: SortJob, work: WorkFolders, run_files: Sequence[Path], progress: SortProgress) -> None:
        engine.adopt([str(path) for path in run_files])
        self._pushed_bytes = 0
        with self._time_phase("sort"):
            for first, count in engine.missing():
                engine.seek(first)
                for records in self._records(first, count):
                    engine.push(records.view(np.uint8))
                    self._pushed_bytes += records.nbytes
                    self._beat(engine, work, progress)
        engine.finish_push()
        self._watch("sort", engine, work, progress)
        refuse_changes(self.sources)
        self._write(engine, work, progress)

    def _facts(self, engine: SortJob) -> Mapping[str, Any]:
        facts = super()._facts(engine)
        if facts["phase"] not in ("idle", "sort"):
            return facts
        # The engine does not know how much will come.
        left = max(self.n_bytes - self._adopted_bytes, self._pushed_bytes)
        return {**facts, "phase": "sort", "bytes_done": self._pushed_bytes, "bytes_total": left}

    def _yield_sorted(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> Iterator[np.ndarray]:
        """Yield what the engine has sorted; each block is valid until the one behind the next."""
        width = self.order.dtype.itemsize
        n_bytes = max(1, self._block_bytes // width) * width
        block, other = np.empty(n_bytes, np.uint8), np.empty(n_bytes, np.uint8)
        engine.open_sorted()
        while n_bytes := engine.read_into(block):
            yield block[:n_bytes].view(self.order.dtype)
            block, other = other, block
            self._beat(engine, work, progress)
