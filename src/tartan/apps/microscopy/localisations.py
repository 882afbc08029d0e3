"""Localisations of one particle as a file holds them: points, and what a reader has to say of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.npy_input import npy_of_bytes

Points = NDArray[np.float64]

_PACKED: Final = b"\x93POINTS"
_NO_Z = "z left out"


@dataclass(frozen=True)
class Localisations:
    """What is read of a particle.

    Attributes
    ----------
    points : float64 array (n, 3)
        x, y and the uncertainty of each localisation, in one unit of length; NaN or infinity where a file has no
        uncertainty.
    facts : mapping of str to str
        What ``describe_item`` says besides: the unit, which column the uncertainties come from, what was left out.
    """

    points: Points
    facts: Mapping[str, str] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return them as one item of a file that holds several; see ``unpack``.

        Those of which nothing is to be said are a plain .npy file, as runs of before have checksums of.
        """
        stream = io.BytesIO()
        if self.facts:
            stream.write(_PACKED + json.dumps(dict(self.facts)).encode() + b"\n")
        np.lib.format.write_array(stream, self.points, allow_pickle=False)
        return stream.getvalue()


def unpack(data: bytes) -> Localisations | None:
    """Return what was packed; None where the data are something else.

    Raises
    ------
    ValueError
        If the data are damaged.
    """
    if not data.startswith(_PACKED):
        return None
    facts, _, array = data[len(_PACKED) :].partition(b"\n")
    return Localisations(npy_of_bytes(array).astype(np.float64), json.loads(facts))


def require_flat(z: NDArray[np.float64], flat: bool) -> dict[str, str]:
    """Return what to say of z, which is left out.

    Parameters
    ----------
    z : float64 array (n,)
        Heights of the localisations of one particle; constant ones are none.
    flat : bool
        Whether x and y alone are wanted.

    Raises
    ------
    ValueError
        If z varies and was not to be left out.
    """
    known = z[np.isfinite(z)]
    if not len(known) or known.min() == known.max():
        return {}
    if not flat:
        raise ValueError(
            f"its z varies from {known.min():g} to {known.max():g}, and particles are registered in two dimensions; "
            "--set dims=2 takes x and y only"
        )
    return {_NO_Z: f"from {known.min():g} to {known.max():g}"}
