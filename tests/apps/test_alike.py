"""Photos that lie in several ways, and of several sizes, in one run: against plain NumPy, and the look at one pair."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tartan
from support.fake_cupy import FakeCupy
from tartan.apps.forensics.alike import Ways, compare_tile, lay_down, reverse_ways, stand_up, turn_items
from tartan.apps.forensics.app import Forensics
from tartan.apps.forensics.prnu import noise_pattern, pack_spectrum, transform
from tartan.apps.forensics.turns import TURNS, compose, find_best_turn, find_quarters, turn_photo
from tartan.cli.main import main

# Each turn as NumPy says it: quarters against the clock, after a reflection or without one.
QUARTERS = dict(zip(TURNS, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)], strict=True))
SENSOR = 1 + 0.03 * np.random.default_rng(0).standard_normal((60, 96))
OTHER = 1 + 0.03 * np.random.default_rng(1).standard_normal((60, 96))
NOT_ASKED = Ways(pce=True, turns=False, shifts=False)


def turned(photo: np.ndarray, turn: str) -> np.ndarray:
    quarters, mirrored = QUARTERS[turn]
    return np.rot90(photo[:, ::-1] if mirrored else photo, quarters)


def take(seed: int, sensor: np.ndarray = SENSOR) -> np.ndarray:
    rng = np.random.default_rng(100 + seed)  # no seed of a sensor
    light = rng.uniform(100, 160)
    return np.clip(light * sensor + rng.standard_normal(sensor.shape) + 0.5, 0, 255).astype(np.uint8)


def png(photo: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(photo)).save(stream, "PNG")
    return stream.getvalue()


def score(app: Forensics, *photos: np.ndarray) -> dict[str, np.ndarray]:
    items = [app.preprocess(app.parse("a.png", png(photo)), np) for photo in photos]
    found = app.compare(items, items, np)
    return found if isinstance(found, dict) else {"scores": found}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("shape", [(20, 20), (21, 24), (16, 30), (18, 18), (19, 19), (20, 23), (17, 31)])
def test_spectra_and_patterns_are_turned_as_photos_are(turn: str, shape: tuple[int, int]) -> None:
    if TURNS[turn].transposed and shape[0] != shape[1]:
        return
    photos = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    wanted = np.stack([turned(photo, turn) for photo in photos])
    np.testing.assert_array_equal(turn_items(photos, TURNS[turn], Ways(False, True, False), np), wanted)
    spectra = [
        np.stack([pack_spectrum(transform(one.copy(), np), one.shape[1], np) for one in some])
        for some in (photos, wanted)
    ]
    np.testing.assert_allclose(turn_items(spectra[0], TURNS[turn], NOT_ASKED, np), spectra[1], atol=1e-6)


def test_turns_are_composed_and_undone_as_photos_are() -> None:
    photo = np.arange(12).reshape(3, 4)
    for first in TURNS:
        np.testing.assert_array_equal(turn_photo(photo, first), turned(photo, first))
        for second in TURNS:
            both = next(name for name, turn in TURNS.items() if turn == compose(TURNS[second], TURNS[first]))
            np.testing.assert_array_equal(turned(turned(photo, first), second), turned(photo, both))
        back = next(name for name, turn in TURNS.items() if turn == TURNS[first].undone())
        np.testing.assert_array_equal(turned(turned(photo, first), back), photo)
        spot = np.zeros((9, 9))
        spot[4 + 2, 4 + 1] = 1  # two down, one to the right of the middle
        down, right = (int(at[0]) - 4 for at in np.nonzero(turned(spot, first)))
        assert (find_quarters(TURNS[first]) @ (2, 1)).tolist() == [down, right]


def test_standing_photos_are_laid_down_and_stand_up_again() -> None:
    photo = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(lay_down(photo, turned=True), np.rot90(photo)[None])
    np.testing.assert_array_equal(stand_up(lay_down(photo, turned=True)), photo)
    assert stand_up(photo) is photo


@pytest.mark.parametrize("kind", ["ncc", "pce"])
@pytest.mark.parametrize("quarters", [1, 3])
def test_portrait_beside_landscape_has_the_score_of_the_right_turn(kind: str, quarters: int) -> None:
    photos = [take(1), np.rot90(take(2), quarters), take(3, OTHER)]
    found = score(Forensics(score=kind), *photos)
    wanted = score(Forensics(score=kind), take(1), take(2), take(3, OTHER))
    for name in found:
        assert found[name][0, 1] == pytest.approx(wanted[name][0, 1], rel=0.02)
        assert found[name][1, 0] == pytest.approx(found[name][0, 1], rel=1e-4)
        assert abs(found[name][1, 2]) < 0.1 * wanted[name][0, 1]
    # As it lies, the photo does not agree with its own turned copy: the turn is not hidden by a crop.
    centres = score(Forensics(score=kind, crop=48), take(1), np.rot90(take(2), quarters))
    straight = score(Forensics(score=kind, crop=48), take(1), take(2))
    assert centres["scores"][0, 1] == pytest.approx(straight["scores"][0, 1], rel=0.05)


def test_scores_of_unlike_photos_at_either_turn_have_a_mean_of_zero() -> None:
    rng = np.random.default_rng(3)
    sides = [rng.standard_normal((60, *form)).astype(np.float32) / 32 for form in ((32, 32), (1, 32, 32))]
    found = compare_tile(list(sides[0]), list(sides[1]), Ways(False, False, False), np)["scores"] * 32
    assert abs(found.mean()) < 5 * 1.28 / 60  # the larger of two has a spread of sqrt(1 + 2 / pi)
    assert found.std() == pytest.approx(1.279, abs=0.06)


@pytest.mark.parametrize("kind", ["ncc", "pce"])
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("square", [False, True])
def test_all_turns_are_looked_at(kind: str, turn: str, square: bool) -> None:
    part = slice(0, 60)
    first, second = (take(seed)[:, part] if square else take(seed) for seed in (1, 2))
    found = score(Forensics(score=kind, turns="all"), first, turned(second, turn))
    straight = score(Forensics(score=kind), first, second)
    back = next(name for name, one in TURNS.items() if one == TURNS[turn].undone())
    numbers = list(TURNS)
    assert found["turn"][0, 1] == numbers.index(back)
    assert found["turn"][1, 0] == numbers.index(turn)
    assert found["scores"][0, 1] == pytest.approx(straight["scores"][0, 1], rel=0.05)
    reverse = Forensics(turns="all").reverse({name: one[:1, 1:] for name, one in found.items()})
    assert reverse["turn"] == numbers.index(turn)


def test_peaks_are_those_of_plain_numpy() -> None:
    first, second = take(1), np.roll(take(2), (5, -7), axis=(0, 1))
    found = score(Forensics(shift="all"), first, second)
    patterns = [noise_pattern(photo.astype(np.uint16) * 257, np).astype(np.float64) for photo in (first, second)]
    surface = np.fft.ifft2(np.fft.fft2(patterns[0]) * np.conj(np.fft.fft2(patterns[1]))).real
    row, column = np.unravel_index(np.argmax(surface), surface.shape)
    rows, columns = ((np.arange(-5, 6) + at) % side for at, side in zip((row, column), surface.shape, strict=True))
    outside = surface.copy()
    outside[np.ix_(rows, columns)] = 0
    noise = (outside**2).sum() / (surface.size - 121)
    assert found["peak"][0, 1] == pytest.approx(surface.max() ** 2 / noise, rel=1e-3)
    assert (found["row"][0, 1], found["column"][0, 1]) == (-5, 7)
    assert (found["row"][1, 0], found["column"][1, 0]) == (5, -7)
    back = Forensics(shift="all").reverse({name: one[:1, 1:] for name, one in found.items()})
    assert (back["row"], back["column"]) == (5, -7)
    for name, scores in score(Forensics(score="pce"), first, second).items():
        np.testing.assert_array_equal(found[name], scores)


@pytest.mark.parametrize("turn", TURNS)
def test_turns_and_shifts_together_are_those_of_a_look_at_one_pair(turn: str) -> None:
    first, second = take(1), np.ascontiguousarray(turned(np.roll(take(2), (4, 9), axis=(0, 1)), turn))
    found = score(Forensics(turns="all", shift="all"), first, second)
    for a, b, i, j in ((first, second, 0, 1), (second, first, 1, 0)):
        wanted = find_best_turn(a.astype(np.uint16) * 257, b.astype(np.uint16) * 257)
        assert list(TURNS)[found["turn"][i, j]] == wanted.turn
        # The look at one pair puts both into one frame, which does not go round: both know the place, not its wrap.
        sides = a.shape
        for name, place, side in zip(("row", "column"), (wanted.row, wanted.column), sides, strict=True):
            assert (int(found[name][i, j]) - place) % side == 0
        assert found["peak"][i, j] > 60
    one_way = {name: scores[:1, 1:] for name, scores in found.items()}
    for name, scores in reverse_ways(one_way).items():
        assert scores == found[name][1, 0]


@pytest.mark.slow
def test_a_run_keeps_turn_and_place_and_clusters_by_the_peak(tmp_path: Path, capsys) -> None:
    photos = {"a": take(1), "b": np.roll(turned(take(2), "turned right"), (3, 2), axis=(0, 1)), "c": take(3, OTHER),
              "d": turned(take(4, OTHER), "mirrored"), "small": take(5)[:30, :40]}  # fmt: skip
    for name, photo in photos.items():
        (tmp_path / f"{name}.png").write_bytes(png(photo))
    out = str(tmp_path / "run")
    asked = ["run", "forensics", str(tmp_path / "*.png"), "-o", out, "--set", "turns=all", "--set", "shift=all"]
    assert main(asked) == 0
    assert "of a size that no other has, compared with none: small.png (40 x 30)" in capsys.readouterr().err
    run = tartan.open(out)
    assert list(run.outputs) == ["scores", "ncc", "peak", "turn", "row", "column"]
    turn = run.matrix("turn")
    assert (turn[0, 1], turn[1, 0]) == (list(TURNS).index("turned left"), list(TURNS).index("turned right"))
    assert (run.matrix("peak", diagonal=0)[4] == 0).all()
    assert main(["cluster", out, "-q"]) == 0
    labels = dict(line.split("\t") for line in capsys.readouterr().out.splitlines()[1:])
    assert labels["a.png"] == labels["b.png"] != labels["c.png"] == labels["d.png"] != labels["small.png"]
    for command in (["info"], ["neighbors"], ["cluster"]):
        assert main([*command, out]) == 0
        said = capsys.readouterr()
        assert "pairs of different size are not compared, and score 0" in said.out + said.err, command
    assert main(["export", out, str(tmp_path / "m.csv")]) == 0
    assert "pairs of different size are not compared, and score 0" in capsys.readouterr().err
    assert main(["show", out, "a.png", "small.png"]) == 0
    assert "compared: no: photos of different size score 0 in a run" in capsys.readouterr().out
    assert main(["report", out, "-o", str(tmp_path / "r.html")]) == 0
    assert "pairs of different size are not compared, and score 0" in (tmp_path / "r.html").read_text()


def test_two_standing_photos_may_have_been_turned_either_way() -> None:
    app = Forensics()
    items = np.stack([app.preprocess(app.parse("a", png(np.rot90(take(k), 2 * k + 1))), np) for k in (1, 2)])
    assert items.shape == (2, 1, 60, 96)
    wanted = score(app, take(1), take(2))["scores"]
    np.testing.assert_allclose(app.compare(items, items, np), wanted, rtol=0.02)


def test_a_spread_of_two_turns_is_taken_where_photos_stand(tmp_path: Path) -> None:
    app = Forensics()
    spreads = []
    for quarters in (0, 1):
        app.check_files([(str(k), io.BytesIO(png(np.rot90(take(k), quarters)))) for k in range(3)])
        spreads.append(app.meaning("scores", (1, 60, 96)).groups.spread)
    assert spreads[1] == pytest.approx(np.sqrt(1 + 2 / np.pi) * spreads[0], rel=1e-3)
    assert Forensics(turns="all").meaning("scores", (60, 96)).groups is None
    assert Forensics(shift="all").meaning("row", (2, 60, 49)) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ncc", "pce"])
def test_photos_that_all_stand_on_a_gpu(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**26)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(np.rot90(take(number, SENSOR[:32, :48]), 2 * number + 1)))
    found = []
    for device in ("cpu", "cuda"):
        command = ["run", "forensics", str(tmp_path / "*.png"), "-o", str(tmp_path / device), "--device", device, "-q"]
        assert main([*command, "--set", f"score={kind}"]) == 0
        found.append(tartan.open(tmp_path / device).matrix("ncc" if kind == "pce" else "scores", diagonal=0.0))
    np.testing.assert_allclose(found[1], found[0], atol=5e-4)
    assert found[0][0, 1] > 0.5
    assert cupy.misuse == []


def test_sizes_and_standing_photos_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**26)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    small = SENSOR[:32, :48]
    photos = [take(1, small), np.rot90(take(2, small)), take(3, small)[:20, :24], np.rot90(take(4, small), -1)]
    for number, photo in enumerate(photos):
        (tmp_path / f"{number}.png").write_bytes(png(photo))
    found = []
    for device in ("cpu", "cuda"):
        command = ["run", "forensics", str(tmp_path / "*.png"), "-o", str(tmp_path / device), "--device", device, "-q"]
        assert main(command) == 0
        found.append(tartan.open(tmp_path / device).matrix("ncc", diagonal=0.0))
    np.testing.assert_allclose(found[1], found[0], atol=2e-4)
    assert cupy.misuse == []


@pytest.mark.parametrize("option", ["turns", "shift"])
def test_turns_and_shifts_on_a_gpu_say_what_to_do(option: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(memory_bytes=2**26))
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(png(take(number)[:32, :32]))
    command = ["run", "forensics", str(tmp_path / "*.png"), "-o", str(tmp_path / "out"), "--set", f"{option}=all"]
    assert main([*command, "--device", "cuda"]) != 0
    assert f"{option}=all is computed on the CPU: add --device cpu" in capsys.readouterr().err


def test_the_cost_of_all_shifts_is_said_before() -> None:
    about = b"IHDR" + struct.pack(">2I5B", 3000, 2000, 8, 0, 0, 0, 0)
    large = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + about + struct.pack(">I", zlib.crc32(about))
    large += bytes(4) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    files = [(str(number), io.BytesIO(large)) for number in range(400)]
    (note,) = Forensics(shift="all", turns="all").check_files(files)
    assert (
        note == f"shift=all takes about {400 * 399 / 2 * 4 * 6e6 * 8e-9 / 3600:.1f} hours of one core for 79,800 pairs"
    )
    assert Forensics(shift="all").check_files(files[:9]) == []
    assert Forensics(turns="all").check_files(files) == []


def test_a_threshold_is_refused_where_sizes_choose_the_score(tmp_path: Path, capsys) -> None:
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(png(take(number)[: 60 - 10 * (number // 2)]))
    asked = ["run", "forensics", str(tmp_path / "*.png"), "-o", str(tmp_path / "run"), "--threshold"]
    assert main([*asked, "0.05"]) == 2
    said = capsys.readouterr().err
    assert "--threshold 0.05: the files ask for score=pce" in said
    assert "--set score=pce" in said
    assert not (tmp_path / "run").exists()
    assert main([*asked, "60", "--set", "score=pce"]) == 0
    assert main(["cluster", str(tmp_path / "run"), "-q"]) == 0
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["0", "0", "1", "1"]
    assert main([*asked[:-2], str(tmp_path / "ncc"), "--threshold", "0.05", "--set", "score=ncc"]) == 0


def test_sizes_of_items_that_are_no_files(tmp_path: Path) -> None:
    items = [png(take(number)[: 60 - 10 * (number % 2)]) for number in range(6)]
    run = tartan.allpairs(Forensics(score="pce"), items, tmp_path / "run")
    found = run.matrix("ncc", diagonal=0.0)
    assert (found[::2, ::2] + np.eye(3) > 0.5).all()
    assert (found[1::2, 1::2] + np.eye(3) > 0.5).all()
    assert not found[::2, 1::2].any()
