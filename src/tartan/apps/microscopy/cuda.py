"""Registration of tiles of particles on a GPU, by the kernel of ``register.cu``: three launches for a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.base.kernels import CudaFile

KERNELS = CudaFile(Path(__file__).with_name("register.cu"))
"""The kernel of registration."""

_THREADS = 64
_GROUP = 32
_MOST_ANGLES = 96
_TO_MIDDLE, _TO_FINE = 16, 12
_OUTPUTS = 5
_MOST_BLOCKS = 4096
_MOST_CLIMBS = 2**21
_FILLED = -2


@dataclass(frozen=True)
class ParticleFacts:
    """What the host knows of a particle on a GPU."""

    key: bytes
    width: float
    fingerprint: int


#: A particle on a GPU: its numbers as the kernel takes them, and what the host knows of it.
DeviceParticle = tuple[Any, ParticleFacts]


def laid_out(points: NDArray[np.float64], key: bytes) -> DeviceParticle:
    """Return a particle as it is copied to a GPU: float64 in one dimension, as ``register.cu`` says."""
    (x, y, radius, reach, variance), fingerprint, rows, sample = _native.microscopy_prepare(points)
    high, low = divmod(fingerprint, 2**32)
    header = [len(rows), len(sample), x, y, radius, reach, variance, high, low]
    parts = [np.array(header, np.float64)]
    for some in (rows, sample) if len(sample) else (rows,):
        parts += [np.ascontiguousarray(some.T).reshape(-1), _groups(some).reshape(-1)]
    width = float(np.ptp(points[:, :2], axis=0).max())
    return np.concatenate(parts), ParticleFacts(key, width, fingerprint)


def _groups(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x, y of the centre, the radius and the greatest variance of each 32 points."""
    n = -(-len(rows) // _GROUP)
    padded = np.concatenate([rows, np.repeat(rows[-1:], n * _GROUP - len(rows), axis=0)]).reshape(n, _GROUP, 3)
    ends = padded[:, :, :2].min(axis=1), padded[:, :, :2].max(axis=1)
    centres = (ends[0] + ends[1]) / 2
    radii = np.sqrt(np.square(padded[:, :, :2] - centres[:, None]).sum(axis=2).max(axis=1))
    return np.column_stack([centres, radii, padded[:, :, 2].max(axis=1)])


def register_tile(
    left: Sequence[DeviceParticle],
    right: Sequence[DeviceParticle],
    mirror: NDArray[np.int32],
    xp: Any,
    *,
    starts: int,
    scale: float,
    symmetry: int,
) -> Any:
    """Register m with k particles on the current stream; return B, tx, ty, theta, evaluations, (m, k, 5).

    Parameters
    ----------
    mirror : int32 array (m, k)
        Of each pair the number of that which is it the other way round and gets the inverse, -1 where there is none, -2
        for those that get it.
    """
    settings = (np.int32(starts), np.float64(scale), np.int32(symmetry))
    most = -(-(starts or _MOST_ANGLES) // symmetry)
    m, k = len(left), len(right)
    step = m if (mirror >= 0).any() else max(1, _MOST_CLIMBS // (most * k))  # a mirrored pair is in the same band
    bands = [(first, left[first : first + step]) for first in range(0, m, step)]
    found = [_register_band(band, right, mirror[at : at + len(band)], xp, most, settings) for at, band in bands]
    return xp.concatenate(found) if len(found) > 1 else found[0]


def _register_band(
    left: Sequence[DeviceParticle],
    right: Sequence[DeviceParticle],
    mirror: NDArray[np.int32],
    xp: Any,
    most: int,
    settings: tuple[Any, ...],
) -> Any:
    m, k = len(left), len(right)
    n = m * k
    arrays = [array for array, _ in (*left, *right)]
    ends = np.cumsum([array.shape[0] for array in arrays])
    offsets = xp.asarray(np.concatenate([[0], ends[:-1]]).astype(np.int64))
    fixed = (xp.concatenate(arrays), offsets, np.int32(m), np.int32(k), xp.asarray(mirror.reshape(-1)))
    evaluations, queues = xp.zeros(n, dtype=np.int32), xp.zeros(3, dtype=np.uint32)
    out = xp.full((n, _OUTPUTS), np.nan, dtype=np.float64)
    chosen, n_chosen = xp.zeros((1, 4), dtype=np.float64), xp.zeros(1, dtype=np.int32)
    sizes = (most, min(most, _TO_MIDDLE), min(most, _TO_FINE))
    for stage in range(3):
        stride = (most, _TO_MIDDLE, _TO_FINE)[stage]
        kept = (_TO_MIDDLE, _TO_FINE, 1)[stage]
        peaks, done = xp.empty((n, stride, 4), dtype=np.float64), xp.zeros(n, dtype=np.int32)
        found, n_found = xp.empty((n, kept, 4), dtype=np.float64), xp.zeros(n, dtype=np.int32)
        before = (np.int32(stage), chosen, n_chosen, np.int32(stride))
        after = (peaks, queues[stage : stage + 1], done, found, n_found, evaluations, out)
        blocks = min(_MOST_BLOCKS, n * sizes[stage])
        KERNELS.launch(xp, "register_stage", (blocks,), (_THREADS,), (*fixed, *before, *after, *settings))
        chosen, n_chosen = found, n_found
    return xp.reshape(out, (m, k, _OUTPUTS))


def mirrors(
    shape: tuple[int, int], twice: NDArray[np.bool_], other: tuple[NDArray[np.intp], NDArray[np.intp]]
) -> NDArray[np.int32]:
    """Return the mirror of each pair (m, k) from the pairs that a tile holds twice, and where it holds them first."""
    found = np.full(shape, -1, np.int32)
    found[twice] = _FILLED
    found[other] = np.flatnonzero(twice)
    return found
