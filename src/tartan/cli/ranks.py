"""``tartan ranks``: run a script on several ranks that send each other messages."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from tartan.cli.shared.link import add_link, divide_threads
from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import say
from tartan.errors import ConfigError, TartanError

if TYPE_CHECKING:
    from tartan.comm.program import RankEnding


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    parser.usage = (
        "tartan ranks --cpus N[,N...] [--nodes M] [--groups G] [--link loopback|mpi] [--grace TIME] SCRIPT.py ARG..."
    )
    add(
        "--cpus",
        type=_counts,
        metavar="N[,N...]",
        required=True,
        help="ranks of a node, each a process; 8,4: of the first and of the second node",
    )
    add("--nodes", type=positive_int, metavar="M", help="nodes to simulate on this machine; default: 1")
    add("--groups", type=positive_int, metavar="G", help="memory groups of a node; default: 1")
    add(
        "--grace",
        type=_duration,
        default="30s",
        metavar="TIME",
        help="how long ranks may take to end after SIGTERM or Ctrl-C (500ms, 30s, 2min); default: 30s",
    )
    add_link(parser)
    add("script", metavar="SCRIPT.py", help="in it, `tartan.comm.world()` is the communicator")
    arguments = add("arguments", metavar="ARG", nargs=argparse.REMAINDER, help="of the script")
    arguments.required = False  # else argparse says that it is, where the script is missing


def execute(args: argparse.Namespace) -> int:
    """Run; return the exit status: that of the first rank that failed by itself."""
    if args.link == "mpi":
        return _on_mpi(args)
    from tartan.comm.launch import run_script
    from tartan.comm.link_mpi import require_joined

    require_joined(args.link)
    ways = {"cpus": args.cpus, "nodes": args.nodes, "groups": args.groups or 1}
    return _status(args, run_script(args.script, args.arguments, signal_grace_seconds=args.grace, **ways))


def _counts(text: str) -> int | tuple[int, ...]:
    """Read how many ranks a node has: a number for all, or one for each."""
    return tuple(map(positive_int, text.split(","))) if "," in text else positive_int(text)


_PER_SECOND = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|h)")
# By judgement: a day; what is longer is a mistake, and timers end somewhere.
_MOST_SECONDS = 86_400.0


def _duration(text: str) -> float:
    """Read a time with its unit, in seconds."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _PER_SECOND[found[2]] if found else -1.0
    if not 0 <= seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time of at most a day, such as 500ms, 30s or 2min")
    return seconds


def _on_mpi(args: argparse.Namespace) -> int:
    """Be a node of ``mpiexec``; the first one reports for all."""
    if args.nodes is not None:
        raise ConfigError("--nodes simulates nodes; with --link mpi their number is that of mpiexec (-n)")
    if args.groups is not None:
        raise ConfigError("--groups divides a node; with --link mpi start more processes on it instead (mpiexec -n)")
    divide_threads(args.cpus if isinstance(args.cpus, int) else max(args.cpus))
    from tartan.comm.launch import script_program
    from tartan.comm.mpi_node import run_on_mpi

    command = ["tartan", "ranks", args.script, *args.arguments]
    program = script_program(args.script, args.arguments)
    outcome = run_on_mpi(program, cpus=args.cpus, command=command, signal_grace_seconds=args.grace)
    try:
        status = _status(args, outcome.reports, says=outcome.node == 0)
    except TartanError as error:
        if outcome.node == 0:
            raise
        status = error.exit_status
    return 128 + outcome.signal if status and outcome.signal else status


def _status(args: argparse.Namespace, reports: list[RankEnding], *, says: bool = True) -> int:
    from tartan.comm.launch import first_failure

    failure = first_failure(reports)
    if failure is None:
        if says and not any(report.asked for report in reports):
            say(f"tartan: warning: {args.script} has not asked for comm.world(); all ranks did the same")
        return 0
    statuses = [report.exit_status for report in reports if report.exit_status]
    if isinstance(failure, TartanError) and not statuses:
        raise failure
    return statuses[0] if statuses else 1
