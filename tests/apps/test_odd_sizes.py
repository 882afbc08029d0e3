"""Photos of odd and even width and height, as they lie and turned: scores against plain float64 transforms."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_alike import png, turned
from test_prnu import correlation, reference_pattern, reference_pce

import tartan
from tartan.apps.forensics import prnu
from tartan.apps.forensics.app import Forensics
from tartan.apps.forensics.fingerprints import Cameras
from tartan.apps.forensics.turns import TURNS, find_best_turn

SHAPES = [(48, 64), (47, 64), (48, 65), (47, 63), (61, 61), (60, 60)]


def take(shape: tuple[int, int], camera: int, seed: int) -> np.ndarray:
    """Return a photo of a camera: a ramp of light, its pattern, and noise; uint8, nothing clipped."""
    sensor = np.random.default_rng(camera).standard_normal(shape)
    rng = np.random.default_rng((9, camera, seed))
    light = rng.uniform(100, 130) + np.linspace(0, 30, shape[1])
    return np.rint(np.clip(light * (1 + 0.03 * sensor) + rng.normal(0, 1.5, shape), 1, 250)).astype(np.uint8)


def lie(photo: np.ndarray) -> np.ndarray:
    """Return a photo as runs compare it: turned left where it is higher than wide."""
    return np.rot90(photo) if photo.shape[0] > photo.shape[1] else photo


def pattern_of(photo: np.ndarray) -> np.ndarray:
    return reference_pattern(np.ascontiguousarray(photo).astype(np.float64) * prnu.GREY_SCALE)


def best_of(first: np.ndarray, second: np.ndarray, turns: list[str]) -> tuple[float, float, float]:
    """Return NCC and PCE at the turn of the largest correlation, and the highest PCE at any turn and shift."""
    pattern, other = pattern_of(lie(first)), pattern_of(lie(second))
    surfaces = [correlation(pattern, moved) for turn in turns if (moved := turned(other, turn)).shape == pattern.shape]
    at_rest = max(surfaces, key=lambda c: abs(c[0, 0]))
    peaks = []
    for c in surfaces:
        at = np.unravel_index(np.argmax(c), c.shape)
        peaks.append(reference_pce(c, at, at))  # type: ignore[arg-type]
    return float(at_rest[0, 0]), reference_pce(at_rest, (0, 0), (0, 0)), max(peaks)


def score(app: Forensics, *photos: np.ndarray) -> Any:
    items = [app.preprocess(app.parse("a.png", png(photo)), np) for photo in photos]
    return app.compare(items[:1], items[1:], np)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("shape", SHAPES)
def test_all_turns_and_shifts_are_those_of_plain_transforms(shape: tuple[int, int], turn: str) -> None:
    first, second = take(shape, 0, 1), turned(take(shape, 0, 2), turn)
    found = score(Forensics(turns="all", shift="all"), first, second, turned(take(shape, 1, 3), turn))
    ncc, pce, peak = best_of(first, second, list(TURNS))
    assert found["ncc"][0, 0] == pytest.approx(ncc, abs=1e-5)
    assert found["scores"][0, 0] == pytest.approx(pce, rel=2e-3)
    assert found["peak"][0, 0] == pytest.approx(peak, rel=2e-3)
    assert pce > 60
    back = next(name for name, one in TURNS.items() if one == TURNS[turn].undone())
    assert found["turn"][0, 0] == list(TURNS).index(back)
    assert (found["row"][0, 0], found["column"][0, 0]) == (0, 0)
    assert found["scores"][0, 1] < 30
    straight = score(Forensics(score="pce"), first, take(shape, 0, 2))["scores"][0, 0]
    assert found["scores"][0, 0] == pytest.approx(straight, rel=0.1)


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_runs_find_portrait_beside_landscape(shape: tuple[int, int], quarters: int) -> None:
    first, second = take(shape, 0, 1), np.rot90(take(shape, 0, 2), quarters)
    stands = second.shape[0] > second.shape[1]
    ncc, pce, _ = best_of(first, second, ["as it is", *(["turned by half a circle"] if stands else [])])
    found = score(Forensics(score="pce"), first, second)
    assert found["ncc"][0, 0] == pytest.approx(ncc, abs=1e-5)
    assert found["scores"][0, 0] == pytest.approx(pce, rel=2e-3, abs=0.05)
    if stands:
        assert pce > 60


@pytest.mark.parametrize("shape", SHAPES)
def test_peaks_at_any_shift_are_those_of_plain_transforms(shape: tuple[int, int]) -> None:
    photos = take(shape, 0, 1), np.roll(take(shape, 0, 2), (5, -7), (0, 1))
    found = score(Forensics(shift="all"), *photos)
    assert found["peak"][0, 0] == pytest.approx(best_of(*photos, ["as it is"])[2], rel=2e-3)
    assert (found["row"][0, 0], found["column"][0, 0]) == (-5, 7)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_size_of_a_photo_is_that_of_its_spectrum(shape: tuple[int, int]) -> None:
    found = prnu.spectrum(take(shape, 0, 1).astype(np.uint16) * 257, np)
    assert found.shape == prnu.spectrum_shape(*shape)
    assert prnu.read_size(found.shape) == prnu.read_size((5, 1, *found.shape)) == shape
    assert found.nbytes == 8 * shape[0] * (shape[1] // 2 + 1)
    app = Forensics(score="pce")
    app.check_files([])
    evidence = app.meaning("ncc", found.shape)
    assert evidence is not None
    assert evidence.cut == pytest.approx((60 / (shape[0] * shape[1])) ** 0.5)


@pytest.mark.parametrize("width", [64, 65])
def test_a_look_at_one_pair_finds_the_turn_and_no_shift(width: int) -> None:
    first, second = take((48, width), 0, 1), take((48, width), 0, 2)[::-1, ::-1]
    app = Forensics(score="pce")
    parsed = [app.parse("a.png", png(photo)) for photo in (first, second)]
    assert [item.shape for item in parsed] == [(48, width)] * 2
    found = find_best_turn(*parsed)
    assert (found.turn, found.row, found.column) == ("turned by half a circle", 0, 0)
    assert found.chance < 1e-9


def test_a_run_of_mixed_sizes_keeps_them_apart(tmp_path: Path) -> None:
    """64 and 65 pixels of width have spectra of as many columns, and are not compared."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for at, (shape, quarters) in enumerate([((48, 64), 0), ((48, 65), 0), ((48, 65), 1), ((48, 65), 2), ((48, 64), 3)]):
        (photos / f"{at}.png").write_bytes(png(np.rot90(take(shape, 0, at), quarters)))
    run = tartan.allpairs(Forensics(turns="all"), str(photos), tmp_path / "run")
    scores = run.matrix("scores")
    together = np.array([[0, 4], [1, 2], [1, 3], [2, 3]]).T
    apart = np.array([[0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4]]).T
    assert (scores[tuple(together)] > 60).all()
    assert not scores[tuple(apart)].any()


