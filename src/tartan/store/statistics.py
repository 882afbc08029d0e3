"""What a run cost: ``stats.json``, of the run or of one of several writers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tartan.base.files import FileWriter
from tartan.base.json_input import read_json
from tartan.errors import CorruptResultError
from tartan.store import manifest
from tartan.store.checksums import FILE_NAME as CHECKSUMS_NAME
from tartan.store.checksums import NOTED
from tartan.store.writers import STATISTICS_NAME, problem_of_statistics, writers_statistics

_COUNTED = "counted_writers"
"""Writers whose statistics were added, in case their own could not be removed."""


def encode_statistics(stats: Mapping[str, Any], counted: Iterable[str] = ()) -> bytes:
    """Return the file of some statistics, in which those of ``counted`` writers are added up."""
    said = dict(stats) | ({_COUNTED: sorted(counted)} if counted else {})
    return (json.dumps(said, indent=1, default=manifest.plain) + "\n").encode()


def write_of(place: Path, stats: Mapping[str, Any], writer: FileWriter) -> None:
    """Write the statistics of one of several writers that does not see the run folder, and what else came with them.

    Parameters
    ----------
    place : Path
        The folder of the writer.
    stats : mapping
        With the checksums that it has noted as ``NOTED``.
    writer : FileWriter
    """
    writer.make_folder(place)
    if noted := stats.get(NOTED):
        writer.replace(place / CHECKSUMS_NAME, [base64.b64decode(noted)])
    own = {name: value for name, value in stats.items() if name != NOTED}
    writer.replace(place / STATISTICS_NAME, [encode_statistics(own)])


def read_statistics(folder: Path) -> dict[str, Any]:
    """Return the statistics of a run; empty where there are none.

    Raises
    ------
    CorruptResultError
        If they cannot be read.
    """
    return {name: value for name, value in _read(folder).items() if name != _COUNTED}


def of_writers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the statistics of several writers that are not added to those of the run yet, by writer."""
    counted = _read(folder).get(_COUNTED, ())
    return {name: stats for name, stats in writers_statistics(folder).items() if name not in counted}


def _read(folder: Path) -> dict[str, Any]:
    try:
        stats: dict[str, Any] = read_json(folder / STATISTICS_NAME)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _make_damaged_error(folder, str(error)) from error
    if (problem := problem_of_statistics(stats)) is not None:
        raise _make_damaged_error(folder, problem)
    return stats


def _make_damaged_error(folder: Path, why: str) -> CorruptResultError:
    return CorruptResultError(
        f"{folder}/stats.json cannot be read: {why}; remove it: only the record of what the run cost is lost",
        context={"path": f"{folder}/stats.json"},
    )
