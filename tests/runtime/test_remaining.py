"""What an execution has to compute is what the ledger lacked when it began, whatever is committed meanwhile."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.workload import AllPairs
from tartan.runtime.remaining import REMEMBERED_MASKS, Chunk, Remaining
from tartan.store.folder import RunFolder

N, SIDE, SPAN = 45, 3, 1
GRID = Grid(N, SIDE, 0, SPAN, SPAN)


class Ledger:
    """A folder that others write to, as far as it is asked."""

    is_shared = True

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        upper = np.triu(np.ones((N, N), bool), 1)
        self.lacks = upper & (generator.random((N, N)) < 0.5)
        self.manifest = cast(Any, type("Manifest", (), {"generations": []}))
        self.pairs = self
        self.workload = AllPairs(N)

    def chunks(self) -> list[Chunk]:
        n = N // SIDE
        return [(row, column) for row in range(n) for column in range(row, n)]

    committed = chunks

    def missing(self, chunks: list[Chunk], *, verify: bool = True) -> dict[Chunk, np.ndarray]:
        found = {(row, column): self._of(row, column) for row, column in chunks}
        return {chunk: lacks for chunk, lacks in found.items() if lacks.any()}

    def chunk_status(self, row: int, column: int) -> np.ndarray:
        return ~self._of(row, column)

    def chunk_shape(self, row: int, column: int) -> tuple[int, int]:
        return SIDE, SIDE

    def _of(self, row: int, column: int) -> np.ndarray:
        return self.lacks[row * SIDE : row * SIDE + SIDE, column * SIDE : column * SIDE + SIDE].copy()


def found_missing(remaining: Remaining) -> np.ndarray:
    """Ask for all pairs, row by row: more chunks than masks are remembered."""
    lacks = np.zeros((N, N), bool)
    for row in range(N):
        for column in range(row, N):
            tile = Tile(row, column)
            if remaining.needs(tile):
                wanted = remaining.cells(tile)
                lacks[row, column] = wanted is None or wanted.all()
    return lacks


def test_what_others_commit_meanwhile_changes_nothing() -> None:
    ledger = Ledger()
    at_first = ledger.lacks.copy()
    remaining = Remaining(cast(RunFolder, ledger), GRID)
    assert N // SIDE > REMEMBERED_MASKS
    ledger.lacks[: N // 2] = False
    np.testing.assert_array_equal(found_missing(remaining), at_first)
    ledger.lacks[:] = False
    np.testing.assert_array_equal(found_missing(remaining), at_first)


def test_a_chunk_that_another_rank_passes_on_is_looked_at_again() -> None:
    ledger = Ledger()
    ledger.lacks = np.triu(np.ones((N, N), bool), 1)
    remaining = Remaining(cast(RunFolder, ledger), GRID)
    committed, lacking = Tile(0, 5), Tile(1, 5)
    ledger.lacks[:SIDE, SIDE : 2 * SIDE] = False
    ledger.lacks[1, 5] = True
    assert remaining.needs(committed)
    remaining.look_again((0, 1))
    assert remaining.needs(lacking)
    assert not remaining.needs(committed)
    ledger.lacks[1, 5] = False
    remaining.look_again((0, 1))
    assert not remaining.needs(lacking)
