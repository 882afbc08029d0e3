"""Photos with known truth: several cameras, each with the noise pattern of its own sensor, saved as real JPEGs.

A photo is a scene (landscape, town, table, clouds), seen through a lens that darkens the corners, by a sensor that
multiplies the light by 1 + K, K its own fixed pattern, and adds shot and read noise; then gamma, 8 bits, JPEG. No
scene occurs twice, so that only the sensors link the photos. What is left out: colour filters and demosaicing,
rotation, zoom.

Scenes are light in [0, 1], float32 (h, w, 3). Everything follows from the seed, whatever the number of threads.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan.apps.forensics.app import read_sides
from tartan.errors import ConfigError

_GAMMA = 1 / 2.2
_FULL_WELL = 4000.0  # electrons of a white pixel of a small sensor: shot noise of 1.6 %
_READ_NOISE = 0.002


def simulate(
    folder: Path | str,
    n: int,
    seed: int,
    *,
    cameras: int = 4,
    size: int | str | tuple[int, int] = (512, 512),
    quality: int = 92,
    prnu: float = 0.02,
    hard: bool = False,
) -> Path:
    """Write n photos taken by several simulated cameras, and which camera took each.

    Parameters
    ----------
    folder : Path
        Gets ``photo_0000.jpg`` and so on, and ``truth.json``; made when absent.
    n : int
        Number of photos. Cameras take turns in random order, so that each takes n / cameras of them.
    seed : int
        Same seed and options: the same photos, for one version of the JPEG library.
    cameras : int
        Number of cameras.
    size : int, (height, width) or "HxW"
        Size of the photos in pixels.
    quality : int
        JPEG quality, 1 to 100.
    prnu : float
        Standard deviation of K; real sensors have 0.005 to 0.03.
    hard : bool
        Difficult files, see ``DifficultPhotos``: three in front that are not photos, copies, and photos that are
        clipped, compressed twice, turned, or larger. Takes 8 photos or more.

    Returns
    -------
    Path
        ``truth.json``: ``{"cameras": {file name: camera name}, ...}`` and the options. With ``hard`` also, by file
        name, ``bad``, why a file is none, which has no camera; ``duplicates``, the photo that a file equals; and the
        lists ``clipped``, ``recompressed``, ``turned`` (by half a circle: their sensor is not found again) and
        ``larger``. ``size`` is the ``crop`` by which photos of all sizes are compared.

    Raises
    ------
    ConfigError
        If an option is out of its range.

    Notes
    -----
    About 60 ms a photo of 512 x 512 on one core; uses all cores. Memory: a few photos, and 4 bytes a pixel for
    each camera.
    """
    height, width = read_sides(size, "size")
    _check(n, cameras, quality, prnu)
    if hard and n < LEAST_ITEMS:
        raise ConfigError(f"n: {n} must be {LEAST_ITEMS} or more with hard=True", context={"option": "n"})
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    camera_seeds, photo_seeds, order_seed = np.random.SeedSequence(seed).spawn(3)
    frame = FRAME if hard else 0
    sensors = [_Sensor.make(s, height + 2 * frame, width + 2 * frame, prnu) for s in camera_seeds.spawn(cameras)]
    owners = np.random.default_rng(order_seed).permutation(np.arange(n) % cameras).tolist()
    names = [f"photo_{i:04d}.jpg" for i in range(n)]

    difficult = DifficultPhotos(seed, names, quality) if hard else None

    def shoot(name: str, owner: int, photo_seed: np.random.SeedSequence) -> None:
        light = _draw_scene(np.random.default_rng(photo_seed), height + 2 * frame, width + 2 * frame)
        if difficult is not None:
            difficult.expose(name, light)
        photo = sensors[owner].expose(light, np.random.default_rng(photo_seed.spawn(1)[0]))
        (folder / name).write_bytes(_jpeg(photo, quality) if difficult is None else difficult.file(name, photo, _jpeg))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(shoot, names, owners, photo_seeds.spawn(n)))
    truth = {name: f"camera-{owner + 1}" for name, owner in zip(names, owners, strict=True)}
    options: dict[str, Any] = {"n": n, "seed": seed, "size": [height, width], "quality": quality, "prnu": prnu}
    if difficult is not None:
        difficult.copy(folder)
        options |= difficult.truth()
        truth = difficult.owners(truth)
    return _write_truth(folder / "truth.json", {"application": "forensics", **options, "cameras": truth})


def _check(n: int, cameras: int, quality: int, prnu: float) -> None:
    for name, value, low, high in (
        ("n", n, 1, 10**6),
        ("cameras", cameras, 1, 10**4),
        ("quality", quality, 1, 100),
        ("prnu", prnu, 0, 0.5),
    ):
        if not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigError(f"{name}: {value!r} is not between {low} and {high}", context={"option": name})


def _write_truth(path: Path, truth: dict[str, Any]) -> Path:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _jpeg(photo: np.ndarray, quality: int) -> bytes:
    import simplejpeg

    return bytes(simplejpeg.encode_jpeg(photo, quality=quality, colorspace="RGB", colorsubsampling="422"))


@dataclass(frozen=True)
class _Sensor:
    """One camera: what its sensor and its lens do to the light; float32 (h, w)."""

    gain: np.ndarray

    @staticmethod
    def make(seed: np.random.SeedSequence, height: int, width: int, prnu: float) -> _Sensor:
        rng = np.random.default_rng(seed)
        pattern = 1 + np.float32(prnu) * rng.standard_normal((height, width), dtype=np.float32)
        y, x = _grid(height, width)
        falloff = np.float32(rng.uniform(0.1, 0.3))
        return _Sensor(pattern * (1 - falloff * (x * x + y * y)))

    def expose(self, light: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the photo, uint8 (h, w, 3), of a scene; overwrites the scene."""
        light *= self.gain[..., None]
        noise = rng.standard_normal(light.shape, dtype=np.float32)
        noise *= np.sqrt(light * np.float32(1 / _FULL_WELL) + np.float32(_READ_NOISE**2))
        light += noise
        np.clip(light, 0, 1, out=light)
        np.power(light, np.float32(_GAMMA), out=light)
        light *= 255
        light += np.float32(0.5)
        return light.astype(np.uint8)


