"""``tartan replace``: put another file in the place of an item of a run."""

from __future__ import annotations

import argparse

from tartan.cli.shared.inputs import previous_option
from tartan.cli.shared.options import add_execution_options, add_previous, add_trust, execution_options
from tartan.cli.shared.output import conclude, say_notices


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("key", metavar="KEY", help="the item: its whole name, which stays")
    parser.add_argument("file", metavar="FILE", help="the file that takes its place; it may lie where the old one lay")
    parser.add_argument(
        "--no-map",
        dest="map",
        action="store_false",
        help="leave the map of the run as it is; otherwise the item is placed on it, if the run keeps one",
    )
    add_previous(parser)
    add_trust(parser, "run the code, and open the inputs, that the folder names")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Replace it; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import print_growth
    from tartan.result.map_growth import MapGrowth, grow_map

    options = execution_options(args) | previous_option(args)
    with say_notices():
        run = tartan.replace(args.run, args.key, args.file, extend_map=False, trust=args.trust, **options)
    growth = grow_map(run, quiet=args.quiet) if args.map else MapGrowth()
    return conclude(run, args, map=print_growth(run, growth, quiet=args.quiet))
