"""A radio correlator: what every two antennas of an array have seen together, as complex visibilities.

    tartan run radio.py:Radio voltages.npy -o radio.tartan    # complex; a row for each antenna, a column for each time
    tartan export radio.tartan visibilities.npy

The visibility of two antennas is the mean over time of the voltage of one times the conjugate of that of the other; the
fringes of a source on the sky are in its phase. That of (j, i) is the conjugate of that of (i, j), so one of them is
computed; the diagonal holds the power of each antenna.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tartan


class Radio(tartan.Application):
    """Visibilities of antennas.

    Parameters
    ----------
    double : bool
        Whether visibilities are complex128, not complex64.
    """

    releases_gil = True
    diagonal = True
    directed = ("visibility",)
    tile_side = 64

    def __init__(self, double: bool = False) -> None:
        self.double = double
        self.outputs = {"visibility": np.complex128 if double else np.complex64}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return the mean products of two groups of antennas, (m, k)."""
        return left @ right.conj().T / left.shape[1]

    def reverse(self, scores: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the visibilities of the same antennas the other way round: conjugates."""
        return {"visibility": scores["visibility"].conj()}
