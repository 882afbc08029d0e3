"""Fingerprints of cameras against questioned photos: estimates, masks, places, decisions, the command and its page."""

from __future__ import annotations

import io
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.special import ndtri

from tartan.apps.forensics.app import Forensics, cameras, decode_photo
from tartan.apps.forensics.decisions import Calibration, calibrate, exact_limit, judge
from tartan.apps.forensics.ends import fill_areas, find_areas, find_ends, find_usable
from tartan.apps.forensics.fingerprints import Cameras
from tartan.apps.forensics.prnu import find_peak, pce, zero_mean_residual
from tartan.apps.forensics.residuals import read_residual, weigh_photo
from tartan.apps.forensics.simulate import simulate
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError
from tartan.view.cameras_report import format_chance

SIDE = 256
# Real patterns need megapixels: this one is eight times as strong. benches/apps/photos.py measures real strength.
STRONG = 0.06


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photos of three cameras: ``known/0`` to ``known/2``, and ``questioned`` of 0, 1, 2, other.

    Known photos are flat, questioned ones natural. The fourth simulated camera is known to nobody.
    """
    folder = tmp_path_factory.mktemp("case")
    simulate(folder / "all", 40, 3, cameras=4, size=SIDE, flats=0.6, prnu=STRONG)
    truth = json.loads((folder / "all" / "truth.json").read_text())
    cameras = truth.get("cameras", truth)
    taken: dict[str, int] = {}
    (folder / "questioned").mkdir()
    names: dict[str, int] = {}
    for photo in sorted((folder / "all").glob("*.jpg")):
        camera = str(cameras[photo.name])
        names.setdefault(camera, len(names))
        place = names[camera]
        taken[camera] = taken.get(camera, 0) + 1
        known = place < 3 and taken[camera] <= 6
        target = folder / "known" / f"camera {place}" if known else folder / "questioned"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, target / (photo.name if known else f"q{place}_{photo.name}"))
    return folder


def photo(seed: int, shape: tuple[int, int] = (64, 80)) -> np.ndarray:
    """Return a grey photo of a smooth scene with noise, uint16 in units of 1/257."""
    rng = np.random.default_rng(seed)
    scene = 120 + 60 * np.add.outer(np.sin(np.arange(shape[0]) / 9), np.cos(np.arange(shape[1]) / 7)) / 2
    return (np.clip(scene + rng.normal(0, 3, shape), 0, 255).round() * 257).astype(np.uint16)


def as_png(grey: np.ndarray) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray((grey // 257).astype(np.uint8)).save(file, "PNG")
        return file.getvalue()


def test_a_fingerprint_is_the_maximum_likelihood_estimate() -> None:
    greys = [photo(seed) for seed in range(5)]
    greys[1][10:30, 20:50] = 65535
    found = Cameras().group("c", [(f"{at}.png", as_png(grey)) for at, grey in enumerate(greys)])
    above, below = np.zeros(greys[0].shape), np.zeros(greys[0].shape)
    for grey in greys:
        noise = zero_mean_residual(grey, np)[0].astype(np.float64)
        light = grey / 257 * find_usable(find_ends(grey))
        above += noise * light
        below += light**2
    wanted = above / below
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_an_equal_photo_counts_once() -> None:
    files = [(f"{at}.png", as_png(photo(at))) for at in range(3)]
    assert np.array_equal(Cameras().group("c", [*files, ("copy.png", files[1][1])]), Cameras().group("c", files))


def test_photos_of_a_camera_have_one_size() -> None:
    files = [("a.png", as_png(photo(1))), ("b.png", as_png(photo(2, (80, 64))))]
    with pytest.raises(ItemError, match=r"c: b.png has 64 x 80 pixels, a.png 80 x 64"):
        Cameras().group("c", files)
    with pytest.raises(ItemError, match=r"c: bad.png: not a JPEG"):
        Cameras().group("c", [("bad.png", b"no photo")])


def test_pixels_at_the_ends_are_left_out_with_what_they_touch() -> None:
    grey = np.full((60, 60), 128 * 257, np.uint16)
    grey[10, 10] = 65535  # one pixel: the noise filter reaches two further
    grey[30:40, 30:40] = 0  # an area: the rest of JPEG's blocks, too
    usable = find_usable(find_ends(grey))
    wanted = np.ones_like(usable)
    wanted[8:13, 8:13] = False
    wanted[20:50, 20:50] = False
    assert np.array_equal(usable, wanted)
    assert find_usable(find_ends(photo(1))).all()


def test_pixels_that_are_left_out_do_not_count() -> None:
    one, other = photo(1), photo(1)
    other[20:40, 20:40] = 65535
    changed = weigh_photo(read_residual(other, find_ends(other)))
    assert not changed[20:40, 20:40].any()
    assert np.isfinite(changed).all()
    far = np.ix_(range(60, 64), range(70, 80))  # the mean of a column and row of the residual has changed a little
    assert np.abs(changed[far] - weigh_photo(read_residual(one, find_ends(one)))[far]).max() < 0.6


@pytest.mark.parametrize("shape", [(64, 80), (48, 50)])
def test_the_peak_is_that_of_a_whole_correlation(shape: tuple[int, int]) -> None:
    app, rng = Cameras(), np.random.default_rng(2)
    pattern = rng.normal(size=shape).astype(np.float32)
    moved = (np.roll(pattern, (5, -7), (0, 1)) + 2 * rng.normal(size=shape)).astype(np.float32)
    left, right = app.preprocess(pattern, np), app.preprocess(moved, np)
    found = find_peak(left, right, np)
    weights = np.full(left.shape[-1], np.sqrt(2))
    weights[[0, -1]] = 1
    white = [np.fft.irfft2((planes[0] + 1j * planes[1]) / weights, shape) for planes in (left, right)]
    wanted = pce(white[1], white[0])
    assert found[0] == pytest.approx(wanted.pce, rel=1e-4)
    assert wanted.shift == (5, -7)
    assert found[1:] == (-5, 7)


@pytest.mark.slow
def test_a_crop_is_found_on_the_sensor(case: Path) -> None:
    app = Cameras(frame=f"{SIDE}x{SIDE}")
    known = [(file.name, file.read_bytes()) for file in sorted((case / "known" / "camera 0").iterdir())]
    whole = Image.open(sorted((case / "questioned").glob("q0_*"))[-1])  # a bright one
    with io.BytesIO() as file:
        whole.crop((37, 11, 37 + 200, 11 + 210)).save(file, "PNG")
        crop = file.getvalue()
    left = app.preprocess(app.group("c", known), np)[None]
    right = app.preprocess(app.parse("q", crop), np)[None]
    found = app.compare(left, right, np)
    assert (int(found["row"][0, 0]), int(found["column"][0, 0])) == (11, 37)
    back = app.compare(right, left, np)
    assert {name: back[name].item() for name in ("row", "column")} == app.reverse(
        {name: found[name].item() for name in ("row", "column")}
    )
    assert found["peak"][0, 0] > 60
    with pytest.raises(ItemError, match="it fits if it is turned"):
        Cameras(frame="64x80").preprocess(app.parse("q", as_png(photo(1, (80, 64)))), np)


def test_spreads_are_those_of_other_cameras() -> None:
    rng = np.random.default_rng(4)
    t = rng.normal(0, 1.5, 2000)
    peaks = rng.normal(0, 1.2, (200, 10_000)).max(axis=1)
    found = calibrate(np.sign(t) * t**2, peaks**2, [], n_places=10_000, n_cameras=1)
    assert 1.45 < found.spread < 1.65
    assert 1.15 < found.spread_of_peaks < 1.3
    assert calibrate([1.0], [1.0], [], n_places=1, n_cameras=1).spread == 1.6  # too few to know
    assert calibrate(np.zeros(50), [], [], n_places=1, n_cameras=1).spread == 1.0


@pytest.mark.slow
def test_a_rate_of_false_alarms_is_kept() -> None:
    """Of 40,000 photos of none of five cameras, at most a hundredth is taken for one of them."""
    rng = np.random.default_rng(7)
    n, cameras, places = 40_000, 5, 3
    known = rng.normal(0, 1.3, 3000)
    largest = rng.normal(0, 1.3, (3000, places)).max(axis=1)
    found = calibrate(
        np.sign(known) * known**2, np.sign(largest) * largest**2, [400.0] * 30,
        n_places=places, n_cameras=cameras, false_alarm=0.01,
    )  # fmt: skip
    pce = rng.normal(0, 1.3, (n, cameras))
    peak = np.maximum(pce, rng.normal(0, 1.3, (n, cameras, places - 1)).max(axis=2))
    said = [
        judge(found, (np.sign(a) * a**2).tolist(), (np.sign(b) * b**2).tolist(), [0.0] * cameras, [(0, 0)] * cameras)
        for a, b in zip(pce[:4000], peak[:4000])
    ]
    n_named = sum(one.camera is not None for one in said)
    assert 0 < n_named <= 0.01 * 4000 * 1.3
    assert all(one.llr <= found.llr_limit for one in said)
    assert np.mean([one.llr for one in said]) < -0.5


def test_what_cameras_of_a_model_share_shifts_the_cut_and_does_not_widen_it() -> None:
    """Six pairs of cameras whose photos have means of 0 to 3; a photo like the most alike pair's keeps to the rate."""
    rng = np.random.default_rng(11)
    pairs = np.repeat(np.arange(6), 40)
    t = rng.normal(pairs * 0.6, 1.2)
    found = calibrate(np.sign(t) * t**2, [], [900.0] * 20, n_places=1, n_cameras=1, false_alarm=1e-3, pairs=pairs)
    assert found.middle == pytest.approx(max(t[pairs == 5].mean(), t[pairs == 4].mean()))
    within = np.sqrt(sum(t[pairs == at].var(ddof=1) for at in range(6)) / 6)
    assert found.spread == pytest.approx(within * (1 + 1.645 / np.sqrt(2 * 240)), rel=1e-6)
    fresh = rng.normal(3.0, 1.2, 200_000)
    assert 1e-4 < np.mean(fresh >= math.sqrt(found.cut)) < 1.1e-3
    root = math.sqrt(found.cut) * 1.0001
    above, below = (judge(found, [one**2], [one**2], [0.0], [(0, 0)]) for one in (root, root * 0.999))
    assert (above.camera, below.camera) == (0, None)
    around_zero = calibrate(np.sign(t) * t**2, [], [], n_places=1, n_cameras=1, false_alarm=1e-3)
    assert around_zero.middle == 0.0 < found.cut < around_zero.cut
    few = calibrate(np.sign(t) * t**2, [], [], n_places=1, n_cameras=1, pairs=np.arange(240) // 2)
    assert few.middle == 0.0  # two photos of a pair say no mean
    two = calibrate(np.sign(t[:80]) * t[:80] ** 2, [], [], n_places=1, n_cameras=1, pairs=pairs[:80])
    deviations = t[:80] - np.repeat([t[:40].mean(), t[40:80].mean()], 40)
    error = np.sqrt((deviations**2).sum() / 78 / 40)
    assert two.middle == pytest.approx(max(t[:40].mean(), t[40:80].mean()) + 1.645 * error)
    best = calibrate(np.sign(t) * t**2, t**2, [], n_places=50, n_cameras=1, false_alarm=0.4, pairs=pairs)
    assert best.cut_of_peaks >= best.cut  # a peak may lie where sensors have a part in common


def test_decisions_follow_the_scores() -> None:
    known = calibrate(ndtri(np.arange(1, 400) / 400) ** 2, [], [900.0] * 20, n_places=1, n_cameras=2)
    clear = judge(known, [500.0, 3.0], [500.0, 3.0], [0.1, 0.0], [(0, 0), (0, 0)])
    assert (clear.camera, clear.best) == (0, 0)
    assert clear.llr == known.llr_limit == pytest.approx(math.log10(400))
    assert clear.false_alarm < 1e-50
    nothing = judge(known, [-3.0, 2.0], [-3.0, 2.0], [0.0, 0.0], [(0, 0), (0, 0)])
    assert (nothing.camera, nothing.best) == (None, 1)
    assert nothing.llr < -1
    lost = judge(known, [math.nan, -2.0], [math.nan, -2.0], [math.nan, 0.0], [(0, 0), (0, 0)])
    assert (lost.camera, lost.best, lost.false_alarm) == (None, 1, 1.0)
    at_cut = judge(known, [known.cut * 1.001, 0.0], [0.0, 0.0], [0.0, 0.0], [(0, 0), (0, 0)])
    below = judge(known, [known.cut * 0.999, 0.0], [0.0, 0.0], [0.0, 0.0], [(0, 0), (0, 0)])
    assert (at_cut.camera, below.camera) == (0, None)


@pytest.mark.parametrize("same", [[], [400.0, 900.0, 2500.0]])
@pytest.mark.parametrize("places", [1, 1000])
def test_ratios_do_not_depend_on_the_unit(same: list[float], places: int) -> None:
    """Scores of a field whose spread is three times as large, of all photos alike, say the same."""
    foreign, largest = ndtri(np.arange(1, 4000) / 4000), 3.0 + np.abs(ndtri(np.arange(1, 4000) / 4000)) / 3
    said = []
    for unit in (1.5, 4.5):
        known = calibrate(
            np.sign(foreign) * (unit * foreign) ** 2, (unit * largest) ** 2, np.array(same) * unit**2,
            n_places=places, n_cameras=1,
        )  # fmt: skip
        for t in (-1.0, 1.0, 3.0, 4.0):
            pce = math.copysign((unit * t) ** 2, t)
            said.append(judge(known, [pce], [max(pce, (4 * unit) ** 2)], [0.0], [(0, 0)]).llr)
    assert said[:4] == pytest.approx(said[4:], abs=1e-6)
    assert max(map(abs, said)) < known.llr_limit


def test_photos_of_other_cameras_seldom_speak_for_one() -> None:
    """The mean ratio of photos of other cameras is at most 1, whatever their spread is (Turing)."""
    rng = np.random.default_rng(8)
    t = rng.normal(0, 1.3, (4000, 30))
    known = calibrate(
        np.sign(t[:2000, 0]) * t[:2000, 0] ** 2, t[:2000].max(axis=1) ** 2, [9.0] * 30, n_places=30, n_cameras=1
    )
    ratios = []
    for one in t[2000:]:
        pce, peak = math.copysign(one[0] ** 2, one[0]), one.max() ** 2
        ratios.append(10 ** judge(known, [pce], [peak], [0.0], [(0, 0)]).llr)
    assert 0.1 < np.mean(ratios) < 1


def test_limits_of_rates_are_exact() -> None:
    assert exact_limit(0, 3_000_000) == pytest.approx(-math.log(0.05) / 3e6, rel=1e-3)
    assert exact_limit(2, 10) == pytest.approx(0.5069, abs=1e-4)  # Clopper and Pearson's table, one-sided
    assert exact_limit(0, 0) == exact_limit(5, 5) == 1.0
    assert isinstance(calibrate([], [], [], n_places=1, n_cameras=1), Calibration)


def cameras_of(case: Path, out: Path, *more: str) -> list[str]:
    questioned = [str(file) for file in sorted((case / "questioned").iterdir())]
    return ["forensics", "cameras", str(case / "known" / "*"), "--questioned", *questioned, "-o", str(out), "-q", *more]


@pytest.mark.slow
def test_each_photo_is_given_its_camera(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(cameras_of(case, tmp_path / "run", "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    names = [camera["name"] for camera in said["cameras"]]
    assert names == ["camera 0", "camera 1", "camera 2"]
    assert {len(camera["photos"]) for camera in said["cameras"]} == {6}
    for entry in said["photos"]:
        place = int(entry["photo"][1])
        assert entry["camera"] == (None if place == 3 else names[place])
        assert (entry["false_alarm"] <= 1e-6) == (place != 3)
        assert (entry["llr"] > 1) == (place != 3)
        if place != 3:
            assert (entry["row"], entry["column"]) == (0, 0)
    known = said["calibration"]
    assert (known["n_foreign"], known["n_foreign_above"]) == (3 * 6 * 2, 0)
    assert (known["n_same"], known["n_same_below"]) == (3 * 6, 0)
    page = (tmp_path / "run" / "cameras.html").read_bytes()
    assert b"other cameras, from which this cut follows, 0 are above" in page
    assert main(cameras_of(case, tmp_path / "again", "--workers", "1")) == 0
    assert (tmp_path / "again" / "cameras.html").read_bytes() == page
    assert main(cameras_of(case, tmp_path / "run")) == 0  # nothing is computed again
    assert (tmp_path / "run" / "cameras.html").read_bytes() == page
    printed = capsys.readouterr()
    assert "none (nearest: " in printed.out
    assert "of their own camera, 0 do not" in printed.err


@pytest.mark.slow
def test_a_camera_of_two_names_is_said(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at, file in enumerate(sorted((case / "known" / "camera 0").iterdir())):
        (tmp_path / f"part {at % 2}").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / f"part {at % 2}")
    words = ["forensics", "cameras", str(tmp_path / "part*"), str(case / "known" / "camera 1"), "--questioned"]
    words += [str(case / "questioned"), "-o", str(tmp_path / "run"), "--set", "shift=none", "-q", "--json"]
    assert main(words) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note.partition(";")[0] for note in notes] == [
        "photos of 'part 0' that look like those of 'part 1': 3",
        "photos of 'part 1' that look like those of 'part 0': 3",
    ]


@pytest.mark.slow
def test_a_crop_of_the_lower_right_has_a_place_on_the_sensor(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Image.open(max((case / "questioned").glob("q0_*")))  # a bright one
    whole.crop((140, 146, 140 + 112, 146 + 108)).save(tmp_path / "crop.png")
    words = ["forensics", "cameras", str(case / "known" / "*"), "--questioned", str(tmp_path / "crop.png"), "--json"]
    assert main([*words, "-o", str(tmp_path / "run"), "-q"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["photos"]
    assert (entry["camera"], entry["row"], entry["column"]) == ("camera 0", 146, 140)


@pytest.mark.slow
def test_a_table_names_the_cameras(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted((case / "known").glob("*/*.jpg"))
    table = "file,group\n" + "".join(f"{file.name},{file.parent.name[-1]}\n" for file in files)
    (tmp_path / "table.csv").write_text(table)
    words = ["forensics", "cameras", *map(str, files), "--group", str(tmp_path / "table.csv")]
    words += [
        "--questioned",
        str(case / "questioned"),
        "-o",
        str(tmp_path / "run"),
        "--set",
        "shift=none",
        "--json",
        "-q",
    ]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert [camera["name"] for camera in said["cameras"]] == ["0", "1", "2"]
    assert {entry["camera"] for entry in said["photos"] if entry["photo"].startswith("q1")} == {"1"}
    assert said["calibration"]["cut_of_peaks"] is None


@pytest.mark.slow
def test_equal_and_damaged_photos_are_said(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questioned = tmp_path / "questioned"
    questioned.mkdir()
    one = next(iter(sorted((case / "known" / "camera 1").iterdir())))
    shutil.copy(one, questioned / "copy.jpg")
    (questioned / "bad.jpg").write_bytes(one.read_bytes()[:3000])
    words = ["forensics", "cameras", str(case / "known" / "*"), "-o", str(tmp_path / "run"), "--json", "-q"]
    assert main([*words, "--questioned", str(questioned)]) == 3
    bad, copy = json.loads(capsys.readouterr().out)["photos"]
    assert "premature end" in bad["failed"]
    assert copy["equals"] == f"{one.name} of camera 1"
    assert main([*words, "--questioned", str(one)]) == 2
    assert "is questioned, and one of the camera 'camera 1' too" in capsys.readouterr().err
    assert main([*words, "--questioned", str(questioned), "--false-alarm", "2"]) == 2


@pytest.mark.exhaustive
@pytest.mark.slow
def test_flat_photos_of_real_cameras(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four cameras of the Dresden image database, four photos of each for its fingerprint and two in question."""
    files = sorted((shared_data / "photos" / "nikon").glob("*.JPG"))
    if not files:
        pytest.skip("the photos of Nikon cameras are not there")
    taken: dict[str, int] = {}
    (tmp_path / "questioned").mkdir()
    for file in files:
        camera = "_".join(file.name.split("_")[:3])
        taken[camera] = taken.get(camera, 0) + 1
        target = tmp_path / "known" / camera if taken[camera] <= 4 else tmp_path / "questioned"
        target.mkdir(parents=True, exist_ok=True)
        (target / file.name).symlink_to(file)
    words = ["forensics", "cameras", str(tmp_path / "known" / "*"), "--questioned", str(tmp_path / "questioned")]
    assert main([*words, "-o", str(tmp_path / "run"), "--set", "crop=1024", "--json", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["photos"]) == 8
    assert all(entry["photo"].startswith(str(entry["camera"])) for entry in said["photos"])


def put_photos(folder: Path, first: int, n: int) -> Path:
    """Put some small photos of no camera into a folder."""
    folder.mkdir(parents=True)
    for seed in range(first, first + n):
        (folder / f"{seed}.png").write_bytes(as_png(photo(seed)))
    return folder


@pytest.mark.slow
def test_a_case_is_computed_afresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, asked = put_photos(tmp_path / "one", 0, 2), put_photos(tmp_path / "asked", 20, 1)
    page = tmp_path / "run" / "cameras.html"
    words = ["forensics", "cameras", str(known), str(put_photos(tmp_path / "two", 10, 2)), "--questioned", str(asked)]
    words += ["-o", str(tmp_path / "run"), "-q", "--set", "shift=none"]
    assert main(words) == 0
    (asked / "more.png").write_bytes(as_png(photo(21)))
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "`--overwrite`" in said
    assert "tartan add" not in said  # which takes no items here
    assert "more.png" not in page.read_text()
    (tmp_path / "run" / "validation" / "mine.txt").write_text("")
    assert main([*words, "--overwrite"]) == 2
    assert "besides a run it holds mine.txt" in capsys.readouterr().err
    (tmp_path / "run" / "validation" / "mine.txt").unlink()
    (tmp_path / "run" / "mine.txt").write_text("")
    assert main([*words, "--overwrite"]) == 2
    assert page.exists()
    (tmp_path / "run" / "mine.txt").unlink()
    assert main([*words, "--overwrite"]) == 0
    assert "more.png" in page.read_text()


@pytest.mark.slow
def test_what_speaks_against_decisions_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = (put_photos(tmp_path / name, 10 * at, 2) for at, name in enumerate(("one", "<b>two", "three")))
    asked = put_photos(tmp_path / "asked", 40, 1)
    (asked / "40.png").rename(asked / "a\u202e\n<b>.png")
    shutil.copy(one / "1.png", two / "copy.png")
    (three / "21.png").write_bytes(b"")
    words = ["forensics", "cameras", str(one), str(two), str(three), "--questioned", str(asked), "--set", "shift=none"]
    assert main([*words, "-o", str(tmp_path / "run"), "-q"]) == 3
    printed = capsys.readouterr()
    assert [line for line in printed.out.splitlines() if line.startswith("a\\u202e\\n<b>.png ")]
    assert "warning: camera 'three' could not be compared with any photo" in printed.err
    page = (tmp_path / "run" / "cameras.html").read_text()
    assert "<b>" not in page
    assert "\u202e" not in page
    assert page.count("<strong>Note</strong>") == 2
    assert main([*words, "-o", str(tmp_path / "run"), "-q", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert "21.png: the file is empty" in said["cameras"][2]["failed"]
    assert "'1.png' of 'one' and 'copy.png' of '<b>two' are one photo" in said["notes"][1]
    assert main([*words, "-o", str(tmp_path / "likely"), "-q", "--false-alarm", "0.49"]) == 3
    assert "look like" not in capsys.readouterr().err  # which half of all photos would then
    assert main([*words[:2], str(one), *words[5:], "-o", str(tmp_path / "alone"), "-q"]) == 0
    assert "nothing is known of photos of other cameras" in capsys.readouterr().err


@pytest.mark.slow
def test_copies_of_a_photo_are_no_other_photos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy in the other half would be compared with itself."""
    one, two = put_photos(tmp_path / "one", 0, 3), put_photos(tmp_path / "two", 10, 2)
    asked = put_photos(tmp_path / "asked", 40, 1)
    words = ["forensics", "cameras", str(one), str(two), "--questioned", str(asked), "--set", "shift=none", "--json"]
    assert main([*words, "-o", str(tmp_path / "run"), "-q"]) == 0
    wanted = json.loads(capsys.readouterr().out)["calibration"]
    shutil.copy(one / "0.png", one / "0 copy.png")
    assert main([*words, "-o", str(tmp_path / "again"), "-q"]) == 0
    found = json.loads(capsys.readouterr().out)["calibration"]
    assert (wanted["n_same"], wanted["n_foreign"]) == (5, 5)
    assert max(found["same"]) == pytest.approx(max(wanted["same"]), rel=1e-3)
    assert found == wanted


@pytest.mark.parametrize("name", ["cameras.html", "validation"])
def test_links_in_the_folder_of_a_case_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = ["forensics", "cameras", str(put_photos(tmp_path / "one", 0, 2)), "--questioned"]
    words += [str(put_photos(tmp_path / "asked", 40, 1)), "--set", "shift=none", "-o", str(tmp_path / "run"), "-q"]
    assert main(words) == 0
    (tmp_path / "run" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    for more in ([], ["--overwrite"]):
        assert main([*words, *more]) != 0
        assert name in capsys.readouterr().err
    assert (tmp_path / "run" / name).is_symlink()


def test_no_chance_is_zero() -> None:
    assert [format_chance(chance) for chance in (0.0, 1e-310, 2e-7, 1.0)] == ["< 1e-300", "< 1e-300", "2e-07", "1"]


def test_parameters_without_meaning_are_refused() -> None:
    for wrong in ({"shift": "some"}, {"frame": "10"}, {"crop": "x"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Cameras(**wrong)
    assert Forensics(score="pce").parameters()["score"] == "pce"


def test_areas_have_neighbours_and_blocks_around_them() -> None:
    ends = np.zeros((60, 70), bool)
    ends[5, 5] = ends[50, 60] = ends[50, 62] = True  # single ones
    assert find_areas(ends) is None
    ends[30:33, 20:40] = True
    wanted = np.zeros_like(ends)
    wanted[22:41, 12:48] = True
    assert np.array_equal(np.asarray(find_areas(ends)), wanted)
    assert find_areas(np.zeros((60, 70), bool)) is None
    bright = np.random.default_rng(1).random((400, 400)) < 0.03
    assert (areas := find_areas(bright)) is None or areas.mean() < 0.2


def test_areas_are_filled_without_an_outline() -> None:
    grey = np.arange(2000, 2000 + 40 * 50).reshape(40, 50).astype(np.uint16)
    wanted = grey.copy()
    areas = np.zeros(grey.shape, bool)
    areas[10:20, 15:30] = True
    grey[areas] = 65535
    fill_areas(grey, areas)
    assert np.array_equal(grey, wanted)  # linear along rows
    areas[:4] = areas[36:] = True
    grey[areas] = 0
    fill_areas(grey, areas)
    assert np.array_equal(grey[3], grey[4])
    assert np.array_equal(grey[36], grey[35])
    kept = grey.copy()
    fill_areas(grey, np.ones_like(areas))  # nothing is beside them: the photo fails as flat
    assert np.array_equal(grey, kept)


def test_colours_with_a_full_and_a_missing_one_are_ends() -> None:
    colours = {(255, 255, 255): True, (0, 0, 0): True, (255, 160, 0): True, (255, 0, 0): True, (250, 251, 252): True,
               (120, 130, 140): False, (230, 140, 70): True, (80, 210, 60): True, (60, 120, 230): False,
               (230, 150, 112): False, (190, 60, 30): False,
               (255, 200, 150): False, (0, 0, 90): False, (3, 0, 5): True, (30, 0, 0): False}  # fmt: skip
    found = find_ends(np.array([list(colours)], np.uint8))
    assert found[0].tolist() == list(colours.values())
    assert find_ends(np.array([[65000, 30000, 300]], np.uint16)).tolist() == [[True, False, True]]


@pytest.mark.exhaustive
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("drawn", "before", "after"), [("letters", 500, 90), ("disc", 100, 30), ("frame", 20, 20)])
def test_what_is_drawn_over_photos_does_not_join_them(tmp_path: Path, drawn: str, before: int, after: int) -> None:
    """The same letters, disc and frame on photos of four cameras; PCE of unlike ones with and without filling."""
    simulate(tmp_path, 16, 5, cameras=4, size=512, quality=90, flats=0, prnu=0.06)
    truth = json.loads((tmp_path / "truth.json").read_text())
    cameras_of_photos = truth.get("cameras", truth)
    app, filled, plain, whose = Forensics(score="pce"), [], [], []
    for file in sorted(tmp_path.glob("*.jpg")):
        image = Image.open(file).convert("RGB")
        pen = ImageDraw.Draw(image)
        if drawn == "letters":
            pen.text((40, 40), "(c) Photo Agency Ltd", fill="white", font=ImageFont.load_default(size=44))
        if drawn == "disc":
            pen.ellipse((180, 180, 330, 330), fill="white")
        if drawn == "frame":
            pen.rectangle((0, 0, 511, 511), outline="black", width=30)
        with io.BytesIO() as jpeg:
            image.save(jpeg, "JPEG", quality=90)
            filled.append(app.preprocess(app.parse(file.name, jpeg.getvalue()), np))
            plain.append(app.preprocess(decode_photo(app, file.name, jpeg.getvalue())[0], np))
        whose.append(cameras_of_photos[file.name])
    found, otherwise = (app.compare(np.stack(some), np.stack(some), np)["scores"] for some in (filled, plain))
    other = np.not_equal.outer(whose, whose)
    assert otherwise[other].max() > before
    assert found[other].max() < after
    labels = cameras(found, 60.0)
    assert len(set(labels)) == len(set(zip(whose, labels))) == 4


@pytest.mark.slow
def test_a_small_sensor_in_a_large_frame_scores_as_in_a_frame_of_its_own() -> None:
    """Photos of other cameras have a spread of 1 whatever the sizes; the right camera's PCE stays."""
    rng = np.random.default_rng(1)
    frame, small = (128, 192), (64, 96)
    photos = rng.normal(size=(60, *small)).astype(np.float32)
    patterns = rng.normal(size=(20, *small)).astype(np.float32)
    of_first = (patterns[0] + 3 * rng.normal(size=small)).astype(np.float32)
    found = {}
    for name, app in (("own", Cameras()), ("large", Cameras(frame="128x192"))):
        framed = []
        for pattern in patterns:
            wide = np.full(frame, np.nan, np.float32)
            wide[: small[0], : small[1]] = pattern
            framed.append(wide if name == "large" else pattern)
        left = np.stack([app.preprocess(one, np) for one in framed])
        right = np.stack([app.preprocess(one, np) for one in (of_first, *photos)])
        found[name] = app.compare(left, right, np)
    for name in ("own", "large"):
        t = np.sqrt(np.abs(found[name]["scores"][:, 1:]))
        assert 0.9 < np.sqrt(np.mean(t**2)) < 1.1
    right, wanted = (found[name]["scores"][0, 0] for name in ("large", "own"))
    assert wanted > 150
    assert 0.8 < right / wanted < 1.25
    assert (found["large"]["row"][0, 0], found["large"]["column"][0, 0]) == (0, 0)


def test_a_fingerprint_below_the_frame_ends_with_its_sensor() -> None:
    files = [(f"{at}.png", as_png(photo(at))) for at in range(2)]
    framed = Cameras(frame="80x100").group("c", files)
    whole = Cameras().group("c", files)
    np.testing.assert_array_equal(framed[:64, :80], whole)
    assert np.isnan(framed[64:]).all()
    assert np.isnan(framed[:, 80:]).all()
    with pytest.raises(ItemError, match="are more than the sensor"):
        Cameras(frame="32x32").group("c", files)
