"""Refuse destinations whose names promise another kind of file than is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tartan.errors import ConfigError

_TABLES = {".parquet": "Parquet", ".pq": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".ipc": "Arrow"}
_PACKED = {
    ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz", ".lz4": "lz4", ".br": "brotli", ".zip": "zip", ".7z": "7z", ".z": "z"
}  # fmt: skip
_OTHERS = {
    **_TABLES, **_PACKED, ".npy": "NumPy", ".npz": "NumPy", ".orc": "ORC", ".avro": "Avro", ".h5": "HDF5",
    ".hdf5": "HDF5", ".xlsx": "Excel", ".xls": "Excel", ".pkl": "pickle", ".db": "database", ".duckdb": "database",
    ".sqlite": "database",
}  # fmt: skip
_LINES = {".json": "JSON", ".jsonl": "JSON", ".ndjson": "JSON"}  # can be sorted and written as lines
_CODECS = {".gz": "gzip", ".zst": "zstd"}


def refuse_text_name(path: Path, *, lines: bool) -> None:
    """Refuse to write text to a file that is called as one of another kind.

    Raises
    ------
    ConfigError
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in _CODECS:
        suffixes.pop()
    kind = ({} if lines else _LINES).get(suffixes[-1]) or _OTHERS.get(suffixes[-1]) if suffixes else None
    if kind is not None:
        raise ConfigError(
            f"{path} is the name of a file of {kind}, which text is not sorted to; name it .csv, .tsv or .txt, with "
            ".gz or .zst behind it if wanted, or .parquet or .arrow",
            context={"path": str(path)},
        )


def refuse_raw_name(path: Path, sources: Sequence[Path]) -> None:
    """Refuse to sort compressed bytes, and to write raw records to a file that is called as one of another kind.

    Where the sources are called alike, the name is nobody's promise.

    Raises
    ------
    ConfigError
    """
    for source in sources:
        packed = {**_CODECS, **_PACKED}.get(source.suffix.lower())
        if packed is not None:
            raise ConfigError(
                f"{source} is the name of a file of {packed}, and raw records are sorted as they lie; decompress it "
                "first, or give it another name",
                context={"path": str(source)},
            )
    suffix = path.suffix.lower()
    kind = {**_OTHERS, **_LINES, **_CODECS, ".csv": "CSV", ".tsv": "TSV"}.get(suffix)
    if kind is None or suffix in {".npy", *(source.suffix.lower() for source in sources)}:
        return
    raise ConfigError(
        f"{path} is the name of a file of {kind}, and records are written as raw bytes or .npy; give it another name",
        context={"path": str(path)},
    )
