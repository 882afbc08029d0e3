"""Results as Zarr arrays, written by the ranks that have them; an array is there when it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.checksum import length_and_crc32c
from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.blocks.spill import spill_folder
from tartan.blocks.task import Task, keywords_of
from tartan.core.blocks.output_record import ABSENT, ChunkSeal, format_line
from tartan.errors import StoreError

if TYPE_CHECKING:
    from tartan.blocks.space import Space


class WriteChunk:
    """Write a block as one chunk of a Zarr array; to do it twice changes nothing.

    Parameters
    ----------
    path : Path
        That all ranks see.
    block : tuple of int
        Elements of a block in each dimension.
    target : Path
        What users call it.
    record : Path, optional
        File beside the array to which a line is added for each chunk that is whole.
    """

    def __init__(self, path: Path, block: tuple[int, ...], target: Path, record: Path | None = None) -> None:
        self.path, self.block, self.target, self.record = path, block, target, record

    def __call__(self, values: np.ndarray, index: tuple[int, ...]) -> None:
        """Write the block at an index."""
        import zarr

        where = tuple(
            slice(k * step, k * step + length) for k, step, length in zip(index, self.block, values.shape, strict=True)
        )
        with disk_errors(self.target):
            stored: Any = zarr.open_array(str(self.path), mode="r+")
            stored[where] = values
            if self.record is not None:
                self._note(self.record, index, stored.metadata.encode_chunk_key(index))

    def _note(self, record: Path, index: tuple[int, ...], name: str) -> None:
        confined = ConfinedFolder(record.parent)
        seal = seal_of(confined, self.path / name)
        line = confined.open(record, os.O_WRONLY | os.O_APPEND)  # of a file that is there: another command's is not
        try:
            os.write(line, format_line(index, seal))  # a part of a line says nothing
        finally:
            os.close(line)


class ComputeAndWrite:
    """Call a function whose last array is a block, and write the block as well.

    Parameters
    ----------
    call : callable
    write : WriteChunk
    """

    def __init__(self, call: Callable[..., None], write: WriteChunk) -> None:
        self.call, self.write, self._takes = call, write, keywords_of(call)
        self.__qualname__ = getattr(call, "__qualname__", type(call).__name__)

    def __call__(self, *arrays: np.ndarray, index: tuple[int, ...], xp: Any) -> None:
        """Compute the block at an index, and write it."""
        given = {"index": index, "xp": xp}
        self.call(*arrays, **{name: given[name] for name in self._takes})
        self.write(arrays[-1], index)


def seal_of(confined: ConfinedFolder, path: Path) -> ChunkSeal:
    """Return what a file is like now, such as that of a chunk."""
    try:
        descriptor = confined.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return ChunkSeal(ABSENT, 0)
    with open(descriptor, "rb") as file:
        return ChunkSeal(*length_and_crc32c(file))


def require_free(path: str | Path, *, overwrite: bool) -> None:
    """Refuse a path at which there is something.

    Raises
    ------
    StoreError
    """
    if os.path.lexists(path) and not overwrite:
        raise StoreError(f"{path} exists already; choose another name, or say `overwrite=True`", code="exists")


@contextlib.contextmanager
def whole_array(path: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield the path of an array to write: what is there gets its own name at the end, and goes where that fails.

    What killed processes have left beside it is removed first.

    Raises
    ------
    DiskFullError, StoreError
        As ``disk_errors``, or if there is something at the path already.
    """
    require_free(path, overwrite=overwrite)
    target = Path(os.path.realpath(path))
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with spill_folder(target.parent) as folder:
            array = folder / target.name
            yield array
            require_free(path, overwrite=overwrite)
            if target.exists():
                target.rename(folder / "before")
            array.rename(target)


def make_array(space: Space, array: Path, target: Path) -> None:
    """Make a Zarr array whose chunks are the blocks of a space; ``target`` is what users call it."""
    import zarr

    with disk_errors(target):
        zarr.create_array(str(array), shape=space.shape, dtype=space.dtype, chunks=space.blocks.block)


def zarr_task(space: Space, grid: Iterable[tuple[int, ...]], write: WriteChunk) -> Task:
    """Return the task that writes blocks of a space."""
    wants = lambda *index: space.read[space.block(*index)]  # noqa: E731
    return Task(write, grid, wants, at_once=True, releases_gil=True)


def array_task(space: Space, array: Path, target: Path) -> Task:
    """Make a Zarr array whose chunks are the blocks of a space, and return the task that writes them."""
    make_array(space, array, target)
    return zarr_task(space, space.grid, WriteChunk(array, space.blocks.block, target))
