"""The items of an application, from what is given as inputs."""

from __future__ import annotations

from typing import Any

from tartan.application import Application, splitter
from tartan.sources.items import Source, open_source


def open_items(app: Application, given: Any) -> Source:
    """Open inputs as an application reads them: the files of its suffixes, each split where it holds several items.

    Parameters
    ----------
    app : Application
    given : as ``items`` of ``tartan.allpairs``

    Raises
    ------
    ConfigError
        If there are none, or a file that holds several items cannot be split.
    """
    return open_source(given, suffixes=app.item_suffixes, split=splitter(app))
