"""What text a file holds, by its name: lines, CSV or TSV, plain, gzip or zstd."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

TextKind = Literal["lines", "csv", "tsv"]
KINDS: tuple[TextKind, ...] = ("lines", "csv", "tsv")
PIPE = Path("-")
_SUFFIXES: dict[str, TextKind] = {".csv": "csv", ".tsv": "tsv", ".txt": "lines", ".lines": "lines"}
_CODECS = {".gz": "gzip", ".zst": "zstd"}


class TextForm(NamedTuple):
    """How text lies in a file: lines, csv or tsv, and what it is compressed with ("none" for nothing)."""

    kind: TextKind
    codec: str


def text_form(path: Path, kind: TextKind | None = None) -> TextForm | None:
    """Return the form of a file by its suffixes (``.csv``, ``.tsv.gz``, ``.txt.zst``); None if it is no text.

    Parameters
    ----------
    path : Path
    kind : {"lines", "csv", "tsv"}, optional
        What it holds, whatever it is called.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    codec = _CODECS.get(suffixes[-1], "none") if suffixes else "none"
    inner = suffixes[:-1] if codec != "none" else suffixes
    found = kind or (_SUFFIXES.get(inner[-1]) if inner else None)
    return None if found is None else TextForm(found, codec)


def is_text(paths: Sequence[Path], kind: str | None) -> bool:
    """Tell whether files are text, by their names or because the caller says so."""
    return kind is not None or any(path == PIPE or text_form(path) is not None for path in paths)