@pytest.mark.parametrize("shape", [(47, 65), (48, 65), (65, 47)])
def test_cameras_of_odd_sizes_are_compared_whole(shape: tuple[int, int]) -> None:
    app = Cameras()
    pattern, photo = (
        app.preprocess(app.group("c", [(str(seed), png(take(shape, 0, seed))) for seed in range(4)]), np),
        app.preprocess(app.parse("q", png(take(shape, 0, 9))), np),
    )
    assert prnu.read_size(pattern.shape) == shape
    found = app.compare(pattern[None], photo[None], np)
    weights = np.sqrt(prnu.column_weights(shape[1]))
    white = [np.fft.irfft2((one[0, ..., 0] + 1j * one[1, ..., 0]) / weights, shape) for one in (pattern, photo)]
    c = correlation(*white)
    assert found["scores"][0, 0] == pytest.approx(reference_pce(c, (0, 0), (0, 0)), rel=2e-3)
    assert found["peak"][0, 0] == pytest.approx(reference_pce(c, (0, 0), (0, 0)), rel=2e-3)
    framed = Cameras(frame="80x91")
    left = framed.preprocess(framed.group("c", [(str(seed), png(take(shape, 0, seed))) for seed in range(4)]), np)
    right = framed.preprocess(framed.parse("q", png(take(shape, 0, 9)[3:, 5:])), np)
    found = framed.compare(left[None], right[None], np)
    assert (found["row"][0, 0], found["column"][0, 0]) == (3, 5)
    assert found["peak"][0, 0] > 60


def test_a_crop_that_takes_another_part_of_turned_photos_is_named() -> None:
    photos = [("a", io.BytesIO(png(take((48, 65), 0, 1)))), ("b", io.BytesIO(png(np.rot90(take((48, 65), 0, 2)))))]
    for crop, fit in (("32x40", "32x39"), ("31x41", "30x41"), ("16x16", "16x17")):
        (note,) = Forensics(crop=crop, score="pce").check_files(photos)
        assert f"crop={crop} leaves out an odd number" in note
        assert f"crop={fit} does not" in note
        assert Forensics(crop=fit, score="pce").check_files(photos) == []
        assert Forensics(crop=crop, score="pce").check_files(photos[:1]) == []
        assert len(Forensics(crop=crop, turns="all").check_files(photos[:1])) == 1
    first, second = take((48, 65), 0, 1), take((48, 65), 0, 2)
    for turn in TURNS:
        assert score(Forensics(crop="32x39", turns="all"), first, turned(second, turn))["scores"][0, 0] > 0.1