# --- scenes -----------------------------------------------------------------------------------------------------


def _draw_scene(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Draw one scene: light in [0, 1], float32 (h, w, 3)."""
    kinds: tuple[Callable[..., np.ndarray], ...] = (_landscape, _draw_town, _table, _clouds)
    scene = kinds[int(rng.integers(len(kinds)))](rng, height, width)
    scene *= np.float32(rng.uniform(0.75, 1.0))
    return np.clip(scene, 0.01, 0.95, out=scene)


def _landscape(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Sky with a sun above ranges of hills, the nearer the darker."""
    scene = _sky(rng, height, width)
    y, x = _grid(height, width)
    sun_x, sun_y = rng.uniform(-0.8, 0.8), rng.uniform(-0.9, -0.3)
    distance = (x - np.float32(sun_x)) ** 2 + (y - np.float32(sun_y)) ** 2
    scene += (0.5 * np.exp(-distance * np.float32(rng.uniform(8, 40))))[..., None] * _colour(1, 0.9, 0.7)
    texture = _fractal(rng, height, width, 1.2)
    n_ranges = int(rng.integers(2, 5))
    for k in range(n_ranges):
        level = -0.1 + 0.8 * (k + rng.uniform(0, 0.5)) / n_ranges
        ridge = np.float32(level) + np.float32(0.25 / (k + 1)) * _fractal(rng, 1, width, 1.6)[0]
        shade = (0.45 - 0.3 * k / n_ranges) * (1 + np.float32(0.12 * (k + 1)) * texture)
        colour = _colour(*rng.uniform((0.5, 0.7, 0.3), (0.9, 1.0, 0.8)))
        _paint(scene, y > ridge, shade[..., None] * colour)
    return scene


def _draw_town(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Houses with lit and dark windows before a sky."""
    scene = _sky(rng, height, width)
    plaster = 1 + np.float32(0.06) * _fractal(rng, height, width, 0.8)
    for _ in range(int(rng.integers(6, 14))):
        house_width = int(width * rng.uniform(0.08, 0.25)) + 4
        left = int(rng.integers(-house_width // 2, width - house_width // 2))
        top = int(height * rng.uniform(0.25, 0.8))
        where = np.s_[top:, max(left, 0) : left + house_width]
        scene[where] = plaster[where][..., None] * _colour(*rng.uniform(0.15, 0.6, 3))
        _windows(rng, scene[where])
    return scene


def _windows(rng: np.random.Generator, wall: np.ndarray) -> None:
    step = int(rng.integers(14, 30))
    for y in range(step // 2, wall.shape[0] - step, step):
        for x in range(step // 3, wall.shape[1] - step // 2, step):
            lit = rng.random() < 0.4
            wall[y : y + step // 2, x : x + step // 2] = _colour(0.9, 0.8, 0.5) if lit else _colour(0.06, 0.07, 0.1)


def _table(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Balls with highlights on a grained table before a wall."""
    y, x = _grid(height, width)
    edge = np.float32(rng.uniform(-0.5, 0.0))
    wall = np.float32(rng.uniform(0.4, 0.7)) * (1 - np.float32(0.25) * (x + y) / 2)
    scene: np.ndarray = wall[..., None] * _colour(*rng.uniform(0.6, 1.0, 3))
    grain = 1 + np.float32(0.15) * np.sin(40 * y + 3 * _fractal(rng, height, width, 1.4))
    _paint(scene, y > edge, (np.float32(0.35) * grain)[..., None] * _colour(0.9, 0.65, 0.4))
    for _ in range(int(rng.integers(3, 9))):
        radius = np.float32(rng.uniform(0.08, 0.3))
        dx = (x - np.float32(rng.uniform(-0.9, 0.9))) / radius
        dy = (y - np.float32(rng.uniform(edge, 0.8))) / radius
        depth = np.sqrt(np.maximum(1 - dx * dx - dy * dy, 0))
        lit = np.clip((depth * 2 - dx - dy) / np.float32(2.45), 0, 1)
        colour = _colour(*rng.uniform(0.1, 0.9, 3))
        ball = (0.1 + 0.7 * lit)[..., None] * colour + (np.float32(0.5) * lit**40)[..., None]
        _paint(scene, depth > 0, ball)
    return scene


def _clouds(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Clouds in the sky, no ground."""
    scene = _sky(rng, height, width)
    cover = np.clip(_fractal(rng, height, width, 1.7) * 0.5 + np.float32(rng.uniform(0.1, 0.5)), 0, 1)[..., None]
    scene += cover * (np.float32(rng.uniform(0.7, 0.9)) - scene)
    return scene


def _sky(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A gradient from zenith to horizon."""
    share = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    zenith = _colour(*rng.uniform((0.1, 0.2, 0.45), (0.3, 0.45, 0.8)))
    horizon = _colour(*rng.uniform((0.5, 0.5, 0.5), (0.85, 0.75, 0.8)))
    return np.repeat(zenith + share * (horizon - zenith), width, axis=1)


def _fractal(rng: np.random.Generator, height: int, width: int, slope: float) -> np.ndarray:
    """Noise whose amplitude falls with frequency to the power of ``slope``; unit variance."""
    from scipy import fft

    spectrum = fft.rfft2(rng.standard_normal((height, width), dtype=np.float32))
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.sqrt(fx * fx + fy * fy).astype(np.float32)
    frequency[0, 0] = np.inf
    noise = np.asarray(fft.irfft2(spectrum / frequency**slope, s=(height, width)), dtype=np.float32)
    return noise / max(float(noise.std()), 1e-6)


def _paint(scene: np.ndarray, where: np.ndarray, colours: np.ndarray) -> None:
    np.copyto(scene, colours, where=where[..., None])


def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns from -1 to 1, (h, 1) and (1, w)."""
    rows, columns = (np.linspace(-1, 1, side, dtype=np.float32) for side in (height, width))
    return rows[:, None], columns[None, :]


def _colour(red: float, green: float, blue: float) -> np.ndarray:
    return np.array([red, green, blue], np.float32)


# What makes simulated photos difficult, and the truth about it.
#
# The first three files are not photos (``bad``). The last fifth are copies, byte by byte. By turns, photos are as they
# are, clipped (half of them is white), compressed twice, turned by half a circle, or larger than the others by a frame
# of ``FRAME`` pixels. Those that are compressed twice have a tag of rotation, which changes no pixel.

LEAST_ITEMS = 8
FRAME = 16

_KINDS = ("plain", "clipped", "recompressed", "turned", "larger")
_SECOND_QUALITY = 75
# An EXIF block that says "turned by 180 degrees", little-endian: one entry, orientation (0x0112), short, 3.
_TURNED_BY_TAG = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0"


@dataclass(frozen=True)
class DifficultPhotos:
    """Difficult photos of one seed, ``names`` in order."""

    seed: int
    names: Sequence[str]
    quality: int

    @property
    def bad(self) -> dict[str, str]:
        """Files in front that are not photos, and why."""
        return dict(zip(self.names, ("empty", "truncated", "text"), strict=False))

    @property
    def duplicates(self) -> dict[str, str]:
        """Copies, and the photos of which they are copies."""
        rest = self.names[len(self.bad) :]
        whole, copies = rest[: len(rest) - len(rest) // 5], rest[len(rest) - len(rest) // 5 :]
        drawn = np.random.default_rng([self.seed, 1]).integers(len(whole), size=len(copies))
        return {copy: whole[place] for copy, place in zip(copies, drawn.tolist(), strict=True)}

    def kind(self, name: str) -> str:
        """Return what is done to a photo."""
        return _KINDS[self.names.index(name) % len(_KINDS)]

    def expose(self, name: str, light: np.ndarray) -> None:
        """Brighten a scene in place until half of it is white, if the photo is to be clipped."""
        if self.kind(name) == "clipped":
            light /= np.median(light)

    def file(self, name: str, photo: np.ndarray, jpeg: Callable[[np.ndarray, int], bytes]) -> bytes:
        """Return the file of a photo with a frame, uint8 (h, w, 3)."""
        import simplejpeg

        kind = self.kind(name)
        inner = photo if kind == "larger" else photo[FRAME:-FRAME, FRAME:-FRAME]
        data = jpeg(np.ascontiguousarray(inner[::-1, ::-1] if kind == "turned" else inner), self.quality)
        if kind == "recompressed":
            data = jpeg(simplejpeg.decode_jpeg(data), min(self.quality, _SECOND_QUALITY))
            data = data[:2] + _TURNED_BY_TAG + data[2:]
        spoilt = {"empty": b"", "truncated": data[: len(data) * 2 // 3], "text": b"<html>404 Not Found</html>\n"}
        return spoilt.get(self.bad.get(name, ""), data)

    def copy(self, folder: Path) -> None:
        """Put the copies in their places."""
        for copy, original in self.duplicates.items():
            shutil.copyfile(folder / original, folder / copy)

    def owners(self, cameras: dict[str, str]) -> dict[str, str]:
        """Return the camera of each photo, given whose turn it was."""
        return {name: cameras[self.duplicates.get(name, name)] for name in self.names if name not in self.bad}

    def truth(self) -> dict[str, Any]:
        """Return the files that are not photos, the copies, and what was done to which photos."""
        photos = [name for name in self.names if name not in self.bad]
        kinds = {name: self.kind(self.duplicates.get(name, name)) for name in photos}
        listed = {kind: [name for name in photos if kinds[name] == kind] for kind in _KINDS[1:]}
        return {"hard": True, "bad": self.bad, "duplicates": self.duplicates, **listed}
