"""Which photos were taken by the same camera: sensor noise patterns (PRNU), all against all.

`Forensics` decodes photos, extracts their noise patterns and scores pairs by normalised cross-correlation (NCC) or
by peak-to-correlation energy (PCE). `cameras` groups photos by the scores. Photos are compared pixel by pixel in
sensor coordinates: they must have equal sizes (or be cropped to one), and EXIF rotation is ignored on purpose.

The arithmetic lives in `prnu.py`; here are formats, options and limits. Files are not trusted: sizes are checked before
anything is decoded, and a damaged file fails instead of being filled with grey.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

import numpy as np

from tartan.application import Application, Meaning
from tartan.apps.forensics import cuda
from tartan.apps.forensics.cuda import KERNELS
from tartan.apps.forensics.ends import fill_areas, find_areas, find_ends
from tartan.apps.forensics.flatness import require_noise
from tartan.apps.forensics.inventory import PhotoInventory, say_rare_sizes
from tartan.apps.forensics.jpeg import decode_jpeg
from tartan.apps.forensics.prnu import GREY_SCALE, noise_pattern, pce_tile, spectrum
from tartan.apps.forensics.raw import (
    TiffFacts,
    decode_heic,
    develop,
    heic_size,
    is_heic,
    is_other_raw,
    open_heic,
    open_raw,
    raw_size,
    read_tiff_facts,
    readable_suffixes,
)
from tartan.base.bounds import slack_of_means
from tartan.base.group_evidence import GroupEvidence
from tartan.errors import ConfigError, ItemError

PCE_THRESHOLD = 60.0  # the customary decision threshold: Goljan, Fridrich, Filler, SPIE 7254 (2009)

# By construction: the 11 x 11 block of a peak and the filter's margins must fit.
_SMALLEST_SIDE = 16
# By judgement: two such copies beside the photos of a tile; products of more are no faster.
_SIDE_BY_SIDE = 256 << 20
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# By arithmetic: 128 Ki pixels of float32 are 512 KiB, half of a second cache.
_STRIP_PIXELS = 1 << 17
# Measured on 60 flat and 16 natural photos of six cameras, four of them of two sister models: the correlation of means
# of 1, 2, 5 and 10 photos of other cameras, in the standard deviations that these four numbers say, and from the mean
# that they say, has means of -1.0 to -0.1, spreads of 0.5 to 1.1, and 3.2 as the largest of 6,300.
_SPREAD = 1.3  # measured: of the root of a PCE
_SPREAD_OF_NCC = 1.69  # measured: of an NCC over 1 / sqrt(pixels), whose patterns are not quite white
_COMMON = 5e-4  # measured: NCC of flat photos of sister models, beyond chance; all else has less
_SCATTER = 1e-4  # measured: of that, from one pair of cameras to another
# Measured there: groups of two cameras have 0.026 at most, those of one 0.65 and more.
_SHARE = 0.25
# By convention of the field.
_FALSE_ALARM = 1e-6
_CUT_WHY = "single photos of two cameras do not reach, while those of one may stay below (SPIE 7254, 2009)"
# By convention of libjpeg-turbo, whose fuzz targets stop there.
# By convention of libjpeg-turbo's djpeg -maxscans.
_MOST_SCANS = 500  # where libjpeg-turbo stops if it is asked to


class Forensics(Application):
    """Compare photos by the noise of the sensors that took them.

    Parameters
    ----------
    crop : int or str, optional
        Take the centre of each photo: a side in pixels (``1024``) or height x width (``"768x1024"``). Photos of
        unlike size need it. Stored as ``"HxW"``.
    score : {"ncc", "pce"}
        "ncc": normalised cross-correlation, in [-1, 1]; a tile is one matrix product. "pce": signed peak-to-
        correlation energy at zero shift, which does not depend on the size of the photos; output "ncc" comes with
        it. Uses an even width: the last column of an odd one is dropped.
    max_megapixels : float
        Photos with more pixels (10^6) are refused before they are decoded.
    sizes : {"one", "any"}
        "one": all photos must have one size. "any": photos are compared with those of their size, and score 0 with all
        others, of which nothing can be said; needs ``score="pce"``, which does not depend on the size.

    Raises
    ------
    ConfigError
        If a parameter has no meaning.

    Notes
    -----
    Parsed items are grey photos, uint16 (h, w) in units of 1/257: 2 bytes a pixel, while 8-bit grey would lose 3 %
    of PCE and RGB needs 3 bytes. Preprocessed items take 4 bytes a pixel: float32 (h, w) patterns of unit norm, or
    float32 (2, h, w // 2 + 1) spectra for "pce". Where all devices are GPUs they take 2 bytes, as float16 of unit
    variance. Decoding, filtering and products run outside the interpreter lock.

    Examples
    --------
    >>> app = Forensics(crop=512)
    >>> app.crop, app.score
    ('512x512', 'ncc')
    """

    name = "forensics"
    releases_gil = True
    similarity = True
    ragged = False
    tile_side = 16
    compacts_all = True
    item_suffixes = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", *readable_suffixes())

    def __init__(
        self,
        *,
        crop: int | str | None = None,
        score: str = "ncc",
        max_megapixels: float | str = 250,
        sizes: str = "one",
    ) -> None:
        self._sides = None if crop is None else read_sides(crop, "crop")
        self.crop = None if self._sides is None else "{}x{}".format(*self._sides)
        if score not in ("ncc", "pce"):
            raise ConfigError(f"score: {score!r} is neither 'ncc' nor 'pce'", context={"option": "score"})
        if score == "pce" and self._sides is not None and self._sides[1] % 2:
            raise ConfigError(f"crop: score=pce needs an even width, not {self._sides[1]}", context={"option": "crop"})
        self.score = score
        self.max_megapixels = _read_megapixels(max_megapixels)
        if sizes not in ("one", "any"):
            raise ConfigError(f"sizes: {sizes!r} is neither 'one' nor 'any'", context={"option": "sizes"})
        if sizes == "any" and (score != "pce" or crop is not None):
            way_out = "leave out the crop" if score == "pce" else "add --set score=pce, which no size changes"
            raise ConfigError(f"sizes=any compares whole photos by PCE; {way_out}", context={"option": "sizes"})
        self.sizes = sizes
        self.ragged = sizes == "any"
        self.outputs = {"scores": np.float32, "ncc": np.float32} if score == "pce" else {"scores": np.float32}

    def check_files(self, files: Iterable[tuple[str, BinaryIO]]) -> None:
        """Refuse photos of unlike size from their headers, unless they are cropped to one; name odd ones."""
        sizes: dict[tuple[int, int], list[str]] = {}
        inventory = PhotoInventory()
        for key, file in files:
            inventory.add(key, file)
            found = photo_size(file)
            if found is not None:
                height, width = found
                sizes.setdefault((height, width - width % 2 if self.score == "pce" else width), []).append(key)
        if self.sizes == "any":
            say_rare_sizes(sizes)
        elif self._sides is None:
            refuse_unlike(sizes, even=self.score == "pce")
        inventory.say()

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Decode a photo to grey, uint16 (h, w) in units of 1/257; what is clipped or drawn over is filled.

        Raises
        ------
        ItemError
            If the data is empty, damaged, no image, larger than ``max_megapixels`` or smaller than the crop.
        """
        grey, ends = decode_photo(self, key, data)
        areas = find_areas(ends)
        if areas is not None:
            fill_areas(grey, areas)
        return grey

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Extract the noise pattern (float32, unit norm), or its scaled half spectrum when the score is PCE."""
        if KERNELS.runs_on(xp):
            height, width = item.shape
            shape = (2, height, width // 2 + 1) if self.score == "pce" else (height, width)
            out = xp.empty(shape, dtype=np.float32)
            cuda.write_item(item, out, xp)
            return out
        return spectrum(item, xp) if self.score == "pce" else noise_pattern(item, xp)

    def compact_form(self, dtype: np.dtype[Any], shape: tuple[int, ...], xp: Any) -> tuple[Any, tuple[int, ...]] | None:
        """Return the form of patterns on GPUs: float16, of unit variance."""
        return (np.float16, shape) if KERNELS.runs_on(xp) else None

    def compact(self, item: Any, out: Any, xp: Any) -> Any:
        """Extract the noise pattern on a GPU, or its half spectrum when the score is PCE.

        ``out`` is float16, of unit variance, or float32, of unit norm.
        """
        return cuda.write_item(item, out, xp)

    def warm_up(self, xp: Any) -> None:
        """Compile the kernels on a GPU."""
        if KERNELS.runs_on(xp):
            KERNELS.load(xp)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Score a tile: NCC (m, k), or a dict of signed PCE ("scores") and "ncc"."""
        on_gpu = KERNELS.runs_on(xp)
        if self.sizes == "any":
            return self._compare_alike(left, right, xp)
        if self.score == "pce":
            scores, ncc = (cuda.pce_tile if on_gpu else pce_tile)(left, right, xp)
            return {"scores": scores, "ncc": ncc}
        if on_gpu:
            return cuda.ncc_tile(left, right, xp)
        return left.reshape(left.shape[0], -1) @ right.reshape(right.shape[0], -1).T

    def _compare_alike(self, left: Any, right: Any, xp: Any) -> dict[str, Any]:
        """Score the pairs of equal size, some photos at a time; all others score 0."""
        found = {name: xp.zeros((len(left), len(right)), dtype=xp.float32) for name in self.outputs}
        sides = [_sort_by_size(side) for side in (left, right)]
        for size in sides[0].keys() & sides[1].keys():
            for rows in sides[0][size]:
                some = xp.stack([left[at] for at in rows])
                for columns in sides[1][size]:
                    others = xp.stack([right[at] for at in columns])
                    scores = (cuda.pce_tile if KERNELS.runs_on(xp) else pce_tile)(some, others, xp)
                    for name, block in zip(("scores", "ncc"), scores, strict=True):
                        found[name][xp.asarray(rows)[:, None], xp.asarray(columns)] = block
        return found

    def describe_failure(self, item: Any) -> str | None:
        """Name a photo without a pattern."""
        return None if item.any() else "the photo is flat (one grey value everywhere): it holds no noise pattern"

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning:
        """Two photos with a PCE above 60 are of one camera; single photos of one may have less, groups tell then."""
        n_pixels = None if shape is None else self._pixels_of(shape)
        squared = self.score == "pce" and output == "scores"
        if squared:
            cut: float | None = PCE_THRESHOLD
        else:
            cut = None if n_pixels is None else ncc_threshold(n_pixels)
        why = f"{'' if squared else 'a PCE of 60, which '}{_CUT_WHY}"
        return Meaning(
            distance="max-s" if cut is None else f"max(max,{cut!r})-s",
            why="how far a pair is below the best one, as cameras() has it: differences of scores stay what they are",
            cut=cut,
            cut_why="" if cut is None else why,
            groups=None if cut is None else self._weigh_groups(None if squared else n_pixels),
        )

    def _weigh_groups(self, n_pixels: int | None) -> GroupEvidence:
        """Say what fingerprints of groups have in common where cameras differ; ``n_pixels`` of NCC, None of PCE."""
        return GroupEvidence(
            correlation="ncc" if self.score == "pce" else "scores",
            squared=n_pixels is None,
            deviation=1.0 if n_pixels is None else n_pixels**-0.5,
            spread=_SPREAD if n_pixels is None else _SPREAD_OF_NCC,
            common=_COMMON,
            scatter=_SCATTER,
            share=_SHARE,
            false_alarm=_FALSE_ALARM,
            why="a mean of photos shows their camera more clearly than each",
        )

    def _pixels_of(self, shape: tuple[int, ...]) -> int:
        """Return the pixels of a photo: a spectrum of even width w has w // 2 + 1 columns."""
        height, columns = shape[-2:]
        return height * (2 * (columns - 1) if self.score == "pce" else columns)

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a photo: its size, the camera and the date that it names, and a small picture of it.

        Raises
        ------
        ItemError
            If it is not a photo, damaged, or larger than ``max_megapixels``.
        """
        return describe_photo(key, bytes(data), self.max_megapixels)

    def describe_pair(self, a: Any, b: Any) -> dict[str, str]:
        """Say how the second photo lies best on the first: all eight turns, all shifts; nothing where none is clear."""
        from tartan.apps.forensics.turns import find_best_turn

        found = find_best_turn(a, b)
        if found.chance > _FALSE_ALARM:
            return {"best turn and shift": f"none is clear (PCE {found.pce:.1f} at most)"}
        return {
            "best turn and shift": f"{found.turn}, {found.row} down, {found.column} right: PCE {found.pce:.1f}, "
            f"chance {found.chance:.1g}"
        }

    def _parse_jpeg(self, key: str, data: Any) -> np.ndarray:
        import simplejpeg

        try:
            height, width, colour, _ = simplejpeg.decode_jpeg_header(data)
            rows, columns = self._window(key, height, width)
            _limit_scans(key, bytes(data))
            photo = decode_jpeg(bytes(data), "GRAY" if colour == "Gray" else "RGB")
        except ValueError as error:
            if isinstance(error, ItemError):
                raise
            raise _unreadable(key, "JPEG", error) from error
        return photo[rows, columns]

    def _parse_other(self, key: str, data: Any) -> np.ndarray:
        start = bytes(data[:_START_BYTES])
        try:
            if is_heic(start):
                photo, turns = open_heic(key, bytes(data))
                rows, columns = self._window(key, *heic_size(photo, turns))
                return decode_heic(photo, turns)[rows, columns]
            facts = read_tiff_facts(io.BytesIO(data))
            if is_other_raw(start) or (facts is not None and facts.is_raw):
                return self._develop(key, data, facts)
            reader = reader_of(start)
            if reader is None:
                raise ItemError(
                    f"{key}: not a JPEG, PNG, TIFF or BMP image (it begins with {start[:8]!r})", context={"key": key}
                )
            with reader(io.BytesIO(data)) as image:
                rows, columns = self._window(key, image.height, image.width)
                pixels = _pixels(key, image)
        except (ItemError, MemoryError):
            raise
        except Exception as error:  # decoders of damaged files raise whatever they stumble over
            raise _unreadable(key, "image", error) from error
        return pixels[rows, columns]

    def _develop(self, key: str, data: Any, facts: TiffFacts | None) -> np.ndarray:
        with open_raw(key, io.BytesIO(data), facts) as raw:
            rows, columns = self._window(key, *raw_size(raw))
            return develop(raw)[rows, columns]

    def _window(self, key: str, height: int, width: int) -> tuple[slice, slice]:
        """Check the size of a photo that is not decoded yet; return the rows and columns to keep."""
        size = f"{width} x {height} pixels"
        if height * width > self.max_megapixels * 1e6:
            raise ItemError(
                f"{key}: {size} are more than max_megapixels={self.max_megapixels:g} allows; "
                "raise it if the photo is genuine",
                context={"key": key, "option": "max_megapixels"},
            )
        rows, columns = self._sides or (height, width - width % 2 if self.score == "pce" else width)
        if rows > height or columns > width:
            raise ItemError(
                f"{key}: crop={self.crop} (height x width) is larger than the photo of {size}; use a smaller crop",
                context={"key": key, "option": "crop"},
            )
        if min(rows, columns) < _SMALLEST_SIDE:
            raise ItemError(f"{key}: {size} are too few; {_SMALLEST_SIDE} a side are needed", context={"key": key})
        top, left = (height - rows) // 2, (width - columns) // 2
        return slice(top, top + rows), slice(left, left + columns)


def decode_photo(app: Forensics, key: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Decode a photo to grey, and say which pixels are at an end of the range: bool (h, w); raises as ``app.parse``."""
    if not len(data):
        raise ItemError(f"{key}: the file is empty", context={"key": key})
    pixels = (app._parse_jpeg if bytes(data[:3]) == JPEG else app._parse_other)(key, data)
    return _grey_of(key, pixels), find_ends(pixels)


def _sort_by_size(items: Any) -> dict[tuple[int, ...], list[list[int]]]:
    """Return the indices of photos of each size, in lists whose photos may be copied side by side."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for at, item in enumerate(items):
        lists = found.setdefault(tuple(item.shape), [[]])
        if lists[-1] and (len(lists[-1]) + 1) * item.nbytes > _SIDE_BY_SIDE:
            lists.append([])
        lists[-1].append(at)
    return found


def cameras(scores: Any, threshold: float | None = None, *, n_pixels: int | None = None) -> np.ndarray:
    """Group photos by camera: average linkage of their scores, cut at a threshold.

    Parameters
    ----------
    scores : float array (n, n)
        Symmetric NCC or PCE matrix; the diagonal is ignored. Items whose scores are all NaN have failed.
    threshold : float, optional
        Groups are joined while their mean score reaches it: `PCE_THRESHOLD` for PCE, for NCC the default is
        ``ncc_threshold(n_pixels)``.
    n_pixels : int, optional
        Pixels of one (cropped) photo, for the default.

    Returns
    -------
    int array (n,)
        Camera of each photo, 0, 1, ... in order of appearance; -1 for failed items.

    Raises
    ------
    ConfigError
        If neither threshold nor n_pixels is given, or the matrix is not square.

    Examples
    --------
    >>> import numpy as np
    >>> cameras(np.array([[1, 0.001, 0.09], [0.001, 1, 0.002], [0.09, 0.002, 1]]), n_pixels=512 * 512)
    array([0, 1, 0])
    """
    dtype = getattr(scores, "dtype", np.dtype(np.float64))
    scores = np.array(scores, np.float64)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ConfigError(f"scores: a square matrix is needed, not one of shape {scores.shape}")
    if threshold is None and n_pixels is None:
        raise ConfigError("cameras needs a threshold, or n_pixels to choose one for NCC")
    cut = threshold if threshold is not None else ncc_threshold(int(n_pixels or 0))
    cut -= 2 * slack_of_means(cut, dtype)  # of the mean, and of the difference that is taken of it
    np.fill_diagonal(scores, np.nan)
    good = np.flatnonzero(~np.isnan(scores).all(axis=1))
    labels = np.full(len(scores), -1)
    if len(scores) == 1:
        labels[0] = 0
    elif good.size:
        labels[good] = _average_link(np.nan_to_num(scores[np.ix_(good, good)], nan=0.0), cut)
    return labels


def ncc_threshold(n_pixels: int) -> float:
    """Return the NCC at which the PCE of white patterns is 60: sqrt(60 / n_pixels), 7.7 standard deviations.

    Patterns of unlike cameras correlate by 1 / sqrt(n_pixels) at random; the Wiener step makes patterns nearly
    white, and the margin covers what cameras of one model share.
    """
    if n_pixels < 1:
        raise ConfigError(f"n_pixels: {n_pixels} must be positive", context={"option": "n_pixels"})
    return float(np.sqrt(PCE_THRESHOLD / n_pixels))


def _average_link(similarity: np.ndarray, threshold: float) -> np.ndarray:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    nearest = max(float(similarity.max()), threshold)
    distance = nearest - similarity
    np.fill_diagonal(distance, 0)
    groups = fcluster(linkage(squareform(distance, checks=False), "average"), nearest - threshold, "distance")
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _grey_of(key: str, pixels: np.ndarray) -> np.ndarray:
    """Turn pixels into grey; a photo of 8 bits must still hold noise, one of 16 is finer than any compression."""
    grey = _to_grey(pixels)
    if pixels.dtype == np.uint8 and grey.min() < grey.max():  # what is flat throughout is told so by its pattern
        require_noise(key, grey)
    return grey


def _to_grey(pixels: np.ndarray) -> np.ndarray:
    """Turn (h, w), (h, w, 1) or (h, w, 3) pixels into grey, uint16 in units of 1/257; 16-bit grey stays."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype == np.uint16:
        return np.ascontiguousarray(pixels)
    if pixels.ndim == 2:
        return pixels * np.uint16(GREY_SCALE)
    grey = np.empty(pixels.shape[:2], np.uint16)
    step = max(1, _STRIP_PIXELS // pixels.shape[1])
    for start in range(0, len(grey), step):
        values = pixels[start : start + step].astype(np.float32) @ (_LUMA * GREY_SCALE)
        values += np.float32(0.5)
        grey[start : start + step] = values
    return grey


def _pixels(key: str, image: Any) -> np.ndarray:
    """Decode a Pillow image to uint8 grey or RGB, or to uint16 grey."""
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        raise ItemError(
            f"{key}: pixels of mode {image.mode} have no known range; convert the photo to 8 or 16 bits",
            context={"key": key},
        )
    return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))


