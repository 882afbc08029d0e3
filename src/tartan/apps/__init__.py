"""The built-in applications, by name."""

from __future__ import annotations

import importlib

from tartan.application import Application
from tartan.errors import ConfigError

__all__ = ["BUILTIN", "builtin"]

BUILTIN = {
    "forensics": "tartan.apps.forensics:Forensics",
    "phylogeny": "tartan.apps.phylogeny:Phylogeny",
    "vectors": "tartan.apps.vectors:Vectors",
}


def builtin(name: str) -> type[Application]:
    """Return the class of a built-in application.

    Raises
    ------
    ConfigError
        If there is none of that name.
    """
    if name not in BUILTIN:
        raise ConfigError(f"there is no application {name!r}; choose {', '.join(BUILTIN)} or file.py:NAME")
    module, _, attribute = BUILTIN[name].partition(":")
    found: type[Application] = getattr(importlib.import_module(module), attribute)
    return found
