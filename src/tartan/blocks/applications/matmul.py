"""Matrix product: every output block from a row of blocks and a column of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.core.placement import Place
from tartan.blocks.session import RunReport, Session
from tartan.blocks.space import Space, Subscription
from tartan.blocks.task import Task
from tartan.core.block_bounds import product_bound
from tartan.errors import ConfigError


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, xp: Any) -> None:
    """Multiply."""
    xp.matmul(a, b, out=c)


def matmul(
    session: Session, a: Any, b: Any, *, block: int = 1024, place: Place = "source"
) -> tuple[Space, RunReport, int]:
    """Multiply two matrices.

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
    bound : int
        Bytes that must at least move between ranks.

    Raises
    ------
    ConfigError
        If they are no matrices that can be multiplied.
    """
    A = session.space(a, block=block, place=place)
    B = session.space(b, block=block, place=place)
    if len(A.shape) != 2 or len(B.shape) != 2 or A.shape[1] != B.shape[0]:
        raise ConfigError(f"matrices of shapes {A.shape} and {B.shape} cannot be multiplied")
    C = session.space(shape=(A.shape[0], B.shape[1]), dtype=np.result_type(A.dtype, B.dtype), block=block)

    def wants(i: int, j: int) -> tuple[Subscription, ...]:
        rows, columns = C.block(i, j)
        return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

    report = session.run(Task(product, C.grid, wants, releases_gil=True))
    held = 0 if place == "source" else A.nbytes + B.nbytes
    rows, columns = C.shape
    bound = product_bound((rows, columns), A.shape[1], A.dtype.itemsize, len(session.ranks), held) if held else 0
    return C, report, bound