def _limit_scans(key: str, data: bytes) -> None:
    """Refuse a small JPEG that takes minutes: each scan passes over all pixels; cameras write at most ten."""
    scans = data.count(b"\xff\xda")
    if scans > _MOST_SCANS:
        raise ItemError(
            f"{key}: {scans:,} scans are more than the {_MOST_SCANS} of any photo; if it is genuine, save it as PNG",
            context={"key": key},
        )


def _unreadable(key: str, kind: str, error: Exception) -> ItemError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ItemError(f"{key}: damaged or truncated {kind}: {reason}", context={"key": key})


def read_sides(value: Any, option: str) -> tuple[int, int]:
    """Read the size of a photo: ``1024``, ``"1024"``, ``"768x1024"`` (height x width) or a pair of numbers.

    Raises
    ------
    ConfigError
        If it is none of these, or a side is below 16 pixels.
    """
    text = "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    match = re.fullmatch(r"\s*(\d{1,7})(?:\s*x\s*(\d{1,7}))?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(
            f"{option}: {value!r} is neither a side in pixels such as 1024 nor height x width such as 768x1024",
            context={"option": option},
        )
    sides = int(match.group(1)), int(match.group(2) or match.group(1))
    if min(sides) < _SMALLEST_SIDE:
        raise ConfigError(f"{option}: {value!r} is below {_SMALLEST_SIDE} pixels a side", context={"option": option})
    return sides


