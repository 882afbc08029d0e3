"""What is compared to say which of some known cameras took a photo: the files of each, and their comparisons."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.apps.forensics.app import describe_photo
from tartan.apps.forensics.decisions import FALSE_ALARM, Calibration, Judgement, calibrate, judge
from tartan.apps.forensics.headers import photo_size
from tartan.base.files import open_regular
from tartan.errors import ConfigError, ItemError

# By judgement: larger files are no photos; a bound for what is hashed and described.
_MOST_BYTES = 2 << 30


@dataclass(frozen=True)
class PhotoFile:
    """A photo of a case.

    Attributes
    ----------
    key : str
        Its name among the questioned photos and the references.
    path : str
    sha256 : str
        "" where it cannot be read.
    n_bytes : int
    facts : mapping of str to str
        Size in pixels, camera and date, as its header says.
    camera : int or None
        Index of the known camera; None for a questioned photo.
    """

    key: str
    path: str
    sha256: str
    n_bytes: int
    facts: Mapping[str, str]
    camera: int | None


@dataclass(frozen=True)
class Halves:
    """Comparisons of known cameras with photos of their own: each half of the photos against the other.

    Attributes
    ----------
    groups : mapping of str to list of str
        The files of each half.
    photos : list of str
        All files of them.
    pairs : int array (m, 2)
        Half and photo, counted from 0 in one index space of the halves and then the photos.
    """

    groups: Mapping[str, list[str]]
    photos: list[str]
    pairs: NDArray[np.int64]


def read_photo(key: str, path: str, camera: int | None, max_megapixels: float) -> PhotoFile:
    """Hash and describe a photo; what cannot be read is left out, and fails where it is compared."""
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return PhotoFile(key, path, "", 0, {}, camera)
    try:
        facts = {
            name: str(value) for name, value in describe_photo(key, data, max_megapixels).items() if name != "photo"
        }
    except ItemError:
        facts = {}
    return PhotoFile(key, path, hashlib.sha256(data).hexdigest(), len(data), facts, camera)


def choose_frame(cameras: Mapping[str, Sequence[str]], questioned: Sequence[str]) -> str | None:
    """Return the frame in which photos of different sizes are looked for, None where all have one size.

    Raises
    ------
    ConfigError
        If no photo of the cameras has a size.
    """
    known = {size for paths in cameras.values() for size in map(_size_of, paths) if size is not None}
    others = {size for size in map(_size_of, questioned) if size is not None}
    if not known:
        raise ConfigError("no photo of the known cameras can be read; their files must be JPEG, PNG, TIFF or BMP")
    if len(known | others) == 1:
        return None
    height, width = max(h for h, _ in known), max(w for _, w in known)
    return f"{height}x{width}"


def _size_of(path: str) -> tuple[int, int] | None:
    try:
        with open_regular(path) as file:
            return photo_size(file)
    except OSError:
        return None


def drop_copies(cameras: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the photos of each camera without those that equal one before them, byte by byte."""
    kept: dict[str, list[str]] = {}
    for name, paths in cameras.items():
        alike: dict[int, list[str]] = {}
        for path in paths:
            alike.setdefault(_n_bytes(path), []).append(path)
        seen: set[str] = set()
        copies: set[str] = set()
        for path in (path for some in alike.values() if len(some) > 1 for path in some):
            digest = read_photo("", path, None, 0).sha256
            if digest and digest in seen:
                copies.add(path)
            seen.add(digest)
        kept[name] = [path for path in paths if path not in copies]
    return kept


def _n_bytes(path: str) -> int:
    try:
        with open_regular(path) as file:
            return int(file.seek(0, 2))
    except OSError:
        return -1


def halve(cameras: Mapping[str, Sequence[str]]) -> Halves | None:
    """Part the photos of each camera with at least two into halves; None where there is none."""
    groups: dict[str, list[str]] = {}
    photos: list[str] = []
    crossed: list[tuple[int, int]] = []
    for name, paths in cameras.items():
        if len(paths) < 2:
            continue
        for half in (0, 1):
            crossed += [(len(groups), len(photos) + at) for at in range(len(paths)) if at % 2 != half]
            groups[f"{name} ({half + 1} of 2)"] = list(paths[half::2])
        photos += paths
    if not groups:
        return None
    return Halves(groups, photos, np.array([(half, len(groups) + at) for half, at in crossed], np.int64))


