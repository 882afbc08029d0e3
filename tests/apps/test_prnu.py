"""Noise patterns and correlations against plain float64 references: full FFTs, sums written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan.apps.forensics import prnu
from tartan.devices.sim import SimDevice

SHAPES = [(16, 16), (17, 19), (40, 64), (65, 50), (50, 81), (130, 120)]


def photo(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """A smooth scene with noise, grey in units of 1/257."""
    rng = np.random.default_rng((seed, *shape))
    scene = np.cumsum(np.cumsum(rng.normal(size=shape), axis=0), axis=1)
    grey = 240 * (scene - scene.min()) / np.ptp(scene) + rng.normal(scale=3, size=shape)
    return np.rint(np.clip(grey, 0, 255) * prnu.GREY_SCALE).astype(np.uint16)


# --- the reference, float64 ---


def fast_noise(grey: np.ndarray) -> np.ndarray:
    u, v = np.gradient(grey, axis=1), np.gradient(grey, axis=0)
    s = 1 / (1 + np.sqrt(u * u + v * v))
    return np.gradient(s * u, axis=1) + np.gradient(s * v, axis=0)


def zero_mean(r: np.ndarray) -> np.ndarray:
    r = r.copy()
    for parity in (0, 1):
        r[parity::2] -= r[parity::2].mean(axis=0)
    for parity in (0, 1):
        r[:, parity::2] -= r[:, parity::2].mean(axis=1, keepdims=True)
    return r


def box_mean(power: np.ndarray, k: int) -> np.ndarray:
    padded = np.pad(power, k // 2)
    shifts = [(y, x) for y in range(k) for x in range(k)]
    height, width = power.shape
    return sum(padded[y : y + height, x : x + width] for y, x in shifts) / k**2


def wiener(r: np.ndarray) -> np.ndarray:
    spectrum = np.fft.fft2(r)
    power = np.abs(spectrum) ** 2
    least = np.min([box_mean(power, k) for k in (3, 5, 7, 9)], axis=0)
    signal = r.size / (r.size - 1) * np.sum(r * r)
    return np.fft.ifft2(spectrum * signal / np.maximum(signal, least)).real


def reference_pattern(grey: np.ndarray) -> np.ndarray:
    pattern = wiener(zero_mean(fast_noise(grey / prnu.GREY_SCALE)))
    return pattern / np.linalg.norm(pattern)


def correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """c at every shift, by a full float64 FFT."""
    return np.fft.ifft2(np.fft.fft2(x) * np.conj(np.fft.fft2(y))).real


def reference_pce(c: np.ndarray, at: tuple[int, int], block_at: tuple[int, int]) -> float:
    rows, columns = ((i + np.arange(-5, 6)) % n for i, n in zip(block_at, c.shape, strict=True))
    outside = np.ones(c.shape, bool)
    outside[np.ix_(rows, columns)] = False
    return float(np.sign(c[at]) * c[at] ** 2 / np.mean(c[outside] ** 2))


# --- patterns ---


@pytest.mark.parametrize("shape", SHAPES)
def test_the_residual_is_twice_the_reference(shape: tuple[int, int]) -> None:
    grey = photo(shape)
    residual, energy = prnu.zero_mean_residual(grey, np)
    expected = 2 * zero_mean(fast_noise(grey / prnu.GREY_SCALE))
    np.testing.assert_allclose(residual, expected, atol=2e-5)
    assert float(energy) == pytest.approx(np.sum(expected**2), rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gain_is_that_of_the_box_means(shape: tuple[int, int]) -> None:
    power = np.random.default_rng(1).random(shape, dtype=np.float32)
    signal = np.float32(0.4)
    least = np.min([box_mean(power.astype(np.float64), k) for k in (3, 5, 7, 9)], axis=0)
    gain = prnu.wiener_gain(np.pad(power, 4), signal, np)
    np.testing.assert_allclose(gain, signal / np.maximum(signal, least), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_patterns_match_the_full_transform(shape: tuple[int, int]) -> None:
    grey = photo(shape)
    pattern, expected = prnu.noise_pattern(grey, np), reference_pattern(grey)
    assert pattern.dtype == np.float32
    assert np.abs(pattern - expected).max() < 1e-5 * np.abs(expected).max()


def test_the_borders_of_the_spectrum_matter() -> None:
    """The reference would notice if the mirror symmetry were assumed there."""
    grey = photo((40, 64))
    spectrum = np.fft.fft2(zero_mean(fast_noise(grey / prnu.GREY_SCALE)))
    least = np.min([box_mean(np.abs(spectrum) ** 2, k) for k in (3, 5, 7, 9)], axis=0)
    mirrored = np.roll(least[::-1, ::-1], (1, 1), axis=(0, 1))
    assert not np.allclose(least, mirrored, rtol=1e-3)
    np.testing.assert_allclose(least[5:-5, 5:-5], mirrored[5:-5, 5:-5])


def test_strips_leave_no_seams() -> None:
    grey = photo((2000, 80))
    assert len(list(prnu.strips(*grey.shape))) == 3
    expected = reference_pattern(grey)
    assert np.abs(prnu.noise_pattern(grey, np) - expected).max() < 1e-5 * np.abs(expected).max()


def test_strips_are_of_an_even_number_of_rows() -> None:
    assert list(prnu.strips(75, 30_000)) == [*((i, i + 8) for i in range(0, 72, 8)), (72, 75)]
    assert list(prnu.strips(75, 1000)) == [(0, 64), (64, 75)]


@pytest.mark.parametrize("value", [0, 9000, 65535])
def test_a_flat_photo_has_no_pattern(value: int) -> None:
    flat = np.full((32, 40), value, np.uint16)
    assert not prnu.noise_pattern(flat, np).any()
    assert not prnu.spectrum(flat, np).any()


def test_the_photo_is_left_alone() -> None:
    grey = photo((40, 40))
    before = grey.copy()
    prnu.noise_pattern(grey, np)
    np.testing.assert_array_equal(grey, before)


def test_products_of_spectra_are_correlations_of_patterns() -> None:
    photos = [photo((41, 64), seed) for seed in range(3)]
    spectra = np.stack([prnu.spectrum(p, np).ravel() for p in photos])
    patterns = np.stack([prnu.noise_pattern(p, np).ravel() for p in photos])
    assert prnu.spectrum(photos[0], np).shape == (2, 41, 33)
    np.testing.assert_allclose(spectra @ spectra.T, patterns @ patterns.T, atol=1e-6)


# --- correlation ---


def family(shape: tuple[int, int], shares: list[float], blur: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Patterns that hold ``shares`` of one common pattern, and their planes of spectrum."""
    rng = np.random.default_rng(5)
    white = rng.normal(size=shape)
    common = sum(np.roll(white, (i, j), axis=(0, 1)) for i in range(blur) for j in range(blur)) / blur
    patterns = np.stack([share * common + rng.normal(size=shape) for share in shares])
    patterns /= np.linalg.norm(patterns, axis=(1, 2), keepdims=True)
    half = np.fft.rfft2(patterns)
    half *= np.sqrt(prnu.column_weights(shape[1]) / patterns[0].size)
    return patterns, np.stack([half.real, half.imag], axis=1).astype(np.float32)