def _read_megapixels(value: float | str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"max_megapixels: {value!r} is not a positive number", context={"option": "max_megapixels"})
    return int(number) if number.is_integer() else number


# Describe a photo in a few facts and a small picture for people who look at it; no comparison uses them.

# By judgement: a picture on a page. A look.
_SIDE: Final = 640
_FORMATS: Final = ("JPEG", "PNG", "TIFF", "BMP")
_TAGS: Final = {"camera": (271, 272), "taken": (306,)}  # EXIF: make and model, date


def describe_photo(key: str, data: bytes, max_megapixels: float) -> dict[str, Any]:
    """Return facts of a photo and a picture of at most 640 pixels a side, in the orientation of the sensor.

    Raises
    ------
    ItemError
        If it is not a photo, damaged, or has more pixels (10^6) than allowed.
    """

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            photo, kind = _open_picture(key, data)
            with photo:
                if photo.width * photo.height > max_megapixels * 1e6:
                    raise ItemError(f"{key}: more than {max_megapixels:g} megapixels", context={"key": key})
                about: dict[str, Any] = {"pixels": f"{photo.width:,} x {photo.height:,}", "format": kind}
                n_pages = getattr(photo, "n_frames", 1) if kind == "TIFF" else 1
                if n_pages > 1:
                    about["pages"] = f"{n_pages}, of which the first is compared"
                about |= _read_camera(photo)
                photo.draft("RGB", (_SIDE, _SIDE))
                small = _to_eight_bits(photo).convert("RGB")
                small.thumbnail((_SIDE, _SIDE))
    except ItemError:
        raise
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise ItemError(f"{key}: no photo, or a damaged one ({type(error).__name__})", context={"key": key}) from error
    return about | {"photo": np.asarray(small)}


