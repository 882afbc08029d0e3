"""Tables that commands write: a line of names, then a line a row, separated by tabs, on stdout or in a file."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from tartan.base.files import whole_file
from tartan.base.text_table import cell_of
from tartan.cli.shared.output import say
from tartan.cli.shared.outputs import add_overwrite
from tartan.errors import ConfigError


def add_table_options(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add ``-o``, ``--overwrite`` and ``--quiet``; ``more`` says what else the file may be."""
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help=f"write the table here, .tsv or .csv{more}")
    add_overwrite(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")


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
    """Write a table where ``-o`` says, else on stdout: separated by tabs, in .csv by commas."""
    if args.out is None:
        _write(sys.stdout, names, rows)
        return
    with whole_file(args.out) as unfinished, open(unfinished, "w", encoding="utf-8", newline="") as file:
        _write(file, names, rows, "," if args.out.suffix.lower() == ".csv" else "\t")
    if not args.quiet:
        say(f"table in {args.out}")


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, whole or not at all."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _write(file: TextIO, names: Sequence[str], rows: Iterable[Sequence[Any]], separator: str = "\t") -> None:
    table = csv.writer(file, delimiter=separator, lineterminator="\n")
    table.writerow(names)
    table.writerows(map(_word, row) for row in rows)


def _word(word: Any) -> Any:
    if isinstance(word, str):
        return cell_of(word)
    return f"{word:.9g}" if isinstance(word, float) else word
