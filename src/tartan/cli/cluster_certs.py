"""``tartan cluster-certs``: write a certificate authority for one cluster."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tartan.cli.shared.output import print_json, put, say

# By contract: DAYS of cluster/certs.
_DAYS = 7.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="where to write; made when absent, for this user alone"
    )
    parser.add_argument("--days", type=_days, default=_DAYS, metavar="D", help="how long they hold (default: 7)")
    parser.epilog = (
        "Set DASK_CONFIG=DIR for the scheduler, for every worker and for tartan. Every certificate may run code on "
        "every machine of the cluster: make new ones for each, and copy the folder by a safe way alone."
    )


def execute(args: argparse.Namespace) -> int:
    """Write the files, and print their paths."""
    from tartan.cluster.certs import write_certificates

    paths = write_certificates(args.folder, args.days)
    if args.json:
        print_json({"folder": args.folder, "days": args.days, "files": paths})
        return 0
    put("\n".join(map(str, paths)))
    config = f"DASK_CONFIG={shlex.quote(str(args.folder.resolve()))}"
    say(
        f"they hold for {args.days:g} days; with {config} in its environment each of these finds them:\n"
        "  dask scheduler --protocol tls\n  dask worker tls://HOST:8786 --nthreads 1 --memory-limit 0\n  tartan"
    )
    return 0


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days above 0, at most 3650")
    return days
