"""Files that a pattern names. ``**`` goes through folders, but through no link to one: links may form a circle."""
# ruff: noqa: PTH112, PTH118, PTH208
# Paths are texts here, as the user wrote them; a Path object each costs seconds at 100,000 files.

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate

_MAGIC = re.compile(r"[*?\[]")


def has_magic(text: str) -> bool:
    """Whether a text has characters of a pattern."""
    return _MAGIC.search(text) is not None


def matching(pattern: str) -> list[str]:
    """Return the paths that match a pattern of ``*``, ``?``, ``[...]`` and ``**``, each once.

    ``**`` stands for any number of folders, and for all that they hold where it comes last. Names that begin with a dot
    are matched by patterns that do so only.
    """
    root = "/" * (len(pattern) - len(pattern.lstrip("/")))
    parts = [part for part in pattern.split("/") if part]
    return list(dict.fromkeys(_match(root, parts)))


def _match(folder: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for inner in _folders(folder):
            yield from _match(inner, rest or ["*"])
    elif has_magic(part):
        fits = re.compile(translate(part)).match
        for name in _names(folder):
            if fits(name) and (part.startswith(".") or not name.startswith(".")):
                yield from _match_inside(os.path.join(folder, name), rest)
    else:
        path = os.path.join(folder, part)
        if os.path.lexists(path):
            yield from _match_inside(path, rest)


def _match_inside(path: str, rest: list[str]) -> Iterator[str]:
    return _match(path, rest) if not rest or os.path.isdir(path) else iter(())


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _folders(folder: str) -> Iterator[str]:
    """Yield a folder and all below it that are neither hidden nor links."""
    yield folder
    try:
        with os.scandir(folder or ".") as entries:
            inner = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in inner:
        yield from _folders(os.path.join(folder, name))
