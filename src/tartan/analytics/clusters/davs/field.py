"""The points of vector-sponge clustering and what is summed over them, on one rank or several.

Points are sorted along coordinate 0 and cut into chunks of fixed length; ranks hold ranges of chunks. What a chunk sums
does not depend on who computes it, and chunks are added in their order: every number of ranks and threads gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.comm.communicator import Communicator, partition

Floats = NDArray[np.float64]

# By judgement: places in the lists of a chunk have 16 bits, so lists of 256 points may have 255 centres each (_LONGEST
# of davs/model). `tartan bench vs` holds the time.
CHUNK = 256
# Points whose lists are searched, or that a pass covers, between two checks for a cancelled call.
# By judgement: was four times as many until a stop was to be heard sooner. No benchmark.
_BLOCK = 64 * CHUNK


@dataclass(frozen=True)
class SpongeStep:
    """Centres and what determines masses; ``sponge``: logarithm of its prior and its energy."""

    positions: Floats
    weights: Floats
    log_priors: Floats
    temperature: float
    cut: float
    sponge: tuple[float, float] | None

    def native(self) -> tuple[float, float, Floats, tuple[float, float] | None]:
        """Return what the kernels take."""
        return self.temperature, self.cut, self.log_priors, self.sponge


@dataclass
class _ListedChunks:
    """Some chunks of this rank: their points, lists and the masses of the pass before."""

    points: Floats
    lists: tuple[int, NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint32]]
    memory: NDArray[np.float32]


class Field:
    """Sorted points with lists of near centres.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
        All points, in any order; each rank is given all of them.
    communicator : Communicator, optional
        The ranks that share the work.
    check : callable, optional
        Called between kernel calls; raises when the call was cancelled.
    """

    def __init__(
        self, points: Floats, communicator: Communicator | None = None, check: Callable[[], None] = lambda: None
    ) -> None:
        self.order = np.argsort(points[:, 0], kind="stable")
        self.n, self.dim = points.shape
        self._communicator = communicator if communicator is not None and communicator.size > 1 else None
        self._check = check
        rows = self._find_own_rows()
        own = np.ascontiguousarray(points[self.order[rows]])
        self._parts = [own[at : at + _BLOCK] for at in range(0, len(own), _BLOCK)]
        self._blocks: list[_ListedChunks] = []
        self._chunk_centres = np.empty(0, dtype=np.uint32)

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return int(self._communicator.rank) if self._communicator else 0

    def _find_own_rows(self) -> slice:
        size = self._communicator.size if self._communicator else 1
        first, last = partition(-(-self.n // CHUNK), size)[self.rank]
        return slice(first * CHUNK, min(last * CHUNK, self.n))

    def rebuild(self, positions: Floats, weights: Floats, most: int, least: int, reach: float) -> None:
        """Find the near centres of each point anew; masses of the pass before are forgotten."""
        limits = (most, min(least, len(positions)), reach)
        self._blocks = []
        for part in self._parts:
            self._check()
            lists = (CHUNK, *_native.sponge_lists(part, (positions, weights), limits, CHUNK))
            self._blocks.append(_ListedChunks(part, lists, np.zeros(len(lists[2]), dtype=np.float32)))
        own = [block.lists[4] for block in self._blocks]
        self._chunk_centres = self._gather(own, np.empty(0, dtype=np.uint32))

    def assign(self, step: SpongeStep) -> tuple[Floats, Floats]:
        """Pass once over all points.

        Returns
        -------
        sums : ndarray, shape (K, d + 2)
            Of each centre: mass, mass times displacement from it, mass times energy.
        totals : ndarray, shape (3,)
            Mass of the sponge, sum of changes of masses since the pass before, sum of logarithms of the norms.
        """
        sums, totals = [], []
        for block in self._blocks:
            self._check()
            sums.append(np.empty((len(block.lists[4]), self.dim + 2)))
            totals.append(np.empty((len(block.lists[3]) - 1, 3)))
            _native.sponge_assign(
                block.points, block.lists, (step.positions, step.weights), step.native(), block.memory,
                sums[-1], totals[-1],
            )  # fmt: skip
        summed = self._sum_over_ranks(sums, self.dim + 2, len(step.positions))
        return summed, self._gather(totals, np.empty((0, 3))).sum(axis=0)

    def moments(self, step: SpongeStep) -> Floats:
        """Return for each centre the upper triangle of its scaled second moments and the gradient of its mass."""
        width = self.dim * (self.dim + 1) // 2 + self.dim
        sums = []
        for block in self._blocks:
            self._check()
            sums.append(np.empty((len(block.lists[4]), width)))
            centres = (step.positions, step.weights)
            _native.sponge_moments(block.points, block.lists, centres, step.native(), sums[-1])
        return self._sum_over_ranks(sums, width, len(step.positions))

    def label(self, positions: Floats, weights: Floats, offsets: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return the centre of lowest energy and offset for each point, and the energy, in the order of the input."""
        found = []
        for block in self._blocks:
            self._check()
            labels, energies = np.empty(len(block.points), dtype=np.int64), np.empty(len(block.points))
            _native.sponge_label(block.points, block.lists, (positions, weights), offsets, labels, energies)
            found.append((labels, energies))
        labels = np.empty(self.n, dtype=np.int64)
        energies = np.empty(self.n)
        labels[self.order] = self._gather([one for one, _ in found], np.empty(0, dtype=np.int64))
        energies[self.order] = self._gather([one for _, one in found], np.empty(0))
        return labels, energies

    def _sum_over_ranks(self, sums: list[Floats], width: int, n_centres: int) -> Floats:
        return _native.sponge_sum(self._chunk_centres, self._gather(sums, np.empty((0, width))), n_centres)

    def _gather(self, parts: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
        own = parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])
        if self._communicator is None:
            return own
        gathered: NDArray[Any] = self._communicator.all_gather(own)
        return gathered
