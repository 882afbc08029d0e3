"""``tartan rename``: give an item of a run another name."""

from __future__ import annotations

import argparse

from tartan.cli.shared.changes import conclude_change
from tartan.cli.shared.output import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("old", metavar="OLD", help="the item: its whole name")
    parser.add_argument("new", metavar="NEW", help="what it is called from now on")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what was done")


def execute(args: argparse.Namespace) -> int:
    """Rename it; return the exit status."""
    import tartan

    before = tartan.open(args.run).version
    run = tartan.rename(args.run, args.old, args.new)
    if run.version == before and not args.quiet:
        say(f"{args.old} is called that already: nothing to do")
    return conclude_change(run, args)