def _open_picture(key: str, data: bytes) -> tuple[Any, str]:
    """Return a photo as Pillow has it, and the name of its format."""
    from PIL import Image

    start = data[:_START_BYTES]
    if is_heic(start):
        found, turns = open_heic(key, data)
        height, width = heic_size(found, turns)
        photo = found.to_pillow()
        return (
            photo if (photo.height, photo.width) == (height, width) else photo.rotate(-90 * turns, expand=True)
        ), "HEIC"
    facts = read_tiff_facts(io.BytesIO(data))
    if is_other_raw(start) or (facts is not None and facts.is_raw):
        with open_raw(key, io.BytesIO(data), facts) as raw:
            return Image.fromarray(raw.postprocess(user_flip=0)), "RAW"
    photo = Image.open(io.BytesIO(data), formats=_FORMATS)
    return photo, str(photo.format)


def _to_eight_bits(photo: Any) -> Any:
    """Scale a photo of 16-bit grey to its brightest pixel, in 8 bits: Pillow would cut off what is above 255."""
    from PIL import Image

    if not photo.mode.startswith("I;16"):
        return photo
    grey = np.asarray(photo).astype(np.float32)
    return Image.fromarray((grey * (255 / max(float(grey.max()), 1.0))).astype(np.uint8))


def _read_camera(photo: Any) -> dict[str, str]:
    """Return what the photo says of its camera and its date."""
    tags = photo.getexif()
    found: dict[str, str] = {}
    for name, codes in _TAGS.items():
        words = [str(tags[code]).strip("\0 ") for code in codes if tags.get(code)]
        text = words[-1] if len(words) == 2 and words[1].startswith(words[0].split()[0]) else " ".join(words)
        if text:
            found[name] = text
    return found


