"""``tartan expire``: forget old versions of a run, and free what they alone needed."""

from __future__ import annotations

import argparse

from tartan.base.format import format_bytes
from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import print_json, say
from tartan.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    how_far = parser.add_mutually_exclusive_group()
    how_far.add_argument(
        "--keep", type=positive_int, default=1, metavar="N", help="how many versions stay, the newest; default: 1"
    )
    how_far.add_argument(
        "--now",
        action="store_true",
        help="leave no byte of removed items in the folder: chunks that they share with others are written anew",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what was freed")


def execute(args: argparse.Namespace) -> int:
    """Expire them; return the exit status."""
    import tartan
    from tartan.store.removal import foreign_names

    if args.now and args.keep != 1:
        raise ConfigError("--now keeps the newest version only; leave out --keep")
    freed = tartan.expire(args.run, args.keep, now=args.now)
    run = tartan.open(args.run)
    versions, others = run.versions, foreign_names(run.path)
    if not args.quiet:
        kept = f"version {versions[0].number:,}" if len(versions) == 1 else f"versions {versions[0].number:,} and later"
        less = f"; {format_bytes(freed)} of scores are freed" if freed > 0 else ""
        say(f"{run.path}: {kept} can be read{less}")
        if args.now and others:
            say(f"tartan: files that are not of the run are left as they are: {', '.join(others[:5])}")
    if args.json:
        numbers = [version.number for version in versions]
        print_json({"path": str(run.path), "versions": numbers, "freed_bytes": freed, "other_files": others})
    return 0
