"""``tartan ranks``: run a script on several ranks that send each other messages."""

from __future__ import annotations

import argparse
import sys

from tartan.cli.shared.options import positive_int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    parser.usage = "tartan ranks --cpus N [--nodes M] [--groups G] SCRIPT.py ARG..."
    add("--cpus", type=positive_int, metavar="N", required=True, help="ranks of a node, each a process")
    add("--nodes", type=positive_int, metavar="M", default=1, help="nodes to simulate on this machine; default: 1")
    add("--groups", type=positive_int, metavar="G", default=1, help="memory groups of a node; default: 1")
    add("--link", choices=("loopback",), default="loopback", help="what joins the nodes; default: loopback")
    add("script", metavar="SCRIPT.py", help="in it, `tartan.comm.world()` is the communicator")
    add("arguments", metavar="ARG", nargs=argparse.REMAINDER, help="of the script")


def execute(args: argparse.Namespace) -> int:
    """Run; return the exit status: that of the first rank that failed by itself."""
    from tartan.comm.launch import first_failure, run_script
    from tartan.errors import TartanError

    reports = run_script(args.script, args.arguments, cpus=args.cpus, nodes=args.nodes, groups=args.groups)
    failure = first_failure(reports)
    if failure is None:
        if not any(report.asked for report in reports):
            print(
                f"tartan: warning: {args.script} has not asked for comm.world(); all ranks did the same",
                file=sys.stderr,
            )
        return 0
    statuses = [report.exit_status for report in reports if report.exit_status]
    if isinstance(failure, TartanError) and not statuses:
        raise failure
    return statuses[0] if statuses else 1
