"""Fourier ring correlation: up to which detail two sets of points agree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

THRESHOLD = 1 / 7
_EDGE = 0.1
_MOST_SIDE = 1024
_SMOOTHED = 3


def ring_correlation(a: Array, b: Array, pixel: float) -> tuple[Array, Array]:
    """Return frequencies (1 / length) and the correlation of the rings of two sets of points, (m, 2) or wider.

    Points are counted in pixels of a common square whose edges are faded out (Hann).
    """
    both = np.concatenate([a[:, :2], b[:, :2]])
    centre = (both.max(axis=0) + both.min(axis=0)) / 2
    width = float(np.ptp(both, axis=0).max()) * (1 + 2 * _EDGE)
    side = int(np.clip(np.ceil(width / pixel), 16, _MOST_SIDE))
    ends = [(middle - side * pixel / 2, middle + side * pixel / 2) for middle in centre]
    window = _window(side)
    first, second = (
        np.fft.rfft2(np.histogram2d(one[:, 0], one[:, 1], bins=side, range=ends)[0] * window) for one in (a, b)
    )
    x, y = np.fft.fftfreq(side), np.fft.rfftfreq(side)
    ring = np.rint(np.hypot(x[:, None], y[None, :]) * side).astype(np.int64).ravel()
    n_rings = side // 2
    sums = [
        np.bincount(ring, values.ravel(), minlength=n_rings)[:n_rings]
        for values in ((first * second.conj()).real, np.abs(first) ** 2, np.abs(second) ** 2)
    ]
    correlation = sums[0] / np.maximum(np.sqrt(sums[1] * sums[2]), 1e-300)
    return np.arange(n_rings) / (side * pixel), correlation


def resolution(frequencies: Array, correlation: Array) -> float:
    """Return the length at which the smoothed correlation first falls below 1/7; NaN where it never does."""
    kernel = np.ones(_SMOOTHED) / _SMOOTHED
    smooth = np.convolve(np.pad(correlation, _SMOOTHED // 2, mode="edge"), kernel, mode="valid")
    below = np.flatnonzero(smooth[1:] < THRESHOLD) + 1
    if not len(below):
        return float("nan")
    at = int(below[0])
    share = (smooth[at - 1] - THRESHOLD) / max(smooth[at - 1] - smooth[at], 1e-300)
    crossing = frequencies[at - 1] + np.clip(share, 0, 1) * (frequencies[at] - frequencies[at - 1])
    return float(1 / crossing) if crossing > 0 else float("nan")


def _window(side: int) -> Array:
    """Return a square that is 1 inside and falls to 0 at its edges."""
    fading = max(1, round(side * _EDGE))
    line = np.ones(side)
    ramp = (1 - np.cos(np.pi * (np.arange(fading) + 0.5) / fading)) / 2
    line[:fading], line[side - fading :] = ramp, ramp[::-1]
    square: Array = np.outer(line, line)
    return square
