"""Forensics: formats, options, damaged files, cameras, and the scores of real photos."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import tartan
from tartan.analytics import cluster
from tartan.apps.forensics.app import Forensics, cameras, decode_photo, ncc_threshold
from tartan.apps.forensics.flatness import find_flat_share
from tartan.apps.forensics.headers import photo_size
from tartan.apps.forensics.prnu import pce
from tartan.apps.forensics.simulate import simulate
from tartan.base.notices import RunNotice
from tartan.errors import ConfigError, ItemError


def picture(height: int = 48, width: int = 64, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 200, width)[None, :, None] + np.zeros((height, 1, 3))
    return (ramp + rng.integers(0, 40, (height, width, 3))).astype(np.uint8)


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    return bytes(simplejpeg.encode_jpeg(pixels, quality=90, **options))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def with_jpeg_size(data: bytes, height: int, width: int) -> bytes:
    """Rewrite the dimensions in the frame header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def png_of_size(height: int, width: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    chunks = [header, b"IDAT" + body, b"IEND"]
    framed = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


# --- formats ---


def test_jpeg_becomes_grey_in_fine_steps() -> None:
    data = jpeg(picture())
    expected = simplejpeg.decode_jpeg(data) @ np.array([0.299, 0.587, 0.114])
    grey = Forensics().parse("a.jpg", data)
    assert grey.dtype == np.uint16
    assert grey.shape == (48, 64)
    np.testing.assert_allclose(grey / 257, expected, atol=0.51 / 257 + 1e-4)


def test_white_is_the_largest_value() -> None:
    assert Forensics().parse("a.bmp", saved(Image.new("RGB", (20, 20), "white"), "BMP")).min() == 65535


def test_grey_jpeg() -> None:
    data = jpeg(np.ascontiguousarray(picture()[..., :1]), colorspace="GRAY", colorsubsampling="Gray")
    expected = simplejpeg.decode_jpeg(data, "GRAY")[..., 0]
    np.testing.assert_array_equal(Forensics().parse("a.jpg", data), expected.astype(np.uint16) * 257)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(k, m) for k in ("PNG", "TIFF", "BMP") for m in ("RGB", "L", "P", "1", "RGBA") if (k, m) != ("BMP", "RGBA")],
)
def test_other_formats(kind: str, mode: str) -> None:
    image = Image.fromarray(picture()).convert(mode)
    expected = np.asarray(image.convert("RGB")) @ np.array([0.299, 0.587, 0.114])
    grey = Forensics().parse("a", saved(image, kind))
    np.testing.assert_allclose(grey / 257, expected, atol=0.01)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_stays(kind: str) -> None:
    deep = np.random.default_rng(0).integers(3000, 60_000, (32, 40)).astype(np.uint16)  # nothing is clipped
    np.testing.assert_array_equal(Forensics().parse("a", saved(Image.fromarray(deep), kind)), deep)


def test_pixels_without_a_range_are_refused() -> None:
    data = saved(Image.fromarray(np.ones((32, 32), np.float32)), "TIFF")
    with pytest.raises(ItemError, match=r"a.tif: pixels of mode F.*convert"):
        Forensics().parse("a.tif", data)


def test_exif_rotation_is_ignored() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(picture())
    turned, plain = saved(image, "JPEG", exif=exif), saved(image, "JPEG")
    np.testing.assert_array_equal(Forensics().parse("a", turned), Forensics().parse("a", plain))


def test_memory_views_are_read() -> None:
    data = jpeg(picture())
    np.testing.assert_array_equal(Forensics().parse("a", memoryview(data)), Forensics().parse("a", data))


# --- crop ---


@pytest.mark.parametrize(
    ("crop", "rows", "columns"),
    [(20, slice(14, 34), slice(22, 42)), ("20", slice(14, 34), slice(22, 42)), ("16x48", slice(16, 32), slice(8, 56))],
)
def test_crop_takes_the_centre(crop: int | str, rows: slice, columns: slice) -> None:
    data = jpeg(picture())
    np.testing.assert_array_equal(Forensics(crop=crop).parse("a", data), Forensics().parse("a", data)[rows, columns])


