"""Requests for runs of triples: what they can be asked for. All else is as for pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tartan.application import output_dtypes
from tartan.base.checks import path_of
from tartan.core.pairs.triples import LEAST_ITEMS
from tartan.errors import ConfigError
from tartan.options import RunOptions
from tartan.run.inputs import open_items, require_items
from tartan.run.request import Request, find_application, reduction
from tartan.store.manifest import Manifest
from tartan.workers.shipping import Registry


def triple_request(
    app: Any,
    items: Any,
    options: RunOptions,
    keep: Any,
    *,
    keys: Any = None,
    registry: Registry | None = None,
) -> Request:
    """Check what ``tartan.alltuples`` was given.

    Parameters
    ----------
    app, items, keep, keys
        As in ``tartan.alltuples``; of the command line as ``request`` takes them.
    options : RunOptions
    registry : Registry, optional
        The built-in applications.

    Raises
    ------
    ConfigError
        If the application compares no triples, or an input, an option or what is to be kept is wrong.
    """
    application, described, texts = find_application(app, registry, 3)
    if not application.symmetric or application.directed:
        raise ConfigError(
            f"{type(application).__name__} says that scores depend on the order of items (symmetric, directed); of "
            "triples only i < j < k are compared"
        )
    _refuse_options(options)
    kept = _check_keep(keep, bool(application.similarity is not False), output_dtypes(application))
    source = open_items(application, items, keys, texts=texts)
    require_items(application, source, items, LEAST_ITEMS)
    return Request(application, described, source, options, {"kind": "triples"}, reduce=kept)


def _refuse_options(options: RunOptions) -> None:
    """Refuse what runs of triples cannot do."""
    if options.order != "panel":
        raise ConfigError(
            f"--order {options.order} is for pairs; triples have one order", context={"option": "--order"}
        )
    if tuple(options.device) != ("cpu",):
        raise ConfigError(
            f"--device {','.join(options.device)}: triples are compared on the CPU; leave it out",
            context={"option": "--device"},
        )


def _check_keep(keep: Any, largest: bool, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Check what a run of triples is to keep; large scores are the best unless the application has distances."""
    if keep is None:
        raise ConfigError(
            "keep: say which triples to keep, as tartan.top(10) (--top-k 10) or tartan.over(0.9) (--threshold 0.9); "
            "all scores would be too many",
            context={"option": "keep"},
        )
    return reduction(keep, dtypes, largest)


def refuse_of_pairs(given: Mapping[str, Any]) -> None:
    """Refuse options of the command line that are for pairs.

    Raises
    ------
    ConfigError
    """
    for option, value in given.items():
        if value is not None:
            raise ConfigError(f"{option} is for pairs; leave it out with --arity 3", context={"option": option})


def refuse_ranks(path: str | Path) -> None:
    """Refuse several processes where a folder holds a run of triples.

    Raises
    ------
    ConfigError
    """
    if Manifest.load(path_of("path", path)).arity == 3:
        raise ConfigError(
            "--on is for pairs; triples are compared on one machine: leave it out", context={"option": "--on"}
        )
