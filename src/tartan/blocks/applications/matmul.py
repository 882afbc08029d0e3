"""Matrix product: every output block from a row of blocks and a column of blocks.

Where these are too long for the memory of a rank, they are cut, and one task adds to the results of the one before.
A block is a sum in steps of ``_STEP`` blocks, one after the other, so that its bits do not depend on the cuts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from tartan.blocks.report import RunReport
from tartan.blocks.schedule import room_for_ranges
from tartan.blocks.session import Session
from tartan.blocks.sources import SpaceSource, source_of
from tartan.blocks.space import Space
from tartan.blocks.task import Task
from tartan.blocks.unfinished import UnfinishedOutput
from tartan.core.blocks.placement import Place
from tartan.core.blocks.subtask_order import n_loads
from tartan.errors import ConfigError

# By judgement: steps of 4 blocks of 1,024 are long enough for BLAS at full speed (`tartan bench blocks`: 1.02 of
# NumPy); longer ones need more memory at once.
_STEP = 4
"""Blocks of a row whose products are summed at once."""
# Measured (`tartan bench blocks`): 1,024 reaches the speed of one NumPy product, 512 0.82 of it. With 32 lines of
# blocks what moves is within 1 % of the bound, with 16 it was 1.39 (only=memory).
_SIDE, _LEAST_SIDE, _LINES = 1024, 64, 32
"""Of blocks; less than the first where a rank cannot hold all, so that there are so many lines of blocks."""


class Multiply:
    """Write the product of a part of some rows and columns to a block, or add it to the block.

    Parameters
    ----------
    step : int
        Elements of a row that are multiplied at a time.
    adds : bool
        Whether the block holds the sum of what is before this part.
    """

    def __init__(self, step: int, *, adds: bool) -> None:
        self.step, self.adds = step, adds

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, xp: Any) -> None:
        """Multiply, both in the type of the product."""
        part = None
        for start in range(0, len(b), self.step):
            left, right = a[:, start : start + self.step], b[start : start + self.step]
            left, right = left.astype(c.dtype, copy=False), right.astype(c.dtype, copy=False)
            if start or self.adds:
                part = xp.matmul(left, right, out=part)
                c += part
            else:
                xp.matmul(left, right, out=c)


def matmul(
    session: Session,
    a: Any,
    b: Any,
    *,
    block: int | None = None,
    place: Place = "source",
    output: UnfinishedOutput | None = None,
) -> tuple[Space, RunReport, int | None]:
    """Multiply two matrices; integers and truth values as float64, since sums of them overflow their own type.

    Parameters
    ----------
    session : Session
    a, b : as for ``Session.space``
    block : int, optional
        Side of a block. Default: 1024; where the memory of a rank cannot hold the three matrices, less for fewer than
        32,768 rows or columns, as lines of blocks that are a large part of the memory are read again and again.
    place : str
        Where the blocks of both are at first.
    output : UnfinishedOutput, optional
        Gets each block of the product as soon as it is there; those that it has are not computed, nor in the space.

    Returns
    -------
    product : Space
    report : RunReport
    bound : int or None
        Bytes that must at least move between ranks, each with its share of the blocks of the product; as in the report.

    Raises
    ------
    ConfigError
        If they are not matrices that can be multiplied.
    """
    known = (
        None if output is None else output.notes.get("side")
    )  # bits depend on it, and it on the memory that was free
    side = block or known or _side(session, source_of(a, None, None), source_of(b, None, None))
    A = session.space(a, block=side, place=place)
    B = session.space(b, block=side, place=place)
    if len(A.shape) != 2 or len(B.shape) != 2 or A.shape[1] != B.shape[0]:
        raise ConfigError(f"matrices of shapes {A.shape} and {B.shape} cannot be multiplied")
    dtype = np.result_type(A.dtype, B.dtype)
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    C = session.space(shape=(A.shape[0], B.shape[1]), dtype=dtype, block=side)

    before = session.total
    step = _STEP * A.blocks.block[1]
    depth = step * ceil(A.shape[1] / step / _n_parts(session, A, B, C, ceil(A.shape[1] / step)))
    grid, begin = C.grid, 0
    if output is not None:
        grid, begin = output.begin(C, side=side), output.step
        C = session.space(output.values, block=side) if begin else C
    reports = []
    for start in range(begin, A.shape[1], depth):
        inner = slice(start, min(start + depth, A.shape[1]))

        def wants(i: np.ndarray, j: np.ndarray, inner: slice = inner) -> tuple[Any, ...]:
            rows, columns = C.block(i, j)
            out = C.update if inner.start else C.write
            return A.read[rows, inner], B.read[inner, columns], out[rows, columns]

        function = Multiply(step, adds=start > 0)
        cpu = output.writing(function) if output is not None and inner.stop == A.shape[1] else function
        if grid:
            task = Task(cpu=cpu, gpu=function, grid=grid, subscribe=wants, at_once=True, releases_gil=True)
            reports.append(session.run(task))
        if output is not None and inner.stop < A.shape[1]:
            output.save(C, inner.stop)
    bounds = [report.bytes_bound for report in reports if report.bytes_bound is not None]
    bound = sum(bounds) if len(bounds) == len(reports) else None
    return C, replace(session.total - before, bytes_bound=bound), bound


def _side(session: Session, a: SpaceSource, b: SpaceSource) -> int:
    """Return the side of blocks where none is asked for."""
    n_rows, n_columns = a.shape[0], b.shape[-1]
    n_bytes = sum(math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in (a, b))
    side = _SIDE
    if n_bytes + n_rows * n_columns * np.result_type(a.dtype, b.dtype).itemsize > session.room_bytes:
        while side > _LEAST_SIDE and side * _LINES > min(n_rows, n_columns):
            side //= 2
    return side


def _n_parts(session: Session, a: Space, b: Space, c: Space, most: int) -> int:
    """Return into how many parts lines of ``most`` steps are cut, so that a rank reads and writes the least."""
    side = len(session.ranks) ** 0.5
    n_rows, n_columns = (ceil(count / side) for count in c.counts)
    lines = [a.nbytes / a.counts[0], b.nbytes / b.counts[1]]
    block = c.nbytes / math.prod(c.counts)
    out = n_rows * n_columns * block
    if n_rows * lines[0] + n_columns * lines[1] + out <= session.room_bytes:
        return 1
    costs = []
    for parts in range(1, most + 1):
        written = block if parts == 1 else 2 * block
        share = ceil(most / parts) / most
        if share * sum(lines) + written > session.room_bytes:  # not one subtask fits
            costs.append(math.inf)
            continue
        room = room_for_ranges(session.room_bytes, written)
        lines_loaded = n_loads(n_rows, n_columns, room / (share * max(lines)))
        costs.append(max(lines) * lines_loaded + 2 * (parts - 1) * out)
    return most if math.isinf(min(costs)) else 1 + costs.index(min(costs))
