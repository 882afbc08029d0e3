"""An application that runs in threads, for tests that want a run and no processes."""

from __future__ import annotations

import tartan


class Gaps(tartan.Application):
    """How far two numbers are apart.

    Parameters
    ----------
    refused : tuple of float, optional
        A pair that cannot be compared.
    """

    releases_gil = True

    def __init__(self, refused: tuple[float, ...] = ()) -> None:
        self.refused = refused

    def compare_pair(self, a: float, b: float) -> float:
        """Return |a - b|."""
        if (a, b) == self.refused:
            raise ValueError
        return abs(a - b)
