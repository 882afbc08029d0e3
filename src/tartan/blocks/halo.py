"""Blocks with some elements more on every side, for stencils and filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np

from tartan.base.format import show_value
from tartan.blocks.work import Boundary, RangeKey
from tartan.core.blocks.space import Box, resolve
from tartan.errors import ConfigError

_PAD_MODES = {"zero": "constant", "reflect": "symmetric", "nearest": "edge"}


class Halo(NamedTuple):
    """An index of ``Space.read``: a block and what lies around it; see ``halo``."""

    block: tuple[slice, ...]
    widths: tuple[int, ...]
    boundary: Boundary

    def range_of(self, space: int, shape: Sequence[int]) -> RangeKey:
        """Return the range of a space that it names."""
        box = resolve(self.block, shape)
        self._require_dimensions(len(box))
        wanted = [(start - width, stop + width) for (start, stop), width in zip(box, self.widths, strict=True)]
        inside: Box = tuple(
            (max(0, start), min(length, stop)) for (start, stop), length in zip(wanted, shape, strict=True)
        )
        padding = tuple((a - start, stop - b) for (start, stop), (a, b) in zip(wanted, inside, strict=True))
        if self.boundary == "clip" or not any(map(any, padding)):
            return RangeKey(space, inside)
        return RangeKey(space, inside, padding, self.boundary)

    def ranges_of(self, boxes: np.ndarray, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return what lies around many blocks: the boxes within the space, and the padding of each.

        Parameters
        ----------
        boxes : ndarray of int, shape (n, n_dimensions, 2)
            The blocks.
        shape : sequence of int
            Of the space.
        """
        self._require_dimensions(len(shape))
        wanted = boxes + np.array(self.widths)[:, None] * (-1, 1)
        inside = np.clip(wanted, 0, np.array(shape)[:, None])
        return inside, np.abs(inside - wanted)

    def _require_dimensions(self, n_dimensions: int) -> None:
        if len(self.widths) != n_dimensions:
            raise ConfigError(f"a halo of {len(self.widths)} widths in a space of {n_dimensions} dimensions")


def halo(block: tuple[slice, ...] | slice, width: int | Sequence[int], boundary: Boundary = "zero") -> Halo:
    """Return the index of a block with its surroundings, for ``Space.read``.

    Parameters
    ----------
    block : tuple of slice
        As ``Space.block`` returns it.
    width : int or sequence of int
        Elements more on every side; one number for all dimensions, or one each.
    boundary : {"zero", "reflect", "nearest", "clip"}
        What lies outside the space: zeros, the space mirrored at its edge (d c b a | a b c d), its last element, or
        nothing: the array is smaller there. As in ``scipy.ndimage``.

    Raises
    ------
    ConfigError
        If the width is negative or the boundary unknown.

    Examples
    --------
    >>> halo((slice(0, 4), slice(2, 4)), 1).range_of(0, (8, 8)).padding
    ((1, 0), (0, 0))
    """
    slices = block if isinstance(block, tuple) else (block,)
    widths = (width,) * len(slices) if isinstance(width, int) else tuple(width)
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in widths):
        raise ConfigError(f"a halo of width {show_value(width)}: widths are whole numbers, 0 or more")
    if boundary not in get_args(Boundary):
        raise ConfigError(f"boundary={show_value(boundary)} is not one of {', '.join(get_args(Boundary))}")
    return Halo(slices, widths, boundary)


def inside(array: np.ndarray, wanted: RangeKey) -> np.ndarray:
    """Return the part of the array of a range that lies within the space."""
    pairs = zip(array.shape, wanted.padding, strict=True) if wanted.padding else ()
    return array[tuple(slice(before, length - after) for length, (before, after) in pairs)]


def pad(array: np.ndarray, wanted: RangeKey) -> None:
    """Fill what lies outside the space in the array of a range, from what lies within."""
    mode = _PAD_MODES[wanted.boundary]
    array[...] = np.pad(inside(array, wanted), wanted.padding, mode=mode)  # type: ignore[call-overload]
