"""Simulated cameras: what a sensor and its lens make of the light of a scene.

Light passes a lens that darkens the corners and a mosaic of colour filters (RGGB). The sensor multiplies it by 1 + K,
K its own fixed pattern and a fainter one that all cameras of its model share; adds the noise of light and of reading;
clips, and counts in 12 bits. Colours that the mosaic leaves out are the means of neighbours (bilinear demosaicing);
then gamma and 8 bits. Not simulated: denoising and sharpening, lens distortion, zoom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tartan.apps.forensics.scenes import grid

# By convention of displays.
_GAMMA = 1 / 2.2
# Measured on flat photos of four Nikon D70 and D70s: grey values of 125 vary by 1.2 in blocks of 8 x 8, of which 4,000
# electrons in a white pixel leave as much after demosaicing and gamma.
_FULL_WELL = 4000.0
# By judgement: 8 electrons, which dark photos alone show.
_READ_NOISE = 0.002
# By convention of such sensors: 12 bits.
_MOST = 4095
# Measured on 600 pairs of flat photos of those cameras: the mean NCC of unlike ones is 0.00045 beyond chance, of like
# ones 0.024: a ratio of 0.137 squared; blocks of JPEG and demosaicing are alike too.
_SHARED = 0.12
# Measured there: the medians of four cameras are from 0.0148 to 0.0391 of NCC.
_UNLIKE = (0.85, 1.35)


@dataclass(frozen=True)
class SimulatedCamera:
    """One camera: what its sensor and its lens do to the light; float32 (h, w)."""

    gain: np.ndarray

    @staticmethod
    def make(
        seed: np.random.SeedSequence, model: np.random.SeedSequence, shape: tuple[int, int], prnu: float
    ) -> SimulatedCamera:
        """Draw a camera of a model, whose pattern has about the standard deviation ``prnu``."""
        rng, of_model = np.random.default_rng(seed), np.random.default_rng(model)
        strength = prnu * rng.uniform(*_UNLIKE)
        pattern = of_model.standard_normal(shape, dtype=np.float32)
        pattern *= np.float32(_SHARED * prnu)
        pattern += np.float32(strength) * rng.standard_normal(shape, dtype=np.float32)
        pattern += 1
        y, x = grid(*shape)
        falloff = np.float32(of_model.uniform(0.1, 0.3))
        return SimulatedCamera(pattern * (1 - falloff * (x * x + y * y)))

    def expose(self, light: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the photo, uint8 (h, w, 3), of a scene: float32 (h, w, 3)."""
        mosaic = np.empty(light.shape[:2], np.float32)
        for row in (0, 1):
            for column in (0, 1):
                mosaic[row::2, column::2] = light[row::2, column::2, row + column]
        mosaic *= self.gain
        noise = rng.standard_normal(mosaic.shape, dtype=np.float32)
        noise *= np.sqrt(mosaic * np.float32(1 / _FULL_WELL) + np.float32(_READ_NOISE**2))
        mosaic += noise
        np.clip(mosaic, 0, 1, out=mosaic)
        mosaic *= _MOST
        mosaic += np.float32(0.5)
        photo: np.ndarray = _GREYS[demosaic(mosaic.astype(np.uint16))]
        return photo


def demosaic(mosaic: np.ndarray) -> np.ndarray:
    """Fill in the colours that a mosaic leaves out, from their nearest neighbours.

    Parameters
    ----------
    mosaic : uint16 array (h, w)
        Red at even rows and columns, blue at odd ones, else green; values below 2^14.

    Returns
    -------
    uint16 array (h, w, 3)
        Colours; those that are there are kept, others are the rounded-down means of the two or four nearest ones.

    Examples
    --------
    >>> demosaic(np.array([[8, 0, 16, 0], [0, 4, 0, 2]], np.uint16))[..., 0]
    array([[ 8, 12, 16, 16],
           [ 8, 12, 16, 16]], dtype=uint16)
    """
    height, width = mosaic.shape
    around = np.pad(mosaic, 1, mode="reflect")
    out = np.empty((height, width, 3), np.uint16)
    sides = around[1:-1, :-2] + around[1:-1, 2:]
    ends = around[:-2, 1:-1] + around[2:, 1:-1]
    diagonal = around[:-2, :-2] + around[2:, :-2] + around[:-2, 2:] + around[2:, 2:]
    cross = sides + ends
    out[..., 1] = mosaic
    for row, colour in ((0, 0), (1, 2)):
        own, other = np.s_[row::2, row::2], np.s_[1 - row :: 2, 1 - row :: 2]
        beside, below = np.s_[row::2, 1 - row :: 2], np.s_[1 - row :: 2, row::2]
        out[own][..., colour] = mosaic[own]
        out[other][..., colour] = diagonal[other] // 4
        out[beside][..., colour] = sides[beside] // 2
        out[below][..., colour] = ends[below] // 2
        out[own][..., 1] = cross[own] // 4
    return out


def _tabulate_gamma() -> np.ndarray:
    """Return the 8-bit value of each 12-bit count."""
    values: np.ndarray = ((np.arange(_MOST + 1) / _MOST) ** _GAMMA * 255 + 0.5).astype(np.uint8)
    return values


_GREYS = _tabulate_gamma()
