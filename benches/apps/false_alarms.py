"""How often a photo of another camera is taken for one of a known camera, on pieces of real photos.

Fingerprints are made of four flat photos of each of four cameras, cut into tiles of 192 x 192 pixels; every tile is a
sensor of its own, because no two have a pattern in common. Questioned are tiles of the other photos, as they are,
recompressed, overlaid with letters and overexposed, and of natural photos of other cameras. The cut is set by other
comparisons than those that are counted. Rates are those of one comparison where photo and fingerprint lie alike.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tartan.apps.forensics.app import Forensics, decode_photo
from tartan.apps.forensics.decisions import calibrate, exact_limit
from tartan.apps.forensics.fingerprints import Cameras, PatternEstimate
from tartan.apps.forensics.residuals import read_residual, weigh_photo
from tartan.errors import ItemError

SIDE = 192
KNOWN = 4
RATES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def changed(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the photo as it is, recompressed, with letters all over it, and overexposed."""
    yield "as it is", file.read_bytes()
    image = Image.open(file).convert("RGB")
    yield "recompressed", saved(image, 70)
    lettered = image.copy()
    pen, font = ImageDraw.Draw(lettered), ImageFont.load_default(size=24)
    for y in range(30, image.height, SIDE):
        for x in range(30, image.width, SIDE):
            pen.text((x, y), "(c) 2026", fill="white", font=font)
    yield "letters", saved(lettered, 90)
    yield "overexposed", saved(image.point(lambda value: min(255, int(value * 1.6))), 90)


def saved(image: Image.Image, quality: int) -> bytes:
    """Return a photo as JPEG."""
    with io.BytesIO() as file:
        image.save(file, "JPEG", quality=quality)
        return file.getvalue()


def tiles_of(residual: np.ndarray, app: Cameras) -> np.ndarray:
    """Return the spectra of the tiles of a residual: float32 (n, values)."""
    rows, columns = (side // SIDE for side in residual.shape)
    found = []
    for row in range(rows):
        for column in range(columns):
            tile = residual[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]
            found.append(app.preprocess(tile, np))
    return np.stack(found)


def main() -> int:
    """Measure; print one JSON object."""
    folder = Path(sys.argv[1])
    decoder, app = Forensics(score="pce"), Cameras(shift="none")
    by_camera: dict[str, list[Path]] = {}
    for file in sorted((folder / "nikon").glob("*.JPG")):
        by_camera.setdefault("_".join(file.name.split("_")[:3]), []).append(file)
    known, whose = [], []
    for camera, files in by_camera.items():
        estimate = PatternEstimate()
        for file in files[:KNOWN]:
            estimate.add(read_residual(*decode_photo(decoder, file.name, file.read_bytes())))
        tiles = tiles_of(estimate.estimate(), app)
        known.append(tiles)
        whose += [(camera, at) for at in range(len(tiles))]
    left = np.concatenate(known)
    cameras, places = np.array([c for c, _ in whose]), np.array([at for _, at in whose])
    foreign: dict[str, list[np.ndarray]] = {"elsewhere": [], "same place, sister or other camera": []}
    same: dict[str, list[np.ndarray]] = {}
    questioned = [(camera, file) for camera, files in by_camera.items() for file in files[KNOWN:]]
    questioned += [("", file) for file in sorted((folder / "pentax").glob("*.JPG"))]
    for camera, file in questioned:
        for kind, data in changed(file):
            try:
                residual = weigh_photo(read_residual(*decode_photo(decoder, file.name, data)))
            except ItemError:
                continue  # too flat after compression: refused, as it is by the command
            right = tiles_of(residual, app)
            with np.errstate(invalid="ignore"):
                pce = app.compare(left, right, np)["scores"]
            at = np.arange(len(right))[None, :]
            here, own = places[:, None] == at, (cameras == camera)[:, None]
            here = here & bool(camera)
            foreign["elsewhere"].append(pce[~here])
            foreign["same place, sister or other camera"].append(pce[here & ~own])
            if camera:
                same.setdefault(kind, []).append(pce[here & own])
    rng = np.random.default_rng(0)
    result: dict[str, object] = {"tile": SIDE, "n_fingerprints": len(left)}
    for name, parts in foreign.items():
        values = np.concatenate([part.ravel() for part in parts])
        order = rng.permutation(len(values))
        setting, counted = values[order[:2000]], values[order[2000:]]
        rates = {}
        for rate in RATES:
            cut = calibrate(setting, [], [], n_places=1, n_cameras=1, false_alarm=rate).cut
            above = int((counted >= cut).sum())
            rates[f"{rate:g}"] = {"cut": cut, "above": above, "upper_limit": exact_limit(above, len(counted))}
        result[name] = {"n": len(counted), "largest": float(counted.max()), "rates": rates}
    result["own camera, median PCE"] = {kind: float(np.median(np.concatenate(p))) for kind, p in same.items()}
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