def test_a_crop_of_photos_that_lie_the_other_way_is_turned_with_them() -> None:
    lying, standing = picture(48, 64), np.rot90(picture(48, 64), -1)
    for crop in ("16x48", "32"):
        found = [Forensics(crop=crop).parse("a", saved(Image.fromarray(np.ascontiguousarray(one)), "PNG"))
                 for one in (lying, standing)]  # fmt: skip
        np.testing.assert_array_equal(found[1], found[0][None])
    upright = Forensics(crop="48x16").parse("a", saved(Image.fromarray(np.ascontiguousarray(standing)), "PNG"))
    np.testing.assert_array_equal(upright, np.rot90(Forensics(crop="16x48").parse("a", jpeg_free(lying)), -1))


def jpeg_free(pixels: np.ndarray) -> bytes:
    return saved(Image.fromarray(pixels), "PNG")


def test_photos_of_unlike_size_become_equal_by_crop() -> None:
    app = Forensics(crop="32x40")
    shapes = {app.parse("a", jpeg(picture(*size))).shape[-2:] for size in [(48, 64), (50, 41), (32, 40)]}
    assert shapes == {(32, 40)}


@pytest.mark.parametrize("data", [jpeg(picture()), saved(Image.fromarray(picture()), "PNG")])
def test_a_crop_larger_than_the_photo_is_an_error(data: bytes) -> None:
    with pytest.raises(ItemError, match=r"b: crop=64x64 .* larger than the photo of 64 x 48 pixels.*smaller crop"):
        Forensics(crop=64).parse("b", data)


def test_a_tiny_photo_is_an_error() -> None:
    with pytest.raises(ItemError, match="64 x 8 pixels are too few"):
        Forensics().parse("b", jpeg(picture(8, 64)))


def test_pce_takes_all_columns_of_an_odd_width() -> None:
    data = jpeg(picture(48, 65))
    np.testing.assert_array_equal(Forensics(score="pce").parse("a", data), Forensics().parse("a", data))


# --- damaged and hostile files ---


@pytest.mark.parametrize("data", [b"", memoryview(b"")])
def test_an_empty_file(data: Any) -> None:
    with pytest.raises(ItemError, match=r"a.jpg: the file is empty"):
        Forensics().parse("a.jpg", data)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF"])
def test_a_truncated_file_fails(kind: str, share: float) -> None:
    data = saved(Image.fromarray(picture(200, 200)), kind)
    with pytest.raises(ItemError, match=r"^cut: damaged or truncated [^\n]+$"):
        Forensics().parse("cut", data[: int(len(data) * share)])


def test_a_jpeg_without_its_end_marker_has_all_its_pixels() -> None:
    whole = jpeg(picture())
    np.testing.assert_array_equal(Forensics().parse("cut", whole[:-2]), Forensics().parse("whole", whole))


@pytest.mark.parametrize("cut", [4, 5, 9, 40, 400])
def test_a_jpeg_without_its_last_pixels_fails(cut: int) -> None:
    with pytest.raises(ItemError, match="damaged or truncated JPEG"):
        Forensics().parse("cut", jpeg(picture())[:-cut])


def test_a_progressive_jpeg_without_its_end_fails() -> None:
    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "JPEG", progressive=True)
    with pytest.raises(ItemError, match="Premature end"):
        Forensics().parse("cut", file.getvalue()[:-2])


@pytest.mark.parametrize("n_bytes", [1, 2, 16, 5000])
def test_bytes_between_the_last_block_and_the_end_cost_no_pixel(n_bytes: int) -> None:
    whole = jpeg(picture())
    more = whole[:-2] + np.random.default_rng(n_bytes).integers(0, 255, n_bytes, np.uint8).tobytes() + whole[-2:]
    np.testing.assert_array_equal(Forensics().parse("more", more), Forensics().parse("whole", whole))


def test_fields_of_the_scan_that_a_firmware_leaves_empty_cost_no_pixel() -> None:
    whole = jpeg(picture())
    at = whole.rindex(b"\xff\xda")
    last = at + 2 + int.from_bytes(whole[at + 2 : at + 4], "big")
    assert whole[last - 3 : last] == bytes([0, 63, 0])
    odd = whole[: last - 3] + bytes(3) + whole[last:]
    with pytest.raises(ValueError, match="Invalid SOS parameters"):
        simplejpeg.decode_jpeg(odd, strict=True)
    np.testing.assert_array_equal(Forensics().parse("odd", odd), Forensics().parse("whole", whole))


