"""Names of a package that are imported when they are asked for: heavy libraries are paid for by those who need them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    modules : mapping of str to sequence of str
        The names that each module defines; modules are given by their full names.

    Examples
    --------
    >>> find, names = lazy_names("tartan.base", {"tartan.base.machine": ["tartan_version"]})
    >>> find("tartan_version").__name__, "tartan_version" in names()
    ('tartan_version', True)
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
