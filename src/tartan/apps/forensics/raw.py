"""What photos are in files that are not read here: sensor data (RAW), and HEIC; developed where an extra can do it.

RAW files that are TIFF have a thumbnail first, or sensor data that Pillow takes for damage: their first directory says
so. ``rawpy`` (LibRaw, extra ``raw``) develops them, and those of other makers; ``pillow_heif`` (extra ``heic``) decodes
HEIC. Both turn photos upright, which is undone: photos are compared as they lay on the sensor.
"""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tartan.errors import ItemError

# By judgement: those that LibRaw names first for each maker; a glob takes all others.
RAW_SUFFIXES = (".nef", ".dng", ".arw", ".pef", ".cr2", ".cr3", ".raf", ".orf", ".rw2")
HEIC_SUFFIXES = (".heic", ".heif")
# By format: TIFF 6.0, TIFF/EP and DNG.
_NEW_SUBFILE_TYPE, _WIDTH, _HEIGHT, _COMPRESSION, _PHOTOMETRIC, _SUB_IFDS = 254, 256, 257, 259, 262, 330
_SENSOR = {32803, 34892}  # photometric interpretation: colour filter array, linear raw
_MAKERS = {32767, 34713, 65535}  # compression of Sony, Nikon and Pentax
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# By format: Fujifilm, Olympus and Panasonic begin so; Canon's CR3 is of the kind of HEIC.
_OTHER_RAW = (b"FUJIFILM", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
# By judgement: raw photos have a few; bounds against strangers' files.
_MOST_SUB_IFDS, _MOST_PAGES = 64, 10_000
# By judgement: properties of images come before their data, with thumbnails and EXIF.
_HEIC_HEADER = 1 << 16
# By format: ISO 23008-12: a box of 9 bytes with the angle, in quarters against the clock; one with a mirror axis.
_TURN, _MIRROR = re.compile(rb"\0\0\0\x09irot(.)", re.DOTALL), b"\0\0\0\x09imir"
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class TiffFacts(NamedTuple):
    """What the directories of a TIFF say.

    Attributes
    ----------
    size : (int, int)
        Height and width of the first image.
    is_reduced : bool
        Whether that is the thumbnail of a larger one. The SubIFDs of a pyramid are smaller than its first image.
    is_sensor : bool
        Whether it is sensor data.
    n_pages : int
        Images beside thumbnails and masks, the first included.
    """

    size: tuple[int, int]
    is_reduced: bool
    is_sensor: bool
    n_pages: int

    @property
    def is_raw(self) -> bool:
        """Whether there is no photo to be read here."""
        return self.is_reduced or self.is_sensor


def readable_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that extras read which are installed here."""
    return (RAW_SUFFIXES if find_spec("rawpy") else ()) + (HEIC_SUFFIXES if find_spec("pillow_heif") else ())


def read_tiff_facts(file: BinaryIO) -> TiffFacts | None:
    """Return what the directories of a TIFF say; None for another file. Raises what Pillow does for a damaged one."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    file.seek(0)
    start = file.read(16)
    if start[:4] not in _TIFF:
        return None
    header = start if start[2:3] == b"+" or start[3:4] == b"+" else start[:8]
    first = ImageFileDirectory_v2(header)

    def read_at(offset: int) -> Any:
        directory = ImageFileDirectory_v2(header)
        file.seek(offset)
        directory.load(file)
        return directory

    file.seek(first.next)
    first.load(file)
    size = _number(first, _HEIGHT), _number(first, _WIDTH)
    reduced = bool(_number(first, _NEW_SUBFILE_TYPE) & 1)
    for offset in tuple(first.get(_SUB_IFDS, ()))[:_MOST_SUB_IFDS]:
        inner = read_at(offset)
        reduced |= _number(inner, _WIDTH) * _number(inner, _HEIGHT) > size[0] * size[1]
    sensor = _number(first, _PHOTOMETRIC) in _SENSOR or _number(first, _COMPRESSION) in _MAKERS
    n_pages, at, seen = 1, first.next, set[int]()
    while at and at not in seen and n_pages < _MOST_PAGES:
        seen.add(at)
        page = read_at(at)
        n_pages += not _number(page, _NEW_SUBFILE_TYPE)  # neither a thumbnail nor a mask
        at = page.next
    return TiffFacts(size, reduced, sensor or start[8:10] == b"CR", n_pages)


def _number(directory: Any, tag: int) -> int:
    value = directory.get(tag, 0)
    return int(value[0] if isinstance(value, tuple) else value)


def is_heic(start: bytes) -> bool:
    """Say whether a file that begins so (12 bytes) is HEIC."""
    return start[4:8] == b"ftyp" and start[8:12] in _HEIC_BRANDS


def is_other_raw(start: bytes) -> bool:
    """Say whether a file that begins so (12 bytes) is sensor data, and no TIFF."""
    return start.startswith(_OTHER_RAW) or start[4:12] == b"ftypcrx "


def open_raw(key: str, file: Any, facts: TiffFacts | None) -> Any:
    """Open sensor data by rawpy.

    Parameters
    ----------
    key : str
    file : binary file
    facts : TiffFacts or None
        Where it is a TIFF.

    Raises
    ------
    ItemError
        If rawpy is not installed, with the way out; or if it cannot read the file.
    """
    what = "it holds sensor data (RAW)"
    if facts is not None and facts.is_reduced:
        height, width = facts.size
        what = f"its first image, of {width} x {height} pixels, is the thumbnail of a larger one, as in RAW files"
    try:
        import rawpy
    except ImportError as error:
        raise ItemError(
            f"{key}: {what}; give the whole photo: pip install 'tartan-allpairs[raw]' and it is developed here, or "
            "develop it, unturned, to TIFF, for example by: dcraw -T -t 0 FILE",
            context={"key": key},
        ) from error
    try:
        file.seek(0)
        return rawpy.imread(file)
    except Exception as error:  # LibRaw's errors, and those of files
        raise ItemError(
            f"{key}: {what}, which LibRaw cannot read ({say_error(error)}); develop it, unturned, to TIFF",
            context={"key": key},
        ) from error


def raw_size(raw: Any) -> tuple[int, int]:
    """Return the height and width of sensor data as it lay on the sensor."""
    return int(raw.sizes.height), int(raw.sizes.width)


def develop(raw: Any) -> np.ndarray:
    """Develop sensor data, unturned, without brightening: grey, uint16 (h, w)."""
    colours = raw.postprocess(user_flip=0, output_bps=16, no_auto_bright=True, use_camera_wb=True)
    grey: np.ndarray = (colours.astype(np.float32) @ _LUMA + np.float32(0.5)).astype(np.uint16)
    return grey


def open_heic(key: str, data: bytes) -> tuple[Any, int]:
    """Open HEIC; return pillow_heif's file, and how many quarters against the clock it turns the photo.

    Raises
    ------
    ItemError
        If pillow_heif is not installed, with the way out; if it cannot read the file, or that is mirrored.
    """
    try:
        import pillow_heif
    except ImportError as error:
        raise ItemError(
            f"{key}: HEIC is read where pillow-heif is installed: pip install 'tartan-allpairs[heic]'; or convert it, "
            "unturned, to PNG",
            context={"key": key},
        ) from error
    turns = {found[1][0] & 3 for found in _TURN.finditer(data[:_HEIC_HEADER])}
    if len(turns) > 1 or _MIRROR in data[:_HEIC_HEADER]:
        raise ItemError(
            f"{key}: it says that its images are mirrored, or turned in several ways; convert it, unturned, to PNG",
            context={"key": key},
        )
    try:
        return pillow_heif.open_heif(io.BytesIO(data)), turns.pop() if turns else 0
    except Exception as error:  # whatever libheif meets in a damaged file
        raise ItemError(f"{key}: damaged or unknown HEIC file: {say_error(error)}", context={"key": key}) from error


def heic_size(photo: Any, turns: int) -> tuple[int, int]:
    """Return the height and width of a photo as it lay on the sensor."""
    width, height = photo.size
    return (width, height) if turns % 2 else (height, width)


def decode_heic(photo: Any, turns: int) -> np.ndarray:
    """Decode HEIC as it lay on the sensor: uint8 (h, w) or (h, w, 3)."""
    pixels = np.asarray(photo.to_pillow().convert("RGB"))
    return np.ascontiguousarray(np.rot90(pixels, -turns))


def say_error(error: Exception) -> str:
    """Return the words of an error of a decoder in one line; LibRaw's are bytes."""
    only = error.args[0] if len(error.args) == 1 else None
    words = only.decode(errors="replace") if isinstance(only, bytes) else str(error)
    return " ".join(words.split()) or type(error).__name__
