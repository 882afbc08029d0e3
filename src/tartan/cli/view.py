"""``tartan view``: look at a run in a browser, also while it is computed."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tartan.cli.shared.matrix import add_names
from tartan.cli.shared.options import add_at, add_trust, count
from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.outputs import inspector_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--port", type=count, default=0, metavar="N", help="port of this machine (127.0.0.1); default: a free one"
    )
    add_names(parser)
    add_at(parser)
    add_trust(parser, "open the items, and run the application, that RUN names")


def execute(args: argparse.Namespace) -> int:
    """Serve the page until the user ends it; return the exit status."""
    import tartan
    from tartan import apps
    from tartan.result.shown_run import show_run
    from tartan.run.inspection import closer_look
    from tartan.store.downsample import require_shown
    from tartan.view.live import LiveRun
    from tartan.view.server import Server

    def opened() -> Any:
        run = tartan.open(args.run, args.at)
        if args.trust and run.arity == 2:
            run.look_closely = closer_look(run.folder, apps, trust=True)
        return show_run(run, args.names)

    require_shown(opened())
    live = LiveRun(opened, lambda folder: inspector_of(folder, args))
    server = Server(live, args.port)
    if args.json:
        print_json({"url": server.url, "port": server.port})
    else:
        put(server.url)
    sys.stdout.flush()
    say("open this address in a browser on this machine; Ctrl-C ends it")
    try:
        server.serve()
    except KeyboardInterrupt:  # how a view ends
        return 0
    return 0
