"""The built-in applications, by name; their classes, such as ``tartan.apps.Sets``, are imported when asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tartan.application import Application
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.apps.forensics.app import Forensics as Forensics
    from tartan.apps.forensics.fingerprints import Cameras as Cameras
    from tartan.apps.genomes.app import Genomes as Genomes
    from tartan.apps.microscopy.app import Microscopy as Microscopy
    from tartan.apps.phylogeny.app import Phylogeny as Phylogeny
    from tartan.apps.sets.app import Sets as Sets
    from tartan.apps.vectors.app import Vectors as Vectors


class Builtin(NamedTuple):
    """A built-in application.

    Attributes
    ----------
    target : str
        Where its class is, as ``module:NAME``.
    identity : str
        Stands in manifests as the hash of the source: 64 hexadecimal digits that change if and only if the scores
        of unchanged input change, so that a run folder can be resumed by a later version that computes the same.
    """

    target: str
    identity: str


BUILTIN = {
    "cameras": Builtin(
        "tartan.apps.forensics.fingerprints:Cameras",
        "24d07341d9da35c91596ed875aa4d9d771d3e79524bde97f93c2f483b23cc5bd",
    ),
    "forensics": Builtin(
        "tartan.apps.forensics.app:Forensics", "9f76da94fecf36a49cf03b6f42eff78bfdb279bff20135b733b4ffae657a4230"
    ),
    "genomes": Builtin(
        "tartan.apps.genomes.app:Genomes", "4d66dd3971662a483bf3822d4b1d12efdd52e9d588d0a33653b78b8062505492"
    ),
    "microscopy": Builtin(
        "tartan.apps.microscopy.app:Microscopy", "688bbc09f699f37e0d2b6d8198b06598370f3436ad1813ecf2082bd76a3d90d5"
    ),
    "phylogeny": Builtin(
        "tartan.apps.phylogeny.app:Phylogeny", "c49b853ca075496104655200f0ca15b4803a50792abf3d8f9bd44fc1d0da2339"
    ),
    "sets": Builtin("tartan.apps.sets.app:Sets", "149fc6b0c97f7fd83d9d7d139aa99484cbefd483382ab14604be08bbad775f25"),
    "vectors": Builtin(
        "tartan.apps.vectors.app:Vectors", "0f071cbcff29967bb420439abc476d7ef3836bdbacea0a22b33255ebe2784380"
    ),
}


def __getattr__(name: str) -> Any:
    for called, known in BUILTIN.items():
        if known.target.rpartition(":")[2] == name:
            return builtin(called)
    raise AttributeError(f"module 'tartan.apps' has no attribute {name!r}")


def builtin(name: str) -> type[Application]:
    """Return the class of a built-in application.

    Raises
    ------
    ConfigError
        If there is none of that name.
    """
    module, _, attribute = _entry(name).target.partition(":")
    found: type[Application] = getattr(importlib.import_module(module), attribute)
    return found


def identity(name: str) -> str:
    """Return what stands for the source of a built-in application in manifests."""
    return _entry(name).identity


def _entry(name: str) -> Builtin:
    if name not in BUILTIN:
        near = difflib.get_close_matches(name, BUILTIN, n=1)
        known = f"{', '.join(BUILTIN)} or file.py:NAME"
        what = f"did you mean {near[0]}? (choose {known})" if near else f"choose {known}"
        raise ConfigError(f"there is no application {name!r}; {what}")
    return BUILTIN[name]