# The size of photos, from their headers alone: nothing is decoded, and a few hundred bytes are read.

JPEG = b"\xff\xd8\xff"
# By judgement: a line of a message.
_NAMED = 2
# By judgement: photos have some dozen; a bound against strangers' files.
_MOST_SEGMENTS = 10_000
# By format: the kind of HEIC is said by the bytes up to here.
_START_BYTES = 12
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # the other three are tables
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}


def photo_size(file: BinaryIO) -> tuple[int, int] | None:
    """Return the height and width that the header of a photo says; None where it cannot be read."""
    start = file.read(_START_BYTES)
    file.seek(0)
    if start.startswith(JPEG):
        return _jpeg_size(file)
    try:
        if is_heic(start):
            return heic_size(*open_heic("", file.read()))
        facts = read_tiff_facts(file)
        if is_other_raw(start) or (facts is not None and facts.is_raw):
            with open_raw("", file, facts) as raw:
                return raw_size(raw)
        file.seek(0)
        reader = reader_of(start)
        if reader is None:
            return None
        with reader(file) as image:
            return int(image.height), int(image.width)
    except Exception:  # whatever a damaged file makes the reader do: it fails when it is loaded, with its reason
        return None


def reader_of(start: bytes) -> Callable[[Any], Any] | None:
    """Return Pillow's reader of a format; opened so, Pillow leaves the limit on the size to us."""
    from PIL import BmpImagePlugin, PngImagePlugin, TiffImagePlugin

    if start.startswith(b"\x89PNG"):
        return PngImagePlugin.PngImageFile
    if start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return TiffImagePlugin.TiffImageFile
    return BmpImagePlugin.BmpImageFile if start.startswith(b"BM") else None


