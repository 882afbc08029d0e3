r"""Names of items as cells of text tables: each on one line, and no formula to a spreadsheet.

Characters that break lines, control a terminal or turn the direction of writing become escapes: ``\n``, ``\t``,
``\x1b``, ``\u202e``. A name that a spreadsheet would take for a formula (it begins with ``=``, ``+``, ``-`` or ``@``,
and is no number) gets an apostrophe before it. Every name has another cell, and ``name_of`` returns the name of a cell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tartan.base.format import CONTROL, escaped

if TYPE_CHECKING:
    import pyarrow as pa

_BREAKING = re.compile(f"[\t\n{CONTROL}]")
_ESCAPE = re.compile(r"\\(?:([ntr\\])|x([0-9a-f]{2})|u([0-9a-f]{4}))")
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Whatever may need another form: few names do, and the search is one pass of Arrow over many.
_SUSPICIOUS = r"^'*[=+\-@]|\\|[^\x20-\x7e]"


def cell_of(name: str) -> str:
    r"""Return the cell of a name.

    Examples
    --------
    >>> cell_of("a.jpg"), cell_of("=1+1"), cell_of("-3.5"), cell_of("two\nlines")
    ('a.jpg', "'=1+1", '-3.5', 'two\\nlines')
    """
    if _BREAKING.search(name) or _ESCAPE.search(name):
        name = _BREAKING.sub(lambda found: escaped(found[0]), name.replace("\\", "\\\\"))
    return f"'{name}" if _FORMULA.match(name) and not _NUMBER.fullmatch(name) else name


def name_of(cell: str) -> str:
    """Return the name that a cell stands for."""
    name = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _ESCAPE.sub(_character, name)


def cell_column(names: pa.Array) -> pa.Array:
    """Return the cells of a column of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(names.type):
        return pa.DictionaryArray.from_arrays(names.indices, cell_column(names.dictionary))
    if not pc.any(pc.match_substring_regex(names, _SUSPICIOUS)).as_py():
        return names
    return pa.array([None if name is None else cell_of(name) for name in names.to_pylist()], names.type)


def _character(found: re.Match[str]) -> str:
    letter, short, long = found.groups()
    return _LETTERS[letter] if letter else chr(int(short or long, 16))
