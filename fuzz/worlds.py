"""Small runs whose scores are known, and what must hold of any of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tartan


class Differences(tartan.Application):
    """Whole numbers and their distance; every score is exact."""

    releases_gil = True
    similarity = False
    outputs = {"scores": np.float64}  # noqa: RUF012

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return |a - b|."""
        return np.abs(np.subtract.outer(np.ravel(left), np.ravel(right)))


@dataclass(frozen=True)
class World:
    """A run in a folder, the numbers that it compares, and what it keeps of them."""

    path: Path
    numbers: np.ndarray
    reduce: dict[str, Any] | None

    @property
    def scores(self) -> np.ndarray:
        """The matrix that is right."""
        return np.abs(np.subtract.outer(self.numbers, self.numbers))

    def check(self, run: tartan.Run, *, whole: bool = False) -> None:
        """Compare every number that a run gives with what it must be; ``whole``: nothing may be missing."""
        expected = self.scores
        if self.reduce is None:
            found = run.matrix(diagonal=0.0)
            known = ~np.isnan(found)
            np.testing.assert_array_equal(found[known], expected[known])
            assert not whole or known.all(), f"{(~known).sum()} scores are missing"
        table = run.pairs().read_all()
        i, j = table["i"].to_numpy(), table["j"].to_numpy()
        np.testing.assert_array_equal(table["score"].to_numpy(), expected[i, j])
        assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i), "a pair is listed twice"
        if whole and self.reduce is not None and self.reduce["kind"] == "threshold":
            assert len(i) == np.triu(expected <= self.reduce["threshold"], 1).sum()
        if whole and self.reduce is not None and self.reduce["kind"] == "top-k":
            self._check_nearest(run)

    def _check_nearest(self, run: tartan.Run) -> None:
        """Compare the kept scores of each item, as many as there can be, with the least of all its scores."""
        assert self.reduce is not None
        k = min(self.reduce["k"], len(self.numbers) - 1)
        others, found = run.neighbors(k)
        scores = self.scores
        np.testing.assert_array_equal(found, np.take_along_axis(scores, others, axis=1))
        np.fill_diagonal(scores, np.inf)
        np.testing.assert_array_equal(found, np.sort(scores, axis=1)[:, :k])


def build(rng: random.Random, folder: Path) -> World:
    """Make a finished run of a random kind."""
    numbers = np.array([rng.randrange(1000) for _ in range(rng.randrange(2, 60))], np.float64)
    reduce = rng.choice(
        [None, None, {"kind": "top-k", "k": rng.randrange(1, 5)}, {"kind": "threshold", "threshold": 300.0}]
    )
    path = folder / "run.tartan"
    np.save(folder / "numbers.npy", numbers[:, None])
    more: dict[str, Any] = {"tile": rng.randrange(1, 30)} if rng.random() < 0.7 else {}
    if reduce is not None:
        more["reduce"] = reduce
    tartan.allpairs(Differences(), folder / "numbers.npy", path, workers=rng.randrange(1, 3), quiet=True, **more)
    return World(path, numbers, reduce)
