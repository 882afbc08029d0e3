"""``tartan resume``: compute what is missing in a run."""

from __future__ import annotations

import argparse
from typing import Any

from tartan.cli.shared.inputs import previous_option
from tartan.cli.shared.options import add_execution_options, add_previous, add_trust, execution_options
from tartan.cli.shared.output import conclude, say, unit_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="try failed items and pairs again; files of failed items may be mended, all others must be as they were",
    )
    add_previous(parser)
    add_trust(parser, "run the code, and open the inputs, that the folder names")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Resume it; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import print_hint

    before = tartan.open(args.run)
    finished, statistics, merged_at = before.finished, before.stats, _read_merge_time(before)
    failed = {failure.i for failure in before.failures if failure.kind == "item"} if args.retry_failed else set()
    options = execution_options(args) | previous_option(args)
    run = tartan.resume(args.run, retry_failed=args.retry_failed, trust=args.trust, **options)
    healed = failed - {failure.i for failure in run.failures if failure.kind == "item"}
    more = {"n_healed": len(healed)} if args.retry_failed else {}
    if failed and not args.quiet:
        say(f"tartan: {len(healed):,} of {len(failed):,} failed items are healed")
    # Where it was damaged, chunks were computed or the result of a reduced run was merged again.
    untouched = finished and not failed and (run.stats, _read_merge_time(run)) == (statistics, merged_at)
    status = conclude(run, args, finished_before=untouched, **more)
    if unit_of(run) == "pairs":
        print_hint(run)
    return status


def _read_merge_time(run: Any) -> int | None:
    """Return when the result of a reduced run was written; None for other runs."""
    path = run.path / "result.parquet"
    return path.stat().st_mtime_ns if path.is_file() else None
