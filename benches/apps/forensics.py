"""Forensics against plain NumPy, in one run: noise patterns, and tiles of scores against pairs one by one.

Peers: the formulas of the noise pattern written down in float64 NumPy (full complex FFT, box means by cumulated
sums); a dot product a pair for NCC; an inverse FFT a pair for PCE. Everything on one core. The photos are noise:
their contents do not change the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from tartan.apps.forensics import prnu

SIDES = ((1024, 1024), (3000, 4000))
ITEMS = 32


def best_seconds(call: Callable[[], object], rounds: int = 3) -> float:
    """Return the shortest of several times, after one call that is not timed."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def reference_pattern(grey: np.ndarray) -> np.ndarray:
    """Extract the noise pattern as the formulas say, float64."""
    g = grey / prnu.GREY_SCALE
    u, v = np.gradient(g, axis=1), np.gradient(g, axis=0)
    s = 1 / (1 + np.sqrt(u * u + v * v))
    r = np.gradient(s * u, axis=1) + np.gradient(s * v, axis=0)
    for parity in (0, 1):
        r[parity::2] -= r[parity::2].mean(axis=0)
    for parity in (0, 1):
        r[:, parity::2] -= r[:, parity::2].mean(axis=1, keepdims=True)
    spectrum = np.fft.fft2(r)
    power = np.abs(spectrum) ** 2
    least = np.minimum.reduce([_box_mean(power, k) for k in (3, 5, 7, 9)])
    signal = r.size / (r.size - 1) * np.sum(r * r)
    pattern = np.fft.ifft2(spectrum * signal / np.maximum(signal, least)).real
    return pattern / np.linalg.norm(pattern)


def _box_mean(power: np.ndarray, k: int) -> np.ndarray:
    sums = np.zeros((power.shape[0] + k, power.shape[1] + k))
    sums[1:, 1:] = np.pad(power, k // 2).cumsum(axis=0).cumsum(axis=1)
    return (sums[k:, k:] - sums[:-k, k:] - sums[k:, :-k] + sums[:-k, :-k]) / k**2


def patterns(shape: tuple[int, int]) -> dict[str, float]:
    """Time one noise pattern and check that both agree."""
    grey = np.random.default_rng(0).integers(0, 65536, shape, dtype=np.uint16)
    error = np.abs(prnu.noise_pattern(grey, np) - (reference := reference_pattern(grey))).max()
    ours, plain = (
        best_seconds(lambda f=f: f()) for f in (lambda: prnu.noise_pattern(grey, np), lambda: reference_pattern(grey))
    )
    return {
        "plain_ms": 1e3 * plain,
        "ours_ms": 1e3 * ours,
        "ratio": plain / ours,
        "largest_error": float(error / np.abs(reference).max()),
    }


def ncc_tile(n_items: int, shape: tuple[int, int]) -> dict[str, float]:
    """Time a tile of NCCs as one product, and as a dot product a pair."""
    items = np.random.default_rng(1).standard_normal((n_items, shape[0] * shape[1]), dtype=np.float32)
    tile = best_seconds(lambda: items @ items.T)
    pairs = best_seconds(lambda: [[np.dot(a, b) for b in items] for a in items], 1)
    return _per_pair(pairs, tile, n_items * n_items)


def pce_tile(n_items: int, shape: tuple[int, int]) -> dict[str, float]:
    """Time a tile of PCEs of unlike photos, and an inverse FFT a pair (one row of pairs stands for all)."""
    half = (n_items, 2, shape[0], shape[1] // 2 + 1)
    left, planes = (np.random.default_rng(seed).standard_normal(half, dtype=np.float32) for seed in (2, 3))
    spectra = planes[:, 0] + 1j * planes[:, 1]
    tile = best_seconds(lambda: prnu.pce_tile(left, planes, np))
    pairs = best_seconds(lambda: [_pce_of_pair(spectra[0], y, shape) for y in spectra], 1)
    return _per_pair(pairs * n_items, tile, n_items * n_items)


def _pce_of_pair(x: np.ndarray, y: np.ndarray, shape: tuple[int, int]) -> float:
    from scipy import fft

    c = fft.irfft2(x * np.conj(y), s=shape)
    energy = np.sum(c * c) - sum(np.sum(c[rows, columns] ** 2) for rows, columns in _CORNERS)
    return float(c[0, 0] ** 2 * (c.size - 121) / energy)


_CORNERS = [(rows, columns) for rows in (slice(6), slice(-5, None)) for columns in (slice(6), slice(-5, None))]


def _per_pair(pairs: float, tile: float, n_pairs: int) -> dict[str, float]:
    return {"pairwise_us": 1e6 * pairs / n_pairs, "tile_us": 1e6 * tile / n_pairs, "ratio": pairs / tile}


def main() -> dict[str, dict[str, float]]:
    """Run all, print a table, return the numbers."""
    results = {}
    with threadpool_limits(1, user_api="blas"):
        for shape in SIDES:
            name = f"noise pattern {shape[0]} x {shape[1]}"
            results[name] = patterns(shape)
        results[f"NCC tile {ITEMS} x {ITEMS}, 1024 x 1024"] = ncc_tile(ITEMS, (1024, 1024))
        results[f"PCE tile {ITEMS} x {ITEMS}, 1024 x 1024"] = pce_tile(ITEMS, (1024, 1024))
    for name, numbers in results.items():
        print(name + ": " + ", ".join(f"{key} {value:.3g}" for key, value in numbers.items()))
    return results


if __name__ == "__main__":
    main()
