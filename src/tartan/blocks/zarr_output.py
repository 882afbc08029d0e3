"""Results as Zarr arrays, written by the ranks that have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import disk_errors
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
    """

    def __init__(self, path: Path, block: tuple[int, ...]) -> None:
        self.path, self.block = path, block

    def __call__(self, values: np.ndarray, index: tuple[int, ...]) -> None:
        """Write the block at an index."""
        import zarr

        stored: Any = zarr.open_array(str(self.path), mode="r+")
        where = tuple(
            slice(k * step, k * step + length) for k, step, length in zip(index, self.block, values.shape, strict=True)
        )
        with disk_errors(self.path):
            stored[where] = values


def zarr_task(space: Space, path: str | Path, *, overwrite: bool) -> Task:
    """Make a Zarr array whose chunks are the blocks of a space, and return the task that writes them.

    Raises
    ------
    StoreError
        If there is something at the path already.
    """
    import zarr

    target = Path(path).absolute()
    if target.exists() and not overwrite:
        raise StoreError(f"{path} exists already; choose another name, or overwrite=True", code="exists")
    zarr.create_array(str(target), shape=space.shape, dtype=space.dtype, chunks=space.blocks.block, overwrite=overwrite)
    write = WriteChunk(target, space.blocks.block)
    wants = lambda *index: space.read[space.block(*index)]  # noqa: E731
    return Task(write, space.grid, wants, at_once=True, releases_gil=True)
