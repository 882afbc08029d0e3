"""Functions of two items that are compared in threads: a worker process takes longer to start than most of them run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tartan

__all__ = ["in_threads"]


def in_threads(function: Callable[[Any, Any], Any]) -> tartan.Application:
    """Return an application that calls a function of two items in threads of this process."""
    name = getattr(function, "__name__", "function").strip("<>").title()
    own = {"releases_gil": True, "compare_pair": staticmethod(function), "__module__": function.__module__}
    application: tartan.Application = type(name, (tartan.Application,), own)()
    return application
