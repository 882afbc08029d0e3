"""``--keys``: names of items that have numbers otherwise, from a column of their table or from a file of names."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tartan.errors import ConfigError

# By judgement: ten million keys.
_MOST_BYTES = 1 << 30


def add_keys(parser: argparse.ArgumentParser, of: str) -> None:
    """Add the option."""
    parser.add_argument(
        "--keys",
        metavar="FILE|COLUMN",
        help=f"names of {of}: a file of one name a line in UTF-8, a table or TABLE:COLUMN, or the column of a Parquet "
        "or Arrow input; numbers: no names",
    )


def keys_option(args: argparse.Namespace, inputs: Sequence[str]) -> dict[str, Any]:
    """Return what the option says, as an argument of a function of ``tartan``; empty where it is not given.

    Parameters
    ----------
    args : namespace
    inputs : sequence of str
        What is named, of which a column may be meant.

    Raises
    ------
    ConfigError
        If a file cannot be read, or the word is neither a file nor a column.
    """
    from tartan.sources.rows.opening import open_names, open_rows, split_part
    from tartan.sources.rows.unpacked import NUMBERS

    word = args.keys
    if word is None:
        return {}
    table: Any = open_rows([str(Path(name).absolute()) for name in inputs])
    named = getattr(table, "names_rows", None)
    if named is not None and (word == NUMBERS or named(word)):
        return {"keys": word}
    path, column = split_part(word)
    if not Path(path).exists():
        if named is not None:
            table.name_rows(word)  # which says what columns there are
        if column is not None:
            raise ConfigError(f"--keys {word}: there is no file {path}", context={"option": "--keys", "path": path})
    names = open_names(path) if Path(path).exists() else None
    if names is None or (len(names.columns) == 1 and column is None and names.key_column(None) is None):
        return {"keys": _read(Path(word))}
    chosen = names.key_column(column) or names.only_column()
    return {"keys": names.read_keys(chosen)}


def _read(path: Path) -> list[str]:
    """Read names, one a line; of a pipe, too, such as ``<(cut -f1 table.tsv)``."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_BYTES:,} bytes; give one name a line")
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"it is not text in UTF-8 ({error})"
        raise ConfigError(f"--keys {path}: {reason}", context={"option": "--keys", "path": str(path)}) from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
