"""``tartan outliers``: the items that are far from all others, as a table."""

from __future__ import annotations

import argparse

from tartan.cli.shared.matrix import add_matrix, item_names, open_matrix
from tartan.cli.shared.memory import say_of_matrix
from tartan.cli.shared.options import finite_float, positive_int
from tartan.cli.shared.output import print_json, say
from tartan.cli.shared.outputs import TABLE, require_outputs
from tartan.cli.shared.tables import add_table_options, write_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_matrix(parser)
    add = parser.add_argument
    add(
        "-k",
        "--count",
        type=positive_int,
        default=10,
        metavar="K",
        help="how many nearest items the distances are averaged over; default: 10",
    )
    add(
        "--threshold",
        type=finite_float,
        default=3.5,
        metavar="Z",
        help="robust z score above which an item is an outlier; default: 3.5",
    )
    add("--all", action="store_true", help="list all items with their scores, the furthest first")
    add_table_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Find them; return the exit status."""
    import numpy as np

    from tartan.analytics import Monitor, outliers
    from tartan.base.shown_names import show_names
    from tartan.base.signals import cancel_on_signals

    require_outputs(args, (args.out, TABLE))
    monitor = Monitor(0 if args.quiet else 1)
    matrix = open_matrix(args)
    keys = show_names(item_names(matrix), args.names)
    say_of_matrix(args, "outliers", matrix, n_near=matrix.n * min(args.count, max(1, matrix.n - 1)))
    with cancel_on_signals(monitor.cancel):
        found = outliers(matrix, min(args.count, max(1, matrix.n - 1)), args.threshold, monitor=monitor)
    listed = np.argsort(-found.z, kind="stable") if args.all else found.indices
    rows = [(keys[item], float(found.scores[item]), float(found.z[item])) for item in listed.tolist()]
    if args.out is not None or not args.json:
        write_table(args, ("item", "score", "z"), rows)
    if not args.quiet:
        least = min(args.count, max(1, matrix.n - 1))
        say(
            f"{len(found.indices):,} of {matrix.n:,} items are outliers: their mean distance to the nearest {least:,} "
            f"has a robust z score above {args.threshold:g} (Iglewicz and Hoaglin, 1993)"
        )
    if args.json:
        shown = [dict(zip(("item", "score", "z"), row)) for row in rows]
        print_json({"n": matrix.n, "k": args.count, "threshold": args.threshold, "items": shown})
    return 0
