"""Read the items of a finished run again, as its application parses them, if they are what was compared."""

from __future__ import annotations

from typing import Any

from tartan.errors import ItemError, TartanError
from tartan.options import RunOptions
from tartan.run.reopen import Given, refuse_other, reopened
from tartan.store.folder import RunFolder
from tartan.workers.shipping import Registry


def parsed_items(folder: RunFolder, registry: Registry, *, trust: bool) -> list[Any]:
    """Return all items of a run of a built-in application, parsed; None for one that failed.

    Parameters
    ----------
    folder : RunFolder
    registry : Registry
        The built-in applications.
    trust : bool
        Whether the inputs may be opened although the folder was not made by this user on this machine.

    Raises
    ------
    ConfigError, StoreError
        If the inputs are gone or are not those of the run, or the folder is not trusted.
    """
    asked = reopened(folder, RunOptions(), registry, Given(trust=trust))
    refuse_other(folder, asked)
    failed = {failure.i for failure in folder.failures() if failure.j is None}
    items: list[Any] = []
    for index, key in enumerate(asked.source.keys):
        if index in failed:
            items.append(None)
            continue
        try:
            items.append(asked.app.parse(key, asked.source.read(index)))
        except TartanError as error:
            raise ItemError(f"{key}, an item of {folder.path}, cannot be read again: {error}") from error
    return items
