"""Sensor noise patterns (PRNU): from a grey photo to its pattern, and how well two patterns agree.

Every sensor multiplies the light by a fixed, faint pattern of its own. `noise_pattern` extracts an estimate of it
from one photo, in four steps: a fast noise filter, removal of what all sensors of a make share (`zero mean`), and
a Wiener filter in the frequency domain that flattens whatever stands out of the spectrum.

This module knows arrays only, no files and no application. Its functions take the array namespace ``xp``, NumPy or that
of the simulated device (``cuda.py`` has their twins on a GPU), and compute in float32; sums over the whole photo go
through short strips, so that rounding stays near 1e-6.

Invariants: the half spectrum (``rfft2``) is enough because the pattern is real; DC sits at [0, 0], no shift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

# By format: JPEG's blocks.
_GRID = 8
# Measured on 22 real photos against fingerprints of four cameras: the spread of other cameras falls from 1.53 to 1.34.
_GRID_REACH = 1
# By format: 65,535 / 255.
GREY_SCALE = 257  # grey photos are uint16 in units of 1/257, so that 255 becomes 65535

# By paper: windows of 3, 5, 7 and 9 of Mihcak, Kozintsev and Ramchandran (1999).
_MARGIN = 4  # half of the largest box, 9
# By judgement. `tartan bench forensics` measures the kernel against plain NumPy.
_STRIP_BYTES = 1 << 18  # a few strips of this size stay in the second-level cache of a core
# By arithmetic.
_TINY = 1e-30  # keeps 0 / 0 of a flat photo at 0; far below any spectrum of an 8-bit photo
# By paper: Goljan, Fridrich, Filler (2009) leave out 11 x 11.
_PEAK = 5  # the block that belongs to a peak reaches this far to each side: 11 x 11
# By judgement: below it the neighbours' share is far under the rounding of PCE. No benchmark.
_STRONG_PEAK = 2e-4  # share of the energy in the peak above which its neighbours are measured, not assumed noise


def noise_pattern(grey: Any, xp: Any) -> Any:
    """Extract the noise pattern of one photo, with zero mean and unit norm.

    Parameters
    ----------
    grey : uint16 array (h, w)
        Grey values in units of 1/257 (see `GREY_SCALE`), both sides at least 16 pixels.
    xp : namespace
        NumPy, or what the array demands.

    Returns
    -------
    float32 array (h, w)
        The pattern; all zero when the photo is flat.

    Notes
    -----
    Memory: 8 bytes a pixel beside the photo and the result. One thread; the interpreter lock is released nearly
    all the time. Deterministic on one machine. About 15 ms a megapixel on one core, over half of it in the FFTs.

    References
    ----------
    Gisolf et al., Improving source identification with FastNoise (2013); Chen et al., Determining image origin
    and integrity using sensor noise (2008).
    """
    pattern = invert(_filter_spectrum(grey, xp), grey.shape[1], xp)
    return _normalise(pattern, xp)


def spectrum(grey: Any, xp: Any) -> Any:
    """Return the half spectrum of the noise pattern, scaled so that plain dot products are correlations.

    Parameters
    ----------
    grey : uint16 array (h, w)
        As in `noise_pattern`.
    xp : namespace
        NumPy, or what the array demands.

    Returns
    -------
    float32 array (2, h, w // 2 + 1), or (2, h, w // 2 + 1, 1) where w is odd
        Real and imaginary plane of Z with Re sum(Z_x conj(Z_y)) = NCC(x, y): columns that stand for two frequencies
        carry a factor sqrt(2). See `spectrum_shape`.
    """
    return pack_spectrum(_filter_spectrum(grey, xp), grey.shape[1], xp)


# --- steps 1 to 3: noise filter and zero mean -------------------------------------------------------------------


def zero_mean_residual(grey: Any, xp: Any) -> tuple[Any, Any]:
    """Filter, make zero-mean; return the residual (h, w) float32 and the sum of its squares (float64, 0-d)."""
    residual = xp.empty(grey.shape, dtype=xp.float32)
    column_sums = xp.zeros((2, grey.shape[1]), dtype=xp.float64)
    for start, stop in strips(grey.shape[0], grey.shape[1]):
        rows = residual[start:stop]
        _fast_noise(grey, start, stop, rows, xp)
        for parity in (0, 1):
            column_sums[parity] += rows[parity::2].sum(axis=0)
    return residual, _remove_means(residual, column_sums, xp)


def _fast_noise(grey: Any, start: int, stop: int, out: Any, xp: Any) -> None:
    """Write rows start:stop of the FastNoise filter to ``out``, up to a constant factor (the Wiener step drops it).

    Differences are twice the central difference, hence 2 + sqrt(...) for the page's 1 + sqrt(...).
    """
    height = grey.shape[0]
    top, bottom = max(start - 2, 0), min(stop + 2, height)
    photo = grey[top:bottom].astype(xp.float32)
    photo *= np.float32(1 / GREY_SCALE)
    first, last = max(start - 1, 0), min(stop + 1, height)
    u, v = xp.empty_like(photo[first - top : last - top]), xp.empty_like(photo[first - top : last - top])
    _difference_columns(photo[first - top : last - top], u, xp)
    _difference_rows(photo, first - top, top == first, bottom == last, v, xp)
    weight = u * u
    weight += v * v
    xp.sqrt(weight, out=weight)
    weight += np.float32(2)
    u /= weight
    v /= weight
    _difference_columns(u[start - first : stop - first], out, xp)
    vertical = weight[: stop - start]
    _difference_rows(v, start - first, first == start, last == stop, vertical, xp)
    out += vertical


def _difference_columns(a: Any, out: Any, xp: Any) -> None:
    """Twice the derivative along axis 1: central inside, one-sided at the borders."""
    xp.subtract(a[:, 2:], a[:, :-2], out=out[:, 1:-1])
    out[:, 0] = (a[:, 1] - a[:, 0]) * np.float32(2)
    out[:, -1] = (a[:, -1] - a[:, -2]) * np.float32(2)


def _difference_rows(a: Any, skip: int, at_top: bool, at_bottom: bool, out: Any, xp: Any) -> None:
    """Twice the derivative along axis 0 for rows skip : skip + len(out) of ``a``; one-sided at photo borders."""
    n = out.shape[0]
    lo, hi = int(at_top), n - int(at_bottom)
    xp.subtract(a[skip + lo + 1 : skip + hi + 1], a[skip + lo - 1 : skip + hi - 1], out=out[lo:hi])
    if at_top:
        out[0] = (a[skip + 1] - a[skip]) * np.float32(2)
    if at_bottom:
        out[-1] = (a[skip + n - 1] - a[skip + n - 2]) * np.float32(2)


def _remove_means(residual: Any, column_sums: Any, xp: Any) -> Any:
    """Subtract the means of even and odd rows in each column, then of even and odd columns in each row."""
    height, width = residual.shape
    counts = xp.asarray([[(height + 1) // 2], [height // 2]])
    means = (column_sums / counts).astype(xp.float32)
    energy = xp.zeros((), dtype=xp.float64)
    for start, stop in strips(height, width):
        rows = residual[start:stop]
        rows[0::2] -= means[0]
        rows[1::2] -= means[1]
        for parity in (0, 1):
            columns = rows[:, parity::2]
            columns -= columns.mean(axis=1, keepdims=True)
        energy += _energy(rows, xp)
    return energy


# --- step 4: Wiener filter --------------------------------------------------------------------------------------


def _filter_spectrum(grey: Any, xp: Any) -> Any:
    """Return the half spectrum of the residual after the Wiener filter, complex64 (h, w // 2 + 1)."""
    residual, energy = zero_mean_residual(grey, xp)
    return whiten(residual, energy, xp)


def remove_means(residual: Any, xp: Any) -> Any:
    """Make a residual (h, w) float32 zero-mean in place, as the photos' are; return the sum of its squares."""
    column_sums = xp.stack([residual[parity::2].sum(axis=0, dtype=xp.float64) for parity in (0, 1)])
    return _remove_means(residual, column_sums, xp)


def leave_out_grid(half: Any, width: int) -> None:
    """Set to zero, in a half spectrum (h, width // 2 + 1), what repeats every 8 pixels: traces of JPEG's blocks.

    Photos of unlike cameras share them; a sensor's pattern loses a part in 100 there.
    """
    height = half.shape[0]
    for i in range(_GRID):
        middle = round(i * height / _GRID)
        for row in range(middle - _GRID_REACH, middle + _GRID_REACH + 1):
            half[row % height] = 0
    for j in range(_GRID // 2 + 1):
        middle = round(j * width / _GRID)
        half[:, max(middle - _GRID_REACH, 0) : middle + _GRID_REACH + 1] = 0


def pack_spectrum(half: Any, width: int, xp: Any) -> Any:
    """Return a half spectrum (h, width // 2 + 1) as ``spectrum`` does: two planes of unit norm."""
    planes = xp.empty((2, *half.shape), dtype=xp.float32)
    weights = xp.asarray(np.sqrt(column_weights(width)))
    xp.multiply(half.real, weights, out=planes[0])
    xp.multiply(half.imag, weights, out=planes[1])
    return _normalise(planes.reshape(-1, half.shape[1]), xp).reshape(spectrum_shape(half.shape[0], width))


def spectrum_shape(height: int, width: int) -> tuple[int, ...]:
    """Return the shape of a spectrum: (2, h, w // 2 + 1), with one more axis behind, of length 1, where w is odd.

    Widths of 2 n and 2 n + 1 have as many columns, and differ in what the last one stands for.
    """
    return (2, height, width // 2 + 1) + (1,) * (width % 2)


def count_axes(shape: Sequence[int]) -> int:
    """Return how many axes one spectrum has, from the shape of one or several."""
    return 4 if shape[-1] == 1 else 3


def read_size(shape: Sequence[int]) -> tuple[int, int]:
    """Return height and width of a photo from the shape of its spectrum, or of several."""
    height, columns = shape[-count_axes(shape) + 1 :][:2]
    return height, 2 * columns - 1 if shape[-1] == 1 else 2 * (columns - 1)


def open_spectra(spectra: Any) -> tuple[Any, int]:
    """Return spectra as planes (..., 2, h, w // 2 + 1) whatever their width, and that."""
    shape = spectra.shape
    return (spectra.reshape(shape[:-1]) if shape[-1] == 1 else spectra), read_size(shape)[1]


def whiten(residual: Any, energy: Any, xp: Any) -> Any:
    """Return the half spectrum of a residual after the Wiener filter; 0 where ``energy``, its squares' sum, is."""
    height, width = residual.shape
    signal = (energy * (residual.size / (residual.size - 1))).astype(xp.float32)
    half = transform(residual, xp)
    del residual
    power = _pad_power(half, width, xp)
    rows, columns = _edge_gains(power[_MARGIN:-_MARGIN, _MARGIN : _MARGIN + half.shape[1]], width, signal, xp)
    for start, stop in strips(half.shape[0], half.shape[1]):
        gain = wiener_gain(power[start : stop + 2 * _MARGIN], signal, xp)
        gain[:, : _MARGIN + 1] = columns[start:stop]
        if start <= _MARGIN:
            gain[: _MARGIN + 1 - start] = rows[start : _MARGIN + 1][: stop - start]
        for y in range(max(start, height - _MARGIN), stop):
            gain[y - start] = rows[y - height]
        half[start:stop] *= gain
    return half


def flatten(half: np.ndarray) -> np.ndarray:
    """Divide a half spectrum (h, width // 2 + 1) by the root of its mean power around each frequency, in place."""
    from scipy.ndimage import uniform_filter

    power = uniform_filter(half.real**2 + half.imag**2, 2 * _MARGIN + 1, mode=("wrap", "nearest"))
    half /= np.sqrt(np.maximum(power, np.float32(_TINY)))
    return half


def _pad_power(half: Any, width: int, xp: Any) -> Any:
    """Return |half|^2 with a margin of 4: zero where the full spectrum ends, mirrored where only the half does."""
    height, n_half = half.shape
    power = xp.zeros((height + 2 * _MARGIN, n_half + 2 * _MARGIN), dtype=xp.float32)
    for start, stop in strips(height, n_half):
        rows = power[start + _MARGIN : stop + _MARGIN, _MARGIN : _MARGIN + n_half]
        xp.multiply(half.real[start:stop], half.real[start:stop], out=rows)
        rows += half.imag[start:stop] * half.imag[start:stop]
    inner = power[_MARGIN:-_MARGIN]
    inner[:, _MARGIN + n_half :] = _full_columns(
        inner[:, _MARGIN : _MARGIN + n_half], width, n_half, n_half + _MARGIN, xp
    )
    return power


def wiener_gain(power: Any, signal: Any, xp: Any) -> Any:
    """Return signal / max(signal, V), V the least of the 3, 5, 7 and 9 box means; 4 fewer cells at every side."""
    width = power.shape[1] - 2 * _MARGIN
    sums = power[:, _MARGIN : _MARGIN + width].copy()
    least = None
    for reach in range(1, _MARGIN + 1):
        sums += power[:, _MARGIN - reach : _MARGIN - reach + width]
        sums += power[:, _MARGIN + reach : _MARGIN + reach + width]
        box = _sum_rows(sums[_MARGIN - reach : sums.shape[0] - _MARGIN + reach], 2 * reach + 1)
        box *= np.float32(1 / (2 * reach + 1) ** 2)
        least = box if least is None else xp.minimum(least, box, out=least)
    xp.maximum(least, xp.maximum(signal, np.float32(_TINY)), out=least)
    return xp.divide(signal, least, out=least)


def _sum_rows(a: Any, count: int) -> Any:
    """Return the sums of ``count`` rows from each row on, by doubling windows: few additions, no running sum."""
    n = a.shape[0] - count + 1
    total = a[:n].copy()
    offset, size = 1, 1
    while offset < count:
        a = a[:-size] + a[size:]
        size *= 2
        if count & size:
            total += a[offset : offset + n]
            offset += size
    return total


def _edge_gains(power: Any, width: int, signal: Any, xp: Any) -> tuple[Any, Any]:
    """Return the gains near the borders, where "zero outside" breaks the mirror symmetry of the gain.

    The real part of the inverse transform keeps the symmetric half of the gain, (G(f) + G(-f)) / 2; inside, both
    are equal. Returns rows 0 to 4 and -4 to -1 as (9, n_half), and columns 0 to 4 as (height, 5).
    """
    n, height, n_half = 2 * _MARGIN, power.shape[0], power.shape[1]
    ends = [_full_rows(power, width, start, start + n + 1, xp) for start in (0, height - n - 1)]
    rows = _symmetric(_border_gain(ends[0], ends[1], 0, signal, xp), xp)[:, :n_half]
    sides = power[:, : n + 1], _full_columns(power, width, width - n - 1, width, xp)
    columns = _symmetric(_border_gain(sides[0], sides[1], 1, signal, xp), xp)[:, : _MARGIN + 1]
    return rows, columns


def _border_gain(first: Any, last: Any, axis: int, signal: Any, xp: Any) -> Any:
    """Return the gains of indices 0 to 4 and -4 to -1 along ``axis``, from the first and last 9 cells of power."""
    head = wiener_gain(xp.pad(first, _MARGIN), signal, xp)
    tail = wiener_gain(xp.pad(last, _MARGIN), signal, xp)
    if axis == 0:
        return xp.concatenate([head[: _MARGIN + 1], tail[-_MARGIN:]], axis=0)
    return xp.concatenate([head[:, : _MARGIN + 1], tail[:, -_MARGIN:]], axis=1)


def _symmetric(gain: Any, xp: Any) -> Any:
    """Return (G(f) + G(-f)) / 2; index -i of an axis of length n is n - i."""
    mirrored = xp.roll(gain[::-1, ::-1], (1, 1), axis=(0, 1))
    return (gain + mirrored) * np.float32(0.5)


def _full_rows(power: Any, width: int, start: int, stop: int, xp: Any) -> Any:
    """Return rows start:stop of the full power spectrum, (stop - start, width)."""
    height, n_half = power.shape
    mirrored = power[(-xp.arange(start, stop)) % height, 1 : width - n_half + 1]
    return xp.concatenate([power[start:stop], mirrored[:, ::-1]], axis=1)


def _full_columns(power: Any, width: int, start: int, stop: int, xp: Any) -> Any:
    """Return columns start:stop (all of them beyond the half spectrum) of the full power spectrum."""
    columns = power[:, width - stop + 1 : width - start + 1][:, ::-1]
    return xp.roll(columns[::-1], 1, axis=0)


def transform(residual: Any, xp: Any) -> Any:
    """Return the half spectrum, complex64."""
    fft, _ = _fft_of(xp)
    return fft.rfftn(residual, axes=(0, 1))


def invert(half: Any, width: int, xp: Any) -> Any:
    """Return the real inverse transform; consumes ``half``. Twice as fast as irfft2, which copies."""
    fft, options = _fft_of(xp)
    return fft.irfft(fft.ifft(half, axis=0, **options), n=width, axis=1, **options)


def _normalise(a: Any, xp: Any) -> Any:
    """Scale a real array to unit norm in place; an array of zeros stays."""
    energy = xp.zeros((), dtype=xp.float64)
    for start, stop in strips(a.shape[0], a.shape[1]):
        energy += _energy(a[start:stop], xp)
    a *= (1 / xp.maximum(xp.sqrt(energy), _TINY)).astype(xp.float32)
    return a


# --- comparison -------------------------------------------------------------------------------------------------


def pce_tile(left: Any, right: Any, xp: Any) -> tuple[Any, Any]:
    """Return the signed PCE at zero shift and the NCC of every pair of a tile.

    Parameters
    ----------
    left, right : float32 arrays (m, 2, h, w // 2 + 1) and (k, 2, h, w // 2 + 1)
        Spectra as `spectrum` returns them (of odd widths with its last axis), C-contiguous.
    xp : namespace
        NumPy, or what the array demands.

    Returns
    -------
    pce0, ncc : float32 arrays (m, k)

    Notes
    -----
    PCE0 = c(0)^2 / E, where E is the mean of c^2 outside the 11 x 11 block around zero shift. No inverse FFT is
    needed: c(0) is one matrix product, the sum of c^2 over all shifts is another one (of power spectra, by
    Parseval). The block is summed exactly for pairs whose peak holds more than 1/5000 of that energy; for weaker
    ones only the peak is taken out, which moves E by less than 0.1 %.
    """
    (left, width), (right, _) = open_spectra(left), open_spectra(right)
    m, k, n_pixels = left.shape[0], right.shape[0], left.shape[2] * width
    ncc = left.reshape(m, -1) @ right.reshape(k, -1).T
    total = _correlation_energy(left, right, width, xp)
    peak = ncc * ncc
    noise = (total - peak) * np.float32(1 / (n_pixels - 1))
    strong = [(int(i), int(j)) for i, j in zip(*xp.nonzero(peak > _STRONG_PEAK * total), strict=True)]
    tables = _shift_tables(left.shape[2], width, xp) if strong else None
    for i, j in strong:
        outside = total[i, j] - _block_energy(left[i], right[j], tables, xp)
        noise[i, j] = outside * np.float32(1 / (n_pixels - (2 * _PEAK + 1) ** 2))
    return xp.sign(ncc) * peak / xp.maximum(noise, np.float32(_TINY)), ncc


def _correlation_energy(left: Any, right: Any, width: int, xp: Any) -> Any:
    """Return the sum of c^2 over all shifts for every pair, float32 (m, k), a few rows of spectrum at a time."""
    m, _, height, n_half = left.shape
    k = right.shape[0]
    total = xp.zeros((m, k), dtype=xp.float32)
    weights = xp.asarray(height * width / column_weights(width))
    for start, stop in strips(height, max(m, k) * n_half // 8):
        power_left, power_right = (_power(side[:, :, start:stop]) for side in (left, right))
        power_right *= weights
        total += power_left.reshape(m, -1) @ power_right.reshape(k, -1).T
    return total


def _power(planes: Any) -> Any:
    power = planes[:, 0] * planes[:, 0]
    power += planes[:, 1] * planes[:, 1]
    return power


def _shift_tables(height: int, width: int, xp: Any) -> tuple[Any, Any]:
    """Return the factors of an inverse DFT for shifts -5 to 5: (11, height) and (width // 2 + 1, 11), complex64."""
    shifts = np.arange(-_PEAK, _PEAK + 1)
    down, across = (
        xp.asarray(np.exp(2j * np.pi / side * np.outer(shifts, np.arange(count))).astype(np.complex64))
        for side, count in ((height, height), (width, width // 2 + 1))
    )
    return down, across.T


def _block_energy(left: Any, right: Any, tables: Any, xp: Any) -> Any:
    """Return the sum of c^2 over the 11 x 11 block around zero shift of one pair, by a partial inverse DFT."""
    _, height, n_half = left.shape
    down, across = tables
    rows = xp.zeros((down.shape[0], n_half), dtype=xp.complex64)
    for start, stop in strips(height, 2 * n_half):
        (x, xi), (y, yi) = left[:, start:stop], right[:, start:stop]
        rows += down[:, start:stop] @ (x * y + xi * yi + 1j * (xi * y - x * yi))
    correlation = (rows @ across).real
    return (correlation * correlation).sum()


class Peak(NamedTuple):
    """The correlation of two patterns over all shifts: see `pce`."""

    pce0: float
    pce: float
    shift: tuple[int, int]


def pce(x: np.ndarray, y: np.ndarray) -> Peak:
    """Correlate two patterns at every shift: what a tile leaves out, for a look at one pair.

    Parameters
    ----------
    x, y : arrays (h, w)
        Noise patterns of equal shape; any scale.

    Returns
    -------
    Peak
        ``pce0`` at zero shift, ``pce`` at the largest |c|, both signed as c is there, and ``shift``, the (rows,
        columns) by which x must move to fit y, each from -side / 2 to side / 2.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.random.default_rng(0).standard_normal((64, 64))
    >>> pce(np.roll(y, (3, -2), axis=(0, 1)), y).shift
    (3, -2)
    """
    from scipy import fft

    c = fft.irfft2(fft.rfft2(x) * np.conj(fft.rfft2(y)), s=x.shape)
    row, column = (int(i) for i in np.unravel_index(np.argmax(np.abs(c)), c.shape))
    block = np.ix_(*((i + np.arange(-_PEAK, _PEAK + 1)) % n for i, n in zip((row, column), c.shape, strict=True)))
    square = np.square(c, dtype=np.float64)
    noise = (square.sum() - square[block].sum()) / (c.size - (2 * _PEAK + 1) ** 2)
    signed = np.sign(c) * square / noise
    shift = tuple(i - n if i > n // 2 else i for i, n in zip((row, column), c.shape, strict=True))
    return Peak(float(signed[0, 0]), float(signed[row, column]), (shift[0], shift[1]))


def find_peak(left: Any, right: Any, xp: Any) -> tuple[float, int, int]:
    """Return the highest peak of the correlation of two spectra over all shifts: its PCE, and how far it is shifted.

    Parameters
    ----------
    left, right : float32 arrays (2, h, w // 2 + 1), or (2, h, w // 2 + 1, 1)
        As ``pack_spectrum`` returns them.

    Returns
    -------
    pce : float
    row, column : int
        ``right`` lies on ``left`` where it is moved so many rows down and columns to the right, each from -side / 2 to
        side / 2.
    """
    (left, width), (right, _) = open_spectra(left), open_spectra(right)
    _, height, n_half = left.shape
    scale = xp.asarray(1 / column_weights(width))
    product = xp.empty((height, n_half), dtype=xp.complex64)
    for start, stop in strips(height, 4 * n_half):
        (x, xi), (y, yi) = left[:, start:stop], right[:, start:stop]
        product.real[start:stop] = (x * y + xi * yi) * scale
        product.imag[start:stop] = (xi * y - x * yi) * scale
    surface = invert(product, width, xp)
    at = int(xp.argmax(surface))
    row, column = divmod(at, width)
    reach = xp.arange(-_PEAK, _PEAK + 1)
    near = surface[((row + reach) % height)[:, None], (column + reach) % width]
    peak = float(surface[row, column])
    energy = sum(float(_energy(surface[start:stop], xp)) for start, stop in strips(height, width))
    noise = (energy - float((near * near).sum())) / (height * width - (2 * _PEAK + 1) ** 2)
    signed = np.sign(peak) * peak * peak / max(noise, _TINY)
    down, across = (at - side if at > side // 2 else at for at, side in ((row, height), (column, width)))
    return float(signed), down, across


# --- small things -----------------------------------------------------------------------------------------------


def column_weights(width: int) -> np.ndarray:
    """Return how many frequencies each column of a half spectrum stands for: 1, 2, ..., 2, and 1 of an even width."""
    weights = np.full(width // 2 + 1, 2, np.float32)
    weights[0] = 1
    if width % 2 == 0:
        weights[-1] = 1
    return weights


def _energy(rows: Any, xp: Any) -> Any:
    return (rows * rows).sum().astype(xp.float64)


def strips(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut the rows into strips of an even number of rows that stay in cache while several operations pass."""
    step = max(8, _STRIP_BYTES // (4 * width) // 2 * 2)
    for start in range(0, height, step):
        yield start, min(start + step, height)


def _fft_of(xp: Any) -> tuple[Any, dict[str, bool]]:
    """Return the best FFT module for the namespace, one that keeps float32, and its options."""
    if "numpy" in getattr(xp, "__name__", ""):
        from scipy import fft

        return fft, {"overwrite_x": True}
    return xp.fft, {}
