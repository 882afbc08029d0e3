"""Spaces as users see them, and subscriptions to their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tartan.base.format import show_value
from tartan.blocks.halo import Halo
from tartan.blocks.sources import SpaceSource, source_of
from tartan.blocks.work import Access, Boundary, RangeKey
from tartan.core.blocks.space import BlockGrid, keys_of, plain_box, resolve, resolve_bound, whole
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tartan.core.blocks.space import Box


class Subscription(NamedTuple):
    """What a subtask does with a range of a space: ``space.read[...]``, ``.write[...]`` or ``.update[...]``."""

    space: Space
    access: Access
    range: RangeKey

    def only(self, where: Any) -> Subscriptions:
        """Return the same for some subtasks; see ``Subscriptions.only``."""
        boxes = np.array(self.range.box, dtype=np.int64)[None]
        padding = np.array(self.range.padding, dtype=np.int64)[None] if self.range.padding else None
        return Subscriptions(self.space, self.access, boxes, padding, self.range.boundary).only(where)


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """What every subtask of a task does with a range of a space, as an index of arrays gives it.

    Attributes
    ----------
    space : Space
    access : {"read", "write", "update"}
    boxes : ndarray of int64, shape (n_subtasks or 1, n_dimensions, 2)
        One for all, or one each.
    padding : ndarray of int64 of that shape, optional
        Elements outside the space, as in ``RangeKey``.
    boundary : str
    where : ndarray of bool, shape (n_subtasks,), optional
        The subtasks that it is for; default: all.
    """

    space: Space
    access: Access
    boxes: np.ndarray
    padding: np.ndarray | None = None
    boundary: Boundary = "clip"
    where: np.ndarray | None = None

    def only(self, where: Any) -> Subscriptions:
        """Return the same for some subtasks; the others do not get this argument.

        Parameters
        ----------
        where : array of bool
            One value for each subtask.

        Raises
        ------
        ConfigError
            If it is not an array of one dimension that holds truth values.
        """
        found = np.asarray(where)
        if found.dtype != bool or found.ndim != 1:
            raise ConfigError(f"only(...) takes one truth value for each subtask, not {show_value(where)}")
        return replace(self, where=found if self.where is None else self.where & found)


class Subscriber:
    """Makes subscriptions of one kind by an index."""

    def __init__(self, space: Space, access: Access) -> None:
        self._space, self._access = space, access
        self._number, self._shape = space.number, space.shape

    def __getitem__(self, key: Any) -> Any:
        """Subscribe to a range: slices and integers, or for ``read`` what ``halo`` returns.

        Returns
        -------
        Subscription, or Subscriptions
            The latter where bounds of slices, or integers, are arrays: one range for each of their elements.
        """
        box = plain_box(key, self._shape)
        if box is not None:
            return Subscription(self._space, self._access, RangeKey(self._number, box))
        space = self._space
        try:
            if isinstance(key, Halo):
                return self._around(key)
            if in_arrays(key):
                return Subscriptions(space, self._access, resolve_arrays(key, space.shape))
            return Subscription(space, self._access, RangeKey(space.number, resolve(key, space.shape)))
        except ConfigError as error:
            raise ConfigError(f"a subscription to {space!r}: {error}") from None

    def _around(self, halo: Halo) -> Any:
        space = self._space
        if self._access != "read":
            raise ConfigError(f"a halo is only read; name the block itself for {self._access}")
        if not in_arrays(halo.block):
            return Subscription(space, "read", halo.range_of(space.number, space.shape))
        boxes, padding = halo.ranges_of(resolve_arrays(halo.block, space.shape), space.shape)
        if halo.boundary == "clip" or not padding.any():
            return Subscriptions(space, "read", boxes)
        return Subscriptions(space, "read", boxes, padding, halo.boundary)


class Space:
    """An array of one to four dimensions that tasks of a session read and write, cut into blocks.

    Made by ``Session.space``. What it holds changes only when a task has ended.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    blocks : BlockGrid
        Shape and number of its blocks.
    read, write, update
        Make subscriptions by an index: ``space.read[0:4, :]``. A function gets the values of ``read`` and ``update``,
        and zeros for ``write``; what it writes into ``write`` and ``update`` appears when the task has ended.
    """

    def __init__(
        self,
        number: int,
        source: SpaceSource,
        grid: BlockGrid,
        load: Callable[[Space, Box], np.ndarray],
        save: Callable[[Space, str | Path, bool], None],
        owner: object,
    ) -> None:
        self.number, self.source, self.blocks, self.owner = number, source, grid, owner
        self._load, self._save = load, save
        self.read = Subscriber(self, "read")
        self.write = Subscriber(self, "write")
        self.update = Subscriber(self, "update")

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        return self.blocks.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
        return np.dtype(self.source.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks in each dimension."""
        return self.blocks.counts

    @property
    def grid(self) -> list[tuple[int, ...]]:
        """Indices of all blocks, in row-major order: the grid of a task with one subtask a block."""
        return list(product(*map(range, self.counts)))

    @property
    def grid_rows(self) -> range:
        """Indices of blocks in the first dimension."""
        return range(self.counts[0])

    def block(self, *index: Any) -> tuple[slice, ...]:
        """Return the slices of a block.

        Parameters
        ----------
        *index : int or ndarray of int
            One for each dimension. Of arrays the slices have arrays as bounds: those of one block for each element.

        Raises
        ------
        ConfigError
            If there is no such block.
        """
        grid = self.blocks
        if len(index) != len(grid.shape):
            raise ConfigError(f"block {index} of a space of {len(grid.shape)} dimensions")
        slices = []
        for k, step, length, count in zip(index, grid.block, grid.shape, grid.counts, strict=True):
            if type(k) is not int or not 0 <= k < count:
                return self._other_block(index)
            start = k * step
            slices.append(slice(start, min(start + step, length)))
        return tuple(slices)

    def _other_block(self, index: tuple[Any, ...]) -> tuple[slice, ...]:
        """Return the slices of a block that is not named by plain integers within the grid."""
        if not any(isinstance(k, np.ndarray) for k in index):
            self.blocks.number(index)
            return tuple(slice(*interval) for interval in self.blocks.box_at(index))
        lines = zip(index, self.blocks.block, self.shape, self.counts, strict=True)
        return tuple(_block_slices(np.asarray(k), step, length, count) for k, step, length, count in lines)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return a range as an array; integers drop their dimension, as in NumPy."""
        box = resolve(key, self.shape)
        found = self._load(self, box)
        dropped = tuple(k for k, one in enumerate(keys_of(key, len(box))) if not isinstance(one, slice))
        return found.squeeze(dropped) if dropped else found

    def array(self) -> np.ndarray:
        """Return all of it as an array."""
        return self._load(self, whole(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all of it as an array, for NumPy."""
        return self.array() if dtype is None else self.array().astype(dtype)

    def to_zarr(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it as a Zarr array with its blocks as chunks; every rank writes what it has.

        The array is at the path when it is whole; until then, and if it fails, whatever was there before.

        Parameters
        ----------
        path : path
            That all ranks see.
        overwrite : bool

        Raises
        ------
        StoreError
            If there is something at the path already.
        ConfigError
            If ``overwrite`` would remove the source of a space of this session.
        DiskFullError, StoreError
            If a rank cannot write there.
        """
        self._save(self, path, overwrite)
        return Path(path)

    def __repr__(self) -> str:
        """Return shape, dtype and blocks."""
        return f"<Space {self.number}: {self.dtype} {self.shape} in blocks of {self.blocks.block}>"


def _block_slices(index: np.ndarray, step: int, length: int, count: int) -> slice:
    """Return the slice of blocks in one dimension; its bounds are arrays where the index is one."""
    wrong = (index < 0) | (index >= count)
    if index.dtype.kind not in "iu" or wrong.any():
        first = index.ravel()[int(np.argmax(wrong))] if index.size else index
        raise ConfigError(f"there is no block {first} among {count} blocks of a dimension")
    starts = index.astype(np.int64) * step
    stops = np.minimum(starts + step, length)
    return slice(starts, stops) if index.ndim else slice(int(starts), int(stops))


def block_shape(block: int | Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of blocks that ``Session.space`` was asked for: one number for all dimensions, or one each.

    Raises
    ------
    ConfigError
        If they are not whole numbers of at least 1.
    """
    sizes = tuple(block) if np.iterable(block) else (block,) * len(shape)
    if any(isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1 for size in sizes):
        raise ConfigError(f"block={show_value(block)}: give a whole number of at least 1, or one a dimension")
    return tuple(int(size) for size in sizes)


def take_shape_of(source: Any, shape: Any, dtype: Any, like: Any) -> tuple[None, Any, Any]:
    """Return no source, and the shape and dtype of what a space shall be like.

    Raises
    ------
    ConfigError
        If a source or a shape is given as well.
    """
    if source is not None or shape is not None:
        raise ConfigError("like=... is given in place of a source and of a shape")
    known = like.source if isinstance(like, Space) else source_of(like, None, None)
    return None, known.shape, known.dtype if dtype is None else dtype


# Indices of arrays: slices and integers that name one range of a space for each element of an array.


def in_arrays(key: Any) -> bool:
    """Whether an index names one range for each element of an array."""
    if isinstance(key, tuple):
        return any(map(in_arrays, key))
    if isinstance(key, slice):
        return isinstance(key.start, np.ndarray) or isinstance(key.stop, np.ndarray)
    return isinstance(key, np.ndarray) and key.ndim > 0


def resolve_arrays(key: Any, shape: Sequence[int]) -> np.ndarray:
    """Return the boxes that an index of arrays names, as ``resolve`` does for each of its elements.

    Returns
    -------
    ndarray of int64, shape (n, n_dimensions, 2)
    """
    keys = key if isinstance(key, tuple) else (key,)
    lengths = {len(one) for each in keys for one in _arrays(each)}
    if len(lengths) > 1:
        raise ConfigError(f"arrays of {' and '.join(map(str, sorted(lengths)))} elements in one index")
    n = lengths.pop()
    plain = resolve(tuple(slice(None) if in_arrays(one) else one for one in keys), shape)
    boxes = np.array([plain], dtype=np.int64).repeat(n, axis=0)
    skipped = len(shape) - len(keys)
    after = next((k for k, one in enumerate(keys) if one is Ellipsis), len(keys))
    for place, one in enumerate(keys):
        if in_arrays(one):
            at = place + (skipped if place > after else 0)
            boxes[:, at, 0], boxes[:, at, 1] = _intervals(one, shape[at])
    return boxes


def _arrays(key: Any) -> list[np.ndarray]:
    """Return the arrays of one dimension of an index."""
    bounds = (key.start, key.stop) if isinstance(key, slice) else (key,)
    found = [one for one in bounds if isinstance(one, np.ndarray)]
    for one in found:
        if one.ndim != 1 or one.dtype.kind not in "iu":
            raise ConfigError(f"an array of shape {one.shape} and dtype {one.dtype}: give one whole number a subtask")
    return found


def _intervals(key: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of one dimension; what is refused is refused as the first one alone would be."""
    if isinstance(key, slice):
        starts, stops = _bounds(key.start, 0, length), _bounds(key.stop, length, length)
        wrong = (starts < 0) | (starts >= stops) | (stops > length) | (key.step not in (None, 1))
    else:
        starts = _bounds(key, 0, length)
        stops = starts + 1
        wrong = (starts < 0) | (stops > length)
    if np.any(wrong):
        k = int(np.argmax(np.broadcast_to(wrong, np.broadcast_shapes(starts.shape, stops.shape))))
        resolve(_take_element(key, k), (length,))
        raise ConfigError(f"{key!r} names no intervals within 0:{length}")
    return starts, stops


def _bounds(value: Any, default: int, length: int) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        return np.asarray(resolve_bound(value, default, length))
    found = value.astype(np.int64, copy=False)
    return np.where(found < 0, found + length, found)


def _take_element(key: Any, k: int) -> Any:
    """Return the index of one subtask."""
    if isinstance(key, slice):
        return slice(_take_element(key.start, k), _take_element(key.stop, k), key.step)
    return int(key[k]) if isinstance(key, np.ndarray) else key
