"""Sort blocks of records that are not files.

``sort_file`` does not use this module: its engine reads and writes files itself, past the page cache, and resumes. A
``BlockSorter`` takes blocks, keeps them in sorted run files and returns blocks in order. DEPSort (Akougkas, "Decoupled
Execution Paradigm") runs the stages of a sort on different machines: read and sort beside the storage, run files on
nodes for intermediate data, merge on compute nodes, write beside the storage. Here one process drives them all;
``BlockSorter.edges`` says how many bytes would have travelled.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.confined import ConfinedFolder, remove_tree
from tartan.base.files import disk_errors, remove_abandoned
from tartan.base.temporary import temporary_names
from tartan.errors import ConfigError
from tartan.options import Size
from tartan.sort.dtypes import describe_dtype, parse_dtype
from tartan.sort.engine import POLL_SECONDS, Direct, Order, Pack, PathLike, SortOptions, translate_engine_errors
from tartan.sort.keys import parse_key
from tartan.sort.result import Edge, edges_of
from tartan.sort.space import check_space, disks_of

# By judgement: a megabyte in each of a few stages; records of one block stay in the second cache. No benchmark.
BLOCK_BYTES = 1 << 20
# Of an input of unknown size, in times the memory; a larger one is sorted too, with more merge levels than needed.
# By judgement: 64 GB through a memory of 1 GB; a plan for too much makes buffers smaller, one for too little costs
# another pass over all. No benchmark.
_UNKNOWN_TIMES_MEMORY = 64
_PREFIX = "tartan-sort-blocks."  # the dot keeps it apart from the name of the host that follows

Records = NDArray[Any]


class BlockSorter:
    """Takes blocks of records, keeps them in sorted run files, and gives them back in order; a context manager.

    Parameters
    ----------
    dtype, key, descending
        As ``sort_file`` takes them.
    n_bytes : int, optional
        About how much will come. What fits into memory needs no run files.
    memory : size, optional
        Most memory that the whole process may hold, as for ``sort_file``.
    tmp : path or iterable of paths, optional
        Folders for run files, which get a folder of their own there. Default: that of the system for temporary files.
    pack, threads, direct
        As ``sort_file`` takes them.
    kept_bytes : int
        What the caller is going to hold besides, out of the same memory.

    Raises
    ------
    ConfigError
        If an option is wrong or memory is too little.
    DiskFullError
        If the folders have too little space for the records to come.

    Notes
    -----
    The sort is stable: equal records keep the order in which they were pushed. It does not resume.

    Examples
    --------
    >>> import numpy as np
    >>> with BlockSorter(dtype="int64", n_bytes=24) as sorter:
    ...     sorter.push(np.array([5, 1, 3]))
    ...     print(*sorter.yield_sorted())
    [1 3 5]
    """

    # Public, with the keywords of ``sort_file``: hence more than eight parameters.
    def __init__(
        self,
        *,
        dtype: Any,
        key: str | Sequence[str] | None = None,
        descending: bool = False,
        n_bytes: int | None = None,
        memory: str | int | Size | None = None,
        tmp: PathLike | Iterable[PathLike] | None = None,
        pack: Pack = "auto",
        threads: int | None = None,
        direct: Direct = "auto",
        kept_bytes: int = 0,
    ) -> None:
        record = parse_dtype(dtype)
        order = Order(record, parse_key(key, record, descending=descending))
        options = SortOptions.read(
            memory=memory, tmp=tempfile.gettempdir() if tmp is None else tmp, pack=pack, threads=threads, direct=direct
        )
        expected = options.memory_bytes * _UNKNOWN_TIMES_MEMORY if n_bytes is None else n_bytes
        plan = order.plan(expected, options, kept_bytes=kept_bytes + 4 * BLOCK_BYTES)
        if n_bytes is not None:
            disks = disks_of(options.folders)
            check_space(disks, plan.temporary_bytes, disks[0], 0)
        self._dtype = record
        self._folders = [_new_folder(Path(parent)) for parent in options.folders]
        try:
            with translate_engine_errors():
                self._engine = order.open_engine(plan, options, self._folders, os.urandom(32))
        except BaseException:
            self._remove_folders()
            raise

    def __enter__(self) -> BlockSorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def edges(self) -> dict[str, Edge]:
        """Bytes between the stages so far, by the names in ``tartan.sort.result.EDGES``."""
        return edges_of(self._engine.statistics())

    def push(self, records: Records) -> None:
        """Add records; waits while everything is busy sorting what came before.

        Parameters
        ----------
        records : ndarray, shape (n,)
            Of the dtype; may be changed after the call.

        Raises
        ------
        ConfigError
            If they are of another dtype, or have several axes.
        DiskFullError, SortError
            If run files could not be written.
        """
        array = np.asarray(records)
        if array.dtype != self._dtype or array.ndim != 1:
            raise ConfigError(
                f"records of {describe_dtype(array.dtype)} with {array.ndim} axes were pushed to a sorter of "
                f"{describe_dtype(self._dtype)}; push arrays of one axis and of that dtype",
                context={"dtype": str(array.dtype), "shape": list(array.shape)},
            )
        if len(array):
            with translate_engine_errors():
                self._engine.push(np.ascontiguousarray(array).view(np.uint8))

    def yield_sorted(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Records]:
        """Yield everything in order, once; nothing can be pushed any more.

        Parameters
        ----------
        block_bytes : int
            Size of the arrays that are yielded; they are the caller's to keep.
        """
        width = self._dtype.itemsize
        with translate_engine_errors():
            self._engine.finish_push()
            while not self._engine.wait(POLL_SECONDS):
                pass  # Python gets a chance to handle signals
            self._engine.open_sorted()
        while True:
            block = np.empty(max(1, block_bytes // width) * width, np.uint8)
            with translate_engine_errors():
                n_bytes = self._engine.read_into(block)
            if not n_bytes:
                return
            yield block[:n_bytes].view(self._dtype)

    def close(self) -> None:
        """Stop everything and remove the run files; a second call does nothing."""
        self._engine.close(keep_runs=False)
        self._remove_folders()

    def _remove_folders(self) -> None:
        for folder in self._folders:
            remove_tree(folder)


def sort_blocks(blocks: Iterable[Records], *, dtype: Any, **options: Any) -> Iterator[Records]:
    """Sort records that come in blocks and do not fit into memory.

    Parameters
    ----------
    blocks : iterable of ndarray
        Taken one at a time, before the first sorted block is yielded.
    dtype : str, type or numpy.dtype
    **options
        Of ``BlockSorter``.

    Yields
    ------
    ndarray
        Records in order.

    Examples
    --------
    >>> import numpy as np
    >>> np.concatenate(list(sort_blocks([np.array([5.0, np.nan]), np.array([-1.0])], dtype="f8", n_bytes=24)))
    array([-1.,  5., nan])
    """
    with BlockSorter(dtype=dtype, **options) as sorter:
        for block in blocks:
            sorter.push(block)
        yield from sorter.yield_sorted()


def _new_folder(parent: Path) -> Path:
    """Make a folder of this process's own, and remove those that killed processes left."""
    remove_abandoned(parent, _PREFIX)
    folder = parent / f"{_PREFIX}{next(temporary_names())}"
    with disk_errors(folder):
        ConfinedFolder(parent).make_folder(folder, 0o700)
    return folder
