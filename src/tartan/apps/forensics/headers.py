"""The size of photos, from their headers alone: nothing is decoded, and a few hundred bytes are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from tartan.apps.forensics.raw import (
    heic_size,
    is_heic,
    is_other_raw,
    open_heic,
    open_raw,
    raw_size,
    read_tiff_facts,
)
from tartan.errors import ConfigError

JPEG = b"\xff\xd8\xff"
# By judgement: a line of a message.
_NAMED = 2
# By judgement: photos have some dozen; a bound against strangers' files.
_MOST_SEGMENTS = 10_000
# By format: the kind of HEIC is said by the bytes up to here.
START_BYTES = 12
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # the other three are tables
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}


def photo_size(file: BinaryIO) -> tuple[int, int] | None:
    """Return the height and width that the header of a photo says; None where it cannot be read."""
    start = file.read(START_BYTES)
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


def refuse_unlike(sizes: dict[tuple[int, int], list[str]]) -> None:
    """Refuse photos of different sizes.

    Parameters
    ----------
    sizes : dict of (height, width) to list of str
        The photos of each size, by key.

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
    crop = f"{min(h for h, _ in sizes)}x{min(w for _, w in sizes)}"
    raise ConfigError(
        f"photos of different size cannot be compared: {text}{more}. Compare the centres of all by --set crop={crop} "
        "(height x width, the largest that all have) if none was turned, or leave the others out",
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
