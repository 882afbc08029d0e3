"""Fingerprints of molecules in FPS files, as chemfp, Open Babel and RDKit's users write them: rows of bits with names.

A file is text: lines of a header, which begin with ``#``, then a line for each molecule, the bits in hexadecimal digits
and, behind a tab, its id. Bit 0 is the lowest of the first byte. Specification: A. Dalke, The FPS fingerprint format,
https://chemfp.com/fps_format (2018). Files may be compressed by gzip, bzip2, xz or zstd.
"""

from __future__ import annotations

import binascii
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tartan.base.compressed import compression_of, decompress
from tartan.base.format import show_value
from tartan.errors import ConfigError
from tartan.sources.arrays import ArraySource
from tartan.sources.paths import absolute

_SUFFIXES = (".fps", ".fps.gz", ".fps.bz2", ".fps.xz", ".fps.zst")
_BEGINNINGS = (b"#FPS", b"#num_bits=")
# By judgement: what a machine of today may hold; a file of so much text has 30 million fingerprints of 2,048 bits.
_MOST_BYTES = 16 << 30
# By format: gzip and bzip2 make at most 1,032 and some thousands of bytes of one; rows of zeros come near.
_MOST_RATIO = 1 << 20
# By judgement: the start of a compressed file that is unpacked to see what it is.
_PEEK_BYTES = 1 << 12


class FpsSource(ArraySource):
    """Rows of bits of an FPS file; kept packed, handed out as booleans (n, number of bits).

    Parameters
    ----------
    packed : uint8 array of shape (n, bytes)
        Bit 0 is the lowest of the first byte.
    n_bits : int
    ids : list of str
        The names of the rows, all different.
    path : str
    """

    def __init__(self, packed: np.ndarray, n_bits: int, ids: list[str], path: str) -> None:
        super().__init__(_Bits(packed, n_bits), path)
        self.keys = ids

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process by the path and the keys, not by the rows."""
        return open_fps, (absolute(str(self.path)),), {"keys": self.keys}


class _Bits:
    """Packed bits that look like an array of booleans."""

    dtype = np.dtype(np.bool_)

    def __init__(self, packed: np.ndarray, n_bits: int) -> None:
        self._packed, self._n_bits = packed, n_bits
        self.shape = len(packed), n_bits

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.unpackbits(self._packed[rows], axis=1, count=self._n_bits, bitorder="little").view(np.bool_)


def holds_fps(path: Path) -> bool:
    """Say whether a file is an FPS file, by its name or how it begins, compressed or not."""
    if path.name.lower().endswith(_SUFFIXES):
        return True
    try:
        with path.open("rb") as file:
            return _peek(file).startswith(_BEGINNINGS)
    except OSError:
        return False


def _peek(file: BinaryIO) -> bytes:
    """Return how the text of a file begins; of a compressed one only where gzip tells without the rest."""
    start = file.read(_PEEK_BYTES)
    if compression_of(start) != "gzip":
        return start
    import zlib

    try:
        return zlib.decompressobj(wbits=31).decompress(start, _PEEK_BYTES)
    except zlib.error:
        return b""


def open_fps(path: str) -> FpsSource:
    """Read an FPS file.

    Raises
    ------
    ConfigError
        If it cannot be read, is damaged, holds no fingerprint, or has a line that does not fit; that is named.
    """
    try:
        text = decompress(Path(path).read_bytes(), _MOST_BYTES, _MOST_RATIO)
        packed, n_bits, ids = read_fps(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"fingerprints {path!r}: {error}", context={"input": path}) from error
    return FpsSource(packed, n_bits, ids, path)


def read_fps(text: bytes) -> tuple[np.ndarray, int, list[str]]:
    """Read the text of an FPS file.

    Returns
    -------
    (uint8 array of shape (n, bytes), int, list of str)
        Packed bits, their number, and the id of each row.

    Raises
    ------
    ValueError
        With the line that does not fit, and what would.

    Examples
    --------
    >>> packed, n_bits, ids = read_fps(b"#FPS1\\n#num_bits=12\\n0108\\tbenzene\\n")
    >>> packed.tolist(), n_bits, ids
    ([[1, 8]], 12, ['benzene'])
    """
    lines = text.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    n_bits, said, first = _read_header(lines)
    rows: list[bytes] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines[first:], first + 1):
        row, name = _read_line(number, line.removesuffix(b"\r"))
        if n_bits is None:
            n_bits, said = 8 * len(row), f"line {number} has {8 * len(row)} bits"
        if 8 * len(row) != -(-n_bits // 8) * 8:
            raise ValueError(
                f"line {number} has {2 * len(row)} hexadecimal digits, {8 * len(row)} bits, and {said}, which take "
                f"{-(-n_bits // 8) * 2} digits; all lines of a file have one length"
            )
        if n_bits % 8 and row[-1] >> n_bits % 8:
            raise ValueError(f"line {number} sets bits behind the last one, and {said}; correct that number")
        if name in seen:
            raise ValueError(
                f"line {number}: the id {show_value(name)} is that of line {seen[name]}; give each its own"
            )
        seen[name] = number
        rows.append(row)
    if n_bits is None or not rows:
        raise ValueError("it holds no fingerprint; a line is hexadecimal digits, a tab and an id")
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1), n_bits, list(seen)


def _read_header(lines: list[bytes]) -> tuple[int | None, str, int]:
    """Return the number of bits, where that is said, and how many lines the header has."""
    n_bits, said, count = None, "", 0
    for count, line in enumerate(lines):
        if not line.startswith(b"#"):
            break
        name, _, value = line[1:].partition(b"=")
        if name.strip() != b"num_bits":
            continue
        digits = value.strip()
        if not digits.isdigit() or int(digits) == 0:
            raise ValueError(f"line {count + 1}: num_bits is {show_value(digits.decode(errors='replace'))}, no number")
        if n_bits not in (None, int(digits)):
            raise ValueError(f"line {count + 1}: num_bits is {int(digits)}, and {said}; leave one of the two")
        n_bits, said = int(digits), f"num_bits in line {count + 1} is {int(digits)}"
    else:
        count = len(lines)
    return n_bits, said, count


def _read_line(number: int, line: bytes) -> tuple[bytes, str]:
    """Return the bits and the id of a line."""
    digits, tab, rest = line.partition(b"\t")
    if not line.strip():
        raise ValueError(f"line {number} is empty; remove it")
    if not tab:
        raise ValueError(
            f"line {number} has no id: it is {show_value(line[:40].decode(errors='replace'))} without a tab; a line is "
            "hexadecimal digits, a tab and an id"
        )
    try:
        name = rest.partition(b"\t")[0].decode()
    except UnicodeDecodeError:
        raise ValueError(f"line {number}: the id is not UTF-8 text; convert the file") from None
    if not name.strip():
        raise ValueError(f"line {number} has an empty id; name each fingerprint")
    try:
        return binascii.unhexlify(digits), name
    except binascii.Error:
        if len(digits) % 2:
            what = f"{len(digits)} hexadecimal digits, an odd number; two make a byte"
        else:
            what = f"{show_value(digits[:40].decode(errors='replace'))}, which are not hexadecimal digits"
        raise ValueError(f"line {number} has {what}") from None
