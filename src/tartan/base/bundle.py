"""The files of a group as one sequence of bytes, which travels wherever the bytes of a file do.

Layout, little-endian: the mark, the number of files (uint32), then of each file the length of its name (uint32), the
name (UTF-8), the length of its content (uint64) and the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

# By format: no text and no known kind of file begins so; a file that does is not read as one (tartan.sources.files).
MARK = b"\x93TARTAN-GROUP\x01\n"
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")


def is_bundle(data: Any) -> bool:
    """Whether what was read of an item are the files of a group."""
    return isinstance(data, bytes | bytearray | memoryview) and bytes(data[: len(MARK)]) == MARK


def pack_files(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the names and contents of some files as one sequence of bytes."""
    parts = [MARK, b""]
    n_files = 0
    for name, content in files:
        text = name.encode()
        parts += [_COUNT.pack(len(text)), text, _LENGTH.pack(len(content)), content]
        n_files += 1
    parts[1] = _COUNT.pack(n_files)
    return b"".join(parts)


def unpack_files(data: Any) -> list[tuple[str, bytes]]:
    """Return the names and contents that ``pack_files`` has packed."""
    view = memoryview(data)
    at = len(MARK)
    (n_files,) = _COUNT.unpack_from(view, at)
    at += _COUNT.size
    files = []
    for _ in range(n_files):
        (length,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size
        name = str(view[at : at + length], "utf-8")
        at += length
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        files.append((name, bytes(view[at : at + length])))
        at += length
    return files
