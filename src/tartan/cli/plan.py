"""``tartan plan``: predict time, loads and efficiency of a run on a described machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files",
        metavar="FILE.toml",
        nargs="*",
        type=Path,
        help="machines and workloads (docs/plan.md), or names of plans that come with Tartan: forensics, "
        "bioinformatics, microscopy on one node (the default); rocket-nodes, rocket-unlike, rocket-cartesius, million "
        "on several",
    )
    parser.add_argument(
        "--fail", type=positive_int, default=0, metavar="N", help="nodes of a cluster that are lost on the way"
    )
    parser.add_argument("--workers", type=positive_int, metavar="N", help="replays at a time; default: all cores")


def execute(args: argparse.Namespace) -> int:
    """Replay the plans in virtual time and print what comes out."""
    from tartan.plan import plan_report

    report = plan_report(args.files, processes=args.workers, fail=args.fail)
    if args.json:
        print_json(report.as_dict())
    else:
        print(report.as_text())
    return 0
