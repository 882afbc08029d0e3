"""The option ``--color-by`` of commands that draw a map: colours from a column of a table of the user."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tartan.base.format import clip_middle
from tartan.cli.shared.output import say
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.view.coordinates import Coloured

# By judgement: names that show of what kind the others are; the warning stays a line.
_NAMED = 3


def add_color_by(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option; ``what`` says of which map."""
    parser.add_argument(
        "--color-by",
        metavar="TABLE:COLUMN",
        help=f"colour {what} by a column of a CSV or TSV file whose first column holds the items, or of a Parquet "
        "file; numbers from dark (small) to yellow (large)",
    )


def read_color_by(args: argparse.Namespace, keys: Sequence[str], shown: Sequence[str]) -> Coloured | None:
    """Read the column that --color-by names; say which items have no row in its table. None where none is named.

    The table may have the keys of the items, or the names that are shown.
    """
    if args.color_by is None:
        return None
    from tartan.view.coordinates import read_column, split_column

    table, column = split_column(args.color_by)
    try:
        found = read_column(table, column, keys)
    except ConfigError:
        if list(shown) == list(keys):
            raise
        found = read_column(table, column, shown)
    if found.unlisted:
        names = ", ".join(clip_middle(name, 60) for name in found.unlisted[:_NAMED])
        more = "" if len(found.unlisted) <= _NAMED else ", ..."
        have, are = ("has", "is") if len(found.unlisted) == 1 else ("have", "are")
        said = f"{len(found.unlisted):,} of {len(keys):,} items {have} no row in {table}, and {are} grey"
        say(f"tartan: warning: {said}: {names}{more}")
    return found
