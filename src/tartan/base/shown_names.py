"""How outputs name items: in full, without suffixes, or as a table says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tartan.base.format import name_some
from tartan.base.keys import stems
from tartan.base.text_table import name_of, read_cells
from tartan.errors import ConfigError

#: Ways that are no table.
WAYS = ("full", "stem")
#: What trees and PHYLIP cannot have in a name, or take for a blank.
MARKS = re.compile(r"""[\s()\[\]:;,'"_]""")


def show_names(keys: Sequence[str], names: str | None) -> Sequence[str]:
    """Return what items are called in an output.

    Parameters
    ----------
    keys : sequence of str
    names : {"full", "stem"}, path or None
        The keys; the keys without suffixes; or a table (CSV or TSV) whose first column holds keys, with or without
        suffixes, and whose second one names. Items that the table does not have keep their keys.

    Raises
    ------
    ConfigError
        If there is no such table, it has none of the items, or it gives two of them one name.
    """
    if names is None or names == "full":
        return keys
    if names == "stem":
        return stems(keys)
    table = read_names(names)
    found = [table.get(key, table.get(stem)) for key, stem in zip(keys, stems(keys), strict=True)]
    if all(name is None for name in found):
        raise ConfigError(f"{names} names none of the {len(found)} items, such as {name_some(keys[:3])}")
    shown = [key if name is None else name for key, name in zip(keys, found, strict=True)]
    # One key may stand on both sides of a run that compares two sets.
    name, count = Counter(name for _, name in set(zip(keys, shown, strict=True))).most_common(1)[0]
    if count > 1:
        alike = [*dict.fromkeys(key for key, one in zip(keys, shown, strict=True) if one == name)]
        raise ConfigError(f"{names}: {name_some(alike)} would all be called {name!r}; give each a name of its own")
    return shown


def require_names(names: str | None) -> None:
    """Refuse what is neither a way nor a table that can be read, before anything is computed.

    Raises
    ------
    ConfigError
    """
    if names is not None and names not in WAYS:
        read_names(names)


def read_names(path: str | Path) -> Mapping[str, str]:
    """Return the second column of a CSV or TSV file by the first one.

    Raises
    ------
    ConfigError
        If it cannot be read, or a line has one column.
    """
    rows = read_cells(path, "names are full, stem, or a table (CSV or TSV) of items and their names")
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) < 2 or not row[1].strip():
            raise ConfigError(f"{path}, line {number}: {','.join(row)[:60]!r} has no name in its second column")
        found[name_of(row[0].strip())] = name_of(row[1].strip())
    if not found:
        raise ConfigError(f"{path} is empty; it has a line for each item: the item and its name")
    return found


def match_names(names: Sequence[str], known: Sequence[str]) -> list[str | None]:
    """Return the known name that each name stands for; None where there is none.

    Programs that read PHYLIP and write trees put underscores for blanks and marks, or blanks for underscores: names
    that are equal but for these stand for each other, if no other name does.

    Examples
    --------
    >>> match_names(["E coli (K-12)", "b", "c"], ["E._coli", "E_coli__K-12_", "b"])
    ['E_coli__K-12_', 'b', None]
    """
    there = set(known)
    plain = Counter(MARKS.sub("_", name) for name in known)
    alike = {MARKS.sub("_", name): name for name in known if plain[MARKS.sub("_", name)] == 1}
    return [name if name in there else alike.get(MARKS.sub("_", name)) for name in names]
