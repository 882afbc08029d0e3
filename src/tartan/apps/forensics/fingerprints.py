"""Known cameras: the fingerprint of each, from its photos, against photos whose camera is asked for.

A fingerprint is the maximum-likelihood estimate of a sensor's pattern K over photos of it: their noise residuals W are
K times the light I, beside other noise, so that K = sum(W I) / sum(I^2) (Chen et al., 2008). A questioned photo is
compared with it as the best detector asks for: where its own noise is strong, in textures, it counts less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from tartan.application import Application, Meaning
from tartan.apps.forensics.app import (
    PCE_THRESHOLD,
    Forensics,
    decode_photo,
    describe_photo,
    read_sides,
)
from tartan.apps.forensics.headers import photo_size, refuse_unlike
from tartan.apps.forensics.prnu import (
    find_peak,
    invert,
    leave_out_grid,
    pack_spectrum,
    pce_tile,
    remove_means,
    transform,
    whiten,
)
from tartan.apps.forensics.residuals import Residual, read_residual, weigh_photo
from tartan.errors import ConfigError, ItemError

# By judgement: any will do; the same inputs give the same scores.
_SEED = 7
# By arithmetic: keeps 0 / 0 of a flat one at 0.
_TINY = 1e-30


class Cameras(Application):
    """Compare fingerprints of known cameras (groups of photos) with single photos.

    Parameters
    ----------
    crop : int or str, optional
        Take the centre of each photo: a side in pixels, or height x width.
    frame : str, optional
        Height x width of the largest sensor. Smaller photos, such as crops, are looked for everywhere in it; without
        a frame all must have one size.
    shift : {"all", "none"}
        "all": the best place of a photo on the sensor is looked for, too. "none" leaves that out; it is some ten times
        faster, and finds no camera of a cropped or shifted photo.
    max_megapixels : float
        Photos with more pixels (10^6) are refused before they are decoded.

    Raises
    ------
    ConfigError
        If a parameter has no meaning.

    Notes
    -----
    Outputs: ``scores``, the signed PCE where photo and fingerprint lie as they were stored; ``ncc``, their correlation
    there; ``peak``, the PCE at the best place of the photo, ``row`` and ``column`` of that place: how far its corner
    lies down and to the right of that of the sensor, -side / 2 to side / 2: what is negative may be that much less
    than a whole side. Parsed items are float32 (h, w), ready ones float32
    (2, h, w // 2 + 1), with one more axis behind where w is odd (see ``prnu.spectrum_shape``).
    """

    name = "cameras"
    releases_gil = True
    similarity = True
    ragged = False
    tile_side = 1
    item_suffixes = Forensics.item_suffixes

    def __init__(
        self,
        *,
        crop: int | str | None = None,
        frame: str | None = None,
        shift: str = "all",
        max_megapixels: float | str = 250,
    ) -> None:
        self._photos = Forensics(crop=crop, score="pce", max_megapixels=max_megapixels)
        self.crop, self.max_megapixels = self._photos.crop, self._photos.max_megapixels
        self._frame = None if frame is None else read_sides(frame, "frame")
        self.frame = None if self._frame is None else "{}x{}".format(*self._frame)
        if shift not in ("all", "none"):
            raise ConfigError(f"shift: {shift!r} is neither 'all' nor 'none'", context={"option": "shift"})
        self.shift = shift
        self.outputs = {"scores": np.float32, "ncc": np.float32}
        if shift == "all":
            self.outputs |= {"peak": np.float32, "row": np.int32, "column": np.int32}
            self.directed = ("row", "column")

    def check_files(self, files: Iterable[tuple[str, BinaryIO]]) -> None:
        """Refuse photos of different sizes from their headers, unless they are cropped, or looked for in a frame."""
        if self.crop is not None or self._frame is not None:
            return
        sizes: dict[tuple[int, int], list[str]] = {}
        for key, file in files:
            found = photo_size(file)
            if found is not None:
                sizes.setdefault(found, []).append(key)
        refuse_unlike(sizes)

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Return the noise residual of a questioned photo, weighted for detection: float32 (h, w)."""
        return weigh_photo(read_residual(*decode_photo(self._photos, key, data)))

    def group(self, key: str, files: Sequence[tuple[str, bytes]]) -> np.ndarray:
        """Return the fingerprint of a camera from its photos: float32 (h, w), NaN beyond a sensor below the frame.

        Equal files count once.

        Raises
        ------
        ItemError
            If a photo cannot be read, or sizes differ.
        """
        photos: dict[bytes, str] = {}
        for name, data in files:
            photos.setdefault(data, name)
        first, shape, fingerprint = "", None, PatternEstimate()
        for data, name in photos.items():
            grey, ends = decode_photo(self._photos, f"{key}: {name}", data)
            if shape not in (None, grey.shape):
                (h, w), (height, width) = grey.shape, shape
                raise ItemError(
                    f"{key}: {name} has {w} x {h} pixels, {first} {width} x {height}; a camera's photos have one size",
                    context={"key": key, "file": name},
                )
            first, shape = first or name, grey.shape
            fingerprint.add(read_residual(grey, ends))
        found = fingerprint.estimate()
        return found if self._frame is None else _put_into(found, self._frame, np, np.nan)

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Make zero-mean, flatten the spectrum, and return it as two planes of unit norm.

        What a frame has beyond a photo is 0, and beyond a fingerprint noise as strong as that: a photo then meets as
        much noise at each place, which PCE takes for granted. With zeros in both, a small sensor in a frame four times
        as large would have four times the PCE with any photo of its size.
        """
        residual = xp.array(item, dtype=xp.float32)
        known = residual.shape
        if bool(xp.isnan(residual[-1, -1])):
            known = tuple(int((~xp.isnan(line)).sum()) for line in (residual[:, 0], residual[0]))
            residual = residual[: known[0], : known[1]].copy()
        energy = remove_means(residual, xp)
        half = whiten(residual, energy, xp)
        leave_out_grid(half, residual.shape[1])
        if self._frame is not None and residual.shape != self._frame:
            kept = float((half != 0).mean())  # of the spectrum, which photos have in common with it and not with noise
            white = invert(half, residual.shape[1], xp)
            framed = _put_into(white, self._frame, xp, 0.0)
            if np.shape(item) == self._frame:  # a fingerprint
                noise = np.random.default_rng(_SEED).standard_normal(self._frame, np.float32)
                noise[: known[0], : known[1]] = 0
                framed += xp.asarray(noise) * (white.std() / np.float32(max(kept, _TINY) ** 0.5))
            half = transform(framed, xp)
        return pack_spectrum(half, residual.shape[1] if self._frame is None else self._frame[1], xp)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Score a tile: see ``Cameras``."""
        scores, ncc = pce_tile(left, right, xp)
        found = {"scores": scores, "ncc": ncc}
        if self.shift == "all":
            peaks = [[find_peak(one, other, xp) for other in right] for one in left]
            columns = np.array(peaks, np.float64).reshape(len(left), len(right), 3)
            found |= {name: xp.asarray(columns[..., at]) for at, name in enumerate(("peak", "row", "column"))}
        return found

    def reverse(self, scores: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the place of the one on the other from that of the other on the one."""
        return {name: -scores[name] for name in self.directed}

    def describe_failure(self, item: Any) -> str | None:
        """Name a photo or camera without a pattern."""
        return None if item.any() else "it is flat, clipped or black everywhere: it holds no noise pattern"

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """PCE above 60 is the customary decision for a photo and a fingerprint."""
        if output not in ("scores", "peak"):
            return None
        return Meaning(
            distance=f"max(max,{PCE_THRESHOLD!r})-s",
            why="how far a pair is below the best one",
            cut=PCE_THRESHOLD,
            cut_why="a photo above is by custom taken for one of the camera; Goljan et al., SPIE 7254, 2009",
            together="taken by this camera",
            apart="not shown to be taken by this camera",
            unit="PCE",
        )

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a photo: its size, camera and date, and a small picture of it."""
        return describe_photo(key, bytes(data), self.max_megapixels)


class PatternEstimate:
    """The maximum-likelihood estimate of a sensor's pattern, photo by photo: K = sum(W I) / sum(I^2)."""

    def __init__(self) -> None:
        self._products: np.ndarray | None = None
        self._squares: np.ndarray | None = None

    def add(self, photo: Residual) -> None:
        """Take in a photo; pixels that are not usable have no weight."""
        light = np.where(photo.usable, photo.light, np.float32(0))
        if self._products is None or self._squares is None:
            self._products, self._squares = photo.noise * light, light * light
        else:
            self._products += photo.noise * light
            self._squares += light * light

    def estimate(self) -> np.ndarray:
        """Return the pattern, float32 (h, w); 0 where no photo tells it."""
        assert self._products is not None
        assert self._squares is not None
        nowhere = self._squares == 0
        return np.where(nowhere, np.float32(0), self._products / np.where(nowhere, np.float32(1), self._squares))


def _put_into(pattern: Any, frame: tuple[int, int], xp: Any, beyond: float) -> Any:
    """Return a pattern in the corner of a frame that is filled with ``beyond``.

    Raises
    ------
    ItemError
        If it is larger.
    """
    height, width = pattern.shape
    if height > frame[0] or width > frame[1]:
        turned = "; it fits if it is turned" if height <= frame[1] and width <= frame[0] else ""
        raise ItemError(f"{width} x {height} pixels are more than the sensor of {frame[1]} x {frame[0]} has{turned}")
    wide = xp.full(frame, beyond, dtype=xp.float32)
    wide[:height, :width] = pattern
    return wide
