"""Noise patterns and tiles of scores on a GPU: the kernels of ``forensics.cu`` around cuFFT and cuBLAS.

Items are patterns (h, w), or spectra as two planes (2, h, w // 2 + 1), as in ``prnu.py`` (of odd widths with one more
axis behind). In float32 the sum of their squares is 1. In float16 it is the number of pixels, since numbers of a
pattern of unit norm would be subnormal there.

All is issued to the current stream; nothing here waits for the GPU or copies from or to the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tartan.apps.forensics.prnu import open_spectra
from tartan.base.kernels import CudaFile, kept
from tartan.base.products import multiply_slices

KERNELS = CudaFile(Path(__file__).with_name("forensics.cu"))
"""The kernels of the noise filter, the Wiener filter and the scores."""

# By convention of CUDA: a warp has 32 threads, and 256 a block fill a multiprocessor; _LINES is what is left of 256.
_SIDE, _LINES = 32, 8
_THREADS = _SIDE * _LINES
# _SLICES, _LEAST_SLICE and _PART_BYTES, by judgement: sums of 4,096 float16 products are still exact enough in float32,
# and parts take no more than a panel. No benchmark: no GPU measured yet.
_SLICES = 64
# By judgement, see _SLICES.
_LEAST_SLICE = 4096
# By judgement, see _SLICES.
_PART_BYTES = 2**28
# By judgement: some thirty for each of 132 multiprocessors; kernels stride over the rest. No benchmark: no GPU measured
# yet.
_MOST_BLOCKS = 4096


def write_item(grey: Any, out: Any, xp: Any) -> Any:
    """Write the pattern or the spectrum of a photo.

    Parameters
    ----------
    grey : uint16 array (h, w)
        In units of 1/257.
    out : float16 or float32 array (h, w), or as ``prnu.spectrum_shape`` says
    xp : namespace
        CuPy's.

    Returns
    -------
    float64 array (1,)
        Energy of the pattern, of any scale: zero where the photo is flat, and has none.
    """
    height, width = grey.shape
    filtered, residual, energy = _filter(grey, xp)
    wanted = 1.0 if out.dtype == np.float32 else float(height * width)
    kind, source = "planes", filtered.view(np.float32)
    if len(out.shape) == 2:
        _transform(filtered, residual, xp, forward=False)
        kind, source = "pattern", residual
    given = (source, energy, _bits(out), np.float64(wanted), np.int32(height), np.int32(width))
    _launch(xp, f"write_{kind}_{_suffix(out)}", _blocks(out), given)
    return energy


def _filter(grey: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the filtered half spectrum, memory for its inverse transform, and its energy."""
    height, width = grey.shape
    size, line = (np.int32(height), np.int32(width)), np.int32(width)
    columns, bands = -(-width // _SIDE), -(-height // _SIDE)
    residual = xp.empty((height, width), dtype=np.float32)
    sums, means = (xp.empty((n, 2, width), dtype=np.float32) for n in (bands, 1))
    energies = xp.empty((height,), dtype=np.float64)
    KERNELS.launch(xp, "filter_photo", (columns, bands), (_SIDE, _LINES), (grey, residual, sums, *size))
    _launch(xp, "column_means", -(-2 * width // _THREADS), (sums, means, np.int32(bands), *size))
    _launch(xp, "remove_means", height, (residual, means, energies, line))
    half, filtered = (xp.empty((height, width // 2 + 1), dtype=np.complex64) for _ in range(2))
    _transform(residual, half, xp, forward=True)
    tiles = (-(-(width // 2 + 1) // _SIDE), bands)
    bias = np.float64(height * width / (height * width - 1))
    given = (half.view(np.float32), _add(energies, xp), filtered.view(np.float32), bias, *size)
    KERNELS.launch(xp, "wiener", tiles, (_SIDE, _LINES), given)
    _launch(xp, "spectrum_energies", height, (filtered.view(np.float32), energies, line))
    return filtered, residual, _add(energies, xp)


def _add(parts: Any, xp: Any) -> Any:
    total = xp.empty((1,), dtype=np.float64)
    _launch(xp, "add_up", 1, (parts, total, np.int32(parts.shape[0])))
    return total


def _transform(source: Any, target: Any, xp: Any, *, forward: bool) -> None:
    """Transform real numbers to their half spectrum, or back, which is not divided by their number."""
    cufft = xp.cuda.cufft
    kind, direction = ("R2C", "FORWARD") if forward else ("C2R", "INVERSE")
    shape = (source if forward else target).shape
    numbers = (None, 1, 0, None, 1, 0, getattr(cufft, f"CUFFT_{kind}"), 1, "C", 1, target.shape[1])
    plan = kept(("forensics", kind, shape), partial(cufft.PlanNd, shape, *numbers))
    plan.fft(source, target, getattr(cufft, f"CUFFT_{direction}"))


def ncc_tile(left: Any, right: Any, xp: Any) -> Any:
    """Return the NCC of every pair of a tile of patterns (m, h, w) and (k, h, w), float32 (m, k)."""
    sums = _totals(left, right, xp)
    _add_products(left, right, sums, xp)
    found = xp.empty(sums.shape, dtype=np.float32)
    count = int(np.prod(sums.shape))
    scale = 1.0 if left.dtype == np.float32 else 1 / (left.shape[1] * left.shape[2])
    _launch(xp, "scaled", -(-count // _THREADS), (sums, found, np.float64(scale), np.int32(count)))
    return found


def pce_tile(left: Any, right: Any, xp: Any) -> tuple[Any, Any]:
    """Return the signed PCE at zero shift and the NCC of every pair of a tile of spectra, float32 (m, k).

    As ``prnu.pce_tile``: pairs with a strong peak are measured exactly. Which these are is decided on the GPU.
    """
    (left, width), (right, _) = open_spectra(left), open_spectra(right)
    (m, _, height, columns), k, scale = left.shape, right.shape[0], 1.0
    if left.dtype != np.float32:
        scale = 1 / (height * width)
    dots, totals = _totals(left, right, xp), _totals(left, right, xp)
    _add_products(left, right, dots, xp)
    to_energy = np.float32(scale * (height * width) ** 0.5)
    for first, rows in _row_strips(height, columns, m + k):
        powers = [_powers(side, width, first, rows, to_energy, xp) for side in (left, right)]
        _add_products(powers[0], powers[1], totals, xp)
    pce, ncc = (xp.empty((m, k), dtype=np.float32) for _ in range(2))
    queue = xp.zeros((1,), dtype=np.uint32)
    sizes = (np.float64(scale), np.int32(m), np.int32(k), np.int32(height), np.int32(width))
    given = (_bits(left), _bits(right), dots, totals, pce, ncc, queue, *sizes)
    KERNELS.launch(xp, f"peaks_{_suffix(left)}", (min(m * k, _MOST_BLOCKS),), (_SIDE, _LINES), given)
    return pce, ncc


def _row_strips(height: int, columns: int, n_items: int) -> Iterator[tuple[int, int]]:
    """Yield first row and number of rows of strips whose powers, of all items, take about 256 MB."""
    step = max(1, _PART_BYTES // (4 * columns * n_items))
    for first in range(0, height, step):
        yield first, min(step, height - first)


def _powers(planes: Any, width: int, first: int, rows: int, scale: np.float32, xp: Any) -> Any:
    n, _, height, columns = planes.shape
    out = xp.empty((n, rows * columns), dtype=np.float32)
    sizes = [np.int32(number) for number in (n, first, rows, height, width)]
    _launch(xp, f"powers_{_suffix(planes)}", _blocks(out), (_bits(planes), out, scale, *sizes))
    return out


def _totals(left: Any, right: Any, xp: Any) -> Any:
    return xp.zeros((left.shape[0], right.shape[0]), dtype=np.float64)


def _add_products(left: Any, right: Any, sums: Any, xp: Any) -> None:
    """Add the product of all pairs to float64 sums: in float32 over slices of the items, in float64 over slices."""
    m, k = sums.shape
    left, right = left.reshape(m, -1), right.reshape(k, -1)
    width = left.shape[1]
    n_slices = max(1, min(_SLICES, width // _LEAST_SLICE, _PART_BYTES // (4 * m * k)))
    parts = multiply_slices(left, right, xp, n_slices=n_slices)
    counts = (np.int32(parts.shape[0]), np.int32(m * k))
    _launch(xp, "add_slices", -(-m * k // _THREADS), (parts, sums, *counts))


def _launch(xp: Any, name: str, n_blocks: int, args: tuple[Any, ...]) -> None:
    KERNELS.launch(xp, name, (n_blocks,), (_THREADS,), args)


def _blocks(array: Any) -> int:
    return min(_MOST_BLOCKS, -(-int(np.prod(array.shape)) // _THREADS))


def _suffix(array: Any) -> str:
    return f"f{array.dtype.itemsize}"


def _bits(array: Any) -> Any:
    """Return float16 numbers as their bits, which kernels take; float32 as they are."""
    return array.view(np.uint16) if array.dtype == np.float16 else array
