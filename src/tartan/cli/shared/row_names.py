"""``--keys``: names of items that have numbers otherwise, from a column of their table or from a file of names."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tartan.base.urls import without_local_scheme
from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import say
from tartan.errors import ConfigError
from tartan.sources.paths import absolute

# By judgement: ten million keys.
_MOST_BYTES = 1 << 30


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Add ``--dtype`` and ``--dim``."""
    parser.add_argument(
        "--dtype",
        metavar="TYPE",
        help="type of the numbers in a file of raw memory: float32, float16, bfloat16, int8, ..; also to read a "
        ".npy file of 16-bit numbers as bfloat16",
    )
    parser.add_argument("--dim", type=positive_int, metavar="D", help="values of each row in raw memory")


def name_parts(args: argparse.Namespace, inputs: Sequence[str]) -> list[str]:
    """Return names of inputs with what ``--dtype`` and ``--dim`` say of them.

    Raises
    ------
    ConfigError
        If one of the two is missing, or an input says itself what it holds.
    """
    from tartan.sources.rows.opening import name_part

    named = [name_part(name, args.dtype, args.dim) for name in inputs]
    if named == list(inputs) and not (args.dtype is None and args.dim is None) and not getattr(args, "against", None):
        raise ConfigError(
            f"--dtype and --dim are for raw memory, and {inputs[0]} says itself what it holds; leave them out",
            context={"option": "--dtype"},
        )
    return named


def open_named(inputs: Sequence[str]) -> Any:
    """Open inputs that are tables, archives, raw memory or shards; others stay names.

    Returns
    -------
    Source or list of str
    """
    from tartan.sources.rows.opening import open_rows

    source: Any = open_rows([absolute(without_local_scheme(name)) for name in inputs])
    return source if hasattr(source, "say") and source.n_items > 1 else list(inputs)


def say_rows(items: Any) -> None:
    """Say what is read of inputs that ``open_named`` has opened."""
    if hasattr(items, "say"):
        say(f"tartan: {items.say()}")


def add_keys(parser: argparse.ArgumentParser, of: str) -> None:
    """Add the option."""
    parser.add_argument(
        "--keys",
        metavar="FILE|COLUMN",
        help=f"names of {of}: a file of one name a line in UTF-8, a table or TABLE:COLUMN, or the column of a Parquet "
        "or Arrow input; numbers: no names",
    )


def keys_option(args: argparse.Namespace, items: Any = None) -> dict[str, Any]:
    """Return what the option says, as an argument of a function of ``tartan``; empty where it is not given.

    Parameters
    ----------
    args : namespace
    items : Source or list of str, optional
        As ``open_named`` returns them; a column may be meant. None: they are opened later.

    Raises
    ------
    ConfigError
        If a file cannot be read, or the word is neither a file nor a column.
    """
    from tartan.sources.rows.opening import open_names, split_part
    from tartan.sources.rows.unpacked import NUMBERS

    word = args.keys
    if word is None:
        return {}
    named = getattr(items, "names_rows", None)
    if named is not None and (word == NUMBERS or named(word)):
        items.name_rows(word)
        return {}
    path, column = split_part(word)
    if not Path(path).exists():
        if named is not None:
            items.name_rows(word)  # which says what columns there are
        if items is None:
            return {"keys": word}
        if column is not None:
            raise ConfigError(f"--keys {word}: there is no file {path}", context={"option": "--keys", "path": path})
    names = open_names(path) if Path(path).exists() else None
    if names is None or (len(names.columns) == 1 and column is None and names.key_column(None) is None):
        found = _read(Path(word))
    else:
        found = names.read_keys(names.key_column(column) or names.only_column())
    if named is not None:
        items.name_rows(NUMBERS)
    return {"keys": found}


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
    if not text:
        raise ConfigError(
            f"--keys {path}: it is empty; give one name a line", context={"option": "--keys", "path": str(path)}
        )
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
