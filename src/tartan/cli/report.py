"""``tartan report``: a run as one HTML page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from tartan.cli.shared.colours import add_color_by, read_color_by
from tartan.cli.shared.matrix import add_names
from tartan.cli.shared.options import add_at, add_trust
from tartan.cli.shared.output import print_json, say, say_version, warn_unfinished
from tartan.cli.shared.outputs import PAGE, add_overwrite, inspector_of, require_outputs
from tartan.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "-o", "--out", metavar="FILE.html", type=Path, help="the page; default: beside RUN, with .html for .tartan"
    )
    add_names(parser)
    add_color_by(parser, "the map")
    add_at(parser)
    add_overwrite(parser)
    add_trust(parser, "open the items, and run the application, that RUN names")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say where the page is")


def execute(args: argparse.Namespace) -> int:
    """Write the page; return the exit status."""
    import tartan
    from tartan import apps
    from tartan.result.shown_run import show_run
    from tartan.run.inspection import closer_look
    from tartan.view.report import write_report
    from tartan.view.thumbnails import pictures_of
    from tartan.view.triple_report import write_triple_report

    folder = Path(args.run).resolve()
    out: Path = args.out or folder.with_name(f"{folder.name.removesuffix('.tartan')}.html")
    require_outputs(args, (out, PAGE))
    opened = tartan.open(args.run, args.at)
    run = show_run(opened, args.names)
    if run.arity == 3 and args.color_by is not None:
        raise ConfigError("--color-by colours the map, and the report of a run of triples has none; leave it out")
    warn_unfinished(run)
    say_version(run, quiet=args.quiet)
    if run.arity == 3:
        target = write_triple_report(run, out)
    else:
        if args.trust:
            opened.look_closely = closer_look(opened.folder, apps, trust=True)
        inspector = inspector_of(run.folder, args)
        target = write_report(
            run,
            out,
            picture_of=pictures_of(inspector.portrait),
            facts_of=lambda item: inspector.portrait(item).facts,
            coloured=read_color_by(args, opened.keys, run.keys),
        )
    if not args.quiet:
        say(f"report in {target}")
    if args.json:
        print_json({"path": str(run.path), "report": str(target), "bytes": target.stat().st_size})
    return 0
