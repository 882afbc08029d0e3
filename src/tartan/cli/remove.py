"""``tartan remove``: remove items from a run; no answer has them any more."""

from __future__ import annotations

import argparse

from tartan.cli.shared.changes import conclude_change


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("keys", metavar="KEY", nargs="+", help="an item: its whole name")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what was done")


def execute(args: argparse.Namespace) -> int:
    """Remove them; return the exit status."""
    import tartan

    return conclude_change(tartan.remove(args.run, args.keys), args)
