"""Matrix product: every output block from a row of blocks and a column of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.blocks.report import RunReport
from tartan.blocks.session import Session
from tartan.blocks.space import Space
from tartan.blocks.task import Task
from tartan.core.placement import Place
from tartan.errors import ConfigError


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, xp: Any) -> None:
    """Multiply, both in the type of the product."""
    xp.matmul(a.astype(c.dtype, copy=False), b.astype(c.dtype, copy=False), out=c)


def matmul(
    session: Session, a: Any, b: Any, *, block: int = 1024, place: Place = "source"
) -> tuple[Space, RunReport, int | None]:
    """Multiply two matrices; integers and truth values as float64, since sums of them overflow their own type.

    Parameters
    ----------
    session : Session
    a, b : as for ``Session.space``
    block : int
        Side of a block.
    place : str
        Where the blocks of both are at first.

    Returns
    -------
    product : Space
    report : RunReport
    bound : int or None
        Bytes that must at least move between ranks, each with its share of the blocks of the product; as in the report.

    Raises
    ------
    ConfigError
        If they are no matrices that can be multiplied.
    """
    A = session.space(a, block=block, place=place)
    B = session.space(b, block=block, place=place)
    if len(A.shape) != 2 or len(B.shape) != 2 or A.shape[1] != B.shape[0]:
        raise ConfigError(f"matrices of shapes {A.shape} and {B.shape} cannot be multiplied")
    dtype = np.result_type(A.dtype, B.dtype)
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    C = session.space(shape=(A.shape[0], B.shape[1]), dtype=dtype, block=block)

    def wants(i: np.ndarray, j: np.ndarray) -> tuple[Any, ...]:
        rows, columns = C.block(i, j)
        return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

    report = session.run(Task(product, C.grid, wants, at_once=True, releases_gil=True))
    return C, report, report.bytes_bound