@pytest.mark.parametrize("blur", [1, 3, 6])
def test_strong_peaks_have_the_exact_energy(blur: int) -> None:
    patterns, spectra = family((96, 80), [1, 0.5, -0.7], blur)
    pce0, ncc = prnu.pce_tile(spectra[:2], spectra, np)
    assert pce0.dtype == ncc.dtype == np.float32
    for i in range(2):
        for j in range(3):
            c = correlation(patterns[i], patterns[j])
            assert ncc[i, j] == pytest.approx(c[0, 0], rel=1e-5)
            assert pce0[i, j] == pytest.approx(reference_pce(c, (0, 0), (0, 0)), rel=1e-4)
    assert pce0[0, 2] < -100 < 100 < pce0[0, 1]


def test_weak_peaks_are_within_half_a_percent() -> None:
    patterns, spectra = family((160, 256), [0.0, 0.02, 0.05, 0.1])
    pce0, _ = prnu.pce_tile(spectra, spectra, np)
    for i, j in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]:
        expected = reference_pce(correlation(patterns[i], patterns[j]), (0, 0), (0, 0))
        assert pce0[i, j] == pytest.approx(expected, rel=5e-3)


def test_pairs_do_not_depend_on_their_tile() -> None:
    _, spectra = family((64, 64), [1, 0.8, 0.0, 0.0, -0.5])
    whole, _ = prnu.pce_tile(spectra, spectra, np)
    part, _ = prnu.pce_tile(spectra[1:3], spectra[3:], np)
    np.testing.assert_allclose(part, whole[1:3, 3:], rtol=1e-4)


def test_empty_spectra_have_no_energy() -> None:
    nothing = np.zeros((2, 2, 32, 17), np.float32)
    pce0, ncc = prnu.pce_tile(nothing, nothing, np)
    assert not pce0.any()
    assert not ncc.any()


def test_one_pair_at_every_shift_by_plain_sums() -> None:
    """No FFT in the reference: the shift, its sign and the wrap of the block are all visible here."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(24, 22))
    x = -np.roll(y, (3, -2), axis=(0, 1)) + 0.1 * rng.normal(size=y.shape)
    c = np.array([[np.sum(x * np.roll(y, (i, j), axis=(0, 1))) for j in range(22)] for i in range(24)])
    peak = prnu.pce(x, y)
    assert peak.shift == (3, -2)
    assert peak.pce == pytest.approx(reference_pce(c, (3, 20), (3, 20)), rel=1e-9)
    assert peak.pce0 == pytest.approx(reference_pce(c, (0, 0), (3, 20)), rel=1e-9)
    assert peak.pce < 0


# --- another namespace ---


def test_everything_runs_on_arrays_of_a_device() -> None:
    """The simulator's arrays refuse any mixture with host arrays, as those of a GPU do."""
    device = SimDevice()
    photos = [photo((40, 64), seed) for seed in (1, 2)]
    try:
        patterns, spectra = [], []
        for grey in photos:
            item = device.allocate(grey.shape, grey.dtype)
            device.upload(grey, item)
            patterns.append(_through(device, lambda item=item: prnu.noise_pattern(item, device.xp)))
            spectra.append(_through(device, lambda item=item: prnu.spectrum(item, device.xp)))
        stacked = np.stack(spectra)
        tile = device.allocate(stacked.shape, stacked.dtype)
        device.upload(stacked, tile)
        pce0 = _through(device, lambda: prnu.pce_tile(tile, tile, device.xp)[0])
    finally:
        device.close()
    for pattern, grey in zip(patterns, photos, strict=True):
        np.testing.assert_allclose(pattern, prnu.noise_pattern(grey, np), atol=1e-6)
    np.testing.assert_allclose(pce0, prnu.pce_tile(stacked, stacked, np)[0], rtol=1e-3)


def _through(device: SimDevice, call: Callable[[], Any]) -> np.ndarray:
    result = device.compute("preprocess", 1, call)
    host = np.empty(result.shape, result.dtype)
    device.download(result, host)
    return host
