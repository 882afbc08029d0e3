"""Read JSON that someone else may have written: of regular files, of a bounded size and depth."""

from __future__ import annotations

import json
import os
from typing import Any

from tartan.base.files import read_regular

# By judgement: names of some million items; JSON takes ten times its size in objects of Python. A bound against
# strangers' files.
MOST_JSON_BYTES = 256 << 20
# By judgement: far below the interpreter's limit of 1,000 calls, far above what Tartan writes (four). A bound against
# strangers' files.
_MOST_LEVELS = 100


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file holds.

    Raises
    ------
    OSError
        If it cannot be read, is not a regular file, or has more than 256 MiB.
    ValueError
        If it is not JSON, or nested too deeply.
    """
    return parse_json(read_regular(path, MOST_JSON_BYTES))


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; raises ValueError if it is none, or nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise _too_deep()


def _inside(value: Any) -> list[Any]:
    """Return the objects and lists in one."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, (dict, list))]


def _too_deep() -> ValueError:
    return ValueError(f"nested more than {_MOST_LEVELS} levels deep")
