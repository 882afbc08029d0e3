"""``tartan add``: compare new items with those of a run and among themselves."""

from __future__ import annotations

import argparse

from tartan.cli.options import add_execution_options, execution_options
from tartan.cli.output import conclude

HELP = "add items to a run; no old pair is computed again"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="the new items, as for run")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Add them; return the exit status."""
    import tartan

    return conclude(tartan.add(args.run, args.inputs, **execution_options(args)), args)
