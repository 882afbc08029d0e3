"""Photos with known truth: several cameras, each with the noise pattern of its own sensor, saved as real JPEGs.

A photo is a scene (``scenes.py``: landscape, town, table, clouds, or something flat) before a camera (``sensors.py``:
lens, colour filters, pattern, noise, demosaicing, gamma), saved as JPEG. No scene occurs twice, so that only sensors
link the photos. Patterns are as strong as those of real photos unless ``prnu`` says otherwise:
docs/forensics-photos.md has both side by side. What is left out: denoising and sharpening, distortion, rotation, zoom.

Everything follows from the seed, whatever the number of threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tartan.apps.forensics.app import read_sides
from tartan.apps.forensics.difficult import FRAME, LEAST_ITEMS, DifficultPhotos
from tartan.apps.forensics.scenes import draw_flat, draw_scene
from tartan.apps.forensics.sensors import SimulatedCamera
from tartan.errors import ConfigError

# Measured on 54 photos of four Nikon D70 and D70s, of 6 megapixels: docs/forensics-photos.md, Simulated photos.
# Measured on the same: quantisation tables are those of 95 for flat photos, of 86 to 92 for natural ones.
_LESS = 6
REAL_PRNU = 0.0075


# More than eight: each is a `--set` of the command.
def simulate(
    folder: Path | str,
    n: int,
    seed: int,
    *,
    cameras: int = 4,
    size: int | str | tuple[int, int] = (1024, 1024),
    flats: float = 0.75,
    models: int = 1,
    quality: int = 95,
    prnu: float = REAL_PRNU,
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
    size : int, (height, width), "HxW" or "HxW,HxW,.."
        Size of the photos in pixels; of several, models take turns.
    flats : float
        Share of each camera's photos that are flat (a wall, an overcast sky), 0 to 1; the first ones of each. Flat
        photos show the pattern some four times as clearly as natural ones.
    models : int
        Number of models, which cameras take turns to be of. Cameras of a model share a faint pattern. At least one for
        each size.
    quality : int
        JPEG quality of flat photos, 1 to 100. Natural ones have up to a sixth less, as cameras that keep files small
        make it.
    prnu : float
        Standard deviation of K. The default is what photos of real cameras show; 0.02 makes natural photos of
        0.25 megapixels tell their camera, which real ones never do.
    hard : bool
        Difficult files, see ``DifficultPhotos``: three in front that are not photos, copies, and photos that are
        clipped, compressed twice, turned, or larger. Takes 8 photos or more of one size.

    Returns
    -------
    Path
        ``truth.json``: ``{"cameras": {file name: camera name}, ...}``, ``"flat"``, the names of the flat photos, and
        the options. With ``hard`` also, by file name, ``bad``, why a file is none, which has no camera; ``duplicates``,
        the photo that a file equals; and the lists ``clipped``, ``recompressed``, ``turned`` (by half a circle: their
        sensor is not found again) and ``larger``. ``size`` is then the ``crop`` by which photos of all sizes are
        compared.

    Raises
    ------
    ConfigError
        If an option is out of its range.

    Notes
    -----
    About 0.15 s a megapixel on one core; uses all cores. Memory: 60 bytes a pixel for each core, and 4 bytes a
    pixel for each camera.
    """
    sizes = _read_sizes(size)
    _check(n, cameras, quality, prnu, flats, models)
    models = max(models, len(sizes))
    if hard and n < LEAST_ITEMS:
        raise ConfigError(f"n: {n} must be {LEAST_ITEMS} or more with hard=True", context={"option": "n"})
    if hard and len(sizes) > 1:
        raise ConfigError(f"size: {size!r} are several; hard=True takes one, and makes larger photos itself")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    camera_seeds, photo_seeds, order_seed, model_seeds = np.random.SeedSequence(seed).spawn(4)
    frame = FRAME if hard else 0
    of_models = model_seeds.spawn(models)
    chosen = [sizes[c % models % len(sizes)] for c in range(cameras)]
    shapes = [(height + 2 * frame, width + 2 * frame) for height, width in chosen]
    makes = zip(camera_seeds.spawn(cameras), shapes, strict=True)
    sensors = [SimulatedCamera.make(s, of_models[c % models], shape, prnu) for c, (s, shape) in enumerate(makes)]
    owners = np.random.default_rng(order_seed).permutation(np.arange(n) % cameras).tolist()
    flat = _choose_flats(owners, flats)
    names = [f"photo_{i:04d}.jpg" for i in range(n)]
    difficult = DifficultPhotos(seed, names) if hard else None

    def shoot(at: int, photo_seed: np.random.SeedSequence) -> None:
        name, owner = names[at], owners[at]
        light = (draw_flat if flat[at] else draw_scene)(np.random.default_rng(photo_seed), *shapes[owner])
        if difficult is not None:
            difficult.expose(name, light)
        photo = sensors[owner].expose(light, np.random.default_rng(photo_seed.spawn(1)[0]))
        least = quality if flat[at] else max(1, quality - quality // _LESS)
        own = int(np.random.default_rng(photo_seed.spawn(1)[0]).integers(least, quality + 1))
        file = _jpeg(photo, own) if difficult is None else difficult.file(name, photo, own, _jpeg)
        (folder / name).write_bytes(file)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(shoot, range(n), photo_seeds.spawn(n)))
    truth = {name: f"camera-{owner + 1}" for name, owner in zip(names, owners, strict=True)}
    options: dict[str, Any] = {
        "n": n,
        "seed": seed,
        "size": list(sizes[0]) if len(sizes) == 1 else [list(one) for one in sizes],
        "flats": flats,
        "models": models,
        "quality": quality,
        "prnu": prnu,
        "flat": [name for name, is_flat in zip(names, flat, strict=True) if is_flat],
    }
    if difficult is not None:
        difficult.copy(folder)
        options |= difficult.truth()
        options["flat"] = difficult.flats(options["flat"])
        truth = difficult.owners(truth)
    return _write_truth(folder / "truth.json", {"application": "forensics", **options, "cameras": truth})


def _read_sizes(size: Any) -> list[tuple[int, int]]:
    if isinstance(size, str):
        return [read_sides(one, "size") for one in size.split(",")]
    return [read_sides(size, "size")]


def _choose_flats(owners: Sequence[int], share: float) -> list[bool]:
    """Say which photos are flat: of each camera the first ones, ``share`` of its photos."""
    n_of = np.bincount(owners)
    left = [round(share * int(count)) for count in n_of]
    found = []
    for owner in owners:
        found.append(left[owner] > 0)
        left[owner] -= 1
    return found


def _check(n: int, cameras: int, quality: int, prnu: float, flats: float, models: int) -> None:
    for name, value, low, high in (
        ("n", n, 1, 10**6),
        ("cameras", cameras, 1, 10**4),
        ("quality", quality, 1, 100),
        ("prnu", prnu, 0, 0.5),
        ("flats", flats, 0, 1),
        ("models", models, 1, 10**4),
    ):
        whole = name in ("n", "cameras", "quality", "models")
        if not isinstance(value, int if whole else int | float) or not low <= value <= high:
            raise ConfigError(
                f"{name}: {value!r} is not {'a whole number ' if whole else ''}between {low} and {high}",
                context={"option": name},
            )


def _write_truth(path: Path, truth: dict[str, Any]) -> Path:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _jpeg(photo: np.ndarray, quality: int) -> bytes:
    import simplejpeg

    return bytes(simplejpeg.encode_jpeg(photo, quality=quality, colorspace="RGB", colorsubsampling="422"))
