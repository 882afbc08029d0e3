"""What the photos of a run are before one is decoded: equal files, further pages, rare sizes; said in notes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import BinaryIO

from tartan.apps.forensics.raw import read_tiff_facts
from tartan.base.files import open_regular
from tartan.base.format import pluralize

# By judgement: photos of one length that begin alike so far are mostly equal; a block or two of a disk.
_HEAD_BYTES = 4096
# By judgement: reading goes on in steps that any memory holds.
_STEP_BYTES = 1 << 20
# By judgement: a line of a message.
_NAMED = 3


class PhotoInventory:
    """Collect facts of files one by one; ``list_notes`` says what people should know."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bytes], list[tuple[str, str]]] = {}
        self._pages: list[str] = []

    def add(self, key: str, file: BinaryIO) -> None:
        """Take in a file, which is then at its start again."""
        head = file.read(_HEAD_BYTES)
        length = file.seek(0, 2)
        name = _find_path(file)
        if name is not None:
            self._alike.setdefault((length, head), []).append((key, name))
        try:
            facts = read_tiff_facts(file)
        except Exception:  # whatever a damaged file makes the reader do: it fails when it is loaded, with its reason
            facts = None
        if facts is not None and facts.n_pages > 1 and not facts.is_raw:
            self._pages.append(f"{key} ({facts.n_pages} pages)")
        file.seek(0)

    def list_notes(self) -> list[str]:
        """Say which files are equal, and which pages are not compared."""
        notes = []
        equal = self.find_equal()
        if equal:
            sets = [" = ".join(keys[:_NAMED]) + (" = .." if len(keys) > _NAMED else "") for keys in equal]
            notes.append(f"{pluralize(sum(map(len, equal)), 'photo')} equal others, byte by byte: {list_some(sets)}")
        if self._pages:
            notes.append(f"of files with several pages the first is compared: {list_some(self._pages)}")
        return notes

    def find_equal(self) -> list[list[str]]:
        """Return the keys of files that are equal, byte by byte, in order."""
        found: dict[bytes, list[str]] = {}
        for files in self._alike.values():
            if len(files) > 1:
                for key, name in files:
                    digest = _hash(name)
                    if digest is not None:
                        found.setdefault(digest, []).append(key)
        return [keys for keys in found.values() if len(keys) > 1]


def list_sizes(sizes: dict[tuple[int, int], list[str]], *, score: str) -> list[str]:
    """Say of photos of several sizes (height, width), by key, which are compared; quarter turns are one size.

    Where the score is PCE, the last column of a long side that is odd does not count.
    """
    alike: dict[tuple[int, int], list[str]] = {}
    for (height, width), keys in sizes.items():
        longer = max(height, width)
        alike.setdefault((min(height, width), longer - longer % 2 if score == "pce" else longer), []).extend(keys)
    if len(alike) < 2:
        return []
    listed = sorted(alike.items(), key=lambda entry: -len(entry[1]))
    counts = [f"{len(keys):,} of {w} x {h} pixels" for (h, w), keys in listed]
    alone = [f"{keys[0]} ({w} x {h})" for (h, w), keys in listed if len(keys) == 1]
    rare = f"; of a size that no other has, compared with none: {list_some(alone)}" if alone else ""
    return [
        f"photos of {len(alike):,} sizes, each compared with those of its size and of its quarter turn: "
        f"{list_some(counts)}; pairs of different size are not compared, and score 0; scores are {score.upper()}{rare}"
    ]


def list_some(names: Sequence[str]) -> str:
    """Return the first names of a list, and that there are more."""
    return ", ".join(names[:_NAMED]) + (f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def _find_path(file: BinaryIO) -> str | None:
    """Return the path of an open file, to open it again; None for what has none."""
    try:
        return os.readlink(f"/proc/self/fd/{file.fileno()}")  # noqa: PTH115, as it is the link that is wanted
    except OSError:  # no file of the system, or no such folder
        return None


def _hash(name: str) -> bytes | None:
    digest = hashlib.sha256()
    try:
        with open_regular(name) as file:
            while block := file.read(_STEP_BYTES):
                digest.update(block)
    except OSError:
        return None
    return digest.digest()
