"""Inputs of a command: names as they are given, and lists of names in files or on standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tartan.base.format import reason_of
from tartan.base.urls import is_url
from tartan.cli.shared.options import positive_int
from tartan.errors import ConfigError

_STDIN = "-"
_LIST_MARK = "@"
INPUTS = (
    "files, folders, quoted globs, URLs, arrays and tables of rows; @FILE: names in a file, one a line; -: on stdin"
)


def read_inputs(words: Sequence[str]) -> list[str]:
    """Return the inputs that words name: ``@FILE`` and ``-`` stand for the names in a file and on standard input.

    A list has one name a line, with any line ends; empty lines count for nothing. Names mean what they mean to the
    shell, from the working directory; one that is not there is looked for beside the list. A file whose own name begins
    with ``@`` is given as ``./@FILE``.

    Raises
    ------
    ConfigError
        If a list cannot be read or is empty, or a name in it is no file; the line is named.
    """
    return [name for word in words for name in _read_word(word)]


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add ``--exclude`` and ``--first``."""
    parser.add_argument(
        "--exclude",
        metavar="NAME",
        nargs="+",
        default=[],
        help="leave out items of these names: paths, names with or without suffixes, records of a file, rows by their "
        "--keys or numbers from 0, quoted globs, @FILE",
    )
    parser.add_argument("--first", type=positive_int, metavar="N", help="take the first N items only, as for a trial")


def read_excluded(words: Sequence[str]) -> list[str]:
    """Return words, with the lines of a file for each ``@FILE``; the lines need not name files."""
    found: list[str] = []
    for word in words:
        if not word.startswith(_LIST_MARK) or len(word) == 1:
            found.append(word)
            continue
        path, data = _read_list(word)
        lines = data.removeprefix(b"\xef\xbb\xbf").splitlines()
        names = [name for line in lines if (name := os.fsdecode(line).strip())]
        if not names:
            raise ConfigError(f"{path} names nothing; write one name a line")
        found += names
    return found


def previous_option(args: argparse.Namespace) -> dict[str, Any]:
    """Return the argument of ``tartan.add`` and ``tartan.resume`` for ``--inputs``."""
    return {} if args.previous is None else {"previous": read_inputs(args.previous)}


def _read_word(word: str) -> Iterable[str]:
    if word == _STDIN:
        return _read_names("standard input", sys.stdin.buffer.read(), Path())
    if not word.startswith(_LIST_MARK) or len(word) == 1 or os.path.lexists(word):
        return [word]
    path, data = _read_list(word)
    return _read_names(str(path), data, path.parent)


def _read_list(word: str) -> tuple[Path, bytes]:
    path = Path(word[1:]).expanduser()
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"list {str(path)!r}: {error.strerror or reason_of(error)}; @FILE stands for a list of inputs, one a line"
        ) from error


def _read_names(where: str, data: bytes, folder: Path) -> list[str]:
    found = list(_find_names(where, data, folder))
    if not found:
        raise ConfigError(f"{where} names no inputs; write one name a line")
    return found


def _find_names(where: str, data: bytes, folder: Path) -> Iterator[str]:
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        name = os.fsdecode(line).strip()
        if not name:
            continue
        if "\0" in name:
            raise ConfigError(f"{where}, line {number}: it holds a zero byte; a list of inputs is a text")
        if is_url(name) or any(mark in name for mark in "*?[") or Path(name).expanduser().exists():
            yield name
        elif (folder / name).exists():
            yield str(folder / name)
        else:
            raise ConfigError(f"{where}, line {number}: {name!r}: No such file or directory")
