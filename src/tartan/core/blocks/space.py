"""Geometry of spaces: arrays of one to four dimensions that are cut into data blocks.

A *box* is a half-open interval of elements in every dimension: what a subscription names, what travels, and what a
data block covers. The blocks of a space have one shape, those at the far edges may be smaller. Nothing here knows
where a block lies or what is in it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tartan.errors import ConfigError

# By judgement: images in time have four; boxes and conflicts are tested up to there. A limit of the interface, not of
# speed.
MOST_DIMENSIONS = 4
# By judgement: the owner of a block takes 8 bytes in the driver, so 0.8 GB a space. No benchmark goes beyond 10**5.
MOST_BLOCKS = 10**8

Box = tuple[tuple[int, int], ...]
"""First element and the one after the last, in every dimension."""


@dataclass(frozen=True)
class BlockGrid:
    """The data blocks of a space, numbered in row-major order.

    Parameters
    ----------
    shape : tuple of int
        Elements of the space in each dimension; at least one.
    block : tuple of int
        Elements of a block in each dimension, at least one; a block that is longer than the space is cut to it.

    Raises
    ------
    ConfigError
        If the dimensions are not one to four, differ in number, or have no elements, or there are over 10^8 blocks.

    Examples
    --------
    >>> grid = BlockGrid((5, 4), (2, 4))
    >>> grid.counts, grid.box(2)
    ((3, 1), ((4, 5), (0, 4)))
    >>> list(grid.parts(((1, 3), (0, 2))))
    [(0, ((1, 2), (0, 2))), (1, ((2, 3), (0, 2)))]
    """

    shape: tuple[int, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= MOST_DIMENSIONS:
            raise ConfigError(
                f"a space of shape {self.shape} has {len(self.shape)} dimensions; 1 to {MOST_DIMENSIONS} are possible"
            )
        if len(self.block) != len(self.shape):
            raise ConfigError(f"blocks of {self.block} in a space of shape {self.shape}: give one size a dimension")
        if min(self.shape) < 1 or min(self.block) < 1:
            raise ConfigError(f"blocks of {self.block} in a space of shape {self.shape}: every size is at least 1")
        object.__setattr__(self, "block", tuple(map(min, self.block, self.shape)))
        if self.n_blocks > MOST_BLOCKS:
            raise ConfigError(
                f"blocks of {self.block} in a space of shape {self.shape} are {self.n_blocks:,} blocks, more than "
                f"{MOST_BLOCKS:,}; make them larger",
            )

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Blocks in each dimension."""
        return tuple(-(-length // step) for length, step in zip(self.shape, self.block, strict=True))

    @property
    def n_blocks(self) -> int:
        """Blocks of the space."""
        return prod(self.counts)

    def number(self, index: Sequence[int]) -> int:
        """Return the number of the block at an index, one coordinate a dimension."""
        number = 0
        for coordinate, count in zip(index, self.counts, strict=True):
            if not 0 <= coordinate < count:
                raise ConfigError(f"there is no block {tuple(index)} among {self.counts} blocks")
            number = number * count + coordinate
        return number

    def index(self, number: int) -> tuple[int, ...]:
        """Return the index of a block, one coordinate a dimension."""
        return tuple(int(k) for k in np.unravel_index(number, self.counts))

    def box(self, number: int) -> Box:
        """Return what a block covers."""
        return self.box_at(self.index(number))

    def box_at(self, index: Sequence[int]) -> Box:
        """Return what the block at an index covers."""
        return tuple(
            (k * step, min((k + 1) * step, length))
            for k, step, length in zip(index, self.block, self.shape, strict=True)
        )

    def parts(self, box: Box) -> Iterator[tuple[int, Box]]:
        """Yield the blocks that a box touches, each with the part of the box in it, in row-major order."""
        lines = [
            [(k, (max(start, k * step), min(stop, (k + 1) * step))) for k in range(start // step, -(-stop // step))]
            for (start, stop), step in zip(box, self.block, strict=True)
        ]
        for line in product(*lines):
            yield self.number([k for k, _ in line]), tuple(interval for _, interval in line)

    def find_touched(self, boxes: np.ndarray) -> list[tuple[int, ...]]:
        """Return the indices of the blocks that any of some boxes touches, in row-major order.

        Parameters
        ----------
        boxes : ndarray of int, shape (n, n_dimensions, 2)

        Examples
        --------
        >>> BlockGrid((5, 4), (2, 4)).find_touched(np.array([[[1, 2], [0, 4]], [[3, 5], [0, 1]]]))
        [(0, 0), (1, 0), (2, 0)]
        """
        steps = np.array(self.block)
        found = np.zeros(self.counts, dtype=bool)
        for first, last in zip((boxes[..., 0] // steps).tolist(), ((boxes[..., 1] - 1) // steps).tolist(), strict=True):
            found[tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))] = True
        return [tuple(index) for index in np.argwhere(found).tolist()]


def resolve(key: Any, shape: Sequence[int]) -> Box:
    """Return the box that an index expression of a space names.

    Parameters
    ----------
    key : slice, int, or tuple of these
        As NumPy takes them, but every element must exist: what is outside is refused and not cut off. Dimensions that
        are left out are whole. An integer names an interval of length 1.
    shape : sequence of int

    Raises
    ------
    ConfigError
        If it has a step, is empty, lies outside, or has more dimensions than the space.

    Examples
    --------
    >>> resolve((slice(2, 4), -1), (5, 6))
    ((2, 4), (5, 6))
    """
    keys = keys_of(key, len(shape))
    return tuple(_interval(one, length) for one, length in zip(keys, shape, strict=True))


def keys_of(key: Any, n_dimensions: int) -> tuple[Any, ...]:
    """Return what an index expression says of each dimension.

    Raises
    ------
    ConfigError
        If it has more dimensions than there are.

    Examples
    --------
    >>> keys_of((..., 2), 3)
    (slice(None, None, None), slice(None, None, None), 2)
    """
    keys = key if isinstance(key, tuple) else (key,)
    place = next((k for k, one in enumerate(keys) if one is Ellipsis), len(keys))
    after = keys[place + 1 :]
    keys = keys[:place]
    filling = n_dimensions - len(keys) - len(after)
    if filling < 0:
        raise ConfigError(f"{len(keys) + len(after)} intervals for a space of {n_dimensions} dimensions")
    return (*keys, *(slice(None),) * filling, *after)


def plain_box(key: Any, shape: Sequence[int]) -> Box | None:
    """Return what ``resolve`` does for the most common indices, in a fraction of its time; None for all others.

    Those are one slice of plain integers, or of nothing, for each dimension.
    """
    if type(key) is not tuple or len(key) != len(shape):
        return None
    box: Box = ()
    for one, length in zip(key, shape, strict=True):
        if type(one) is not slice or one.step is not None:
            return None
        start, stop = one.start, one.stop
        if type(start) is int and type(stop) is int and 0 <= start < stop <= length:
            box += ((start, stop),)
        elif start is None and stop is None:
            box += ((0, length),)
        else:
            return None
    return box


def _interval(key: Any, length: int) -> tuple[int, int]:
    if isinstance(key, slice):
        if key.step not in (None, 1):
            raise ConfigError(f"a step of {key.step} in a subscription: intervals are contiguous")
        start = resolve_bound(key.start, 0, length)
        stop = resolve_bound(key.stop, length, length)
    elif isinstance(key, int | np.integer) and not isinstance(key, bool):
        start = resolve_bound(int(key), 0, length)
        stop = start + 1
    else:
        raise ConfigError(f"{reprlib.repr(key)} names no interval: give slices or integers")
    if not 0 <= start <= stop <= length:
        raise ConfigError(f"the interval {start}:{stop} is not within 0:{length}")
    if start == stop:
        raise ConfigError(f"the interval {start}:{stop} is empty")
    return start, stop


def resolve_bound(value: Any, default: int, length: int) -> int:
    """Return a bound of a slice as a place from 0, or the default for None; it may lie outside.

    Raises
    ------
    ConfigError
        If it is not a whole number.
    """
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{reprlib.repr(value)} is not a bound of an interval")
    return int(value) + (length if value < 0 else 0)


def shape_of(box: Box) -> tuple[int, ...]:
    """Return the lengths of a box."""
    return tuple(stop - start for start, stop in box)


def size_of(box: Box) -> int:
    """Return the number of elements of a box."""
    return prod(stop - start for start, stop in box)


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all elements of a shape."""
    return tuple((0, length) for length in shape)


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """Return the slices that cut a box out of an array of an outer box."""
    return tuple(slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, outer, strict=True))


def common(one: Box, other: Box) -> Box | None:
    """Return what two boxes have in common; None if that is nothing."""
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return found if all(a < b for a, b in found) else None


def without(box: Box, hole: Box) -> list[Box]:
    """Return disjoint boxes that together are a box without the elements of another.

    Examples
    --------
    >>> without(((0, 4), (0, 4)), ((1, 9), (0, 2)))
    [((0, 1), (0, 4)), ((1, 4), (2, 4))]
    """
    inner = common(box, hole)
    if inner is None:
        return [box]
    rest: list[Box] = []
    for k, ((start, stop), (first, last)) in enumerate(zip(box, inner, strict=True)):
        before, after = inner[:k], box[k + 1 :]
        rest += [(*before, part, *after) for part in ((start, first), (last, stop)) if part[0] < part[1]]
    return rest


def describe(box: Box) -> str:
    """Return a box as it is written in Python.

    Examples
    --------
    >>> describe(((0, 3), (2, 4)))
    '[0:3, 2:4]'
    """
    return f"[{', '.join(f'{start}:{stop}' for start, stop in box)}]"
