"""What makes simulated photos difficult, and the truth about it.

The first three files are not photos (``bad``). The last fifth are copies, byte by byte. By turns, photos are as they
are, clipped (half of them is white), compressed twice, turned by half a circle, or larger than the others by a frame
of ``FRAME`` pixels. Those that are compressed twice have a tag of rotation, which changes no pixel.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# By judgement: three bad ones and a copy leave some of each kind.
LEAST_ITEMS = 8
# By format: two blocks of JPEG.
FRAME = 16

_KINDS = ("plain", "clipped", "recompressed", "turned", "larger")
# By convention: what Pillow and libjpeg save at.
_SECOND_QUALITY = 75
# An EXIF block that says "turned by 180 degrees", little-endian: one entry, orientation (0x0112), short, 3.
_TURNED_BY_TAG = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0"


@dataclass(frozen=True)
class DifficultPhotos:
    """Difficult photos of one seed, ``names`` in order."""

    seed: int
    names: Sequence[str]

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

    def file(self, name: str, photo: np.ndarray, quality: int, jpeg: Callable[[np.ndarray, int], bytes]) -> bytes:
        """Return the file of a photo with a frame, uint8 (h, w, 3), which ``jpeg`` makes of it at a quality."""
        import simplejpeg

        kind = self.kind(name)
        inner = photo if kind == "larger" else photo[FRAME:-FRAME, FRAME:-FRAME]
        data = jpeg(np.ascontiguousarray(inner[::-1, ::-1] if kind == "turned" else inner), quality)
        if kind == "recompressed":
            data = jpeg(simplejpeg.decode_jpeg(data), min(quality, _SECOND_QUALITY))
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

    def flats(self, names: Sequence[str]) -> list[str]:
        """Return the flat photos, given which were drawn as such."""
        drawn = set(names)
        return [name for name in self.names if self.duplicates.get(name, name) in drawn and name not in self.bad]

    def truth(self) -> dict[str, Any]:
        """Return the files that are not photos, the copies, and what was done to which photos."""
        photos = [name for name in self.names if name not in self.bad]
        kinds = {name: self.kind(self.duplicates.get(name, name)) for name in photos}
        listed = {kind: [name for name in photos if kinds[name] == kind] for kind in _KINDS[1:]}
        return {"hard": True, "bad": self.bad, "duplicates": self.duplicates, **listed}
