"""Results as Zarr arrays, written by the ranks that have them; an array is there when it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import disk_errors
from tartan.blocks.spill import spill_folder
from tartan.blocks.task import Task
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
    """

    def __init__(self, path: Path, block: tuple[int, ...], target: Path) -> None:
        self.path, self.block, self.target = path, block, target

    def __call__(self, values: np.ndarray, index: tuple[int, ...]) -> None:
        """Write the block at an index."""
        import zarr

        where = tuple(
            slice(k * step, k * step + length) for k, step, length in zip(index, self.block, values.shape, strict=True)
        )
        with disk_errors(self.target):
            stored: Any = zarr.open_array(str(self.path), mode="r+")
            stored[where] = values


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


def zarr_task(space: Space, array: Path, target: Path) -> Task:
    """Make a Zarr array whose chunks are the blocks of a space, and return the task that writes them.

    ``target`` is what users call it.
    """
    import zarr

    with disk_errors(target):
        zarr.create_array(str(array), shape=space.shape, dtype=space.dtype, chunks=space.blocks.block)
    write = WriteChunk(array, space.blocks.block, target)
    wants = lambda *index: space.read[space.block(*index)]  # noqa: E731
    return Task(write, space.grid, wants, at_once=True, releases_gil=True)
