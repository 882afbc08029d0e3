"""Tables that commands write: a line of names, then a line a row, separated by tabs, on stdout or in a file."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from tartan.base.format import printable
from tartan.errors import ConfigError


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add ``-o`` and ``--quiet``."""
    parser.add_argument("-o", "--out", metavar="FILE.tsv", type=Path, help="write the table here, not to stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")


def require_folders(*files: Path | str | None) -> None:
    """Refuse files in folders that are not there, and folders in the place of files, before anything is computed.

    Raises
    ------
    ConfigError
        With the name of the file.
    """
    for file in files:
        if file is not None and not Path(file).parent.is_dir():
            raise ConfigError(f"{file} cannot be written: No such file or directory: create {Path(file).parent} first")
        if isinstance(file, Path) and file.is_dir():
            raise ConfigError(f"{file} cannot be written: it is a folder; name a file")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are not there.

    Raises
    ------
    ConfigError
        With the name of the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "it is a file" if folder.is_file() else error.strerror
        raise ConfigError(f"{folder} cannot be made a folder: {what}; name another one") from error


def require_files(*files: Path | None) -> None:
    """Refuse files that are not there, before anything is computed.

    Raises
    ------
    ConfigError
        With the name of the file.
    """
    for file in files:
        if file is not None and not file.is_file():
            raise ConfigError(f"there is no file {file}")


def write_table(args: argparse.Namespace, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table where ``-o`` says, else on stdout. Words with tabs or line ends are quoted as CSV quotes them."""
    if args.out is None:
        _write(sys.stdout, names, rows)
        return
    try:
        with open(args.out, "w", encoding="utf-8", newline="") as file:
            _write(file, names, rows)
    except OSError as error:
        raise ConfigError(f"{args.out} cannot be written: {error.strerror}") from error
    if not args.quiet:
        print(f"table in {args.out}", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file.

    Raises
    ------
    ConfigError
        If it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _write(file: TextIO, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = csv.writer(file, delimiter="\t", lineterminator="\n")
    table.writerow(names)
    table.writerows([_word(word, file.isatty()) for word in row] for row in rows)


def _word(word: Any, on_terminal: bool) -> Any:
    if isinstance(word, str) and on_terminal:
        return printable(word)
    return f"{word:.9g}" if isinstance(word, float) else word
