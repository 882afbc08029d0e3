"""Compare everything with everything: fast, resumable, larger than memory.

``allpairs`` computes the score of every pair of items and returns a ``Run``, ``alltuples`` those of every triple;
``open`` opens a run, ``resume`` finishes one, ``add`` adds items. An ``Application`` says what an item is and how two
of them compare.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tartan.errors import TartanError

if TYPE_CHECKING:
    from tartan.api import (
        Run,
        TripleRun,
        add,
        allpairs,
        alltuples,
        expire,
        fuse,
        open,  # noqa: A004
        over,
        remove,
        rename,
        replace,
        resume,
        supported_tree,
        top,
        under,
    )
    from tartan.application import Application, Meaning
    from tartan.base.group_evidence import GroupEvidence
    from tartan.base.shared_counts import shared_counts
    from tartan.join import nearest_join

__all__ = [
    "Application",
    "GroupEvidence",
    "Meaning",
    "Run",
    "TartanError",
    "TripleRun",
    "add",
    "allpairs",
    "alltuples",
    "expire",
    "fuse",
    "nearest_join",
    "open",
    "over",
    "remove",
    "rename",
    "replace",
    "resume",
    "shared_counts",
    "supported_tree",
    "top",
    "under",
]

# Zarr and Arrow take a quarter of a second to import, NumPy a tenth: only those who need them pay.
_HOMES = {
    "Application": "tartan.application",
    "GroupEvidence": "tartan.base.group_evidence",
    "Meaning": "tartan.application",
    "nearest_join": "tartan.join",
    "shared_counts": "tartan.base.shared_counts",
}


def __getattr__(name: str) -> Any:
    if name == "apps":
        return import_module("tartan.apps")
    if name == "__version__":
        from tartan.base.machine import tartan_version

        return tartan_version()
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "tartan.api")), name)
    raise AttributeError(f"module 'tartan' has no attribute {name!r}")


def __dir__() -> list[str]:
    # So that an editor completes names that are not imported yet.
    return sorted({*globals(), *__all__})
