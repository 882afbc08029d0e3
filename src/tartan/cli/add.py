"""``tartan add``: compare new items with those of a run and among themselves."""

from __future__ import annotations

import argparse

from tartan.cli.shared.inputs import previous_option, read_inputs
from tartan.cli.shared.options import add_execution_options, add_previous, add_trust, execution_options
from tartan.cli.shared.output import conclude, say_notices
from tartan.cli.shared.row_names import add_keys, add_raw, keys_option, name_parts


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="the new items, as for run: also @FILE and -")
    add_keys(parser, "the new rows of an array")
    add_raw(parser)
    parser.add_argument(
        "--no-map",
        dest="map",
        action="store_false",
        help="leave the map of the run as it is; otherwise new items are placed on it, if the run keeps one",
    )
    add_previous(parser)
    add_trust(parser, "run the code, and open the inputs, that the folder names")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Add them; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import print_growth
    from tartan.result.map_growth import MapGrowth, grow_map

    inputs = name_parts(args, read_inputs(args.inputs))
    options = execution_options(args) | keys_option(args) | previous_option(args)
    with say_notices():
        run = tartan.add(args.run, inputs, extend_map=False, trust=args.trust, **options)
    growth = grow_map(run, quiet=args.quiet) if args.map else MapGrowth()
    return conclude(run, args, map=print_growth(run, growth, quiet=args.quiet))
