"""``tartan resume``: compute what is missing in a run."""

from __future__ import annotations

import argparse

from tartan.cli.shared.options import add_execution_options, add_trust, execution_options
from tartan.cli.shared.output import conclude


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    add_trust(parser, "run the code that the folder names")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Resume it; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import hint

    before = tartan.open(args.run)
    finished, statistics = before.finished, before.stats
    run = tartan.resume(args.run, trust=args.trust, **execution_options(args))
    status = conclude(run, args, finished_before=finished and run.stats == statistics)  # else it was damaged
    hint(run)
    return status
