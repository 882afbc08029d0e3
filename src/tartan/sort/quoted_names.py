"""Lists of column names, where a name that holds a comma stands within double quotes."""

from __future__ import annotations

import re

_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')  # outside of quotes


def split_names(text: str) -> list[str]:
    """Split a list at its commas, but for those within quotes.

    Examples
    --------
    >>> split_names('"a,b":desc, c')
    ['"a,b":desc', 'c']
    """
    parts = _COMMA.split(text) if text.count('"') % 2 == 0 else text.split(",")
    return [part.strip() for part in parts]


def unquote(name: str) -> str:
    """Return a name without its quotes, where it needed them; others may be part of it.

    Examples
    --------
    >>> unquoted('"a,b"'), unquoted('"c"')
    ('a,b', '"c"')
    """
    if "," in name and len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def is_number_of(name: str, n_columns: int) -> bool:
    """Tell whether a word is the number of a column, the first of which is 1.

    Examples
    --------
    >>> is_number_of("2", 3), is_number_of("0", 3), is_number_of("4", 3), is_number_of("02", 3)
    (True, False, False, False)
    """
    return re.fullmatch("[1-9][0-9]{0,8}", name) is not None and int(name) <= n_columns
