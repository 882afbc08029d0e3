"""Runs of given distances, exported for programs that read PHYLIP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from difficult import NAMES

import tartan


class Given(tartan.Application):
    """Rows of a matrix with their own number in front; the score is what the matrix says."""

    releases_gil = True
    similarity = False
    outputs = {"scores": np.float64}  # noqa: RUF012

    def compare(self, left, right, xp):
        """Return entries of the matrix."""
        return np.asarray(left)[:, 1:][:, np.asarray(right)[:, 0].astype(int)]


def run_of(D: np.ndarray, folder: Path) -> tartan.Run:
    """Return a run whose scores are D, of items with difficult names."""
    names = [NAMES[i] if i < len(NAMES) else f"item number {i}" for i in range(len(D))]
    rows = np.column_stack([np.arange(len(D)), D])
    return tartan.allpairs(Given(), rows, folder / "run.tartan", keys=names, workers=1, quiet=True)
