"""The number of parts that a run is divided into, recorded once: ``shares.json``.

Parts do not talk to each other, so all must divide the run alike. The first that comes writes the file; one atomic act
decides where several come at a time.
"""

from __future__ import annotations

import json
from pathlib import Path

from tartan.base.files import FileWriter
from tartan.base.json_input import read_json
from tartan.core.pairs.shares import MOST_PARTS
from tartan.errors import CorruptResultError

FILE_NAME = "shares.json"


def read_n_parts(folder: Path) -> int | None:
    """Return the number of parts of a run; None where it was never divided.

    Raises
    ------
    CorruptResultError
        If the file is damaged.
    """
    path = folder / FILE_NAME
    try:
        found = read_json(path)["n_parts"]
        if type(found) is int and 0 < found <= MOST_PARTS:
            return found
        why = f"n_parts is {found!r}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error)
    raise CorruptResultError(
        f"{path} cannot be read: {why}; remove it, and start all parts again with their number",
        context={"path": str(path)},
    )


def record_parts(folder: Path, n_parts: int, writer: FileWriter) -> None:
    """Record the number of parts, unless there is one."""
    if read_n_parts(folder) is not None:
        return
    staged = writer.stage([json.dumps({"n_parts": n_parts}).encode()])
    try:
        writer.link(staged, folder / FILE_NAME)
    finally:
        writer.discard([staged])