def test_all_that_happens_together_is_undone() -> None:
    whole = jpeg(picture())
    at = whole.rindex(b"\xff\xda")
    last = at + 2 + int.from_bytes(whole[at + 2 : at + 4], "big")
    odd = whole[: last - 3] + bytes(3) + whole[last:-2] + bytes(40) + whole[-2:]
    np.testing.assert_array_equal(Forensics().parse("odd", odd), Forensics().parse("whole", whole))


@pytest.mark.parametrize("data", [b"hello, I am text", b"\x00" * 100, b"GIF89a......", b"\xff"])
def test_what_is_no_image(data: bytes) -> None:
    with pytest.raises(ItemError, match=r"notes.jpg: not a JPEG, PNG, TIFF or BMP image \(it begins with"):
        Forensics().parse("notes.jpg", data)


@pytest.mark.parametrize("start", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\0", b"BM"])
def test_noise_behind_a_right_beginning_fails(start: bytes) -> None:
    noise = np.random.default_rng(1).bytes(500)
    with pytest.raises(ItemError, match="noise: damaged"):
        Forensics().parse("noise", start + noise)


@pytest.mark.parametrize(
    "data", [with_jpeg_size(jpeg(picture()), 65000, 65000), png_of_size(65000, 65000)], ids=["jpeg", "png"]
)
def test_a_bomb_is_refused_before_it_is_decoded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(ItemError, match=r"bomb: 65000 x 65000 pixels.*max_megapixels=250 ") as caught:
        Forensics().parse("bomb", data)
    assert caught.value.context["option"] == "max_megapixels"


def test_the_limit_can_be_set() -> None:
    data = jpeg(picture(100, 100))
    assert Forensics(max_megapixels="0.01").parse("a", data).shape == (100, 100)
    with pytest.raises(ItemError, match=r"max_megapixels=0.0099"):
        Forensics(max_megapixels=0.0099).parse("a", data)


# --- options ---


def test_parameters_are_recorded_in_one_form() -> None:
    expected = {"crop": "1024x1024", "score": "ncc", "turns": None, "shift": None, "max_megapixels": 250}
    for crop in (1024, "1024", "1024x1024", " 1024 X 1024 "):
        assert Forensics(crop=crop).parameters() == expected
    assert Forensics(turns="none", shift="none").parameters() == Forensics().parameters()
    assert Forensics(**Forensics(crop=64, score="pce").parameters()).parameters()["score"] == "pce"


@pytest.mark.parametrize("crop", ["big", "12x", "-64", 0, 15, "16x15", 64.0, True, "1x2x3", ""])
def test_a_crop_that_is_none(crop: Any) -> None:
    with pytest.raises(ConfigError, match="crop:"):
        Forensics(crop=crop)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "psnr"}, "score: 'psnr'"),
        ({"max_megapixels": 0}, "max_megapixels: 0"),
        ({"max_megapixels": "many"}, "max_megapixels: 'many'"),
        ({"max_megapixels": float("inf")}, "max_megapixels: inf"),
        ({"max_megapixels": None}, "max_megapixels: None"),
        ({"turns": "two"}, "turns: 'two'"),
        ({"shift": 3}, "shift: 3"),
        ({"shift": "all", "score": "ncc"}, "leave out score=ncc"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Forensics(**options)


def test_outputs() -> None:
    assert list(Forensics().outputs) == ["scores"]
    assert list(Forensics(score="pce").outputs) == ["scores", "ncc"]


# --- comparison ---


def items(app: Forensics, *seeds: int) -> np.ndarray:
    return np.stack([app.preprocess(app.parse("a", jpeg(picture(seed=seed))), np) for seed in seeds])


def test_a_tile_of_ncc_is_the_matrix_of_cosines() -> None:
    app = Forensics()
    tile = items(app, 1, 2, 3)
    scores = app.compare(tile[:2], tile, np)
    assert scores.dtype == np.float32
    expected = [[np.sum(a.astype(float) * b) / np.linalg.norm(a) / np.linalg.norm(b) for b in tile] for a in tile[:2]]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_pce_brings_both_scores() -> None:
    app = Forensics(score="pce")
    tile = items(app, 1, 2)
    scores = app.compare(tile, tile, np)
    plain = Forensics()
    np.testing.assert_allclose(scores["ncc"], plain.compare(items(plain, 1, 2), items(plain, 1, 2), np), atol=1e-6)
    assert scores["scores"][0, 0] == pytest.approx(pce(*items(plain, 1, 1)).pce0, rel=1e-3)


@pytest.mark.parametrize("score", ["ncc", "pce"])
def test_a_flat_photo_says_so(score: str) -> None:
    app = Forensics(score=score)
    flat = app.preprocess(app.parse("a", jpeg(np.full((40, 40, 3), 90, np.uint8))), np)
    assert "flat" in str(app.describe_failure(flat))
    assert app.describe_failure(items(app, 1)[0]) is None


# --- cameras ---


def test_cameras_are_numbered_by_appearance() -> None:
    owner = np.array([2, 0, 2, 1, 0, 1])
    scores = np.where(owner[:, None] == owner, 0.05, 0.001)
    assert cameras(scores, n_pixels=512 * 512).tolist() == [0, 1, 0, 2, 1, 2]
    assert cameras(scores, 0.06).tolist() == [0, 1, 2, 3, 4, 5]
    assert cameras(scores, 0.0005).tolist() == [0] * 6


def test_failed_photos_belong_to_no_camera() -> None:
    scores = np.full((4, 4), 100.0)
    scores[1] = scores[:, 1] = np.nan
    scores[0, 2] = scores[2, 0] = np.nan  # one failed pair says nothing about its photos
    assert cameras(scores, 30).tolist() == [0, -1, 0, 0]
    assert cameras(np.full((2, 2), np.nan), 60).tolist() == [-1, -1]


def test_one_photo_is_one_camera() -> None:
    assert cameras(np.array([[np.nan]]), 60).tolist() == [0]
    assert cameras(np.empty((0, 0)), 60).tolist() == []


def test_the_matrix_is_left_alone() -> None:
    scores = np.eye(3)
    cameras(scores, 0.5)
    np.testing.assert_array_equal(scores, np.eye(3))


def test_cameras_needs_a_rule_and_a_square() -> None:
    with pytest.raises(ConfigError, match="threshold, or n_pixels"):
        cameras(np.eye(3))
    with pytest.raises(ConfigError, match=r"\(2, 3\)"):
        cameras(np.ones((2, 3)), 60)
    with pytest.raises(ConfigError, match="n_pixels: 0"):
        ncc_threshold(0)


def test_the_threshold_is_a_pce_of_sixty() -> None:
    assert ncc_threshold(1024 * 1024) ** 2 * 1024 * 1024 == pytest.approx(60)


# --- real photos ---


@pytest.fixture
def one_blas_thread() -> Iterator[None]:
    """As in a run: many threads for small products only stand in each other's way."""
    with threadpool_limits(1, user_api="blas"):
        yield


def load(app: Forensics, files: list[Path]) -> np.ndarray:
    return np.stack([app.preprocess(app.parse(f.name, f.read_bytes()), np) for f in files])


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("quality", [60, 30])
@pytest.mark.parametrize("size", ["half", "crop", "whole"])
def test_recompressed_flats_are_refused(shared_data: Path, size: str, quality: int) -> None:
    """Taken for whole, pairs of unlike cameras among them have a PCE of up to 302."""
    for photo in sorted((shared_data / "photos" / "nikon").glob("*.JPG"))[::2]:
        image = Image.open(photo).convert("RGB")
        if size == "half":
            image = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
        elif size == "crop":
            left, top = (image.width - 1024) // 2, (image.height - 1024) // 2
            image = image.crop((left, top, left + 1024, top + 1024))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        with pytest.raises(ItemError, match=r"strong compression has left [4-9]\d% of the photo flat"):
            Forensics().parse(photo.name, file.getvalue())


def test_flatness_by_compression_is_refused_and_that_of_light_is_not() -> None:
    rng = np.random.default_rng(0)
    noisy = np.clip(rng.normal(128, 3, (256, 256)), 0, 255).astype(np.uint8)
    flat = noisy.copy()
    flat[:, :110] = 128
    white, dark = noisy.copy(), noisy.copy()
    white[:, :200] = 255
    dark[:, :] = rng.integers(0, 2, dark.shape)
    for data in (noisy, white, dark):
        Forensics().parse("photo", saved(Image.fromarray(data), "PNG"))
    with pytest.raises(ItemError, match=r"^photo: strong compression has left 4\d% .*as the camera saved it$"):
        Forensics().parse("photo", saved(Image.fromarray(flat), "PNG"))
    Forensics().parse("photo", saved(Image.fromarray(flat.astype(np.uint16) * 257), "PNG"))


def test_the_flat_share_is_that_of_the_windows() -> None:
    rng = np.random.default_rng(1)
    grey = (rng.integers(0, 30, (2060, 700)) // 20 + rng.integers(0, 2, (2060, 1)) * 40 + 20).astype(np.uint16)
    windows = np.lib.stride_tricks.sliding_window_view(grey[:, :], (6, 6))[::4, ::4]
    low, high = windows.min(axis=(2, 3)), windows.max(axis=(2, 3))
    expected = np.mean(high - low <= 1)
    assert find_flat_share(grey * np.uint16(257)) == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("one_blas_thread")
def test_four_nikons_separate(shared_data: Path) -> None:
    files = sorted((shared_data / "photos" / "nikon").glob("*.JPG"))
    owner = np.array([f.name.rsplit("_", 1)[0] for f in files])
    same = owner[:, None] == owner
    expected = np.unique(owner, return_inverse=True)[1].tolist()
    assert len(files) == 24
    tile = load(app := Forensics(crop=1024), files)
    ncc = app.compare(tile, tile, np)
    assert ncc[same].min() >= 0.0122
    assert ncc[~same].max() <= 0.0060
    assert cameras(ncc, n_pixels=1024 * 1024).tolist() == expected
    for formula in ("1-s", "max-s"):
        found = cluster((ncc + ncc.T) / 2, distance=formula)
        assert found.n_clusters == 4
        assert adjusted_rand_score(expected, found.labels) == 1.0
    tile = load(app := Forensics(crop=1024, score="pce"), files)
    assert cameras(app.compare(tile, tile, np)["scores"], 60).tolist() == expected


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("one_blas_thread")
def test_pentax_scores(shared_data: Path) -> None:
    files = sorted((shared_data / "photos" / "pentax").glob("*.JPG"))
    assert [f.stem[-7:] for f in files] == ["0_30731", "0_30757", "1_31261", "1_31282"]
    app = Forensics(score="pce")
    filled = load(app, files)
    clipped = app.compare(filled, filled, np)["scores"]
    assert clipped[0, 1] > 70  # of the second photo 3 % are clipped, and tell nothing
    tile = np.stack([app.preprocess(decode_photo(app, file.name, file.read_bytes())[0], np) for file in files])
    scores = app.compare(tile, tile, np)
    assert scores["ncc"][0, 1] == pytest.approx(0.003348, rel=0.02)
    assert scores["ncc"][2, 3] == pytest.approx(0.001721, rel=0.02)
    assert scores["scores"][0, 1] == pytest.approx(84.96, rel=0.02)
    assert scores["scores"][2, 3] == pytest.approx(21.88, rel=0.02)
    assert np.abs(scores["ncc"][:2, 2:]).max() <= 0.000687 * 1.02
    assert np.abs(scores["scores"][:2, 2:]).max() <= 3.07 * 1.02
    app = Forensics()
    plain = np.stack([app.preprocess(decode_photo(app, file.name, file.read_bytes())[0], np) for file in files[:2]])
    assert app.compare(plain[:1], plain[1:], np)[0, 0] == pytest.approx(0.003348, rel=0.02)


# --- sizes from headers ---


def photos(folder: Path, sizes: list[tuple[int, int]]) -> str:
    """Write photos whose pixels cannot be decoded: only their headers are good."""
    folder.mkdir()
    for index, (height, width) in enumerate(sizes):
        data = with_jpeg_size(jpeg(picture()), height, width)
        (folder / f"{index:02}.jpg").write_bytes(data[: data.index(b"\xff\xda")])
    return str(folder / "*.jpg")


def test_photos_of_unlike_size_are_named_and_do_not_stop_a_run(tmp_path: Path) -> None:
    app = Forensics()
    folder = Path(photos(tmp_path / "in", [(3000, 4001)] * 5 + [(4000, 3000), (2000, 9000), (4001, 3000)])).parent
    notes = app.check_files(checked(folder))
    assert (app.score, app.ragged) == ("pce", True)
    assert "photos of 2 sizes" in notes[-1]
    assert "7 of 4000 x 3000 pixels, 1 of 9000 x 2000 pixels; pairs of different size are not compared" in notes[-1]
    assert notes[-1].endswith("compared with none: 06.jpg (9000 x 2000)")
    app.check_files(list(checked(folder))[:5])  # asked again, of photos of one size
    assert (app.score, app.ragged) == ("ncc", None)
    cropped = Forensics(crop=2000)
    assert "sizes" not in " ".join(cropped.check_files(checked(folder)))
    assert (cropped.score, cropped.ragged) == ("ncc", True)  # some stand


def checked(folder: Path) -> list[tuple[str, Any]]:
    return [(file.name, io.BytesIO(file.read_bytes())) for file in sorted(folder.iterdir())]


def test_added_photos_of_another_size_fail_by_name(tmp_path: Path) -> None:
    first, other = tmp_path / "first.jpg", tmp_path / "other.jpg"
    first.write_bytes(jpeg(picture()))
    (tmp_path / "second.jpg").write_bytes(jpeg(picture(seed=1)))
    other.write_bytes(jpeg(picture(46)))
    run = tartan.allpairs(Forensics(), [str(first), str(tmp_path / "second.jpg")], tmp_path / "run", workers=1)
    added = tartan.add(run.path, [str(other)], on_error="skip")
    assert added.n_items == 3
    assert "other.jpg" in added.failures[0].reason
    assert "float32 (46, 64) where the items of this run are float32 (48, 64)" in added.failures[0].reason


def test_photos_of_any_size_are_added_to_a_run_of_several(tmp_path: Path) -> None:
    for seed, height in enumerate((48, 48, 40, 40)):
        (tmp_path / f"{seed}.png").write_bytes(saved(Image.fromarray(picture(height, seed=seed)), "PNG"))
    with pytest.warns(RunNotice, match="photos of 2 sizes"):
        run = tartan.allpairs(Forensics(), [str(tmp_path / f"{k}.png") for k in (0, 1, 2)], tmp_path / "run")
    assert run.manifest.application["parameters"]["score"] == "pce"
    with pytest.warns(RunNotice, match="2 of 64 x 48 pixels, 2 of 64 x 40 pixels"):
        run = tartan.add(run.path, [str(tmp_path / "3.png")])
    found = run.matrix("ncc", diagonal=0.0)
    assert (found != 0).sum() == 4
    assert found[2, 3] != 0
    assert "2 of 64 x 40" in run.manifest.notes[0]
    given = [str(tmp_path / f"{number}.png") for number in range(4)]
    with pytest.warns(RunNotice, match="photos of 2 sizes"):
        again = tartan.allpairs(Forensics(), given, tmp_path / "all")
    np.testing.assert_allclose(again.matrix("ncc", diagonal=0.0), found, atol=1e-6)
    assert tartan.allpairs(Forensics(), given, tmp_path / "all").found_finished


def test_a_photo_whose_header_is_damaged_fails_alone(tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.mkdir()
    for index in range(3):
        (given / f"{index}.jpg").write_bytes(jpeg(picture(seed=index)))
    (given / "3.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (given / "4.png").write_bytes(b"\x89PNG\r\n")
    run = tartan.allpairs(Forensics(), str(given), tmp_path / "run", workers=1)
    assert [failure.i for failure in run.failures] == [3, 4]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("jpeg", jpeg(picture())),
        ("grey jpeg", jpeg(picture()[..., :1].copy(), colorspace="GRAY")),
        ("progressive", saved(Image.fromarray(picture()), "JPEG", progressive=True)),
        ("png", saved(Image.fromarray(picture()), "PNG")),
        ("tiff", saved(Image.fromarray(picture()), "TIFF")),
        ("bmp", saved(Image.fromarray(picture()), "BMP")),
        ("padded", b"\xff\xd8\xff\xff" + jpeg(picture())[2:]),
        ("exif", b"\xff\xd8\xff\xe1\xff\xfe" + bytes(65532) + jpeg(picture())[2:]),
    ],
)
def test_the_header_of_every_format_says_the_size(kind: str, data: bytes) -> None:
    assert photo_size(io.BytesIO(data)) == (48, 64), kind


@given(st.binary(max_size=64), st.sampled_from([b"", b"\xff\xd8\xff", b"II*\0", b"BM", b"\x89PNG\r\n\x1a\n"]))
def test_whatever_a_file_begins_with_has_a_size_or_none(rest: bytes, start: bytes) -> None:
    found = photo_size(io.BytesIO(start + rest))
    assert found is None or min(found) >= 0


def with_sub_image(width: int, height: int) -> bytes:
    """Return a TIFF of 64 x 48 pixels with a SubIFD that says another size."""

    def saved_at(offset: int) -> bytes:
        stream = io.BytesIO()
        Image.fromarray(np.zeros((48, 64), np.uint8)).save(stream, "TIFF", tiffinfo={330: offset})
        return stream.getvalue() + bytes(len(stream.getvalue()) % 2)

    entries = [struct.pack("<HHII", tag, 4, 1, side) for tag, side in ((256, width), (257, height))]
    return saved_at(len(saved_at(1 << 20))) + struct.pack("<H", 2) + b"".join(entries) + bytes(4)


def test_thumbnails_of_raw_files_are_refused() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(stream, "TIFF", tiffinfo={254: 1})
    for data in (stream.getvalue(), with_sub_image(640, 480)):
        with pytest.raises(ItemError, match=r"a.NEF: its first image, of 64 x 48 pixels, is the thumbnail .* develop"):
            Forensics().parse("a.NEF", data)
        assert photo_size(io.BytesIO(data)) is None


def test_smaller_images_beside_the_first_are_left_alone() -> None:
    data = with_sub_image(32, 24)
    assert Forensics().parse("a.tif", data).shape == photo_size(io.BytesIO(data)) == (48, 64)


def with_first_tags(*tags: tuple[int, int, int]) -> bytes:
    """Return a TIFF of 64 x 48 grey pixels whose first directory says these (tag, type, value), by hand."""
    entries = {256: (4, 64), 257: (4, 48), 258: (3, 8), 259: (3, 1), 262: (3, 1), 273: (4, 8), 278: (4, 48)}
    entries |= {279: (4, 64 * 48), **{tag: (kind, value) for tag, kind, value in tags}}
    listed = [struct.pack("<HHII", tag, kind, 1, value) for tag, (kind, value) in sorted(entries.items())]
    directory = struct.pack("<H", len(listed)) + b"".join(listed) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + 64 * 48) + bytes(range(256)) * 12 + directory


@pytest.mark.skipif(find_spec("rawpy") is not None, reason="rawpy develops them")
@pytest.mark.parametrize("tag", [(262, 3, 32803), (262, 3, 34892), (259, 3, 34713), (259, 3, 32767), (259, 3, 65535)])
def test_sensor_data_is_refused_by_what_the_first_directory_says(tag: tuple[int, int, int]) -> None:
    assert Forensics().parse("a.tif", with_first_tags()).shape == (48, 64)
    with pytest.raises(ItemError, match=r"a.PEF: it holds sensor data \(RAW\).*tartan-allpairs\[raw\].*develop"):
        Forensics().parse("a.PEF", with_first_tags(tag))
    assert photo_size(io.BytesIO(with_first_tags(tag))) is None


def dng(pixels: np.ndarray, orientation: int) -> bytes:
    """Write sensor data (h, w) of 12 bits as the smallest DNG that LibRaw develops: one directory and one strip."""
    height, width = pixels.shape
    colours = [
        number for top in (19549, -7877, -2582, -5724, 10121, 1917, -1267, -110, 6621) for number in (top, 10000)
    ]
    tags: list[tuple[int, int, int, bytes]] = [
        *((tag, 4, 1, struct.pack("<I", value)) for tag, value in ((254, 0), (256, width), (257, height))),
        *((tag, 3, 1, struct.pack("<H", value)) for tag, value in ((258, 16), (259, 1), (262, 32803))),
        *((tag, 2, 9, b"A camera\0") for tag in (271, 272)),
        (273, 4, 1, b"DATA"),
        (274, 3, 1, struct.pack("<H", orientation)),
        (277, 3, 1, struct.pack("<H", 1)),
        *((tag, 4, 1, struct.pack("<I", value)) for tag, value in ((278, height), (279, 2 * pixels.size))),
        (33421, 3, 2, struct.pack("<2H", 2, 2)),
        (33422, 1, 4, bytes([0, 1, 1, 2])),
        (50706, 1, 4, bytes([1, 4, 0, 0])),
        (50708, 2, 9, b"A camera\0"),
        (50714, 3, 1, struct.pack("<H", 0)),
        (50717, 4, 1, struct.pack("<I", 4095)),
        (50721, 10, 9, struct.pack("<18i", *colours)),
        (50728, 5, 3, struct.pack("<6I", *[1, 1] * 3)),
        (50778, 3, 1, struct.pack("<H", 21)),
    ]
    listed, behind, end = b"", b"", 8 + 2 + 12 * len(tags) + 4
    for tag, kind, count, value in tags:
        if len(value) > 4:
            place, behind = struct.pack("<I", end + len(behind)), behind + value + bytes(-len(value) % 4)
        else:
            place = value.ljust(4, b"\0")
        listed += struct.pack("<HHI", tag, kind, count) + place
    listed = listed.replace(b"DATA", struct.pack("<I", end + len(behind)))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + listed + bytes(4) + behind + pixels.astype("<u2").tobytes()


def test_sensor_data_are_developed_as_they_lay_on_the_sensor() -> None:
    pytest.importorskip("rawpy")
    pixels = np.repeat(np.repeat(np.random.default_rng(0).integers(800, 3000, (16, 24)), 4, 0), 4, 1).astype(np.uint16)
    for orientation in (1, 3, 6, 8):
        data = dng(pixels, orientation)
        found = Forensics().parse("a.dng", data)
        assert photo_size(io.BytesIO(data)) == found.shape == (64, 96)
        assert np.corrcoef(found.ravel(), pixels.ravel())[0, 1] > 0.9
    with pytest.raises(ItemError, match=r"^a.dng: damaged or truncated image: Input/output error$"):
        Forensics().parse("a.dng", data[: len(data) // 2])


def test_a_directory_that_follows_itself_ends() -> None:
    data = bytearray(with_first_tags())
    data[-4:] = data[4:8]
    assert Forensics().parse("a.tif", bytes(data)).shape == (48, 64)


@pytest.mark.skipif(find_spec("pillow_heif") is not None, reason="pillow-heif decodes it")
def test_heic_names_the_extra_that_reads_it() -> None:
    with pytest.raises(ItemError, match=r"a.heic: HEIC is read where .*tartan-allpairs\[heic\]"):
        Forensics().parse("a.heic", b"\0\0\0\x18ftypheic" + bytes(40))


@pytest.mark.parametrize("turn", [1, 3, 6, 8])
def test_heic_is_compared_as_it_lay_on_the_sensor(turn: int) -> None:
    heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = turn
    image = Image.fromarray(picture())
    stream = io.BytesIO()
    heif.from_pillow(image).save(stream, quality=-1, chroma=444, exif=exif.tobytes())
    found = Forensics().parse("a.heic", stream.getvalue()) / 257
    assert found.shape == photo_size(io.BytesIO(stream.getvalue())) == (48, 64)
    np.testing.assert_allclose(found, np.asarray(image) @ np.array([0.299, 0.587, 0.114]), atol=6)
    assert Forensics().describe_item("a.heic", stream.getvalue())["photo"].shape == (48, 64, 3)


def test_sixteen_bit_pictures_are_scaled() -> None:
    deep = np.linspace(0, 4095, 48 * 64).reshape(48, 64).astype(np.uint16)
    shown = Forensics().describe_item("a.png", saved(Image.fromarray(deep), "PNG"))["photo"]
    np.testing.assert_allclose(shown[..., 0], deep / 4095 * 255, atol=1)


def test_photos_of_any_size_are_compared_within_their_size(tmp_path: Path) -> None:
    simulate(tmp_path / "a", 6, 1, cameras=2, size=96, prnu=0.08)
    simulate(tmp_path / "b", 5, 2, cameras=2, size=(64, 130), prnu=0.08)
    (tmp_path / "b" / "thumbnail.png").write_bytes(saved(Image.fromarray(picture()[:20, :24]), "PNG"))
    files = [*sorted((tmp_path / "a").glob("*.jpg")), *sorted((tmp_path / "b").glob("*.*g"))]
    files = files[::2] + files[1::2]
    app = Forensics()
    with pytest.warns(RunNotice, match=r"no other has, compared with none: b/thumbnail.png \(24 x 20\)$"):
        run = tartan.allpairs(app, files, tmp_path / "run", quiet=True, tile=5)
    found = {name: run.matrix(name, diagonal=0.0) for name in run.outputs}
    sizes = [file.parent.name + file.suffix for file in files]
    wanted = {name: np.zeros_like(found[name]) for name in found}
    for size in set(sizes):
        at = [index for index, one in enumerate(sizes) if one == size]
        if len(at) > 1:
            app = Forensics(score="pce")
            tile = load(app, [files[index] for index in at])
            for name, block in app.compare(tile, tile, np).items():
                wanted[name][np.ix_(at, at)] = block * (1 - np.eye(len(at)))
    for name in found:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-3, atol=1e-4)
    assert (wanted["scores"] != 0).sum() == 6 * 5 + 5 * 4
    assert len(set(run.cluster(threshold=60).tolist())) >= 3