def judge_photos(
    scores: Mapping[str, NDArray[Any]],
    files: Sequence[PhotoFile],
    same: NDArray[Any],
    *,
    frame: tuple[int, int],
    false_alarm: float,
) -> tuple[Calibration, list[Judgement | None]]:
    """Calibrate by the references, and judge the questioned photos.

    Parameters
    ----------
    scores : mapping of str to array (c, n)
        Outputs of ``Cameras``, each camera against each file; NaN where a comparison failed.
    files : sequence of PhotoFile
        The n files.
    same : array of float
        PCE of photos with the other half of their camera's.
    frame : (int, int)
        Rows and columns in which places are counted.
    false_alarm : float

    Returns
    -------
    Calibration
    list of Judgement or None
        Of each file; None for references and for photos that failed.
    """
    pce = np.asarray(scores["scores"], np.float64)
    peak = np.asarray(scores.get("peak", pce), np.float64)
    cameras = np.array([-1 if file.camera is None else file.camera for file in files])
    # A reference that is also a photo of another camera, byte by byte, would be no foreign one.
    owners: dict[str, set[int]] = {}
    for file in files:
        if file.camera is not None:
            owners.setdefault(file.sha256, set()).add(file.camera)
    foreign = (cameras >= 0)[None, :] & (np.arange(len(pce))[:, None] != cameras[None, :])
    # Copies of a photo would count as several.
    first = {file.sha256: at for at, file in reversed(list(enumerate(files))) if file.camera is not None}
    counted = [len(owners.get(f.sha256, ())) < 2 and first.get(f.sha256, at) == at for at, f in enumerate(files)]
    foreign &= np.array(counted)[None, :]
    pairs = np.broadcast_to(np.arange(len(pce))[:, None] * len(pce) + cameras[None, :], pce.shape)
    found = calibrate(
        pce[foreign],
        peak[foreign],
        same,
        n_places=frame[0] * frame[1] if "peak" in scores else 1,
        n_cameras=len(pce),
        false_alarm=false_alarm,
        pairs=pairs[foreign],
    )
    rows, columns = (scores.get(name, np.zeros(pce.shape)) for name in ("row", "column"))
    judged: list[Judgement | None] = []
    for at, file in enumerate(files):
        if file.camera is not None or np.isnan(pce[:, at]).all():
            judged.append(None)
            continue
        places = [_place(file, frame, int(row), int(column)) for row, column in zip(rows[:, at], columns[:, at])]
        judged.append(judge(found, pce[:, at], peak[:, at], scores["ncc"][:, at], places))
    return found, judged


def find_alike(pce: NDArray[Any], files: Sequence[PhotoFile], false_alarm: float) -> list[tuple[int, int, int]]:
    """Return cameras whose photos show the fingerprint of another one: camera, the other, how many photos.

    Photos that lie under two cameras are left out.

    Parameters
    ----------
    pce : array (c, n)
        Each camera against each file; NaN where a comparison failed.
    files : sequence of PhotoFile
    false_alarm : float

    Notes
    -----
    The cut is that of cases of which nothing is known: the one of this case follows from these very photos.
    """
    cut = calibrate([], [], [], n_places=1, n_cameras=len(pce), false_alarm=min(false_alarm, FALSE_ALARM)).cut
    whose: dict[str, set[int]] = {}
    for file in files:
        if file.camera is not None:
            whose.setdefault(file.sha256, set()).add(file.camera)
    owners = np.array([file.camera if len(whose.get(file.sha256, ())) == 1 else None for file in files], float)
    counts = [
        (int(owner), other, int((pce[other, owners == owner] >= cut).sum()))
        for owner in np.unique(owners[~np.isnan(owners)])
        for other in range(len(pce))
        if other != owner
    ]
    return [one for one in counts if one[2]]


def _place(photo: PhotoFile, frame: tuple[int, int], row: int, column: int) -> tuple[int, int]:
    """Return where the corner of a photo lies on the sensor.

    Shifts are known up to whole frames, and come as -side / 2 to side / 2. Where a photo would so lie wholly above or
    left of the sensor, it lies in its lower or right half.
    """
    size = [int(side) for side in photo.facts.get("pixels", "").split(" x ") if side.isdecimal()]
    if len(size) != 2:
        return row, column
    width, height = size
    return row + (frame[0] if row <= -height else 0), column + (frame[1] if column <= -width else 0)