def refuse_unlike(sizes: dict[tuple[int, int], list[str]], *, even: bool) -> None:
    """Refuse photos of unlike size.

    Parameters
    ----------
    sizes : dict of (height, width) to list of str
        The photos of each size, by key.
    even : bool
        Whether a crop must have an even width.

    Raises
    ------
    ConfigError
        Naming the sizes, and the largest crop that all photos have.
    """
    if len(sizes) < 2:
        return
    listed = sorted(sizes.items(), key=lambda entry: -len(entry[1]))
    text = "; ".join(f"{len(keys):,} of {w} x {h} pixels ({_some(keys)})" for (h, w), keys in listed[:_NAMED])
    more = f"; and {len(listed) - _NAMED} more sizes" if len(listed) > _NAMED else ""
    height, width = min(h for h, _ in sizes), min(w for _, w in sizes)
    crop = f"{height}x{width - width % 2 if even else width}"
    raise ConfigError(
        f"photos of unlike size cannot be compared: {text}{more}. Compare the centres of all by --set crop={crop} "
        "(height x width, the largest that all have), each with those of its size by --set sizes=any score=pce, or "
        "leave the others out",
        code="unlike-items",
        context={"option": "crop", "crop": crop, "sizes": [list(size) for size in sizes]},
    )


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_NAMED]) + (", .." if len(keys) > _NAMED else "")


def _jpeg_size(file: BinaryIO) -> tuple[int, int] | None:
    """Walk from segment to segment up to the frame header."""
    file.seek(2)
    for _ in range(_MOST_SEGMENTS):
        mark = file.read(1)
        if mark != b"\xff":
            return None
        while mark == b"\xff":  # fill bytes
            mark = file.read(1)
        if not mark:
            return None
        if mark[0] in _WITHOUT_LENGTH:
            continue
        head = file.read(7)
        length = int.from_bytes(head[:2], "big")
        if len(head) < 2 or length < 2:
            return None
        if mark[0] in _FRAMES:
            height, width = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
            return (height, width) if len(head) == 7 and height and width else None
        file.seek(length - len(head), 1)
    return None
