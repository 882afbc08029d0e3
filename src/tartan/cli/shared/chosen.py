"""``--exclude`` and ``--first``: which of the files, records and rows that were given are items of a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Any

from tartan.base.keys import stems
from tartan.base.records import PART
from tartan.cli.shared.inputs import read_excluded
from tartan.errors import ConfigError
from tartan.run.inputs import make_splitter, open_items
from tartan.sources.arrays import ArraySource, choose_rows
from tartan.sources.files import FileSource
from tartan.sources.groups import open_groups
from tartan.sources.items import Source, open_source
from tartan.sources.paths import Location, is_glob, last_name


def choose_items(
    args: argparse.Namespace, app: Any, inputs: list[str] | Source, keys: Any = None
) -> list[str] | Source:
    """Return the inputs without what ``--exclude`` names, of them the first ones where ``--first`` says so.

    Parameters
    ----------
    args : namespace
        With ``exclude``, ``first`` and ``group``.
    app : Application
        Says which files are items, and which hold several.
    inputs : list of str or Source
        Names, or rows that are open.
    keys : optional
        Names of all rows of an array.

    Returns
    -------
    list of str or Source
        The inputs, where all is taken; else the items, rows of an array with their keys: where rows are left out, the
        others keep their numbers.

    Raises
    ------
    ConfigError
        If a name fits nothing, or nothing is left.
    """
    if (not args.exclude and args.first is None) or (args.group is not None and not isinstance(inputs, list)):
        return inputs  # of open rows there are no groups, which is said later
    left_out = _LeftOut(read_excluded(args.exclude))
    if args.group is not None and isinstance(inputs, list):
        everything: Source = open_groups(inputs, args.group, app.item_suffixes)
    else:
        everything = open_source(inputs, suffixes=app.item_suffixes)
    if isinstance(everything, ArraySource):
        rows = open_items(app, everything, keys)
        assert isinstance(rows, ArraySource)
        chosen: Source = _choose_rows(rows, left_out, args.first)
    else:
        assert isinstance(everything, FileSource)
        chosen = everything.chosen(left_out.keeps_file, args.first, make_splitter(app), left_out.keeps_part)
    if left_out.unused and args.first is not None and isinstance(everything, FileSource):
        # Its names may be of items behind the first ones, which were not looked at.
        everything.chosen(left_out.keeps_file, None, make_splitter(app), left_out.keeps_part)
    _refuse_unused(left_out, everything)
    if not chosen.n_items:
        what = "rows" if everything.kind == "array" else "files"
        raise ConfigError(f"--exclude leaves none of the {everything.n_items:,} {what}", code="no-input")
    return chosen


class _LeftOut:
    """What ``--exclude`` names, and which of these names have fitted nothing yet."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = set(names)
        self._globs = [(name, re.compile(translate(name)).match) for name in names if is_glob(name)]
        self.unused = dict.fromkeys(names)

    def keeps(self, *called: str) -> bool:
        """Whether nothing of what an item is called is named."""
        fitting = [name for name in called if name in self._names]
        fitting += [name for name, fits in self._globs if any(map(fits, called))]
        for name in fitting:
            self.unused.pop(name, None)
        return not fitting

    def keeps_file(self, file: Location) -> bool:
        """Whether a file or group is kept: by its path as given, without folders, and without suffixes."""
        return self.keeps(file.name, last_name(file.name), stems([last_name(file.name)])[0])

    def keeps_part(self, part: Location) -> bool:
        """Whether an item of a file is kept: by its name with and without that of the file."""
        own = (part.part,) if isinstance(part.part, str) else ()
        return not self._names or self.keeps(part.name, f"{last_name(part.file)}{PART}{part.part}", *own)


def _choose_rows(rows: ArraySource, left_out: _LeftOut, first: int | None) -> Source:
    if not left_out.unused:
        return choose_rows(rows, range(rows.n_items)[:first])
    return choose_rows(rows, [row for row, key in enumerate(rows.keys) if left_out.keeps(key)][:first])


def _refuse_unused(left_out: _LeftOut, everything: Source) -> None:
    name = next(iter(left_out.unused), None)
    if name is None:
        return
    rows = everything.kind == "array"
    first = everything.keys[0] if rows else next(iter(getattr(everything, "paths", everything.keys)))
    what = "rows" if rows else "files and none of their items"
    raise ConfigError(f"--exclude {name!r} fits none of the {everything.n_items:,} {what}, such as {first!r}")
