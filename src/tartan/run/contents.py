"""Read the items of a finished run again, as its application parses them, if they are what was compared."""

from __future__ import annotations

from typing import Any

from tartan.errors import ItemError, TartanError
from tartan.options import RunOptions
from tartan.run.reopen import refuse_other, reopen_request
from tartan.runtime.items import parse_data
from tartan.store.folder import RunFolder
from tartan.workers.shipping import Registry


def parse_items(folder: RunFolder, registry: Registry, given: Any = None, *, trust: bool) -> list[Any]:
    """Return all items of a run of a built-in application, parsed; None for one that failed.

    Parameters
    ----------
    folder : RunFolder
    registry : Registry
        The built-in applications.
    given : optional
        The items, where they were objects in memory.
    trust : bool
        Whether the inputs may be opened although the folder was not made by this user on this machine.

    Raises
    ------
    ConfigError, StoreError
        If the inputs are gone or are not those of the run, or the folder is not trusted.
    """
    asked = reopen_request(folder, RunOptions(), registry, items=given, trust=trust, only_reads=True)
    refuse_other(folder, asked)
    failed = {failure.i for failure in folder.failures() if failure.j is None}
    items: list[Any] = []
    for index, key in enumerate(asked.source.keys):
        if index in failed:
            items.append(None)
            continue
        try:
            items.append(parse_data(asked.app, key, asked.source.read(index)))
        except TartanError as error:
            raise ItemError(f"{key}, an item of {folder.path}, cannot be read again: {error}") from error
    return items
