"""``tartan attach``: follow a run, and go on with it if its driver dies."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from tartan.cli.shared.inputs import previous_option
from tartan.cli.shared.options import add_execution_options, add_previous, add_trust, execution_options
from tartan.cli.shared.output import conclude, say
from tartan.errors import ConfigError, StoreError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    add_previous(parser)
    add_trust(parser, "run the code, and open the inputs, that the folder names")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Follow it, or go on with it; return the exit status."""
    import tartan
    from tartan.run.attach import POLL_SECONDS, Follower

    tartan.open(args.run)  # refuses what is no run
    options = execution_options(args) | previous_option(args)
    follower = Follower(Path(args.run), quiet=args.quiet)
    while True:
        turn = follower.await_turn()
        if turn.finished:
            return conclude(tartan.open(args.run), args, finished_before=True)
        if turn.left:
            raise StoreError(_describe_end(tartan.open(args.run)), code="unfinished", retryable=True)
        given = options | choose_ranks(args.run, options, turn.on)
        if not args.quiet:
            say(f"tartan: taking over {args.run}{describe_ranks(given.get('on'))}")
        try:
            run = tartan.resume(args.run, trust=args.trust, **given)
        except StoreError as error:
            if error.code != "locked":
                raise
            if not args.quiet:
                say(f"tartan: another process took over {args.run} first; this one follows it from now on")
            time.sleep(POLL_SECONDS)
            continue
        return conclude(run, args, finished_before=False)


def choose_ranks(run: str, options: dict[str, Any], on: str) -> dict[str, Any]:
    """Return where to compute: as asked for, else with as many ranks on this machine as the driver that is gone.

    An address that stands in the folder is not connected to unasked: whoever answers there could run code here.

    Raises
    ------
    ConfigError
        If it computed on a cluster, and none is named.
    """
    if "on" in options or not on:
        return {}
    if on.startswith("local:"):
        return {"on": on}
    quoted = shlex.quote(run)
    raise ConfigError(
        f"the driver of {run} computed on {on}, and is gone; `tartan attach {quoted} --on {shlex.quote(on)}` goes on "
        f"there, `tartan attach {quoted} --on local:4` on this machine",
        context={"option": "--on"},
    )


def describe_ranks(on: Any) -> str:
    """Return in words where a run goes on; empty for this process."""
    where = on if isinstance(on, str) or on is None else on.address or f"local:{on.n_local}"
    return f" on {where}" if where else ""


def _describe_end(run: Any) -> str:
    why = run.stats.get("stopped")
    return (
        f"the driver of {run.path} has ended before the run did{f': {why}' if why else ''}; `tartan resume "
        f"{shlex.quote(str(run.path))}` computes what is missing"
    )
