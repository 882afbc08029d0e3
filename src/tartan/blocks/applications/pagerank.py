"""Page rank of a directed graph, by bands of its sparse matrix; a band reads the blocks of ranks that link to it.

The matrix is kept as three spaces in compressed rows, and a subtask subscribes to the ranges of its band, which are
as long as the band has links.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.format import show_value
from tartan.base.kernels import CudaFile
from tartan.blocks.report import RunReport
from tartan.blocks.session import Session
from tartan.blocks.space import Space
from tartan.blocks.task import Task
from tartan.blocks.unfinished import UnfinishedOutput
from tartan.errors import ConfigError

_KERNELS = CudaFile(Path(__file__).with_name("pagerank.cu"))
# By convention of CUDA: four warps; rows of links are short. No benchmark.
_THREADS = 128


def pagerank(
    session: Session,
    edges: np.ndarray,
    *,
    n_pages: int | None = None,
    block: int = 65536,
    damping: float = 0.85,
    tolerance: float = 1e-10,
    most_steps: int = 200,
    output: UnfinishedOutput | None = None,
) -> tuple[Space, RunReport]:
    """Return the rank of every page.

    Parameters
    ----------
    session : Session
    edges : ndarray of int, shape (n_links, 2)
        From page, to page; a link that is given twice counts twice.
    n_pages : int, optional
        Default: one more than the largest page.
    block : int
        Pages of a band.
    damping : float
        Share of the rank that goes along links; 0 to 1. The rest, and that of pages without links, goes to all.
    tolerance : float
        Sum of absolute changes at which the iteration ends.
    most_steps : int
        Most iterations.
    output : UnfinishedOutput, optional
        Keeps the ranks after some of the iterations, and begins with what it kept.

    Returns
    -------
    ranks : Space, shape (n_pages,), float64
        Their sum is 1.
    report : RunReport

    Raises
    ------
    ConfigError
        If the links are not pairs of pages.

    References
    ----------
    Page, Brin, Motwani, Winograd, "The PageRank citation ranking" (1999).
    """
    edges = _check(edges, n_pages)
    n = int(edges.max()) + 1 if n_pages is None else n_pages
    if not 0 <= damping <= 1:
        raise ConfigError(f"damping={show_value(damping)} is not from 0 to 1")
    before = session.total
    matrix = _Matrix(session, edges, n, block)
    old, new = session.space(np.full(n, 1 / n), block=block), session.space(shape=n, block=block)
    begin = 0
    if output is not None:
        if not output.begin(old):
            return old, session.total - before
        begin = output.step
        old = session.space(output.values, block=block) if begin else old
    values = old.array()
    for step in range(begin, most_steps):
        lost = float(values[matrix.dangling].sum())
        session.run(matrix.task(old, new, damping, (1 - damping + damping * lost) / n))
        old, new = new, old
        after = old.array()
        change = float(np.abs(after - values).sum())
        values = after
        if change <= tolerance:
            break
        if output is not None:
            output.save(old, step + 1)
    return old, session.total - before


def _check(edges: Any, n_pages: int | None) -> np.ndarray:
    found = np.asarray(edges)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu" or not len(found):
        raise ConfigError(f"links of shape {found.shape} and dtype {found.dtype}: give whole numbers, two a link")
    if found.min() < 0 or (n_pages is not None and found.max() >= n_pages):
        raise ConfigError(f"links name pages {found.min()} to {found.max()}; there are {n_pages or 'pages from 0 on'}")
    return found


class _Matrix:
    """A matrix of links in compressed rows of each page that is linked to."""

    def __init__(self, session: Session, edges: np.ndarray, n: int, block: int) -> None:
        source, target = edges[:, 0], edges[:, 1]
        n_out = np.bincount(source, minlength=n)
        self.dangling = n_out == 0
        order = np.lexsort((source, target))
        starts = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))])
        self._starts = session.space(starts, block=block)
        self._columns = session.space(source[order].astype(np.int64), block=block)
        self._weights = session.space(1.0 / n_out[source[order]], block=block)
        bands = range(0, n, block)
        columns = source[order]
        self._edges = starts[[*bands, n]]
        self._used = tuple(
            tuple(np.unique(columns[begin:end] // block).tolist()) for begin, end in pairwise(self._edges.tolist())
        )

    def task(self, old: Space, new: Space, damping: float, base: float) -> Task:
        """Return one step."""

        def wants(i: np.ndarray) -> list[Any]:
            (rows,) = new.block(i)
            linked = self._edges[i] < self._edges[i + 1]
            links = slice(np.where(linked, self._edges[i], 0), np.where(linked, self._edges[i + 1], 1))
            return [
                new.write[rows],
                self._starts.read[rows.start : rows.stop + 1].only(linked),
                self._columns.read[links].only(linked),
                self._weights.read[links].only(linked),
                *(old.read[old.block(k)].only(reads) for k, reads in self._readers().items()),
            ]

        call = AlongLinks(self._used, old.blocks.block[0], damping, base)
        return Task(call, range(len(self._used)), wants, at_once=True, releases_gil=True)

    def _readers(self) -> dict[int, np.ndarray]:
        """Return which bands read each block of ranks, blocks that none reads left out."""
        found: dict[int, np.ndarray] = {}
        for band, blocks in enumerate(self._used):
            for k in blocks:
                found.setdefault(k, np.zeros(len(self._used), dtype=bool))[band] = True
        return dict(sorted(found.items()))


class AlongLinks:
    """One step of the iteration for a band of pages."""

    def __init__(self, used: tuple[tuple[int, ...], ...], block: int, damping: float, base: float) -> None:
        self.used, self.block, self.damping, self.base = used, block, damping, base

    def __call__(self, out: np.ndarray, *given: np.ndarray, index: tuple[int, ...], xp: Any) -> None:
        """Add up the ranks that come along links."""
        out[...] = self.base
        if not given:
            return
        starts, columns, weights, *ranks = given
        known = xp.concatenate(ranks)
        first = xp.asarray(np.cumsum([0, *map(len, ranks)]))
        blocks = xp.searchsorted(xp.asarray(np.array(self.used[index[0]])), columns // self.block)
        flows = known[first[blocks] + columns % self.block] * weights
        out += self.damping * _sums(starts, flows, xp)


def _sums(starts: np.ndarray, flows: np.ndarray, xp: Any) -> np.ndarray:
    """Return the sum of the flows of each row, added in their order."""
    n_rows = len(starts) - 1
    if _KERNELS.runs_on(xp):
        sums = xp.zeros(n_rows, dtype=xp.float64)
        grid = (-(-n_rows // _THREADS),)
        _KERNELS.launch(xp, "sum_links", grid, (_THREADS,), (starts, flows, sums, np.int32(n_rows)))
        return sums  # type: ignore[no-any-return]
    rows = xp.repeat(xp.arange(n_rows), xp.diff(starts))
    return xp.bincount(rows, flows, minlength=n_rows)  # type: ignore[no-any-return]
