"""``tartan simulate``: write inputs whose truth is known."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tartan.cli.shared.options import add_settings, count, positive_int, settings
from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.outputs import add_overwrite, make_folder
from tartan.errors import ConfigError

# What may be given for an option whose default is of this type.
_KINDS: dict[type, tuple[Any, str]] = {
    int: (int, "a whole number"), float: (int | float, "a number"), bool: (bool, "true or false"),
}  # fmt: skip
# Parameters of every simulator that have an argument of their own.
_OF_ALL = ("folder", "n", "seed", "hard")
APPLICATIONS = ("forensics", "microscopy", "phylogeny", "vectors", "lcms")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("app", metavar="APP", choices=APPLICATIONS, help=", ".join(APPLICATIONS))
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to write; made when absent")
    parser.add_argument("-n", dest="n", type=positive_int, required=True, metavar="N", help="number of items")
    parser.add_argument("--seed", type=count, default=0, metavar="S", help="the same seed, the same data")
    parser.add_argument(
        "--hard",
        action="store_true",
        help="difficult input: bad items in front, copies, ties, other units, and what each application finds hard; "
        "the truth names them",
    )
    add_overwrite(parser)
    add_settings(parser, "set an option of the simulator")


def execute(args: argparse.Namespace) -> int:
    """Simulate; print the path of the truth; return the exit status."""
    simulate = importlib.import_module(f"tartan.apps.{args.app}.simulate").simulate
    options = settings(args)
    _check(simulate, options, args.app)
    if args.hard:
        options["hard"] = True
    make_folder(args.folder, overwrite=args.overwrite)
    truth = simulate(args.folder, args.n, args.seed, **options)
    if args.json:
        print_json({"folder": args.folder, "n_items": args.n, "seed": args.seed, "truth": truth})
    else:
        put(truth)
        say(f"{args.n:,} items for {args.app} in {args.folder}")
    return 0


def _check(simulate: Callable[..., Any], options: dict[str, Any], app: str) -> None:
    parameters = inspect.signature(simulate).parameters
    known = {name: one.default for name, one in parameters.items() if name not in _OF_ALL}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(
                f"--set {name}: the simulator of {app} has no such option; it has {', '.join(known) or 'none'}",
                context={"option": name},
            )
        kinds, wanted = _KINDS.get(type(known[name]), (object, ""))
        if not isinstance(value, kinds) or (isinstance(value, bool) and type(known[name]) is not bool):
            raise ConfigError(f"--set {name}: {value!r} must be {wanted}", context={"option": name})
