"""What text a file holds, by its name: lines, CSV or TSV, plain, gzip or zstd."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tartan.base.files import arrow_file
from tartan.errors import ConfigError

TextKind = Literal["lines", "csv", "tsv"]
Quote = Literal["double", "none"]
KINDS: tuple[TextKind, ...] = ("lines", "csv", "tsv")
QUOTES: tuple[Quote, ...] = ("double", "none")
PIPE = Path("-")
_SUFFIXES: dict[str, TextKind] = {".csv": "csv", ".tsv": "tsv", ".txt": "lines", ".lines": "lines"}
_CODECS = {".gz": "gzip", ".zst": "zstd"}
_SEPARATORS = {"csv": ",", "tsv": "\t", "lines": ""}
# How files of other kinds begin: no text does.
_BEGINNINGS = {
    rb"\x1f\x8b": ("compressed by gzip", "name it .gz, or read it through gzip -dc"),
    rb"\x28\xb5\x2f\xfd": ("compressed by zstd", "name it .zst, or read it through zstd -dc"),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": ("compressed by bzip2", "decompress it first: bzip2 -dc"),
    rb"\xfd7zXZ\x00": ("compressed by xz", "decompress it first: xz -dc"),
    rb"PK\x03\x04": ("a zip file", "unpack it first: unzip -p"),
    rb"\x04\x22\x4d\x18": ("compressed by lz4", "decompress it first: lz4 -dc"),
    rb"PAR1[\x00-\x1f]": ("a Parquet file", "name it .parquet"),
    rb"ARROW1\x00\x00": ("an Arrow file", "name it .arrow"),
    rb"\x93NUMPY": ("an .npy file", "name it .npy"),
    rb"\xff\xfe|\xfe\xff": ("UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"),
}
# By format: magic numbers of the compressed and columnar formats that are told apart.
BEGINNING_BYTES = 16


class TextForm(NamedTuple):
    """How text lies in a file.

    Attributes
    ----------
    kind : {"lines", "csv", "tsv"}
    codec : {"none", "gzip", "zstd"}
        What it is compressed with.
    quoted : bool
        Whether values with separators stand within quotes; else quotes are plain characters.
    separator : str
        What stands between values; nothing in lines.
    header : bool
        Whether the first line holds the names of the columns; of lines it says nothing.
    """

    kind: TextKind
    codec: str
    quoted: bool
    separator: str
    header: bool


def text_form(
    path: Path,
    kind: TextKind | None = None,
    quote: Quote | None = None,
    *,
    separator: str | None = None,
    header: bool = True,
) -> TextForm | None:
    """Return the form of a file by its suffixes (``.csv``, ``.tsv.gz``, ``.txt.zst``); None if it is not text.

    Parameters
    ----------
    path : Path
    kind : {"lines", "csv", "tsv"}, optional
        What it holds, whatever it is called.
    quote : {"double", "none"}, optional
        How values are quoted; default: doubled in CSV, not at all in TSV.
    separator : str, optional
        Of CSV; default: a comma.
    header : bool
        Whether CSV and TSV begin with a line of names.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    codec = _CODECS.get(suffixes[-1], "none") if suffixes else "none"
    inner = suffixes[:-1] if codec != "none" else suffixes
    found = kind or (_SUFFIXES.get(inner[-1]) if inner else None)
    if found is None:
        return None
    quoted = found == "csv" if quote is None else quote == "double" and found != "lines"
    between = separator if separator is not None and found == "csv" else _SEPARATORS[found]
    return TextForm(found, codec, quoted, between, header)


def read_separator(text: str | None) -> str | None:
    """Return what stands between values of CSV: one character of ASCII; ``tab`` and a written ``\\t`` are a tab.

    Raises
    ------
    ConfigError
        If it is none, or a quote or a line end.
    """
    if text is None:
        return None
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1 or not character.isascii() or character in '"\r\n\0':
        raise ConfigError(
            f"`separator={text!r}` is not one character of ASCII, or is a quote or a line end; give one, such as "
            "';', '|' or tab",
            context={"option": "separator"},
        )
    return character


def is_text(paths: Sequence[Path], kind: str | None) -> bool:
    """Tell whether files are text, by their names or because the caller says so."""
    return kind is not None or any(path == PIPE or text_form(path) is not None for path in paths)


def open_text(path: Path, codec: str) -> Any:
    """Open a file whose ``read`` returns the bytes of its text.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    if codec == "gzip":
        return gzip.open(path, "rb")  # which takes zeros behind the last member, as gzip does
    if codec == "none":
        return arrow_file(path)
    import pyarrow as pa

    return pa.CompressedInputStream(arrow_file(path), codec)


def refuse_beginning(path: Path | str, start: bytes, codec: str = "none") -> None:
    """Refuse a file that begins as no text does, whatever its name says.

    Raises
    ------
    ConfigError
    """
    for beginning, (what, way_out) in _BEGINNINGS.items():
        if re.match(beginning, start, re.DOTALL) and what != f"compressed by {codec}":
            raise ConfigError(
                f"{path} is {what}, and cannot be sorted as it is; {way_out}", context={"path": str(path)}
            )
