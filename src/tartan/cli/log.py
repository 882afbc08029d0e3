"""``tartan log``: the versions of a run."""

from __future__ import annotations

import argparse

from tartan.cli.shared.changes import describe_version, say_change
from tartan.cli.shared.output import print_json, put


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")


def execute(args: argparse.Namespace) -> int:
    """List them, the newest first; return the exit status."""
    import tartan

    run = tartan.open(args.run)
    versions = run.versions
    found = [describe_version(run, *both) for both in zip(versions, [None, *versions])][::-1]
    if args.json:
        print_json({"path": str(run.path), "versions": found})
        return 0
    for about in found:
        put(f"{about['version']:>4}  {about['time'] or '-':25}  {about['n_items']:>9,} items  {say_change(about)}")
    return 0
