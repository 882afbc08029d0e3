"""Which photos were taken by the same camera: sensor noise patterns (PRNU), all against all.

`Forensics` decodes photos, extracts their noise patterns and scores pairs by normalised cross-correlation (NCC) or
by peak-to-correlation energy (PCE). `cameras` groups photos by the scores. Photos are compared pixel by pixel in
sensor coordinates, each with those of its size and of its quarter turn; EXIF rotation is ignored on purpose.

The arithmetic lives in `prnu.py`; here are formats, options and limits. Files are not trusted: sizes are checked before
anything is decoded, and a damaged file fails instead of being filled with grey.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from tartan.application import Application, Meaning
from tartan.apps.forensics import cuda
from tartan.apps.forensics.alike import Ways, compare_tile, lay_down, reverse_ways, stand_up
from tartan.apps.forensics.cuda import KERNELS
from tartan.apps.forensics.ends import fill_areas, find_areas, find_ends
from tartan.apps.forensics.flatness import require_noise
from tartan.apps.forensics.headers import JPEG, START_BYTES, photo_size, reader_of
from tartan.apps.forensics.inventory import PhotoInventory, list_sizes
from tartan.apps.forensics.jpeg import decode_jpeg
from tartan.apps.forensics.prnu import (
    GREY_SCALE,
    count_axes,
    noise_pattern,
    pce_tile,
    read_size,
    spectrum,
    spectrum_shape,
)
from tartan.apps.forensics.raw import (
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
    say_error,
)
from tartan.apps.forensics.turns import TURNS, find_best_turn
from tartan.base.bounds import slack_of_means
from tartan.base.group_evidence import GroupEvidence
from tartan.errors import ConfigError, ItemError

PCE_THRESHOLD = 60.0  # the customary decision threshold: Goljan, Fridrich, Filler, SPIE 7254 (2009)

# By construction: the 11 x 11 block of a peak and the filter's margins must fit.
_SMALLEST_SIDE = 16
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# By arithmetic: 128 Ki pixels of float32 are 512 KiB, half of a second cache.
_STRIP_PIXELS = 1 << 17
# Measured on 60 flat and 16 natural photos of six cameras, four of them of two sister models: the correlation of means
# of 1, 2, 5 and 10 photos of other cameras, in the standard deviations that these four numbers say, and from the mean
# that they say, has means of -1.0 to -0.1, spreads of 0.5 to 1.1, and 3.2 as the largest of 6,300.
_SPREAD = 1.3  # measured: of the root of a PCE
_SPREAD_OF_NCC = 1.69  # measured: of an NCC over 1 / sqrt(pixels), whose patterns are not quite white
# By arithmetic, sqrt(1 + 2 / pi): of the larger of two. Measured on 96 pairs of four Nikons: 1.25.
_SPREAD_OF_TWO = 1.279
_COMMON = 5e-4  # measured: NCC of flat photos of sister models, beyond chance; all else has less
_SCATTER = 1e-4  # measured: of that, from one pair of cameras to another
# Measured there: groups of two cameras have 0.026 at most, those of one 0.65 and more.
_SHARE = 0.25
# By convention of the field.
_FALSE_ALARM = 1e-6
# Measured at 2,000 x 3,008 pixels: 8.2 ns of a core a pixel, at 1,024 x 1,024 5.7.
_PEAK_SECONDS = 8e-9
# By judgement: who waits for less need not be told.
_LONG_SECONDS = 600
_CUT_WHY = "photos of two cameras stay below, and so may photos of one; Goljan et al., SPIE 7254, 2009"
# By convention of libjpeg-turbo, whose fuzz targets stop there.
# By convention of libjpeg-turbo's djpeg -maxscans.
_MOST_SCANS = 500  # where libjpeg-turbo stops if it is asked to


class Forensics(Application):
    """Compare photos by the noise of the sensors that took them.

    Parameters
    ----------
    crop : int or str, optional
        Take the centre of each photo: a side in pixels (``1024``) or height x width (``"768x1024"``), of photos that
        lie the other way width x height. Stored as ``"HxW"``.
    score : {"ncc", "pce"}, optional
        "ncc": normalised cross-correlation, in [-1, 1]; a tile is one matrix product. "pce": signed peak-to-
        correlation energy at zero shift, which does not depend on the size of the photos; output "ncc" comes with
        it. Default: ncc, but pce for files of several sizes, since NCC of different sizes are on no one scale, and
        with ``shift="all"``.
    turns : {"none", "all"}, optional
        "all": the second photo is turned and mirrored in all ways that have the shape of the first, up to eight; the
        largest correlation counts, and output "turn" says where it is (an index of ``turns.TURNS``).
    shift : {"none", "all"}, optional
        "all": outputs "peak", "row" and "column", the highest PCE at any shift, and how far the second photo is moved
        there. Costs an inverse transform a pair and turn.
    max_megapixels : float
        Photos with more pixels (10^6) are refused before they are decoded.

    Raises
    ------
    ConfigError
        If a parameter has no meaning.

    Notes
    -----
    Photos are compared with those of their size and of its quarter turn; all others score 0. Where one is higher than
    wide, both quarter turns are tried, and the larger correlation counts, of either sign.
    EXIF cannot tell which it is: of turned pixels its orientation says how to show them, or how they were turned.
    Such photos are turned left before, and have one more axis in front, of length 1.

    Parsed items are grey photos, uint16 (h, w) in units of 1/257: 2 bytes a pixel, while 8-bit grey would lose 3 %
    of PCE and RGB needs 3 bytes. Preprocessed items take 4 bytes a pixel: float32 (h, w) patterns of unit norm, or
    float32 (2, h, w // 2 + 1) spectra for "pce", with one more axis behind, of length 1, where w is odd. Where all
    devices are GPUs they take 2 bytes, as float16 of unit variance. Decoding, filtering and products run outside the
    interpreter lock.

    Examples
    --------
    >>> app = Forensics(crop=512)
    >>> app.crop, app.score
    ('512x512', 'ncc')
    """

    name = "forensics"
    releases_gil = True
    similarity = True
    tile_side = 16
    compacts_all = True
    item_suffixes = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", *readable_suffixes())

    def __init__(
        self,
        *,
        crop: int | str | None = None,
        score: str | None = None,
        turns: str | None = None,
        shift: str | None = None,
        max_megapixels: float | str = 250,
    ) -> None:
        self._sides = None if crop is None else read_sides(crop, "crop")
        self.crop = None if self._sides is None else "{}x{}".format(*self._sides)
        for option, value in (("turns", turns), ("shift", shift)):
            if value not in (None, "none", "all"):
                raise ConfigError(f"{option}: {value!r} is neither 'none' nor 'all'", context={"option": option})
        # None where nothing is asked for: so are runs recorded that know of no such parameter.
        self.turns, self.shift = (value if value == "all" else None for value in (turns, shift))
        if score not in (None, "ncc", "pce"):
            raise ConfigError(f"score: {score!r} is neither 'ncc' nor 'pce'", context={"option": "score"})
        if shift == "all" and score == "ncc":
            raise ConfigError("shift=all finds peaks as PCE: leave out score=ncc", context={"option": "score"})
        self._asked_score = "pce" if shift == "all" else score
        self.max_megapixels = _read_megapixels(max_megapixels)
        self._n_pixels: int | None = None  # of all photos, where files have said so
        self._some_stand = False
        self._take_score(self._asked_score or "ncc")

    def _take_score(self, score: str) -> None:
        self.score = score
        self._ways = Ways(score == "pce", self.turns == "all", self.shift == "all")
        self.outputs, self.directed = self._ways.outputs, self._ways.directed
        self.analysed = "peak" if self._ways.shifts else None

    def check_files(self, files: Iterable[tuple[str, BinaryIO]]) -> list[str]:
        """Find the sizes of photos from their headers, choose the score by them; return what people should know."""
        sizes: dict[tuple[int, int], list[str]] = {}
        inventory = PhotoInventory()
        for key, file in files:
            inventory.add(key, file)
            found = photo_size(file)
            if found is not None and min(found) >= _SMALLEST_SIDE and found[0] * found[1] <= self.max_megapixels * 1e6:
                sizes.setdefault(found, []).append(key)
        notes = inventory.list_notes()
        if self.ragged is False:  # a run whose photos have one size, and photos that are added to it
            return notes
        turned = {self._is_turned(*size) for size in sizes}
        alike = self._count_alike(sizes)
        self.ragged = True if len(alike) > 1 or len(turned) > 1 else None
        self._n_pixels, self._some_stand = self._count_pixels(sizes), True in turned
        self._take_score(self._asked_score or ("ncc" if len(alike) < 2 else "pce"))
        notes += list_sizes(sizes, score=self.score) if self._sides is None else self._judge_crop(sizes)
        return notes + (self._predict_cost(sizes) if self._ways.shifts else [])

    def _judge_crop(self, sizes: dict[tuple[int, int], list[str]]) -> list[str]:
        """Say where a crop cannot take the same part of turned photos: it leaves out an odd number of pixels."""
        assert self._sides is not None
        if not (self._ways.turns or self._some_stand):
            return []
        lying = {(w, h) if self._is_turned(h, w) else (h, w): keys[0] for (h, w), keys in sizes.items()}
        off = [entry for entry in lying.items() if any((a - b) % 2 for a, b in zip(entry[0], self._sides))]
        if not off:
            return []
        size, key = off[0]
        step = [(-1 if side > _SMALLEST_SIDE else 1) * ((whole - side) % 2) for whole, side in zip(size, self._sides)]
        fit = "x".join(str(side + more) for side, more in zip(self._sides, step))
        return [
            f"crop={self.crop} leaves out an odd number of rows or columns of photos such as {key} "
            f"({size[1]} x {size[0]} pixels): turned or mirrored, they lie one pixel off and score about 0; "
            f"crop={fit} does not"
        ]

    def _predict_cost(self, sizes: dict[tuple[int, int], list[str]]) -> list[str]:
        """Say how long all shifts will take: an inverse transform for each pair of one size, and each turn."""
        seconds, n_pairs = 0.0, 0
        for (height, width), count in self._count_alike(sizes).items():
            turns = (8 if height == width else 4) if self._ways.turns else 1
            n_pairs += count * (count - 1) // 2
            seconds += count * (count - 1) / 2 * turns * height * width * _PEAK_SECONDS
        if seconds < _LONG_SECONDS:
            return []
        return [f"shift=all takes about {seconds / 3600:,.1f} hours of one core for {n_pairs:,} pairs"]

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Decode a photo to grey, uint16 (h, w) in units of 1/257; what is clipped or drawn over is filled.

        A photo that lies the other way than it is compared is turned left, and has the shape (1, h, w).

        Raises
        ------
        ItemError
            If the data is empty, damaged, no image, larger than ``max_megapixels`` or smaller than the crop.
        """
        pixels = _decode(self, key, data, lies=True)
        grey, ends = _grey_of(key, pixels.photo), find_ends(pixels.photo)
        areas = find_areas(ends)
        if areas is not None:
            fill_areas(grey, areas)
        return lay_down(grey, turned=pixels.turned)

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Extract the noise pattern (float32, unit norm), or its scaled half spectrum when the score is PCE."""
        height, width = item.shape[-2:]
        grey = item.reshape(height, width)
        if KERNELS.runs_on(xp):
            shape = spectrum_shape(height, width) if self.score == "pce" else (height, width)
            found = xp.empty(shape, dtype=np.float32)
            cuda.write_item(grey, found, xp)
        else:
            found = spectrum(grey, xp) if self.score == "pce" else noise_pattern(grey, xp)
        return found.reshape(item.shape[:-2] + found.shape)

    def compact_form(self, dtype: np.dtype[Any], shape: tuple[int, ...], xp: Any) -> tuple[Any, tuple[int, ...]] | None:
        """Return the form of patterns on GPUs: float16, of unit variance."""
        return (np.float16, shape) if KERNELS.runs_on(xp) else None

    def compact(self, item: Any, out: Any, xp: Any) -> Any:
        """Extract the noise pattern on a GPU, or its half spectrum when the score is PCE.

        ``out`` is float16, of unit variance, or float32, of unit norm.
        """
        n_axes = count_axes(out.shape) if self.score == "pce" else 2
        return cuda.write_item(item.reshape(item.shape[-2:]), out.reshape(out.shape[-n_axes:]), xp)

    def warm_up(self, xp: Any) -> None:
        """Compile the kernels on a GPU; all turns and all shifts are for the CPU.

        Raises
        ------
        ConfigError
            If all turns or all shifts are asked for.
        """
        if KERNELS.runs_on(xp):
            for option in ("turns", "shift"):
                if getattr(self, option) == "all":
                    raise ConfigError(
                        f"{option}=all is computed on the CPU: add --device cpu, or leave it out",
                        context={"option": option},
                    )
            KERNELS.load(xp)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Score a tile: NCC (m, k), or a dict of all outputs; pairs of different size score 0."""
        uniform = all(not isinstance(side, list | tuple) and self._lies(side.shape[1:]) for side in (left, right))
        if not uniform or self._ways.turns or self._ways.shifts:
            found = compare_tile(left, right, self._ways, xp)
            return found if len(found) > 1 else found["scores"]
        on_gpu = KERNELS.runs_on(xp)
        if self.score == "pce":
            scores, ncc = (cuda.pce_tile if on_gpu else pce_tile)(left, right, xp)
            return {"scores": scores, "ncc": ncc}
        if on_gpu:
            return cuda.ncc_tile(left, right, xp)
        return left.reshape(left.shape[0], -1) @ right.reshape(right.shape[0], -1).T

    def reverse(self, scores: Any) -> dict[str, np.ndarray]:
        """Return turn, row and column the other way round."""
        return reverse_ways(scores)

    def describe_failure(self, item: Any) -> str | None:
        """Name a photo without a pattern."""
        return None if item.any() else "the photo is flat (one grey value everywhere): it holds no noise pattern"

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """Two photos with a PCE above 60 are of one camera; single photos of one may have less, groups tell then."""
        if output in self.directed:
            return None
        n_pixels = self._n_pixels if shape is None else self._pixels_of(shape)
        squared = output == "peak" or (self.score == "pce" and output == "scores")
        if squared:
            cut: float | None = PCE_THRESHOLD
        else:
            cut = None if n_pixels is None else ncc_threshold(n_pixels)
        why = f"{'' if squared else 'it stands for a PCE of 60: '}{_CUT_WHY}"
        return Meaning(
            distance="max-s" if cut is None else f"max(max,{cut!r})-s",
            why="how far a pair is below the best one, as cameras() has it: differences of scores stay what they are",
            cut=cut,
            cut_why="" if cut is None else why,
            together="same camera",
            apart="not shown to be of the same camera",
            groups=None if cut is None else self._weigh_groups(output, None if squared else n_pixels),
            unit="PCE" if squared else "NCC",
        )

    def _weigh_groups(self, output: str, n_pixels: int | None) -> GroupEvidence | None:
        """Say what fingerprints of groups have in common where cameras differ; ``n_pixels`` of NCC, None of PCE.

        Nothing where the best of several turns or shifts is taken, whose spread was not measured.
        """
        if output == "peak" or self._ways.turns:
            return None
        return GroupEvidence(
            correlation="ncc" if self.score == "pce" else "scores",
            squared=n_pixels is None,
            deviation=1.0 if n_pixels is None else n_pixels**-0.5,
            spread=(_SPREAD if n_pixels is None else _SPREAD_OF_NCC) * (_SPREAD_OF_TWO if self._some_stand else 1),
            common=_COMMON,
            scatter=_SCATTER,
            share=_SHARE,
            false_alarm=_FALSE_ALARM,
            closely=True,
            why="the mean of many photos shows the pattern of their camera more clearly than one photo",
        )

    def look_closely(self, item: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the pattern of a photo as ``closely.look_closely`` does; None of one whose half turn is not known."""
        from tartan.apps.forensics.closely import look_closely

        return look_closely(item) if item.ndim == 2 else None

    def _pixels_of(self, shape: tuple[int, ...]) -> int:
        """Return the pixels of a photo from the shape of its item."""
        height, width = read_size(shape) if self.score == "pce" else shape[-2:]
        return height * width

    def _lies(self, shape: tuple[int, ...]) -> bool:
        """Say whether an item of this shape is of a photo that was not turned: it has no axis in front."""
        return len(shape) == (count_axes(shape) if self.score == "pce" else 2)

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
        about = {} if a.shape[-2:] == b.shape[-2:] else {"compared": "no: photos of different size score 0 in a run"}
        found = find_best_turn(stand_up(a), stand_up(b))
        if found.chance > _FALSE_ALARM:
            return about | {"best turn and shift": f"none is clear (PCE {found.pce:.1f} at most)"}
        return about | {
            "best turn and shift": f"{found.turn}, {found.row} down, {found.column} right: PCE {found.pce:.1f}, "
            f"chance {found.chance:.1g}"
        }

    def _count_pixels(self, sizes: dict[tuple[int, int], list[str]]) -> int | None:
        """Return the pixels of all photos that are compared with another one; None where these are not alike."""
        compared = [height * width for (height, width), count in self._count_alike(sizes).items() if count > 1]
        return compared[0] if len(compared) == 1 else None

    def _count_alike(self, sizes: dict[tuple[int, int], list[str]]) -> dict[tuple[int, int], int]:
        """Return how many photos there are of each size that is compared, quarter turns being one."""
        counts: dict[tuple[int, int], int] = {}
        for size, keys in sizes.items():
            alike = self._sides or (min(size), max(size))
            counts[alike] = counts.get(alike, 0) + len(keys)
        return counts

    def _is_turned(self, height: int, width: int) -> bool:
        """Say whether a photo lies the other way than it is compared: as the crop does, or wider than high."""
        stands = self._sides is not None and self._sides[0] > self._sides[1]
        return height != width and (height > width) != stands

    def _window(self, key: str, height: int, width: int, *, lies: bool) -> _PhotoPart:
        """Check the size of a photo that is not decoded yet; return the rows and columns to keep."""
        size = f"{width} x {height} pixels"
        if height * width > self.max_megapixels * 1e6:
            raise ItemError(
                f"{key}: {size} are more than max_megapixels={self.max_megapixels:g} allows; "
                "raise it if the photo is genuine",
                context={"key": key, "option": "max_megapixels"},
            )
        turned = lies and self._is_turned(height, width)
        most = (width, height) if turned else (height, width)
        rows, columns = self._sides or most
        if rows > most[0] or columns > most[1]:
            raise ItemError(
                f"{key}: crop={self.crop} (height x width) is larger than the photo of {size}; use a smaller crop",
                context={"key": key, "option": "crop"},
            )
        if min(rows, columns) < _SMALLEST_SIDE:
            raise ItemError(f"{key}: {size} are too few; {_SMALLEST_SIDE} a side are needed", context={"key": key})
        rows, columns = (columns, rows) if turned else (rows, columns)
        top, left = (height - rows) // 2, (width - columns) // 2
        return _PhotoPart(slice(top, top + rows), slice(left, left + columns), turned)


class _PhotoPart(NamedTuple):
    """What of a photo is compared, and whether it is turned before."""

    rows: slice
    columns: slice
    turned: bool


class _DecodedPart(NamedTuple):
    """What of a photo is compared, uint8 or uint16 (h, w) or (h, w, 3), and whether it is turned before."""

    photo: np.ndarray
    turned: bool


def decode_photo(app: Forensics, key: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Decode a photo as it lies to grey, and say which pixels are at an end of the range: bool (h, w).

    Raises as ``app.parse``.
    """
    photo = _decode(app, key, data, lies=False).photo
    return _grey_of(key, photo), find_ends(photo)


def _decode(app: Forensics, key: str, data: Any, *, lies: bool) -> _DecodedPart:
    """Decode what of a photo is compared; ``lies``: laid down, as runs compare photos."""
    if not len(data):
        raise ItemError(f"{key}: the file is empty", context={"key": key})
    find_window = partial(app._window, key, lies=lies)
    photo, window = (_decode_jpeg if bytes(data[:3]) == JPEG else _decode_other)(key, data, find_window)
    return _DecodedPart(photo[window.rows, window.columns], window.turned)


def _decode_jpeg(key: str, data: Any, find_window: Callable[[int, int], _PhotoPart]) -> tuple[np.ndarray, _PhotoPart]:
    import simplejpeg

    try:
        height, width, colour, _ = simplejpeg.decode_jpeg_header(data)
        window = find_window(height, width)
        _limit_scans(key, bytes(data))
        return decode_jpeg(bytes(data), "GRAY" if colour == "Gray" else "RGB"), window
    except ValueError as error:
        if isinstance(error, ItemError):
            raise
        raise _unreadable(key, "JPEG", error) from error


def _decode_other(key: str, data: Any, find_window: Callable[[int, int], _PhotoPart]) -> tuple[np.ndarray, _PhotoPart]:
    start = bytes(data[:START_BYTES])
    try:
        if is_heic(start):
            photo, turns = open_heic(key, bytes(data))
            window = find_window(*heic_size(photo, turns))
            return decode_heic(photo, turns), window
        facts = read_tiff_facts(io.BytesIO(data))
        if is_other_raw(start) or (facts is not None and facts.is_raw):
            with open_raw(key, io.BytesIO(data), facts) as raw:
                window = find_window(*raw_size(raw))
                return develop(raw), window
        reader = reader_of(start)
        if reader is None:
            raise ItemError(
                f"{key}: not a JPEG, PNG, TIFF or BMP image (it begins with {start[:8]!r})", context={"key": key}
            )
        with reader(io.BytesIO(data)) as image:
            window = find_window(image.height, image.width)
            return _pixels(key, image), window
    except (ItemError, MemoryError):
        raise
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise _unreadable(key, "image", error) from error


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
    reason = say_error(error)
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
# By format: EXIF's orientation, but 1.
_ORIENTATION: Final = 274
_SHOWN: Final = dict(zip(range(2, 9), [list(TURNS)[at] for at in (4, 2, 6, 5, 3, 7, 1)], strict=True))
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
                turn = photo.getexif().get(_ORIENTATION, 1)
                if turn in _SHOWN:
                    about["shown"] = f"{_SHOWN[turn]}, says its EXIF; compared as it lies"
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

    start = data[:START_BYTES]
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
