"""Iris codes: the share of bits that differ where both eyes are seen, in the best of 17 rotations.

    tartan run iris.py:Iris "codes/*.npy" -o iris.tartan

An item is an array (2, rings, angles) of 0 and 1: the code, and where it is known (no lid, lash or glint). Heads tilt:
one of the two is turned by -8 to 8 angles and the least distance counts (J. Daugman, "How iris recognition works", IEEE
Trans. Circuits Syst. Video Technol. 14(1), 2004). Below 0.32 two codes are of one eye.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

import tartan

LEAST_ALIKE = 0.32  # of one eye up to here, by Daugman


class Iris(tartan.Application):
    """Masked Hamming distance of iris codes, 0 to 1.

    Parameters
    ----------
    turn : int
        Codes are turned by so many angles both ways.
    """

    releases_gil = True
    similarity = False
    tile_side = 16
    item_suffixes = (".npy",)

    def __init__(self, turn: int = 8) -> None:
        if turn < 0:
            raise ValueError(f"turn is {turn}; it must be 0 or more")
        self.turn = turn

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Return code and mask as 64-bit words, turned every way: (2 turn + 1, 2, words)."""
        bits = np.load(io.BytesIO(data), allow_pickle=False) if isinstance(data, bytes) else np.asarray(data)
        if bits.ndim != 3 or len(bits) != 2 or not ((bits == 0) | (bits == 1)).all():
            raise ValueError(f"{bits.dtype} {bits.shape}; a code and its mask are (2, rings, angles), of 0 and 1")
        turned = np.stack([np.roll(bits, by, axis=2) for by in range(-self.turn, self.turn + 1)])
        packed = np.packbits(turned.reshape(len(turned), 2, -1).astype(bool), axis=2)
        return np.pad(packed, ((0, 0), (0, 0), (0, -packed.shape[2] % 8))).view(np.uint64)

    def compare(self, left: Any, right: Any, xp: Any) -> np.ndarray:
        """Return the least distances of two groups of codes, (m, k); NaN where no bit of both is known."""
        least = np.full((len(left), len(right)), np.inf)
        code, known = right[None, :, self.turn, 0], right[None, :, self.turn, 1]
        for by in range(2 * self.turn + 1):
            both = left[:, None, by, 1] & known
            n_bits = np.bitwise_count(both).sum(axis=2, dtype=np.int64)
            differ = np.bitwise_count((left[:, None, by, 0] ^ code) & both).sum(axis=2, dtype=np.int64)
            np.minimum(least, differ / np.maximum(n_bits, 1), out=least, where=n_bits > 0)
        return np.where(np.isinf(least), np.nan, least)

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> tartan.Meaning:
        """Say from where on two codes are of one eye."""
        return tartan.Meaning(cut=LEAST_ALIKE, cut_why="codes of different eyes are hardly ever so near (Daugman)")
