"""Sort rows of tables and text on several ranks.

This process looks at the sources and writes down how rows become records; the ranks read exact ranges of the rows,
make their records and sort them. It takes the sorted records, a file in the job's folder beside the destination, apart
again. Of tables that are read through temporary files it writes the records to a file there, which the ranks sort.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors, fsync
from tartan.sort.dtypes import DType
from tartan.sort.engine import SortOptions
from tartan.sort.formats import Destination, SourceFile, refuse_changes
from tartan.sort.pushed import BLOCK_BYTES
from tartan.sort.ranks.launch import RankedSort, SortWays
from tartan.sort.result import SortResult
from tartan.sort.space import check_space, disks_of
from tartan.sort.table_job import TableRun
from tartan.sort.work import WorkFolders

_RECORDS, _SORTED = "records", "sorted"


@dataclass
class RankedRows:
    """A sort of rows on several ranks; call ``run`` once.

    Attributes
    ----------
    rows : TableRun
        What would be sorted on this machine.
    options : SortOptions
        Of each rank.
    ways : SortWays
    """

    rows: TableRun
    options: SortOptions
    ways: SortWays

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        start, rows = time.perf_counter(), self.rows
        rows.choose_first_rows()
        if rows.has_first_rows:  # there is nothing to be sorted
            return rows.run(resume=resume, quiet=quiet)
        notes: list[str] = []
        target = rows.destination.path
        work = WorkFolders([target.parent], target, {**rows.describe(), "rows": True}, notes.append)
        with rows.reading(), work:
            folder, job = work.paths[0], work.fingerprint.hex()[:16]
            records, ordered = (folder / f"{name}-{job}.bin" for name in (_RECORDS, _SORTED))
            self._remove_others(folder, (records,) if resume else ())
            if rows.spool is None:
                result = self._sort_rows(ordered, resume=resume, quiet=quiet)
            else:
                if not records.exists():
                    self._write_records(records)
                result = self._sort_records(records, ordered, resume=resume, quiet=quiet)
            try:
                rows.write_rows(_read_records(ordered, rows.order.dtype))
                rows.destination.finish()
            except BaseException:
                rows.destination.remove_part()
                raise
            self._remove_others(folder, ())
        return replace(
            result,
            path=target,
            n_records=rows.n_written,
            n_bytes=rows.n_bytes,
            wall_seconds=time.perf_counter() - start,
            notes=(*result.notes, *notes),
        )

    def _remove_others(self, folder: Path, kept: Sequence[Path]) -> None:
        confined = ConfinedFolder(folder)
        for name, _ in list(confined.entries(folder)):
            ours = name.startswith((f"{_RECORDS}-", f"{_SORTED}-")) and name.endswith((".bin", ".part"))
            if ours and folder / name not in kept:
                confined.remove(folder / name, missing_ok=True)

    def _write_records(self, path: Path) -> None:
        """Write the records of all rows; the file gets its name when it is whole."""
        n_bytes = self.rows.n_bytes
        check_space((), 0, disks_of([path.parent])[0], 2 * n_bytes)
        part, folder = path.with_suffix(".part"), ConfinedFolder(path.parent)
        folder.remove(part, missing_ok=True)
        with disk_errors(path), folder.new_file(part, 0o600) as file:
            for block in self.rows.read_records():
                file.write(block.view(np.uint8).data)
            file.flush()
            fsync(file.fileno())
        refuse_changes(self.rows.sources)
        folder.move(part, path)

    def _sort_rows(self, ordered: Path, *, resume: bool, quiet: bool) -> SortResult:
        rows = self.rows
        dtype = np.dtype(f"V{rows.order.dtype.itemsize}")
        target = Destination(ordered, dtype, rows.n_records, rows.sources, in_place=False, overwrite=True)
        recipe, job = rows.write_recipe(), rows.describe()
        sort = RankedSort(rows.sources, target, rows.order, self.options, self.ways, rows=recipe, job=job)
        return sort.run(resume=resume, quiet=quiet)

    def _sort_records(self, records: Path, ordered: Path, *, resume: bool, quiet: bool) -> SortResult:
        dtype = np.dtype(f"V{self.rows.order.dtype.itemsize}")
        status = records.stat()
        source = SourceFile(records, 0, status.st_size, status.st_size, status.st_mtime_ns, status.st_ino)
        n_records = status.st_size // dtype.itemsize
        target = Destination(ordered, dtype, n_records, [source], in_place=False, overwrite=True)
        return RankedSort([source], target, self.rows.order, self.options, self.ways).run(resume=resume, quiet=quiet)


def _read_records(path: Path, dtype: DType) -> Iterator[np.ndarray]:
    """Yield the records of a file; each block is valid until the one behind the next."""
    n_bytes = max(1, BLOCK_BYTES // dtype.itemsize) * dtype.itemsize
    with disk_errors(path), path.open("rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        while left:
            block = np.fromfile(file, np.uint8, min(n_bytes, left))
            left -= len(block)
            yield block.view(dtype)
