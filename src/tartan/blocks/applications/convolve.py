"""Convolution of an image with filters, one after the other, all channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tartan.blocks.halo import halo
from tartan.blocks.report import RunReport
from tartan.blocks.session import Session
from tartan.blocks.space import Space
from tartan.blocks.task import Task
from tartan.blocks.unfinished import UnfinishedOutput
from tartan.blocks.work import Boundary
from tartan.core.blocks.bounds import halo_bound
from tartan.core.blocks.placement import Place
from tartan.errors import ConfigError

# By judgement; measured on one core, 1,024 x 1,024 float32: sums take 17, 38 and 53 ms for filters of 25, 49 and 81
# elements, transforms 24 for each. Moving it would change the bits of 7 x 7.
_DIRECT = 49
"""Elements of a filter up to which sums are taken one by one; larger ones go through Fourier transforms."""


def convolve(
    session: Session,
    image: Any,
    kernels: Sequence[np.ndarray],
    *,
    block: int = 1024,
    boundary: Boundary = "reflect",
    place: Place = "source",
    output: UnfinishedOutput | None = None,
) -> tuple[Space, RunReport]:
    """Convolve an image with one filter after the other.

    Parameters
    ----------
    session : Session
    image : as for ``Session.space``, shape (height, width) or (height, width, n_channels)
    kernels : sequence of ndarray
        Two-dimensional, with odd sides.
    block : int
        Side of a block; all channels are together.
    boundary : {"zero", "reflect", "nearest", "clip"}
        What lies outside the image; see ``tartan.blocks.halo``. With "clip" filters are cut at the edge, which sums as
        zeros do.
    place : str
        Where the blocks are at first.
    output : UnfinishedOutput, optional
        Gets each block of the result as soon as it is there; those that it has, and what only they need, are not
        computed, nor in the space.

    Returns
    -------
    Space
        float32, or float64 where the image or a filter has more than float32 holds.
    RunReport
        Its ``bytes_bound`` is what every filter after the first moves between near-square shares that stay where they
        are: their halos. What the first one moves is not in it.

    Raises
    ------
    ConfigError
        If the image or a filter has the wrong number of dimensions, or a filter an even side.
    """
    for kernel in kernels:
        if np.ndim(kernel) != 2 or not all(side % 2 for side in np.shape(kernel)):
            raise ConfigError(f"a filter of shape {np.shape(kernel)}: filters have two dimensions and odd sides")
    old = session.space(image, block=_block_of(session, image, block), place=place)
    if len(old.shape) not in (2, 3):
        raise ConfigError(f"an image of shape {old.shape}: give (height, width) or (height, width, channels)")
    dtype = np.result_type(np.float32, old.dtype, *(np.asarray(kernel).dtype for kernel in kernels))
    before = session.total
    spare: Space | None = None
    steps = []
    for kernel in kernels:
        new = spare or session.space(shape=old.shape, dtype=dtype, block=old.blocks.block)
        steps.append(_FilterStep(old, new, np.asarray(kernel, dtype), boundary))
        spare, old = (old if (old.dtype == dtype and spare is not None) or old.source.kind == "zeros" else None), new
    for task in _tasks(steps, old.grid if output is None else output.begin(old), output):
        session.run(task)
    bound = sum(_halo_bytes(session, old, dtype, kernel) for kernel in kernels[1:])
    return old, replace(session.total - before, bytes_bound=bound)


def _halo_bytes(session: Session, image: Space, dtype: np.dtype[Any], kernel: np.ndarray) -> int:
    """Return the bytes of the halos of near-square shares of an image."""
    lengths = [
        [min(step, length - start) for start in range(0, length, step)]
        for length, step in zip(image.shape[:2], image.blocks.block, strict=False)
    ]
    widths = kernel.shape[0] // 2, kernel.shape[1] // 2
    n_channels = image.shape[2] if len(image.shape) == 3 else 1
    return dtype.itemsize * n_channels * halo_bound(lengths, widths, len(session.ranks))


def _block_of(session: Session, image: Any, block: int) -> tuple[int, ...]:
    from tartan.blocks.sources import source_of

    shape = image.shape if isinstance(image, Space) else source_of(image, None, None).shape
    return (block, block, *shape[2:]) if len(shape) > 1 else (block,)


class _FilterStep(NamedTuple):
    """One filter, and the spaces that it reads and writes."""

    old: Space
    new: Space
    kernel: np.ndarray
    boundary: Boundary

    def task(self, grid: list[tuple[int, ...]], output: UnfinishedOutput | None) -> Task:
        """Return the task that makes some blocks, and writes them to the output where there is one."""
        old, new, kernel, boundary = self
        widths = (kernel.shape[0] // 2, kernel.shape[1] // 2, 0)[: len(old.shape)]

        def wants(*index: np.ndarray) -> tuple[Any, ...]:
            where = new.block(*index)
            return old.read[halo(where, widths, boundary)], new.write[where]

        cpu, gpu = (kind(kernel, boundary == "clip", new.shape, new.blocks.block) for kind in (Filter, DeviceFilter))
        call = cpu if output is None else output.writing(cpu)
        return Task(cpu=call, gpu=gpu, grid=grid, subscribe=wants, at_once=True, releases_gil=True)


def _tasks(steps: list[_FilterStep], grid: list[tuple[int, ...]], output: UnfinishedOutput | None) -> list[Task]:
    """Return the tasks that some blocks of the result need, each of the blocks that the one after it reads."""
    tasks: list[Task] = []
    for step in reversed(steps):
        if grid:
            tasks.append(step.task(grid, None if tasks else output))
            boxes = next(column.boxes for column in tasks[-1].table.columns if column.access == "read")
            grid = step.old.blocks.find_touched(boxes)
    return tasks[::-1]


class Filter:
    """Convolve a window with a filter, on the CPU."""

    def __init__(self, kernel: np.ndarray, clipped: bool, shape: tuple[int, ...], block: tuple[int, ...]) -> None:
        self.kernel, self.clipped, self.shape, self.block = kernel, clipped, shape, block

    def __call__(self, window: np.ndarray, out: np.ndarray, index: tuple[int, ...], xp: Any) -> None:
        """Write what lies far enough inside the window."""
        if self.clipped:
            window = xp.pad(window, self._cut_off(index))
        if window.ndim == 2:
            out[...] = self.filter_window(window, xp)
            return
        for channel in range(window.shape[2]):
            out[..., channel] = self.filter_window(window[..., channel], xp)

    def _cut_off(self, index: tuple[int, ...]) -> list[tuple[int, int]]:
        found = []
        for k, width in enumerate((self.kernel.shape[0] // 2, self.kernel.shape[1] // 2)):
            start = index[k] * self.block[k]
            stop = min(start + self.block[k], self.shape[k])
            found.append((max(0, width - start), max(0, stop + width - self.shape[k])))
        return found + [(0, 0)] * (len(self.shape) - 2)

    def filter_window(self, window: np.ndarray, xp: Any) -> np.ndarray:
        """Return what lies far enough inside a window of one channel."""
        from scipy import ndimage, signal

        values = window.astype(self.kernel.dtype, copy=False)
        if self.kernel.size > _DIRECT:
            return np.asarray(signal.fftconvolve(values, self.kernel, mode="valid"))
        rows, columns = (side // 2 for side in self.kernel.shape)
        full = ndimage.convolve(values, self.kernel, mode="constant")
        return np.asarray(full[rows : len(full) - rows, columns : full.shape[1] - columns])


class DeviceFilter(Filter):
    """Convolve a window with a filter, on a device; sums are float64, and transforms are in the type of the result."""

    def filter_window(self, window: np.ndarray, xp: Any) -> np.ndarray:
        """Return what lies far enough inside a window of one channel."""
        if self.kernel.size > _DIRECT:
            return self._transform(window, xp)
        rows, columns = (length - side + 1 for length, side in zip(window.shape, self.kernel.shape))
        sums = xp.zeros((rows, columns), dtype=xp.float64)
        for (row, column), weight in np.ndenumerate(self.kernel[::-1, ::-1]):
            sums += float(weight) * window[row : row + rows, column : column + columns].astype(xp.float64)
        return sums  # type: ignore[no-any-return]

    def _transform(self, window: np.ndarray, xp: Any) -> np.ndarray:
        from scipy.fft import next_fast_len

        full = [length + side - 1 for length, side in zip(window.shape, self.kernel.shape)]
        lengths = [next_fast_len(length, real=True) for length in full]
        dtype = xp.float32 if self.kernel.dtype.itemsize == 4 else xp.float64
        kernel, values = xp.asarray(self.kernel), window.astype(dtype)
        spectrum = xp.fft.rfftn(values, s=lengths, axes=(0, 1)) * xp.fft.rfftn(kernel, s=lengths, axes=(0, 1))
        found = xp.fft.irfftn(spectrum, s=lengths, axes=(0, 1))
        first = [side - 1 for side in self.kernel.shape]
        return found[first[0] : window.shape[0], first[1] : window.shape[1]]  # type: ignore[no-any-return]
